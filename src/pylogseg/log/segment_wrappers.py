"""Compressed batches of magic 0 and 1: they tell their last offset, and the first one only when they are opened."""

from __future__ import annotations

from pylogseg.format.batches import BatchTable, scan
from pylogseg.log.batch_headers import first_offset
from pylogseg.log.segment_located import Located
from pylogseg.log.stretches import check_length


def find_opening(view: memoryview, path: str, offset: int, position: int, start: int = 0) -> Located | None:
    """The batch that a broker finds for an offset, from a position on; batches whose headers do not tell are opened.

    Parameters
    ----------
    view : memoryview
        Bytes of a segment's file.
    path : str
        Its name, for an error.
    offset : int
        Looked for.
    position : int
        Of a batch.
    start : int
        Position of the bytes in the file.
    """
    before, last_before = None, -1
    while len(rows := _first_batch(view, position - start, start)):
        base, last, size = int(rows.base_offset[0]), int(rows.last_offset[0]), int(rows.size[0])
        if base >= offset and rows.magic[0] < 2:
            base = first_offset(rows, view, path, start)
        found = Located(base, position, size, view, start)
        if base == offset:
            return found
        if base > offset:
            return before if before is not None and last_before >= offset else found
        before, last_before, position = found, last, position + size
    check_length(view[position - start :], path, position)
    return before if last_before >= offset else None


def _first_batch(view: memoryview, at: int, start: int) -> BatchTable:
    return scan(view, start=at, file_position=start, crc=False, max_rows=1, any_magic=True).batches
