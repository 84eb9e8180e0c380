"""The windows of a file up to where a broker stops: recovery, cleaning and Kafka's dump tool see no further."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from pylogseg.env.filesystem import Readable
from pylogseg.errors import CorruptionError, Verdict
from pylogseg.format.batches import BatchTable, scan
from pylogseg.walker.windows import Memory, Window, no_memory, read_window

_WINDOW_BYTES = 4 << 20
# A broker reads a length if more bytes than these are left, and accepts none below the smallest record of magic 0.
_LEAST_READ_BYTES, _LEAST_SIZE = 17, 14
_MAGIC_AT = 16
_scan = partial(scan, any_magic=True)


def check_length(view: memoryview, path: str, position: int) -> None:
    """Refuse an impossible length at a position where a batch should begin, as a broker does."""
    size = int.from_bytes(view[8:12], "big", signed=True)
    if len(view) > _LEAST_READ_BYTES and size < _LEAST_SIZE:
        reason = f"{size} is not a valid length of a batch; recovery after an unclean shutdown cuts the log off here"
        raise CorruptionError(path, position, reason)


def broker_windows(
    file: Readable,
    start: int,
    *,
    end: int | None = None,
    crc: bool = False,
    at_stop: Callable[[memoryview, str, int], None] = check_length,
    memory: Memory = no_memory,
) -> Iterator[Window]:
    """Yield whole batches from a position on; end where no batch begins, or the file's end cuts one off.

    A magic above 2 counts as 2. `at_stop` gets the bytes there, the path and the position, to raise what the caller
    raises. `memory` is as in `walk`: for a caller that is done with a window when it asks for the next one.
    """
    end = file.size if end is None else end
    while start < end:
        # Copies: touching a mapped page that the disk has lost would kill the process.
        room = memory(min(_WINDOW_BYTES, end - start))
        window, buffer = read_window(file, start, end, _WINDOW_BYTES, crc, _scan, room)
        view = memoryview(buffer)
        if len(window.batches):
            yield Window(window.batches, view, start)
        if window.position == start:
            at_stop(view, file.path, start)
            return
        start = window.position


def recovery_windows(file: Readable, start: int = 0, *, memory: Memory = no_memory) -> Iterator[Window]:
    """Yield whole batches with their verdicts, as the recovery of a broker reads them: to it no length is an error."""
    for window in broker_windows(file, start, crc=True, at_stop=lambda view, path, position: None, memory=memory):
        # A broker reads a magic from 128 on as negative, where the checksum lies elsewhere.
        negative = np.flatnonzero(magic_bytes(window) < 0)
        if len(negative):
            window.batches.rows["verdict"][negative] = Verdict.CRC_BAD
        yield window


def magic_bytes(window: Window) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """Return the magic of each batch as it is in the file."""
    rows: BatchTable = window.batches
    magic: np.ndarray[tuple[int], np.dtype[np.int8]] = np.frombuffer(window.buffer, np.int8)[
        rows.position - window.file_position + _MAGIC_AT
    ]
    return magic
