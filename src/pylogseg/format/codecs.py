"""One record for each codec, and the functions for the payload of one batch, with exactly Kafka's framing.

The libraries and the reasons for them (wheels for CPython 3.10 to 3.14 on Linux x86-64 and aarch64, macOS and Windows;
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

A codec's functions are in a module of this package; its first use loads the module with its library.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from pylogseg.format.buffers import byte_view
from pylogseg.format.codec_error import DECOMPRESSED_LIMIT_BYTES, CodecError, over


class BlockLibrary(NamedTuple):
    """A library that decompresses the blocks of a payload, which a kernel finds."""

    #: ``into(block, target)`` decompresses a block.
    into: Callable[..., int]
    failure: type[Exception] | tuple[type[Exception], ...]  #: What it raises.
    #: Fills the block tables of payloads as `_framing.xerial_blocks` does, from one on; the argument after their ends
    #: says for which of them the checksum of the header is not looked at.
    tables: Callable[..., tuple[int, int]]
    is_exact: bool  #: True if the room of a block is its exact size, not the most bytes.


class WholeLibrary(NamedTuple):
    """A library that decompresses a payload by one call."""

    into: Callable[[memoryview, int], bytes]
    failure: type[Exception] | tuple[type[Exception], ...]  #: What it raises.
    rooms: Callable[..., None]  #: Fills the most bytes of each payload; -1 for what it may not be given.
    #: To try first, where a payload's own room may be far more than most need.
    first_room: int = 2**62


class Framing(Protocol):
    """The module of a codec: how Kafka frames it, and by which library."""

    def decompress(self, data: memoryview, limit: int, magic: int = 2) -> bytes:
        """Decompress the payload of one batch to at most `limit` bytes."""

    def compressor(self, level: int, magic: int) -> Callable[[memoryview], bytes]:
        """Return the function that compresses a payload, for this thread."""

    def library(self) -> BlockLibrary | WholeLibrary | None:
        """Return the library for many payloads in plain framing, for this thread; None where there is none."""

    def decompress_block(self, payload: memoryview) -> bytes | memoryview | None:
        """Decompress a payload that is one block in the framing of Kafka's own producers; None of any other."""


class BatchCodec(NamedTuple):
    """A codec of batches."""

    number: int
    name: str
    framing: str = ""  #: The module with its functions; none for bytes as they are.
    #: Levels that Kafka's configuration allows, the ends included; None without levels.
    levels: tuple[int, int] | None = None
    default_level: int = 0  #: Kafka's; -1 stands for the library's own.
    libraries: tuple[str, ...] = ()  #: Packages that do the work.
    lowest_magic: int = 0  #: Of batches that may have it.
    #: The first versions of Produce and Fetch whose clients know it.
    first_produce: int = 0
    first_fetch: int = 0

    def check_level(self, level: int | None) -> None:
        """Raise `CodecError` for a level that Kafka's configuration does not allow."""
        if level is None or (self.levels is not None and level == self.default_level):
            return
        if self.levels is None:
            raise CodecError(f"{self.name} has no levels")
        first, last = self.levels
        if not first <= level <= last:
            raise CodecError(f"{self.name} has levels {first} to {last}, not {level}")

    def check_magic(self, magic: int) -> None:
        """Raise `CodecError` for batches that may not have the codec."""
        if magic < self.lowest_magic:
            raise CodecError(f"{self.name} is not supported in batches of magic {magic}")


#: All codecs, each at its number.
CODECS = (
    BatchCodec(0, "none"),
    BatchCodec(1, "gzip", "gzip_members", (1, 9), -1, libraries=("isal", "deflate")),
    BatchCodec(2, "snappy", "xerial", libraries=("cramjam",)),
    BatchCodec(3, "lz4", "lz4_frame", (1, 17), 9, libraries=("cramjam", "lz4")),
    BatchCodec(
        4, "zstd", "zstd_frames", (-131072, 22), 3, ("zstandard",), lowest_magic=2, first_produce=7, first_fetch=10
    ),
)
CODEC_NAMES = tuple(codec.name for codec in CODECS)


def codec_of(codec: int | str) -> BatchCodec:
    """Return a codec by its number or name; `CodecError` where there is none."""
    if isinstance(codec, str):
        if codec in CODEC_NAMES:
            return CODECS[CODEC_NAMES.index(codec)]
    elif 0 <= codec < len(CODECS):
        return CODECS[codec]
    raise CodecError(f"unknown codec {codec!r}; expected one of {', '.join(CODEC_NAMES)}, or 0 to {len(CODECS) - 1}")


@functools.cache
def framing_of(number: int) -> Framing | None:
    """Return the functions of a codec; None of bytes as they are. `CodecError` where there is no such codec."""
    module = codec_of(number).framing
    return cast("Framing", importlib.import_module(f"pylogseg.format.{module}")) if module else None


def library_of(number: int) -> BlockLibrary | WholeLibrary | None:
    """Return the library for many payloads of a codec, for this thread; None where there is none, or no such codec."""
    framing = framing_of(number) if number < len(CODECS) else None
    return None if framing is None else framing.library()


def decompress(codec: int | str, data: Any, *, magic: int = 2, limit: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """Decompress the payload of one batch, by number or name of the codec, to at most `limit` bytes.

    `data` is the body behind a magic 2 header, or the value of a compressed message of magic 0 or 1. There lz4 differs
    (KAFKA-3160), and zstd does not exist. Raises CodecError for bytes that the codec or Kafka's framing does not allow.
    """
    return decompress_view(codec_of(codec).number, byte_view(data), magic, limit)


def decompress_view(number: int, view: memoryview, magic: int, limit: int) -> bytes:
    """`decompress` for a codec number and a view of bytes; a number that is no codec's is an error here too."""
    framing = framing_of(number)
    if framing is not None:
        CODECS[number].check_magic(magic)
        return framing.decompress(view, limit, magic)
    if len(view) > limit:
        raise over(limit)
    return bytes(view)


def compress(codec: int | str, data: Any, *, magic: int = 2, level: int | None = None) -> bytes:
    """Compress records (magic 2) or whole inner messages (0 and 1) with the framing of Kafka's own writers.

    `level` is in the range of the codec's `levels`, else its default; snappy has none. For lz4, 9 is the fast
    compressor and every other level the thorough one, which knows no difference above 12.
    """
    return compressor(codec, magic=magic, level=level)(byte_view(data))


def compressor(codec: int | str, *, magic: int = 2, level: int | None = None) -> Callable[[memoryview], bytes]:
    """Return `compress` for views of bytes, all else being said: for this thread, and for many payloads."""
    record = codec_of(codec)
    record.check_level(level)
    record.check_magic(magic)
    framing = framing_of(record.number)
    return bytes if framing is None else framing.compressor(record.default_level if level is None else level, magic)
