"""`pylogseg stats`: what is in the records, and which offsets are missing and why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click

from pylogseg.cli import common
from pylogseg.jobs.pool import Advance, map_ordered
from pylogseg.jobs.stats import Stats, segment_stats
from pylogseg.jobs.stats_groups import TIME_TYPES, Group, Unit, codec_name, group_key, stats_row, total, units_of
from pylogseg.jobs.stats_missing import Missing
from pylogseg.reading.findings import offsets_text
from pylogseg.reading.partition import Throttle

_SHOWN = 20

_EPILOG = """\b
Examples:
  pylogseg stats /data/kafka                      everything together
  pylogseg stats /data/kafka orders               one topic
  pylogseg stats /data/kafka --by topic           a line for each topic, and a total
  pylogseg stats /data/kafka --by partition --json
  pylogseg stats /data/kafka orders-3 --gaps      which offsets are missing

\b
Missing offsets, by reason:
  markers      taken by control records, which consumers skip
  log start    below it: removed by retention, or on a client's request
  compaction   removed by the cleaner, as empty batches, delete horizons,
               thinned batches or its checkpoint tell
  damage       of batches that cannot be read
  unexplained  between two batches, and nothing tells why
The ranges of the last two are listed, those of all reasons with --gaps; JSON
has them as missingRanges. Both ends are inclusive.

\b
Sizes are of keys and values, without framing. Percentiles are at most 6 % too
high; distinct keys are exact up to 8191, then within about 1 %.
Exit codes: 0 fine; 1 damage was found; 2 wrong usage, or the disk failed.
"""


@click.command(epilog=_EPILOG)
@common.selection_options
@click.option("--by", type=click.Choice(["topic", "partition"]), help="A line for each topic or partition.")
@click.option("--gaps", is_flag=True, help="List all ranges of missing offsets, not only those of damage or no reason.")
@common.json_option
@common.decompressed_option("counts as damaged")
@common.rate_option
@click.option(
    "--drop-behind/--keep-pages", default=True, help="Give read pages of the page cache back (default), or not."
)
@common.jobs_option
def stats(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    by: str | None,
    gaps: bool,
    as_json: bool,
    max_decompressed_bytes: int,
    max_bytes_per_second: int | None,
    drop_behind: bool,
    jobs: int,
) -> None:
    """Batches, codecs, sizes, keys, producers, and gaps explained."""
    chosen = common.select(arguments, topic, partition)
    throttle = None if max_bytes_per_second is None else Throttle(max_bytes_per_second)
    groups: dict[str, Group] = {}
    with common.progress(chosen.size, "counting") as advance:
        for unit, rows in _counted(chosen, max_decompressed_bytes, throttle, drop_behind, jobs, advance):
            key = group_key(unit.name, by)
            groups.setdefault(key, Group(key)).add(unit.name, rows, unit.log_start_offset, unit.is_cleaned)
    damage = False
    for group in groups.values():
        damage |= common.report_gaps(group.stats.gaps)
    if as_json:
        for group in groups.values():
            common.print_json(stats_row(group))
    elif by:
        _print_lines([*groups.values(), *([total(groups.values())] if len(groups) > 1 else [])])
    else:
        for group in groups.values():
            _print_report(group)
    if not as_json:
        _print_stretches(list(groups.values()), gaps)
    common.end_with_unreadable([p.error for p in chosen.live_partitions()], damage)


def _counted(
    chosen: common.Selection,
    limit_bytes: int,
    throttle: Throttle | None,
    drop_behind: bool,
    jobs: int,
    on_progress: Advance,
) -> Iterator[tuple[Unit, Iterator[Stats]]]:
    """Each partition, and the counts of its segments: to be taken before the next one."""
    units = units_of(chosen.disk, chosen.live_partitions())
    segments = [segment for unit in units for segment in unit.segments]
    rows = map_ordered(
        lambda segment, advance: segment_stats(
            segment, advance, limit_bytes=limit_bytes, throttle=throttle, drop_behind=drop_behind
        ),
        segments,
        jobs,
        on_progress,
    )
    for unit in units:
        yield unit, islice(rows, len(unit.segments))


# ---- for a person ----


def _print_lines(groups: list[Group]) -> None:
    columns = ["NAME", "RECORDS", "BATCHES", "SIZE", "CODECS", "RATIO", "MEAN SIZE", "KEYS", "TOMBSTONES", "GAPS"]
    rows = [
        (
            group.name,
            group.stats.records,
            group.stats.batches,
            common.size_text(group.stats.size_bytes),
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
    common.print_table(columns, rows, right)


def _ratio(stats: Stats) -> float | None:
    body = sum(codec.body_bytes for codec in stats.codecs.values())
    return sum(codec.raw_bytes for codec in stats.codecs.values()) / body if body else None


def _number(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _distinct(stats: Stats) -> str:
    return f"{'' if stats.keys.is_exact else '~'}{stats.keys.count}"


def _gaps(missing: Missing) -> str | None:
    names = {"markers": "markers", "below_start": "log start", "compaction": "compaction", "damage": "damage",
             "unexplained": "unexplained"}  # fmt: skip
    found = [f"{label} {getattr(missing, name)}" for name, label in names.items() if getattr(missing, name)]
    return ", ".join(found) or None


def _print_report(group: Group) -> None:
    stats, missing = group.stats, group.missing
    _print_facts(group)
    click.echo()
    codecs = [
        (codec_name(number), c.batches, c.records, common.size_text(c.stored_bytes), common.size_text(c.raw_bytes),
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
         h.percentile(99), h.largest if h.count else None, common.size_text(h.total))
        for name, h in parts
    ]  # fmt: skip
    common.print_table(heads, sizes, heads[1:])
    click.echo()
    reasons = [
        ("markers", missing.markers, "control records: consumers skip them"),
        ("log start", missing.below_start, f"retention or delete requests; {missing.still_there} still in the files"),
        ("compaction", missing.compaction, "removed by the cleaner"),
        ("damage", missing.damage, "in batches that cannot be read"),
        ("unexplained", missing.unexplained, "between batches"),
    ]
    common.print_table(["MISSING OFFSETS", "COUNT", "WHY"], reasons, ["COUNT"])


def _print_stretches(groups: list[Group], everything: bool) -> None:
    found = [stretch for group in groups for stretch in group.stretches if everything or stretch.is_news]
    shown = found if everything else found[:_SHOWN]
    if not shown:
        return
    click.echo()
    table = [
        (s.name, offsets_text(s.first_offset, s.end_offset), s.end_offset - s.first_offset, s.reason) for s in shown
    ]
    common.print_table(["PARTITION", "MISSING", "COUNT", "WHY"], table, ["COUNT"])
    if len(found) > len(shown):
        click.echo(f"and {len(found) - len(shown)} more ranges (--gaps lists them)")
    unlisted = sum(group.unlisted for group in groups)
    if unlisted:
        click.echo(f"and {unlisted} more ranges that are only counted")


def _print_facts(group: Group) -> None:
    stats = group.stats
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(stats.markers.items()))
    magics = ", ".join(f"{count} of magic {magic}" for magic, count in sorted(stats.magics.items()))
    times = ", ".join(f"{count} {TIME_TYPES[kind]}" for kind, count in sorted(stats.time_types.items()))
    facts = [
        ("partitions", f"{group.partitions}, {stats.segments} segments, {common.size_text(stats.size_bytes)}"),
        ("batches", f"{stats.batches}: {magics or 'none'}; {stats.empty_batches} empty"),
        ("records", f"{stats.records}, {stats.headers} headers, {stats.tombstones} tombstones"),
        ("control", f"{stats.control_records} records{': ' + kinds if kinds else ''}"),
        ("keys", f"{_distinct(stats)} different, {stats.null_keys} records without"),
        ("producers", f"{len(stats.producers)} with an id, {stats.transactional_batches} transactional batches"),
        ("times", f"{common.time_text(stats.least_timestamp) or 'none'} to "
                  f"{common.time_text(stats.largest_timestamp) or 'none'}; batches: {times or 'none'}"),
    ]  # fmt: skip
    for label, fact in facts:
        click.echo(f"{label:<11} {fact}")
