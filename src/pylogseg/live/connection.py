"""One connection to a broker: versions, login, requests (one ahead of the answers); and connections kept while idle."""

from __future__ import annotations

import atexit
import math
import os
import selectors
import socket
import ssl
import struct
import threading
import time
from typing import Any, NamedTuple

from pylogseg.errors import StorageError
from pylogseg.format.messages import codes, wire
from pylogseg.live.login import LoginError, tokens
from pylogseg.live.settings import ClientSettings

FETCH, LIST_OFFSETS, METADATA, HANDSHAKE, VERSIONS, LEADER_EPOCH, LOG_DIRS, AUTHENTICATE = 1, 2, 3, 17, 18, 23, 35, 36
#: A broker that does not answer for so long is gone; it waits 0.5 s by itself where there is nothing to fetch.
TIMEOUT_S = 30.0
#: The answer to a fetch is below 55 MiB, unless one batch is larger; no batch has more than this.
_MOST_BYTES = 1 << 30
#: Of the time that a login is good for, after which another one begins.
_LIFETIME_PART = 0.85
_INT32 = struct.Struct(">i")


class BrokenConnectionError(StorageError):
    """The connection ended, or the broker did not answer: another one may do."""


class BrokerConnection:
    """A connection of one thread. A broker that does not answer is a StorageError that names it."""

    def __init__(self, settings: ClientSettings, host: str, port: int) -> None:
        self.name = f"kafka://{host}:{port}"
        self._settings, self._correlation = settings, 0
        self._sent: list[tuple[int, int, int]] = []
        self._login_until = math.inf  #: From then on the broker wants another login (KIP-368).
        context = settings.make_tls()
        try:
            self._socket = socket.create_connection((host, port), TIMEOUT_S / 3)
        except OSError as error:
            raise BrokenConnectionError(self.name, "connect", str(error), error.errno) from error
        try:
            self._socket.settimeout(TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._socket = _wrap(context, self._socket, host, self.name)
            self._versions = self._ask_versions()
            if settings.protocol.startswith("SASL"):
                self._login()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the number of its socket."""
        return self._socket.fileno()

    def version(self, key: int, most: int = 99) -> int:
        """Return the newest version of a request that both sides know, up to one."""
        request = wire.request_of(key)
        assert request is not None
        lowest, highest = self._versions.get(key, (0, -1))
        chosen = min(highest, request.versions.last, most)
        if chosen < max(lowest, request.versions.first):
            reason = (
                f"the broker has versions {lowest} to {highest} of {request.name}, this client {request.versions.first}"
                f" to {min(request.versions.last, most)}"
            )
            raise StorageError(self.name, "ask", reason)
        return chosen

    def send(self, key: int, version: int, values: dict[str, Any]) -> None:
        """Send a request; answers come in the order of the requests."""
        if time.monotonic() > self._login_until and not self._sent and key not in (HANDSHAKE, AUTHENTICATE):
            self._login()
        self._correlation += 1
        self._sent.append((key, version, self._correlation))
        try:
            self._socket.sendall(wire.request(key, version, self._correlation, self._settings.client_id, values))
        except OSError as error:
            raise BrokenConnectionError(self.name, "send", str(error), error.errno) from error

    def receive(self) -> dict[str, Any]:
        """Return the next answer; its records are views of memory of their own."""
        key, version, correlation = self._sent.pop(0)
        try:
            size = _INT32.unpack(self._exactly(4))[0]
            if not 4 <= size <= _MOST_BYTES:
                raise StorageError(self.name, "ask", f"an answer of {size} bytes: is this a port of Kafka?")
            data = self._exactly(size)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise BrokenConnectionError(self.name, "ask", str(error) or "no answer", error.errno) from error
        if _INT32.unpack_from(data)[0] != correlation:
            raise BrokenConnectionError(self.name, "ask", "it answered another request")
        response = wire.response_of(key)
        is_flexible = response.flexible.has(version) and key != VERSIONS
        if key == VERSIONS and data[4:6] == _UNSUPPORTED:  # an older broker: it answers in version 0
            version = 0
        try:
            return wire.decode_body(response, version, data, 5 if is_flexible else 4)[0]
        except wire.MalformedRequest as error:
            raise StorageError(self.name, "ask", f"its answer is malformed: {error}") from None

    def ask(self, key: int, values: dict[str, Any], most: int = 99) -> dict[str, Any]:
        """Send a request in the newest common version, and return its answer."""
        self.send(key, self.version(key, most), values)
        return self.receive()

    def _exactly(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        done = 0
        while done < size:
            count = self._socket.recv_into(data[done:])
            if not count:
                reason = "it closed the connection"
                if not self._correlation - 1:
                    reason += ": is this a port of Kafka, and its security.protocol another one?"
                raise BrokenConnectionError(self.name, "ask", reason)
            done += count
        return data

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        self.send(VERSIONS, 3, {"clientSoftwareName": "pylogseg", "clientSoftwareVersion": "1"})
        answer = self.receive()
        if answer["errorCode"] == codes.UNSUPPORTED_VERSION:
            self.send(VERSIONS, 0, {})
            answer = self.receive()
        return {api["apiKey"]: (api["minVersion"], api["maxVersion"]) for api in answer["apiKeys"]}

    def _login(self) -> None:
        mechanism = "OAUTHBEARER" if self._settings.is_by_token else self._settings.mechanism
        answer = self.ask(HANDSHAKE, {"mechanism": mechanism})
        if answer["errorCode"]:
            offered = ", ".join(answer["mechanisms"]) or "none"
            raise StorageError(self.name, "log in", f"the broker has no {mechanism}; it has {offered}")
        exchange = tokens(self._settings)
        try:
            token = next(exchange)
            while True:
                answer = self.ask(AUTHENTICATE, {"authBytes": token})
                if answer["errorCode"]:
                    reason = answer["errorMessage"] or codes.name_of(answer["errorCode"])
                    raise StorageError(self.name, "log in", reason)
                lifetime_ms = answer.get("sessionLifetimeMs", 0)
                self._login_until = time.monotonic() + _LIFETIME_PART * lifetime_ms / 1000 if lifetime_ms else math.inf
                token = exchange.send(bytes(answer["authBytes"]))
        except StopIteration:
            return
        except LoginError as error:
            raise StorageError(self.name, "log in", str(error)) from None


def _wrap(context: ssl.SSLContext, plain: socket.socket, host: str, name: str) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise StorageError(name, "connect", f"its certificate: {error.verify_message}") from error
    except OSError as error:
        raise BrokenConnectionError(name, "connect", str(error), error.errno) from error


_UNSUPPORTED = struct.pack(">h", codes.UNSUPPORTED_VERSION)


# ---- idle connections: one thread of the process closes them, and ends when none is left ----

#: So long an idle connection is kept for the next request to the same node.
IDLE_S = 5.0
#: Settings of a client, and a node of the cluster.
IdleKey = tuple[object, int | None]


class _Idle(NamedTuple):
    key: IdleKey
    link: BrokerConnection
    since: float


_idle: list[_Idle] = []
_changed = threading.Condition()
_closer: threading.Thread | None = None


def keep_idle(key: IdleKey, link: BrokerConnection) -> None:
    """Keep a connection without requests under way."""
    global _closer
    with _changed:
        _idle.append(_Idle(key, link, time.monotonic()))
        if _closer is None or not _closer.is_alive():
            _closer = threading.Thread(target=_close_old, name="pylogseg-idle-connections", daemon=True)
            _closer.start()


def take_idle(key: IdleKey) -> BrokerConnection | None:
    """Return the youngest connection that is kept and still open; None without one."""
    with _changed:
        for at in reversed(range(len(_idle))):
            if _idle[at].key != key:
                continue
            link = _idle.pop(at).link
            if _is_quiet(link):
                return link
            link.close()
    return None


def _is_quiet(link: BrokerConnection) -> bool:
    """Check whether there is nothing to read: a broker sends nothing unasked, so that else the connection has ended."""
    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        return not selector.select(0)


def close_idle() -> None:
    """Close all connections that are kept."""
    with _changed:
        for entry in _idle:
            entry.link.close()
        _idle.clear()
        _changed.notify_all()


def _close_old() -> None:
    global _closer
    with _changed:
        while _idle:
            wait = _idle[0].since + IDLE_S - time.monotonic()
            if wait > 0:
                _changed.wait(wait)
            else:
                _idle.pop(0).link.close()
        _closer = None


def _begin_in_child() -> None:
    """Close the copies that a forked process has; its parent goes on with the connections."""
    global _changed, _closer
    _changed, _closer = threading.Condition(), None
    close_idle()


atexit.register(close_idle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
