"""Tests of format/files/index.py. Offset and time indexes: the spec's vectors, a plain model, hostile bytes, and files
of real brokers.
"""

import bisect
import contextlib
import json
import mmap
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.files.index import (
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
    encode_offset_index,
    encode_time_index,
)
from pylogseg.format.names import FileKind, parse_file_name

ascending32 = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=60).map(sorted)


@st.composite
def offset_entries(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    base = draw(st.integers(0, 2**62))
    relative = draw(ascending32)
    positions = draw(st.lists(st.integers(1, 2**31 - 1), unique=True, min_size=len(relative), max_size=len(relative)))
    return base, [base + number for number in relative], sorted(positions)


@st.composite
def time_entries(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    base = draw(st.integers(0, 2**62))
    timestamps = sorted(draw(st.lists(st.integers(0, 2**63 - 1), unique=True, max_size=60)))
    size = len(timestamps)
    relative = sorted(draw(st.lists(st.integers(0, 2**31 - 1), min_size=size, max_size=size)))
    return base, timestamps, [base + number for number in relative]


def test_offset_index_vector() -> None:
    raw = bytes.fromhex("00000004000010680000006d00002134")
    index = OffsetIndex(raw, 100, "x.index")
    assert list(index) == [OffsetPosition(104, 4200), OffsetPosition(209, 8500)]
    assert (len(index), index.zero_count, index.odd_bytes) == (2, 0, 0)
    assert encode_offset_index(100, [104, 209], [4200, 8500]) == raw
    assert index[-1] == (209, 8500)
    for slot in (2, -3):
        with pytest.raises(IndexError):
            index[slot]
    assert index.floor(103) == (100, 0)
    assert index.floor(104) == (104, 4200)
    assert index.floor(208) == (104, 4200)
    assert index.floor(2**70) == (209, 8500)
    assert index.floor(-(2**70)) == (100, 0)
    assert index.floor_positions([300, 0, 104, 150]).tolist() == [8500, 0, 4200, 4200]


def test_time_index_vector() -> None:
    raw = bytes.fromhex("00000000000003e80000000400000000000007d00000006d")
    index = TimeIndex(raw, 100)
    assert list(index) == [TimestampOffset(1000, 104), TimestampOffset(2000, 209)]
    assert encode_time_index(100, [1000, 2000], [104, 209]) == raw
    assert [index.floor(ms) for ms in (999, 1000, 1999, 2**80)] == [(-1, 100), (1000, 104), (1000, 104), (2000, 209)]
    assert index.floor_offsets([5000, 1, 1500]).tolist() == [209, 100, 104]


def test_upper_bound_as_kafka_tests_it() -> None:
    index = OffsetIndex(encode_offset_index(45, [45, 46, 47, 48], [0, 10, 23, 37]), 45)
    asked = [(0, 5), (0, 10), (0, 23), (0, 22), (10, 24), (37, 1), (0, 200)]
    found = [index.upper_bound(*fetch) for fetch in asked]
    assert [None if entry is None else entry.offset for entry in found] == [46, 46, 47, 47, 48, None, None]


def test_time_look_up_as_kafka_tests_it() -> None:
    slots = range(1, 30)
    index = TimeIndex(encode_time_index(45, [10 * i for i in slots], [45 + 10 * i for i in slots]) + bytes(12), 45)
    assert len(index) == 29
    assert [index.floor(ms) for ms in (9, 25, 30)] == [(-1, 45), (20, 65), (30, 75)]


def test_empty_files() -> None:
    for empty in (b"", bytearray(), np.empty(0, np.uint8)):
        assert OffsetIndex(empty, 7).floor(100) == (7, 0)
        assert OffsetIndex(empty, 7).upper_bound(0, 1) is None
        assert OffsetIndex(empty, 7).floor_positions([1, 2]).tolist() == [0, 0]
        assert TimeIndex(empty, 7).floor(100) == (-1, 7)
        assert TimeIndex(empty, 7).floor_offsets([]).tolist() == []
        assert list(OffsetIndex(empty, 7)) == []
        TimeIndex(empty, 7).check_entries()


@given(offset_entries(), st.integers(0, 2000), st.lists(st.integers(-10, 2**62 + 2**31), min_size=1, max_size=20))
def test_offset_index_against_a_list(case: tuple[int, list[int], list[int]], zeros: int, asked: list[int]) -> None:
    base, offsets, positions = case
    index = OffsetIndex(encode_offset_index(base, offsets, positions) + bytes(8 * zeros), base)
    # One slot of zeros and nothing else cannot be told from an entry; it says what an empty index says.
    if offsets or zeros != 1:
        assert (index.count, index.zero_count) == (len(offsets), zeros)
        assert (index.offsets.tolist(), index.positions.tolist()) == (offsets, positions)
    index.check_entries()
    asked += offsets + [offset + 1 for offset in offsets]
    expected = []
    for offset in asked:
        slot = bisect.bisect_right(offsets, offset) - 1
        expected.append((offsets[slot], positions[slot]) if slot >= 0 else (base, 0))
    assert [index.floor(offset) for offset in asked] == expected
    assert index.floor_positions(asked).tolist() == [position for _, position in expected]


@given(time_entries(), st.integers(0, 2000))
def test_time_index_against_a_list(case: tuple[int, list[int], list[int]], zeros: int) -> None:
    base, timestamps, offsets = case
    index = TimeIndex(encode_time_index(base, timestamps, offsets) + bytes(12 * zeros), base)
    index.check_entries()
    first_is_zero = timestamps[:1] == [0] and offsets[:1] == [base]
    if not first_is_zero and (timestamps or zeros != 1):
        assert (index.count, index.zero_count) == (len(timestamps), zeros)
        assert (index.timestamps.tolist(), index.offsets.tolist()) == (timestamps, offsets)
    if first_is_zero and len(timestamps) == 1 and zeros:
        return  # nothing but zeros: an index without entries
    for ms in timestamps:
        assert index.floor(ms)[1] == offsets[timestamps.index(ms)]
        assert index.floor(ms + 1)[0] >= ms


def test_entry_of_zeros() -> None:
    entry = encode_time_index(9, [0], [9])
    assert entry == bytes(12)
    assert list(TimeIndex(entry, 9)) == [(0, 9)]
    assert list(TimeIndex(entry + encode_time_index(9, [5], [10]) + bytes(24), 9)) == [(0, 9), (5, 10)]
    assert len(TimeIndex(bytes(24), 9)) == 0


def test_views_are_not_copies(tmp_path: Path) -> None:
    path = tmp_path / "i"
    path.write_bytes(encode_offset_index(0, [1, 2], [10, 20]) + bytes(800))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        index = OffsetIndex(mapped, 0)
        mapped[4:8] = struct.pack(">i", 11)
        assert index[0] == (1, 11)
        assert index.slots.shape == (102,)
        with pytest.raises(BufferError):
            mapped.close()
        del index


def test_a_large_preallocated_index_is_cheap() -> None:
    entries = encode_offset_index(0, range(1000), range(1, 1001))
    index = OffsetIndex(entries + bytes(10485760 - len(entries)), 0)
    assert (index.count, index.zero_count) == (1000, 1310720 - 1000)


@pytest.mark.parametrize(
    ("raw", "kind", "reason", "position", "by_kafka"),
    [
        (bytes(8) + b"\1" * 3, OffsetIndex, "3 bytes after", 8, True),
        (bytes(12) + b"\1", TimeIndex, "1 bytes after", 12, True),
        (struct.pack(">ii", -1, 5), OffsetIndex, "relative offset -1", 0, True),
        (struct.pack(">iiii", 5, 5, 4, 9), OffsetIndex, "relative_offset 4", 8, True),
        (struct.pack(">qiqi", 50, 5, 40, 9), TimeIndex, "timestamp 40", 12, True),
        (struct.pack(">qi", 50, -5), TimeIndex, "relative offset -5", 0, True),
        (struct.pack(">6i", 5, 5, 4, 9, 7, 11), OffsetIndex, "relative_offset 4", 8, False),
        (struct.pack(">6i", -3, 5, 4, 9, 7, 11), OffsetIndex, "below the segment's first", 0, False),
        (struct.pack(">6i", 3, 5, 4, 5, 7, 11), OffsetIndex, "position 5", 8, False),
        (struct.pack(">qiqiqi", 1, 1, 1, 2, 3, 3), TimeIndex, "timestamp 1", 12, False),
        (
            struct.pack(">ii", 1, 1) + bytes(800) + struct.pack(">ii", 9, 9) + bytes(8),
            OffsetIndex,
            "not zero",
            808,
            False,
        ),
    ],
)
def test_checks(raw: bytes, kind: type[OffsetIndex | TimeIndex], reason: str, position: int, by_kafka: bool) -> None:
    index = kind(raw, 100, "a/b.index")
    if not by_kafka:
        index.check()
    with pytest.raises(CorruptionError, match=reason) as caught:
        index.check_entries()
    assert (caught.value.path, caught.value.position) == ("a/b.index", position)
    if by_kafka:
        with pytest.raises(CorruptionError, match=reason):
            index.check()


@pytest.mark.parametrize("count", [1, 2, 3, 100])
@pytest.mark.parametrize("zeros", [0, 7])
def test_wide_entries_are_refused_by_name(count: int, zeros: int) -> None:
    """Entries of 12 bytes (KIP-1333), with zeros behind them as a broker leaves them."""
    rows = [struct.pack(">iq", 3 + 7 * i, 4096 * i + (1 << 31) * (i > 50)) for i in range(count)]
    raw = b"".join(rows) + bytes(12 * zeros)
    if count == 1 and zeros:  # one entry tells too little, unless the size does
        return
    index = OffsetIndex(raw, 0, "0.index")
    for check in (index.check, index.check_entries):
        with pytest.raises(CorruptionError, match="KIP-1333"):
            check()


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=50), st.integers(0, 9))
def test_no_index_of_today_is_taken_for_a_wide_one(steps: list[tuple[int, int]], zeros: int) -> None:
    offsets, positions = (np.cumsum([step[i] for step in steps], dtype=np.int64) for i in (0, 1))
    raw = b"".join(struct.pack(">ii", *row) for row in zip(offsets.tolist(), positions.tolist(), strict=True))
    OffsetIndex(raw + bytes(8 * zeros), 0).check()


def test_indexes_that_cannot_be() -> None:
    for offsets, positions in [
        ([1], []),
        ([2, 1], [1, 2]),
        ([1, 1], [1, 2]),
        ([1, 2], [2, 2]),
        ([99 - 100], [1]),
        ([2**32], [1]),
    ]:
        with pytest.raises(RequestError):
            encode_offset_index(0, offsets, positions)
    for timestamps, offsets in [([5, 5], [1, 2]), ([5, 6], [2, 1]), ([-1], [1]), ([1], [2**31])]:
        with pytest.raises(RequestError):
            encode_time_index(0, timestamps, offsets)
    assert len(encode_time_index(0, [5, 6], [2, 2])) == 24


@given(st.binary(max_size=100), st.integers(0, 2**62), st.integers(-(2**63), 2**63 - 1))
def test_any_bytes(raw: bytes, base: int, key: int) -> None:
    for kind, size in ((OffsetIndex, 8), (TimeIndex, 12)):
        index = kind(raw, base)
        assert index.count + index.zero_count == len(raw) // size
        assert len(index.floor(key)) == 2
        assert len(index.offsets) == index.count
        with contextlib.suppress(CorruptionError):
            index.check_entries()


def _corpus_rows(corpus: Path, *kinds: str) -> list[dict[str, object]]:
    rows = json.loads((corpus / "expected.json").read_text())
    chosen = [row for row in rows if row["kind"] in kinds]
    assert chosen
    return chosen


def test_corpus(corpus: Path) -> None:
    for row in _corpus_rows(corpus, "index", "timeindex"):
        path = corpus / str(row["path"])
        base = parse_file_name(path.name).offset
        assert base is not None
        index = (OffsetIndex if row["kind"] == "index" else TimeIndex)(path.read_bytes(), base, str(path))
        found = {
            "entries": index.count,
            "zero_entries": index.zero_count,
            "prealloc": index.zero_count > 0,
            "bad_len": index.odd_bytes,
        }
        assert found == {name: row[name] for name in found}, row["path"]
        if index.count:
            index.check_entries()
            assert row["monotonic"] is True


def test_golden(golden: Path) -> None:
    count, bad = 0, set()
    for path in golden.rglob("*index*"):
        name = parse_file_name(path.name)
        if name.kind not in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX) or "damage" in path.parts:
            continue
        assert name.offset is not None
        index = (OffsetIndex if name.kind is FileKind.OFFSET_INDEX else TimeIndex)(
            path.read_bytes(), name.offset, str(path)
        )
        try:
            index.check_entries()
        except CorruptionError:
            bad.add(path.parts[-3])
            continue
        if isinstance(index, OffsetIndex):
            again = encode_offset_index(name.offset, index.offsets, index.positions)
        else:
            again = encode_time_index(name.offset, index.timestamps, index.offsets)
        assert again == path.read_bytes()[: len(again)]
        count += 1
    assert count > 1000
    # Made wrong on purpose.
    assert bad == {"recover-time-index-backwards"}
