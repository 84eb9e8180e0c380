"""zstd as Kafka writes it (one frame, neither content size nor checksum) and reads it (any frames, one after another).

The work is python-zstandard's, whose contexts are kept, one for each thread: 1.9 times the speed of libraries that
make one for each frame. Where it cannot be imported (it has no wheels for free-threaded builds), cramjam stands in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import cramjam

from pylogseg._native import _framing
from pylogseg.format.codec_error import CodecError, of_library, over
from pylogseg.format.codecs import WholeLibrary

zstandard: Any
try:
    import zstandard
except ImportError:
    zstandard = None

#: What the library raises.
Failure: type[Exception] = cramjam.DecompressionError if zstandard is None else zstandard.ZstdError

DEFAULT_LEVEL = 3
_PIECE_BYTES = 1 << 20
#: What a batch of Kafka's usual 16 KiB fits in.
_FIRST_ROOM_BYTES = 20 << 10

_SKIPPABLE = b"\x2a\x4d\x18"  # after a byte 0x50 to 0x5f


class _Contexts(threading.local):
    """Contexts of one thread: the library lets go of the GIL while it uses one."""

    def __init__(self) -> None:
        self.decompress = zstandard.ZstdDecompressor().decompress
        self.compress: dict[int, Any] = {}

    def compressor(self, level: int) -> Any:
        if level not in self.compress:
            context = zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=False)
            self.compress[level] = context.compress
        return self.compress[level]


_contexts = _Contexts() if zstandard is not None else None


def library() -> WholeLibrary | None:
    """Return the function for one frame, for this thread; None without python-zstandard."""
    if _contexts is None:
        return None
    return WholeLibrary(_contexts.decompress, Failure, _framing.zstd_rooms, _FIRST_ROOM_BYTES)


def decompress_block(payload: memoryview) -> None:
    """Return None: a payload is no block."""


def decompress(data: memoryview, limit: int, magic: int = 2) -> bytes:
    """Return all frames; any other bytes, or an end before the last block's, are an error as in Kafka."""
    parts: list[bytes] = []
    position, room = 0, limit
    while position < len(data):
        if data[position] >> 4 == 5 and data[position + 1 : position + 4] == _SKIPPABLE:
            position = _skip(data, position)
            continue
        # Measured here, since the library reads one frame, and says nothing of bytes after one without content size.
        try:
            end, declared, most = _framing.zstd_frame(data, position)
        except ValueError as error:
            raise CodecError(f"zstd: {error} at byte {position}") from error
        if declared > most or (declared == 0 and most):
            raise CodecError(f"zstd: a frame declares {declared} bytes, its blocks become at most {most}")
        if declared > room:
            raise over(limit)
        parts.append(_one(data[position:end], min(most if declared < 0 else declared, room), most, limit))
        room -= len(parts[-1])
        position = end
    if not parts:
        raise CodecError("zstd: no frame")
    return b"".join(parts)


def _skip(data: memoryview, position: int) -> int:
    size = data[position + 4 : position + 8]
    end = position + 8 + int.from_bytes(size, "little")
    if len(size) < 4 or end > len(data):
        raise CodecError("zstd: a skippable frame ends early")
    return end


def _one(data: memoryview, room: int, most: int, limit: int) -> bytes:
    try:
        if _contexts is None:
            target = bytearray(room)
            return bytes(memoryview(target)[: cramjam.zstd.decompress_into(data, target)])
        out: bytes = _contexts.decompress(data, max_output_size=max(room, 1))
    except (Failure, cramjam.DecompressionError) as error:
        if room < most and _becomes_more(data, room):
            raise over(limit) from error
        raise of_library("zstd", error) from error
    if len(out) > room:
        raise over(limit)
    return out


def _becomes_more(data: memoryview, room: int) -> bool:
    """Return whether a frame really becomes more bytes than there is room for, and does not break off before."""
    if zstandard is None:  # which tells only that there was no room: all that can be said
        return True
    count = 0
    try:
        with zstandard.ZstdDecompressor(max_window_size=0).stream_reader(data) as reader:
            while count <= room and (piece := reader.read(_PIECE_BYTES)):
                count += len(piece)
    except Failure:
        return False
    return count > room


def compressor(level: int, magic: int = 2) -> Callable[[memoryview], bytes]:
    """Return the function that makes one frame of a view, for this thread."""
    if _contexts is None:
        return lambda data: bytes(cramjam.zstd.compress(data, level))
    function: Callable[[memoryview], bytes] = _contexts.compressor(level)
    return function


def sized_compressor() -> Callable[[memoryview], bytes]:
    """Return the function that makes one frame which says its size, as readers of tiers want it, for this thread."""
    if zstandard is None:
        return lambda data: bytes(cramjam.zstd.compress(data, DEFAULT_LEVEL))
    function: Callable[[memoryview], bytes] = zstandard.ZstdCompressor(level=DEFAULT_LEVEL).compress
    return function
