"""A proxy between clients and a broker that keeps each request with its answer.

The broker advertises the proxy's address, so that every connection of a client comes through it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import NamedTuple


class Exchange(NamedTuple):
    """A request and its answer, without their lengths; the answer is empty where none came."""

    client: str
    connection: int
    request: bytes
    answer: bytes


class Recorder:
    """Listens on `address`; forwards to `target`, which may be set later."""

    def __init__(self) -> None:
        self.target: tuple[str, int] = ("127.0.0.1", 0)
        #: Put into the exchanges of connections that are made from now on.
        self.client = ""
        #: In the order of the requests.
        self.exchanges: list[Exchange] = []
        self._lock = threading.Lock()
        self._count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._count += 1
                number = self._count
            try:
                there = socket.create_connection(self.target)
            except OSError:
                here.close()
                continue
            for each in (here, there):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            waiting: dict[int, int] = {}
            forward = (here, there, lambda frame, of=waiting, n=number, c=self.client: self._asked(of, n, c, frame))
            back = (there, here, lambda frame, of=waiting: self._answered(of, frame))
            for way in (forward, back):
                threading.Thread(target=_pump, args=way, daemon=True).start()

    def _asked(self, waiting: dict[int, int], number: int, client: str, frame: bytes) -> None:
        with self._lock:
            waiting[_INT32.unpack_from(frame, 4)[0]] = len(self.exchanges)
            self.exchanges.append(Exchange(client, number, frame, b""))

    def _answered(self, waiting: dict[int, int], frame: bytes) -> None:
        with self._lock:
            index = waiting.pop(_INT32.unpack_from(frame)[0], None)
            if index is not None:
                self.exchanges[index] = self.exchanges[index]._replace(answer=frame)


_INT32 = struct.Struct(">i")


def _pump(source: socket.socket, target: socket.socket, keep) -> None:
    """Forward whole frames, and keep them."""
    try:
        with source.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(_INT32.unpack(head)[0])
                keep(frame)
                target.sendall(head + frame)
    except OSError:
        pass
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
