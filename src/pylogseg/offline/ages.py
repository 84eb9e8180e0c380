"""Ages of segments: a time index is believed as far as the batches bear it out.

A broker deletes by the last entry of a time index, whatever it says. Here the batches from that entry on are read
before a deletion, and all of the segment if the entry is none of theirs.
"""

from __future__ import annotations

import numpy as np

from pylogseg.errors import CorruptionError
from pylogseg.format.moments import iso_text
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.log.log import Log
from pylogseg.log.retention import breached_by_size, breached_by_time
from pylogseg.log.segment import LogSegment

#: Why records above a high watermark stay.
UNCOMMITTED = "records above it may be uncommitted, and stay"
_ENTRY_BYTES = 12


def check_ages(log: Log, now_ms: int) -> None:
    """Check the segments that retention would delete by their age: CorruptionError if a batch is too young for it."""
    if not _goes_by_time(log):
        return
    retention_ms = log.config.retention_ms
    is_old = breached_by_time(now_ms, retention_ms)
    for segment in log.segments:
        if segment.base_offset >= log.high_watermark or not is_old(segment, None):
            return
        _check_age(segment, now_ms - retention_ms)


def name_blocking(log: Log, now_ms: int) -> str:
    """Return a sentence on the oldest segment if a time in the future keeps it; empty if none does."""
    segment = log.segments.first
    if segment is None or not segment.size or not _goes_by_time(log) or segment.largest_timestamp() <= now_ms:
        return ""
    name = segment_file_name(segment.base_offset, FileKind.LOG)
    return (
        f"{name} has its newest time in the future, {iso_text(segment.largest_timestamp())}: until then age deletes "
        "neither it nor a segment behind it; --before-offset does"
    )


def name_held(log: Log, now_ms: int) -> str:
    """Return a sentence on the oldest segment if the high watermark alone keeps it; empty if it does not."""
    segment, config = log.segments.first, log.config
    if segment is None or not segment.size or not config.delete:
        return ""
    behind = log.segments.higher(segment.base_offset)
    end = log.log_end_offset if behind is None else behind.base_offset
    by_size = breached_by_size(log.segments.size, config.retention_bytes)
    is_old = breached_by_time(now_ms, config.retention_ms)
    if log.high_watermark >= end or not (by_size(segment, behind) or is_old(segment, behind)):
        return ""
    name = segment_file_name(segment.base_offset, FileKind.LOG)
    return f"{name} ends at {end}, and the high watermark is {log.high_watermark}: {UNCOMMITTED}"


def _goes_by_time(log: Log) -> bool:
    return log.config.delete and log.config.retention_ms >= 0


def _check_age(segment: LogSegment, limit_ms: int) -> None:
    start = segment.offset_index.floor(segment.max_timestamp_so_far()[1])[1]
    if not _is_borne_out(segment, start, limit_ms) and start:
        _is_borne_out(segment, 0, limit_ms)


def _is_borne_out(segment: LogSegment, start: int, limit_ms: int) -> bool:
    """Check whether the batches from a position on have the last entry; CorruptionError if one is not below a limit."""
    timestamp, offset = segment.max_timestamp_so_far()
    is_entry = False
    for window in segment.windows(start):
        rows = window.batches
        times = np.where(rows.count != 0, rows.max_timestamp, -1)  # an empty batch has the time of the cleaning
        for row in np.flatnonzero(times >= limit_ms)[:1].tolist():
            _refuse(segment, int(window.file_position + rows.position[row]), int(times[row]))
        is_entry |= bool(((rows.last_offset == offset) & (times == timestamp)).any())
    return is_entry


def _refuse(segment: LogSegment, position: int, newer_ms: int) -> None:
    index, (timestamp, _) = segment.time_index, segment.max_timestamp_so_far()
    by_index = f"the last entry says {iso_text(timestamp)}" if index.count else "it has no entry"
    raise CorruptionError(
        index.path,
        max(index.count - 1, 0) * _ENTRY_BYTES,
        f"{by_index}, by which retention would delete the segment; the batch at position {position} of {segment.path} "
        f"is of {iso_text(newer_ms)}",
    )
