"""Tests of server/connection.py and server/table.py. Bytes that lie, in place of requests: the connection is closed,
and the server goes on for the others.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.checks import begun_since, wait_for
from helpers.depth import draws
from helpers.kafka_clients import PATIENCE_S, RawClient
from helpers.messages import fields_of
from helpers.servers import reading
from helpers.wire_values import raw_ids
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg.format.messages import wire
from pylogseg.format.messages.schema import message, messages
from pylogseg.server.connection import Limits
from pylogseg.server.handlers import READ_ONLY
from pylogseg.server.server import Server

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
#: Every request that is answered, in every version. Joins wait for others, and have tests of their own.
SERVED = [
    (of.name, version)
    for of in messages().values()
    if of.kind == "request" and of.number is not None
    for version in range(of.versions.first, of.versions.last + 1)
    if READ_ONLY.is_served(of.number, version)
]


@pytest.fixture(scope="module")
def server() -> Any:
    """A server that meets no error of its own, whatever it is sent."""
    limits = Limits(request_bytes=1 << 20, connections=200, idle_s=PATIENCE_S, stalled_s=PATIENCE_S)
    errors: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = errors.append  # type: ignore[method-assign]
    logging.getLogger("pylogseg.server").addHandler(handler)
    with Server(reading([DATA], ["codec-gzip", "txn-a"]), limits=limits) as found:
        yield found
    logging.getLogger("pylogseg.server").removeHandler(handler)
    assert not [each.getMessage() for each in errors]


def is_well(server: Server) -> bool:
    """Whether another client is still answered."""
    with RawClient(server.bootstrap_servers) as client:
        return len(client.ask(3, 9, {"topics": None})["topics"]) == 2


def thrown(server: Server, data: bytes) -> None:
    """Send bytes, and read what comes until the server is done with them or has closed."""
    with RawClient(server.bootstrap_servers) as client:
        with contextlib.suppress(OSError):  # it has closed in the middle of them
            client.socket.sendall(data)
            client.socket.shutdown(socket.SHUT_WR)
        while client.frame():
            pass


def test_every_version_is_answered(server: Server) -> None:
    with RawClient(server.bootstrap_servers) as client:
        for name, version in SERVED:
            key = message(name).number
            assert key is not None
            if key in (0, 11, 14):  # no acks has no answer; the others may wait
                continue
            client.ask(key, version, {"groupId": "g", "topics": []})


def test_offers_are_those_of_kafka(server: Server) -> None:
    with RawClient(server.bootstrap_servers) as client:
        for version in range(5):
            found = client.ask(18, version, {"clientSoftwareName": "raw", "clientSoftwareVersion": "1"})
            offered = {each["apiKey"]: (each["minVersion"], each["maxVersion"]) for each in found["apiKeys"]}
            assert offered == READ_ONLY.offered
            assert offered[0] == (0, 13), "librdkafka never fetches without the versions of Produce"
        client.send(18, 4, {"clientSoftwareName": "-", "clientSoftwareVersion": "1"})
        assert wire.decode_body(message("ApiVersionsResponse"), 4, client.frame(), 4)[0]["errorCode"] == 42
        client.socket.sendall(struct.pack(">ihhihh", 12, 18, 99, 7, -1, 0))
        old, _ = wire.decode_body(message("ApiVersionsResponse"), 0, client.frame(), 4)
        assert (old["errorCode"], [each["apiKey"] for each in old["apiKeys"]]) == (35, [18])


def test_a_cursor_before_the_first_partition(server: Server) -> None:
    with RawClient(server.bootstrap_servers) as client:
        asked = {"topics": [{"name": "txn-a"}], "cursor": {"topicName": "txn-a", "partitionIndex": -1}}
        assert [each["errorCode"] for each in client.ask(75, 0, asked)["topics"]] == [42]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", (1 << 20) + 1),
        struct.pack(">ihhi", 8, 3, 9, 1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 1, 3, 1, -1),
        struct.pack(">ihhihh", 12, 3, 99, 1, -1, 0),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["negative", "zero", "2 GiB", "over the limit", "no header", "key", "dropped", "version", "HTTP", "TLS"],
)
def test_what_is_no_request(server: Server, data: bytes) -> None:
    with RawClient(server.bootstrap_servers) as client:
        client.socket.sendall(data)
        assert client.is_closed()
    assert is_well(server)


def test_a_request_that_never_ends() -> None:
    limits = Limits(stalled_s=0.5)
    with Server(reading([DATA], ["levels"]), limits=limits) as server, RawClient(server.bootstrap_servers) as client:
        client.socket.sendall(struct.pack(">ihh", 1000, 3, 9))
        assert client.is_closed()


def test_single_bytes(server: Server) -> None:
    frame = wire.request(3, 9, 1, "slow", {"topics": None})
    with RawClient(server.bootstrap_servers) as client:
        for byte in frame:
            client.socket.sendall(bytes([byte]))
        assert client.frame()
        client.socket.sendall(frame * 3)  # and many at once are answered in their order
        assert all(client.frame() for _ in range(3))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=draws(150))
@given(which=st.sampled_from(SERVED), data=st.data())
def test_well_formed_and_senseless(server: Server, which: tuple[str, int], data: st.DataObject) -> None:
    """Random values over the schema are answered, or end the connection; nothing waits for long."""
    name, version = which
    of = message(name)
    assert of.number is not None
    values = raw_ids(of.fields, data.draw(fields_of(of, version)))
    for field, most in (("maxWaitMs", 10), ("sessionTimeoutMs", 0), ("timeoutMs", 10)):
        if field in values:
            values[field] = min(values[field], most)
    thrown(server, wire.request(of.number, version, 1, "any", values))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=draws(150))
@given(which=st.sampled_from(SERVED), data=st.data())
def test_cut_and_flipped(server: Server, which: tuple[str, int], data: st.DataObject) -> None:
    of = message(which[0])
    assert of.number is not None
    topic = {"topic": "txn-a", "name": "txn-a", "partitions": [{"partition": 0, "partitionIndex": 0}]}
    values = {"topics": [topic] if of.number in (1, 2, 23) else [], "groupId": "g", "sessionTimeoutMs": 1}
    frame = bytearray(wire.request(of.number, which[1], 1, "any", values))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(frame) - 1))
        frame[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255, frame[at] ^ 1]))
    frame = frame[: data.draw(st.integers(4, len(frame)))]
    thrown(server, bytes(frame))


def test_after_all_that(server: Server) -> None:
    noise = random.Random(7)
    for _ in range(30):
        thrown(server, noise.randbytes(noise.choice([1, 4, 5, 100, 65536])))
    assert is_well(server)


def test_many_connections_and_a_slow_reader(server: Server) -> None:
    idle = [RawClient(server.bootstrap_servers) for _ in range(100)]
    slow = RawClient(server.bootstrap_servers)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    asked = {"topic": "codec-gzip", "partitions": [{"partition": 0, "partitionMaxBytes": 1 << 20}]}
    for _ in range(100):
        slow.send(1, 11, {"maxWaitMs": 1, "maxBytes": 1 << 20, "topics": [asked]})
    assert is_well(server)
    for client in (*idle, slow):
        client.socket.close()
    wait_for(lambda: not server.connections)


def test_too_many_connections() -> None:
    with Server(reading([DATA], ["levels"]), limits=Limits(connections=2)) as server:
        with RawClient(server.bootstrap_servers) as first, RawClient(server.bootstrap_servers) as second:
            for client in (first, second):
                client.ask(3, 9, {"topics": None})
            with RawClient(server.bootstrap_servers) as third:
                assert third.is_closed()
        wait_for(lambda: not server.connections)
        with RawClient(server.bootstrap_servers) as again:
            again.ask(3, 9, {"topics": None})


def test_a_stop_while_clients_wait() -> None:
    """Fetches that wait for records, and a join that waits for others, end at once."""
    before = threading.enumerate()
    server = pylogseg.serve(DATA, topic="levels")
    waiting = [RawClient(server.bootstrap_servers) for _ in range(30)]
    asked = {"topic": "levels", "partitions": [{"partition": 0, "fetchOffset": 350, "partitionMaxBytes": 1 << 20}]}
    for client in waiting:
        client.send(1, 11, {"maxWaitMs": 600_000, "minBytes": 1, "maxBytes": 1 << 20, "topics": [asked]})
    join = {"groupId": "g", "sessionTimeoutMs": 6000, "rebalanceTimeoutMs": 600_000, "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
    joins = [RawClient(server.bootstrap_servers) for _ in range(2)]
    joins[0].ask(11, 2, join)
    joins[1].send(11, 2, join)
    time.sleep(0.2)  # most of them wait now
    started = time.monotonic()
    server.close()
    assert time.monotonic() - started < PATIENCE_S
    assert all(client.is_closed() for client in waiting)
    wait_for(lambda: not begun_since(before))
    for client in (*waiting, *joins):
        client.socket.close()


def test_a_client_that_goes_while_it_waits() -> None:
    with pylogseg.serve(DATA, topic="levels") as server:
        client = RawClient(server.bootstrap_servers)
        asked = {"topic": "levels", "partitions": [{"partition": 0, "fetchOffset": 350, "partitionMaxBytes": 1 << 20}]}
        client.send(1, 11, {"maxWaitMs": 600_000, "minBytes": 1, "maxBytes": 1 << 20, "topics": [asked]})
        time.sleep(0.1)
        client.socket.close()
        wait_for(lambda: not server.connections)
