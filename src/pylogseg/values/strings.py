"""Convert keys and values to columns of strings; payloads that are not UTF-8 are never dropped silently."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Literal

import pyarrow as pa

from pylogseg.errors import RequestError
from pylogseg.reading.arrow.texts import readable_strings
from pylogseg.reading.partition import Chunk

#: Action for bytes that are not UTF-8 in a column of strings.
NotUtf8 = Literal["raise", "null", "base64"]


def as_strings(target: pa.Schema, names: Collection[str]) -> pa.Schema:
    """A schema of records with some of its columns as strings."""
    return pa.schema([field.with_type(pa.string()) if field.name in names else field for field in target])


def with_strings(batch: pa.RecordBatch, chunk: Chunk, names: Collection[str], not_utf8: NotUtf8) -> pa.RecordBatch:
    """A record batch of a chunk with some of its columns, of binary, as strings."""
    columns = [
        strings(column, chunk, name, not_utf8) if name in names else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=as_strings(batch.schema, names))


def strings(column: pa.Array, chunk: Chunk, name: str, not_utf8: NotUtf8) -> pa.Array:
    """Return keys or values of a chunk as strings; the first that is not UTF-8 is an error, or such are null or base64.

    With ``base64``, text that begins with ``base64:`` is encoded too, so that `format.text.payload_of` gives all bytes
    back.
    """
    if not_utf8 == "base64":
        return readable_strings(column)
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        if not_utf8 == "raise":
            raise _no_text(column, chunk, name) from None
    return pa.array([_text_or_null(payload) for payload in column.to_pylist()], pa.string())


def _text_or_null(payload: bytes | None) -> str | None:
    try:
        return None if payload is None else payload.decode()
    except UnicodeDecodeError:
        return None


def _no_text(column: pa.Array, chunk: Chunk, name: str) -> RequestError:
    row, error = next(_failing(column.to_pylist()))
    where = f"{chunk.segment.path}: offset {int(chunk.columns.offset[row])}"
    return RequestError(
        f"{where}: the {name} is not UTF-8: its byte {error.start} is 0x{error.object[error.start]:02x} "
        f'({error.reason}). {name}_type="binary" keeps bytes, not_utf8="base64" or "null" converts such values'
    )


def _failing(payloads: list[Any]) -> Iterator[tuple[int, UnicodeDecodeError]]:
    for row, payload in enumerate(payloads):
        try:
            (payload or b"").decode()
        except UnicodeDecodeError as error:
            yield row, error
