"""`pylogseg.serve`: its start, and fetches over a connection (wall clock, with a client that only takes the bytes)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

import pylogseg
from pylogseg.format.messages import wire

TOPICS, BATCHES, RECORD_BYTES = 100, 1500, 1000


class _Client:
    """One connection, and one buffer."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._into = memoryview(bytearray(16 << 20))

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def ask(self, frame: bytes) -> int:
        """Send a request; how many bytes were answered."""
        self._socket.sendall(frame)
        size, got = int.from_bytes(self._socket.recv(4, socket.MSG_WAITALL), "big"), 0
        while got < size:
            got += self._socket.recv_into(self._into[got:size])
        return size


class ServeStart:
    """The first answer about 100 topics."""

    def setup(self) -> None:
        """Small topics."""
        self.folder = Path(tempfile.mkdtemp())
        for number in range(TOPICS):
            with pylogseg.open_log(self.folder / f"topic{number}-0") as log:
                log.append([{"value": b"x" * 100}] * 10)

    def teardown(self) -> None:
        """Remove them."""
        shutil.rmtree(self.folder)

    def time_in_process(self) -> None:
        """Listing, listening, Metadata."""
        with pylogseg.serve(self.folder) as server:
            client = _Client(server.bootstrap_servers)
            client.ask(wire.request(3, 12, 1, "asv", {"topics": None}))
            client.close()

    def time_command(self) -> None:
        """The same from the start of the process on."""
        command = [sys.executable, "-m", "pylogseg", "serve", str(self.folder), "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
        assert process.stdout is not None
        client = _Client(process.stdout.readline().split(" at ")[1].split(",")[0])
        client.ask(wire.request(3, 12, 1, "asv", {"topics": None}))
        client.close()
        process.terminate()
        process.wait()


class ServeFetch:
    """Fetches of one partition, each from another offset."""

    params: ClassVar[list[int]] = [64 << 10, 1 << 20, 10 << 20]
    param_names: ClassVar[list[str]] = ["bytes"]

    def setup(self, size: int) -> None:
        """A log of 96 MB, and a client."""
        self.folder = Path(tempfile.mkdtemp())
        with pylogseg.open_log(self.folder / "big-0") as log:
            for _ in range(BATCHES):
                log.append([{"value": os.urandom(RECORD_BYTES)} for _ in range(64)])
        self.server = pylogseg.serve(self.folder)
        self.client = _Client(self.server.bootstrap_servers)
        self.frames = []
        for i in range(20):
            row = {"partition": 0, "fetchOffset": i * 64 * 60, "partitionMaxBytes": size}
            topic = {"topic": "big", "partitions": [row]}
            asked = {"maxWaitMs": 0, "minBytes": 1, "maxBytes": size, "topics": [topic]}
            self.frames.append(wire.request(1, 12, 1, "asv", asked))

    def teardown(self, size: int) -> None:
        """Stop and remove."""
        self.client.close()
        self.server.close()
        shutil.rmtree(self.folder)

    def time_twenty(self, size: int) -> None:
        """Twenty of them."""
        for frame in self.frames:
            self.client.ask(frame)
