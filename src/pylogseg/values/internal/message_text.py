"""Records of coordinators' topics as the JSON of Kafka's tools, column by column.

Only messages without lists and structs in them, and text that needs no escapes: these are nearly all records of
``__consumer_offsets``. The others are left to `format/messages/text.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.format.messages.framing import HOMES
from pylogseg.format.messages.program import Decoded, decode_columns, heads
from pylogseg.format.messages.schema import WIDTHS, Message, MessageField, by_number
from pylogseg.format.records import RecordColumns
from pylogseg.format.text import Texts
from pylogseg.values.internal.message_arrays import message_arrays

_ESCAPED = r'["\\\x00-\x1f]'
_SHOWN = (set(WIDTHS) | {"string"}) - {"bool", "float64"}
_Rows = npt.NDArray[np.intp]


class CoordinatorTexts(NamedTuple):
    """Keys and values of records as text; null where `done` is not set, and a tombstone has no value."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    done: npt.NDArray[np.bool_]


def coordinator_texts(topic: str, columns: RecordColumns) -> CoordinatorTexts:
    """Return key and value of each record as Kafka's dump has them."""
    keys, values = (by_number(HOMES[topic], f"coordinator-{what}") for what in ("key", "value"))
    number = heads(columns.key_place, columns.key_size, columns.sources, framed=False).number
    version = heads(columns.value_place, columns.value_size, columns.sources, framed=False).number
    kinds = (number.astype(np.int64) << 32) | (version.astype(np.int64) & 0xFFFFFFFF)
    place = np.full(len(columns), -1)
    parts: list[tuple[pa.Array, pa.Array]] = []
    count = 0
    for kind in np.unique(kinds).tolist():  # a tombstone has version -1
        at, of = kind >> 32, ((kind & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
        if at not in keys or at not in values or not (_is_flat(keys[at]) and _is_flat(values[at])):
            continue
        if of != -1 and not values[at].versions.has(of):
            continue
        rows = np.flatnonzero(kinds == kind)
        *texts, good = _texts(columns, rows, keys[at], values[at], of)
        parts.append((texts[0], texts[1]))
        place[rows] = np.where(good, np.arange(count, count + len(rows)), -1)
        count += len(rows)
    done = place >= 0
    if len(parts) == 1 and len(parts[0][0]) == len(columns) and done.all():
        return CoordinatorTexts(*parts[0], done)
    empty = pa.array([], pa.binary())
    index = pa.array(place, mask=~done)
    columns_of_texts = [pa.concat_arrays([*(part[i] for part in parts), empty]).take(index) for i in (0, 1)]
    return CoordinatorTexts(columns_of_texts[0], columns_of_texts[1], done)


def with_texts(array: pa.BinaryArray, rows: _Rows, texts: Sequence[bytes | None]) -> pa.BinaryArray:
    if not len(rows):
        return array
    index = np.arange(len(array))
    index[rows] = np.arange(len(array), len(array) + len(rows))
    return pa.concat_arrays([array, pa.array(texts, pa.binary())]).take(pa.array(index))


def text_array(texts: Sequence[bytes | None]) -> pa.BinaryArray:
    return pa.array(texts, pa.binary())


def dump_texts(made: CoordinatorTexts) -> pa.BinaryArray:
    """Return the text behind the metadata of records in Kafka's dump; null for records that the caller renders."""
    values = pc.fill_null(made.values, b"<DELETE>") if made.values.null_count else made.values
    return _join([" key: ", made.keys, " payload: ", values], pa.binary())


def join_texts(array: pa.BinaryArray) -> Texts:
    """Return the texts of an array without nulls."""
    if not len(array):
        return Texts(np.zeros(1, np.int32), b"")
    _, ends, data = array.buffers()
    bounds = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
    return Texts(bounds, b"" if data is None else np.frombuffer(data, np.uint8))


def _is_flat(message: Message) -> bool:
    scalar = all(not field.is_list and (field.type in _SHOWN) for field in message.fields)
    return scalar and not message.fields[0].tagged.has(message.versions.last)


def _texts(
    columns: RecordColumns, rows: _Rows, key: Message, value: Message, version: int
) -> tuple[pa.BinaryArray, pa.BinaryArray, npt.NDArray[np.bool_]]:
    """The texts of records of one type and version, and which of them are good; a version of -1 is a tombstone."""
    of_key = _decode_part(key, 0, columns.key_place[rows], columns.key_size[rows], columns)
    escaped = np.zeros(len(rows), np.bool_)
    good = of_key.status == 0
    keys = _join([f'{{"type":"{key.number}","data":{{', *_pieces(key, 0, of_key, escaped), "}}"])
    values = pa.nulls(len(rows), pa.binary())
    if version >= 0:
        of_value = _decode_part(value, version, columns.value_place[rows], columns.value_size[rows], columns)
        good &= of_value.status == 0
        values = _join([f'{{"version":"{version}","data":{{', *_pieces(value, version, of_value, escaped), "}}"])
        values = values.cast(pa.binary())
    return keys.cast(pa.binary()), values, good & ~escaped


def _decode_part(of: Message, version: int, place: Any, size: Any, columns: RecordColumns) -> Decoded:
    return decode_columns(of.name, np.full(len(size), version, np.int16), place + 2, size - 2, columns.sources)


def _join(pieces: list[Any], kind: pa.DataType | None = None) -> pa.Array:
    """The pieces of each row as one; neighbouring constants are one for all rows."""
    merged: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    kind = kind or pa.string()
    parts = [pa.scalar(piece, kind) if isinstance(piece, str) else piece for piece in merged]
    return pc.binary_join_element_wise(*parts, pa.scalar("", kind))


def _pieces(of: Message, version: int, decoded: Decoded, escaped: npt.NDArray[np.bool_]) -> list[Any]:
    arrays = message_arrays(decoded)
    object_pieces: list[Any] = []
    for field in of.fields:
        if not field.is_in(version):
            continue
        array = arrays[field.name]
        pieces = [f'{"," if object_pieces else ""}"{field.name}":', *_quote_column(field, array, escaped)]
        if field.tagged.has(version):
            default = pc.equal(array, pa.scalar(field.default, array.type))
            if pc.any(default).as_py():
                pieces = [pc.if_else(default, "", _join(pieces))]
        object_pieces += pieces
    return object_pieces


def _quote_column(field: MessageField, array: pa.Array, escaped: npt.NDArray[np.bool_]) -> list[Any]:
    if field.type not in ("string", "uuid"):
        return [array.cast(pa.string())]
    if field.type == "string":
        data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
        if ((data < 0x20) | (data == 0x22) | (data == 0x5C)).any():
            escaped |= pc.fill_null(pc.match_substring_regex(array, _ESCAPED), False).to_numpy(zero_copy_only=False)
    quoted = ['"', array, '"']
    return [pc.fill_null(_join(quoted), "null")] if array.null_count else quoted
