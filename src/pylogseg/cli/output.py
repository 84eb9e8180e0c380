"""Print records as JSON lines, as CSV or with a template; shared by `cat`, `grep` and `latest`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import numpy as np

from pylogseg.cli import common
from pylogseg.cli.typed import SCHEMA, choose_payload_text, report_undecoded, typed_options
from pylogseg.disk.disk import Segment
from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.records import RecordColumns
from pylogseg.reading.log_reader import LogReader
from pylogseg.walker.gaps import Gap

if TYPE_CHECKING:
    from pylogseg.values.typed_text import PayloadText

F = TypeVar("F", bound=Callable[..., Any])

#: Payload to turn into text at a time: the buffer stays in the processor's cache.
_SLICE_BYTES = 1 << 18
_SLICE_RECORDS = 1 << 12


class RecordText:
    """Turns records into text: by a template in kcat's syntax, as CSV, or as JSON lines."""

    def __init__(self, template: str | None, as_csv: bool, key_as: str, value_as: str, fields: tuple[str, ...]) -> None:
        self._template, self._csv, self._styles, self._fields = template, as_csv, (key_as, value_as), fields
        self._programs: dict[tuple[Any, ...], text.TextProgram] = {}
        #: Set by who decodes keys or values.
        self.typed: PayloadText | None = None
        self.head = text.csv_header(fields) if as_csv else b""
        program = self._compile(("", 0, ""))  # reports errors in the options before anything is read
        #: True if the text of each record ends with a line feed.
        self.ends_lines = program.ops[-1, 3] > 0 and program.labels.endswith(b"\n")

    def slices(
        self, columns: RecordColumns, segment: Segment, out: text.TextBuffer, max_records: int | None = None
    ) -> Iterator[text.TextBuffer]:
        """Yield the text of records in pieces; each piece is in `out`, which the next one overwrites."""
        program = self._program(segment)
        if self.typed is not None:
            columns = self.typed.columns(columns, segment)
        begin = 0
        for end in _cuts(columns, max_records or _SLICE_RECORDS):
            out.clear()
            text.render(columns, program, out, begin, end)
            begin = end
            yield out

    def each(
        self, columns: RecordColumns, segment: Segment, out: text.TextBuffer, start: int, stop: int
    ) -> list[bytes]:
        program = self._program(segment)
        if self.typed is not None:
            columns = self.typed.columns(columns.take(slice(start, stop)), segment)
            start, stop = 0, len(columns)
        out.clear()
        lines = bytes(text.render(columns, program, out, start, stop)).split(b"\n") if self.ends_lines else []
        if len(lines) == stop - start + 1:  # each record is one line
            return [line + b"\n" for line in lines[:-1]]
        pieces = []
        for row in range(start, stop):
            out.clear()
            pieces.append(bytes(text.render(columns, program, out, row, row + 1)))
        return pieces

    def pieces(
        self, columns: RecordColumns, changed: RecordColumns, segment: Segment, row: int
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the text of each field of a record; for keys, values and headers also the text from `changed`."""
        program = self._program(segment)
        for i, (field, *_) in enumerate(program.ops.tolist()):
            one, out = program._replace(ops=program.ops[i : i + 1]), text.TextBuffer()
            plain = bytes(text.render(columns, one, out, row, row + 1))
            out.clear()
            is_payload = field in text.PAYLOAD_OPS
            yield plain, bytes(text.render(changed, one, out, row, row + 1)) if is_payload else None

    def emit(self, part: LogReader, emit: Callable[[bytes], None]) -> list[Gap]:
        """Pass the text of all records of a part to a function, in pieces; return the gaps."""
        out = text.TextBuffer()
        for columns, segment in part.chunks():
            for piece in self.slices(columns, segment, out):
                emit(bytes(piece))
        return part.gaps

    def has_undecoded(self) -> bool:
        """Report undecoded payloads on stderr; return True if there were any."""
        return self.typed is not None and report_undecoded(self.typed.undecoded, self.typed.first)

    def _program(self, segment: Segment) -> text.TextProgram:
        where = (segment.topic or None, segment.partition if segment.partition >= 0 else None, "")
        if "segment" in self._fields:
            where = (*where[:2], segment.name)
        if where not in self._programs:
            self._programs[where] = self._compile(where)
        return self._programs[where]

    def _compile(self, where: tuple[Any, ...]) -> text.TextProgram:
        topic, partition, segment = where
        is_json = self._template is None and not self._csv
        key, value = (text.plain_style(style, is_json) for style in self._styles)
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
    """Return the ends of slices of at most `_SLICE_BYTES` (one record may be larger) and `max_records`."""
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
STYLES = click.Choice(["text", "base64", "hex", "json", SCHEMA])


@dataclass(frozen=True)
class Output:
    """The options of `output_options`."""

    template: str | None
    as_csv: bool
    key_as: str
    value_as: str
    fields: str | None
    headers: bool
    schema: str | None
    registry: str | None
    message: str | None
    internal: bool
    show_secrets: bool

    def text(self) -> RecordText:
        """Return the function that turns records into text, without decoding."""
        if self.template is not None and (self.as_csv or self.fields):
            raise RequestError("--format cannot be combined with --csv or --fields")
        names = text.JSON_FIELDS if self.fields is None else tuple(name.strip() for name in self.fields.split(","))
        if not self.headers:
            names = tuple(name for name in names if name != "headers")
        styles = (SCHEMA, SCHEMA) if self.internal else (self.key_as, self.value_as)
        return RecordText(self.template, self.as_csv, *styles, names)

    @property
    def is_typed(self) -> bool:
        """True if keys or values are decoded."""
        return self.internal or SCHEMA in (self.key_as, self.value_as)

    def payloads(self, arguments: Sequence[str], readers: Sequence[LogReader]) -> PayloadText | None:
        """Return the decoder of keys and values, if the options ask for one."""
        texts = {"schema": self.schema, "registry": self.registry, "message": self.message}
        own = self.internal, self.show_secrets
        return choose_payload_text((self.key_as, self.value_as), texts, own, arguments, readers)


def output_options(function: F) -> F:
    """Add the options that print records: a parameter ``output``."""

    @functools.wraps(function)
    def call(**given: Any) -> Any:
        output = Output(**{option.name: given.pop(option.name) for option in fields(Output)})
        return function(output=output, **given)

    add = [
        click.option(
            "--format",
            "-f",
            "template",
            metavar="TEMPLATE",
            help=r"Output template, as in kcat: '%t %p %o %T %k %s %h\n'.",
        ),
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header row."),
        click.option("--key-as", type=STYLES, default="text", show_default=True, help="How to write keys."),
        click.option("--value-as", type=STYLES, default="text", show_default=True, help="How to write values."),
        click.option(
            "fields",
            "--fields",
            "--columns",
            cls=common.Aliased,
            metavar="A,B,...",
            help=f"Fields to print: {', '.join(text.FIELD_NAMES)}.",
        ),
        click.option("--headers/--no-headers", default=True, help="Print record headers (default), or not."),
        typed_options,
        click.option(
            "--internal",
            is_flag=True,
            help="Print keys and values of Kafka's own topics (__consumer_offsets, ...) as JSON.",
        ),
        click.option("--show-secrets", is_flag=True, help="With --internal: print passwords and the keys of users."),
    ]
    return common.add_all(cast("F", call), add)
