"""`pylogseg cat`: records as text."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import click

from pylogseg.cli import common
from pylogseg.cli.output import RecordText, output_options, record_text
from pylogseg.cli.query import OffsetRange, Query, make_query, query_options
from pylogseg.cli.tail import Followed, Following, last_records
from pylogseg.errors import RequestError
from pylogseg.format.text import TextBuffer
from pylogseg.jobs.pool import stream_ordered
from pylogseg.reading.findings import Gap
from pylogseg.reading.partition import Chunk
from pylogseg.reading.wanted import Wanted

_EPILOG = r"""\b
Examples:
  pylogseg cat /data/kafka orders-3                    a partition as JSON lines
  pylogseg cat /data/kafka orders --since 2h           by time, all partitions
  pylogseg cat /data/kafka orders-3 --offset 500:600   offsets 500 to 599
  pylogseg cat /data/kafka orders-3 --tail 10 --follow the end, and what comes
  pylogseg cat /data/kafka orders --key user-17        one key
  pylogseg cat /data/kafka orders --latest             the last value of each key
  pylogseg cat 00000000000000000000.log --csv --fields offset,key,value
  pylogseg cat /data/kafka orders -f '%p/%o %k=%s\n'   kcat's template

\b
A payload that is no UTF-8 is written as base64:... (and so is text that begins
with base64: itself); --value-as base64 or hex is for payloads that are not text,
json for those that are JSON themselves.
Partitions come one after the other, each in the order of its offsets.
Records below the log start offset are not shown, as to a consumer.

\b
Exit codes: 0 fine; 1 damage was met; 2 wrong usage or the disk failed;
130 interrupted (also the end of --follow). A closed pipe is no error.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@common.selection_options
@output_options
@query_options()
@click.option("--limit", "-n", type=click.IntRange(min=0), metavar="N", help="At most N records in all.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="The last N records of each partition.")
@click.option("--follow", "-F", "following", is_flag=True, help="Wait for new records, until Ctrl-C or --limit.")
@common.jobs_option
def cat(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    template: str | None,
    as_csv: bool,
    key_as: str,
    value_as: str,
    fields: str | None,
    headers: bool,
    limit: int | None,
    tail: int | None,
    following: bool,
    jobs: int,
    **ranges: Any,
) -> None:
    """Records as JSON lines, CSV or by a template."""
    text = record_text(template, as_csv, key_as, value_as, fields, headers)
    query = make_query(key_as=key_as, limit=limit if tail is None else tail, **ranges)
    chosen = common.select(arguments, topic, partition)
    wanted = wanted_of(query, chosen, ranges["below_log_start"], tail)
    if not following:
        print_wanted(text, wanted, chosen.size, limit, jobs if tail is None else 1)
        return
    gaps = Gaps()
    again = Again(arguments, topic, partition, ranges["below_log_start"])
    count = print_records(text, _following(query, wanted, chosen, gaps, again), limit)
    common.end_with(gaps.damage)
    if limit is None or count < limit:
        click.echo("pylogseg: no partition is left to follow", err=True)
        click.get_current_context().exit(2)


def wanted_of(query: Query, chosen: common.Selection, below_log_start: bool, tail: int | None = None) -> list[Wanted]:
    """What a query asks for of each log that was chosen; of that the last records, if `tail` is given."""
    wanted = [query.of(log) for log in chosen.logs(from_log_start=not below_log_start)]
    return wanted if tail is None else [last_records(part, tail) for part in wanted]


def print_wanted(text: RecordText, wanted: list[Wanted], total_bytes: int, limit: int | None, jobs: int) -> None:
    """Write all that is wanted to stdout, once, and end the command."""
    gaps = Gaps()
    quiet = limit is not None or common.is_terminal(sys.stdout)
    with common.progress(0 if quiet else total_bytes, "reading") as advance:
        if limit is not None or jobs == 1:
            print_records(text, _once(wanted, gaps, advance), limit)
        else:
            _print_all(text, wanted, jobs, gaps, advance)
    common.end_with(gaps.damage)


class Gaps:
    """Tells of each gap once, on stderr."""

    def __init__(self) -> None:
        self._told: set[tuple[str, int]] = set()
        self.damage = False

    def tell(self, gaps: Iterable[Gap], alarms_only: bool = False) -> None:
        """Tell of those that are new."""
        new = [gap for gap in gaps if (gap.path, gap.position) not in self._told and (gap.is_alarm or not alarms_only)]
        self._told.update((gap.path, gap.position) for gap in new)
        self.damage |= common.report_gaps(new)


def _once(wanted: list[Wanted], gaps: Gaps, advance: Callable[[int], None]) -> Iterator[Chunk]:
    for part in wanted:
        here = part.apart(advance)
        try:
            yield from here.chunks()
        finally:
            gaps.tell(here.gaps)


def _print_all(
    text: RecordText, wanted: list[Wanted], jobs: int, gaps: Gaps, on_progress: Callable[[int], None]
) -> None:
    """Write all records to stdout, their text made by several threads."""
    common.write(text.head)
    parts = [piece for part in wanted for piece in part.by_segment()]
    for item in stream_ordered(lambda part, emit, tick: text.emit(part.apart(tick), emit), parts, jobs, on_progress):
        if isinstance(item, bytes):
            common.write(item)
            sys.stdout.buffer.flush()
        else:
            gaps.tell(item)


class Again(NamedTuple):
    """What was asked for, to be looked for again."""

    arguments: tuple[str, ...]
    topic: tuple[str, ...]
    partition: tuple[int, ...]
    below_log_start: bool

    def followed(self, query: Query) -> list[Followed]:
        """The partitions that are there now, from their beginning."""
        try:
            chosen = common.select(self.arguments, self.topic, self.partition)
            logs = chosen.logs(from_log_start=not self.below_log_start)
        except RequestError:
            return []
        whole = replace(query, offsets=OffsetRange())
        return [Followed(whole.of(log), of) for log, of in zip(logs, chosen.live_partitions(), strict=False)]


def _following(
    query: Query, wanted: list[Wanted], chosen: common.Selection, gaps: Gaps, again: Again
) -> Iterator[Chunk]:
    """What is wanted of the partitions that were chosen, and what is appended to them."""
    if query.has_end:
        raise RequestError("--follow has no end: not with an end of --offset, and not with --until")
    if query.latest:
        raise RequestError("--follow has no end, so nothing is the latest: not with --latest")
    if chosen.disk.loose:
        raise RequestError("--follow needs a partition's folder, not a file: a file ends when its segment is rolled")
    parts = [Followed(part, of) for part, of in zip(wanted, chosen.live_partitions(), strict=True)]

    def tell(line: str) -> None:
        click.echo(f"pylogseg: {line}", err=True)

    followed = Following(parts, chosen.disk.log_dirs, lambda: again.followed(query), tell)
    for chunk in followed.chunks():
        yield chunk
        # A batch that is being written looks cut off: that is no news.
        gaps.tell(itertools.chain.from_iterable(part.wanted.gaps for part in followed.parts), alarms_only=True)


def print_records(text: RecordText, chunks: Iterator[Chunk], limit: int | None) -> int:
    """Write records to stdout; how many they were."""
    if text.head:
        common.write(text.head)
    out, count = TextBuffer(), 0
    if limit == 0:
        return 0
    for chunk in chunks:
        columns = chunk.columns
        if limit is not None and len(columns) > limit - count:
            columns = columns.take(slice(0, limit - count))
        for piece in text.slices(columns, chunk.segment, out):
            common.write(piece)
        count += len(columns)
        sys.stdout.buffer.flush()
        if limit is not None and count >= limit:
            break
    return count
