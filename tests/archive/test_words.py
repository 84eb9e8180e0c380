"""Tests of format/words.py. The words of commands about archives: which URL to use, sizes with units, and lines of
JSON.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.shell import pylogseg as shell
from helpers.tiers import Key

import pylogseg
from pylogseg.archive import write


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n")
    with pylogseg.open_log(disk / "orders-0") as log:
        log.append([(None, b"k", b"v")])
    for _ in range(2):
        assert shell("archive", disk, tmp_path / "archive").code in (0, 1)
    return tmp_path / "archive"


@pytest.mark.parametrize("command", [("ls",), ("cat",), ("stats",), ("serve",), ("lake",), ("report",)])
def test_the_folder_of_an_archive_is_known(archive: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    more = {"report": ["-o", tmp_path / "x.html"], "lake": ["delta:x/{topic}"]}.get(command[0], [])
    done = shell(*command, archive, *more)
    assert (done.code, f"aiven+file://{archive}#latest" in done.err) == (2, True), done.err


def test_points_and_prune(archive: Path) -> None:
    heading = shell("archive", "points", archive).text.splitlines()[0].split("  ")
    assert [each.strip() for each in heading if each.strip()][2:] == ["PARTITIONS", "SIZE", "NOT SEEN", "FAULTS"]
    (line,) = shell("archive", "prune", archive, "--keep-last", 1, "--dry-run", "--json").text.splitlines()
    row = json.loads(line)
    assert (len(row["kept"]), len(row["removed"]), row["dryRun"]) == (1, 1, True)


def test_one_key_that_is_missing_is_one_finding(tmp_path: Path) -> None:
    with pylogseg.Broker(tmp_path / "disk") as broker:
        broker.create_topic("t", 1, {"internal.segment.bytes": "1500"})
        for number in range(40):
            broker.produce("t", b"%d " % number * 30)
    Key.make("ops", tmp_path)
    done = write(tmp_path / "disk", tmp_path / "archive", encrypt_to=tmp_path / "ops.public")
    verified = shell("verify", tmp_path / "archive", "--read-all")
    assert (verified.code, verified.text.count("UNREAD"), verified.text.count("remedy:")) == (2, 1, 1)
    assert f"and {done.segments - 1} more with the same reason" in verified.text
    rows = shell("verify", tmp_path / "archive", "--read-all", "--json").rows
    assert sum(row.get("kind") == "locked" for row in rows) == done.segments
