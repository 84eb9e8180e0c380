"""Check sums as their definitions say: slow, and independent of the compiled ones.

Both polynomials are given reflected, so the bit that leaves at the right is the highest coefficient.
"""

CASTAGNOLI = 0x82F63B78
IEEE = 0xEDB88320

_ALL_ONES = 0xFFFFFFFF


def crc_by_bits(polynomial: int, data: bytes, crc: int = 0) -> int:
    """Return the sum of what `crc` covers followed by `data`, by long division bit by bit."""
    state = crc ^ _ALL_ONES
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (polynomial if state & 1 else 0)
    return state ^ _ALL_ONES


def _table(polynomial: int) -> list[int]:
    # A sum's state starts and ends inverted; a table entry is the state a byte leaves behind when it meets zero.
    return [crc_by_bits(polynomial, bytes([byte]), _ALL_ONES) ^ _ALL_ONES for byte in range(256)]


_TABLES = {polynomial: _table(polynomial) for polynomial in (CASTAGNOLI, IEEE)}


def crc_by_table(polynomial: int, data: bytes, crc: int = 0) -> int:
    """Return the same as `crc_by_bits`, a byte at a time."""
    table = _TABLES[polynomial]
    state = crc ^ _ALL_ONES
    for byte in data:
        state = state >> 8 ^ table[(state ^ byte) & 0xFF]
    return state ^ _ALL_ONES


def crc32c(data: bytes, crc: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of what `crc` covers followed by `data`."""
    return crc_by_table(CASTAGNOLI, data, crc)


def crc32(data: bytes, crc: int = 0) -> int:
    """Return the CRC-32 (IEEE) of what `crc` covers followed by `data`."""
    return crc_by_table(IEEE, data, crc)


def prefix_sums(polynomial: int, data: bytes, crc: int = 0) -> list[int]:
    """Return the sums of data[:0], data[:1], ... data[:len(data)], in one pass."""
    table = _TABLES[polynomial]
    state = crc ^ _ALL_ONES
    sums = [crc]
    for byte in data:
        state = state >> 8 ^ table[(state ^ byte) & 0xFF]
        sums.append(state ^ _ALL_ONES)
    return sums
