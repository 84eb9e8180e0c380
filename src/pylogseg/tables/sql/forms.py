"""The rows of an answer as files and text: Parquet, Arrow, CSV, JSON lines, and cells of a table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.errors import RequestError
from pylogseg.values.forms import in_form
from pylogseg.values.json_text import json_text, plain_text

#: Rows of a row group of Parquet.
_GROUP_ROWS = 1 << 20
#: So many bytes of an answer are made text at a time: a column of text has at most what Arrow's ends can say.
_TEXT_BYTES = 64 << 20


def write_answer(form: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], file: Any) -> int:
    """Write an answer in a form to a file, and return the number of its rows; RequestError if a column does not fit."""
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
    schema = pa.schema([field.with_type(in_form(field.type, _for_parquet)) for field in schema])

    def flush() -> None:
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, schema))
            waiting.clear()

    def write(batch: pa.RecordBatch) -> None:
        waiting.append(pa.RecordBatch.from_arrays([_storable(column) for column in batch.columns], schema=schema))
        if sum(b.num_rows for b in waiting) >= _GROUP_ROWS:
            flush()

    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        yield write
        flush()


@contextlib.contextmanager
def _arrow(file: Any, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    with pa.ipc.new_file(file, schema) as writer:
        yield writer.write_batch


def _for_parquet(kind: pa.DataType) -> pa.DataType:
    """Parquet has no lengths of time with months in them."""
    return pa.string() if pa.types.is_interval(kind) else kind


def _storable(array: pa.Array) -> pa.Array:
    """Return an array with the types of `_for_parquet`."""
    kind = array.type
    if in_form(kind, _for_parquet) == kind:
        return array
    if pa.types.is_struct(kind):
        parts = [_storable(array.field(i)) for i in range(kind.num_fields)]
        flat = pa.StructArray.from_arrays(parts, fields=[f.with_type(p.type) for f, p in zip(kind, parts, strict=True)])
    elif pa.types.is_map(kind):
        flat = pa.MapArray.from_arrays(array.offsets, _storable(array.keys), _storable(array.items))
    elif pa.types.is_list(kind):
        flat = pa.ListArray.from_arrays(array.offsets, _storable(array.values))
    else:
        return plain_text(array)
    return pc.if_else(array.is_valid(), flat, pa.scalar(None, flat.type)) if array.null_count else flat


@contextlib.contextmanager
def _csv(file: Any, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    bare = are_numbers(schema)

    def row(batch: pa.RecordBatch) -> pa.Array:
        cells = [
            text if is_bare else pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
            for text, is_bare in zip(texts(batch), bare, strict=True)
        ]
        return pc.binary_join_element_wise(*cells, ",", null_handling="replace", null_replacement="")

    file.write((",".join('"' + name.replace('"', '""') + '"' for name in schema.names) + "\n").encode())
    yield lambda batch: _write_lines(file, batch, row)


@contextlib.contextmanager
def _json(file: Any, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    def row(batch: pa.RecordBatch) -> pa.Array:
        return json_text(pa.StructArray.from_arrays(batch.columns, fields=list(schema)))

    yield lambda batch: _write_lines(file, batch, row)


def _write_lines(file: Any, batch: pa.RecordBatch, made: Callable[[pa.RecordBatch], pa.Array]) -> None:
    """Write a line for each row, whose text a function makes."""
    rows = max(1, batch.num_rows * _TEXT_BYTES // max(batch.nbytes, 1))
    for first in range(0, batch.num_rows, rows):
        lines = made(batch.slice(first, rows))
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        file.write(pc.binary_join(whole, "\n")[0].as_buffer())
        file.write(b"\n")


_WRITERS = {"parquet": _parquet, "arrow": _arrow, "csv": _csv, "json": _json}


def are_numbers(schema: pa.Schema) -> list[bool]:
    of = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return [any(is_kind(kind) for is_kind in of) for kind in schema.types]


def texts(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return columns as strings: values that are not nested have no JSON quotes."""
    return [plain_text(column, field) for column, field in zip(batch.columns, batch.schema, strict=True)]
