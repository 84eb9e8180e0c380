"""`diff`: compare two directories, or a directory and an exported table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pylogseg import offline
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.listing import open_dir
from pylogseg.disk.tier.opening import is_tier
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_row
from pylogseg.offline.comparing import Difference
from pylogseg.reading.logs import partitions_of
from pylogseg.spark.executor import SparkExecutor
from pylogseg.spark.frames import read_segments
from pylogseg.spark.jobs.restoring import exported
from pylogseg.tables.export.notes import is_noted, state_of

DIFFERENCES = (
    "topic string, `partition` int, same boolean, recordsA bigint, recordsB bigint, missing bigint, extra bigint, "
    "changed bigint, duplicates bigint, detail string"
)
_KEY = ("topic", "partition", "offset")
_COMPARED = ("key", "value", "timestamp")


def diff(
    spark: Any,
    a: str,
    b: str,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Any:
    """Compare the records of two directories, a task for each partition, or of a directory and an exported table.

    Parameters
    ----------
    spark : SparkSession
        The session.
    a : str
        A log directory or the folder of a partition.
    b : str
        Another one; or the folder of a table that `export` wrote. Of a table, key, value, timestamp and headers of each
        offset are compared, if it has them, with the records at the isolation level of the table.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    storage_options : mapping, optional
        As for `pylogseg.open_dir`: options of the store of `a` and `b`, with ``tier_keys`` for encrypted tiers.
    progress : bool, optional
        True if to show progress; by default only if stderr is a terminal.
    **options
        Options of `pylogseg.offline.diff`, for two directories: ``mode="latest"``, ``common=True``.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each partition of either side, with the number of records that are ``missing`` in B, ``extra`` in B or
        ``changed``, and of ``duplicates``: rows of a table B with the offset of another row. ``detail`` is the row of
        ``pylogseg diff --json``, with the ranges of offsets; null for a table.
    """
    choice = PartitionChoice.of(topic, partition)
    if not is_tier(b) and is_noted(b, storage_options):
        if options:
            raise RequestError(f"{b} is an exported table: {', '.join(options)} are for two directories")
        return _with_table(spark, a, b, choice, storage_options)
    found = compared(spark, a, b, choice, storage_options=storage_options, progress=progress, **options)
    rows = [_row(each) for each in found]
    return spark.createDataFrame(rows, DIFFERENCES)


def compared(
    spark: Any,
    a: str,
    b: str,
    choice: PartitionChoice,
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    **options: Any,
) -> list[Difference]:
    """Return the differences of two directories, by partition."""
    one, other = (open_dir(each, storage_options=storage_options) for each in (a, b))
    executor = SparkExecutor(spark, progress)
    return list(offline.diff(one, other, *choice.arguments, executor=executor, **options))


def _by_key(disk: Disk) -> dict[tuple[str, int], Partition]:
    return {(part.topic, part.partition): part for part in partitions_of(disk)}


def _row(found: Difference) -> tuple[Any, ...]:
    topic, _, number = found.name.rpartition("-")
    counts = (found.records_a, found.records_b, found.missing, found.extra, found.changed)
    return (topic, int(number), found.is_same, *counts, 0, json.dumps(to_row(found)))


def _with_table(
    spark: Any, path: str, table: str, choice: PartitionChoice, storage_options: Mapping[str, Any] | None
) -> Any:
    """Join the records of both sides by partition and offset, and count the differences."""
    from pyspark.sql import functions as sql

    disk = open_dir(path, storage_options=storage_options).select(*choice.arguments)
    chosen = sorted(_by_key(disk))
    assigned: dict[str, list[int]] = {}
    for topic, number in chosen:
        assigned.setdefault(topic, []).append(number)
    right = exported(spark, table)
    headers = ("headers",) if "headers" in right.columns else ()
    fields = tuple(name for name in _COMPARED if name in right.columns) + headers
    # A table without the records of aborted transactions is compared with a log without them.
    isolation_level = (state_of(table, storage_options) or {}).get("isolation_level", "read_uncommitted")
    how = {"isolationLevel": isolation_level, "storageOptions": dict(storage_options) if storage_options else None}
    left = read_segments(spark, path, [*_KEY, *fields], assign=json.dumps(assigned), **how)
    if not choice.is_all:
        keys = spark.createDataFrame(chosen, "topic string, `partition` int")
        right = right.join(sql.broadcast(keys), ["topic", "partition"], "left_semi")
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
    found = both.groupBy("topic", "partition").agg(*(sql.sum(count).alias(name) for name, count in counts.items()))
    same = (sql.col("missing") + sql.col("extra") + sql.col("changed") + sql.col("duplicates")) == 0
    return found.select(
        "topic", "partition", same.alias("same"), *counts, sql.lit(None).cast("string").alias("detail")
    ).orderBy("topic", "partition")
