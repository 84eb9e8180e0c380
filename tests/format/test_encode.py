"""Tests of _native/_encoder.pyx, format/builder.py, format/record_input.py, reading/arrow/encode.py and
reading/arrow/inputs.py. Encoding against the format's vectors, the plain-Python reference and a real Kafka.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import batch as reference
from reference import build as reference_build

import pylogseg
from pylogseg.errors import RequestError, Verdict
from pylogseg.format.batches import BatchTable, scan
from pylogseg.format.builder import Columns, build, columns_to_encode, rebuild, shared_row
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.format.control_batches import empty_batch, marker_batch
from pylogseg.format.record_input import columns_from_records
from pylogseg.format.records import decode
from pylogseg.reading.arrow.encode import encode

CHECKSUM_RECORDS = [(283843, b"key1", b"value1"), (1234, b"key2", b"value2")]
LEGACY_CODECS = ("none", "gzip", "snappy", "lz4")

VECTORS = {
    "v0": (
        encode([(None, b"k", b"v")], magic=0, base_offset=5),
        "0000000000000005000000101fecd70a0000000000016b0000000176",
    ),
    "v0 nulls": (encode([(None, None, None)], magic=0), "00000000000000000000000ea7ec68030000ffffffffffffffff"),
    "v1": (
        encode([(1000, b"k", b"v")], magic=1, base_offset=5),
        "000000000000000500000018e4e321bc010000000000000003e8000000016b0000000176",
    ),
    "v1 append time": (
        encode([(7, b"k", None)], magic=1, base_offset=5, timestamp_type="append", append_time_ms=1000),
        "0000000000000005000000175c6979a5010800000000000003e8000000016bffffffff",
    ),
    "v2": (
        encode([(1000, b"k1", b"v1"), (1001, None, b"v2", [("h", b"x"), ("n", None)])], leader_epoch=7),
        "00000000000000000000004c0000000702c94861cd00000000000100000000000003e800000000000003e9ffffffffffffffffffffffff"
        "ffff0000000214000000046b31047631001e000202010476320402680278026e01",
    ),
    "v2 idempotent": (
        encode([(5, b"a", None)], base_offset=10, producer_id=9, producer_epoch=1, base_sequence=0),
        "000000000000000a00000039ffffffff02bae5f88600000000000000000000000000050000000000000005000000000000000900010000"
        "0000000000010e00000002610100",
    ),
    "v2 commit": (
        marker_batch(
            "commit",
            base_offset=12,
            timestamp_ms=6,
            producer_id=9,
            producer_epoch=1,
            coordinator_epoch=3,
            leader_epoch=7,
        ),
        "000000000000000c0000004200000007024ab06694003000000000000000000000000600000000000000060000000000000009"
        "0001ffffffff000000012000000008000000010c00000000000300",
    ),
    "v2 empty": (
        empty_batch(
            base_offset=10,
            last_offset=14,
            max_timestamp_ms=5,
            leader_epoch=7,
            producer_id=9,
            producer_epoch=1,
            base_sequence=0,
        ),
        "000000000000000a000000310000000702760c3cc7000000000004ffffffffffffffff0000000000000005000000000000000900010000"
        "000000000000",
    ),
    "v2 delete horizon": (
        encode([(5, b"a", None)], base_offset=10, delete_horizon_ms=5000),
        "000000000000000a0000003affffffff0210cb2dd100400000000000000000000013880000000000000005ffffffffffffffffffffffff"
        "ffff000000011000854e0002610100",
    ),
    "testChecksum": (
        encode(CHECKSUM_RECORDS),
        "000000000000000000000055ffffffff02e58cf1ff00000000000100000000000454c300000000000454c3ffffffffffffffffffffffff"
        "ffff0000000220000000086b6579310c76616c756531002400e1bf2202086b6579320c76616c75653200",
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_byte_for_byte(name: str) -> None:
    got, expected = VECTORS[name]
    assert got.hex() == expected


@pytest.mark.parametrize(
    ("magic", "compression", "crc"),
    [
        (0, "none", 1978725405),
        (1, "none", 109425508),
        (2, "none", 3851219455),
        (0, "lz4", 66944826),
        (1, "lz4", 1407303399),
        (2, "lz4", 2745969314),
    ],
)
def test_checksums_of_kafkas_own_test(magic: int, compression: str, crc: int) -> None:
    assert scan(encode(CHECKSUM_RECORDS, magic=magic, compression=compression)).batches.crc[0] == crc


# ---- the reference reads what we write ----

payloads = st.none() | st.binary(max_size=70) | st.sampled_from([63, 64, 8191, 8192]).map(lambda size: b"x" * size)
timestamps = st.integers(-1, 2**63 - 1) | st.integers(1_700_000_000_000, 1_700_000_000_300)
header_lists = st.lists(st.tuples(st.text(max_size=5).map(str.encode), payloads), max_size=3).map(tuple)
steps = st.integers(1, 3) | st.sampled_from([63, 64, 8191, 2**31 - 1, 2**31, 2**33])


@st.composite
def record_lists(draw: st.DrawFn, *, headers: bool = True, max_step: int = 2**33) -> list[reference.Record]:
    rows = draw(st.lists(st.tuples(steps, timestamps, payloads, payloads, header_lists), min_size=1, max_size=12))
    offset = draw(st.integers(0, 2**40))
    found = []
    for step, timestamp, key, value, pairs in rows:
        found.append(reference.Record(offset, timestamp, key, value, pairs if headers else ()))
        offset += min(step, max_step)
    return found


def as_dicts(records: list[reference.Record]) -> list[dict[str, object]]:
    return [record._asdict() for record in records]


def read_back(data: bytes) -> list[reference.Record]:
    found = list(reference.batches(bytes(data)))
    assert sum(batch.size for batch in found) == len(data)
    assert all(batch.valid for batch in found)
    return [record for batch in found for record in reference.records(batch)]


@given(record_lists(), st.sampled_from(CODEC_NAMES), st.integers(1, 400), st.none() | st.integers(1, 3))
def test_v2_round_trip(records: list[reference.Record], codec: str, batch_bytes: int, most: int | None) -> None:
    data = encode(as_dicts(records), compression=codec, batch_bytes=batch_bytes, batch_records=most)
    assert read_back(data) == records


@given(record_lists(headers=False), st.sampled_from([0, 1]), st.sampled_from(LEGACY_CODECS), st.integers(1, 400))
def test_legacy_round_trip(records: list[reference.Record], magic: int, codec: str, batch_bytes: int) -> None:
    data = encode(as_dicts(records), magic=magic, compression=codec, batch_bytes=batch_bytes)
    expected = records if magic else [record._replace(timestamp=-1) for record in records]
    assert read_back(data) == expected


@given(
    record_lists(max_step=2**20),
    st.booleans(),
    st.none() | st.integers(0, 2**40),
    st.none() | st.integers(0, 2**62),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)) | st.none(),
)
def test_one_uncompressed_batch_has_the_references_bytes(
    records: list[reference.Record],
    transactional: bool,
    append_time: int | None,
    horizon: int | None,
    producer: tuple[int, int, int] | None,
) -> None:
    fields: dict[str, object] = {"leader_epoch": 3}
    if producer is not None:
        names = ("producer_id", "producer_epoch", "base_sequence")
        fields |= dict(zip(names, producer, strict=True), transactional=transactional)
    got = encode(
        as_dicts(records),
        batch_bytes=1 << 24,
        timestamp_type="create" if append_time is None else "append",
        append_time_ms=append_time,
        delete_horizon_ms=horizon,
        **fields,
    )
    deltas = [record.timestamp - (records[0].timestamp if horizon is None else horizon) for record in records]
    if all(-(2**63) <= delta < 2**63 for delta in deltas):  # the reference does not wrap as Java does
        assert got == reference_build.batch_v2(records, log_append_time=append_time, delete_horizon=horizon, **fields)


@given(record_lists(headers=False), st.sampled_from([0, 1]), st.none() | st.integers(0, 2**40))
def test_uncompressed_legacy_has_the_references_bytes(
    records: list[reference.Record], magic: int, append_time: int | None
) -> None:
    if magic == 0:
        append_time = None
    kind = "create" if append_time is None else "append"
    got = encode(as_dicts(records), magic=magic, timestamp_type=kind, append_time_ms=append_time)
    assert got == reference_build.legacy(records, magic, log_append_time=append_time)


# ---- batches ----


@given(record_lists(), st.sampled_from([1, 2]), st.sampled_from(LEGACY_CODECS), st.integers(60, 500))
def test_the_table_is_what_a_scan_finds(
    records: list[reference.Record], magic: int, codec: str, batch_bytes: int
) -> None:
    if magic < 2:
        records = [record._replace(headers=()) for record in records]
    columns = columns_from_records(as_dicts(records))
    data, table = build(columns, shared_row(magic=magic, compression=codec), batch_bytes=batch_bytes)
    found = scan(data).batches.rows
    assert set(found["verdict"].tolist()) == {Verdict.GOOD}
    hidden = {"base_offset", "count", "base_timestamp"} if magic == 1 and codec != "none" else set()
    for name in set(found.dtype.names) - hidden - {"pad"}:
        assert found[name].tolist() == table.rows[name].tolist(), name


def test_batches_fill_up_to_the_limit() -> None:
    records = [(1_700_000_000_000 + i, None, b"v" * 100) for i in range(2000)]
    table = scan(encode(records, batch_bytes=16384)).batches
    assert table.size.max() <= 16384
    assert table.size[:-1].min() > 16384 - 112
    exact = int(table.size[0])
    assert scan(encode(records, batch_bytes=exact)).batches.count[0] == table.count[0]
    assert scan(encode(records, batch_bytes=exact - 1)).batches.count[0] == table.count[0] - 1


def test_a_record_larger_than_the_limit_gets_its_own_batch() -> None:
    data = encode([(0, None, b"a"), (0, None, b"b" * 1000), (0, None, b"c")], batch_bytes=200)
    assert scan(data).batches.count.tolist() == [1, 1, 1]


def test_sequences_go_on_from_batch_to_batch_and_wrap() -> None:
    data = encode([(0, None, None)] * 6, batch_records=2, producer_id=1, producer_epoch=0, base_sequence=2**31 - 3)
    assert scan(data).batches.base_sequence.tolist() == [2**31 - 3, 2**31 - 1, 1]


def test_distant_offsets_begin_a_new_batch() -> None:
    offsets = [0, 2**31 - 1, 2**31]
    data = encode([{"offset": offset, "timestamp": 1, "value": b""} for offset in offsets])
    assert scan(data).batches.base_offset.tolist() == [0, 2**31]


def test_nothing_makes_nothing() -> None:
    assert encode([]) == b""
    assert encode(pa.table({"value": pa.array([], pa.binary())}), compression="gzip") == b""


def test_many_compressed_batches_cross_the_scratch() -> None:
    value = random.Random(1).randbytes(90_000)
    records = [(i, None, value) for i in range(120)]
    data = encode(records, compression="snappy", batch_bytes=200_000)
    assert [record.value for record in read_back(data)] == [value] * 120
    table = scan(data).batches
    assert (table.verdict == Verdict.GOOD).all()
    assert table.count.sum() == 120


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("falls", [False, True])
def test_batches_that_compress_to_another_size_than_the_first(codec: str, falls: bool) -> None:
    """The room for all is guessed from the first one: too little of it, and too much."""
    rng = random.Random(23)
    values = [bytes(4000)] * 60 + [rng.randbytes(4000) for _ in range(60)]
    records = [(i, None, value) for i, value in enumerate(reversed(values) if falls else values)]
    data = encode(records, compression=codec, batch_bytes=9000)
    assert [record.value for record in read_back(data)] == [value for _, _, value in records]


# ---- memory ----


def spans(size: list[int], source: bytes, place: list[int] | None = None, **more: object) -> Columns:
    places = np.array([0] * len(size) if place is None else place)
    sizes = np.array(size, np.int32)
    return Columns(len(size), None, None, None, None, places, sizes, None, None, (source,), **more)


@pytest.mark.parametrize("around", [64, 8192, 1 << 20])
def test_lengths_around_a_wider_varint_come_in_any_order(around: int) -> None:
    rng = random.Random(around)
    span = min(20, around)
    sizes = [around + rng.randint(-span, 4) for _ in range(40 if around > 10_000 else 400)]
    source = rng.randbytes(max(sizes))
    data, table = build(spans(sizes, source), shared_row(), batch_bytes=1 << 30)
    records = [reference.Record(i, -1, None, source[:size], ()) for i, size in enumerate(sizes)]
    assert data == reference_build.batch_v2(records)
    assert table.count.tolist() == [len(sizes)]


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_more_bytes_than_the_sources_have(codec: str) -> None:
    source = random.Random(1).randbytes(3000)
    sizes = [3000 - i % 7 for i in range(400)]
    for batch_bytes in (16384, 700_000):  # below and above the scratch
        data, table = build(spans(sizes, source), shared_row(compression=codec), batch_bytes=batch_bytes)
        assert [record.value for record in read_back(data)] == [source[:size] for size in sizes]
        assert scan(data).batches.rows.tobytes() == table.rows.tobytes()


def test_headers_that_outweigh_their_records() -> None:
    records = [(i, None, b"v", [("h", bytes(500))]) for i in range(300)]
    data = encode(records)
    assert [record.headers[0][1] for record in read_back(data)] == [bytes(500)] * 300


def test_sizes_that_cannot_be_take_no_memory() -> None:
    columns = spans([0x7FFFFFFF] * 100_000, b"source")
    with pytest.raises(RequestError, match="record 0: its key, value or headers lie outside"):
        build(columns, shared_row())


def test_the_highest_offset_is_the_last() -> None:
    with pytest.raises(RequestError, match="record 1: its offset"):
        build(spans([0, 0], b"", base_offset=2**63 - 1), shared_row())


def test_batches_of_all_kinds_are_rebuilt_as_they_were() -> None:
    values = [random.Random(i).randbytes(40) * 20 for i in range(200)]
    parts, offset = [], 0
    for magic, codec in [
        (2, "none"),
        (2, "gzip"),
        (2, "lz4"),
        (1, "none"),
        (1, "snappy"),
        (0, "gzip"),
        (2, "zstd"),
    ] * 2:
        records = [(5 if magic else None, None, value) for value in values]
        parts.append(encode(records, magic=magic, compression=codec, base_offset=offset, batch_bytes=9000))
        offset += len(values)
        if magic == 2:
            parts.append(empty_batch(base_offset=offset, last_offset=offset + 3, max_timestamp_ms=5))
            offset += 4
    data = b"".join(parts)
    table = scan(data).batches
    columns, damaged = decode(table, data)
    assert not damaged
    rows = table.rows.copy()
    rows["count"] = np.bincount(columns.batch, minlength=len(rows))
    again, rebuilt = rebuild(columns_to_encode(columns), BatchTable(rows))
    assert again == data
    assert rebuilt.position.tolist() == table.position.tolist()


# ---- input ----


def test_arrow_layouts_give_the_same_bytes() -> None:
    keys = [b"k1", None, b"", b"key"] * 3
    values = [b"a", b"b" * 300, None, b""] * 3
    times = [5, 1000, 7, 8] * 3
    headers = [[], [("a", b"1"), ("b", None)], None, [("c", b"")]] * 3
    expected = encode([(t, k, v, h) for t, k, v, h in zip(times, keys, values, headers, strict=True)])
    pairs = [None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table({"key": keys, "value": values, "timestamp": times, "headers": pa.array(pairs, kind)})
    stamped = table.set_column(
        2, "timestamp", table["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    )
    wide = pa.table(
        {
            "key": pa.array(keys, pa.large_binary()),
            "value": pa.array(values, pa.large_string()),
            "timestamp": times,
            "headers": table["headers"],
        }
    )
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 4), table.slice(5)])
    maps = table.set_column(3, "headers", pa.array(headers, pa.map_(pa.string(), pa.binary())))
    for data in (table, stamped, wide, chunked, maps, table.to_batches()[0], table.to_reader()):
        assert encode(data) == expected
    assert encode(table.slice(2, 3), base_offset=2) == encode(
        [(t, k, v, h) for t, k, v, h in zip(times[2:5], keys[2:5], values[2:5], headers[2:5], strict=True)],
        base_offset=2,
    )


def test_arrow_offsets_and_null_timestamps() -> None:
    table = pa.table({"value": [b"a", b"b"], "offset": [10, 20], "timestamp": pa.array([None, 3], pa.int64())})
    assert [(r.offset, r.timestamp) for r in read_back(encode(table, timestamp_default_ms=8))] == [(10, 8), (20, 3)]
    assert [r.offset for r in read_back(encode(table, base_offset=4))] == [4, 5]
    with pytest.raises(RequestError, match="value"):
        encode(table.drop_columns("value"))
    with pytest.raises(RequestError, match="double"):
        encode(table.set_column(1, "offset", [[0.5, 1.5]]))
    with pytest.raises(RequestError, match="record 1"):
        encode(table.set_column(1, "offset", [[7, 7]]))


@given(record_lists(), st.sampled_from(CODEC_NAMES))
def test_decoded_columns_are_encoded_again(records: list[reference.Record], codec: str) -> None:
    data = encode(as_dicts(records), compression=codec, batch_bytes=300)
    columns, damaged = decode(scan(data).batches, data)
    assert not damaged
    assert read_back(encode(columns)) == records
    assert read_back(encode(columns, base_offset=1)) == [r._replace(offset=1 + i) for i, r in enumerate(records)]


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        ([(0, None, b"a"), (-2, None, b"a")], {}, "record 1: its timestamp"),
        ([{"offset": 5, "value": b""}, {"offset": 5, "value": b""}], {}, "record 1: its offset"),
        ([{"offset": -1, "value": b""}], {}, "record 0: its offset"),
        ([{"offset": 5, "value": b""}, {"value": b""}], {}, "record 1: it has no offset"),
        ([(0, None, b"", [(None, b"x")])], {}, "record 0: a header has no name"),
        ([(0, None, b""), (0, None, b"", {"h": b"x"})], {"magic": 1}, "record 1: messages of magic 0 and 1"),
        ([(0, None, 5)], {}, "record 0: keys, values"),
        ([(0, None)], {}, "record 0: a tuple of 2"),
        ([{"valu": b""}], {}, "record 0: unknown field 'valu'; there are offset, timestamp, key, value, headers"),
        (5, {}, "records are a list of tuples .*, not int"),
        ([(0, None, b"")], {"magic": 1, "compression": "zstd"}, "zstd"),
        ([(0, None, b"")], {"compression": "brotli"}, "brotli"),
        ([(0, None, b"")], {"magic": 3}, "magic 3"),
        ([(0, None, b"")], {"transactional": True}, "producer id"),
        ([(0, None, b"")], {"producer_id": 1, "producer_epoch": -1, "base_sequence": 0}, "epoch"),
        ([(0, None, b"")], {"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, "sequence"),
        ([(0, None, b"")], {"magic": 1, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}, "magic 1"),
        ([(0, None, b"")], {"magic": 0, "timestamp_type": "append", "append_time_ms": 1}, "append time"),
        ([(0, None, b"")], {"timestamp_type": "append"}, "append_time_ms"),
        ([(0, None, b"")], {"producer_epoch": 1 << 15}, "out of range"),
        ([(0, None, b"")], {"batch_bytes": 0}, "0 bytes"),
        ([(0, None, b"")], {"base_offset": -1}, "base_offset"),
    ],
)
def test_what_is_refused(records: Any, options: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        encode(records, **options)


def test_records_that_were_read_are_records(examples: Path) -> None:
    found = list(pylogseg.read(examples, "codec-zstd-0"))
    assert encode(found) == encode(record._asdict() for record in found)


def test_spans_outside_of_their_source_are_refused() -> None:
    for place, size in ((5, 6), (11, 0), (1 << 40, 1), (-1, 1), ((1 << 40) - 1, 1)):
        columns = Columns(
            1, None, None, None, None, np.array([place]), np.array([size], np.int32), None, None, (bytes(10),)
        )
        with pytest.raises(RequestError, match="record 0"):
            build(columns, shared_row())
    for wire, count in ((b"\x02", 1), (b"\x01\x01", 1), (b"\x02a\x04b", 1), (b"\x02a\x01", -1), (b"", 1 << 30)):
        columns = Columns(1, None, None, None, None, None, None, np.array([0]), np.array([count], np.int32), (wire,))
        with pytest.raises(RequestError, match="record 0"):
            build(columns, shared_row())
