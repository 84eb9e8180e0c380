"""Typed values as Arrow: the types of columns, and arrays of what a kernel has filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg.schemas.columns import Column

_TYPES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "uint32": pa.uint32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "string": pa.string(),
    "enum": pa.dictionary(pa.int32(), pa.string()),
    "open_enum": pa.dictionary(pa.int32(), pa.string()),
    "date": pa.date32(),
    "time_ms": pa.time32("ms"),
    "time_us": pa.time64("us"),
}
#: In the metadata of a field: ``union`` of a struct of which one member has a value, ``raw`` of the bytes of what is
#: nested too deeply, ``json`` of JSON as it stands.
ROLE_KEY = b"pylogseg.role"


def column_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a column."""
    if column.type == "struct":
        return pa.struct([column_field(child) for child in column.children])
    if column.type == "list":
        return pa.list_(column_field(column.children[0]))
    if column.type == "map":
        key, value = column.children[0].children
        return pa.map_(pa.field("key", column_type(key), nullable=False), column_field(value))
    if column.type == "fixed":
        return pa.binary(column.size)
    if column.type == "decimal":
        made = pa.decimal128 if column.size == 16 else pa.decimal256
        return made(column.precision, column.scale)
    if column.type == "timestamp":
        return pa.timestamp(column.unit, "UTC" if column.is_utc else None)
    if column.type == "duration":
        return pa.duration(column.unit)
    return _TYPES[column.type]


def column_field(column: Column) -> pa.Field:
    """Return the Arrow field of a column."""
    return pa.field(
        column.name, column_type(column), metadata={ROLE_KEY: column.role.encode()} if column.role else None
    )


def _bits(valid: Any) -> tuple[pa.Buffer | None, int]:
    if valid is None:
        return None, 0
    mask = np.frombuffer(valid, np.uint8)
    nulls = len(mask) - int(np.count_nonzero(mask))
    return (pa.py_buffer(np.packbits(mask, bitorder="little")) if nulls else None), nulls


class ArrowColumn:
    """Makes arrays of a column; its types are made once.

    Parameters
    ----------
    column : Column

    Attributes
    ----------
    type : pyarrow.DataType
    """

    def __init__(self, column: Column) -> None:
        self.type = column_type(column)
        self._column = column
        self._children = [ArrowColumn(child) for child in column.children]
        self._symbols = pa.array(column.symbols, pa.string()) if column.type == "enum" else None
        #: Whether the numbers of an open enum are the places of their names.
        self._are_places = [s.split("=")[0] for s in column.symbols] == [str(i) for i in range(len(column.symbols))]
        self._entries = [self.type.key_field, self.type.item_field] if column.type == "map" else []

    def array(self, nodes: list[Any]) -> pa.Array:
        """Return what a kernel filled; null where a value is null or was not decoded."""
        column, kind = self._column, self.type
        count, ends, data, valid = nodes[column.node]
        if column.type == "null":
            return pa.nulls(count)
        if not count:
            return pa.array([], kind)
        bits, nulls = _bits(valid)
        if column.type == "struct":
            children = [child.array(nodes) for child in self._children]
            return pa.Array.from_buffers(kind, count, [bits], nulls, children=children)
        if column.type in ("list", "map"):
            child = self._children[0].array(nodes)
            if self._entries:
                child = pa.StructArray.from_arrays([child.field(0), child.field(1)], fields=self._entries)
            return pa.Array.from_buffers(kind, count, [bits, pa.py_buffer(ends)], nulls, children=[child])
        if column.type == "bool":
            packed = pa.py_buffer(np.packbits(np.frombuffer(data, np.uint8), bitorder="little"))
            return pa.Array.from_buffers(kind, count, [bits, packed], nulls)
        if column.type == "open_enum":
            return self._named(np.frombuffer(data, np.int32), bits, nulls)
        if self._symbols is not None:
            indices = pa.Array.from_buffers(pa.int32(), count, [bits, pa.py_buffer(data)], nulls)
            return pa.DictionaryArray.from_arrays(indices, self._symbols, safe=False)
        buffers = [bits, pa.py_buffer(data)] if ends is None else [bits, pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, count, buffers, nulls)

    def _named(self, numbers: npt.NDArray[np.int32], bits: pa.Buffer | None, nulls: int) -> pa.Array:
        """Names of numbers; one that the schema does not have is its own name."""
        pairs = [symbol.split("=", 1) for symbol in self._column.symbols]
        names = [name for _, name in pairs]
        if self._are_places and numbers.min() >= 0 and numbers.max() < len(names):
            indices = pa.Array.from_buffers(pa.int32(), len(numbers), [bits, pa.py_buffer(numbers)], nulls)
            return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()), safe=False)
        known = np.array([int(number) for number, _ in pairs], np.int64)
        places = np.searchsorted(known, numbers)
        odd = (
            np.unique(numbers[known[np.minimum(places, len(known) - 1)] != numbers])
            if len(known)
            else np.unique(numbers)
        )
        if len(odd):
            known = np.concatenate([known, odd])
            order = np.argsort(known)
            places = order[np.searchsorted(known[order], numbers)]
        names += [str(number) for number in odd.tolist()]
        indices = pa.Array.from_buffers(pa.int32(), len(numbers), [bits, pa.py_buffer(places.astype(np.int32))], nulls)
        return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()), safe=False)
