"""Compare a segment with its state in an earlier run: by its content, never by size and time alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from pylogseg.disk.disk import Segment
from pylogseg.errors import StorageError
from pylogseg.format.layout import BATCH_HEADER
from pylogseg.reading.header_reader import read_headers, tells_headers
from pylogseg.walker.windows import WINDOW_BYTES

_HEADERS = 4096
_NO_OFFSET = 2**63 - 1


def mark_of(segment: Segment) -> list[Any]:
    """Return a mark of the state of a segment; take it before the records are read.

    A cleaner and `redact` write files anew and keep their time. A store sets the time itself, also when the same bytes
    come again, and has a tag of what they are.
    """
    return [*_early(segment), _content_of(segment)]


def is_marked(segment: Segment, mark: Sequence[Any]) -> bool:
    """Check whether a segment is in the state of a mark. A file that cannot be read is in none."""
    return list(mark[:2]) == _early(segment) and mark[-1] is not None and list(mark) == mark_of(segment)


def _early(segment: Segment) -> list[Any]:
    return [segment.size, None if hasattr(segment.files, "tag") else segment.modified_ms]


def _content_of(segment: Segment) -> str | None:
    """Return a mark of the content; for an upload, which never changes, its id. None if it cannot be read."""
    files: Any = segment.files
    try:
        uploaded = files.slice_of(segment.path) if hasattr(files, "slice_of") else None
        if uploaded is not None:
            return f"{uploaded.upload.segment.segment_id} {uploaded.first_offset} {uploaded.end_offset}"
        tag = files.tag(segment.path) if hasattr(files, "tag") else ""
    except StorageError:
        return None
    return tag or _digest_of(segment)


def _digest_of(segment: Segment) -> str | None:
    """Return a digest of headers, with their checksums, and of all bytes from where no batch of magic 2 follows.

    All bytes of a file in a store are read: its headers alone would be a request for each batch.
    """
    digest, position = hashlib.sha256(), 0
    memory = memoryview(bytearray(_HEADERS * BATCH_HEADER.size))
    try:
        with segment.open() as view:
            count, end = int(tells_headers(view)), view.size
            while count:
                count, position = read_headers(view, position, _NO_OFFSET, memory)
                digest.update(memory[: count * BATCH_HEADER.size])
            while position < end:
                data = view.read(position, min(WINDOW_BYTES, end - position))
                if not len(data):  # cut off meanwhile
                    return None
                digest.update(data)
                position += len(data)
    except StorageError:
        return None
    return digest.hexdigest()
