"""Tests of _native/_framing.pyx, format/codec_error.py, format/codecs.py, format/compression.py,
format/gzip_members.py, format/lz4_frame.py, format/xerial.py and format/zstd_frames.py. The four codecs, one payload at
a time: vectors, the slow reference, real files, damage, bombs.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tracemalloc
import zlib
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard
from helpers.kafka_storage import Kafka
from hypothesis import given
from hypothesis import strategies as st
from reference import batch as reference_batch
from reference import build
from reference import compression as reference

from pylogseg._native import _framing
from pylogseg.format import gzip_members, zstd_frames
from pylogseg.format.compression import CodecError, compress, decompress

NAMES = ("gzip", "snappy", "lz4", "zstd")
PAIRS = [(codec, magic) for codec in NAMES for magic in (0, 1, 2) if codec != "zstd" or magic == 2]
LEVELS = {
    "gzip": (None, -1, 1, 6, 9),
    "snappy": (None,),
    "lz4": (None, 1, 9, 12, 17),
    "zstd": (None, -131072, -1, 3, 9),
}
SIZES = (0, 1, 1000, 32768, 32769, 65536, 65537, 98304)
SKIPPABLE = bytes.fromhex("5e2a4d18") + struct.pack("<I", 3) + b"xyz"


def round_trips(codec: str, magic: int, size: int) -> None:
    for data in (random.Random(size).randbytes(size), b"\1" * size):
        for level in LEVELS[codec]:
            packed = compress(codec, data, magic=magic, level=level)
            assert type(packed) is bytes
            assert decompress(codec, packed, magic=magic) == data
            assert reference.decompress(codec, packed, magic) == data
        assert decompress(codec, reference.compress(codec, data, magic), magic=magic) == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("codec", "magic"), PAIRS)
def test_round_trips_and_the_reference_reads_it(codec: str, magic: int, size: int) -> None:
    round_trips(codec, magic, size)


@given(data=st.binary(max_size=300), repeat=st.integers(1, 400), pair=st.sampled_from(PAIRS))
def test_any_bytes_round_trip(data: bytes, repeat: int, pair: tuple[str, int]) -> None:
    codec, magic = pair
    packed = compress(codec, data * repeat, magic=magic)
    assert decompress(codec, packed, magic=magic) == data * repeat
    assert reference.decompress(codec, packed, magic) == data * repeat


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", ["none", *NAMES])
def test_any_buffer(codec: str, kind: type) -> None:
    packed = compress(codec, kind(b"hello" * 100))
    assert decompress(codec, kind(packed)) == b"hello" * 100


def test_vectors() -> None:
    # Kafka's own and the JDK's; the two lz4 ones differ by KAFKA-3160.
    assert compress("lz4", b"hello").hex() == "04224d186040820500008068656c6c6f00000000"
    assert compress("lz4", b"hello", magic=0).hex() == "04224d1860401a0500008068656c6c6f00000000"
    assert decompress("lz4", bytes.fromhex("04224d1860401a0500008068656c6c6f00000000"), magic=0) == b"hello"
    assert compress("lz4", b"").hex() == "04224d1860408200000000"
    jdk = bytes.fromhex("1f8b08000000000000ffcb48cdc9c9070086a6103605000000")
    assert decompress("gzip", jdk) == b"hello"
    assert compress("gzip", b"hello")[:10] == jdk[:10]
    assert compress("gzip", b"hello")[-8:] == jdk[-8:]
    assert compress("snappy", b"").hex() == "82534e415050590000000001" + "00000001"
    packed = compress("zstd", b"hello" * 50)
    assert packed[:4].hex() == "28b52ffd"
    assert packed[4] & 0xE4 == 0, "neither content size nor checksum"


def test_lz4_of_kafka_itself() -> None:
    # MemoryRecordsTest.testChecksum, magic 2: the records behind the header.
    stream = bytes.fromhex(
        "04224d186040822400008020000000086b6579310c76616c756531002400e1bf2202086b6579320c76616c7565320000000000"
    )
    records = decompress("lz4", stream)
    assert b"key1" in records
    assert compress("lz4", records) == stream


def test_blocks_of_the_writers() -> None:
    data = b"ab" * 50_000
    sizes = []
    packed, at = compress("snappy", data), 16
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 4], "big")
        sizes.append(cramjam.snappy.decompress_raw_len(packed[at + 4 : at + 4 + size]))
        at += 4 + size
    assert sizes == [32768, 32768, 32768, 1696]
    assert lz4.frame.get_frame_info(compress("lz4", data))["block_size"] == 65536
    assert lz4.frame.decompress(compress("lz4", data)) == data


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 0), ("gzip", 10), ("lz4", 0), ("lz4", 18), ("zstd", 23), ("snappy", 1)]
)
def test_refuses_levels_that_kafka_refuses(codec: str, level: int) -> None:
    with pytest.raises(CodecError, match="level"):
        compress(codec, b"x", level=level)


def test_refuses_what_is_no_codec() -> None:
    for codec in (5, 7, -1, "brotli"):
        with pytest.raises(CodecError, match="unknown codec"):
            decompress(codec, b"")
    for magic in (0, 1):
        with pytest.raises(CodecError, match="magic"):
            compress("zstd", b"x", magic=magic)
        with pytest.raises(CodecError, match="magic"):
            decompress("zstd", compress("zstd", b"x"), magic=magic)


def test_higher_levels_compress_more() -> None:
    data = b"".join(b"%d:%d," % (i % 97, i * i % 8191) for i in range(9000))
    for codec, low, high in (("gzip", 1, 9), ("lz4", 9, 12), ("zstd", -50, 19)):
        assert len(compress(codec, data, level=high)) < len(compress(codec, data, level=low))


# ---- what readers accept ----


def gzip_members_and_other_bytes() -> None:
    one, two = gzip.compress(b"one"), compress("gzip", b"two" * 99_999)
    named = b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0"
    assert decompress("gzip", one + two + compress("gzip", b"") + one) == b"one" + b"two" * 99_999 + b"one"
    assert decompress("gzip", named + one[10:]) == b"one"
    for garbage in (b"\0", b"\x1f\x8b", bytes(100), b"garbage that is longer than a member"):
        assert decompress("gzip", one + garbage) == b"one"
    with pytest.raises(CodecError, match="further member"):
        decompress("gzip", one + two[:-1])
    for at in (-1, -8):
        with pytest.raises(CodecError):
            decompress("gzip", one[:at] + bytes([one[at] ^ 1]) + (one[at + 1 :] if at < -1 else b""))


def test_gzip_members_and_other_bytes() -> None:
    gzip_members_and_other_bytes()


def test_many_gzip_members_take_linear_time() -> None:
    assert decompress("gzip", compress("gzip", b"x") * 50_000) == b"x" * 50_000


def test_snappy_streams_and_raw_blocks() -> None:
    data = random.Random(1).randbytes(500) * 200
    stream, raw = compress("snappy", data), bytes(cramjam.snappy.compress_raw(data))
    assert decompress("snappy", raw) == data
    assert decompress("snappy", bytes(cramjam.snappy.compress_raw(b"short"))) == b"short"
    assert decompress("snappy", stream + stream) == data + data
    assert decompress("snappy", stream + b"\0\0\1") == data, "a cut length is the end"
    assert decompress("snappy", stream[:8] + struct.pack(">ii", 7, 1) + stream[16:]) == data, "later versions"
    version_0 = stream[:8] + bytes(8) + stream[16:]
    assert decompress("snappy", version_0) == data, "the version of the first header is not looked at"
    for bad in (b"", stream + version_0, stream + stream[:15], stream + bytes(4), stream + b"\xff" * 4):
        with pytest.raises(CodecError, match="snappy"):
            decompress("snappy", bad)


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("block_checksum", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("content_size", [False, True])
def test_lz4_frames_of_others(
    block_size: int, block_checksum: bool, content_checksum: bool, content_size: bool
) -> None:
    data = random.Random(2).randbytes(70_000) + bytes(5_000_000)
    frame = lz4.frame.compress(
        data,
        block_size=block_size,
        block_linked=False,
        block_checksum=block_checksum,
        content_checksum=content_checksum,
        store_size=content_size,
    )
    assert decompress("lz4", frame) == data
    at = 14 if content_size else 6
    wrong = frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]
    assert decompress("lz4", wrong, magic=0) == data
    with pytest.raises(CodecError, match="frame header"):
        decompress("lz4", wrong, magic=1)
    if block_checksum:
        with pytest.raises(CodecError, match="checksum of the block"):
            decompress("lz4", frame[: at + 20] + bytes([frame[at + 20] ^ 1]) + frame[at + 21 :])
    if content_checksum:
        with pytest.raises(CodecError, match="ends early"):
            decompress("lz4", frame[:-1])
        assert decompress("lz4", frame[:-4] + b"\0\0\0\0") == data, "Kafka does not verify it"


def test_lz4_frames_behind_the_first() -> None:
    one, two = compress("lz4", b"one"), compress("lz4", b"two" * 50_000)
    assert decompress("lz4", one + two + one) == b"one" + b"two" * 50_000 + b"one"
    assert decompress("lz4", one + b"anything") == b"one"
    assert decompress("lz4", one[:-4] + b"\0\0\0\x80") == b"one", "the other end mark"
    with pytest.raises(CodecError, match="ends early"):
        decompress("lz4", one + two[:-1])


def test_lz4_frames_that_kafka_refuses() -> None:
    good = bytearray(compress("lz4", b"hello"))
    unknown = [
        (at, value, "not known") for at, value in ((4, 0xA0), (4, 0x61), (4, 0x62), (5, 0x30), (5, 0x41), (5, 0xC0))
    ]
    for at, value, reason in ((0, 5, "magic"), (4, 0x40, "depend"), *unknown):
        bad = good.copy()
        bad[at] = value
        with pytest.raises(CodecError, match=reason):
            decompress("lz4", bad, magic=0)
    with pytest.raises(CodecError, match="16777216 bytes"):
        decompress("lz4", good[:7] + struct.pack("<I", 1 << 24) + good[11:])


def zstd_frames_of_all_kinds() -> None:
    data = random.Random(3).randbytes(1000) * 500
    plain, sized = compress("zstd", data), zstandard.ZstdCompressor(write_checksum=True).compress(data)
    for frames in ([sized], [plain, sized], [SKIPPABLE, plain], [sized, SKIPPABLE, plain, SKIPPABLE]):
        count = sum(frame is not SKIPPABLE for frame in frames)
        assert decompress("zstd", b"".join(frames)) == data * count
    assert decompress("zstd", zstandard.ZstdCompressor().compress(b"tiny")) == b"tiny"
    assert decompress("zstd", zstandard.ZstdCompressor().compress(b"")) == b""
    assert decompress("zstd", reference.compress("zstd", bytes(10_000_000))) == bytes(10_000_000), "runs"
    short = (SKIPPABLE[:-1], plain + SKIPPABLE[:9], plain[:-1], sized[:-1])
    for bad in (b"", SKIPPABLE, plain + b"x", plain + bytes(20), *short):
        with pytest.raises(CodecError, match="zstd"):
            decompress("zstd", bad)


def test_zstd_frames_of_all_kinds() -> None:
    zstd_frames_of_all_kinds()


# ---- damage and bombs ----


def small_frames() -> list[tuple[str, int, bytes]]:
    data = b"some text, some more text, and again some text. " * 6
    frames = [(codec, magic, compress(codec, data, magic=magic)) for codec, magic in PAIRS]
    frames.append(("lz4", 2, lz4.frame.compress(data, block_linked=False, block_checksum=True, content_checksum=True)))
    frames.append(("zstd", 2, zstandard.ZstdCompressor(write_checksum=True).compress(data)))
    frames.append(("snappy", 2, bytes(cramjam.snappy.compress_raw(data))))
    frames += [(codec, 2, frame + frame) for codec, magic, frame in frames[:] if magic == 2]
    return frames


def survives(codec: str, magic: int, data: bytes) -> None:
    """Bytes within the limit or a `CodecError`: anything else raised fails the test."""
    out = b""
    with contextlib.suppress(CodecError):
        out = decompress(codec, data, magic=magic, limit=1 << 20)
    assert len(out) <= 1 << 20


def every_truncation_and_every_wrong_byte(codec: str, magic: int, frame: bytes) -> None:
    for size in range(len(frame)):
        survives(codec, magic, frame[:size])
    for at in range(len(frame)):
        for flip in (0x01, 0x80, 0xFF, *(1 << bit for bit in range(1, 7))):
            survives(codec, magic, frame[:at] + bytes([frame[at] ^ flip]) + frame[at + 1 :])


@pytest.mark.parametrize(("codec", "magic", "frame"), small_frames(), ids=range(len(small_frames())))
def test_every_truncation_and_every_wrong_byte(codec: str, magic: int, frame: bytes) -> None:
    every_truncation_and_every_wrong_byte(codec, magic, frame)


@given(data=st.binary(max_size=200), pair=st.sampled_from(PAIRS), head=st.integers(0, 40), seed=st.integers(0, 9))
def test_any_bytes_behind_a_good_start(data: bytes, pair: tuple[str, int], head: int, seed: int) -> None:
    codec, magic = pair
    survives(codec, magic, data)
    survives(codec, magic, compress(codec, random.Random(seed).randbytes(60) * 3, magic=magic)[:head] + data)


def bombs() -> dict[str, tuple[str, bytes]]:
    zeros = bytes(80 << 20)
    packer = zstandard.ZstdCompressor(write_content_size=False)
    run = (128 << 10) << 3 | 1 << 1
    return {
        "gzip": ("gzip", gzip.compress(zeros)),
        "gzip members": ("gzip", gzip.compress(zeros[: 1 << 20]) * 80),
        "snappy length": ("snappy", b"\xff\xff\xff\xff\x07" + bytes(100)),
        "xerial length": ("snappy", reference.XERIAL_HEADER + struct.pack(">i", 7) + b"\xff\xff\xff\xff\x07\0\0"),
        "xerial block": ("snappy", reference.XERIAL_HEADER + struct.pack(">i", 0x7FFFFFFF) + bytes(100)),
        "snappy": ("snappy", bytes(cramjam.snappy.compress_raw(zeros))),
        "xerial": ("snappy", compress("snappy", zeros)),
        "lz4": ("lz4", compress("lz4", zeros)),
        "lz4 stored": ("lz4", compress("lz4", random.Random(4).randbytes(1 << 20)) * 65),
        "lz4 frames": ("lz4", compress("lz4", zeros[: 1 << 20]) * 80),
        "zstd": ("zstd", packer.compress(zeros)),
        "zstd sized": ("zstd", zstandard.ZstdCompressor().compress(zeros)),
        "zstd frames": ("zstd", packer.compress(zeros[: 1 << 20]) * 80),
        "zstd runs": ("zstd", bytes.fromhex("28b52ffd0058") + run.to_bytes(3, "little") * 600 + b"\1\0\0"),
        "zstd content size": ("zstd", bytes.fromhex("28b52ffdc058") + struct.pack("<Q", 1 << 50) + b"\1\0\0"),
        "zstd window": ("zstd", bytes.fromhex("28b52ffd00ff") + b"\5\0\0" + bytes(20)),
    }


@pytest.fixture(scope="module")
def all_bombs() -> dict[str, tuple[str, bytes]]:
    return bombs()


def bombs_end_in_an_error(all_bombs: dict[str, tuple[str, bytes]]) -> None:
    for name, (codec, data) in all_bombs.items():
        for limit in (0, 1, 100_000, 64 << 20):
            tracemalloc.start()
            try:
                with pytest.raises(CodecError):
                    decompress(codec, data, limit=limit)
                most = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert most < 4 * limit + (6 << 20), f"{name}: {most} bytes for a limit of {limit}"


def test_bombs_end_in_an_error_and_in_little_memory(all_bombs: dict[str, tuple[str, bytes]]) -> None:
    bombs_end_in_an_error(all_bombs)


def limit_is_exact(codec: str, size: int) -> None:
    for data in (bytes(size), random.Random(size).randbytes(size)):
        packed = compress(codec, data)
        assert decompress(codec, packed, limit=size) == data
        with pytest.raises(CodecError):
            decompress(codec, packed, limit=size - 1)


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("size", [1, 1000, 140_000, 300_000])
def test_the_limit_is_exact(codec: str, size: int) -> None:
    limit_is_exact(codec, size)


# ---- where a library is missing ----


@pytest.fixture
def without_zstandard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstd_frames, "zstandard", None)
    monkeypatch.setattr(zstd_frames, "_contexts", None)
    monkeypatch.setattr(zstd_frames, "cramjam", cramjam, raising=False)


@pytest.mark.usefixtures("without_zstandard")
def test_frames_without_zstandard() -> None:
    zstd_frames_of_all_kinds()


@pytest.mark.usefixtures("without_zstandard")
@pytest.mark.parametrize("size", SIZES)
def test_round_trips_without_zstandard(size: int) -> None:
    round_trips("zstd", 2, size)


@pytest.mark.usefixtures("without_zstandard")
def test_damage_and_bombs_without_zstandard() -> None:
    frames = [(codec, magic, frame) for codec, magic, frame in small_frames() if codec == "zstd"]
    assert len(frames) > 2
    for codec, magic, frame in frames:
        every_truncation_and_every_wrong_byte(codec, magic, frame)
    of_zstd = {name: bomb for name, bomb in bombs().items() if bomb[0] == "zstd"}
    assert len(of_zstd) > 5
    bombs_end_in_an_error(of_zstd)
    limit_is_exact("zstd", 140_000)


@pytest.fixture
def without_isal_and_deflate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzip_members, "inflater", zlib)
    monkeypatch.setattr(gzip_members, "deflater", None)


@pytest.mark.usefixtures("without_isal_and_deflate")
def test_gzip_without_isal_and_deflate() -> None:
    assert compress("gzip", b"hello").hex() == "1f8b08000000000000ffcb48cdc9c9070086a6103605000000", "the JDK's bytes"
    gzip_members_and_other_bytes()
    limit_is_exact("gzip", 140_000)


@pytest.mark.usefixtures("without_isal_and_deflate")
@pytest.mark.parametrize("size", SIZES)
def test_round_trips_without_isal_and_deflate(size: int) -> None:
    round_trips("gzip", 2, size)


# ---- xxHash32 ----


@given(st.binary(max_size=200))
def test_xxh32_is_the_reference_s(data: bytes) -> None:
    assert _framing.xxh32(data) == reference.xxh32(data)


def test_xxh32_vectors() -> None:
    assert _framing.xxh32(b"") == 0x02CC5D05
    assert _framing.xxh32(b"abc") == 0x32D153FF
    assert _framing.xxh32(b"Nobody inspects the spammish repetition") == 0xE2293B2F


# ---- a real Kafka ----


@pytest.mark.kafka
def test_kafka_reads_what_is_compressed_here(kafka: Kafka, tmp_path: Path) -> None:
    records = [
        reference_batch.Record(i, 1000 + i, b"key %d" % i, random.Random(i).randbytes(700) + bytes(2000))
        for i in range(90)
    ]
    paths = []
    for codec, magic in PAIRS:
        for level in LEVELS[codec]:
            path = tmp_path / f"{codec}{magic}{level}" / "00000000000000000000.log"
            path.parent.mkdir()
            path.write_bytes(repacked(records, codec, magic, level))
            paths.append(path)
    rows = kafka.decode(*paths)
    found = [row for row in rows if "records" in row]
    assert len(found) == len(paths), [row for row in rows if "error" in row]
    for row in found:
        assert row["valid"]
        assert [bytes.fromhex(record["value"]) for record in row["records"]] == [record.value for record in records]


def repacked(records: list[reference_batch.Record], codec: str, magic: int, level: int | None) -> bytes:
    """A batch of the reference builder whose payload is compressed by the code under test."""
    if magic == 2:
        plain = build.batch_v2(records)
        payload = compress(codec, plain[61:], level=level)
        tail = struct.pack(">h", reference.CODECS.index(codec)) + plain[23:61] + payload
        return plain[:8] + struct.pack(">iibI", len(tail) + 9, -1, 2, reference_batch.crc32c(tail)) + tail
    inside = b"".join(build.message(record, magic) for record in records)
    value = compress(codec, inside, magic=magic, level=level)
    wrapper = reference_batch.Record(records[-1].offset, records[-1].timestamp, None, value)
    return build.message(wrapper, magic, reference.CODECS.index(codec))
