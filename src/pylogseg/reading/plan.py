"""The plan of a read: which segments have its offsets, where these lie in the files, and how tasks share them.

Names, indexes and, at the end of a log, headers of batches are read, never a payload. A range is cut where an entry of
the offset index says that a batch ends. That is only a hint: the offsets of a range are exact, and a reader checks a
position before it starts there, so a wrong index costs time, never rows. What a filter leaves of a log:
`pylogseg.reading.bounds`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pylogseg.disk.disk import Segment
from pylogseg.errors import StorageError
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.names import FileKind
from pylogseg.reading import header_reader
from pylogseg.reading.ranges import Extent, Range, Task, UncutRange, url_of
from pylogseg.reading.removed_segments import open_unless_removed
from pylogseg.reading.seek import end_offset, first_offset_since

#: The cost of opening a segment, in bytes that could be read in that time.
OPEN_COST_BYTES = 64 << 10
#: Of a part of a segment that one of several threads reads.
PART_BYTES = 32 << 20


def is_empty(segment: Segment) -> bool:
    """Check whether a segment has no byte. One that cannot be opened is listed with none, too, but may have some."""
    if segment.size:
        return False
    try:
        opened = open_unless_removed(segment)
    except StorageError:
        return False
    if opened is not None:
        opened.close()
    return True


def is_all_damage(segments: Sequence[Segment], end: int) -> bool:
    """Check whether a log's last segment begins at its end but has bytes, all of them damage, or cannot be opened."""
    last = segments[-1] if segments else None
    return last is not None and last.base_offset == end and not is_empty(last) and end >= end_offset([last])


class Share(NamedTuple):
    """What an extent has of one segment."""

    segment: Segment
    following: Segment | None
    first_offset: int  #: Half-open.
    end_offset: int


def shares(extent: Extent) -> Iterator[Share]:
    """Yield the segments of a log that have offsets of an extent; nothing is read, but a last one that may be empty.

    What an extent has of such a segment is empty if it is all damage, or cannot be opened: its reader has to see that.
    """
    segments = extent.log.segments
    for segment, following in itertools.zip_longest(segments, segments[1:]):
        first, end = max(extent.first_offset, segment.base_offset), extent.end_offset
        end = end if following is None else min(end, following.base_offset)
        is_asked = first < end or (following is None and is_all_damage(segments, extent.end_offset))
        if is_asked and not is_empty(segment):
            yield Share(segment, following, first, end)


def pieces(extent: Extent, since_ms: int | None = None, until_ms: int | None = None) -> Iterator[UncutRange]:
    """Yield the ranges of segments that may have offsets of an extent, and times in a range; both its ends included.

    Of times, indexes tell, and the headers at the end of a segment.
    """
    for share in shares(extent):
        if since_ms is not None:
            begin = first_offset_since(share.segment, share.following, since_ms)
            if begin is None or begin >= share.end_offset:
                continue
            share = share._replace(first_offset=max(share.first_offset, begin))
        piece = placed(share)
        less = piece if until_ms is None else header_reader.up_to_time(piece, until_ms)
        if less is not None:
            yield less


def placed(share: Share) -> UncutRange:
    """Return the range of a share of a segment, with its place in the file as far as an index tells."""
    segment, _, first, end = share
    following = -1 if share.following is None else share.following.base_offset
    whole = first == segment.base_offset and (end == following or following < 0)
    index = None if whole else offset_index(segment)
    start, stop, entry = _bytes_of(segment, index, first, end)
    name = (segment.topic, segment.partition, url_of(segment.files, segment.path))
    found = Range(*name, segment.base_offset, following, first, end, start, stop, entry)
    return UncutRange(found, segment, index)


def offset_index(segment: Segment) -> OffsetIndex | None:
    """Return the offset index of a segment; None if it is missing, cannot be read or contradicts itself."""
    data = segment.hint(FileKind.OFFSET_INDEX)
    if not data:
        return None
    index = OffsetIndex(data, segment.base_offset)
    positions = index.positions.astype(np.int64)
    offsets = index.offsets
    is_sound = len(index) > 0 and (np.diff(positions) > 0).all() and (np.diff(offsets) > 0).all()
    return index if is_sound and positions[0] >= 0 and positions[-1] < segment.size else None


def _bytes_of(segment: Segment, index: OffsetIndex | None, first: int, end: int) -> tuple[int, int, int]:
    if index is None:
        return 0, segment.size, -1
    entry = index.floor(first)
    behind = int(np.searchsorted(index.offsets, end - 1))  # the first entry at or after the last offset
    behind += behind < len(index) and int(index.offsets[behind]) < end  # its batch still belongs to the range
    stop = int(index.positions[behind]) if behind < len(index) else segment.size
    return entry.position, max(entry.position, stop), entry.offset if entry.position else -1


def cut(piece: UncutRange, target: int, extra: int = 0) -> Iterator[Range]:
    """Cut a piece into parts of about the same size, no larger than the target if the index allows."""
    whole = piece.range
    count = -(-(whole.size + extra) // target)
    index = piece.offset_index or (offset_index(piece.segment) if count > 1 else None)
    first, start, entry = whole.first_offset, whole.start, whole.entry_offset
    if count > 1 and index is not None:
        goals = whole.start + whole.size * np.arange(1, count) // count
        slots = np.unique(np.searchsorted(index.positions.astype(np.int64), goals))
        for slot in slots[slots < len(index)].tolist():
            behind, position = int(index.offsets[slot]) + 1, int(index.positions[slot])
            if first < behind < whole.end_offset:
                yield whole._replace(
                    first_offset=first, end_offset=behind, start=start, end=position, entry_offset=entry
                )
                first, start, entry = behind, position, behind - 1
    yield whole._replace(first_offset=first, start=start, entry_offset=entry)


def packed(ranges: Iterable[Range], target: int, max_records: int = 0) -> Iterator[Task]:
    """Pack as many ranges into each task as fit."""
    task: list[Range] = []
    size = offsets = 0
    for part in ranges:
        more, count = part.size + OPEN_COST_BYTES, part.end_offset - part.first_offset
        if task and (size + more > target or (max_records and offsets + count > max_records)):
            yield tuple(task)
            task, size, offsets = [], 0, 0
        task.append(part)
        size += more
        offsets += count
    if task:
        yield tuple(task)
