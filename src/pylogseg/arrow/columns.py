"""Convert record columns to Arrow, with the schema of Spark's Kafka source; copied or as views of the input."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg._native import _records
from pylogseg.catalog.disk import Disk, Partition
from pylogseg.errors import RequestError
from pylogseg.format.escape import readable
from pylogseg.format.records import RecordColumns
from pylogseg.format.scratch import COPY_SLACK_BYTES, Besides, Copies, Scratch
from pylogseg.reading.latest import MEMORY_BYTES
from pylogseg.reading.partition import Chunk, IsolationLevel, OnCorrupt
from pylogseg.reading.stream import BATCH_COLUMNS, DEFAULT_COLUMNS, Moment, Path, Reader, check_columns, read

if TYPE_CHECKING:
    from pylogseg.arrow.decoding import Decoding, OnUndecoded, SchemaChoice, TypedBatches
    from pylogseg.schemas.store import Schemas

__all__ = ["BATCH_COLUMNS", "DEFAULT_COLUMNS", "read_arrow", "record_batch", "record_batches", "schema"]

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

#: In the metadata of a file's schema: the isolation that its records were read with.
ISOLATION_KEY = b"pylogseg.isolation"
_MAX_SEQUENCE = 2**31 - 1
#: Bytes of a topic, or of the name of a segment, that a record batch repeats: its offsets are of 32 bits, and small
#: records may be many.
_REPEATED_BYTES = 32 << 20
#: Of repeated values that are kept for the next time.
_KEPT_BYTES = 4 << 20


def schema(columns: Sequence[str] | None = None, *, views: bool = False) -> pa.Schema:
    """The Arrow schema of records.

    Parameters
    ----------
    columns : sequence of str, optional
        Names out of `DEFAULT_COLUMNS` (all of them by default) and `BATCH_COLUMNS`, in the order of the result.
    views : bool
        Whether keys and values are binary views instead of binary.

    Raises
    ------
    RequestError
        For a name that there is not.
    """
    if columns is not None:
        check_columns(columns)
    names = DEFAULT_COLUMNS if columns is None else columns
    kind = pa.binary_view() if views else pa.binary()
    return pa.schema([pa.field(name, kind if name in ("key", "value") else _TYPES[name]) for name in names])


_schema_of = schema  # `read_arrow` has a parameter of that name


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


def record_batches(chunks: Iterable[Chunk], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """`record_batch` of each of many chunks; of parts of a chunk, where its topic would be repeated too often."""
    makers = [(_MAKERS[field.name], field.type) for field in target]  # to ask a schema takes as long as to make a batch
    for chunk in chunks:
        for part in _parts(chunk):
            yield pa.RecordBatch.from_arrays([make(part, kind) for make, kind in makers], schema=target)


def _parts(chunk: Chunk) -> Iterable[Chunk]:
    count, most = len(chunk.columns), _REPEATED_BYTES // max(4 * len(chunk.topic), 4 * len(chunk.segment.name), 1)
    if count <= most:
        return (chunk,)
    return (chunk._replace(columns=chunk.columns.take(slice(i, i + most))) for i in range(0, count, most))


def read_arrow(
    path: Path | Sequence[Path] | Disk | Partition | Sequence[Partition],
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    offset: int | tuple[int | None, int | None] | None = None,
    timestamp: Moment | tuple[Moment | None, Moment | None] | None = None,
    limit: int | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    on_corrupt: OnCorrupt = "raise",
    columns: Sequence[str] | None = None,
    *,
    filter: Any = None,
    threads: int | None = 1,
    views: bool = False,
    control: bool = False,
    check_crc: bool = True,
    from_log_start: bool = True,
    max_decompressed_bytes: int = 64 << 20,
    max_bytes_per_second: float | None = None,
    drop_behind: bool = False,
    latest: bool = False,
    tombstones: bool = False,
    latest_memory_bytes: int = MEMORY_BYTES,
    decode: str | Sequence[str] | Decoding | None = None,
    schema: SchemaChoice | Mapping[str, SchemaChoice] | None = None,
    registry: Path | Schemas | None = None,
    on_undecoded: OnUndecoded | None = None,
) -> pa.RecordBatchReader:
    """Read records as a stream of Arrow record batches.

    Parameters
    ----------
    path, topic, partition, offset, timestamp, limit, isolation_level, on_corrupt
        As for `pylogseg.read`.
    columns : sequence of str, optional
        Names from `DEFAULT_COLUMNS` and `BATCH_COLUMNS`; other columns are not decoded.
    filter : pyarrow.compute.Expression, optional
        Only the records for which it is true, such as ``pyarrow.compute.field("offset") >= 5``. Partitions, segments
        and ranges of segments that cannot have such records are not read, as with `pylogseg.dataset`.
    threads : int or None
        Threads that decode ahead; None for one per processor. The order of records stays. Not with `views`, `latest`.
    views : bool
        Return keys and values as binary views into the bytes that were read (of compressed batches: that were
        decompressed), so that no payload is copied. These bytes stay in memory as long as one of the batches does.
    control, check_crc, from_log_start, max_decompressed_bytes, max_bytes_per_second, drop_behind
        As for `pylogseg.read`.
    latest, tombstones, latest_memory_bytes
        As for `pylogseg.read`.
    decode : {"value", "key"}, sequence of them, or Decoding, optional
        Columns to decode to typed values by their schemas (Avro, Protobuf, JSON); not with `views`.
    schema, registry, on_undecoded
        As for `Decoding`: the reader's schema, where schemas are, and what to do with a value that does not decode.

    Returns
    -------
    pyarrow.RecordBatchReader
        It has the Arrow C stream interface, so polars, duckdb and others read it as it is.

    Examples
    --------
    >>> import pylogseg
    >>> table = pylogseg.read_arrow("examples/data", "txn-a-0", columns=["offset", "value"]).read_all()
    >>> table.column_names
    ['offset', 'value']
    """
    reader = read(
        path,
        topic,
        partition,
        offset,
        timestamp,
        limit,
        isolation_level,
        on_corrupt,
        control=control,
        check_crc=check_crc,
        from_log_start=from_log_start,
        threads=threads,
        max_decompressed_bytes=max_decompressed_bytes,
        max_bytes_per_second=max_bytes_per_second,
        drop_behind=drop_behind,
        latest=latest,
        tombstones=tombstones,
        latest_memory_bytes=latest_memory_bytes,
    )
    typed = None
    if decode is not None:
        if views:
            raise RequestError("decode= cannot be combined with views=")
        from pylogseg.arrow.decoding import Decoding, typed_reading

        decoding = Decoding.of(decode, schema=schema, registry=registry, on_undecoded=on_undecoded)
        typed = typed_reading(decoding, path, reader, DEFAULT_COLUMNS if columns is None else columns)
        columns = typed.needed() if filter is None and threads == 1 else typed.names
    elif any(each is not None for each in (schema, registry, on_undecoded)):
        raise RequestError("schema=, registry= and on_undecoded= need decode='value'")
    target = _schema_of(columns, views=views)
    if filter is not None or threads != 1:
        if views or latest:
            raise RequestError("filter= and threads= cannot be combined with views= or latest=: filter the result")
        target = target if typed is None else typed.schema(target)
        return pa.RecordBatchReader.from_batches(target, scanned_batches(reader, target, filter, typed))
    found = _in_order(reader, target, views)
    if typed is None:
        return pa.RecordBatchReader.from_batches(target, found)
    return pa.RecordBatchReader.from_batches(typed.schema(target), typed.batches(found))


def _in_order(reader: Reader, target: pa.Schema, views: bool = False) -> Iterator[pa.RecordBatch]:
    # Columns are copied out of the decoder's memory, so it can be the same for every chunk; views point at payloads.
    besides: Besides = "views" if views else copies_for(target.names)
    reader.use(functools.partial(Scratch, with_arena=not views, besides=besides, allocate=pa.allocate_buffer))
    return record_batches(reader.chunks(), target)


def scanned_batches(
    reader: Reader, target: pa.Schema, filter: Any, typed: TypedBatches | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield what a reader is to read and a filter lets through, in order: read by as many threads as it has."""
    from pylogseg.arrow.scan_reader import scanned

    return scanned(reader.scope, target.names, filter, typed)


def copies_for(names: Sequence[str]) -> Besides:
    """Return what the decoder must copy for the given columns."""
    if "value" not in names:
        return "keys" if "key" in names else None
    return "payloads" if "key" in names else "values"


def _filled(size_bytes: int, dtype: Any) -> tuple[pa.Buffer, npt.NDArray[Any]]:
    """Memory of Arrow's pool, which keeps freed pages: asking the system for them costs more than filling them."""
    buffer = pa.allocate_buffer(size_bytes)
    return buffer, np.frombuffer(buffer, dtype)


def binary_array(
    place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[Any, ...], kind: pa.DataType
) -> pa.Array:
    """Spans as an array of binary, copied, or of binary views into the sources; a size of -1 is null."""
    place, size = np.ascontiguousarray(place), np.ascontiguousarray(size)
    count = len(size)
    if size.max(initial=-1) < 0:
        return _repeated(None, kind, count)
    validity, bits = _filled((count + 7) // 8, np.uint8)
    if kind == pa.binary_view():
        views, out = _filled(16 * count, np.uint8)
        null_count = _records.gather_views(place, size, sources, out, bits)
        buffers = [views, *(pa.py_buffer(source) for source in sources)]
    else:
        total = int(size.clip(0).sum(dtype=np.int64))
        if total > 2**31 - 1:
            raise RequestError(f"{total} bytes of payload in one chunk are too many for a binary array; ask for views")
        offsets, ends = _filled(4 * (count + 1), np.int32)
        data, out = _filled(total + COPY_SLACK_BYTES, np.uint8)
        null_count = _records.gather_binary(place, size, sources, ends, out, bits)
        buffers = [offsets, data]
    return pa.Array.from_buffers(kind, count, [validity if null_count else None, *buffers], null_count)


def _made(kind: pa.DataType, size: npt.NDArray[np.int32], null_count: int, buffers: list[Any]) -> pa.Array:
    """An array of what the decoder made besides its columns."""
    if null_count == len(size):
        return _repeated(None, kind, null_count)
    validity = np.packbits(size >= 0, bitorder="little") if null_count else None
    held = [None if buffer is None else pa.py_buffer(buffer) for buffer in (validity, *buffers)]
    return pa.Array.from_buffers(kind, len(size), held, null_count)


def _key(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    of = chunk.columns
    return _payloads(of, kind, of.key_place, of.key_size, of.tally().null_keys, of.key_view, of.keys)


def _value(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    of = chunk.columns
    return _payloads(of, kind, of.value_place, of.value_size, of.tally().null_values, of.value_view, of.values)


def _payloads(
    columns: RecordColumns,
    kind: pa.DataType,
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    null_count: int,
    view: npt.NDArray[Any] | None,
    copies: Copies | None,
) -> pa.Array:
    """Keys or values as the decoder made them, or gathered from their places where it did not."""
    if view is not None and kind == pa.binary_view():
        return _made(kind, size, null_count, [np.ascontiguousarray(view).view(np.uint8), *columns.sources])
    if copies is not None and kind == pa.binary():
        return _made(kind, size, null_count, [*copies])
    return binary_array(place, size, columns.sources, kind)


def _headers(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    columns = chunk.columns
    counts = columns.header_count
    if not columns.tally().headers:
        return _repeated(None, kind, len(columns))
    key_place, key_size, value_place, value_size = columns.header_spans()
    names = _as_text(binary_array(key_place, key_size, columns.sources, pa.binary()))
    values = binary_array(value_place, value_size, columns.sources, pa.binary())
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    structs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    valid = np.packbits(counts > 0, bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(counts), buffers, int((counts == 0).sum()), children=[structs])


def _as_text(names: pa.Array) -> pa.Array:
    """Header names as strings. Kafka does not check that they are UTF-8; what is not becomes U+FFFD."""
    text = pa.Array.from_buffers(pa.string(), len(names), names.buffers(), names.null_count)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    return text


def _repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """An array of one value, or of nulls: a slice of one that was made before, where there is one."""
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
    buffer, out = _filled(8 * len(chunk.columns), np.int64)
    # Timestamps beyond the year 294247 do not fit microseconds: they are taken to that limit.
    _records.microseconds(np.ascontiguousarray(chunk.columns.timestamp), out)
    return pa.Array.from_buffers(kind, len(out), [None, buffer], 0)


def _of_batch(value: Callable[[RecordColumns], npt.NDArray[Any]]) -> Callable[[Chunk, pa.DataType], pa.Array]:
    """A column that has one value a batch."""

    def make(chunk: Chunk, kind: pa.DataType) -> pa.Array:
        per_batch = value(chunk.columns)
        if len(per_batch) and (per_batch == per_batch[0]).all():
            return _repeated(per_batch[0].item(), kind, len(chunk.columns))
        return _numbers(per_batch[chunk.columns.batch], kind)

    return make


def _timestamp_type(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    columns = chunk.columns
    shared = columns.batches.summary().timestamp_type if len(columns) else None
    if shared is not None:
        return _repeated(shared, kind, len(columns))
    return _numbers(columns.batches.timestamp_type[columns.batch], kind)


def _sequence(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    """Sequence of each record: that of the batch and the offset delta, going on with 0 after 2^31-1; -1 none."""
    columns = chunk.columns
    base = columns.batches.base_sequence.astype(np.int64)[columns.batch]
    delta = columns.offset - columns.batches.base_offset[columns.batch]
    return _numbers(np.where(base < 0, -1, (base + delta) & _MAX_SEQUENCE).astype(np.int32), kind)


_MAKERS: dict[str, Callable[[Chunk, pa.DataType], pa.Array]] = {
    "key": _key,
    "value": _value,
    "topic": lambda chunk, kind: _repeated(readable(chunk.topic), kind, len(chunk.columns)),
    "partition": lambda chunk, kind: _repeated(chunk.partition, kind, len(chunk.columns)),
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
    "segment": lambda chunk, kind: _repeated(readable(chunk.segment.name), kind, len(chunk.columns)),
    "position": _of_batch(lambda columns: columns.batches.position),
}
