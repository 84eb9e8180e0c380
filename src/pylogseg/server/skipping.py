"""Logs without their damage: segments are verified when their log is opened, and bad batches are left out of them.

A segment with damage is shown, to the log that is opened over it, as its good batches back to back. Cleaning leaves
gaps that look the same, so every reader of a log steps over them. Its indexes have other positions: they are left out
too, and opening the log makes them again, in memory.
"""

from __future__ import annotations

import functools
import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from pylogseg.disk.disk import Segment
from pylogseg.env.overlay import OverlayStorage
from pylogseg.env.overlay_files import Read
from pylogseg.errors import CorruptionError
from pylogseg.format.escape import printable
from pylogseg.format.names import FileKind
from pylogseg.log.log import Log
from pylogseg.reading.offset_order import Order
from pylogseg.reading.removed_segments import open_or_gap
from pylogseg.server.sources import place
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window, walk

_log = logging.getLogger(__name__)

_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
#: Of a segment with more good ranges they are not kept: it is verified again when its log is opened again.
_MOST_RANGES = 1000
#: So many places of a segment are logged; the others are counted.
_MOST_TOLD = 20


class DamageLeftOut(NamedTuple):
    """Records that consumers do not get."""

    places: int
    size: int


class _Verified(NamedTuple):
    """The good ranges of a segment's file, and the gaps between and behind them."""

    ranges: list[tuple[int, int]]
    gaps: list[Gap]


class Skipping:
    """Keeps damage away from logs, and counts it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._found: dict[str, DamageLeftOut] = {}
        #: What was verified, by the segment's path: a log may be opened again.
        self._known: dict[str, _Verified] = {}

    @property
    def left_out(self) -> DamageLeftOut:
        """Places and bytes of the logs that were opened so far."""
        with self._mutex:
            return DamageLeftOut(
                sum(loss.places for loss in self._found.values()), sum(loss.size for loss in self._found.values())
            )

    def open_log(self, storage: OverlayStorage, segments: Sequence[Segment], opened: Callable[[], Log]) -> Log:
        """Open a log over a storage, without the damage in its files."""
        self._clean(storage, segments)
        while True:
            try:
                return opened()
            except CorruptionError as error:
                # Without its checkpoint a broker does not open the log; what it says is in the batches too.
                if not error.path.endswith(FileKind.LEADER_EPOCHS.value) or not storage.remove(error.path):
                    raise
                with self._mutex:
                    is_new = error.path not in self._found
                    self._found[error.path] = DamageLeftOut(1, 0)
                if is_new:
                    _log.warning("left out: %s", printable(str(error)))

    def _clean(self, storage: OverlayStorage, segments: Sequence[Segment]) -> None:
        """Verify the segments of a log, and hide their damage."""
        sizes: list[int] = []
        is_damaged = False
        for segment in segments:
            ranges, gaps = self._verify_once(segment)
            sizes.append(sum(end - start for start, end in ranges))
            if not gaps:
                continue
            _remove_indexes(storage, segment)
            damage = [gap for gap in gaps if gap.is_damage]
            if damage:  # else it is a torn tail, which opening the log cuts off
                is_damaged = True
                self._tell(segment, damage)
                storage.show(place(segment.files, segment.path), sizes[-1], functools.partial(_join_ranges, ranges))
        # A log ends with a batch: consumers would wait for ever for offsets up to the base of an empty segment.
        while is_damaged and len(sizes) > 1 and not sizes[-1]:
            sizes.pop()
            storage.remove(place(segments[len(sizes)].files, segments[len(sizes)].path))
            _remove_indexes(storage, segments[len(sizes)])

    def _verify_once(self, segment: Segment) -> _Verified:
        verified = self._known.get(segment.path)
        if verified is None:
            verified = _verify(segment)
            if len(verified.ranges) <= _MOST_RANGES:
                self._known[segment.path] = verified
        return verified

    def _tell(self, segment: Segment, gaps: list[Gap]) -> None:
        with self._mutex:
            is_new = segment.path not in self._found
            self._found[segment.path] = DamageLeftOut(len(gaps), sum(gap.end_position - gap.position for gap in gaps))
        if not is_new:
            return
        for gap in gaps[:_MOST_TOLD]:
            _log.warning("left out: %s", printable(str(gap)))
        if len(gaps) > _MOST_TOLD:
            _log.warning("%s: %d more places are left out", printable(segment.path), len(gaps) - _MOST_TOLD)


def _remove_indexes(storage: OverlayStorage, segment: Segment) -> None:
    stem = place(segment.files, segment.path).removesuffix(FileKind.LOG.value)
    for kind in _INDEXES:
        storage.remove(stem + kind.value)


def _verify(segment: Segment) -> _Verified:
    """Return the good ranges of a segment, and the gaps between and behind them."""
    opened = open_or_gap(segment, segment.base_offset, segment.next_base)
    if isinstance(opened, Gap):
        return _Verified([], [opened])
    ranges: list[tuple[int, int]] = []
    gaps: list[Gap] = []
    with opened as view:
        order = Order(segment, view)
        for item in walk(view, lowest_offset=segment.base_offset, is_last=segment.is_last):
            if isinstance(item, Window):
                rows, misplaced, _ = order.check(item.batches)
                gaps += misplaced
                for start, end in _runs(rows.position.tolist(), rows.size.tolist()):
                    if ranges and ranges[-1][1] == start:
                        ranges[-1] = ranges[-1][0], end
                    else:
                        ranges.append((start, end))
            else:
                gaps += [*order.finish(item.next_offset), item]
        gaps += order.finish()
    return _Verified(ranges, gaps)


def _runs(positions: list[int], sizes: list[int]) -> list[tuple[int, int]]:
    """Return the ranges of bytes of some batches, neighbours together."""
    if not positions:
        return []
    if positions[-1] + sizes[-1] - positions[0] == sum(sizes):
        return [(positions[0], positions[-1] + sizes[-1])]
    return [(position, position + size) for position, size in zip(positions, sizes, strict=True)]


def _join_ranges(ranges: list[tuple[int, int]], read: Read) -> Read:
    """Return a function that reads ranges of a file as if they lay back to back."""
    starts = [0, *accumulate(end - start for start, end in ranges)]

    def read_joined(path: str, position: int, size: int) -> memoryview:
        pieces = []
        at = bisect_right(starts, position) - 1
        while size > 0 and at < len(ranges):
            inside = position - starts[at]
            length = min(size, starts[at + 1] - position)
            pieces.append(read(path, ranges[at][0] + inside, length))
            position, size, at = position + length, size - length, at + 1
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))

    return read_joined
