"""Find timestamps in the segments of a log by its indexes, which are hints; and where a log ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pylogseg.disk.disk import Segment, fetched_from
from pylogseg.env.filesystem import FileView
from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.index import TimeIndex, TimestampOffset
from pylogseg.format.names import FileKind
from pylogseg.format.records import decode
from pylogseg.reading.offset_order import Order
from pylogseg.reading.positions import position_of_offset
from pylogseg.reading.removed_segments import open_unless_removed
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import SMALL_WINDOW_BYTES, Window, walk


def offset_of_time(segments: Sequence[Segment], timestamp_ms: int, default: int, log_start_offset: int = 0) -> int:
    """Return the offset of the first record since a timestamp, not below the log's start; `default` without one."""
    late = late_segments(segments, timestamp_ms, log_start_offset, is_exact=True)
    return next((offset for offset in late if offset is not None), default)


def late_segments(
    segments: Sequence[Segment], timestamp_ms: int, log_start_offset: int = 0, *, is_exact: bool = False
) -> Iterator[int | None]:
    """Yield for each segment that may have records since a timestamp the offset of the first one.

    None means there is none, since a cleaning emptied its batch or the log starts after it. A broker's lookup by time
    returns the first of these, None included. Segments are chosen by their greatest timestamp (or modification time);
    with `is_exact`, a time index is compared with the segment before it is trusted.
    """
    for segment, following in itertools.zip_longest(segments, segments[1:]):
        if segment.largest_ms is not None and segment.largest_ms < timestamp_ms:
            continue
        if (cluster := fetched_from(segment)) is not None:
            yield cluster.offset_of_time(segment.path, timestamp_ms)
            continue
        index = time_index(segment)
        if not is_exact and _tells_all_are_older(index, following, timestamp_ms):
            continue
        try:
            opened = open_unless_removed(segment)
        except StorageError:  # it may have such a record: reading from there raises the error
            yield max(segment.base_offset, log_start_offset)
            continue
        if opened is None:
            continue
        with opened as view:
            if not segment.is_last:
                largest = _largest_timestamp(segment, view, index)
                if (largest if largest >= 0 else segment.modified_ms) < timestamp_ms:
                    continue
            yield _search(segment, view, index, timestamp_ms, log_start_offset, is_exact=is_exact)


def first_offset_since(segment: Segment, following: Segment | None, timestamp_ms: int) -> int | None:
    """Return an offset of a segment, by its time index, below which all records are older than a timestamp.

    None if all its records are older; only a sealed segment can show that.
    """
    if segment.largest_ms is not None and segment.largest_ms < timestamp_ms:
        return None
    if (cluster := fetched_from(segment)) is not None:
        return cluster.offset_of_time(segment.path, timestamp_ms)
    index = time_index(segment)
    if _tells_all_are_older(index, following, timestamp_ms):
        return None
    try:
        opened = open_unless_removed(segment)
    except StorageError:
        return segment.base_offset
    if opened is None:
        return None
    with opened as view:
        if not segment.is_last and _largest_timestamp(segment, view, index) < timestamp_ms:
            return None
        entry = None if index is None else index.floor(timestamp_ms - 1)
        if entry is None or entry.timestamp < 0 or not holds(segment, view, entry):
            return segment.base_offset
        return entry.offset + 1


def largest_timestamp(segment: Segment) -> int | None:
    """Return the greatest timestamp of a sealed segment, by its time index and the headers after the last entry.

    None if unknown: the segment is the last one, or cannot be read.
    """
    if segment.is_last or fetched_from(segment) is not None:
        return None
    try:
        opened = open_unless_removed(segment)
    except StorageError:
        return None
    if opened is None:
        return None
    with opened as view:
        return _largest_timestamp(segment, view, time_index(segment))


def _tells_all_are_older(index: TimeIndex | None, following: Segment | None, timestamp_ms: int) -> bool:
    """Check whether all records of a sealed segment are older than a timestamp, by the time index alone.

    A broker adds the greatest timestamp when it seals a segment. In most logs that is the last record's; then the index
    is complete, and the segment need not be opened.
    """
    if index is None or following is None:
        return False
    last = index[len(index) - 1]
    return last.offset == following.base_offset - 1 and last.timestamp < timestamp_ms


def time_index(segment: Segment) -> TimeIndex | None:
    """Return the time index of a segment, not checked; None if it is missing, cannot be read or has no entry."""
    data = segment.hint(FileKind.TIME_INDEX)
    if not data:
        return None
    index = TimeIndex(data, segment.base_offset, segment.companions[FileKind.TIME_INDEX])
    return index if len(index) else None


def _largest_timestamp(segment: Segment, view: FileView, index: TimeIndex | None) -> int:
    if segment.largest_ms is not None:  # as a broker, which asks the metadata of uploaded segments
        return segment.largest_ms
    start = 0
    if index is not None and holds(segment, view, entry := index[len(index) - 1]):
        # A truncated index is correct, but does not cover what comes after its last entry.
        start = position_of_offset(segment, view, entry.offset)
    return max((int(rows.max_timestamp.max()) for rows in headers_from(segment, view, start)), default=-1)


def holds(segment: Segment, view: FileView, entry: TimestampOffset) -> bool:
    """Check whether the batch with an entry's offset has the entry's timestamp; otherwise the index is wrong."""
    start = position_of_offset(segment, view, entry.offset)
    for rows in headers_from(segment, view, start):
        if rows.last_offset[-1] >= entry.offset:
            return bool(rows.max_timestamp[rows.last_offset >= entry.offset][0] == entry.timestamp)
    return False


def _search(
    segment: Segment,
    view: FileView,
    index: TimeIndex | None,
    timestamp_ms: int,
    log_start_offset: int,
    *,
    is_exact: bool,
) -> int | None:
    first = log_start_offset
    entry = None if index is None else index.floor(timestamp_ms)
    if entry is not None and entry.offset > first and holds(segment, view, entry):
        first = entry.offset
    start = position_of_offset(segment, view, first)
    last = 2**63 - 1 if segment.next_base is None else segment.next_base - 1  # numpy 1 compares with 2**63 as floats
    before = max(segment.base_offset, log_start_offset) if start == 0 else first
    for batches, item in _windows(view, segment, start):
        # Ignore batches of another segment, in a file with a wrong name.
        rows = batches[(batches.last_offset >= segment.base_offset) & (batches.last_offset <= last)]
        if not len(rows):
            continue
        # A magic 0 batch has no timestamp; it counts as -1, as in Kafka.
        late = rows.max_timestamp >= timestamp_ms
        for row in late.nonzero()[0].tolist():
            columns, damage = decode(rows[row : row + 1], item.buffer, item.file_position)
            if damage and is_exact:  # it may have such a record: reading from there raises the error
                behind = int(rows.last_offset[row - 1]) + 1 if row else before
                return max(behind, log_start_offset)
            lowest = max(segment.base_offset, log_start_offset)
            hits = columns.offset[(columns.timestamp >= timestamp_ms) & (columns.offset >= lowest)]
            if len(hits) and hits[0] <= last:
                behind = int(rows.last_offset[row - 1]) + 1 if row else before
                if is_exact and behind < rows.base_offset[row] > rows.base_offset[min(row + 1, len(rows) - 1)]:
                    return max(behind, log_start_offset)  # damaged upwards: the records after it must not be missed
                return int(hits[0])
        before = int(rows.last_offset[-1]) + 1
    return None


def headers_from(segment: Segment, view: FileView, start: int) -> Iterator[BatchTable]:
    """Yield the good batches of a segment from a position on, window by window."""
    return (rows for rows, _ in _windows(view, segment, start))


def _windows(view: FileView, segment: Segment, start: int) -> Iterator[tuple[BatchTable, Window]]:
    for item in walk(
        view, start=start, lowest_offset=segment.base_offset, crc=False, first_window_bytes=SMALL_WINDOW_BYTES
    ):
        if isinstance(item, Window):
            yield item.batches, item


class LogEnd(NamedTuple):
    """The end of a log."""

    offset: int  #: After the last whole batch; at least the last segment's base offset.
    is_at_file_end: bool  #: True if nothing follows that batch in its file, not even a torn tail.


def end_offset(segments: Sequence[Segment]) -> int:
    """Return the offset after the last whole batch of a partition; 0 if it has no segment.

    The headers after the last entry of the offset index are read. For an unreadable segment the base offset is
    returned.
    """
    return end_of(segments).offset


def end_of(segments: Sequence[Segment]) -> LogEnd:
    """Return `end_offset`, and whether the file ends there too."""
    if segments and (cluster := fetched_from(segments[-1])) is not None:
        return LogEnd(cluster.ends_of(segments[-1].path).end, True)
    for last in reversed(segments):
        try:
            opened = open_unless_removed(last)
        except StorageError:
            return LogEnd(last.base_offset, False)
        if opened is not None:
            return _end_of(last, opened)
    return LogEnd(segments[-1].base_offset if segments else 0, True)


def _end_of(segment: Segment, opened: FileView) -> LogEnd:
    with opened as view:
        # To read an index takes longer than to look at the few batches of a small file.
        indexed = 0 if view.size <= SMALL_WINDOW_BYTES else position_of_offset(segment, view, 2**63 - 1)
        # The batch of the last index entry may be torn: then the end is before it.
        for start in dict.fromkeys((indexed, 0)):
            end, position, is_damaged = _walk_to_end(segment, view, start, crc=False)
            if is_damaged:  # then a header alone is not trusted, as to where the next batch begins
                end, position, _ = _walk_to_end(segment, view, start, crc=True)
            if position > start:
                break
        return LogEnd(end, position >= view.size)


def _walk_to_end(segment: Segment, view: FileView, start: int, *, crc: bool) -> tuple[int, int, bool]:
    """Return the offset and the position behind the last good batch, and whether there is damage."""
    end, position, is_damaged = segment.base_offset, start, False
    order = Order(segment, view, starts_inside=start > 0)
    for item in walk(view, start=start, lowest_offset=segment.base_offset, is_last=segment.is_last, crc=crc):
        if isinstance(item, Gap):
            is_damaged |= item.is_damage
            order.finish(item.next_offset)
            continue
        rows, gaps, _ = order.check(item.batches)
        is_damaged |= bool(gaps)
        if len(rows):
            last = rows.summary()
            end, position = last.last_offset + 1, last.end_position
    return end, position, is_damaged or bool(order.finish())


def leap_over(segments: Sequence[Segment], committed: int) -> Gap | None:
    """Return, as damage, a batch of a log's last segment that leaps over the offset up to which the log is committed.

    A log is committed up to where a batch begins or ends, and nobody cleans its last segment. So a batch above the
    expected offset that has that offset before it or in its middle has a false base offset.
    """
    if not segments or committed <= segments[-1].base_offset:
        return None
    segment = segments[-1]
    try:
        opened = open_unless_removed(segment)
    except StorageError:  # reading from there raises the error
        return None
    if opened is None:
        return None
    with opened as view:
        start = position_of_offset(segment, view, committed - 1)
        order = Order(segment, view, starts_inside=start > 0)
        expected = segment.base_offset if start == 0 else committed  # a batch of the index is where it belongs
        for item in walk(view, start=start, lowest_offset=segment.base_offset, crc=False):
            if isinstance(item, Gap):
                order.finish(item.next_offset)
                expected = committed  # offsets are missing before the next batch
                continue
            rows = order.check(item.batches).rows
            is_behind = rows.last_offset >= committed - 1
            if is_behind.any():
                at = int(is_behind.argmax())
                return _leap(segment, rows, at, int(rows.last_offset[at - 1]) + 1 if at else expected, committed)
            expected = int(rows.last_offset[-1]) + 1 if len(rows) else expected
    return None


def _leap(segment: Segment, rows: BatchTable, at: int, expected: int, committed: int) -> Gap | None:
    base, last, position = int(rows.base_offset[at]), int(rows.last_offset[at]), int(rows.position[at])
    if base <= expected or committed in (expected, base, last + 1) or rows.magic[at] < 2:
        return None
    reason = f"base offset {base} is too high: the high watermark is {committed}, and no batch ends before it"
    place = (segment.path, GapKind.ORDER, position, position + int(rows.size[at]))
    return Gap(*place, expected, committed, reason, True)
