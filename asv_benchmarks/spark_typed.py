"""Typed columns in Spark beside `from_avro`: the same records, read by the same source, in turn, in one session.

    python asv_benchmarks/spark_typed.py --jar spark-avro_2.13-VERSION.jar [--records N] [--rounds N] [--clock wall]
        [--markdown] [--data DIR]

Avro of ten flat fields with Confluent's frame, as `asv_benchmarks/typed.py` has it, in four partitions. Each side
aggregates two fields of each value, or takes all into Spark's sink that does nothing. `from_avro` gets what is behind
the frame. The jar is that of the Spark that runs: org.apache.spark:spark-avro_2.13.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

import pyarrow as pa
import rows as table_rows
import spark as readers
import typed
from helpers.spark_sessions import small_session
from measure import in_turn
from rows import Row

import pylogseg
import pylogseg.spark
from pylogseg.spark import functions

_APPEND = 50_000
_DISTINCT = 10_000
FLAT = typed.record(typed.FLAT)


def prepare(folder: Path, records: int) -> Path:
    """Four partitions of orders, made once; the schema's file is beside them."""
    root = folder / f"typed-{records}"
    if not root.is_dir():
        scratch = folder / "making"
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "schemas").mkdir(parents=True)
        (scratch / "schemas" / "7.avsc").write_text(json.dumps(FLAT))
        some = pa.array([b"\0\0\0\0\7" + typed.avro_flat(i) for i in range(_DISTINCT)], pa.binary())
        some = pa.concat_arrays([some] * (_APPEND // _DISTINCT))
        for partition in range(readers.PARTITIONS):
            with pylogseg.open_log(scratch / f"orders-{partition}", segment_bytes=64 << 20, retention_ms=-1) as log:
                for first in range(0, records // readers.PARTITIONS, _APPEND):
                    part = some.slice(0, min(_APPEND, records // readers.PARTITIONS - first))
                    log.append(pa.table({"value": part}), batch_bytes=64 << 10)
        scratch.rename(root)
    return root


def session(scratch: Path, jar: str) -> Any:
    """The session of `spark.py`, with Spark's own Avro."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jar,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.extraJavaOptions": (
            "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
        ),
    }
    return small_session(SparkSession.builder.master("local[2]").appName("pylogseg benchmark"), scratch, settings)


def rows(spark: Any, root: Path, asked: Any) -> Iterator[Row]:
    """Both ways to nested columns, and both functions of a binary column in Parquet."""
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import expr

    text, where = json.dumps(FLAT), root / "schemas"
    options = {
        "subscribe": "orders",
        "decoding": "value",
        "registry": str(where),
        "schema": "7",
        "onUndecoded": "raise",
    }
    parquet = str(asked.data / f"typed-parquet-{asked.records}")
    pylogseg.spark.read_segments(spark, root, ["value"], subscribe="orders").write.mode("overwrite").parquet(parquet)
    behind = expr("substring(value, 6)")

    def bytes_of_log() -> Any:
        return pylogseg.spark.read_segments(spark, root, ["value"], subscribe="orders")

    slim = json.dumps(typed.record({name: typed.FLAT[name] for name in ("int", "text")}))
    ways: dict[str, Callable[[], Any]] = {
        "slim": lambda: pylogseg.spark.read_segments(spark, root, ["value"], **{**options, "schema": slim}),
        "ours": lambda: pylogseg.spark.read_segments(spark, root, ["value"], **options),
        "theirs": lambda: bytes_of_log().select(from_avro(behind, text).alias("value")),
        "function": lambda: spark.read.parquet(parquet).select(
            functions.from_schema("value", where / "7.avsc", where).alias("value")
        ),
        "from_avro": lambda: spark.read.parquet(parquet).select(from_avro(behind, text).alias("value")),
    }
    now = readers.clock(asked.clock)

    def side(make: Callable[[], Any], few: bool) -> Callable[[], float]:
        def timed() -> float:
            began = now()
            frame = make()
            if few:
                frame.selectExpr("sum(value.int)", "max(value.text)").collect()
            else:
                frame.write.format("noop").mode("overwrite").save()
            return now() - began

        return timed

    sides = {f"{name} {few}": side(make, few) for name, make in ways.items() for few in (False, True)}
    del sides["slim False"]
    best = in_turn(sides, asked.rounds)
    rate = {name: asked.records / seconds / 1e6 for name, seconds in best.items()}
    unit, bound = "M rows/s", "the way through the socket to the JVM"
    for few, what in ((False, "all fields"), (True, "two fields, aggregated")):
        yield Row(f"read_segments, decoding=value, {what}", rate[f"ours {few}"], unit, "read_segments and from_avro",
                  rate[f"theirs {few}"], 3, bound)  # fmt: skip
        if few:
            yield Row("the same, by a schema of these two", rate["slim True"], unit, "read_segments and from_avro",
                      rate[f"theirs {few}"], 3, bound)  # fmt: skip
        yield Row(f"from_schema of Parquet's bytes, {what}", rate[f"function {few}"], unit, "from_avro",
                  rate[f"from_avro {few}"], None, bound)  # fmt: skip


def main() -> None:
    """Measure, and print the table."""
    parser = readers.parser(__doc__, records=2_000_000)
    parser.add_argument("--jar", required=True)
    asked = parser.parse_args()
    asked.data.mkdir(parents=True, exist_ok=True)
    root = prepare(asked.data, asked.records)
    spark = session(asked.data / "scratch", asked.jar)
    try:
        found = list(rows(spark, root, asked))
    finally:
        spark.stop()
    print("\n".join(table_rows.lines(found, markdown=asked.markdown)))


if __name__ == "__main__":
    main()
