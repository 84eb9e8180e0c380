"""Records as text on stdout: JSON lines, CSV, or by a template; shared by `cat` and `grep`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
import numpy as np

from pylogseg.catalog.disk import Segment
from pylogseg.cli import common
from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.records import RecordColumns
from pylogseg.reading.log_reader import LogReader
from pylogseg.walker.findings import Gap

F = TypeVar("F", bound=Callable[..., Any])

#: Payload that is turned into text at a time: a buffer that stays in the processor's cache.
_SLICE_BYTES = 1 << 18
_SLICE_RECORDS = 1 << 12


class RecordText:
    """Turns records into text, in one form for the whole output.

    Parameters
    ----------
    template : str or None
        As kcat's; else JSON lines, or CSV.
    as_csv : bool
    key_as, value_as : str
    fields : sequence of str
        Of JSON lines and CSV.
    """

    def __init__(self, template: str | None, as_csv: bool, key_as: str, value_as: str, fields: tuple[str, ...]) -> None:
        self._template, self._csv, self._styles, self._fields = template, as_csv, (key_as, value_as), fields
        self._programs: dict[tuple[Any, ...], text.Program] = {}
        self.head = text.csv_header(fields) if as_csv else b""
        program = self._compile(("", 0, ""))  # what is wrong with the wish shows before anything is read
        #: Whether the text of each record ends with a line feed.
        self.ends_lines = program.ops[-1, 3] > 0 and program.labels.endswith(b"\n")

    def slices(
        self, columns: RecordColumns, segment: Segment, out: text.TextBuffer, max_records: int | None = None
    ) -> Iterator[text.TextBuffer]:
        """Text of some records, a piece at a time; each piece is in `out`, which the next one overwrites."""
        program = self._program(segment)
        begin = 0
        for end in _cuts(columns, max_records or _SLICE_RECORDS):
            out.clear()
            text.render(columns, program, out, begin, end)
            begin = end
            yield out

    def each(
        self, columns: RecordColumns, segment: Segment, out: text.TextBuffer, start: int, stop: int
    ) -> list[bytes]:
        """The text of each of some records."""
        program = self._program(segment)
        out.clear()
        lines = bytes(text.render(columns, program, out, start, stop)).split(b"\n") if self.ends_lines else []
        if len(lines) == stop - start + 1:  # each of them is one line: no text of a record goes over several
            return [line + b"\n" for line in lines[:-1]]
        found = []
        for row in range(start, stop):
            out.clear()
            found.append(bytes(text.render(columns, program, out, row, row + 1)))
        return found

    def pieces(
        self, columns: RecordColumns, changed: RecordColumns, segment: Segment, row: int
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """The text of a record in its parts; of keys, values and headers also what other columns would give."""
        program = self._program(segment)
        for i, (field, *_) in enumerate(program.ops.tolist()):
            one, out = program._replace(ops=program.ops[i : i + 1]), text.TextBuffer()
            plain = bytes(text.render(columns, one, out, row, row + 1))
            out.clear()
            is_payload = field in text.PAYLOAD_OPS
            yield plain, bytes(text.render(changed, one, out, row, row + 1)) if is_payload else None

    def emit(self, part: LogReader, emit: Callable[[bytes], None]) -> list[Gap]:
        """Hand the text of all records of a part to a function, in pieces of its own; what was passed over."""
        out = text.TextBuffer()
        for columns, segment in part.chunks():
            for piece in self.slices(columns, segment, out):
                emit(bytes(piece))
        return part.gaps

    def _program(self, segment: Segment) -> text.Program:
        where = (segment.topic or None, segment.partition if segment.partition >= 0 else None, "")
        if "segment" in self._fields:
            where = (*where[:2], segment.name)
        if where not in self._programs:
            self._programs[where] = self._compile(where)
        return self._programs[where]

    def _compile(self, where: tuple[Any, ...]) -> text.Program:
        topic, partition, segment = where
        key, value = self._styles
        if self._template is not None:
            return text.template(self._template, key=key, value=value, topic=topic, partition=partition)
        if self._csv:
            return text.csv(
                self._fields, key=key, value=value, topic=topic, partition=partition, segment=segment or None
            )
        return text.json_lines(
            self._fields, key=key, value=value, topic=topic, partition=partition, segment=segment or None
        )


def _cuts(columns: RecordColumns, max_records: int) -> list[int]:
    """Ends of stretches of records with so many bytes and records at most (one record may be larger)."""
    count = len(columns)
    ends = np.cumsum(np.maximum(columns.key_size, 0).astype(np.int64) + np.maximum(columns.value_size, 0))
    cuts, at = [], 0
    while at < count:
        done = int(ends[at - 1]) if at else 0
        by_bytes = int(np.searchsorted(ends, done + _SLICE_BYTES, "right"))
        at = min(max(by_bytes, at + 1), at + max_records, count)
        cuts.append(at)
    return cuts


#: How keys and values are written.
STYLES = click.Choice(["text", "base64", "hex", "json"])


def output_options(function: F) -> F:
    """Add the options that `record_text` takes."""
    add = [
        click.option("--format", "-f", "template", metavar="TEMPLATE", help=r"As kcat's: '%t %p %o %T %k %s %h\n'."),
        click.option("--csv", "as_csv", is_flag=True, help="CSV with a head line."),
        click.option("--key-as", type=STYLES, default="text", show_default=True, help="How keys are written."),
        click.option("--value-as", type=STYLES, default="text", show_default=True, help="How values are written."),
        click.option("--fields", metavar="A,B,...", help=f"Of {', '.join(text.FIELD_NAMES)}."),
        click.option("--headers/--no-headers", default=True, help="With the records' headers (default), or without."),
    ]
    return common.decorated(function, add)


def record_text(
    template: str | None, as_csv: bool, key_as: str, value_as: str, fields: str | None, headers: bool
) -> RecordText:
    """What the options of `output_options` ask for."""
    if template is not None and (as_csv or fields):
        raise RequestError("--format says everything: not together with --csv or --fields")
    names = text.JSON_FIELDS if fields is None else tuple(name.strip() for name in fields.split(","))
    if not headers:
        names = tuple(name for name in names if name != "headers")
    return RecordText(template, as_csv, key_as, value_as, names)
