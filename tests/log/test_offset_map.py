"""Tests of _native/_keymap.pyx and log/offset_map.py. The map of keys: its hash against a reference, its answers
against a dictionary, its limits against Kafka's.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.siphash import siphash_13_128, siphash_128

import pylogseg
from pylogseg._native import _keymap
from pylogseg.format.records import decode
from pylogseg.log.offset_map import BEYOND, LAST, NO_KEY, OLDER, SLOT_BYTES, OffsetMap


def columns(keys, base_offset=0):
    batch = pylogseg.encode([(1, key, b"v") for key in keys], base_offset=base_offset, batch_bytes=200)
    return decode(pylogseg.scan(batch).batches, batch)[0]


KEYS = st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=60)


@given(key=st.binary(max_size=70), secret=st.tuples(*[st.integers(0, 2**64 - 1)] * 2))
def test_hash(key, secret):
    table = np.zeros(SLOT_BYTES, np.uint8)
    place, size, offset = np.zeros(1, np.int64), np.array([len(key)], np.int32), np.array([6], np.int64)
    assert _keymap.put(table, secret, 0, 1, 0, place, size, offset, [key], 0) == (1, 1)
    first, second, stored = table.view(np.uint64).tolist()
    assert (first, second) == siphash_13_128(key, *secret)
    assert stored == 7


@given(keys=KEYS, start=st.integers(0, 30))
def test_like_a_dictionary(keys, start):
    records = columns(keys)
    offsets = OffsetMap(1 << 20)
    assert offsets.put(records, start) == len(keys)
    offsets.latest_offset = len(keys) * 3 // 4
    last = {key: i for i, key in enumerate(keys) if key is not None and i >= start}
    assert offsets.size == len(last)
    for i, (key, verdict) in enumerate(zip(keys, offsets.classify(records).tolist(), strict=True)):
        if i > offsets.latest_offset:
            assert verdict == BEYOND
        elif key is None:
            assert verdict == NO_KEY
        else:
            assert verdict == (LAST if i >= last.get(key, -1) else OLDER)


@given(keys=KEYS, slots=st.integers(1, 40), load=st.sampled_from([0.5, 0.9, 1.0]))
def test_full_where_kafkas_is(keys, slots, load):
    records = columns(keys)
    offsets = OffsetMap(slots * SLOT_BYTES + 23, load)
    assert offsets.limit == int(slots * load)
    seen, stop = set(), len(keys)
    for i, key in enumerate(keys):
        if key is not None:
            if len(seen) >= int(slots * load):  # a key that is in the map already makes no difference
                stop = i
                break
            seen.add(key)
    assert offsets.put(records, 0) == stop
    assert offsets.size == len(seen)


def test_grows_with_its_keys():
    rng = np.random.default_rng(3)
    offsets = OffsetMap(3_000_000)
    last = {}
    for step in range(6):
        keys = [b"%d" % number for number in rng.integers(0, 90_000, 30_000)]
        records = columns(keys, step * 30_000)
        assert offsets.put(records, 0) == len(keys)
        last.update((key, step * 30_000 + i) for i, key in enumerate(keys))
    offsets.latest_offset = 6 * 30_000
    assert offsets.size == len(last)
    assert 0.45 < offsets.size / offsets.limit <= 1
    verdicts = offsets.classify(records).tolist()
    assert verdicts == [LAST if last[key] == 5 * 30_000 + i else OLDER for i, key in enumerate(keys)]


def test_places_outside_are_refused():
    table, one = np.zeros(10 * SLOT_BYTES, np.uint8), np.array([1], np.int64)
    size = np.array([4], np.int32)
    for place in (1, -1, 1 << 40, 5 << 40):
        with pytest.raises(ValueError, match="outside"):
            _keymap.put(table, (1, 2), 0, 5, 0, np.array([place], np.int64), size, one, [b"abcd"], 0)
        with pytest.raises(ValueError, match="outside"):
            _keymap.classify(table, (1, 2), 9, np.array([place], np.int64), size, one, [b"abcd"], np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="limit"):
        _keymap.put(table, (1, 2), 0, 11, 0, one, size, one, [b"abcdefgh"], 0)
    with pytest.raises(ValueError, match="length"):
        _keymap.put(table, (1, 2), 0, 1, 0, one, size, np.zeros(2, np.int64), [b"abcdefgh"], 0)


def test_reference_against_the_published_vector():
    key = bytes(range(16))
    words = siphash_128(b"", int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little"), 2, 4)
    assert b"".join(word.to_bytes(8, "little") for word in words).hex() == "a3817f04ba25a8e66df67214c7550293"
