"""A Spark job over a broker's directory: what each topic holds, as a table and as a plot.

python examples/spark_topics.py [PATH]
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pyspark.sql.functions as sql
from pyspark.sql import SparkSession

_WIDTH = 40
_MOST = 7


def topics(spark: SparkSession, path: str) -> Any:
    """Records, payload and times of the largest topics under a path, Kafka's own left out."""
    records = spark.read.format("pylogseg").option("subscribePattern", ".*").load(path)
    payload = sum(sql.coalesce(sql.length(name), sql.lit(0)) for name in ("key", "value"))
    return (
        records.groupBy("topic")
        .agg(
            sql.countDistinct("partition").alias("partitions"),
            sql.count("*").alias("records"),
            sql.sum(payload).alias("payload bytes"),
            sql.sum(sql.col("value").isNull().cast("int")).alias("tombstones"),
            sql.date_trunc("second", sql.max("timestamp")).alias("newest"),
        )
        .orderBy(sql.desc("records"), "topic")
        .limit(_MOST)
    )


def plot(counts: list[tuple[str, int]]) -> str:
    """Bars of text."""
    most, widest = max(count for _, count in counts), max(len(name) for name, _ in counts)
    return "\n".join(f"{name:>{widest}} {'█' * -(-_WIDTH * count // most)} {count}" for name, count in counts)


def main(path: str) -> None:
    """Print both."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark looks into the first python3 of the PATH
    spark = SparkSession.builder.appName("topics").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    found = topics(spark, path).toArrow()
    spark.createDataFrame(found).show(truncate=False)
    print(plot(list(zip(found["topic"].to_pylist(), found["records"].to_pylist(), strict=True))))


if __name__ == "__main__":
    main(*sys.argv[1:])
