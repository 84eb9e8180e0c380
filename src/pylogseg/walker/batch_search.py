"""Search for the next good batch after damage, at every byte, at a cost bounded by the size of the file."""

from __future__ import annotations

import numpy as np

from pylogseg import _codec
from pylogseg.env.filesystem import Readable, next_data

#: Bytes that may be read or checksummed in vain, for each byte of the file.
BUDGET_FACTOR = 16
_FIRST_BYTES, _MOST_BYTES = 16 << 10, 16 << 20
_SMALLEST_BATCH_BYTES, _HEADER_BYTES = 26, 61


class BatchSearch:
    """Finds good batches in a range of one file, with one budget for all searches in it.

    Bytes that only look like a batch cost their whole length to reject. Many such places would make a search quadratic,
    so each is charged to the budget, and the search ends when the budget is used up.
    """

    def __init__(self, view: Readable, start: int, end: int) -> None:
        self._view, self._end = view, end
        self._budget = BUDGET_FACTOR * (end - start) + _MOST_BYTES

    @property
    def is_exhausted(self) -> bool:
        """True if the budget is used up: too many bytes only look like a batch."""
        return self._budget < 0

    def spend(self, size: int) -> None:
        """Charge bytes that were read in vain to the budget."""
        self._budget -= size

    def next(self, position: int, lowest_offset: int) -> int | None:
        """Return the position of the next whole batch with a good CRC and a plausible offset; None if there is none."""
        size = _FIRST_BYTES
        while self._end - position >= _SMALLEST_BATCH_BYTES and not self.is_exhausted:
            # The first bytes of a batch, offset and length, may be the zeros at the end of a hole.
            position = max(position, min(next_data(self._view, position), self._end) - 16)
            buffer = self._view.read(position, min(size, self._end - position))
            left = self._end - position - len(buffer)
            at, needed, self._budget = _codec.find_batch(buffer, 0, len(buffer), lowest_offset, self._budget, left)
            if at >= 0 and at + needed <= len(buffer):
                return position + at
            if at >= 0:  # it extends beyond the bytes that were read
                position += at
                if self._holds(position, needed, lowest_offset):
                    return position
                position += 1
            elif not left or not len(buffer):  # the latter: cut off meanwhile
                return None
            else:
                position += max(1, len(buffer) - _HEADER_BYTES + 1)
                size = min(2 * size, _MOST_BYTES)
        return None

    def _holds(self, position: int, size: int, lowest_offset: int) -> bool:
        self.spend(size + _FIRST_BYTES)
        if self.is_exhausted:
            return False
        data = self._view.read(position, size)
        return bool(_codec.find_batch(data, 0, len(data), lowest_offset, 0, 0)[0] == 0)


def is_zero(view: Readable, position: int, end: int) -> bool:
    """Check whether a range of a file holds only zero bytes."""
    size = _FIRST_BYTES
    while (position := next_data(view, position)) < end:
        data = np.frombuffer(view.read(position, min(size, end - position)), np.uint8)
        if data.any():
            return False
        if not len(data):
            return True
        position += len(data)
        size = min(2 * size, _MOST_BYTES // 4)
    return True
