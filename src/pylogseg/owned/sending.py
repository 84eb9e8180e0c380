"""Sending batches from the file to a socket, without copying them through this process."""

from __future__ import annotations

import selectors
import socket as sockets
import sys
from typing import NamedTuple

from pylogseg.env.storage import AppendFile
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.batches import scan
from pylogseg.log.log import Log
from pylogseg.reading.partition import IsolationLevel


class Sent(NamedTuple):
    """Result of sending to a socket.

    Attributes
    ----------
    bytes : int
        Of whole batches; 0 at the end of the log.
    next_offset : int
        The offset to continue with.
    aborted : list of (int, int) or None
        Producer id and first offset of the aborted transactions in what was sent; None unless read_committed was
        asked for.
    """

    bytes: int
    next_offset: int
    aborted: list[tuple[int, int]] | None


def send(log: Log, socket: sockets.socket, offset: int, max_bytes: int, isolation_level: IsolationLevel) -> Sent:
    """Send whole batches; see `EmbeddedLog.send_to`."""
    if socket.gettimeout() == 0:
        raise RequestError("non-blocking sockets are not supported; use a blocking socket or set a timeout")
    fetched = log.fetch(offset, max_bytes, "txn_committed" if isolation_level == "read_committed" else "high_watermark")
    batches = scan(fetched.data, crc=False).batches
    if not len(batches):
        return Sent(0, offset, fetched.aborted)
    size = int(batches.position[-1] + batches.size[-1])
    segment = log.segments.floor(fetched.start.segment)
    ssl = sys.modules.get("ssl")
    if ssl is not None and isinstance(socket, ssl.SSLSocket):  # this process has to encrypt the data
        socket.sendall(fetched.data[:size])
    elif segment is None or segment.base_offset != fetched.start.segment:
        socket.sendall(fetched.data[:size])  # deleted meanwhile, but the slice is still valid
    else:
        _send_file(segment.log, socket, fetched.start.position, size)
    return Sent(size, int(batches.last_offset[-1]) + 1, fetched.aborted)


def _send_file(file: AppendFile, socket: sockets.socket, position: int, size: int) -> None:
    end = position + size
    while position < end:
        try:
            count = file.send_to(socket, position, end - position)
        except BlockingIOError:  # a socket with a timeout is non-blocking underneath
            _wait(socket)
            continue
        if not count:
            raise StorageError(file.path, "send", f"it was truncated to {file.size} bytes while it was sent")
        position += count


def _wait(socket: sockets.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(socket, selectors.EVENT_WRITE)
        if not selector.select(socket.gettimeout()):
            raise TimeoutError("timed out")
