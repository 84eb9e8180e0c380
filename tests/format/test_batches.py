"""Tests of format/batches.py. The batch table: structure, scan against the slow oracle, endings, hostile bytes."""

import struct

import numpy as np
import pytest
from helpers.buffers import BUFFERS
from hypothesis import given
from hypothesis import strategies as st
from reference import batch as slow
from reference import build

from pylogseg import _codec
from pylogseg.errors import Ending, Verdict
from pylogseg.format.batches import BATCH_DTYPE, scan

V0 = bytes.fromhex("0000000000000005000000101fecd70a0000000000016b0000000176")
V1 = bytes.fromhex("000000000000000500000018e4e321bc010000000000000003e8000000016b0000000176")
V2 = bytes.fromhex(
    "00000000000000000000004c0000000702c94861cd00000000000100000000000003e800000000000003e9ffffffffffffffffffffffffffff"
    "0000000214000000046b31047631001e000202010476320402680278026e01"
)


def test_the_structure_of_a_row_is_packed():
    names = [name for name in BATCH_DTYPE.names if name != "pad"]
    assert BATCH_DTYPE.itemsize == 80
    sizes = [BATCH_DTYPE[name].itemsize for name in names]
    assert [BATCH_DTYPE.fields[name][1] for name in names] == np.cumsum([0, *sizes])[:-1].tolist()
    with pytest.raises(TypeError, match="BATCH_DTYPE"):
        _codec.scan(V2, 0, len(V2), 0, np.zeros(1, np.int64), True)


def test_a_row_of_each_magic():
    found = scan(V0 + V1 + V2, file_position=1000)
    assert (found.position, found.ending) == (1000 + len(V0 + V1 + V2), Ending.COMPLETE)
    table = found.batches
    assert table.position.tolist() == [1000, 1000 + len(V0), 1000 + len(V0 + V1)]
    assert table.magic.tolist() == [0, 1, 2]
    assert table.size.tolist() == [len(V0), len(V1), len(V2)]
    assert table.base_offset.tolist() == [5, 5, 0]
    assert table.last_offset.tolist() == [5, 5, 1]
    assert table.next_offset.tolist() == [6, 6, 2]
    assert table.max_timestamp.tolist() == [-1, 1000, 1001]
    assert table.base_timestamp.tolist() == [-1, 1000, 1000]
    assert table.timestamp_type.tolist() == [-1, 0, 0]
    assert table.count.tolist() == [1, 1, 2]
    assert table.leader_epoch.tolist() == [-1, -1, 7]
    assert table.producer_id.tolist() == table.base_sequence.tolist() == table.producer_epoch.tolist() == [-1, -1, -1]
    assert table.verdict.tolist() == [Verdict.GOOD] * 3
    assert table.codec.tolist() == [0, 0, 0]
    with pytest.raises(AttributeError):
        table.no_such_column  # noqa: B018


def test_flags():
    plain = build.batch_v2([slow.Record(0, 5, b"a", None)])
    data = bytearray(plain)
    data[22] = 0x78
    row = scan(bytes(data), crc=False).batches
    assert row.is_log_append_time[0]
    assert row.is_transactional[0]
    assert row.is_control[0]
    assert row.has_delete_horizon[0]
    assert row.verdict[0] == Verdict.UNCHECKED
    assert scan(bytes(data)).batches.verdict[0] == Verdict.CRC_BAD


@pytest.mark.parametrize("kind", sorted(BUFFERS))
def test_every_buffer(kind):
    assert scan(BUFFERS[kind](V2 + V1)).batches.magic.tolist() == [2, 1]
    assert len(scan(BUFFERS[kind](b"")).batches) == 0


def test_limits():
    data = V2 * 5
    found = scan(data, max_rows=2)
    assert (len(found.batches), found.position, found.ending) == (2, 2 * len(V2), Ending.MORE)
    rest = scan(data, start=found.position)
    assert (len(rest.batches), rest.ending) == (3, Ending.COMPLETE)
    assert scan(data, end=len(V2) + 12).ending is Ending.TORN
    assert len(scan(V0 * 5000).batches) == 5000
    with pytest.raises(IndexError):
        scan(data, start=3, end=2)


@pytest.mark.parametrize(
    ("tail", "ending"),
    [
        (b"", Ending.COMPLETE),
        (V2[:12], Ending.TORN),
        (V2[:5], Ending.ZEROS),
        (V2[:17], Ending.TORN),
        (V2[:-1], Ending.TORN),
        (bytes(3), Ending.ZEROS),
        (bytes(5000), Ending.ZEROS),
        (bytes(5000) + b"\1", Ending.BAD_LENGTH),
        (V2[:8] + struct.pack(">i", -1) + V2[12:], Ending.BAD_LENGTH),
        (V2[:8] + struct.pack(">i", 13) + V2[12:], Ending.BAD_LENGTH),
        (V2[:8] + struct.pack(">i", 48) + V2[12:], Ending.BAD_LENGTH),
        (V2[:8] + struct.pack(">i", 2**31 - 1) + V2[12:], Ending.BAD_LENGTH),
        (V2[:16] + b"\x03" + V2[17:], Ending.UNKNOWN_MAGIC),
        (V2[:16] + b"\xff" + V2[17:], Ending.UNKNOWN_MAGIC),
    ],
)
def test_endings(tail, ending):
    found = scan(V2 + V1 + tail)
    assert found.ending is ending
    assert len(found.batches) == 2
    assert found.position == len(V2 + V1)


def test_every_bit_of_a_batch_counts():
    """A flip that the CRC covers is seen; one that it does not cover leaves another offset, epoch, length or magic."""
    for at in range(len(V2)):
        data = bytearray(V2)
        data[at] ^= 0x10
        found = scan(bytes(data))
        if at >= 17:
            assert found.batches.verdict.tolist() == [Verdict.CRC_BAD]
        elif 8 <= at < 12 or at == 16:
            assert not len(found.batches) or found.batches.verdict[0] == Verdict.CRC_BAD
        else:
            assert found.batches.verdict.tolist() == [Verdict.GOOD]


@given(st.lists(st.sampled_from([V0, V1, V2]), max_size=8), st.binary(max_size=40), st.data())
def test_scan_as_the_oracle(parts, tail, data):
    """Whatever follows, the batches are those that the oracle reads."""
    whole = bytearray(b"".join(parts) + tail)
    if whole and data.draw(st.booleans()):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    found = scan(bytes(whole))
    expected = []
    try:
        for batch in slow.batches(bytes(whole)):
            if batch.magic not in (0, 1, 2) or batch.size < {0: 26, 1: 34, 2: 61}[batch.magic]:
                break
            expected.append(batch)
    except (slow.CorruptFile, slow.InvalidRecords, struct.error):
        expected = expected[: len(found.batches)]
    rows = found.batches[: len(expected)]
    assert rows.position.tolist() == [b.position for b in expected]
    assert rows.size.tolist() == [b.size for b in expected]
    assert rows.crc.tolist() == [b.crc for b in expected]
    assert (rows.verdict == Verdict.GOOD).tolist() == [b.valid for b in expected]
    assert rows.last_offset.tolist() == [b.last_offset for b in expected]


def find_batch(data, start, end, lowest_offset, budget=1 << 20, behind=0):
    position, size, left = _codec.find_batch(data, start, end, lowest_offset, budget, behind)
    assert (position < 0) == (size == 0)
    return position, left


def test_find_batch():
    junk = bytes(range(256)) * 3
    data = junk + V2 + V1
    assert find_batch(data, 0, len(data), 0)[0] == len(junk)
    assert find_batch(data, len(junk) + 1, len(data), 0)[0] == len(junk) + len(V2)
    assert find_batch(data, 0, len(data), 1)[0] == len(junk) + len(V2)
    assert find_batch(data, 0, len(junk) + len(V2) - 1, 0)[0] == -1
    liar = b"".join(V2[:17] + bytes(4) + V2[21:] for _ in range(40))
    position, left = find_batch(liar, 0, len(liar), 0, 10 * len(V2))
    assert position == -1
    assert left < 0
    position, left = find_batch(liar, 0, len(liar), 0)
    assert position == -1
    assert 0 < left <= (1 << 20) - 40 * len(V2)


def test_find_batch_that_runs_past_the_end():
    data = bytes(7) + V2
    for end in range(7 + 61, len(data)):
        assert _codec.find_batch(data, 0, end, 0, 0, len(data) - end) == (7, len(V2), 0)
        assert _codec.find_batch(data, 0, end, 0, 0, len(data) - end - 1) == (-1, 0, 0)
    assert _codec.find_batch(data, 0, 7 + 60, 0, 0, len(data)) == (-1, 0, 0)  # not all of its header
    with pytest.raises(ValueError, match="-1 bytes after the end"):
        _codec.find_batch(data, 0, len(data), 0, 0, -1)


@given(st.lists(st.sampled_from([bytes(1), bytes(13), bytes(100), b"\1", b"\0\0\0\x0e", V2, V1, V0]), max_size=12))
def test_find_batch_behind_zeros(pieces):
    """Zeros are passed over in one go; not those that a batch begins with."""
    data = b"".join(pieces)
    start = 0
    while start < len(data):
        position, _ = find_batch(data, start, len(data), 0)
        here = (at for at in range(start, len(data)) if find_batch(data, at, len(data), 0)[0] == at)
        assert position == next(here, -1)
        start = len(data) if position < 0 else position + 1


@given(st.binary(max_size=300), st.integers(0, 5))
def test_find_batch_never_invents(data, lowest):
    position, _ = find_batch(data, 0, len(data), lowest)
    if position >= 0:
        assert scan(data, start=position).batches.verdict[0] == Verdict.GOOD
