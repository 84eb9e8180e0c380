"""Tests of format/buffers.py. Index search against a list, and on every kind of buffer."""

import struct
from bisect import bisect_left, bisect_right

import numpy as np
import pytest
from helpers.buffers import BUFFERS
from hypothesis import given
from hypothesis import strategies as st

from pylogseg import _codec

WIDTHS = {4: ">i", 8: ">q"}


@given(st.sampled_from([4, 8]), st.data(), st.sampled_from(sorted(BUFFERS)))
def test_as_bisect(width, data, kind):
    limit = 1 << (8 * width - 1)
    keys = sorted(data.draw(st.lists(st.integers(-limit, limit - 1), max_size=40)))
    wanted = data.draw(
        st.lists(st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from(keys or [0])), min_size=1)
    )
    before, behind = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
    entries = b"".join(b"\xee" * before + struct.pack(WIDTHS[width], key) + b"\xee" * behind for key in keys)
    arguments = (BUFFERS[kind](entries), before + width + behind, before, width, len(keys))
    floors = [bisect_right(keys, key) - 1 for key in wanted]
    ceilings = [bisect_left(keys, key) for key in wanted]
    assert [_codec.search(*arguments, key) for key in wanted] == floors
    assert [_codec.search(*arguments, key, True) for key in wanted] == ceilings
    many = np.array(wanted * 9, np.int64)  # several are searched side by side
    assert _codec.search_many(*arguments, many).tolist() == floors * 9
    assert _codec.search_many(*arguments, many, ceiling=True).tolist() == ceilings * 9


def broker(keys, key, warm, ceiling):
    """What a broker does, in the plainest way."""
    if not keys:
        return -1
    first_warm = max(0, len(keys) - 1 - warm)
    if keys[first_warm] < key:
        low, high = first_warm, len(keys) - 1
    elif keys[0] > key:
        return 0 if ceiling else -1
    else:
        low, high = 0, first_warm
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle] == key:
            return middle
        low, high = (low, middle - 1) if keys[middle] > key else (middle, high)
    if not ceiling:
        return low
    return -1 if low == len(keys) - 1 else low + 1


@given(st.data(), st.booleans(), st.booleans(), st.sampled_from([4, 700]))
def test_as_a_broker(data, in_order, ceiling, padding):
    keys = data.draw(st.lists(st.integers(-9, 99), max_size=60))
    keys = sorted(set(keys)) if in_order else keys
    entries = b"".join(struct.pack(">i", key) + bytes(padding) for key in keys)
    for key in data.draw(st.lists(st.integers(-20, 120), min_size=1)):
        got = _codec.search_as_broker(entries, 4 + padding, 0, 4, len(keys), key, ceiling)
        assert got == broker(keys, key, 8192 // (4 + padding), ceiling)
        if in_order and not ceiling:
            assert got == bisect_right(keys, key) - 1


def test_arguments_are_checked():
    with pytest.raises(IndexError, match="3 entries of 8 bytes do not fit into a buffer of 16"):
        _codec.search(bytes(16), 8, 0, 4, 3, 1)
    with pytest.raises(ValueError, match="does not fit"):
        _codec.search(bytes(16), 8, 5, 4, 2, 1)
    with pytest.raises(ValueError, match="does not fit"):
        _codec.search(bytes(16), 8, 0, 3, 2, 1)
