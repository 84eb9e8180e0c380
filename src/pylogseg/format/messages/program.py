"""A message as the program by which `_native/_messages.pyx` decodes columns of it.

All versions of a message fill the same columns: a field that a version does not have gets its default. `Column` maps
nodes of the result to fields.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _messages
from pylogseg.errors import RequestError
from pylogseg.format.messages.codec import MOST_TEXT_BYTES, is_flexible, least_bytes
from pylogseg.format.messages.schema import WIDTHS, Message, MessageField, Versions, message

# The codes of `_native/kernels/message.pxd`.
_NUMBERS = {1: 0, 2: 1, 4: 2, 8: 3}
_UUID, _TEXT, _LIST, _MAYBE, _TAGS, _DEFAULT, _SKIP = range(4, 11)
_EMPTY, _NULL, _NO_UUID = 0, -1, -2
_LIST_NODE, _STRUCT_NODE = -1, -2

_Ints = npt.NDArray[np.int32]
#: Of numbers in the order of the machine; a bool is a byte.
_DTYPES: dict[str, Any] = {
    "bool": np.bool_,
    "int8": np.int8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "float64": np.float64,
}


class Column(NamedTuple):
    """A field in the result of a program; a list has its item as its only child.

    `node` is where its items are, -1 for a struct that is never null. `nullable` is of any version.
    """

    name: str
    type: str
    node: int
    nullable: bool
    children: tuple[Column, ...] = ()


class Program(NamedTuple):
    """Arguments of the kernel, which describes them."""

    entry: _Ints
    ops: _Ints
    tags: _Ints
    nodes: _Ints
    columns: tuple[Column, ...]


class Decoded(NamedTuple):
    """Columns of messages, and of each message a status: 0, or an index of `pylogseg._native._messages.REASONS`.

    `rest` is bytes behind the last known field, `unknown_tags` a count. A node is items, ends, data and validity.
    """

    columns: tuple[Column, ...]
    nodes: list[Any]
    status: npt.NDArray[np.uint8]
    rest: _Ints
    unknown_tags: _Ints


class _Compiler:
    def __init__(self, of: Message) -> None:
        self._flexible: Versions = of.flexible
        self.ops: list[list[int]] = [[_DEFAULT, 0, 0, 0, 0, 0]]  # no version begins at 0, which says: unknown
        self.tags: list[list[int]] = []
        self.nodes: list[list[int]] = []
        self.columns = self._columns(of.fields, -1, False, True)

    def _node(self, parent: int, in_list: bool, width: int, blank: bool, nullable: bool) -> int:
        self.nodes.append([parent, in_list, width, blank, nullable])
        return len(self.nodes) - 1

    def _columns(self, fields: tuple[MessageField, ...], parent: int, in_list: bool, blank: bool) -> tuple[Column, ...]:
        return tuple(self._column(field, parent, in_list, blank) for field in fields)

    def _column(self, field: MessageField, parent: int, in_list: bool, blank: bool) -> Column:
        nullable = field.nullable.last >= field.nullable.first
        if field.is_list:
            node = self._node(parent, in_list, _LIST_NODE, blank, nullable)
            if field.type == "struct":
                item = Column("item", "struct", -1, False, self._columns(field.fields, node, True, False))
            else:
                item = self._scalar("item", field.type, node, True, False, False)
            return Column(field.name, "list", node, nullable, (item,))
        if field.type != "struct":
            return self._scalar(field.name, field.type, parent, in_list, blank, nullable)
        if not nullable:
            return Column(field.name, "struct", -1, False, self._columns(field.fields, parent, in_list, blank))
        node = self._node(parent, in_list, _STRUCT_NODE, blank, True)
        return Column(field.name, "struct", node, True, self._columns(field.fields, node, False, blank))

    def _scalar(self, name: str, kind: str, parent: int, in_list: bool, blank: bool, nullable: bool) -> Column:
        width = 0 if kind == "uuid" else WIDTHS.get(kind, 0)
        return Column(name, kind, self._node(parent, in_list, width, blank, nullable), nullable)

    def version(self, fields: tuple[MessageField, ...], version: int) -> tuple[int, int]:
        """Add the ops of a version; returns where they begin and end."""
        first = len(self.ops)
        self._struct(fields, self.columns, version)
        return first, len(self.ops)

    def _struct(self, fields: tuple[MessageField, ...], columns: tuple[Column, ...], version: int) -> None:
        tagged = []
        for field, column in zip(fields, columns, strict=True):
            if field.tagged.has(version):
                tagged.append((field.tag, field, column))
            elif field.versions.has(version):
                self._value(field, column, version, False)
            else:
                self._absent(field, column)
        if self._flexible.has(version):
            at = len(self.ops)
            self.ops.append([_TAGS, 0, 0, 0, 0, 0])
            self._tags(at, sorted(tagged, key=lambda row: row[0]), version)

    def _tags(self, at: int, tagged: list[tuple[int, MessageField, Column]], version: int) -> None:
        """Ops of tagged fields are behind one that skips them: nothing but the table of tags leads to them."""
        if not tagged:
            return
        skip = len(self.ops)
        self.ops.append([_SKIP, 0, 0, 0, 0, 0])
        rows = []
        for tag, field, column in tagged:
            first = len(self.ops)
            self._value(field, column, version, True)
            middle = len(self.ops)
            self._absent(field, column)
            rows.append([tag, first, middle, middle, len(self.ops)])
        self.ops[at][2:4] = [len(self.tags), len(self.tags) + len(rows)]
        self.tags += rows
        self.ops[skip][5] = len(self.ops)

    def _value(self, field: MessageField, column: Column, version: int, tagged: bool) -> None:
        compact = is_flexible(field, version, self._flexible)
        nullable = field.nullable.has(version)
        if field.is_list:
            at = len(self.ops)
            least = least_bytes(field, version, self._flexible)
            self.ops.append([_LIST, column.node, 0 if compact else 4, nullable, least, 0])
            if field.type == "struct":
                self._struct(field.fields, column.children[0].children, version)
            else:
                self._read(field.type, column.children[0].node, compact, False)
            self.ops[at][5] = len(self.ops)
        elif field.type != "struct":
            self._read(field.type, column.node, compact, nullable)
        elif not nullable:
            self._present(field, column, version)
        else:
            at = len(self.ops)
            self.ops.append([_MAYBE, column.node, tagged, 0, 0, 0])
            self._struct(field.fields, column.children, version)
            self.ops[at][4] = len(self.ops)
            for inner, child in zip(field.fields, column.children, strict=True):
                self._absent(inner, child)
            self.ops[at][5] = len(self.ops)

    def _present(self, field: MessageField, column: Column, version: int) -> None:
        """A struct that cannot be null in this version, though it has a node if it can in another."""
        if column.node >= 0:
            self.ops.append([_DEFAULT, column.node, _EMPTY, 0, 0, 0])
        self._struct(field.fields, column.children, version)

    def _read(self, kind: str, node: int, compact: bool, nullable: bool) -> None:
        if kind == "uuid":
            self.ops.append([_UUID, node, 0, 0, 0, 0])
        elif kind in WIDTHS:
            self.ops.append([_NUMBERS[WIDTHS[kind]], node, 0, 0, 0, 0])
        else:
            is_text = kind == "string"
            size = 0 if compact else (2 if is_text else 4)
            self.ops.append([_TEXT, node, size, nullable, MOST_TEXT_BYTES if is_text else 2**31 - 1, 0])

    def _absent(self, field: MessageField, column: Column) -> None:
        if field.type == "struct" and not field.is_list:
            if column.node >= 0:
                self.ops.append([_DEFAULT, column.node, _NULL if field.default is None else _EMPTY, 0, 0, 0])
            for inner, child in zip(field.fields, column.children, strict=True):
                self._absent(inner, child)
        elif field.default is None or field.default in ("", b"", []):
            self.ops.append([_DEFAULT, column.node, _NULL if field.default is None else _EMPTY, 0, 0, 0])
        elif field.type == "uuid":
            self.ops.append([_DEFAULT, column.node, _NO_UUID, 0, 0, 0])
        elif field.type in WIDTHS:
            width = WIDTHS[field.type]
            value = np.float64(field.default).view(np.int64).item() if field.type == "float64" else int(field.default)
            low, high = np.array([value], np.int64).view(np.int32).tolist()
            self.ops.append([_DEFAULT, column.node, width, low, high, 0])
        else:
            raise RequestError(f"{field.name}: a default of {field.default!r} cannot be decoded into columns")


@functools.cache
def program_of(name: str) -> Program:
    of = message(name)
    compiler = _Compiler(of)
    entry = np.zeros((of.versions.last + 1, 2), np.int32)
    for version in range(of.versions.first, of.versions.last + 1):
        entry[version] = compiler.version(of.fields, version)
    return Program(
        entry,
        np.array(compiler.ops, np.int32).reshape(-1, 6),
        np.array(compiler.tags, np.int32).reshape(-1, 5),
        np.array(compiler.nodes, np.int32).reshape(-1, 5),
        compiler.columns,
    )


def decode_columns(
    name: str,
    version: npt.NDArray[np.int16],
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
) -> Decoded:
    """Decode messages of one kind, given by `place`, `size` and `sources`; an unknown version gets a status."""
    plan = program_of(name)
    count = len(size)
    status, rest, unknown = np.empty(count, np.uint8), np.empty(count, np.int32), np.empty(count, np.int32)
    nodes = _messages.decode(
        place, size, sources, plan.entry, version, plan.ops, plan.tags, plan.nodes, status, rest, unknown
    )
    return Decoded(plan.columns, nodes, status, rest, unknown)


class Heads(NamedTuple):
    """Type and version in front of each message, and how many bytes they take.

    A number of -1 is a null value, -2 one without a head, -3 a frame of another version.
    """

    number: _Ints
    version: _Ints
    skip: npt.NDArray[np.uint8]


def heads(
    place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[Any, ...], *, framed: bool
) -> Heads:
    """Return the two bytes, or if messages are framed the three varints, in front of each message."""
    count = len(size)
    numbers = Heads(np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.uint8))
    _messages.heads(place, size, sources, framed, *numbers)
    return numbers


def message_rows(decoded: Decoded) -> list[dict[str, Any]]:
    """Return decoded messages as dictionaries, as `codec.decode_message` makes them; all must have been decoded."""
    count = len(decoded.status)
    return _structs(decoded.columns, decoded.nodes, count)


def _structs(columns: tuple[Column, ...], nodes: list[Any], count: int) -> list[dict[str, Any]]:
    names = [column.name for column in columns]
    values = zip(*(_values(column, nodes, count) for column in columns), strict=True)
    return [dict(zip(names, row, strict=True)) for row in values] if columns else [{} for _ in range(count)]


def _values(column: Column, nodes: list[Any], count: int) -> list[Any]:
    """The items of a column as Python has them."""
    if column.node < 0:
        return _structs(column.children, nodes, count)
    items, ends, data, valid = nodes[column.node]
    if not items:
        return []
    there = None if valid is None else np.frombuffer(valid, np.uint8)
    if there is not None and not there.any():
        return [None] * items
    if column.type == "struct":
        values: list[Any] = _structs(column.children, nodes, items)
    elif column.type == "list":
        stops = np.frombuffer(ends, np.int32).tolist()
        inner = _values(column.children[0], nodes, stops[-1])
        values = [inner[start:stop] for start, stop in itertools.pairwise(stops)]
    elif column.type in _DTYPES:
        values = np.frombuffer(data, _DTYPES[column.type]).tolist()
    else:
        raw, stops = bytes(data), np.frombuffer(ends, np.int32).tolist()
        values = [raw[start:stop] for start, stop in itertools.pairwise(stops)]
        if column.type in ("string", "uuid"):
            values = [text.decode("utf-8", "surrogateescape") for text in values]
    if there is None or there.all():
        return values
    return [value if is_there else None for value, is_there in zip(values, there.tolist(), strict=True)]
