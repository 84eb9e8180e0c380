"""Tests of spark/lagging.py, spark/schema.py and spark/session.py. With Spark itself: tables, SQL, filters, streams,
errors as a user sees them.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
import time

import documents
import pyarrow as pa
import pytest
from helpers.damaged_logs import change_byte
from helpers.depth import IS_DEEP
from helpers.spark_logs import append, needs_sources, plain

import pylogseg
import pylogseg.spark
from pylogseg.reading.arrow import columns as arrow
from pylogseg.spark._compat import VERSION
from pylogseg.spark.schema import HEADERS, METADATA_COLUMNS, RECORD_COLUMNS, spark_schema

#: Before Spark 4.2 `Trigger.AvailableNow` is one batch.
LIMITS = VERSION >= (4, 2)
pytestmark = needs_sources
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
COLUMNS = ("partition", "offset", "timestamp")
#: For a session that a program begins by itself: what the fixture's has.
BRIEF = (
    "--master local[2] --conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false"
    " --driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return append(tmp_path_factory.mktemp("session") / "orders-0", 5000).parent


def load(spark, path, **options):
    texts = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in options.items()}
    return spark.read.format("pylogseg").options(**texts).load(str(path))


def by_place(table):
    """Rows of an Arrow table or a DataFrame, by topic, partition and offset."""
    table = table if isinstance(table, pa.Table) else table.toArrow()
    return table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")]).to_pylist()


def offsets(frame):
    return sorted(row.offset for row in frame.select("offset").collect())


def test_schema(spark):
    """Names, order and types of the Kafka source; the Arrow schema is the one that Spark compares with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    zone = {"timezone": "UTC"} if VERSION >= (4, 2) else {}
    kafka = (
        "key binary, value binary, topic string, `partition` int, offset bigint, timestamp timestamp, timestampType int"
    )
    headers = "headers array<struct<key: string, value: binary>>"
    empty = spark.createDataFrame([], f"{kafka}, {headers}").schema
    assert spark_schema(RECORD_COLUMNS + HEADERS) == empty
    for columns in (RECORD_COLUMNS + HEADERS, METADATA_COLUMNS):
        assert to_arrow_schema(spark_schema(columns), **zone) == arrow.schema(columns)


def test_examples_read_as_in_plain_python(spark, examples):
    """The static module is found by Spark: nothing was registered."""
    frame = load(spark, examples, includeHeaders=True, minPartitions=5)
    expected = sorted(plain(examples), key=lambda row: (row["topic"], row["partition"], row["offset"]))
    assert by_place(frame) == expected
    assert {row["headers"] is None for row in expected} == {True, False}
    fast = pylogseg.spark.read_segments(spark, examples, frame.columns, minPartitions=5)
    assert fast.schema == frame.schema
    assert by_place(fast) == expected


def test_read_committed(spark, examples):
    options = {"subscribe": "txn-a,txn-b", "kafka.isolation.level": "read_committed", "rangeBytes": 1000}
    expected = pylogseg.read_arrow(examples, ["txn-a", "txn-b"], isolation_level="read_committed").read_all()
    found = load(spark, examples, **options, includeHeaders=True)
    assert found.rdd.getNumPartitions() > 4
    assert by_place(found) == by_place(expected)


def test_metadata_columns(spark, examples):
    frame = load(spark, examples, subscribe="txn-a", includeMetadata=True)
    assert tuple(frame.columns) == RECORD_COLUMNS + METADATA_COLUMNS
    expected = pylogseg.read_arrow(examples, "txn-a", columns=frame.columns).read_all()
    assert by_place(frame) == by_place(expected)


def test_a_schema_of_the_user_chooses_columns(spark, log):
    frame = spark.read.format("pylogseg").schema("offset bigint, key binary").load(str(log))
    assert frame.columns == ["offset", "key"]
    assert frame.count() == 5000
    with pytest.raises(Exception, match="column offset is bigint, not string"):
        spark.read.format("pylogseg").schema("offset string").load(str(log)).collect()


def test_the_example_of_the_readme(spark, capsys, monkeypatch):
    monkeypatch.syspath_prepend(documents.ROOT / "examples")
    importlib.import_module("spark_topics").main("examples/data")
    shown = [
        command.shown
        for block in documents.blocks(documents.ROOT / "README.md", "console")
        for command in documents.commands(block.text)
        if "spark_topics" in command.command
    ]
    assert [capsys.readouterr().out] == shown


@pytest.mark.skipif(not IS_DEEP, reason="starts Spark once more: `make deep` does")
def test_the_example_runs_in_an_environment_that_is_not_activated(tmp_path):
    """As the README has it: the first python3 of the PATH is then another one, without this package."""
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    environment["PYSPARK_SUBMIT_ARGS"] = BRIEF
    command = [sys.executable, "examples/spark_topics.py", "examples/data"]
    done = subprocess.run(command, cwd=documents.ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "codec-gzip" in done.stdout


@pytest.mark.parametrize("what", ["TABLE", "TEMPORARY VIEW"])
def test_sql(spark, log, what):
    spark.sql(
        f"CREATE {what} orders USING pylogseg OPTIONS (path '{log}', startingOffsets '{{\"orders\":{{\"0\":7}}}}')"
    )
    try:
        (row,) = spark.sql("SELECT count(*) AS n, max(offset) AS last FROM orders WHERE offset <= 4000").collect()
        assert (row.n, row.last) == (3994, 4000)
    finally:
        spark.sql(f"DROP {what.split()[-1]} orders")
    assert len(list(log.rglob("*.log"))) > 1


def test_options_of_a_table_act_on_it_alone(spark, log, tmp_path):
    """They are in its schema, and so in all that is made from it: no credentials, and no say in another read."""
    other = append(tmp_path / "other" / "users-0", 60).parent
    with pytest.raises(Exception, match="a table cannot keep credentials"):
        spark.sql(f"CREATE TABLE t USING pylogseg OPTIONS (path '{log}', storageOptions '{{\"secret\":\"hunter2\"}}')")
    spark.sql(f"CREATE TABLE t USING pylogseg OPTIONS (path '{log}', subscribe 'orders', columns 'offset,value')")
    try:
        assert spark.table("t").count() == 5000
        spark.table("t").write.parquet(str(tmp_path / "parquet"))
        for frame in (spark.table("t"), spark.read.parquet(str(tmp_path / "parquet"))):
            found = spark.read.format("pylogseg").schema(frame.schema).load(str(other))
            assert offsets(found) == list(range(60))
        assert spark.sql(f"SELECT offset FROM t WITH (path = '{other}')").count() == 60
    finally:
        spark.sql("DROP TABLE t")


def test_a_table_sees_new_records_and_a_frame_does_not(spark, tmp_path):
    """As the first lines of the guide say. If it fails for frames, Spark plans them anew: make the guide shorter."""
    append(tmp_path / "logs" / "users-0", 100)
    options = f"USING pylogseg OPTIONS (path '{tmp_path / 'logs'}')"
    for what in (f"TABLE t {options}", "TEMPORARY VIEW of_t AS SELECT * FROM t", f"TEMPORARY VIEW alone {options}"):
        spark.sql(f"CREATE {what}")
    try:
        frame = load(spark, tmp_path / "logs", columns="offset")

        def counts():
            named = [spark.table("t"), spark.sql("SELECT offset FROM of_t")]
            return [each.count() for each in (*named, frame, spark.table("alone"))]

        assert counts() == [100] * 4
        append(tmp_path / "logs" / "users-0", 50, first=100)
        append(tmp_path / "logs" / "users-1", 50)
        then = 100 if VERSION >= (4, 1) else 200  # 4.0 plans a frame anew
        assert counts() == [200, 200, then, then]
    finally:
        for what in ("VIEW alone", "VIEW of_t", "TABLE t"):
            spark.sql(f"DROP {what}")


def test_a_table_with_declared_columns(spark, log):
    """Spark does not tell its options: the error says how to read it, and that works."""
    spark.sql(f"CREATE TABLE t (offset bigint, value binary) USING pylogseg OPTIONS (path '{log}')")
    try:
        with pytest.raises(Exception, match=r"SELECT \.\.\. FROM t WITH \(path = "):
            spark.sql("SELECT * FROM t").collect()
        found = spark.sql(f"SELECT * FROM t WITH (path = '{log}')")
        assert (found.columns, found.count()) == (["offset", "value"], 5000)
        with pytest.raises(Exception, match="INSERT INTO a table is not possible"):
            spark.sql("INSERT INTO t VALUES (1, X'00')")
    finally:
        spark.sql("DROP TABLE t")


def test_wrong_options_of_a_stream_show_at_load(spark, log):
    with pytest.raises(Exception, match="Did you mean 'startingOffsets'"):
        spark.readStream.format("pylogseg").option("startingOfsets", "earliest").load(str(log))


@pytest.mark.parametrize("tail", [b"\xff" * 300, b"a README, and no batch"])
def test_damage_after_the_last_good_batch(spark, log, tmp_path, tail):
    copy = shutil.copytree(log, tmp_path / "copy")
    last = max(copy.rglob("*.log"))
    last.write_bytes(last.read_bytes() + tail)
    (copy / "users-0").mkdir()
    (copy / "users-0" / f"{0:020d}.log").write_bytes(tail)
    for topic in ("orders", "users"):
        with pytest.raises(pylogseg.CorruptionError):
            pylogseg.read_arrow(copy, topic).read_all()
        with pytest.raises(Exception, match=r"(?s)CorruptionError.*onCorrupt=skip"):
            load(spark, copy, subscribe=topic).count()
        with pytest.raises(pylogseg.CorruptionError):
            pylogseg.spark.read_segments(spark, copy, ["offset"], subscribe=topic)
    assert load(spark, copy, onCorrupt="skip").count() == 5000
    assert load(spark, copy, subscribe="orders", endingOffsets={"orders": {"0": 10}}).count() == 10


def test_what_a_user_s_function_gives(spark, log):
    def swapped(batch):
        return batch.select(["value", "offset"])

    for schema in ("offset bigint, value binary", "value binary, offset int", "value binary"):
        frame = pylogseg.spark.read_segments(spark, log, ["offset", "value"], batch_fn=swapped, schema=schema)
        expected = "batch_fn returned the columns value binary, offset bigint, but schema has"
        with pytest.raises(Exception, match=expected):
            frame.collect()
    good = pylogseg.spark.read_segments(
        spark, log, ["offset", "value"], batch_fn=swapped, schema="value binary, offset bigint"
    )
    assert good.count() == 5000


def pruned(spark, log, **options):
    return load(spark, log, columns="partition,offset,timestamp", rangeBytes=20_000, **options)


def test_a_frame_is_filtered_in_several_ways(spark, log):
    """Spark keeps the last pushed plan of a DataFrame for its other queries: so the source takes no filters."""
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = pruned(spark, log)
        first, last = frame.where("offset < 10"), frame.where("offset >= 4990")
        assert first.unionAll(last).count() == 20
        assert frame.count() == 5000
    finally:
        spark.conf.unset(PUSHDOWN)


def test_options_as_python_has_them(spark, log):
    given = {"startingOffsets": {"orders": {"0": 4990}}, "assign": {"orders": [0]}, "includeHeaders": True}
    frame = pylogseg.spark.read(spark, log, **given)
    assert "headers" in frame.columns
    assert offsets(frame) == list(range(4990, 5000))


def test_errors_name_the_file_and_the_remedy(spark, log, tmp_path):
    with pytest.raises(Exception, match=r"no nothing here; there are: orders"):
        load(spark, log, subscribe="nothing").count()
    with pytest.raises(Exception, match=r"Did you mean 'startingOffsets'"):
        load(spark, log, startingOffset="earliest").count()
    copy = shutil.copytree(log, tmp_path / "copy")
    path = sorted(copy.rglob("*.log"))[1]
    change_byte(path, 200)
    with pytest.raises(
        Exception, match=rf"{path.name}: at position 0, offset {int(path.stem)}: CRC mismatch"
    ) as caught:
        load(spark, copy, columns="offset").collect()
    assert "skip" in str(caught.value)
    missing = set(range(5000)) - set(offsets(load(spark, copy, columns="offset", onCorrupt="skip")))
    assert missing == set(range(int(path.stem), int(path.stem) + 50))
    assert offsets(load(spark, copy, columns="offset", onCorrupt="stop")) == list(range(int(path.stem)))


def start(spark, path, checkpoint, *, now=True, **options):
    """A query that writes Parquet, as a user would move data out."""
    frame = spark.readStream.format("pylogseg").options(**options).load(str(path)).select(*COLUMNS)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint / "checkpoint"))
    writer = writer.trigger(availableNow=True) if now else writer.trigger(processingTime="100 milliseconds")
    return writer.start(str(checkpoint / "out"))


def finish(query):
    assert query.awaitTermination(600), query.status
    assert query.exception() is None


def written(spark, checkpoint):
    rows = spark.read.parquet(str(checkpoint / "out")).collect()
    return sorted((row.partition, row.offset) for row in rows)


def test_stream_available_now(spark, tmp_path):
    root = tmp_path / "logs"
    append(root / "orders-0", 1000)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 400}
    query = start(spark, root, tmp_path, **options)
    finish(query)
    batches = [400, 400, 200] if LIMITS else [1000]
    if LIMITS:
        assert [pylogseg.spark.lag(progress).total for progress in query.recentProgress] == [600, 200, 0]
        assert pylogseg.spark.lag(query.recentProgress[0]).partitions == {("orders", 0): 600}
    assert [progress["numInputRows"] for progress in query.recentProgress] == batches
    append(root / "orders-0", 50, first=1000)
    append(root / "orders-1", 50)
    finish(start(spark, root, tmp_path, **options))
    assert written(spark, tmp_path) == [*((0, n) for n in range(1050)), *((1, n) for n in range(50))]


def test_stream_while_a_log_is_written(spark, tmp_path):
    root = tmp_path / "logs"
    settings = {"segment_bytes": 10_000, "index_interval_bytes": 1000, "retention_ms": -1}
    with pylogseg.open_log(root / "orders-0", **settings) as log:
        query = start(spark, root, tmp_path, now=False, startingOffsets="earliest")
        try:
            for number in range(40):
                log.append([(None, b"k", b"%d" % n * 5) for n in range(50)])
                time.sleep(0.02 if number % 10 else 0.3)
            query.processAllAvailable()
        finally:
            query.stop()
    assert query.exception() is None
    assert written(spark, tmp_path) == [(0, n) for n in range(2000)]


def test_a_checkpoint_of_the_kafka_source_goes_on(spark, tmp_path):
    root = tmp_path / "logs"
    append(root / "orders-0", 500)
    append(root / "orders-1", 500)
    options = {"subscribe": "orders", "startingOffsets": "earliest", "kafka.bootstrap.servers": "broker:9092"}
    finish(start(spark, root, tmp_path, **options, maxOffsetsPerTrigger=200))
    folder = tmp_path / "checkpoint" / "offsets"
    last = max((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    *head, offsets_line = last.read_text().splitlines()
    assert json.loads(offsets_line) == {"orders": {"0": 500, "1": 500}}
    # What the Kafka source would have written had it read less, and its own file of where it began.
    last.write_text("\n".join([*head, '{"orders":{"0":500,"1":500}}']))
    (folder / f".{last.name}.crc").unlink(missing_ok=True)
    own = tmp_path / "checkpoint" / "sources" / "0"
    own.mkdir(parents=True)
    (own / "0").write_bytes(b'\0v1\n{"orders":{"0":0,"1":0}}')
    append(root / "orders-1", 100, first=500)
    finish(start(spark, root, tmp_path, **options))
    assert written(spark, tmp_path) == [*((0, n) for n in range(500)), *((1, n) for n in range(600))]


def test_a_stream_whose_records_are_gone(spark, tmp_path):
    root = tmp_path / "logs"
    append(root / "orders-0", 1000, segment_bytes=10_000)
    finish(start(spark, root, tmp_path, startingOffsets="earliest"))
    append(root / "orders-0", 1000, first=1000, segment_bytes=10_000)
    sealed = sorted((root / "orders-0").glob("*.log"))
    kept = next(int(path.stem) for path in sealed if int(path.stem) > 1300)
    for path in (root / "orders-0").iterdir():
        if path.stem.isdigit() and int(path.stem) < kept:
            path.unlink()
    query = start(spark, root, tmp_path)
    with pytest.raises(Exception, match=f"orders-0 starts at {kept}, records from 1000 on were not read"):
        query.awaitTermination(600)
    finish(start(spark, root, tmp_path, failOnDataLoss=False))
    assert written(spark, tmp_path) == [(0, n) for n in range(1000)] + [(0, n) for n in range(kept, 2000)]


def test_a_batch_that_failed_is_neither_lost_nor_doubled(spark, tmp_path):
    """The query dies between the writing of offsets and their commit; it goes on with the same batch."""
    root, seen = tmp_path / "logs", []
    append(root / "orders-0", 900)
    batches = [list(range(first, first + 300)) for first in (0, 300, 600)] if LIMITS else [list(range(900))]

    def run(fail):
        def take(frame, number):
            found = offsets(frame)
            if fail and number == len(batches) - 1:
                raise RuntimeError("killed")
            seen.append((number, found))

        frame = spark.readStream.format("pylogseg").option("startingOffsets", "earliest")
        frame = frame.option("maxOffsetsPerTrigger", 300).load(str(root))
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(Exception, match="killed"):
        run(True).awaitTermination(600)
    finish(run(False))
    assert seen == list(enumerate(batches))


@pytest.mark.skipif(VERSION < (4, 1), reason="filters pushed to the source: Spark 4.1 on")
def test_spark_passes_a_reader_no_columns():
    """Columns are chosen by an option."""
    from pyspark.sql.datasource import DataSourceReader

    told = {name for name in vars(DataSourceReader) if not name.startswith("_")}
    assert told == {"pushFilters", "partitions", "read"}, (
        "Spark tells a reader more now: perhaps the columns of a query"
    )
