"""Summaries of segments, and of partitions in which something is odd, by windows of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pylogseg.disk.disk import Partition, Segment
from pylogseg.env.executor import Advance
from pylogseg.env.filesystem import FileView
from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.inspect.stats.listing import PartitionRow, SegmentRow, missing_segments
from pylogseg.reading.positions import position_of_offset
from pylogseg.reading.removed_segments import open_unless_removed
from pylogseg.reading.seek import end_offset, headers_from, holds, time_index
from pylogseg.walker.windows import SMALL_WINDOW_BYTES, Window, walk


def segment_row(segment: Segment, advance: Advance | None = None, rows: BatchTable | None = None) -> SegmentRow:
    """List one segment. Damage is ignored: `pylogseg verify` looks for it.

    `rows` are of all its batches, in order, for callers that have read them.
    """
    base, modified_ms = segment.base_offset, segment.modified_ms
    if rows is not None and (not len(rows) or _tells_first(rows)):
        first = _timestamp_of_header(rows[:1]) if len(rows) else None
        end = max(base, int(rows.last_offset[-1]) + 1) if len(rows) else base
        size = int(rows.position[-1] + rows.size[-1]) if len(rows) else 0
        return SegmentRow(segment.path, base, end, size, modified_ms, first, _largest_of(segment, rows))
    try:
        opened = open_unless_removed(segment)
    except StorageError as error:
        return SegmentRow(segment.path, base, None, segment.size, modified_ms, None, None, error)
    if opened is None:
        return SegmentRow(segment.path, base, base, 0, modified_ms, None, None)
    with opened as view:
        first = _first_timestamp(segment, view)
        largest = _largest_timestamp(segment, view) if rows is None else _largest_of(segment, rows)
        size = view.size
    if rows is None:
        end = max(segment.base_offset, end_offset([segment]))
    else:
        end = max(segment.base_offset, int(rows.last_offset[-1]) + 1 if len(rows) else 0)
    return SegmentRow(segment.path, segment.base_offset, end, size, segment.modified_ms, first, largest)


def windows_row(partition: Partition) -> PartitionRow:
    """List one partition, with any content of its first and its last segment."""
    segments = partition.segments
    start = partition.log_start_offset
    try:
        first = _first_of(segments, _first_timestamp)
        newest = _first_of(segments[::-1], _largest_timestamp)
    except StorageError as error:
        return PartitionRow(start, None, None, None, error)
    return PartitionRow(start, max(start, end_offset(segments)), first, newest, None, missing_segments(partition))


def _first_of(segments: Sequence[Segment], find: Callable[[Segment, FileView], int | None]) -> int | None:
    for segment in segments:
        opened = open_unless_removed(segment)
        if opened is None:
            continue
        with opened as view:
            timestamp = find(segment, view)
        if timestamp is not None:
            return timestamp
    return None


def _first_timestamp(segment: Segment, view: FileView) -> int | None:
    for item in walk(view, lowest_offset=segment.base_offset, crc=False, first_window_bytes=SMALL_WINDOW_BYTES):
        if not isinstance(item, Window):
            continue
        # Magic 0 has no timestamps; its largest one is -1.
        for row in np.flatnonzero(item.batches.max_timestamp >= 0).tolist():
            batch = item.batches[row : row + 1]
            if batch.magic[0] == 2 and _tells_first(batch):
                return _timestamp_of_header(batch)
            from pylogseg.format.records import decode  # headers suffice for nearly all segments

            columns, damage = decode(batch, item.buffer, item.file_position)
            timestamps = columns.timestamp[columns.timestamp >= 0]
            if len(timestamps):
                return int(timestamps[0])
            if damage and batch.magic[0] == 2:  # or a batch that is too large to decompress for this
                return _timestamp_of_header(batch)
    return None


def _tells_first(rows: BatchTable) -> bool:
    """Check whether the base timestamp of the first batch is its first record's: it has a time, and lost no record."""
    is_whole = rows.count[0] == rows.last_offset[0] - rows.base_offset[0] + 1
    is_timed = rows.max_timestamp[0] >= 0 and rows.rows["base_timestamp"][0] >= 0
    return bool(is_whole and is_timed and not rows.has_delete_horizon[0])


def _timestamp_of_header(batch: BatchTable) -> int:
    """Return the timestamp of a batch's first record by its header; the cleaner may have removed that record."""
    is_other = batch.is_log_append_time[0] or batch.has_delete_horizon[0] or batch.rows["base_timestamp"][0] < 0
    return int(batch.max_timestamp[0] if is_other else batch.rows["base_timestamp"][0])


def _largest_timestamp(segment: Segment, view: FileView) -> int | None:
    timestamp = _indexed_timestamp(segment, view)
    if timestamp is None:
        timestamp = _largest_from(segment, view, 0)
    return timestamp if timestamp >= 0 else None


def _largest_of(segment: Segment, rows: BatchTable) -> int | None:
    """Return the result of `_largest_timestamp` from all headers."""
    if not len(rows):
        return None
    index, first = time_index(segment), 0
    if index is not None:
        entry = index[len(index) - 1]
        at = int(np.searchsorted(rows.last_offset, entry.offset))
        if at < len(rows) and rows.max_timestamp[at] == entry.timestamp:
            if not segment.is_last:
                return entry.timestamp if entry.timestamp >= 0 else None
            first = at
    largest = int(rows.max_timestamp[first:].max())
    return largest if largest >= 0 else None


def _largest_from(segment: Segment, view: FileView, start: int) -> int:
    return max((int(rows.max_timestamp.max()) for rows in headers_from(segment, view, start)), default=-1)


def _indexed_timestamp(segment: Segment, view: FileView) -> int | None:
    """Return the timestamp in the last entry of the time index, if its batch agrees."""
    index = time_index(segment)
    if index is None or not holds(segment, view, entry := index[len(index) - 1]):
        return None
    if not segment.is_last:  # the last entry of a sealed segment is its largest; an active one has batches after it
        return entry.timestamp
    return max(entry.timestamp, _largest_from(segment, view, position_of_offset(segment, view, entry.offset)))
