"""The kinds of records without a pair in the other log, and the pairs as runs of offsets."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.offline.aligned_result import KINDS, OF_B, AlignedDifference, AlignedKind, AlignedRange
from pylogseg.offline.aligning import FACTOR, ROW, HashRows, Step, kth_pairs
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.values.internal.mirror_map import RUN, MirrorRuns

#: A record without a pair, and the offset after the last pair before it, on the other side.
_SINGLE = np.dtype([*ROW.descr, ("at", "i8")])
_Hashes = npt.NDArray[np.uint64]


class AlignmentFindings:
    """Sorts records without a pair into kinds, and collects the pairs as runs of offsets."""

    def __init__(self, row: AlignedDifference, most: int, window: int) -> None:
        self._row, self._window = row, window
        self._before, self._inside, self._behind = (_Collected(most) for _ in range(3))
        self._most = most
        self._singles = [np.empty(0, _SINGLE), np.empty(0, _SINGLE)]  #: Of both sides, without a pair as yet.
        self._recent: deque[_Hashes] = deque()  #: Hashes of A that have a pair.
        self._recent_count = 0
        self._first: tuple[int, int] | None = None  #: Places of the first pair.
        self._last = (-1, -1)  #: Places of the last pair.
        self._next = row.log_starts  #: Offsets after the last pair.
        self._runs: list[Any] = []

    def add(self, step: Step) -> None:
        a, b, in_a, in_b = step.a, step.b, step.in_a, step.in_b
        self._row.records_a += len(a)
        self._row.records_b += len(b)
        if not step.is_aligned:
            self._row.not_aligned += len(a) + len(b)
        left = _without_pair(a, in_a, b, in_b, self._next[1]), _without_pair(b, in_b, a, in_a, self._next[0])
        hashes = np.empty(0, np.uint64)
        if len(in_a):
            pairs = (a, b) if len(in_a) == len(a) == len(b) else (a[in_a], b[in_b])
            self._add_pairs(*pairs, step.is_changed)
            hashes = np.array(pairs[0]["whole"])
            if step.is_changed.any():
                self._inside.add_changed(*(side[step.is_changed] for side in pairs))
        self._resolve(left, hashes)

    def _add_pairs(self, a: HashRows, b: HashRows, is_changed: npt.NDArray[np.bool_]) -> None:
        """Note pairs as runs: in each the offsets have one difference, and nothing lies between on either side."""
        if self._first is None:
            self._first = int(a["place"][0]), int(b["place"][0])
        follows = (np.diff(a["place"]) == 1) & (np.diff(b["place"]) == 1)
        follows &= np.diff(b["offset"] - a["offset"]) == 0
        starts = np.append(0, np.flatnonzero(~follows) + 1)
        runs = np.empty(len(starts), RUN)
        runs["first"], runs["target"] = a["offset"][starts], b["offset"][starts]
        runs["last"] = a["offset"][np.append(starts[1:] - 1, len(a) - 1)]
        if self._runs and (int(a["place"][0]) - 1, int(b["place"][0]) - 1) == self._last:
            before = self._runs[-1][-1:]
            if before["target"][0] - before["first"][0] == runs["target"][0] - runs["first"][0]:
                before["last"] = runs["last"][0]
                runs = runs[1:]
        if len(runs):
            self._runs.append(runs)
        self._last = int(a["place"][-1]), int(b["place"][-1])
        self._next = int(a["offset"][-1]) + 1, int(b["offset"][-1]) + 1
        self._inside.take_in(self._behind)
        self._behind = _Collected(self._most)

    def _resolve(self, left: tuple[Any, Any], hashes: _Hashes) -> None:
        """Find the kinds of records without a pair; a record that may get a pair in a later step waits."""
        old_b = len(self._singles[1])
        if any(map(len, (*left, *self._singles))):
            singles = [np.concatenate(both) for both in zip(self._singles, left, strict=True)]
            is_new = len(left[0]) or len(left[1])
            moved = kth_pairs(singles[0]["whole"], singles[1]["whole"]) if is_new else (_NO, _NO)
            if len(moved[0]):
                self._inside.add_moved(singles[0][moved[0]], singles[1][moved[1]])
                hashes = np.append(hashes, singles[0]["whole"][moved[0]])
            is_double = np.zeros(len(singles[1]), np.bool_)
            is_double[:old_b] = np.isin(singles[1]["whole"][:old_b], hashes)
            if len(left[1]):
                is_double[old_b:] = np.isin(singles[1]["whole"][old_b:], np.concatenate([*self._recent, hashes]))
            is_double[moved[1]] = False
            self._add_singles("double", singles[1][is_double])
            is_double[moved[1]] = True
            self._singles = [np.delete(singles[0], moved[0]), singles[1][~is_double]]
        self._remember(hashes)
        for side, kind in enumerate(("missing", "extra")):
            over = len(self._singles[side]) - self._window
            if over > 0:
                self._add_singles(kind, self._singles[side][:over])
                self._singles[side] = self._singles[side][over:]

    def _remember(self, hashes: _Hashes) -> None:
        if len(hashes):
            self._recent.append(hashes)
            self._recent_count += len(hashes)
        while self._recent_count - len(self._recent[0] if self._recent else ()) >= self._window:
            self._recent_count -= len(self._recent.popleft())

    def _add_singles(self, kind: Any, rows: Any) -> None:
        if not len(rows):
            return
        side = int(kind in OF_B)
        is_before = rows["place"] < (self._first[side] if self._first else OPEN_END)
        is_behind = ~is_before & (rows["place"] > self._last[side])
        self._before.add(kind, rows[is_before])
        self._behind.add(kind, rows[is_behind])
        self._inside.add(kind, rows[~is_before & ~is_behind])

    def end(self) -> None:
        """Give the row its counts and ranges."""
        for kind, rows in zip(("missing", "extra"), self._singles, strict=True):
            self._add_singles(kind, rows)
        row, parts = self._row, [self._inside]
        row.before, row.behind = self._before.counts["missing"], self._behind.counts["missing"]
        if not row.is_common or self._first is None:  # without a pair there is nothing in common to end at
            parts += [self._before, self._behind]
        for kind in KINDS:
            setattr(row, kind, sum(part.counts[kind] for part in parts))
        ranges = sorted((each for part in parts for each in part.ranges), key=lambda each: each.place)
        kept: Any = ranges[: self._most]
        row.ranges, row.unlisted = kept, sum(part.total for part in parts) - len(kept)
        self.is_open_end = self._behind.counts["missing"] > 0

    def runs(self) -> Any:
        return np.concatenate([np.empty(0, RUN), *self._runs])

    def add_end(self, into: MirrorRuns, end: int) -> None:
        """Add the end of A to a map, if B has all that lies below it."""
        if self._first is not None and not self.is_open_end and end > self._next[0] - 1:
            into.runs = np.append(into.runs, np.array([(end, end, self._next[1])], RUN))


_NO = np.empty(0, np.int64)


def _without_pair(rows: HashRows, which: Any, other: HashRows, of_other: Any, next_offset: int) -> Any:
    if len(which) == len(rows):
        return np.empty(0, _SINGLE)
    rest = np.delete(np.arange(len(rows)), which)
    singles = np.empty(len(rest), _SINGLE)
    for name in ROW.names or ():
        singles[name] = rows[name][rest]
    after = np.append(next_offset, other["offset"][of_other] + 1)
    singles["at"] = after[np.searchsorted(which, rest)]
    return singles


class _Collected:
    """Counts of records by kind, and the first ranges of each kind."""

    def __init__(self, most: int) -> None:
        self.counts: Counter[str] = Counter()
        self.ranges: list[AlignedRange] = []
        self.total = 0  #: Ranges, also those that are not in the list.
        self._most, self._listed = most, Counter[str]()
        self._ends: dict[str, tuple[int, int, int]] = {}  #: Places, and where it stands, of the last record of a kind.

    def add(self, kind: AlignedKind, rows: Any) -> None:
        """Add records of one side, in their order."""
        if len(rows):
            is_next = (np.diff(rows["place"]) == 1) & (np.diff(rows["at"]) == 0)
            self._add(kind, rows["offset"], rows["at"], is_next, (rows["place"], rows["at"]), ())

    def add_moved(self, a: Any, b: Any) -> None:
        is_next = (np.diff(a["place"]) == 1) & (np.diff(b["place"]) == 1)
        self._add("moved", a["offset"], b["offset"], is_next, (a["place"], b["place"]), ())

    def add_changed(self, a: HashRows, b: HashRows) -> None:
        is_value, is_headers = a["value"] != b["value"], _headers_of(a) != _headers_of(b)
        fields = is_value + 2 * is_headers
        for which in (1, 2, 3):
            some = fields == which
            if some.any():
                names = tuple(name for bit, name in ((1, "value"), (2, "headers")) if which & bit)
                one, other = a[some], b[some]
                is_next = (np.diff(one["place"]) == 1) & (np.diff(other["place"]) == 1)
                places = one["place"], other["place"]
                self._add("changed", one["offset"], other["offset"], is_next, places, names)

    def _add(
        self, kind: AlignedKind, offset: Any, at: Any, is_next: Any, places: tuple[Any, Any], fields: tuple[str, ...]
    ) -> None:
        self.counts[kind] += len(offset)
        starts = np.append(0, np.flatnonzero(~is_next) + 1)
        ends = np.append(starts[1:], len(offset))
        key = kind + ",".join(fields)
        first = 0
        before = self._ends.get(key)
        step = 0 if kind in ("missing", "extra", "double") else 1
        if before is not None and before[:2] == (int(places[0][0]) - 1, int(places[1][0]) - step):
            first = 1  # the last range of this kind goes on
            if before[2] >= 0:
                last = self.ranges[before[2]]
                count = int(ends[0])
                self.ranges[before[2]] = last._replace(last_offset=int(offset[count - 1]), records=last.records + count)
        self.total += len(starts) - first
        room = max(0, self._most - self._listed[key])
        listed = list(zip(starts[first:].tolist(), ends[first:].tolist(), strict=True))[:room]
        for start, end in listed:
            self.ranges.append(
                AlignedRange(kind, int(offset[start]), int(offset[end - 1]), end - start, int(at[start]), fields)
            )
        self._listed[key] += len(listed)
        index = before[2] if before and first and len(starts) == 1 else -1
        if len(starts) > first and len(listed) == len(starts) - first:
            index = len(self.ranges) - 1
        self._ends[key] = int(places[0][-1]), int(places[1][-1]), index

    def take_in(self, other: _Collected) -> None:
        """Add the findings of another object."""
        if other.total:
            self.counts += other.counts
            self.ranges += other.ranges
            self.total += other.total


def _headers_of(rows: HashRows) -> _Hashes:
    hashes: _Hashes = rows["whole"] - (rows["identity"] * FACTOR + rows["value"]) * FACTOR
    return hashes
