"""Which offsets of a partition are missing and why, from the counts of its segments: one after the other, none kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pylogseg.stats.segment import Stats
from pylogseg.walker.findings import Gap, offsets_text

#: Stretches of missing offsets of a group that are listed.
MAX_LISTED = 10_000
#: The reason of what is missing between records, until all segments have told whether a cleaner was there.
_BETWEEN = ""


class Missing(NamedTuple):
    """Offsets of one partition that a reader does not see as records, by the reason.

    Attributes
    ----------
    markers : int
        Taken by control records: consumers skip them.
    below_start : int
        Below the log start offset: removed by retention, or by a client's request to delete records.
    still_there : int
        Of these, offsets that are still in the first segment.
    compaction : int
        Removed by the cleaner.
    damage : int
        Of what cannot be read.
    unexplained : int
        Between two batches, and nothing tells why.
    """

    markers: int
    below_start: int
    still_there: int
    compaction: int
    damage: int
    unexplained: int


class Stretch(NamedTuple):
    """Offsets next to each other that are missing for the same reason.

    Attributes
    ----------
    name : str
        Of the partition.
    first_offset, end_offset : int
        Half-open.
    reason : {"log start", "markers", "compaction", "damage", "unexplained"}
        As `Missing` has them.
    """

    name: str
    first_offset: int
    end_offset: int
    reason: str

    @property
    def is_news(self) -> bool:
        """Whether somebody should look: what brokers do to a log is no news."""
        return self.reason in ("damage", "unexplained")

    def __str__(self) -> str:
        return f"{self.name}: {offsets_text(self.first_offset, self.end_offset)} ({self.reason})"


class _Outline(NamedTuple):
    """Where a segment begins and ends, and what it lacks."""

    first: int
    end: int
    gaps: Sequence[Gap]
    empty: Sequence[tuple[int, int]]
    control: Sequence[tuple[int, int]]


class MissingOffsets:
    """Takes the counts of a partition's segments in their order, and says what is missing.

    What it keeps does not grow with their number, but for the stretches that are listed.

    Parameters
    ----------
    name : str
        Of the partition.
    log_start_offset : int
        Of the partition.
    is_cleaned : bool
        Whether the cleaner's checkpoint names the partition, or its topic is a compacted one. An empty batch, a delete
        horizon or a batch with fewer records than offsets tell of the cleaner too.
    room : int
        How many stretches are listed; the others are counted.
    """

    def __init__(self, name: str, log_start_offset: int, is_cleaned: bool, room: int = MAX_LISTED) -> None:
        self._name, self._log_start, self._is_cleaned, self._room = name, log_start_offset, is_cleaned, room
        self._base: int | None = None  # of the first segment
        self._first: int | None = None  # offset in it, or in the first one that has any
        self._begin = self._after = self._end = log_start_offset
        self._there = self._control = self._left_out = self._lost = 0
        #: The last segment with offsets, and those behind it without: where damage at their ends ends is not known yet.
        self._open: list[_Outline] = []
        self._damaged: list[tuple[int, int]] = []
        self._found: list[Stretch] = []
        self._unlisted = 0
        self._list([(0, log_start_offset, "log start")] if log_start_offset > 0 else [])

    def add(self, stats: Stats) -> None:
        """Take the next segment."""
        outline = _Outline(stats.first_offset, stats.end_offset, stats.gaps, stats.empty, stats.control)
        if self._base is None:
            self._base = stats.base_offset
        if stats.first_offset < 0:
            if stats.gaps:
                self._open.append(outline)
            return
        if self._first is None:
            # The offset that the first record would have: the base offset, unless records were deleted.
            base = stats.first_offset if self._base < 0 else max(self._base, self._log_start)
            self._first, self._begin = stats.first_offset, min(stats.first_offset, base)
            self._after = self._begin
        self._settle(stats.first_offset)
        self._open.append(outline)
        self._end = stats.end_offset
        self._control += stats.control_records
        self._there += stats.control_records + stats.records
        self._left_out += stats.left_out
        self._unlisted += stats.unlisted
        self._is_cleaned |= bool(stats.left_out or stats.empty_batches or stats.horizon_batches)

    def finish(self) -> tuple[Missing, list[Stretch], int]:
        """How many offsets are missing by reason, the stretches of them, and how many of those are not listed."""
        self._settle(None)
        reason = "compaction" if self._is_cleaned else "unexplained"
        found = [stretch._replace(reason=stretch.reason or reason) for stretch in self._found]
        between = max(0, self._end - self._begin - self._there - self._left_out - self._lost)
        first = self._end if self._first is None else self._first
        missing = Missing(
            self._control,
            self._log_start,
            max(0, min(self._log_start, self._end) - first),
            self._left_out + (between if self._is_cleaned else 0),
            self._lost,
            0 if self._is_cleaned else between,
        )
        return missing, sorted(found, key=lambda stretch: stretch.first_offset), self._unlisted

    def _settle(self, follows: int | None) -> None:
        """List what the open segments lack, now that it is known which offset follows them."""
        damaged = [pair for outline in self._open for pair in _damaged(outline.gaps, follows)]
        self._lost += sum(end - first for first, end in damaged)
        near = self._damaged + damaged  # damage of the segments before reaches to this one
        lacking = [(first, end, "damage") for first, end in damaged]
        for outline in self._open:
            if outline.first < 0:
                continue
            lacking += [(first, end, "markers") for first, end in outline.control]
            before = [(self._after, outline.first)] if outline.first > self._after else []
            for first, end in [*before, *outline.empty]:
                lacking += [(*rest, _BETWEEN) for rest in _without(max(first, self._log_start), end, near)]
            self._after = max(self._after, outline.end)
        self._list(sorted(lacking))
        self._open, self._damaged = [], damaged

    def _list(self, found: Sequence[tuple[int, int, str]]) -> None:
        room = max(0, self._room - len(self._found))
        self._found += [Stretch(self._name, *stretch) for stretch in found[:room]]
        self._unlisted += len(found[room:])


def _without(first: int, end: int, damaged: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of a stretch without what damage took."""
    left = []
    for begin, last in damaged:
        if begin > first and min(begin, end) > first:
            left.append((first, min(begin, end)))
        first = max(first, last)
    return [*left, (first, end)] if end > first else left


def _damaged(gaps: Sequence[Gap], follows: int | None) -> list[tuple[int, int]]:
    """Offsets that damage in a segment took; at its end up to where the next one begins."""
    found: list[tuple[int, int]] = []
    for gap in sorted(gaps, key=lambda gap: gap.first_offset):
        end = follows if gap.next_offset is None else gap.next_offset
        if gap.is_damage and end is not None and end > gap.first_offset:
            found.append((gap.first_offset, end))
    return found
