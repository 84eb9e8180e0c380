"""Align two sequences of records by hashes, in bounded memory: the pairs of equal records.

Both sides are read forward, a window of each at a time. Equal beginnings are pairs. Where they differ, hashes that each
window has once are pairs, then the k-th of a hash with the k-th between these. The heaviest sequence of pairs that is
in order on both sides stays. If the windows have too little in common, both sides are read ahead, each for the records
in the other's window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

#: A record: its offset, its number on its side, and hashes of all of it, of key and timestamp, and of the value.
ROW = np.dtype([("offset", "i8"), ("place", "i8"), ("whole", "u8"), ("identity", "u8"), ("value", "u8")])
#: Records of a window on each side.
WINDOW = 1 << 17
#: Fewer pairs of two windows are chance, if there is more to read.
_FEW_PAIRS = 16
#: Pairs that are out of order are looked for again between those in order, so often.
_ROUNDS = 4
#: Spreads a hash, before another number is added.
FACTOR = np.uint64(0x9E3779B97F4A7C15)

HashRows = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)


class Stream:
    """The records of one side that were read and not passed yet; `read` yields records from an offset on."""

    def __init__(self, read: Callable[[int], Iterator[HashRows]], first_offset: int) -> None:
        self.rows = np.empty(0, ROW)
        self._read, self._rest = read, read(first_offset)
        self._count, self._next_offset = 0, first_offset
        self.is_done = False

    def fill(self, count: int) -> None:
        """Have so many records, unless the log has fewer."""
        parts, size = [self.rows], len(self.rows)
        while size < count and not self.is_done:
            rows = next(self._rest, None)
            if rows is None:
                self.is_done = True
            elif len(rows):
                rows["place"] = np.arange(self._count, self._count + len(rows))
                self._count, self._next_offset = self._count + len(rows), int(rows["offset"][-1]) + 1
                parts.append(rows)
                size += len(rows)
        self.rows = parts[0] if len(parts) == 1 else np.concatenate(parts)

    def take(self, count: int) -> HashRows:
        """Return the first records, and pass them."""
        rows, self.rows = self.rows[:count], self.rows[count:]
        return rows

    def ahead(self) -> Iterator[HashRows]:
        """Yield the records behind these, by a reading of its own."""
        return iter(()) if self.is_done else self._read(self._next_offset)


class Step(NamedTuple):
    """Records of both sides that were passed together."""

    a: HashRows
    b: HashRows
    in_a: Numbers = _NONE  #: Which are the same, in order on both sides.
    in_b: Numbers = _NONE
    is_changed: npt.NDArray[np.bool_] = np.empty(0, np.bool_)  #: Of these, those with another value or headers.
    is_aligned: bool = True  #: False if nothing was the same, and nothing ahead.


def align(a: Stream, b: Stream, window: int = WINDOW) -> Iterator[Step]:
    """Yield all records of both sides, in steps; memory is bounded by the window."""
    wait = 0  # records to pass before the sides are read ahead again
    while True:
        for side in (a, b):
            if len(side.rows) * 2 < window:
                side.fill(window)
        count = _same_beginning(a.rows["whole"], b.rows["whole"])
        if count:
            wait -= count
            numbers = np.arange(count)
            yield Step(a.take(count), b.take(count), numbers, numbers, np.zeros(count, np.bool_))
            continue
        for side in (a, b):
            side.fill(window)
        if not len(a.rows) or not len(b.rows):
            break
        pairs = pairs_between(a.rows["whole"], b.rows["whole"], _NONE, _NONE)
        is_all = a.is_done and b.is_done
        is_weak = len(pairs[0]) < min(_FEW_PAIRS, max(1, min(len(a.rows), len(b.rows)) // 4))
        if is_weak and not is_all and wait <= 0:
            target, wait = _search(a, b, len(pairs[0]))
            if target is not None:
                yield from _pass(a, b, *target)
                wait = 0
                continue
        step = _pair_windows(a, b, pairs, is_all, is_weak)
        wait -= len(step.a) + len(step.b)
        yield step
    while len(a.rows) or len(b.rows):
        yield Step(a.take(len(a.rows)), b.take(len(b.rows)))
        for side in (a, b):
            side.fill(window)


def _same_beginning(a: Any, b: Any) -> int:
    count = min(len(a), len(b))
    differs = a[:count] != b[:count]
    return int(differs.argmax()) if differs.any() else count


def _pair_windows(a: Stream, b: Stream, pairs: tuple[Numbers, Numbers], is_all: bool, is_weak: bool) -> Step:
    """Pass on records up to the last pair; all records at the end of both sides."""
    in_a, in_b = pairs
    whole, end = in_a, (len(a.rows), len(b.rows))
    if not is_all and not is_weak:  # what lies behind the last pair may be paired with records that are still to come
        end = int(in_a[-1]) + 1, int(in_b[-1]) + 1
    in_a, in_b = pairs_between(a.rows["identity"][: end[0]], b.rows["identity"][: end[1]], in_a, in_b)
    if len(in_a) and not is_all:
        end = int(in_a[-1]) + 1, int(in_b[-1]) + 1
    is_changed = np.isin(in_a, whole, assume_unique=True, invert=True)
    return Step(a.take(end[0]), b.take(end[1]), in_a, in_b, is_changed, is_all or len(in_a) > 0)


def _pass(a: Stream, b: Stream, is_a: bool, offset: int) -> Iterator[Step]:
    """Yield the records of one side below an offset."""
    side, none = (a if is_a else b), np.empty(0, ROW)
    while len(side.rows):
        count = int(np.searchsorted(side.rows["offset"], offset))
        if count:
            rows = side.take(count)
            yield Step(rows, none) if is_a else Step(none, rows)
        if len(side.rows):
            return
        side.fill(1)


def _search(a: Stream, b: Stream, least: int) -> tuple[tuple[bool, int] | None, int]:
    """Read both sides ahead until one has a record of the other's window.

    Return that side and its offset, None if there is no better place; and how many records were read.
    """
    windows = [np.unique(side.rows["whole"]) for side in (b, a)]
    ahead, passed = [a.ahead(), b.ahead()], [0, 0]
    enough = min(_FEW_PAIRS, max(1, min(map(len, windows)) // 4))
    best, target = least, None
    left = [0, 1]
    while left:
        side = min(left, key=passed.__getitem__)
        rows = next(ahead[side], None)
        if rows is None:
            left.remove(side)
            continue
        passed[side] += len(rows)
        is_there = np.isin(rows["whole"], windows[side])
        count = int(np.count_nonzero(is_there))
        if count > best:
            best, target = count, (side == 0, int(rows["offset"][is_there.argmax()]))
        if count >= enough:
            break
    return target, sum(passed)


def pairs_between(a: Any, b: Any, in_a: Numbers, in_b: Numbers) -> tuple[Numbers, Numbers]:
    """Return pairs of equal hashes, in order on both sides: the given ones, and more between them."""
    for turn in range(_ROUNDS):
        left_a, left_b = (np.delete(np.arange(len(side)), which) for side, which in ((a, in_a), (b, in_b)))
        if not len(left_a) or not len(left_b):
            break
        # A record may only be paired with one between the same two pairs.
        keys_a, keys_b = (
            side[rest] + np.searchsorted(which, rest).astype(np.uint64) * FACTOR
            for side, rest, which in ((a, left_a, in_a), (b, left_b, in_b))
        )
        more_a, more_b = _in_order(*kth_pairs(keys_a, keys_b, only_single=turn == 0))
        if turn and not len(more_a):
            break
        in_a, in_b = np.sort(np.append(in_a, left_a[more_a])), np.sort(np.append(in_b, left_b[more_b]))
    return in_a, in_b


def kth_pairs(a: Any, b: Any, *, only_single: bool = False) -> tuple[Numbers, Numbers]:
    """Return pairs of equal numbers, the k-th of one side with the k-th of the other, in the order of `a`.

    With `only_single`, only of numbers that each side has once.
    """
    order = np.argsort(np.concatenate([a, b]), kind="stable")
    values, is_a = np.concatenate([a, b])[order], order < len(a)
    if not len(order):
        return _NONE, _NONE
    starts = np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)
    sizes = np.diff(np.append(starts, len(order)))
    of_a = np.add.reduceat(is_a.astype(np.int64), starts)
    count = (of_a == 1) & (sizes == 2) if only_single else np.minimum(of_a, sizes - of_a)
    fewer = np.repeat(count, sizes)
    number = np.arange(len(order)) - np.repeat(starts, sizes)  # within the equal ones, those of `a` first
    number -= np.where(is_a, 0, np.repeat(of_a, sizes))
    kept = number < fewer
    in_a, in_b = order[kept & is_a], order[kept & ~is_a] - len(a)
    by_place = np.argsort(in_a)
    return in_a[by_place], in_b[by_place]


def _in_order(in_a: Numbers, in_b: Numbers) -> tuple[Numbers, Numbers]:
    """Return the most pairs that ascend on both sides, about; on the first side all do."""
    if (in_b[1:] > in_b[:-1]).all():
        return in_a, in_b
    rank = np.empty(len(in_b), np.int64)
    rank[np.argsort(in_b)] = np.arange(len(in_b))
    starts = np.append(0, np.flatnonzero(np.diff(rank) != 1) + 1)
    sizes = np.diff(np.append(starts, len(rank)))
    kept = np.zeros(len(starts), np.bool_)
    kept[_heaviest(rank[starts].tolist(), sizes.tolist())] = True
    chosen = np.repeat(kept, sizes)
    return in_a[chosen], in_b[chosen]


def _heaviest(starts: list[int], weights: list[int]) -> list[int]:
    """Return which of some runs are the heaviest sequence of ascending starts."""
    # Of the sequences that end at a start, or below, the heaviest: starts, sums and last runs, all ascending.
    ends, sums, lasts = list[int](), list[int](), list[int]()
    before = []
    for run, (start, weight) in enumerate(zip(starts, weights, strict=True)):
        at = bisect_left(ends, start)
        before.append(lasts[at - 1] if at else -1)
        weight += sums[at - 1] if at else 0
        end = at
        while end < len(ends) and sums[end] <= weight:
            end += 1
        ends[at:end], sums[at:end], lasts[at:end] = [start], [weight], [run]
    chosen, run = [], lasts[-1]
    while run >= 0:
        chosen.append(run)
        run = before[run]
    return chosen
