"""`stats`: count the records of segments in the workers, and merge by partition, topic, hour or key."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.columns import HOURS, KEYS, STATS
from pylogseg.disk.listing import open_dir
from pylogseg.errors import RequestError
from pylogseg.format.columns import spark_ddl, to_row
from pylogseg.inspect.stats.counting import Counting, counted
from pylogseg.inspect.stats.groups import StatsGroup, units_of
from pylogseg.reading.logs import partitions_of
from pylogseg.spark.executor import SparkExecutor
from pylogseg.spark.frames import read_segments
from pylogseg.spark.moments import moment_of
from pylogseg.tables import counting

_log = logging.getLogger("pylogseg.spark")


def stats(
    spark: Any,
    path: Any,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    by: str = "partition",
    storage_options: Mapping[str, Any] | None = None,
    tier: str | None = None,
    progress: bool | None = None,
    top: int = 0,
) -> Any:
    """Count records like `pylogseg stats`, or by hour, or by key.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path, URL or list of them
        As for `pylogseg.open_dir`.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    by : {"partition", "topic", "all", "hour", "key"}
        What each row counts. ``hour`` counts records and bytes of keys and values by topic and hour of the timestamp;
        ``key`` counts them by topic and key, largest first.
    storage_options, tier : mapping, str, optional
        As for `pylogseg.open_dir`: options of the store, with ``tier_keys`` for encrypted tiers, and the tier of the
        disks in `path`.
    progress : bool, optional
        True if to show progress; by default only if stderr is a terminal.
    top : int
        The number of keys to return; 0 for all.

    Returns
    -------
    pyspark.sql.DataFrame
        The columns of ``pylogseg stats --json``. ``dirtyRatio`` is the share of bytes in segments that end after the
        compacted part of the log; null if no checkpoint of the cleaner names the partition, or it is damaged, which a
        warning says.
    """
    notes: list[str] = []
    choice = PartitionChoice.of(topic, partition)
    found = stats_and_notes(
        spark, path, choice, notes, by, storage_options=storage_options, tier=tier, progress=progress, top=top
    )
    for note in notes:
        _log.warning("not known: %s", note)
    return found


def stats_and_notes(
    spark: Any,
    path: Any,
    choice: PartitionChoice,
    notes: list[str],
    by: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    tier: str | None = None,
    progress: bool | None = None,
    top: int = 0,
) -> Any:
    """Return what `stats` does; `notes` gets what is not known, since a checkpoint cannot be read."""
    if by == "hour":
        return _by_hour(spark, path, choice, _reading(storage_options, tier))
    if by == "key":
        return _by_key(spark, path, choice, top, _reading(storage_options, tier))
    if by not in ("partition", "topic", "all"):
        raise RequestError(f"by: expected partition, topic, all, hour or key, not {by!r}")
    disk = open_dir(path, storage_options=storage_options, tier=tier).select(*choice.arguments)
    units = units_of(disk, partitions_of(disk), notes)
    whole = [(unit, 0) for unit in units]
    found = counted(whole, by, Counting(), _values_of, SparkExecutor(spark, progress))
    return spark.createDataFrame([_with_moments(values) for _, values in found], spark_ddl(STATS))


def _values_of(group: StatsGroup) -> tuple[Any, ...]:
    return tuple(to_row(group, STATS).values())


def _with_moments(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of a row with moments in place of milliseconds; on the driver, where a warning is seen."""
    named = [*zip(STATS, values, strict=True)]
    (name,) = (value for column, value in named if column.name == "name")
    return tuple(moment_of(value, c.name, name) if c.type == "timestamp" else value for c, value in named)


# ---- of records ----


def _reading(storage_options: Mapping[str, Any] | None, tier: str | None) -> dict[str, Any]:
    """Return the options of a read."""
    options = {"storageOptions": dict(storage_options) if storage_options else None, "tier": tier}
    return {name: value for name, value in options.items() if value is not None}


def _by_hour(spark: Any, path: Any, choice: PartitionChoice, options: dict[str, Any]) -> Any:
    how = {"batch_fn": counting.by_hour, "schema": spark_ddl(HOURS), **_only(path, choice, options)}
    partial = read_segments(spark, path, counting.READ["hour"], **how)
    return partial.groupBy("topic", "hour").agg({"records": "sum", "bytes": "sum"}).select(
        "topic", "hour", _sum("records"), _sum("bytes")
    ).orderBy("topic", "hour")  # fmt: skip


def _by_key(spark: Any, path: Any, choice: PartitionChoice, top: int, options: dict[str, Any]) -> Any:
    how = {"batch_fn": counting.by_key, "schema": spark_ddl(KEYS), **_only(path, choice, options)}
    partial = read_segments(spark, path, counting.READ["key"], **how)
    grouped = partial.groupBy("topic", "key").agg({"records": "sum", "bytes": "sum"}).select(
        "topic", "key", _sum("records"), _sum("bytes")
    ).orderBy("records", "topic", "key", ascending=[False, True, True])  # fmt: skip
    return grouped.limit(top) if top else grouped


def _sum(name: str) -> Any:
    from pyspark.sql.functions import col

    return col(f"sum({name})").alias(name)


def _only(path: Any, choice: PartitionChoice, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a read, with the one that selects the chosen partitions."""
    if choice.is_all:
        return options
    assigned: dict[str, list[int]] = {}
    disk = open_dir(path, storage_options=options.get("storageOptions"), tier=options.get("tier"))
    for part in disk.select(*choice.arguments).partitions:
        assigned.setdefault(part.topic, []).append(part.partition)
    return {**options, "assign": json.dumps(assigned)}
