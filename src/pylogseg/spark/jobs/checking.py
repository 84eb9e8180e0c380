"""`verify`: check every segment, index and snapshot on all cores of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import open_dir
from pylogseg.errors import RequestError
from pylogseg.inspect.verify.disk import VerifySummary
from pylogseg.inspect.verify.disk import verify as verify_disk
from pylogseg.inspect.verify.findings import Finding, Level
from pylogseg.spark import _compat
from pylogseg.spark.executor import SparkExecutor

FINDINGS = (
    "level string, urgency string, kind string, path string, position bigint, offset bigint, lastOffset bigint, "
    "reason string, remedy string"
)


def verify(
    spark: Any,
    path: Any,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    level: str = "indexes",
    **options: Any,
) -> Any:
    """Check logs, indexes and small files for damage, as `pylogseg verify` does.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path, URL or list of them
        As for `pylogseg.open_dir`. The workers must see the same files under the same names.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    level : {"headers", "crc", "records", "indexes"}
        How much to check; each level includes those before it.
    **options
        ``progress=True`` shows progress even if stderr is not a terminal. ``storage_options`` and ``tier`` are those of
        `pylogseg.open_dir`: options of the store, with ``tier_keys`` for encrypted tiers, and the tier of the disks.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each finding: ``level`` is ``damage``, ``notice``, ``unread`` or ``unknown``, ``urgency`` a key of
        `pylogseg.inspect.verify.findings.URGENCIES`. Empty if there are none.
    """
    if level.upper() not in Level.__members__:
        raise RequestError(f"level: expected one of {', '.join(each.name.lower() for each in Level)}, not {level!r}")
    choice, summary = PartitionChoice.of(topic, partition), VerifySummary(Level[level.upper()])
    rows = [finding.as_row() for finding in verified(spark, path, choice, summary, **options)]
    return _compat.small_frame(spark, rows, FINDINGS)


def verified(
    spark: Any,
    path: Any,
    choice: PartitionChoice,
    summary: VerifySummary,
    *,
    storage_options: Mapping[str, Any] | None = None,
    tier: str | None = None,
    progress: bool | None = None,
) -> list[Finding]:
    """Return the findings of `verify`, in the order of the disk, and fill the summary."""
    disk = open_dir(path, storage_options=storage_options, tier=tier).select(*choice.arguments)
    chosen = [part for part in disk.partitions if disk.is_named or not part.state]
    executor = SparkExecutor(spark, progress)
    return list(verify_disk(disk, summary, partitions=chosen, choice=choice, executor=executor))
