"""Finding the batch of an offset in the file of a segment.

Bytes that this process has written are read from a map. Bytes that were on the disk before are copied, as many as
needed: touching a mapped page that the disk has lost, or that another program has cut off, would kill the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from pylogseg._native import _lookup
from pylogseg.env.filesystem import Readable
from pylogseg.env.storage import AppendFile
from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable, scan
from pylogseg.log.batch_headers import BatchLocation, first_offset
from pylogseg.log.indexes import MutableOffsetIndex
from pylogseg.walker.broker_windows import broker_windows, check_length

#: Bytes of the first look: some distances between index entries, and the batch after; and the most for headers alone.
_FIRST_BYTES, _GROWTH, _MOST_BYTES = 1 << 14, 2, 4 << 20
_OPENED_GROWTH = 8
#: Up to so many bytes are read with the first look; more are copied once their position is known.
_WANTED_AT_ONCE_BYTES = 1 << 16
_HEADER_BYTES = 61  # of magic 2, the largest
#: Bytes up to the length, and up to the magic; a broker ignores a batch with fewer.
_PREFIX_BYTES, _LEAST_BYTES = 12, 17
_LOWEST = -(2**63)
#: The longest end of a segment that is read as a copy.
_MOST_TAIL_BYTES = 1 << 17
#: Results of a search: an impossible length, more bytes needed, and a file that is shorter than it was.
DAMAGED, _MORE_NEEDED, SHORTER = -2, -3, -4


class Located(NamedTuple):
    """A batch, and bytes around it."""

    offset: int
    position: int
    size: int
    view: memoryview  #: Of the file, including the batch; empty if only headers were read.
    start: int  #: Position of `view`.

    def data(self, file: AppendFile, size: int) -> memoryview | None:
        """Return up to `size` bytes from the batch on; None if the batch is not there any more."""
        here = self.view[self.position - self.start : self.position - self.start + size]
        if len(here) >= size:
            return here
        more = file.view(self.position, size)
        if not here:  # a truncation may have come in between
            head = (self.offset % 2**64).to_bytes(8, "big") + (self.size - _PREFIX_BYTES).to_bytes(4, "big")
            return more if more[:_PREFIX_BYTES] == head[: len(more)] and len(more) >= min(size, self.size) else None
        head = bytes(here[:_HEADER_BYTES])
        return more if more[: len(head)] == head else here


def find_batch(
    file: AppendFile,
    path: str,
    index: MutableOffsetIndex,
    base_offset: int,
    offset: int,
    wanted_bytes: int = 0,
    *,
    whole: bool = True,
) -> Located | None:
    """Return the batch that holds an offset, or the next one; None after the end, and where a broker stops.

    `wanted_bytes` will be read from the batch on, if there are any and `whole` at least the batch: if they have to be
    copied, it is done once.
    """
    if not file.copied_below:
        entries, count = index.raw()
        view = file.view(0, file.size)
        position, base, length = _lookup.place(entries, count, view, len(view), base_offset, offset)
        if position < 0:
            return None
        return Located(base, position, length, view, 0) if length else find_opening(view, path, offset, position)
    batch = file.by_descriptor(_lookup.read_in_file, index, base_offset, offset, wanted_bytes, whole)
    if batch is not None:
        position, base, length, data = batch
        if position == SHORTER:
            raise_cut(file)
        if position < 0:
            return None
        if length:
            return Located(base, position, length, memoryview(data), position)
        return _find_opening(file, path, offset, position)
    start = index.start_for(offset)
    if not 0 <= start <= file.size:
        return None
    look = least = _FIRST_BYTES + (wanted_bytes if wanted_bytes <= _WANTED_AT_ONCE_BYTES else 0)
    while True:
        rest = max(0, file.size - start)
        asked = min(least, rest) if start < file.copied_below else rest
        view = file.view(start, asked)
        if len(view) < asked:  # it was cut meanwhile
            rest = len(view)
        position, base, length = _lookup.place_in_part(view, rest, offset)
        if position == _MORE_NEEDED:
            start += base
            if length > _HEADER_BYTES:
                least = max(length, wanted_bytes)
            else:
                least = look = min(look * _GROWTH, _MOST_BYTES)
            continue
        if position < 0:
            return None
        if length:
            return Located(base, start + position, length, view, start)
        return _find_opening(file, path, offset, start + position)


def raise_cut(file: AppendFile) -> NoReturn:
    """Raise the error of a file that is shorter than it was."""
    file.read(file.size - 1, 1)  # raises, and says how much is left
    raise StorageError(file.path, "read", "it was cut by another program")


def _find_opening(file: AppendFile, path: str, offset: int, position: int) -> Located | None:
    """Find the batch, from one on that has to be decompressed to get its first offset."""
    for view, is_whole in _growing(file, position):
        batch = find_opening(view, path, offset, position, position)
        if is_whole or (batch is not None and _shows_next(batch, file.size)):
            return batch
    return None


def opening_at(file: AppendFile, path: str, position: int) -> Located | None:
    """Return the batch that begins at a position; None if none does."""
    for view, is_whole in _growing(file, position):
        batch = find_opening(view, path, _LOWEST, position, position)
        if batch is not None or is_whole:
            return batch
    return None


def _growing(file: AppendFile, start: int) -> Iterator[tuple[memoryview, bool]]:
    """Yield bytes from a position on, more each time, and whether they reach the end of the file."""
    size = file.size
    want = _FIRST_BYTES if start < file.copied_below else size - start
    while True:
        view = file.view(start, min(want, size - start))
        is_whole = want >= size - start or len(view) < want
        yield view, is_whole
        if is_whole:
            return
        want *= _OPENED_GROWTH


def _shows_next(found: Located, file_size: int) -> bool:
    """Return whether the bytes include the next batch's header, on which a search depends."""
    at = found.position + found.size - found.start
    if at + _LEAST_BYTES > len(found.view):
        return False
    length = int.from_bytes(found.view[at + 8 : at + _PREFIX_BYTES], "big", signed=True)
    end = at + _PREFIX_BYTES + length
    return end <= len(found.view) or found.start + end > file_size


# ---- compressed batches of magic 0 and 1: their headers have the last offset but not the first ----


def find_opening(view: memoryview, path: str, offset: int, position: int, start: int = 0) -> Located | None:
    """Find the batch for an offset from a batch at a position on, as a broker does; decompress batches if needed.

    The view has bytes of the segment's file from `start` on.
    """
    before, last_before = None, -1
    while len(rows := _first_batch(view, position - start, start)):
        base, last, size = int(rows.base_offset[0]), int(rows.last_offset[0]), int(rows.size[0])
        if base >= offset and rows.magic[0] < 2:
            base = first_offset(rows, view, path, start)
        here = Located(base, position, size, view, start)
        if base == offset:
            return here
        if base > offset:
            return before if before is not None and last_before >= offset else here
        before, last_before, position = here, last, position + size
    check_length(view[position - start :], path, position)
    return before if last_before >= offset else None


def _first_batch(view: memoryview, at: int, start: int) -> BatchTable:
    return scan(view, start=at, file_position=start, crc=False, max_rows=1, any_magic=True).batches


class _Tail:
    """The bytes of a file from a position on, copied: a load reads them once, which is not worth maps."""

    def __init__(self, file: AppendFile, start: int) -> None:
        self.path, self.start, self.size = file.path, start, file.size
        self.bytes = memoryview(file.read(start, self.size - start))

    def read(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes; see `AppendFile.view`."""
        return self.bytes[position - self.start : position - self.start + size]


def end_of_segment(
    file: AppendFile,
    path: str,
    index: MutableOffsetIndex,
    base_offset: int,
    place_of: Callable[[int], BatchLocation | None],
) -> tuple[int, int]:
    """Return offset and position after the last whole batch of a segment; base offset and 0 without any.

    `place_of` finds the batch that holds an offset by maps.
    """
    offset = index.last_offset if index.count else base_offset
    tail: tuple[int, Readable] | None = _last_batch(file, index, base_offset, offset)
    if tail is None:
        place = place_of(offset)
        if place is None:
            return base_offset, 0
        tail = place.position, file
    last, position = base_offset, tail[0]
    for window in broker_windows(tail[1], position):
        if len(window.batches):
            last = int(window.batches.last_offset[-1]) + 1
            position = int(window.batches.position[-1] + window.batches.size[-1])
    return last, position


def _last_batch(file: AppendFile, index: MutableOffsetIndex, base_offset: int, offset: int) -> tuple[int, _Tail] | None:
    """Return the position of the batch with the index's last offset, and a copy of the file that includes it.

    None if the copy would be long, if there is no such batch, or if it takes a full search.
    """
    start = index.place_of_last()
    if start is None or not 0 <= start <= file.size <= start + _MOST_TAIL_BYTES:
        return None
    tail = _Tail(file, start)
    position, _, length = _lookup.place(
        b"",
        0,
        tail.bytes,
        len(tail.bytes),
        base_offset,
        min(offset, 2**63 - 1),  # an entry may point beyond
    )
    return (start + position, tail) if position >= 0 < length else None
