"""Values in JSON as typed columns: types from a JSON Schema; usual values by a kernel, unusual by pyarrow's reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from pylogseg._native import _json, _typed
from pylogseg.errors import RequestError
from pylogseg.format import bounded_json
from pylogseg.format.escape import json_fault
from pylogseg.values.forms import rows_with
from pylogseg.values.roles import ROLE_KEY
from pylogseg.values.schemas.columns import DEEPEST, MOST_COLUMNS, Nodes, TypedColumn
from pylogseg.values.schemas.frames import Framed, Named
from pylogseg.values.schemas.schema import Schema
from pylogseg.values.schemas.store import Schemas
from pylogseg.values.typed import ArrowColumn
from pylogseg.values.typed_json_errors import is_inexact, mismatch

_PLAIN = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "null": pa.null(),
}
#: From here on not every whole number is a double.
_EXACT = 2.0**53
#: Of a field whose values have several types, or any: their JSON.
_ANY = {ROLE_KEY: b"json"}

# ---- usual values, by a kernel ----

# Kinds of parts, as `_json` takes them.
_OBJECT, _LIST, _ANYTHING = 1, 2, 3
_KINDS = {pa.string(): 4, pa.int64(): 5, pa.float64(): 6, pa.bool_(): 7, pa.null(): 8}
_NAMES = {pa.string(): "string", pa.int64(): "int64", pa.float64(): "double", pa.bool_(): "bool", pa.null(): "null"}
#: What a kernel may read behind the name of a part.
_BEHIND = bytes(16)
#: While values are read a column takes more than at the end: pyarrow keeps the texts of numbers.
_ARROW_TIMES = 4
#: Bytes of a line around its value.
_AROUND_BYTES = 7


class JsonParts(NamedTuple):
    """The parts of a type level by level, so that the parts of a level stand together, as `_json` takes them."""

    rows: npt.NDArray[np.int32]
    names: npt.NDArray[np.uint8]
    nodes: npt.NDArray[np.int32]  #: The node of each part.
    has_any: bool

    @classmethod
    def of(cls, whole: pa.Field, column: TypedColumn) -> JsonParts:
        parts, rows, names = [(whole, column)], list[list[int]](), bytearray()
        for number, (field, typed) in enumerate(parts):  # grows meanwhile
            name = field.name.encode() if number else b""
            inner = [*zip(field.type, typed.children, strict=True)] if pa.types.is_struct(field.type) else []
            kind = _KINDS.get(field.type, _OBJECT)
            if is_any(field):
                kind = _ANYTHING
            elif inner:
                inner.sort(key=lambda each: each[0].name.encode())
            elif pa.types.is_list(field.type):
                kind, inner = _LIST, [(field.type.value_field, typed.children[0])]
            rows.append([kind, len(parts) if inner else 0, len(inner), len(names), len(name)])
            names += name
            parts += inner
        has_any = any(row[0] == _ANYTHING for row in rows)
        nodes = np.array([typed.node for _, typed in parts], np.int32)
        return cls(np.array(rows, np.int32), np.frombuffer(bytes(names) + _BEHIND, np.uint8), nodes, has_any)


class JsonColumns:
    """Decodes values in which nothing is unusual into the columns of a type."""

    def __init__(self, whole: pa.Field) -> None:
        nodes = Nodes()
        column = _column(whole, -1, nodes)
        self.parts = JsonParts.of(whole, column)
        self._nodes, self._column = nodes.array(), ArrowColumn(column)
        #: What may be made of a value whatever is in it, and of each object more that it has.
        self.value_bytes, self.object_bytes = (
            _ARROW_TIMES * _slots(whole.type),
            _ARROW_TIMES * _most_of_items(whole.type),
        )

    def decode(self, framed: Framed, status: npt.NDArray[np.uint8]) -> tuple[pa.Array, npt.NDArray[np.bool_]] | None:
        """Return the array, null for undecoded values, and a mask of the decoded ones; None for want of room."""
        parts, taken = self.parts, np.empty(len(status), np.uint8)
        nodes = _json.decode(
            framed.place, framed.size, framed.sources, status, parts.rows, parts.nodes, parts.names, self._nodes,
            framed.room, self.value_bytes + 3 * _AROUND_BYTES, self.object_bytes, taken,
        )  # fmt: skip
        return None if nodes is None else (self._column.array(nodes), taken.view(np.bool_))


def is_any(field: pa.Field) -> bool:
    """True if a field has no type: it is a string of JSON."""
    return (field.metadata or {}).get(ROLE_KEY) == b"json"


def _column(field: pa.Field, parent: int, nodes: Nodes) -> TypedColumn:
    kind = field.type
    inner = [*kind] if pa.types.is_struct(kind) else [kind.value_field] if pa.types.is_list(kind) else []
    name = _NAMES.get(kind, "list" if pa.types.is_list(kind) else "struct")
    node = nodes.begin(parent, name)
    children = tuple(_column(field, node, nodes) for field in inner)
    nodes.end(node)
    return TypedColumn(field.name, name, node, children, role="json" if is_any(field) else "")


def _slots(kind: pa.DataType) -> int:
    """Bytes of a null: a number, an end or a place of each column outside of lists."""
    return sum(_slots(field.type) for field in kind) + 1 if pa.types.is_struct(kind) else 8


def _most_of_items(kind: pa.DataType) -> int:
    """Bytes of an item of that list whose items have the most."""
    if pa.types.is_struct(kind):
        return max((_most_of_items(field.type) for field in kind), default=0)
    if pa.types.is_list(kind):
        return max(_slots(kind.value_type), _most_of_items(kind.value_type))
    return 0


# ---- all values ----


class JsonEngine:
    """Decodes JSON into the columns of a JSON Schema; members that the schema does not name are ignored.

    A definition that stands in itself more often than `recursion` stays JSON.
    """

    def __init__(self, schemas: Schemas, reader: Schema, recursion: int, status: int) -> None:
        references = {name: other.text for name, other in schemas.references(reader).items()}
        self._field = JsonTypes(references, recursion, reader.title).field(reader.text)
        self.type = self._field.type
        self._mismatch = -status
        #: True if the lines that are read are the values themselves.
        self._is_bare = pa.types.is_struct(self.type)
        self._columns = JsonColumns(self._field)

    def add(self, writer: Schema, named: Named) -> int:
        """All that is JSON is read by the reader's schema."""
        if writer.type != "JSON":
            raise RequestError(f"{writer.title} is {writer.type}, but the reader's schema is JSON")
        return 0

    def prepare(self) -> None:
        """Nothing depends on the writers."""

    def decode(
        self, framed: Framed, entry: npt.NDArray[np.int32], prepared: None
    ) -> tuple[pa.Array, npt.NDArray[np.uint8], npt.NDArray[np.int32], dict[int, str]]:
        """Return the array, status and position of each value, and the fault of a value by row."""
        status = np.where(entry < 0, -entry, 0).astype(np.uint8)
        status[framed.size < 0] = _typed.ABSENT
        array, taken, reasons = self._decode_rows(framed, status)
        odd = rows_with(array, _is_large) | (rows_with(array, _is_zero) & ~taken)
        inexact = [row for row in np.flatnonzero(odd).tolist() if is_inexact(framed.payload(row), self._field)]
        if inexact:
            status[inexact] = self._mismatch
            reasons |= {row: mismatch(framed.payload(row), self._field) for row in inexact}
            array = array.take(pa.array(np.arange(len(status)), mask=status == self._mismatch))
        return array, status, np.zeros(len(status), np.int32), reasons

    def _decode_rows(
        self, framed: Framed, status: npt.NDArray[np.uint8]
    ) -> tuple[pa.Array, npt.NDArray[np.bool_], dict[int, str]]:
        """Return the array, a mask of the values from the kernel, and reasons by row; doubles are the nearest ones."""
        quick, taken = self._columns.decode(framed, status) or (None, np.zeros(len(status), np.bool_))
        count = int(np.count_nonzero(taken))
        if quick is not None and count == np.count_nonzero(status == 0):
            return quick, taken, {}
        status[taken] = _typed.ABSENT
        rest, rows = self._by_lines(framed, status)
        status[taken] = 0
        bad = np.flatnonzero((status == self._mismatch) | (status == _typed.REASONS.index("no JSON"))).tolist()
        reasons = {row: mismatch(framed.payload(row), self._field) for row in bad}
        if len(rest) == len(status):
            return rest, taken, reasons
        places = np.where(taken, np.arange(len(status)), -1)
        places[rows] = np.arange(len(rest)) + (len(status) if count else 0)
        both = pa.concat_arrays([quick, rest]) if count else rest
        return both.take(pa.array(places, mask=places < 0)), taken, reasons

    def _by_lines(self, framed: Framed, status: npt.NDArray[np.uint8]) -> tuple[pa.Array, npt.NDArray[np.intp]]:
        """Decode the values whose status is 0 as lines: returns the array of the decoded ones, and their rows."""
        ends = np.empty(len(status) + 1, np.int64)
        block: Any = _json.lines(framed.place, framed.size, framed.sources, status, self._is_bare, self._mismatch, ends)
        named = self._columns.parts
        if named.has_any:
            around, plain_ends = (0, 1) if self._is_bare else (5, 2), ends
            ends = np.empty_like(plain_ends)
            block = _json.with_parts(block, plain_ends, *around, named.rows, named.names, ends)
        lines = _Lines(memoryview(block), ends, np.flatnonzero(np.diff(ends)))
        if self._measure_unfolded(lines) > framed.room:
            if len(status) > 1:
                raise OverflowError(f"the values unfold to more than {framed.room} bytes: decode fewer at a time")
            status[lines.rows], lines = _typed.TOO_LARGE, lines._replace(rows=lines.rows[:0])
        parts: list[pa.Array] = []
        self._read(lines, status, parts)
        values = parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else pa.array([], self.type)
        return values, lines.rows[status[lines.rows] == 0]

    def _measure_unfolded(self, lines: _Lines) -> int:
        """Bytes that values may become: a missing member is a null in each of its columns."""
        if not len(lines.rows):
            return 0
        data, of_object = np.frombuffer(lines.text(), np.uint8), self._columns.object_bytes
        objects = int(np.count_nonzero(data == ord("{"))) if of_object else 0
        return len(data) + len(lines.rows) * self._columns.value_bytes + objects * of_object

    def _read(self, lines: _Lines, status: npt.NDArray[np.uint8], parts: list[pa.Array]) -> None:
        """Read lines together; where that fails, halves, until the bad one is found."""
        count = len(lines.rows)
        if not count:
            return
        try:
            parts.append(self._read_table(lines))
        except (pa.ArrowException, ValueError):
            if count == 1:
                status[lines.rows[0]] = self._mismatch
                return
            self._read(lines._replace(rows=lines.rows[: count // 2]), status, parts)
            self._read(lines._replace(rows=lines.rows[count // 2 :]), status, parts)

    def _read_table(self, lines: _Lines) -> pa.Array:
        text = lines.text()
        wanted = pa.schema(list(self.type) if self._is_bare else [pa.field("v", self.type)])
        options = pj.ParseOptions(wanted, unexpected_field_behavior="ignore")
        whole = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        table = pj.read_json(pa.py_buffer(text), whole, options)
        if table.num_rows != len(lines.rows):
            raise ValueError("rows are missing")
        if self._is_bare:
            return pa.StructArray.from_arrays([_one(column) for column in table.columns], fields=list(self.type))
        return _one(table.column("v"))


def _is_large(numbers: pa.Array) -> Any:
    """Return a mask of doubles so large that the text may have had another whole number."""
    return pa.types.is_floating(numbers.type) and np.abs(np.asarray(pc.fill_null(numbers, 1.0))) >= _EXACT


def _is_zero(numbers: pa.Array) -> Any:
    """Return a mask of doubles that are zero: pyarrow's reader also makes zeros of too small numbers."""
    return pa.types.is_floating(numbers.type) and np.asarray(pc.fill_null(numbers, 1.0)) == 0


class _Lines(NamedTuple):
    """Values as lines of JSON, one for each of the rows."""

    data: memoryview
    ends: npt.NDArray[np.int64]
    rows: npt.NDArray[np.intp]

    def text(self) -> memoryview:
        return self.data[self.ends[self.rows[0]] : self.ends[self.rows[-1] + 1]]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class JsonTypes:
    """Derives Arrow types of a JSON Schema; `references` are texts of other schemas, by the URIs that it uses."""

    def __init__(self, references: Mapping[str, str], recursion: int, title: str = "the schema") -> None:
        self._references, self._recursion, self._title = references, recursion, title
        self._count = 0

    def field(self, text: str) -> pa.Field:
        whole = self._load(text)
        return self._make_field("value", whole, whole, ())

    def _load(self, text: str) -> Any:
        try:
            schema_value = bounded_json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{self._title} is not a JSON Schema: {json_fault(error)}") from None
        if not isinstance(schema_value, dict | bool):
            raise RequestError(f"{self._title} is not a JSON Schema: neither an object nor true or false")
        return schema_value

    def _make_field(self, name: str, schema: Any, whole: Any, path: tuple[str, ...]) -> pa.Field:
        """The field of a part of a schema; `path` has the references that led to it."""
        self._count += 1
        if self._count > MOST_COLUMNS:
            raise RequestError(f"{self._title} unfolds to more than {MOST_COLUMNS} columns: allow less recursion")
        anything = pa.field(name, pa.string(), metadata=_ANY)
        if not isinstance(schema, dict) or len(path) > 4 * DEEPEST:
            return anything
        if isinstance(schema.get("$ref"), str):
            return self._follow_reference(name, schema["$ref"], whole, path)
        for word in ("oneOf", "anyOf", "allOf"):
            listed = schema.get(word)
            if isinstance(listed, list) and "properties" not in schema:
                those = [option for option in listed if not (isinstance(option, dict) and option.get("type") == "null")]
                return self._make_field(name, those[0], whole, (*path, word)) if len(those) == 1 else anything
        kinds = schema.get("type")
        kinds = [kind for kind in kinds if kind != "null"] or ["null"] if isinstance(kinds, list) else [kinds]
        if set(kinds) == {"integer", "number"}:
            kinds = ["number"]
        kind = kinds[0] if len(kinds) == 1 else None
        properties, items = schema.get("properties"), schema.get("items")
        if kind in ("object", None) and isinstance(properties, dict) and properties:
            inside = (*path, "properties")
            fields = [self._make_field(member, part, whole, inside) for member, part in properties.items()]
            return pa.field(name, pa.struct(fields))
        if kind == "array" and isinstance(items, dict):
            return pa.field(name, pa.list_(self._make_field("element", items, whole, (*path, "items"))))
        return pa.field(name, _PLAIN[kind]) if kind in _PLAIN else anything

    def _follow_reference(self, name: str, reference: str, whole: Any, path: tuple[str, ...]) -> pa.Field:
        anything = pa.field(name, pa.string(), metadata=_ANY)
        if path.count(reference) > self._recursion:
            return anything
        document, _, pointer = reference.partition("#")
        if document:
            if document not in self._references:
                return anything
            whole = self._load(self._references[document])
        target = whole
        for step in pointer.split("/")[1:]:
            target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        return self._make_field(name, target, whole, (*path, reference))
