"""Columns of typed values: a tree, and the nodes that a kernel fills for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.errors import RequestError

#: Widths of nodes that have no numbers; the others are bytes of an item.
BYTES, LIST, STRUCT, NULL = 0, -1, -2, -3
#: A schema that unfolds to more is refused: each record would have so many items, or bytes even where all are null.
MOST_COLUMNS, MOST_ROW_BYTES = 10_000, 2 << 20
#: Fixed bytes above this are columns of variable length: a null takes as many bytes as its column is wide.
WIDEST = 1024
#: What values unfold to: so many bytes, and so many for each of theirs. Above it fewer are decoded at a time.
_ROOM_BYTES, _ROOM_TIMES = 16 << 20, 16
#: Nested types.
DEEPEST = 32

_WIDTHS = {
    "null": NULL,
    "bool": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float": 4,
    "double": 8,
    "binary": BYTES,
    "string": BYTES,
    "enum": 4,
    "open_enum": 4,
    "date": 4,
    "time_ms": 4,
    "time_us": 8,
    "timestamp": 8,
    "duration": 8,
    "list": LIST,
    "map": LIST,
    "struct": STRUCT,
}


@dataclass(frozen=True)
class TypedColumn:
    """A column of typed values; `type` is one of the kinds above, ``fixed`` or ``decimal``.

    Children of a struct are its fields, of a list its items, of a map a struct of key and value.
    """

    name: str
    type: str
    node: int
    children: tuple[TypedColumn, ...] = ()
    size: int = 0  # bytes of a fixed or a decimal
    #: Of an enum; with Protobuf's numbers: ``1=RED``.
    symbols: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0
    unit: str = ""  # of a timestamp or a duration: ms, us or ns
    is_utc: bool = False  # a moment, not a local time
    #: ``union``: one field of the struct has a value; ``raw``: bytes for what is nested deeper.
    role: str = ""


@dataclass
class Nodes:
    """Numbers the nodes while columns are made."""

    rows: list[list[int]] = field(default_factory=list)
    bytes: int = 0

    def begin(self, parent: int, kind: str, size: int = 0) -> int:
        """Add a node; `end` closes it."""
        if len(self.rows) >= MOST_COLUMNS:
            raise RequestError(f"the schema unfolds to more than {MOST_COLUMNS} columns: allow less recursion")
        width = size or _WIDTHS[kind]
        self.bytes += max(width, 0)
        if self.bytes > MOST_ROW_BYTES:
            raise RequestError(f"the schema unfolds to more than {MOST_ROW_BYTES} bytes for each record")
        self.rows.append([parent, width, len(self.rows) + 1])
        return len(self.rows) - 1

    def end(self, node: int) -> None:
        """All that is in the node has been added."""
        self.rows[node][2] = len(self.rows)

    def array(self) -> npt.NDArray[np.int32]:
        """As a kernel takes them."""
        return np.array(self.rows, np.int32).reshape(-1, 3)

    def places(self, count: int) -> npt.NDArray[np.int32]:
        """Return the array for places of failed values: a node, and an item of each list around it."""
        levels = [0]
        for parent, *_ in self.rows[1:]:
            levels.append(levels[parent] + (self.rows[parent][1] == LIST))
        return np.zeros((count, 1 + max(levels)), np.int32)


def room_for(size: npt.NDArray[np.int32]) -> int:
    """Return how many bytes values of these sizes may unfold to."""
    return _ROOM_BYTES + _ROOM_TIMES * int(np.maximum(size, 0).sum(dtype=np.int64))


@dataclass
class Values:
    """Decoded values: the nodes' arrays, and a status for each value: 0 if decoded or null, otherwise a reason.

    `position` is the byte in a value that failed, and `where` the node, and the item of each list around it.
    """

    column: TypedColumn
    nodes: list[Any]
    status: npt.NDArray[np.uint8]
    position: npt.NDArray[np.int32]
    count: int
    where: npt.NDArray[np.int32]

    def paths(self, rows: Iterable[int]) -> dict[int, str]:
        """Return which part of some values failed, where it is not the value itself: ``$.lines[3].price``."""
        paths = {}
        for row in rows:
            node, *items = self.where[row].tolist()
            if node:
                paths[row] = _path(self.column, node, items)
        return paths


def member_path(path: str, name: str) -> str:
    """Return the path of a member, from the path of its parent.

    >>> member_path("$", "a b")
    '$["a b"]'
    """
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{json.dumps(name, ensure_ascii=False)}]"


def _path(column: TypedColumn, node: int, items: list[int]) -> str:
    """Where a node is; nodes stand in preorder, so of the columns of a struct it is in the last that begins before."""
    path = "$"
    while node > column.node and column.children:
        if column.type in ("list", "map"):
            path += f"[{items.pop(0)}]"
            (column,) = column.children
            continue
        column = [child for child in column.children if child.node <= node][-1]
        path = member_path(path, column.name)
    return path
