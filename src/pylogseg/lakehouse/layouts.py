"""How the columns of a table are arranged: flat, or as Redpanda has them in the tables of its Iceberg topics."""

from __future__ import annotations

from typing import Literal, get_args

import pyarrow as pa

from pylogseg.errors import RequestError

Layout = Literal["flat", "redpanda"]
LAYOUTS: tuple[str, ...] = get_args(Layout)
FLAT, REDPANDA = LAYOUTS
#: The column of what Kafka knows of a record, as `rp_desc` in redpanda's src/v/datalake/table_definition.h has it, and
#: our names of its fields.
STRUCT = "redpanda"
_FIELDS = {
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "headers": "headers",
    "key": "key",
    "timestamp_type": "timestampType",
}


def nest_values(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return flat rows as Redpanda has them: the fields of a decoded value are columns; the topic is not there."""
    columns = {STRUCT: pa.StructArray.from_arrays([rows.column(name) for name in _FIELDS.values()], [*_FIELDS])}
    for name in rows.schema.names:
        column = rows.column(name)
        if name == "value" and pa.types.is_struct(column.type):
            names = [field.name for field in column.type]
            if STRUCT in names:
                raise RequestError(f"the value has a field {STRUCT}, which is the name of a column of this layout")
            columns.update(zip(names, column.flatten(), strict=True))
        elif name != "topic" and name not in _FIELDS.values():
            columns[name] = column
    return pa.RecordBatch.from_arrays([*columns.values()], [*columns])


def table_schema(layout: str, rows: pa.Schema) -> pa.Schema:
    """Return the columns of a table that takes flat rows with these."""
    if layout == FLAT:
        return rows
    return nest_values(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in rows], schema=rows)).schema


def leaf(layout: str, name: str) -> str:
    """Return the name in a table of a column that is no value."""
    return name if layout == FLAT else f"{STRUCT}.{name}"
