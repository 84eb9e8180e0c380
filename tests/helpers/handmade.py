"""Batches that no encoder writes, put together from their bytes, and partitions that hold them."""

from __future__ import annotations

import struct
from pathlib import Path

from pylogseg import _codec


def batch(
    body: bytes, count: int, *, base: int = 0, codec: int = 4, last: int | None = None, timestamp: int = 1000
) -> bytes:
    """A batch of magic 2 around bytes that are compressed already."""
    last = count - 1 if last is None else last
    fields = struct.pack(">hiqqqhii", codec, last, timestamp, timestamp, -1, -1, -1, count)
    rest = struct.pack(">ibI", 0, 2, _codec.crc32c(fields + body)) + fields + body
    return struct.pack(">qi", base, len(rest)) + rest


def varint(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def partition(folder: Path, data: bytes, name: str = "t-0") -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / f"{0:020}.log").write_bytes(data)
    return folder / name
