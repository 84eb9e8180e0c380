"""`verify`: check every segment, index and snapshot, and the objects of an archive, on all cores of Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pylogseg.archive.verifying import ArchiveSummary, ReadObjects, is_archive, verify_archive
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.listing import open_dir
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_row
from pylogseg.format.words import check_word
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
    read: ReadObjects | None = None,
    **options: Any,
) -> Any:
    """Check logs, indexes and small files for damage, or an archive, as `pylogseg verify` does.

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
    read : {"none", "new", "all"}, optional
        Of an archive: which objects are read; by default none, and they are only listed. What was read without a
        finding is noted there, as the command does.
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
    choice = PartitionChoice.of(topic, partition)
    if read is not None:
        check_word("read", read, get_args(ReadObjects))
    where = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if where and is_archive(where, options.get("storage_options")):
        found = archive_verified(spark, where, choice, ArchiveSummary(Level[level.upper()]), read or "none", **options)
    elif read is not None:
        raise RequestError(f"read is for an archive, and {path} has no points")
    else:
        found = verified(spark, path, choice, VerifySummary(Level[level.upper()]), **options)
    rows = [to_row(finding) for finding in found]
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


def archive_verified(
    spark: Any,
    archive: str,
    choice: PartitionChoice,
    summary: ArchiveSummary,
    read: ReadObjects = "none",
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> list[Finding]:
    """Return the findings of `verify` of an archive, and fill the summary."""
    how: dict[str, Any] = {"choice": choice, "storage_options": storage_options}
    return list(verify_archive(archive, summary, read=read, executor=SparkExecutor(spark, progress), **how))
