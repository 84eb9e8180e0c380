"""Fast decompression of a single batch.

A small batch that Kafka's own producers compressed with lz4 or snappy is one block in a frame of known bytes.
Everything else goes to `format.codecs`, which reads all layouts.
"""

from __future__ import annotations

import cramjam

from pylogseg._native import _encoder
from pylogseg.format.codec_error import CodecError
from pylogseg.format.codecs import LZ4, SNAPPY, decompress
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.format.xerial import HEADER as XERIAL_HEADER

# Magic number, independent blocks of at most 64 KiB and nothing else, header checksum.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 << 10
_XERIAL_BLOCK_BYTES = 32 << 10


def body_of(batch: memoryview, codec: int, limit: int) -> bytes | memoryview | None:
    """Return the records of a batch of magic 2; None if they cannot be decompressed, or exceed the limit."""
    payload = batch[BATCH_HEADER_BYTES:]
    try:
        if codec == LZ4 and (quick := _one_lz4_block(payload)) is not None:
            return quick
        if codec == SNAPPY and (block := _one_snappy_block(payload)) is not None:
            return block
    except cramjam.DecompressionError:
        return None
    try:
        return decompress(codec, payload, limit=limit)
    except CodecError:
        return None


def _one_lz4_block(payload: memoryview) -> memoryview | None:
    if payload[:7] != _LZ4_HEADER:
        return None
    # A stored block, whose length has the highest bit, does not end here either.
    end = 11 + int.from_bytes(payload[7:11], "little")
    if end + 4 != len(payload) or any(payload[end:]) or end == 11:
        return None
    out = memoryview(_encoder.blank(_LZ4_BLOCK_BYTES))
    return out[: cramjam.lz4.decompress_block_into(payload[11:end], out, _LZ4_BLOCK_BYTES)]


def _one_snappy_block(payload: memoryview) -> bytes | None:
    if payload[:16] != XERIAL_HEADER or 20 + int.from_bytes(payload[16:20], "big") != len(payload):
        return None
    block = payload[20:]
    if cramjam.snappy.decompress_raw_len(block) > _XERIAL_BLOCK_BYTES:
        return None
    return bytes(cramjam.snappy.decompress_raw(block))
