"""The records of a part of a log as one file: Parquet, Arrow, CSV or JSON lines.

A file appears whole under its name or not at all: it is written under another one beside it, and renamed.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from pylogseg.disk.stores import ObjectStore
from pylogseg.env.beside import whole
from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.columns import TableColumn, declare_columns
from pylogseg.format.names import parse_partition_folder
from pylogseg.reading import column_names
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.partition import Chunk
from pylogseg.values.decoding import TypedBatches
from pylogseg.values.strings import NotUtf8, as_strings, with_strings
from pylogseg.values.typed_text import PayloadText
from pylogseg.walker.gaps import Gap, GapKind

#: Forms of a file, and the end of its name.
FORMS = {"parquet": ".parquet", "arrow": ".arrow", "csv": ".csv", "jsonl": ".jsonl"}
#: Topic and partition are in the names of the folders, as Hive has it: readers put them back.
DEFAULT_COLUMNS = tuple(name for name in column_names.DEFAULT_COLUMNS if name not in ("topic", "partition"))
#: Folder name of a value that there is not.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: The milliseconds of a timestamp that is null because its column cannot hold it.
EXACT = pa.field("timestampMs", pa.int64())
_EXPORTED = re.compile(rf"\d{{20}}(?:{'|'.join(map(re.escape, FORMS.values()))})")
_ROW_GROUP_BYTES = 64 << 20
_ROW_GROUP_ROWS = 1 << 20


class UnfitTimeError(Exception):
    """The column cannot hold a timestamp: the file has to be written again, with a column of exact ones."""


@dataclass(frozen=True)
class Form:
    """Format options of exported files."""

    name: str = "parquet"  #: One of `FORMS`.
    columns: Sequence[str] = DEFAULT_COLUMNS  #: Of `arrow.schema`, or for CSV and JSON lines of `text.FIELD_NAMES`.
    compression: str = "zstd"  #: Of Parquet: zstd, snappy, gzip, lz4 or none; of Arrow files zstd, lz4 or none.
    key_as: str = "text"  #: Of payloads in CSV and JSON lines, as `value_as`.
    value_as: str = "text"
    key_type: str = "binary"  #: "binary" or "string": of the columns of Parquet and Arrow files, as `value_type`.
    value_type: str = "binary"
    not_utf8: NotUtf8 = (
        "raise"  #: For a payload that is not UTF-8 in a column of strings: see `values.strings.strings`.
    )
    #: For the metadata of Parquet and Arrow files: without markers, aborted records look like any other.
    isolation_level: str = "read_uncommitted"
    #: Decodes keys and values of Parquet and Arrow files.
    typed: TypedBatches | None = None
    #: Decodes those of CSV and JSON lines.
    typed_text: PayloadText | None = None
    #: A column `EXACT` has the timestamps that the column of timestamps cannot hold; a file has it only if it has such.
    has_exact_times: bool = False

    @property
    def is_table(self) -> bool:
        return self.name in ("parquet", "arrow")

    def __post_init__(self) -> None:
        if self.name not in FORMS:
            raise RequestError(f"cannot export to {self.name!r}; expected one of {', '.join(FORMS)}")
        # What is wrong with the columns shows before anything is read.
        if self.is_table:
            arrow.schema(self.columns)
            allowed = ("zstd", "snappy", "gzip", "lz4", "none") if self.name == "parquet" else ("zstd", "lz4", "none")
            if self.compression not in allowed:
                raise RequestError(f"{self.name} files have no compression {self.compression!r}: {', '.join(allowed)}")
        else:
            self.program("", 0, "")

    @property
    def schema(self) -> pa.Schema:
        schema = as_strings(arrow.schema(self._read), self._strings)
        if self.typed is not None:
            schema = self.typed.schema(schema)
        if self.has_exact_times:
            schema = schema.append(EXACT)
        return schema.with_metadata({arrow.ISOLATION_KEY: self.isolation_level.encode()})

    @property
    def _strings(self) -> tuple[str, ...]:
        types = {"key": self.key_type, "value": self.value_type}
        return tuple(name for name, kind in types.items() if kind == "string" and name in self.columns)

    @property
    def _read(self) -> Sequence[str]:
        return self.columns if self.typed is None else self.typed.list_needed_columns()

    def batches(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        batch = arrow.record_batch(chunk, arrow.schema(self._read))
        batch = with_strings(batch, chunk, self._strings, self.not_utf8) if self._strings else batch
        if self.has_exact_times:
            times = chunk.columns.timestamp
            exact = pa.array(times, EXACT.type, mask=arrow.are_held(times))
            batch = pa.RecordBatch.from_arrays([*batch.columns, exact], schema=batch.schema.append(EXACT))
        yield from [batch] if self.typed is None else self.typed.batches([batch])

    def check_times(self, chunk: Chunk, gaps: list[Gap]) -> None:
        """Note the timestamps of a chunk that the column cannot hold; UnfitTimeError if the file needs one more."""
        if self.is_table and "timestamp" in self.columns and not arrow.are_held(chunk.columns.timestamp).all():
            if self.typed is None and not self.has_exact_times:
                raise UnfitTimeError
            arrow.note_times(chunk, gaps)

    def program(self, topic: str, partition: int, segment: str) -> text.TextProgram:
        """Return the program of the text kernel for the records of a segment."""
        make = text.csv if self.name == "csv" else text.json_lines
        key, value = (text.plain_style(style, self.name == "jsonl") for style in (self.key_as, self.value_as))
        return make(self.columns, key=key, value=value, topic=topic, partition=partition, segment=segment)


@declare_columns(
    TableColumn("path", "string", "of the file"),
    TableColumn("records", "int64", "in it"),
    TableColumn("size", "int64", "of it", "bytes", source="size_bytes"),
)
@dataclass(frozen=True)
class Exported:
    """One file that was written, or none: for a part without records, or if an older file stays."""

    path: str | None
    records: int
    size_bytes: int
    gaps: list[Gap]  #: What could not be read.


def target_of(reader: LogReader, form: Form) -> str:
    """Return the name for a part: ``topic=NAME/partition=N/<base offset>.<form>``."""
    return f"{folder_of(reader.log)}/{reader.log.segments[0].base_offset:020d}{FORMS[form.name]}"


def folder_of(log: LogFiles) -> str:
    """Return the name of the folder for a log: ``topic=NAME/partition=N``."""
    if log.segments:
        topic, number = log.segments[0].topic, log.segments[0].partition
    else:
        of = parse_partition_folder(log.name)
        topic, number = (of.topic, of.partition) if of else ("", -1)
    return f"topic={topic or NO_VALUE}/partition={number if number >= 0 else NO_VALUE}"


def earlier_files(logs: Iterable[LogFiles], store: ObjectStore) -> list[str]:
    """Return the names of files, of any form, that an earlier export of these logs has left."""
    folders = dict.fromkeys(folder_of(log) for log in logs)
    return [
        name
        for folder in folders
        for name in sorted(store.list(folder))
        if _EXPORTED.fullmatch(name.removeprefix(f"{folder}/"))
    ]


def export_part(reader: LogReader, out: Path, form: Form, advance: Callable[[int], None] | None = None) -> Exported:
    """Write the records of one part of a log to a file in `out`, in place of an older one of that name.

    `advance` gets the bytes read since its last call; it may raise to end the work, and then no file is left.
    """
    part, target = reader.apart(advance), out / target_of(reader, form)
    chunks = part.chunks()
    first = next(chunks, None)
    if first is None:
        return Exported(None, 0, 0, part.gaps)
    try:
        records = _write_file(itertools.chain([first], chunks), target, form, part.gaps)
    except UnfitTimeError:
        return export_part(reader, out, replace(form, has_exact_times=True), advance)
    return Exported(str(target), records, target.stat().st_size, part.gaps)


class _NotAllReadError(Exception):
    """Ends the writing of a file that is not to have its name."""


def export_together(
    parts: Iterable[LogReader],
    target: Path,
    form: Form,
    advance: Callable[[int], None] | None = None,
    *,
    replaces: bool = False,
) -> Exported:
    """Write the records of several parts to one file, one part after the other; also where there is no record.

    If it `replaces` another one, nothing is written where not all could be read.
    """
    parts = list(parts)
    apart = [part.apart(advance) for part in parts]

    def chunks() -> Iterator[Chunk]:
        for part in apart:
            yield from part.chunks()
        if replaces and any(gap.kind is GapKind.UNREADABLE for part in apart for gap in part.gaps):
            raise _NotAllReadError

    times: list[Gap] = []
    try:
        records = _write_file(chunks(), target, form, times)
    except UnfitTimeError:
        return export_together(parts, target, replace(form, has_exact_times=True), advance, replaces=replaces)
    except _NotAllReadError:
        return Exported(None, 0, 0, [gap for part in apart for gap in part.gaps])
    gaps = [*itertools.chain.from_iterable(part.gaps for part in apart), *times]
    return Exported(str(target), records, target.stat().st_size, gaps)


def _write_file(chunks: Iterator[Chunk], target: Path, form: Form, gaps: list[Gap]) -> int:
    """Write a file, which appears under its name when it is whole; how many records it has."""
    target.parent.mkdir(parents=True, exist_ok=True)
    records = 0
    with whole(target) as file, SINKS[form.name](file, form) as sink:
        for chunk in chunks:
            form.check_times(chunk, gaps)
            records += sink.write(chunk)
    return records


class _Sink(Protocol):
    """Takes chunks in order, and says how many records of each are in the file; a chunk is valid only in the call."""

    def write(self, chunk: Chunk) -> int: ...


class _Text:
    """CSV and JSON lines."""

    def __init__(self, file: IO[bytes], form: Form) -> None:
        self._file, self._form, self._out = file, form, text.TextBuffer()
        self._where: tuple[Any, ...] | None = None
        if form.name == "csv":
            file.write(text.csv_header(form.columns))

    def write(self, chunk: Chunk) -> int:
        where = (chunk.topic, chunk.partition, chunk.segment.name)
        if where != self._where:
            self._where, self._program = where, self._form.program(*where)
        columns, typed = chunk.columns, self._form.typed_text
        columns = columns if typed is None else typed.columns(columns, chunk.segment)
        for first in range(0, len(columns), 4096):
            self._out.clear()
            stop = min(first + 4096, len(columns))
            self._file.write(text.render(columns, self._program, self._out, first, stop))
        return len(columns)


#: Columns of a Parquet file that a nested one becomes.
_LEAVES = {"headers": ("headers.list.element.key", "headers.list.element.value")}


class _Parquet:
    """Row groups of many chunks: a chunk is too small for one."""

    def __init__(self, file: IO[bytes], form: Form) -> None:
        self._schema, self._form = form.schema, form
        # Of values neither a dictionary nor the least and greatest are of use, and both copy each of them: a value of
        # hundreds of megabytes several times.
        leaves: Any = [leaf for name in self._schema.names if name != "value" for leaf in _LEAVES.get(name, (name,))]
        if form.typed is not None:  # whose parts are small, and worth both
            leaves = True
        try:
            self.writer = pq.ParquetWriter(
                file, self._schema, compression=form.compression, use_dictionary=leaves, write_statistics=leaves
            )
        except pa.ArrowNotImplementedError as error:
            raise RequestError(f"Parquet cannot hold these columns: {error}; export to Arrow or JSON lines") from error
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, chunk: Chunk) -> int:
        count = 0
        for batch in self._form.batches(chunk):
            self._waiting.append(batch)
            count += batch.num_rows
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            if self._bytes >= _ROW_GROUP_BYTES or self._rows >= _ROW_GROUP_ROWS:
                self.flush()
        return count

    def flush(self) -> None:
        """Write the waiting rows as one row group."""
        if self._waiting:
            self.writer.write_table(
                pa.Table.from_batches(self._waiting, self._schema), row_group_size=max(self._rows, 1)
            )
        self._waiting, self._rows, self._bytes = [], 0, 0


class _Ipc:
    """Arrow's file format."""

    def __init__(self, file: IO[bytes], form: Form) -> None:
        self._form = form
        compression = None if form.compression == "none" else form.compression
        self.writer = pa.ipc.new_file(file, form.schema, options=pa.ipc.IpcWriteOptions(compression=compression))

    def write(self, chunk: Chunk) -> int:
        count = 0
        for batch in self._form.batches(chunk):
            self.writer.write_batch(batch)
            count += batch.num_rows
        return count


@contextlib.contextmanager
def _text_sink(file: IO[bytes], form: Form) -> Iterator[_Sink]:
    yield _Text(file, form)


@contextlib.contextmanager
def _parquet_sink(file: IO[bytes], form: Form) -> Iterator[_Sink]:
    sink = _Parquet(file, form)
    with sink.writer:
        yield sink
        sink.flush()


@contextlib.contextmanager
def _ipc_sink(file: IO[bytes], form: Form) -> Iterator[_Sink]:
    sink = _Ipc(file, form)
    with sink.writer:
        yield sink


SINKS: dict[str, Callable[[IO[bytes], Form], contextlib.AbstractContextManager[_Sink]]] = {
    "parquet": _parquet_sink,
    "arrow": _ipc_sink,
    "csv": _text_sink,
    "jsonl": _text_sink,
}
