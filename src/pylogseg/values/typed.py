"""Typed values as Arrow: the types of columns, and arrays of a kernel's buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg._native import _typed
from pylogseg.values.roles import ROLE_KEY
from pylogseg.values.schemas.columns import TypedColumn

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
#: Numbers of enums that are looked up at once.
_PIECE = 1 << 16


def _type(column: TypedColumn, fields: list[pa.Field]) -> pa.DataType:
    """The Arrow type of a column; `fields` are its members."""
    if column.type == "struct":
        return pa.struct(fields)
    if column.type == "list":
        return pa.list_(fields[0])
    if column.type == "map":
        key, value = fields[0].type
        return pa.map_(key.with_nullable(False), value)
    if column.type == "fixed":
        return pa.binary(column.size)
    if column.type == "decimal":
        decimal_type = pa.decimal128 if column.size == 16 else pa.decimal256
        return decimal_type(column.precision, column.scale)
    if column.type == "timestamp":
        return pa.timestamp(column.unit, "UTC" if column.is_utc else None)
    if column.type == "duration":
        return pa.duration(column.unit)
    return _TYPES[column.type]


def _bits(valid: Any) -> tuple[pa.Buffer | None, int]:
    if valid is None:
        return None, 0
    mask = np.frombuffer(valid, np.uint8)
    nulls = len(mask) - int(np.count_nonzero(mask))
    return (pa.py_buffer(np.packbits(mask, bitorder="little")) if nulls else None), nulls


class ArrowColumn:
    """Makes arrays of a column; the type of each part is made once."""

    def __init__(self, column: TypedColumn) -> None:
        self._children = [ArrowColumn(child) for child in column.children]
        self.type: pa.DataType = _type(column, [child.field for child in self._children])
        metadata = {ROLE_KEY: column.role.encode()} if column.role else None
        self.field: pa.Field = pa.field(column.name, self.type, metadata=metadata)
        self._column = column
        self._symbols = pa.array(column.symbols, pa.string()) if column.type == "enum" else None
        #: True if the numbers of an open enum are the places of their names.
        self._are_places = [s.split("=")[0] for s in column.symbols] == [str(i) for i in range(len(column.symbols))]
        self._entries = [self.type.key_field, self.type.item_field] if column.type == "map" else []

    def array(self, nodes: list[Any]) -> pa.Array:
        """Return the array that a kernel filled, with null for values that are null or did not decode."""
        column, kind = self._column, self.type
        count, ends, data, valid = nodes[column.node]
        if column.type == "null":
            return pa.nulls(count)
        if not count:
            return pa.nulls(0, kind)  # without builders
        bits, nulls = _bits(valid)
        if column.type == "struct":
            children = [child.array(nodes) for child in self._children]
            return pa.Array.from_buffers(kind, count, [bits], nulls, children=children)
        if column.type in ("list", "map"):
            child = self._children[0].array(nodes)
            if self._entries:
                child = pa.StructArray.from_arrays([child.field(0), child.field(1)], fields=self._entries)
                ends, child = _last_of_each_key(np.frombuffer(ends, np.int32)[: count + 1], child)
            return pa.Array.from_buffers(kind, count, [bits, pa.py_buffer(ends)], nulls, children=[child])
        if column.type == "bool":
            packed = pa.py_buffer(np.packbits(np.frombuffer(data, np.uint8), bitorder="little"))
            return pa.Array.from_buffers(kind, count, [bits, packed], nulls)
        if column.type == "open_enum":
            return self._name_numbers(np.frombuffer(data, np.int32), bits, nulls)
        if self._symbols is not None:
            indices = pa.Array.from_buffers(pa.int32(), count, [bits, pa.py_buffer(data)], nulls)
            return pa.DictionaryArray.from_arrays(indices, self._symbols, safe=False)
        buffers = [bits, pa.py_buffer(data)] if ends is None else [bits, pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, count, buffers, nulls)

    def _name_numbers(self, numbers: npt.NDArray[np.int32], bits: pa.Buffer | None, nulls: int) -> pa.Array:
        pairs = [symbol.split("=", 1) for symbol in self._column.symbols]
        names = [name for _, name in pairs]
        if self._are_places and numbers.min() >= 0 and numbers.max() < len(names):
            indices = pa.Array.from_buffers(pa.int32(), len(numbers), [bits, pa.py_buffer(numbers)], nulls)
            return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()), safe=False)
        symbols = np.array([int(number) for number, _ in pairs], np.int64)
        present = np.unique(numbers)
        odd = present[~np.isin(present, symbols)].astype(np.int64)
        words = pa.concat_arrays([pa.array(names, pa.string()), pa.array(odd).cast(pa.string())])
        symbols = np.concatenate([symbols, odd])
        order = np.argsort(symbols).astype(np.int32)
        symbols = symbols[order]
        places = np.empty(len(numbers), np.int32)
        for at in range(0, len(numbers), _PIECE):  # a search makes eight bytes for each
            places[at : at + _PIECE] = order[np.searchsorted(symbols, numbers[at : at + _PIECE])]
        indices = pa.Array.from_buffers(pa.int32(), len(numbers), [bits, pa.py_buffer(places)], nulls)
        return pa.DictionaryArray.from_arrays(indices, words, safe=False)


def _last_of_each_key(
    ends: npt.NDArray[np.int32], entries: pa.StructArray
) -> tuple[npt.NDArray[np.int32], pa.StructArray]:
    """Return the ends of maps and their entries; of equal keys in a map, the last entry stays."""
    keys = entries.field(0)
    if keys.type == pa.string():
        _, offsets, data = keys.buffers()
        if not _typed.may_repeat(ends, np.frombuffer(offsets, np.int32), np.frombuffer(data or b"", np.uint8)):
            return ends, entries
    keys = keys.dictionary_encode()
    codes, size = keys.indices.to_numpy(), len(keys.dictionary)
    rises = codes[1:] > codes[:-1]  # as where all maps have the same keys in the same order
    rises[ends[(ends > 0) & (ends < len(codes))] - 1] = True
    if size == len(codes) or rises.all():
        return ends, entries
    of_map = np.repeat(np.arange(len(ends) - 1), np.diff(ends)) * size + codes
    ordered = np.sort(of_map)
    if not (ordered[1:] == ordered[:-1]).any():
        return ends, entries
    _, places = np.unique(of_map[::-1], return_index=True)
    kept = np.sort(len(of_map) - 1 - places)
    return np.searchsorted(kept, ends).astype(np.int32), entries.take(pa.array(kept))
