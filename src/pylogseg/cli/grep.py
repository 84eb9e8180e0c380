"""`pylogseg grep`: search records."""

from __future__ import annotations

import codecs
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

import click
import numpy as np
import numpy.typing as npt

from pylogseg.cli import common
from pylogseg.cli.bar import Bar
from pylogseg.cli.follow import Gaps, Selector, follow, follow_option
from pylogseg.cli.highlight import Highlighter, is_coloured
from pylogseg.cli.losses import report_losses
from pylogseg.cli.output import Output, RecordText, output_options
from pylogseg.cli.query import Query, parse_bytes, query_options
from pylogseg.cli.streams import say
from pylogseg.cli.typed import report_undecoded
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.disk.disk import Segment
from pylogseg.env.executor import Advance, Emit, Executor, Workload
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.records import RecordColumns
from pylogseg.format.text import TextBuffer
from pylogseg.inspect.search.patterns import AnyOf, Needle, regular_expression
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.partition import Chunk
from pylogseg.walker.gaps import Gap

if TYPE_CHECKING:
    from pylogseg.values.typed_text import PayloadText

_EPILOG = r"""\b
Examples:
  pylogseg grep user-17 /data/kafka orders             in keys and values
  pylogseg grep -E '"total":[0-9]{4,}' /data/kafka     a regular expression
  pylogseg grep -e user-17 -e user-18 /data/kafka      either text
  pylogseg grep --file users.txt /data/kafka --in key  any line of a file
  pylogseg grep --hex 00000001 /data/kafka --in value  bytes
  pylogseg grep trace-42 /data/kafka --in headers -c   count matches
  pylogseg grep -l user-17 /data/kafka                 list partitions
  pylogseg grep ERROR /data/kafka logs --follow --since now  new records
  pylogseg grep '"total":17.5' /data/kafka orders --value-as schema  typed values

\b
Matching records are printed as by cat, with its options. What --value-as schema,
--key-as schema and --internal make of records is searched as it is printed; a payload
that cannot be decoded is searched as it is, and counted at the end: exit code 2.
The search uses all processors, except for regular expressions that only Python's
re supports (look-around, back-references, \s, $ before the end).
With -e or --file, all arguments are paths and names. Many texts are searched at
once: a thousand take only a few times as long as ten. An empty pattern, as from
an unset variable, is refused; with --empty it matches all that is not null.
On a terminal, matches are coloured unless NO_COLOR is set; payloads written as
base64 or hex are not.

\b
Exit codes, like grep's: 0 found; 1 nothing found; 2 wrong usage, a disk error,
or damage (with --on-corrupt skip or stop too, since skipped data was not
searched), or a broker removed records meanwhile; 130 interrupted (also the end of --follow).
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@functools.partial(common.selection_options, first="[PATTERN] ")
@click.option("--pattern", "-e", "patterns", multiple=True, metavar="PATTERN", help="In place of PATTERN; repeatable.")
@click.option(
    "--file",
    type=click.File("rb"),
    metavar="FILE",
    help="Read patterns from FILE, one per line; - is stdin. (-f is --format.)",
)
@click.option("--regex", "-E", is_flag=True, help="Patterns are regular expressions, on bytes.")
@click.option("--hex", "as_hex", is_flag=True, help="Patterns are bytes in hex.")
@click.option("--empty", is_flag=True, help="Allow an empty pattern.")
@click.option("--ignore-case", "-i", is_flag=True, help="Ignore case (ASCII only).")
@click.option(
    "--in",
    "places",
    default="key,value",
    show_default=True,
    metavar="A,B",
    help="Where to search: key, value, headers.",
)
@click.option("--invert", "-v", is_flag=True, help="Print records that do not match.")
@click.option("--count", "-c", "counting", is_flag=True, help="Print only the number of matches of each partition.")
@click.option("--names", "-l", is_flag=True, help="Print only the names of partitions with a match.")
@click.option(
    "--quiet", "-q", is_flag=True, help="Print nothing, stop at the first match; report through the exit code."
)
@click.option("--limit", "-n", type=click.IntRange(min=1), metavar="N", help="Print at most N records.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Show matches in red.",
)
@output_options
@query_options()
@follow_option
@workers_option
def grep(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    patterns: tuple[str, ...],
    file: IO[bytes] | None,
    regex: bool,
    as_hex: bool,
    empty: bool,
    ignore_case: bool,
    places: str,
    invert: bool,
    counting: bool,
    names: bool,
    quiet: bool,
    limit: int | None,
    color: str,
    output: Output,
    following: bool,
    workers: Workers,
    query: Query,
) -> None:
    """Search records for text, a regular expression or bytes."""
    if regex and as_hex:
        raise click.UsageError("--regex and --hex cannot be combined")
    if sum((counting, names, quiet)) > 1 or ((counting or names or quiet) and limit is not None):
        raise click.UsageError("--count, --names, --quiet and --limit cannot be combined")
    if following and (counting or names):
        raise click.UsageError("--follow has no end: it cannot be combined with --count or --names")
    if file is None and not patterns:
        patterns, arguments = arguments[:1], arguments[1:]
        if os.path.isdir(patterns[0]) and not any("://" in text or os.path.lexists(text) for text in arguments):
            raise click.UsageError(f"{patterns[0]} is a folder: PATTERN comes before PATH, or -e PATTERN {patterns[0]}")
    if workers.is_spark and (following or output.is_typed):
        raise click.UsageError("--follow, --internal and --value-as schema work in this process: leave out --spark")
    if not arguments:
        raise click.UsageError("missing PATH: expected PATTERN PATH..., or -e PATTERN PATH...")
    form = "regex" if regex else "hex" if as_hex else "text"
    needles = list(_needles(patterns, file, form, ignore_case, empty))
    matcher = AnyOf(needles, [place.strip() for place in places.split(",")], ignore_case, invert)
    text = output.text()
    query = query.with_key(output.key_as, limit)
    chosen = common.select(arguments, topic, partition, from_log_start=query.selection.from_log_start)
    readers = query.readers(chosen.logs())
    typed = output.payloads(arguments, readers)
    search = _Search(matcher, typed, text, 1 if quiet else limit, prints=not (counting or names or quiet), names=names)
    if is_coloured(color) and not invert:
        search.highlight = Highlighter(text, [part.needle for part in matcher.patterns], matcher.places, ignore_case)
    selector = Selector(arguments, topic, partition)
    try:
        if following:
            has_match = _follow(search, query, readers, chosen, selector)
        else:
            has_match = _once(search, readers, 0 if quiet else chosen.size, workers)
    except CorruptionError as error:
        common.complain(common.remedy(error))
        click.get_current_context().exit(2)
    if counting or names:
        _print_counts(search.counts, names)
    search.damage |= typed is not None and report_undecoded(typed.undecoded, typed.first)
    click.get_current_context().exit(2 if search.damage or common.is_damage_met() else 0 if has_match else 1)


def _needles(
    patterns: Sequence[str], file: IO[bytes] | None, form: str, ignore_case: bool, empty: bool
) -> Iterator[Needle]:
    written = [("", pattern) for pattern in patterns]
    for number, line in enumerate(file or (), 1):
        # Windows editors put a BOM before the first line.
        line = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip(b"\r\n")
        written.append((f"{file.name}: line {number}: " if file else "", line.decode("utf-8", "surrogateescape")))
    if not written and file is not None:
        raise RequestError(f"{file.name} has no pattern: write one per line")
    for where, pattern in written:
        if not pattern and not empty:
            raise RequestError(f"{where}the pattern is empty, and would match every record: allow it with --empty")
        try:
            yield regular_expression(pattern, ignore_case) if form == "regex" else parse_bytes(pattern, form)
        except RequestError as error:
            raise RequestError(f"{where}{error}") from None


def _once(search: _Search, readers: Sequence[LogReader], total_bytes: int, workers: Workers) -> bool:
    # What ends with a match reads a segment only up to there, and says of damage behind it nothing.
    target = None if search.ends_early else workers.part_bytes
    parts = [part for reader in readers for part in reader.parts(target)]
    with workers.executor() as executor, Bar(total_bytes, "searching") as bar:
        is_done = search.run(parts, executor, bar)
    search.damage |= not search.ends_early and report_losses(readers)
    return is_done


def _follow(search: _Search, query: Query, readers: list[LogReader], chosen: common.Chosen, selector: Selector) -> bool:
    gaps = Gaps()
    is_done = search.run_following(follow(query, readers, chosen, gaps, selector))
    search.damage |= gaps.damage
    if not is_done:  # no partition is left
        click.get_current_context().exit(2)
    return True


def _print_counts(counts: dict[str, int], names: bool) -> None:
    for name, count in counts.items():
        if names and count:
            say(name)
        elif not names:
            say(f"{name}:{count}" if len(counts) > 1 else count)


class _Row(NamedTuple):
    """The result of one part."""

    name: str
    matched: int
    gaps: list[Gap]


class _Search:
    """One run of grep: the patterns, the decoder of records, the output, and the matches so far."""

    def __init__(
        self,
        matcher: AnyOf,
        typed: PayloadText | None,
        text: RecordText,
        limit: int | None,
        *,
        prints: bool,
        names: bool,
    ) -> None:
        self._typed = typed
        self._matcher, self._text, self._limit, self._names = matcher, text, limit, names
        self._prints = prints
        #: True if a match may end the search of a segment.
        self.ends_early = names or limit is not None
        self.highlight: Highlighter | None = None
        self.counts: dict[str, int] = {}
        self.damage = False

    def run(self, parts: list[LogReader], executor: Executor, bar: Bar) -> bool:
        """Search and print matches; return whether there are any."""
        self._begin()
        printed = 0
        load = Workload("pylogseg grep", [part.size for part in parts], bar)
        for item in executor.stream(self._search, parts, load):
            if isinstance(item, bytes):
                with bar.pause(sys.stdout, item.endswith(b"\n")):
                    self._print(item)
                printed += 1
                if printed == self._limit:  # each piece is one record then
                    return True
                continue
            self.counts[item.name] = self.counts.get(item.name, 0) + item.matched
            if item.gaps:
                with bar.pause(sys.stderr):
                    self.damage |= common.report_gaps(item.gaps)
        return any(self.counts.values())

    def run_following(self, chunks: Iterator[Chunk]) -> bool:
        """Search chunks as they come; return whether the limit was reached."""
        self._begin()
        printed, out = 0, TextBuffer()
        for columns, segment in chunks:
            columns, rows = self._find(columns, segment)
            for piece in self._pieces(columns.take(rows), segment, out):
                self._print(piece)
                printed += 1
                if printed == self._limit:
                    return True
        return False

    def _begin(self) -> None:
        if self._text.head and self._prints:
            common.write_stdout(self._text.head)
            sys.stdout.buffer.flush()

    def _print(self, piece: bytes) -> None:
        if not self._prints:
            return
        (common.write_stdout if self.highlight is None else common.write_as_is)(piece)
        sys.stdout.buffer.flush()

    def _search(self, part: LogReader, emit: Emit, advance: Advance) -> _Row:
        part, out, count = part.apart(advance), TextBuffer(), 0
        for columns, segment in part.chunks():
            columns, rows = self._find(columns, segment)
            rows = rows[: self._limit - count] if self._limit else rows
            count += len(rows)
            if self._prints or self._limit:
                for piece in self._pieces(columns.take(rows), segment, out):
                    emit(piece)
            if count and (self._names or count == self._limit):
                break
        return _Row(part.name, count, part.gaps)

    def _find(self, columns: RecordColumns, segment: Segment) -> tuple[RecordColumns, npt.NDArray[np.intp]]:
        """Return the records as they are printed, and which of them match."""
        if self._typed is not None:
            columns = self._typed.columns(columns, segment)
        return columns, np.flatnonzero(self._matcher.matches(columns))

    def _pieces(self, columns: RecordColumns, segment: Segment, out: TextBuffer) -> Iterator[bytes]:
        """Yield the text of records; of one record at a time if there is a limit or colour."""
        if not len(columns):
            return
        if self.highlight is not None:
            yield from self.highlight.records(columns, segment)
            return
        yield from map(bytes, self._text.slices(columns, segment, out, 1 if self._limit else None))
