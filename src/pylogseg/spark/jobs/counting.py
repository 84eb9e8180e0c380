"""`stats`: count the records of segments in the workers, and merge by partition, topic, hour or key."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import open_dir
from pylogseg.errors import RequestError
from pylogseg.inspect.stats.counting import Counting, counted
from pylogseg.inspect.stats.groups import StatsGroup, Unit, group_key, stats_row, units_of
from pylogseg.reading.log_reader import partitions_of
from pylogseg.spark.executor import SparkExecutor
from pylogseg.spark.frames import read_segments

#: Schema by partition, topic or all; ``detail`` is the row of ``pylogseg stats --json`` with codecs, percentiles.
COUNTS = (
    "name string, partitions int, segments int, size bigint, batches bigint, records bigint, tombstones bigint, "
    "nullKeys bigint, distinctKeys bigint, headers bigint, producers int, firstTime timestamp, lastTime timestamp, "
    "dirtyRatio double, missingMarkers bigint, missingBelowStart bigint, missingCompaction bigint, "
    "missingDamage bigint, missingUnexplained bigint, detail string"
)
_log = logging.getLogger("pylogseg.spark")
_HOUR_MS = 3_600_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


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
        Whether to show progress; by default only if stderr is a terminal.
    top : int
        The number of keys to return; 0 for all.

    Returns
    -------
    pyspark.sql.DataFrame
        ``dirtyRatio`` is the share of bytes in segments that end after the compacted part of the log; null if no
        checkpoint of the cleaner names the partition, or it is damaged, which a warning says.
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
    ratios = _ratios(units, by)
    whole = [(unit, 0) for unit in units]
    found = counted(whole, by, Counting(), _values_of, SparkExecutor(spark, progress))
    rows = [(*values, ratios.get(key), *gone, json.dumps(row)) for key, (values, gone, row) in found]
    return spark.createDataFrame(rows, COUNTS)


def _values_of(group: StatsGroup) -> tuple[tuple[Any, ...], tuple[int, ...], dict[str, Any]]:
    """Return what the row of a group says before and after its dirty ratio, and the row of `pylogseg stats --json`."""
    counts, missing = group.stats, group.missing
    values = (
        group.name, group.partitions, counts.segments, counts.size_bytes, counts.batches, counts.records,
        counts.tombstones, counts.null_keys, counts.keys.count, counts.headers, len(counts.producers),
        _moment(counts.least_timestamp), _moment(counts.largest_timestamp),
    )  # fmt: skip
    gone = (missing.markers, missing.below_start, missing.compaction, missing.damage, missing.unexplained)
    return values, gone, stats_row(group)


def _ratios(units: Sequence[Unit], by: str) -> dict[str, float]:
    """Return the share of dirty bytes of each group with an entry in the cleaner's checkpoint."""
    bytes_of: dict[str, list[int]] = {}
    for unit in units:
        if unit.cleaned_to is not None:
            known = bytes_of.setdefault(group_key(unit.name, by), [0, 0])
            for i, size in enumerate(_dirty_bytes(unit)):
                known[i] += size
    return {key: dirty / total for key, (dirty, total) in bytes_of.items() if total}


def _dirty_bytes(unit: Unit) -> tuple[int, int]:
    """Return the bytes of sealed segments that are not cleaned, and of all sealed segments."""
    sealed = unit.segments[:-1]
    behind = [segment.base_offset for segment in unit.segments[1:]]
    assert unit.cleaned_to is not None
    dirty = sum(s.size for s, end in zip(sealed, behind, strict=True) if end > unit.cleaned_to)
    return dirty, sum(segment.size for segment in sealed)


def _moment(timestamp_ms: int | None) -> datetime.datetime | None:
    return None if timestamp_ms is None else _EPOCH + datetime.timedelta(milliseconds=timestamp_ms)


# ---- of records ----


def _reading(storage_options: Mapping[str, Any] | None, tier: str | None) -> dict[str, Any]:
    """Return the options of a read."""
    options = {"storageOptions": dict(storage_options) if storage_options else None, "tier": tier}
    return {name: value for name, value in options.items() if value is not None}


def _by_hour(spark: Any, path: Any, choice: PartitionChoice, options: dict[str, Any]) -> Any:
    schema = "topic string, hour timestamp, records bigint, bytes bigint"
    columns = ["topic", "timestamp", "key", "value"]
    partial = read_segments(spark, path, columns, batch_fn=_hours, schema=schema, **_only(path, choice, options))
    return partial.groupBy("topic", "hour").agg({"records": "sum", "bytes": "sum"}).select(
        "topic", "hour", _sum("records"), _sum("bytes")
    ).orderBy("topic", "hour")  # fmt: skip


def _by_key(spark: Any, path: Any, choice: PartitionChoice, top: int, options: dict[str, Any]) -> Any:
    schema = "topic string, key binary, records bigint, bytes bigint"
    columns = ["topic", "key", "value"]
    partial = read_segments(spark, path, columns, batch_fn=_keys, schema=schema, **_only(path, choice, options))
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


def _sizes(batch: pa.RecordBatch) -> pa.Array:
    """Return the bytes of key and value of each record."""
    import pyarrow.compute as pc

    parts = [pc.fill_null(pc.binary_length(batch.column(name)), 0).cast(pa.int64()) for name in ("key", "value")]
    return pc.add(*parts)


def _hours(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Count the records of a batch by hour, so that little data goes to Spark."""
    hours = batch.column("timestamp").cast(pa.int64()).to_numpy() // (_HOUR_MS * 1000) * (_HOUR_MS * 1000)
    column = pa.array(hours).cast(pa.timestamp("us", tz="UTC"))
    return _grouped(batch.column("topic"), column, "hour", _sizes(batch))


def _keys(batch: pa.RecordBatch) -> pa.RecordBatch:
    return _grouped(batch.column("topic"), batch.column("key"), "key", _sizes(batch))


def _grouped(topic: pa.Array, column: pa.Array, name: str, sizes: pa.Array) -> pa.RecordBatch:
    table = pa.table({"topic": topic, name: column, "bytes": sizes})
    counts = table.group_by(["topic", name]).aggregate([("bytes", "count"), ("bytes", "sum")])
    chosen = counts.select(["topic", name, "bytes_count", "bytes_sum"]).combine_chunks().to_batches()
    schema = pa.schema([("topic", pa.string()), (name, column.type), ("records", pa.int64()), ("bytes", pa.int64())])
    return pa.RecordBatch.from_arrays(chosen[0].columns, schema=schema) if chosen else schema.empty_table().to_batches()
