"""Column functions for Spark on the kernels of the package: one call for a batch of values.

They are Arrow UDFs from Spark 4.1 on and pandas UDFs before. All of one `select` over the same columns share a worker.
`decode_batches` and `encode_batches` take a whole DataFrame: no array has to be built and exploded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sql

from pylogseg.arrow import batches as arrow_batches
from pylogseg.arrow import columns as arrow
from pylogseg.arrow import functions as arrow_functions
from pylogseg.arrow.functions import OnError
from pylogseg.errors import RequestError
from pylogseg.spark import _compat

_RECORD = (
    "key: binary, value: binary, offset: bigint, timestamp: timestamp, timestampType: int, "
    "headers: array<struct<key: string, value: binary>>"
)
_CONFLUENT = "struct<schemaId: int, payload: binary>"
_ENCODED = "batch binary, baseOffset bigint, lastOffset bigint, records int"

_Function = Callable[..., pa.Array]


def crc32c(column: Any) -> Any:
    """CRC-32C of every value of a binary column, as bigint."""
    return _apply(arrow_functions.crc32c, "bigint", column)


def murmur2(column: Any) -> Any:
    """The hash of every key by which Kafka's producers choose a partition, as int."""
    return _apply(arrow_functions.murmur2, "int", column)


def kafka_partition(key: Any, partitions: int) -> Any:
    """The partition to which Kafka's default partitioner sends a key, as int; null for a null key.

    Parameters
    ----------
    key : Column or str
        Binary or string.
    partitions : int
        How many the topic has.
    """
    return _apply(arrow_functions.kafka_partition, "int", key, partitions)


def decode_varint(column: Any, on_error: OnError = "raise") -> Any:
    """The number that every value is as a ZigZag varint of up to 64 bits, as bigint.

    Parameters
    ----------
    column : Column or str
        Binary; each value is one varint and nothing else.
    on_error : {"raise", "null"}
        What becomes of a value that is not.
    """
    arrow_functions.check_on_error(on_error)
    return _apply(arrow_functions.decode_varint, "bigint", column, on_error)


def decode_uvarint(column: Any, on_error: OnError = "raise") -> Any:
    """The number that every value is as an unsigned varint of up to 32 bits, as bigint; see `decode_varint`."""
    arrow_functions.check_on_error(on_error)
    return _apply(arrow_functions.decode_uvarint, "bigint", column, on_error)


def encode_varint(column: Any) -> Any:
    """Every integer as a ZigZag varint."""
    return _apply(arrow_functions.encode_varint, "binary", column)


def encode_uvarint(column: Any) -> Any:
    """Every integer as an unsigned varint of 32 bits."""
    return _apply(arrow_functions.encode_uvarint, "binary", column)


def confluent(column: Any, on_error: OnError = "raise") -> Any:
    """Values of Confluent's wire format as struct<schemaId: int, payload: binary>.

    Parameters
    ----------
    column : Column or str
        Binary: a byte 0, four bytes of schema id, the payload.
    on_error : {"raise", "null"}
        What becomes of a value that is shorter, or begins with another byte.
    """
    arrow_functions.check_on_error(on_error)
    return _apply(arrow_functions.confluent, _CONFLUENT, column, on_error)


def to_confluent(payload: Any, schema_id: int) -> Any:
    """Payloads in Confluent's wire format, all of one schema, as binary."""
    return _apply(arrow_functions.to_confluent, "binary", payload, schema_id)


def headers_map(column: Any) -> Any:
    """The column ``headers`` as map<string, binary>; of several headers with one name the last counts."""
    return _apply(arrow_functions.headers_map, "map<string, binary>", column)


def to_records(column: Any, on_error: OnError = "raise") -> Any:
    """Raw record batches as array<struct> of their records; `decode_batches` is faster where rows are wanted.

    Parameters
    ----------
    column : Column or str
        Binary; each value holds whole batches.
    on_error : {"raise", "null"}
        What becomes of a value that holds anything else, or a batch that is damaged.
    """
    arrow_functions.check_on_error(on_error)
    return _apply(arrow_batches.to_records, f"array<struct<{_RECORD}>>", column, on_error)


def from_records(column: Any, **options: Any) -> Any:
    """Arrays of records (structs with ``value``, and ``key``, ``timestamp``, ``headers``, ``offset``) as raw batches.

    Parameters
    ----------
    column : Column or str
        Array of structs.
    **options
        Of `pylogseg.encode`: ``compression="zstd"``, ``batch_bytes``.
    """
    return _apply(arrow_batches.from_records, "binary", column, **options)


def decode_batches(
    df: Any, column: str = "value", keep: Sequence[str] = (), on_error: Literal["raise", "skip"] = "raise"
) -> Any:
    """The records in a column of raw record batches, a row each.

    Parameters
    ----------
    df : DataFrame
        For example ``spark.read.format("binaryFile").load(...)``, which makes one value of a whole file: for small
        files only, since Spark holds it several times; segments are read by `pylogseg.spark.read_segments`.
    column : str
        That holds the batches.
    keep : sequence of str
        Columns that are repeated for each record, before the record's own.
    on_error : {"raise", "skip"}
        What becomes of a value that holds anything else than whole good batches.

    Returns
    -------
    DataFrame
        Key, value, offset, timestamp, timestampType, headers. Control records are left out.
    """
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    records = from_arrow_schema(arrow.schema(arrow_batches.RECORD_COLUMNS))
    schema = StructType([*(df.schema[name] for name in keep), *records])
    return df.select(column, *keep).mapInArrow(arrow_batches.decoder(column, keep, on_error), schema)


def encode_batches(df: Any, **options: Any) -> Any:
    """The records of a DataFrame as raw record batches, a row each, with ``baseOffset``, ``lastOffset``, ``records``.

    Parameters
    ----------
    df : DataFrame
        Column ``value``, and ``key``, ``timestamp``, ``headers``, ``offset`` where they are there. Rows are taken as
        they come: sort them first where that matters.
    **options
        Of `pylogseg.encode`.
    """
    wanted = [name for name in ("key", "value", "offset", "timestamp", "headers") if name in df.columns]
    return df.select(*wanted).mapInArrow(arrow_batches.encoder(**options), _ENCODED)


def register(spark: Any, prefix: str = "") -> list[str]:
    """Make the functions known to SQL, for a session.

    Parameters
    ----------
    spark : SparkSession
        The session.
    prefix : str
        What their names begin with there, where one is taken: Spark has none of these names.

    Returns
    -------
    list of str
        The names in SQL. A value that is not what it should be is an error; those that end with ``_or_null`` give null.
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
    for name in ("decode_varint", "decode_uvarint", "confluent", "to_records"):
        function, returns = kinds[name]
        kinds[f"{name}_or_null"] = (functools.partial(function, on_error="null"), returns)
    names = []
    for name, (function, returns) in kinds.items():
        make = _of_two if name == "kafka_partition" else _of_one
        spark.udf.register(prefix + name, sql.arrow_udf(make(function), returns))
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
    found = pa.nulls(len(keys), pa.int32())
    for count in counts.drop_null().unique().to_pylist():
        here = pc.fill_null(pc.equal(counts, count), False)
        found = pc.if_else(here, arrow_functions.kafka_partition(keys, count), found)
    return found


def _apply(function: _Function, returns: str, column: Any, *args: Any, **options: Any) -> Any:
    """A function of Arrow arrays as one of columns."""
    if not hasattr(sql, "arrow_udf"):
        return _apply_pandas(function, returns, column, *args, **options)

    def of_arrow(values: pa.Array) -> pa.Array:
        return function(values, *args, **options)

    of_arrow.__name__ = function.__name__  # the column is named after it
    return sql.arrow_udf(of_arrow, returns)(column)


def _apply_pandas(function: _Function, returns: str, column: Any, *args: Any, **options: Any) -> Any:
    """Apply a function as a pandas UDF, for Spark without Arrow UDFs; a null struct becomes one with null fields."""
    import pandas as pd

    fields = [field.name for field in arrow_functions.CONFLUENT] if returns.startswith("struct") else []

    def of_pandas(values: Any) -> Any:
        array = pa.Array.from_pandas(values)
        if pa.types.is_null(array.type):  # a series of None tells no type, and null gives null
            return pd.DataFrame(index=values.index, columns=fields) if fields else values
        if pa.types.is_floating(array.type):  # how pandas has integers with nulls
            array = array.cast(pa.int64())
        done = function(array, *args, **options)
        if fields:
            return pa.Table.from_arrays(done.flatten(), fields).to_pandas(integer_object_nulls=True)
        return done.to_pandas(integer_object_nulls=True, maps_as_pydicts="strict")

    gives = pd.DataFrame if fields else pd.Series
    of_pandas.__annotations__ = {"values": pd.Series, "return": gives}  # how Spark tells kinds of UDFs apart
    of_pandas.__name__ = function.__name__
    return sql.pandas_udf(of_pandas, returns)(column)
