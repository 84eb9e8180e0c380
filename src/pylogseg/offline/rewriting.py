"""A change of batches, applied to all segments of a log that need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import numpy as np

from pylogseg.errors import CleaningAbortedError
from pylogseg.format.codec_error import ArenaFullError
from pylogseg.format.records import runs
from pylogseg.log.log import Log
from pylogseg.log.segment import LogSegment
from pylogseg.log.segment_rewrite import Filtered, join_parts, rewrite, whole_windows
from pylogseg.offline.partition import OfflinePartition
from pylogseg.walker.windows import Window


class BatchChange(Protocol):
    """A change of batches, each independent of the others, so that a window may be split anywhere.

    ``count`` says how much it would change, 0 if the window stays as it is; ``apply`` gives the batches as they are to
    be.
    """

    def count(self, window: Window, path: str) -> int: ...
    def apply(self, window: Window, path: str) -> Filtered: ...


def change_part(
    part: OfflinePartition, log: Log, change: BatchChange, counted: str, begin: Callable[[], None] = lambda: None
) -> None:
    """Apply a change to the log of a part, and fill in its result; `counted`: the name of the counter to increase.

    `begin` is called when all is counted, before the first change.
    """
    result = part.result
    result.numbers = {counted: 0, "segmentsRewritten": 0}
    result.state = "unchanged"
    for path, count, size, new in change_log(log, change, part.advance, begin):
        result.state = "done"
        result.numbers[counted] += count
        result.numbers["segmentsRewritten"] += 1
        row = {"path": path, "bytesBefore": size, "bytesAfter": sum(segment.size for segment in new)}
        result.rows.append({"type": "segment", **row, counted: count, "becomes": len(new)})


def change_log(
    log: Log, change: BatchChange, on_bytes: Callable[[int], None], begin: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, int, int, list[LogSegment]]]:
    """Apply a change to all segments of a log, the active one too; nobody else uses it, and it is closed next.

    Yield for each rewritten segment its path, the counts of the change, its old size, and its new segments: several if
    the batches do not fit into one any more.

    Every segment is read before the first one is written: so damage is found while all is as it was (a
    CorruptionError), and segments without anything to change are left alone. An error of `on_bytes` ends the work, with
    every segment as it was or as it is to be.
    """
    counts = {segment.base_offset: _count(segment, change, on_bytes) for segment in log.segments}
    begin()
    segment = log.segments.first
    while segment is not None:
        base, path, size = segment.base_offset, segment.path, segment.size
        count = counts.pop(base) if base in counts else _count(segment, change, on_bytes)
        if count:
            try:
                new = _change(log, segment, change, on_bytes)
            except CleaningAbortedError:  # its offsets are too far apart: it was split, and its parts come next
                segment = log.segments.floor(base)
                continue
            yield path, count, size, new
            base = new[-1].base_offset
        segment = log.segments.higher(base)


def _count(segment: LogSegment, change: BatchChange, on_bytes: Callable[[int], None]) -> int:
    def count_window(window: Window) -> list[int]:
        return [change.count(window, segment.path)]

    count = 0
    for window in whole_windows(segment, crc=True):
        count += sum(_by_parts(count_window, window))
        on_bytes(int(window.batches.size.sum(dtype=np.int64)))
    return count


def _change(log: Log, segment: LogSegment, change: BatchChange, on_bytes: Callable[[int], None]) -> list[LogSegment]:
    def apply(window: Window) -> list[Filtered]:
        on_bytes(0)
        return [change.apply(window, segment.path)]

    return rewrite(
        log,
        [segment],
        lambda source, writer: (join_parts(_by_parts(apply, window)) for window in whole_windows(source, crc=True)),
        most_bytes=max(log.config.segment_bytes, segment.size),
        keeps_aborted=True,
    )


_Result = TypeVar("_Result")


def _by_parts(work: Callable[[Window], list[_Result]], window: Window) -> list[_Result]:
    """Work on a window, or on parts of it where its batches have too many records to be held at once."""
    return [result for part in runs(window.batches) for result in _work_by_halves(work, window._replace(batches=part))]


def _work_by_halves(work: Callable[[Window], list[_Result]], window: Window) -> list[_Result]:
    """Work on a window, or on its halves where its batches decompress to too much."""
    try:
        return work(window)
    except ArenaFullError:
        half = len(window.batches) // 2
        parts = (window.batches[:half], window.batches[half:])
        return [result for part in parts for result in _work_by_halves(work, window._replace(batches=part))]
