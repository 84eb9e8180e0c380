"""The layer between duckdb and the tables: columns and rows that it takes, and the names and JSON of its answers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pylogseg.tables.sql.words import has_offset_clause, limit_of
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
    """Return the schema of an answer: `text(value)` for the name that duckdb makes of it, `"text"("value")`, no name
    twice (``n``, ``n_1``), and what duckdb knows to be JSON marked as that.
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
            limit = str(more.get("Limit") or limit_of(sql))
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
