"""`export`: write records as a table of Parquet files by topic and date, directly from the workers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.columns import EXPORTED
from pylogseg.disk.listing import open_dir
from pylogseg.format.columns import spark_ddl
from pylogseg.format.scratch import Scratch
from pylogseg.inspect.verify.lacking import lacking_for
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import logs_of
from pylogseg.reading.partition import OPEN_END, IsolationLevel, OnCorrupt, ReadOptions
from pylogseg.spark.executor import SparkExecutor
from pylogseg.tables.export.file import Form
from pylogseg.tables.export.tables import COLUMNS, TableExport, export_logs, missing_row, rows_of


def export(
    spark: Any,
    path: Any,
    out: str,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    form: str = "parquet",
    columns: Sequence[str] = COLUMNS,
    compression: str = "zstd",
    since: int | None = None,
    until: int | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    on_corrupt: OnCorrupt = "raise",
    max_decompressed_bytes: int = 64 << 20,
    keep_deleted: bool = True,
    overwrite: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    tier: str | None = None,
    out_storage_options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Any:
    """Write records as files ``OUT/topic=NAME/date=YYYY-MM-DD/...``, which Spark and others read as one table.

    A task handles whole segments. The names of its files are derived from them, so another attempt or run replaces the
    files. A run skips segments that did not change since an earlier run, and removes files of segments that the cleaner
    merged into others. A table has one file format, one set of columns and one isolation level.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path, URL or list of them
        As for `pylogseg.open_dir`.
    out : str
        A folder that all workers share, or a URL of a store, such as ``s3://bucket/table``, in which a file appears
        when it is whole.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    form : {"parquet", "arrow"}
        Format of the files.
    columns : sequence of str
        Columns of the table, besides ``topic`` and ``date``, which are in the names of folders.
    compression : str
        Codec of the files: ``zstd``, ``snappy``, ``gzip``, ``lz4`` or ``none``.
    since, until : int, optional
        Only records with timestamps in this half-open range, in milliseconds. Records already in the table stay.
    isolation_level : {"read_uncommitted", "read_committed"}
        ``read_committed`` leaves out records of aborted transactions, and leaves those of open ones to a later run.
    on_corrupt : {"raise", "stop", "skip"}
        What to do at damage; with ``stop`` a partition is one task.
    max_decompressed_bytes : int
        A batch that decompresses to more counts as damaged.
    keep_deleted : bool
        True if the table keeps records that retention has since removed from the log.
    overwrite : bool
        True if to delete everything that earlier runs wrote to the table first.
    dry_run : bool
        Return what would be done, and write nothing.
    storage_options, tier : mapping, str, optional
        As for `pylogseg.open_dir`: options of the store, with ``tier_keys`` for encrypted tiers, and the tier of the
        disks in `path`.
    out_storage_options : mapping, optional
        Options of the store of `out`; those of `storage_options` if left out.
    progress : bool, optional
        True if to show progress; by default only if stderr is a terminal.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each file. ``state`` is ``written``, ``unchanged`` or ``to do`` (with a null ``path``), ``gone`` if
        retention removed the segment meanwhile, or ``left`` for segments after damage. ``problem`` says what could not
        be read. A row with the state ``missing`` says what checkpoints, indexes, leader epochs and snapshots show to be
        missing from the logs, with its first offset in place of a base offset.
    """
    target, layout = out if "://" in out else os.path.abspath(out), Form(form, tuple(columns), compression)
    options = ReadOptions(isolation_level, on_corrupt, limit_bytes=max_decompressed_bytes, scratch=Scratch)
    choice, disk = PartitionChoice.of(topic, partition), open_dir(path, storage_options=storage_options, tier=tier)
    logs = logs_of(disk.select(topic, partition))
    into = storage_options if out_storage_options is None else out_storage_options
    table = TableExport(target, layout, isolation_level, dry_run=dry_run, overwrite=overwrite, storage_options=into)
    work = SparkExecutor(spark, progress)
    done = export_logs(logs, table, options, (since, until), keep_deleted=keep_deleted, executor=work)
    rows = [tuple(row.values()) for part in done for row in rows_of(part, table.store)]
    readers = [LogReader.of(log, (0, OPEN_END), (since, until), options) for log in logs]
    rows += [tuple(missing_row(each).values()) for each in lacking_for(disk, readers, choice)]
    return spark.createDataFrame(rows, spark_ddl(EXPORTED))
