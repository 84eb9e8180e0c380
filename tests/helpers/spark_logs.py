"""Logs that the Spark tests read, and plans of them carried out without Spark."""

import pyarrow as pa
import pytest

import pylogseg
from pylogseg.reading.column_names import DEFAULT_COLUMNS as COLUMNS
from pylogseg.spark._compat import VERSION
from pylogseg.spark.options import parse
from pylogseg.spark.plan import plan
from pylogseg.spark.task import read_task

BATCH = 50
NO_SOURCES = "Python data sources: Spark 4.0 on"
needs_sources = pytest.mark.skipif(VERSION < (4, 0), reason=NO_SOURCES)


def append(folder, count, first=0, **settings):
    """Append records to a partition's log, 50 a batch, one a second; settings as for `open_log`."""
    settings = {"segment_bytes": 60_000, "index_interval_bytes": 1000, "retention_ms": -1, **settings}
    with pylogseg.open_log(folder, **settings) as log:
        for start in range(first, first + count, BATCH):
            numbers = range(start, min(start + BATCH, first + count))
            log.append(records(numbers), batch_bytes=1 << 20)
    return folder


def records(numbers):
    """A table of records whose key, value and timestamp tell their number."""
    return pa.table({
        "timestamp": pa.array([1000 * n for n in numbers], pa.timestamp("ms", "UTC")),
        "key": pa.array([b"%d" % (n % 7) for n in numbers]),
        "value": pa.array([b"%d " % n * 10 for n in numbers]),
    })  # fmt: skip


def rows(paths, columns=COLUMNS, **options):
    """Rows of all tasks of a plan, one after the other."""
    parsed = parse(options)
    return rows_of(plan(paths, parsed, cores=1), parsed, columns)


def rows_of(tasks, parsed, columns=COLUMNS):
    """Rows of tasks that were planned before."""
    return [row for task in tasks for batch in read_task(task, parsed, columns) for row in batch.to_pylist()]


def plain(path, **options):
    """What plain Python reads."""
    return pylogseg.read_arrow(path, columns=COLUMNS, **options).read_all().to_pylist()
