"""Distributions and distinct counts in bounded memory, which can be merged across segments, threads and machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

#: Buckets of a `Histogram` for each power of two: a percentile is at most 1/16 too high.
_STEPS = 16
_STEP_BITS = 4
_BUCKETS = _STEPS * (32 - _STEP_BITS)

#: Hashes that a `Distinct` keeps: exact up to so many, then an estimate with a standard error of 1.1 %.
_KEPT_HASHES = 8192

#: Values that a `Heaviest` keeps.
_KEPT_VALUES = 1 << 14

#: Sizes below this are counted one by one before they come into buckets.
_SMALL_SIZES = 1 << 14

_NO_SIZES = np.zeros(_BUCKETS, np.int64)


@dataclass
class Histogram:
    """A histogram of sizes: exact least, mean and largest (-1 while it is empty), percentiles within 6 %."""

    count: int = 0
    total: int = 0
    least: int = -1
    largest: int = -1
    #: Nobody changes this array: each change makes a new one.
    buckets: npt.NDArray[np.int64] = field(default_factory=lambda: _NO_SIZES, repr=False)

    def add(self, sizes: npt.NDArray[Any]) -> None:
        """Count sizes, none of them negative, all below 2^31."""
        if not len(sizes):
            return
        least, largest = int(sizes.min()), int(sizes.max())
        self.least = least if self.least < 0 else min(self.least, least)
        self.largest = max(self.largest, largest)
        self.count += len(sizes)
        self.total += int(sizes.sum(dtype=np.int64))
        self.buckets = self.buckets + _count_buckets(sizes, largest)

    def merge(self, other: Histogram) -> None:
        """Add the counts of another sketch."""
        if not other.count:
            return
        self.least = other.least if self.least < 0 else min(self.least, other.least)
        self.largest = max(self.largest, other.largest)
        self.count += other.count
        self.total += other.total
        self.buckets = self.buckets + other.buckets

    @property
    def mean(self) -> float | None:
        """The mean of all sizes; None if there are none."""
        return self.total / self.count if self.count else None

    @property
    def rounded_mean(self) -> float | None:
        """The mean with two decimals."""
        return None if self.mean is None else round(self.mean, 2)

    @property
    def known_least(self) -> int | None:
        """The least size; None if there are no sizes."""
        return self.least if self.count else None

    @property
    def known_largest(self) -> int | None:
        """The largest size; None if there are no sizes."""
        return self.largest if self.count else None

    def percentile(self, percent: float) -> int | None:
        """Return the largest size of the bucket with the percentile; None if there are no sizes."""
        if not self.count:
            return None
        rank = max(1, int(np.ceil(self.count * percent / 100)))
        bucket = int(np.searchsorted(np.cumsum(self.buckets), rank))
        return min(max(_bucket_end(bucket), self.least), self.largest)


def _count_buckets(sizes: npt.NDArray[Any], largest: int) -> npt.NDArray[np.int64]:
    """Count sizes by bucket; small ones by size first, of which there are fewer."""
    if largest >= _SMALL_SIZES:
        return np.bincount(_bucket(sizes), minlength=_BUCKETS)
    counts = np.bincount(sizes)
    present = counts.nonzero()[0]
    return np.bincount(_bucket(present), counts[present], _BUCKETS).astype(np.int64)


def _bucket(sizes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Sizes below 16 have a bucket each; above, each power of two has 16."""
    wide = sizes.astype(np.int64)
    power = np.frexp(np.maximum(wide, 1).astype(np.float64))[1] - 1
    shift = np.maximum(power - _STEP_BITS, 0)
    return np.asarray(shift * _STEPS + (wide >> shift), np.int64)


def _bucket_end(bucket: int) -> int:
    """The largest size in a bucket."""
    if bucket < 2 * _STEPS:
        return bucket
    shift = bucket // _STEPS - 1
    return ((bucket - shift * _STEPS + 1) << shift) - 1


@dataclass
class Distinct:
    """Estimates the number of distinct values by their smallest hashes."""

    #: Sorted, different, at most `_KEPT_HASHES`.
    hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64), repr=False)

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Count hashes, from `_gather.hash_spans`."""
        if len(self.hashes) == _KEPT_HASHES:
            hashes = hashes[hashes < self.hashes[-1]]
        if len(hashes):
            both = np.concatenate((self.hashes, np.sort(hashes)))  # cheaper than a table of hashes, as of `union1d`
            both.sort(kind="stable")  # which merges two runs
            is_new = np.empty(len(both), np.bool_)
            is_new[0] = True
            np.not_equal(both[1:], both[:-1], out=is_new[1:])
            self.hashes = both[is_new][:_KEPT_HASHES]

    def merge(self, other: Distinct) -> None:
        self.add(other.hashes)

    @property
    def is_exact(self) -> bool:
        """True if the number is not an estimate."""
        return len(self.hashes) < _KEPT_HASHES

    @property
    def count(self) -> int:
        if self.is_exact:
            return len(self.hashes)
        return round((_KEPT_HASHES - 1) * 2.0**64 / float(self.hashes[-1]))


@dataclass
class Heaviest:
    """Finds the values with most weight: a Misra-Gries summary, whose weights are at most `missed` too low.

    If there are more distinct values than it keeps, all lose the weight of the first one without room. That is at most
    the sum of all weights divided by `_KEPT_VALUES`, so every value with more weight is kept.
    """

    #: Of the values that are kept, sorted.
    hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64), repr=False)
    weights: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    #: The first place of each value: a number chosen by the caller, and an offset.
    places: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64), repr=False)
    total: int = 0  #: The sum of all weights.
    missed: int = 0  #: 0 if the weights are exact.

    def add(
        self, hashes: npt.NDArray[np.uint64], weights: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> None:
        """Add values: a row with hash, weight and place for each."""
        self.total += int(weights.sum())
        self._put(hashes, weights, places)

    def merge(self, other: Heaviest, places_before: int) -> None:
        """Add another summary; `places_before` is added to the numbers in its places."""
        self.total += other.total
        self.missed += other.missed
        self._put(other.hashes, other.weights, other.places + np.array([places_before, 0]))

    def trim(self, count: int) -> Heaviest:
        """Return a summary that has only the values of `first`."""
        order = np.lexsort((self.places[:, 1], self.places[:, 0], -self.weights))[:count]
        return Heaviest(self.hashes[order], self.weights[order], self.places[order], self.total, self.missed)

    def first(self, count: int) -> list[tuple[tuple[int, int], int]]:
        """Return place and weight of the heaviest values; of equal weight, the first ones."""
        order = np.lexsort((self.places[:, 1], self.places[:, 0], -self.weights))[:count]
        return [
            ((owner, offset), weight)
            for (owner, offset), weight in zip(self.places[order].tolist(), self.weights[order].tolist(), strict=True)
        ]

    def _put(
        self, hashes: npt.NDArray[np.uint64], weights: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> None:
        values, first, where = np.unique(np.concatenate([self.hashes, hashes]), return_index=True, return_inverse=True)
        both = np.concatenate([self.weights, weights])
        sums = np.zeros(len(values), np.int64)
        np.add.at(sums, where, both)
        held = np.concatenate([self.places, places])[first]
        if len(values) > _KEPT_VALUES:
            lost = int(np.partition(sums, len(sums) - _KEPT_VALUES - 1)[len(sums) - _KEPT_VALUES - 1])
            sums -= lost
            self.missed += lost
            values, sums, held = values[sums > 0], sums[sums > 0], held[sums > 0]
        self.hashes, self.weights, self.places = values, sums, held
