"""Tests of offline/partition.py. A high watermark that is known, and lower than it should be: an older checkpoint
beside the log.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.shell import pylogseg as shell

import pylogseg

HELD = "records above it may be uncommitted, and stay"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log from offset 10 to 40, in small segments; it has one replica, by the metadata of its cluster."""
    root = tmp_path_factory.mktemp("older") / "disk"
    with pylogseg.Broker(root) as broker:
        broker.create_topic("t", 1, {"internal.segment.bytes": "300", "cleanup.policy": "delete"})
        for number in range(40):
            broker.produce("t", b"%02d" % number * 20)
    assert shell("delete-records", root, "t-0", "--offset", 10).code == 0
    return root


def with_mark(disk: Path, to: Path, mark: int) -> Path:
    copy = Path(shutil.copytree(disk, to))
    path = copy / "replication-offset-checkpoint"
    text = path.read_text()
    assert "t 0 40\n" in text
    path.write_text(text.replace("t 0 40\n", f"t 0 {mark}\n"))
    return copy


@pytest.mark.parametrize(("mark", "start"), [(5, 10), (10, 10), (21, 20), (40, 38)])
def test_retain(disk: Path, tmp_path: Path, mark: int, start: int) -> None:
    """Segments above it stay, as with a broker, and the first of them is named with the reason."""
    copy = with_mark(disk, tmp_path / "copy", mark)
    done = shell("retain", copy, "t-0", "--bytes", 1)
    assert next(iter(pylogseg.read(copy, topic="t"))).offset == start
    assert (HELD in done.text, f"the high watermark is {max(mark, 10)}" in done.text) == (mark < 40, mark < 40)
    assert (done.code, "says 5, and the log begins at 10" in done.text) == ((1, True) if mark < 10 else (0, False))


@pytest.mark.parametrize("mark", [5, 10, 21, 40])
def test_delete_records(disk: Path, tmp_path: Path, mark: int) -> None:
    """Up to it they go; an offset above it is refused, with both numbers."""
    copy = with_mark(disk, tmp_path / "copy", mark)
    done = shell("delete-records", copy, "t-0", "--offset", 30)
    assert (done.code, "above the high watermark" in done.text) == ((0, False) if mark == 40 else (1, True))
    copy = with_mark(disk, tmp_path / "other", mark)
    done = shell("delete-records", copy, "t-0", "--offset", -1)
    first = next(iter(pylogseg.read(copy, topic="t")), None)
    assert (first and first.offset) == (max(mark, 10) if mark < 40 else None)
    assert (HELD in done.text, done.code) == (mark < 40, 1 if mark < 10 else 0)
