"""Typed columns as JSON text, column by column; and records whose values are that text."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.arrow.columns import record_batch, schema
from pylogseg.arrow.decoding import Decoder
from pylogseg.arrow.own_topics import JsonColumn, MessageColumn
from pylogseg.arrow.typed import ROLE_KEY
from pylogseg.catalog.disk import Segment
from pylogseg.format.records import SOURCE_SHIFT, RecordColumns
from pylogseg.reading.partition import Chunk

_CONTROL = r"[\x00-\x1f\x7f]"


def json_text(array: pa.Array, field: pa.Field | None = None) -> pa.Array:
    """Return each value as JSON.

    Bytes are base64, decimals text, dates and times ISO 8601, what is no number in JSON (``NaN``) text; of a union
    only the member that has a value is there.

    Returns
    -------
    pyarrow.StringArray
        ``null`` for a null; none of its own.
    """
    made = pc.fill_null(_text(array, array.type, field), "null")
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def _text(array: pa.Array, kind: pa.DataType, field: pa.Field | None) -> pa.Array:
    if field is not None and (field.metadata or {}).get(ROLE_KEY) == b"json":
        return array
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.string())
    if pa.types.is_struct(kind):
        return _struct(array, kind, field)
    if pa.types.is_map(kind):
        pairs = _join([_text(array.keys, kind.key_type, None), json_text(array.items, kind.item_field)], ":")
        return _list(array, pairs, "{", "}")
    if pa.types.is_list(kind):
        return _list(array, json_text(array.values, kind.value_field), "[", "]")
    if pa.types.is_dictionary(kind):
        return _text(array.dictionary, kind.value_type, None).take(array.indices)
    if pa.types.is_string(kind):
        return _quoted(array)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array(
            [None if raw is None else f'"{base64.b64encode(raw).decode()}"' for raw in array.to_pylist()], pa.string()
        )
    if pa.types.is_floating(kind):
        return _real(array)
    if pa.types.is_temporal(kind):
        return _time(array, kind)
    text = array.cast(pa.string())
    return _join(['"', text, '"']) if pa.types.is_decimal(kind) else text


def _join(parts: list[Any], separator: str = "") -> pa.Array:
    return pc.binary_join_element_wise(*(pa.scalar(p) if isinstance(p, str) else p for p in parts), separator)


def _struct(array: pa.Array, kind: pa.DataType, field: pa.Field | None) -> pa.Array:
    is_union = field is not None and (field.metadata or {}).get(ROLE_KEY) == b"union"
    parts: list[Any] = []
    found = None
    for i, each in enumerate(kind):
        name = json.dumps(each.name, ensure_ascii=False) + ":"
        child = array.field(i)
        if is_union:
            member = _join(["{" + name, _text(child, each.type, each), "}"])
            found = member if found is None else pc.coalesce(found, member)
        else:
            parts += [("{" if not i else ",") + name, json_text(child, each)]
    made = found if is_union else _join([*parts, "}"]) if parts else pa.array(["{}"] * len(array), pa.string())
    if array.null_count:
        made = pc.if_else(array.is_valid(), made, pa.scalar(None, pa.string()))
    return made


def _list(array: pa.Array, items: pa.Array, opening: str, closing: str) -> pa.Array:
    lists = pa.ListArray.from_arrays(array.offsets, items)
    made = _join([opening, pc.binary_join(lists, ","), closing])
    return pc.if_else(array.is_valid(), made, pa.scalar(None, pa.string())) if array.null_count else made


def _quoted(array: pa.Array) -> pa.Array:
    text = pc.replace_substring(pc.replace_substring(array, "\\", "\\\\"), '"', '\\"')
    odd = pc.match_substring_regex(text, _CONTROL)
    if pc.any(odd).as_py():
        plain = [None if each is None else json.dumps(each, ensure_ascii=False)[1:-1] for each in array.to_pylist()]
        text = pa.array(plain, pa.string())
    return _join(['"', text, '"'])


def _real(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    text = pc.if_else(pc.equal(text, "-0"), "-0.0", text)  # which would be an integer without a sign
    finite = pc.is_finite(array)
    if pc.all(pc.fill_null(finite, True)).as_py():
        return text
    names = pc.if_else(pc.is_nan(array), '"NaN"', pc.if_else(pc.greater(array, 0.0), '"Infinity"', '"-Infinity"'))
    return pc.if_else(finite, text, names)


def _time(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO 8601; the number where that has no such year."""
    number = pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_duration(kind):
        return array.view(number).cast(pa.string())
    text = array.cast(pa.string())
    quoted = _join(['"', pc.replace_substring(text, " ", "T") if pa.types.is_timestamp(kind) else text, '"'])
    odd = pc.starts_with(text, "<")  # Arrow's words for a value beyond its years
    return pc.if_else(odd, array.view(number).cast(pa.string()), quoted) if pc.any(odd).as_py() else quoted


class TypedText:
    """Puts JSON in the place of keys and values, for what renders records as text.

    Parameters
    ----------
    decoders : mapping of str to what decodes
        By ``key`` and ``value``.

    Attributes
    ----------
    undecoded : int
        Payloads that did not decode; they are left as they are.
    first : str
        The first of them, and why.
    """

    def __init__(self, decoders: Mapping[str, Decoder | MessageColumn | JsonColumn]) -> None:
        self._decoders = decoders
        self._lock = threading.Lock()
        self.undecoded, self.first = 0, ""

    def columns(self, columns: RecordColumns, segment: Segment) -> RecordColumns:
        """Return the columns with places of the text where a payload was decoded."""
        chunk = Chunk(columns, segment)
        for which, decoder in self._decoders.items():
            batch = record_batch(chunk, schema([which, *decoder.needs]))
            array, errors = decoder.decode(*batch.columns)
            text = json_text(array)
            ends = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1].astype(
                np.int64
            )
            size, place = getattr(columns, f"{which}_size"), getattr(columns, f"{which}_place")
            good = size >= 0
            good[[*errors]] = False
            made: dict[str, Any] = {
                f"{which}_place": np.where(good, ends[:-1] | (len(columns.sources) << SOURCE_SHIFT), place),
                f"{which}_size": np.where(good, np.diff(ends), size).astype(np.int32),
            }
            source = np.frombuffer(text.buffers()[2] or b"", np.uint8)
            columns = replace(
                columns,
                sources=(*columns.sources, source),
                key_view=None,
                value_view=None,
                keys=None,
                values=None,
                **made,
            )
            if errors:
                self._note(columns, segment, which, errors)
        return columns

    def _note(self, columns: RecordColumns, segment: Segment, which: str, errors: Mapping[int, str]) -> None:
        row, reason = next(iter(errors.items()))
        with self._lock:
            self.undecoded += len(errors)
            self.first = self.first or f"{segment.path}: the {which} of offset {int(columns.offset[row])}: {reason}"
