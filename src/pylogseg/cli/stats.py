"""`pylogseg stats`: count records, batches and bytes, and explain missing offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.losses import report_losses
from pylogseg.cli.options import reading_options, time_options
from pylogseg.cli.outcomes import print_list, print_rows
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.format.moments import time_text
from pylogseg.format.outcome import Headings
from pylogseg.format.scratch import Scratch
from pylogseg.format.text import payload_text
from pylogseg.format.words import size_text
from pylogseg.inspect.stats.counting import Counting, count_units
from pylogseg.inspect.stats.groups import (
    StatsGroup,
    units_of,
    units_since,
)
from pylogseg.inspect.stats.shown import StatsReport
from pylogseg.inspect.stats.top_lines import shown_key
from pylogseg.inspect.stats.tops import Tops
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading, ReadState, Throttle

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
        by_name = dict(count_units(units, by, how, _whole, executor, advance))
    groups = sorted(by_name.values(), key=_ORDERS[sort]) if sort else list(by_name.values())
    damage = False
    for group in groups:
        damage |= common.report_gaps(group.stats.gaps)
    damage |= report_losses(LogReader.of(log, selection, reading.start()) for log in chosen.logs())
    report = StatsReport(groups, reading.max_decompressed_bytes, by is not None, gaps, notes)
    print_list(report, as_json)
    common.end_with_unreadable([p.error for p in chosen.live_partitions()], damage or bool(report.exit_code))


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
        table, gaps = counted_records(parts, by, executor, advance)
    damage = common.report_gaps(gaps) | report_losses(readers)
    rows = _plain(table).to_pylist()
    if as_json and by == "key":
        rows = [row | {"key": payload_text(row["key"])} for row in rows]
    headings: Headings = {
        "TOPIC": "topic",
        by.upper(): lambda row: time_text(row[by]) if by == "hour" else shown_key(row[by], len(row[by] or b"")),
        "RECORDS": "records",
        "SIZE": lambda row: size_text(row["bytes"]),
    }
    print_rows(rows, headings, as_json, ["SIZE"])
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
