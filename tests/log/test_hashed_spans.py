"""Tests of _native/_gather.pyx and _native/_keymap.pyx. Hashes of keys and values, by which the records of two tables
are compared.
"""

import numpy as np
import pytest

from pylogseg._native import _keymap

SECRET = (7, 9)


def hashes(*columns: list[bytes | None], secret: tuple[int, int] = SECRET) -> list[int]:
    """Hash the rows of some columns, each laid out back to back."""
    out = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        size = np.array([-1 if value is None else len(value) for value in column], np.int32)
        place = np.cumsum([0, *np.maximum(size, 0)[:-1]], dtype=np.int64)
        _keymap.hash_spans(secret, place, size, (b"".join(value or b"" for value in column),), out)
    return out.tolist()


def test_what_differs_has_another_hash() -> None:
    values = [None, b"", b"\0", b"\0\0", *(bytes([i]) * n for i in range(20) for n in (1, 7, 8, 9, 63, 64, 65, 200))]
    keys = [value for value in values for _ in values]
    found = hashes(keys, values * len(values))
    rows = set(zip(keys, values * len(values), strict=True))
    assert len(set(found)) == len(rows)
    assert found == hashes(keys, values * len(values))
    assert not set(found) & set(hashes(keys, values * len(values), secret=(1, 9)))


def test_a_hash_does_not_depend_on_the_place() -> None:
    """Neither on the neighbours, among which eight may be hashed at a time, nor on the source."""
    values = [b"x" * n for n in range(100)]
    whole = hashes(values)
    assert [hashes([value])[0] for value in values] == whole
    out = np.zeros(1, np.uint64)
    _keymap.hash_spans(SECRET, np.array([(1 << 40) | 3]), np.array([5], np.int32), (b"", b"___xxxxx"), out)
    assert out[0] == whole[5]


def test_spans_are_checked() -> None:
    out = np.zeros(2, np.uint64)
    for place, size in (([0, 6], [4, 5]), ([0, -1], [1, 1]), ([0, 1 << 40], [1, 1])):
        with pytest.raises(ValueError, match="span 1 lies outside"):
            _keymap.hash_spans(SECRET, np.array(place), np.array(size, np.int32), (b"0123456789",), out)
    with pytest.raises(ValueError, match="differ in length"):
        _keymap.hash_spans(SECRET, np.array([0]), np.array([1], np.int32), (b"0",), out)
