"""Tests of server/connection.py. Files that vanish and clients that go while an answer is sent; clients that are slow:
all others go on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.checks import wait_for
from helpers.kafka_clients import PATIENCE_S, RawClient
from helpers.servers import reading

import pylogseg
from pylogseg.format.messages import wire
from pylogseg.server import connection
from pylogseg.server.connection import Limits
from pylogseg.server.server import Server

BATCHES, VALUE_BYTES = 40, 1 << 18
WHOLE = {"maxWaitMs": 0, "maxBytes": 64 << 20}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of 10 MiB, and a small one."""
    with pylogseg.open_log(tmp_path / "big-0") as log:
        for _ in range(BATCHES):
            log.append([{"value": os.urandom(VALUE_BYTES)}])
    with pylogseg.open_log(tmp_path / "small-0") as log:
        log.append([{"value": b"x"}])
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with Server(reading([folder]), limits=Limits(stalled_s=PATIENCE_S)) as found:
        yield found


@pytest.fixture
def strict(folder: Path) -> Iterator[Server]:
    """One that does not wait for long."""
    with Server(reading([folder]), limits=Limits(stalled_s=1.0)) as found:
        yield found


def asked(topic: str, offset: int = 0) -> dict[str, Any]:
    row = {"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 64 << 20}
    return {**WHOLE, "topics": [{"topic": topic, "partitions": [row]}]}


def begun(server: Server) -> tuple[RawClient, int]:
    """A client that has asked for the large log and has taken the first bytes; how many are to come."""
    client = RawClient(server.bootstrap_servers)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.send(1, 11, asked("big"))
    return client, int.from_bytes(client.socket.recv(4, socket.MSG_WAITALL), "big")


def rest(client: RawClient, size: int) -> bytes:
    """All that comes, until so many bytes are there or the connection ends."""
    found = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while len(found) < size and (part := client.socket.recv(1 << 20)):
            found += part
    return bytes(found)


def error_of(client: RawClient, topic: str, offset: int = 0) -> int:
    found = client.ask(1, 11, asked(topic, offset))["responses"][0]["partitions"][0]
    assert found["errorCode"] or found["records"]
    return int(found["errorCode"])


def segment(folder: Path) -> Path:
    return next((folder / "big-0").glob("*.log"))


@pytest.mark.skipif(os.name == "nt", reason="files that are open cannot be removed")
def test_a_segment_that_is_deleted_is_sent_to_its_end(server: Server, folder: Path) -> None:
    content = segment(folder).read_bytes()
    client, size = begun(server)
    segment(folder).unlink()
    found = rest(client, size)
    assert len(found) == size
    assert content in found
    with RawClient(server.bootstrap_servers) as other:
        assert error_of(other, "small") == 0
    client.socket.close()


@pytest.mark.skipif(os.name == "nt", reason="files that are open cannot be cut")
def test_a_segment_that_is_cut(server: Server, folder: Path) -> None:
    """The size was promised, so the connection ends; who asks again is told that the disk is at fault."""
    client, size = begun(server)
    os.truncate(segment(folder), 5 << 20)
    assert len(rest(client, size)) < size
    with RawClient(server.bootstrap_servers) as other:
        assert error_of(other, "small") == 0
        assert error_of(other, "big", BATCHES - 1) == 56
        assert error_of(other, "small") == 0
    client.socket.close()


@pytest.mark.skipif(os.name == "nt", reason="folders with open files cannot be removed")
def test_a_disk_that_goes(server: Server, folder: Path) -> None:
    client, size = begun(server)
    for topic in ("big", "small"):
        shutil.rmtree(folder / f"{topic}-0")
    assert len(rest(client, size)) == size
    with RawClient(server.bootstrap_servers) as other:
        assert error_of(other, "small") == 56, "it was not open yet"
        assert len(other.ask(3, 9, {"topics": None})["topics"]) == 2
    client.socket.close()


def test_a_client_that_is_killed(server: Server) -> None:
    for _ in range(5):
        client, _ = begun(server)
        # With this its end is a reset, as after a crash.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
    wait_for(lambda: not server.connections)


def test_a_client_that_takes_nothing(strict: Server) -> None:
    """It loses its connection after a second here; another one is answered meanwhile."""
    client, size = begun(strict)
    with RawClient(strict.bootstrap_servers) as other:
        assert error_of(other, "small") == 0
        until = time.monotonic() + PATIENCE_S
        while strict.connections > 1:
            assert error_of(other, "small") == 0
            assert time.monotonic() < until, "it still holds its thread"
            time.sleep(0.05)
    assert len(rest(client, size)) < size
    client.socket.close()


@pytest.mark.parametrize("size", [1000, 500_000])
def test_a_client_that_sends_a_byte_now_and_then(strict: Server, size: int) -> None:
    """It is never silent for long, and ends all the same."""
    with RawClient(strict.bootstrap_servers) as client:
        client.socket.sendall(struct.pack(">ihhi", size, 3, 9, 1))
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - started < PATIENCE_S:
                client.socket.sendall(b"\0")
                time.sleep(0.1)
        assert time.monotonic() - started < PATIENCE_S


def test_a_large_request_may_take_longer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends so many bytes within the limit, again and again, is no slow one."""
    monkeypatch.setattr(connection, "_PIECE_BYTES", 1 << 16)  # instead of a megabyte, so that the limit is far
    topics = [{"name": f"{i:0200}"} for i in range(16_000)]
    frame = wire.request(3, 9, 1, "large", {"topics": topics})
    limits = Limits(stalled_s=2.0)
    with Server(reading([folder]), limits=limits) as server, RawClient(server.bootstrap_servers) as client:
        started = time.monotonic()
        for at in range(0, len(frame), 1 << 16):
            client.socket.sendall(frame[at : at + (1 << 16)])
            time.sleep(0.05)
        assert time.monotonic() - started > limits.stalled_s
        assert client.frame()
