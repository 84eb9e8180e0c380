"""`lake`: write topics to tables of a lakehouse; workers write files, and the driver commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pylogseg.disk.disk import open_dir
from pylogseg.lakehouse.lake import lake_options, written
from pylogseg.spark import _compat
from pylogseg.spark.executor import SparkExecutor

_PARTITIONS = "array<struct<partition:int,firstOffset:bigint,nextOffset:bigint,waiting:bigint>>"
TABLES = (
    "topic string, table string, records bigint, deadLetters bigint, replaced bigint, files bigint, size bigint, "
    f"commits bigint, partitions {_PARTITIONS}, removed array<string>, error string"
)


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
        A row for each topic: what was written, and which offsets the table has.

    Raises
    ------
    RequestError, IncompleteError, CorruptionError, StorageError
        As by `pylogseg.lake`.
    """
    disk = open_dir(path, storage_options=storage_options, tier=tier)
    done = written(disk, table, (topic, partition), lake_options(**options), SparkExecutor(spark, progress))
    return _compat.small_frame(spark, [each.as_row() for each in done], TABLES)
