"""The four codecs with exactly Kafka's framing, for the payload of one batch.

Which library does what, and why (wheels for CPython 3.10 to 3.14 on Linux x86-64 and aarch64, macOS and Windows;
licences that fit Apache-2.0; microseconds on one 16 KiB batch of one machine, for comparison only):

======  ==================================  =======  ====================================================
codec   library                             licence  reading; the next best
======  ==================================  =======  ====================================================
lz4     cramjam (blocks; frames are ours)   MIT      1.3 us
snappy  cramjam (blocks; xerial is ours)    MIT      2.7 us
zstd    python-zstandard                    BSD-3    11.5 us; cramjam 22, compression.zstd 22
gzip    isal (reading)                      PSF-2.0  20.7 us; zlib-ng 28, zlib 39
gzip    deflate (libdeflate; writing)       MIT      92 us to write; zlib-ng 105, zlib 162
======  ==================================  =======  ====================================================

python-lz4 (BSD-3) serves the levels of lz4 other than 9. libdeflate also reads, but knows neither an output limit that
holds nor a second member; isal also writes, but in four levels that compress less. zlib of the standard library
serves without isal or deflate. python-zstandard has no wheels for free-threaded builds: there, and from Python 3.14 on
unless it is installed, cramjam reads and writes zstd.

All of these let go of the GIL while they work, so threads use all cores (zstd contexts are kept per thread).

Reading never makes more than a limit, nor takes memory by a length that the bytes cannot bear out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pylogseg.format import gzip_members, lz4_frame, xerial, zstd_frames
from pylogseg.format.batches import CODEC_NAMES
from pylogseg.format.buffers import byte_view
from pylogseg.format.codec_error import DECOMPRESSED_LIMIT_BYTES, CodecError, over

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

#: Levels that Kafka's configuration allows, the ends included; codecs that are not here have none.
LEVELS = {GZIP: (1, 9), LZ4: (1, 17), ZSTD: (-131072, 22)}

#: What Kafka uses by default. For gzip -1 stands for 6.
DEFAULT_LEVELS = {GZIP: -1, LZ4: 9, ZSTD: 3}


def codec_number(codec: int | str) -> int:
    """Return the number of a codec that is given by number or name; `CodecError` where there is none."""
    if isinstance(codec, str):
        if codec in CODEC_NAMES:
            return CODEC_NAMES.index(codec)
    elif 0 <= codec < len(CODEC_NAMES):
        return int(codec)
    raise CodecError(
        f"unknown codec {codec!r}; expected one of {', '.join(CODEC_NAMES)}, or 0 to {len(CODEC_NAMES) - 1}"
    )


def decompress(codec: int | str, data: Any, *, magic: int = 2, limit: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """Decompress the payload of one batch, by number or name of the codec, to at most `limit` bytes.

    `data` is what follows a magic 2 header, or the value of a compressed message of magic 0 or 1, where lz4 differs
    (KAFKA-3160) and zstd is not known. Raises CodecError for bytes that the codec or Kafka's framing does not allow.
    """
    return decompress_view(codec_number(codec), byte_view(data), magic, limit)


def decompress_view(number: int, view: memoryview, magic: int, limit: int) -> bytes:
    """`decompress` for a codec number and a view of bytes; a number that is no codec's is an error here too."""
    if number == GZIP:
        return gzip_members.decompress(view, limit)
    if number == SNAPPY:
        return xerial.decompress(view, limit)
    if number == LZ4:
        return lz4_frame.decompress(view, limit, magic=magic)
    if number == ZSTD:
        _check_zstd(magic)
        return zstd_frames.decompress(view, limit)
    codec_number(number)
    if len(view) > limit:
        raise over(limit)
    return bytes(view)


def compress(codec: int | str, data: Any, *, magic: int = 2, level: int | None = None) -> bytes:
    """Compress records (magic 2) or whole inner messages (0 and 1) with the framing of Kafka's own writers.

    `level` is in the range of `LEVELS`, else `DEFAULT_LEVELS`; snappy has none. For lz4, 9 is the fast compressor and
    every other level the thorough one, which knows no difference above 12.
    """
    return compressor(codec, magic=magic, level=level)(byte_view(data))


def compressor(codec: int | str, *, magic: int = 2, level: int | None = None) -> Callable[[memoryview], bytes]:
    """Return `compress` for views of bytes, all else being said: for this thread, and for many payloads."""
    number = codec_number(codec)
    check_level(number, level)
    if number == GZIP:
        return partial(gzip_members.compress, level=level)
    if number == SNAPPY:
        return xerial.compress
    if number == LZ4:
        return partial(lz4_frame.compress, magic=magic, level=level)
    if number == ZSTD:
        _check_zstd(magic)
        return zstd_frames.compressor(level)
    return bytes


def check_level(codec: int, level: int | None) -> None:
    """Raise `CodecError` for a level that Kafka's configuration does not allow."""
    if level is None or level == DEFAULT_LEVELS.get(codec):
        return
    if codec not in LEVELS:
        raise CodecError(f"{CODEC_NAMES[codec]} has no levels")
    first, last = LEVELS[codec]
    if not first <= level <= last:
        raise CodecError(f"{CODEC_NAMES[codec]} has levels {first} to {last}, not {level}")


def _check_zstd(magic: int) -> None:
    if magic < 2:
        raise CodecError(f"zstd is not supported in batches of magic {magic}")
