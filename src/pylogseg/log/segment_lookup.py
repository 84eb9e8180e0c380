"""Finding the batch of an offset in the file of a segment.

Bytes that this process has written are read from a map. Bytes that were on the disk before are copied, as many as
needed: touching a mapped page that the disk has lost, or that another program has cut off, would kill the process.
"""

from __future__ import annotations

from collections.abc import Iterator

from pylogseg import _codec
from pylogseg.env.storage import AppendFile
from pylogseg.log.indexes import MutableOffsetIndex
from pylogseg.log.segment_located import Located
from pylogseg.log.segment_wrappers import find_opening

#: Bytes of the first look: some distances between index entries, and the batch after; and the most for headers alone.
_FIRST_BYTES, _GROWTH, _MOST_BYTES = 1 << 14, 2, 4 << 20
_OPENED_GROWTH = 8
#: Up to so many bytes are read with the first look; more are copied once their position is known.
_WANTED_AT_ONCE_BYTES = 1 << 16
_HEADER_BYTES = 61  # of magic 2, the largest
#: Bytes up to the length, and up to the magic; a broker ignores a batch with fewer.
_PREFIX_BYTES, _LEAST_BYTES = 12, 17
_LOWEST = -(2**63)
DAMAGED, _MORE_NEEDED = -2, -3  # results of a search: an impossible length, and more bytes needed


def find(
    file: AppendFile, path: str, index: MutableOffsetIndex, base_offset: int, offset: int, wanted_bytes: int = 0
) -> Located | None:
    """Return the batch that holds an offset, or the next one; None after the end, and where a broker stops.

    Parameters
    ----------
    file, path, index, base_offset
        The segment's.
    offset : int
        Looked for.
    wanted_bytes : int
        Bytes to read from the batch on; if they have to be copied, it is done once.
    """
    if not file.copied_below:
        entries, count = index.raw()
        view = file.view(0, file.size)
        position, base, length = _codec.place(entries, count, view, len(view), base_offset, offset)
        if position < 0:
            return None
        return Located(base, position, length, view, 0) if length else find_opening(view, path, offset, position)
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
        position, base, length = _codec.place_in_part(view, rest, offset)
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


def _find_opening(file: AppendFile, path: str, offset: int, position: int) -> Located | None:
    """Find the batch, from one on that has to be decompressed to get its first offset."""
    for view, is_whole in _growing(file, position):
        found = find_opening(view, path, offset, position, position)
        if is_whole or (found is not None and _shows_next(found, file.size)):
            return found
    return None


def opening_at(file: AppendFile, path: str, position: int) -> Located | None:
    """Return the batch that begins at a position; None if none does."""
    for view, is_whole in _growing(file, position):
        found = find_opening(view, path, _LOWEST, position, position)
        if found is not None or is_whole:
            return found
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
