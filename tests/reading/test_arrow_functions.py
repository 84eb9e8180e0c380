"""Tests of reading/arrow/functions.py. Functions of Arrow columns: Kafka's vectors, the slow oracles, slices, nulls,
layouts, values that are damaged.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import varint as slow

from pylogseg import _codec, encode, scan
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.reading.arrow import functions

#: From Kafka's own tests (UtilsTest.testMurmur2).
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

LAYOUTS = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()]
VALUES = st.lists(st.none() | st.binary(max_size=20), max_size=30)


def java_murmur2(data: bytes) -> int:
    """The hash in plain steps."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    for i in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k ^= k >> 24
        h = (h * m & mask) ^ (k * m & mask)
    tail = data[len(data) - len(data) % 4 :]
    for i in reversed(range(len(tail))):
        h ^= tail[i] << (8 * i)
    if tail:
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


@pytest.mark.parametrize("kind", LAYOUTS, ids=str)
def test_murmur2_vectors(kind: pa.DataType) -> None:
    keys = [*(key.decode() if "string" in str(kind) else key for key in MURMUR2), None]
    column = pa.array(keys, kind)
    assert functions.murmur2(column).to_pylist() == [*MURMUR2.values(), None]
    expected = [(value & 0x7FFFFFFF) % 7 for value in MURMUR2.values()]
    assert functions.kafka_partition(column, 7).to_pylist() == [*expected, None]


@given(VALUES, st.integers(0, 5), st.sampled_from(LAYOUTS[:3]))
def test_slices_and_nulls(values: list[bytes | None], skip: int, kind: pa.DataType) -> None:
    column = pa.array(values, kind)[skip:]
    left = values[skip:]
    assert functions.crc32c(column).to_pylist() == [None if v is None else _codec.crc32c(v) for v in left]
    assert functions.murmur2(column).to_pylist() == [None if v is None else java_murmur2(v) for v in left]
    chunked = pa.chunked_array([column[:2], column[2:]], kind)
    assert functions.murmur2(chunked).to_pylist() == functions.murmur2(column).to_pylist()


def test_offsets_that_lead_outside() -> None:
    data, out = np.zeros(4, np.uint8), np.zeros(2, np.uint32)
    for offsets in ([0, 5, 5], [-1, 0, 4], [3, 2, 4], [0, 4, 2**40]):
        with pytest.raises(IndexError, match="is outside of the data"):
            _codec.crc32c_values(np.array(offsets, np.int64), data, out)
    with pytest.raises(ValueError, match="expected one more than results"):
        _codec.crc32c_values(np.array([0, 4], np.int64), data, out)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(0, 3))
def test_varints(numbers: list[int | None], skip: int) -> None:
    column = pa.array(numbers, pa.int64())[skip:]
    written = functions.encode_varint(column)
    assert written.to_pylist() == [None if n is None else _codec.encode_varlong(n) for n in numbers[skip:]]
    assert functions.decode_varint(written).to_pylist() == numbers[skip:]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_unsigned_varints(numbers: list[int]) -> None:
    written = functions.encode_uvarint(pa.array(numbers, pa.int64()))
    assert written.to_pylist() == [slow.write_unsigned(n) for n in numbers]
    assert functions.decode_uvarint(written).to_pylist() == numbers


def test_varints_that_are_none() -> None:
    column = pa.array([b"\x02", b"\x80", None, b"\x02\x00", b"\xff" * 11, b""])
    assert functions.decode_varint(column, "null").to_pylist() == [1, None, None, None, None, None]
    with pytest.raises(CorruptionError, match=r"value 1 of the column.*cut off"):
        functions.decode_varint(column)
    with pytest.raises(CorruptionError, match="remain behind"):
        functions.decode_varint(column[3:4])
    with pytest.raises(RequestError, match="does not fit in 32 bits"):
        functions.encode_uvarint(pa.array([0, 1 << 32]))
    with pytest.raises(RequestError, match="made of integers"):
        functions.encode_varint(pa.array(["1"]))


def test_confluent() -> None:
    payload = pa.array([b"a", None, b"", b"cde"])
    framed = functions.to_confluent(payload, 70000)
    assert framed[0].as_py() == b"\0\0\x01\x11\x70a"
    parsed = functions.confluent(framed[1:]).to_pylist()
    assert parsed == [None, {"schemaId": 70000, "payload": b""}, {"schemaId": 70000, "payload": b"cde"}]
    short = pa.array([b"\0\0\0\0\x03k", None])
    assert functions.confluent(short).to_pylist() == [{"schemaId": 3, "payload": b"k"}, None]
    other = pa.array([b"\0\0\0\0\x01x", b"\x01\0\0\0\x01x", b"\0\0"])
    assert functions.confluent(other, "null").to_pylist() == [{"schemaId": 1, "payload": b"x"}, None, None]
    with pytest.raises(CorruptionError, match=r"value 1.*begins with byte 1"):
        functions.confluent(other)
    with pytest.raises(CorruptionError, match=r"value 0.*has 2 bytes"):
        functions.confluent(other[2:])


def test_headers_map() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [
        [("a", b"1"), ("b", None), ("a", b"2")],
        None,
        [],
        [("a", b"3")],
    ]
    column = pa.array([None if r is None else [{"key": k, "value": v} for k, v in r] for r in rows], kind)
    assert functions.headers_map(column).to_pylist() == [[("b", None), ("a", b"2")], None, [], [("a", b"3")]]
    assert functions.headers_map(column[1:]).to_pylist() == [None, [], [("a", b"3")]]
    with pytest.raises(RequestError, match="list of structs"):
        functions.headers_map(pa.array([1]))


def test_other_types() -> None:
    with pytest.raises(RequestError, match="cannot be read as binary"):
        functions.crc32c(pa.array([[1]]))
    with pytest.raises(RequestError, match="at least one partition"):
        functions.kafka_partition(pa.array([b"k"]), 0)
    assert functions.crc32c(pa.nulls(2)).to_pylist() == [None, None]


def test_crc_is_that_of_a_batch() -> None:
    """What stands in a header, computed by the function over the bytes that it covers."""
    batch = bytes(encode([(1, b"k", b"v")]))
    assert functions.crc32c(pa.array([batch[21:]])).to_pylist() == scan(batch).batches.crc.tolist()
