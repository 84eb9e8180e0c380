"""The header of one batch, without numpy, whose import takes longer than a few headers."""

from __future__ import annotations

import struct
from typing import NamedTuple

from pylogseg.format.layout import BATCH_HEADER, LOG_OVERHEAD, MESSAGE_V0, MESSAGE_V1

#: Of magic 0 the time is other bytes.
_UP_TO_TIME = struct.Struct(">qiIbbq")
#: The least bytes of a batch by its magic; of a message, those before its key and the length of its value.
LEAST_BATCH_BYTES = (MESSAGE_V0.size + 4, MESSAGE_V1.size + 4, BATCH_HEADER.size)


class BatchHead(NamedTuple):
    """The header of a batch, as it is in the file; a message of a legacy format is a batch of one record."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    records: int


def parse_head(data: bytes, position: int) -> BatchHead | None:
    """Return the header at the beginning of some bytes; None if no batch can begin there, or they are too few."""
    magic = data[16] if len(data) >= LEAST_BATCH_BYTES[0] else 3
    if magic > 2 or len(data) < LEAST_BATCH_BYTES[magic]:
        return None
    if magic == 2:
        base, size, _, _, _, attributes, delta, base_ms, max_ms, *_, count = BATCH_HEADER.struct.unpack_from(data)
    else:
        base, size, _, _, attributes, max_ms = _UP_TO_TIME.unpack_from(data)
        max_ms = max_ms if magic else -1
        delta, base_ms, count = 0, max_ms, 1
    size += LOG_OVERHEAD.size
    if size < LEAST_BATCH_BYTES[magic]:
        return None
    return BatchHead(position, size, base, base + delta, magic, attributes, base_ms, max_ms, count)
