"""Tests of offline/merging/command.py. `merge` and `repair --from`, cut short anywhere: no half a result, nothing lost,
and the next run completes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crash import kills
from crash.images import crash_images
from helpers.brokers import NAME, Batch
from helpers.depth import IS_DEEP
from helpers.merge_world import SOURCES, Disks, FailingReads, Interrupted, batches_in, disks, flip
from helpers.offline_world import files

from pylogseg import offline
from pylogseg.errors import StorageError
from pylogseg.offline.result import Result
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

INTO = "/new/out"
LIMIT = int(os.environ.get("PYLOGSEG_CRASH_IMAGES", "25" if IS_DEEP else "15"))
#: Of the operations, every so many-th fails; all of them by `PYLOGSEG_CRASH_EVERY=1`.
EVERY = int(os.environ.get("PYLOGSEG_CRASH_EVERY", "7" if IS_DEEP else "13"))
ERRORS: list[Any] = [errno.EIO, errno.ENOSPC, "short", "sync"]


def damage(folder: Path, batches: list[Batch]) -> None:
    """The first disk has lost two batches, the others two each, and the second a segment."""
    for disk, number in (("b1", 2), ("b1", -3), ("b2", 4), ("b3", 6), ("b2", 8), ("b3", 8)):
        flip(folder, disk, batches[number])
    segments = sorted({batch.segment for batch in batches})
    (folder / "b2" / NAME / f"{segments[1]:020d}.log").unlink()


def merged(storage: Any) -> Result:
    storage.make_folder("/new")
    storage.sync_folder("/")
    return offline.merge(SOURCES, INTO, storage=storage)


def sources(storage: MemoryStorage) -> dict[str, bytes]:
    return {path: data for disk in SOURCES for path, data in files(storage, disk).items()}


class Judge:
    """Says whether what is left of a merge is nothing, or all; and merges once more."""

    def __init__(self, world: Disks) -> None:
        whole = world.storage()
        result = merged(whole)
        assert result.exit_code == 0
        assert result.partitions[0].numbers["offsetsFromOthers"] > 0
        assert batches_in(whole, f"{INTO}/{NAME}") == [batch.data for batch in world.batches]
        self.before, self.expected, self.found = sources(world.storage()), files(whole, INTO), set[bool]()

    def judge(self, description: str, disk: MemoryStorage, *, done: bool = False) -> None:
        assert sources(disk) == self.before, description
        there = disk.exists(INTO)
        self.found.add(there)
        assert there or not done, description
        if not there:
            merged(disk)
        assert files(disk, INTO) == self.expected, description
        assert sources(disk) == self.before, description


def test_a_merge_is_there_whole_or_not_at_all_after_a_crash() -> None:
    judge = Judge(disks(damage))
    begun = disks(damage).storage()
    merged(begun)
    begun.mark("done")
    for image in crash_images(begun.trace, LIMIT, seed=3):
        judge.judge(image.description, image.open(), done=bool(image.marks))
    assert judge.found == {True, False}


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_a_merge_that_fails_leaves_nothing(error: Any) -> None:
    world = disks(damage)
    judge = Judge(world)
    counter = FaultyStorage(world.storage(), None, error)
    merged(counter)
    assert counter.count > 10
    for k in range(1, counter.count + 1, EVERY):
        inner = disks(damage).storage()
        faulty = FaultyStorage(inner, k, error)
        try:
            result = merged(faulty)
        except StorageError:
            pass
        else:
            assert result.partitions[0].notes != [], faulty.failed
            if inner.exists(INTO) and f"{faulty.failed}".startswith("open /b"):
                # What cannot be opened counts as damage of that disk; segments may be those of another one.
                (one,) = result
                got = batches_in(inner, f"{INTO}/{NAME}")
                assert (one.numbers["offsetsMissing"] > 0) == (got != [batch.data for batch in world.batches])
                assert result.exit_code == int(one.numbers["offsetsMissing"] > 0), faulty.failed
                inner.remove_folder(INTO)
            assert not inner.exists(INTO) or files(inner, INTO) == judge.expected, faulty.failed
        judge.judge(f"{faulty.failed}", inner)
        assert not inner._locked
        names = [entry.name for entry in inner.list_folder("/new")]
        is_last = f"{faulty.failed}".startswith("remove folder")  # the empty one, when all is done
        assert names == ["out"] or is_last, faulty.failed


def test_ctrl_c_leaves_nothing() -> None:
    judge = Judge(disks(damage))
    counter = FaultyStorage(disks(damage).storage(), None)
    merged(counter)
    for k in range(1, counter.count + 1, EVERY):
        inner = disks(damage).storage()
        with pytest.raises(KeyboardInterrupt):
            merged(Interrupted(inner, k))
        judge.judge(f"Ctrl-C at operation {k}", inner)


def test_what_cannot_be_read_comes_from_the_others() -> None:
    """Or it is missing, and that is said: never in silence."""
    world = disks(damage)
    counter = FailingReads(world.storage())
    merged(counter)
    healed = missing = 0
    for k in range(1, counter.count + 1):
        inner = world.storage()
        faulty = FailingReads(inner, k)
        result = merged(faulty)
        (one,) = result
        assert sources(inner) == sources(world.storage())
        if one.state == "failed":  # it was good a moment before
            assert "it changed, or the disk fails" in one.reason or "read" in one.reason
            assert not inner.exists(INTO)
            assert result.exit_code == 2
            continue
        got = batches_in(inner, f"{INTO}/{NAME}")
        gone = [batch for batch in world.batches if batch.data not in got]
        assert got == [batch.data for batch in world.batches if batch.data in got]
        named = {
            o for row in one.rows if row["type"] == "missing" for o in range(row["firstOffset"], row["nextOffset"])
        }
        assert named == {o for batch in gone for o in range(batch.first, batch.end)}, faulty.failed
        assert result.exit_code == int(bool(gone))
        healed, missing = healed + (not gone), missing + bool(gone)
    assert healed
    assert missing


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it kills processes")
def test_a_kill_anywhere_leaves_nothing_or_all() -> None:
    """At a few places of each command; by itself, `python tests/crash kills` takes all."""
    command = [sys.executable, Path(__file__).parents[1] / "crash", "kills", "--every", "300", "--first", "60"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"(\S+): killed [1-9][0-9]* times, 0 wrong", done.stdout) == list(kills.CASES)


# ---- repair --from ----


def few_are_whole(folder: Path, batches: list[Batch]) -> None:
    """The other disk has only what is damaged on the first one: what that loses now cannot come back."""
    hit = {2, 5, len(batches) - 3}
    for number, batch in enumerate(batches):
        flip(folder, "b1" if number in hit else "b2", batch)


def repaired(storage: Any) -> Result:
    return offline.repair("/b1", other="/b2", keep_behind=True, storage=storage)


def test_a_repair_cut_short_loses_nothing() -> None:
    world = disks(few_are_whole)
    before, other = batches_in(world.storage(), f"/b1/{NAME}"), files(world.storage(), "/b2")
    every = [batch.data for batch in world.batches]
    assert len(before) == len(every) - 3
    begun = world.storage()
    assert repaired(begun).exit_code == 0
    assert batches_in(begun, f"/b1/{NAME}") == every
    left = [(image.description, image.open()) for image in crash_images(begun.trace, LIMIT, seed=2)]
    makers: list[Callable[[Any, int], FaultyStorage]] = [
        *(lambda inner, k, error=error: FaultyStorage(inner, k, error) for error in ERRORS),  # type: ignore[misc]
        lambda inner, k: Interrupted(inner, k),
    ]
    for make in makers:
        counter = make(world.storage(), 0)
        repaired(counter)
        for k in range(1, counter.count + 1, 5 * EVERY - 4):
            inner = world.storage()
            with contextlib.suppress(StorageError, KeyboardInterrupt):
                repaired(make(inner, k))
            left.append((f"{counter.error} {k}", inner))
    assert len(left) > (30 if IS_DEEP else 20)
    for description, disk in left:
        repaired(disk)
        assert batches_in(disk, f"/b1/{NAME}") == every, description
        assert files(disk, "/b2") == other, description


def test_a_repair_whose_disks_cannot_read_invents_nothing() -> None:
    world = disks(few_are_whole)
    every = [batch.data for batch in world.batches]
    counter = FailingReads(world.storage())
    repaired(counter)
    for k in range(1, counter.count + 1, EVERY):
        inner = world.storage()
        with contextlib.suppress(StorageError):
            result = repaired(FailingReads(inner, k))
            got = batches_in(inner, f"/b1/{NAME}")
            assert got == [data for data in every if data in got]
            assert result.exit_code or got == every, k
