"""`report`: look at segments in the workers, and make one page of what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pylogseg.disk.listing import open_dir
from pylogseg.reporting.report import Report
from pylogseg.reporting.report import report as make_report
from pylogseg.spark.executor import SparkExecutor


def report(
    spark: Any,
    path: Any,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    full: bool = False,
    sample: int = 0,
    config: Mapping[str, str] | None = None,
    now_ms: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    tier: str | None = None,
    progress: bool | None = None,
) -> Report:
    """Look at a disk like `pylogseg.report`, with the segments read by the workers.

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
    full : bool
        Read every byte, and check it as `verify` does, instead of headers and a sample of the records.
    sample : int
        The number of records of each partition that are shown.
    config : mapping of str to str, optional
        Settings of topics by Kafka's names, for what would be freed.
    now_ms : int, optional
        The time to assume, milliseconds since 1970.
    storage_options, tier : mapping, str, optional
        As for `pylogseg.open_dir`: options of the store, with ``tier_keys`` for encrypted tiers, and the tier of the
        disks in `path`.
    progress : bool, optional
        True if to show progress; by default only if stderr is a terminal.

    Returns
    -------
    pylogseg.Report
        Its ``write`` writes the page. The driver reads the small files of partitions, and the topics of groups and
        transactions.
    """
    disk = (
        path if storage_options is None and tier is None else open_dir(path, storage_options=storage_options, tier=tier)
    )
    how: dict[str, Any] = {"full": full, "sample": sample, "config": config, "now_ms": now_ms}
    return make_report(disk, topic, partition, executor=SparkExecutor(spark, progress), **how)
