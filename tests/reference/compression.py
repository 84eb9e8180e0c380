"""The four codecs with the framing that Kafka gives them. Block formats of snappy and lz4 are read by hand."""

from __future__ import annotations

import struct
import zlib

import cramjam
import zstandard

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
LZ4_MAGIC = struct.pack("<I", 0x184D2204)
# Fewer bytes than that behind literals are an error to liblz4 and lz4-java: a distance, a token and five literals.
LZ4_LAST_BYTES = 8


class CompressionError(ValueError):
    """The bytes are no stream of that codec."""


def decompress(codec: str, data: bytes, magic: int = 2) -> bytes:
    """Return what ``data`` stands for; the magic of the batch matters to lz4."""
    if codec == "none":
        return data
    if codec == "gzip":
        return gunzip(data)
    if codec == "snappy":
        return unsnappy(data)
    if codec == "lz4":
        return unlz4(data, check_header=magic > 0)
    return unzstd(data)


def compress(codec: str, data: bytes, magic: int = 2) -> bytes:
    """Return ``data`` as Kafka's writers frame it."""
    if codec == "none":
        return data
    if codec == "gzip":
        packer = zlib.compressobj(wbits=31)
        return packer.compress(data) + packer.flush()
    if codec == "snappy":
        blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in cut(data, 32 << 10)]
        return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    if codec == "lz4":
        return lz4(data, magic)
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    return packer.compress(data) + packer.flush()


def cut(data: bytes, size: int) -> list[bytes]:
    """Return ``data`` in pieces of ``size`` bytes; none of nothing."""
    return [data[at : at + size] for at in range(0, len(data), size)]


def gunzip(data: bytes) -> bytes:
    """Read gzip members, one at least; other bytes behind a member are ignored."""
    out = b""
    while True:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            out += unpacker.decompress(data)
        except zlib.error as error:
            raise CompressionError(f"gzip: {error}") from error
        if not unpacker.eof:
            raise CompressionError("gzip: ends early")
        data = unpacker.unused_data
        if not data.startswith(b"\x1f\x8b"):
            return out


def unsnappy(data: bytes) -> bytes:
    """Read xerial blocks, or one raw block where their header is missing."""
    if len(data) < 16 or not data.startswith(XERIAL_MAGIC):
        return snappy_block(data)
    xerial_version(data)
    out, at = b"", 16
    while at + 4 <= len(data):
        if data[at : at + 4] == XERIAL_MAGIC[:4]:  # another stream behind the first
            if data[at : at + 8] != XERIAL_MAGIC or len(data) < at + 16:
                raise CompressionError("snappy: bad header of a further stream")
            xerial_version(data[at:])
            at += 16
            continue
        size = struct.unpack_from(">i", data, at)[0]
        at += 4
        if not 0 <= size <= len(data) - at:
            raise CompressionError("snappy: bad block length")
        out += snappy_block(data[at : at + size])
        at += size
    return out


def xerial_version(data: bytes) -> None:
    """Refuse a stream of a version below 1, as snappy-java does."""
    if struct.unpack_from(">i", data, 8)[0] < 1:
        raise CompressionError("snappy: stream of an incompatible version")


def snappy_block(data: bytes) -> bytes:
    """Read one raw snappy block: its length as a varint, then literals and copies."""
    try:
        return _snappy_block(data)
    except IndexError:
        raise CompressionError("snappy: block ends early") from None


def _snappy_block(data: bytes) -> bytes:
    size = shift = at = 0
    while True:
        size |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            break
    out = bytearray()
    while at < len(data):
        tag = data[at]
        kind, upper, at = tag & 3, tag >> 2, at + 1
        if kind == 0:
            extra = max(0, upper - 59)
            count = (int.from_bytes(data[at : at + extra], "little") if extra else upper) + 1
            at += extra
            if at + count > len(data):
                raise CompressionError("snappy: literal ends early")
            out += data[at : at + count]
            at += count
            continue
        if kind == 1:
            count, distance, at = (upper & 7) + 4, (upper >> 3) << 8 | data[at], at + 1
        else:
            width = 2 if kind == 2 else 4
            if at + width > len(data):
                raise CompressionError("snappy: copy ends early")
            count, distance, at = upper + 1, int.from_bytes(data[at : at + width], "little"), at + width
        repeat(out, distance, count)
    if len(out) != size:
        raise CompressionError(f"snappy: {len(out)} bytes instead of {size}")
    return bytes(out)


def repeat(out: bytearray, distance: int, count: int) -> None:
    """Append ``count`` bytes that stand ``distance`` before the end, the appended ones among them."""
    if not 0 < distance <= len(out):
        raise CompressionError("copy from before the start")
    while count > 0:
        piece = out[len(out) - distance :][:count]
        out += piece
        count -= len(piece)


def unlz4(data: bytes, check_header: bool = True) -> bytes:
    """Read one lz4 frame, as strict as Kafka's reader; what follows the end mark is ignored."""
    if len(data) < 7:
        raise CompressionError("lz4: ends early")
    if data[:4] != LZ4_MAGIC:
        raise CompressionError("lz4: bad magic")
    flags, block = data[4], data[5]
    if flags >> 6 != 1 or not flags & 0x20 or flags & 0x03 or block & 0x8F or block >> 4 < 4:
        raise CompressionError("lz4: unsupported frame descriptor")
    at = 14 if flags & 0x08 else 6
    if len(data) <= at:
        raise CompressionError("lz4: ends early")
    if check_header and xxh32(data[4:at]) >> 8 & 0xFF != data[at]:
        raise CompressionError("lz4: frame descriptor corrupted")
    behind = 4 if flags & 0x04 else 0  # the content's checksum, which Kafka takes but does not look at
    return lz4_blocks(data, at + 1, largest=1 << (2 * (block >> 4) + 8), checksums=bool(flags & 0x10), behind=behind)


def lz4_blocks(data: bytes, at: int, largest: int, checksums: bool, behind: int = 0) -> bytes:
    """Read the blocks of a frame up to its end mark, behind which there must be so many bytes."""
    out = b""
    while True:
        if at + 4 > len(data):
            raise CompressionError("lz4: no end mark")
        word = struct.unpack_from("<I", data, at)[0]
        size, at = word & 0x7FFFFFFF, at + 4
        if size == 0:
            if at + behind > len(data):
                raise CompressionError("lz4: ends early")
            return out
        if size > largest:
            raise CompressionError("lz4: block too large")
        end = at + size + (4 if checksums else 0)
        if end > len(data):
            raise CompressionError("lz4: ends early")
        body = data[at : at + size]
        if checksums and xxh32(body) != struct.unpack_from("<I", data, at + size)[0]:
            raise CompressionError("lz4: bad block checksum")
        block = body if word >> 31 else lz4_block(body)
        if len(block) > largest:
            raise CompressionError("lz4: block too large")
        out += block
        at = end


def lz4_block(data: bytes) -> bytes:
    """Read one lz4 block: literals and copies in turn, literals last."""
    out, at = bytearray(), 0

    def length(start: int, at: int) -> tuple[int, int]:
        if start < 15:
            return start, at
        while data[at] == 255:
            start, at = start + 255, at + 1
        return start + data[at], at + 1

    try:
        while True:
            token, at = data[at], at + 1
            count, at = length(token >> 4, at)
            if at + count > len(data):
                raise CompressionError("lz4: literals end early")
            out += data[at : at + count]
            at += count
            if at == len(data):
                return bytes(out)
            if at > len(data) - LZ4_LAST_BYTES:
                raise CompressionError("lz4: a copy too near the end")
            distance, at = data[at] | data[at + 1] << 8, at + 2
            count, at = length(token & 15, at)
            repeat(out, distance, count + 4)
    except IndexError:
        raise CompressionError("lz4: block ends early") from None


def lz4(data: bytes, magic: int) -> bytes:
    """Write a frame of independent 64 KiB blocks; magic 0 has a wrong header checksum (KAFKA-3160)."""
    descriptor = b"\x60\x40"
    covered = LZ4_MAGIC + descriptor if magic == 0 else descriptor
    out = LZ4_MAGIC + descriptor + bytes([xxh32(covered) >> 8 & 0xFF])
    for part in cut(data, 64 << 10):
        block = bytes(cramjam.lz4.compress_block(part, store_size=False))
        stored = len(block) >= len(part)
        out += struct.pack("<I", len(part) | 1 << 31) + part if stored else struct.pack("<I", len(block)) + block
    return out + bytes(4)


PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def xxh32(data: bytes) -> int:
    """Return the 32-bit xxHash of ``data`` with seed 0."""
    p1, p2, p3, p4, p5 = PRIMES

    def rotated(value: int, count: int) -> int:
        value &= 0xFFFFFFFF
        return (value << count | value >> (32 - count)) & 0xFFFFFFFF

    total, at = p5, 0
    if len(data) >= 16:
        lanes = [p1 + p2, p2, 0, -p1]
        for at in range(0, len(data) - 15, 16):
            words = struct.unpack_from("<4I", data, at)
            lanes = [rotated(lane + word * p2, 13) * p1 for lane, word in zip(lanes, words, strict=True)]
        total = sum(map(rotated, lanes, (1, 7, 12, 18)))
        at += 16
    total += len(data)
    while at + 4 <= len(data):
        total = rotated(total + struct.unpack_from("<I", data, at)[0] * p3, 17) * p4
        at += 4
    for byte in data[at:]:
        total = rotated(total + byte * p5, 11) * p1
    total &= 0xFFFFFFFF
    total = (total ^ total >> 15) * p2 & 0xFFFFFFFF
    total = (total ^ total >> 13) * p3 & 0xFFFFFFFF
    return total ^ total >> 16


def unzstd(data: bytes) -> bytes:
    """Read zstd frames, skippable ones too."""
    out = b""
    while data:
        if data[1:4] == b"\x2a\x4d\x18" and data[0] >> 4 == 5:
            size = 8 + int.from_bytes(data[4:8], "little")
            if len(data) < size:
                raise CompressionError("zstd: ends early")
            data = data[size:]
            continue
        unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        try:
            out += unpacker.decompress(data)
        except zstandard.ZstdError as error:
            raise CompressionError(f"zstd: {error}") from error
        if not unpacker.eof:
            raise CompressionError("zstd: ends early")
        data = unpacker.unused_data
    return out
