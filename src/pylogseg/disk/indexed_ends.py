"""The end of a segment as its indexes have it: a broker writes an entry behind the batch, so the batch was there."""

from __future__ import annotations

from collections.abc import Iterable

from pylogseg.disk.disk import Segment
from pylogseg.disk.folders import Folders
from pylogseg.errors import StorageError
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.format.names import FileKind

_INDEXES: dict[FileKind, type[OffsetIndex] | type[TimeIndex]] = {
    FileKind.OFFSET_INDEX: OffsetIndex,
    FileKind.TIME_INDEX: TimeIndex,
}


def indexed_end(segment: Segment) -> int:
    """Return the offset after the last one in the indexes of a segment; 0 if they have no entry."""
    paths = [(kind, path) for kind, path in segment.companions.items() if kind in _INDEXES]
    return end_in_indexes(segment.files, segment.base_offset, paths)


def end_in_indexes(files: Folders, base_offset: int, indexes: Iterable[tuple[FileKind, str]]) -> int:
    """Return the offset after the last one in indexes of a base offset; 0 if they have no entry, or cannot be read."""
    end = 0
    for kind, path in indexes:
        if kind not in _INDEXES:
            continue
        try:
            index = _INDEXES[kind](files.read_all(path), base_offset, path)
        except StorageError:
            continue
        if len(index.entries) and index.buffer.tobytes().strip(b"\0"):
            end = max(end, int(index.offsets[-1]) + 1)
    return end
