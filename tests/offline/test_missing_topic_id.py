"""Tests of offline/topic_ids.py. `recover`, `repair` and `reindex` write a missing `partition.metadata`: a broker needs
the topic id.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from helpers.shell import pylogseg, rows
from helpers.trees import tree

COMMANDS = ["recover", "repair", "reindex"]


@pytest.fixture
def disk(golden: Path, tmp_path: Path) -> Path:
    """The log directories of a stopped broker; the first has the cluster's metadata, and txn-b-0."""
    disk = tmp_path / "disk"
    for name in ("data0", "data1"):
        shutil.copytree(golden / "broker-4.3" / "txn" / name, disk / name)
    return disk


@pytest.mark.parametrize("name", ["data0/txn-b-0", "data1/txn-b-1"])
@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_written_again(disk: Path, command: str, name: str) -> None:
    path = disk / name / "partition.metadata"
    data = path.read_bytes()
    path.unlink()
    before = tree(disk)
    done = pylogseg(command, disk, path.parent.name, "--json", "--dry-run")
    (row,) = rows(done, "partition")
    assert (done.code, row["state"], tree(disk)) == (0, "done", before)
    done = pylogseg(command, disk, path.parent.name, "--json")
    (row,) = rows(done, "partition")
    assert (done.code, row["state"], path.read_bytes()) == (0, "done", data)
    (note,) = row["notes"]
    assert str(path) in note
    assert str(disk / "data0" / "__cluster_metadata-0") in note
    assert pylogseg("verify", disk / "data0", disk / "data1", "--quiet").code == 0
    again = pylogseg(command, disk, path.parent.name, "--json")
    (row,) = rows(again, "partition")
    assert (again.code, row["state"], row["notes"]) == (0, "unchanged", [])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("why", ["of another broker", "no metadata", "another topic", "set aside"])
def test_it_is_not_guessed(disk: Path, command: str, why: str) -> None:
    """Nothing is written where the metadata does not assign the partition to this broker."""
    log_dir, part = disk / "data0", disk / "data0" / "txn-b-0"
    (part / "partition.metadata").unlink()
    if why == "of another broker":
        meta = log_dir / "meta.properties"
        meta.write_text(re.sub(r"node\.id=\d+", "node.id=9", meta.read_text()))
    elif why == "no metadata":
        shutil.rmtree(log_dir / "__cluster_metadata-0")
    elif why == "another topic":
        part = part.rename(log_dir / "unknown-0")
    else:
        part = part.rename(log_dir / f"txn-b-0.{'0' * 32}-stray")
    done = pylogseg(command, log_dir, "--json")
    assert {row["partition"] for row in rows(done, "partition")} >= {part.name}
    assert not (part / "partition.metadata").exists()


@pytest.mark.parametrize("command", ["recover", "reindex"])
def test_a_partition_that_is_given_up_stays_as_it_was(disk: Path, command: str) -> None:
    part = disk / "data0" / "txn-b-0"
    (part / "partition.metadata").unlink()
    (part / "leader-epoch-checkpoint").write_text("garbage\n")
    log = part / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:200] + b"\1\1\1\1" + log.read_bytes()[204:])
    before = tree(part)
    done = pylogseg(command, disk / "data0", "txn-b-0", "--json")
    assert ([row["state"] for row in rows(done, "partition")], tree(part)) == (["failed"], before)
    assert done.code != 0
