"""Tests of log/segment_rewrite.py. redact, recode and repair, cut short by a crash or a failing disk at any operation:
nothing is lost.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

import pytest
from crash.images import crash_images
from helpers.depth import IS_DEEP
from helpers.offline_world import DIR, LIMIT, Contents, check_cut_short, contents, files, run, world

from pylogseg import offline
from pylogseg.errors import StorageError
from pylogseg.testing.clock import ManualClock
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

BEFORE = contents(world())
KEY = b"key 3"
FIRST = f"{DIR}/users-0/00000000000000000000.log"


def only_that_key_goes(found: Contents) -> None:
    for name, records in found.items():
        assert records == [record for record in BEFORE[name] if record in records]
        assert [record for record in BEFORE[name] if record not in records and record[1] != KEY] == []


def test_redact() -> None:
    done = world()
    first, second = run(offline.redact, done, keys=[KEY])
    assert (first.numbers["recordsDeleted"], second.numbers["recordsDeleted"]) == (8, 2)
    assert all(record[1] != KEY for records in contents(done).values() for record in records)
    check_cut_short(offline.redact, only_that_key_goes, keys=[KEY], topic=["users-0"])


def nothing_changes(found: Contents) -> None:
    assert found == BEFORE


def test_recode() -> None:
    """To none: the segments grow out of their size, so each becomes several."""
    done = world()
    first, _ = run(offline.recode, done, compression="zstd", merge_bytes=4000)
    assert first.numbers["segmentsRewritten"] == first.segments_before
    check_cut_short(offline.recode, nothing_changes, compression="none", topic=["users-0"])


@pytest.mark.parametrize(
    ("command", "own"),
    [("redact", {"keys": [KEY]}), ("recode", {"compression": "gzip"}), ("repair", {"keep_behind": True})],
)
def test_into(command: str, own: dict[str, Any]) -> None:
    """The input stays as it is, byte for byte, and the copy is what it would have become."""
    storage, changed = damaged() if command == "repair" else world(), damaged() if command == "repair" else world()
    before = files(storage)
    run(getattr(offline, command), storage, into="/copy", **own)
    assert files(storage) == before
    run(getattr(offline, command), changed, **own)
    assert contents(storage, "/copy") == contents(changed)


def damaged() -> MemoryStorage:
    """A batch in the middle of the first segment does not hold any more, and the length of another is wrong."""
    storage = world()
    data = bytearray(storage.read_all(FIRST))
    data[100] ^= 1
    second = 12 + int.from_bytes(data[8:12], "big")
    third = second + 12 + int.from_bytes(data[second + 8 : second + 12], "big")
    data[third + 8 : third + 12] = b"\x00\x7f\xff\xff"
    storage.write_synced(FIRST, bytes(data))
    return MemoryStorage(storage.state, ManualClock(0))


def test_repair() -> None:
    """Whatever a crash leaves of a repair, the next one ends where the first would have."""
    done = damaged()
    first, _ = run(offline.repair, done, keep_behind=True)
    assert (first.numbers["gaps"], first.numbers["offsetsMissing"]) == (2, 8)
    expected = contents(done)
    assert expected["users-1"] == BEFORE["users-1"]
    assert expected["users-0"] == [record for record in BEFORE["users-0"] if record[0] in range(4, 8) or record[0] > 11]
    again = damaged()
    run(offline.repair, again, keep_behind=True)
    images = [(image.description, image.open()) for image in crash_images(again.trace, LIMIT, seed=2)]
    for turn, error in enumerate((errno.EIO, "short", "sync")):
        counter = FaultyStorage(damaged(), None, error)  # type: ignore[arg-type]
        run(offline.repair, counter, keep_behind=True)
        for k in range(1, counter.count + 1, 2) if IS_DEEP else range(1 + 2 * turn, counter.count + 1, 6):
            inner = damaged()
            with contextlib.suppress(StorageError):
                run(offline.repair, FaultyStorage(inner, k, error), keep_behind=True)  # type: ignore[arg-type]
            images.append((f"{error} {k}", inner))
    assert len(images) > (100 if IS_DEEP else 40)
    for description, disk in images:
        run(offline.repair, disk, keep_behind=True)
        assert contents(disk) == expected, description


@pytest.mark.parametrize(
    ("command", "own"),
    [("redact", {"keys": [KEY]}), ("recode", {"compression": "gzip"}), ("repair", {"keep_behind": True})],
)
def test_ctrl_c(command: str, own: dict[str, Any]) -> None:
    """Wherever it comes: every segment is the old or the new one, and the same command again completes the work."""
    make = damaged if command == "repair" else world
    whole, work = make(), getattr(offline, command)
    calls: list[int] = []
    run(work, whole, on_bytes=calls.append, **own)
    expected = contents(whole)
    assert len(calls) > 6
    for k in range(len(calls)):
        left = iter(range(k))

        def on_bytes(size: int, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        disk = make()
        with pytest.raises(KeyboardInterrupt):
            run(work, disk, on_bytes=on_bytes, **own)
        if command == "recode":
            assert contents(MemoryStorage(disk.state.copy(), ManualClock(0))) == BEFORE
        run(work, disk, **own)
        assert contents(disk) == expected
