"""Truncation of a log."""

from __future__ import annotations

from pylogseg.errors import RequestError
from pylogseg.log.offsets import OffsetMetadata
from pylogseg.log.producer_rebuild import rebuild_producers
from pylogseg.log.segment import LogSegment
from pylogseg.log.segment_removal import DELETED
from pylogseg.log.state import LogState


def truncate_to(state: LogState, offset: int) -> bool:
    """Drop all batches that hold an offset or come after it; return whether there were any."""
    if offset < 0:
        raise RequestError(f"{state.folder}: cannot truncate to the negative offset {offset}")
    with state.lock:
        if offset >= state.offsets.end.offset:
            state.epochs.truncate_from_end(state.offsets.end.offset)
            return False
        first = state.segments.first
        assert first is not None
        if first.base_offset > offset:
            truncate_fully(state, offset, offset)
            return True
        # Before anything is cut, since the old entries must not come back above what is appended next.
        gone = [segment for segment in state.segments if segment.base_offset > offset][::-1]
        for segment in gone:
            _remove_last(state, segment)
        if state.active.truncate_to(offset):
            state.active.log.sync()
        _set_end(state, offset)
        state.remover.remove_snapshots(gone, state.producers)
        state.epochs.truncate_from_end(offset)
        state.offsets.log_start = min(offset, state.offsets.log_start)
        _rebuild_producers(state, offset)
        if state.offsets.high_watermark.offset >= offset:
            state.offsets.update_high_watermark(state.offsets.end)
        return True


def truncate_fully(state: LogState, offset: int, log_start_offset: int) -> None:
    """Drop everything; the log continues at an offset."""
    with state.lock:
        *others, last = state.segments
        last.change_suffix(DELETED)  # for readers, it stays in the map until there is another one
        state.storage.sync_folder(state.folder)
        for segment in reversed(others):
            _remove_last(state, segment)
        state.segments.add(state.new_segment(offset))
        if last.base_offset != offset:
            state.segments.remove(last.base_offset)
        state.remover.remove_segments([last])
        state.storage.sync_folder(state.folder)
        _set_end(state, offset)
        state.epochs.clear()
        state.producers.truncate_fully(offset)
        state.offsets.log_start = log_start_offset
        _rebuild_producers(state, offset)
        state.offsets.update_high_watermark(state.offsets.end)


def _remove_last(state: LogState, segment: LogSegment) -> None:
    """Remove the last segment, durably.

    A crash in between then leaves a beginning of the log, which the producer snapshots fit.
    """
    state.segments.remove(segment.base_offset)
    state.remover.remove_segments([segment])
    state.storage.sync_folder(state.folder)


def _set_end(state: LogState, offset: int) -> None:
    state.offsets.set_end(OffsetMetadata(offset, state.active.base_offset, state.active.size))
    state.changes += 1


def _rebuild_producers(state: LogState, offset: int) -> None:
    rebuild_producers(
        state.producers,
        state.segments.base_offsets,
        state.segments.read_rows,
        log_start_offset=state.offsets.log_start,
        last_offset=offset,
        now_ms=state.clock.now_ms(),
        clean=False,
    )
