"""lz4 as Kafka frames it: the part of the lz4 frame format 1.5.1 that Kafka's reader knows.

Independent blocks only. For magic 0 Kafka's writers computed the header checksum over the wrong bytes (KAFKA-3160), so
there it is written wrong and not looked at. Kafka reads one frame and ignores all bytes after its end mark. Here later
frames are read too, so that no record in them is lost.

cramjam has the fast compressor alone; the thorough one (HC) is python-lz4's. Without that (it has no wheels for
free-threaded builds) every level compresses as the fast one does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import cramjam

from pylogseg._native import _encoder, _framing
from pylogseg._native._framing import xxh32
from pylogseg.format.codec_error import CodecError, over
from pylogseg.format.codecs import BlockLibrary

thorough: Any
try:
    import lz4.block as thorough  # type: ignore[import-untyped, import-not-found, no-redef, unused-ignore]
except ImportError:
    thorough = None

MAGIC = b"\x04\x22\x4d\x18"
BLOCK_BYTES = 64 << 10
END_MARK = bytes(4)

#: The level that stands for lz4's fast compressor, all others of 1 to 17 for the one that searches longer (HC).
FAST_LEVEL = 9
# lz4's library knows no higher level than this and takes it for all above.
_STRONGEST_LEVEL = 12

_DESCRIPTOR = b"\x60\x40"  # version 1, independent blocks, nothing else; blocks of at most 64 KiB
#: The header of a frame: the checksum of the descriptor follows it.
_KAFKA_HEADER = MAGIC + _DESCRIPTOR + b"\x82"
_STORED = 1 << 31
# An lz4 block becomes at most so many times its size.
_MOST_RATIO = 255


class _Header(NamedTuple):
    size: int
    largest_block_bytes: int
    block_checksums: bool
    content_checksum: bool


def decompress(data: memoryview, limit: int, magic: int = 2) -> bytes:
    """Return all frames; other bytes after a frame are ignored, as Kafka ignores them."""
    out = bytearray()
    position = _frame(data, 0, limit, magic, out)
    while data[position : position + len(MAGIC)] == MAGIC:
        position = _frame(data, position, limit, magic, out)
    return bytes(out)


def _frame(data: memoryview, start: int, limit: int, magic: int, out: bytearray) -> int:
    header = _header(data[start:], magic)
    position = start + header.size
    scratch = bytearray()
    while True:
        word = int.from_bytes(_take(data, position, 4), "little")
        size = word & ~_STORED
        position += 4
        if not size:
            break
        if size > header.largest_block_bytes:
            raise CodecError(f"lz4: a block of {size} bytes, more than the {header.largest_block_bytes} of its frame")
        block = _take(data, position, size)
        position += size
        if header.block_checksums:
            if xxh32(block) != int.from_bytes(_take(data, position, 4), "little"):
                raise CodecError(f"lz4: wrong checksum of the block at byte {position - size - 4}")
            position += 4
        if word & _STORED:
            if size > limit - len(out):
                raise over(limit)
            out += block
            continue
        most = min(header.largest_block_bytes, size * _MOST_RATIO)
        if len(scratch) < most:
            scratch = bytearray(most)
        out += memoryview(scratch)[: _block(block, scratch, most, limit - len(out), limit)]
    if header.content_checksum:
        _take(data, position, 4)  # must be there; Kafka does not verify it
        position += 4
    return position


def _header(data: memoryview, magic: int) -> _Header:
    if _take(data, 0, 4) != MAGIC:
        raise CodecError("lz4: no frame: the magic bytes are missing")
    flags, sizes = _take(data, 4, 2)
    if flags >> 6 != 1 or flags & 0x03 or sizes & 0x8F or sizes >> 4 < 4:
        raise CodecError(f"lz4: a frame header that is not known: {flags:#04x} {sizes:#04x}")
    if not flags & 0x20:
        raise CodecError("lz4: blocks that depend on one another, which Kafka does not know")
    checksum_at = 14 if flags & 0x08 else 6  # a content size of eight bytes lies between
    stored = _take(data, checksum_at, 1)[0]
    if magic > 0 and stored != xxh32(data[4:checksum_at]) >> 8 & 0xFF:
        raise CodecError("lz4: wrong checksum of the frame header")
    return _Header(checksum_at + 1, 1 << (8 + 2 * (sizes >> 4)), bool(flags & 0x10), bool(flags & 0x04))


def _take(data: memoryview, position: int, size: int) -> memoryview:
    part = data[position : position + size]
    if len(part) < size:
        raise CodecError("lz4: the stream ends early")
    return part


def _block(block: memoryview, scratch: bytearray, most: int, room: int, limit: int) -> int:
    try:
        size: int = cramjam.lz4.decompress_block_into(block, memoryview(scratch)[:most], most)
    except cramjam.DecompressionError as error:
        raise CodecError(f"lz4: a block is broken: {error}") from error
    if size > room:
        raise over(limit)
    return size


def decompress_block(payload: memoryview) -> memoryview | None:
    """Return the only block of a frame with the header that Kafka writes; None of any other payload."""
    if payload[: len(_KAFKA_HEADER)] != _KAFKA_HEADER:
        return None
    # A stored block, whose length has the highest bit, does not end here either.
    end = 11 + int.from_bytes(payload[7:11], "little")
    if end + 4 != len(payload) or any(payload[end:]) or end == 11:
        return None
    out = memoryview(_encoder.blank(BLOCK_BYTES))
    try:
        return out[: cramjam.lz4.decompress_block_into(payload[11:end], out, BLOCK_BYTES)]
    except cramjam.DecompressionError as error:
        raise CodecError(f"lz4: a block is broken: {error}") from error


def library() -> BlockLibrary:
    return BlockLibrary(
        cramjam.lz4.decompress_block_into, cramjam.DecompressionError, _framing.lz4_blocks, is_exact=False
    )


def compressor(level: int, magic: int) -> Callable[[memoryview], bytes]:
    return partial(_compress, level, magic)


def _compress(level: int, magic: int, data: memoryview) -> bytes:
    """Return a frame of independent blocks of 64 KiB; one that does not get smaller is stored."""
    checksum = xxh32(MAGIC + _DESCRIPTOR if magic == 0 else _DESCRIPTOR) >> 8 & 0xFF
    parts: list[bytes | memoryview] = [MAGIC, _DESCRIPTOR, bytes((checksum,))]
    for position in range(0, len(data), BLOCK_BYTES):
        raw = data[position : position + BLOCK_BYTES]
        packed = _pack_block(raw, level)
        if len(packed) < len(raw):
            parts += len(packed).to_bytes(4, "little"), packed
        else:
            parts += (len(raw) | _STORED).to_bytes(4, "little"), raw
    parts.append(END_MARK)
    return b"".join(parts)


def _pack_block(raw: memoryview, level: int) -> bytes:
    if level == FAST_LEVEL or thorough is None:
        return bytes(cramjam.lz4.compress_block(raw, store_size=False))
    strength = min(level, _STRONGEST_LEVEL)
    packed: bytes = thorough.compress(raw, mode="high_compression", compression=strength, store_size=False)
    return packed
