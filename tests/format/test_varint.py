"""Tests of _codec.pyx. Varints: Kafka's vectors, the slow oracle, ends of buffers."""

import re

import pytest
from helpers.buffers import BUFFERS
from hypothesis import given
from hypothesis import strategies as st
from reference import varint as slow

from pylogseg import _codec

UNSIGNED = """0→00 1→01 63→3f 64→40 8191→ff3f 8192→8040 1048575→ffff3f 1048576→808040 2147483647→ffffffff07
-1→ffffffff0f -64→c0ffffff0f -8192→80c0ffff0f -8193→ffbfffff0f -2147483648→8080808008"""
ZIGZAG = """0→00 -1→01 1→02 63→7e -64→7f 64→8001 -65→8101 8191→fe7f -8192→ff7f 8192→808001 -8193→818001 1048575→feff7f
-1048576→ffff7f 1048576→80808001 -1048577→81808001 134217727→feffff7f -134217728→ffffff7f 134217728→8080808001
-134217729→8180808001 2147483647→feffffff0f -2147483648→ffffffff0f"""
ZIGZAG64 = """17179869183→feffffff7f -17179869184→ffffffff7f 17179869184→808080808001 -17179869185→818080808001
2199023255551→feffffffff7f -2199023255552→ffffffffff7f 2199023255552→80808080808001 -2199023255553→81808080808001
281474976710655→feffffffffff7f 281474976710656→8080808080808001 36028797018963967→feffffffffffff7f
36028797018963968→808080808080808001 4611686018427387903→feffffffffffffff7f 4611686018427387904→80808080808080808001
-4611686018427387905→81808080808080808001 9223372036854775807→feffffffffffffffff01
-9223372036854775808→ffffffffffffffffff01"""


def vectors(text: str) -> list[tuple[int, bytes]]:
    return [(int(number), bytes.fromhex(digits)) for number, digits in re.findall(r"(-?\d+)→([0-9a-f]+)", text)]


@pytest.mark.parametrize(("value", "data"), vectors(UNSIGNED))
def test_unsigned_vectors(value, data):
    assert _codec.encode_uvarint(value) == data
    assert _codec.decode_uvarint(data) == (value & 0xFFFFFFFF, len(data))


@pytest.mark.parametrize(("value", "data"), vectors(ZIGZAG))
def test_zigzag_vectors(value, data):
    assert _codec.encode_varint(value) == _codec.encode_varlong(value) == data
    assert _codec.decode_varint(data) == _codec.decode_varlong(data) == (value, len(data))


@pytest.mark.parametrize(("value", "data"), vectors(ZIGZAG64))
def test_zigzag64_vectors(value, data):
    assert _codec.encode_varlong(value) == data
    assert _codec.decode_varlong(data) == (value, len(data))


def test_too_long():
    with pytest.raises(ValueError, match="too long"):
        _codec.decode_varint(bytes.fromhex("ffffffffff01"))
    with pytest.raises(ValueError, match="too long"):
        _codec.decode_varlong(bytes.fromhex("ffffffffffffffffffff01"))


def test_numbers_that_do_not_fit():
    for encode, value in (
        (_codec.encode_varint, 1 << 31),
        (_codec.encode_varlong, 1 << 63),
        (_codec.encode_uvarint, 1 << 32),
    ):
        with pytest.raises(OverflowError):
            encode(value)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from(sorted(BUFFERS)))
def test_round_trip(value, kind):
    data = _codec.encode_varlong(value)
    assert _codec.decode_varlong(BUFFERS[kind](data)) == (value, len(data))
    for end in range(len(data)):
        with pytest.raises(ValueError, match="cut off"):
            _codec.decode_varlong(BUFFERS[kind](data[:end]))


@given(st.binary(max_size=12), st.integers(0, 12))
def test_any_bytes_as_the_oracle(data, position):
    for mine, bits in ((_codec.decode_varint, 32), (_codec.decode_varlong, 64)):
        try:
            expected = slow.read_signed(data, position, bits)
        except slow.VarintError:
            with pytest.raises((ValueError, IndexError)):
                mine(data, position)
        else:
            assert mine(data, position) == expected
