"""`pylogseg stats`: count records, batches and bytes, and explain missing offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.losses import report_losses
from pylogseg.cli.options import reading_options, time_options
from pylogseg.cli.streams import say
from pylogseg.cli.tops import print_tops, shown_key, tops_row
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.disk.notes import joined_lines
from pylogseg.format.columns import to_row
from pylogseg.format.moments import time_text
from pylogseg.format.scratch import Scratch
from pylogseg.format.text import payload_text
from pylogseg.format.words import size_text
from pylogseg.inspect.stats.counting import Counting, counted
from pylogseg.inspect.stats.groups import (
    TIME_TYPES,
    StatsGroup,
    codec_name,
    total,
    units_of,
    units_since,
)
from pylogseg.inspect.stats.missing import MissingCounts
from pylogseg.inspect.stats.segment import Stats
from pylogseg.inspect.stats.tops import Tops
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading, ReadState, Throttle
from pylogseg.walker.gaps import offsets_text

_SHOWN = 20

_EPILOG = """\b
Examples:
  pylogseg stats /data/kafka                      one report for all
  pylogseg stats /data/kafka orders               one topic
  pylogseg stats /data/kafka --by topic           a line for each topic, and a total
  pylogseg stats /data/kafka --by partition --json
  pylogseg stats /data/kafka orders-3 --gaps      which offsets are missing
  pylogseg stats /data/kafka --since 1h --by topic --sort size    what grows
  pylogseg stats /data/kafka orders --top-keys 10 --largest 5
  pylogseg stats /data/kafka orders --by hour     records and bytes by hour

\b
Missing offsets, by reason:
  markers      used by control records, which consumers skip
  log start    below the log start offset: deleted by retention or a client
  compaction   removed by the log cleaner, as empty batches, delete horizons,
               incomplete batches or the cleaner's checkpoint show
  damage       in batches that cannot be read
  unexplained  between two batches, without any trace of the reason
The ranges of the last two are listed, with --gaps those of all reasons; in JSON
they are missingRanges. Ranges include both ends.

\b
--since and --until select batches by their largest timestamp, and count their
records and bytes as far as they still exist. The timestamp is the broker's if the
topic has LogAppendTime, else the client's. Missing offsets are not counted then.
--top-keys counts 16384 keys at a time. With more distinct keys a count may be too
low, by at most the number below the table; a key with a larger count is never
omitted. Keys are distinguished by a 64-bit hash. --largest is exact. Both use
the decompressed size of keys and values.

\b
Sizes are of keys and values, without framing. Percentiles are at most 6 % too
high; distinct keys are exact up to 8191, then within about 1 %.
Exit codes: 0 success; 1 damage was found, or a broker removed records meanwhile;
2 wrong usage or a disk error.
"""


@click.command(epilog=_EPILOG)
@common.selection_options
@click.option(
    "--by",
    type=click.Choice(["topic", "partition", "hour", "key"]),
    help="Print a line for each topic or partition; or only records and bytes, by topic and hour, or by topic and key.",
)
@click.option("--gaps", is_flag=True, help="List all ranges of missing offsets, not only damaged and unexplained ones.")
@click.option(
    "--sort",
    type=click.Choice(["name", "size", "records"]),
    help="Order of the lines of --by; size and records: largest first.",
)
@time_options("Only batches from this time on")
@click.option(
    "--top-keys",
    type=click.IntRange(min=1),
    metavar="N",
    help="List the N keys with the most records, and with the most bytes.",
)
@click.option("--largest", type=click.IntRange(min=1), metavar="N", help="List the N largest records.")
@common.json_option
@reading_options("max_decompressed_bytes", "max_bytes_per_second", "drop_behind")
@workers_option
def stats(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    by: str | None,
    gaps: bool,
    sort: str | None,
    since: int | None,
    until: int | None,
    top_keys: int | None,
    largest: int | None,
    as_json: bool,
    reading: Reading,
    workers: Workers,
) -> None:
    """Count batches, codecs, sizes, keys and producers, and explain missing offsets."""
    if sort is not None and by not in ("topic", "partition"):
        raise click.UsageError("--sort needs --by topic or --by partition")
    if gaps and (since, until) != (None, None):
        raise click.UsageError("--gaps covers whole logs: it cannot be combined with --since or --until")
    selection = Selection(since=since, until=until)
    reading = replace(reading, on_corrupt="skip")
    chosen = common.select(arguments, topic, partition)
    if by in ("hour", "key"):
        if gaps or top_keys or largest:
            raise click.UsageError(f"--by {by} counts records: leave out --gaps, --top-keys and --largest")
        damage = _count_records(chosen, by, selection, reading.start(scratch=Scratch), workers, as_json)
        common.end_with_unreadable([p.error for p in chosen.live_partitions()], damage)
        return
    tops = Tops(top_keys or 0, largest or 0) if top_keys or largest else None
    throttle = Throttle.of(reading.max_bytes_per_second)
    how = Counting(since, until, reading.max_decompressed_bytes, tops, throttle, reading.drop_behind)
    notes: list[str] = []
    units = units_since(units_of(chosen.disk, chosen.live_partitions(), notes), since)
    size = sum(segment.size for unit, _ in units for segment in unit.segments)
    with workers.executor() as executor, common.progress(size, "counting") as advance:
        found = dict(counted(units, by, how, _whole, executor, advance))
    groups = sorted(found.values(), key=_ORDERS[sort]) if sort else list(found.values())
    damage = False
    for group in groups:
        damage |= common.report_gaps(group.stats.gaps)
    damage |= report_losses(LogReader.of(log, selection, reading.start()) for log in chosen.logs())
    if as_json:
        for group in groups:
            common.print_json({**to_row(group, group.columns), **tops_row(group, reading.max_decompressed_bytes)})
    else:
        _print_all(groups, by, gaps)
        print_tops(groups, reading.max_decompressed_bytes)
    for note in joined_lines(notes):
        common.complain(f"not known: {note}")
    common.end_with_unreadable([p.error for p in chosen.live_partitions()], damage or bool(notes))


def _count_records(
    chosen: common.Chosen,
    by: str,
    selection: Selection,
    state: ReadState,
    workers: Workers,
    as_json: bool,
) -> bool:
    """Print records and bytes by topic and hour or key; return whether there is damage."""
    from pylogseg.tables.counting import counted_records

    readers = [LogReader.of(log, selection, state) for log in chosen.logs() if log.error is None]
    parts = [part for reader in readers for part in reader.parts(workers.part_bytes)]
    with workers.executor() as executor, common.progress(chosen.size, "counting") as advance:
        found, gaps = counted_records(parts, by, executor, advance)
    damage = common.report_gaps(gaps) | report_losses(readers)
    topics, values, records, sizes = (column.to_pylist() for column in _plain(found).columns)
    if as_json:
        keys = values if by == "hour" else map(payload_text, values)
        for row in zip(topics, keys, records, sizes, strict=True):
            common.print_json(dict(zip(("topic", by, "records", "bytes"), row, strict=True)))
        return damage
    shown = map(time_text, values) if by == "hour" else (shown_key(key, len(key or b"")) for key in values)
    lines = zip(topics, shown, records, map(size_text, sizes), strict=True)
    common.print_table(["TOPIC", by.upper(), "RECORDS", "SIZE"], [*lines], ["RECORDS", "SIZE"])
    return damage


def _plain(counts: Any) -> Any:
    """Return a table with times in milliseconds, which need not be in a calendar."""
    if "hour" not in counts.column_names:
        return counts
    return counts.set_column(1, "hour", counts.column("hour").cast("timestamp[ms]").cast("int64"))


def _whole(group: StatsGroup) -> StatsGroup:
    return group


_ORDERS: dict[str, Callable[[StatsGroup], Any]] = {
    "name": lambda group: group.name,
    "size": lambda group: -group.stats.size_bytes,
    "records": lambda group: -group.stats.records,
}


# ---- output for people ----


def _print_all(groups: list[StatsGroup], by: str | None, gaps: bool) -> None:
    if by:
        _print_lines([*groups, *([total(groups)] if len(groups) > 1 else [])])
    else:
        for group in groups:
            _print_report(group)
    _print_ranges(groups, gaps)


def _print_lines(groups: list[StatsGroup]) -> None:
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
    common.print_table(columns, rows, right)


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
    found = [f"{label} {getattr(missing, name)}" for name, label in names.items() if getattr(missing, name)]
    return ", ".join(found) or None


def _print_report(group: StatsGroup) -> None:
    stats, missing = group.stats, group.missing
    _print_summary(group)
    click.echo()
    codecs = [
        (codec_name(number), c.batches, c.records, size_text(c.stored_bytes), size_text(c.raw_bytes),
         _number(c.ratio, 2))
        for number, c in sorted(stats.codecs.items())
    ]  # fmt: skip
    heads = ["CODEC", "BATCHES", "RECORDS", "STORED", "DECOMPRESSED", "RATIO"]
    common.print_table(heads, codecs, heads[1:])
    click.echo()
    parts = (("record", stats.record_sizes), ("key", stats.key_sizes), ("value", stats.value_sizes))
    heads = ["BYTES OF", "COUNT", "MIN", "MEAN", "P50", "P90", "P99", "MAX", "TOTAL"]
    sizes = [
        (name, h.count, h.least if h.count else None, _number(h.mean, 1), h.percentile(50), h.percentile(90),
         h.percentile(99), h.largest if h.count else None, size_text(h.total))
        for name, h in parts
    ]  # fmt: skip
    common.print_table(heads, sizes, heads[1:])
    if not group.is_whole:
        return
    click.echo()
    reasons = [
        ("markers", missing.markers, "control records: consumers skip them"),
        ("log start", missing.below_start, f"retention or delete requests; {missing.still_there} still in the files"),
        ("compaction", missing.compaction, "removed by the cleaner"),
        ("damage", missing.damage, "in batches that cannot be read"),
        ("unexplained", missing.unexplained, "between batches"),
    ]
    if missing.unread:
        reasons.append(("not looked at", missing.unread, "encrypted, and there is no key (--keys)"))
    common.print_table(["MISSING OFFSETS", "COUNT", "WHY"], reasons, ["COUNT"])


def _print_ranges(groups: list[StatsGroup], everything: bool) -> None:
    found = [each for group in groups for each in group.ranges if everything or each.is_news]
    shown = found if everything else found[:_SHOWN]
    if not shown:
        return
    click.echo()
    table = [
        (s.name, offsets_text(s.first_offset, s.end_offset), s.end_offset - s.first_offset, s.reason) for s in shown
    ]
    common.print_table(["PARTITION", "MISSING", "COUNT", "WHY"], table, ["COUNT"])
    if len(found) > len(shown):
        say(f"and {len(found) - len(shown)} more ranges (--gaps lists them)")
    unlisted = sum(group.unlisted for group in groups)
    if unlisted:
        say(f"and {unlisted} more ranges that are only counted")


def _print_summary(group: StatsGroup) -> None:
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
        say(f"{label:<11} {fact}")
