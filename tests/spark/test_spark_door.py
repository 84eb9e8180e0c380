"""Tests of spark/_compat.py. The fast door: DataFrames by functions, which need no Python data source and so work on
Spark 3.5 too.
"""

import gc
import shutil

import pyarrow as pa
import pytest
from helpers.spark_logs import append, plain

import pylogseg
import pylogseg.spark
from pylogseg.errors import RequestError


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return append(tmp_path_factory.mktemp("door") / "orders-0", 5000).parent


def test_examples_read_as_in_plain_python(spark, examples):
    options = {"isolation_level": "read_committed"}
    expected = sorted(
        (row["topic"], row["partition"], row["offset"], row["key"], row["value"]) for row in plain(examples, **options)
    )
    columns = ["topic", "partition", "offset", "key", "value"]
    found = pylogseg.spark.read_segments(spark, examples, columns, minPartitions=5, isolationLevel="read_committed")
    assert found.columns == columns
    rows = [(*row[:3], *(each if each is None else bytes(each) for each in row[3:])) for row in found.collect()]
    assert sorted(rows) == expected


def test_work_on_batches(spark, log):
    def doubled(batch):
        return pa.record_batch({"twice": pa.compute.multiply(batch.column("offset"), 2)})

    frame = pylogseg.spark.read_segments(spark, log, ["offset"], batch_fn=doubled, schema="twice bigint")
    assert frame.selectExpr("sum(twice)").first()[0] == 2 * sum(range(5000))
    assert pylogseg.spark.read_segments(spark, log, startingTimestamp=10**12,
                                        startingOffsetsByTimestampStrategy="latest").count() == 0  # fmt: skip


def test_segments_and_batches(spark, log):
    names = sorted(path.name for path in log.rglob("*.log"))
    segments = pylogseg.spark.segments(spark, log).orderBy("baseOffset").collect()
    assert [row.segment for row in segments] == names
    assert [row.nextSegmentBaseOffset for row in segments] == [row.baseOffset for row in segments[1:]] + [None]
    assert [row.state for row in segments] == ["sealed"] * (len(names) - 1) + ["active"]
    assert all(row.indexEntries > 1 for row in segments[:-1])
    batches = pylogseg.spark.batches(spark, log, rangeBytes=20_000)
    (row,) = batches.selectExpr("sum(count) AS n", "sum(size) AS size", "count(problem) AS bad").collect()
    assert (row.n, row.size, row.bad) == (5000, sum(row.size for row in segments), 0)


def test_a_file_that_vanishes_between_plan_and_read(spark, log, tmp_path):
    copy = shutil.copytree(log, tmp_path / "copy")
    first, second = sorted(copy.rglob("*.log"))[:2]
    strict = pylogseg.spark.read_segments(spark, copy, ["offset"])
    lenient = pylogseg.spark.read_segments(spark, copy, ["offset"], failOnDataLoss=False)
    first.unlink()
    with pytest.raises(Exception, match=rf"offsets 0 to {int(second.stem) - 1} of orders-0 are gone"):
        strict.count()
    assert lenient.count() == 5000 - int(second.stem)


def test_before_spark_4_it_says_what_works(monkeypatch):
    from pylogseg.spark import _compat

    monkeypatch.setattr(_compat, "VERSION", (3, 5))
    with pytest.raises(RequestError, match=r"or pylogseg\.spark\.read_segments"):
        pylogseg.spark.register(None)


def test_a_worker_is_settled_behind_its_first_task(spark, log):
    def hidden(batch):
        return pa.record_batch({"objects": pa.array([gc.get_freeze_count()])})

    for _ in range(3):  # two cores, so two workers, and three turns
        counts = pylogseg.spark.read_segments(spark, log, batch_fn=hidden, schema="objects bigint", minPartitions=8)
        found = counts.selectExpr("max(objects)").first()[0]
    assert found > 10_000
