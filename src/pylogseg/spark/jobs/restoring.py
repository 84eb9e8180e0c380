"""`restore`: turn rows of a DataFrame or of an exported table into partitions."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from pylogseg.disk.disk import Partition
from pylogseg.disk.listing import open_dir
from pylogseg.env.executor import Advance, Workload
from pylogseg.errors import RequestError
from pylogseg.inspect.verify.lacking import refuse, texts_of
from pylogseg.offline.comparing_table import compared
from pylogseg.offline.restoring.contents import content_of
from pylogseg.offline.restoring.partition import WrittenPart
from pylogseg.offline.restoring.rows import COLUMNS, WriteOptions, write_rows
from pylogseg.offline.restoring.staging import Placed, Staging, by_offsets, finish_commits, placed_at
from pylogseg.offline.restoring.tables import is_committed
from pylogseg.offline.restoring.uploading import StoreUpload
from pylogseg.spark.executor import SparkExecutor
from pylogseg.spark.worker import task_name
from pylogseg.spark.write_options import check_columns, parse_write
from pylogseg.tables.export.notes import lacking_of

_log = logging.getLogger("pylogseg.spark")

MANIFEST = (
    "topic string, `partition` int, state string, path string, firstOffset bigint, nextOffset bigint, records bigint, "
    "segments int, size bigint"
)
_REMEDY = (
    "export it read_committed, or confirm by committed (--committed) that all of it was committed, or leave out the "
    "records of transactions by without_transactions (--without-transactions)"
)
_WRITTEN = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("folder", pa.string())]
    + [(name, pa.int64()) for name in WrittenPart._fields[3 : WrittenPart._fields.index("start")]]
)


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
    """Write partitions that a broker opens: segments with indexes and leader epochs.

    Rows are sorted by topic, partition and offset first. Either all partitions appear at the end, or none. An exported
    table has no markers, so an aborted record would come back as an ordinary one: a table with records that may have
    been aborted is refused, unless the caller says otherwise. All rows of a DataFrame are written.

    Parameters
    ----------
    spark : SparkSession
        The session.
    source : DataFrame or str
        Rows with ``value``, and optionally ``key``, ``topic``, ``partition``, ``offset``, ``timestamp``,
        ``timestampType``, ``headers``; or a folder of Parquet files with these columns, or a URL of one, as `export`
        writes them.
    path : str
        The folder for the partitions, shared by all workers; or a URL of a store, in which a partition that exists is
        not compared: it is refused, unless `overwrite`.
    overwrite : bool
        True if existing partitions are replaced, whatever they have.
    force : bool
        Restore also a table that is known to lack records: its notes say whether the export ended, what it could not
        read, and its files.
    committed : bool
        Confirms that all records of the table were committed, if its files do not show it.
    without_transactions : bool
        Leave out records of transactions; the table needs the column ``isTransactional``.
    dry_run : bool
        Return what would be done, and write nothing.
    storage_options : mapping, optional
        Options of the stores of `source` and `path`, as for `pylogseg.open_dir`; rows are read by Spark's own.
    **options
        Options of the write, also of ``df.write``: ``offsets`` (``keep``, the default, needs a column ``offset`` that
        ascends in each partition; ``assign`` numbers the records from ``baseOffset``, 0, on), ``compression``,
        ``segmentBytes`` (1g), ``batchBytes`` (16k, before compression), ``timestampType`` (``keep``, the default, uses
        the column; ``create`` and ``append`` are for all records), ``topic`` of all rows, ``partitions`` of a topic (a
        row without ``partition`` goes where Kafka's producer sends its key), ``leaderEpoch`` of all batches (0), and
        ``topicIds``, JSON of topic to id for `partition.metadata`, which a KRaft broker needs.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each partition: ``state`` is ``written``, ``to do``, or ``unchanged`` if it already exists with the
        same records and `overwrite` is not set.

    Raises
    ------
    IncompleteError
        For a table that is known to lack records, unless `force`.
    RequestError
        For missing columns; for a partition that exists with other records, unless `overwrite`; and for a table that
        does not show which records were committed.
    """
    given = parse_write({**options, "path": path}, takes_urls=True)
    if isinstance(source, (str, os.PathLike)):
        table = os.fspath(source)
        lacking = lacking_of(table, storage_options=storage_options)
        if not force:
            refuse(lacking)
        for text in texts_of(lacking):
            _log.warning("missing: %s", text)
        rows = _decided(spark, exported(spark, table), table, committed, without_transactions, storage_options)
    elif committed or without_transactions:
        raise RequestError(
            "committed and without_transactions are for an exported table; all rows of a DataFrame are written: "
            "filter them"
        )
    else:
        rows = source
    rows = _with_partition(rows, given)
    check_columns({field.name: field.dataType.simpleString() for field in rows.schema}, given)
    if "://" in given.root:
        return _into_store(spark, rows, given, storage_options, overwrite, dry_run)
    if not dry_run and os.path.isdir(given.root):
        finish_commits(given.root)  # a write that died after its commit began is finished first
    there = {} if overwrite else _there(given.root)  # overwrite writes, whatever is there
    done: list[tuple[Any, ...]] = []
    if there or dry_run:
        rows, done = _left(spark, rows, there, given, dry_run)
        if rows is None:
            return spark.createDataFrame(done, MANIFEST)
    return _frame_of(spark, _write(rows, given, overwrite), done)


def _frame_of(spark: Any, placed: Sequence[Placed], done: Sequence[tuple[Any, ...]] = ()) -> Any:
    return spark.createDataFrame(sorted([*done, *((*p[:2], "written", *p[2:8]) for p in placed)]), MANIFEST)


def _into_store(
    spark: Any,
    rows: Any,
    options: WriteOptions,
    storage_options: Mapping[str, Any] | None,
    overwrite: bool,
    dry_run: bool,
) -> Any:
    """Write partitions on the disks of the workers, upload them, and put them in place in the store."""
    upload = StoreUpload(options.root, storage_options)

    def task(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with upload.store.scratch() as folder:
            staging = Staging(str(folder))
            staging.begin()
            for each in write_rows(tables, staging, task_name(), options):
                yield pa.RecordBatch.from_pylist([upload.stage(each)._asdict()], _WRITTEN)

    if dry_run:
        return spark.createDataFrame(_left(spark, rows, {}, options, dry_run)[1], MANIFEST)
    with upload.opened() as root:
        parts = by_offsets(_made(rows, task))
        upload.check_free([each[0].name for each in parts], overwrite)
        upload.commit_staged(parts, root)
    return _frame_of(spark, placed_at(upload.url, parts))


def _decided(
    spark: Any, rows: Any, path: str, committed: bool, without: bool, storage_options: Mapping[str, Any] | None
) -> Any:
    """Return the rows of a table without aborted ones, as its files show or the caller confirms."""
    from pyspark.sql import functions as sql

    tells = "isTransactional" in rows.columns
    if without:
        if not tells or rows.filter("isTransactional is null").count():
            raise RequestError(f"{path}: the table has no column isTransactional to find the records of transactions")
        return rows.filter("not isTransactional")
    if committed:
        return rows
    files = sorted(rows.inputFiles())
    is_said = functools.partial(_is_said, storage_options=storage_options)
    said = SparkExecutor(spark).map(is_said, files, Workload("pylogseg restore"))
    of_aborted = [file for file, is_said in zip(files, said, strict=True) if not is_said]
    if not of_aborted:
        return rows
    if not tells:
        raise RequestError(f"{path}: the table does not show which records were committed; {_REMEDY}")
    if len(of_aborted) < len(files):
        chosen = spark.createDataFrame([(file,) for file in of_aborted], "file string")
        silent = rows.withColumn("file", sql.input_file_name()).join(sql.broadcast(chosen), "file", "left_semi")
    else:
        silent = rows
    counts = silent.agg(sql.count(sql.lit(1)), sql.count_if(sql.coalesce("isTransactional", sql.lit(True)))).first()
    if counts[1]:
        raise RequestError(
            f"{path}: {counts[1]:,} of {counts[0]:,} records were part of transactions, and the table does not show "
            f"which of those were committed; {_REMEDY}"
        )
    return rows


def _is_said(file: str, advance: Advance, storage_options: Mapping[str, Any] | None) -> bool:
    """Check whether a file, as Spark names it, says that all its records were committed."""
    parts = urlsplit(file)
    return is_committed(unquote(parts.path) if parts.scheme == "file" else file, storage_options)


def exported(spark: Any, path: str) -> Any:
    """Return the DataFrame of an exported table, in which a topic named ``007`` stays a string."""
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "false")
    try:
        return spark.read.parquet(path)
    finally:
        spark.conf.set(setting, before)


def _with_partition(rows: Any, options: WriteOptions) -> Any:
    """Select the columns to write, and give each row a partition."""
    from pyspark.sql import functions as sql

    from pylogseg.spark.functions import kafka_partition

    rows = rows.select([name for name in rows.columns if name in COLUMNS])
    if options.topic:
        rows = rows.withColumn("topic", sql.lit(options.topic))
    if options.partitions:
        anywhere = sql.pmod(sql.monotonically_increasing_id(), sql.lit(options.partitions)).cast("int")
        by_key = kafka_partition("key", options.partitions) if "key" in rows.columns else sql.lit(None).cast("int")
        said = [sql.col("partition")] if "partition" in rows.columns else []
        rows = rows.withColumn("partition", sql.coalesce(*said, by_key, anywhere))
    return rows


def _made(rows: Any, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> list[WrittenPart]:
    """Return what tasks write of rows, each partition in one of them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    made = _in_order(rows).mapInArrow(task, from_arrow_schema(_WRITTEN)).collect()
    return [WrittenPart(**row.asDict()) for row in made]


def _write(rows: Any, options: WriteOptions, overwrite: bool) -> list[Placed]:
    staging = Staging(options.root)
    write_id = staging.write_id

    def task(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in write_rows(tables, Staging(options.root, write_id), task_name(), options):
            yield pa.RecordBatch.from_pylist([each._asdict()], _WRITTEN)

    try:
        staging.begin()
        return staging.commit(_made(rows, task), overwrite=overwrite, may_repeat=False)
    finally:
        staging.abort()


def _left(
    spark: Any,
    rows: Any,
    there: dict[tuple[str, int], Partition],
    options: WriteOptions,
    dry_run: bool,
) -> tuple[Any, list[tuple[Any, ...]]]:
    """Return the rows of the partitions to write (None for none), and the results of the others."""
    from pyspark.sql import functions as sql

    keep = options.restore.offsets == "keep"
    bounds = [sql.min("offset"), sql.max("offset") + 1] if keep else [sql.lit(None), sql.lit(None)]
    counted = rows.groupBy("topic", "partition").agg(*bounds, sql.count(sql.lit(1))).collect()
    alike = [
        (topic, number)
        for topic, number, *content in counted
        if keep and (part := there.get((topic, number))) is not None and content_of(part)[:3] == tuple(content)
    ]
    same = _same(spark, rows, alike, options) if alike else set()
    done, todo = [], []
    for topic, number, *content in counted:
        folder = there.get((topic, number))
        target = os.path.join(options.root, f"{topic}-{number}")
        if folder is not None and (topic, number) in same:
            done.append((topic, number, "unchanged", target, *content, len(folder.segments), folder.size))
        elif folder is not None:
            raise RequestError(f"{target}: it already exists with other records; overwrite replaces it")
        elif dry_run:
            done.append((topic, number, "to do", target, *content, None, None))
        else:
            todo.append((topic, number))
    if dry_run or not todo:
        return None, done
    return (_of_partitions(spark, rows, todo) if len(todo) < len(counted) else rows), done


def _of_partitions(spark: Any, rows: Any, names: list[tuple[str, int]]) -> Any:
    from pyspark.sql import functions as sql

    chosen = spark.createDataFrame(names, "topic string, `partition` int")
    return rows.join(sql.broadcast(chosen), ["topic", "partition"], "left_semi")


def _same(spark: Any, rows: Any, names: list[tuple[str, int]], options: WriteOptions) -> set[tuple[str, int]]:
    """Return the partitions whose folders have just these rows, compared record by record in tasks."""
    root, timestamp_type = options.root, options.restore.timestamp_type

    def task(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for topic, number, is_same in compared(tables, root, timestamp_type):
            found = [pa.array([topic]), pa.array([number], pa.int32()), pa.array([is_same])]
            yield pa.RecordBatch.from_arrays(found, ["topic", "partition", "same"])

    sorted_rows = _in_order(_of_partitions(spark, rows, names))
    found = sorted_rows.mapInArrow(task, "topic string, `partition` int, same boolean").collect()
    return {(topic, number) for topic, number, is_same in found if is_same}


def _in_order(rows: Any) -> Any:
    """Return rows with each partition in one task, in the order of offsets or times."""
    order = [name for name in ("topic", "partition", "offset", "timestamp") if name in rows.columns]
    if "offset" in order:
        order = [name for name in order if name != "timestamp"]
    return rows.repartition("topic", "partition").sortWithinPartitions(*order)


def _there(root: str) -> dict[tuple[str, int], Partition]:
    """Return the live partitions of a folder."""
    try:
        found = open_dir(root).partitions
    except (RequestError, OSError):  # none, or not even the folder
        return {}
    return {(part.topic, part.partition): part for part in found if not part.state}
