"""Two copies of a log: the first offset at which their batches differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Segment
from pylogseg.reading.seek import headers_from

_COMPARED = ("base_offset", "last_offset", "leader_epoch", "crc")


def differing_offset(one: Sequence[Segment], other: Sequence[Segment], start: int, end: int) -> int | None:
    """Compare the headers and CRCs of batches in a range of offsets; None if they are the same there."""
    sides = [_Headers(segments, start, end) for segments in (one, other)]
    at = start
    while True:
        pieces = [side.rows() for side in sides]
        count = min(map(len, pieces))
        if not count:
            return None if at >= end else at
        same = (pieces[0][:count] == pieces[1][:count]).all(axis=1)
        if not same.all():
            return max(start, int(min(piece[int(same.argmin())][0] for piece in pieces)))
        at = int(pieces[0][count - 1][1]) + 1
        for side in sides:
            side.skip(count)


class _Headers:
    """Headers of batches in a range of offsets, some at a time: first and last offset, epoch, CRC."""

    def __init__(self, segments: Sequence[Segment], start: int, end: int) -> None:
        self._windows = _windows(segments, start, end)
        self._left: npt.NDArray[Any] = np.empty((0, len(_COMPARED)), np.int64)

    def rows(self) -> npt.NDArray[Any]:
        """Return the next ones; none at the end."""
        while not len(self._left):
            window = next(self._windows, None)
            if window is None:
                break
            self._left = window
        return self._left

    def skip(self, count: int) -> None:
        self._left = self._left[count:]


def _windows(segments: Sequence[Segment], start: int, end: int) -> Iterator[npt.NDArray[Any]]:
    for segment in segments:
        if segment.next_base is not None and segment.next_base <= start:
            continue
        if segment.base_offset >= end:
            return
        with segment.open() as view:
            for table in headers_from(segment, view, 0):
                rows = table.rows[(table.last_offset >= start) & (table.base_offset < end)]
                if len(rows):
                    yield np.stack([rows[name].astype(np.int64) for name in _COMPARED], axis=1)
