"""From an offset or a timestamp to a place in a segment, by its indexes.

An index is a hint: after a crash, a truncation or a compaction it may name a place where no batch begins. So the place
is looked at before it is believed; if it does not hold what the index says, the search begins at the start of the
segment.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pylogseg.disk import Segment
from pylogseg.env.files import FileView
from pylogseg.files.index import OffsetIndex, TimeIndex, TimestampOffset
from pylogseg.format.batches import BatchTable
from pylogseg.format.names import FileKind
from pylogseg.format.records import decode
from pylogseg.reading.removal import open_unless_removed
from pylogseg.reading.windows import SMALL_WINDOW_BYTES, Window, walk

_HEADER_BYTES = 61


def position_of_offset(segment: Segment, view: FileView, offset: int) -> int:
    """Position of a batch from which a scan finds an offset, as near to it as the offset index tells.

    Returns
    -------
    int
        0 without an index, or with one that lies.
    """
    if offset <= segment.base_offset:
        return 0
    data = segment.companion(FileKind.OFFSET_INDEX)
    if not data:
        return 0
    index = OffsetIndex(data, segment.base_offset, segment.companions[FileKind.OFFSET_INDEX])
    if not len(index):
        return 0
    found = index.floor(offset)
    return found.position if _last_offset_at(view, found.position) == found.offset else 0


def _last_offset_at(view: FileView, position: int) -> int | None:
    """Last offset of the batch that begins at a position; None if none can begin there."""
    if not 0 <= position < view.size:
        return None
    head = bytes(view.read(position, _HEADER_BYTES))
    if len(head) < 17 or head[16] > 2 or int.from_bytes(head[8:12], "big", signed=True) < 14:
        return None
    offset = int.from_bytes(head[:8], "big", signed=True)
    if head[16] < 2:
        return offset
    return offset + int.from_bytes(head[23:27], "big", signed=True) if len(head) == _HEADER_BYTES else None


def offset_of_time(segments: Sequence[Segment], timestamp_ms: int, default: int, log_start_offset: int = 0) -> int:
    """Offset of the first record whose timestamp is not below a moment, wherever in the log it is.

    Parameters
    ----------
    segments : sequence of Segment
        Of one partition, by base offset.
    timestamp_ms : int
        The moment, in milliseconds since 1970.
    default : int
        The answer if there is no such record.
    log_start_offset : int
        Records below it do not count.
    """
    late = late_segments(segments, timestamp_ms, log_start_offset)
    return next((offset for offset in late if offset is not None), default)


def late_segments(segments: Sequence[Segment], timestamp_ms: int, log_start_offset: int = 0) -> Iterator[int | None]:
    """Where each segment that may have records as late as a moment has the first of them.

    Parameters are those of `offset_of_time`.

    Yields
    ------
    int or None
        For each segment whose greatest timestamp, or time of its last change if it has no timestamp, is not below the
        moment: the offset of the first such record; None if there is none, since a cleaning emptied its batch or the
        log starts behind it. A broker's look-up by time answers with the first of these, None included.
    """
    for segment, following in itertools.zip_longest(segments, segments[1:]):
        index = _time_index(segment)
        if _tells_all_are_older(index, following, timestamp_ms):
            continue
        opened = open_unless_removed(segment)
        if opened is None:
            continue
        with opened as view:
            if not segment.is_last:
                largest = _largest_timestamp(segment, view, index)
                if (largest if largest >= 0 else segment.modified_ms) < timestamp_ms:
                    continue
            yield _search(segment, view, index, timestamp_ms, log_start_offset)


def first_offset_since(segment: Segment, following: Segment | None, timestamp_ms: int) -> int | None:
    """Where in a segment records that are not older than a moment may begin.

    Parameters
    ----------
    segment : Segment
        In which to look.
    following : Segment or None
        The next one of its partition, if there is one.
    timestamp_ms : int
        The moment, in milliseconds since 1970.

    Returns
    -------
    int or None
        All records below this offset are older, by the time index; None if all of the segment are, which only a
        sealed one can tell.
    """
    index = _time_index(segment)
    if _tells_all_are_older(index, following, timestamp_ms):
        return None
    opened = open_unless_removed(segment)
    if opened is None:
        return None
    with opened as view:
        if not segment.is_last and _largest_timestamp(segment, view, index) < timestamp_ms:
            return None
        entry = None if index is None else index.floor(timestamp_ms - 1)
        if entry is None or entry.timestamp < 0 or not _holds(segment, view, entry):
            return segment.base_offset
        return entry.offset + 1


def _tells_all_are_older(index: TimeIndex | None, following: Segment | None, timestamp_ms: int) -> bool:
    """Whether a time index says by itself that a sealed segment has nothing as late as a moment.

    A broker adds the greatest timestamp when it seals a segment. In most logs that is the last record's, and then the
    index cannot have been cut off: the segment itself need not be opened.
    """
    if index is None or following is None:
        return False
    last = index[len(index) - 1]
    return last.offset == following.base_offset - 1 and last.timestamp < timestamp_ms


def _time_index(segment: Segment) -> TimeIndex | None:
    data = segment.companion(FileKind.TIME_INDEX)
    if not data:
        return None
    index = TimeIndex(data, segment.base_offset, segment.companions[FileKind.TIME_INDEX])
    return index if len(index) else None


def _largest_timestamp(segment: Segment, view: FileView, index: TimeIndex | None) -> int:
    start = 0
    if index is not None and _holds(segment, view, entry := index[len(index) - 1]):
        # An index that was cut off holds, but says nothing of what lies behind its last entry.
        start = position_of_offset(segment, view, entry.offset)
    return max((int(rows.max_timestamp.max()) for rows in _headers(view, segment, start)), default=-1)


def _holds(segment: Segment, view: FileView, entry: TimestampOffset) -> bool:
    """Whether the batch with an entry's offset has its timestamp as the greatest; else the index lies."""
    start = position_of_offset(segment, view, entry.offset)
    for rows in _headers(view, segment, start):
        if rows.last_offset[-1] >= entry.offset:
            return bool(rows.max_timestamp[rows.last_offset >= entry.offset][0] == entry.timestamp)
    return False


def _search(
    segment: Segment, view: FileView, index: TimeIndex | None, timestamp_ms: int, log_start_offset: int
) -> int | None:
    first = log_start_offset
    entry = None if index is None else index.floor(timestamp_ms)
    if entry is not None and entry.offset > first and _holds(segment, view, entry):
        first = entry.offset
    start = position_of_offset(segment, view, first)
    for item in walk(
        view, start=start, lowest_offset=segment.base_offset, crc=False, first_window_bytes=SMALL_WINDOW_BYTES
    ):
        if not isinstance(item, Window):
            continue
        # A magic 0 batch has no timestamp; it counts as -1, as in Kafka.
        late = item.batches.max_timestamp >= timestamp_ms
        for row in late.nonzero()[0].tolist():
            columns, _ = decode(item.batches[row : row + 1], item.buffer, item.file_position)
            hits = columns.offset[(columns.timestamp >= timestamp_ms) & (columns.offset >= log_start_offset)]
            if len(hits):
                return int(hits[0])
    return None


def _headers(view: FileView, segment: Segment, start: int) -> Iterator[BatchTable]:
    for item in walk(
        view, start=start, lowest_offset=segment.base_offset, crc=False, first_window_bytes=SMALL_WINDOW_BYTES
    ):
        if isinstance(item, Window):
            yield item.batches


def end_offset(segments: Sequence[Segment]) -> int:
    """Offset after the last whole batch of a partition: its log end offset, 0 if it has no segment.

    The offset index of the last segment is the way in; headers from there on are read.
    """
    for last in reversed(segments):
        opened = open_unless_removed(last)
        if opened is not None:
            return _end_of(last, opened)
    return segments[-1].base_offset if segments else 0


def _end_of(segment: Segment, opened: FileView) -> int:
    with opened as view:
        start = position_of_offset(segment, view, 2**63 - 1)
        end = segment.base_offset
        for item in walk(view, start=start, lowest_offset=segment.base_offset, crc=False):
            if isinstance(item, Window):
                end = max(end, int(item.batches.last_offset[-1]) + 1)
    return end
