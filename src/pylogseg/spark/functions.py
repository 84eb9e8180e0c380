"""Column functions for Spark, on the compiled functions of the package: one call for a batch of values.

They are Arrow UDFs from Spark 4.1 on and pandas UDFs before. All functions of one `select` over the same columns share
a worker. `decode_batches` and `encode_batches` take a whole DataFrame: no array has to be built and exploded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sql

from pylogseg.errors import RequestError
from pylogseg.format.words import check_word
from pylogseg.reading.arrow import batches as arrow_batches
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.arrow import functions as arrow_functions
from pylogseg.reading.arrow.functions import RaiseOrNull
from pylogseg.spark import _compat
from pylogseg.spark.schema import typed_spark_schema
from pylogseg.values.decoding import column_decoder, decoded_column
from pylogseg.values.forms import for_spark

_RECORD = (
    "key: binary, value: binary, offset: bigint, timestamp: timestamp, timestampType: int, "
    "headers: array<struct<key: string, value: binary>>"
)
_CONFLUENT = "struct<schemaId: int, payload: binary>"
_ENCODED = "batch binary, baseOffset bigint, lastOffset bigint, records int"

_Function = Callable[..., pa.Array]


def crc32c(column: Any) -> Any:
    """Return the CRC-32C of every value of a binary column, as bigint."""
    return _apply(arrow_functions.crc32c, "bigint", column)


def murmur2(column: Any) -> Any:
    """Return the hash of every key by which Kafka's producers choose a partition, as int."""
    return _apply(arrow_functions.murmur2, "int", column)


def kafka_partition(key: Any, partitions: int) -> Any:
    """Return the partition to which Kafka's default partitioner sends a key, as int; null for a null key.

    Parameters
    ----------
    key : Column or str
        Binary or string.
    partitions : int
        The number of partitions of the topic.
    """
    return _apply(arrow_functions.kafka_partition, "int", key, partitions)


def decode_varint(column: Any, on_undecoded: RaiseOrNull = "raise") -> Any:
    """Decode every value as one ZigZag varint of up to 64 bits, to bigint.

    Parameters
    ----------
    column : Column or str
        Binary; each value is exactly one varint.
    on_undecoded : {"raise", "null"}
        The action for any other value.
    """
    check_word("on_undecoded", on_undecoded, ("raise", "null"))
    return _apply(arrow_functions.decode_varint, "bigint", column, on_undecoded)


def decode_uvarint(column: Any, on_undecoded: RaiseOrNull = "raise") -> Any:
    """Decode every value as one unsigned varint of up to 32 bits, to bigint; see `decode_varint`."""
    check_word("on_undecoded", on_undecoded, ("raise", "null"))
    return _apply(arrow_functions.decode_uvarint, "bigint", column, on_undecoded)


def encode_varint(column: Any) -> Any:
    """Encode every integer as a ZigZag varint."""
    return _apply(arrow_functions.encode_varint, "binary", column)


def encode_uvarint(column: Any) -> Any:
    """Encode every integer as an unsigned varint of 32 bits."""
    return _apply(arrow_functions.encode_uvarint, "binary", column)


def confluent(column: Any, on_undecoded: RaiseOrNull = "raise") -> Any:
    """Split values of Confluent's wire format into struct<schemaId: int, payload: binary>.

    Parameters
    ----------
    column : Column or str
        Binary: a byte 0, four bytes of schema id, the payload.
    on_undecoded : {"raise", "null"}
        What to do with a value that is shorter, or begins with another byte.
    """
    check_word("on_undecoded", on_undecoded, ("raise", "null"))
    return _apply(arrow_functions.confluent, _CONFLUENT, column, on_undecoded)


def to_confluent(payload: Any, schema_id: int) -> Any:
    """Encode payloads of one schema in Confluent's wire format, as binary."""
    return _apply(arrow_functions.to_confluent, "binary", payload, schema_id)


def headers_map(column: Any) -> Any:
    """Return the column ``headers`` as map<string, binary>; if several headers have one name, the last counts."""
    return _apply(arrow_functions.headers_map, "map<string, binary>", column)


def to_records(column: Any, on_undecoded: RaiseOrNull = "raise") -> Any:
    """Decode raw record batches to array<struct> of their records; `decode_batches` is faster if you need rows.

    Parameters
    ----------
    column : Column or str
        Binary; each value holds whole batches.
    on_undecoded : {"raise", "null"}
        The action for a value with other bytes, or with a damaged batch.
    """
    check_word("on_undecoded", on_undecoded, ("raise", "null"))
    return _apply(arrow_batches.to_records, f"array<struct<{_RECORD}>>", column, on_undecoded)


def from_records(column: Any, **options: Any) -> Any:
    """Encode arrays of records (structs of ``value``, ``key``, ``timestamp``, ``headers``, ``offset``) as batches.

    Parameters
    ----------
    column : Column or str
        Array of structs; only ``value`` is required.
    **options
        Options of `pylogseg.encode`: ``compression="zstd"``, ``batch_bytes``.
    """
    return _apply(arrow_batches.from_records, "binary", column, **options)


def from_schema(
    column: Any,
    schema: Any,
    registry: Any = None,
    headers: Any = None,
    on_undecoded: RaiseOrNull = "raise",
    **options: Any,
) -> Any:
    """Decode a binary column of values with their frames, in Avro, Protobuf or JSON, to nested columns.

    Parameters
    ----------
    column : Column or str
        Binary: values as a producer with a schema registry writes them, from wherever they come.
    schema : str, int, path or Schema
        The reader's, as in `pylogseg.values.decoding.Decoding`. The driver reads it.
    registry : path, URL or Schemas, optional
        Where the writers' schemas are; without it all values were written by `schema`. A registry's URL is asked by
        the tasks for schemas that it did not have before.
    headers : Column or str, optional
        Of the records, if these name the schemas.
    on_undecoded : {"raise", "null"}
        What to do with a value that does not decode, like FAILFAST and PERMISSIVE of Spark's `from_avro`.
    **options
        ``frame``, ``context``, ``ids``, ``recursion`` and ``message`` of `Decoding`. With ``frame="plain"`` values have
        no frame, as for Spark's `from_avro`. With ``ids=[7, 9]`` only values of these schemas are decoded, and all
        others are null. Rows that a filter in front of the function leaves out are not decoded.

    Returns
    -------
    Column
        A struct, or another type by the schema.
    """
    check_word("on_undecoded", on_undecoded, ("raise", "null"))
    if not hasattr(sql, "arrow_udf"):
        raise RequestError(
            f"Spark {_compat.VERSION[0]}.{_compat.VERSION[1]}: from_schema needs Spark 4.1; before that, use "
            "pylogseg.values.decoding.decode_column in mapInArrow"
        )
    decoder = column_decoder(schema, registry, form=for_spark, **options)
    returns = typed_spark_schema(pa.schema([pa.field("value", decoder.type)]))["value"].dataType

    def from_schema(values: pa.Array) -> pa.Array:
        return decoded_column(decoder, values, None, on_undecoded)

    def with_headers(values: pa.Array, of_records: pa.Array) -> pa.Array:
        return decoded_column(decoder, values, of_records, on_undecoded)

    if headers is None:
        return _behind_filters(sql.arrow_udf(from_schema, returns), on_undecoded)(column)
    with_headers.__name__ = "from_schema"  # Spark names the column after it
    return _behind_filters(sql.arrow_udf(with_headers, returns), on_undecoded)(column, headers)


def decode_batches(
    df: Any, column: str = "value", keep: Sequence[str] = (), on_undecoded: Literal["raise", "skip"] = "raise"
) -> Any:
    """Decode a column of raw record batches to one row per record.

    Parameters
    ----------
    df : DataFrame
        For example ``spark.read.format("binaryFile").load(...)``. That makes one value of a whole file, which Spark
        holds several times, so use it for small files only; `pylogseg.spark.read_segments` reads segments.
    column : str
        The column with the batches.
    keep : sequence of str
        Columns to repeat for each record, before the record's own.
    on_undecoded : {"raise", "skip"}
        What to do with a value that holds anything other than whole good batches.

    Returns
    -------
    DataFrame
        Key, value, offset, timestamp, timestampType, headers. Control records are left out.
    """
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    records = from_arrow_schema(arrow.schema(arrow_batches.RECORD_COLUMNS))
    schema = StructType([*(df.schema[name] for name in keep), *records])
    return df.select(column, *keep).mapInArrow(arrow_batches.decoder(column, keep, on_undecoded), schema)


def encode_batches(df: Any, **options: Any) -> Any:
    """Encode a DataFrame of records to rows of a ``batch`` with ``baseOffset``, ``lastOffset`` and ``records``.

    Parameters
    ----------
    df : DataFrame
        Column ``value``, and optionally ``key``, ``timestamp``, ``headers``, ``offset``. The order of the rows is
        kept: sort them first if it matters.
    **options
        Options of `pylogseg.encode`.
    """
    columns = [name for name in ("key", "value", "offset", "timestamp", "headers") if name in df.columns]
    return df.select(*columns).mapInArrow(arrow_batches.encoder(**options), _ENCODED)


def register(spark: Any, prefix: str = "") -> list[str]:
    """Register the functions for SQL in a session.

    Parameters
    ----------
    spark : SparkSession
        The session.
    prefix : str
        A prefix of the names in SQL, if another function has one of them. Spark has none of these names.

    Returns
    -------
    list of str
        The names in SQL. An invalid value is an error; functions that end with ``_or_null`` return null instead.
    """
    kinds: dict[str, tuple[_Function, str]] = {
        "crc32c": (arrow_functions.crc32c, "bigint"),
        "murmur2": (arrow_functions.murmur2, "int"),
        "kafka_partition": (_partition_of, "int"),
        "decode_varint": (arrow_functions.decode_varint, "bigint"),
        "decode_uvarint": (arrow_functions.decode_uvarint, "bigint"),
        "encode_varint": (arrow_functions.encode_varint, "binary"),
        "encode_uvarint": (arrow_functions.encode_uvarint, "binary"),
        "confluent": (arrow_functions.confluent, _CONFLUENT),
        "headers_map": (arrow_functions.headers_map, "map<string, binary>"),
        "to_records": (arrow_batches.to_records, f"array<struct<{_RECORD}>>"),
    }
    if not hasattr(sql, "arrow_udf"):
        raise RequestError(f"Spark {_compat.VERSION[0]}.{_compat.VERSION[1]}: functions in SQL need Spark 4.1")
    raising = ("decode_varint", "decode_uvarint", "confluent", "to_records")
    for name in raising:
        function, returns = kinds[name]
        kinds[f"{name}_or_null"] = (functools.partial(function, on_undecoded="null"), returns)
    names = []
    for name, (function, returns) in kinds.items():
        make = _of_two if name == "kafka_partition" else _of_one
        udf = sql.arrow_udf(make(function), returns)
        spark.udf.register(prefix + name, _behind_filters(udf, "raise" if name in raising else "null"))
        names.append(prefix + name)
    return names


def _of_one(function: _Function) -> Callable[[pa.Array], pa.Array]:
    def of_arrow(values: pa.Array) -> pa.Array:
        return function(values)

    return of_arrow


def _of_two(function: _Function) -> Callable[[pa.Array, pa.Array], pa.Array]:
    def of_arrow(values: pa.Array, numbers: pa.Array) -> pa.Array:
        return function(values, numbers)

    return of_arrow


def _partition_of(keys: pa.Array, counts: pa.Array) -> pa.Array:
    """Apply `arrow_functions.kafka_partition` with the number of partitions in a column, as SQL needs it."""
    partitions = pa.nulls(len(keys), pa.int32())
    for count in counts.drop_null().unique().to_pylist():
        here = pc.fill_null(pc.equal(counts, count), False)
        partitions = pc.if_else(here, arrow_functions.kafka_partition(keys, count), partitions)
    return partitions


def _apply(function: _Function, returns: str, column: Any, *args: Any, **options: Any) -> Any:
    if not hasattr(sql, "arrow_udf"):
        return _apply_pandas(function, returns, column, *args, **options)

    def of_arrow(values: pa.Array) -> pa.Array:
        return function(values, *args, **options)

    of_arrow.__name__ = function.__name__  # Spark names the column after it
    return _behind_filters(sql.arrow_udf(of_arrow, returns), "raise" if "raise" in args else "null")(column)


def _behind_filters(function: Any, on_undecoded: str) -> Any:
    """Keep a function that may raise behind the filters that stand in front of it.

    Spark moves a filter on the result of a deterministic function before others, and runs it on all rows.
    """
    return function.asNondeterministic() if on_undecoded == "raise" else function


def _apply_pandas(function: _Function, returns: str, column: Any, *args: Any, **options: Any) -> Any:
    """Apply a function as a pandas UDF, for Spark without Arrow UDFs; a null struct becomes one with null fields."""
    import pandas as pd

    fields = [field.name for field in arrow_functions.CONFLUENT] if returns.startswith("struct") else []

    def of_pandas(values: Any) -> Any:
        array = pa.Array.from_pandas(values)
        if pa.types.is_null(array.type):  # a series of None has no type, and null gives null
            return pd.DataFrame(index=values.index, columns=fields) if fields else values
        if pa.types.is_floating(array.type):  # pandas has integers with nulls as floats
            array = array.cast(pa.int64())
        done = function(array, *args, **options)
        if fields:
            return pa.Table.from_arrays(done.flatten(), fields).to_pandas(integer_object_nulls=True)
        return done.to_pandas(integer_object_nulls=True, maps_as_pydicts="strict")

    gives = pd.DataFrame if fields else pd.Series
    of_pandas.__annotations__ = {"values": pd.Series, "return": gives}  # Spark finds the kind of UDF by these
    of_pandas.__name__ = function.__name__
    return _behind_filters(sql.pandas_udf(of_pandas, returns), "raise" if "raise" in args else "null")(column)
