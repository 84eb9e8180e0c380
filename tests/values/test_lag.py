"""Tests of values/internal/lag.py and values/internal/offsets.py. Lag in records, bytes and time, against a count of
every record.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from helpers.damaged_logs import change_byte
from helpers.depth import IS_DEEP

import pylogseg
from pylogseg.disk.listing import open_dir
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import cleanable
from pylogseg.log.offset_map import OffsetMap
from pylogseg.reading.logs import LogFiles, logs_of
from pylogseg.values.internal.lag import Lag, Unread, first_unread, lags_of, newest_timestamp


def expected(folder: Path, offset: int, end: int) -> Lag:
    """The slow way: all records, and the batches as `dump` lists them."""
    start = pylogseg.open_dir(folder).partitions[0].log_start_offset
    first = max(offset, start)
    records = list(pylogseg.read(folder, offset=(first, max(first, end))))
    batches = pylogseg.dataset(folder, of="batches").to_table().to_pylist()
    size = sum(row["size"] for row in batches if row["lastOffset"] >= first and row["baseOffset"] < end)
    ms = records[-1].timestamp - records[0].timestamp if records else None
    return Lag(len(records), size, ms)


def log_of(folder: Path) -> LogFiles:
    return logs_of(open_dir(folder))[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with transactions, several segments, codecs, and holes where records were removed."""
    rng = random.Random(5)
    folder = tmp_path_factory.mktemp("lag") / "q-0"
    with pylogseg.open_log(folder, segment_bytes=4000, cleanup_policy="compact", min_cleanable_dirty_ratio=0) as log:
        producer = log.producer(7)
        time = 1_000_000
        for i in range(120):
            rows = []
            for _ in range(rng.randrange(1, 9)):
                time += rng.randrange(-50, 100)
                rows.append((time, b"%d" % rng.randrange(60), b"x" * rng.randrange(60)))
            if i % 7 == 0:
                producer.begin()
                producer.append(rows)
                (producer.abort if i % 2 else producer.commit)()
            else:
                log.append(rows)
            if i == 80:
                log.engine.roll()
                Cleaner(OffsetMap(1 << 16)).clean(log.engine, cleanable(log.engine, 0, 0))
    return folder


def test_every_offset(folder: Path) -> None:
    log = log_of(folder)
    batches = pylogseg.dataset(folder, of="batches").to_table().to_pylist()
    assert any(row["count"] < row["lastOffset"] - row["baseOffset"] + 1 for row in batches)
    end = log.log_end_offset
    offsets = [*range(0, end + 3, 19), end - 1, end, end + 10]
    random.Random(1).shuffle(offsets)
    assert lags_of(log, end, offsets) == [expected(folder, offset, end) for offset in offsets]


def test_an_end_before_the_log_s_own(folder: Path) -> None:
    log = log_of(folder)
    for end in (log.log_end_offset - 5, log.log_end_offset // 2):
        offsets = [0, end // 3, end - 2, end]
        assert lags_of(log, end, offsets) == [expected(folder, offset, end) for offset in offsets]


def test_the_table(golden: Path) -> None:
    """Groups of a real broker: markers count as offsets, not as records."""
    state = pylogseg.cluster_state(golden / "inside" / "groups")
    rows = [row for row in state.table("group_lags").to_pylist() if row["lagRecords"] is not None]
    assert [row["lagRecords"] <= row["lagFromStart"] or row["lag"] < 0 for row in rows] == [True] * len(rows)
    assert any(row["lagRecords"] < row["lag"] for row in rows)
    ahead = next(row for row in rows if row["group"] == "ahead")
    assert (ahead["lagRecords"], ahead["lagBytes"], ahead["lagMs"]) == (0, 0, None)
    assert not state.notes.has_damage


def unread(folder: Path, offset: int, end: int) -> tuple[int | None, bool]:
    """The slow way: the timestamp of the first record, and whether only markers lie before it."""
    there = [(record.offset, record.timestamp) for record in pylogseg.read(folder, offset=(offset, max(offset, end)))]
    batches = pylogseg.dataset(folder, of="batches").to_table().to_pylist()
    markers = {row["baseOffset"] for row in batches if row["isControl"]}
    following, timestamp = there[0] if there else (end, None)
    return timestamp, set(range(offset, following)) <= markers


def test_first_unread(folder: Path) -> None:
    log = log_of(folder)
    end = log.log_end_offset
    seen = set()
    for stop in (end, end // 2):
        for offset in range(0, stop + 1, 3 if IS_DEEP else 7):
            found, wanted = first_unread(log, offset, stop), unread(folder, offset, stop)
            assert (found.timestamp, not found.why) == wanted, (offset, stop, found)
            seen.add(wanted[1])
    assert seen == {True, False}  # compaction took some
    assert first_unread(log, end + 1, end) == Unread(None, f"the offset is above the end of the log, {end}")
    assert newest_timestamp(log, end) == list(pylogseg.read(folder))[-1].timestamp


def test_first_unread_of_what_is_not_there(tmp_path: Path) -> None:
    """Markers alone, a deleted beginning, a damaged batch, a record without a time."""
    with pylogseg.open_log(tmp_path / "q-0", segment_bytes=300) as made:
        for i in range(9):
            made.append([(1000 + i, b"k", b"%d" % i * 50)])
        producer = made.producer(7)
        producer.begin()
        producer.append([(2000, b"k", b"v")])
        producer.commit()
    log = log_of(tmp_path / "q-0")
    assert log.log_end_offset == 11
    assert first_unread(log, 9, 11) == Unread(2000)
    assert first_unread(log, 10, 11) == first_unread(log, 11, 11) == Unread(None)
    assert newest_timestamp(log, 11) == 2000
    later = first_unread(log._replace(log_start_offset=5), 2, 11)
    assert (later.timestamp, "deleted" in later.why) == (1005, True)
    change_byte(Path(log.segments[2].path), 70)
    first = log.segments[2].base_offset
    harmed = first_unread(log_of(tmp_path / "q-0"), first, 11)
    assert "damage: CRC" in harmed.why
    assert harmed.timestamp == 1001 + first
    with pylogseg.open_log(tmp_path / "r-0") as made:
        made.append([(-1, b"k", b"v")])
    assert "no timestamp" in first_unread(log_of(tmp_path / "r-0"), 0, 1).why
