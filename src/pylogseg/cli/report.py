"""`pylogseg report`: the contents and the faults of a disk, as one page."""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.options import decompressed_option, question_option, time_options
from pylogseg.cli.outputs import check_output, refuse_overwriting
from pylogseg.cli.streams import say
from pylogseg.cli.tiers import Local
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.errors import RequestError
from pylogseg.format.words import size_text
from pylogseg.reading.selection import check_times
from pylogseg.reading.state import Throttle
from pylogseg.reporting.cluster import cluster_ids
from pylogseg.reporting.comparing import earlier_facts
from pylogseg.reporting.facts import Since
from pylogseg.reporting.gather import gather
from pylogseg.reporting.options import ReportOptions
from pylogseg.reporting.report import Report, check_decoding, partitions_to_scan

_EPILOG = """\b
Examples:
  pylogseg report /data/kafka -o report.html            all of a log directory
  pylogseg report /data/kafka orders -o orders.html     one topic
  pylogseg report /data/1 /data/2 -o broker.html        all disks of a broker
  pylogseg report /data/kafka --full -o report.html     read and check every byte
  pylogseg report /data/kafka --json | jq .findings
  pylogseg report /data/kafka -o report.html --csv tables
  pylogseg report /data/kafka --compare yesterday.json -o report.html

\b
The page is one file: it needs no network, and opens from the disk. By default
batch headers and a sample of records are read (about 1 MB of a partition), and
the page says what was not read. Segments whose headers do not tell all (legacy
formats, damage, torn ends) are read whole. --full reads and checks everything,
as verify and stats do. Headers of local disks are read by one thread.
Nothing is locked or written in DIR: it may be that of a running broker. Segments
that the broker deletes meanwhile are named.
The page shows no keys and values, unless --sample is given: decoded, where _schemas
or --registry has a schema of the topic. Secrets in Kafka's own topics are masked.
No registry is asked that is not named.

\b
--compare EARLIER is for a report of the same cluster, made by --json before: which
partitions are gone, were cut, made again, are new or moved (and how fast), findings
that are new or gone, where groups stood, settings and replicas. The exit code is
that of the verdict.

\b
Exit codes, as those of verify: 0 no damage; 1 damage was found, or the disk could
not read a file; 2 wrong usage, another disk error, or no damage in what was looked
at, and the rest was not, or it is not known whether something is missing; 130
interrupted: no file is left.
"""


@click.command(epilog=_EPILOG)
@common.selection_options
@click.option("--output", "-o", metavar="FILE", type=Local(), help="Write the page to FILE.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@click.option("--full", is_flag=True, help="Read and check every byte, instead of headers and a sample.")
@time_options("Only batches from this time on")
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Show the keys and values of the newest N records of each partition, and the hottest keys.",
)
@click.option(
    "--value-as",
    type=click.Choice(["schema", "text"]),
    help="With --sample: text decodes nothing, schema names topics without a schema. Default: decode topics that "
    "have a schema.",
)
@click.option(
    "--registry",
    metavar="WHERE",
    help="With --sample: where schemas are, a log directory with _schemas, a folder of .avsc and .proto files, a "
    "registry's URL. Default: the given paths.",
)
@click.option(
    "--config",
    "-c",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of topics by Kafka's name, for the bytes that could be freed; repeatable. Overrides the topic's.",
)
@click.option(
    "--server-properties", metavar="FILE", help="File of the broker's settings, used where the metadata has none."
)
@click.option(
    "--now",
    metavar="TIME",
    callback=common.parse_with(common.parse_moment),
    help="Use TIME as the current time, for ages, rates and retention; default: the clock.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
@click.option("--csv", "csv_folder", metavar="FOLDER", type=Local(), help="Write the tables to FOLDER, as CSV.")
@click.option(
    "--compare",
    metavar="EARLIER",
    type=Local(),
    help="Say what changed since an earlier report of the cluster: EARLIER is what its --json printed.",
)
@decompressed_option()
@question_option("max_bytes_per_second")
@workers_option
def report(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    output: str | None,
    overwrite: bool,
    full: bool,
    since: int | None,
    until: int | None,
    sample: int,
    value_as: str | None,
    registry: str | None,
    settings: tuple[str, ...],
    server_properties: str | None,
    now: int | None,
    as_json: bool,
    csv_folder: str | None,
    compare: str | None,
    max_decompressed_bytes: int,
    max_bytes_per_second: int | None,
    workers: Workers,
) -> None:
    """Write one HTML page about a disk: its contents, and everything that is wrong with them."""
    if output is None and csv_folder is None and compare is None and not as_json:
        raise click.UsageError("nothing to do: give -o FILE, --json, --csv FOLDER or --compare EARLIER")
    for name, value in {"-o": output, "--csv": csv_folder}.items():
        if value == "":
            raise RequestError(f"{name}: the name is empty")
    check_times(since, until)
    check_decoding(sample, registry, value_as)
    paths, _, _ = common.split_arguments(arguments)
    chosen = common.select(arguments, topic, partition, from_log_start=False)
    for place in (output, csv_folder):
        if place is not None:
            check_output(Path(place), chosen.disk)
    if output is not None:
        refuse_overwriting(Path(output), overwrite)
    if compare is not None:  # before much is read
        earlier_facts(compare, cluster_ids(chosen.disk), time.time_ns() // 1_000_000 if now is None else now)
    config = common.parse_settings(settings)
    options = ReportOptions(
        full=full,
        since=since,
        until=until,
        payloads=sample,
        registry=registry,
        value_as=value_as,
        throttle=Throttle.of(max_bytes_per_second),
        limit_bytes=max_decompressed_bytes,
        choice=chosen.choice,
        config=config,
        server_properties=server_properties,
        paths=paths,
        now_ms=time.time_ns() // 1_000_000 if now is None else now,
    )
    scanned = partitions_to_scan(chosen.disk, chosen.choice)
    size = sum(segment.size for p in scanned for segment in p.segments)
    size += sum(segment.size for segment in chosen.disk.loose)
    with workers.executor() as executor, common.progress(size, "report") as advance:
        result = Report(gather(chosen.disk, scanned, options, executor, advance))
    if compare is not None:
        result = result.since(compare)
    if output is not None:
        result.write(output)
    if csv_folder is not None:
        result.write_csv(csv_folder)
    if as_json:
        common.print_json(result.to_dict())
    else:
        say(result.facts.verdict)
        for text in () if result.facts.since is None else since_lines(result.facts.since):
            say(text)
        for path in (output, csv_folder):
            if path is not None:
                say(path)
    common.end_with_code(result.exit_code)


# ---- what changed since an earlier report ----

_Row = dict[str, Any]
#: Lines of each kind.
_MOST = 10
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def since_lines(since: Since) -> Iterator[str]:
    moment = datetime.datetime.fromtimestamp(since.made_ms / 1000, datetime.timezone.utc)
    yield f"Since {moment:%Y-%m-%d %H:%M:%S} UTC ({duration_text(since.span_ms)}, {since.source}):"
    yield f"  size: {size_text(since.size_before)} -> {size_text(since.size_after)}"
    counts = Counter(change["what"] for change in since.partitions)
    counted = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    yield f"  partitions: {counted + ', ' if counted else ''}{since.partitions_same:,} as they were"
    yield from _some(since.partitions, _partition)
    findings = Counter(change["what"] for change in since.findings)
    yield f"  findings: {findings['new']:,} new, {findings['gone']:,} gone, {since.findings_same:,} the same"
    yield from _some(since.findings, lambda each: f"{each['what']}: {each['level']}, {each['path']}: {each['reason']}")
    changed = [group for group in since.groups if group["what"] != "same"]
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
    unread = "" if age is None else f", the first unread record is {duration_text(age)} old"
    return f"{change['what']}: {change['group']}: lag {lags}{unread}"


def _number(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _size(value: int | None) -> str:
    return "size not known" if value is None else size_text(value)


def _brokers(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "none"


def duration_text(ms: int) -> str:
    """Return a length of time for people."""
    for unit, size in _UNITS:
        if ms >= size:
            return f"{ms / size:,.1f} {unit}s"
    return f"{ms:,} ms"
