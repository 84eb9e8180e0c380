"""Record batches and gaps of ranges of segments as Arrow rows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from pylogseg.disk import columns
from pylogseg.format.columns import spark_ddl
from pylogseg.reading.ranges import Range, Task
from pylogseg.reading.removed_segments import open_unless_removed, removed_gap
from pylogseg.spark.options import TO_LATEST, SourceOptions
from pylogseg.spark.plan import plan
from pylogseg.spark.task import on_loss, planned_logs
from pylogseg.tables.batch_rows import BATCHES, of_gap, of_range

BatchReader = Callable[[Task], Iterator[pa.RecordBatch]]

#: Schema of `pylogseg.spark.batches`. A range without a good batch has a `problem`, and null in unknown columns.
BATCH_SCHEMA = spark_ddl(columns.BATCHES)


def plan_batches(paths: Sequence[str], options: SourceOptions, *, cores: int = 0) -> tuple[list[Task], BatchReader]:
    """Divide a listing of batches into tasks, and return what carries them out. Damage is a row, at the ends too."""
    tasks = plan(paths, replace(options, on_corrupt="skip"), cores=cores)
    bounds: dict[str, tuple[int, int]] = {}
    for part in itertools.chain.from_iterable(tasks):
        first, end = bounds.get(part.folder, (part.first_offset, part.end_offset))
        bounds[part.folder] = min(first, part.first_offset), max(end, part.end_offset)
    return tasks, functools.partial(_read_batches, options=options, bounds=bounds)


def _read_batches(
    task: Iterable[Range], options: SourceOptions, bounds: Mapping[str, tuple[int, int]]
) -> Iterator[pa.RecordBatch]:
    """Yield the batch headers of a task as rows; payloads are read only with ``checkCrc``.

    `bounds` are the first offset of the read and its end, by folder.
    """
    logs, lost = planned_logs(options), on_loss(options)
    to_log_end = options.ending == TO_LATEST and not options.at_high_watermark
    to_log_end = to_log_end and options.isolation_level == "read_uncommitted"
    for part in task:
        first, end = bounds[part.folder]
        begins = part.first_offset == first
        ends = part.end_offset == part.next_offset or (to_log_end and part.next_offset < 0 and part.end_offset == end)
        segment = logs.segments(part)[0]
        view = open_unless_removed(segment, or_log=True)
        if view is None:
            gap = removed_gap(segment, part.first_offset, part.end_offset)
            lost(part, gap)
            yield of_gap(segment, gap)
            continue
        with view:
            span = part.first_offset, part.end_offset
            found = of_range(segment, view, *span, BATCHES, crc=options.check_crc, begins=begins, ends=ends)
            yield from (rows for rows, _ in found)
