"""The layer between duckdb and the tables: columns and rows that it takes, and the names and JSON of its answers."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pylogseg.tables.sql.words import has_offset_clause, stated_limit
from pylogseg.values.roles import ROLE_KEY

#: What Arrow has no type for, and duckdb hands over as bytes, or as another number.
_CAST = frozenset(["bit", "bignum", "uhugeint", "time with time zone"])
_JSON_TYPE = {b"ARROW:extension:name": b"arrow.json", b"ARROW:extension:metadata": b""}
_QUOTED_WORD = re.compile(r'"(\w+)"')


def cast_columns(relation: Any) -> Any:
    """Return a relation with columns that Arrow can hold: other types become text."""
    kinds = [kind.id for kind in relation.types]
    if not _CAST.intersection(kinds):
        return relation
    names = [name.replace('"', '""') for name in relation.columns]
    columns = (
        f'#{i + 1}{"::varchar" if kind in _CAST else ""} as "{name}"'
        for i, (kind, name) in enumerate(zip(kinds, names, strict=True))
    )
    return relation.project(", ".join(columns))


def answer_schema(schema: pa.Schema, types: Sequence[Any]) -> pa.Schema:
    """Return the schema of an answer: the column of `text(value)` has that name, and not duckdb's `"text"("value")`.

    Equal names are numbered (``n``, ``n_1``), and columns that have the type JSON in duckdb are marked as JSON.
    """
    fields, taken = [], {*schema.names}
    seen: set[str] = set()
    for field, kind in zip(schema, types, strict=True):
        name = first = _QUOTED_WORD.sub(r"\1", field.name)
        number = 0
        while name in seen or (number and name in taken):
            number += 1
            name = f"{first}_{number}"
        seen.add(name)
        fields.append(_mark_json(field, kind).with_name(name))
    return pa.schema(fields)


def row_limit(plan: str, sql: str) -> int | None:
    """Return how many rows of the one table that a query reads are enough for its answer; None if unknown.

    The plan of duckdb, in JSON, names a limit (before 2.0 not its number), not the rows that are skipped before:
    these are in the query.
    """
    limit = None
    steps = json.loads(plan)
    while len(steps) == 1:
        name, more = steps[0]["name"].strip(), steps[0].get("extra_info") or {}
        if name in ("LIMIT", "STREAMING_LIMIT") and limit is None:
            limit = str(more.get("Limit") or stated_limit(sql))
        elif name in ("PYTHON_ARROW_SCAN", "ARROW_SCAN"):
            return int(limit) if limit and limit.isdecimal() and not has_offset_clause(sql) else None
        elif name != "PROJECTION":
            return None
        steps = steps[0].get("children") or []
    return None


def _mark_json(field: pa.Field, kind: Any) -> pa.Field:
    """Return a field with the parts marked that are JSON."""
    if kind.id == "struct":
        inner = [_mark_json(member, child) for member, (_, child) in zip(field.type, kind.children, strict=True)]
        return field.with_type(pa.struct(inner))
    if kind.id == "list":
        return field.with_type(pa.list_(_mark_json(field.type.value_field, kind.children[0][1])))
    if kind.id == "map":
        return field.with_type(pa.map_(field.type.key_field, _mark_json(field.type.item_field, kind.children[1][1])))
    return field.with_metadata({ROLE_KEY: b"json"}) if str(kind) == "JSON" else field


def with_json(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which text that is JSON has duckdb's type of that name."""
    return pa.schema([_set_json_type(field) for field in schema])


def _set_json_type(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_set_json_type(inner) for inner in kind]))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(kind.key_field, _set_json_type(kind.item_field)))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_set_json_type(kind.value_field)))
    return field.with_metadata(_JSON_TYPE) if (field.metadata or {}).get(ROLE_KEY) == b"json" else field


# ---- names that records have in common, with a dictionary ----
#
# duckdb reads a dictionary of one name at once. Of a column of strings it makes a string of its own for each row, also
# if a query only counts them, for it asks for a column even then. Its answer is text in either case.

#: Columns of names that the records of a segment have in common.
_NAMES = frozenset(["topic", "segment"])
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
#: duckdb has no filters on dictionaries applied by an older pyarrow, which takes some nulls of these for values.
_HAS_FILTERS = int(pa.__version__.partition(".")[0]) >= 26


def with_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Return a schema with dictionaries for repeated texts such as `topic`, if this pyarrow filters them right."""
    if not _HAS_FILTERS:
        return schema
    return pa.schema([_encode_field(field) for field in schema], schema.metadata)


def _encode_field(field: pa.Field) -> pa.Field:
    return field.with_type(_DICTIONARY) if field.name in _NAMES and pa.types.is_string(field.type) else field


def as_declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch of strings with the types of `with_dictionaries`."""
    columns = [
        _dictionary(column) if kind == _DICTIONARY and pa.types.is_string(column.type) else column
        for column, kind in zip(batch.columns, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _dictionary(column: pa.Array) -> pa.DictionaryArray:
    """Return strings with a dictionary; equal strings are not compared one by one."""
    return _same(column[0].as_py(), len(column)) if _is_same(column) else column.dictionary_encode()


def _is_same(column: pa.Array) -> bool:
    """Check whether an array has one string, and nothing else."""
    count = len(column)
    if not count or column.null_count:
        return False
    _, ends, data = column.buffers()
    places = np.frombuffer(ends, np.int32)[column.offset : column.offset + count + 1]
    size = int(places[1] - places[0])
    if not size or data is None or int(places[-1] - places[0]) != size * count or (np.diff(places) != size).any():
        return False
    text = np.frombuffer(data, np.uint8)[places[0] : places[-1]]
    # Each byte is that of the string before: what is the same as its neighbour is the same as all.
    return bool((text[size:] == text[:-size]).all())


@functools.lru_cache(maxsize=16)  # most batches of a scan are of one length
def _same(name: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([name]))
