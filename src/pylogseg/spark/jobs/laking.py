"""`lake`: write topics to tables of a lakehouse; workers write files, and the driver commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pylogseg.disk.listing import open_dir
from pylogseg.format.columns import to_row
from pylogseg.lakehouse.lake import LakeTable
from pylogseg.lakehouse.lake import lake as write
from pylogseg.spark import _compat
from pylogseg.spark.executor import SparkExecutor

_PARTITIONS = "array<struct<partition:int,firstOffset:bigint,nextOffset:bigint,waiting:bigint>>"
TABLES = (
    "topic string, table string, records bigint, deadLetters bigint, replaced bigint, files bigint, size bigint, "
    f"commits bigint, partitions {_PARTITIONS}, removed array<string>, problems array<string>, error string"
)

_log = logging.getLogger("pylogseg.spark")


def lake(
    spark: Any,
    path: Any,
    table: str,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    tier: str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Any:
    """Write topics to tables of Delta, Iceberg or DuckLake, as `pylogseg.lake` does: each range of a log once.

    The workers write the files of a commit, and the driver commits them together with the ledger; the packages of the
    table's format are needed on the driver only. A run of the shell goes on where one of Spark has ended, and the other
    way round.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path, URL or list of them
        As for `pylogseg.open_dir`. The workers must see the same files under the same names.
    table : str
        As for `pylogseg.lake`. The workers must see its folder, too.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    storage_options, tier : optional
        Those of `pylogseg.open_dir`.
    progress : bool, optional
        True shows progress even if stderr is not a terminal.
    **options
        Those of `pylogseg.lake`, but for ``jobs`` and ``latest``.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each topic: what was written, and which offsets the table has; under ``problems`` what was damaged and
        skipped, or is missing from the log.

    Raises
    ------
    RequestError, IncompleteError, CorruptionError, StorageError
        As by `pylogseg.lake`.
    """
    disk = open_dir(path, storage_options=storage_options, tier=tier)
    done = write(disk, table, topic, partition, executor=SparkExecutor(spark, progress), **options)
    return _compat.small_frame(spark, [to_row(each) for each in done], TABLES)


def lake_batches(
    path: Any,
    table: str,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    tier: str | None = None,
    on_done: Callable[[LakeTable], None] | None = None,
    **options: Any,
) -> Callable[[Any, int], None]:
    """Return a function for `foreachBatch` that brings tables up to date, as `lake` does.

    The stream is the clock: neither the rows of a batch nor its number is used. The table's own ledger says where to go
    on, so a batch that Spark repeats, a lost checkpoint and a run of the shell in between change nothing.

    Parameters
    ----------
    path, table, topic, partition, storage_options, tier
        As for `lake`.
    on_done : callable, optional
        Gets what was done for each topic. By default problems and dead letters are logged as warnings.
    **options
        As for `lake`.

    Returns
    -------
    callable
        It takes the DataFrame and the number of a batch, and raises what `lake` raises, which ends the query.

    Examples
    --------
    >>> write = pylogseg.spark.jobs.lake_batches("/data/kafka", "delta:/lake/orders", "orders")  # doctest: +SKIP
    >>> clock = spark.readStream.format("rate").load()  # doctest: +SKIP
    >>> query = clock.writeStream.foreachBatch(write).trigger(processingTime="60 seconds").start()  # doctest: +SKIP
    """
    tell = on_done or _log_problems

    def write_batch(frame: Any, _: int) -> None:
        disk = open_dir(path, storage_options=storage_options, tier=tier)
        executor = SparkExecutor(frame.sparkSession, progress=False)
        for done in write(disk, table, topic, partition, executor=executor, **options):
            tell(done)

    return write_batch


def _log_problems(done: LakeTable) -> None:
    for text in done.problems:
        _log.warning("%s: %s", done.table, text)
    if done.dead_letters:
        _log.warning(
            "%s: %d records do not decode, and are in its table of dead letters", done.table, done.dead_letters
        )
