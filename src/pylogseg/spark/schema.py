"""Columns of the source: the columns of Spark's Kafka source, and columns about the batch of a record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pylogseg.errors import RequestError
from pylogseg.reading.arrow import columns as arrow
from pylogseg.spark.options import SourceOptions

#: Columns that the Kafka source always has, one that it has on request, and those that only files have.
RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = ("headers",)
METADATA_COLUMNS = (
    "batchOffset", "leaderEpoch", "producerId", "producerEpoch", "sequence", "isTransactional", "segment", "position",
)  # fmt: skip

#: The key of a table's options in a field's metadata.
_OPTIONS = "pylogseg.options"

_TYPES: dict[pa.DataType, DataType] = {
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def selected_columns(options: SourceOptions) -> tuple[str, ...]:
    """Return the columns that options select, in order."""
    selectable = (*RECORD_COLUMNS, *HEADERS, *METADATA_COLUMNS)
    if not options.columns:
        headers = HEADERS if options.include_headers else ()
        return RECORD_COLUMNS + headers + (METADATA_COLUMNS if options.include_metadata else ())
    odd = [name for name in options.columns if name not in selectable]
    if odd:
        raise RequestError(f"columns: unknown {', '.join(odd)}; there are: {', '.join(selectable)}")
    return options.columns


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the Spark schema of columns; all are nullable."""
    return StructType([StructField(field.name, _spark_type(field.type)) for field in arrow.schema(columns)])


def _spark_type(kind: pa.DataType) -> DataType:
    if pa.types.is_list(kind):
        return ArrayType(_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return StructType([StructField(field.name, _spark_type(field.type)) for field in kind])
    return _TYPES[kind]


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema that carries options: Spark gives a Python source's reader a table's schema, not its options.

    Everything made from the table inherits them. So they have no credentials, and only count if a query names no path.
    """
    first, *others = schema.fields
    kept = StructField(first.name, first.dataType, True, {_OPTIONS: json.dumps(dict(options))})
    return StructType([kept, *others])


def options_in(schema: StructType) -> dict[str, str]:
    """Return the options that a schema carries."""
    options: dict[str, str] = json.loads(schema.fields[0].metadata.get(_OPTIONS, "{}")) if schema.fields else {}
    return options


def typed_spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of typed columns; all are nullable."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def columns_in(schema: StructType, typed: pa.Schema | None = None) -> tuple[str, ...]:
    """Return the columns of a schema of a user or a catalog: some of the source's, in any order.

    `typed` has all columns, where some of them are typed.
    """
    names = tuple(schema.fieldNames())
    if typed is None:
        selected_columns(SourceOptions(columns=names))
        expected = spark_schema(names)
    else:
        odd = [name for name in names if name not in typed.names]
        if odd:
            raise RequestError(f"unknown columns {', '.join(odd)}; there are: {', '.join(typed.names)}")
        expected = typed_spark_schema(pa.schema([typed.field(name) for name in names]))
    for field, ours in zip(schema, expected, strict=True):
        if field.dataType != ours.dataType:
            raise RequestError(
                f"column {field.name} is {ours.dataType.simpleString()}, not {field.dataType.simpleString()}: "
                "cast it in the query"
            )
    return names
