"""Tests of env/file_errors.py and env/mapped_file.py. A disk without room: what frees some works all the same, and what
fails leaves the directory as trusted as before.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.offline_world import BATCHES, CONFIG, DIR, NOW, contents, world
from helpers.shell import expect, pylogseg

from pylogseg import offline, open_log, read
from pylogseg.errors import StorageError
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

BEFORE = contents(world())
TOPIC = ["--config", "cleanup.policy=compact,delete"]


def fill(path: Path) -> None:
    """Take all the room that is left."""
    with open(path / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert os.statvfs(path).f_bavail == 0


def a_full_disk(small: Path, *, clean: bool, value_bytes: int = 10_000) -> Path:
    """Two partitions of several segments and no byte free, after an orderly stop or not."""
    log_dir = small / "d"
    for name in ("a-0", "b-0"):
        with open_log(log_dir / name, segment_bytes=10 * value_bytes) as log:
            for i in range(60):
                log.append([(i, b"key %d" % i, os.urandom(value_bytes))])
    if not clean:
        (log_dir / ".kafka_cleanshutdown").unlink()
        for path in log_dir.glob("*-checkpoint"):
            path.unlink()
        for path in log_dir.glob("*/*.index"):
            path.unlink()
    fill(small)
    return log_dir


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("command", "start"),
    [(["retain", "b-0", "--bytes", "250K"], 36), (["delete-records", "--offset", "b-0=45"], 45),
     (["retain", "--bytes", "250K", "--config", "cleanup.policy=delete", "a-0", "b-0"], 36)],
)  # fmt: skip
def test_room_is_made_before_any_is_needed(small: Path, command: list[str], start: int, clean: bool) -> None:
    log_dir = a_full_disk(small, clean=clean)
    verb, *options = command
    done = pylogseg(verb, log_dir, *options)
    assert done.code == 0, done.text + done.err
    offsets = [record.offset for record in read(log_dir / "b-0")]
    assert offsets == list(range(offsets[0], 60))
    if verb == "delete-records":
        assert offsets[0] == start
    else:
        assert 27 <= offsets[0] <= start
    assert os.statvfs(small).f_bavail > 0
    assert pylogseg("verify", log_dir, "b-0").code == 0


@pytest.mark.parametrize("kept_kb", range(4, 54, 6))
@pytest.mark.parametrize("verb", ["retain", "delete-records"])
def test_less_is_freed_than_an_index_reserves(small: Path, verb: str, kept_kb: int) -> None:
    """Tiny segments: what goes is a few kilobytes. It goes in order, and nobody calls its offsets missing."""
    log_dir = a_full_disk(small, clean=False, value_bytes=1000)
    first = max(60 - kept_kb, 9)  # at least one segment goes
    words = ("--bytes", f"{kept_kb}K") if verb == "retain" else ("--offset", f"b-0={first}")
    done = pylogseg(verb, log_dir, *(["b-0"] if verb == "retain" else []), *words)
    assert (done.code, done.err) == (0, ""), done.text
    assert "disk was full" in done.text
    offsets = [record.offset for record in read(log_dir / "b-0")]
    assert offsets == list(range(offsets[0], 60))
    if verb == "delete-records":
        assert offsets[0] == first
    assert f" {offsets[0]} " in next(line for line in done.text.splitlines() if line.startswith("b-0 ")) or (
        offsets[0] == 0
    )
    verified = expect(pylogseg("verify", log_dir, "b-0", "--json"), 0)
    assert not [found for found in verified.rows if found.get("kind") in ("missing", "gap", "log-start")]
    # With room, the same again puts the log in order, and begins it at the same offset.
    (small / "filler").unlink()
    expect(pylogseg(verb, log_dir, *(["b-0"] if verb == "retain" else []), *words), 0)
    assert [record.offset for record in read(log_dir / "b-0")] == offsets
    assert not [found for found in pylogseg("verify", log_dir, "b-0", "--json").rows if found.get("kind") == "missing"]


@pytest.mark.parametrize("clean", [True, False])
def test_what_fails_leaves_the_marker(small: Path, clean: bool) -> None:
    """A compaction that finds no room changes nothing: the directory is as trusted as before, and retention works."""
    log_dir = a_full_disk(small, clean=clean)
    before = {path: path.read_bytes() for path in log_dir.glob("*-0/*.log")}
    expect(pylogseg("redact", log_dir, "--key", "key 5", "--key", "key 50"), 2, out="No space left")
    assert {path: path.read_bytes() for path in log_dir.glob("*-0/*.log")} == before
    assert (log_dir / ".kafka_cleanshutdown").exists() is clean
    assert pylogseg("retain", log_dir, "a-0", "--bytes", "250K").code == 0


class FullUntilFreed(FaultyStorage):
    """Nothing can be written until something was removed."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, error=errno.ENOSPC)
        self.freed = False

    def meets(self, operation: str, path: str, kind: Any = "other") -> bool:
        self.freed |= operation == "remove" and path.endswith(".log")
        if (
            not self.freed
            and path.endswith((".index", ".timeindex", ".snapshot"))
            and operation not in ("remove", "sync", "open")
        ):
            raise self.failure(path, operation)
        return False


def test_freed_segments_are_told() -> None:
    inner = world()
    inner.remove(f"{DIR}/.kafka_cleanshutdown")
    storage = FullUntilFreed(MemoryStorage(inner.state))
    result = offline.delete_records(DIR, {"users-0": 21}, storage=storage, config=CONFIG, now_ms=NOW + 100_000)
    (part_result,) = result
    assert (part_result.state, part_result.log_start, result.exit_code) == ("done", 21, 0), part_result
    assert part_result.numbers == {"segmentsDeleted": 1, "logStartBefore": 0, "offsetsGone": 21}
    assert part_result.bytes_before > part_result.bytes_after > 0
    assert any("disk was full" in note for note in part_result.notes)
    assert contents(storage.inner)["users-0"] == [record for record in BEFORE["users-0"] if record[0] >= 21]


def test_one_that_frees_nothing_waits_for_the_others() -> None:
    inner = world()
    inner.remove(f"{DIR}/.kafka_cleanshutdown")
    storage = FullUntilFreed(MemoryStorage(inner.state))
    told: list[str] = []
    result = offline.retain(
        DIR, before_offset=0, topic=["users-1"], storage=storage, config=CONFIG, now_ms=NOW + 100_000
    )
    assert isinstance(result.failed[0].error, StorageError)
    assert result.exit_code == 2
    result = offline.retain(
        DIR, max_bytes=900, topic=["users"], storage=storage, config=CONFIG, now_ms=NOW + 100_000,
        on_result=lambda part_result: told.append(part_result.name),
    )  # fmt: skip
    assert [part_result.state for part_result in result] == ["done", "unchanged"]
    assert [part_result.name for part_result in result] == sorted(told) == sorted(BATCHES)
