"""`restore_tier`: partitions of tiered storage back into a log directory, one task per partition.

`pylogseg.offline` writes each partition, so the bytes are the same. The tasks write into a staging folder, and the
driver puts in place what they wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import open_dir
from pylogseg.disk.tier.opening import is_tier
from pylogseg.errors import RequestError
from pylogseg.format.words import check_word
from pylogseg.inspect.verify.lacking import texts_of
from pylogseg.offline.restoring.command import Restoring, checked_target
from pylogseg.offline.restoring.tier import FromTier, Until
from pylogseg.offline.result import Result
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
    result = restored(spark, path, target, PartitionChoice.of(topic, partition), **options)
    for note in [*result.notes, *texts_of(result.lacking)]:
        _log.warning("%s", note)
    return frame_of(spark, result)


def restored(
    spark: Any,
    path: str,
    target: str,
    choice: PartitionChoice,
    *,
    overwrite: bool = False,
    force: bool = False,
    cluster_metadata: str | None = None,
    keep_producers: bool | None = None,
    abort_open_transactions: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    tier: str | None = None,
    until: Until | None = None,
    on_corrupt: Literal["raise", "skip"] = "raise",
    dry_run: bool = False,
    progress: bool | None = None,
) -> Result:
    """Return the result of `restore_tier`."""
    if tier is None and not is_tier(path):
        raise RequestError(f"{path}: not the URL of a tier, such as aiven+s3://bucket/prefix; restore is for tables")
    check_word("on_corrupt", on_corrupt, ("raise", "skip"))
    into = checked_target(target)
    disk = open_dir(path, storage_options=storage_options, tier=tier)
    given = FromTier(disk, choice, until or Until(), skips_damage=on_corrupt == "skip", keeps_going=True)
    given.lacking = given.look(disk, force)
    job = Restoring(
        given,
        into,
        cluster_metadata,
        keep_producers=keep_producers,
        abort_open_transactions=abort_open_transactions,
        executor=SparkExecutor(spark, progress),
    )
    return job.plan(overwrite) if dry_run else job.run(overwrite)
