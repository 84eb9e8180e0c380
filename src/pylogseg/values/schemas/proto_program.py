"""Programs for the kernel of Protobuf: columns of a message, and the tables that fill them.

Fields have numbers, so the reader's schema reads every version of a message and ignores fields that it does not have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg._native import _typed
from pylogseg.errors import RequestError
from pylogseg.values.schemas.columns import DEEPEST, Nodes, TypedColumn, Values, room_for
from pylogseg.values.schemas.proto_schema import TIMES, ProtoEnum, ProtoField, ProtoFile, ProtoMessage

(INT32, INT64, SINT32, SINT64, BOOL, CLOSED_ENUM, FIXED32, FIXED64, TEXT, BYTES, MESSAGE, GROUP, TIME) = range(13)
_REPEATED, _PRESENCE, _ALWAYS, _PLAIN = 1, 2, 4, 8
#: Kind and column of each scalar.
_SCALARS = {
    "double": (FIXED64, "double"),
    "float": (FIXED32, "float"),
    "int32": (INT32, "int32"),
    "int64": (INT64, "int64"),
    "uint32": (INT32, "uint32"),
    "uint64": (INT64, "uint64"),
    "sint32": (SINT32, "int32"),
    "sint64": (SINT64, "int64"),
    "fixed32": (FIXED32, "uint32"),
    "fixed64": (FIXED64, "uint64"),
    "sfixed32": (FIXED32, "int32"),
    "sfixed64": (FIXED64, "int64"),
    "bool": (BOOL, "bool"),
    "string": (TEXT, "string"),
    "bytes": (BYTES, "binary"),
}


class ProtoProgram:
    """Decodes values of one message into columns.

    A message that stands in itself more often than `recursion` stays bytes.
    """

    def __init__(self, file: ProtoFile, message: ProtoMessage, recursion: int) -> None:
        self._file, self._recursion = file, recursion
        self._nodes = Nodes()
        self._messages: list[list[int]] = []
        self._fields: list[list[list[int]]] = []
        self._table: list[int] = []
        self.column = self._message(message, "value", -1, ())
        firsts = np.cumsum([0, *(len(rows) for rows in self._fields)])
        for i, row in enumerate(self._messages):
            row[0], row[1] = int(firsts[i]), int(firsts[i + 1])
        self._arrays = (
            np.array(self._messages, np.int32).reshape(-1, 3),
            np.array([row for rows in self._fields for row in rows], np.int32).reshape(-1, 8),
            np.array(self._table, np.int32),
            self._nodes.array(),
        )

    def decode(
        self, place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[Any, ...],
        entry: npt.NDArray[np.int32], room: int | None = None,
    ) -> Values:  # fmt: skip
        """Decode values that lie at places in sources; `entry` is 0, or a status turned around; `room` as of Avro."""
        messages, fields, table, nodes = self._arrays
        status, position = np.empty(len(size), np.uint8), np.empty(len(size), np.int32)
        where = self._nodes.places(len(size))
        filled = _typed.decode_protobuf(
            place, size, sources, entry, messages, fields, table, nodes, status, position,
            room_for(size) if room is None else room, where,
        )  # fmt: skip
        return Values(self.column, filled, status, position, len(size), where)

    def _message(self, of: ProtoMessage, name: str, parent: int, path: tuple[str, ...]) -> TypedColumn:
        if len(path) > DEEPEST:
            raise RequestError(f"the schema nests more than {DEEPEST} messages")
        node = self._nodes.begin(parent, "struct")
        self._messages.append([0, 0, node])
        rows: list[list[int]] = []
        self._fields.append(rows)
        oneofs = {name: i + 1 for i, name in enumerate(dict.fromkeys(f.oneof for f in of.fields if f.oneof))}
        columns = []
        for field in of.fields:
            column, row = self._field(of, field, node, (*path, of.name))
            columns.append(column)
            row[0], row[5] = field.number, oneofs.get(field.oneof, 0)
            if row[1] <= BYTES and row[1] != CLOSED_ENUM and not row[3] & _REPEATED and not row[5]:
                row[3] |= _PLAIN
            rows.append(row)
        rows.sort()
        self._nodes.end(node)
        return TypedColumn(name, "struct", node, tuple(columns))

    def _field(
        self, of: ProtoMessage, each: ProtoField, node: int, path: tuple[str, ...]
    ) -> tuple[TypedColumn, list[int]]:
        flags = _REPEATED if each.is_repeated else _PRESENCE if each.has_presence else 0
        entry = self._file.messages.get(each.type)
        if not each.is_repeated:
            column, row = self._one(of, each, each.name, node, path)
        elif entry is not None and entry.is_entry:
            column, row = self._map(each, entry, node, path)
        else:
            outer = self._nodes.begin(node, "list")
            item, row = self._one(of, each, "element", outer, path)
            self._nodes.end(outer)
            column = TypedColumn(each.name, "list", outer, (item,))
        row[2], row[3] = column.node, flags | row[3]
        return column, row

    def _map(
        self, each: ProtoField, entry: ProtoMessage, node: int, path: tuple[str, ...]
    ) -> tuple[TypedColumn, list[int]]:
        outer = self._nodes.begin(node, "map")
        message = len(self._messages)
        item = self._message(entry, "entries", outer, path)
        for row in self._fields[message]:
            if row[1] == MESSAGE:
                row[3] |= _ALWAYS
        self._nodes.end(outer)
        return TypedColumn(each.name, "map", outer, (item,)), [0, MESSAGE, 0, 0, message, 0, 0, 0]

    def _one(
        self, of: ProtoMessage, each: ProtoField, name: str, parent: int, path: tuple[str, ...]
    ) -> tuple[TypedColumn, list[int]]:
        """A column of one item of a field; the row's number, node and oneof are still to be filled in."""
        if each.type in _SCALARS:
            kind, column = _SCALARS[each.type]
            return TypedColumn(name, column, self._leaf(parent, column)), [0, kind, 0, 0, 0, 0, 0, 0]
        enum = self._file.enums.get(each.type)
        if enum is not None:
            return self._enum(enum, name, parent)
        if each.type in TIMES:
            is_time = each.type.endswith("Timestamp")
            kind_of = "timestamp" if is_time else "duration"
            column_of = TypedColumn(name, kind_of, self._leaf(parent, kind_of), unit="ns", is_utc=is_time)
            return column_of, [0, TIME, 0, 0, 0, 0, 0, 0]
        inner = self._file.messages[each.type]
        if path.count(inner.name) > self._recursion and not each.is_group:
            return TypedColumn(name, "binary", self._leaf(parent, "binary"), role="raw"), [0, BYTES, 0, 0, 0, 0, 0, 0]
        message = len(self._messages)
        nested = self._message(inner, name, parent, path)
        return nested, [0, GROUP if each.is_group else MESSAGE, 0, 0, message, 0, 0, 0]

    def _enum(self, enum: ProtoEnum, name: str, parent: int) -> tuple[TypedColumn, list[int]]:
        """Numbers of an enum; a number with several names has the first one."""
        names: dict[int, str] = {}
        for symbol, number in enum.numbers.items():
            names.setdefault(number, symbol)
        symbols = tuple(f"{number}={names[number]}" for number in sorted(names))
        column = TypedColumn(name, "open_enum", self._leaf(parent, "open_enum"), symbols=symbols)
        at = len(self._table)
        if enum.is_closed:
            self._table += sorted(names)
        return column, [0, CLOSED_ENUM if enum.is_closed else INT32, 0, 0, 0, 0, at, len(self._table) - at]

    def _leaf(self, parent: int, kind: str) -> int:
        node = self._nodes.begin(parent, kind)
        self._nodes.end(node)
        return node


def plain_indexes(raw: bytes, *, zigzag: bool) -> tuple[list[int], int] | None:
    """Read a path of indexes, and how many bytes it has; None if it cannot be one.

    Clients of before 2022 wrote plain varints, where others write zigzag ones.
    """
    numbers: list[int] = []
    at, wanted = 0, 1
    while len(numbers) < wanted:
        value = shift = 0
        while True:
            if at >= len(raw) or shift > 28:
                return None
            value |= (raw[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if raw[at - 1] < 0x80:
                break
        numbers.append((value >> 1) ^ -(value & 1) if zigzag else value)
        if len(numbers) == 1:
            if not 0 <= numbers[0] <= 32:
                return None
            wanted = 1 + numbers[0]
    return (numbers[1:] or [0]), at
