"""Lag in records, bytes and time, against a count of every record."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pylogseg
from pylogseg.catalog.disk import open_dir
from pylogseg.internal_topics.lag import Lag, lags_of
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import cleanable
from pylogseg.log.offset_map import OffsetMap
from pylogseg.reading.log_reader import LogFiles, logs_of


def expected(folder: Path, offset: int, end: int) -> Lag:
    """The slow way: all records, and the batches as `dump` lists them."""
    start = pylogseg.open_dir(folder).partitions[0].log_start_offset
    first = max(offset, start)
    records = list(pylogseg.read(folder, offset=(first, max(first, end))))
    batches = pylogseg.dataset(folder, of="batches").to_table().to_pylist()
    size = sum(row["sizeBytes"] for row in batches if row["lastOffset"] >= first and row["baseOffset"] < end)
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
                log.roll()
                Cleaner(OffsetMap(1 << 16)).clean(log, cleanable(log, 0, 0))
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
    state = pylogseg.inside(golden / "inside" / "groups")
    rows = [row for row in state.table("group_lags").to_pylist() if row["lagRecords"] is not None]
    assert [row["lagRecords"] <= row["lagFromStart"] or row["lag"] < 0 for row in rows] == [True] * len(rows)
    assert any(row["lagRecords"] < row["lag"] for row in rows)
    ahead = next(row for row in rows if row["group"] == "ahead")
    assert (ahead["lagRecords"], ahead["lagBytes"], ahead["lagMs"]) == (0, 0, None)
    assert not state.notes.has_damage
