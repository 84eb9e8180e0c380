"""Kafka 4.4's ``max.decompressed.message.bytes``: the largest record that a broker takes out of a compressed batch.

The limit is for one record, not for the batch: its size is what the length before it says (of magic 0 and 1: the size
of the inner message). Records of batches without compression have none.
"""

from __future__ import annotations

from typing import Any

from pylogseg._codec import decode_varint
from pylogseg.format.batches import BatchTable
from pylogseg.format.buffers import byte_view
from pylogseg.format.compression import fill_bodies
from pylogseg.format.records import REWRITE_LIMIT_BYTES

#: Kafka's default: no limit beyond what a broker could allocate.
NO_LIMIT_BYTES = 2**31 - 9


def describe_oversized(
    batches: BatchTable, buffer: Any, file_position: int, most_bytes: int, limit_bytes: int | None = None
) -> str | None:
    """Describe the first record above the limit; None if there is none. Batches have to be readable.

    `buffer` has the bytes of the file from `file_position` on; a batch that becomes more than `limit_bytes` is left to
    whoever decodes it.
    """
    if most_bytes >= NO_LIMIT_BYTES:
        return None
    for row in range(len(batches)):
        batch = batches[row : row + 1]
        bodies, arena, errors = fill_bodies(batch, buffer, file_position, limit=limit_bytes or REWRITE_LIMIT_BYTES)
        size = int(bodies["size"][0])
        if errors or size <= most_bytes:
            continue
        source, place = divmod(int(bodies["place"][0]), 1 << 40)
        body = bytes(byte_view(arena if source else buffer)[place : place + size])
        for number, taken in enumerate(_sizes(body, is_legacy=batch.magic[0] < 2)):
            if taken > most_bytes:
                return (
                    f"record {number} of the batch at position {batch.position[0]}, offsets {batch.base_offset[0]} to"
                    f" {batch.last_offset[0]}, has {taken} bytes, and max.decompressed.message.bytes is {most_bytes}:"
                    " raise it, as a broker refuses it too"
                )
    return None


def _sizes(body: bytes, is_legacy: bool) -> list[int]:
    """Return the sizes that a batch's records say they have."""
    sizes, position = [], 0
    while position < len(body):
        if is_legacy:
            size, begin = int.from_bytes(body[position + 8 : position + 12], "big", signed=True), position + 12
        else:
            size, begin = decode_varint(body, position)
        if size < 0 or begin + size > len(body):
            break
        sizes.append(size)
        position = begin + size
    return sizes
