"""The libraries behind the codecs by themselves: the same blocks, a loop and nothing else."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from typing import Any

from pylogseg import scan
from pylogseg.format.codecs import decompress

_V2_HEADER_BYTES = 61


def payloads(data: bytes) -> list[memoryview]:
    """What is compressed in each batch."""
    batches, view = scan(data, crc=False).batches, memoryview(data)
    ends = (batches.position + batches.size).tolist()
    return [view[start + _V2_HEADER_BYTES : end] for start, end in zip(batches.position.tolist(), ends, strict=True)]


def reader(codec: str, data: bytes) -> Callable[[], None]:
    """A function that decompresses all batches of a file, each into memory that was used before where that works."""
    found = payloads(data)
    if codec == "zstd":
        return _each(_zstd_reader(), found)
    if codec == "gzip":
        return _each(_gzip_reader(), found)
    import cramjam

    split = _xerial_blocks if codec == "snappy" else _lz4_blocks
    blocks = list(itertools.chain.from_iterable(map(split, found)))
    scratch = memoryview(bytearray(1 << 20))
    if codec == "snappy":
        into = cramjam.snappy.decompress_raw_into
        return _each(lambda block: into(block, scratch), blocks)
    most = max(len(decompress(codec, payload)) for payload in found[:64])
    into = cramjam.lz4.decompress_block_into
    room = scratch[: 4 * most]
    return _each(lambda block: into(block, room, len(room)), blocks)


def writer(codec: str, data: bytes) -> Callable[[], None]:
    """A function that compresses what is in all batches of a file, as one block each."""
    raw = [decompress(codec, payload) for payload in payloads(data)]
    if codec == "zstd":
        try:
            import zstandard

            return _each(zstandard.ZstdCompressor(level=3).compress, raw)
        except ImportError:
            import cramjam

            return _each(lambda block: cramjam.zstd.compress(block, 3), raw)
    from pylogseg.format import gzip_members

    if gzip_members.deflater is not None:
        pack = gzip_members.deflater.gzip_compress
        return _each(lambda block: pack(block, 6), raw)
    import zlib

    return _each(lambda block: zlib.compress(block, 6), raw)


def _each(work: Callable[[Any], object], blocks: list[Any]) -> Callable[[], None]:
    def run() -> None:
        for block in blocks:
            work(block)

    return run


def _zstd_reader() -> Callable[[Any], object]:
    try:
        import zstandard
    except ImportError:
        import cramjam

        return cramjam.zstd.decompress
    context = zstandard.ZstdDecompressor()
    return lambda block: context.decompress(block, max_output_size=1 << 17)


def _gzip_reader() -> Callable[[Any], object]:
    try:
        from isal import isal_zlib as library
    except ImportError:
        import zlib as library
    return lambda block: library.decompress(block, 31, 1 << 15)


def _xerial_blocks(payload: memoryview) -> Iterator[memoryview]:
    at = 16
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        yield payload[at + 4 : at + 4 + size]
        at += 4 + size


def _lz4_blocks(payload: memoryview) -> Iterator[memoryview]:
    at = 7
    while True:
        (size,) = struct.unpack_from("<I", payload, at)
        if size == 0:
            return
        if not size >> 31:  # else it is stored as it is
            yield payload[at + 4 : at + 4 + size]
        at += 4 + (size & 0x7FFFFFFF)
