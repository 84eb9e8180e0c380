"""Search among compressed batches of magic 0 and 1, whose headers have the last offset but not the first."""

from __future__ import annotations

from pylogseg.format.batches import BatchTable, scan
from pylogseg.log.batch_headers import first_offset
from pylogseg.log.segment_located import Located
from pylogseg.walker.broker_windows import check_length


def find_opening(view: memoryview, path: str, offset: int, position: int, start: int = 0) -> Located | None:
    """Find the batch for an offset from a position on, as a broker does; decompress batches if needed.

    Parameters
    ----------
    view : memoryview
        Bytes of a segment's file.
    path : str
        Its name, for an error.
    offset : int
        The offset to find.
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
