"""Types of Arrow that an engine does not have, in the form that it takes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pylogseg.values.roles import ROLE_KEY

#: Returns the type that stands for one that is not nested; its own where the engine has it.
Form = Callable[[pa.DataType], pa.DataType]


def in_form(kind: pa.DataType, form: Form) -> pa.DataType:
    """Return a type whose parts all have a form."""
    if pa.types.is_struct(kind):
        return pa.struct([_field(field, form) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field, form), _field(kind.item_field, form))
    if pa.types.is_list(kind):
        return pa.list_(_field(kind.value_field, form))
    return form(kind)


def _field(field: pa.Field, form: Form) -> pa.Field:
    made = field.with_type(in_form(field.type, form))
    return made.with_metadata({ROLE_KEY: b"json"}) if _is_number_as_text(field.type, made.type) else made


def _is_number_as_text(kind: pa.DataType, made: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) and pa.types.is_string(made))


def with_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with a type of `in_form`; times lose what their unit does not have."""
    return array if array.type == kind else array.cast(kind, safe=False)


def for_polars(kind: pa.DataType) -> pa.DataType:
    """Decimals of more than 38 digits as text, which is JSON."""
    return pa.string() if pa.types.is_decimal256(kind) else kind


def for_duckdb(kind: pa.DataType) -> pa.DataType:
    """Those decimals, and enums: with a dictionary in a struct, duckdb (2.0) tells a table of no filter at all."""
    return pa.string() if pa.types.is_dictionary(kind) else for_polars(kind)


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
    """Return the type that tables of Delta and Iceberg have: as Spark's, and durations are microseconds."""
    kind = for_spark(kind)
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    if pa.types.is_float16(kind):
        return pa.float32()
    return pa.int64() if pa.types.is_duration(kind) else kind
