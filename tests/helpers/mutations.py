"""Bytes made to mislead: good batches of every magic and codec, and what becomes of them when they are damaged.

The damage is done to where it hurts: to the file, to the bytes under a CRC (which is then made right again, so that the
decoder sees them), to records inside of compressed payloads, to the lengths that codecs declare.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import zstandard
from reference import batch as slow
from reference import build
from reference.compression import CODECS, LZ4_MAGIC, XERIAL_HEADER, compress, xxh32

from pylogseg._codec import crc32c

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "data"
BOMB_BYTES = 4 << 20
NUMBERS = (0, 1, 2, 13, 14, 16, 22, 34, 49, 61, 127, 128, 255, 256, 65535, 1 << 20, 1 << 30, 2**31 - 13, 2**31 - 1)
#: Places of the numbers in batch headers, and of the first ones in bodies.
PLACES = (0, 8, 12, 16, 17, 18, 21, 23, 26, 27, 30, 35, 43, 51, 53, 57, 61, 62, 65)


class Seed(NamedTuple):
    """A good batch, and its records (or inner messages) as they were before compression."""

    data: bytes
    magic: int
    codec: str
    body: bytes


class Input(NamedTuple):
    """Bytes of a file of batches; heavy ones become much larger than they are."""

    data: bytes
    heavy: bool


def _records(count: int, size: int) -> list[slow.Record]:
    return [
        slow.Record(
            1000 + i,
            1_600_000_000_000 + 7 * i,
            (None, b"", b"key-%d" % i)[i % 3],
            (b"v%d " % i * size, None, b"")[i % 4 % 3],
            ((b"h", b"x"), (b"", None), (b"name", b"y" * size))[: i % 4],
        )
        for i in range(count)
    ]


@cache
def seeds() -> tuple[Seed, ...]:
    """One batch of each magic, codec and kind, and short ones of real brokers."""
    made = []
    for records in (_records(1, 1), _records(6, 3), _records(40, 2), _records(2, 30_000)):
        bare = [record._replace(headers=()) for record in records]
        for codec in CODECS:
            for options in ({}, {"log_append_time": 5}, {"producer_id": 7, "producer_epoch": 1, "transactional": True}):
                made.append(build.batch_v2(records, codec=codec, **options))
            if codec != "zstd":
                made += [build.legacy(bare, magic, codec=codec) for magic in (0, 1)]
    made += [build.end_marker(50, commit=commit, producer_id=7, producer_epoch=1) for commit in (True, False)]
    made += [build.batch_v2([], base_offset=10, last_offset=19), build.batch_v2(_records(3, 1), delete_horizon=99)]
    made += _of_brokers()
    return tuple(_seed(batch) for data in made for batch in slow.batches(data))


def _of_brokers() -> list[bytes]:
    found: dict[bytes, bytes] = {}
    for path in sorted(EXAMPLES.rglob("*.log")):
        small = [batch for batch in slow.batches(path.read_bytes()) if batch.size < 1000][:3]
        found |= {batch.data[57:80]: batch.data for batch in small}
    return list(found.values())


def _seed(batch: slow.Batch) -> Seed:
    if batch.magic == 2:
        body = slow.decompressed(batch, batch.data[61:]) if batch.count else b""
    elif batch.codec == "none":
        body = batch.data[18:]
    else:
        body = slow.decompressed(batch, slow.legacy_record(batch.data, -1, -1).value or b"")
    return Seed(batch.data, batch.magic, batch.codec, body)


# ---- plain damage ----


def flipped(rng: Random, data: bytearray) -> None:
    """Flip one bit."""
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_byte(rng: Random, data: bytearray) -> None:
    """Set one byte to a telling value."""
    data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF, rng.randrange(256)))


def numbered(rng: Random, data: bytearray) -> None:
    """Write a number of 2, 4 or 8 bytes where one may stand."""
    at = rng.choice(PLACES) if rng.random() < 0.6 else rng.randrange(len(data))
    value = rng.choice(NUMBERS) if rng.random() < 0.8 else rng.getrandbits(63)
    value = -value - rng.randrange(2) if rng.random() < 0.4 else value
    size = rng.choice((2, 4, 4, 4, 8))
    raw = (value % (1 << 8 * size)).to_bytes(size, rng.choice(("big", "big", "little")))
    if at + size <= len(data):
        data[at : at + size] = raw


def cut(rng: Random, data: bytearray) -> None:
    """Cut off the end."""
    del data[rng.randrange(len(data)) :]


def removed(rng: Random, data: bytearray) -> None:
    """Remove some bytes."""
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 1, 2, 4, 8, rng.randrange(1, 100)))]


def repeated(rng: Random, data: bytearray) -> None:
    """Repeat some bytes somewhere."""
    first, at = rng.randrange(len(data)), rng.randrange(len(data))
    data[at:at] = data[first : first + rng.randrange(1, 100)]


def inserted(rng: Random, data: bytearray) -> None:
    """Insert zeros, junk, or a varint that does not end."""
    at = rng.randrange(len(data) + 1)
    size = rng.choice((1, 4, 5, 9, 10, rng.randrange(200)))
    data[at:at] = rng.choice((bytes(size), b"\xff" * size, b"\x80" * size + b"\x01", rng.randbytes(size)))


def spliced(rng: Random, data: bytearray) -> None:
    """Go on as another seed does."""
    other = rng.choice(seeds()).data
    at = rng.randrange(min(len(other), 200))
    data[rng.randrange(len(data)) :] = other[at : at + 2000]


DAMAGE: tuple[Callable[[Random, bytearray], None], ...] = (
    flipped,
    flipped,
    set_byte,
    set_byte,
    numbered,
    numbered,
    numbered,
    cut,
    removed,
    repeated,
    inserted,
    spliced,
)


def damaged(rng: Random, data: bytes, most: int = 3) -> bytes:
    """Do one to `most` kinds of damage."""
    out = bytearray(data)
    for _ in range(rng.randint(1, most)):
        if out:
            rng.choice(DAMAGE)(rng, out)
    return bytes(out)


# ---- damage that a checksum does not tell ----


def sealed(data: bytes, length: bool = True) -> bytes:
    """Make the CRC right again, and the length if it is asked for."""
    if len(data) < 22:
        return data
    out = bytearray(data)
    if length:
        struct.pack_into(">i", out, 8, len(out) - 12)
    if out[16] == 2:
        struct.pack_into(">I", out, 17, crc32c(out[21:]))
    else:
        struct.pack_into(">I", out, 12, zlib.crc32(out[16:]))
    return bytes(out)


def with_payload(seed: Seed, payload: bytes, codec: str | None = None) -> bytes:
    """The batch of a seed with another payload behind its header."""
    number = CODECS.index(seed.codec if codec is None else codec)
    head = bytearray(seed.data[:61] if seed.magic == 2 else seed.data[: 18 if seed.magic == 0 else 26])
    at = 22 if seed.magic == 2 else 17
    head[at] = head[at] & ~7 | number
    if seed.magic < 2:
        head += struct.pack(">ii", -1, len(payload))
    return sealed(bytes(head) + payload)


def inside(rng: Random, seed: Seed) -> bytes:
    """Damage records before they are compressed."""
    body = damaged(rng, seed.body) if seed.body else rng.randbytes(rng.randrange(40))
    if seed.codec == "none":
        return sealed(seed.data[: 61 if seed.magic == 2 else 18] + body)
    return with_payload(seed, compress(seed.codec, body, seed.magic))


@cache
def bombs() -> dict[str, bytes]:
    """For each codec, a payload that becomes much larger than it is."""
    zeros = bytes(BOMB_BYTES)
    copies = b"\xfe\x01\x00" * (BOMB_BYTES // 64)
    found = {codec: compress(codec, zeros) for codec in ("gzip", "lz4", "zstd")}
    return {**found, "snappy": b"\x81\x80\x80\x02\x00\x00" + copies}


def lying(rng: Random, codec: str) -> bytes:
    """A payload whose framing declares lengths that are not so."""
    body = rng.choice(seeds()).body[:500]
    size = rng.choice((0, 1, len(body) + 1, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 62))
    if codec == "gzip":
        lie = struct.pack("<I", size & 0xFFFFFFFF)
        return compress(codec, body)[:-4] + lie + rng.choice((b"", b"\x1f\x8b\x08" * 9))
    if codec == "snappy":
        raw = uvarint(size) + rng.choice((b"", b"\x00a", b"\xfe\x01\x00" * 20))
        return raw if rng.random() < 0.5 else XERIAL_HEADER + struct.pack(">I", size & 0xFFFFFFFF) + raw
    if codec == "lz4":
        descriptor = bytes((rng.choice((0x60, 0x68, 0x64, 0x70, 0x40)), rng.choice((0x40, 0x50, 0x60, 0x70))))
        descriptor += struct.pack("<Q", size) if descriptor[0] & 8 else b""
        head = LZ4_MAGIC + descriptor + bytes((xxh32(descriptor) >> 8 & 0xFF,))
        return head + struct.pack("<I", size & 0xFFFFFFFF) + body + bytes(rng.choice((0, 4)))
    if rng.random() < 0.3:
        return zstandard.ZstdCompressor(write_content_size=True, write_checksum=True).compress(body)
    flags = rng.choice((0xE0, 0xC0, 0xA0, 0x80, 0x20, 0x00))
    head = b"\x28\xb5\x2f\xfd" + bytes((flags,)) + (b"" if flags & 0x20 else bytes((rng.choice((0, 0x58, 0xFF)),)))
    head += struct.pack("<Q", size)[: (1 if flags & 0x20 else 0, 2, 4, 8)[flags >> 6]]
    block = rng.choice((len(body) << 3 | 1, min(size, 1 << 20) << 3 | 3, len(body) << 3 | 5, 7))
    return head + struct.pack("<I", block)[:3] + body


def uvarint(value: int) -> bytes:
    """An unsigned varint of any size."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes((value,))


# ---- inputs ----


def payload(rng: Random) -> tuple[str, int, bytes, bool]:
    """A payload of a codec: codec, magic, bytes, whether it is heavy."""
    codec, magic, kind = rng.choice(CODECS[1:]), rng.choice((0, 1, 2, 2)), rng.random()
    if kind < 0.03:
        data = bombs()[codec]
        return codec, magic, damaged(rng, data, 1) if rng.random() < 0.5 else data, True
    if kind < 0.4:
        return codec, magic, lying(rng, codec), True
    if kind < 0.45:
        return codec, magic, rng.randbytes(rng.randrange(60)), False
    body = rng.choice(seeds()).body
    return codec, magic, damaged(rng, compress(codec, body, magic)), len(body) > 5000


def batch(rng: Random) -> Input:
    """A batch, damaged or not."""
    seed, kind = rng.choice(seeds()), rng.random()
    heavy = len(seed.body) > 5000
    if kind < 0.15:
        return Input(seed.data, heavy)
    if kind < 0.35:
        return Input(damaged(rng, seed.data), heavy)
    if kind < 0.60:
        return Input(sealed(damaged(rng, seed.data), rng.random() < 0.8), heavy)
    if kind < 0.92:
        return Input(inside(rng, seed), heavy)
    codec, _, data, heavy = payload(rng)
    return Input(with_payload(seed, data, codec), heavy)


def file(rng: Random) -> Input:
    """A file of one to four batches, with something behind them or not."""
    parts = [batch(rng) for _ in range(rng.choice((1, 1, 2, 2, 3, 4)))]
    data = b"".join(part.data for part in parts)
    kind = rng.random()
    if kind < 0.1:
        data += bytes(rng.choice((1, 16, 17, 61, 5000)))
    elif kind < 0.15:
        data += rng.randbytes(rng.randrange(200))
    elif kind < 0.3:
        data = damaged(rng, data, 1)
    elif kind < 0.32:
        data = rng.randbytes(rng.randrange(300))
    return Input(data, any(part.heavy for part in parts))
