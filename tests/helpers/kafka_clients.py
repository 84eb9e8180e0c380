"""Clients for tests of the server: one that sends single requests, and what kafka-python reads."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka

import pylogseg
from pylogseg.format.messages import wire

#: Something comes within so many seconds, or the test fails: clients that stall do not complain.
PATIENCE_S = 60.0
Row = tuple[str, int, int, int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class RawClient:
    """One connection that sends requests and reads their answers, in any version."""

    def __init__(self, bootstrap: str, timeout: float = PATIENCE_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self._correlation = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, key: int, version: int, values: dict[str, Any]) -> None:
        """Send a request."""
        self._correlation += 1
        self.socket.sendall(wire.request(key, version, self._correlation, "raw", values))

    def frame(self) -> bytes:
        """Receive one frame; no bytes if the server has closed the connection."""
        head = self._exactly(4)
        return self._exactly(int.from_bytes(head, "big")) if head else b""

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except (ConnectionResetError, BrokenPipeError):  # OpenSSL 3.5 may say the latter of a read, too
                return b""
            if not piece:
                return b""
            data += piece
        return data

    def ask(self, key: int, version: int, values: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return its answer."""
        self.send(key, version, values or {})
        frame = self.frame()
        assert frame, f"the server closed the connection after request {key} in version {version}"
        assert int.from_bytes(frame[:4], "big") == self._correlation
        of = wire.response_of(key)
        at = 5 if of.flexible.has(version) and key != wire.API_VERSIONS else 4
        found, end = wire.decode_body(of, version, frame, at)
        assert end == len(frame)
        return found

    def is_closed(self) -> bool:
        """Whether the server has closed the connection."""
        return self.frame() == b""


def batch(*values: bytes, timestamp: int | None = None, **options: Any) -> bytes:
    """Return one batch as a producer sends it."""
    now_ms = time.time_ns() // 1_000_000 if timestamp is None else timestamp
    return bytes(pylogseg.encode([(now_ms, b"key", value) for value in values], **{"base_offset": 0, **options}))


def produced(
    client: RawClient, topic: str, data: bytes | None, number: int = 0, version: int = 9, **values: Any
) -> dict[str, Any]:
    """Produce one batch, and return the answer's row of its partition."""
    asked = {"name": topic, "partitionData": [{"index": number, "records": data}]}
    answer = client.ask(0, version, {"acks": -1, "timeoutMs": 1000, "topicData": [asked], **values})
    row: dict[str, Any] = answer["responses"][0]["partitionResponses"][0]
    return row


@contextmanager
def consumer(server: pylogseg.Server, *topics: str, **options: Any) -> Iterator[Any]:
    """Return a consumer of kafka-python."""
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "request_timeout_ms": 30_000}
    found = kafka.KafkaConsumer(*topics, bootstrap_servers=server.bootstrap_servers, **{**defaults, **options})
    try:
        yield found
    finally:
        found.close()


def partitions(server: pylogseg.Server, topic: str) -> list[kafka.TopicPartition]:
    """Return the partitions of a topic that are here."""
    return [kafka.TopicPartition(topic, number) for number in sorted(server.catalog.topics[topic].partitions)]


def assigned(server: pylogseg.Server, topic: str, **options: Any) -> list[Row]:
    """Return all records of a topic, as a client reads them that chooses its partitions itself."""
    with consumer(server, **options) as client:
        mine = partitions(server, topic)
        client.assign(mine)
        ends = client.end_offsets(mine)
        rows: list[Row] = []
        until = time.monotonic() + PATIENCE_S

        def behind() -> list[kafka.TopicPartition]:
            # With a limit: kafka-python 2.2 asks for a position without end, where its metadata has become old.
            found = [(each, client.position(each, timeout_ms=500)) for each in mine]
            return [each for each, position in found if position is None or position < ends[each]]

        while left := behind():
            assert time.monotonic() < until, f"{topic}: no progress in {left}"
            for records in client.poll(500).values():
                rows += map(row_of, records)
        return sorted(rows, key=lambda row: row[:3])


def row_of(record: Any) -> Row:
    """Return what a record of a client or of ours says; a record without a timestamp has None."""
    timestamp = None if record.timestamp is not None and record.timestamp < 0 else record.timestamp
    headers = tuple((key, value) for key, value in record.headers)
    return record.topic, record.partition, record.offset, timestamp, record.key, record.value, headers
