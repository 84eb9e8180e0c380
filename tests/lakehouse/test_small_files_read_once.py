"""Tests of disk/small_files.py. A run of `lake` over many topics reads small files of a log directory once, and not
again for each topic.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.env import filesystem
from pylogseg.format.files.checkpoint import encode_offset_checkpoint

#: A look at the disk reads checkpoints a few times, however many topics there are.
TOPICS, MOST = 30, 5


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A log directory of many topics, with the files that a broker has beside them."""
    home = tmp_path / "disk"
    offsets = {}
    for number in range(TOPICS):
        with pylogseg.open_log(home / f"t{number}-0") as log:
            log.append([(None, b"k", b"v")])
        offsets[f"t{number}", 0] = 1
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (home / name).write_bytes(encode_offset_checkpoint(offsets))
    (home / "meta.properties").write_text("version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=1\n")
    return home


@pytest.mark.parametrize("harm", ["", "meta.properties", "replication-offset-checkpoint"])
def test_each_is_read_once(home: Path, tmp_path: Path, harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if harm:
        (home / harm).write_bytes(b"\xff")
    reads, whole = Counter[str](), filesystem.LocalFiles.read_all

    def read_all(self: Any, path: str) -> Any:
        reads[os.path.relpath(path, home)] += 1
        return whole(self, path)

    monkeypatch.setattr(filesystem.LocalFiles, "read_all", read_all)
    for run in ("first", "again"):
        reads.clear()
        expect(shell("lake", home, "*", f"delta:{tmp_path}/tables/{{topic}}"), int(bool(harm)))
        beside = {name: count for name, count in reads.items() if os.sep not in name}
        assert "meta.properties" in beside
        assert {name: count for name, count in beside.items() if count > MOST} == {}, run
        of_topics = Counter(name.split(os.sep)[1] for name in reads.elements() if os.sep in name)
        assert of_topics["partition.metadata"] <= TOPICS


@pytest.mark.parametrize("harm", [b"", b"\0" * 20, b"0\n", b"\xff"], ids=["empty", "zeros", "cut", "unreadable"])
def test_the_last_row_of_a_table_is_not_compared_without_leader_epochs(home: Path, tmp_path: Path, harm: bytes) -> None:
    """The table's last row may be of a leader that the log does not have: the run and an audit say so."""
    table = f"delta:{tmp_path}/t3"
    assert shell("lake", home, "t3", table).code == 0
    path = home / "t3-0" / "leader-epoch-checkpoint"
    whole = path.read_bytes()
    path.write_bytes(harm)
    for command in ("lake", "audit"):
        done = expect(shell(command, home, "t3", table), 1)
        assert "not known whether the log has the last row of the table" in done.text + done.err
        assert str(path) in done.text + done.err
    path.write_bytes(whole)
    assert shell("lake", home, "t3", table).code == 0
    assert shell("audit", home, "t3", table).code == 0
