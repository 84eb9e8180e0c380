"""Queries while another process appends, rolls and deletes: what a snapshot has, or an error, never fewer rows."""

import subprocess
import sys
import time

import duckdb
import polars
import pyarrow.compute as pc
import pytest

import pylogseg
from pylogseg.errors import StorageError

#: Appends records whose value is their offset, in small segments, until it is told to end; with retention by size it
#: deletes segments too.
WRITER = """
import sys, time, pylogseg
path, retention = sys.argv[1], int(sys.argv[2])
settings = {"segment_bytes": 20_000, "retention_bytes": retention, "retention_ms": -1, "file_delete_delay_ms": 0}
with pylogseg.open_log(path, **settings) as log:
    first = 0
    while not sys.stdin.closed and first < 60_000:
        log.append([(1000 * n, b"%d" % (n % 7), b"%d" % n) for n in range(first, first + 100)])
        first += 100
        if retention > 0 and first % 1000 == 0:
            log.apply_retention()
        if first == 5000:
            print("ready", flush=True)
        time.sleep(0.002)
    sys.stdin.read()
"""


@pytest.fixture
def writer(request, tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "orders-0"), str(getattr(request, "param", -1))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "ready\n"
        yield tmp_path
        running.kill()


def test_a_log_that_grows(writer):
    """Each dataset is whole up to its end, and a later one has more."""
    ends = []
    for _ in range(4):
        logs = pylogseg.dataset(writer)
        count = logs.count_rows()
        rows = logs.to_table(columns=["offset", "value"])
        assert rows["offset"].to_pylist() == list(range(count))
        assert rows["value"].to_pylist() == [b"%d" % n for n in range(count)]
        query = 'select count(*), sum("offset"), count(distinct key) from logs where "offset" >= 1000'
        assert duckdb.sql(query).fetchall() == [(count - 1000, sum(range(1000, count)), 7)]
        assert logs.count_rows(filter=pc.field("timestamp").is_valid()) == count
        ends.append(count)
        time.sleep(0.1)
    assert ends[0] >= 5000
    assert ends == sorted(set(ends))
    lazy = pylogseg.scan_polars(writer).filter(polars.col("offset") < 100).select("offset")
    assert lazy.collect()["offset"].to_list() == list(range(100))


@pytest.mark.parametrize("writer", [100_000], indirect=True)
def test_a_log_whose_beginning_is_deleted(writer):
    """A scan has all records of its snapshot, or an error that says which are gone."""
    whole = lost = 0
    for _ in range(6):
        logs = pylogseg.dataset(writer)
        first = pylogseg.open_dir(writer).partitions[0].log_start_offset
        time.sleep(0.15 if whole else 0)
        try:
            offsets = logs.to_table(columns=["offset"])["offset"].to_pylist()
        except StorageError as error:
            assert "are gone" in str(error)  # noqa: PT017
            lost += 1
            continue
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
        assert offsets[0] <= first
        whole += 1
    assert whole
    assert lost
