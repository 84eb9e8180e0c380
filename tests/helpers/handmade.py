"""Batches that no encoder writes, put together from their bytes, and partitions that hold them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from pylogseg import _codec

#: Names and values.
Headers = Sequence[tuple[bytes, bytes | None]]


def batch(
    body: bytes,
    count: int,
    *,
    base: int = 0,
    codec: int = 4,
    flags: int = 0,
    last: int | None = None,
    timestamp: int = 1000,
    max_timestamp: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch of magic 2 around bytes that are compressed already; a producer is an id, an epoch and a sequence."""
    last = count - 1 if last is None else last
    latest = timestamp if max_timestamp is None else max_timestamp
    fields = struct.pack(">hiqqqhii", codec | flags, last, timestamp, latest, *producer, count)
    rest = struct.pack(">ibI", 0, 2, _codec.crc32c(fields + body)) + fields + body
    return struct.pack(">qi", base, len(rest)) + rest


def varint(number: int) -> bytes:
    number, out = (number << 1) ^ (number >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def record(offset_delta: int, time_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> bytes:
    """A record of magic 2, with its length in front."""
    body = b"\0" + varint(time_delta) + varint(offset_delta) + _sized(key) + _sized(value) + varint(len(headers))
    body += b"".join(_sized(name) + _sized(payload) for name, payload in headers)
    return varint(len(body)) + body


def _sized(payload: bytes | None) -> bytes:
    return varint(-1) if payload is None else varint(len(payload)) + payload


def partition(folder: Path, data: bytes, name: str = "t-0") -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / f"{0:020}.log").write_bytes(data)
    return folder / name
