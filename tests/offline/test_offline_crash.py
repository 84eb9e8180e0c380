"""Tests of offline/compacting.py. compact, retain and delete-records, cut short by a crash or a failing disk at any
operation: nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.offline_world import BATCHES, CONFIG, Contents, check_cut_short, contents, faults, files, run, world

from pylogseg import offline
from pylogseg.errors import RequestError

BEFORE = contents(world())


def newest(records: list[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, tuple[int, bytes]]:
    """The last record of each key, but for tombstones."""
    last = {key: (offset, value) for offset, key, value in records}
    return {key: (offset, value) for key, (offset, value) in last.items() if value is not None}


def keeps_the_last_of_each_key(found: Contents) -> None:
    assert set(found) == set(BATCHES)
    for name, records in found.items():
        assert records == [record for record in BEFORE[name] if record in records]  # nothing new, order and offsets
        assert newest(records) == newest(BEFORE[name])


def test_compact() -> None:
    done = world()
    result = run(offline.compact, done, include_active=True)
    assert [part_result.numbers["recordsRemoved"] for part_result in result] == [49, 1]
    check_cut_short(offline.compact, keeps_the_last_of_each_key, include_active=True, topic=["users-0"])


def test_a_failure_leaves_nothing_half_written() -> None:
    """Unless what was written has begun to take the place of the old: then a load decides."""
    seen = set()
    for description, disk in faults(offline.compact, include_active=True, topic=["users-0"]):
        names = [name for name in files(disk) if name.endswith((".cleaned", ".swap"))]
        seen.add(bool(names))
        assert not names or any(name.endswith(".swap") for name in names), (description, names)
    assert seen == {True, False}


def keeps_from(offset: int) -> Callable[[Contents], None]:
    def judge(found: Contents) -> None:
        assert set(found) == set(BATCHES)
        for name, records in found.items():
            assert records == BEFORE[name][len(BEFORE[name]) - len(records) :]
            assert records[0][0] <= offset

    return judge


def test_retain() -> None:
    done = world()
    with pytest.raises(RequestError, match="offset 20 is above the high watermark, 8"):
        run(offline.retain, done, before_offset=20)
    assert [records[:1] for records in contents(done).values()] == [[(20, b"key 1", None)], BEFORE["users-1"][:1]]
    check_cut_short(offline.retain, keeps_from(20), before_offset=20, topic=["users-0"])


def test_retain_everything() -> None:
    """The active segment is rolled before it goes: the log goes on at its end."""
    done = world()
    first, _ = run(offline.retain, done, ms=0)
    assert (first.log_start, first.log_end, first.bytes_after) == (56, 56, 0)

    def judge(found: Contents) -> None:  # where names are not kept in order, any of the segments may come back
        for name, records in found.items():
            assert records == [record for record in BEFORE[name] if record in records]

    check_cut_short(offline.retain, judge, ms=0, topic=["users-0"])


def test_delete_records() -> None:
    done = world()
    run(offline.delete_records, done, offsets={"users-0": 21, "users-1": -1})
    found = contents(done)
    assert (found["users-0"][0][0], found["users-1"]) == (21, [])
    check_cut_short(offline.delete_records, keeps_from(21), offsets={"users-0": 21, "users-1": 5})


@pytest.mark.parametrize("command", ["compact", "delete_records"])
def test_into(command: str) -> None:
    """The input stays as it is byte for byte; the copy is there whole, or not at all."""
    own = {"offsets": 21, "topic": ["users-0"]} if command == "delete_records" else {"topic": ["users-0"]}
    check_cut_short(getattr(offline, command), lambda found: None, into="/copy", **own)


def test_the_marker_keeps_the_epoch() -> None:
    """A broker that knows its epoch again is trusted by its controller; after a crash it is not."""
    done = world()
    assert CONFIG["cleanup.policy"] == "compact,delete"
    run(offline.compact, done)
    assert done.read_all("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":7}'
