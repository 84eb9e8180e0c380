"""Tests of inspect/stats/sketch.py. Histograms and distinct counts against numpy on all values."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogseg._native import _gather
from pylogseg.inspect.stats import sketch
from pylogseg.inspect.stats.sketch import Distinct, Heaviest, Histogram

sizes = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 300), min_size=1, max_size=200)


@given(sizes, st.integers(0, 200))
def test_histogram(values: list[int], cut: int) -> None:
    whole, left, right = Histogram(), Histogram(), Histogram()
    whole.add(np.array(values))
    left.add(np.array(values[:cut], np.int64))
    right.add(np.array(values[cut:], np.int64))
    left.merge(right)
    for histogram in (whole, left):
        assert (histogram.count, histogram.total) == (len(values), sum(values))
        assert (histogram.least, histogram.largest) == (min(values), max(values))
        for percent in (1, 50, 99, 100):
            exact = np.percentile(values, percent, method="inverted_cdf")
            assert exact <= (histogram.percentile(percent) or 0) <= exact * 17 / 16
    assert (whole.buckets == left.buckets).all()


def test_histogram_of_nothing() -> None:
    histogram = Histogram()
    histogram.add(np.empty(0, np.int32))
    histogram.merge(Histogram())
    assert histogram.mean is histogram.percentile(50) is None
    assert histogram.least == -1


def spans(keys: list[bytes | None]) -> np.ndarray:
    data = b"".join(key or b"" for key in keys)
    size = np.array([-1 if key is None else len(key) for key in keys], np.int32)
    place = np.concatenate([[0], np.cumsum(np.maximum(size, 0))]).astype(np.int64)[: len(keys)]
    hashes = np.ones(len(keys), np.uint64)
    _gather.hash_spans(place, size, (data, b""), hashes)
    assert not hashes[size < 0].any()
    return hashes[size >= 0]


def hash_of(key: bytes) -> int:
    """The hash in other words: the finalizer of splitmix64 over words of a key, the last one filled up with zeros."""
    bits = (1 << 64) - 1
    state = (len(key) + 1) * 0x9E3779B97F4A7C15 & bits
    for at in range(0, -(-len(key) // 8) * 8 + 1, 8):
        state ^= int.from_bytes(key[at : at + 8], "little")
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & bits
        state = (state ^ state >> 27) * 0x94D049BB133111EB & bits
        state = (state ^ state >> 31) + 0x9E3779B97F4A7C15 & bits
    return state


@given(st.lists(st.none() | st.binary(max_size=20), max_size=100))
def test_hashes_tell_keys_apart(keys: list[bytes | None]) -> None:
    hashes = spans(keys)
    different = {key for key in keys if key is not None}
    assert len(hashes) == sum(key is not None for key in keys)
    assert len(set(hashes.tolist())) == len(different)
    assert hashes.tolist() == [hash_of(key) for key in keys if key is not None]


def test_a_key_outside_of_its_source_is_refused() -> None:
    with pytest.raises(ValueError, match="span 1 is outside"):
        _gather.hash_spans(np.array([0, 3]), np.array([3, 1], np.int32), (b"abc",), np.empty(2, np.uint64))


def test_hashes_are_those_of_the_bytes() -> None:
    keys: list[bytes | None] = [b"", b"\0", b"\0\0", b"a" * 8, b"a" * 9]
    assert spans(keys).tolist() == spans(keys[::-1]).tolist()[::-1]


def test_distinct_is_exact_while_few() -> None:
    counted = Distinct()
    for start in range(0, 8000, 500):
        counted.add(spans([b"key-%d" % n for n in range(start, start + 700)]))
    assert counted.count == 8200 or not counted.is_exact
    few = Distinct()
    few.add(spans([b"key-%d" % (n % 5000) for n in range(20_000)]))
    assert few.is_exact
    assert few.count == 5000


def test_distinct_estimate_and_merge() -> None:
    keys = [b"user-%d" % n for n in range(200_000)]
    whole, left, right = Distinct(), Distinct(), Distinct()
    whole.add(spans(list(keys)))
    left.add(spans(list(keys[:120_000])))
    right.add(spans(list(keys[80_000:])))
    left.merge(right)
    assert (left.hashes == whole.hashes).all()
    assert not whole.is_exact
    assert abs(whole.count / 200_000 - 1) < 0.05


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=30), max_size=6), st.integers(1, 12)
)
def test_the_heaviest_are_known_within_a_bound(parts: list[list[tuple[int, int]]], kept: int) -> None:
    """Whatever the order and however it is shared out: no weight is too high, and none too low by more than is said."""
    true: Counter[int] = Counter()
    whole, merged = Heaviest(), Heaviest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "_KEPT_VALUES", kept)
        for number, part in enumerate(parts):
            one = Heaviest()
            values = np.array([value for value, _ in part], np.uint64)
            weights = np.array([weight for _, weight in part], np.int64)
            places = np.array([(0, value) for value, _ in part], np.int64).reshape(-1, 2)
            whole.add(values, weights, places)
            one.add(values, weights, places)
            merged.merge(one, number)
            for value, weight in part:
                true[value] += weight
    for found in (whole, merged):
        assert found.total == sum(true.values())
        assert found.missed * (kept + 1) <= found.total
        assert len(found.hashes) <= kept
        known = dict(zip(found.hashes.tolist(), found.weights.tolist(), strict=True))
        for value, weight in true.items():
            assert known.get(value, 0) <= weight <= known.get(value, 0) + found.missed
        first = [(-weight, owner, value) for (owner, value), weight in found.first(kept)]
        assert first == sorted(first)
        assert {value: -weight for weight, _, value in first} == known
    if len(true) <= kept:
        assert whole.missed == merged.missed == 0
