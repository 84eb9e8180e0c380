"""Types of Arrow that an engine does not have, in the form that it takes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pylogseg.values.typed import ROLE_KEY

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
