"""Flushing a log to the disk, and its recovery point."""

from __future__ import annotations

import time

from pylogseg.errors import ClosedError, StorageError
from pylogseg.log.segment import LogSegment
from pylogseg.log.state import LogState


class Flusher:
    """Flushes one log."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.last_flush_ms = state.clock.now_ms()

    def flush(self, offset: int, *, inclusive: bool = False) -> None:
        """Flush everything below an offset; with `inclusive` an empty active segment that begins there too."""
        offsets, started = self._state.offsets, time.perf_counter()
        before = offsets.recovery_point
        self._state.guard(lambda: self._flush(offset, inclusive))
        if offsets.recovery_point > before:
            self._state.metrics.note_flush(time.perf_counter() - started)

    def _flush(self, offset: int, inclusive: bool) -> None:
        try:
            self._until_nothing_changes(offset, inclusive)
        except StorageError:
            if not self._state.is_closed:
                raise
            self._state.raise_unusable()  # its folder may have been renamed, which is not a disk failure

    def _until_nothing_changes(self, offset: int, inclusive: bool) -> None:
        state = self._state
        while True:
            changes = state.changes
            # A truncation may have come first: what is appended in its place has not been flushed.
            point = state.offsets.recovery_point
            reached = min(offset, max(state.offsets.end.offset, state.active.base_offset))
            end = reached + 1 if inclusive else reached
            if end <= point:
                return
            flushed = state.segments.from_offset(point, end)
            for segment in flushed:
                self._flush_segment(segment)
            if any(segment.base_offset >= point for segment in flushed):
                state.storage.sync_folder(state.folder)
            with state.lock:
                if changes == state.changes:  # else a segment was trimmed by a roll, or the log was cut
                    self._flushed_to(reached)
                    return

    def _flush_segment(self, segment: LogSegment) -> None:
        state = self._state
        with state.lock:
            if state.is_closed or not state.segments.holds(segment):  # removed meanwhile
                return
            _ = segment.offset_index.file, segment.time_index.file  # creates them if they are missing
        try:
            segment.flush(make_indexes=False)
        except ClosedError:  # this one was removed too
            if state.segments.holds(segment):
                raise

    def _flushed_to(self, offset: int) -> None:
        if offset > self._state.offsets.recovery_point:
            self._state.offsets.recovery_point = offset
            self.last_flush_ms = self._state.clock.now_ms()
