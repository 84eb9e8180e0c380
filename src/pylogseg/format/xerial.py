"""snappy as Kafka frames it: a stream of the xerial library, or one raw block when read.

A stream is a header of 16 bytes, then blocks of at most 32 KiB, each after its length, and no end mark. Where the
header is missing, Kafka takes the whole payload for one raw snappy block.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import cramjam

from pylogseg._native import _framing
from pylogseg.format.codec_error import CodecError, over
from pylogseg.format.codecs import BlockLibrary

MAGIC = b"\x82SNAPPY\x00"
HEADER = MAGIC + struct.pack(">ii", 1, 1)
BLOCK_BYTES = 32 << 10

_LARGEST_BLOCK_BYTES = 512 << 20
# A snappy copy of three bytes gives 64; nothing gives more, so a length beyond that is a lie.
_MOST_OUT, _MOST_IN = 64, 3


def decompress(data: memoryview, limit: int, magic: int = 2) -> bytes:
    """Return all blocks of a stream and of streams after it, or one raw block."""
    if not len(data):
        raise CodecError("snappy: no bytes at all")
    if len(data) < len(HEADER) or data[: len(MAGIC)] != MAGIC:
        return _block(data, limit, limit)
    parts, room, position = [], limit, len(HEADER)
    while len(data) - position >= 4:
        if data[position : position + 4] == MAGIC[:4]:
            _check_version(data, position)
            position += len(HEADER)
            continue
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if not 0 < size <= _LARGEST_BLOCK_BYTES:
            raise CodecError(
                f"snappy: the block at byte {position - 4} says that it has {size} bytes: expected 1 "
                f"to {_LARGEST_BLOCK_BYTES}"
            )
        if size > len(data) - position:
            raise CodecError(f"snappy: the block at byte {position - 4} ends early")
        parts.append(_block(data[position : position + size], room, limit))
        room -= len(parts[-1])
        position += size
    return b"".join(parts)


def _check_version(data: memoryview, position: int) -> None:
    header = bytes(data[position : position + len(HEADER)])
    if len(header) < len(HEADER) or not header.startswith(MAGIC):
        raise CodecError(f"snappy: a broken stream header at byte {position}")
    if struct.unpack_from(">i", header, len(MAGIC))[0] < 1:
        raise CodecError(f"snappy: a stream header of a version below 1 at byte {position}")


def _block(data: memoryview, room: int, limit: int) -> bytes:
    try:
        length = cramjam.snappy.decompress_raw_len(data)
        if length * _MOST_IN > len(data) * _MOST_OUT:
            raise CodecError(f"snappy: {len(data)} bytes cannot become {length}")
        if length > room:
            raise over(limit)
        out = bytearray(length)
        if cramjam.snappy.decompress_raw_into(data, out) != length:
            raise CodecError("snappy: a block is shorter than it says")
    except cramjam.DecompressionError as error:
        raise CodecError(str(error)) from error
    return bytes(out)


def decompress_block(payload: memoryview) -> bytes | None:
    """Return the only block of a stream; None of any other payload."""
    if payload[: len(HEADER)] != HEADER or 20 + int.from_bytes(payload[16:20], "big") != len(payload):
        return None
    block = payload[20:]
    try:
        return (
            bytes(cramjam.snappy.decompress_raw(block))
            if cramjam.snappy.decompress_raw_len(block) <= BLOCK_BYTES
            else None
        )
    except cramjam.DecompressionError as error:
        raise CodecError(str(error)) from error


def _tables(view: Any, start: Any, end: Any, unchecked: Any, limit: int, row: int, *out: Any) -> tuple[int, int]:
    return _framing.xerial_blocks(view, start, end, limit, row, *out)


def library() -> BlockLibrary:
    """Return the function for the blocks of plain streams."""
    return BlockLibrary(cramjam.snappy.decompress_raw_into, cramjam.DecompressionError, _tables, is_exact=True)


def compressor(level: int, magic: int) -> Callable[[memoryview], bytes]:
    return _compress


def _compress(data: memoryview) -> bytes:
    """Return a stream of blocks of 32 KiB; only the header where there is no data."""
    parts = [HEADER]
    for position in range(0, len(data), BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + BLOCK_BYTES]))
        parts += len(block).to_bytes(4, "big"), block
    return b"".join(parts)
