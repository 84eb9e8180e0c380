"""The segments of a log, by base offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from sortedcontainers import SortedDict

from pylogseg.format.batches import BatchTable
from pylogseg.log.segment import LogSegment


class Segments:
    """A sorted map of base offset to segment.

    One thread at a time changes it, any number may read it meanwhile. The map itself is the writer's; readers search
    two lists, which every change rebuilds and replaces in one step.
    """

    __slots__ = ("_map", "_sorted", "active", "first")

    def __init__(self) -> None:
        self.first: LogSegment | None = None
        self.active: LogSegment | None = None
        self._map: SortedDict[int, LogSegment] = SortedDict()
        self._publish()

    def __len__(self) -> int:
        return len(self._sorted[0])

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._sorted[1])

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._map

    def holds(self, segment: LogSegment) -> bool:
        """Return whether this very segment is in the map, not another one with its base offset."""
        return self._map.get(segment.base_offset) is segment

    def add(self, segment: LogSegment) -> None:
        """Add a segment; replace one with the same base offset."""
        self._map[segment.base_offset] = segment
        self._publish()

    def remove(self, base_offset: int) -> None:
        self._map.pop(base_offset, None)
        self._publish()

    def clear(self) -> None:
        self._map.clear()
        self._publish()

    def _publish(self) -> None:
        bases = list(self._map)
        segments = [self._map[base] for base in bases]
        self._sorted: tuple[list[int], list[LogSegment]] = bases, segments
        self.first = segments[0] if segments else None
        self.active = segments[-1] if segments else None

    def snapshot(self) -> tuple[list[int], list[LogSegment]]:
        """Return base offsets and segments of one moment, not to be changed: a cleaning replaces several at once."""
        return self._sorted

    @property
    def base_offsets(self) -> list[int]:
        return self._sorted[0].copy()

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._sorted[1])

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment that holds an offset, if any does: the last one that does not begin above it."""
        active = self.active
        if active is not None and active.base_offset <= offset:  # most reads are of the newest records
            return active
        bases, segments = self._sorted
        at = bisect_right(bases, offset)
        return segments[at - 1] if at else None

    def higher(self, base_offset: int) -> LogSegment | None:
        bases, segments = self._sorted
        at = bisect_right(bases, base_offset)
        return segments[at] if at < len(segments) else None

    def from_offset(self, offset: int, end: int = 2**63 - 1) -> list[LogSegment]:
        """Return the segments from the one that holds an offset, or the first after it, that begin below `end`."""
        bases, segments = self._sorted
        return segments[max(bisect_right(bases, offset) - 1, 0) : bisect_left(bases, end)] if end > offset else []

    def read_rows(
        self, base_offset: int, start_offset: int, end_offset: int | None
    ) -> Iterator[tuple[BatchTable, memoryview, int]]:
        """Yield batches of a segment in pieces (rows, buffer, its position), between the batches of two offsets."""
        bases, segments = self._sorted
        segment = segments[bisect_left(bases, base_offset)]
        place = segment.place_of(start_offset)
        if place is None:
            return
        last = None if end_offset is None else segment.place_of(end_offset)
        end = segment.size if last is None else last.position
        for window in segment.windows(place.position):
            rows = window.batches
            inside = rows[rows.position < end]
            if len(inside):
                yield inside, window.buffer, window.file_position
            if len(inside) < len(rows):
                return
