"""Counts of a disk for people: tables of topics and partitions, a report of all, missing offsets, heaviest keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pylogseg.disk.notes import joined_lines
from pylogseg.format.columns import to_row
from pylogseg.format.moments import time_text
from pylogseg.format.outcome import Outcome, TextTable
from pylogseg.format.words import size_text
from pylogseg.inspect.stats.groups import TIME_TYPES, StatsGroup, codec_name, total
from pylogseg.inspect.stats.missing import MissingCounts
from pylogseg.inspect.stats.segment import Stats
from pylogseg.inspect.stats.top_lines import top_lines, tops_row
from pylogseg.walker.gaps import offsets_text

_SHOWN = 20


@dataclass
class StatsReport(Outcome):
    """The counts of groups: of topics, of partitions, or of all in one report."""

    groups: Sequence[StatsGroup]
    limit_bytes: int  #: A batch that decompresses to more is not read for keys.
    is_list: bool = False  #: A line for each group.
    lists_all_gaps: bool = False  #: Also ranges of missing offsets whose reason is no surprise.
    notes: list[str] = field(default_factory=list)  #: Facts that could not be looked at.

    @property
    def exit_code(self) -> int:
        """For a shell: 1 if there is damage, or something could not be looked at."""
        return int(bool(self.notes) or any(gap.is_loss for group in self.groups for gap in group.stats.gaps))

    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each group."""
        for group in self.groups:
            yield {**to_row(group, group.columns), **tops_row(group, self.limit_bytes)}

    def warnings(self) -> Iterator[str]:
        """Yield facts that could not be looked at."""
        return (f"not known: {note}" for note in joined_lines(self.notes))

    def lines(self) -> Iterator[str | TextTable]:
        """Yield tables and lines for people."""
        if self.is_list:
            yield from _table_of([*self.groups, *([total(self.groups)] if len(self.groups) > 1 else [])])
        else:
            for group in self.groups:
                yield from _report_of(group)
        yield from _ranges_of(self.groups, self.lists_all_gaps)
        yield from top_lines(self.groups, self.limit_bytes)


def _table_of(groups: list[StatsGroup]) -> Iterator[str | TextTable]:
    columns = ["NAME", "RECORDS", "BATCHES", "SIZE", "CODECS", "RATIO", "MEAN SIZE", "KEYS", "TOMBSTONES", "GAPS"]
    rows: list[tuple[Any, ...]] = [
        (
            group.name,
            group.stats.records,
            group.stats.batches,
            size_text(group.stats.size_bytes),
            ",".join(codec_name(number) for number in sorted(group.stats.codecs)) or None,
            _number(_ratio(group.stats), 2),
            _number(group.stats.record_sizes.mean, 1),
            _distinct(group.stats),
            group.stats.tombstones,
            _gaps(group.missing),
        )
        for group in groups
    ]
    right = ["RECORDS", "BATCHES", "SIZE", "RATIO", "MEAN SIZE", "KEYS", "TOMBSTONES"]
    if groups and not groups[0].is_whole:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    yield TextTable(columns, rows, right)


def _ratio(stats: Stats) -> float | None:
    body = sum(codec.body_bytes for codec in stats.codecs.values())
    return sum(codec.raw_bytes for codec in stats.codecs.values()) / body if body else None


def _number(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _distinct(stats: Stats) -> str:
    return f"{'' if stats.keys.is_exact else '~'}{stats.keys.count}"


def _gaps(missing: MissingCounts) -> str | None:
    names = {"markers": "markers", "below_start": "log start", "compaction": "compaction", "damage": "damage",
             "unexplained": "unexplained", "unread": "not looked at"}  # fmt: skip
    counts = [f"{label} {getattr(missing, name)}" for name, label in names.items() if getattr(missing, name)]
    return ", ".join(counts) or None


def _report_of(group: StatsGroup) -> Iterator[str | TextTable]:
    stats, missing = group.stats, group.missing
    yield from _summary_of(group)
    yield ""
    codecs = [
        (codec_name(number), c.batches, c.records, size_text(c.stored_bytes), size_text(c.raw_bytes),
         _number(c.ratio, 2))
        for number, c in sorted(stats.codecs.items())
    ]  # fmt: skip
    heads = ["CODEC", "BATCHES", "RECORDS", "STORED", "DECOMPRESSED", "RATIO"]
    yield TextTable(heads, codecs, heads[1:])
    yield ""
    parts = (("record", stats.record_sizes), ("key", stats.key_sizes), ("value", stats.value_sizes))
    heads = ["BYTES OF", "COUNT", "MIN", "MEAN", "P50", "P90", "P99", "MAX", "TOTAL"]
    sizes = [
        (name, h.count, h.least if h.count else None, _number(h.mean, 1), h.percentile(50), h.percentile(90),
         h.percentile(99), h.largest if h.count else None, size_text(h.total))
        for name, h in parts
    ]  # fmt: skip
    yield TextTable(heads, sizes, heads[1:])
    if not group.is_whole:
        return
    yield ""
    reasons = [
        ("markers", missing.markers, "control records: consumers skip them"),
        ("log start", missing.below_start, f"retention or delete requests; {missing.still_there} still in the files"),
        ("compaction", missing.compaction, "removed by the cleaner"),
        ("damage", missing.damage, "in batches that cannot be read"),
        ("unexplained", missing.unexplained, "between batches"),
    ]
    if missing.unread:
        reasons.append(("not looked at", missing.unread, "encrypted, and there is no key (--keys)"))
    yield TextTable(["MISSING OFFSETS", "COUNT", "WHY"], reasons, ["COUNT"])


def _ranges_of(groups: Sequence[StatsGroup], everything: bool) -> Iterator[str | TextTable]:
    ranges = [span for group in groups for span in group.ranges if everything or span.is_news]
    shown = ranges if everything else ranges[:_SHOWN]
    if not shown:
        return
    yield ""
    table = [
        (s.name, offsets_text(s.first_offset, s.end_offset), s.end_offset - s.first_offset, s.reason) for s in shown
    ]
    yield TextTable(["PARTITION", "MISSING", "COUNT", "WHY"], table, ["COUNT"])
    if len(ranges) > len(shown):
        yield (f"and {len(ranges) - len(shown)} more ranges (--gaps lists them)")
    unlisted = sum(group.unlisted for group in groups)
    if unlisted:
        yield (f"and {unlisted} more ranges that are only counted")


def _summary_of(group: StatsGroup) -> Iterator[str | TextTable]:
    stats = group.stats
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(stats.markers.items()))
    magics = ", ".join(f"{count} of magic {magic}" for magic, count in sorted(stats.magics.items()))
    times = ", ".join(f"{count} {TIME_TYPES[kind]}" for kind, count in sorted(stats.time_types.items()))
    facts = [
        ("partitions", f"{group.partitions}, {stats.segments} segments, {size_text(stats.size_bytes)}"),
        ("batches", f"{stats.batches}: {magics or 'none'}; {stats.empty_batches} empty"),
        ("records", f"{stats.records}, {stats.headers} headers, {stats.tombstones} tombstones"),
        ("control", f"{stats.control_records} records{': ' + kinds if kinds else ''}"),
        ("keys", f"{_distinct(stats)} different, {stats.null_keys} records without"),
        ("producers", f"{len(stats.producers)} with an id, {stats.transactional_batches} transactional batches"),
        ("times", f"{time_text(stats.least_timestamp) or 'none'} to "
                  f"{time_text(stats.largest_timestamp) or 'none'}; batches: {times or 'none'}"),
    ]  # fmt: skip
    for label, fact in facts:
        yield (f"{label:<11} {fact}")
