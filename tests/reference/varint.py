"""Variable-length integers: 7 bits a byte, least significant first, the top bit says that more follow."""

from __future__ import annotations


class VarintError(ValueError):
    """The bytes end inside a varint, or the last allowed byte says that more follow."""


def read_unsigned(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """Return the value (0 <= value < 2**bits; bits above are dropped) and the position behind it."""
    value = 0
    for index in range(5 if bits == 32 else 10):
        if at + index >= len(data):
            raise VarintError("ends inside a varint")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & ((1 << bits) - 1), at + index + 1
    raise VarintError("varint is too long")


def read_signed(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """Return a ZigZag value and the position behind it."""
    value, at = read_unsigned(data, at, bits)
    return (value >> 1) ^ -(value & 1), at


def write_unsigned(value: int, bits: int = 32) -> bytes:
    """Return the bytes of ``value``; a negative one as its two's complement."""
    value &= (1 << bits) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_signed(value: int, bits: int = 32) -> bytes:
    """Return the bytes of ``value`` in ZigZag form."""
    return write_unsigned((value << 1) ^ (value >> (bits - 1)), bits)
