"""`restore_tier`: partitions of tiered storage back into a log directory, one task per partition.

`pylogseg.offline` writes each partition, so the bytes are the same. The tasks write into a staging folder, and the
driver puts in place what they wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pylogseg import offline
from pylogseg.disk.tier.opening import is_tier
from pylogseg.errors import RequestError
from pylogseg.inspect.verify.lacking import texts_of
from pylogseg.spark.executor import SparkExecutor
from pylogseg.spark.jobs.results import frame_of

_log = logging.getLogger("pylogseg.spark")


def restore_tier(
    spark: Any,
    path: str,
    target: str,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """Restore partitions from tiered storage, as `pylogseg restore` does; one task per partition.

    Partitions get their segments, indexes, producer snapshots and leader epochs. A partition that fails stays as it is
    in `target`; all others appear together at the end, or none if the job dies.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : URL or path
        A tier, as for `pylogseg.open_tier`; with the option ``tier``, a log directory whose older segments are there.
    target : str
        A folder that all workers share: the log directory of a stopped broker, or an empty folder.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    **options
        Options of `pylogseg.offline.restore`: ``overwrite``, ``force``, ``cluster_metadata``,
        ``keep_producers``, ``abort_open_transactions``, ``storage_options`` (with ``tier_keys`` for encrypted tiers),
        ``tier``, ``until``, ``on_corrupt``, ``dry_run``. ``progress`` shows progress.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each partition: ``state`` is ``done``, ``unchanged`` (it already exists with the same offsets and as
        many records), ``left`` or ``failed``, with a reason. ``detail`` is the row of ``pylogseg restore --json``; its
        notes say what damage was left out.

    Raises
    ------
    IncompleteError
        If records are known to be missing at the end of a log, unless ``force``.
    RequestError
        If a name is not there, or a partition already exists with other records, unless ``overwrite``.
    StorageError
        If a broker has the lock of `target`.
    """
    if options.get("tier") is None and not is_tier(path):
        raise RequestError(f"{path}: not the URL of a tier, such as aiven+s3://bucket/prefix; restore is for tables")
    executor = SparkExecutor(spark, options.pop("progress", None))
    how: dict[str, Any] = {"topic": topic, "partition": partition, "keep_going": True, "executor": executor}
    result = offline.restore(path, target, **how, **options)
    for note in [*result.notes, *texts_of(result.lacking)]:
        _log.warning("%s", note)
    return frame_of(spark, result)
