"""One client: frames come in, answers go out, one after another."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket as sockets
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from pylogseg.errors import StorageError
from pylogseg.format.escape import printable
from pylogseg.log.reads import Slice
from pylogseg.server import about, codes
from pylogseg.server.handlers import HANDLERS, OFFERED, api_versions, is_served
from pylogseg.server.service import Call, Endpoint, Service
from pylogseg.server.wire import API_VERSIONS, Header, MalformedRequest, Values, answer, decode, read_header, request_of

_log = logging.getLogger(__name__)

_BUFFER_BYTES = 1 << 16
_PIECE_BYTES = 1 << 20
#: Slices up to this are read, so that all of an answer goes by one call; larger ones go from the file to the socket.
_READ_BYTES = 64 << 10
_MOST_READ_BYTES = 1 << 20
_MOST_BUFFERS = 512
_LOOK_SECONDS = 0.25
_TIMED_OUT = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ETIMEDOUT)

Trace = Callable[[str], None]


class Limits(NamedTuple):
    """What one client may take.

    Attributes
    ----------
    request_bytes : int
        Of one request.
    connections : int
        At one time.
    idle_s : float
        Without a request.
    stalled_s : float
        In the middle of a request or an answer, without progress.
    """

    request_bytes: int = 16 << 20
    connections: int = 1000
    idle_s: float = 600.0
    stalled_s: float = 30.0


class Closing(Exception):
    """The connection is at its end; the text says why."""


class Gone(Exception):
    """The client went, or the server stops, while somebody waited."""


class Connection:
    """A client, served by the thread that calls `run`."""

    def __init__(
        self, service: Service, socket: sockets.socket, endpoint: Endpoint | None, limits: Limits, trace: Trace | None
    ) -> None:
        self._service, self._socket, self._limits, self._trace = service, socket, limits, trace
        self._host, self._port = socket.getpeername()[:2]
        own = socket.getsockname()
        # Clients come back to the address that they are told, so by default it is the one they have reached.
        self._endpoint = endpoint or Endpoint(own[0], own[1])
        self._client, self._software = "", ""
        self._refused: set[tuple[int, int]] = set()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._have = 0

    def __repr__(self) -> str:
        who = f" {printable(self._client)}" if self._client else ""
        return f"{self._host}:{self._port}{who}"

    def run(self) -> None:
        """Serve the client until it goes, or breaks a rule."""
        try:
            _set_timeouts(self._socket, self._limits.stalled_s)
            while (frame := self._frame()) is not None:
                self._serve(frame)
        except Closing as reason:
            _log.warning("%s: closed: %s", self, reason)
            self._tell(f"closed: {reason}")
        except (OSError, Gone) as error:  # clients come and go
            _log.debug("%s: %s", self, error)
        except Exception:
            _log.exception("%s: closed after an error of this server", self)
        finally:
            self.close()

    def close(self) -> None:
        """End it, from any thread."""
        self.hang_up()
        with contextlib.suppress(OSError):
            self._socket.close()

    def hang_up(self) -> None:
        """End what its thread waits for."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(sockets.SHUT_RDWR)

    # ---- requests ----

    def _frame(self) -> bytes | None:
        """Return the next request; None if the client has gone."""
        idle_until = time.monotonic() + self._limits.idle_s
        while self._have < 4:
            count = self._receive(memoryview(self._buffer)[self._have :], idle_until if self._have == 0 else 0.0)
            if count == 0:
                if self._have:
                    raise Closing("the client went in the middle of a request")
                return None
        size = int.from_bytes(self._buffer[:4], "big", signed=True)
        if not 0 < size <= self._limits.request_bytes:
            raise Closing(f"a request of {size} bytes; 1 to {self._limits.request_bytes} are allowed")
        if size + 4 > len(self._buffer):
            return self._large_frame(size)
        while self._have < size + 4:
            if self._receive(memoryview(self._buffer)[self._have :], 0.0) == 0:
                raise Closing("the client went in the middle of a request")
        frame = bytes(memoryview(self._buffer)[4 : size + 4])
        self._have -= size + 4
        if self._have:
            self._buffer[: self._have] = self._buffer[size + 4 : size + 4 + self._have]
        return frame

    def _receive(self, into: memoryview, idle_until: float) -> int:
        """Receive some bytes into the buffer; a client may be silent only between requests."""
        while True:
            try:
                count = self._socket.recv_into(into)
                self._have += count
                return count
            except OSError as error:
                if error.errno not in _TIMED_OUT:
                    raise
            if time.monotonic() >= idle_until:
                raise Closing("nothing came for too long")

    def _large_frame(self, size: int) -> bytes:
        """Receive a request that is larger than the buffer; memory grows with what has come."""
        pieces = [bytes(memoryview(self._buffer)[4 : self._have])]
        left, self._have = size - len(pieces[0]), 0
        while left:
            try:
                piece = self._socket.recv(min(left, _PIECE_BYTES))
            except OSError as error:
                raise (Closing("nothing came for too long") if error.errno in _TIMED_OUT else error) from None
            if not piece:
                raise Closing("the client went in the middle of a request")
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _serve(self, frame: bytes) -> None:
        started = time.perf_counter()
        try:
            header = read_header(frame)
            self._client = header.client or ""
            if header.key == API_VERSIONS and header.end < 0:
                self._send(answer(API_VERSIONS, 0, header.correlation, api_versions(0, codes.UNSUPPORTED_VERSION)))
                return
            of = request_of(header.key)
            if of is None or not is_served(header.key, header.version):
                raise Closing(f"it sent request {header.key} in version {header.version}, which is not offered here")
            values, _ = decode(of, header.version, frame, header.end)
        except MalformedRequest as error:
            raise Closing(f"a malformed request: {error}") from None
        found = self._answered(header, values)
        if found is None:
            # Without acks there is no answer; that the records were refused shows by the end of the connection.
            raise Closing("records were sent without acks, and nothing is written here")
        self._send(answer(header.key, header.version, header.correlation, found))
        if self._trace is not None:
            self._tell(_verdict(of.name, header, values, found, time.perf_counter() - started))

    def _answered(self, header: Header, values: Values) -> Values | None:
        if header.key == API_VERSIONS:
            good = about.is_software_known(values, header.version)
            return api_versions(header.version, codes.NONE if good else codes.INVALID_REQUEST)
        client = self._client
        call = Call(self._service, header.version, values, client, self._host, self._endpoint, self._wait)
        return HANDLERS[header.key](call)

    def _tell(self, text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self} {text}")

    # ---- waiting ----

    def _wait(self, seconds: float) -> bool:
        """Wait until a time is over; False if the client has gone or the server stops."""
        deadline = time.monotonic() + seconds
        if not hasattr(select, "poll"):
            return not self._service.stopping.wait(seconds)
        poll = select.poll()
        poll.register(self._socket, getattr(select, "POLLRDHUP", 0))
        while not self._service.stopping.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            # Where the system does not say that the peer has gone, the stop is looked for now and then.
            most = left if hasattr(select, "POLLRDHUP") else min(left, _LOOK_SECONDS)
            if poll.poll(most * 1000):
                break
        raise Gone("the client went, or the server stops, while it waited")

    # ---- answers ----

    def _send(self, parts: list[Any]) -> None:
        """Send an answer: bytes, and slices of files."""
        try:
            pending: list[bytes] = []
            read = 0
            for i, part in enumerate(parts):
                if isinstance(part, bytes):
                    if part:
                        pending.append(part)
                elif part.size <= _READ_BYTES and read < _MOST_READ_BYTES:
                    pending.append(part.file.read(part.position, part.size))
                    read += part.size
                else:
                    self._send_bytes(pending, more=True)
                    pending, read = [], 0
                    self._send_slice(part, more=i + 1 < len(parts) and parts[i + 1] != b"")
            self._send_bytes(pending)
        except StorageError as error:
            raise Closing(f"{error}; the size of the answer was sent already") from None
        except OSError as error:
            if error.errno in _TIMED_OUT:
                raise Closing("it does not take its answer") from None
            raise

    def _send_bytes(self, pending: list[bytes], *, more: bool = False) -> None:
        if not pending:
            return
        flags = getattr(sockets, "MSG_MORE", 0) if more else 0
        whole = pending[0] if len(pending) == 1 else b""
        if len(pending) > 1 and hasattr(self._socket, "sendmsg") and len(pending) <= _MOST_BUFFERS:
            sent = self._socket.sendmsg(pending, (), flags)
            if sent == sum(map(len, pending)):
                return
            whole = b"".join(pending)[sent:]
        elif len(pending) > 1:
            whole = b"".join(pending)
        rest = memoryview(whole)
        while rest:
            rest = rest[self._socket.send(rest, flags) :]

    def _send_slice(self, part: Slice, *, more: bool) -> None:
        """Send a part of a file without reading it; `more` is for the system's own choice of packets."""
        position, left = part.position, part.size
        while left:
            count = part.file.send_to(self._socket, position, left)
            if count == 0:
                raise Closing(f"{part.file.path} was cut while it was sent")
            position, left = position + count, left - count


def _set_timeouts(socket: sockets.socket, seconds: float) -> None:
    """Let a blocking socket give up: Python's own timeouts would cost a call of the system for each use."""
    socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
    if os.name == "nt":
        socket.settimeout(seconds)
        return
    limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))
    socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVTIMEO, limit)
    socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDTIMEO, limit)


def _verdict(name: str, header: Header, asked: Values, found: Values, seconds: float) -> str:
    """Return a line for a request: what it asked about, and the errors in its answer."""
    topics = [each.get("topic") or each.get("name") or "" for each in asked.get("topics") or () if each]
    about_what = ",".join(filter(None, topics[:3])) or asked.get("groupId") or ""
    errors = sorted(_errors(found))
    size = sum(row["records"].size for topic in found.get("responses", ()) for row in topic.get("partitions", ())
               if row.get("records"))  # fmt: skip
    said = f"errors {errors}" if errors else "ok"
    return (
        f"{name.removesuffix('Request')} v{header.version} {printable(about_what)} {said}"
        + (f" {size} bytes" if size else "")
        + f" {seconds * 1000:.1f} ms"
    )


def _errors(value: Any) -> set[int]:
    if isinstance(value, dict):
        own = {value["errorCode"]} if value.get("errorCode") else set()
        return own.union(*map(_errors, value.values()))
    return (
        set().union(*map(_errors, value))
        if isinstance(value, (list, tuple)) and not isinstance(value, Slice)
        else set()
    )


assert set(HANDLERS) <= set(OFFERED)
