"""Hashes of values that were decoded: the same for the same values in the table and by our own decoding.

Types may differ within a class (a narrower integer, another unit of time, dictionaries), so values are hashed in one
form of each class. Ours are cast to the types of the table first, which may have less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg._native import _keymap

Hashes = npt.NDArray[np.uint64]
Secret = tuple[int, int]


def hash_bytes(secret: Secret, values: Any, out: Hashes) -> None:
    """Mix the bytes of a column of keys or values into hashes; `given` is an array, or a constant."""
    if isinstance(values, pa.DictionaryArray) and not values.dictionary.null_count and len(values.dictionary):
        place, size, data = _spans(values.dictionary)
        index = np.asarray(values.indices.fill_null(0))
        place, size = place[index], size[index]
    else:
        values = _array(values, len(out), pa.binary())
        place, size, data = _spans(values)
    _set_nulls(values, size)
    if len(values):
        _keymap.hash_spans(secret, place, size, (data,), out)


def _spans(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], Any]:
    """Return the places and sizes of some bytes or texts, and the buffer that holds them."""
    kind = array.type
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_null(kind):
        array = array.cast(pa.binary())
    elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets, data = array.buffers()
    if not len(array):
        return np.empty(0, np.int64), np.empty(0, np.int32), b""
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32, len(array) + 1 + array.offset)[array.offset :]
    place = np.ascontiguousarray(ends[:-1], np.int64)
    return place, np.diff(ends).astype(np.int32), b"" if data is None else np.frombuffer(data, np.uint8)


def hash_values(secret: Secret, given: Any, out: Hashes) -> None:
    """Mix the values of a column of any type into hashes."""
    array = _array(given, len(out), pa.null())
    kind = array.type
    if pa.types.is_struct(kind):
        _hash_fixed(secret, array, np.zeros(len(array), np.int8), out)
        for name in sorted(field.name for field in kind):
            hash_values(secret, pc.struct_field(array, name), out)
    elif _is_list(kind):
        _hash_lists(secret, array, out)
    elif _is_bytes(kind):
        hash_bytes(secret, array, out)
    else:
        _hash_fixed(secret, array, _widen_numbers(array), out)


def _array(values: Any, count: int, kind: pa.DataType) -> pa.Array:
    if not isinstance(values, pa.Array):
        values = pa.nulls(count, kind) if values is None else pa.repeat(pa.scalar(values), count)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _is_list(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(is_list or pa.types.is_map(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    is_plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_plain or is_text or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _set_nulls(array: pa.Array, size: npt.NDArray[np.int32]) -> None:
    if array.null_count:
        size[np.asarray(pc.is_null(array))] = -1


def _hash_fixed(secret: Secret, array: pa.Array, values: npt.NDArray[Any], out: Hashes) -> None:
    """Mix numbers in; null where the array is."""
    width, data = values.itemsize, np.ascontiguousarray(values)
    place = np.arange(len(values), dtype=np.int64) * width
    size = np.full(len(values), width, np.int32)
    _set_nulls(array, size)
    if len(values):
        _keymap.hash_spans(secret, place, size, (data.view(np.uint8),), out)


def _widen_numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Return values as integers or floats of 64 bits, decimals as they lie in memory."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_decimal(kind):
        wide = array.cast(pa.decimal256(76, kind.scale))
        return np.frombuffer(wide.buffers()[1], "V32", len(wide) + wide.offset)[wide.offset :]
    if pa.types.is_floating(kind):
        values = np.array(array.cast(pa.float64()).fill_null(0))
        values[np.isnan(values)] = np.nan
        return values + 0.0  # -0.0 is 0.0
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_date(kind):
        array = array.cast(pa.timestamp("us"), safe=False)
    elif pa.types.is_time(kind):
        array = array.cast(pa.time64("us"), safe=False)
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    # Of unsigned numbers of 64 bits the bits count.
    return np.asarray(array.cast(pa.int64(), safe=False).fill_null(0))


def _hash_lists(secret: Secret, array: pa.Array, out: Hashes) -> None:
    """Mix lists and maps in, by the hashes of their items in order."""
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if array.offset or array.null_count:
        array = array.take(pa.array(np.arange(len(array))))  # what lies before, and below nulls, goes
    ends = np.asarray(array.offsets).astype(np.int64)
    first, end = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    of = np.zeros(end - first, np.uint64)
    parts = (array.keys, array.items) if pa.types.is_map(array.type) else (array.values,)
    for part in parts:
        hash_values(secret, part.slice(first, end - first), of)
    size = (np.diff(ends) * 8).astype(np.int32)
    _set_nulls(array, size)
    if len(array):
        data = of.view(np.uint8) if len(of) else b""
        _keymap.hash_spans(secret, np.ascontiguousarray((ends[:-1] - first) * 8), size, (data,), out)


def common_type(ours: pa.DataType, theirs: pa.DataType) -> pa.DataType | None:
    """Return the type for comparing decoded values with the table; None if there is none."""
    if pa.types.is_struct(ours) and pa.types.is_struct(theirs):
        names = {field.name for field in ours}
        parts = [(f.name, common_type(ours.field(f.name).type, f.type)) for f in theirs if f.name in names]
        shared = [pa.field(name, kind) for name, kind in parts if kind is not None]
        return pa.struct(shared) if shared else None
    if _class_of(ours) != _class_of(theirs):
        return None
    try:
        pa.nulls(0, ours).cast(theirs, safe=False)
    except pa.ArrowException:
        return None
    return theirs


def _class_of(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _class_of(kind.value_type)
    if _is_bytes(kind):
        return "bytes"
    for name in ("boolean", "integer", "floating", "decimal", "timestamp", "date", "time", "map", "struct"):
        if getattr(pa.types, f"is_{name}")(kind):
            return name
    return f"list of {_class_of(kind.value_type)}" if _is_list(kind) else str(kind)


def in_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values to a type of `common_type`."""
    array = _array(array, len(array), kind)
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind):
        parts = [in_type(pc.struct_field(array, field.name), field.type) for field in kind]
        fields = [pa.field(field.name, part.type) for field, part in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    return array.cast(kind, safe=False)


#: Mixes the hash of a role's column into hashes.
HashRole = Callable[[str, Hashes], None]
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(
    roles: Sequence[str], slots: Slots | None, count: int, hash_role: HashRole
) -> tuple[Hashes, Hashes | None]:
    """Return the hash of each row over the columns of some roles, and with `slots` the marks that distinguish them."""
    hashes = np.zeros(count, np.uint64)
    if slots is None:
        for role in roles:
            hash_role(role, hashes)
        return hashes, None
    names = np.zeros(count, np.uint64)
    for place, role in enumerate(slots.roles):
        of = np.zeros(count, np.uint64)
        hash_role(role, of)
        slots.put(place, of, names)
        hashes = hashes * _FACTOR + of
    return hashes, names


class Slots:
    """Which of several columns differ, in one number: each has some bits of its hash in it."""

    def __init__(self, roles: Sequence[str]) -> None:
        self.roles = tuple(roles)
        self._bits = max(1, 64 // max(1, len(self.roles)))
        self._mask = np.uint64((1 << self._bits) - 1)

    def put(self, place: int, hashes: Hashes, into: Hashes) -> None:
        if place < 64:
            into |= (hashes & self._mask) << np.uint64(place * self._bits)

    def which(self, differences: Hashes) -> Hashes:
        """Return which columns differ, a bit for each, by the bits of hashes that differ."""
        bits = np.zeros(len(differences), np.uint64)
        for place in range(min(64, len(self.roles))):
            of_column = (differences >> np.uint64(place * self._bits)) & self._mask
            bits |= (of_column != 0).astype(np.uint64) << np.uint64(place)
        return bits

    def name_columns(self, which: int) -> str:
        """Return the names of columns by their bits."""
        return ", ".join(role.rstrip(".") for place, role in enumerate(self.roles[:64]) if which >> place & 1)
