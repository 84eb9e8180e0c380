"""`pylogseg sql`: ask questions about a disk in SQL."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pylogseg.cli import common, completion
from pylogseg.cli.options import reading_options
from pylogseg.cli.outputs import check_output, refuse_overwriting
from pylogseg.cli.streams import say
from pylogseg.cli.typed import (
    SCHEMA,
    check_secrets,
    check_unused,
    decoding_of,
    own_decoding,
    own_options,
    report_undecoded,
    typed_options,
    undecoded_option,
    wants_schema,
    whole_disk,
)
from pylogseg.env.file_errors import storage_error
from pylogseg.env.garbage import freeze_imports
from pylogseg.env.interrupts import held_back
from pylogseg.env.spared import spare_imports
from pylogseg.errors import RequestError
from pylogseg.format.escape import printable_line
from pylogseg.format.words import size_text
from pylogseg.reading.state import Reading

if TYPE_CHECKING:
    from pylogseg.tables.opening import TopicOpener
    from pylogseg.tables.sql.session import Answer, Session

#: Characters of a cell of a table; the other forms have all of them.
_CELL = 100
_COLUMNS = click.Choice(["binary", SCHEMA])
_FORMS = ("table", "json", "csv", "parquet", "arrow")

_EPILOG = """\b
Examples:
  pylogseg sql /data/kafka "select count(*) from orders"
  pylogseg sql /data/kafka 'select * from "web.clicks-v2" limit 10'
  pylogseg sql /data/kafka "select key::varchar, max(offset) from orders group by 1"
  pylogseg sql /data/kafka "select value->>'$.id' as id, count(*) from orders
                            where timestamp > now() - interval 2 hours
                            group by id having count(*) > 1"
  pylogseg sql /data/kafka "from batches where isControl" --output control.parquet
  pylogseg sql /data/kafka -f report.sql --output csv > report.csv
  pylogseg sql /data/kafka --value-as schema "select value.id, value.total from orders"
  pylogseg sql /data/kafka --internal "select value.type, count(*) from __cluster_metadata
                                     group by all"
  pylogseg sql /data/kafka                          a prompt; .help lists its commands

\b
Each topic is a table; a name with a dot or a hyphen needs double quotes. The table
records has the records of all topics; batches, segments, partitions and indexes
have what dump and ls print. A topic with one of these names, or one that differs
from another only in case, has no table: select from records where topic = 'NAME'.
The SQL is duckdb's. Times are in UTC, also those without a zone. key and value are
bytes: key = 'text' compares them with text as it is typed, key::varchar and
text(key) are text (base64:... if they are not UTF-8),
value->>'$.id' and json(value) read them as JSON, null where they are not JSON.
With --value-as schema, value in the table of a topic has the columns of its schema in
Avro, Protobuf or JSON: value.id, value.lines[1].sku. A value that cannot be decoded is
in valueRaw, with the reason in valueError, and counted at the end: exit code 1
(those behind the last row of a limit are not).
With --internal, key and value of the topics that Kafka, Connect and a schema registry
write for themselves have a member for each type of record: key.OffsetCommit.topic,
value.TopicRecord.name. Secrets are masked unless --show-secrets.
Conditions on topic, partition, offset and timestamp decide what is read; --explain
shows it.
A query that only counts records, such as select count(*), reads the headers of
batches: damage that only a checksum shows is not found, and a note says so. With
--on-corrupt skip all is read.
Statements see only these tables: no files, no network, no variables of Python.
With --allow-files they can read and write files. Nothing changes the logs.

\b
Exit codes: 0 success; 1 damage was found, or a broker removed records meanwhile;
2 wrong usage, an error of the query or a disk error; 130 interrupted. A closed
pipe is not an error.
"""


@click.command(epilog=_EPILOG)
@lambda function: common.selection_options(function, last=' ["QUERY"]')
@click.option(
    "--file",
    "-f",
    "script",
    metavar="FILE.sql",
    help="Run the statements of a file; - is stdin.",
    shell_complete=completion.files,
)
@click.option(
    "--output",
    "-O",
    default="table",
    show_default=True,
    metavar="FORM|FILE",
    help="table, json (lines) or csv; or a FILE.parquet, .arrow, .csv or .json.",
    shell_complete=completion.files,
)
@click.option("--overwrite", is_flag=True, help="Replace the FILE of --output if it exists.")
@click.option(
    "--key-as",
    type=_COLUMNS,
    default="binary",
    show_default=True,
    help="Keys in the tables of topics: binary, or typed by their schemas.",
)
@click.option(
    "--value-as",
    type=_COLUMNS,
    default="binary",
    show_default=True,
    help="Values in the tables of topics: binary, or typed by their schemas.",
)
@typed_options
@undecoded_option
@own_options
@click.option(
    "--explain", is_flag=True, help="Print the segments and bytes that the query would read, without reading them."
)
@click.option("--allow-files", is_flag=True, help="Let statements read and write files.")
@reading_options("isolation_level", "on_corrupt", "max_decompressed_bytes")
@common.jobs_option
def sql(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    script: str | None,
    output: str,
    overwrite: bool,
    key_as: str,
    value_as: str,
    internal: bool,
    show_secrets: bool,
    explain: bool,
    allow_files: bool,
    reading: Reading,
    jobs: int,
    **typed: str | None,
) -> None:
    """Ask questions in SQL: each topic is a table, and a query reads only the columns and rows that it needs."""
    form, target = form_of(output)
    arguments, query = split_query(arguments)
    if script is not None:
        if query is not None:
            raise click.UsageError("a QUERY cannot be combined with --file")
        query = _read(script)
    chosen = common.select(arguments, topic, partition, is_later=True, is_noted=False)
    of_topic = _of_topic(wants_schema(key_as, value_as), internal, show_secrets, arguments, typed)
    if target is not None:
        check_output(target, chosen.disk)
        refuse_overwriting(target, overwrite)
    with _imports():
        from pylogseg.tables.opening import openers, without_table
        from pylogseg.tables.sql.session import Session
    tables = openers(chosen.disk, chosen.choice.numbers or None, of_topic, **reading.keywords)
    nameless = without_table(chosen.disk)
    with Session(tables, jobs=jobs, allow_files=allow_files, nameless=nameless, on_wait=Waiting()) as session:
        if query is None and sys.stdin.isatty():
            from pylogseg.cli.prompt import prompt

            common.report_notes(chosen.disk)
            prompt(session, lambda text: answer_statements(session, text, form, target, overwrite))
        else:
            text = sys.stdin.read() if query is None else query
            try:
                if explain:
                    explain_query(session, text, form, target)
                else:
                    answer_statements(session, text, form, target, overwrite)
            finally:
                _report_notes(chosen, session)
        if session.is_unchecked:
            common.complain("note: counted by batch headers: checksums were not computed")
        damage = common.report_gaps(session.gaps)
        common.end_with(damage | report_undecoded(session.undecoded))


def _report_notes(chosen: common.Chosen, session: Session) -> None:
    """Report the notes of the disk about the topics whose tables the queries read; about all if it read none."""
    read, topics = chosen.disk.select(partition=chosen.choice.numbers or None), chosen.disk.topics
    is_by_topic = bool(session.opened) and all(name in topics for name in session.opened)
    common.report_notes(read.select(list(session.opened)) if is_by_topic else read)


def _of_topic(
    decoded: Sequence[str], internal: bool, show_secrets: bool, arguments: Sequence[str], given: dict[str, str | None]
) -> TopicOpener | None:
    """Return the opener of typed tables of topics; None without typed keys or values."""
    on_undecoded = given.pop("on_undecoded")
    check_unused(decoded, given, "--value-as")
    check_unused(decoded or ["value"] * internal, {"on_undecoded": on_undecoded}, "--internal or --value-as")
    check_secrets(internal, show_secrets)
    if not decoded and not internal:
        return None
    with _imports():
        from pylogseg.tables.sql.typed import TypedTables
    return TypedTables(
        decoding_of(decoded, {**given, "on_undecoded": on_undecoded}) if decoded else None,
        lambda: whole_disk(arguments),
        lambda what, why: common.complain(f"note: {what}: {common.remedy(why)}"),
        own_decoding(("key", "value"), on_undecoded, show_secrets) if internal else None,
    ).open


class Waiting:
    """A line on the terminal that says how many rows a long query has read; it is gone when there is an answer."""

    def __init__(self) -> None:
        self._is_shown = False

    def __call__(self, rows: int | None) -> None:
        """Show a number of rows, or with None take the line away."""
        if (rows or self._is_shown) and common.is_terminal(sys.stderr):
            click.echo("\r\x1b[K" + (f"{rows:,} rows read" if rows else ""), err=True, nl=False)
            self._is_shown = bool(rows)


def answer_statements(session: Session, query: str, form: str, target: Path | None, overwrite: bool = False) -> None:
    """Run the statements of a query and print or write their answers."""
    _note_times(query)
    with contextlib.closing(session.run(query)) as answers:
        if target is not None:
            refuse_overwriting(target, overwrite)  # also after the first statement of a prompt
            _write_file(answers, form, target)
            return
        for number, reply in enumerate(answers):
            if form == "table":
                if number:
                    click.echo()
                print_answer(reply)
            else:
                _write_stdout(reply, form)


def explain_query(session: Session, query: str, form: str, target: Path | None) -> None:
    """Print the reading of each table that a query would make."""
    if target is not None or form not in ("table", "json"):
        raise RequestError("--explain prints a table, or JSON lines with --output json")
    _note_times(query)
    rows = session.explain(query)
    if form == "json":
        for row in rows:
            common.print_json(row)
        return
    table = [
        (
            row["table"],
            f"{row['segments']:,} of {row['allSegments']:,}",
            f"{size_text(row['readBytes'])} of {size_text(row['allBytes'])}",
            ", ".join(row["columns"]),
            row["filter"],
        )
        for row in rows
    ]
    common.print_table(["TABLE", "SEGMENTS", "BYTES", "COLUMNS", "FILTER"], table, right=["SEGMENTS", "BYTES"])


def _note_times(query: str) -> None:
    """Say which numbers of a query are likely of another unit than its functions of times take and give."""
    from pylogseg.tables.sql.words import time_notes

    for note in time_notes(query):
        common.complain(f"note: {note}")


def form_of(output: str) -> tuple[str, Path | None]:
    """Return the form of an answer and the file to write it to, if any, from the value of ``--output``."""
    if output in _FORMS:
        return output, None
    path = Path(output)
    form = {".parquet": "parquet", ".arrow": "arrow", ".csv": "csv", ".json": "json", ".jsonl": "json"}.get(path.suffix)
    if form is None:
        raise RequestError(f"--output {output}: expected {', '.join(_FORMS)}, or a file that ends in .parquet, .arrow, "
                           ".csv or .json")  # fmt: skip
    return form, path


def split_query(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Split the query off the arguments: the last one, if it has a blank and is no file."""
    *first, last = arguments
    is_query = bool(first) and bool(re.search(r"[\s;]", last)) and not os.path.lexists(last)
    return (tuple(first), last) if is_query else (arguments, None)


def _read(script: str) -> str:
    if script == "-":
        return sys.stdin.read()
    try:
        return Path(script).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{script}: not UTF-8 at byte {error.start}: save it as UTF-8") from None
    except OSError as error:
        raise storage_error(script, "read", error) from error


def _write_file(answers: Iterator[Answer], form: str, target: Path) -> None:
    """Write the answer of a query to a file, which appears under its name when it is whole."""
    from pylogseg.env.beside import whole
    from pylogseg.tables.sql.forms import write_answer

    count = 0
    with whole(target) as file:
        for reply in answers:
            count += 1
            if count > 1:
                break
            write_answer(form, reply.schema, reply.batches, file)
        if count != 1:
            what = "no answer" if not count else "more than one"
            raise RequestError(f"{target} holds one answer, and the query has {what}: run its statements one by one")


def _write_stdout(given: Answer, form: str) -> None:
    from pylogseg.tables.sql.forms import write_answer

    if form in ("parquet", "arrow") and common.is_terminal(sys.stdout):
        raise RequestError(f"--output {form} is not for a terminal: give a file, such as --output answer.{form}")
    write_answer(form, given.schema, given.batches, _Stdout())


class _Stdout(io.RawIOBase):
    """Stdout for bytes; on a terminal, control sequences are escaped."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        common.write_stdout(data)
        return len(data)


def print_answer(given: Answer) -> None:
    """Print an answer as aligned columns; the first rows decide how wide they are."""
    from pylogseg.tables.sql.forms import are_numbers, texts

    names, right = given.schema.names, are_numbers(given.schema)
    widths: list[int] = []
    for batch in given.batches:
        rows = list(zip(*([_cell(text) for text in column.to_pylist()] for column in texts(batch)), strict=True))
        if not widths:
            widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
            _print_row(names, widths, right)
        for row in rows:
            _print_row(row, widths, right)
    if not widths:
        _print_row(names, [len(name) for name in names], right)


def _cell(text: str | None) -> str:
    shown = "-" if text is None else printable_line(text[: _CELL + 1])
    return shown if len(shown) <= _CELL else shown[: _CELL - 1] + "…"


def _print_row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> None:
    padded = (
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )
    say("  ".join(padded).rstrip())


@contextlib.contextmanager
def _imports() -> Iterator[None]:
    """Import the packages that this command needs; an interrupt comes at the end."""
    with spare_imports(), held_back(), freeze_imports():
        yield
