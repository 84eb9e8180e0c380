"""The interface of a table that is written to, each range of a log once."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.errors import PylogsegError, RequestError
from pylogseg.lakehouse.formats import FORMATS, TableName, check_path, format_errors
from pylogseg.lakehouse.layouts import FLAT
from pylogseg.lakehouse.ledger import Ledger
from pylogseg.lakehouse.stores import LOCAL, FileStore
from pylogseg.walker.gaps import Gap, GapKind

#: Columns of bytes, of which neither a dictionary nor the least and greatest are of use, and both copy each of them.
UNMEASURED = ("value", "headers")
#: Name of Hive for a null.
_NO_DAY = "__HIVE_DEFAULT_PARTITION__"
_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000
_FIRST_DAY = (datetime.date.min - datetime.date(1970, 1, 1)).days
_LAST_DAY = (datetime.date.max - datetime.date(1970, 1, 1)).days
#: The period of rows whose timestamp is null.
NO_PERIOD = -(2**62)
#: Offsets by partition, ascending.
OffsetsByPartition = dict[int, npt.NDArray[np.int64]]


class ConflictError(PylogsegError):
    """Another commit came first; go on from the table's new state. If it is `certain`, this one was not made."""

    kind = "conflict"

    def __init__(self, reason: str, *, certain: bool = True) -> None:
        super().__init__(reason)
        self.certain = certain


@dataclass(frozen=True)
class Period:
    """The time that all rows of a file are of: a day or an hour in UTC, as a number from 1970 on."""

    folder: str  #: Its name in the table's folder begins so.
    is_hour: bool = False
    is_date: bool = False  #: True if the name of the folder has a date in place of the number.

    @property
    def micros(self) -> int:
        return _HOUR_US if self.is_hour else _DAY_US

    def folder_of(self, number: int) -> str:
        return f"{self.folder}{date_of(number) or _NO_DAY}" if self.is_date else f"{self.folder}{self.value_of(number)}"

    @staticmethod
    def value_of(number: int) -> int | None:
        """Return the value in a table that counts periods; None for rows without a timestamp."""
        return None if number == NO_PERIOD else number


@dataclass(frozen=True)
class FilePlace:
    """The place and the layout of a table's files; it may travel to another process."""

    folder: str
    schema: pa.Schema  #: Of the files.
    period: Period
    store: FileStore = LOCAL
    has_calendar: bool = False  #: Only times of the years 1 to 9999 can be in the table.
    arranged: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None  #: Makes rows of the files of flat ones.


class NewFile(NamedTuple):
    """A file that was written, and is in the table once it is committed."""

    path: str
    rows: int
    size: int
    period: int  #: Of all its timestamps.
    metadata: Any  #: Of Parquet.


class LiveFile(NamedTuple):
    """A file of a table as it is now."""

    path: str
    handle: Any  #: What the table knows it by.


@dataclass(frozen=True)
class Changes:
    """The files that a commit takes out of a table."""

    keys: pa.Table  #: Columns ``partition`` and ``key``, whose rows go.
    gone: Sequence[LiveFile] = ()  #: Files that had some of them; what they had besides is in new files.


class Sink(Protocol):
    """A table of one format.

    ``name``
        For messages.
    ``folder``, ``store``
        Where its files go, once `load` has found it.
    ``load(partitions)``
        Look at the table as it is now; return its newest ledger along its history, None if it has none. Partitions
        are those of the log.
    ``is_there``
        True if `load` found a table.
    ``make(schema, ledger)``
        Make the table; nothing if another run has made it just now. `load` says what it has then.
    ``open(schema, is_new)``
        Check that it can take rows with these columns, and if it has no ledger yet that it is ours; return where files
        go, and what is in them. Columns that it lacks, it gets with the next commit.
    ``commit(files, ledger, changes)``
        Commit rows and ledger at once, if the table still is as it was loaded or last committed to; else
        `ConflictError`. After any other error it may or may not exist. Changes are rows that go.
    ``live(keys)``
        Return the files that have its rows; or, if it deletes rows by their keys itself, how many have some of these.
    ``offsets(first)``
        Read which offsets of these partitions, from the given ones on, the table has.
    ``files()``
        Return the paths of all files that the table or an earlier state of it that can still be read has.
    ``close()``
        Let go of the catalog.
    """

    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def store(self) -> FileStore: ...
    def load(self, partitions: Iterable[int]) -> Ledger | None: ...
    @property
    def is_there(self) -> bool: ...
    def make(self, schema: pa.Schema, ledger: Ledger) -> None: ...
    def open(self, schema: pa.Schema, is_new: bool) -> FilePlace: ...
    def commit(self, files: Sequence[NewFile], ledger: Ledger, changes: Changes | None = None) -> None: ...
    def live(self, keys: pa.Table) -> Sequence[LiveFile] | int: ...
    def offsets(self, first: dict[int, int]) -> OffsetsByPartition: ...
    def files(self) -> Collection[str]: ...
    def close(self) -> None: ...


def date_of(day: int) -> datetime.date | None:
    """Return the date of a day, counted from 1970 on; None if no calendar has it."""
    return datetime.date(1970, 1, 1) + datetime.timedelta(day) if _FIRST_DAY <= day <= _LAST_DAY else None


def in_calendar(batch: pa.RecordBatch, gaps: list[Gap]) -> pa.RecordBatch:
    """Return rows with null for timestamps outside of the years 1 to 9999; add a gap for these rows to `gaps`."""
    number = batch.schema.get_field_index("timestamp")
    times = batch.column(number).cast(pa.int64())
    unfit = pc.fill_null(
        pc.or_(pc.less(times, _FIRST_DAY * _DAY_US), pc.greater_equal(times, (_LAST_DAY + 1) * _DAY_US)), False
    )
    rows = pc.sum(unfit).as_py() or 0
    if not rows:
        return batch
    some = batch.filter(unfit)
    name = f"{some.column('topic')[0]}-{some.column('partition')[0]}"
    first, last = some.column("offset")[0].as_py(), some.column("offset")[-1].as_py()
    ms = times.filter(unfit)[0].as_py() // 1000
    reason = f"its timestamp, {ms} ms, is of no year from 1 to 9999, as the table needs it: null there"
    gaps.append(Gap(name, GapKind.TIME, 0, 0, first, last + 1, reason, False, rows))
    return batch.set_column(number, batch.schema.field(number), pc.if_else(unfit, None, batch.column(number)))


def is_plain(schema: pa.Schema) -> bool:
    """True if keys and values are bytes; parts of typed ones are small, and have statistics."""
    kinds = [field.type for field in schema if field.name in ("key", "value")]
    return "value" in schema.names and not any(map(pa.types.is_nested, kinds))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without details that readers choose freely: sizes of offsets, names in lists, metadata."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def widen_schema(have: pa.Schema, want: pa.Schema, *, widens: bool, table: str) -> tuple[pa.Schema, pa.Schema]:
    """Return the columns of a table after it takes rows with some columns, and the columns of their files.

    New columns and fields go to the end. `widens`: whether a type may become a wider one. RequestError if there is no
    way.
    """
    reasons: list[str] = []
    fields = {field.name: field for field in have}
    files = []
    for field in want:
        there = fields.get(field.name)
        if there is None:
            fields[field.name] = field
            files.append(field)
            continue
        kind = _merge_types(there.type, field.type, field.name, widens, reasons)
        fields[field.name] = there.with_type(kind)
        files.append(field if _is_alike(kind, field.type) else field.with_type(plain_type(kind)))
    if reasons:
        raise RequestError(f"{table}: {'; '.join(reasons)}: write another table")
    return pa.schema(list(fields.values())), pa.schema(files)


def is_same(have: pa.Schema, table: pa.Schema) -> bool:
    """True if a table has these columns already."""
    return have.names == table.names and all(
        _is_alike(one.type, other.type) for one, other in zip(have, table, strict=True)
    )


def _is_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """True if types differ at most in details that `plain_type` leaves out."""
    return bool(one == other or plain_type(one) == plain_type(other))


def _merge_types(have: pa.DataType, want: pa.DataType, name: str, widens: bool, found: list[str]) -> pa.DataType:
    """Return the type of a column of a table that takes rows of some type; `found` gets the reason if there is none."""
    if _is_alike(have, want):
        return have
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        fields = {field.name: field for field in have}
        for field in want:
            there = fields.get(field.name)
            if there is not None:
                field = there.with_type(_merge_types(there.type, field.type, f"{name}.{field.name}", widens, found))
            fields[field.name] = field if there is not None else field.with_nullable(True)
        return pa.struct(list(fields.values()))
    if _is_list(have) and _is_list(want):
        return pa.list_(_merge_types(have.value_type, want.value_type, f"{name}[]", widens, found))
    if pa.types.is_map(have) and pa.types.is_map(want) and _is_alike(have.key_type, want.key_type):
        return pa.map_(have.key_type, _merge_types(have.item_type, want.item_type, f"{name}{{}}", widens, found))
    if _fits(want, have):
        return have
    if widens and _fits(have, want):
        return want
    found.append(f"column {name} is {plain_type(have)}, and rows have {plain_type(want)}")
    return have


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _fits(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """True if each value of a type is one of another."""
    if pa.types.is_signed_integer(narrow) and pa.types.is_signed_integer(wide):
        return bool(narrow.bit_width <= wide.bit_width)
    if pa.types.is_floating(narrow) and pa.types.is_floating(wide):
        return bool(narrow.bit_width <= wide.bit_width)
    if pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        return bool(narrow.scale == wide.scale and narrow.precision <= wide.precision)
    return False


def offsets_of(rows: pa.Table) -> OffsetsByPartition:
    """Return the offsets of rows with the columns ``partition`` and ``offset``, which may be fields of one struct."""
    rows = rows.flatten().rename_columns(["partition", "offset"]) if rows.num_columns == 1 else rows
    partition, offset = (rows.column(name).to_numpy() for name in ("partition", "offset"))
    return {int(number): np.sort(offset[partition == number]) for number in np.unique(partition)}


def sink_of(table: TableName, options: Mapping[str, str] | None = None, layout: str = FLAT) -> Sink:
    """Return a table, whether it is there or not; RequestError if its package is not installed.

    Options are those of the library that has the table.
    """
    of, formats = table.format, FORMATS.values()
    if "://" in table.text and not of.takes_url:
        places = " or ".join(entry.in_store for entry in formats if entry.in_store)
        raise RequestError(f"{table.text}: in an object store there may be {places}")
    if options and not of.takes_options(table):
        places = ", and for ".join(entry.options for entry in formats if entry.options)
        raise RequestError(f"{table.text}: options are for {places}")
    if layout not in (FLAT, *of.layouts):
        titles = " or ".join(entry.title for entry in formats if layout in entry.layouts)
        raise RequestError(f"{table.text}: the layout {layout} is for tables of {titles}")
    check_path(table)
    with format_errors(of, table.text, "open"):
        module = import_module(f"pylogseg.lakehouse.{of.name}")
        sink: Sink = module.open_sink(table, dict(options or {}), layout)
        return sink
