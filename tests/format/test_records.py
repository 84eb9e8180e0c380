"""Tests of _native/_gather.pyx, _native/_records.pyx, format/records.py and format/scratch.py. Record columns against
the slow reader: every field, damaged bodies, hostile bytes.
"""

import threading
from itertools import pairwise

import numpy as np
import pytest
from helpers.buffers import BUFFERS
from hypothesis import given
from hypothesis import strategies as st
from reference import batch as slow
from reference import build

from pylogseg import encode
from pylogseg._native import _gather, _records
from pylogseg.errors import Verdict
from pylogseg.format.batches import scan
from pylogseg.format.records import BODY_DTYPE, REASONS, Tally, allocate, check_and_decode, decode
from pylogseg.format.scratch import Scratch

payloads = st.none() | st.binary(max_size=30)
headers = st.lists(st.tuples(st.binary(max_size=5), payloads), max_size=3).map(tuple)


@st.composite
def record_lists(draw, with_headers=True):
    gaps = draw(st.lists(st.integers(1, 300), min_size=1, max_size=8))
    first = draw(st.integers(0, 2**40))
    offsets = [first + sum(gaps[:i]) for i in range(len(gaps))]
    moments = st.integers(-1, 2**45)
    extra = headers if with_headers else st.just(())
    return [slow.Record(offset, draw(moments), draw(payloads), draw(payloads), draw(extra)) for offset in offsets]


def as_records(columns):
    """Columns as the records of the slow reader."""
    names, name_sizes, values, value_sizes = columns.header_spans()
    pairs = [
        (columns.span(names[i], name_sizes[i]), columns.span(values[i], value_sizes[i])) for i in range(len(names))
    ]
    out, at = [], 0
    for i in range(len(columns)):
        count = int(columns.header_count[i])
        out.append(
            slow.Record(
                int(columns.offset[i]),
                int(columns.timestamp[i]),
                columns.key(i),
                columns.value(i),
                tuple(pairs[at : at + count]),
            )
        )
        at += count
    return out


def decoded(data, **options):
    return decode(scan(data).batches, data, **options)


@given(
    st.lists(record_lists(), min_size=1, max_size=3),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
    st.booleans(),
)
def test_what_the_decoder_counts(lists, deltas, damage):
    """Offsets that go down, wrap and are negative among them; nothing of a damaged batch."""
    top = 2**63 - 1
    wild = [slow.Record(top + delta, 5, None, b"", ()) for delta in deltas]
    parts = [build.batch_v2(records) for records in lists]
    if wild:
        parts.insert(len(parts) // 2, build.batch_v2(wild, base_offset=top, last_offset=top))
    if damage:
        parts.insert(len(parts) // 2, build.batch_v2(lists[0], count=len(lists[0]) + 1))
    columns, bad = decoded(b"".join(parts))
    assert len(bad) == damage
    slower = [record for records in lists for record in records]
    offsets = [slow.wrapped_long(record.offset) for record in slower + wild]
    assert columns.counted is not None
    assert columns.counted[:-1] == (
        min(offsets),
        max(offsets),
        sum(record.key is None for record in slower) + len(wild),
        sum(record.value is None for record in slower),
        sum(len(record.headers) for record in slower),
    )
    again = columns.take(slice(None))
    assert again.counted is None
    assert again.tally() == again.counted == columns.tally()._replace(outside=0)
    assert columns.take(slice(0, 0)).tally() == Tally(top, -top - 1, 0, 0, 0)


@given(st.lists(record_lists(), min_size=1, max_size=4), st.sampled_from(sorted(BUFFERS)), st.sampled_from([None, 77]))
def test_magic_2(lists, kind, append_time):
    data = b"".join(build.batch_v2(records, log_append_time=append_time) for records in lists)
    columns, damage = decoded(BUFFERS[kind](data))
    assert not damage
    assert as_records(columns) == [record for batch in slow.batches(data) for record in slow.records(batch)]
    assert columns.batch.tolist() == [i for i, records in enumerate(lists) for _ in records]


@given(record_lists(with_headers=False), st.sampled_from([0, 1]))
def test_legacy(records, magic):
    records = [record._replace(timestamp=max(record.timestamp, -1)) for record in records]
    data = build.legacy(records, magic)
    columns, damage = decoded(data)
    assert not damage
    assert as_records(columns) == [record for batch in slow.batches(data) for record in slow.records(batch)]


def test_scratch_is_reused_and_grows():
    scratch = Scratch()
    small = build.batch_v2([slow.Record(0, 1, b"a", b"b")])
    large = build.batch_v2([slow.Record(i, 1, b"key", b"value") for i in range(5000)])
    one, _ = decoded(small, scratch=scratch)
    two, _ = decoded(large, scratch=scratch)
    three, _ = decoded(small, scratch=scratch)
    assert (len(one), len(two), len(three)) == (1, 5000, 1)
    assert np.shares_memory(two.timestamp, three.timestamp)
    assert not np.shares_memory(two.offset, three.offset)  # Arrow may still have them
    assert three.value(0) == b"b"


def test_an_empty_batch_and_no_batch():
    empty = build.batch_v2([], base_offset=10, last_offset=14)
    columns, damage = decoded(empty)
    assert (len(columns), damage) == (0, [])
    assert len(decoded(b"")[0]) == 0


def test_take():
    data = build.batch_v2([slow.Record(i, 1, None, b"%d" % i) for i in range(5)])
    columns, _ = decoded(data)
    assert [columns.take(slice(1, 3)).value(i) for i in range(2)] == [b"1", b"2"]
    assert [record.value for record in as_records(columns.take(columns.offset % 2 == 0))] == [b"0", b"2", b"4"]


def test_views_and_payloads_are_made_besides():
    values = [b"short", None, b"", b"twelve bytes", b"thirteen byte", b"long" * 100]
    data = build.batch_v2([slow.Record(i, 1, b"key %d" % i, value) for i, value in enumerate(values)])
    views, _ = decoded(data, scratch=Scratch(besides="views"))
    sizes = [len(value or b"") for value in values]
    assert views.value_view["size"].tolist() == sizes
    raw = views.value_view.tobytes()
    assert [raw[16 * i + 4 : 16 * i + 16][:size] for i, size in enumerate(sizes) if size <= 12] == [
        value or b"" for value in values if len(value or b"") <= 12
    ]
    assert views.value_view["position"][5] == data.index(b"longlong")
    assert views.take(slice(3, 5)).value_view["size"].tolist() == sizes[3:5]
    copied, _ = decoded(data, scratch=Scratch(besides="payloads"))
    for copies, payloads in ((copied.values, values), (copied.keys, [b"key %d" % i for i in range(len(values))])):
        found = [copies.data[begin:end].tobytes() for begin, end in pairwise(copies.ends.tolist())]
        assert found == [payload or b"" for payload in payloads]
    assert copied.take(slice(3, 5)).values is None
    values_alone, _ = decoded(data, scratch=Scratch(besides="values"))
    assert values_alone.keys is None
    assert values_alone.values.data.tobytes() == copied.values.data.tobytes()
    keys_alone, _ = decoded(data, scratch=Scratch(besides="keys"))
    assert keys_alone.values is None
    assert keys_alone.keys.data.tobytes() == copied.keys.data.tobytes()
    assert keys_alone.keys.ends.tolist() == copied.keys.ends.tolist()


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("extra", [(), ((b"name", b"x"),)])
def test_payloads_of_every_length_are_copied(wide, extra):
    """Around the lengths at which the way to copy changes, to the last byte of a batch and over many of them."""
    values = [None if size % 50 == 49 else bytes([size % 251]) * size for size in range(700)]
    some = [slow.Record(i, 1, value, values[-1 - i], extra if i % 3 == 0 else ()) for i, value in enumerate(values)]
    no_keys = [slow.Record(700 + i, 1, None, value) for i, value in enumerate(values)]
    data = build.batch_v2(some) + build.batch_v2(no_keys)
    try:
        assert not _records.use_wide_copies(wide) or wide
        columns, damage = decoded(data, scratch=Scratch(besides="payloads"))
    finally:
        _records.use_wide_copies(True)
    assert not damage
    for copies, payloads in ((columns.keys, values + [None] * 700), (columns.values, values[::-1] + values)):
        found = [copies.data[begin:end].tobytes() for begin, end in pairwise(copies.ends.tolist())]
        assert found == [payload or b"" for payload in payloads]


def test_a_crc_is_checked_right_before_its_records():
    data = bytearray(b"".join(build.batch_v2([slow.Record(i, 1, None, b"value %d" % i)]) for i in range(3)))
    batches = scan(data, crc=False).batches
    columns, damage = check_and_decode(batches, data, 0, None)
    assert (columns.offset.tolist(), damage, batches.verdict.tolist()) == ([0, 1, 2], [], [Verdict.GOOD] * 3)
    data[data.index(b"value 1")] ^= 1
    batches = scan(data, crc=False).batches
    assert check_and_decode(batches, data, 0, None) is None
    assert batches.verdict.tolist() == [Verdict.UNCHECKED] * 3


def with_good_crc(data):
    return data[:17] + slow.crc32c(data[21:]).to_bytes(4, "big") + data[21:]


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (b"", 1, 1),
        (bytes.fromhex("0e00000001010000"), -1, 1),
        (bytes.fromhex("0e00000001010000"), 2, 1),
        (bytes.fromhex("1000000001010000"), 1, 2),
        (bytes.fromhex("0100000001010000"), 1, 2),
        (bytes.fromhex("0000000001010000"), 1, 3),
        (bytes.fromhex("0e00000014010000"), 1, 3),
        (bytes.fromhex("0c000000010101"), 1, 5),
        (bytes.fromhex("0c000000010102"), 1, 5),
        (bytes.fromhex("0e00000001000000"), 1, 4),
        (bytes.fromhex("0c000000010100ff"), 1, 6),
        (bytes.fromhex("ffffffffffff0101"), 1, 3),
    ],
)
def test_damaged_bodies_leave_the_other_batches_whole(body, count, reason):
    good = build.batch_v2([slow.Record(0, 1, b"a", b"b")])
    head = build.batch_v2([slow.Record(3, 1, None, None)], count=count)[:61]
    bad = with_good_crc(head[:8] + (49 + len(body)).to_bytes(4, "big") + head[12:] + body)
    data = good + bad + good
    table = scan(data).batches
    assert table.verdict.tolist() == [Verdict.GOOD] * 3
    columns, damage = decode(table, data)
    assert [record.offset for record in as_records(columns)] == [0, 0]
    assert columns.batch.tolist() == [0, 2]
    assert damage == [(1, REASONS[reason])]
    assert table.verdict.tolist() == [Verdict.GOOD, Verdict.RECORDS_BAD, Verdict.GOOD]
    with pytest.raises(slow.InvalidRecords):
        list(slow.records(list(slow.batches(data))[1]))


@given(record_lists(), st.data())
def test_hostile_bodies(records, data):
    """Any change of a body ends as the slow reader says: the same records, or damage."""
    whole = bytearray(build.batch_v2(records))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(57, len(whole) - 1))] = data.draw(st.integers(0, 255))
    raw = with_good_crc(bytes(whole))
    columns, damage = decoded(raw)
    batch = next(slow.batches(raw))
    try:
        expected = list(slow.records(batch))
    except slow.InvalidRecords:
        assert len(columns) == 0
        assert len(damage) == 1
    else:
        assert not damage
        assert as_records(columns) == expected


def test_what_a_caller_makes_up_is_refused():
    data = build.batch_v2([slow.Record(0, 1, b"a", b"b")])
    rows = scan(data).batches.rows
    columns, _ = decoded(data)
    arrays = [getattr(columns, name) for name in ("offset", "timestamp", "key_place", "key_size", "value_place")]
    arrays += [columns.value_size, columns.headers_place, columns.header_count, columns.batch]
    for place, size in ((0, len(data) + 1), (-1, 5), (1 << 41, 5), (5 << 40, 1), (len(data), 1), (0, 1 << 62)):
        body = np.array([(place, size)], BODY_DTYPE)
        assert _records.decode(rows, 0, body, (data, b""), 0, _records.Output(*arrays))[3] != 0
        assert _records.decode(rows, 0, body, (data, b""), 0, _records.Output(*arrays), crc=True)[3] != 0
    good = np.array([(61, len(data) - 61)], BODY_DTYPE)
    for place, size in ((60, len(data) - 61), (61, len(data) - 62), (61 + (1 << 40), len(data) - 61), (0, 0)):
        body = np.array([(place, size)], BODY_DTYPE)
        assert REASONS[_records.decode(rows, 0, body, (data, data), 0, _records.Output(*arrays), crc=True)[3]]
    for ends, room in (([0, 0], 0), ([0, 0], len(data) - 62), ([1, 0], len(data) - 61)):  # too little for the copy
        copy = np.array(ends, np.int32), np.empty(room, np.uint8)
        assert _records.decode(rows, 0, good, (data, b""), 0, _records.Output(*arrays, None, None, *copy))[3] != 0
        assert (
            _records.decode(rows, 0, good, (data, b""), 0, _records.Output(*arrays, None, None, None, None, *copy))[3]
            != 0
        )
    for ends in ([-1, 0], [len(data), 0], []):
        copy = np.array(ends, np.int32), np.empty(8, np.uint8)
        with pytest.raises(ValueError, match="payloads before the first"):
            _records.decode(rows, 0, good, (data, b""), 0, _records.Output(*arrays, None, None, *copy))
        with pytest.raises(ValueError, match="payloads before the first"):
            _records.decode(rows, 0, good, (data, b""), 0, _records.Output(*arrays, None, None, None, None, *copy))
    with pytest.raises(ValueError, match="slot -1"):
        _records.decode(rows, 0, good, (data, b""), -1, _records.Output(*arrays))
    out = (np.zeros(2, np.int32), np.zeros(8, np.uint8), np.zeros(1, np.uint8))
    for place, size in ((len(data), 1), (0, len(data) + 1), (-5, 2), (1 << 50, 1)):
        spans = np.array([place], np.int64), np.array([size], np.int32)
        with pytest.raises(ValueError, match="outside of its source"):
            _gather.gather_binary(*spans, (data,), *out)
        with pytest.raises(ValueError, match="outside of its source"):
            _gather.gather_views(*spans, (data,), np.zeros(16, np.uint8), out[2])
    many = np.full(1, 1 << 30, np.int32)
    with pytest.raises(ValueError, match="headers of record 0"):
        _gather.header_spans(
            np.zeros(1, np.int64),
            many,
            (data,),
            np.zeros(1, np.int64),
            np.zeros(1, np.int32),
            np.zeros(1, np.int64),
            np.zeros(1, np.int32),
        )


def test_what_was_copied_stays_when_the_scratch_is_used_again():
    """Memory that payloads do not fill is used again; none that was given away, however long keys and values are."""
    scratch, kept = Scratch(besides="payloads"), []
    for key_size, value_size in ((0, 500), (500, 0), (20, 30), (1, 2000), (2000, 1), (0, 0), (7, 7), (300, 300)):
        records = [slow.Record(i, 0, b"k" * key_size, bytes([65 + i]) * value_size) for i in range(20)]
        columns, _ = decoded(build.batch_v2(records), scratch=scratch)
        kept.append((records, columns.keys, columns.values))
    for records, keys, values in kept:
        for found, expected in ((keys, [r.key for r in records]), (values, [r.value for r in records])):
            assert found.data.tobytes() == b"".join(expected)
            assert np.diff(found.ends).tolist() == list(map(len, expected))


def test_counts_that_another_thread_changes_write_nothing_beyond_the_columns():
    """The table of batches is an ordinary array: between a check of a row and its use it may say something else."""
    count, room, guard = 500, 600, 3000
    data = b"".join(bytes(encode([(0, None, None)] * count, base_offset=i * count)) for i in range(50))
    rows = np.ascontiguousarray(scan(data).batches.rows)
    bodies = np.empty(len(rows), BODY_DTYPE)
    _records.plain_bodies(rows, 0, bodies, len(data))
    rows["count"] = 10
    stop = threading.Event()

    def change():
        while not stop.is_set():
            rows["count"][:] = count
            rows["count"][:] = 10

    changing = threading.Thread(target=change, daemon=True)
    changing.start()
    try:
        for _ in range(300):
            whole = [np.full(room + guard, 77, column.dtype) for column in allocate(1)]
            _records.decode(rows, 0, bodies, (data, b""), 0, _records.Output(*(column[:room] for column in whole)))
            assert all((column[room:] == 77).all() for column in whole)
    finally:
        stop.set()
        changing.join()
