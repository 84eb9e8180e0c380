"""Functions that return segments as DataFrames, by the same plans as the data source but without its limits."""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pylogseg.disk import columns
from pylogseg.disk.columns import LISTED_SEGMENTS
from pylogseg.env.filesystem import Path
from pylogseg.errors import RequestError
from pylogseg.format.columns import spark_ddl
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.format.names import FileKind
from pylogseg.inspect.stats.listing import segment_fields
from pylogseg.reading.ranges import Range, Task, url_of
from pylogseg.reading.removed_segments import open_unless_removed, removed_gap
from pylogseg.spark import _compat
from pylogseg.spark.executor import pack_items, unpack_items
from pylogseg.spark.logs import find_logs
from pylogseg.spark.moments import moment_of
from pylogseg.spark.options import TO_LATEST, SourceOptions, as_text, parse, paths_of
from pylogseg.spark.plan import plan
from pylogseg.spark.schema import selected_columns, spark_schema, typed_spark_schema
from pylogseg.spark.task import on_loss, planned_logs, read_task
from pylogseg.spark.typed import typed_source
from pylogseg.spark.worker import freeze_modules
from pylogseg.tables.batch_rows import BATCHES, range_rows, row_of_gap

Paths = Path | Sequence[Path]
_Work = Callable[[Task], Iterator[pa.RecordBatch]]


def read(spark: Any, path: Paths, **options: Any) -> Any:
    """Return a DataFrame of records, read by `format("pylogseg")`.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path, URL or list of them
        Log directories, partition folders or files of batches.
    **options
        As for `spark.read.option`; dicts and lists may stand for JSON.

    Returns
    -------
    pyspark.sql.DataFrame
    """
    register(spark)
    texts = {name: as_text(value) for name, value in options.items()}
    return spark.read.format("pylogseg").options(**texts).option("path", _join_paths(path)).load()


def register(spark: Any) -> None:
    """Register `format("pylogseg")` in a session. Spark finds an installed package without this.

    Parameters
    ----------
    spark : SparkSession
        The session.

    Raises
    ------
    RequestError
        Before Spark 4.0.
    """
    _compat.check_data_sources()
    from pyspark.errors import AnalysisException

    from pylogseg.spark.source import PylogsegSource

    try:
        spark.dataSource.register(PylogsegSource)
    except AnalysisException as error:  # Spark 4.0, if it was found already
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def read_segments(
    spark: Any,
    path: Paths,
    columns: Sequence[str] | None = None,
    *,
    batch_fn: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    schema: Any = None,
    **options: Any,
) -> Any:
    """Return a DataFrame of records; faster than the data source, because only these columns are decoded and sent.

    Parameters
    ----------
    spark : SparkSession
        The session, of Spark 3.5 or later.
    path : path, URL or list of them
        Log directories, partition folders or files of batches.
    columns : sequence of str, optional
        Column names of the source, in this order.
    batch_fn : callable, optional
        Takes each Arrow record batch in the worker, before it goes to Spark, and returns one with `schema`. Use it to
        filter and decode.
    schema : StructType or str, optional
        The schema of the result of `batch_fn`, if it differs from its input. Without a `batch_fn`, the option
        ``schema`` of ``decoding``.
    **options
        As for `spark.read.option`.

    Returns
    -------
    pyspark.sql.DataFrame

    Raises
    ------
    RequestError, StorageError
        For invalid options and paths. Damage raises only when the rows are read.
    """
    if batch_fn is None and "decoding" in options and schema is not None:
        options["schema"], schema = schema, None
    paths, parsed = read_options(path, options, columns)
    typed = typed_source(paths, parsed)
    names = selected_columns(parsed) if typed is None else tuple(typed.schema().names)
    ours = spark_schema(names) if typed is None else typed_spark_schema(typed.schema())
    gives = ours if schema is None else _compat.struct_of(schema)
    expected = [(field.name, field.dataType.simpleString()) for field in gives]

    def work(task: Task) -> Iterator[pa.RecordBatch]:
        batches = read_task(task, parsed, names, typed)
        return batches if batch_fn is None else _check_columns(map(batch_fn, batches), expected)

    tasks = plan(paths, parsed, cores=_compat.cores_of(spark))
    return map_tasks(spark, tasks, work, gives)


def _check_columns(batches: Iterator[pa.RecordBatch], expected: list[tuple[str, str]]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a user's function; raise RequestError if the columns differ from the declared schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: pa.Schema | None = None
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise RequestError(f"batch_fn returned a {type(batch).__name__}, expected a pyarrow.RecordBatch")
        if schema is None or not batch.schema.equals(schema):
            returned = [(field.name, field.dataType.simpleString()) for field in from_arrow_schema(batch.schema)]
            if returned != expected:
                raise RequestError(
                    f"batch_fn returned the columns {_columns(returned)}, but schema has {_columns(expected)}: "
                    "names, order and types must be the same"
                )
            schema = batch.schema
        yield batch


def _columns(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in pairs) or "(none)"


def batches(spark: Any, path: Paths, **options: Any) -> Any:
    """Return a DataFrame with a row for each record batch, from the headers: no payload is decoded.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path, URL or list of them
        Log directories, partition folders or files of batches.
    **options
        As for `spark.read.option`. With ``checkCrc=false`` payloads are not read, and damage in them is not found.

    Returns
    -------
    pyspark.sql.DataFrame
        If there is no good batch from `baseOffset` on, `problem` says why. Damage is a row and no error, whatever
        ``onCorrupt`` is.
    """
    paths, parsed = read_options(path, options, None)
    tasks, work = plan_batches(paths, parsed, cores=_compat.cores_of(spark))
    return map_tasks(spark, tasks, work, BATCH_SCHEMA)


def segments(spark: Any, path: Paths, **options: Any) -> Any:
    """Return a DataFrame with a row for each segment, from names and indexes; only the driver works.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path, URL or list of them
        Log directories, partition folders or files of batches.
    **options
        The options that select topics and partitions, and `storageOptions`.

    Returns
    -------
    pyspark.sql.DataFrame
        `nextSegmentBaseOffset` is null for the last segment; `largestTimestamp` comes from the time index.
    """
    paths, parsed = read_options(path, options, None)
    rows = []
    for log in find_logs(paths, parsed):
        for i, segment in enumerate(log.segments):
            times = TimeIndex(segment.companion(FileKind.TIME_INDEX) or b"", segment.base_offset)
            entries = segment.companion(FileKind.OFFSET_INDEX)
            latest = times[len(times) - 1].timestamp if len(times) else -1
            following = log.segments[i + 1].base_offset if i + 1 < len(log.segments) else None
            fields = segment_fields(segment, None) | {
                "path": url_of(segment.files, segment.path),
                "modified": moment_of(segment.modified_ms, "modified", segment.path),
                "largestTimestamp": moment_of(latest, "largestTimestamp", segment.path),
                "nextSegmentBaseOffset": following,
                "indexEntries": None if entries is None else len(OffsetIndex(entries, segment.base_offset)),
            }
            rows.append(tuple(fields[column.name] for column in LISTED_SEGMENTS))
    return spark.createDataFrame(rows, spark_ddl(LISTED_SEGMENTS))


def read_options(
    path: Paths, options: dict[str, Any], columns: Sequence[str] | None
) -> tuple[list[str], SourceOptions]:
    """Parse the arguments of a function of this module into paths and options."""
    if isinstance(columns, str):
        raise RequestError(f"columns: expected a sequence of names, not the string {columns!r}")
    texts = {**options, "path": _join_paths(path)}
    return paths_of(texts), parse(texts if columns is None else {**texts, "columns": list(columns)})


def _join_paths(path: Paths) -> str:
    paths = [path] if isinstance(path, (str, os.PathLike)) else path
    return json.dumps([os.fspath(one) for one in paths])


def map_tasks(spark: Any, tasks: list[Task], work: _Work, schema: Any) -> Any:
    """Return a DataFrame of the results of tasks: Spark's partition `i` runs task `i`."""
    if not tasks:
        return spark.createDataFrame([], schema)

    # Spark sends this function to every task; a task unpacks only its own part of the plan.
    shipped = [pack_items(list(task)) for task in tasks]

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(tuple(unpack_items(shipped[number])))
        freeze_modules()

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, schema)


BatchReader = Callable[[Task], Iterator[pa.RecordBatch]]

#: Schema of `pylogseg.spark.batches`. A range without a good batch has a `problem`, and null in unknown columns.
BATCH_SCHEMA = spark_ddl(columns.BATCHES)


def plan_batches(paths: Sequence[str], options: SourceOptions, *, cores: int = 0) -> tuple[list[Task], BatchReader]:
    """Divide a listing of batches into tasks, and return the function that reads a task. Damage is a row."""
    tasks = plan(paths, replace(options, reading=replace(options.reading, on_corrupt="skip")), cores=cores)
    bounds: dict[str, tuple[int, int]] = {}
    for part in itertools.chain.from_iterable(tasks):
        first, end = bounds.get(part.folder, (part.first_offset, part.end_offset))
        bounds[part.folder] = min(first, part.first_offset), max(end, part.end_offset)
    return tasks, functools.partial(_read_batches, options=options, bounds=bounds)


def _read_batches(
    task: Iterable[Range], options: SourceOptions, bounds: Mapping[str, tuple[int, int]]
) -> Iterator[pa.RecordBatch]:
    """Yield the batch headers of a task as rows; payloads are read only with ``checkCrc``.

    `bounds` are the first offset of the read and its end, by folder.
    """
    logs, lost = planned_logs(options), on_loss(options)
    to_log_end = options.ending == TO_LATEST and not options.at_high_watermark
    to_log_end = to_log_end and options.reading.isolation_level == "read_uncommitted"
    for part in task:
        first, end = bounds[part.folder]
        begins = part.first_offset == first
        ends = part.end_offset == part.next_offset or (to_log_end and part.next_offset < 0 and part.end_offset == end)
        segment = logs.segments(part)[0]
        view = open_unless_removed(segment, or_log=True)
        if view is None:
            gap = removed_gap(segment, part.first_offset, part.end_offset)
            lost(part, gap)
            yield row_of_gap(segment, gap)
            continue
        with view:
            span = part.first_offset, part.end_offset
            pieces = range_rows(segment, view, *span, BATCHES, crc=options.reading.check_crc, begins=begins, ends=ends)
            yield from (rows for rows, _ in pieces)
