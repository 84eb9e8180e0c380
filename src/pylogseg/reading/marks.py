"""Whether a segment is as an earlier run saw it: by size and time, and by the headers of its batches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from pylogseg.catalog.disk import Segment
from pylogseg.errors import StorageError
from pylogseg.format.layout import BATCH_HEADER
from pylogseg.reading.header_reader import read_headers
from pylogseg.walker.windows import WINDOW_BYTES

_HEADERS = 4096
_NO_OFFSET = 2**63 - 1


def mark_of(segment: Segment) -> list[Any]:
    """Return what tells one state of a segment from another; take it before the records are read.

    A cleaner and `redact` write files anew and keep their time. Not so in an object store, which sets it itself.
    """
    return [segment.size, segment.modified_ms, _digest_of(segment)]


def is_marked(segment: Segment, mark: Sequence[Any]) -> bool:
    """Check whether a segment is in the state of a mark. A file that cannot be read is in none."""
    early = [segment.size, segment.modified_ms]
    return list(mark[:2]) == early and mark[-1] is not None and list(mark) == mark_of(segment)


def _digest_of(segment: Segment) -> str | None:
    """Return a digest of headers, with their checksums, and of all bytes from where no batch of magic 2 follows."""
    digest, position = hashlib.sha256(), 0
    memory = memoryview(bytearray(_HEADERS * BATCH_HEADER.size))
    try:
        with segment.open() as view:
            if not hasattr(view, "fileno"):
                return ""
            count, end = 1, view.size
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
