"""Tests of walker/batch_search.py, walker/gaps.py and walker/windows.py. Damage, piece by piece: what is found, what is
given in spite of it, and that windows of any size see the same.
"""

import os
import struct
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import build
from reference.batch import Record

import pylogseg
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import Verdict
from pylogseg.format.records import decode
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import Window, walk


class Bytes:
    """An open file, from bytes."""

    path = "a.log"

    def __init__(self, data):
        self.data = data

    @property
    def size(self):
        return len(self.data)

    def read(self, position, size):
        return self.data[position : position + size]

    def drop(self, start, end):
        pass

    def close(self):
        pass


def batch(number, records=3, value=b"x" * 20):
    first = number * records
    return build.batch_v2([Record(first + i, 1000 + first + i, b"k", value) for i in range(records)])


BATCHES = [batch(i) for i in range(12)]
SIZE = len(BATCHES[0])
LOG = b"".join(BATCHES)


def outcome(data, **options):
    """Offsets that came out, and the gaps."""
    offsets, gaps = [], []
    for item in walk(Bytes(bytes(data)), **options):
        if isinstance(item, Gap):
            gaps.append(item)
        else:
            assert (item.batches.verdict == Verdict.GOOD).all()
            columns, damage = decode(item.batches, item.buffer, item.file_position)
            assert not damage
            offsets += columns.offset.tolist()
    return offsets, gaps


def without(*numbers):
    return [3 * i + k for i in range(12) if i not in numbers for k in range(3)]


def damaged(changes):
    data = bytearray(LOG)
    for at, new in changes.items():
        data[at : at + len(new)] = new
    return bytes(data)


def test_damage_behind_the_greatest_offset():
    """There is no offset behind it that could be expected of what follows."""
    last = build.batch_v2([Record(2**63 - 1, 1000, b"k", b"v")])
    for data in (last + b"\x7f" * 200, last + last[:8] + b"\xff" * 200, last + damaged({70: b"\xff"})[:SIZE]):
        offsets, (gap,) = outcome(data, is_last=False)
        assert offsets == [2**63 - 1]
        assert (gap.position, gap.end_position) == (len(last), len(data))


def test_nothing_wrong():
    assert outcome(LOG) == (without(), [])
    assert outcome(b"") == ([], [])


def test_windows_of_compressed_batches_in_memory_that_is_used_again(tmp_path):
    """The same comes out of files of any kind, and memory is asked for behind a compressed window alone."""
    packed = [bytes(pylogseg.encode([(1000 + n, b"k", b"%d" % n * 50)] * 9, base_offset=9 * n, compression="zstd",
                                    leader_epoch=0)) for n in range(40)]  # fmt: skip
    data = b"".join(packed)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data + packed[0][:30])
    memory, sizes = np.zeros(1 << 16, np.uint8), []

    def room(size):
        sizes.append(size)
        return memory.data[:size]

    def offsets(view, **options):
        found = []
        for item in walk(view, window_bytes=500, first_window_bytes=500, **options):
            if isinstance(item, Gap):
                found.append(item[1:4])
            else:
                found += decode(item.batches, item.buffer, item.file_position)[0].offset.tolist()
                memory[:] = 0xFF
        return found

    expected = [*range(360), (GapKind.TORN, len(data), len(data) + 30)]
    for sealed in (True, False):
        with LocalFiles().open(str(path), sealed=sealed) as view:
            assert offsets(view, memory=room) == expected == offsets(view)
    assert offsets(Bytes(data + packed[0][:30]), memory=room) == expected
    assert max(sizes) == 500
    sizes.clear()
    assert offsets(Bytes(LOG), memory=room) == without()
    assert not sizes


@pytest.mark.parametrize(
    ("changes", "lost", "kind", "position", "end"),
    [
        # a bit of a value
        ({5 * SIZE + 70: b"\xff"}, [5], GapKind.CRC_BAD, 5 * SIZE, 6 * SIZE),
        # lengths: negative, zero, too small, larger than the file, and of exactly three batches
        ({5 * SIZE + 8: struct.pack(">i", -5)}, [5], GapKind.BAD_LENGTH, 5 * SIZE, 6 * SIZE),
        ({5 * SIZE + 8: struct.pack(">i", 0)}, [5], GapKind.BAD_LENGTH, 5 * SIZE, 6 * SIZE),
        ({5 * SIZE + 8: struct.pack(">i", 20)}, [5], GapKind.BAD_LENGTH, 5 * SIZE, 6 * SIZE),
        ({5 * SIZE + 8: struct.pack(">i", 2**31 - 1)}, [5], GapKind.BAD_LENGTH, 5 * SIZE, 6 * SIZE),
        ({5 * SIZE + 8: struct.pack(">i", 1 << 20)}, [5], GapKind.BAD_LENGTH, 5 * SIZE, 6 * SIZE),
        ({5 * SIZE + 8: struct.pack(">i", 3 * SIZE - 12)}, [5], GapKind.CRC_BAD, 5 * SIZE, 6 * SIZE),
        # a length that ends between two batches
        ({5 * SIZE + 8: struct.pack(">i", SIZE + 40)}, [5], GapKind.CRC_BAD, 5 * SIZE, 6 * SIZE),
        ({5 * SIZE + 8: struct.pack(">i", 70)}, [5], GapKind.CRC_BAD, 5 * SIZE, 6 * SIZE),
        # magic
        ({5 * SIZE + 16: b"\x03"}, [5], GapKind.UNKNOWN_MAGIC, 5 * SIZE, 6 * SIZE),
        # a hole of zeros, and junk, over two batches and a half
        ({5 * SIZE: bytes(2 * SIZE + SIZE // 2)}, [5, 6, 7], GapKind.BAD_LENGTH, 5 * SIZE, 8 * SIZE),
        ({5 * SIZE: b"\x7f" * (2 * SIZE)}, [5, 6], GapKind.UNKNOWN_MAGIC, 5 * SIZE, 7 * SIZE),
        # the first batch
        ({8: struct.pack(">i", 9)}, [0], GapKind.BAD_LENGTH, 0, SIZE),
    ],
)
@pytest.mark.parametrize("window", [64, 300, 1 << 20])
def test_one_damage(changes, lost, kind, position, end, window):
    offsets, gaps = outcome(damaged(changes), window_bytes=window, first_window_bytes=window)
    assert offsets == without(*lost)
    assert len(gaps) == 1
    assert gaps[0][1:4] == (kind, position, end)
    assert gaps[0].first_offset == 3 * lost[0]
    assert gaps[0].next_offset == 3 * (lost[-1] + 1)
    assert gaps[0].is_damage
    assert "a.log" in str(gaps[0])
    assert str(position) in str(gaps[0])


@pytest.mark.parametrize("window", [64, 300, 1 << 20])
def test_a_length_that_leads_to_what_would_run_past_the_end(window):
    """What it leads to looks like a header, and no batch: those between are found, wherever the walk begins."""
    fake = struct.pack(">qiiB", 7, 1 << 28, 0, 1)
    log = bytearray(b"".join([*BATCHES[:7], batch(7, value=fake), *BATCHES[8:]]))
    log[5 * SIZE + 8 : 5 * SIZE + 12] = struct.pack(">i", log.index(fake) - 5 * SIZE - 12)
    offsets, gaps = outcome(log, window_bytes=window, first_window_bytes=window)
    assert offsets == without(5)
    assert [gap[1:4] for gap in gaps] == [(GapKind.CRC_BAD, 5 * SIZE, 6 * SIZE)]


@pytest.mark.parametrize("window", [64, 300, 1 << 20])
@pytest.mark.parametrize("is_last", [True, False])
def test_tails(window, is_last):
    options = {"is_last": is_last, "window_bytes": window, "first_window_bytes": window}
    for cut in (1, 13, SIZE - 61, SIZE - 18, SIZE - 12):
        offsets, gaps = outcome(LOG[:-cut], **options)
        assert offsets == without(11)
        assert [gap[1:4] for gap in gaps] == [(GapKind.TORN, 11 * SIZE, 12 * SIZE - cut)]
        assert gaps[0].is_damage is not is_last
    for zeros in (1, 16, 17, 100, 10_000):
        offsets, gaps = outcome(LOG + bytes(zeros), **options)
        assert offsets == without()
        assert [gap[1:4] for gap in gaps] == [(GapKind.ZEROS, len(LOG), len(LOG) + zeros)]
        assert gaps[0].is_damage is not is_last
    offsets, gaps = outcome(LOG + b"garbage" * 20, **options)
    assert offsets == without()
    assert [gap.kind for gap in gaps] == [GapKind.UNKNOWN_MAGIC]


@pytest.mark.parametrize("window", [64, 300, 1 << 20])
@pytest.mark.parametrize("cut", [1, 5, 9, 11, 12, 16, 17, 40, 61, 62, SIZE - 2])
def test_a_batch_that_breaks_off_in_preallocated_space(cut, window):
    """Zeros behind the torn tail of a preallocated file do not make it damage."""
    data = LOG[: 11 * SIZE + cut] + bytes(1000)
    if cut < 8:  # nothing of it but zeros: the first bytes of an offset
        data = LOG[: 11 * SIZE] + b"\0" * 7 + b"\7" + bytes(1000)
    offsets, gaps = outcome(data, window_bytes=window, first_window_bytes=window)
    assert offsets == without(11)
    assert [gap[1:4] for gap in gaps] == [(GapKind.TORN, 11 * SIZE, len(data))]
    assert not gaps[0].is_damage
    _, gaps = outcome(data, is_last=False, window_bytes=window, first_window_bytes=window)
    assert [gap.is_damage for gap in gaps] == [True]


class Growing(Bytes):
    """A preallocated file into which a broker writes while it is read: each read sees a little more."""

    def __init__(self, data, written, step):
        super().__init__(data)
        self.written, self.step = written, step

    def read(self, position, size):
        self.written += self.step
        return (self.data[: self.written] + bytes(max(0, len(self.data) - self.written)))[position : position + size]


@pytest.mark.parametrize("window", [64, 300, 1 << 20])
@pytest.mark.parametrize("step", [1, 7, 30, 61, 100, 145, 300])
def test_what_is_written_just_now_is_not_damage(step, window):
    """A batch that is there only in part when it is read first is looked at again before it is called damaged."""
    for written in range(9 * SIZE, 10 * SIZE, 5):
        view = Growing(LOG + bytes(500), written, step)
        items = list(walk(view, window_bytes=window, first_window_bytes=window))
        assert not [gap for gap in items if isinstance(gap, Gap) and gap.is_damage]
        batches = [position for item in items if isinstance(item, Window) for position in item.batches.position]
        assert batches == list(range(0, len(batches) * SIZE, SIZE))
        assert len(batches) >= 9


@pytest.mark.parametrize("left", [0, 1, 2, 25, 26, 100])
def test_a_file_that_is_cut_off_during_the_search(left):
    """The search for the next batch ends where the bytes do, though the file was longer when it began."""

    class Shrinking(Bytes):
        def read(self, position, size):
            if size > 1000:
                self.whole = self.data[: 5 * SIZE + left]
            return getattr(self, "whole", self.data)[position : position + size]

    view = Shrinking(damaged({5 * SIZE + 8: struct.pack(">i", -5)}))
    items = list(walk(view, window_bytes=300, first_window_bytes=300))
    assert sum(len(item.batches) for item in items if isinstance(item, Window)) <= 5


def test_several_damages_and_a_batch_larger_than_the_window():
    large = build.batch_v2([Record(36, 1, None, b"y" * 5000)])
    data = bytearray(LOG + large + batch(13))
    data[2 * SIZE + 70] ^= 1
    data[7 * SIZE + 16] = 9
    offsets, gaps = outcome(data, window_bytes=200, first_window_bytes=100)
    assert offsets == [*without(2, 7), 36, 39, 40, 41]
    assert [gap.kind for gap in gaps] == [GapKind.CRC_BAD, GapKind.UNKNOWN_MAGIC]


def test_a_batch_as_a_payload_is_no_batch():
    """A value that holds a whole batch is not taken for one when the CRC around it is bad."""
    carrier = bytearray(build.batch_v2([Record(0, 1, None, batch(1)), Record(1, 1, None, b"tail")]))
    carrier[-2] ^= 1
    offsets, gaps = outcome(bytes(carrier) + build.batch_v2([Record(2, 1, None, b"z")]))
    assert offsets == [2]
    assert [gap.kind for gap in gaps] == [GapKind.CRC_BAD]


def test_a_hole_of_zeros_is_crossed_in_a_moment():
    """A lost page cache leaves such holes: the search for the next batch must not look at the rest from every byte."""
    began = time.process_time()
    offsets, gaps = outcome(BATCHES[0] + bytes(2 << 20) + BATCHES[1])
    assert time.process_time() - began < 5
    assert offsets == [0, 1, 2, 3, 4, 5]
    assert [gap.kind for gap in gaps] == [GapKind.BAD_LENGTH]


def test_redpanda_is_named(corpus):
    path = next((corpus / "redpanda-foreign").rglob("0-1-v1.log"))
    with LocalFiles().open(str(path), sealed=True) as view:
        items = list(walk(view))
    assert [item.kind for item in items if isinstance(item, Gap)] == [GapKind.FOREIGN]
    assert "Redpanda" in str(items[-1])
    assert not any(isinstance(item, Window) for item in items)


@given(
    st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.integers(1, 255)), max_size=4),
    st.integers(0, 300),
    st.sampled_from([64, 200, 1 << 16]),
)
def test_any_flips(flips, cut, window):
    """Batches that are untouched come out, in order; nothing that was not written does; every byte is accounted for."""
    data = bytearray(LOG[: len(LOG) - cut])
    touched = {len(data) // SIZE} if cut else set()
    for at, change in flips:
        if at < len(data):
            data[at] ^= change
            touched.add(at // SIZE)
    offsets, gaps = [], []
    covered = 0
    for item in walk(Bytes(bytes(data)), window_bytes=window, first_window_bytes=window):
        if isinstance(item, Gap):
            gaps.append(item)
            assert item.position == covered
            covered = item.end_position
        else:
            assert item.batches.position[0] == covered
            covered = int(item.batches.position[-1] + item.batches.size[-1])
            offsets += item.batches.position.tolist()
    assert covered == len(data)
    untouched = [i * SIZE for i in range(12) if i not in touched and (i + 1) * SIZE <= len(data)]
    # A base offset or a leader epoch is under no CRC: such a batch is good, whatever it says. It may hide nothing else,
    # but offsets that it raises make lower ones behind damage implausible.
    header_only = {i for i in touched if all(at % SIZE < 16 for at, _ in flips if at // SIZE == i)}
    if not header_only:
        assert set(untouched) <= set(offsets)
    assert set(offsets) <= {i * SIZE for i in range(12)}


@pytest.mark.parametrize("window", [64, 200, 1 << 16])
@pytest.mark.parametrize(
    "damage",
    [
        {8: struct.pack(">i", 2**31 - 1)},
        {8: struct.pack(">i", 3 * SIZE - 12)},  # a length over good batches, up to the end of one
        {0: bytes(SIZE)},
        {70: b"\xff"},
    ],
    ids=["length", "inner", "zeros", "value"],
)
@pytest.mark.parametrize("high", [1, 5, 2**20, 2**40, 2**61])
def test_a_base_offset_that_is_too_high_hides_nothing(high, damage, window):
    """No checksum covers it: the good batches after the next damage are found all the same."""
    for at in (0, 4, 8):
        changes = {at * SIZE: struct.pack(">q", at * 3 + high * 3)}
        changes |= {(at + 1) * SIZE + begin: new for begin, new in damage.items()}
        items = list(walk(Bytes(damaged(changes)), window_bytes=window, first_window_bytes=window))
        found = [p for item in items if isinstance(item, Window) for p in item.batches.position.tolist()]
        assert found == [i * SIZE for i in range(12) if i != at + 1]
        (gap,) = (item for item in items if isinstance(item, Gap))
        assert (gap.position, gap.end_position) == ((at + 1) * SIZE, (at + 2) * SIZE)


class Counted(Bytes):
    """Counts the bytes that are read."""

    total = 0

    def read(self, position, size):
        data = super().read(position, size)
        self.total += len(data)
        return data


def liar(number, size):
    """A header of a batch that is none, and claims so many bytes."""
    data = bytearray(batch(number)[:61])
    data[8:12] = struct.pack(">i", size - 12)
    data[17:21] = bytes(4)
    return bytes(data)


@pytest.mark.parametrize("junk", [b"", b"\xff" * 20])
@pytest.mark.parametrize("is_last", [True, False])
def test_many_gaps_cost_no_more_than_the_file_is_long(junk, is_last):
    """Behind each gap lies what looks like a batch, runs on for megabytes, and is none."""
    count, unit = 3000, len(junk) + 61 + SIZE
    whole = count * unit
    data = b"".join(junk + liar(i, (whole - i * unit) * 3 // 4 // unit * unit + 100) + batch(i) for i in range(count))
    view = Counted(data)
    items = list(walk(view, is_last=is_last))
    assert view.total < 60 * len(data) + (64 << 20)  # 1500 times as much if each gap were searched for itself
    assert "given up" in items[-1].reason
    assert (items[-1].is_damage, items[-1].end_position) == (True, len(data))
    found = sum(len(item.batches) for item in items if isinstance(item, Window))
    assert 40 < found < count
    ends = [0]
    for item in items:
        first, end = (
            (item.position, item.end_position)
            if isinstance(item, Gap)
            else (int(item.batches.position[0]), int(item.batches.position[-1] + item.batches.size[-1]))
        )
        assert first == ends[-1]
        ends.append(end)


def test_many_gaps_in_a_file_that_means_no_harm():
    """All batches come out, however many gaps there are between them."""
    data = b"".join(bytes(i % 90) + b"\xff" * 20 + batch(i) for i in range(3000))
    view = Counted(data)
    items = list(walk(view))
    assert sum(len(item.batches) for item in items if isinstance(item, Window)) == 3000


def test_a_batch_behind_damage_that_is_larger_than_any_window():
    large = build.batch_v2([Record(5, 5, b"k", bytes(range(256)) * (80 << 12))])
    data = batch(0) + b"\xff" * 20 + large + batch(2)
    offsets, gaps = outcome(data)
    assert offsets == [0, 1, 2, 5, 6, 7, 8]
    assert [(gap.position, gap.end_position) for gap in gaps] == [(SIZE, SIZE + 20)]


@pytest.mark.reads
@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="the system does not tell where holes are")
@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("tail", [b"", b"".join(batch(i) for i in range(6, 12))])
def test_holes_are_not_read(tmp_path, sealed, tail, monkeypatch):
    """A file of 8 GiB that the disk has some kilobytes of."""
    path, hole = tmp_path / "a.log", 8 << 30
    with path.open("wb") as file:
        file.write(LOG[: 6 * SIZE])
        file.seek(hole)
        file.write(tail)
        file.truncate()
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no holes")
    view = LocalFiles().open(str(path), sealed=sealed)
    read, total = view.read, 0

    def counted(position, size):
        nonlocal total
        data = read(position, size)
        total += len(data)
        assert total < 100 << 20
        return data

    monkeypatch.setattr(view, "read", counted)
    with view:
        items = list(walk(view, is_last=not sealed))
    offsets = [n for item in items if isinstance(item, Window) for n in item.batches.base_offset.tolist()]
    (gap,) = [item for item in items if isinstance(item, Gap)]
    assert offsets == [3 * i for i in range(12 if tail else 6)]
    assert (gap.position, gap.end_position) == (6 * SIZE, hole)
    assert gap.is_damage == (bool(tail) or sealed)
