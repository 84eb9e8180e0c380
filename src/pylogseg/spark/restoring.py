"""Rows of a DataFrame as partitions: Spark sorts them, tasks write each partition, and the driver puts all in place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from pylogseg.disk.disk import Partition
from pylogseg.disk.listing import open_dir
from pylogseg.errors import RequestError
from pylogseg.offline.comparing_table import compare_partitions
from pylogseg.offline.restoring.rows import COLUMNS, WriteOptions, write_rows
from pylogseg.offline.restoring.uploading import StoreUpload
from pylogseg.spark.worker import task_name
from pylogseg.spark.write_options import check_row_columns
from pylogseg.transfer.contents import content_of
from pylogseg.transfer.staging import Staging, WrittenPart, by_offsets, finish_commits, placed_at

_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_Key = tuple[str, int]

_WRITTEN = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("folder", pa.string())]
    + [(name, pa.int64()) for name in WrittenPart._fields[3 : WrittenPart._fields.index("start")]]
)
_SAME = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("same", pa.bool_())])


def restore_rows(
    spark: Any,
    rows: Any,
    options: WriteOptions,
    storage_options: Mapping[str, Any] | None,
    *,
    overwrite: bool,
    dry_run: bool,
) -> list[dict[str, Any]]:
    """Write the partitions of rows; return a row with the columns `RESTORED` for each."""
    rows = _with_partition(rows, options)
    check_row_columns({field.name: field.dataType.simpleString() for field in rows.schema}, options)
    is_remote = "://" in options.root  # where a partition that exists is not compared
    if not (is_remote or dry_run) and os.path.isdir(options.root):
        finish_commits(options.root)  # a write that died after its commit began is finished first
    there = {} if overwrite or is_remote else _live_partitions(options.root)
    done: list[dict[str, Any]] = []
    if there or dry_run:
        done, todo = _look(spark, rows, there, options, dry_run)
        if dry_run or not todo:
            return done
        rows = _of_partitions(spark, rows, todo) if done else rows
    placed = _upload(rows, options, storage_options, overwrite) if is_remote else _write(rows, options, overwrite)
    done += [
        _row((part.topic, part.partition), "written", part.folder, (part.first_offset, part.end_offset, part.records),
             part.segments, part.size_bytes)
        for part in placed
    ]  # fmt: skip
    return sorted(done, key=lambda row: (row["topic"], row["partition"]))


def _row(
    key: _Key, state: str, path: str, content: tuple[Any, ...], segments: int | None, size: int | None
) -> dict[str, Any]:
    first, end, records = content
    offsets = {"firstOffset": first, "nextOffset": end, "records": records}
    return {"topic": key[0], "partition": key[1], "state": state, "path": path, **offsets, "segments": segments,
            "size": size}  # fmt: skip


def _with_partition(rows: Any, options: WriteOptions) -> Any:
    from pyspark.sql import functions as sql

    from pylogseg.spark.functions import kafka_partition

    rows = rows.select([name for name in rows.columns if name in COLUMNS])
    if options.topic:
        rows = rows.withColumn("topic", sql.lit(options.topic))
    if options.partitions:
        anywhere = sql.pmod(sql.monotonically_increasing_id(), sql.lit(options.partitions)).cast("int")
        by_key = kafka_partition("key", options.partitions) if "key" in rows.columns else sql.lit(None).cast("int")
        own = [sql.col("partition")] if "partition" in rows.columns else []
        rows = rows.withColumn("partition", sql.coalesce(*own, by_key, anywhere))
    return rows


def _look(
    spark: Any, rows: Any, there: dict[_Key, Partition], options: WriteOptions, dry_run: bool
) -> tuple[list[dict[str, Any]], list[_Key]]:
    """Return the results of partitions that are not to be written, and the keys of the others."""
    from pyspark.sql import functions as sql

    keep = options.restore.offsets == "keep"
    bounds = [sql.min("offset"), sql.max("offset") + 1] if keep else [sql.lit(None), sql.lit(None)]
    counts = rows.groupBy("topic", "partition").agg(*bounds, sql.count(sql.lit(1))).collect()
    contents = {(topic, number): tuple(content) for topic, number, *content in counts}
    alike = [
        key
        for key, content in contents.items()
        if keep and (part := there.get(key)) is not None and content_of(part)[:3] == content
    ]
    same = _same(spark, rows, alike, options) if alike else set()
    done, todo = [], []
    for (topic, number), content in contents.items():
        key, path, part = (topic, number), os.path.join(options.root, f"{topic}-{number}"), there.get((topic, number))
        if part is not None and key in same:
            done.append(_row(key, "unchanged", path, content, len(part.segments), part.size))
        elif part is not None:
            raise RequestError(f"{path}: it already exists with other records; overwrite replaces it")
        elif dry_run:
            done.append(_row(key, "to do", path, content, None, None))
        else:
            todo.append(key)
    return sorted(done, key=lambda row: (row["topic"], row["partition"])), todo


def _same(spark: Any, rows: Any, keys: list[_Key], options: WriteOptions) -> set[_Key]:
    """Return the partitions whose folders have just these rows, compared record by record in tasks."""
    root, timestamp_type = options.root, options.restore.timestamp_type

    def task(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for topic, number, is_same in compare_partitions(tables, root, timestamp_type):
            row = {"topic": topic, "partition": number, "same": is_same}
            yield pa.RecordBatch.from_pylist([row], _SAME)

    answers = _run(_of_partitions(spark, rows, keys), task, _SAME)
    return {(topic, number) for topic, number, is_same in answers if is_same}


def _of_partitions(spark: Any, rows: Any, keys: list[_Key]) -> Any:
    from pyspark.sql import functions as sql

    chosen = spark.createDataFrame(keys, rows.select("topic", "partition").schema)
    return rows.join(sql.broadcast(chosen), ["topic", "partition"], "left_semi")


def _write(rows: Any, options: WriteOptions, overwrite: bool) -> list[WrittenPart]:
    staging = Staging(options.root)
    write_id = staging.write_id

    def task(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in write_rows(tables, Staging(options.root, write_id), task_name(), options):
            yield pa.RecordBatch.from_pylist([part._asdict()], _WRITTEN)

    try:
        staging.begin()
        return staging.commit(_parts_of(rows, task), overwrite=overwrite, may_repeat=False)
    finally:
        staging.abort()


def _upload(
    rows: Any, options: WriteOptions, storage_options: Mapping[str, Any] | None, overwrite: bool
) -> list[WrittenPart]:
    """Write partitions on the disks of the workers, upload them, and put them in place in the store."""
    upload = StoreUpload(options.root, storage_options)

    def task(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with upload.store.scratch() as folder:
            staging = Staging(str(folder))
            staging.begin()
            for part in write_rows(tables, staging, task_name(), options):
                yield pa.RecordBatch.from_pylist([upload.stage(part)._asdict()], _WRITTEN)

    with upload.open_scratch() as root:
        parts = by_offsets(_parts_of(rows, task))
        upload.check_free([part[0].name for part in parts], overwrite)
        upload.commit_staged(parts, root)
    return placed_at(upload.url, parts)


def _parts_of(rows: Any, task: _Task) -> list[WrittenPart]:
    return [WrittenPart(**row.asDict()) for row in _run(rows, task, _WRITTEN)]


def _run(rows: Any, task: _Task, schema: pa.Schema) -> list[Any]:
    """Run a function over the rows of each partition, all in one task, in the order of offsets or times."""
    from pyspark.sql.pandas.types import from_arrow_schema

    order = [name for name in ("topic", "partition", "offset", "timestamp") if name in rows.columns]
    if "offset" in order:
        order = [name for name in order if name != "timestamp"]
    ordered = rows.repartition("topic", "partition").sortWithinPartitions(*order)
    answers: list[Any] = ordered.mapInArrow(task, from_arrow_schema(schema)).collect()
    return answers


def _live_partitions(root: str) -> dict[_Key, Partition]:
    try:
        partitions = open_dir(root).partitions
    except (RequestError, OSError):  # none, or not even the folder
        return {}
    return {(part.topic, part.partition): part for part in partitions if not part.state}
