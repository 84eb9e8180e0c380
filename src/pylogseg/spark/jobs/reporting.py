"""`report`: look at segments in the workers, and make one page of what they say."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import open_dir
from pylogseg.reporting.options import ReportOptions
from pylogseg.reporting.report import Report, command_of, reported
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
    choice = PartitionChoice.of(topic, partition)
    disk = open_dir(path, storage_options=storage_options, tier=tier).select(topic, partition)
    shown = [str(each) for each in (path if isinstance(path, (list, tuple)) else [path])]
    options = ReportOptions(
        full=full,
        payloads=sample,
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        choice=choice,
        config=dict(config or {}),
        command=command_of(shown, choice, full=full, sample=sample, config=config),
        paths=shown,
        executor=SparkExecutor(spark, progress),
    )
    return reported(disk, options)
