"""Read the records of one range of a plan, also from segments that were renamed or merged since."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.reading.partition import OPEN_END, Chunk, PartitionReader, ReadOptions
from pylogseg.reading.planned_logs import PlannedLogs, Vanished
from pylogseg.reading.ranges import Range
from pylogseg.reading.seek import end_offset
from pylogseg.walker.gaps import GapKind
from pylogseg.walker.windows import COPIED_WINDOW_BYTES, SMALL_WINDOW_BYTES, WINDOW_BYTES


def raise_lost(part: Range, message: str) -> None:
    """Raise the StorageError for records that are gone."""
    raise StorageError(part.path, "read", f"{message} (list the folder again to read what there is now)")


def _no_batch(rows: BatchTable) -> npt.NDArray[np.bool_]:
    return np.zeros(len(rows), np.bool_)


class RangeReader:
    """Reads the records of one range, in windows as large as it; some chunks may be empty.

    The options' `gaps` get the gaps. `lost` gets the range and a message if records are gone since the plan was made:
    it raises, or goes on without them.
    """

    def __init__(
        self, part: Range, how: ReadOptions, logs: PlannedLogs, lost: Callable[[Range, str], None] = raise_lost
    ) -> None:
        # A short range is one short window, so that bytes after it are not read in vain. And no more than one: between
        # windows, threads wait for Python's lock, which costs more than what a larger one loses in the caches.
        window = min(WINDOW_BYTES, part.size + SMALL_WINDOW_BYTES)
        first = window if window < WINDOW_BYTES else COPIED_WINDOW_BYTES
        self._how = replace(how, window_bytes=window, first_window_bytes=first)
        self._part, self._logs, self._lost_at = part, logs, lost

    def __iter__(self) -> Iterator[Chunk]:
        part, how, logs = self._part, self._how, self._logs
        seen, transactions = part.first_offset, logs.transactions(part)
        try:
            for chunk in PartitionReader(
                logs.segments(part), part.first_offset, part.end_offset, how, transactions=transactions
            ):
                if len(chunk.columns):
                    seen = int(chunk.columns.offset[-1]) + 1
                yield chunk
        except Vanished:
            # Retention or the cleaner removed the segment. Other segments may have its offsets now.
            yield from self._as_it_is()
        else:
            is_last_of_segment = part.end_offset == part.next_offset or part.first_offset >= part.end_offset
            if is_last_of_segment and how.on_corrupt != "skip":
                self._check_tail()
            if part.next_offset < 0 and seen < part.end_offset and not any(gap.is_damage for gap in how.gaps):
                self._check_end()

    def _as_it_is(self) -> Iterator[Chunk]:
        part = self._part
        log = self._logs.listed(part)
        start = log.segments[0].base_offset if log is not None and log.segments else part.end_offset
        if start > part.first_offset:
            self._lost(part.first_offset, start, "deleted since the plan was made")
        if log is not None and start < part.end_offset:
            transactions = self._logs.transactions(part)
            first = max(start, part.first_offset)
            yield from PartitionReader(log.segments, first, part.end_offset, self._how, transactions=transactions)
            for gap in self._how.gaps:
                if gap.kind is GapKind.REMOVED:
                    self._lost(gap.first_offset, gap.next_offset or part.end_offset, gap.reason)

    def _check_tail(self) -> None:
        """Check for damage between the last offset of a segment and the end of its file, like a reader of the log."""
        how = replace(
            self._how, isolation_level="read_uncommitted", on_corrupt="skip", gaps=[], scratch=None, batches=_no_batch
        )
        # From the last offset on: a batch with a wrong offset counts as before the next segment's first one.
        segments = self._logs.segments(self._part._replace(entry_offset=-1))
        reader = PartitionReader(segments, self._part.end_offset - 1, OPEN_END, how)
        with contextlib.suppress(Vanished):
            for _ in reader:
                pass
        for gap in how.gaps:
            if gap.is_damage and self._how.on_corrupt == "raise":
                raise gap.as_error()
        self._how.gaps += how.gaps

    def _check_end(self) -> None:
        """Check for a truncation by a follower, if a log had fewer records than planned."""
        log = self._logs.listed(self._part)
        end = 0 if log is None else end_offset(log.segments)
        if end < self._part.end_offset:
            self._lost(max(end, self._part.first_offset), self._part.end_offset, "truncated since the plan was made")

    def _lost(self, first: int, end: int, what: str) -> None:
        part = self._part
        last = min(end, part.end_offset) - 1
        self._lost_at(part, f"offsets {first} to {last} of {part.topic}-{part.partition} are gone: {what}")
