"""Record batches in columns: raw bytes to records, and records to raw bytes.

A value has whole batches, back to back: the data of a fetch or produce request, a segment from tiered storage, a file.
The values of a column are scanned and decoded together, not one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg.disk.disk import Segment
from pylogseg.errors import CorruptionError, Ending, RequestError, Verdict
from pylogseg.format.batches import BatchTable, scan
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES, decode_parts
from pylogseg.format.words import check_word
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.arrow.encode import encode
from pylogseg.reading.arrow.functions import RaiseOrNull, Spans, bad_value
from pylogseg.reading.arrow.sizes import BATCH_BYTES, no_larger
from pylogseg.reading.partition import Chunk

#: Columns of the records in a batch.
RECORD_COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers")
_RECORDS = arrow.schema(RECORD_COLUMNS)
RECORD = pa.struct(list(_RECORDS))
#: Raw bytes that are decoded at once, if no value has more: compressed, they may become a hundred times as many.
_PIECE_BYTES = 1 << 20
_ENCODED = pa.schema(
    [
        pa.field("batch", pa.binary()),
        pa.field("baseOffset", pa.int64()),
        pa.field("lastOffset", pa.int64()),
        pa.field("records", pa.int32()),
    ]
)

Iteration = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Decoded(NamedTuple):
    """Records of a column, and their number by value."""

    records: pa.Table
    counts: npt.NDArray[np.int64]
    bad: npt.NDArray[np.bool_]


def to_records(
    column: Any, on_undecoded: RaiseOrNull = "raise", *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> pa.Array:
    """Decode raw record batches into records.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        Binary; each value holds whole batches of any magic, codec and number.
    on_undecoded : {"raise", "null"}
        Action for a value with anything else, or with a bad CRC.
    limit_bytes : int
        A batch that decompresses to more is damaged.

    Returns
    -------
    pyarrow.Array of list<struct>
        The fields are `RECORD_COLUMNS`, typed as in Spark's Kafka source. Control records are left out; null gives
        null.

    Raises
    ------
    CorruptionError
        With `on_undecoded` ``"raise"``: names the value and the position in it.
    """
    check_word("on_undecoded", on_undecoded, ("raise", "null"))
    spans = Spans(column)
    done = _decode(spans, on_undecoded, limit_bytes)
    records = done.records.combine_chunks().to_batches()
    if records:
        structs = pa.StructArray.from_arrays(records[0].columns, fields=list(_RECORDS))
    else:
        structs = pa.array([], RECORD)
    offsets = np.zeros(len(spans) + 1, np.int32)
    np.cumsum(done.counts, out=offsets[1:])
    valid = spans.valid & ~done.bad
    null_count = int((~valid).sum())
    buffers = [pa.py_buffer(np.packbits(valid, bitorder="little")) if null_count else None, pa.py_buffer(offsets)]
    kind = pa.list_(pa.field("element", RECORD))
    return pa.Array.from_buffers(kind, len(spans), buffers, null_count, children=[structs])


def decoder(
    column: str = "value",
    keep: Sequence[str] = (),
    on_undecoded: Literal["raise", "skip"] = "raise",
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> Iteration:
    """Return a function for ``mapInArrow`` from tables with raw batches to tables of records.

    Parameters
    ----------
    column : str
        The column with the raw batches.
    keep : sequence of str
        Other columns, repeated for each record before its own; their names must differ from the record's columns.
    on_undecoded : {"raise", "skip"}
        The action for a value that is not made of whole good batches.
    limit_bytes : int
        A batch that decompresses to more is damaged.

    Returns
    -------
    callable
        From an iterator of record batches to one of record batches with the columns `keep`, then `RECORD_COLUMNS`.
    """
    check_word("on_undecoded", on_undecoded, ("raise", "skip"))
    twice = set(keep) & set(RECORD_COLUMNS)
    if twice:
        raise RequestError(f"records have a column {sorted(twice)[0]!r} themselves: rename the one to keep")

    def decode(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in tables:
            for piece in _pieces(table, column):
                yield from _records_of(piece, column, keep, "raise" if on_undecoded == "raise" else "null", limit_bytes)

    return decode


def _pieces(table: pa.RecordBatch, column: str) -> Iterator[pa.RecordBatch]:
    """Split a table into slices with a limited number of raw bytes; a single row may have more."""
    if column not in table.schema.names:
        raise RequestError(f"unknown column {column!r}; the columns are {', '.join(table.schema.names)}")
    ends = Spans(table.column(column), column).offsets[1:]
    first = 0
    while first < table.num_rows:
        begin = int(ends[first - 1]) if first else int(ends[0]) - 1
        after = max(first + 1, int(np.searchsorted(ends, begin + _PIECE_BYTES, "right")))
        yield table.slice(first, after - first)
        first = after


def _records_of(
    table: pa.RecordBatch, column: str, keep: Sequence[str], on_undecoded: RaiseOrNull, limit_bytes: int
) -> Iterator[pa.RecordBatch]:
    done = _decode(Spans(table.column(column), column), on_undecoded, limit_bytes)
    rows = pa.array(np.repeat(np.arange(table.num_rows), done.counts))
    records = done.records
    for i, name in enumerate(keep):
        records = records.add_column(i, table.schema.field(name), table.column(name).take(rows))
    for batch in records.to_batches():
        yield from no_larger(batch, BATCH_BYTES)


def _decode(spans: Spans, on_undecoded: RaiseOrNull, limit_bytes: int) -> _Decoded:
    bad = np.zeros(len(spans), np.bool_)
    parts: list[pa.RecordBatch] = []
    counts = np.zeros(len(spans), np.int64)
    for batches in _tables(spans, bad, on_undecoded):
        for columns, damage in decode_parts(batches, spans.data, limit_bytes=limit_bytes):
            value_of = _rows(spans, columns.batches)
            for fault in damage:
                row = int(value_of[fault.row])
                if on_undecoded == "raise":
                    raise bad_value(row, fault.reason, int(columns.batches.position[fault.row] - spans.offsets[row]))
                bad[row] = True
            data = columns.take(~columns.batches.is_control[columns.batch])
            parts.append(_record_batch(data))
            counts += np.bincount(value_of[data.batch], minlength=len(spans))
    table = pa.Table.from_batches(parts, _RECORDS)
    if bad.any() and counts[bad].any():  # a damaged value gives no records
        table = table.filter(pa.array(np.repeat(~bad, counts)))
        counts[bad] = 0
    return _Decoded(table, counts, bad)


def _record_batch(columns: Any) -> pa.RecordBatch:
    # No requested column depends on the segment.
    return arrow.record_batch(Chunk(columns, cast("Segment", None)), _RECORDS)


def _rows(spans: Spans, batches: BatchTable) -> npt.NDArray[np.int64]:
    return np.searchsorted(spans.offsets[1:], batches.position, "right")


def _tables(spans: Spans, bad: npt.NDArray[np.bool_], on_undecoded: RaiseOrNull) -> Iterator[BatchTable]:
    """Yield batch tables: one for all values if all are good, otherwise one for each value."""
    first, end = int(spans.offsets[0]), int(spans.offsets[-1])
    scanned = scan(spans.data, start=first, end=end)
    starts = np.append(scanned.batches.position, scanned.position)
    is_whole = scanned.ending is Ending.COMPLETE and bool(np.isin(spans.offsets, starts).all())
    # Arrow lets a null have bytes.
    are_empty = spans.nulls is None or not np.diff(spans.offsets)[spans.nulls].any()
    if is_whole and are_empty and (scanned.batches.verdict == Verdict.GOOD).all():
        yield scanned.batches
        return
    for row in np.flatnonzero(spans.valid).tolist():
        begin, after = int(spans.offsets[row]), int(spans.offsets[row + 1])
        alone = scan(spans.data, start=begin, end=after)
        error = _fault(row, alone.batches, alone.ending, begin, alone.position)
        if error is None:
            yield alone.batches
        elif on_undecoded == "raise":
            raise error
        else:
            bad[row] = True


def _fault(row: int, batches: BatchTable, ending: Ending, first: int, position: int) -> CorruptionError | None:
    """Return the error for the batches of one value; None if they are good."""
    crc_bad = np.flatnonzero(batches.verdict == Verdict.CRC_BAD)
    if len(crc_bad):
        at = int(crc_bad[0])
        return bad_value(row, f"the CRC {batches.crc[at]:#010x} does not hold", int(batches.position[at]) - first)
    if ending is not Ending.COMPLETE:
        return bad_value(row, f"no whole batch begins here ({ending.name.lower().replace('_', ' ')})", position - first)
    return None


def from_records(column: Any, **options: Any) -> pa.Array:
    """Encode lists of records into raw record batches.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        List of structs; the fields are those that `pylogseg.encode` takes of an Arrow table (``value`` at least).
    **options
        Of `pylogseg.encode`.

    Returns
    -------
    pyarrow.Array of binary
        One or more batches for each list; empty for an empty one, null for null.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        raise RequestError(f"records are a list of structs, not {kind}")
    out: list[bytes | None] = []
    for row in range(len(array)):
        records = array[row].values
        if records is None:
            out.append(None)
            continue
        try:
            # Not from_struct_array: pyarrow 21 does not cut the fields of a slice to its length.
            table = pa.RecordBatch.from_arrays(records.flatten(), [field.name for field in records.type])
            out.append(bytes(encode(table, **options)))
        except RequestError as error:
            raise RequestError(f"value {row} of the column: {error}") from None
    return pa.array(out, pa.binary())


def encoder(batch_bytes: int = 16384, **options: Any) -> Iteration:
    """Return a function for ``mapInArrow`` from tables of records to one row for each record batch.

    Parameters
    ----------
    batch_bytes : int
        Of a batch before compression.
    **options
        Of `pylogseg.encode`. Without a column ``offset`` and without ``base_offset`` the records of each table that
        comes in are numbered from 0 on, as a producer does.

    Returns
    -------
    callable
        From an iterator of record batches to one of tables with ``batch``, ``baseOffset``, ``lastOffset`` and
        ``records``.
    """

    def run(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in tables:
            data = encode(table, batch_bytes=batch_bytes, **options)
            rows = scan(data, crc=False).batches
            offsets = np.append(rows.position, len(data)).astype(np.int32)
            raw = pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
            columns = [raw, *(np.ascontiguousarray(c) for c in (rows.base_offset, rows.last_offset, rows.count))]
            yield pa.RecordBatch.from_arrays([pa.array(c) if c is not raw else c for c in columns], schema=_ENCODED)

    return run
