"""`pylogseg grep`: records that hold something."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import numpy as np

from pylogseg.cli import common
from pylogseg.cli.output import RecordText, output_options, record_text
from pylogseg.cli.query import bytes_of, make_query, query_options
from pylogseg.errors import CorruptionError
from pylogseg.format.text import TextBuffer
from pylogseg.jobs.grep import Pattern, regular_expression
from pylogseg.jobs.pool import Advance, stream_ordered
from pylogseg.reading.findings import Gap
from pylogseg.reading.wanted import Wanted

_EPILOG = r"""\b
Examples:
  pylogseg grep user-17 /data/kafka orders             in keys and values
  pylogseg grep -E '"total":[0-9]{4,}' /data/kafka     a regular expression
  pylogseg grep --hex 00000001 /data/kafka --in value  bytes
  pylogseg grep trace-42 /data/kafka --in headers -c   how many
  pylogseg grep -l user-17 /data/kafka                 in which partitions

\b
Records are printed as by cat, with its options. Text and bytes are looked for
by all processors, and so are regular expressions, but for those that only
Python's re knows (look-around, references, \s, $ but at the end).

\b
Exit codes, as grep's: 0 found; 1 nothing found; 2 wrong usage, the disk failed,
or damage was met (with --on-corrupt skip or stop too: what was not read was
not searched); 130 interrupted.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@click.argument("pattern")
@common.selection_options
@click.option("--regex", "-E", is_flag=True, help="PATTERN is a regular expression, on bytes.")
@click.option("--hex", "as_hex", is_flag=True, help="PATTERN is bytes, written in hex.")
@click.option("--ignore-case", "-i", is_flag=True, help="Letters of ASCII in both cases.")
@click.option("--in", "places", default="key,value", show_default=True, metavar="A,B", help="Of key, value, headers.")
@click.option("--invert", "-v", is_flag=True, help="Records that do not match.")
@click.option("--count", "-c", "counting", is_flag=True, help="Only how many, for each partition.")
@click.option("--names", "-l", is_flag=True, help="Only the names of partitions with a match.")
@click.option("--limit", "-n", type=click.IntRange(min=1), metavar="N", help="At most N records.")
@output_options
@query_options()
@common.jobs_option
def grep(
    pattern: str,
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    regex: bool,
    as_hex: bool,
    ignore_case: bool,
    places: str,
    invert: bool,
    counting: bool,
    names: bool,
    limit: int | None,
    template: str | None,
    as_csv: bool,
    key_as: str,
    value_as: str,
    fields: str | None,
    headers: bool,
    jobs: int,
    **ranges: Any,
) -> None:
    """Records that hold a text, a regular expression or bytes."""
    if regex and as_hex:
        raise click.UsageError("a pattern is a regular expression or hex, not both")
    if limit is not None and (counting or names):
        raise click.UsageError("--limit is for records, not for counts and names")
    needle = regular_expression(pattern, ignore_case) if regex else bytes_of(pattern, "hex" if as_hex else "text")
    wish = Pattern(needle, [place.strip() for place in places.split(",")], ignore_case, invert)
    text = record_text(template, as_csv, key_as, value_as, fields, headers)
    query = make_query(key_as=key_as, limit=limit, **ranges)
    chosen = common.select(arguments, topic, partition)
    logs = chosen.logs(from_log_start=not ranges["below_log_start"])
    parts = [part for log in logs for part in query.of(log).by_segment()]
    search = _Search(wish, text, limit, count=counting, names=names)
    try:
        with common.progress(0 if common.is_terminal(sys.stdout) else chosen.size, "searching") as advance:
            found = search.run(parts, jobs, advance)
    except CorruptionError as error:
        click.echo(f"pylogseg: {common.remedy(error)}", err=True)
        click.get_current_context().exit(2)
    if counting or names:
        _print_counts(search.counts, names)
    click.get_current_context().exit(2 if search.damage else 0 if found else 1)


def _print_counts(counts: dict[str, int], names: bool) -> None:
    for name, count in counts.items():
        if names and count:
            click.echo(name)
        elif not names:
            click.echo(f"{name}:{count}" if len(counts) > 1 else count)


class _Row(NamedTuple):
    """The outcome of one part."""

    name: str
    matched: int
    gaps: list[Gap]


class _Search:
    """One run of grep: what is looked for, how it is printed, and what was found."""

    def __init__(self, wish: Pattern, text: RecordText, limit: int | None, *, count: bool, names: bool) -> None:
        self._wish, self._text, self._limit, self._names = wish, text, limit, names
        self._quiet = count or names
        self.counts: dict[str, int] = {}
        self.damage = False

    def run(self, parts: list[Wanted], jobs: int, on_progress: Callable[[int], None]) -> bool:
        """Search, and print what is found; whether anything was."""
        if self._text.head and not self._quiet:
            common.write(self._text.head)
        printed = 0
        for item in stream_ordered(self._search, parts, jobs, on_progress):
            if isinstance(item, bytes):
                common.write(item)
                sys.stdout.buffer.flush()
                printed += 1
                if printed == self._limit:  # each piece is one record then
                    return True
                continue
            self.counts[item.name] = self.counts.get(item.name, 0) + item.matched
            self.damage |= common.report_gaps(item.gaps)
        return any(self.counts.values())

    def _search(self, part: Wanted, emit: Callable[[bytes], None], advance: Advance) -> _Row:
        """One part, on a thread of its own."""
        part, out, count = part.apart(advance), TextBuffer(), 0
        for columns, segment in part.chunks():
            rows = np.flatnonzero(self._wish.matches(columns))
            count += len(rows)
            if self._quiet:
                if self._names and count:
                    break
                continue
            if not len(rows):
                continue
            for piece in self._text.slices(columns.take(rows), segment, out, 1 if self._limit else None):
                emit(bytes(piece))
        return _Row(part.name, count, part.gaps)
