"""gzip as Kafka frames it: one RFC 1952 member as java.util.zip writes it, any number of them when read.

Reading is isal's (ISA-L), 1.9 times as fast as zlib, or zlib's where isal cannot be imported; writing is libdeflate's,
twice as fast as zlib at level 6 and smaller, or zlib's. Java's bytes differ from zlib's too from version to version.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from pylogseg._native import _framing
from pylogseg.format.codec_error import CodecError, of_library, over
from pylogseg.format.codecs import WholeLibrary

inflater: Any
try:
    from isal import isal_zlib as inflater
except ImportError:
    inflater = zlib

deflater: Any
try:
    import deflate as deflater
except ImportError:
    deflater = None

#: Java's header: no flags, no time, no hint about the level, unknown system (JDK 16 and later).
HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

_MEMBER = b"\x1f\x8b\x08"
_SMALLEST_MEMBER_BYTES = 18
_GZIP_WINDOW = 31
_DEFAULT_LEVEL = 6
# Members after the first are fed in pieces: each leaves a copy of the bytes that it did not use.
_PIECE_BYTES = 1 << 16

#: What the library raises.
FAILURES: tuple[type[Exception], ...] = (zlib.error, inflater.error, EOFError)


#: Room after the bytes that a member becomes: where there is none the library slows down.
_SLACK_BYTES = 64


def _first_member(data: memoryview, room: int) -> bytes:
    """Return the first member, even if it has more than `room` bytes; later members are not read."""
    out: bytes = inflater.decompress(data, _GZIP_WINDOW, room + _SLACK_BYTES)
    return out


def library() -> WholeLibrary:
    """Return the function for the first member of a payload."""
    return WholeLibrary(_first_member, FAILURES, _framing.gzip_rooms)


def decompress_block(payload: memoryview) -> None:
    """Return None: a payload is no block."""


def decompress(data: memoryview, limit: int, magic: int = 2) -> bytes:
    """Return all members of a stream; other bytes after a member are ignored, as Kafka ignores them."""
    inflate = inflater.decompressobj(_GZIP_WINDOW)
    try:
        # One byte more than allowed, so that the limit is told from its transgression (and 0 would mean "no limit").
        out: bytes = inflate.decompress(data, limit + 1)
    except FAILURES as error:
        raise of_library("gzip", error) from error
    if len(out) > limit:
        raise over(limit)
    if not inflate.eof:
        raise CodecError("gzip: the stream ends early")
    if len(inflate.unused_data) >= _SMALLEST_MEMBER_BYTES:
        return _further_members(data, len(data) - len(inflate.unused_data), out, limit)
    return out


def _further_members(data: memoryview, position: int, first: bytes, limit: int) -> bytes:
    parts, room = [first], limit - len(first)
    while len(data) - position >= _SMALLEST_MEMBER_BYTES and data[position : position + 3] == _MEMBER:
        inflate = inflater.decompressobj(_GZIP_WINDOW)
        while not inflate.eof:
            piece = data[position : position + _PIECE_BYTES]
            if not piece:
                raise CodecError("gzip: a further member ends early")
            try:
                part = inflate.decompress(piece, room + 1)
            except FAILURES as error:
                raise of_library("gzip", error, "a further member: ") from error
            room -= len(part)
            if room < 0:
                raise over(limit)
            parts.append(part)
            position += len(piece)
        position -= len(inflate.unused_data)
    return b"".join(parts)


#: Below this libdeflate writes more bytes than zlib, which is what Kafka uses.
_SMALL_BYTES = 2048


def compressor(level: int, magic: int) -> Callable[[memoryview], bytes]:
    """Return the function that makes one member, with the header that Java writes."""
    return partial(_compress, _DEFAULT_LEVEL if level == -1 else level)


def _compress(strength: int, data: memoryview) -> bytes:
    if deflater is not None and len(data) >= _SMALL_BYTES:
        out = deflater.gzip_compress(data, strength)
        return b"".join((HEADER, memoryview(out)[len(HEADER) :]))
    packer = zlib.compressobj(strength, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(data) + packer.flush()
    trailer = zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
    return HEADER + body + trailer
