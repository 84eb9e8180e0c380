"""`report`: look at segments in the workers, and make one page of what they say."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pylogseg.disk.disk import Disk, open_dir
from pylogseg.reporting.commands import line
from pylogseg.reporting.report import Report, reported
from pylogseg.reporting.scanning import Scan, Task, scan
from pylogseg.reporting.wishes import Wishes
from pylogseg.spark.distribute import merged
from pylogseg.spark.jobs.names import asked_for

#: What is read of a segment without `full`, at most about.
_SOME_BYTES = 1 << 20


def report(
    spark: Any,
    path: Any,
    names: Sequence[str] | None = None,
    *,
    full: bool = False,
    sample: int = 0,
    config: Mapping[str, str] | None = None,
    now_ms: int | None = None,
    storage: Mapping[str, Any] | None = None,
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
    names : sequence of str
        Topics, partitions or patterns; all if left out. An empty sequence is refused.
    full : bool
        Read every byte, and check it as `verify` does, instead of headers and a sample of the records.
    sample : int
        The number of records of each partition that are shown.
    config : mapping of str to str, optional
        Settings of topics by Kafka's names, for what would be freed.
    now_ms : int, optional
        The time to assume, milliseconds since 1970.
    storage, tier : mapping, str, optional
        As for `pylogseg.open_dir`: options of the store, with ``tier_keys`` for encrypted tiers, and the tier of the
        disks in `path`.
    progress : bool, optional
        Whether to show progress; by default only if stderr is a terminal.

    Returns
    -------
    pylogseg.Report
        Its ``write`` writes the page. The driver reads the small files of partitions, and the topics of groups and
        transactions.
    """
    given = asked_for(names)
    disk = open_dir(path, storage=storage, tier=tier)
    disk = disk.select(given) if given else disk
    shown = [str(each) for each in (path if isinstance(path, (list, tuple)) else [path])]
    words = [*shown, *given, *(["--full"] if full else []), "-o", "report.html"]
    wishes = Wishes(
        full=full,
        payloads=sample,
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        names=given,
        config=dict(config or {}),
        command=line("python", "-m", "pylogseg.spark", "report", *words),
        paths=shown,
    )
    return reported(disk, wishes, scanner=lambda tasks: scanned(spark, disk, tasks, progress=progress))


def scanned(spark: Any, disk: Disk, tasks: list[Task], *, progress: bool | None = None) -> Iterator[Scan]:
    """Look at segments in the workers; what records say is merged there, by partition."""
    keys = [task.segment.path if task.segment in disk.loose else _folder(task) for task in tasks]
    sizes = [task.segment.size if task.is_full else min(task.segment.size, _SOME_BYTES) for task in tasks]
    label = "pylogseg report"
    done = merged(spark, tasks, keys, _scan, _fold, _merge, sizes, label=label, progress=progress)
    found = {number: each for of in done.values() for number, each in of.items()}
    return (found.pop(number) for number in range(len(tasks)))


def _folder(task: Task) -> str:
    return task.segment.files.split(task.segment.path)[0]


def _scan(task: Task) -> Scan:
    return scan(task, lambda size: None)


def _fold(found: dict[int, Scan], number: int, scan: Scan) -> None:
    """Keep what a segment says, and merge what its records say into that of the first one."""
    found[number] = scan
    if scan.sample is None or len(found) == 1:
        return
    first = next(iter(found.values()))
    if first.sample is None:
        first.sample = scan.sample
    else:
        first.sample.merge(scan.sample)
    scan.sample = None


def _merge(key: str, found: dict[int, Scan]) -> dict[int, Scan]:
    """Return what the segments of a partition say, by number; their records together in the first one."""
    together: dict[int, Scan] = {}
    for number in sorted(found):
        _fold(together, number, found[number])
    first = next(iter(together.values()), None)
    if first is not None and first.sample is not None and first.sample.tops is not None:
        first.sample = replace(first.sample, tops=first.sample.tops.trimmed())
    return together
