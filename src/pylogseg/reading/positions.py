"""Find the position of an offset in a segment by its offset index.

An index is a hint: after a crash, a truncation or a compaction an entry may point to a position where no batch begins.
So the position is checked first; if the batches there do not match the entry, the search begins at the start of the
segment. Brokers before 3.9.1, and 4.0.0, write one entry for each append: its last offset (its first one before 1.1),
and the position of its first batch.
"""

from __future__ import annotations

from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import FileView
from pylogseg.errors import StorageError
from pylogseg.format.batch_head import BatchHead, parse_head
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.format.names import FileKind

#: Of an append that is looked through: a follower writes a megabyte at once, and larger requests have larger batches.
_MOST_BATCHES = 1 << 14


def position_of_offset(segment: Segment, view: FileView, offset: int) -> int:
    """Return a batch's position for a scan to an offset, as near as the offset index allows; 0 without a good one."""
    if offset <= segment.base_offset:
        return 0
    data = segment.hint(FileKind.OFFSET_INDEX)
    if not data:
        return 0
    index = OffsetIndex(data, segment.base_offset, segment.companions[FileKind.OFFSET_INDEX])
    if not len(index):
        return 0
    entry = index.floor(offset)
    try:
        return entry.position if _is_of_append(view, entry.position, entry.offset) else 0
    except StorageError:  # some bytes of it: a reader goes on behind them, from a batch before them
        return 0


def _is_of_append(view: FileView, position: int, offset: int) -> bool:
    """Check whether the batch at a position has an offset as its last one, or begins an append that has.

    The batches from there on have to end with just this offset: what only looks like a batch does not.
    """
    head = _head_at(view, position)
    if head is not None and head.base_offset == offset:
        return True
    for _ in range(_MOST_BATCHES):
        if head is None or head.last_offset >= offset:
            return head is not None and head.last_offset == offset
        position, before = position + head.size, head.last_offset
        head = _head_at(view, position)
        if head is not None and head.last_offset <= before:
            return False
    return False


def _head_at(view: FileView, position: int) -> BatchHead | None:
    """Return the header of the batch at a position; None if no batch can begin there."""
    if not 0 <= position < view.size:
        return None
    return parse_head(bytes(view.read(position, BATCH_HEADER_BYTES)), position)
