"""Missing offsets of a partition and their reasons, from the counts of its segments, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pylogseg.inspect.stats.segment import Stats
from pylogseg.reading.offset_range import subtract_ranges
from pylogseg.walker.gaps import Gap, GapKind, offsets_text

#: Ranges of missing offsets that are listed for a group.
MAX_LISTED = 10_000
#: The reason for offsets missing between records, until it is known whether the log was compacted.
_BETWEEN = ""
_DAMAGE, _UNREAD = "damage", "not looked at"


class MissingCounts(NamedTuple):
    """Numbers of a partition's offsets that a reader does not see as records, by reason."""

    markers: int  #: Taken by control records: consumers skip them.
    below_start: int  #: Below the log start offset: by retention, or a client's request to delete records.
    still_there: int  #: Those of them that are still in the first segment.
    compaction: int  #: Removed by the cleaner.
    damage: int  #: In unreadable parts.
    unexplained: int  #: Between two batches, for an unknown reason.
    unread: int = 0  #: In encrypted segments that there is no key for.


class MissingRange(NamedTuple):
    """A half-open range of offsets that are missing for the same reason."""

    name: str
    first_offset: int
    end_offset: int
    #: "log start", "markers", "compaction", "damage", "unexplained" or "not looked at"; see `MissingCounts`.
    reason: str

    @property
    def is_news(self) -> bool:
        """True if somebody should look at it: a broker does not do this to a log."""
        return self.reason in (_DAMAGE, "unexplained", _UNREAD)

    def __str__(self) -> str:
        return f"{self.name}: {offsets_text(self.first_offset, self.end_offset)} ({self.reason})"


class MissingOffsets:
    """Finds the missing offsets of a partition from the counts of its segments, added in order.

    Except for the `room` listed ranges (the others are counted), its memory does not grow with the number of segments.
    `is_cleaned` is by the cleaner's checkpoint or the topic; an empty batch, a delete horizon or a batch with fewer
    records than offsets also show that.
    """

    def __init__(self, name: str, log_start_offset: int, is_cleaned: bool, room: int = MAX_LISTED) -> None:
        self._name, self._log_start, self._is_cleaned, self._room = name, log_start_offset, is_cleaned, room
        self._base: int | None = None  # of the first segment
        self._first: int | None = None  # offset in it, or in the first one that has any
        self._begin = self._after = self._end = log_start_offset
        self._there = self._control = self._left_out = self._lost = self._unread = 0
        #: The last segment with offsets, and those after it without: the end of damage at their end is not known yet.
        self._open: list[Stats] = []
        self._damaged: list[tuple[int, int]] = []
        self._found: list[MissingRange] = []
        self._unlisted = 0
        self._list([(0, log_start_offset, "log start")] if log_start_offset > 0 else [])

    def add(self, stats: Stats) -> None:
        if self._base is None:
            self._base = stats.base_offset
        if stats.first_offset < 0:
            if stats.gaps:
                self._open.append(stats)
            return
        if self._first is None:
            # The offset that the first record would have: the base offset, unless records were deleted.
            base = stats.first_offset if self._base < 0 else max(self._base, self._log_start)
            self._first, self._begin = stats.first_offset, min(stats.first_offset, base)
            self._after = self._begin
        self._close_open(stats.first_offset)
        self._open.append(stats)
        self._end = stats.end_offset
        self._control += stats.control_records
        self._there += stats.control_records + stats.records
        self._left_out += stats.left_out
        self._unlisted += stats.unlisted
        self._is_cleaned |= bool(stats.left_out or stats.empty_batches or stats.horizon_batches)

    def finish(self) -> tuple[MissingCounts, list[MissingRange], int]:
        """Return the numbers of missing offsets by reason, their ranges, and the number of ranges not listed."""
        self._close_open(None)
        reason = "compaction" if self._is_cleaned else "unexplained"
        ranges = [span._replace(reason=span.reason or reason) for span in self._found]
        between = max(0, self._end - self._begin - self._there - self._left_out - self._lost - self._unread)
        first = self._end if self._first is None else self._first
        missing = MissingCounts(
            self._control,
            self._log_start,
            max(0, min(self._log_start, self._end) - first),
            self._left_out + (between if self._is_cleaned else 0),
            self._lost,
            0 if self._is_cleaned else between,
            self._unread,
        )
        return missing, sorted(ranges, key=lambda each: each.first_offset), self._unlisted

    def _close_open(self, follows: int | None) -> None:
        """List the missing ranges of the open segments, up to the offset after them."""
        damaged = [pair for stats in self._open for pair in _list_damage(stats.gaps, follows)]
        self._lost += sum(end - first for first, end, reason in damaged if reason == _DAMAGE)
        self._unread += sum(end - first for first, end, reason in damaged if reason == _UNREAD)
        ranges = [(first, end) for first, end, _ in damaged]
        near = self._damaged + ranges  # damage of the segments before reaches to this one
        lacking = list(damaged)
        for stats in self._open:
            if stats.first_offset < 0:
                continue
            lacking += [(first, end, "markers") for first, end in stats.control]
            before = [(self._after, stats.first_offset)] if stats.first_offset > self._after else []
            for first, end in [*before, *stats.empty]:
                lacking += [(*rest, _BETWEEN) for rest in subtract_ranges(max(first, self._log_start), end, near)]
            self._after = max(self._after, stats.end_offset)
        self._list(sorted(lacking))
        self._open, self._damaged = [], ranges

    def _list(self, found: Sequence[tuple[int, int, str]]) -> None:
        room = max(0, self._room - len(self._found))
        self._found += [MissingRange(self._name, *fields) for fields in found[:room]]
        self._unlisted += len(found[room:])


def _list_damage(gaps: Sequence[Gap], follows: int | None) -> list[tuple[int, int, str]]:
    """Return the offsets lost to damage in a segment, or not looked at; at its end, up to the next segment."""
    lost: list[tuple[int, int, str]] = []
    for gap in sorted(gaps, key=lambda gap: gap.first_offset):
        end = follows if gap.next_offset is None else gap.next_offset
        if gap.is_damage and end is not None and end > gap.first_offset:
            lost.append((gap.first_offset, end, _UNREAD if gap.kind is GapKind.LOCKED else _DAMAGE))
    return lost
