"""Convert Arrow tables to columns to encode: keys and values stay in Arrow's buffers, only offsets are computed."""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg._native._encoder import Columns
from pylogseg.errors import RequestError
from pylogseg.format.record_input import wire_headers
from pylogseg.format.records import SOURCE_SHIFT
from pylogseg.reading.arrow.texts import bytes_of
from pylogseg.reading.column_names import BATCH_COLUMNS, DEFAULT_COLUMNS

_TAKEN = ("key", "value", "headers", "timestamp", "offset")


class _Spans(NamedTuple):
    place: Any
    size: Any


def columns_from_arrow(data: Any, *, base_offset: int | None = None, timestamp_default_ms: int = -1) -> Columns:
    """Return columns to encode from Arrow data, read in place; RequestError for columns that cannot be records.

    Column ``value`` is required; ``key``, ``timestamp`` (with a zone, or integers in ms), ``headers`` and ``offset``
    may be missing, and the other columns of `read_arrow` are skipped. `base_offset` numbers the records consecutively.
    """
    table = _table(data)
    if "value" not in table.column_names:
        raise RequestError(f"Arrow input needs a column 'value'; it has {', '.join(table.column_names) or 'none'}")
    unknown = [name for name in table.column_names if name not in (*DEFAULT_COLUMNS, *BATCH_COLUMNS)]
    if unknown:
        close = difflib.get_close_matches(unknown[0].lower(), _TAKEN, 1)
        meant = f". Did you mean {close[0]!r}?" if close else f": a record has {', '.join(_TAKEN)}; drop the column"
        raise RequestError(f"unknown column {unknown[0]!r}{meant}")
    sources: list[Any] = []
    count = table.num_rows
    value = _binary_spans(table, "value", sources)
    key = _binary_spans(table, "key", sources) if "key" in table.column_names else _Spans(None, None)
    headers: tuple[Any, Any] = (None, None)
    if "headers" in table.column_names and table["headers"].null_count < count:
        headers = _headers(table["headers"], sources)
    offset = _integers(table, "offset") if base_offset is None and "offset" in table.column_names else None
    timestamp = None
    if "timestamp" in table.column_names:
        kind = table["timestamp"].type
        if pa.types.is_timestamp(kind) and kind.tz is None:
            raise RequestError(
                f"column 'timestamp' of {kind} has no time zone; say which, e.g. pc.assume_timezone(column, 'UTC'), or "
                "replace_time_zone('UTC') in polars, dt.tz_localize('UTC') in pandas"
            )
        timestamp = timestamps_ms(table, timestamp_default_ms)
    return Columns(count, offset, timestamp, *key, *value, *headers, sources, base_offset or 0, timestamp_default_ms)


def _table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    return pa.Table.from_batches([pa.record_batch(data)])


def _binary_spans(table: pa.Table, name: str, sources: list[Any]) -> _Spans:
    spans = [_array_spans(chunk, name, sources) for chunk in table[name].chunks]
    if len(spans) == 1:
        return spans[0]
    empty = [_Spans(np.empty(0, np.int64), np.empty(0, np.int32))]
    return _Spans(*(np.concatenate(column) for column in zip(*(spans or empty), strict=True)))


def _array_spans(array: pa.Array, name: str, sources: list[Any]) -> _Spans:
    """Spans of a chunk; its data buffer becomes a source."""
    kind = array.type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        try:
            wide = pa.types.is_large_string(kind) or "view" in str(kind)
            array = array.cast(pa.large_binary() if wide else pa.binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise RequestError(f"column {name!r} of {kind} cannot be read as binary") from None
    _, offsets_buffer, data = array.buffers()
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    count = len(array)
    if count == 0:
        return _Spans(np.empty(0, np.int64), np.empty(0, np.int32))
    offsets: Any = np.frombuffer(offsets_buffer, width)[array.offset : array.offset + count + 1]
    wide_sizes = np.diff(offsets)
    if width is np.int64 and wide_sizes.max() > 0x7FFFFFFF:
        raise RequestError(f"record {int(wide_sizes.argmax())}: its {name} is larger than 2^31 - 1 bytes")
    size = wide_sizes.astype(np.int32, copy=False)
    if array.null_count:
        size[array.is_null().to_numpy(zero_copy_only=False)] = -1
    place = offsets[:-1].astype(np.int64)
    if sources:
        place += len(sources) << SOURCE_SHIFT
    sources.append(b"" if data is None else data)
    return _Spans(place, size)


def _integers(table: pa.Table, name: str) -> Any:
    column = table[name]
    if not pa.types.is_integer(column.type) or column.null_count:
        raise RequestError(
            f"column {name!r} must hold integers without nulls, not {column.type} with {column.null_count} nulls"
        )
    return _to_numpy(column, name)


#: Seconds whose milliseconds have 64 bits.
_MOST_SECONDS = (2**63 - 1) // 1000


def timestamps_ms(table: pa.Table, default_ms: int = -1) -> Any:
    """Column ``timestamp`` in milliseconds, int64; `default_ms` where it is null, and everywhere if there is none."""
    if "timestamp" not in table.column_names:
        return np.full(table.num_rows, default_ms, np.int64)
    column = table["timestamp"]
    if pa.types.is_timestamp(column.type):
        ticks = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}[column.type.unit]
        column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())  # a cast copies
    elif pa.types.is_integer(column.type):
        ticks = (1, 1)
    else:
        raise RequestError(f"column 'timestamp' must hold timestamps or integers in ms, not {column.type}")
    nulls = column.is_null().to_numpy() if column.null_count else None
    values = _to_numpy(pc.fill_null(column, 0) if column.null_count else column, "timestamp")
    if ticks[0] != 1 and (late := np.flatnonzero((values > _MOST_SECONDS) | (values < -_MOST_SECONDS))).size:
        i = int(late[0])
        raise RequestError(f"record {i}: its timestamp, {values[i]} s, does not fit 64 bits of milliseconds")
    if ticks != (1, 1):
        values = values * ticks[0] if ticks[1] == 1 else values // ticks[1]
    if nulls is not None:
        values = np.where(nulls, default_ms, values)
    return np.ascontiguousarray(values, np.int64)


def _to_numpy(column: pa.ChunkedArray, name: str) -> Any:
    try:
        wide = column if pa.types.is_int64(column.type) else column.cast(pa.int64())
        # A chunk alone is read in place; a column is copied, even if it has one.
        return wide.chunk(0).to_numpy() if wide.num_chunks == 1 else np.ascontiguousarray(wide.to_numpy())
    except pa.ArrowInvalid as error:
        raise RequestError(f"column {name!r}: {error}") from None


def _headers(column: pa.ChunkedArray, sources: list[Any]) -> tuple[Any, Any]:
    kind = column.type
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        raise RequestError(f"column 'headers' must be a list of structs of name and value, not {kind}")
    if kind.value_type.num_fields != 2:
        raise RequestError(f"column 'headers' must have two fields, a name and a value, not {kind.value_type}")
    count = np.ascontiguousarray(pc.fill_null(pc.list_value_length(column), 0).to_numpy(), np.int32)
    flat = pa.chunked_array([chunk.flatten() for chunk in column.chunks], kind.value_type)
    names, values = (
        pa.chunked_array([part.flatten()[k] for part in flat.chunks], kind.value_type[k].type) for k in (0, 1)
    )
    own: list[Any] = []
    if "string" in str(names.type):
        names = bytes_of(names)
    pairs = pa.table({"key": names, "value": values})
    spans = [_binary_spans(pairs, name, own) for name in ("key", "value")]
    wired = Columns(len(flat), None, None, *spans[0], *spans[1], None, None, own)
    columns, arena = wire_headers(wired, count, source=len(sources))
    sources.append(arena)
    return columns
