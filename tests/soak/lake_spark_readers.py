"""Spark with the runtimes of Delta and Iceberg finds the rows of the log in tables of `lake`.

    python tests/soak lake-spark-readers [--delta VERSION] [--iceberg VERSION]

Plain tables, tables of the latest records, typed ones whose schema has grown, and Redpanda's layout. Needs Java 17,
Maven, which fetches the runtimes, and a Spark that they were made for: `pip install 'pyspark==4.1.*' deltalake
'pyiceberg[sql-sqlite,pyiceberg-core]'`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from helpers.lake_tables import catalog_of, latest_rows, log_rows, name_of
from helpers.spark_sessions import small_session
from helpers.typed_logs import append_later_orders, write_keyed_orders, write_orders
from pyspark.sql import SparkSession

import pylogseg

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>pylogseg</groupId><artifactId>runtimes</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>io.delta</groupId><artifactId>delta-spark_{spark}_2.13</artifactId><version>{delta}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.iceberg</groupId><artifactId>iceberg-spark-runtime-{spark}_2.13</artifactId>
      <version>{iceberg}</version>
    </dependency>
  </dependencies>
</project>
"""
#: What Spark has itself is not to be there twice.
OURS = ("delta-*.jar", "iceberg-*.jar", "unitycatalog-*.jar")
_PLAIN = ("partition", "offset", "timestamp", "key", "value")


def runtimes(folder: Path, delta: str, iceberg: str) -> str:
    """Fetch the jars; their paths, comma-separated."""
    spark = ".".join(pyspark.__version__.split(".")[:2])
    (folder / "pom.xml").write_text(POM.format(spark=spark, delta=delta, iceberg=iceberg))
    words = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
    subprocess.run([*words, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"], check=True)
    return ",".join(str(path) for pattern in OURS for path in sorted(folder.glob(pattern)))


def place(kind: str, out: Path, topic: str) -> tuple[str, str]:
    """What Spark loads: a format, and the table's path or its newest metadata file."""
    if kind == "delta":
        return "delta", f"{out}/{topic}"
    return "iceberg", catalog_of(out).load_table(("kafka", topic)).metadata_location


def plain_rows(frame: Any) -> list[tuple[Any, ...]]:
    """Rows of bytes, in the order of offsets."""
    rows = frame.selectExpr("partition", "offset", "unix_micros(timestamp)", "key", "value").collect()
    return sorted(
        tuple(bytes(each) if isinstance(each, bytearray) else each for each in row) for row in rows
    )  # there are no two with an offset


def compared(spark: Any, root: Path) -> Iterator[tuple[str, bool]]:
    """Write the tables, and yield whether Spark finds what is expected."""
    data = root / "data"
    for seed in (1, 2):
        write_keyed_orders(data, 200, seed)
    typed, how = write_orders(root / "typed", 300), {"decoding": "value", "registry": root / "typed" / "schemas"}

    def load(kind: str, topic: str) -> Any:
        form, path = place(kind, root / kind, topic)
        return spark.read.format(form).load(path)

    for kind in ("delta", "iceberg"):
        out = root / kind
        for latest in (False, True):
            topic = "latest" if latest else "orders"
            pylogseg.lake(data, name_of(kind, out, topic), latest=latest, commit_bytes=4_000, file_bytes=2_000)
            rows = latest_rows(data) if latest else log_rows(data, "orders")
            wanted = sorted(tuple(row[name] for name in _PLAIN) for row in rows)
            yield f"{kind}, {topic}: {len(wanted)} rows", plain_rows(load(kind, topic)) == wanted
        few = [row for row in log_rows(data, "orders") if row["timestamp"] >= 86_400_000_000]
        some = load(kind, "orders").where("timestamp >= '1970-01-02'").count()
        yield f"{kind}, a filter on time: {some} rows", some == len(few)
        pylogseg.lake(typed, name_of(kind, out, "typed"), schema=7, **how)
    pylogseg.lake(data, name_of("iceberg", root / "iceberg", "redpanda"), layout="redpanda")
    rows = load("iceberg", "redpanda").selectExpr("redpanda.*", "value")
    wanted = sorted(tuple(row[name] for name in _PLAIN) for row in log_rows(data, "orders"))
    yield f"iceberg, Redpanda's layout: {len(wanted)} rows", plain_rows(rows) == wanted
    append_later_orders(typed, 50)
    later = {**how, "schema": 8, "on_undecoded": "skip"}
    read = pylogseg.read_arrow(typed, "orders", **later).read_all().to_pylist()
    wanted = sorted((row["offset"], row["value"]["id"], row["value"]["note"]) for row in read)
    for kind in ("delta", "iceberg"):
        pylogseg.lake(typed, name_of(kind, root / kind, "typed"), schema=8, **how)
        found = load(kind, "typed").selectExpr("offset", "value.id", "value.note").collect()
        yield f"{kind}, a schema that has grown: {len(wanted)} rows", sorted(map(tuple, found)) == wanted


def main() -> int:
    """Print a line for each table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delta", default="4.3.0", help="version of delta-spark")
    parser.add_argument("--iceberg", default="1.11.0", help="version of iceberg-spark-runtime")
    options = parser.parse_args()
    all_well = True
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "spark.jars": runtimes(Path(folder), options.delta, options.iceberg),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
        spark = small_session(SparkSession.builder.master("local[2]"), Path(folder), settings)
        print(f"Spark {spark.version}, Delta {options.delta}, Iceberg {options.iceberg}", flush=True)
        for what, is_same in compared(spark, Path(folder)):
            print(f"{what}: {'as the log' if is_same else 'OTHER ROWS'}", flush=True)
            all_well &= is_same
        spark.stop()
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
