"""Files with bytes that the disk cannot read: lost ranges read as zeros, all other bytes as they are."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.env.filesystem import Readable, next_data
from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.walker.gaps import Gap, GapKind

#: Errors about lost bytes; any other error concerns the whole file.
_LOST = {
    getattr(errno, name)
    for name in ("EIO", "EBADMSG", "EREMOTEIO", "ENODATA", "EUCLEAN", "EILSEQ")
    if hasattr(errno, name)
}
#: Bytes to read at a time to find the lost ones: first large pieces, then pages.
_PIECE_BYTES, _PAGE_BYTES = 128 << 10, 4096


def is_lost(error: StorageError) -> bool:
    """Check whether an error concerns only some bytes of a file, so that others may be readable."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _LOST


class Patched:
    """A view of a file with zeros in place of unreadable bytes; the file is read only through it."""

    def __init__(self, view: Readable) -> None:
        self._view, self.path = view, view.path
        self.lost: list[tuple[int, int]] = []  #: Half-open ranges, in the order they were found, each once.
        self._said = ""
        self._reasons: dict[int, str] = {}  # by the start of a range
        self._into = getattr(view, "read_into", None)
        if self._into is None:
            self.read_into = None  # type: ignore[assignment, method-assign]

    @property
    def size(self) -> int:
        return self._view.size

    def read(self, position: int, size: int) -> Any:
        if not self._touches(position, position + size):
            try:
                return self._view.read(position, size)
            except StorageError as error:
                self._note(error)
        return self._read_patched(position, size)

    def read_into(self, position: int, memory: memoryview) -> int:
        assert self._into is not None
        if not self._touches(position, position + len(memory)):
            try:
                return int(self._into(position, memory))
            except StorageError as error:
                self._note(error)
        data = self._read_patched(position, len(memory))
        memory[: len(data)] = data
        return len(data)

    def next_data(self, position: int) -> int:
        return next_data(self._view, position)

    def _note(self, error: StorageError) -> None:
        if not is_lost(error):
            raise error
        self._said = error.reason

    def _touches(self, start: int, end: int) -> bool:
        return bool(self.lost) and any(first < end and start < last for first, last in self.lost)

    def _read_patched(self, position: int, size: int) -> bytearray:
        data = bytearray(max(0, min(size, self.size - position)))
        self._fill(data, position, position, position + len(data), _PIECE_BYTES)
        return data

    def _fill(self, data: bytearray, origin: int, start: int, end: int, step: int) -> None:
        """Read all readable pieces; pieces begin at multiples of a size."""
        while start < end:
            stop = min(end, start - start % step + step)
            if step > _PAGE_BYTES and self._touches(start, stop):
                self._fill(data, origin, start, stop, _PAGE_BYTES)
            elif self._touches(start, stop):  # a range of an object need not begin with a page
                for first, last in self._readable(start, stop):
                    self._fill(data, origin, first, last, step)
            else:
                try:
                    data[start - origin : stop - origin] = self._view.read(start, stop - start)
                except StorageError as error:
                    self._note(error)
                    lost = self._first_lost(start, stop)
                    if lost is not None:
                        self._fill(data, origin, start, lost[0], step)
                        self._lose(*lost)
                        start = min(lost[1], end)
                        continue
                    if step > _PAGE_BYTES:
                        self._fill(data, origin, start, stop, _PAGE_BYTES)
                    else:
                        self._lose(start - start % step, min(self.size, start - start % step + step))
            start = stop

    def _readable(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges between the lost ones."""
        ranges = []
        for first, last in sorted(self.lost):
            if start < min(first, end):
                ranges.append((start, min(first, end)))
            start = max(start, last)
        return [*ranges, (start, end)] if start < end else ranges

    def _first_lost(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the first lost range that a view of several pieces knows; pages are tried where it knows none.

        Such a view has a method `lost_range`, which says where its first unreadable piece of a range begins and ends.
        """
        find = getattr(self._view, "lost_range", None)
        lost: tuple[int, int] | None = None if find is None else find(start, end)
        return lost if lost is None else (max(lost[0], start), lost[1])

    def _lose(self, start: int, end: int) -> None:
        self._reasons.setdefault(start, self._said)
        if self.lost and self.lost[-1][1] == start:
            start = self.lost.pop()[0]
        self.lost.append((start, end))

    def mask_touched(self, rows: BatchTable) -> npt.NDArray[np.bool_]:
        """Return a mask of the batches that have unreadable bytes."""
        start = rows.position
        end = start + rows.size
        touched = np.zeros(len(rows), np.bool_)
        for first, last in self.lost:
            touched |= (start < last) & (end > first)
        return touched

    def explain(self, gap: Gap) -> Gap:
        """Return the gap; as UNREADABLE if it has unreadable bytes."""
        inside = [(a, b) for a, b in self.lost if a < gap.end_position and gap.position < b]
        if not inside:
            return gap
        more = f" and {len(inside) - 1} more ranges" if len(inside) > 1 else ""
        reason = f"bytes {inside[0][0]} to {inside[0][1]}{more} cannot be read: {self._reasons[inside[0][0]]}"
        return gap._replace(kind=GapKind.UNREADABLE, reason=reason, is_damage=True)
