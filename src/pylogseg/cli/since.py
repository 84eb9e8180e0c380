"""What changed since an earlier report, as lines for a terminal: the worst first, a few of each kind."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pylogseg.format.words import size_text
from pylogseg.reporting.facts import Since

_Row = dict[str, Any]
#: Lines of each kind.
_MOST = 10
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def since_lines(since: Since) -> Iterator[str]:
    """Yield the lines."""
    made = datetime.datetime.fromtimestamp(since.made_ms / 1000, datetime.timezone.utc)
    yield f"Since {made:%Y-%m-%d %H:%M:%S} UTC ({span_text(since.span_ms)}, {since.source}):"
    yield f"  size: {size_text(since.size_before)} -> {size_text(since.size_after)}"
    counts = Counter(each["what"] for each in since.partitions)
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    yield f"  partitions: {told + ', ' if told else ''}{since.partitions_same:,} as they were"
    yield from _some(since.partitions, _partition)
    found = Counter(each["what"] for each in since.findings)
    yield f"  findings: {found['new']:,} new, {found['gone']:,} gone, {since.findings_same:,} the same"
    yield from _some(since.findings, lambda each: f"{each['what']}: {each['level']}, {each['path']}: {each['reason']}")
    changed = [each for each in since.groups if each["what"] != "same"]
    if since.groups:
        yield f"  groups: {len(changed):,} changed, {len(since.groups) - len(changed):,} the same"
        yield from _some(changed, _group)
    if since.settings:
        yield f"  settings: {len(since.settings):,} changed"
        yield from _some(
            since.settings, lambda each: f"{each['topic']}: {each['name']}: {each['before']} -> {each['after']}"
        )
    if since.replicas:
        yield f"  replicas: {len(since.replicas):,} changed"
        yield from _some(
            since.replicas,
            lambda each: (
                f"{each['topic']}-{each['partition']}: leader {each['leaderBefore']} -> {each['leaderAfter']}, "
                f"in sync {_brokers(each['inSyncBefore'])} -> {_brokers(each['inSyncAfter'])}"
            ),
        )
    yield from (f"  note: {note}" for note in since.notes)


def _some(rows: Sequence[_Row], text: Callable[[_Row], str]) -> Iterator[str]:
    yield from (f"    {text(row)}" for row in rows[:_MOST])
    if len(rows) > _MOST:
        yield f"    and {len(rows) - _MOST:,} more (--json lists them)"


def _partition(change: _Row) -> str:
    before, after = (
        f"{_number(change[f'start{when}'])} to {_number(change[f'end{when}'])}, {_size(change[f'size{when}'])}"
        for when in ("Before", "After")
    )
    what, rate = change["what"], change["recordsPerDay"]
    shown = after if what == "new" else before if what == "gone" else f"{before} -> {after}"
    return f"{what}: {change['name']}: {shown}{'' if rate is None else f' ({rate:,.0f} records a day)'}"


def _group(change: _Row) -> str:
    lags = f"{_number(change['lagBefore'])} -> {_number(change['lagAfter'])}"
    age = change["ageMsAfter"]
    unread = "" if age is None else f", the first unread record is {span_text(age)} old"
    return f"{change['what']}: {change['group']}: lag {lags}{unread}"


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
