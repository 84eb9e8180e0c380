"""The end of a segment, read as a copy: a load reads it once, which is not worth a map of file and index."""

from __future__ import annotations

from collections.abc import Callable

from pylogseg import _codec
from pylogseg.env.storage import AppendFile
from pylogseg.log.batch_headers import BatchLocation
from pylogseg.log.indexes import MutableOffsetIndex
from pylogseg.walker.broker_windows import Viewed, broker_windows

_MOST_BYTES = 1 << 17


class Tail:
    """The bytes of a file from a position on, copied."""

    def __init__(self, file: AppendFile, start: int) -> None:
        self.start, self.size = start, file.size
        self.bytes = memoryview(file.read(start, self.size - start))

    def read(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes; see `AppendFile.view`."""
        return self.bytes[position - self.start : position - self.start + size]


def end_of(
    file: AppendFile,
    path: str,
    index: MutableOffsetIndex,
    base_offset: int,
    place_of: Callable[[int], BatchLocation | None],
) -> tuple[int, int]:
    """Return offset and position after the last whole batch of a segment; base offset and 0 without any.

    Parameters
    ----------
    file, path, index, base_offset
        The segment's.
    place_of : callable
        Finds the batch that holds an offset by maps.
    """
    offset = index.last_offset if index.entries else base_offset
    found: tuple[int, Viewed] | None = _last_batch(file, index, base_offset, offset)
    if found is None:
        place = place_of(offset)
        if place is None:
            return base_offset, 0
        found = place.position, file
    last, position = base_offset, found[0]
    for window in broker_windows(found[1], path, position, recovering=False):
        if len(window.batches):
            last = int(window.batches.last_offset[-1]) + 1
            position = int(window.batches.position[-1] + window.batches.size[-1])
    return last, position


def _last_batch(file: AppendFile, index: MutableOffsetIndex, base_offset: int, offset: int) -> tuple[int, Tail] | None:
    """Return the position of the batch with the index's last offset, and a copy of the file that includes it.

    None if the copy would be long, if there is no such batch, or if it takes a full search.
    """
    start = index.place_of_last()
    if start is None or not 0 <= start <= file.size <= start + _MOST_BYTES:
        return None
    tail = Tail(file, start)
    position, _, length = _codec.place(
        b"",
        0,
        tail.bytes,
        len(tail.bytes),
        base_offset,
        min(offset, 2**63 - 1),  # an entry may point beyond
    )
    return (start + position, tail) if position >= 0 < length else None
