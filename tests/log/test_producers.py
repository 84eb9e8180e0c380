"""Tests of log/producer_rebuild.py, log/producer_snapshots.py, log/producers.py and log/transaction_markers.py.
Producers against a plain model, Kafka's own cases, snapshots, and what a load makes of the log.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.memory_files import MemoryFiles
from hypothesis import given
from hypothesis import strategies as st
from reference import producers as model
from reference.batch import Record
from reference.build import batch_v2, end_marker

from pylogseg._native import _append
from pylogseg.errors import (
    FencedError,
    InvalidRecordError,
    OutOfOrderSequenceError,
    PylogsegError,
    RequestError,
    TransactionStateError,
)
from pylogseg.format.batches import BatchTable, scan
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.log.producer_rebuild import rebuild_producers
from pylogseg.log.producer_state import Origin
from pylogseg.log.producers import Checked, Producers
from pylogseg.log.transaction_markers import Marker, marker_of

NOW = 1_700_000_000_000
HIGHEST = 2**31 - 1


class Partition:
    """Producers, and the batches that were appended so far."""

    def __init__(self, **settings: Any) -> None:
        self.files = MemoryFiles()
        self.producers = Producers(self.files, "t-0", **settings)
        self.end = 0
        self.log = b""

    def take(self, data: bytes, count: int, origin: Origin, **more: Any) -> Checked:
        batch = _append.read_batch(data, 0, len(data))[0]
        checked = self.producers.check([batch], data, origin, **more)
        if checked.duplicate is None:
            for append in checked.appends:
                self.producers.update(append)
            for completed in checked.completed:
                self.producers.complete(completed)
            self.end += count
            self.log += data
            self.producers.map_end_offset = self.end
        return checked

    def append(
        self,
        pid: int,
        epoch: int,
        sequence: int,
        *,
        count: int = 1,
        timestamp: int = NOW,
        transactional: bool = False,
        origin: Origin = Origin.CLIENT,
        **more: Any,
    ) -> Checked:
        records = [Record(self.end + i, timestamp, None, b"v") for i in range(count)]
        data = batch_v2(
            records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
        return self.take(data, count, origin, **more)

    def finish(
        self, pid: int, epoch: int, *, commit: bool = True, coordinator: int = 0, version: int = 0, timestamp: int = NOW
    ) -> Checked:
        data = end_marker(
            self.end,
            commit=commit,
            producer_id=pid,
            producer_epoch=epoch,
            coordinator_epoch=coordinator,
            timestamp=timestamp,
        )
        return self.take(data, 1, Origin.COORDINATOR, transaction_version=version)

    def rows(self) -> model.States:
        return {
            pid: {
                "epoch": state.producer_epoch,
                "coordinator": state.coordinator_epoch,
                "timestamp": state.last_timestamp,
                "txn": state.first_txn_offset,
                "batches": tuple(
                    (b.first_sequence, b.last_sequence, b.first_offset, b.last_offset, b.timestamp)
                    for b in state.batches
                ),
            }
            for pid, state in self.producers.active.items()
        }


sequences = st.one_of(st.none(), st.integers(0, 4), st.integers(HIGHEST - 2, HIGHEST))
data_steps = st.tuples(
    st.just("data"), st.integers(1, 3), st.integers(-1, 1), sequences, st.integers(1, 3), st.booleans(), st.booleans()
)
marker_steps = st.tuples(
    st.just("end"), st.integers(1, 3), st.integers(-1, 1), st.integers(0, 2), st.integers(0, 2), st.booleans()
)


@given(st.lists(st.one_of(data_steps, marker_steps), max_size=40))
def test_like_the_model(todo: list[tuple[Any, ...]]) -> None:
    partition = Partition()
    states: model.States = {}
    open_txns: dict[int, int] = {}
    for step in todo:
        pid = step[1]
        known = states.get(pid, model.EMPTY)
        epoch = max(known["epoch"] + step[2], 0)
        offset = partition.end
        want: Any
        got: Any
        if step[0] == "data":
            _, _, _, sequence, count, transactional, client = step
            if sequence is None:  # the one that follows
                sequence = (known["batches"][-1][1] + 1) % (HIGHEST + 1) if known["batches"] and not step[2] else 0
            try:
                want = model.append(
                    states, open_txns, pid, epoch, sequence, count, offset, NOW + offset, transactional, client
                )
            except model.Refused as refused:
                want = str(refused)
            try:
                checked = partition.append(
                    pid,
                    epoch,
                    sequence,
                    count=count,
                    timestamp=NOW + offset,
                    transactional=transactional,
                    origin=Origin.CLIENT if client else Origin.COORDINATOR,
                )
                found = checked.duplicate
                got = found and (found.first_sequence, found[0], found.first_offset, found[1], found[3])
            except PylogsegError as error:
                got = error.kind
        else:
            _, _, _, coordinator, version, commit = step
            try:
                want = model.end(states, open_txns, pid, epoch, coordinator, offset, NOW + offset, version)
                want = want and want[0]
            except model.Refused as refused:
                want = str(refused)
            try:
                checked = partition.finish(
                    pid, epoch, commit=commit, coordinator=coordinator, version=version, timestamp=NOW + offset
                )
                got = checked.completed[0].first_offset if checked.completed else None
            except PylogsegError as error:
                got = error.kind
        assert got == want, step
        assert partition.rows() == states
        partition.producers.on_high_watermark(partition.end)  # only open transactions hold back readers
        unstable = partition.producers.first_unstable
        assert (-1 if unstable is None else unstable.first_offset) == min(open_txns, default=-1)


def test_sequences() -> None:
    partition = Partition()
    partition.append(1, 0, 0, count=5)
    for wrong in (4, 6, 0):
        with pytest.raises(OutOfOrderSequenceError):
            partition.append(1, 0, wrong)
    partition.append(1, 0, 5)
    assert partition.append(1, 0, 0, count=5).duplicate is not None
    with pytest.raises(OutOfOrderSequenceError):
        partition.append(1, 1, 3)
    partition.append(1, 1, 0)
    with pytest.raises(FencedError):
        partition.append(1, 0, 6)
    partition.append(2, 0, 17)  # nothing is known of it


def test_five_batches_are_remembered() -> None:
    partition = Partition()
    for sequence in range(7):
        partition.append(1, 0, sequence)
    for sequence in range(2, 7):
        found = partition.append(1, 0, sequence).duplicate
        assert found is not None
        assert found.first_offset == found.last_offset == sequence
    with pytest.raises(OutOfOrderSequenceError):
        partition.append(1, 0, 1)


def test_sequences_wrap() -> None:
    partition = Partition()
    partition.append(1, 0, HIGHEST - 1, count=4)
    assert partition.rows()[1]["batches"] == ((HIGHEST - 1, 1, 0, 3, NOW),)
    partition.append(1, 0, 2)
    partition.append(2, 0, HIGHEST)
    partition.append(2, 0, 0)


def test_last_stable_offsets() -> None:
    partition = Partition()
    for pid in (1, 2, 3):
        partition.append(pid, 0, 0, transactional=True)
    producers = partition.producers
    assert producers.first_unstable is not None
    for pid, lasting in ((2, 0), (1, 2), (3, 6)):
        data = end_marker(partition.end, commit=False, producer_id=pid, producer_epoch=0)
        batch = _append.read_batch(data, 0, len(data))[0]
        (completed,) = producers.check([batch], data, Origin.COORDINATOR, transaction_version=0).completed
        assert producers.last_stable_offset(completed) == lasting
        assert completed == (pid, pid - 1, partition.end, True)
        partition.finish(pid, 0, commit=False)
    assert producers.first_unstable.first_offset == 0, "markers are not below the high watermark yet"
    for high_watermark, first in ((4, 0), (5, 2), (6, -1)):
        producers.on_high_watermark(high_watermark)
        unstable = producers.first_unstable
        assert (unstable.first_offset if unstable else -1) == first
    assert producers.first_unstable is None
    with pytest.raises(RequestError, match="no open transaction"):
        producers.complete(completed)


def test_transactions() -> None:
    partition = Partition()
    partition.append(1, 0, 0, transactional=True)
    with pytest.raises(TransactionStateError):
        partition.append(1, 0, 1)
    with pytest.raises(FencedError):
        partition.append(1, -1 + 0, 0, transactional=True)
    partition.finish(1, 0, coordinator=5)
    with pytest.raises(FencedError, match="coordinator"):
        partition.finish(1, 0, coordinator=4)
    assert partition.finish(1, 0, coordinator=5).completed == []
    with pytest.raises(RequestError, match="version"):
        partition.finish(1, 0, coordinator=5, version=-1)
    with pytest.raises(FencedError):
        partition.finish(1, -1, coordinator=5)


def test_second_transaction_version() -> None:
    partition = Partition()
    partition.append(1, 3, 0, transactional=True)
    with pytest.raises(FencedError, match="not above"):
        partition.finish(1, 3, version=2)
    assert partition.finish(1, 4, version=2).completed
    assert not partition.finish(1, 4, version=2).completed, "repeated after its answer was lost"
    assert partition.rows()[1]["batches"] == ()
    partition.append(2, 0x7FFF, 0, transactional=True)
    assert partition.finish(2, 0x7FFF, version=2).completed


def test_expiry() -> None:
    partition = Partition(expiration_ms=1000)
    partition.append(1, 0, 0)
    partition.append(2, 0, 0, transactional=True)
    partition.producers.expire(NOW + 999)
    assert set(partition.producers.active) == {1, 2}
    partition.producers.expire(NOW + 1000)
    assert set(partition.producers.active) == {2}


def test_snapshots() -> None:
    partition = Partition()
    producers, files = partition.producers, partition.files
    assert producers.take_snapshot() is None
    partition.append(1, 0, 0, count=2)
    partition.append(2, 5, 0, transactional=True)
    path = producers.take_snapshot()
    assert path == "t-0/00000000000000000003.snapshot"
    assert files.done == [("synced", path)]
    assert producers.take_snapshot() is None, "nothing new"
    assert {entry.producer_id for entry in parse_snapshot(files.files[path])} == {1, 2}
    partition.append(1, 0, 2)
    assert producers.take_snapshot(sync=False) == "t-0/00000000000000000004.snapshot"
    assert files.done[-1][0] == "plain"
    files.files["t-0/00000000000000000009.snapshot"] = b"broken"
    fresh = Producers(files, "t-0")
    fresh.truncate_and_reload(0, 9, NOW)
    assert fresh.map_end_offset == 4
    assert fresh.snapshots.offsets == [3, 4], "the broken one is removed"
    assert fresh.first_unstable is not None
    assert fresh.first_unstable.first_offset == 2
    assert len(fresh.active[1].batches) == 1, "only the last batch is on disk"
    fresh.truncate_and_reload(0, 3, NOW)
    assert fresh.snapshots.offsets == [3]
    fresh.truncate_and_reload(0, 3, NOW + 10 * fresh.expiration_ms)
    assert set(fresh.active) == {1, 2}, "the end did not change"
    fresh.map_end_offset = 8
    fresh.truncate_and_reload(0, 3, NOW + 10 * fresh.expiration_ms)
    assert set(fresh.active) == {2}, "an open transaction does not expire"
    fresh.truncate_fully(7)
    assert (fresh.map_end_offset, fresh.active, fresh.snapshots.offsets) == (7, {}, [])
    fresh.on_log_start(10)
    assert fresh.map_end_offset == 10
    assert fresh.take_snapshot() is None


def test_stray_snapshots() -> None:
    def left(bases: list[int], offsets: list[int]) -> list[int]:
        files = MemoryFiles({f"t-0/{offset:020d}.snapshot": b"" for offset in offsets})
        snapshots = Producers(files, "t-0").snapshots
        snapshots.remove_stray(bases)
        return snapshots.offsets

    assert left([0, 10, 20], [5, 10, 15, 20, 25]) == [10, 20, 25]
    assert left([0, 10, 20], [5, 15, 20]) == [20]
    assert left([], [5, 15]) == [15]
    files = MemoryFiles({"t-0/00000000000000000007.snapshot": b""})
    snapshots = Producers(files, "t-0").snapshots
    assert snapshots.mark_deleted(7) == "t-0/00000000000000000007.snapshot.deleted"
    assert snapshots.mark_deleted(7) is None
    assert snapshots.latest is None


def reader(data: bytes) -> Any:
    table = scan(data).batches

    def read(base: int, start: int, end: int | None) -> Any:
        keep = (table.last_offset >= start) & ((table.last_offset < end) if end is not None else True)
        yield BatchTable(table.rows[keep]), data, 0

    return read


def test_rebuild() -> None:
    """What a load makes of the log is what the appends made of it, but for batches in front of a snapshot."""
    partition = Partition()
    for sequence in (0, 2, 4):
        partition.append(1, 0, sequence, count=2)
    partition.append(2, 0, 0, transactional=True)
    partition.append(3, 0, 0, transactional=True)
    partition.finish(2, 0, coordinator=1)
    partition.append(1, 1, 0)
    files = MemoryFiles()
    loaded = Producers(files, "t-0")
    settings: dict[str, Any] = {"log_start_offset": 0, "now_ms": NOW, "clean": False}
    rebuild_producers(loaded, [0], reader(partition.log), last_offset=partition.end, **settings)
    assert loaded.map_end_offset == partition.end
    assert loaded.snapshots.offsets == [partition.end]
    partition.producers, before = loaded, partition.rows()
    assert before[1] == {
        "epoch": 1,
        "coordinator": -1,
        "timestamp": NOW,
        "txn": -1,
        "batches": ((0, 0, partition.end - 1, partition.end - 1, NOW),),
    }
    assert before[2]["coordinator"] == 1
    assert before[3]["txn"] == 7
    rebuild_producers(loaded, [0], reader(partition.log), last_offset=8, **settings)
    assert partition.rows()[2]["txn"] == 6, "its marker was cut off"
    assert loaded.snapshots.offsets == [8]
    one_by_one = Producers(MemoryFiles(), "t-0")
    ended = [
        one_by_one.replay_one(b, partition.log) for b in _append.batches_of(scan(partition.log).batches.rows, False)
    ]
    assert [found for found in ended if found] == [((2, 6, 8, False), 7)]
    assert one_by_one.map_end_offset == partition.end
    upgraded = Producers(MemoryFiles(), "t-0")
    rebuild_producers(
        upgraded, [0, 4, 6], reader(partition.log), last_offset=9, log_start_offset=0, now_ms=NOW, clean=True
    )
    assert upgraded.snapshots.offsets == [4, 6, 9]
    assert not upgraded.active


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_markers(codec: str) -> None:
    def marker(key: bytes | None, value: bytes | None, **more: Any) -> Marker | None:
        data = b"\0" * 7 + batch_v2(
            [Record(5, NOW, key, value)],
            codec=codec,
            producer_id=1,
            producer_epoch=0,
            transactional=True,
            control=True,
            **more,
        )
        return marker_of(data, _append.read_batch(data, 7, len(data) - 7)[0])

    commit, epoch_3 = b"\0\0\0\1", b"\0\0\0\0\0\3"
    assert marker(commit, epoch_3) == (False, 3, NOW)
    assert marker(b"\0\x09\0\0more", b"\0\7" + epoch_3[2:] + b"more") == (True, 3, NOW)
    assert marker(commit, epoch_3, log_append_time=NOW + 1) == (False, 3, NOW + 1)
    assert marker(commit, epoch_3, count=0) is None
    for key, value in ((b"\0\0\1", epoch_3), (b"\xff\xff\0\1", epoch_3), (commit, b"\xff\xff" + epoch_3[2:])):
        with pytest.raises(InvalidRecordError):
            marker(key, value)
    for key, value in ((b"\0\0\0\2", epoch_3), (commit, epoch_3[:5]), (None, epoch_3), (commit, None)):
        with pytest.raises(RequestError):
            marker(key, value)
