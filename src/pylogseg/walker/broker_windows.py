"""The batches of a segment's file, in windows of a few megabytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from pylogseg.errors import CorruptionError, Ending, Verdict
from pylogseg.format.batches import BatchTable, scan

_WINDOW_BYTES = 4 << 20
# A broker reads a length if more bytes than these are left, and accepts none below the smallest record of magic 0.
_LEAST_READ_BYTES, _LEAST_SIZE = 17, 14
_MAGIC_AT = 16


class BrokerWindow(NamedTuple):
    """Whole batches, the buffer that they are in, the position of that buffer in the file, and how they end."""

    batches: BatchTable
    view: memoryview
    start: int
    ending: Ending


class Viewed(Protocol):
    """A file that can be viewed."""

    @property
    def size(self) -> int: ...
    def read(self, position: int, size: int) -> bytes | memoryview: ...


def broker_windows(file: Viewed, path: str, start: int, *, recovering: bool) -> Iterator[BrokerWindow]:
    """Yield whole batches from a position on; end where the file's end cuts one off.

    An impossible length is an error as in a broker, but not in a recovery, which checks the CRC too.
    """
    size = file.size
    want = _WINDOW_BYTES
    while start < size:
        # A copy: touching a mapped page that the disk has lost would kill the process.
        view = memoryview(file.read(start, min(want, size - start)))
        found = scan(view, file_position=start, crc=recovering, any_magic=True)
        if recovering:
            _refuse_negative_magic(found.batches, view, start)
        if not len(found.batches) and found.ending is Ending.TORN and len(view) < size - start:
            want *= 2
            continue
        want = _WINDOW_BYTES
        yield BrokerWindow(found.batches, view, start, found.ending)
        if found.position == start:
            if not recovering:
                check_length(view, path, start)
            return
        start = found.position


def _refuse_negative_magic(rows: BatchTable, view: memoryview, start: int) -> None:
    """Refuse a magic from 128 on: a broker reads it as negative, where the checksum lies elsewhere."""
    magic = np.frombuffer(view, np.int8)[rows.position - start + _MAGIC_AT]
    if len(negative := np.flatnonzero(magic < 0)):
        rows.rows["verdict"][negative] = Verdict.CRC_BAD


def check_length(view: memoryview, path: str, position: int) -> None:
    """Refuse an impossible length at a position where a batch should begin, as a broker does."""
    size = int.from_bytes(view[8:12], "big", signed=True)
    if len(view) > _LEAST_READ_BYTES and size < _LEAST_SIZE:
        reason = f"{size} is not a valid length of a batch; recovery after an unclean shutdown cuts the log off here"
        raise CorruptionError(path, position, reason)
