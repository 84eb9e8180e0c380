"""The server: a socket that listens, a thread for each client, and a stop that waits for nobody."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket as sockets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

from pylogseg.env.file_errors import storage_error
from pylogseg.errors import ClosedError, RequestError, StorageError
from pylogseg.server.catalog import Catalog
from pylogseg.server.connection import ClientConnection, Limits, Trace
from pylogseg.server.service import Endpoint, Service

_log = logging.getLogger(__name__)
_Server = TypeVar("_Server", bound="Server")

_BACKLOG = 128
#: A signal that comes just before a wait begins does not end it; Python looks at signals again behind the wait.
_SIGNAL_S = 0.5
_STOP_SECONDS = 1.0
#: What Kafka sets on its sockets: with Linux's own, larger buffer, bytes leave the processor's caches on their way.
_SEND_BUFFER_BYTES = 100 << 10


class Server:
    """Serves log directories until `close`; a context manager.

    Made by `pylogseg.serve`.
    """

    def __init__(
        self,
        service: Service,
        listen: str = "127.0.0.1:0",
        *,
        advertise: str | None = None,
        limits: Limits = Limits(),  # noqa: B008  (it cannot be changed)
        trace: Trace | None = None,
    ) -> None:
        self._service = service
        self._limits, self._trace = limits, trace
        self._advertise = None if advertise is None else endpoint_of(advertise, "advertise")
        self._mutex = threading.Lock()
        self._connections: dict[ClientConnection, threading.Thread] = {}
        self._closed, self._threads = threading.Event(), list[threading.Thread]()
        self._socket = bind_socket(endpoint_of(listen, "listen"))
        self.address = Endpoint(*self._socket.getsockname()[:2])
        self._listen()

    def _listen(self) -> None:
        """Let clients connect."""
        try:
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            raise _notbound(self.address, error) from None
        self._hushed = threading.Event()
        for work, name in ((self._accept, "pylogseg-serve"), (self._sweep, "pylogseg-serve-unused")):
            thread = threading.Thread(target=work, args=(self._socket, self._hushed), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _hush(self) -> None:
        """Let nobody connect, and end all connections, within a second."""
        self._hushed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(sockets.SHUT_RDWR)
        self._socket.close()
        self._hang_up(self._threads)
        self._threads = []

    def _hang_up(self, threads: Sequence[threading.Thread] = ()) -> None:
        """End all connections, and wait for their threads, and for others."""
        with self._mutex:
            connections = list(self._connections.items())
        for connection, _ in connections:
            connection.hang_up()
        until = time.monotonic() + _STOP_SECONDS
        for thread in (*threads, *(thread for _, thread in connections)):
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))

    def __repr__(self) -> str:
        return f"<pylogseg.serve: {len(self.catalog.topics)} topics at {self.bootstrap_servers}>"

    @property
    def catalog(self) -> Catalog:
        """The served topics."""
        return self._service.catalog

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, ``host:port``."""
        host, port = self._advertise or self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def topics(self) -> list[str]:
        """Names of the topics that are served."""
        return list(self.catalog.topics)

    @property
    def connections(self) -> int:
        """Number of clients that are connected now."""
        return len(self._connections)

    @property
    def is_open_to_others(self) -> bool:
        """True if other machines can connect."""
        try:
            return not ipaddress.ip_address(self.address.host).is_loopback
        except ValueError:
            return True

    @property
    def left_out(self) -> tuple[int, int]:
        """Places of damage, and their bytes, that were left out of logs so far, with ``on_corrupt="skip"``."""
        return self.catalog.logs.left_out

    @property
    def aborted(self) -> int:
        """Number of open transactions that counted as aborted so far, with ``end_open_transactions``."""
        return self.catalog.logs.aborted

    def warnings(self) -> Iterator[str]:
        """Yield warnings for the person who starts the server: open access, and unencrypted traffic."""
        if not self.is_open_to_others:
            return
        if self._service.guard.is_open:
            can = "read and write" if self.catalog.logs.is_writable else "read"
            topics = topics_text(self.topics)
            yield f"anyone who reaches {self.bootstrap_servers} can {can} without a password: {topics}"
        yield from self._service.guard.warnings()

    def __enter__(self: _Server) -> _Server:
        if self._closed.is_set():
            raise ClosedError(f"{self!r} was closed, with its connections and files: make a new one")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Wait until `close` is called, or until Ctrl-C."""
        while not self._closed.wait(_SIGNAL_S):
            pass

    def close(self) -> None:
        """Stop: within a second all clients are gone and all files closed. A second call does nothing."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._service.stopping.set()
        try:
            self._service.close()
        finally:
            self._hush()
            self.catalog.close()

    def _sweep(self, _: sockets.socket, hushed: threading.Event) -> None:
        """End the clients that take their answers too slowly, and close the logs that nobody reads."""
        due = time.monotonic() + self._limits.unused_s / 4
        while not hushed.wait(min(self._limits.unused_s, self._limits.stalled_s) / 4):
            with self._mutex:
                connections = list(self._connections)
            now = time.monotonic()
            for connection in connections:
                if connection.late_at <= now:
                    connection.hang_up()
            if due <= now:  # a request that is not yet answered may have any log
                began = [connection.busy_since for connection in connections]
                self.catalog.close_unused(min([now - self._limits.unused_s, *began]))
                due = now + self._limits.unused_s / 4

    # ---- connections ----

    def _accept(self, listening: sockets.socket, hushed: threading.Event) -> None:
        while not hushed.is_set():
            try:
                socket, peer = listening.accept()
            except OSError as error:
                if hushed.is_set():
                    return
                _log.warning("a connection could not be accepted: %s", error)
                hushed.wait(0.1)  # no descriptor is left: others have to go first
                continue
            if not self._has_room():
                text = f"closed: there are {self._limits.connections} connections already"
                self._service.complaints.add(peer[0], f"{peer[0]}:{peer[1]}", text)
                socket.close()
                continue
            self._start(socket)

    def _has_room(self) -> bool:
        """True if one more may connect; who has not logged in gives its place to it, of the machine with most such."""
        with self._mutex:
            if len(self._connections) < self._limits.connections:
                return True
            outside = [connection for connection in self._connections if not connection.is_in]
            if not outside:
                return False
            most, _ = Counter(connection.host for connection in outside).most_common(1)[0]
            oldest = next(connection for connection in outside if connection.host == most)
            del self._connections[oldest]
        self._service.complaints.add(most, repr(oldest), "closed before its login: other clients need the connection")
        oldest.hang_up()
        return True

    def _start(self, socket: sockets.socket) -> None:
        try:
            if not self.is_open_to_others:
                socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, _SEND_BUFFER_BYTES)
            with self._mutex:  # who ends all connections knows this one
                if self._hushed.is_set():
                    raise ConnectionAbortedError
                connection = ClientConnection(self._service, socket, self._advertise, self._limits, self._trace)
                name = f"pylogseg-{connection}"
                thread = threading.Thread(target=self._run, args=(connection,), name=name, daemon=True)
                self._connections[connection] = thread
        except OSError:  # it has gone already
            socket.close()
            return
        try:
            thread.start()
        except RuntimeError as error:
            _log.warning("%s: closed: %s", connection, error)
            connection.close()
            with self._mutex:
                self._connections.pop(connection, None)

    def _run(self, connection: ClientConnection) -> None:
        try:
            connection.run()
        finally:
            with self._mutex:
                self._connections.pop(connection, None)


def bind_socket(address: Endpoint) -> sockets.socket:
    """Return a socket with an address that nobody else has."""
    sock = sockets.socket(sockets.AF_INET6 if ":" in address.host else sockets.AF_INET, sockets.SOCK_STREAM)
    try:
        if os.name != "nt":
            sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        sock.bind(address)
        return sock
    except OSError as error:
        sock.close()
        raise _notbound(address, error) from None


def _notbound(address: Endpoint, error: OSError) -> StorageError:
    text = f"{address.host}:{address.port}"
    return storage_error(text, "listen on", error)


def endpoint_of(text: str, what: str) -> Endpoint:
    """Return an address from ``host:port``, ``[host]:port`` or ``port``.

    Raises RequestError for anything else.
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        host = "127.0.0.1"
    host = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535 or not host:
        raise RequestError(f"{what} {text!r} is not an address: give HOST:PORT, as in 127.0.0.1:9092")
    return Endpoint(host, int(port))


def topics_text(names: Sequence[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
