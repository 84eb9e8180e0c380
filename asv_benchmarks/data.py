"""The data of the benchmarks: logs of 100-byte values without keys in batches of 16 KiB, for each codec.

Kafka writes them where it can run, else our own encoder does; readers of both sides read the same files. A log is in
``FOLDER/CODEC/bench-0``; ``FOLDER/sealed/CODEC/bench-0`` has the same segment (a link) and an empty one behind it, as a
broker leaves it after a roll: so the segment is sealed, and may be mapped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pylogseg import encode, scan

CODECS = ("none", "lz4", "snappy", "zstd", "gzip")
NAME = f"{0:020d}.log"
BATCH_BYTES = 16 * 1024 - 90
"""Size at which Kafka's benchmark ends a batch: 150 values of 100 bytes."""


class Log(NamedTuple):
    """One segment of a benchmark."""

    codec: str
    folder: Path
    sealed: Path
    path: Path
    records: int
    size_bytes: int


def values(count: int, seed: int = 7) -> list[bytes]:
    """Values of 100 bytes that compress about as JSON does: half a repeated text, half random hex digits."""
    random = np.random.default_rng(seed)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[random.integers(0, 16, (count, 50))]
    text = b'{"name":"page_view","country":"DE","device":"mobile"'[:50]
    return [text + row.tobytes() for row in digits]


def table(records: int, first_offset: int = 0) -> pa.Table:
    """Records as columns, what an encoder is given."""
    some = values(4096)
    offset = np.arange(first_offset, first_offset + records)
    repeats = -(-records // len(some))
    value = pa.chunked_array([pa.array(some, pa.binary())] * repeats).slice(0, records).combine_chunks()
    moment = pa.array((1_700_000_000_000 + offset // 145 % 512 + offset % 145) * 1000, pa.timestamp("us", "UTC"))
    return pa.table({"value": value, "offset": offset, "timestamp": moment})


def segment(records: int, codec: str = "none") -> bytes:
    """Bytes of a segment by our own encoder."""
    return b"".join(_pieces(records, codec))


def _pieces(records: int, codec: str) -> Iterator[bytes]:
    for first in range(0, records, 1 << 18):
        part = table(min(1 << 18, records - first), first)
        yield bytes(encode(part, compression=codec, batch_bytes=BATCH_BYTES))


def prepare(folder: Path, codec: str, records: int, kafka: Any) -> Log:
    """The log of a codec; made if it is not there, or smaller than asked for."""
    log = folder / codec / "bench-0"
    path = log / NAME
    if path.exists():
        reload(path)  # before anybody looks at it: what a map brings into an empty page cache comes in small pieces
    if not path.exists() or count_records(path) < records:
        shutil.rmtree(folder / codec, ignore_errors=True)
        log.mkdir(parents=True)
        if kafka is not None:
            kafka.write(folder / codec, records, codec)
        else:
            with path.open("wb") as file:
                file.writelines(_pieces(records, codec))
        reload(path)
    found = count_records(path)
    return Log(codec, folder / codec, _sealed(folder, codec, path, found), path, found, path.stat().st_size)


def reload(path: Path) -> None:
    """Drop a file from the page cache and read it again.

    So its pages lie there as those of a segment that is read long after it was written: in large folios that came by
    read-ahead, cheaper to map and to read for everybody, not in single pages as small writes leave them.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(descriptor, 8 << 20):
            pass
    finally:
        os.close(descriptor)


def count_records(path: Path) -> int:
    """Records of a file of batches, by their headers."""
    return int(scan(np.memmap(path, np.uint8, "r"), crc=False).batches.count.sum())


def _sealed(folder: Path, codec: str, path: Path, end_offset: int) -> Path:
    sealed = folder / "sealed" / codec / "bench-0"
    shutil.rmtree(sealed, ignore_errors=True)
    sealed.mkdir(parents=True)
    os.link(path, sealed / NAME)
    (sealed / f"{end_offset:020d}.log").touch()
    return sealed


def large_segment(source: Path, target: Path, size_bytes: int) -> int:
    """Repeat the batches of a file, with offsets that go on, up to a size; how many records that makes."""
    data = bytearray(source.read_bytes()[: 64 << 20])
    batches = scan(data, crc=False).batches
    data = np.frombuffer(data, np.uint8)[: int(batches.position[-1] + batches.size[-1])].copy()
    first, step = batches.base_offset.copy(), int(batches.last_offset[-1]) + 1
    place = batches.position[:, None] + np.arange(8)
    records = 0
    with target.open("wb") as file:
        while file.tell() + len(data) < size_bytes:
            # Offsets lie outside of what the CRC covers.
            data[place] = (first + records).astype(">i8").view(np.uint8).reshape(-1, 8)
            file.write(data)
            records += step
    return records
