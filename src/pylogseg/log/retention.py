"""Retention: delete the oldest segments by age, by size, or below the log start offset."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from pylogseg.errors import OffsetOutOfRangeError
from pylogseg.log.rolling import Roller
from pylogseg.log.segment import LogSegment
from pylogseg.log.state import LogState

_log = logging.getLogger(__name__)

#: Called for each segment from the oldest on, with the one after it: whether to delete it.
Breached = Callable[[LogSegment, LogSegment | None], bool]


class Aged(Protocol):
    """A segment of a log, or the facts about one."""

    @property
    def size(self) -> int: ...
    def largest_timestamp(self) -> int: ...


S = TypeVar("S", bound=Aged)


def breached_by_size(total_bytes: int, allowed: int) -> Callable[[S, S | None], bool]:
    """Return the rule of ``retention.bytes``: segments without which a log still has so many bytes."""
    surplus = total_bytes - allowed

    def breached(segment: S, behind: S | None) -> bool:
        nonlocal surplus
        if allowed < 0 or surplus < segment.size or surplus < 0:
            return False
        surplus -= segment.size
        return True

    return breached


def breached_by_time(now_ms: int, allowed_ms: int) -> Callable[[S, S | None], bool]:
    """Return the rule of ``retention.ms``: segments whose newest record is older."""
    return lambda segment, behind: allowed_ms >= 0 and now_ms - segment.largest_timestamp() > allowed_ms


class OldestSegments:
    """Deletes the oldest records of one log."""

    def __init__(self, state: LogState, roller: Roller) -> None:
        self._state, self._roller = state, roller

    def apply_retention(self) -> int:
        """Delete segments by the retention settings; return how many.

        Without ``delete`` in ``cleanup.policy`` only those below the log's start are deleted.
        """
        state = self._state
        count = self.delete_below_start()
        if "delete" in state.config.cleanup_policy:
            count += self._by_size() + self._by_time()
        if count:
            start = state.offsets.log_start
            _log.info("%s: retention deleted %d segments; the log starts at %d", state.folder, count, start)
        return count

    def delete_below_start(self) -> int:
        """Delete the segments all of whose records lie below the start of the log; return how many."""
        first, start = self._state.segments.first, self._state.offsets.log_start
        if first is None or first.base_offset >= start:
            return 0
        return self.delete(lambda segment, behind: behind is not None and behind.base_offset <= start)

    def _by_size(self) -> int:
        return self.delete(breached_by_size(self._state.segments.size, self._state.config.retention_bytes))

    def _by_time(self) -> int:
        return self.delete(breached_by_time(self._state.clock.now_ms(), self._state.config.retention_ms))

    def delete(self, breached: Breached) -> int:
        """Delete segments while they are replicated and a rule says so; see `Log.delete_oldest`."""
        return self._state.guard(lambda: self._delete(breached))

    def _delete(self, breached: Breached) -> int:
        state = self._state
        with state.lock:
            gone: list[LogSegment] = []
            at = state.segments.first
            while at is not None:
                behind = state.segments.higher(at.base_offset)
                end = state.offsets.end.offset if behind is None else behind.base_offset
                replicated = state.offsets.high_watermark.offset >= end
                if not replicated or not breached(at, behind) or (behind is None and at.size == 0):
                    break
                gone.append(at)
                at = behind
            count = len(gone)
            if count and count == len(state.segments) and self._roller.roll().base_offset == gone[-1].base_offset:
                gone.pop()
            if gone:
                first_kept = state.segments.higher(gone[-1].base_offset)
                assert first_kept is not None
                self.increment_log_start(first_kept.base_offset)
                for segment in gone:
                    state.segments.remove(segment.base_offset)
                state.remover.remove_segments(gone)
                state.remover.remove_snapshots(gone, state.producers)
            return count

    def increment_log_start(self, offset: int) -> bool:
        """Delete the records below an offset; return whether the log's start moved."""
        moved = self._state.guard(lambda: self._increment_log_start(offset))
        if moved:
            self._state.on_log_start()
        return moved

    def _increment_log_start(self, offset: int) -> bool:
        state = self._state
        with state.lock:
            offsets, high_watermark = state.offsets, state.offsets.high_watermark.offset
            if offset > high_watermark:
                raise OffsetOutOfRangeError(
                    f"{state.folder}: cannot start at {offset}, above the high watermark {high_watermark}"
                )
            if offset <= offsets.log_start:
                return False
            offsets.set_log_start(offset)
            state.epochs.truncate_from_start(offset)
            state.producers.on_log_start(offset)
            offsets.note_first_unstable()
            return True
