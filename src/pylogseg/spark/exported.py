"""Tables that an export wrote, as DataFrames: their committed records, and how they differ from a log."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.env.executor import Advance, Workload
from pylogseg.errors import RequestError
from pylogseg.inspect.verify.lacking import finding_texts, refuse
from pylogseg.offline.restoring.tables import is_committed
from pylogseg.reading.logs import partitions_of
from pylogseg.spark.executor import SparkExecutor
from pylogseg.spark.frames import read_segments
from pylogseg.tables.export.notes import noted_losses, read_state

_log = logging.getLogger("pylogseg.spark")

_REMEDY = (
    "export it read_committed, or confirm by committed (--committed) that all of it was committed, or leave out the "
    "records of transactions by without_transactions (--without-transactions)"
)
_KEY = ("topic", "partition", "offset")
_COMPARED = ("key", "value", "timestamp", "headers")


def read_table(spark: Any, path: str) -> Any:
    """Return the DataFrame of an exported table, in which a topic named ``007`` stays a string."""
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "false")
    try:
        return spark.read.parquet(path)
    finally:
        spark.conf.set(setting, before)


def read_for_restore(
    spark: Any,
    path: str,
    storage_options: Mapping[str, Any] | None,
    *,
    force: bool,
    committed: bool,
    without_transactions: bool,
) -> Any:
    """Return the rows of a table without aborted ones, as its files show or the caller confirms.

    IncompleteError if it lacks records, unless that is forced.
    """
    from pyspark.sql import functions as sql

    lacking = noted_losses(path, storage_options=storage_options)
    if not force:
        refuse(lacking)
    for text in finding_texts(lacking):
        _log.warning("missing: %s", text)
    rows = read_table(spark, path)
    has_column = "isTransactional" in rows.columns
    if without_transactions:
        if not has_column or rows.filter("isTransactional is null").count():
            raise RequestError(f"{path}: the table has no column isTransactional to find the records of transactions")
        return rows.filter("not isTransactional")
    if committed:
        return rows
    files = sorted(rows.inputFiles())
    check = functools.partial(_is_committed, storage_options=storage_options)
    answers = SparkExecutor(spark).map(check, files, Workload("pylogseg restore"))
    silent_files = [file for file, is_committed in zip(files, answers, strict=True) if not is_committed]
    if not silent_files:
        return rows
    if not has_column:
        raise RequestError(f"{path}: the table does not show which records were committed; {_REMEDY}")
    silent = rows
    if len(silent_files) < len(files):
        chosen = spark.createDataFrame([(file,) for file in silent_files], ["file"])
        silent = rows.withColumn("file", sql.input_file_name()).join(sql.broadcast(chosen), "file", "left_semi")
    counts = silent.agg(sql.count(sql.lit(1)), sql.count_if(sql.coalesce("isTransactional", sql.lit(True)))).first()
    if counts[1]:
        raise RequestError(
            f"{path}: {counts[1]:,} of {counts[0]:,} records were part of transactions, and the table does not show "
            f"which of those were committed; {_REMEDY}"
        )
    return rows


def _is_committed(file: str, advance: Advance, storage_options: Mapping[str, Any] | None) -> bool:
    """Check whether a file, as Spark names it, says that all its records were committed."""
    parts = urlsplit(file)
    return is_committed(unquote(parts.path) if parts.scheme == "file" else file, storage_options)


def compare_with_table(
    spark: Any, path: str, choice: PartitionChoice, table: str, storage_options: Mapping[str, Any] | None
) -> Any:
    """Join the records of a disk and of a table by partition and offset, and count the differences."""
    from pyspark.sql import functions as sql

    disk = open_dir(path, storage_options=storage_options).select(*choice.arguments)
    right = read_table(spark, table)
    fields = tuple(name for name in _COMPARED if name in right.columns)
    # A table without the records of aborted transactions is compared with a log without them.
    isolation_level = (read_state(table, storage_options) or {}).get("isolation_level", "read_uncommitted")
    how = {"isolationLevel": isolation_level, "storageOptions": dict(storage_options) if storage_options else None}
    left = read_segments(spark, path, [*_KEY, *fields], assign=assign(disk), **how)
    if not choice.is_all:
        keys = [(part.topic, part.partition) for part in partitions_of(disk)]
        chosen = spark.createDataFrame(keys, left.select("topic", "partition").schema)
        right = right.join(sql.broadcast(chosen), ["topic", "partition"], "left_semi")
    a = left.select(*_KEY, sql.struct(*fields).alias("a"))
    # One row per offset, so that the join has no pair twice; further rows are counted.
    b = right.groupBy(*_KEY).agg(sql.first(sql.struct(*fields)).alias("b"), sql.count(sql.lit(1)).alias("rows"))
    both = a.join(b, list(_KEY), "full_outer")
    in_a, in_b = sql.col("a").isNotNull(), sql.col("b").isNotNull()
    counts = {
        "recordsA": in_a.cast("bigint"),
        "recordsB": sql.coalesce("rows", sql.lit(0)),
        "missing": (~in_b).cast("bigint"),
        "extra": (~in_a).cast("bigint"),
        "changed": (in_a & in_b & ~sql.col("a").eqNullSafe(sql.col("b"))).cast("bigint"),
        "duplicates": sql.coalesce(sql.col("rows") - 1, sql.lit(0)),
    }
    sums = both.groupBy("topic", "partition").agg(*(sql.sum(count).alias(name) for name, count in counts.items()))
    same = (sql.col("missing") + sql.col("extra") + sql.col("changed") + sql.col("duplicates")) == 0
    detail = sql.lit(None).cast("string").alias("detail")
    return sums.select("topic", "partition", same.alias("same"), *counts, detail).orderBy("topic", "partition")


def assign(disk: Disk) -> str:
    """Return the option ``assign`` of a read that has the partitions of a disk."""
    numbers: dict[str, list[int]] = {}
    for part in sorted(partitions_of(disk), key=lambda part: (part.topic, part.partition)):
        numbers.setdefault(part.topic, []).append(part.partition)
    return json.dumps(numbers)
