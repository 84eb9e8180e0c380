"""Logs whose timestamps are as far away as their type has them: in each format, given by producer or broker."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from helpers.handmade import batch, varint

GO_ZERO = -62_135_596_800_000
YEAR_9999 = 253_402_300_799_999
MOST_MICROSECONDS = 9_223_372_036_854_775
TIMES = (
    -(2**63), -(2**62), -MOST_MICROSECONDS - 1, -MOST_MICROSECONDS, GO_ZERO - 1, GO_ZERO, -2, -1, 0, 1,
    1_700_000_000_000, YEAR_9999, YEAR_9999 + 1, 1_700_000_000_000_000, MOST_MICROSECONDS, MOST_MICROSECONDS + 1,
    1_700_000_000_000_000_000, 2**62, 2**63 - 1,
)  # fmt: skip
#: Those that a column of microseconds cannot hold.
UNFIT = tuple(time for time in TIMES if abs(time) > MOST_MICROSECONDS)
_APPEND_TIME = 8


def write_log(folder: Path, times: tuple[int, ...] = TIMES, *, magic: int = 2, by_broker: bool = False) -> Path:
    """Write a partition of one record for each time, each in a batch of its own; return its log directory."""
    folder.mkdir(parents=True)
    attributes = _APPEND_TIME if by_broker else 0
    batches = [
        _modern(offset, time, attributes) if magic == 2 else _legacy(offset, time, magic, attributes)
        for offset, time in enumerate(times)
    ]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    return folder.parent


def held(time: int) -> int | None:
    """Return the microseconds of a time in a column; None if it does not fit."""
    return None if time in UNFIT else time * 1000


def _modern(offset: int, time: int, attributes: int) -> bytes:
    key, value = b"k%d" % offset, b"v%d" % offset
    body = b"\0\0\0" + varint(len(key)) + key + varint(len(value)) + value + b"\0"
    return batch(varint(len(body)) + body, 1, base=offset, codec=attributes, timestamp=time)


def _legacy(offset: int, time: int, magic: int, attributes: int) -> bytes:
    key, value = b"k%d" % offset, b"v%d" % offset
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", time) if magic else b"")
    body += struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
