"""`export`: records as a table of Parquet files by topic and date, written by the workers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pylogseg.disk import open_dir
from pylogseg.errors import RequestError
from pylogseg.format.scratch import Scratch
from pylogseg.jobs.export import Form
from pylogseg.jobs.export_dates import COLUMNS, ExportedPart, clear_up, export_part_by_date
from pylogseg.reading.partition import OPEN_END, ReadOptions
from pylogseg.reading.wanted import Wanted, logs_of
from pylogseg.spark.work import run

MANIFEST = (
    "topic string, `partition` int, baseOffset bigint, state string, path string, records bigint, sizeBytes bigint"
)


def export(
    spark: Any,
    path: Any,
    out: str,
    names: Sequence[str] = (),
    *,
    form: str = "parquet",
    columns: Sequence[str] = COLUMNS,
    compression: str = "zstd",
    since: int | None = None,
    until: int | None = None,
    isolation: Any = "read_uncommitted",
    on_corrupt: Any = "raise",
    dry_run: bool = False,
    progress: bool | None = None,
) -> Any:
    """Write records as files ``OUT/topic=NAME/date=YYYY-MM-DD/...``, which Spark and others read as one table.

    A task has whole segments, and writes files of names that follow from them: another attempt at it, or another run,
    replaces them. A run passes by what an earlier one has written of segments that did not change since.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path, URL or list of them
        As of `pylogseg.open_dir`.
    out : str
        A folder that all workers share.
    names : sequence of str
        Topics, partitions or patterns; all if empty.
    form : {"parquet", "arrow"}
        Of the files.
    columns : sequence of str
        Of the table, besides ``topic`` and ``date``, which are in the names of folders.
    compression : str
        Of the files: ``zstd``, ``snappy``, ``gzip``, ``lz4`` or ``none``.
    since, until : int, optional
        Only records with timestamps in this half-open range, in milliseconds.
    isolation : {"read_uncommitted", "read_committed"}
        Whether records of aborted transactions are left out; a partition is then one task.
    on_corrupt : {"raise", "stop", "skip"}
        What damage does.
    dry_run : bool
        Only say what there is to do.
    progress : bool, optional
        Whether to show how far it is; by default where stderr is a terminal.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each file: ``state`` is ``written``, ``unchanged`` or ``to do``, the latter with a null ``path``.
    """
    if "://" in out:
        raise RequestError(f"{out}: files get their names at the end by renames, which no object store has")
    target, wish = Path(out).absolute(), Form(form, tuple(columns), compression)
    options = ReadOptions(isolation, on_corrupt, scratch=Scratch)
    disk = open_dir(path)
    logs = logs_of(disk.select(names) if names else disk, by_name=bool(names))
    parts = [
        part
        for log in logs
        for part in Wanted.of(log, (0, OPEN_END), (since, until), options).by_segment()
        if part.log.segments
    ]

    def work(part: Wanted) -> ExportedPart:
        return export_part_by_date(part, target, wish, dry_run=dry_run)

    sizes = [sum(segment.size for segment in part.log.segments[:1]) for part in parts]
    done = run(spark, parts, work, sizes, label="pylogseg export", progress=progress)
    clear_up(target, done)
    return spark.createDataFrame([row for part in done for row in _rows(part, target)], MANIFEST)


def _rows(part: ExportedPart, out: Path) -> list[tuple[Any, ...]]:
    where = (part.topic, part.partition, part.base_offset, part.state)
    if not part.files:
        return [(*where, None, None if part.state == "to do" else 0, None)]
    return [(*where, str(out / path), records, size) for path, records, size in part.files]
