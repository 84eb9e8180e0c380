"""Tests of reading/scan.py and tables/table_scan.py. What is read for a query, counted at the storage."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.counted_reads import count_reads

import pylogseg
from pylogseg.tables import dataset as classes
from pylogseg.testing import ManualClock

OFFSET = pc.field("offset")
COUNT = 200_000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Two partitions of 22 MB in 6 segments: 200,000 records of 100 bytes in batches of 16 KiB, one a second."""
    root = tmp_path_factory.mktemp("bytes")
    for partition in (0, 1):
        folder = root / f"plain-{partition}"
        with pylogseg.open_log(folder, segment_bytes=4 << 20, index_interval_bytes=4096, retention_ms=-1) as log:
            for first in range(0, COUNT, 200):
                numbers = np.arange(first, first + 200)
                log.append(
                    pa.table({
                        "timestamp": pa.array(numbers * 1000, pa.timestamp("ms", "UTC")),
                        "key": pa.array([b"%d" % (n % 100) for n in numbers]),
                        "value": pa.array([b"%090d" % n for n in numbers]),
                    })
                )  # fmt: skip
    return root


@pytest.fixture
def size(log):
    return sum(path.stat().st_size for path in log.glob("*/*.log"))


def at(second):
    return pa.scalar(second * 1_000_000, pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    ("keep", "count"),
    [
        ((OFFSET >= 100_000) & (OFFSET < 102_000), 4000),
        (OFFSET.isin([60_000, 120_000]), 4),
        ((OFFSET == 7) | (OFFSET >= 199_500), 1002),
        ((pc.field("partition") == 1) & (OFFSET >= 100_000) & (OFFSET < 104_000), 4000),
        (((pc.field("partition") == 0) & (OFFSET < 1000)) | ((pc.field("partition") == 1) & (OFFSET >= 199_000)), 2000),
        (pc.field("timestamp") >= at(198_000), 4000),
        ((pc.field("timestamp") >= at(199_000)) & (pc.field("timestamp") < at(199_500)), 1000),
    ],
    ids=str,
)
def test_one_percent_of_the_rows_reads_two_of_the_bytes(log, size, monkeypatch, keep, count):
    found = pylogseg.dataset(log)
    read = count_reads(monkeypatch)
    assert found.to_table(columns=["offset"], filter=keep).num_rows == count
    assert sum(read.values()) < 0.02 * size, read


def test_a_topic_that_a_filter_leaves_out_is_not_opened(log, monkeypatch):
    found = pylogseg.dataset(log)
    read = count_reads(monkeypatch)
    assert found.to_table(filter=pc.field("topic") == "other").num_rows == 0
    assert not read


def test_head_reads_the_beginning(log, size, monkeypatch):
    found = pylogseg.dataset(log)
    read = count_reads(monkeypatch)
    assert found.head(10).num_rows == 10
    assert sum(read.values()) < 0.2 * size


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_a_count_reads_headers(log, size, monkeypatch, isolation_level):
    found = pylogseg.dataset(log, isolation_level=isolation_level)
    read = count_reads(monkeypatch)
    assert found.count_rows() == 2 * COUNT
    assert read["headers"] > 0
    assert sum(read.values()) < 0.03 * size, read
    unchecked = pylogseg.dataset(log, isolation_level=isolation_level, check_crc=False)
    by_partition = unchecked.to_table(columns=["partition", "offset"]).group_by("partition")
    assert by_partition.aggregate([("offset", "max")]).column("offset_max").to_pylist() == [COUNT - 1, COUNT - 1]
    assert sum(read.values()) < 0.06 * size, read


def test_memory_is_bounded_by_tasks(log, size, monkeypatch):
    """Whoever takes rows slowly has a few tasks of them in memory, whatever the log's size."""
    monkeypatch.setattr(classes, "TASK_BYTES", 192 << 10)
    monkeypatch.setattr(classes, "processors", lambda: 3)
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for batch in pylogseg.dataset(log).to_batches(columns=["key", "value", "offset"]):
        time.sleep(0.002)  # the threads are ahead as far as they may
        most, count = max(most, pa.total_allocated_bytes() - before), count + batch.num_rows
    assert count == 2 * COUNT
    # A task becomes columns, their offsets and room of the decoder: up to four times its bytes on a busy machine.
    assert most < 4 * (2 * 3 + 2) * (192 << 10) < size / 6


@pytest.mark.parametrize("kind", ["LogAppendTime", "CreateTime"])
def test_times_of_a_broker_end_a_scan(tmp_path, monkeypatch, kind):
    """What a broker appended after the last wanted time is not read; of a producer's times nobody knows."""
    clock = ManualClock(1_000_000)
    settings = {"segment_bytes": 300_000, "index_interval_bytes": 4096, "message_timestamp_type": kind}
    with pylogseg.open_log(tmp_path / "plain-0", clock=clock, retention_ms=-1, **settings) as log:
        for first in range(0, 20_000, 100):
            clock.set_ms(1_000_000 + 1000 * first)
            log.append([(1_000_000 + 1000 * first, b"k", bytes(90)) for _ in range(100)])
    found = pylogseg.dataset(tmp_path)
    rows = found.to_table(columns=["topic", "timestamp", "offset"])
    assert rows["offset"].to_pylist() == list(range(20_000))
    assert found.to_table(columns=["timestampType"])["timestampType"].unique().to_pylist() == [kind == "LogAppendTime"]
    size = sum(path.stat().st_size for path in tmp_path.glob("*/*.log"))
    for first, last in [(5000, 5200), (0, 99), (0, -1), (9_900, 10_700), (19_000, 30_000)]:
        begin, end = at(1000 + first), at(1000 + last)
        for keep in [
            (pc.field("timestamp") >= begin) & (pc.field("timestamp") <= end),
            (pc.field("timestamp") >= begin) & (pc.field("timestamp") < end) & (pc.field("topic") == "plain"),
        ]:
            with monkeypatch.context() as patch:
                read = count_reads(patch)
                some = found.to_table(columns=rows.column_names, filter=keep)
            assert some.equals(rows.filter(keep))
            if kind == "LogAppendTime":
                assert sum(read.values()) < 0.2 * size, (first, last, read)
