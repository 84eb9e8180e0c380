"""Jobs for whole disks: functions of the package with Spark as their executor. A job returns a DataFrame.

A job takes the session, and then the arguments of the function that its text names; `help` shows all of them.
``*choice`` is ``topic`` and ``partition``. ``storage_options`` and ``tier`` are those of `pylogseg.open_dir`. Driver
and workers must see the files under the same paths, also a folder that a job writes to. ``progress=True`` shows
progress even if stderr is not a terminal.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pyarrow as pa

import pylogseg
from pylogseg import offline
from pylogseg.archive.verifying import ArchiveSummary, ReadObjects, is_archive_at, verify_archive
from pylogseg.archive.writing import ArchiveResult
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.columns import EXPORTED, HOURS, KEYS, RESTORED, STATS
from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.disk.tier.opening import is_tier
from pylogseg.env.executor import Executor
from pylogseg.errors import RequestError
from pylogseg.format.columns import TableColumn, get_columns, spark_ddl, to_row
from pylogseg.format.names import parse_partition_folder
from pylogseg.format.scratch import Scratch
from pylogseg.format.words import check_word
from pylogseg.inspect.search.patterns import Pattern, regular_expression
from pylogseg.inspect.stats.counting import Counting, count_units
from pylogseg.inspect.stats.groups import StatsGroup, units_of
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Finding, Level
from pylogseg.inspect.verify.lacking import finding_texts
from pylogseg.lakehouse.audit_result import PartitionAudit
from pylogseg.lakehouse.lake import LakeTable
from pylogseg.offline.comparing import Difference
from pylogseg.offline.restoring.partition import TableKeywords
from pylogseg.offline.result import PartitionResult
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.arrow.columns import arrow_schema
from pylogseg.reading.logs import logs_of, partitions_of
from pylogseg.reading.partition import Chunk
from pylogseg.reading.ranges import Task
from pylogseg.reading.selection import Moment
from pylogseg.reading.state import IsolationLevel, LimitKeywords, OnCorrupt
from pylogseg.reporting.report import Report
from pylogseg.spark import _compat
from pylogseg.spark._compat import VERSION, struct_of
from pylogseg.spark.arguments import take_choice, take_executor, take_log, takes
from pylogseg.spark.exported import assign, compare_with_table, read_for_restore
from pylogseg.spark.frames import map_tasks, read_options, read_segments
from pylogseg.spark.moments import moment_of
from pylogseg.spark.plan import plan
from pylogseg.spark.restoring import restore_rows
from pylogseg.spark.schema import selected_columns, spark_schema
from pylogseg.spark.task import chunks, even_out
from pylogseg.spark.write_options import parse_write
from pylogseg.tables import counting
from pylogseg.tables.export.file import Form
from pylogseg.tables.export.notes import is_noted
from pylogseg.tables.export.tables import COLUMNS, TableExport, export_logs, files_of_part, missing_files
from pylogseg.tables.question import Question

# ---- results as rows of a DataFrame, by their declared columns ----

_DETAIL = TableColumn("detail", "string", "line of --json")
_PLACE = (TableColumn("topic", "string", "by the folder's name"), TableColumn("partition", "int32", "as `topic`"))


def _small_frame(spark: Any, rows: Iterable[Mapping[str, Any]], columns: Sequence[TableColumn]) -> Any:
    """Return a DataFrame of a few rows of the driver: some columns of each, null where it has none of the name.

    The rows become an Arrow table in the plan. A list of rows would be sent to the workers, and from there to the JVM,
    each time the DataFrame is evaluated.
    """
    schema, lines = spark_ddl(columns), list(rows)
    if VERSION < (4, 0):
        return spark.createDataFrame([tuple(row.get(column.name) for column in columns) for row in lines], schema)
    return spark.createDataFrame(pa.Table.from_pylist(lines, arrow_schema(columns)), struct_of(schema))


def _columns_of_kind(kind: type, names: str = "") -> tuple[TableColumn, ...]:
    """Return the declared columns of a class: some by their names, else all but the one that tells kinds apart."""
    columns = {column.name: column for column in get_columns(kind) if column.name != "type"}
    return tuple(columns[name] for name in names.split() or columns)


def _to_line(value: Any) -> dict[str, Any]:
    """Return a result as its line of ``--json``, with the text of that as `detail`."""
    line = to_row(value)
    return {**line, "detail": json.dumps(line)}


def _frame_partitions(spark: Any, results: Iterable[Any], columns: Iterable[TableColumn], **more: Any) -> Any:
    """Return a DataFrame of the results of partitions: topic and number, some columns, and the line of ``--json``."""
    rows = list[dict[str, Any]]()
    for result in results:
        folder = parse_partition_folder(result.name)
        assert folder is not None
        rows.append({**_to_line(result), "topic": folder.topic, "partition": folder.partition, **more})
    rows.sort(key=lambda row: (row["topic"], row["partition"]))
    return _small_frame(spark, rows, (*_PLACE, *columns, _DETAIL))


# ---- the jobs ----

#: Columns of commands that rewrite or restore.
_RESULT = _columns_of_kind(
    PartitionResult, "state reason path logStart logEnd bytesBefore bytesAfter segmentsBefore segmentsAfter"
)

#: Keywords of offline commands that a job gives them.
_NOT_OF_JOBS = ("into", "storage")


@takes(pylogseg.archive.write)
def archive(spark: Any, path: Any, archive: Any, **how: Any) -> Any:
    """Back up the disks of a cluster's brokers as `pylogseg.archive.write` does: workers upload partitions.

    The driver decides what to upload, and writes the point when all is there. Only it needs the public key. A partition
    that a worker uploads again replaces objects by the same bytes; encrypted ones may be left over, and ``pylogseg
    archive prune`` deletes them. The result is one row, the line of ``pylogseg archive --json``.
    """
    result = pylogseg.archive.write(path, archive, executor=take_executor(spark, how), **how)
    return _small_frame(spark, [to_row(result)], _columns_of_kind(ArchiveResult))


@takes(open_dir, pylogseg.audit)
def audit(spark: Any, path: Any, table: Any, *choice: Any, **how: Any) -> Any:
    """Compare a table that was fed from Kafka with the log as `pylogseg.audit` does: workers read both.

    Only the driver needs the packages of the table's format. Offsets and hashes of the table lie in a folder of
    ``TMPDIR`` of the driver, which all machines must see. The rows are the lines of ``pylogseg audit --json``: by
    ``type`` each ``partition``, each ``finding`` about the table or a file of it, and the ``summary``, last. ``right``
    is false where something is double, changed, lost, foreign or hidden, ``whole`` where something could not be looked
    at; ``detail`` is the line.
    """
    log, executor = take_log(path, how), take_executor(spark, how)
    result = pylogseg.audit(log, table, *choice, executor=executor, **how)
    rows = [{**_to_line(part), "name": part.name} for part in result.partitions]
    for finding in result.findings:
        more = {"name": finding.file, "right": not finding.is_wrong, "whole": finding.kind != "unread"}
        rows.append({**_to_line(finding), **more})
    rows.append({**_to_line(result), "name": result.table})
    first = (TableColumn("type", "string", "kind of the line"), TableColumn("name", "string", "partition, file, table"))
    counts = _columns_of_kind(PartitionAudit, "right whole rows present double changed missing foreign unchecked")
    return _small_frame(spark, rows, (*first, *counts, _DETAIL))


@takes(open_dir)
def verify(
    spark: Any,
    path: Any,
    *choice: Any,
    level: str = "indexes",
    read: ReadObjects | None = None,
    **how: Any,
) -> Any:
    """Check logs, indexes and small files, or an archive, as ``pylogseg verify`` does; a row is a finding.

    ``level`` is ``headers``, ``crc``, ``records`` or ``indexes``; each includes those before it. ``read`` selects the
    objects of an archive to read: ``none`` (they are only listed), ``new`` (not read by an earlier run) or ``all``. A
    row is a finding: ``level`` is ``damage``, ``notice``, ``unread`` or ``unknown``, and ``urgency`` a key of
    `pylogseg.inspect.verify.findings.URGENCIES`.
    """
    if level.upper() not in Level.__members__:
        raise RequestError(f"level: expected one of {', '.join(kind.name.lower() for kind in Level)}, not {level!r}")
    if read is not None:
        check_word("read", read, get_args(ReadObjects))
    depth, chosen, executor = Level[level.upper()], take_choice(choice, how), take_executor(spark, how)
    findings: Iterator[Finding]
    if isinstance(path, (str, os.PathLike)) and is_archive_at(os.fspath(path), how.get("storage_options")):
        summary = ArchiveSummary(depth)
        work: dict[str, Any] = {"read": read or "none", "choice": chosen, "executor": executor}
        findings = verify_archive(os.fspath(path), summary, **work, storage_options=how.get("storage_options"))
    elif read is not None:
        raise RequestError(f"read is for an archive, and {path} has no points")
    else:
        disk = open_dir(path, **how).select(*chosen.arguments)
        parts = [part for part in disk.partitions if disk.is_named or not part.state]
        findings = verify_disk(disk, VerifySummary(depth), partitions=parts, choice=chosen, executor=executor)
    return _small_frame(spark, map(to_row, findings), _columns_of_kind(Finding))


@takes(open_dir)
def stats(
    spark: Any,
    path: Any,
    *choice: Any,
    by: str = "partition",
    top: int = 0,
    **how: Any,
) -> Any:
    """Count records by ``partition``, ``topic``, ``all``, ``hour`` or ``key``, as ``pylogseg stats --json`` does.

    By ``hour`` of the timestamp, and by ``key`` (the ``top`` ones, largest first), records and bytes of keys and values
    are counted for each topic. ``dirtyRatio`` is null if no checkpoint of the cleaner names the partition, or if it is
    damaged, which a warning says.
    """
    chosen, executor = take_choice(choice, how), take_executor(spark, how)
    if by in ("hour", "key"):
        return _count_records(spark, path, chosen, by, top, how)
    if by not in ("partition", "topic", "all"):
        raise RequestError(f"by: expected partition, topic, all, hour or key, not {by!r}")
    disk = open_dir(path, **how).select(*chosen.arguments)
    return _small_frame(spark, _count_segments(disk, by, executor), STATS)


@takes(open_dir, pylogseg.report)
def report(spark: Any, path: Any, *choice: Any, **how: Any) -> Report:
    """Look at a disk as `pylogseg.report` does, and return its `Report`: workers read the segments.

    The driver reads the small files of partitions, and the topics of groups and transactions.
    """
    log, executor = take_log(path, how), take_executor(spark, how)
    return pylogseg.report(log, *choice, executor=executor, **how)


def grep(
    spark: Any,
    path: Any,
    pattern: str | bytes,
    *,
    places: Sequence[str] = ("key", "value"),
    regex: bool = False,
    ignore_case: bool = False,
    invert: bool = False,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Return the records that match, as ``pylogseg grep`` finds them; only they reach Spark.

    ``pattern`` is a text, or with ``regex`` an expression of Python's `re` for bytes, to look for in ``places``:
    ``key``, ``value``, ``headers``. With ``invert`` the other records are returned. ``columns`` and ``options`` are
    those of `pylogseg.spark.read_segments`: ``subscribe``, ``startingTimestamp``, ``onCorrupt`` ...
    """
    text = pattern if isinstance(pattern, str) else pattern.decode("utf-8", "surrogateescape")
    needle = regular_expression(text, ignore_case) if regex else text.encode("utf-8", "surrogateescape")
    return _find_records(spark, path, Pattern(needle, places, ignore_case, invert), columns, options)


@takes(open_dir, offline.diff, without=["tier"])
def diff(spark: Any, a: Any, b: Any, *choice: Any, **how: Any) -> Any:
    """Compare the records of two directories as `pylogseg.offline.diff` does, or of a directory and an exported table.

    If ``b`` is the folder of a table, key, value, timestamp and headers of each offset are compared, as far as it has
    them, with the records at the isolation level of the table. A row is a partition of either side, with the number of
    records that are ``missing`` in B, ``extra`` in B or ``changed``, and of ``duplicates``, rows of a table with the
    offset of another row. ``detail`` is the line of ``pylogseg diff --json``; null for a table.
    """
    chosen, executor = take_choice(choice, how), take_executor(spark, how)
    storage = how.pop("storage_options", None)
    if isinstance(b, (str, os.PathLike)) and not is_tier(b) and is_noted(b, storage):
        if how:
            raise RequestError(f"{b} is an exported table: {', '.join(how)} are for two directories")
        return compare_with_table(spark, a, chosen, os.fspath(b), storage)
    one, other = (take_log(source, {"storage_options": storage}) for source in (a, b))
    differences = offline.diff(one, other, *chosen.arguments, executor=executor, **how)
    counts = _columns_of_kind(Difference, "same recordsA recordsB missing extra changed")
    duplicates = TableColumn("duplicates", "int64", "rows of a table with the offset of another row")
    return _frame_partitions(spark, differences, (*counts, duplicates), duplicates=0)


class _ExportQuestion(LimitKeywords, total=False):
    """Keywords of `export` about records; a reader may have the same."""

    timestamp: Moment | tuple[Moment | None, Moment | None] | None
    isolation_level: IsolationLevel
    on_corrupt: OnCorrupt


@takes(open_dir, _ExportQuestion, without=["timestamp"])
def export(
    spark: Any,
    path: Any,
    out: str,
    *choice: Any,
    form: str = "parquet",
    columns: Sequence[str] = COLUMNS,
    compression: str = "zstd",
    since: int | None = None,
    until: int | None = None,
    keep_deleted: bool = True,
    overwrite: bool = False,
    dry_run: bool = False,
    out_storage_options: Mapping[str, Any] | None = None,
    **how: Any,
) -> Any:
    """Write records as files ``OUT/topic=NAME/date=YYYY-MM-DD/...``, which Spark and other engines read as one table.

    A task handles whole segments, with ``on_corrupt="stop"`` whole partitions. The names of its files are derived from
    them, so another attempt or run replaces the files. A run skips segments that did not change since an earlier run,
    and removes files of segments that the cleaner merged into others. A table has one file format (``parquet`` or
    ``arrow``), one set of columns and one isolation level. ``since`` and ``until`` (ms, half-open) add to a table.
    ``path`` may be a reader, as `pylogseg.read` returns it, with topics, times, isolation level and limits.

    A row is a file: ``state`` is ``written``, ``unchanged`` or ``to do`` (with a null ``path``), ``gone`` if retention
    removed the segment meanwhile, or ``skipped`` after damage. ``problem`` says what could not be read. A row with the
    state ``missing`` says what checkpoints, indexes, leader epochs and snapshots show to be missing from the logs.
    """
    executor, storage = take_executor(spark, how), how.get("storage_options")
    target, layout = out if "://" in out else os.path.abspath(out), Form(form, tuple(columns), compression)
    log, topics = take_log(path, how), take_choice(choice, how).arguments
    asked = how if since is None and until is None else {**how, "timestamp": (since, until)}
    question = Question.of("export", log, *topics, _ExportQuestion, asked)
    chosen, reading, disk = question.choice, question.reading, question.open()
    selection = replace(question.selection, topics=(), partitions=())
    state, logs = reading.start(scratch=Scratch), logs_of(disk.select(*chosen.arguments))
    into = storage if out_storage_options is None else out_storage_options
    table = TableExport(
        target, layout, reading.isolation_level, dry_run=dry_run, overwrite=overwrite, storage_options=into
    )
    parts = export_logs(logs, table, selection, state, keep_deleted=keep_deleted, executor=executor)
    files = [file for part in parts for file in files_of_part(part, table.store)]
    files += missing_files(disk, logs, selection, state, chosen)
    return _small_frame(spark, map(to_row, files), EXPORTED)


@takes(open_dir, pylogseg.lake)
def lake(spark: Any, path: Any, table: str, *choice: Any, **how: Any) -> Any:
    """Write topics to tables of Delta, Iceberg or DuckLake as `pylogseg.lake` does: each range of a log once.

    The workers write the files of a commit, and the driver commits them together with the ledger; only it needs the
    packages of the table's format. A run of the shell goes on where one of Spark has ended, and the other way round. A
    row is a topic: counts of this run, the offsets that the table has, and under ``problems`` damage that was skipped,
    and records that are missing from the log.
    """
    log, executor = take_log(path, how), take_executor(spark, how)
    tables = pylogseg.lake(log, table, *choice, executor=executor, **how)
    return _small_frame(spark, map(to_row, tables), _columns_of_kind(LakeTable))


@takes(open_dir, pylogseg.lake, without=["progress", "latest"])
def lake_batches(
    path: Any,
    table: str,
    *choice: Any,
    on_done: Callable[[LakeTable], None] | None = None,
    **how: Any,
) -> Callable[[Any, int], None]:
    """Return a function for `foreachBatch` that brings tables up to date, as `lake` does.

    The stream is the clock: neither the rows of a batch nor its number is used. The table's own ledger says where to go
    on, so a batch that Spark repeats, a lost checkpoint and a run of the shell in between change nothing. ``on_done``
    gets the result for each topic; by default problems and dead letters are logged as warnings. An error of `lake` ends
    the query.

    Examples
    --------
    >>> write = pylogseg.spark.jobs.lake_batches("/data/kafka", "delta:/lake/orders", "orders")  # doctest: +SKIP
    >>> clock = spark.readStream.format("rate").load()  # doctest: +SKIP
    >>> query = clock.writeStream.foreachBatch(write).trigger(processingTime="60 seconds").start()  # doctest: +SKIP
    """

    def write(frame: Any, _: int) -> None:
        options = {**how, "progress": False}
        log, executor = take_log(path, options), take_executor(frame.sparkSession, options)
        for result in pylogseg.lake(log, table, *choice, executor=executor, **options):
            (on_done or _log_problems)(result)

    return write


def _log_problems(result: LakeTable) -> None:
    for text in result.problems:
        _log.warning("%s: %s", result.table, text)
    if result.dead_letters:
        count = f"{result.dead_letters} records"
        _log.warning("%s: %s do not decode, and are in its table of dead letters", result.table, count)


@takes(offline.compact, without=_NOT_OF_JOBS)
def compact(spark: Any, path: str, out: str, *choice: Any, **how: Any) -> Any:
    """Keep the last record of each key as `pylogseg.offline.compact` does, in the new log directory ``out``.

    A task is a partition, and either all partitions appear at the end, or none. A row is a partition: ``state`` is
    ``done``, ``unchanged`` (nothing to clean, or written by an earlier run from the same files), ``skipped`` (copied
    unchanged: its topic is not compacted) or ``failed``, with a reason. ``overwrite=True`` replaces partitions in
    ``out``; ``detail`` is the line of ``pylogseg compact --json``.
    """
    executor, (topic, partition) = take_executor(spark, how), take_choice(choice, how).arguments
    result = offline.compact(path, into=out, topic=topic, partition=partition, executor=executor, **how)
    return _frame_partitions(spark, result, _RESULT)


@takes(offline.redact, without=_NOT_OF_JOBS)
def redact(spark: Any, path: str, out: str, *choice: Any, **how: Any) -> Any:
    """Delete or blank records as `pylogseg.offline.redact` does; see `compact` for ``out`` and the rows."""
    executor, (topic, partition) = take_executor(spark, how), take_choice(choice, how).arguments
    result = offline.redact(path, into=out, topic=topic, partition=partition, executor=executor, **how)
    return _frame_partitions(spark, result, _RESULT)


@takes(
    offline.restore,
    without=[*TableKeywords.__annotations__, "target_storage_options", "files", "keep_going"],
)
def restore_tier(spark: Any, path: str, target: str, *choice: Any, **how: Any) -> Any:
    """Restore partitions from tiered storage as `pylogseg.offline.restore` does, into a folder that all workers share.

    A task is a partition. One that fails stays as it is in ``target``, and its row has the state ``failed`` with a
    reason; all others appear together at the end, or none if the job dies. ``detail`` is the line of ``pylogseg restore
    --json``; its notes say what damage was left out.
    """
    if how.get("tier") is None and not is_tier(path):
        raise RequestError(f"{path}: not the URL of a tier, such as aiven+s3://bucket/prefix; restore is for tables")
    executor, (topic, partition) = take_executor(spark, how), take_choice(choice, how).arguments
    where: dict[str, Any] = {"topic": topic, "partition": partition, "executor": executor}
    result = offline.restore(path, target, keep_going=True, **where, **how)
    for note in [*result.notes, *finding_texts(result.lacking)]:
        _log.warning("%s", note)
    return _frame_partitions(spark, result, _RESULT)


def restore(
    spark: Any,
    source: Any,
    path: str,
    *,
    overwrite: bool = False,
    force: bool = False,
    committed: bool = False,
    without_transactions: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Write the rows of a DataFrame, or of an exported table, as partitions that a broker opens.

    Rows have ``value``, and optionally ``key``, ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``
    and ``headers``. They are sorted by topic, partition and offset first. Either all partitions appear at the end in
    ``path``, a folder that all workers share or the URL of a store, or none. One that exists with other records, or in
    a store, is refused, unless ``overwrite``. ``options`` are those of ``df.write`` (docs/spark-jobs.md).

    An exported table, the path or URL of its folder, is refused if it lacks records, unless ``force``; and if some may
    have been aborted, unless ``committed`` confirms that all were committed, or ``without_transactions`` leaves out
    records of transactions. ``storage_options`` are those of the stores of ``source`` and ``path``; Spark reads the
    rows with its own.

    A row is a partition: ``state`` is ``written``, ``to do``, or ``unchanged`` if it exists with the same records.
    """
    write, rows = parse_write({**options, "path": path}, takes_urls=True), source
    how = {"committed": committed, "without_transactions": without_transactions}
    if isinstance(source, (str, os.PathLike)):
        rows = read_for_restore(spark, os.fspath(source), storage_options, force=force, **how)
    elif any(how.values()):
        raise RequestError(
            f"{' and '.join(how)} are for an exported table; all rows of a DataFrame are written: filter them"
        )
    restored = restore_rows(spark, rows, write, storage_options, overwrite=overwrite, dry_run=dry_run)
    return _small_frame(spark, restored, RESTORED)


_log = logging.getLogger("pylogseg.spark")


# ---- counts of `stats` ----

_COUNTS = {"hour": (HOURS, counting.by_hour), "key": (KEYS, counting.by_key)}
_TIMES = [column.name for column in STATS if column.type == "timestamp"]


def _count_segments(disk: Disk, by: str, executor: Executor) -> Iterator[dict[str, Any]]:
    """Yield the columns `STATS` of each partition or topic, or of all; checkpoints that cannot be read are logged."""
    notes: list[str] = []
    units = [(unit, 0) for unit in units_of(disk, partitions_of(disk), notes)]
    for note in notes:
        _log.warning("not known: %s", note)
    for _, row in count_units(units, by, Counting(), _stats_row, executor):
        yield {**row, **{name: moment_of(row[name], name, row["name"]) for name in _TIMES}}


def _stats_row(group: StatsGroup) -> dict[str, Any]:
    return to_row(group, STATS)


def _count_records(
    spark: Any, path: Any, choice: PartitionChoice, by: str, top: int, opening: Mapping[str, Any]
) -> Any:
    """Return a DataFrame with a row for each topic and hour, or key: the `top` ones, all if it is 0.

    `opening` has the arguments ``storage_options`` and ``tier`` of `open_dir`.
    """
    from pyspark.sql import functions as sql

    columns, count = _COUNTS[by]
    names = {"storage_options": "storageOptions", "tier": "tier"}
    how = {names[name]: value for name, value in opening.items() if value is not None}
    if not choice.is_all:
        how["assign"] = assign(open_dir(path, **opening).select(*choice.arguments))
    counts = read_segments(spark, path, counting.READ[by], batch_fn=count, schema=spark_ddl(columns), **how)
    sums = counts.groupBy("topic", by).agg(*(sql.sum(name).alias(name) for name in ("records", "bytes")))
    if by == "hour":
        return sums.orderBy("topic", by)
    ordered = sums.orderBy("records", "topic", by, ascending=[False, True, True])
    return ordered.limit(top) if top else ordered


# ---- search ----


def _find_records(
    spark: Any, path: Any, pattern: Pattern, columns: Sequence[str] | None, options: dict[str, Any]
) -> Any:
    """Return a DataFrame of the records that match; see `read_segments` for `columns` and `options`."""
    paths, parsed = read_options(path, options, columns)
    names = selected_columns(parsed)

    def work(task: Task) -> Iterator[pa.RecordBatch]:
        return even_out(_matches(chunks(task, parsed, ()), pattern, arrow.schema(names)), parsed)

    return map_tasks(spark, plan(paths, parsed, cores=_compat.cores_of(spark)), work, spark_schema(names))


def _matches(read: Iterator[Chunk], pattern: Pattern, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    for columns, segment in read:
        rows = np.flatnonzero(pattern.matches(columns))
        if len(rows):
            yield arrow.record_batch(Chunk(columns.take(rows), segment), target)
