"""One client: frames come in, answers go out, one after another."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import select
import socket as sockets
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pylogseg.errors import ClosedError, RequestError, StorageError
from pylogseg.format.escape import printable
from pylogseg.format.messages import codes
from pylogseg.format.messages.wire import (
    API_VERSIONS,
    Header,
    MalformedRequest,
    Values,
    answer,
    decode_body,
    read_header,
    request_of,
)
from pylogseg.log.read_result import FileSlice
from pylogseg.server.budget import REQUEST_BYTES, TIMES, Budget, TooMuch
from pylogseg.server.login import MOST_BYTES_BEFORE, REFUSAL_DELAY_S, SASL, Login, LoginState
from pylogseg.server.sasl import Denied
from pylogseg.server.service import ANONYMOUS, Call, Disconnected, Endpoint, Service
from pylogseg.server.table import NO_ANSWER

if TYPE_CHECKING:
    from pylogseg.server.tls import Channel

_log = logging.getLogger(__name__)

#: Most requests fit into the first; a connection that gets a larger one keeps the second.
_FIRST_BYTES, _BUFFER_BYTES = 1 << 12, 1 << 16
_PIECE_BYTES = 1 << 20
#: Slices up to this are read, so that all of an answer goes by one call; larger ones go from the file to the socket.
_READ_BYTES = 64 << 10
_MOST_READ_BYTES = 1 << 20
_MOST_BUFFERS = 512
_LOOK_SECONDS = 0.25
_TIMED_OUT = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ETIMEDOUT)
#: What a client of TLS sends first: a handshake record, and the larger number of its version.
_TLS_HELLO = b"\x16\x03"
#: So many characters of a client's own name for itself are shown.
_SHOWN = 100

Trace = Callable[[str], None]


class Limits(NamedTuple):
    """Limits of one client."""

    request_bytes: int = 16 << 20  #: Of one request.
    connections: int = 1000  #: At one time.
    idle_s: float = 600.0  #: Without a request.
    #: In the middle of a request or an answer, without progress; and before its login, without a request.
    stalled_s: float = 30.0
    unused_s: float = 300.0  #: After which a log that nobody reads is closed.
    handshake_s: float = 10.0  #: For the handshake of TLS.
    unfolded_bytes: int = REQUEST_BYTES  #: To which a request may unfold, beside eight times its own size.

    def time_for(self, size: int) -> float:
        """Return how long so many bytes may take, however steadily they come or go."""
        return self.stalled_s * (1 + size / _PIECE_BYTES)


class Closing(Exception):
    """The connection is at its end; the text says why."""


class Gone(Exception):
    """The client went, or the server stops, while somebody waited."""


class ClientConnection:
    """A client, served by the thread that calls `run`."""

    def __init__(
        self, service: Service, socket: sockets.socket, endpoint: Endpoint | None, limits: Limits, trace: Trace | None
    ) -> None:
        self._service, self._limits, self._trace = service, limits, trace
        self._host, self._port = socket.getpeername()[:2]
        own = socket.getsockname()
        # Clients come back to the address that they are told, so by default it is the one they have reached.
        self._endpoint = endpoint or Endpoint(own[0], own[1])
        self._client, self._software = "", ""
        self._refused: set[tuple[int, int]] = set()
        self._buffer = bytearray(_FIRST_BYTES)
        self._have = 0
        #: When the request that is answered now began, by the monotonic clock; infinity between requests.
        self.busy_since = math.inf
        #: When the answer that is sent now has to have been taken.
        self.late_at = math.inf
        self._is_in = False
        self._login, self._ending = Login(service.guard.users), ""
        self._tls: Channel | None = None
        self._socket = socket
        if service.guard.tls is not None:
            from pylogseg.server.tls import Channel

            self._tls = Channel(service.guard.tls, socket)
            self._socket = self._tls.socket

    def __repr__(self) -> str:
        who = f" {printable(self._client[:_SHOWN])}" if self._client else ""
        return f"{self._host}:{self._port}{who}"

    @property
    def host(self) -> str:
        """Address of the client's machine."""
        return str(self._host)

    @property
    def is_in(self) -> bool:
        """True if the client has shown who it is, as far as this server wants that."""
        return self._is_in and self._login.is_done

    def run(self) -> None:
        """Serve the client until it goes, or breaks a rule."""
        try:
            self._open()
            self._is_in = True
            while (frame := self._frame()) is not None:
                self.busy_since = time.monotonic()
                if self._login.state is LoginState.RAW_TOKENS:
                    self._take_token(frame)
                else:
                    self._serve(frame)
                self.busy_since = math.inf
        except (Closing, Disconnected, TooMuch) as reason:
            self._service.complaints.add(self._host, repr(self), f"closed: {reason}")
            self._tell(f"closed: {reason}")
        except (OSError, Gone) as error:  # clients come and go
            _log.debug("%s: %s", self, error)
        except Exception as error:
            _log.exception("%s: closed after an error of this server: %r", self, error)
        finally:
            self.close()

    def close(self) -> None:
        """End it, from any thread."""
        self.hang_up()
        with contextlib.suppress(OSError):
            self._socket.close()

    def hang_up(self) -> None:
        """End the wait of its thread."""
        with contextlib.suppress(OSError):
            # Of the socket itself: that of TLS forgets its keys, and its thread may be using them.
            sockets.socket.shutdown(self._socket, sockets.SHUT_RDWR)

    def _open(self) -> None:
        if self._tls is None:
            _set_timeouts(self._socket, self._limits.stalled_s)
            return
        try:
            said = self._tls.shake_hands(self._limits.handshake_s)
        except (RequestError, TimeoutError) as error:
            raise Closing(f"TLS: {error}") from None
        self._socket.settimeout(self._limits.stalled_s)
        self._tell(said)

    # ---- requests ----

    def _frame(self) -> bytes | None:
        """Return the next request; None if the client has gone."""
        limits, in_full = self._limits, self._login.is_done
        if not self._have and not self._receive(time.monotonic() + (limits.idle_s if in_full else limits.stalled_s)):
            return None
        # From its first byte on: a client that sends a byte now and then must not hold a thread for ever.
        until = time.monotonic() + limits.stalled_s
        while self._have < 4:
            self._receive_more(until)
        size = int.from_bytes(self._buffer[:4], "big", signed=True)
        most = limits.request_bytes if in_full else min(limits.request_bytes, MOST_BYTES_BEFORE)
        if not 0 < size <= most:
            if self._buffer[:2] == _TLS_HELLO and self._tls is None:
                raise Closing("it speaks TLS, and this server has no certificate (--tls-cert)")
            before = "" if in_full else " before its login"
            raise Closing(f"a request of {size} bytes{before}; 1 to {most} are allowed")
        if size + 4 > len(self._buffer):
            if size + 4 > _BUFFER_BYTES:
                return self._large_frame(size)
            self._buffer += bytes(_BUFFER_BYTES - len(self._buffer))
        while self._have < size + 4:
            self._receive_more(until)
        frame = bytes(memoryview(self._buffer)[4 : size + 4])
        self._have -= size + 4
        if self._have:
            self._buffer[: self._have] = self._buffer[size + 4 : size + 4 + self._have]
        return frame

    def _receive(self, until: float) -> int:
        """Receive some bytes into the buffer; 0 if the client has gone."""
        while True:
            try:
                count = self._socket.recv_into(memoryview(self._buffer)[self._have :])
                self._have += count
                return count
            except OSError as error:
                if not _is_timeout(error):
                    raise
            if time.monotonic() >= until:
                raise Closing("nothing came for too long")

    def _receive_more(self, until: float) -> None:
        """Receive some bytes of a request that has begun."""
        if time.monotonic() >= until:
            raise Closing("a request came too slowly")
        if not self._receive(until):
            raise Closing("the client went in the middle of a request")

    def _large_frame(self, size: int) -> bytes:
        """Receive a request that is larger than the buffer; memory grows with the received bytes."""
        pieces = [bytes(memoryview(self._buffer)[4 : self._have])]
        left, self._have = size - len(pieces[0]), 0
        last, until = left, time.monotonic() + self._limits.stalled_s
        while left:
            if last - left >= _PIECE_BYTES:  # a large request may take longer, a slow one may not
                last, until = left, time.monotonic() + self._limits.stalled_s
            elif time.monotonic() >= until:
                raise Closing("a request came too slowly")
            try:
                piece = self._socket.recv(min(left, _PIECE_BYTES))
            except OSError as error:
                raise (Closing("nothing came for too long") if _is_timeout(error) else error) from None
            if not piece:
                raise Closing("the client went in the middle of a request")
            pieces.append(piece)
            left -= len(piece)
        self._have = 0
        return b"".join(pieces)

    def _serve(self, frame: bytes) -> None:
        budget = Budget(self._limits.unfolded_bytes + TIMES * len(frame), self._service.pool)
        try:
            self._answer(frame, budget)
        finally:
            budget.close()

    def _answer(self, frame: bytes, budget: Budget) -> None:
        started = time.perf_counter()
        try:
            header = read_header(frame)
            self._client = header.client or ""
            if not self._login.is_allowed(header.key):
                raise Closing(f"it sent request {header.key} before its login by SASL, which this server wants")
            is_served = self._service.table.is_served(header.key, header.version)
            if header.key == API_VERSIONS and not is_served:
                refused = self._service.table.api_versions(0, codes.UNSUPPORTED_VERSION)
                self._send(answer(API_VERSIONS, 0, header.correlation, refused))
                return
            of = request_of(header.key)
            if of is None or not is_served:
                raise Closing(f"it sent request {header.key} in version {header.version}, which is not offered here")
            values, _ = decode_body(of, header.version, frame, header.end, budget.spend)
        except MalformedRequest as error:
            raise Closing(f"a malformed request: {error}") from None
        response = self._run_request(header, values, budget)
        if response is None:
            # Without acks there is no answer; that the records were refused shows by the end of the connection.
            raise Closing("records were sent without acks, and were refused")
        if response is not NO_ANSWER:
            self._send(answer(header.key, header.version, header.correlation, response))
        if self._trace is not None:
            self._tell(_verdict(of.name, header, values, response, time.perf_counter() - started))
        if self._ending:
            raise Closing(self._ending)

    def _run_request(self, header: Header, values: Values, budget: Budget) -> Values | None:
        if header.key in SASL:
            return self._log_in(header, values)
        client = self._client
        who = self._principal()
        call = Call(self._service, header.version, values, client, self._host, who, self._endpoint, self._wait, budget)
        api, before = self._service.table.apis[header.key], self._service.before
        if before is not None and (refusal := before(api, call)) is not None:
            return refusal
        return self._service.answer(api, call)

    def _principal(self) -> str:
        """Return who the client has shown to be, in Kafka's form."""
        if self._login.user is not None:
            return f"User:{self._login.user}"
        name = self._tls.peer if self._tls is not None else ""
        return f"User:{name}" if name else ANONYMOUS

    def _log_in(self, header: Header, values: Values) -> Values:
        began = time.monotonic()
        said = self._login.answer(header.key, header.version, values)
        if said.is_late:
            self._delay(began)
        self._ending = said.end
        return said.values

    def _take_token(self, token: bytes) -> None:
        """Take a token of SASL that comes without a header, as after version 0 of the handshake."""
        began = time.monotonic()
        try:
            said = self._login.token(token)
        except Denied as error:
            self._delay(began)
            raise Closing(str(error)) from None
        self._send([len(said).to_bytes(4, "big") + said])

    def _delay(self, began: float) -> None:
        """Tell a refusal as late as any other: how long the check took may say which users there are."""
        self._service.stopping.wait(max(0.0, began + REFUSAL_DELAY_S - time.monotonic()))

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
            left = max(0.0, deadline - time.monotonic())
            # Where the system does not say that the peer has gone, the stop is looked for now and then.
            most = left if hasattr(select, "POLLRDHUP") else min(left, _LOOK_SECONDS)
            if poll.poll(most * 1000):
                break
            if not left:
                return True
        raise Gone("the client went, or the server stops, while it waited")

    # ---- answers ----

    def _send(self, parts: list[Any]) -> None:
        """Send an answer: bytes, and slices of files."""
        size = sum(len(part) if isinstance(part, bytes) else part.size for part in parts)
        self.late_at = time.monotonic() + self._limits.time_for(size)
        try:
            if self._tls is not None:
                self._tls.send(parts)
                return
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
        except (StorageError, ClosedError) as error:  # the disk, or the topic was deleted meanwhile
            raise Closing(f"{error}; the size of the answer was sent already") from None
        except OSError as error:
            if _is_timeout(error) or time.monotonic() >= self.late_at:
                raise Closing("it does not take its answer") from None
            raise
        finally:
            self.late_at = math.inf

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

    def _send_slice(self, part: FileSlice, *, more: bool) -> None:
        """Send a part of a file without reading it; `more` is for the system's own choice of packets."""
        position, left = part.position, part.size
        while left:
            count = part.file.send_to(self._socket, position, left)
            if count == 0:
                raise Closing(f"{part.file.path} was cut while it was sent")
            position, left = position + count, left - count


def _is_timeout(error: OSError) -> bool:
    return isinstance(error, TimeoutError) or error.errno in _TIMED_OUT


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
    """Return a line for a request: its subject, and the errors in its answer."""
    topics = [topic.get("topic") or topic.get("name") or "" for topic in asked.get("topics") or () if topic]
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
        if isinstance(value, (list, tuple)) and not isinstance(value, FileSlice)
        else set()
    )
