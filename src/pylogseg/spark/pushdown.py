"""Prune a plan by Spark's filters: leave out partitions and offsets that cannot have a matching row.

Spark applies every filter again to the rows. So ignoring a filter costs time, never rows.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MILLISECOND = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True)
class Pruning:
    """Bounds of matching rows, derived from filters."""

    topics: frozenset[str] | None = None  #: That match, as the partitions; None if all do.
    partitions: frozenset[int] | None = None
    first_offset: int = 0  #: Of the range of offsets that match, half-open.
    end_offset: int = 2**63
    since_ms: int | None = None  #: The lowest timestamp; of a batch only the greatest is known.

    def keeps(self, topic: str, partition: int) -> bool:
        """Check whether a partition may have matching rows."""
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def pruning_of(filters: Iterable[Any]) -> Pruning:
    """Combine filters of `pyspark.sql.datasource`; filters on other columns or of other kinds are ignored."""
    found = Pruning()
    for item in filters:
        column = getattr(item, "attribute", None)
        value = getattr(item, "value", None)
        if column is None or len(column) != 1 or value is None:
            continue
        found = _narrowed(found, column[0].lower(), type(item).__name__, value)
    return found


def _narrowed(found: Pruning, column: str, form: str, value: Any) -> Pruning:
    allowed = {"EqualTo": (value,), "EqualNullSafe": (value,), "In": value}.get(form)
    if column == "topic" and allowed is not None:
        topics = frozenset(allowed) if found.topics is None else found.topics & frozenset(allowed)
        return replace(found, topics=topics)
    if column == "partition" and allowed is not None:
        numbers = frozenset(allowed) if found.partitions is None else found.partitions & frozenset(allowed)
        return replace(found, partitions=numbers)
    known = [one for one in allowed or () if one is not None]
    if column == "offset":
        low, high = _range(form, value, known)
        first = found.first_offset if low is None else max(found.first_offset, low)
        end = found.end_offset if high is None else min(found.end_offset, high)
        return replace(found, first_offset=first, end_offset=end)
    if column == "timestamp":
        low, _ = _range(form, value, known)
        if isinstance(low, datetime.datetime):
            # Rounded down: the column has microseconds, but its values are whole milliseconds.
            aware = low if low.tzinfo else low.replace(tzinfo=datetime.timezone.utc)
            since = (aware - _EPOCH) // _MILLISECOND
            return replace(found, since_ms=since if found.since_ms is None else max(found.since_ms, since))
    return found


def _range(form: str, value: Any, allowed: list[Any]) -> tuple[Any, Any]:
    """Return lowest value and end of what a filter passes; None for no bound. A time is its own successor."""
    one = 1 if isinstance(value, int) else _MILLISECOND * 0
    if allowed:
        return min(allowed), max(allowed) + (1 if isinstance(allowed[0], int) else one)
    bounds: dict[str, tuple[Any, Any]] = {
        "GreaterThan": (value, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (None, value),
        "LessThanOrEqual": (None, value),
    }
    low, high = bounds.get(form, (None, None))
    if form == "GreaterThan":
        low = low + one
    if form == "LessThanOrEqual":
        high = high + one
    return low, high
