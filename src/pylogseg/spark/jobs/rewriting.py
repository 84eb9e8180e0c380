"""`compact` and `redact`: rewrite partitions by the offline commands, one task per partition.

`pylogseg.offline` rewrites a partition, so the bytes are the same. Spark distributes the partitions, and the results
are put in place at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pylogseg import offline
from pylogseg.offline.result import Result
from pylogseg.spark.executor import SparkExecutor
from pylogseg.spark.jobs.results import frame_of


def compact(
    spark: Any,
    path: str,
    out: str,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """Keep the last record of each key, as a broker's cleaner does, in a new log directory; one task per partition.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : str
        A log directory, or the folder of a partition; it is only read.
    out : str
        A folder that all workers share, for the partitions: either all of them appear at the end, or none.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    **options
        Options of `pylogseg.offline.compact`. ``dry_run=True`` only returns what would be done, ``overwrite=True``
        replaces partitions in `out`, ``progress`` shows progress.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each partition: ``state`` is ``done``, ``unchanged`` (nothing to clean, or written by an
        earlier run from the same files), ``left`` (copied unchanged: its topic is not compacted) or ``failed``, with a
        reason.
    """
    return _frame(spark, offline.compact, path, out, topic=topic, partition=partition, **options)


def redact(
    spark: Any,
    path: str,
    out: str,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """Delete or blank records; the others keep offsets and batches. One task per partition, to a new log directory.

    Parameters
    ----------
    spark, path, out, topic, partition
        As for `compact`.
    **options
        Options of `pylogseg.offline.redact`, such as ``keys=[b"..."]``, and those of `compact`.

    Returns
    -------
    pyspark.sql.DataFrame
        As for `compact`.
    """
    return _frame(spark, offline.redact, path, out, topic=topic, partition=partition, **options)


def _frame(spark: Any, command: Callable[..., Result], path: str, out: str, **given: Any) -> Any:
    executor = SparkExecutor(spark, given.pop("progress", None))
    return frame_of(spark, command(path, into=out, executor=executor, **given))
