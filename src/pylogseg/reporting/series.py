"""Records and bytes by time, in a bounded number of buckets whose width grows with the range; mergeable."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pylogseg.reporting.facts import GrowthFact, Series

SECOND_MS, HOUR_MS, DAY_MS = 1000, 3_600_000, 86_400_000
#: Widths of buckets: each divides the next one, and all begin at 1970.
STEPS_MS = (
    SECOND_MS,
    10 * SECOND_MS,
    60 * SECOND_MS,
    600 * SECOND_MS,
    HOUR_MS,
    6 * HOUR_MS,
    DAY_MS,
    7 * DAY_MS,
    28 * DAY_MS,
    364 * DAY_MS,
)
assert all(wide % narrow == 0 for narrow, wide in pairwise(STEPS_MS))
#: Buckets of a partition; more would not be seen on a page.
MOST_BUCKETS = 120
_RECENT_HOURS, _RECENT_DAYS = 7 * 24, 90
#: Batches that wait for others before they are counted: a few cost as much as many.
_MOST_WAITING = 512
_NONE = np.empty(0, np.int64)
_Rows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass
class SeriesCount:
    """Counts by time."""

    most: int = MOST_BUCKETS
    step_ms: int = SECOND_MS
    untimed: int = 0
    is_estimate: bool = False
    #: Starts of buckets, records and bytes in them. Nobody changes these arrays: each change makes new ones.
    _buckets: _Rows = (_NONE, _NONE, _NONE)
    _waiting: list[_Rows] = field(default_factory=list)
    _waits: int = 0  #: Their rows.

    def add(
        self, timestamps: npt.NDArray[np.int64], records: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> None:
        """Count batches by their times; negative times are none."""
        timed = timestamps >= 0
        if not timed.all():
            self.untimed += int(records[~timed].sum())
            timestamps, records, sizes = timestamps[timed], records[timed], sizes[timed]
        if len(timestamps):
            self._put(timestamps, records, sizes)

    def merge(self, other: SeriesCount) -> None:
        """Add what another one counted."""
        self.untimed += other.untimed
        self.is_estimate |= other.is_estimate
        self.step_ms = max(self.step_ms, other.step_ms)
        if len(other._buckets[0]):
            self._put(*other._buckets)
        for rows in other._waiting:
            self._put(*rows)

    def _put(self, times: npt.NDArray[np.int64], records: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
        self._waiting.append((times, records, sizes))
        self._waits += len(times)
        if self._waits > _MOST_WAITING:
            self._settle()

    def _settle(self) -> None:
        """Put what waits into buckets."""
        if not self._waiting:
            return
        times, records, sizes = (np.concatenate(each) for each in zip(self._buckets, *self._waiting, strict=True))
        self._waiting, self._waits = [], 0
        for step in STEPS_MS:
            if step < self.step_ms:
                continue
            self.step_ms = step
            starts, where = np.unique(times // step, return_inverse=True)
            if len(starts) <= self.most:
                break
        # Beyond the widest step (times that make no sense) there may be more buckets than are wanted.
        counts, totals = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
        np.add.at(counts, where, records)
        np.add.at(totals, where, sizes)
        self._buckets = starts * self.step_ms, counts, totals

    def fact(self, most: int = 2 * MOST_BUCKETS) -> Series:
        """Return the counts as plain values; of more than `most` buckets (times without sense) the newest."""
        self._settle()
        starts, records, sizes = (each[-most:].tolist() for each in self._buckets)
        return Series(self.step_ms, tuple(starts), tuple(records), tuple(sizes), self.is_estimate, self.untimed)


@dataclass
class Grown:
    """Growth up to a time: by hour, by day, and the totals of the last hour, day and week."""

    now_ms: int
    hours: SeriesCount = field(default_factory=lambda: SeriesCount(_RECENT_HOURS + 1, HOUR_MS))
    days: SeriesCount = field(default_factory=lambda: SeriesCount(_RECENT_DAYS + 1, DAY_MS))
    hour_bytes: int = 0
    day_bytes: int = 0
    week_bytes: int = 0
    first_ms: int = -1

    def add(
        self, timestamps: npt.NDArray[np.int64], records: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> None:
        """Count batches by their times; those after `now_ms` do not count."""
        timed = (timestamps >= 0) & (timestamps <= self.now_ms)
        if not timed.all():
            timestamps, records, sizes = timestamps[timed], records[timed], sizes[timed]
        if not len(timestamps):
            return
        ages = self.now_ms - timestamps
        least, youngest = self.now_ms - int(ages.max()), int(ages.min())
        self.first_ms = least if self.first_ms < 0 else min(self.first_ms, least)
        for name, span in (("hour_bytes", HOUR_MS), ("day_bytes", DAY_MS), ("week_bytes", 7 * DAY_MS)):
            if youngest < span:
                setattr(self, name, getattr(self, name) + int(sizes[ages < span].sum()))
        for times, span in ((self.hours, 7 * DAY_MS), (self.days, _RECENT_DAYS * DAY_MS)):
            if youngest < span:
                late = ages < span
                times.add(timestamps[late], records[late], sizes[late])

    def merge(self, other: Grown) -> None:
        """Add what another one counted, up to the same time."""
        for mine, others in ((self.hours, other.hours), (self.days, other.days)):
            mine.merge(others)
        for name in ("hour_bytes", "day_bytes", "week_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.first_ms >= 0:
            self.first_ms = other.first_ms if self.first_ms < 0 else min(self.first_ms, other.first_ms)

    @property
    def per_day(self) -> float:
        """Bytes a day, of the last week, or since the first record if that is later; at least a day is assumed."""
        if self.first_ms < 0:
            return 0.0
        span = min(max(self.now_ms - self.first_ms, DAY_MS), 7 * DAY_MS)
        return self.week_bytes * DAY_MS / span

    def fact(self) -> GrowthFact:
        """Return the counts as plain values."""
        return GrowthFact(
            self.hour_bytes,
            self.day_bytes,
            self.week_bytes,
            round(self.per_day, 1),
            self.hours.fact(),
            self.days.fact(),
        )
