"""Everything that Spark Connect runs, beside plain Python: `python tests/soak spark-connect [URL]`.

URL is that of a server (`sc://host:15002`), or `local[2]`, the default, for one that is started for this. Needs
`pip install 'pyspark[connect]' pytest`. A line for each part, exit code 0 if all give what plain Python gives.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylogseg
import pylogseg.spark
from pylogseg.spark import _compat, jobs
from pylogseg.spark.executor import SparkExecutor
from soak import EXAMPLES as DATA

TOPICS = ("codec-zstd", "txn-a")
COLUMNS = ["topic", "partition", "offset", "key", "value"]
Rows = list[tuple[Any, ...]]


def plain(path: str | Path) -> Rows:
    """Rows of the chosen topics, as plain Python reads them."""
    table = pylogseg.read_arrow(str(path), list(TOPICS), columns=COLUMNS).read_all()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def rows_of(frame: Any) -> Rows:
    """Rows of a DataFrame, with bytes where Spark before 4.1 has byte arrays."""
    return sorted(
        tuple(bytes(each) if isinstance(each, bytearray) else each for each in row)
        for row in frame.select(*COLUMNS).collect()
    )


def source(spark: Any, scratch: Path) -> None:
    """`format("pylogseg")`, which the server plans."""
    assert rows_of(pylogseg.spark.read(spark, DATA, subscribe=",".join(TOPICS))) == plain(DATA)


def fast_door(spark: Any, scratch: Path) -> None:
    """`read_segments`, which is planned here."""
    assert _compat.cores_of(spark) > 0
    assert rows_of(pylogseg.spark.read_segments(spark, DATA, COLUMNS, subscribe=",".join(TOPICS))) == plain(DATA)
    assert pylogseg.spark.segments(spark, DATA, subscribe="txn-a").count() == 5
    batches = pylogseg.spark.batches(spark, DATA, subscribe="codec-zstd")
    assert batches.agg({"count": "sum"}).first()[0] == 505


def sql(spark: Any, scratch: Path) -> None:
    """A view over the source."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING pylogseg OPTIONS (path '{DATA}', subscribe 'codec-zstd')")
    assert spark.sql("SELECT count(*) AS n FROM v").first().n == 505


def functions(spark: Any, scratch: Path) -> None:
    """Functions of columns, and those of a whole DataFrame."""
    from pylogseg.spark import functions as f

    raw = bytes(pylogseg.encode([(1, b"a", b"1"), (2, None, b"2")], compression="lz4"))
    frame = spark.createDataFrame([(raw, b"21")], "value binary, key binary")
    row = frame.select(f.murmur2("key").alias("hash"), f.to_records("value").alias("records")).first()
    assert (row.hash, [bytes(record.value) for record in row.records]) == (-973932308, [b"1", b"2"])
    assert [bytes(row.value) for row in f.decode_batches(frame).collect()] == [b"1", b"2"]


def write(spark: Any, scratch: Path) -> None:
    """`df.write.format("pylogseg")`."""
    rows = pylogseg.spark.read(spark, DATA, subscribe=",".join(TOPICS))
    ordered = rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    ordered.write.format("pylogseg").mode("append").save(str(scratch / "written"))
    assert plain(scratch / "written") == plain(DATA)


def stream(spark: Any, scratch: Path) -> None:
    """A streaming query."""
    frame = spark.readStream.format("pylogseg").options(subscribe="codec-zstd", startingOffsets="earliest")
    query = frame.load(str(DATA)).writeStream.format("parquet").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(scratch / "checkpoint")).start(str(scratch / "stream"))
    assert query.awaitTermination(120)
    assert spark.read.parquet(str(scratch / "stream")).count() == 505


def all_jobs(spark: Any, scratch: Path) -> None:
    """Jobs, there and back, and how they show how far they are."""
    assert list(SparkExecutor(spark, True).map(lambda n, advance: str(n), [7, 8, 9])) == ["7", "8", "9"]
    assert jobs.verify(spark, DATA, TOPICS).filter("level = 'damage'").count() == 0
    stats = {row.name: row.records for row in jobs.stats(spark, DATA, TOPICS, by="topic").collect()}
    assert stats["codec-zstd"] == 505
    assert jobs.grep(spark, DATA, "value", subscribe="codec-zstd", ignore_case=True).count() > 0
    table, back, compacted = (str(scratch / name) for name in ("table", "back", "compacted"))
    assert {row.state for row in jobs.export(spark, DATA, table, TOPICS).collect()} == {"written"}
    assert {row.state for row in jobs.restore(spark, table, back, committed=True).collect()} == {"written"}
    assert plain(back) == plain(DATA)
    assert all(row.same for row in jobs.diff(spark, DATA, table, TOPICS).collect())
    assert jobs.compact(spark, DATA, compacted, TOPICS).count() == 3


def errors(spark: Any, scratch: Path) -> None:
    """What is wrong with paths shows here; damage comes back from the server with its place."""
    with pytest.raises(pylogseg.PylogsegError, match=str(scratch / "nothing")):
        pylogseg.spark.read_segments(spark, scratch / "nothing")
    bad = scratch / "bad-0"
    bad.mkdir()
    data = bytearray(pylogseg.encode([(1, b"a", b"1")]))
    data[-1] ^= 1
    (bad / f"{0:020}.log").write_bytes(data)
    with pytest.raises(Exception, match="at position 0") as caught:
        pylogseg.spark.read_segments(spark, scratch, subscribe="bad").collect()
    assert (_compat.cause_of(caught.value) or ("", ""))[0] == "CorruptionError"


PARTS: list[Callable[[Any, Path], None]] = [
    fast_door, functions, source, sql, write, stream, all_jobs, errors,
]  # fmt: skip


def main() -> int:
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    spark = SparkSession.builder.remote(sys.argv[1] if len(sys.argv) > 1 else "local[2]").getOrCreate()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for part in PARTS:
            started = time.perf_counter()
            try:
                part(spark, Path(scratch))
                outcome = "ok"
            except Exception:
                traceback.print_exc()
                failed, outcome = failed + 1, "FAILED"
            print(f"{part.__name__}: {outcome}, {time.perf_counter() - started:.1f} s", flush=True)
    spark.stop()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
