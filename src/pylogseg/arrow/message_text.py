"""Records of coordinators' topics as the JSON of Kafka's tools, many at a time.

Only messages without lists and structs in them, and text that needs no escapes: these are nearly all records of
``__consumer_offsets``. The others are left to `messages/text.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.arrow.messages import message_arrays
from pylogseg.format.records import RecordColumns
from pylogseg.messages.framing import HOMES
from pylogseg.messages.program import Decoded, decode_columns, heads
from pylogseg.messages.schema import WIDTHS, Field, Message, numbered

_ESCAPED = r'["\\\x00-\x1f]'
#: Of a key and its value; the value of a tombstone is None.
Texts = tuple[bytes, bytes | None]
_Rows = npt.NDArray[np.intp]


def coordinator_texts(topic: str, columns: RecordColumns) -> list[Texts | None]:
    """Return key and value of each record as Kafka's dump has them; None where it is not done here."""
    found: list[Texts | None] = [None] * len(columns)
    keys, values = (numbered(HOMES[topic], f"coordinator-{what}") for what in ("key", "value"))
    number = heads(columns.key_place, columns.key_size, columns.sources, framed=False).number
    version = heads(columns.value_place, columns.value_size, columns.sources, framed=False).number
    kinds = (number.astype(np.int64) << 32) | (version.astype(np.int64) & 0xFFFFFFFF)
    for kind in np.unique(kinds).tolist():  # a tombstone has version -1
        at, of = kind >> 32, ((kind & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
        if at not in keys or at not in values or not (_is_flat(keys[at]) and _is_flat(values[at])):
            continue
        if of != -1 and not values[at].versions.has(of):
            continue
        rows = np.flatnonzero(kinds == kind)
        texts = _texts(columns, rows, keys[at], values[at], of)
        for row, text in zip(rows.tolist(), texts, strict=True):
            found[row] = text
    return found


def _is_flat(message: Message) -> bool:
    scalar = all(not field.is_list and (field.type in _SHOWN) for field in message.fields)
    return scalar and not message.fields[0].tagged.has(message.versions.last)


_SHOWN = (set(WIDTHS) | {"string"}) - {"bool", "float64"}


def _texts(columns: RecordColumns, rows: _Rows, key: Message, value: Message, version: int) -> list[Texts | None]:
    """The texts of records of one type and version; a version of -1 is a tombstone."""
    of_key = _decoded(key, 0, columns.key_place[rows], columns.key_size[rows], columns)
    escaped = np.zeros(len(rows), np.bool_)
    good = of_key.status == 0
    keys = _joined([f'{{"type":"{key.number}","data":{{', *_pieces(key, 0, of_key, escaped), "}}"])
    values: list[bytes | None] = [None] * len(rows)
    if version >= 0:
        of_value = _decoded(value, version, columns.value_place[rows], columns.value_size[rows], columns)
        good &= of_value.status == 0
        values = _joined([f'{{"version":"{version}","data":{{', *_pieces(value, version, of_value, escaped), "}}"])
    fine = (good & ~escaped).tolist()
    return [(k, v) if is_fine else None for k, v, is_fine in zip(keys, values, fine, strict=True)]


def _decoded(of: Message, version: int, place: Any, size: Any, columns: RecordColumns) -> Decoded:
    return decode_columns(of.name, np.full(len(size), version, np.int16), place + 2, size - 2, columns.sources)


def _joined(pieces: list[Any]) -> list[Any]:
    found: list[Any] = pc.binary_join_element_wise(*_merged(pieces), "").cast(pa.binary()).to_pylist()
    return found


def _merged(pieces: list[Any]) -> list[Any]:
    """Neighbouring constants as one, as Arrow takes them."""
    found: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        else:
            found.append(piece)
    return [pa.scalar(piece) if isinstance(piece, str) else piece for piece in found]


def _pieces(of: Message, version: int, decoded: Decoded, escaped: npt.NDArray[np.bool_]) -> list[Any]:
    arrays = message_arrays(decoded)
    found: list[Any] = []
    for field in of.fields:
        if not field.is_in(version):
            continue
        label = f'{"," if found else ""}"{field.name}":'
        shown = _shown(field, arrays[field.name], escaped)
        if field.tagged.has(version):
            default = pc.equal(arrays[field.name], pa.scalar(field.default, arrays[field.name].type))
            found.append(pc.if_else(default, "", pc.binary_join_element_wise(label, shown, "")))
        else:
            found += [label, shown]
    return found


def _shown(field: Field, array: pa.Array, escaped: npt.NDArray[np.bool_]) -> Any:
    if field.type not in ("string", "uuid"):
        return array.cast(pa.string())
    if field.type == "string":
        data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
        if ((data < 0x20) | (data == 0x22) | (data == 0x5C)).any():
            escaped |= pc.fill_null(pc.match_substring_regex(array, _ESCAPED), False).to_numpy(zero_copy_only=False)
    return pc.fill_null(pc.binary_join_element_wise('"', array, '"', ""), "null")
