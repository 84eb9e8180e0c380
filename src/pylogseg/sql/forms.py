"""The rows of an answer as files and text: Parquet, Arrow, CSV, JSON lines, and cells of a table."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.arrow.strings import readable_strings
from pylogseg.errors import RequestError
from pylogseg.format.escape import json_line

#: Forms of a file, and the end of its name.
ENDINGS = {".parquet": "parquet", ".arrow": "arrow", ".csv": "csv", ".json": "json", ".jsonl": "json"}
#: Rows of a row group of Parquet.
_GROUP_ROWS = 1 << 20


def write_answer(form: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], file: Any) -> int:
    """Write an answer to a file, and return the number of its rows.

    Parameters
    ----------
    form : str
        ``parquet``, ``arrow`` (a file of record batches), ``csv`` or ``json`` (an object a line).
    schema : pyarrow.Schema
        The columns.
    batches : iterable of pyarrow.RecordBatch
        The rows.
    file : binary file
        Open for writing.

    Raises
    ------
    RequestError
        If the form cannot hold a column.
    """
    rows = 0
    try:
        with _WRITERS[form](file, schema) as write:
            for batch in batches:
                write(batch)
                rows += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RequestError(f"{form} cannot hold the answer: {str(error).splitlines()[0]}") from None
    return rows


@contextlib.contextmanager
def _parquet(file: Any, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    import pyarrow.parquet as pq

    waiting: list[pa.RecordBatch] = []

    def flush() -> None:
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, schema))
            waiting.clear()

    def write(batch: pa.RecordBatch) -> None:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= _GROUP_ROWS:
            flush()

    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        yield write
        flush()


@contextlib.contextmanager
def _arrow(file: Any, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    with pa.ipc.new_file(file, schema) as writer:
        yield writer.write_batch


@contextlib.contextmanager
def _csv(file: Any, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    import pyarrow.csv as pacsv

    is_plain = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in schema.types]
    wanted = pa.schema(
        [field if plain else field.with_type(pa.string()) for field, plain in zip(schema, is_plain, strict=True)]
    )

    def write(batch: pa.RecordBatch) -> None:
        columns = [
            column if plain else _as_text(_safe(column)) for column, plain in zip(batch.columns, is_plain, strict=True)
        ]
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=wanted))

    with pacsv.CSVWriter(file, wanted) as writer:
        yield write


@contextlib.contextmanager
def _json(file: Any, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    def write(batch: pa.RecordBatch) -> None:
        columns = [map(_plain, _safe(column).to_pylist()) for column in batch.columns]
        rows = (dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True))
        file.write("".join(json_line(row) + "\n" for row in rows).encode())

    yield write


_WRITERS = {"parquet": _parquet, "arrow": _arrow, "csv": _csv, "json": _json}


def are_numbers(schema: pa.Schema) -> list[bool]:
    """Return for each column whether it has numbers."""
    of = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return [any(is_kind(kind) for is_kind in of) for kind in schema.types]


def texts(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return columns as strings: bytes as `pylogseg cat` prints them, times as ISO 8601, lists and structs as JSON."""
    return [_as_text(_safe(column)) for column in batch.columns]


def _as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_nested(column.type):
        values = (None if value is None else json_line(_plain(value)) for value in column.to_pylist())
        return pa.array(values, pa.string())
    return column.cast(pa.string())


def _safe(column: pa.Array) -> pa.Array:
    """Return a column without what Python cannot hold: bytes become text, and so do times, which may be of any year."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return readable_strings(column.cast(pa.binary()))
    if pa.types.is_timestamp(kind):
        return _iso(column)
    if pa.types.is_interval(kind):
        return pa.array(map(_interval, column.to_pylist()), pa.string())
    return column.cast(pa.string()) if pa.types.is_temporal(kind) else column


def _interval(value: Any) -> str | None:
    """Return a length of time as text: ``3 months 2 days, 0:10:00``."""
    if value is None:
        return None
    months, days, nanoseconds = value
    rest = str(datetime.timedelta(days=days, microseconds=nanoseconds // 1000))
    return f"{months} months {rest}" if months else rest


def _iso(column: pa.Array) -> pa.Array:
    """Return timestamps as ISO 8601: with Z where their zone is UTC; in ms, where these are enough."""
    naive = column.cast(pa.timestamp(column.type.unit))
    with contextlib.suppress(pa.ArrowInvalid):
        naive = naive.cast(pa.timestamp("ms"))
    written = pc.replace_substring(naive.cast(pa.string()), " ", "T")
    zoned = written if column.type.tz is None else pc.binary_join_element_wise(written, "Z", "")
    is_dated = pc.match_substring_regex(written, "^[0-9]")  # no text has a year above 9999
    number = pc.binary_join_element_wise(naive.cast(pa.int64()).cast(pa.string()), naive.type.unit, " ")
    return pc.if_else(is_dated, zoned, number)


def _plain(value: Any) -> Any:
    """Return a value as JSON can have it."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return readable_strings(pa.array([value]))[0].as_py()
    if isinstance(value, decimal.Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
