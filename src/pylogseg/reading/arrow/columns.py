"""Convert record columns to Arrow, with the schema of Spark's Kafka source; copied or as views of the input."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg._native import _gather
from pylogseg.errors import RequestError
from pylogseg.format.columns import ColumnType, TableColumn
from pylogseg.format.escape import readable
from pylogseg.format.records import RecordColumns
from pylogseg.format.scratch import COPY_SLACK_BYTES, Besides, Copies
from pylogseg.reading.arrow.texts import readable_strings
from pylogseg.reading.column_names import DEFAULT_COLUMNS, check_columns
from pylogseg.reading.partition import Chunk
from pylogseg.walker.gaps import Gap, GapKind, add_of_column

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
    "batchOffset": pa.int64(),
    "leaderEpoch": pa.int32(),
    "producerId": pa.int64(),
    "producerEpoch": pa.int16(),
    "sequence": pa.int32(),
    "isTransactional": pa.bool_(),
    "isControl": pa.bool_(),
    "segment": pa.string(),
    "position": pa.int64(),
}
_TABLE_TYPES: dict[ColumnType, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp[ms]": pa.timestamp("ms", tz="UTC"),
    "list<int32>": pa.list_(pa.int32()),
    "list<int64>": pa.list_(pa.int64()),
    "list<string>": pa.list_(pa.string()),
    "map<string, int64>": pa.map_(pa.string(), pa.int64()),
    "map<string, string>": pa.map_(pa.string(), pa.string()),
}

#: In the metadata of a file's schema: the isolation that its records were read with.
ISOLATION_KEY = b"pylogseg.isolation"
_MAX_SEQUENCE = 2**31 - 1
#: Bytes of a topic, or of the name of a segment, that a record batch repeats: its offsets are of 32 bits, and small
#: records may be many.
_REPEATED_BYTES = 32 << 20
#: The last timestamp whose microseconds have 64 bits, in the year 294247. What is beyond it, or below its opposite, is
#: null in a column.
MOST_MS = (2**63 - 1) // 1000
#: Of repeated values that are kept for the next time.
_KEPT_BYTES = 4 << 20


#: Memory that one record batch lets go of is the next one's, also in another stream.
lend = _gather.Lender(pa.allocate_buffer)


def schema(columns: Sequence[str] | None = None, *, views: bool = False) -> pa.Schema:
    """The Arrow schema of records.

    Parameters
    ----------
    columns : sequence of str, optional
        Names out of `DEFAULT_COLUMNS` (all of them by default) and `BATCH_COLUMNS`, in the order of the result.
    views : bool
        True if keys and values are binary views instead of binary.

    Raises
    ------
    RequestError
        For a name that there is not.
    """
    if columns is not None:
        check_columns(columns)
    return _schema_of(DEFAULT_COLUMNS if columns is None else tuple(columns), views)


@functools.lru_cache(maxsize=64)  # each task of a scan asks for it
def _schema_of(names: tuple[str, ...], views: bool) -> pa.Schema:
    kind = pa.binary_view() if views else pa.binary()
    return pa.schema([pa.field(name, kind if name in ("key", "value") else _TYPES[name]) for name in names])


def arrow_schema(columns: Iterable[TableColumn]) -> pa.Schema:
    return pa.schema([(column.name, _arrow_type(column)) for column in columns])


def _arrow_type(column: TableColumn) -> pa.DataType:
    if column.type in _TABLE_TYPES:
        return _TABLE_TYPES[column.type]
    struct = pa.struct([(field.name, _arrow_type(field)) for field in column.fields])
    return {"list<struct>": pa.list_(struct), "map<string, struct>": pa.map_(pa.string(), struct)}.get(
        column.type, struct
    )


def record_batch(chunk: Chunk, target: pa.Schema) -> pa.RecordBatch:
    """Turn a chunk into an Arrow record batch.

    Parameters
    ----------
    chunk : Chunk
        From `Reader.chunks`.
    target : pyarrow.Schema
        From `schema`.

    Returns
    -------
    pyarrow.RecordBatch
        It owns its buffers, but for views: those point into the chunk's sources and keep them alive.
    """
    return pa.RecordBatch.from_arrays([_MAKERS[field.name](chunk, field.type) for field in target], schema=target)


def record_batches(chunks: Iterable[Chunk], target: pa.Schema, gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
    """`record_batch` of each of many chunks; of parts of a chunk, where its topic would be repeated too often.

    `gaps` get the timestamps that the column cannot hold.
    """
    makers = [(_MAKERS[field.name], field.type) for field in target]  # to ask a schema takes as long as to make a batch
    time = target.get_field_index("timestamp")
    for chunk in chunks:
        for part in _parts(chunk):
            batch = pa.RecordBatch.from_arrays([make(part, kind) for make, kind in makers], schema=target)
            if time >= 0 and batch.column(time).null_count:
                note_times(part, gaps)
            yield batch


def note_times(chunk: Chunk, gaps: list[Gap]) -> None:
    """Add gaps for timestamps that no column can hold: one gap for neighbouring records of a file."""
    unfit = np.flatnonzero(~are_held(chunk.columns.timestamp))
    if not len(unfit):
        return
    first, last = (int(chunk.columns.offset[row]) for row in unfit[[0, -1]])
    reason = f"its timestamp, {chunk.columns.timestamp[unfit[0]]} ms, does not fit the column of timestamps: null there"
    add_of_column(gaps, Gap(chunk.segment.path, GapKind.TIME, 0, 0, first, last + 1, reason, False, len(unfit)))


def are_held(timestamps_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which times a column of timestamps can hold."""
    fits: npt.NDArray[np.bool_] = (timestamps_ms >= -MOST_MS) & (timestamps_ms <= MOST_MS)
    return fits


def _parts(chunk: Chunk) -> Iterable[Chunk]:
    count = len(chunk.columns)
    if 4 * count * max(len(chunk.topic), len(chunk.segment.path)) <= _REPEATED_BYTES:  # a name is a part of the path
        return (chunk,)
    most = _REPEATED_BYTES // max(4 * len(chunk.topic), 4 * len(chunk.segment.name), 1)
    if count <= most:
        return (chunk,)
    return (chunk._replace(columns=chunk.columns.take(slice(i, i + most))) for i in range(0, count, most))


def copies_for(names: Sequence[str]) -> Besides:
    """Return the payloads that the decoder must copy for the given columns."""
    if "value" not in names:
        return "keys" if "key" in names else None
    return "payloads" if "key" in names else "values"


def _lend_array(size_bytes: int, dtype: Any) -> tuple[pa.Buffer, npt.NDArray[Any]]:
    memory = lend(size_bytes)
    return pa.py_buffer(memory), np.frombuffer(memory, dtype)


def binary_array(
    place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[Any, ...], kind: pa.DataType
) -> pa.Array:
    """Spans as an array of binary, copied, or of binary views into the sources; a size of -1 is null."""
    place, size = np.ascontiguousarray(place), np.ascontiguousarray(size)
    count = len(size)
    if size.max(initial=-1) < 0:
        return _repeat_value(None, kind, count)
    validity, bits = _lend_array((count + 7) // 8, np.uint8)
    if kind == pa.binary_view():
        views, out = _lend_array(16 * count, np.uint8)
        null_count = _gather.gather_views(place, size, sources, out, bits)
        buffers = [views, *(pa.py_buffer(source) for source in sources)]
    else:
        total = int(size.clip(0).sum(dtype=np.int64))
        if total > 2**31 - 1:
            raise RequestError(f"{total} bytes of payload in one chunk are too many for a binary array; ask for views")
        offsets, ends = _lend_array(4 * (count + 1), np.int32)
        data, out = _lend_array(total + COPY_SLACK_BYTES, np.uint8)
        null_count = _gather.gather_binary(place, size, sources, ends, out, bits)
        buffers = [offsets, data]
    return pa.Array.from_buffers(kind, count, [validity if null_count else None, *buffers], null_count)


def _assemble_array(kind: pa.DataType, size: npt.NDArray[np.int32], null_count: int, buffers: list[Any]) -> pa.Array:
    """Make an array of buffers that the decoder filled beside its columns."""
    validity = np.packbits(size >= 0, bitorder="little") if null_count else None
    held = [None if buffer is None else pa.py_buffer(buffer) for buffer in (validity, *buffers)]
    return pa.Array.from_buffers(kind, len(size), held, null_count)


def _key(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    of = chunk.columns
    ready = _ready(kind, of.key_size, of.tally().null_keys, of.key_view, of.keys, of.sources)
    return binary_array(of.key_place, of.key_size, of.sources, kind) if ready is None else ready


def _value(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    of = chunk.columns
    ready = _ready(kind, of.value_size, of.tally().null_values, of.value_view, of.values, of.sources)
    return binary_array(of.value_place, of.value_size, of.sources, kind) if ready is None else ready


def _ready(
    kind: pa.DataType,
    size: npt.NDArray[np.int32],
    null_count: int,
    view: npt.NDArray[Any] | None,
    copies: Copies | None,
    sources: tuple[Any, ...],
) -> pa.Array | None:
    """Return keys or values as the decoder made them, without a look at their places; None where it did not."""
    if null_count == len(size):
        return _repeat_value(None, kind, null_count)
    if view is not None and kind == pa.binary_view():
        return _assemble_array(kind, size, null_count, [np.ascontiguousarray(view).view(np.uint8), *sources])
    if copies is not None and kind == pa.binary():
        return _assemble_array(kind, size, null_count, [*copies])
    return None


def _headers(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    columns = chunk.columns
    if not columns.tally().headers:
        return _no_headers(len(columns))
    counts = columns.header_count
    key_place, key_size, value_place, value_size = columns.header_spans()
    # Kafka does not check that names are UTF-8.
    names = readable_strings(binary_array(key_place, key_size, columns.sources, pa.binary()))
    values = binary_array(value_place, value_size, columns.sources, pa.binary())
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    structs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    valid = np.packbits(counts > 0, bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(counts), buffers, int((counts == 0).sum()), children=[structs])


@functools.lru_cache(maxsize=64)  # for the hash of this type its whole text is made
def _no_headers(count: int) -> pa.Array:
    return _repeat_value(None, _TYPES["headers"], count)


def _repeat_value(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """An array of one repeated value, or of nulls; a short one is a slice of an earlier array."""
    if count * (len(value) if isinstance(value, str) else 8) > _KEPT_BYTES:
        return _long_repeated.__wrapped__(value, kind, count)
    return _kept_repeated(value, kind, count)


@functools.lru_cache(maxsize=64)  # most chunks of a stream are of one length
def _kept_repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return _long_repeated(value, kind, 1 << (count - 1).bit_length() if count else 0)[:count]


@functools.lru_cache(maxsize=16)
def _long_repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def _numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers or truth values of that very type as an array; `pa.array` would load numpy's masked arrays first."""
    data = np.packbits(values, bitorder="little") if pa.types.is_boolean(kind) else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)], 0)


def _offset(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    # Nobody writes to decoded offsets again, whatever else of the columns is used again (`format.records.Scratch`).
    return _numbers(chunk.columns.offset, kind)


def _timestamp(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    buffer, out = _lend_array(8 * len(chunk.columns), np.int64)
    times = np.ascontiguousarray(chunk.columns.timestamp)
    may_be_null = _gather.microseconds(times, out)
    if may_be_null is False or (fits := are_held(times)).all():
        return pa.Array.from_buffers(kind, len(out), [None, buffer], 0)
    validity = pa.py_buffer(np.packbits(fits, bitorder="little"))
    return pa.Array.from_buffers(kind, len(out), [validity, buffer], len(out) - int(fits.sum()))


def _of_batch(value: Callable[[RecordColumns], npt.NDArray[Any]]) -> Callable[[Chunk, pa.DataType], pa.Array]:
    def make(chunk: Chunk, kind: pa.DataType) -> pa.Array:
        per_batch = value(chunk.columns)
        if len(per_batch) and (per_batch == per_batch[0]).all():
            return _repeat_value(per_batch[0].item(), kind, len(chunk.columns))
        return _numbers(per_batch[chunk.columns.batch], kind)

    return make


def _timestamp_type(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    columns = chunk.columns
    shared = columns.batches.summary().timestamp_type if len(columns) else None
    if shared is not None:
        return _repeat_value(shared, kind, len(columns))
    return _numbers(columns.batches.timestamp_type[columns.batch], kind)


def _sequence(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    """Sequence of each record: the batch's plus the offset delta; 0 follows 2^31-1; -1 none."""
    columns = chunk.columns
    base = columns.batches.base_sequence.astype(np.int64)[columns.batch]
    delta = columns.offset - columns.batches.base_offset[columns.batch]
    return _numbers(np.where(base < 0, -1, (base + delta) & _MAX_SEQUENCE).astype(np.int32), kind)


_MAKERS: dict[str, Callable[[Chunk, pa.DataType], pa.Array]] = {
    "key": _key,
    "value": _value,
    "topic": lambda chunk, kind: _repeat_value(readable(chunk.topic), kind, len(chunk.columns)),
    "partition": lambda chunk, kind: _repeat_value(chunk.partition, kind, len(chunk.columns)),
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
    "batchOffset": _of_batch(lambda columns: columns.batches.base_offset),
    "leaderEpoch": _of_batch(lambda columns: columns.batches.leader_epoch),
    "producerId": _of_batch(lambda columns: columns.batches.producer_id),
    "producerEpoch": _of_batch(lambda columns: columns.batches.producer_epoch),
    "sequence": _sequence,
    "isTransactional": _of_batch(lambda columns: columns.batches.is_transactional),
    "isControl": _of_batch(lambda columns: columns.batches.is_control),
    "segment": lambda chunk, kind: _repeat_value(readable(chunk.segment.name), kind, len(chunk.columns)),
    "position": _of_batch(lambda columns: columns.batches.position),
}
