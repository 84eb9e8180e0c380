"""A range of offsets, as arguments and the shell give it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from pylogseg.disk.choice import whole_number
from pylogseg.errors import RequestError

#: End of an open range of offsets: above every possible offset.
OPEN_END = 2**63


class OffsetRange(NamedTuple):
    """A half-open range of offsets of each log; None is open, a negative number counts from the log end offset."""

    first: int | None = None
    end: int | None = None
    at_most: int | None = None  #: Instead of an end: this many offsets from the first.

    @classmethod
    def of(cls, given: Any) -> OffsetRange:
        """Return the range of an argument: a first offset or a pair; RequestError if it ends before it begins."""
        if isinstance(given, OffsetRange):
            return given
        offsets = cls(*(None if number is None else whole_number(number, "offset") for number in pair_of(given)))
        return offsets.check()

    def check(self) -> OffsetRange:
        """Return the range; RequestError if it ends before it begins."""
        first, end = self.first, self.end
        if first is not None and end is not None and (first < 0) == (end < 0) and end < first:
            raise RequestError(f"the range of offsets {first}:{end} ends before it begins")
        return self

    def narrow(self, other: OffsetRange) -> OffsetRange:
        """Return the offsets that are in both ranges.

        RequestError for two ranges of which one counts from the end: where they meet differs from log to log.
        """
        if OffsetRange() in (self, other):
            return self if other == OffsetRange() else other
        numbers = [number for number in (*self, *other) if number is not None]
        if self.at_most is not None or other.at_most is not None or min(numbers) < 0:
            raise RequestError("a range of offsets that counts from the end cannot be combined with another one")
        first = max(self.first or 0, other.first or 0)
        ends = [end for end in (self.end, other.end) if end is not None]
        return OffsetRange(first, max(first, min(ends)) if ends else None)

    def absolute(self, refusal: str) -> tuple[int | None, int | None]:
        """Return both ends; RequestError with a text if one counts from the end of a log."""
        if (self.first or 0) < 0 or (self.end or 0) < 0:
            raise RequestError(refusal)
        return self.first, self.end if self.at_most is None else (self.first or 0) + self.at_most

    @property
    def has_end(self) -> bool:
        """True if records that are appended later are not in it."""
        return self.end is not None or self.at_most is not None

    def within(self, log: Any) -> tuple[int, int]:
        """Return the first and the end offset in one log, a `LogSource`."""
        first, end = self.first or 0, OPEN_END if self.end is None else self.end
        if first < 0 or end < 0:
            log_end = log.log_end_offset
            first, end = (max(0, log_end + offset) if offset < 0 else offset for offset in (first, end))
        return first, end if self.at_most is None else first + self.at_most


#: The forms of an argument ``offset``: the first one, a half-open range, or one that counts from the end.
Offsets = int | tuple[int | None, int | None] | OffsetRange | None


def parse_offsets(text: str) -> OffsetRange:
    """Parse a range from ``A:B``, ``A:``, ``:B``, ``A`` (from there on) or ``A:+N``; A and B may be negative.

    >>> parse_offsets("100:200")
    OffsetRange(first=100, end=200, at_most=None)
    >>> parse_offsets("-10:+5")
    OffsetRange(first=-10, end=None, at_most=5)
    """
    match = re.fullmatch(r"(-?\d+)?(?::(?:\+(\d+)|(-?\d+))?)?", text.strip())
    if match is None or not text.strip() or (match[2] and match[1] is None):
        raise RequestError(
            f"invalid offset range {text!r}: expected A:B (B exclusive), A:, :B, A or A:+N; -N counts from the end"
        )
    return OffsetRange(*(None if match[i] is None else int(match[i]) for i in (1, 3, 2))).check()


def pair_of(value: Any) -> tuple[Any, Any]:
    """Return both ends of a range: of a pair, or of a start alone."""
    if value is None:
        return None, None
    if isinstance(value, tuple):
        if len(value) != 2:
            raise RequestError(f"a range is a pair (start, end), not {value!r}")
        return value
    return value, None


def subtract_ranges(first: int, end: int, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a half-open range outside of given ranges, which come in their order."""
    left = []
    for begin, last in ranges:
        if begin > first and min(begin, end) > first:
            left.append((first, min(begin, end)))
        first = max(first, last)
    return [*left, (first, end)] if end > first else left
