"""The parts of a type for values in JSON, and columns of the parts whose values are all usual ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg._native import _json
from pylogseg.values.roles import ROLE_KEY
from pylogseg.values.schemas.columns import Nodes, TypedColumn
from pylogseg.values.schemas.frames import Framed
from pylogseg.values.typed import ArrowColumn

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
