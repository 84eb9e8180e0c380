"""Columns of a kind of row, declared once: JSON, Arrow, Spark and the documents take names and types from here.

A class declares the columns of its line of ``--json`` by `declare_columns`; a dataclass or NamedTuple without a
declaration has its fields as columns. `to_row` makes the line of a value, `spark_ddl` the schema of many.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeVar

T = TypeVar("T")
#: Types, with the names that Arrow has for them; times are UTC in microseconds, in JSON milliseconds since 1970.
ColumnType = Literal[
    "string", "binary", "bool", "int16", "int32", "int64", "float64", "timestamp", "timestamp[ms]", "list<int32>",
    "list<int64>", "list<list<int64>>", "list<string>", "list<struct>", "struct", "map<string, int64>",
    "map<string, string>", "map<string, struct>",
]  # fmt: skip

_SPARK_TYPES: dict[ColumnType, str] = {
    "string": "string",
    "binary": "binary",
    "bool": "boolean",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float64": "double",
    "timestamp": "timestamp",
    "timestamp[ms]": "timestamp",
    "list<int32>": "array<int>",
    "list<int64>": "array<bigint>",
    "list<list<int64>>": "array<array<bigint>>",
    "list<string>": "array<string>",
    "list<struct>": "array<{}>",
    "struct": "{}",
    "map<string, int64>": "map<string, bigint>",
    "map<string, string>": "map<string, string>",
    "map<string, struct>": "map<string, {}>",
}
_Reader = tuple[str, Callable[[Any], Any], tuple["TableColumn", ...], bool]
_PLAIN = frozenset((type(None), bool, int, float, str))
#: Name of a column whose entries stand in the row itself, such as the counts of a command.
SPREAD = "*"


class TableColumn(NamedTuple):
    """A column of a table, or of the lines of ``--json``."""

    name: str
    type: ColumnType
    meaning: str
    unit: str = ""
    is_read: bool = False  #: True if a segment is opened for it; else the listing of the folder says it.
    fields: tuple[TableColumn, ...] = ()  #: Members of a struct.
    #: The attribute that has it, or a function of the value; default: the attribute of its name, in snake case.
    source: str | Callable[[Any], Any] = ""
    is_optional: bool = False  #: True if a row leaves it out where it is empty.


def line_type(word: str) -> TableColumn:
    """Return the column that tells lines of several kinds apart."""
    return TableColumn("type", "string", f"kind of the line: {word}", source=lambda _: word)


# ---- declarations ----


def declare_columns(*columns: TableColumn, with_fields: bool = False) -> Callable[[type[T]], type[T]]:
    """Declare the columns of a class, in their order.

    With `with_fields`, all fields of the class follow, subclasses' too; a declared column takes the place of the field
    of its name.
    """

    def declare(kind: type[T]) -> type[T]:
        kind.__columns__ = columns, with_fields  # type: ignore[attr-defined]
        return kind

    return declare


@functools.cache
def get_columns(kind: type) -> tuple[TableColumn, ...]:
    """Return the columns of a class; none for one that is no row."""
    columns, with_fields = getattr(kind, "__columns__", ((), True))
    if not with_fields:
        return columns
    fields = {camel_case(name): name for name in _field_names(kind)}
    first = {column.name: column for column in columns if column.name not in fields}
    rest = {name: TableColumn(name, "string", "", source=field) for name, field in fields.items()}
    return tuple((first | rest | {column.name: column for column in columns}).values())


def _field_names(kind: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", ())


# ---- rows ----


def to_row(value: Any, columns: tuple[TableColumn, ...] | None = None) -> dict[str, Any]:
    """Return a result, or a part of one, as its line of ``--json``.

    Parameters
    ----------
    value : object
        Such as a `Gap`, an `Audit` or one of its partitions, or a result of `pylogseg.offline`.
    columns : tuple of TableColumn, optional
        Other columns than those that its class declares.

    Returns
    -------
    dict
        Values that `json.dumps` takes, by the names of the columns.
    """
    kind: Any = type(value)
    row: dict[str, Any] = {}
    for name, read, fields, is_optional in _readers_of(kind) if columns is None else _readers(columns):
        part = read(value)
        if type(part) not in _PLAIN:
            part = _with_fields(part, fields) if fields else to_json(part)
        if name == SPREAD:
            row.update(part)
        elif part or not is_optional:
            row[name] = part
    return row


def to_json(value: Any) -> Any:
    """Return a value as `json.dumps` takes it: rows as dictionaries, errors and members of enums as their text."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return list(value) if all(type(part) in _PLAIN for part in value) else [to_json(part) for part in value]
    if kind is dict:
        return {str(name): to_json(part) for name, part in value.items()}
    if get_columns(kind):
        return to_row(value)
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, Exception) else value


def _with_fields(value: Any, fields: tuple[TableColumn, ...]) -> Any:
    if isinstance(value, dict):
        return {name: part if type(part) in _PLAIN else _with_fields(part, fields) for name, part in value.items()}
    if type(value) in (list, tuple):
        return [_with_fields(part, fields) for part in value]
    return to_row(value, fields)


@functools.cache
def _readers_of(kind: type) -> tuple[_Reader, ...]:
    return _readers(get_columns(kind))


@functools.cache
def _readers(columns: tuple[TableColumn, ...]) -> tuple[_Reader, ...]:
    return tuple((column.name, _reader(column), column.fields, column.is_optional) for column in columns)


def _reader(column: TableColumn) -> Callable[[Any], Any]:
    if callable(column.source):
        return column.source
    return operator.attrgetter(column.source or re.sub("([A-Z])", r"_\1", column.name).lower())


def camel_case(name: str) -> str:
    """Return a name as JSON has it: ``end_position`` is ``endPosition``."""
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


# ---- schemas ----


def spark_ddl(columns: Iterable[TableColumn]) -> str:
    return ", ".join(f"`{column.name}` {_spark_type(column)}" for column in columns)


def _spark_type(column: TableColumn) -> str:
    fields = ", ".join(f"`{inner.name}`: {_spark_type(inner)}" for inner in column.fields)
    return _SPARK_TYPES[column.type].format(f"struct<{fields}>")


def markdown(columns: Iterable[TableColumn]) -> str:
    rows = [f"| `{c.name}` | `{c.type}` | {_meaning(c)} |\n" for c in columns]
    return "| column | type | meaning |\n|---|---|---|\n" + "".join(rows)


def _meaning(column: TableColumn) -> str:
    unit = f" ({column.unit})" if column.unit else ""
    fields = ", ".join(f"`{inner.name}`" for inner in column.fields)
    return f"{column.meaning}{unit}{': ' if fields else ''}{fields}"
