"""Plan the tasks of a read: the ranges of segments of each task; see `pylogseg.reading.ranges`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from pylogseg.reading.ranges import OPEN_COST_BYTES, Extent, Task, pieces, plan_tasks
from pylogseg.spark.logs import find_logs, plan_extents
from pylogseg.spark.options import SourceOptions

#: The fewest bytes of a task, unless more tasks were requested: starting one costs milliseconds.
SMALLEST_TARGET_BYTES = 16 << 20
#: Tasks per core, so that all cores end at about the same time.
_TASKS_PER_CORE = 4


def plan(paths: str | Sequence[str], options: SourceOptions | None = None, *, cores: int = 0) -> list[Task]:
    """Divide a read into tasks.

    Parameters
    ----------
    paths : str or sequence of str
        Log directories, partition folders, files, URLs.
    options : SourceOptions, optional
        The result of `options.parse`.
    cores : int
        The number of cores that run tasks; by default those of this machine.

    Returns
    -------
    list of tuple of Range
        Small segments are packed into one task, large ones are split. With ``onCorrupt=stop`` each partition is one
        task, because a gap may end it at any offset.

    Raises
    ------
    RequestError, StorageError
    """
    options = options or SourceOptions()
    logs = find_logs([paths] if isinstance(paths, str) else paths, options)
    return tasks_of(plan_extents(logs, options), options, cores=cores)


def tasks_of(extents: Iterable[Extent], options: SourceOptions, *, cores: int = 0) -> list[Task]:
    """Divide extents of logs into tasks; see `plan`."""
    by_log = [list(pieces(extent)) for extent in extents]
    if options.reading.on_corrupt == "stop":
        return [tuple(piece.range for piece in of_log) for of_log in by_log if of_log]
    total = sum(piece.range.size + OPEN_COST_BYTES for of_log in by_log for piece in of_log)
    target = _target(total, options, cores or os.cpu_count() or 1)
    # If a number of tasks was requested, the cost of opening counts as bytes, so that there are enough tasks.
    extra = OPEN_COST_BYTES if options.min_partitions else 0
    whole = [piece for of_log in by_log for piece in of_log]
    return list(plan_tasks(whole, target, extra=extra, max_records=options.max_records))


def _target(total: int, options: SourceOptions, cores: int) -> int:
    target = min(options.range_bytes, max(SMALLEST_TARGET_BYTES, total // (_TASKS_PER_CORE * cores)))
    return min(target, max(1, total // options.min_partitions)) if options.min_partitions else target
