"""Types of Arrow that an engine does not have, in the form that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.errors import RequestError
from pylogseg.values.roles import ROLE_KEY

#: Returns the type that stands for one that is not nested; its own where the engine has it.
Form = Callable[[pa.DataType], pa.DataType]


def in_form(kind: pa.DataType, form: Form) -> pa.DataType:
    """Return a type whose parts all have a form; RequestError for names that the engine takes for one."""
    if pa.types.is_struct(kind):
        if form in _IGNORE_CASE:
            _check_case(kind)
        return pa.struct([_field(field, form) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field, form), _field(kind.item_field, form))
    if pa.types.is_list(kind):
        return pa.list_(_field(kind.value_field, form))
    return form(kind)


def _field(field: pa.Field, form: Form) -> pa.Field:
    changed = field.with_type(in_form(field.type, form))
    return changed.with_metadata({ROLE_KEY: b"json"}) if _is_number_as_text(field.type, changed.type) else changed


def _is_number_as_text(kind: pa.DataType, made: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) and pa.types.is_string(made))


def _check_case(kind: pa.DataType) -> None:
    names: dict[str, str] = {}
    for field in kind:
        other = names.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise RequestError(
                f"the value has fields {other} and {field.name}, and the engine does not tell names apart by their "
                "case: give a reader's schema without one of them (--schema, schema=)"
            )


def with_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with a type of `in_form`; times lose digits that the unit does not have, see `cut_rows`."""
    return array if array.type == kind else array.cast(kind, safe=False)


def cut_rows(array: pa.Array, form: Form) -> npt.NDArray[np.bool_]:
    """Return which values have a time of nanoseconds that a form cuts to microseconds."""

    def is_cut(times: pa.Array) -> Any:
        if getattr(times.type, "unit", "") != "ns" or getattr(form(times.type), "unit", "") != "us":
            return False
        return np.asarray(pc.fill_null(times.view(pa.int64()), 0)) % 1000 != 0

    return rows_with(array, is_cut)


def rows_with(array: pa.Array, is_odd: Callable[[pa.Array], Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of the values with an odd part; `is_odd` gets all parts of one type."""
    kind, rows = array.type, np.zeros(len(array), np.bool_)
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            rows |= rows_with(array.field(number), is_odd)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        before = np.concatenate([[0], np.cumsum(rows_with(array.values, is_odd))])
        ends = np.asarray(array.offsets)
        rows |= before[ends[1:]] > before[ends[:-1]]
    else:
        rows |= is_odd(array)
    return rows & np.asarray(array.is_valid()) if array.null_count else rows


def for_polars(kind: pa.DataType) -> pa.DataType:
    """Decimals of more than 38 digits as text, which is JSON."""
    return pa.string() if pa.types.is_decimal256(kind) else kind


def for_duckdb(kind: pa.DataType) -> pa.DataType:
    """Types as for polars, with enums as text: for a struct with a dictionary, duckdb 2.0 passes no filter on.

    Its lengths of time have microseconds.
    """
    if pa.types.is_dictionary(kind):
        return pa.string()
    return pa.duration("us") if kind == pa.duration("ns") else for_polars(kind)


def for_spark(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark has for one of Arrow's: times of day are numbers, as `from_avro` has them."""
    if pa.types.is_dictionary(kind) or pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64() if kind.bit_width < 64 else pa.decimal128(20, 0)
    if pa.types.is_time(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if pa.types.is_duration(kind) else kind


def for_tables(kind: pa.DataType) -> pa.DataType:
    """Return the type that tables of Delta and Iceberg have: as Spark's, and durations are numbers in their unit."""
    kind = for_spark(kind)
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    if pa.types.is_float16(kind):
        return pa.float32()
    return pa.int64() if pa.types.is_duration(kind) else kind


#: Forms of engines to which two names are one if they differ in case only; Spark has a setting, and says so itself.
_IGNORE_CASE = (for_duckdb, for_tables)
