"""Tests of reading/removed_segments.py. Queries while another process appends, rolls and deletes: what a snapshot has,
or a gap for what is gone of it.
"""

import subprocess
import sys

import duckdb
import polars
import pyarrow.compute as pc
import pytest

import pylogseg
from pylogseg.walker.gaps import GapKind

#: Appends records whose value is their offset, in small segments: 5,000, and 20,000 more for each line that it reads;
#: with retention by size it deletes segments too.
WRITER = """
import sys, time, pylogseg
path, retention = sys.argv[1], int(sys.argv[2])
settings = {"segment_bytes": 20_000, "retention_bytes": retention, "retention_ms": -1, "file_delete_delay_ms": 0}
with pylogseg.open_log(path, **settings) as log:
    first, end = 0, 5000
    while True:
        while first < end:
            log.append([(1000 * n, b"%d" % (n % 7), b"%d" % n) for n in range(first, first + 100)])
            first += 100
            if retention > 0 and first % 1000 == 0:
                log.apply_retention()
            time.sleep(0.002)
        print(end, flush=True)
        if not sys.stdin.readline():
            break
        end += 20_000
"""


class Writer:
    """The process that appends, and the folder that its log is in."""

    def __init__(self, running, folder):
        self._running, self.folder, self.end = running, folder, 0

    def goes_on(self):
        """Let it append more, beside whatever comes next."""
        self._running.stdin.write("\n")
        self._running.stdin.flush()

    def has_stopped(self):
        """Wait until all that was allowed is appended."""
        self.end = int(self._running.stdout.readline())


@pytest.fixture
def writer(request, tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "orders-0"), str(getattr(request, "param", -1))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        made = Writer(running, tmp_path)
        made.has_stopped()
        yield made
        running.kill()


def test_a_log_that_grows(writer):
    """Each dataset is whole up to its end, and a later one has more."""
    ends = []
    for _ in range(4):
        writer.goes_on()
        logs = pylogseg.dataset(writer.folder)
        count = logs.count_rows()
        rows = logs.to_table(columns=["offset", "value"])
        assert rows["offset"].to_pylist() == list(range(count))
        assert rows["value"].to_pylist() == [b"%d" % n for n in range(count)]
        query = 'select count(*), sum("offset"), count(distinct key) from logs where "offset" >= 1000'
        assert duckdb.sql(query).fetchall() == [(count - 1000, sum(range(1000, count)), 7)]
        assert logs.count_rows(filter=pc.field("timestamp").is_valid()) == count
        assert writer.end <= count <= writer.end + 20_000
        ends.append(count)
        writer.has_stopped()
    assert ends[0] >= 5000
    assert ends == sorted(ends)
    assert pylogseg.dataset(writer.folder).count_rows() == writer.end == 85_000
    lazy = pylogseg.scan_polars(writer.folder).filter(polars.col("offset") < 100).select("offset")
    assert lazy.collect()["offset"].to_list() == list(range(100))


@pytest.mark.parametrize("writer", [100_000], indirect=True)
def test_a_log_whose_beginning_is_deleted(writer):
    """A scan has all records of its snapshot, but for those that its gaps say are gone."""

    def scanned(logs, first):
        """The offsets, of a snapshot that begins with one."""
        offsets = logs.to_table(columns=["offset"])["offset"].to_pylist()
        for gap in sorted(logs.gaps, key=lambda gap: gap.first_offset):
            assert (gap.kind, gap.first_offset) == (GapKind.REMOVED, first)
            first = gap.next_offset
        assert offsets == list(range(first, first + len(offsets)))
        return offsets

    for _ in range(4):
        first = pylogseg.open_dir(writer.folder).partitions[0].log_start_offset
        before = pylogseg.dataset(writer.folder)
        offsets = scanned(before, first)
        assert (offsets[0], offsets[-1]) == (first, writer.end - 1), "nobody writes now"
        writer.goes_on()
        disk = pylogseg.open_dir(writer.folder)
        scanned(pylogseg.dataset(disk), disk.partitions[0].log_start_offset)
        writer.has_stopped()
        assert scanned(before, first) == [], "what it began with was deleted"
