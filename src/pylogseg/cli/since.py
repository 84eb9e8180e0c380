"""What changed since an earlier report, as lines for a terminal: the worst first, a few of each kind."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pylogseg.format.words import size_text
from pylogseg.reporting.changes import GroupChange, PartitionChange, Since

_Row = TypeVar("_Row")
#: Lines of each kind.
_MOST = 10
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def since_lines(since: Since) -> Iterator[str]:
    """Yield the lines."""
    made = datetime.datetime.fromtimestamp(since.made_ms / 1000, datetime.timezone.utc)
    yield f"Since {made:%Y-%m-%d %H:%M:%S} UTC ({span_text(since.span_ms)}, {since.source}):"
    yield f"  size: {size_text(since.size_before)} -> {size_text(since.size_after)}"
    counts = Counter(each.what for each in since.partitions)
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    yield f"  partitions: {told + ', ' if told else ''}{since.partitions_same:,} as they were"
    yield from _some(since.partitions, _partition)
    found = Counter(each.what for each in since.findings)
    yield f"  findings: {found['new']:,} new, {found['gone']:,} gone, {since.findings_same:,} the same"
    yield from _some(since.findings, lambda each: f"{each.what}: {each.level}, {each.path}: {each.reason}")
    changed = [each for each in since.groups if each.what != "same"]
    if since.groups:
        yield f"  groups: {len(changed):,} changed, {len(since.groups) - len(changed):,} the same"
        yield from _some(changed, _group)
    if since.settings:
        yield f"  settings: {len(since.settings):,} changed"
        yield from _some(since.settings, lambda each: f"{each.topic}: {each.name}: {each.before} -> {each.after}")
    if since.replicas:
        yield f"  replicas: {len(since.replicas):,} changed"
        yield from _some(
            since.replicas,
            lambda each: (
                f"{each.topic}-{each.partition}: leader {each.leader_before} -> {each.leader_after}, "
                f"in sync {_brokers(each.in_sync_before)} -> {_brokers(each.in_sync_after)}"
            ),
        )
    yield from (f"  note: {note}" for note in since.notes)


def _some(rows: Sequence[_Row], text: Callable[[_Row], str]) -> Iterator[str]:
    yield from (f"    {text(row)}" for row in rows[:_MOST])
    if len(rows) > _MOST:
        yield f"    and {len(rows) - _MOST:,} more (--json lists them)"


def _partition(each: PartitionChange) -> str:
    def offsets(start: int | None, end: int | None) -> str:
        return f"{_number(start)} to {_number(end)}"

    before = f"{offsets(each.start_before, each.end_before)}, {_size(each.size_before)}"
    after = f"{offsets(each.start_after, each.end_after)}, {_size(each.size_after)}"
    shown = after if each.what == "new" else before if each.what == "gone" else f"{before} -> {after}"
    rate = "" if each.records_per_day is None else f" ({each.records_per_day:,.0f} records a day)"
    return f"{each.what}: {each.name}: {shown}{rate}"


def _group(each: GroupChange) -> str:
    age = "" if each.age_ms_after is None else f", the first unread record is {span_text(each.age_ms_after)} old"
    return f"{each.what}: {each.group}: lag {_number(each.lag_before)} -> {_number(each.lag_after)}{age}"


def _number(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _size(value: int | None) -> str:
    return "size not known" if value is None else size_text(value)


def _brokers(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "none"


def span_text(ms: int) -> str:
    """Return a length of time for people."""
    for unit, size in _UNITS:
        if ms >= size:
            return f"{ms / size:,.1f} {unit}s"
    return f"{ms:,} ms"
