"""Kafka's own messages as Arrow: columns of `messages.program`, and whole topics as a struct column for each type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg._native import _messages
from pylogseg.format.messages.framing import HOMES
from pylogseg.format.messages.program import Column, Decoded, Heads, decode_columns, heads, program_of
from pylogseg.format.messages.schema import Message, by_number, message
from pylogseg.format.records import SOURCE_SHIFT, RecordColumns
from pylogseg.reading.partition import Chunk

_NUMBERS: dict[str, pa.DataType] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "uint16": pa.uint16(),
    "int32": pa.int32(),
    "uint32": pa.uint32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
}
_TEXTS = ("string", "uuid")


def message_type(name: str) -> pa.DataType:
    """Return the Arrow type of a message: a struct of its fields, with UUIDs as text."""
    return pa.struct([_field(column) for column in program_of(message(name).name).columns])


def _field(column: Column) -> pa.Field:
    if column.type == "list":
        return pa.field(column.name, pa.list_(_field(column.children[0])))
    if column.type == "struct":
        return pa.field(column.name, pa.struct([_field(child) for child in column.children]))
    if column.type == "bool":
        return pa.field(column.name, pa.bool_())
    return pa.field(column.name, _NUMBERS.get(column.type, pa.string() if column.type in _TEXTS else pa.binary()))


def message_arrays(decoded: Decoded) -> dict[str, pa.Array]:
    """Return the fields of decoded messages as arrays by their names; null where a message could not be decoded."""
    good = decoded.status == 0
    count = len(good)
    mask = None if good.all() else good
    return {column.name: _array(column, decoded.nodes, count, mask) for column in decoded.columns}


def _bits(mask: npt.NDArray[Any]) -> tuple[pa.Buffer | None, int]:
    nulls = len(mask) - int(np.count_nonzero(mask))
    return (pa.py_buffer(np.packbits(mask, bitorder="little")) if nulls else None), nulls


def _array(column: Column, nodes: list[Any], count: int, mask: npt.NDArray[np.bool_] | None) -> pa.Array:
    """An array of a column; `mask` says which of its rows were decoded, None all."""
    kind = _field(column).type
    if column.node < 0:
        bits, nulls = (None, 0) if mask is None else _bits(mask)
        children = [_array(child, nodes, count, mask) for child in column.children]
        return pa.Array.from_buffers(kind, count, [bits], nulls, children=children)
    items, ends, data, valid = nodes[column.node]
    assert items == count, (column.name, items, count)
    if not count:
        return pa.array([], kind)
    there = mask if valid is None else np.frombuffer(valid, np.uint8)
    bits, nulls = (None, 0) if there is None else _bits(there)
    if column.type == "struct":
        inner = there.astype(np.bool_) if there is not None and nulls else None
        children = [_array(child, nodes, count, inner) for child in column.children]
        return pa.Array.from_buffers(kind, count, [bits], nulls, children=children)
    if column.type == "list":
        total = int(np.frombuffer(ends, np.int32)[-1])
        child = _array(column.children[0], nodes, total, None)
        return pa.Array.from_buffers(kind, count, [bits, pa.py_buffer(ends)], nulls, children=[child])
    if column.type == "bool":
        packed = pa.py_buffer(np.packbits(np.frombuffer(data, np.uint8) != 0, bitorder="little"))
        return pa.Array.from_buffers(kind, count, [bits, packed], nulls)
    if column.type in _NUMBERS:
        return pa.Array.from_buffers(kind, count, [bits, pa.py_buffer(data)], nulls)
    strings = pa.Array.from_buffers(kind, count, [bits, pa.py_buffer(ends), pa.py_buffer(data)], nulls)
    is_ascii = column.type != "string" or np.frombuffer(data, np.int8).min(initial=0) >= 0
    return strings if is_ascii else _replace_invalid(strings)


def _replace_invalid(text: pa.Array) -> pa.Array:
    """Text with U+FFFD in place of invalid UTF-8, as Kafka reads it."""
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = text.cast(pa.binary()).to_pylist()
        return pa.array([None if item is None else item.decode("utf-8", "replace") for item in raw], pa.string())
    return text


def decode_binary(name: str, values: pa.Array, version: int) -> tuple[pa.StructArray, npt.NDArray[np.uint8]]:
    """Decode a column of binary values, each of them a message of one version without a head.

    Returns
    -------
    (structs, status) : tuple of pyarrow.StructArray and numpy.ndarray
        Null where a value is null or could not be decoded; then its status is an index of `REASONS`.
    """
    place, size, source = binary_spans(values)
    decoded = decode_columns(name, np.full(len(size), version, np.int16), place, size, (source,))
    arrays = message_arrays(decoded)
    bits, nulls = _bits(decoded.status == 0)
    structs = pa.Array.from_buffers(message_type(name), len(size), [bits], nulls, children=list(arrays.values()))
    return structs, decoded.status


def binary_spans(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], Any]:
    """Where the values of a binary array are in its data: places, sizes (-1 null), and the data."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    is_small = values.type in (pa.binary(), pa.string())  # as nearly all are: a cast would be a copy more
    values = values if is_small else values.cast(pa.large_binary())
    count = len(values)
    _, offsets, data = values.buffers()
    if count == 0:
        return np.empty(0, np.int64), np.empty(0, np.int32), b""
    ends: Any = np.frombuffer(offsets, np.int32 if is_small else np.int64)[values.offset : values.offset + count + 1]
    size = (ends[1:] - ends[:-1]).astype(np.int32, copy=False)
    if values.null_count:
        size[values.is_null().to_numpy(zero_copy_only=False)] = -1
    return ends[:-1].astype(np.int64), size, b"" if data is None else np.frombuffer(data, np.uint8)


def with_payloads(columns: RecordColumns, which: str, texts: pa.Array) -> RecordColumns:
    """Return columns with these texts as keys or values, in one more source; a null leaves a payload as it is."""
    start, sizes, source = binary_spans(texts)
    there = sizes >= 0
    place, size = getattr(columns, f"{which}_place"), getattr(columns, f"{which}_size")
    payloads: dict[str, Any] = {
        f"{which}_place": np.where(there, start | (len(columns.sources) << SOURCE_SHIFT), place),
        f"{which}_size": np.where(there, sizes, size).astype(np.int32),
    }
    columns = replace(columns, sources=(*columns.sources, source), **payloads)
    return replace(columns, key_view=None, value_view=None, keys=None, values=None)


#: In front of the fields of every record.
RECORD_FIELDS = (
    pa.field("internalPartition", pa.int32()),
    pa.field("recordOffset", pa.int64()),
    pa.field("recordTimestamp", pa.int64()),
    pa.field("recordProducerId", pa.int64()),
)


class TypedRecords(NamedTuple):
    """Records of a coordinator's topic: the fields of key and value, behind `RECORD_FIELDS`, by type.

    `left_out` counts unknown types and versions, and bytes that were not looked at. `damage` has, by the reason, how
    many records are malformed, and file and offset of the first.
    """

    tables: dict[int, pa.Table]
    left_out: Counter[str]
    damage: dict[str, tuple[int, str, int]]

    def add_damage(self, reason: str, chunk: Chunk, offsets: npt.NDArray[np.int64]) -> None:
        """Count malformed records of a chunk by their offsets."""
        count, path, first = self.damage.get(reason, (0, chunk.segment.path, int(offsets[0])))
        self.damage[reason] = count + len(offsets), path, first


def typed_records(topic: str, chunks: Iterable[Chunk]) -> TypedRecords:
    """Decode records of a coordinator's topic into a table for each type; tombstones are left out."""
    parts: dict[int, list[pa.Table]] = {}
    records = TypedRecords({}, Counter(), {})
    keys, values = (by_number(HOMES[topic], f"coordinator-{what}") for what in ("key", "value"))
    for chunk in chunks:
        columns = chunk.columns
        if columns.tally().null_values:
            columns = columns.take(columns.value_size >= 0)
        head = heads(columns.key_place, columns.key_size, columns.sources, framed=False)
        version = heads(columns.value_place, columns.value_size, columns.sources, framed=False)
        for number, rows in _by_number(head.number):
            if number not in keys or number not in values:
                offsets = columns.offset[rows]
                if number < 0:
                    records.add_damage("the key has no type", chunk, offsets)
                else:
                    records.left_out[f"records of unknown type {number}"] += len(offsets)
                continue
            table = _decode_type(chunk, columns, rows, (keys[number], head), (values[number], version), records)
            parts.setdefault(number, []).append(table)
    records.tables.update({number: pa.concat_tables(parts[number]) for number in sorted(parts)})
    return records


def _by_number(numbers: npt.NDArray[np.int32]) -> Iterator[tuple[int, npt.NDArray[np.intp] | slice]]:
    """Yield each number and its rows; a slice if all have the same."""
    if len(numbers) and (numbers == numbers[0]).all():
        yield int(numbers[0]), slice(None)
        return
    for number in np.unique(numbers).tolist():
        yield number, np.flatnonzero(numbers == number)


def _decode_type(
    chunk: Chunk,
    columns: RecordColumns,
    rows: npt.NDArray[np.intp] | slice,
    key: tuple[Message, Heads],
    value: tuple[Message, Heads],
    into: TypedRecords,
) -> pa.Table:
    """Rows of one type as a table; `into` counts the rows that cannot be decoded."""
    count = len(columns.offset[rows])
    of_key = _decode_part(columns.key_place, columns.key_size, columns.sources, rows, key, np.zeros(count, np.int16))
    version = value[1].number[rows].astype(np.int16)
    of_value = _decode_part(columns.value_place, columns.value_size, columns.sources, rows, value, version)
    good = (of_key.status == 0) & (of_value.status == 0)
    for what, decoded in ((key[0], of_key), (value[0], of_value)):
        for status in np.unique(decoded.status[decoded.status != 0]).tolist():
            mine = decoded.status == status
            if status == _messages.UNKNOWN:
                has_none = mine & (value[1].number[rows] < 0)
                if has_none.any():
                    into.add_damage(f"{what.name}: it has no version", chunk, columns.offset[rows][has_none])
                for newer in np.unique(version[mine & ~has_none]).tolist():
                    into.left_out[f"{what.name}: version {newer}, which is not known"] += int(
                        np.count_nonzero(mine & (version == newer))
                    )
            else:
                into.add_damage(f"{what.name}: {_messages.REASONS[status]}", chunk, columns.offset[rows][mine])
        for name, counted in (
            ("bytes behind the last field", decoded.rest),
            ("unknown tagged fields", decoded.unknown_tags),
        ):
            if counted.any():
                into.left_out[f"{what.name}: {name}"] += int(np.count_nonzero(counted))
    arrays = [
        pa.array(np.full(count, chunk.partition, np.int32)),
        pa.array(columns.offset[rows]),
        pa.array(columns.timestamp[rows]),
        pa.array(columns.batches.producer_id[columns.batch[rows]]),
        *message_arrays(of_key).values(),
        *message_arrays(of_value).values(),
    ]
    table = pa.Table.from_arrays(arrays, schema=record_schema(key[0], value[0]))
    return table if good.all() else table.filter(pa.array(good))


def record_schema(key: Message, value: Message) -> pa.Schema:
    """Return the schema of the table of a type."""
    return pa.schema([*RECORD_FIELDS, *message_type(key.name), *message_type(value.name)])


def _decode_part(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    rows: npt.NDArray[np.intp] | slice,
    of: tuple[Message, Heads],
    version: npt.NDArray[np.int16],
) -> Decoded:
    what, head = of
    skip = head.skip[rows]
    return decode_columns(what.name, version, place[rows] + skip, size[rows] - skip, sources)
