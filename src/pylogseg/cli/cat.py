"""`pylogseg cat`: print records as text."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.bar import Bar
from pylogseg.cli.follow import Gaps, Selector, follow, follow_option
from pylogseg.cli.losses import report_losses
from pylogseg.cli.output import Output, RecordText, output_options
from pylogseg.cli.query import Query, query_options
from pylogseg.cli.tail import last_records
from pylogseg.env.executor import Threads, Workload
from pylogseg.errors import RequestError
from pylogseg.format.text import TextBuffer
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.merged import merge_by_time
from pylogseg.reading.partition import Chunk
from pylogseg.reading.ranges import PART_BYTES
from pylogseg.walker.windows import SMALL_WINDOW_BYTES, WINDOW_BYTES

#: For the windows of all partitions together; each has at least `SMALL_WINDOW_BYTES`.
_WINDOWS_BYTES = 64 << 20
#: Open files of the process other than those of partitions.
_OTHER_FILES = 64

_EPILOG = r"""\b
Examples:
  pylogseg cat /data/kafka orders-3                    a partition as JSON lines
  pylogseg cat /data/kafka orders --since 2h           by time, all partitions
  pylogseg cat /data/kafka orders-3 --offset 500:600   offsets 500 to 599
  pylogseg cat /data/kafka orders-3 --tail 10 --follow the end, and new records
  pylogseg cat /data/kafka orders --key user-17        one key
  pylogseg cat /data/kafka orders --latest             the last value of each key
  pylogseg cat /data/kafka orders payments --merge time --since 1h
  pylogseg cat 00000000000000000000.log --csv --fields offset,key,value
  pylogseg cat /data/kafka orders -f '%p/%o %k=%s\n'   kcat's template
  pylogseg cat /data/kafka orders --value-as schema    typed values as JSON
  pylogseg cat /data/kafka --merge time --since 1h --value-as schema

\b
A payload that is not UTF-8 is written as base64:... (so is text that itself
begins with base64:). For binary payloads use --value-as base64 or hex, for
payloads that are JSON --value-as json.
--value-as schema decodes values by the schemas of the topic _schemas, or those
that --registry names, each topic by its own. A payload that cannot be decoded is
written as text, and counted at the end: exit code 1. Of several topics, one without
a schema is written as text, with a note.
--internal prints keys and values of __consumer_offsets, __transaction_state,
__share_group_state, __remote_log_metadata and __cluster_metadata as JSON, with
Kafka's names of types and fields. Secrets are masked unless --show-secrets.
Partitions are printed one after the other, each in offset order.
--merge time interleaves them by timestamp, then topic, partition and offset. The
records of one partition stay in offset order: a record with an earlier timestamp
than its predecessor follows it directly, and a record with a timestamp far ahead
delays the records after it.
Records below the log start offset are not shown, as to a consumer.

\b
Exit codes: 0 success; 1 damage was found, or a broker removed records meanwhile;
2 wrong usage or a disk error (what the disk cannot read is reported and left out,
the rest is printed; with --on-corrupt skip the code is 1); 130 interrupted (also
the end of --follow). A closed pipe is not an error.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@common.selection_options
@output_options
@query_options()
@click.option("--limit", "-n", type=click.IntRange(min=0), metavar="N", help="Print at most N records in total.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Print the last N records of each partition.")
@follow_option
@click.option("--merge", type=click.Choice(["time"]), help="Print the records of all partitions in one order.")
@common.jobs_option
def cat(**given: Any) -> None:
    """Print records as JSON lines, as CSV or with a template."""
    print_chosen(**given)


def print_chosen(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    output: Output,
    query: Query,
    limit: int | None,
    jobs: int,
    tail: int | None = None,
    following: bool = False,
    merge: str | None = None,
) -> None:
    """Print the records that the options of `cat` choose, and end the command."""
    text = output.text()
    query = query.with_key(output.key_as, limit if tail is None else tail)
    chosen = common.select(arguments, topic, partition, from_log_start=query.selection.from_log_start)
    readers = query.readers(chosen.logs())
    if tail is not None:
        readers = [last_records(part, tail) for part in readers]
    text.typed = output.payloads(arguments, readers)
    if following and merge:
        raise click.UsageError("--merge cannot be combined with --follow: it needs all records before it starts")
    if not following:
        _print_selected(text, readers, chosen.size, limit, jobs if tail is None else 1, merge is not None)
        return
    gaps = Gaps()
    selector = Selector(arguments, topic, partition)
    count = print_records(text, follow(query, readers, chosen, gaps, selector), limit)
    common.end_with(gaps.damage | text.has_undecoded())
    if limit is None or count < limit:
        click.get_current_context().exit(2)


def _print_selected(
    text: RecordText, readers: list[LogReader], total_bytes: int, limit: int | None, jobs: int, merged: bool = False
) -> None:
    gaps = Gaps()
    # The latest records are known only after everything was read, whatever the limit.
    is_latest = any(part.selection.latest for part in readers)
    is_soon = limit is not None and not is_latest
    passes = 1 + is_latest  # one for the keys, one for the records
    with Bar(0 if is_soon else passes * total_bytes, "reading") as bar:
        count = 0
        if merged:
            _print_merged(text, readers, limit, gaps, bar)
        elif limit is not None or jobs == 1:
            chunks = (gaps.chunks(part.apart(bar), bar) for part in readers)
            count = print_records(text, itertools.chain.from_iterable(chunks), limit, bar)
        else:
            _print_all(text, readers, jobs, gaps, bar)
    gaps.damage |= (limit is None or count < limit) and report_losses(readers)
    common.end_with(gaps.damage | text.has_undecoded())


def _print_all(text: RecordText, readers: list[LogReader], jobs: int, gaps: Gaps, bar: Bar) -> None:
    """Write all records to stdout; several threads make their text."""
    common.write_stdout(text.head)
    parts = [part for reader in readers for part in reader.parts(PART_BYTES)]
    load = Workload(on_bytes=bar)
    for item in Threads(jobs).stream(lambda part, emit, tick: text.emit(part.apart(tick), emit), parts, load):
        if isinstance(item, bytes):
            with bar.pause(sys.stdout, item.endswith(b"\n")):
                common.write_stdout(item)
                sys.stdout.buffer.flush()
        elif item:
            with bar.pause(sys.stderr):
                gaps.report(item)


def print_records(text: RecordText, chunks: Iterator[Chunk], limit: int | None, bar: Bar | None = None) -> int:
    bar = bar or Bar(0, "")
    if text.head:
        common.write_stdout(text.head)
    out, count = TextBuffer(), 0
    if limit == 0:
        return 0
    for chunk in chunks:
        columns = chunk.columns
        if limit is not None and len(columns) > limit - count:
            columns = columns.take(slice(0, limit - count))
        for piece in text.slices(columns, chunk.segment, out):
            with bar.pause(sys.stdout, text.ends_lines):
                common.write_stdout(piece)
                sys.stdout.buffer.flush()
        count += len(columns)
        if limit is not None and count >= limit:
            break
    return count


# ---- all partitions in one order ----


def _print_merged(text: RecordText, readers: list[LogReader], limit: int | None, gaps: Gaps, bar: Bar) -> None:
    """Write the records of all partitions to stdout by timestamp, topic, partition and offset."""
    readers = sorted(readers, key=_place)
    # With latest, each has a file of keys too.
    files = 2 if any(part.selection.latest for part in readers) else 1
    _allow_files(len(readers), len(readers) * files + _OTHER_FILES)
    window = min(max(_WINDOWS_BYTES // max(len(readers), 1), SMALL_WINDOW_BYTES), WINDOW_BYTES)
    parts = [part.apart(bar) for part in readers]
    parts = [replace(part, state=replace(part.state, window_bytes=window)) for part in parts]
    if text.head:
        common.write_stdout(text.head)
    out, left = TextBuffer(), limit
    for pieces, order in merge_by_time([gaps.chunks(part, bar) for part in parts]) if left != 0 else ():
        texts = list(
            itertools.chain.from_iterable(
                text.each(chunk.columns, chunk.segment, out, start, stop) for chunk, start, stop in pieces
            )
        )
        with bar.pause(sys.stdout, text.ends_lines):
            common.write_stdout(b"".join([texts[i] for i in order[:left].tolist()]))
            sys.stdout.buffer.flush()
        left = None if left is None else left - len(order[:left])
        if left == 0:
            return


def _allow_files(count: int, needed: int) -> None:
    """Raise the limit of open files if the partitions need more at the same time."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        raise RequestError(
            f"merging {count} partitions needs {needed} open files, and the limit is {most}: "
            "name fewer partitions, or raise the limit (ulimit -n)"
        )
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))


def _place(part: LogReader) -> tuple[str, int, str]:
    segment = part.log.segments[0] if part.log.segments else None
    return (segment.topic, segment.partition, segment.path) if segment else ("", -1, part.name)
