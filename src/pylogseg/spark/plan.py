"""From options to tasks: which bytes of which segments each task reads.

The driver reads the names of files, indexes and, at the end of a log, headers; never a payload. A range is cut where an
entry of the offset index says that a batch ends. That is a hint: what counts are the offsets of a range, and a task
looks at the place before it begins there, so an index that lies costs reading, never rows.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pylogseg.catalog.disk import Segment
from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.files.index import OffsetIndex
from pylogseg.format.names import FileKind
from pylogseg.reading.seek import first_offset_since
from pylogseg.spark.logs import Extent, extents, find_logs, is_all_damage
from pylogseg.spark.options import SourceOptions
from pylogseg.spark.pushdown import Pruning

#: A task is worth at least so many bytes, unless more tasks were asked for: to start one costs milliseconds.
SMALLEST_TARGET_BYTES = 16 << 20
#: What it costs to open a segment, in bytes that could be read meanwhile.
_OPEN_COST_BYTES = 64 << 10
#: Tasks for each core, so that they end at about the same time.
_TASKS_PER_CORE = 4


class Range(NamedTuple):
    """Offsets of one segment, and where they lie.

    Attributes
    ----------
    topic, partition : str, int
    path : str
        Of the segment, absolute or a URL.
    base_offset : int
        Of the segment.
    next_offset : int
        Base offset of the segment after it; -1 without one: the active segment, which a broker may be writing.
    first_offset, end_offset : int
        Half-open. Exact: together, the ranges of a plan have each offset once.
    start, end : int
        Bytes, about: where the offsets lie as far as the index tells.
    """

    topic: str
    partition: int
    path: str
    base_offset: int
    next_offset: int
    first_offset: int
    end_offset: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start

    @property
    def folder(self) -> str:
        """Path or URL of the partition's folder."""
        return self.path.replace(os.sep, "/").rpartition("/")[0]


#: What one task reads, by partition and offset.
Task = tuple[Range, ...]


class _Piece(NamedTuple):
    """A range that may still be cut, and its segment with the index, if that was needed already."""

    range: Range
    segment: Segment
    offset_index: OffsetIndex | None


def plan(
    paths: str | Sequence[str], options: SourceOptions | None = None, pruning: Pruning | None = None, *, cores: int = 0
) -> list[Task]:
    """Cut what is to be read into tasks.

    Parameters
    ----------
    paths : str or sequence of str
        Log directories, partition folders, files, URLs.
    options : SourceOptions, optional
        From `options.parse`.
    pruning : Pruning, optional
        What may be left out.
    cores : int
        That will work; by default those of this machine.

    Returns
    -------
    list of tuple of Range
        Small segments are packed into one task, large ones split. Under ``onCorrupt=stop`` a partition is one task:
        where it ends nobody knows before.

    Raises
    ------
    RequestError, StorageError
    """
    options = options or SourceOptions()
    logs = find_logs([paths] if isinstance(paths, str) else paths, options)
    return tasks_of(extents(logs, options, pruning), options, pruning, cores=cores)


def tasks_of(
    found: Iterable[Extent], options: SourceOptions, pruning: Pruning | None = None, *, cores: int = 0
) -> list[Task]:
    """Cut extents of logs into tasks; see `plan`."""
    since = None if pruning is None else pruning.since_ms
    pieces = [list(_pieces(extent, options, since)) for extent in found]
    if options.on_corrupt == "stop":
        return [tuple(piece.range for piece in of_log) for of_log in pieces if of_log]
    total = sum(piece.range.size + _OPEN_COST_BYTES for of_log in pieces for piece in of_log)
    target = _target(total, options, cores or os.cpu_count() or 1)
    # The cost of opening counts as bytes where the number of tasks does, so that there are enough of them.
    extra = _OPEN_COST_BYTES if options.min_partitions else 0
    ranges = (part for of_log in pieces for piece in of_log for part in _cut(piece, target, extra, options.max_records))
    return list(_packed(ranges, target, options.max_records))


def _target(total: int, options: SourceOptions, cores: int) -> int:
    target = min(options.range_bytes, max(SMALLEST_TARGET_BYTES, total // (_TASKS_PER_CORE * cores)))
    return min(target, max(1, total // options.min_partitions)) if options.min_partitions else target


def _pieces(extent: Extent, options: SourceOptions, since_ms: int | None) -> Iterator[_Piece]:
    """The segments of a log that have wanted offsets, with the bytes of those."""
    segments = extent.log.segments
    for segment, behind in itertools.zip_longest(segments, segments[1:]):
        following = behind.base_offset if behind is not None else -1
        first = max(extent.first_offset, segment.base_offset)
        end = extent.end_offset if following < 0 else min(extent.end_offset, following)
        # A task for an empty range looks at what follows it: the damage of a segment that is nothing else.
        if not segment.size or (first >= end and not (behind is None and is_all_damage(segments, extent.end_offset))):
            continue
        if since_ms is not None:
            begin = first_offset_since(segment, behind, since_ms)
            if begin is None or begin >= end:
                continue
            first = max(first, begin)
        whole = first == segment.base_offset and (end == following or following < 0)
        index = None if whole else offset_index(segment)
        start, stop = _bytes_of(segment, index, first, end)
        name = (segment.topic, segment.partition, url_of(segment.files, segment.path))
        yield _Piece(Range(*name, segment.base_offset, following, first, end, start, stop), segment, index)


def offset_index(segment: Segment) -> OffsetIndex | None:
    """The offset index of a segment; None without one, or where it contradicts itself."""
    data = segment.companion(FileKind.OFFSET_INDEX)
    if not data:
        return None
    index = OffsetIndex(data, segment.base_offset)
    positions = index.positions.astype(np.int64)
    offsets = index.offsets
    is_sound = len(index) > 0 and (np.diff(positions) > 0).all() and (np.diff(offsets) > 0).all()
    return index if is_sound and positions[0] >= 0 and positions[-1] < segment.size else None


def _bytes_of(segment: Segment, index: OffsetIndex | None, first: int, end: int) -> tuple[int, int]:
    if index is None:
        return 0, segment.size
    start = index.floor(first).position
    behind = int(np.searchsorted(index.offsets, end - 1))  # the first entry at or after the last wanted offset
    behind += behind < len(index) and int(index.offsets[behind]) < end  # its batch still belongs to the range
    stop = int(index.positions[behind]) if behind < len(index) else segment.size
    return start, max(start, stop)


def _cut(piece: _Piece, target: int, extra: int, max_records: int) -> Iterator[Range]:
    """Parts of a piece of about the same size, no larger than the target as far as the index allows."""
    whole = piece.range
    count = -(-(whole.size + extra) // target)
    index = piece.offset_index or (offset_index(piece.segment) if count > 1 else None)
    first, start = whole.first_offset, whole.start
    if count > 1 and index is not None:
        goals = whole.start + whole.size * np.arange(1, count) // count
        slots = np.unique(np.searchsorted(index.positions.astype(np.int64), goals))
        for slot in slots[slots < len(index)].tolist():
            cut, position = int(index.offsets[slot]) + 1, int(index.positions[slot])
            if first < cut < whole.end_offset:
                yield from _capped(whole._replace(first_offset=first, end_offset=cut, start=start, end=position),
                                   max_records)  # fmt: skip
                first, start = cut, position
    yield from _capped(whole._replace(first_offset=first, start=start), max_records)


def _capped(part: Range, max_records: int) -> Iterator[Range]:
    """Parts with no more offsets than that; any offset is a place to cut."""
    count = max(1, -(-(part.end_offset - part.first_offset) // max_records)) if max_records else 1
    for i in range(count):
        first = part.first_offset + i * max_records
        yield part._replace(
            first_offset=first,
            end_offset=min(part.end_offset, first + max_records) if max_records else part.end_offset,
            start=part.start + part.size * i // count,
            end=part.start + part.size * (i + 1) // count,
        )


def _packed(ranges: Iterable[Range], target: int, max_records: int) -> Iterator[Task]:
    """Tasks of as many ranges as fit."""
    task: list[Range] = []
    size = offsets = 0
    for part in ranges:
        more, count = part.size + _OPEN_COST_BYTES, part.end_offset - part.first_offset
        if task and (size + more > target or (max_records and offsets + count > max_records)):
            yield tuple(task)
            task, size, offsets = [], 0, 0
        task.append(part)
        size += more
        offsets += count
    if task:
        yield tuple(task)


def url_of(files: FileSystem, path: str) -> str:
    """A path that means the same in another process."""
    return os.path.abspath(path) if isinstance(files, LocalFiles) else files.real(path)
