"""Tests of offline/partition.py. Offline commands on a log that lost all of its segments, or a sealed one: they fail,
or name what is lost.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from helpers.shell import expect, pylogseg
from helpers.trees import contents

COMMANDS: dict[str, tuple[object, ...]] = {
    "redact": ("LOG", "--key", "nobody"),
    "compact": ("LOG", "-c", "cleanup.policy=compact"),
    "retain": ("LOG", "--before-offset", 5, "--force"),
    "delete-records": ("--offset", "txn-a-0=3", "--force"),
    "truncate": ("LOG", "--to", 5),
    "recode": ("LOG", "--compression", "lz4"),
}
LOG = "txn-a-0"


@pytest.fixture
def disk(examples: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(examples, tmp_path / "disk"))


def run(command: str, disk: Path, *more: object) -> int:
    return pylogseg(command, disk, *(LOG if word == "LOG" else word for word in COMMANDS[command]), *more).code


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_segments_stays_as_it_is(command: str, disk: Path) -> None:
    """An empty log in its place would destroy what proves the loss."""
    for path in (disk / LOG).iterdir():
        path.unlink()
    before = contents(disk)
    assert run(command, disk) == 1
    assert contents(disk) == before
    assert pylogseg("verify", disk, LOG).code == 1


def test_an_empty_log_may_lack_its_segment(disk: Path) -> None:
    """Nothing is lost where the checkpoints have no offset."""
    for path in (disk / LOG).iterdir():
        path.unlink()
    for name in ("replication", "recovery-point"):
        path = disk / f"{name}-offset-checkpoint"
        lines = [line for line in path.read_text().splitlines()[2:] if not line.startswith("txn-a 0 ")]
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    assert run("redact", disk) == 0
    assert (disk / LOG / f"{0:020}.log").exists()


@pytest.mark.parametrize("full", [(), ("--full",)])
@pytest.mark.parametrize("size", ["nothing", "a batch less"])
def test_recover_names_a_sealed_segment_that_is_lost(disk: Path, full: tuple[str, ...], size: str) -> None:
    """A broker starts without a word; its index, which the next command may write anew, proves the loss."""
    segment = disk / LOG / f"{0:020}.log"
    if size == "nothing":
        os.truncate(segment, 0)
    else:
        data = segment.read_bytes()
        ends, position = [], 0
        while position < len(data):
            position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            ends.append(position)
        os.truncate(segment, ends[len(ends) // 2])
    expect(pylogseg("recover", disk, LOG, "--no-keep", *full), 1, "offset")
