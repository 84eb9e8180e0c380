"""Tests of _native/_framing.pyx and format/compression.py. Bodies of many batches at once: against the slow reference,
on real files, with damaged rows among good ones.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.depth import IS_DEEP
from helpers.golden import Decoded
from hypothesis import given
from hypothesis import strategies as st
from reference import batch as reference_batch
from reference import build
from reference import compression as reference

from pylogseg._native import _framing
from pylogseg.format import compression
from pylogseg.format.batches import scan
from pylogseg.format.compression import BLOCK_DTYPE, Arena, compress, fill_bodies
from pylogseg.format.records import BODY_DTYPE, SOURCE_MASK, SOURCE_SHIFT

SKIPPABLE = bytes.fromhex("502a4d18") + struct.pack("<I", 2) + b"xy"


def records(count: int, size: int = 40, first: int = 0) -> list[reference_batch.Record]:
    noise = random.Random(count * size + first)
    return [
        reference_batch.Record(first + i, 1000 + i, b"k%d" % i, noise.randbytes(size // 4) + bytes(size))
        for i in range(count)
    ]


def with_payload(codec: str, payload: bytes, count: int = 3) -> bytes:
    """A magic 2 batch around any payload."""
    plain = build.batch_v2(records(3), count=count)
    tail = struct.pack(">h", reference.CODECS.index(codec)) + plain[23:61] + payload
    return plain[:8] + struct.pack(">iibI", len(tail) + 9, -1, 2, reference_batch.crc32c(tail)) + tail


def wrapper(codec: str, value: bytes | None, magic: int, key: bytes | None = None) -> bytes:
    return build.message(reference_batch.Record(2, 5, key, value), magic, reference.CODECS.index(codec))


def read(data: bytes, *, file_position: int = 0, limit: int = 64 << 20, arena: Arena | None = None):
    """The body of each row, as bytes or the text of its error."""
    table = scan(data, file_position=file_position).batches
    bodies, decompressed, errors = fill_bodies(table, data, file_position, limit=limit, arena=arena)
    assert bodies.dtype == BODY_DTYPE
    assert [row for row, _ in errors] == np.flatnonzero(bodies["size"] < 0).tolist()
    sources = memoryview(data), memoryview(decompressed)
    out: list[bytes | str] = []
    texts = {row: str(error) for row, error in errors}
    for row, (place, size) in enumerate(bodies.tolist()):
        at = place & SOURCE_MASK
        out.append(texts[row] if size < 0 else bytes(sources[place >> SOURCE_SHIFT][at : at + size]))
        assert size < 0 or len(out[-1]) == size
    return out


def expected(batch: reference_batch.Batch) -> bytes:
    """The body of a batch by the reference."""
    if batch.magic == 2:
        return reference_batch.decompressed(batch, batch.data[61:]) if batch.count else b""
    if batch.codec == "none":
        return batch.data
    value = reference_batch.legacy_record(batch.data, -1, -1).value
    assert value is not None
    return reference_batch.decompressed(batch, value)


def mixed(seed: int = 0) -> bytes:
    """A log of all magics and codecs, with batches of one and of several blocks."""
    noise = random.Random(seed)
    parts = []
    for _ in range(60):
        codec, magic = noise.choice(reference.CODECS), noise.choice((0, 1, 2, 2))
        some = records(noise.choice((1, 3, 50, 900)), noise.choice((0, 30, 200)), noise.randrange(9))
        if magic == 2:
            parts.append(build.batch_v2(some, codec=codec))
        elif codec != "zstd":
            parts.append(build.legacy(some, magic, codec=codec))
    return b"".join(parts)


@pytest.mark.parametrize("file_position", [0, 12345])
def test_all_magics_and_codecs(file_position: int) -> None:
    data = mixed()
    assert read(data, file_position=file_position) == [expected(batch) for batch in reference_batch.batches(data)]


def test_an_empty_table_and_a_batch_without_records() -> None:
    assert read(b"") == []
    for codec in reference.CODECS[1:]:
        assert read(with_payload(codec, b"no stream at all", count=0)) == [b""]


def test_small_block_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tables of few rows: batches that do not fit at all, and many rounds.
    data = mixed(1)
    bodies = read(data)
    for rows in (1, 2, 3):
        monkeypatch.setattr(compression, "_BLOCK_ROWS", rows)
        assert read(data) == bodies


def test_an_arena_is_used_again_and_a_fresh_one_is_not() -> None:
    data, other = mixed(2), mixed(3)
    arena = Arena()
    first, kept = (fill_bodies(scan(data).batches, data, 0, arena=a)[1] for a in (arena, None))
    before = bytes(kept)
    assert bytes(first) == before
    assert read(other, arena=arena) == read(other)
    assert bytes(kept) == before
    assert read(data, arena=arena) == read(data)
    memory = arena.memory
    read(data, arena=arena)
    assert arena.memory is memory


def test_gzip_members_at_once_and_one_by_one_are_the_same() -> None:
    body, limit = build.batch_v2(records(3))[61:], 1 << 20
    one, mark = compress("gzip", body), b"\x1f\x8b\x08"
    payloads = {
        "one": one,
        "the same twice": one + one,
        "two": one + compress("gzip", bytes(100)),
        "a second that ends early": one + one[:-1],
        "fewer bytes than a member": one + mark + bytes(14),
        "other bytes behind": one + bytes(40),
        "a mark inside": compress("gzip", mark * 3),
        "too short": one[:17],
        "a wrong check sum": one[:-5] + bytes((one[-5] ^ 1,)) + one[-4:],
        "a length that is a lie": one[:-4] + b"\xff\xff\xff\x7f",
        "nothing": compress("gzip", b""),
        "more than the limit": compress("gzip", bytes(limit + 1)),
        "the limit": compress("gzip", bytes(limit)),
        "its own name": one[:3] + b"\x08" + one[4:10] + b"name\0" + one[10:],
    }
    expected = []
    for payload in payloads.values():
        try:
            expected.append(compression.decompress("gzip", payload, limit=limit))
        except compression.CodecError as error:
            expected.append(str(error))
    data = b"".join(with_payload("gzip", payload) for payload in payloads.values())
    assert dict(zip(payloads, read(data, limit=limit), strict=True)) == dict(zip(payloads, expected, strict=True))
    begin = np.array([0, -1, 5, len(one)])
    end = np.array([len(one), len(one), 4, len(one) + 1])
    rooms = np.empty(4, np.int64)
    _framing.gzip_rooms(one, begin, end, limit, rooms)
    assert rooms.tolist() == [len(body), -1, -1, -1]
    for size in range(20):  # nothing is read behind a payload of any size
        _framing.gzip_rooms(one[:size], begin[:1], np.array([size]), limit, rooms[:1])
        assert rooms[0] == -1 or size >= 18


def damaged() -> list[tuple[bytes, str]]:
    """Batches whose body cannot be had, and a word of the reason."""
    body = build.batch_v2(records(3))[61:]
    big = random.Random(5).randbytes(100) * 900
    xerial, frame = compress("snappy", big), compress("lz4", big)
    return [
        (with_payload("gzip", b"no stream"), "gzip"),
        (with_payload("gzip", compress("gzip", body)[:-1]), "ends early"),
        (with_payload("zstd", compress("zstd", body) + b"x"), "zstd"),
        (with_payload("zstd", b""), "zstd"),
        (with_payload("snappy", b""), "snappy"),
        (with_payload("snappy", xerial[:-1]), "snappy"),
        (with_payload("snappy", xerial[:-40] + b"\xff" * 40), "snappy"),
        (with_payload("lz4", b""), "lz4"),
        (with_payload("lz4", frame[:-1]), "ends early"),
        (with_payload("lz4", frame[:6] + b"\0" + frame[7:]), "frame header"),
        (with_payload("lz4", frame[:11] + b"\0\0\0" + frame[14:]), "broken"),
        (wrapper("gzip", None, 0), "null value"),
        (wrapper("lz4", None, 1), "null value"),
        (wrapper("zstd", compress("zstd", b"x"), 1), "magic 1"),
        (wrapper("lz4", compress("lz4", b"hello", magic=0), 1), "frame header"),
    ]


def test_damaged_rows_do_not_harm_the_others() -> None:
    good = [build.batch_v2(records(400, 200), codec=codec) for codec in reference.CODECS]
    bad = damaged()
    noise = random.Random(7)
    for _ in range(20):
        chosen = [(data, "") for data in noise.choices(good, k=20)] + noise.sample(bad, 9)
        noise.shuffle(chosen)
        data = b"".join(part for part, _ in chosen)
        for body, (part, reason) in zip(read(data), chosen, strict=True):
            if reason:
                assert isinstance(body, str), part.hex()
                assert reason in body
            else:
                assert body == expected(next(reference_batch.batches(part)))


@pytest.mark.parametrize(("data", "reason"), damaged(), ids=range(len(damaged())))
def test_reasons(data: bytes, reason: str) -> None:
    (body,) = read(data)
    assert isinstance(body, str)
    assert reason in body


def test_codecs_that_do_not_exist() -> None:
    for number in (5, 6, 7):
        plain = build.batch_v2(records(2))
        data = plain[:21] + struct.pack(">h", number) + plain[23:]
        assert "unknown codec" in read(data)[0]


def test_wrappers() -> None:
    inside = b"".join(build.message(record, 1) for record in records(3))
    value = compress("gzip", inside, magic=1)
    assert read(wrapper("gzip", value, 1)) == [inside]
    assert read(wrapper("gzip", value, 1, key=b"Kafka passes over a key")) == [inside]
    for cut in (value[:-1], b""):
        assert "early" in str(read(wrapper("gzip", cut, 1))[0])
    lying = bytearray(wrapper("gzip", value, 1))
    struct.pack_into(">i", lying, 30, len(value) + 1)
    assert "runs past its end" in str(read(bytes(lying))[0])
    struct.pack_into(">i", lying, 26, 0x7FFFFFFF)
    assert "ends before its value" in str(read(bytes(lying))[0])
    struct.pack_into(">i", lying, 26, -5)
    struct.pack_into(">i", lying, 30, len(value))
    assert read(bytes(lying)) == [inside], "any negative length is null"


def test_streams_that_are_not_plain() -> None:
    body = build.batch_v2(records(3))[61:]
    lz4, snappy, zstd, gz = (compress(codec, body) for codec in ("lz4", "snappy", "zstd", "gzip"))
    raw = bytes(reference.cramjam.snappy.compress_raw(body))
    for codec, payload, times in (
        ("lz4", lz4 + lz4, 2),
        ("lz4", lz4 + b"other", 1),
        ("snappy", snappy + snappy, 2),
        ("snappy", snappy + b"\0", 1),
        ("snappy", raw, 1),
        ("zstd", zstd + SKIPPABLE + zstd, 2),
        ("gzip", gz + gz + b"other", 2),
    ):
        assert read(with_payload(codec, payload)) == [body * times]


@pytest.mark.parametrize("codec", reference.CODECS[1:])
def test_the_limit_holds_for_each_batch(codec: str) -> None:
    small, large = build.batch_v2(records(10), codec=codec), build.batch_v2(records(3000, 100), codec=codec)
    size = len(expected(next(reference_batch.batches(large))))
    data = small + large + small
    assert len(read(data, limit=size)[1]) == size
    before, refused, behind = read(data, limit=size - 1)
    assert before == behind
    assert isinstance(refused, str)
    assert "limit" in refused


def test_a_table_of_another_buffer() -> None:
    data = build.batch_v2(records(3), codec="lz4") + build.legacy(records(3), 1, codec="gzip")
    table = scan(data).batches
    for position in (1 << 40, -(1 << 40)):
        bodies, _, errors = fill_bodies(table, data, position)
        assert [row for row, _ in errors] == [0, 1]
        assert all("outside" in str(error) for _, error in errors)
        assert bodies["size"].tolist() == [-1, -1]
    assert len(fill_bodies(table, data, 10)[2]) == 2, "a wrong position never harms"


@given(st.binary(max_size=120), st.sampled_from(reference.CODECS[1:]), st.integers(0, 60))
def test_any_payload(tail: bytes, codec: str, head: int) -> None:
    data = with_payload(codec, compress(codec, b"some text " * 9)[:head] + tail)
    (body,) = read(data, limit=1 << 20)
    assert len(body) <= 1 << 20


# ---- the framing door ----


def table_of(function, data: bytes, room: int, limit: int = 1 << 30):
    start, end = np.array([0]), np.array([len(data)])
    counts, blocks = np.full(1, 99, np.int32), np.zeros(room, BLOCK_DTYPE)
    extra = (np.zeros(1, np.uint8),) if function is _framing.lz4_blocks else ()
    row, used = function(data, start, end, *extra, limit, 0, counts, blocks.view(np.uint8))
    assert row == 1
    return int(counts[0]), blocks[:used].tolist()


def test_block_tables() -> None:
    data = bytes(70_000) + random.Random(8).randbytes(70_000)
    count, blocks = table_of(_framing.lz4_blocks, compress("lz4", data), 9)
    assert (count, blocks[0][0], blocks[0][2], blocks[2][1:]) == (3, 11, 65536, (8928, -8928))
    count, blocks = table_of(_framing.xerial_blocks, compress("snappy", data), 9)
    assert [room for _, _, room in blocks] == [32768] * 4 + [8928]
    for function, codec in ((_framing.lz4_blocks, "lz4"), (_framing.xerial_blocks, "snappy")):
        packed = compress(codec, data)
        assert table_of(function, packed, 2) == (-1, []), "more blocks than room"
        assert table_of(function, packed, 9, limit=139_999) == (-1, []), "more than the limit"
        assert table_of(function, b"", 9) == (-1, [])
        for size in range(len(packed) - 70_200, len(packed), 97):
            count, blocks = table_of(function, packed[:size], 9)
            assert count == -1 or codec == "snappy"


def test_the_door_checks_its_arguments() -> None:
    two, blocks = np.zeros(2, np.int64), np.zeros(16, np.uint8)
    with pytest.raises(ValueError, match="length"):
        _framing.xerial_blocks(b"", two, two[:1], 9, 0, np.zeros(2, np.int32), blocks)
    with pytest.raises(ValueError, match="length"):
        _framing.lz4_blocks(b"", two, two, np.zeros(1, np.uint8), 9, 0, np.zeros(2, np.int32), blocks)
    with pytest.raises(ValueError, match="negative"):
        _framing.xerial_blocks(b"", two, two, 9, -1, np.zeros(2, np.int32), blocks)
    counts = np.zeros(3, np.int32)
    start, end = np.array([-1, 5, 0]), np.array([4, 4, 99])
    assert _framing.xerial_blocks(b"12345678", start, end, 9, 0, counts, blocks) == (3, 0)
    assert counts.tolist() == [-1, -1, -1]


# ---- real files ----


def test_golden_codecs(golden: Path, decoded: Decoded) -> None:
    seen = set()
    paths = sorted((golden / "broker-4.3" / "codecs").glob("data*/*/*.log"))
    for path in paths if IS_DEEP else {path.parent: path for path in paths}.values():  # else one of each partition
        data = path.read_bytes()
        for row, body, batch in zip(decoded(path)["batches"], read(data), reference_batch.batches(data), strict=False):
            assert isinstance(body, bytes), f"{path}: {body}"
            assert body == expected(batch)
            assert len(row["records"]) == row["count"] == batch.count
            seen.add(batch.codec)
    assert seen == set(reference.CODECS)


def test_record_sets_of_other_brokers_and_clients(corpus: Path) -> None:
    seen = set()
    for path in sorted([*corpus.rglob("*.log"), *corpus.rglob("*.recordset.bin")]):
        if "redpanda" in str(path):
            continue
        data = path.read_bytes()
        table = scan(data).batches
        found = read(data)
        assert len(found) == len(table)
        for body, batch in zip(found, reference_batch.batches(data), strict=False):
            if not batch.valid:
                continue
            assert isinstance(body, bytes), f"{path}: {body}"
            assert body == expected(batch)
            seen.add((batch.magic, batch.codec))
    assert {(0, "gzip"), (0, "snappy"), (1, "gzip"), (2, "gzip"), (2, "snappy"), (2, "lz4"), (2, "zstd")} <= seen


def test_an_arena_grows_under_a_run_of_payloads() -> None:
    """What was decompressed before is kept, whatever the codec; nothing is left out or doubled."""
    bodies = [
        build.batch_v2([reference_batch.Record(i, 1000 + i, b"k", bytes([i]) * (1 << (8 + i)))])[61:] for i in range(12)
    ]
    for codec in reference.CODECS[1:]:
        data = b"".join(with_payload(codec, compress(codec, body)) for body in bodies)
        arena = Arena(1)
        assert read(data, arena=arena) == bodies, codec
        assert len(arena.memory) >= sum(map(len, bodies))


def test_runs_stay_within_their_target() -> None:
    """A target that is too small, a function that fails, and one that says it made more than there was room for."""
    source = memoryview(b"onetwothree")
    starts, ends, rooms = np.array([0, 3, 6]), np.array([3, 6, 11]), np.array([4, 9, 9])
    bodies, rows, target = np.zeros(6, BODY_DTYPE), np.array([1, 3, 5]), np.zeros(8, np.uint8)
    raw, arena = bodies.view(np.uint8), 1 << SOURCE_SHIFT

    def payload(data: Any, room: int) -> bytes:
        view = memoryview(data)
        if view == b"two" or len(view) > room:
            raise KeyError
        return bytes(view)

    def run(size: int, used: int, first: int, which=rows, function=payload) -> tuple[list[int], tuple[int, int, int]]:
        late: list[int] = []
        of = (source, target[:size], used, starts, ends, rooms, 4, which, first, raw, late)
        return late, _framing.run_payloads(function, KeyError, *of)

    assert run(7, 0, 0) == ([3], (2, 3, 8))
    assert run(8, 3, 2) == ([], (3, 8, 0))
    assert bytes(target) == b"onethree"
    assert bodies.tolist() == [(0, 0), (arena, 3), (0, 0), (0, 0), (0, 0), (arena + 3, 5)]
    for used, first in ((-1, 0), (0, -1), (0, 4)):
        with pytest.raises(IndexError, match="out of range"):
            run(8, used, first)
    with pytest.raises(IndexError, match="row 6 is out of range of 6 bodies"):
        run(8, 0, 0, rows + 1)
    with pytest.raises(ValueError, match="length"):
        run(8, 0, 0, rows[:2])
    with pytest.raises(ZeroDivisionError):  # not what a library raises for bad bytes
        run(8, 0, 0, rows, lambda view, room: 1 // 0)

    def block(data: Any, room: Any) -> int:
        view = memoryview(data)
        memoryview(room)[: len(view)] = view
        return 99 if view == b"wo" else len(view)

    # Of the first payload one block is stored; the third is not plain; a block of the last says that it made too much.
    blocks = np.array([(0, 3, 3), (3, 3, -3), (6, 5, 5), (4, 2, 2)], BLOCK_DTYPE).view(np.uint8)
    counts, rows = np.array([2, 1, -1, 1], np.int32), np.array([5, 0, 2, 3])

    def blocks_of(size: int, used: int, first: int, table=blocks) -> tuple[list[int], tuple[int, int, int]]:
        late: list[int] = []
        target = memoryview(bytearray(size))
        of = (source, target, used, table, counts, rows, first, raw, late, True)
        return late, _framing.run_blocks(block, KeyError, *of)

    assert blocks_of(5, 0, 0) == ([], (0, 0, 6))
    assert blocks_of(10, 0, 0) == ([], (1, 6, 11))
    assert blocks_of(12, 6, 1) == ([2], (3, 11, 13))
    assert blocks_of(13, 6, 1) == ([2, 3], (4, 11, 0))
    assert bodies[[0, 5]].tolist() == [(arena + 6, 5), (arena, 6)]
    for used, first in ((-1, 0), (0, -1), (0, 5)):
        with pytest.raises(IndexError, match="out of range"):
            blocks_of(13, used, first)
    with pytest.raises(ValueError, match="more blocks than there are"):
        blocks_of(13, 0, 0, blocks[:48])
    for outside in ((-1, 3, 3), (9, 3, 3), (12, 0, 3), (0, -1, 3)):
        with pytest.raises(IndexError, match="are outside of a buffer of 11"):
            blocks_of(13, 0, 0, np.array([outside] * 4, BLOCK_DTYPE).view(np.uint8))
    counts = counts[:3]
    with pytest.raises(ValueError, match="length"):
        blocks_of(13, 0, 0)


def test_what_a_library_is_shown_outlives_the_run() -> None:
    """A view that a library keeps is of the bytes it was shown, which it cannot change."""
    kept: list[memoryview] = []

    def quick(data: Any, room: int) -> bytes:
        kept.append(memoryview(data))
        return bytes(data)

    starts, ends, rows = np.array([0, 3]), np.array([3, 6]), np.arange(2)
    raw = np.zeros(2, BODY_DTYPE).view(np.uint8)
    of = (bytearray(b"onetwo"), bytearray(6), 0, starts, ends, ends, 9, rows, 0, raw, [])
    assert _framing.run_payloads(quick, KeyError, *of) == (2, 6, 0)
    del of
    assert [bytes(view) for view in kept] == [b"one", b"two"]
    assert all(view.readonly for view in kept)
