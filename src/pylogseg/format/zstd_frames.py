"""zstd as Kafka writes it (one frame, neither content size nor checksum) and reads it (any frames, one behind another).

The work is python-zstandard's, whose contexts are kept, one for each thread: 1.9 times the speed of libraries that
make one for each frame. Where it cannot be imported (it has no wheels for free-threaded builds), cramjam stands in.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from pylogseg.format.codec_error import CodecError, over

library: Any
try:
    import zstandard as library
except ImportError:
    library = None
    import cramjam

MAGIC = b"\x28\xb5\x2f\xfd"
DEFAULT_LEVEL = 3

_SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte 0x50 to 0x5f
_LARGEST_BLOCK_BYTES = 128 << 10
# A frame that becomes no more than this is read without a look at its blocks.
_SMALL_BYTES = 128 << 10
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_RAW, _RUN, _COMPRESSED = 0, 1, 2


class _Contexts(threading.local):
    """Contexts of one thread: the library lets go of the GIL while it uses one."""

    def __init__(self) -> None:
        self.decompress = library.ZstdDecompressor().decompress
        self.compress: dict[int, Any] = {}

    def compressor(self, level: int) -> Any:
        if level not in self.compress:
            context = library.ZstdCompressor(level=level, write_content_size=False, write_checksum=False)
            self.compress[level] = context.compress
        return self.compress[level]


_contexts = _Contexts() if library is not None else None


class _Frame(NamedTuple):
    end: int
    content_bytes: int | None  # as declared
    most_bytes: int  # that its blocks can become


def decompress(data: memoryview, limit: int) -> bytes:
    """All frames; any other bytes, or an end before the last block's, are an error as in Kafka."""
    if _contexts is not None and limit >= _SMALL_BYTES:
        try:
            declared = library.frame_content_size(data)  # -1 unknown
            # The library verifies nothing of a frame that declares 0 bytes.
            if declared <= _SMALL_BYTES and declared != 0:
                out: bytes = _contexts.decompress(data, max_output_size=_SMALL_BYTES, allow_extra_data=False)
                return out
        except library.ZstdError:
            pass  # damaged, larger, or more than one frame
    return _frames(data, limit)


def _frames(data: memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    position, room = 0, limit
    while position < len(data):
        if data[position] >> 4 == 5 and data[position + 1 : position + 4] == _SKIPPABLE:
            position += 8 + int.from_bytes(_take(data, position + 4, 4), "little")
            if position > len(data):
                raise CodecError("zstd: a skippable frame ends early")
            continue
        frame = _measure(data, position)
        declared = frame.most_bytes if frame.content_bytes is None else frame.content_bytes
        if declared > frame.most_bytes:
            raise CodecError(f"zstd: a frame declares {declared} bytes, its blocks become at most {frame.most_bytes}")
        if frame.content_bytes == 0 and frame.most_bytes:
            raise CodecError("zstd: a frame declares 0 bytes but has some")
        if frame.content_bytes is not None and declared > room:
            raise over(limit)
        parts.append(_one(data[position : frame.end], min(declared, room), frame.most_bytes, limit))
        room -= len(parts[-1])
        position = frame.end
    if not parts:
        raise CodecError("zstd: no frame")
    return b"".join(parts)


def _one(data: memoryview, room: int, most: int, limit: int) -> bytes:
    try:
        if _contexts is None:
            target = bytearray(room)
            return bytes(memoryview(target)[: cramjam.zstd.decompress_into(data, target)])
        out: bytes = _contexts.decompress(data, max_output_size=max(room, 1))
    except (library.ZstdError if library is not None else cramjam.DecompressionError) as error:
        if room < most:
            raise CodecError(f"zstd: broken, or becomes more than {limit} bytes, the limit: {error}") from error
        raise CodecError(f"zstd: {error}") from error
    if len(out) > room:
        raise over(limit)
    return out


def _measure(data: memoryview, start: int) -> _Frame:
    """Walk the blocks of a frame without decompressing them."""
    if _take(data, start, 4) != MAGIC:
        raise CodecError(f"zstd: no frame at byte {start}")
    flags = _take(data, start + 4, 1)[0]
    single = flags >> 5 & 1
    if flags & 0x08:
        raise CodecError("zstd: a reserved bit of the frame header is set")
    position = start + 5
    window = 0
    if not single:
        exponent, mantissa = divmod(_take(data, position, 1)[0], 8)
        window = (8 + mantissa) << (7 + exponent)
        position += 1
    position += _DICTIONARY_ID_BYTES[flags & 3]
    size_bytes = _CONTENT_SIZE_BYTES[flags >> 6] or single
    content = int.from_bytes(_take(data, position, size_bytes), "little") + (256 if size_bytes == 2 else 0)
    position, most = _blocks(data, position + size_bytes, min(content if single else window, _LARGEST_BLOCK_BYTES))
    if flags & 0x04:
        _take(data, position, 4)
        position += 4
    return _Frame(position, content if size_bytes else None, most)


def _blocks(data: memoryview, position: int, largest: int) -> tuple[int, int]:
    """End of the blocks that begin at `position`, and the bytes that they become at most."""
    most = 0
    last = 0
    while not last:
        header = int.from_bytes(_take(data, position, 3), "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind > _COMPRESSED:
            raise CodecError(f"zstd: a block of unknown type at byte {position}")
        most += largest if kind == _COMPRESSED else size
        position += 3 + (1 if kind == _RUN else size)
        if position > len(data):
            raise CodecError("zstd: the stream ends early")
    return position, most


def _take(data: memoryview, position: int, size: int) -> memoryview:
    part = data[position : position + size]
    if len(part) < size:
        raise CodecError("zstd: the stream ends early")
    return part


def compress(data: memoryview, level: int | None) -> bytes:
    """One frame."""
    strength = DEFAULT_LEVEL if level is None else level
    if _contexts is None:
        return bytes(cramjam.zstd.compress(data, strength))
    out: bytes = _contexts.compressor(strength)(data)
    return out
