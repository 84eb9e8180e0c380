"""Rolling: begin a new active segment."""

from __future__ import annotations

import contextlib
import time

from pylogseg.errors import ClosedError, RequestError
from pylogseg.log.flushing import Flusher
from pylogseg.log.offsets import OffsetMetadata
from pylogseg.log.segment import LogSegment
from pylogseg.log.state import LogState


class Roller:
    """Rolls one log."""

    def __init__(self, state: LogState, flusher: Flusher) -> None:
        self._state, self._flusher = state, flusher

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Begin a new segment at the log end offset, or at the higher offset of the next record."""
        state = self._state
        with state.lock:
            if state.is_closing:
                raise ClosedError(f"{state.folder}: the log is closed")
            started = time.perf_counter()
            base = max(expected_next_offset, state.offsets.end.offset)
            segment = state.guard(lambda: self._roll(base))
            state.metrics.rolls += 1
            state.metrics.roll_seconds += time.perf_counter() - started
            return segment

    def _roll(self, base: int) -> LogSegment:
        state = self._state
        segment = self._begin_segment(base)
        state.producers.map_end_offset = base
        snapshot = state.producers.take_snapshot(sync=False)
        state.offsets.follow_end()
        state.tasks.schedule("flush-log", lambda: self._flush_rolled(snapshot, base))
        return segment

    def _flush_rolled(self, snapshot: str | None, base: int) -> None:
        state = self._state
        if state.is_closed:  # and flushed or abandoned by that
            return
        if snapshot is not None:
            state.storage.sync_file(snapshot)
        with contextlib.suppress(ClosedError):
            self._flusher.flush(base)

    def _begin_segment(self, base: int) -> LogSegment:
        state = self._state
        active = state.active
        if base in state.segments:
            if active.base_offset != base or active.size:
                raise RequestError(f"{state.folder}: cannot roll to {base}: a segment with records begins there")
            _ = active.offset_index.file, active.time_index.file  # Kafka opens them here, which creates them
            state.remover.remove_segments([active])
        elif base < active.base_offset:
            raise RequestError(f"{state.folder}: cannot roll to {base}, below the active segment {active.base_offset}")
        else:
            LogSegment.remove_files(state.storage, state.folder, base)
            active.become_inactive()
            if state.offsets.recovery_point >= base:
                # The changes lie below the recovery point, so no later flush or load covers them.
                active.flush()
            state.changes += 1
        segment = state.new_segment(base)
        state.segments.add(segment)
        state.offsets.set_end(OffsetMetadata(state.offsets.end.offset, base, segment.size))
        return segment
