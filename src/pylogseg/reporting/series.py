"""Records and bytes by time, in a bounded number of buckets whose width grows with the range; mergeable."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pylogseg.format.columns import TableColumn, declare_columns

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


@declare_columns(
    TableColumn("stepMs", "int64", "width of a bucket", "ms"),
    TableColumn("starts", "list<int64>", "starts of buckets; those without records are left out", "ms"),
    TableColumn("records", "list<int64>", "records in each"),
    TableColumn("bytes", "list<int64>", "of whole batches, as stored", "bytes"),
    TableColumn("isEstimate", "bool", "because headers were sampled"),
    TableColumn("untimed", "int64", "records without a time"),
)
@dataclass
class Series:
    """Records and bytes by time; one bucket is ``[start, start + step_ms)``."""

    most: int = MOST_BUCKETS
    least_step_ms: int = SECOND_MS  #: Buckets that are settled are as wide.
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

    def merge(self, other: Series) -> None:
        """Add the counts of another series."""
        self.untimed += other.untimed
        self.is_estimate |= other.is_estimate
        self.least_step_ms = max(self.least_step_ms, other.least_step_ms)
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
        """Put waiting rows into buckets."""
        if not self._waiting:
            return
        times, records, sizes = (np.concatenate(pieces) for pieces in zip(self._buckets, *self._waiting, strict=True))
        self._waiting, self._waits = [], 0
        for step in STEPS_MS:
            if step < self.least_step_ms:
                continue
            self.least_step_ms = step
            starts, where = np.unique(times // step, return_inverse=True)
            if len(starts) <= self.most:
                break
        # Beyond the widest step (times that make no sense) there may be more buckets than are wanted.
        counts, totals = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
        np.add.at(counts, where, records)
        np.add.at(totals, where, sizes)
        self._buckets = starts * self.least_step_ms, counts, totals

    @property
    def step_ms(self) -> int:
        """Width of the buckets."""
        self._settle()
        return self.least_step_ms

    @property
    def starts(self) -> list[int]:
        """Starts of the buckets that have records, ascending; of very many (times without sense) the newest."""
        return self._column(0)

    @property
    def records(self) -> list[int]:
        """Records of each bucket."""
        return self._column(1)

    @property
    def bytes(self) -> list[int]:
        """Bytes of each bucket: of whole batches, as stored."""
        return self._column(2)

    def _column(self, number: int) -> list[int]:
        self._settle()
        values: list[int] = self._buckets[number][-2 * MOST_BUCKETS :].tolist()
        return values


@declare_columns(
    TableColumn("lastHourBytes", "int64", "written in the last hour, by the records' times", "bytes"),
    TableColumn("lastDayBytes", "int64", "in the last day", "bytes"),
    TableColumn("lastWeekBytes", "int64", "in the last week", "bytes"),
    TableColumn("bytesPerDay", "float64", "of the last week, or since the first record if that is later", "bytes"),
    TableColumn("hours", "struct", "by hour, of the last 7 days"),
    TableColumn("days", "struct", "by day, of the last 90 days"),
)
@dataclass
class Growth:
    """Growth up to a time: by hour, by day, and the totals of the last hour, day and week."""

    now_ms: int
    hours: Series = field(default_factory=lambda: Series(_RECENT_HOURS + 1, HOUR_MS))
    days: Series = field(default_factory=lambda: Series(_RECENT_DAYS + 1, DAY_MS))
    last_hour_bytes: int = 0
    last_day_bytes: int = 0
    last_week_bytes: int = 0
    first_ms: int = -1

    def add(
        self, timestamps: npt.NDArray[np.int64], records: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> None:
        """Count batches by their times; batches after `now_ms` do not count."""
        timed = (timestamps >= 0) & (timestamps <= self.now_ms)
        if not timed.all():
            timestamps, records, sizes = timestamps[timed], records[timed], sizes[timed]
        if not len(timestamps):
            return
        ages = self.now_ms - timestamps
        least, youngest = self.now_ms - int(ages.max()), int(ages.min())
        self.first_ms = least if self.first_ms < 0 else min(self.first_ms, least)
        for name, span in (("last_hour_bytes", HOUR_MS), ("last_day_bytes", DAY_MS), ("last_week_bytes", 7 * DAY_MS)):
            if youngest < span:
                setattr(self, name, getattr(self, name) + int(sizes[ages < span].sum()))
        for times, span in ((self.hours, 7 * DAY_MS), (self.days, _RECENT_DAYS * DAY_MS)):
            if youngest < span:
                late = ages < span
                times.add(timestamps[late], records[late], sizes[late])

    def merge(self, other: Growth) -> None:
        """Add the counts of another one with the same `now_ms`."""
        for mine, others in ((self.hours, other.hours), (self.days, other.days)):
            mine.merge(others)
        for name in ("last_hour_bytes", "last_day_bytes", "last_week_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.first_ms >= 0:
            self.first_ms = other.first_ms if self.first_ms < 0 else min(self.first_ms, other.first_ms)

    @property
    def per_day(self) -> float:
        """Bytes a day, of the last week, or since the first record if that is later; at least a day is assumed."""
        if self.first_ms < 0:
            return 0.0
        span = min(max(self.now_ms - self.first_ms, DAY_MS), 7 * DAY_MS)
        return self.last_week_bytes * DAY_MS / span

    @property
    def bytes_per_day(self) -> float:
        """The same, with a decimal."""
        return round(self.per_day, 1)
