"""Cut logs into ranges of segments, which several threads or processes can read.

This reads file names, indexes and, at the end of a log, batch headers; never a payload. A range is cut where an
entry of the offset index says that a batch ends. That is only a hint: the offsets of a range are exact, and a reader
checks a position before it starts there, so a wrong index costs time, never rows.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pylogseg.disk.disk import Partition, Segment
from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.names import FileKind
from pylogseg.reading.log_reader import LogFiles
from pylogseg.reading.seek import end_offset, first_offset_since

#: The cost of opening a segment, in bytes that could be read in that time.
OPEN_COST_BYTES = 64 << 10


class Extent(NamedTuple):
    """A partition's log, and the half-open range of offsets of it that is read."""

    log: Partition | LogFiles
    first_offset: int
    end_offset: int


class Range(NamedTuple):
    """Offsets of one segment, and where they lie."""

    topic: str
    partition: int
    path: str  #: Of the segment, absolute or a URL.
    base_offset: int
    next_offset: int  #: Base offset of the next segment; -1: the active one, which a broker may be writing.
    first_offset: int  #: Half-open. Exact: together, the ranges of a plan have each offset once.
    end_offset: int
    start: int  #: Bytes, about: where the offsets lie as far as the index tells.
    end: int
    entry_offset: int = -1  #: The last offset of the batch at `start`, as the index says; -1 without an entry.

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start

    @property
    def folder(self) -> str:
        """Path or URL of the partition's folder."""
        return self.path.replace(os.sep, "/").rpartition("/")[0]


#: The ranges that one task reads, by partition and offset.
Task = tuple[Range, ...]


class Piece(NamedTuple):
    """A range that may still be cut, and its segment, with the index if it was already read."""

    range: Range
    segment: Segment
    offset_index: OffsetIndex | None


def is_all_damage(segments: Sequence[Segment], end: int) -> bool:
    """Check whether a log's last segment begins at its end but has bytes, all of them damage."""
    last = segments[-1] if segments else None
    return last is not None and last.size > 0 and last.base_offset == end >= end_offset([last])


def pieces(extent: Extent, since_ms: int | None = None) -> Iterator[Piece]:
    """Yield the segments of a log that have offsets of an extent, with the positions of these."""
    segments = extent.log.segments
    for segment, behind in itertools.zip_longest(segments, segments[1:]):
        following = behind.base_offset if behind is not None else -1
        first = max(extent.first_offset, segment.base_offset)
        end = extent.end_offset if following < 0 else min(extent.end_offset, following)
        # The task of an empty range checks what follows it: a segment that is all damage.
        if not segment.size or (first >= end and not (behind is None and is_all_damage(segments, extent.end_offset))):
            continue
        if since_ms is not None:
            begin = first_offset_since(segment, behind, since_ms)
            if begin is None or begin >= end:
                continue
            first = max(first, begin)
        whole = first == segment.base_offset and (end == following or following < 0)
        index = None if whole else offset_index(segment)
        start, stop, entry = _bytes_of(segment, index, first, end)
        name = (segment.topic, segment.partition, url_of(segment.files, segment.path))
        yield Piece(Range(*name, segment.base_offset, following, first, end, start, stop, entry), segment, index)


def offset_index(segment: Segment) -> OffsetIndex | None:
    """Return the offset index of a segment; None if it is missing or contradicts itself."""
    data = segment.companion(FileKind.OFFSET_INDEX)
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


def cut(piece: Piece, target: int, extra: int = 0) -> Iterator[Range]:
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


def url_of(files: FileSystem, path: str) -> str:
    """Return a path that means the same in another process."""
    return os.path.abspath(path) if isinstance(files, LocalFiles) else files.real(path)
