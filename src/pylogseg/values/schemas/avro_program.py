"""Programs for the kernel of Avro: columns of the reader's schema, and ops for each writer's schema to fill them.

Resolution follows Avro's rules: fields by name or an alias of the reader, promotion of numbers, text and bytes either
way, symbols of enums by name, defaults for what the writer has not, branches of unions by kind and name first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg._codec import encode_varlong
from pylogseg._native import _typed
from pylogseg.errors import RequestError
from pylogseg.values.schemas.avro_schema import MISSING, AvroField, AvroType
from pylogseg.values.schemas.columns import DEEPEST, WIDEST, Nodes, TypedColumn, Values, room_for

(NULL, BOOLEAN, INT, LONG, INT_LONG, TO_FLOAT, TO_DOUBLE, FLOAT, DOUBLE, FLOAT_DOUBLE, BYTES, TEXT, FIXED, ENUM,
 DECIMAL, DURATION, LIST, STRUCT, OPTIONAL, UNION, BLANK, MISMATCH, CONSTANT, SKIP_NUMBER, SKIP_FIXED, SKIP_BYTES,
 SKIP_LIST, CALL, RAW, ALL, FIXED_BYTES, BETWEEN) = range(32)  # fmt: skip
_MOST_OPS = 100_000
#: How often a record may stand in itself before what is deeper stays bytes.
RECURSION = 4
_LOGICAL: dict[str, tuple[str, str, bool]] = {
    "date": ("date", "", False),
    "time-millis": ("time_ms", "", False),
    "time-micros": ("time_us", "", False),
    "timestamp-millis": ("timestamp", "ms", True),
    "timestamp-micros": ("timestamp", "us", True),
    "timestamp-nanos": ("timestamp", "ns", True),
    "local-timestamp-millis": ("timestamp", "ms", False),
    "local-timestamp-micros": ("timestamp", "us", False),
    "local-timestamp-nanos": ("timestamp", "ns", False),
}
#: The numbers of dates and times, by type and unit: a day, and the years 1 to 9999, as ISO 8601 and Python have them.
_DAY_SECONDS, _FIRST_DAY, _LAST_DAY = 86_400, -719_162, 2_932_896
_CALENDAR: dict[tuple[str, str], tuple[int, int]] = {
    ("date", ""): (_FIRST_DAY, _LAST_DAY),
    ("time_ms", ""): (0, _DAY_SECONDS * 10**3 - 1),
    ("time_us", ""): (0, _DAY_SECONDS * 10**6 - 1),
    **{
        ("timestamp", unit): (_FIRST_DAY * _DAY_SECONDS * per_second, (_LAST_DAY + 1) * _DAY_SECONDS * per_second - 1)
        for unit, per_second in (("ms", 10**3), ("us", 10**6))
    },
    # Of nanoseconds all that fit are in a calendar. Engines take the first and last numbers for none and for infinity.
    ("timestamp", "ns"): (2 - 2**63, 2**63 - 2),
}
_PLAIN = {
    "null": "null",
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_PLAIN_OPS = {
    "null": NULL, "boolean": BOOLEAN, "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE, "bytes": BYTES,
    "string": TEXT,
}  # fmt: skip
#: Writer's and reader's kinds of numbers: op, and its operand a.
_PROMOTIONS = {
    ("int", "long"): (INT_LONG, 0),
    ("int", "float"): (TO_FLOAT, 0),
    ("long", "float"): (TO_FLOAT, 1),
    ("int", "double"): (TO_DOUBLE, 0),
    ("long", "double"): (TO_DOUBLE, 1),
    ("float", "double"): (FLOAT_DOUBLE, 0),
    ("string", "bytes"): (BYTES, 0),
    ("bytes", "string"): (TEXT, 0),
}
_SKIPS = {
    "null": None,
    "boolean": (SKIP_FIXED, 1),
    "int": (SKIP_NUMBER, 0),
    "long": (SKIP_NUMBER, 0),
    "enum": (SKIP_NUMBER, 0),
    "float": (SKIP_FIXED, 4),
    "double": (SKIP_FIXED, 8),
    "bytes": (SKIP_BYTES, 0),
    "string": (SKIP_BYTES, 0),
}


#: Entries, ops, table, constants and nodes, as the kernel takes them.
Arrays = tuple[Any, Any, Any, Any, Any]


class IncompatibleError(RequestError):
    """Values of a writer's schema cannot be read by the reader's."""


class AvroProgram:
    """Decodes values of several writers' schemas into the columns of one reader's schema.

    A record that stands in itself more often than `recursion` stays bytes.
    """

    def __init__(self, reader: AvroType, recursion: int = RECURSION) -> None:
        self._reader, self._recursion = reader, recursion
        self._nodes = Nodes()
        self._ops: list[list[int]] = []
        self._table: list[int] = []
        self._constants = bytearray()
        self._entries: list[tuple[int, int]] = []
        self._routines: list[tuple[AvroType, int]] = []
        self._depth = 0
        self._least: dict[int, int] = {}
        self._recursive: dict[int, bool] = {}
        self._writers: list[AvroType] = []  # their types are known by identity
        self.column = self._column(reader, "value", -1, ())
        self._arrays: Arrays | None = None

    def add(self, writer: AvroType, *, is_bare: bool = False) -> int:
        """Add a writer's schema; return its number, which `decode` takes. Raises IncompatibleError if it does not fit.

        With `is_bare` a schema of bytes alone has no length in front of them, as Confluent's serializer writes it.
        """
        first, rows, constants = len(self._ops), len(self._table), len(self._constants)
        try:
            if is_bare and writer.kind == "bytes" and not writer.logical and self._is_bytes:
                self._op(ALL, self.column.node)
            else:
                self._resolve(writer, self._reader, self.column)
            stop = len(self._ops)
            self._finish_routines()
        except RequestError:
            del self._ops[first:], self._table[rows:], self._constants[constants:]
            self._routines.clear()
            raise
        self._writers.append(writer)
        self._entries.append((first, stop))
        self._arrays = None
        return len(self._entries) - 1

    def arrays(self) -> Arrays:
        """The present program; a later `add` does not change returned arrays."""
        if self._arrays is None:
            self._arrays = (
                np.array(self._entries, np.int32).reshape(-1, 2),
                np.array(self._ops, np.int32).reshape(-1, 6),
                np.array(self._table, np.int32),
                np.frombuffer(bytes(self._constants), np.uint8),
                self._nodes.array(),
            )
        return self._arrays

    def decode(
        self, place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[Any, ...],
        entry: npt.NDArray[np.int32], arrays: Arrays | None = None, room: int | None = None,
    ) -> Values:  # fmt: skip
        """Decode values that lie at places in sources; `entry` has the number of each one's writer, or a status < 0.

        Raises OverflowError if several values unfold to more than `room` bytes, by default what suits their sizes.
        """
        entries, ops, table, constants, nodes = arrays or self.arrays()
        status, position = np.empty(len(size), np.uint8), np.empty(len(size), np.int32)
        where = self._nodes.places(len(size))
        filled = _typed.decode_avro(
            place, size, sources, entry, entries, ops, table, constants, nodes, status, position,
            room_for(size) if room is None else room, where,
        )  # fmt: skip
        return Values(self.column, filled, status, position, len(size), where)

    @property
    def _is_bytes(self) -> bool:
        return self.column.type == "binary"

    # ------------------------------------------------------------------ columns of the reader

    def _column(self, of: AvroType, name: str, parent: int, path: tuple[str, ...]) -> TypedColumn:
        if len(path) > DEEPEST:
            raise RequestError(f"the schema nests more than {DEEPEST} types")
        inside = (*path, of.name or of.kind)
        if of.kind == "record":
            if path.count(of.name) > self._recursion:
                return TypedColumn(name, "binary", self._leaf(parent, "binary"), role="raw")
            node = self._nodes.begin(parent, "struct")
            fields = tuple(self._column(field.type, field.name, node, inside) for field in of.fields)
            self._nodes.end(node)
            return TypedColumn(name, "struct", node, fields)
        if of.kind == "union":
            return self._union_column(of, name, parent, inside)
        if of.kind == "array":
            node = self._nodes.begin(parent, "list")
            item = self._column(of.inner, "element", node, inside)
            self._nodes.end(node)
            return TypedColumn(name, "list", node, (item,))
        if of.kind == "map":
            node = self._nodes.begin(parent, "map")
            entry = self._nodes.begin(node, "struct")
            key = TypedColumn("key", "string", self._leaf(entry, "string"))
            value = self._column(of.inner, "value", entry, inside)
            self._nodes.end(entry)
            self._nodes.end(node)
            return TypedColumn(name, "map", node, (TypedColumn("entries", "struct", entry, (key, value)),))
        return self._leaf_column(of, name, parent)

    def _leaf(self, parent: int, kind: str, size: int = 0) -> int:
        node = self._nodes.begin(parent, kind, size)
        self._nodes.end(node)
        return node

    def _union_column(self, of: AvroType, name: str, parent: int, path: tuple[str, ...]) -> TypedColumn:
        those = [member for member in of.branches if member.kind != "null"]
        if not those:
            return TypedColumn(name, "null", self._leaf(parent, "null"))
        if len(those) == 1:
            return self._column(those[0], name, parent, path)
        node = self._nodes.begin(parent, "struct")
        short = [member.short_name for member in those]
        names = [member.name if short.count(member.short_name) > 1 else member.short_name for member in those]
        members = tuple(self._column(member, n, node, path) for member, n in zip(those, names, strict=True))
        self._nodes.end(node)
        return TypedColumn(name, "struct", node, members, role="union")

    def _leaf_column(self, of: AvroType, name: str, parent: int) -> TypedColumn:
        if of.logical == "decimal":
            size = 16 if of.precision <= 38 else 32
            node = self._leaf(parent, "decimal", size)
            return TypedColumn(name, "decimal", node, size=size, precision=of.precision, scale=of.scale)
        if of.logical == "duration":
            node = self._nodes.begin(parent, "struct")
            parts = tuple(
                TypedColumn(part, "uint32", self._leaf(node, "uint32")) for part in ("months", "days", "milliseconds")
            )
            self._nodes.end(node)
            return TypedColumn(name, "struct", node, parts)
        if of.kind == "fixed":
            if not 0 < of.size <= WIDEST:
                return TypedColumn(name, "binary", self._leaf(parent, "binary"))
            return TypedColumn(name, "fixed", self._leaf(parent, "fixed", of.size), size=of.size)
        if of.kind == "enum":
            return TypedColumn(name, "enum", self._leaf(parent, "enum"), symbols=of.symbols)
        kind, unit, is_utc = _LOGICAL.get(of.logical, (_PLAIN[of.kind], "", False))
        return TypedColumn(name, kind, self._leaf(parent, kind), unit=unit, is_utc=is_utc)

    # ------------------------------------------------------------------ ops

    def _op(self, code: int, node: int = 0, a: int = 0, b: int = 0, c: int = 0) -> int:
        if len(self._ops) >= _MOST_OPS:
            raise RequestError(f"the schema unfolds to more than {_MOST_OPS} steps")
        self._ops.append([code, node, a, b, c, 0])
        return len(self._ops) - 1

    def _close(self, op: int) -> None:
        self._ops[op][5] = len(self._ops)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        try:
            if self._depth > 3 * DEEPEST:
                raise RequestError("the schema is nested too deeply")
            yield
        finally:
            self._depth -= 1

    def _resolve(self, writer: AvroType, reader: AvroType, column: TypedColumn) -> None:
        with self._deeper():
            if column.role == "raw" and "union" not in (writer.kind, reader.kind):
                op = self._op(RAW, column.node)
                self._skip(writer)
                self._close(op)
            elif writer.kind == "union":
                self._resolve_union(writer, reader, column)
            elif reader.kind == "union":
                self._resolve_into(writer, reader, column)
            else:
                self._resolve_plain(writer, reader, column)

    def _resolve_union(self, writer: AvroType, reader: AvroType, column: TypedColumn) -> None:
        """A reader's branch for each of the writer's; a value of a branch without one fails."""
        kinds = [branch.kind for branch in writer.branches]
        is_simple = reader.kind == "union" and column.role != "union" and column.type != "null"
        if is_simple and len(kinds) == 2 and kinds.count("null") == 1 and _takes_null(reader):
            null = kinds.index("null")
            op = self._op(OPTIONAL, column.node, null)
            self._resolve_into(writer.branches[1 - null], reader, column)
            self._close(op)
            return
        op = self._op(UNION, column.node, 0, len(kinds))
        rows: list[int] = []
        problems = []
        for branch in writer.branches:
            first, routines, table = len(self._ops), len(self._routines), len(self._table)
            try:
                self._resolve(branch, reader, column)
            except IncompatibleError as error:
                problems.append(error)
                del self._ops[first:], self._routines[routines:], self._table[table:]
                self._op(MISMATCH)
            rows += [first, len(self._ops)]
        if len(problems) == len(kinds):
            raise problems[0] if problems else IncompatibleError("a union without branches")
        self._ops[op][2] = len(self._table)
        self._table += rows
        self._close(op)

    def _resolve_into(self, writer: AvroType, reader: AvroType, column: TypedColumn) -> None:
        """One type of the writer's into a union."""
        chosen = _branch_for(writer, reader)
        if chosen is None:
            raise IncompatibleError(
                f"{writer.short_name} is not one of {', '.join(b.short_name for b in reader.branches)}"
            )
        if chosen.kind == "null":
            self._op(NULL if column.type == "null" else BLANK, column.node)
        elif column.role != "union":
            self._resolve(writer, chosen, column)
        else:
            self._op(STRUCT, column.node)
            those = [member for member in reader.branches if member.kind != "null"]
            for branch, member in zip(those, column.children, strict=True):
                if branch is chosen:
                    self._resolve(writer, chosen, member)
                else:
                    self._op(BLANK, member.node)

    def _resolve_plain(self, writer: AvroType, reader: AvroType, column: TypedColumn) -> None:
        pair, node = (writer.kind, reader.kind), column.node
        if reader.logical == "decimal":
            self._decimal(writer, reader, column)
        elif pair in _PROMOTIONS:
            self._op(_PROMOTIONS[pair][0], node, _PROMOTIONS[pair][1])
            self._between(column)
        elif writer.kind != reader.kind:
            raise IncompatibleError(f"{writer.short_name} cannot be read as {reader.short_name}")
        elif reader.kind in _PLAIN_OPS:
            self._op(_PLAIN_OPS[reader.kind], node)
            self._between(column)
        elif reader.kind == "record":
            self._record(writer, reader, column)
        elif reader.kind == "enum":
            self._enum(writer, reader, column)
        elif reader.kind == "fixed":
            if writer.size != reader.size:
                raise IncompatibleError(f"{writer.name} has {writer.size} bytes, {reader.name} {reader.size}")
            if reader.logical == "duration":
                self._op(DURATION, node)
            elif reader.size:
                self._op(FIXED if reader.size <= WIDEST else FIXED_BYTES, node, reader.size)
            else:
                self._constant(b"\0", lambda: self._op(BYTES, node))
        else:
            self._list(writer, reader, column)

    def _between(self, column: TypedColumn) -> None:
        """A date or time has to be one of a calendar."""
        bounds = _CALENDAR.get((column.type, column.unit))
        if bounds is not None:
            self._op(BETWEEN, column.node, 0, len(self._constants))
            self._constants += struct.pack("=qq", *bounds)

    def _list(self, writer: AvroType, reader: AvroType, column: TypedColumn) -> None:
        is_map = reader.kind == "map"
        op = self._op(LIST, column.node, int(not is_map and self._least_bytes(writer.inner) == 0))
        item = column.children[0]
        if is_map:
            self._op(STRUCT, item.node)
            self._op(TEXT, item.children[0].node)
            item = item.children[1]
        self._resolve(writer.inner, reader.inner, item)
        self._close(op)

    def _decimal(self, writer: AvroType, reader: AvroType, column: TypedColumn) -> None:
        if writer.kind not in ("bytes", "fixed") or (writer.kind, reader.kind) == ("fixed", "bytes"):
            raise IncompatibleError(f"{writer.short_name} cannot be read as a decimal")
        if writer.kind != reader.kind or (writer.kind == "fixed" and writer.size != reader.size):
            raise IncompatibleError(f"{writer.short_name} cannot be read as {reader.short_name}")
        if writer.logical == "decimal" and writer.scale != reader.scale:
            raise IncompatibleError(f"a decimal of scale {writer.scale} cannot be read as one of {reader.scale}")
        bound = 10**reader.precision
        at = len(self._constants)
        self._constants += bound.to_bytes(column.size, "little")
        safe = (bound.bit_length() - 1) // 8
        self._op(DECIMAL, column.node, writer.size if writer.kind == "fixed" else -1, at, safe)

    def _enum(self, writer: AvroType, reader: AvroType, column: TypedColumn) -> None:
        places = {symbol: i for i, symbol in enumerate(reader.symbols)}
        default = -1 if reader.default is None else places[reader.default]
        at = len(self._table)
        self._table += [places.get(symbol, default) for symbol in writer.symbols]
        self._op(ENUM, column.node, at, len(writer.symbols))

    def _record(self, writer: AvroType, reader: AvroType, column: TypedColumn) -> None:
        self._op(STRUCT, column.node)
        places = {field.name: i for i, field in enumerate(reader.fields)}
        aliases = {alias: i for i, field in enumerate(reader.fields) for alias in field.aliases}
        names = {field.name for field in writer.fields}
        taken = set()
        for field in writer.fields:
            i = places.get(field.name)
            if i is None:
                i = aliases.get(field.name)
                if i is not None and reader.fields[i].name in names:
                    i = None
            if i is None or i in taken:
                self._skip(field.type)
                continue
            taken.add(i)
            try:
                self._resolve(field.type, reader.fields[i].type, column.children[i])
            except IncompatibleError as error:
                raise IncompatibleError(f"field {field.name}: {error}") from None
        for i, other in enumerate(reader.fields):
            if i not in taken:
                self._default(other, column.children[i])

    def _default(self, of: AvroField, column: TypedColumn) -> None:
        if of.default is MISSING:
            raise IncompatibleError(f"the writer has no field {of.name}, and the reader no default for it")
        if of.default is None and _takes_null(of.type) and column.type != "null":
            self._op(BLANK, column.node)
            return
        try:
            raw = encode_default(of.type, of.default)
        except (TypeError, ValueError, KeyError, struct.error, OverflowError, RecursionError):
            raise IncompatibleError(f"the default of field {of.name} is not of its type") from None
        self._constant(raw, lambda: self._resolve(of.type, of.type, column))

    def _constant(self, raw: bytes, body: Any) -> None:
        op = self._op(CONSTANT, 0, len(self._constants), len(raw))
        self._constants += raw
        body()
        self._close(op)

    # ------------------------------------------------------------------ skipping

    def _skip(self, writer: AvroType) -> None:
        with self._deeper():
            kind = writer.kind
            if kind == "record":
                if self._contains_itself(writer):
                    self._routines.append((writer, self._op(CALL)))
                else:
                    for field in writer.fields:
                        self._skip(field.type)
            elif kind == "fixed":
                self._op(SKIP_FIXED, 0, writer.size)
            elif kind in ("array", "map"):
                op = self._op(SKIP_LIST, 0, int(kind == "array" and self._least_bytes(writer.inner) == 0))
                if kind == "map":
                    self._op(SKIP_BYTES)
                self._skip(writer.inner)
                self._close(op)
            elif kind == "union":
                op, rows = self._op(UNION, 0, 0, len(writer.branches)), []
                for branch in writer.branches:
                    first = len(self._ops)
                    self._skip(branch)
                    rows += [first, len(self._ops)]
                self._ops[op][2] = len(self._table)
                self._table += rows
                self._close(op)
            else:
                step = _SKIPS[kind]
                if step is not None:
                    self._op(step[0], 0, step[1])

    def _finish_routines(self) -> None:
        """The code that skips a record that contains itself is made once for each, and called."""
        routines: dict[int, tuple[int, int]] = {}
        while self._routines:
            of, call = self._routines.pop()
            if id(of) not in routines:
                first = len(self._ops)
                for field in of.fields:
                    self._skip(field.type)
                routines[id(of)] = first, len(self._ops)
            self._ops[call][2:4] = routines[id(of)]

    def _contains_itself(self, of: AvroType) -> bool:
        if id(of) not in self._recursive:
            self._recursive[id(of)] = _is_recursive(of)
        return self._recursive[id(of)]

    def _least_bytes(self, of: AvroType) -> int:
        """The fewest bytes of a value, as far as it matters: 0 or more."""
        if id(of) in self._least:
            return self._least[id(of)]
        self._least[id(of)] = 0  # of a record that directly contains itself
        if of.kind == "record":
            least = sum(self._least_bytes(field.type) for field in of.fields)
        elif of.kind == "fixed":
            least = of.size
        else:
            least = 0 if of.kind == "null" else 1
        self._least[id(of)] = least
        return least


def _takes_null(of: AvroType) -> bool:
    return of.kind == "union" and any(branch.kind == "null" for branch in of.branches)


def _is_recursive(of: AvroType) -> bool:
    """True if a record contains itself."""
    seen: set[int] = set()
    waiting = [field.type for field in of.fields]
    while waiting:
        one = waiting.pop()
        if one is of:
            return True
        if id(one) not in seen:
            seen.add(id(one))
            waiting += [*(field.type for field in one.fields), *one.branches, *([one.items] if one.items else [])]
    return False


def _branch_for(writer: AvroType, reader: AvroType) -> AvroType | None:
    """The branch of the reader's union for a type: of the same kind and name first, then one that it can become."""
    same = [branch for branch in reader.branches if branch.kind == writer.kind]
    if writer.name:
        for branch in same:
            if writer.name in (branch.name, *branch.aliases):
                return branch
        for branch in same:
            if writer.short_name == branch.short_name:
                return branch
    if same:
        return same[0]
    return next((branch for branch in reader.branches if (writer.kind, branch.kind) in _PROMOTIONS), None)


def encode_default(of: AvroType, value: Any) -> bytes:
    """Encode the JSON of a default; for a union, by its first branch that fits."""
    kind = of.kind
    if kind == "union":
        for i, branch in enumerate(of.branches):
            try:
                return encode_varlong(i) + encode_default(branch, value)
            except (TypeError, ValueError, KeyError, struct.error, OverflowError):
                continue
        raise ValueError
    if kind == "null":
        if value is not None:
            raise ValueError
        return b""
    if kind == "boolean":
        return {True: b"\1", False: b"\0"}[_check_kind(value, bool)]
    if kind in ("int", "long"):
        if isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
            raise ValueError
        if kind == "int" and not -(1 << 31) <= value < 1 << 31:
            raise ValueError
        return encode_varlong(value)
    if kind in ("float", "double"):
        if isinstance(value, bool):
            raise ValueError
        return struct.pack("<f" if kind == "float" else "<d", float(value))
    if kind == "string":
        raw: bytes = _check_kind(value, str).encode()
        return encode_varlong(len(raw)) + raw
    if kind in ("bytes", "fixed"):
        raw = bytes(_check_kind(value, str), "latin-1")
        if kind == "fixed" and len(raw) != of.size:
            raise ValueError
        return raw if kind == "fixed" else encode_varlong(len(raw)) + raw
    if kind == "enum":
        return encode_varlong(of.symbols.index(value))
    if kind == "array":
        parts = [encode_default(of.inner, item) for item in _check_kind(value, list)]
        return (encode_varlong(len(parts)) if parts else b"") + b"".join(parts) + b"\0"
    if kind == "map":
        pairs = [encode_default(_STRING, k) + encode_default(of.inner, v) for k, v in _check_kind(value, dict).items()]
        return (encode_varlong(len(pairs)) if pairs else b"") + b"".join(pairs) + b"\0"
    row = _check_kind(value, dict)
    return b"".join(
        encode_default(field.type, row[field.name] if field.name in row else _default_of(field)) for field in of.fields
    )


_STRING = AvroType("string")


def _default_of(of: AvroField) -> Any:
    if of.default is MISSING:
        raise KeyError(of.name)
    return of.default


def _check_kind(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value
