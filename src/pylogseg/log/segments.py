"""The segments of a log, by base offset."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict

from pylogseg.format.batches import BatchTable
from pylogseg.log.segment import LogSegment


class Segments:
    """A sorted map of base offset to segment.

    Attributes
    ----------
    first, active : LogSegment or None
        Those with the lowest and the highest base offset.
    """

    __slots__ = ("_map", "active", "first")

    def __init__(self) -> None:
        self._map: SortedDict[int, LogSegment] = SortedDict()
        self.first: LogSegment | None = None
        self.active: LogSegment | None = None

    def __len__(self) -> int:
        return len(self._map)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(list(self._map.values()))

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._map

    def add(self, segment: LogSegment) -> None:
        """Put a segment in; one with the same base offset is replaced."""
        self._map[segment.base_offset] = segment
        self._changed()

    def remove(self, base_offset: int) -> None:
        """Take a segment out, if it is there."""
        self._map.pop(base_offset, None)
        self._changed()

    def clear(self) -> None:
        """Take all out."""
        self._map.clear()
        self._changed()

    def _changed(self) -> None:
        self.first = self._map.peekitem(0)[1] if self._map else None
        self.active = self._map.peekitem(-1)[1] if self._map else None

    @property
    def base_offsets(self) -> list[int]:
        """Ascending."""
        return list(self._map.keys())

    @property
    def size(self) -> int:
        """Bytes of batches in all of them."""
        return sum(segment.size for segment in self._map.values())

    def floor(self, offset: int) -> LogSegment | None:
        """The segment that holds an offset, if any does: the last one that does not begin above it."""
        active = self.active
        if active is not None and active.base_offset <= offset:  # most reads are of what came last
            return active
        at = self._map.bisect_right(offset)
        return self._map.peekitem(at - 1)[1] if at else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """The next segment."""
        at = self._map.bisect_right(base_offset)
        return self._map.peekitem(at)[1] if at < len(self._map) else None

    def from_offset(self, offset: int, end: int = 2**63 - 1) -> list[LogSegment]:
        """The segment that holds an offset (or the first one behind it) and those after it that begin below `end`."""
        if not self._map or end <= offset:
            return []
        floor = self.floor(offset)
        low = floor.base_offset if floor is not None else offset
        return [self._map[base] for base in self._map.irange(low, end, inclusive=(True, False))]

    def read_rows(
        self, base_offset: int, start_offset: int, end_offset: int | None
    ) -> Iterator[tuple[BatchTable, memoryview, int]]:
        """Batches of a segment in pieces (rows, buffer, its position), from one offset up to the batch of another."""
        segment: LogSegment = self._map[base_offset]
        place = segment.place_of(start_offset)
        if place is None:
            return
        last = None if end_offset is None else segment.place_of(end_offset)
        end = segment.size if last is None else last.position
        for stretch in segment.windows(place.position):
            rows = stretch.batches
            inside = rows[rows.position < end]
            if len(inside):
                yield inside, stretch.view, stretch.start
            if len(inside) < len(rows):
                return
