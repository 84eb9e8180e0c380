"""Arrow values as text: the one form that a value has in every command, as JSON and as a cell of a table.

``docs/typed-values.md`` (JSON) has the rules. All is done column by column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg._native import _text
from pylogseg.format.escape import json_line
from pylogseg.reading.arrow.texts import readable_strings
from pylogseg.values.roles import ROLE_KEY

# What `_text.json_strings` takes as kinds.
_STRING, _PAYLOAD, _JSON = range(3)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
#: A length of time of Arrow's as it lies in memory.
_INTERVAL = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])
_EXTENSION = b"ARROW:extension:name"


def json_text(array: pa.Array, field: pa.Field | None = None) -> pa.Array:
    """Return each value as JSON on one line, and ``null`` for a null; metadata of `field` may say that text is JSON.

    Numbers have all their digits, decimals too; bytes are text, or ``base64:`` and their base64; dates, times and
    lengths of time are ISO 8601; what is no number in JSON (``NaN``) is text; names of a map are always text.
    """
    return pc.fill_null(_json(array, field), "null")


def plain_text(array: pa.Array, field: pa.Field | None = None) -> pa.Array:
    """Return each value as a cell of a table has it: as in JSON, a string without its quotes; a null stays one."""
    kind = array.type
    if pa.types.is_string(kind):
        return array
    if pa.types.is_dictionary(kind):
        return plain_text(array.dictionary).take(array.indices)
    if isinstance(array, pa.ExtensionArray):
        return _of_extension(array, plain_text)
    if _is_bytes(kind):
        return readable_strings(array.cast(pa.binary()))
    if _is_text(kind):
        return array.cast(pa.string())
    if pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
        return _json(array, field)
    return _scalar(array, kind)[0]


def _json(array: pa.Array, field: pa.Field | None) -> pa.Array:
    kind = array.type if field is None else field.type  # that of a field says more of the parts
    if _is_text(kind):
        return _quote(array, _JSON if _has_json(field) else _STRING)
    if _is_bytes(kind):
        return _quote(array, _PAYLOAD)
    if pa.types.is_struct(kind):
        return _struct(array, kind)
    if pa.types.is_map(kind):
        names = _quote(plain_text(array.keys), _STRING)
        return _list(array, _join([names, json_text(array.items, kind.item_field)], ":"), "{", "}")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(array, json_text(array.values, kind.value_field), "[", "]")
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):  # other layouts of lists
        return _json(array.cast(pa.list_(kind.value_field)), None)
    if pa.types.is_union(kind):
        return _union(array, kind)
    if pa.types.is_dictionary(kind):
        return _json(array.dictionary, None).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        return _json(pc.run_end_decode(array), None)
    if isinstance(array, pa.ExtensionArray):
        if kind.extension_name == "arrow.json":
            return _quote(array.storage, _JSON)
        return _of_extension(array, lambda one: _json(one, None))
    text, is_text = _scalar(array, kind)
    if is_text is True:
        return _join(['"', text, '"'])
    return text if is_text is False else pc.if_else(is_text, _join(['"', text, '"']), text)


def _has_json(field: pa.Field | None) -> bool:
    data = (field.metadata if field is not None else None) or {}
    return data.get(ROLE_KEY) == b"json" or data.get(_EXTENSION) == b"arrow.json"


def _is_text(kind: pa.DataType) -> bool:
    of = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in of)


def _is_bytes(kind: pa.DataType) -> bool:
    of = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(is_kind(kind) for is_kind in of)


def _of_extension(array: pa.ExtensionArray, made: Any) -> pa.Array:
    """The text of the storage type below an extension type."""
    name = array.type.extension_name
    if name == "arrow.uuid":
        import uuid

        return made(
            pa.array(
                [None if raw is None else str(uuid.UUID(bytes=raw)) for raw in array.storage.to_pylist()], pa.string()
            )
        )
    return made(pc.not_equal(array.storage, 0) if name == "arrow.bool8" else array.storage)


def _join(parts: list[Any], separator: str = "") -> pa.Array:
    return pc.binary_join_element_wise(*(pa.scalar(p) if isinstance(p, str) else p for p in parts), separator)


def _with_nulls(made: pa.Array, array: pa.Array) -> pa.Array:
    return pc.if_else(array.is_valid(), made, pa.scalar(None, pa.string())) if array.null_count else made


def _struct(array: pa.Array, kind: pa.DataType) -> pa.Array:
    parts: list[Any] = []
    for i, field in enumerate(kind):
        parts += [("{" if not i else ",") + json_line(field.name) + ":", json_text(array.field(i), field)]
    return _with_nulls(_join([*parts, "}"]) if parts else pa.array(["{}"] * len(array), pa.string()), array)


def _union(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """As a struct of all members, of which one has a value."""
    codes = np.asarray(array.type_codes)
    children = []
    for i in range(kind.num_fields):
        rows = np.flatnonzero(codes == kind.type_codes[i])
        places = np.full(len(array), -1)
        if kind.mode == "dense":
            places[rows] = np.asarray(array.offsets)[rows]
        else:
            places[rows] = rows
        children.append(array.field(i).take(pa.array(places, mask=places < 0)))
    return _struct(pa.StructArray.from_arrays(children, fields=list(kind)), pa.struct(list(kind)))


def _list(array: pa.Array, items: pa.Array, opening: str, closing: str) -> pa.Array:
    kind = pa.LargeListArray if pa.types.is_large_list(array.type) else pa.ListArray
    lists = kind.from_arrays(array.offsets, items)
    return _with_nulls(_join([opening, pc.binary_join(lists, ","), closing]), array)


def _quote(array: pa.Array, kind: int) -> pa.Array:
    """Texts as JSON, by the kernel that writes records."""
    array = array.cast(pa.binary())
    if not len(array):
        return pa.array([], pa.string())
    _, ends, data = array.buffers()
    out = _text.TextBuffer()
    places = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
    quoted_ends = _text.json_strings(places, np.frombuffer(data or b"", np.uint8), kind, out)
    whole = pa.StringArray.from_buffers(len(array), pa.py_buffer(quoted_ends), pa.py_buffer(out))
    return _with_nulls(whole, array)


def _scalar(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Any]:
    """Return texts of values of a type without parts; and whether JSON quotes them: all, none, or a mask by row."""
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.string()), False
    if pa.types.is_floating(kind):
        return _real(array.cast(pa.float32()) if pa.types.is_float16(kind) else array)
    if pa.types.is_duration(kind):
        return _length(None, None, array.view(pa.int64()), _PER_SECOND[kind.unit]), True
    if pa.types.is_interval(kind):
        parts = np.frombuffer(array.buffers()[1], _INTERVAL)[array.offset : array.offset + len(array)]
        mask = None if not array.null_count else ~np.asarray(array.is_valid())
        months, days, rest = (pa.array(np.ascontiguousarray(parts[name]), mask=mask) for name in _INTERVAL.names or ())
        return _length(months, days, rest, _PER_SECOND["ns"]), True
    if pa.types.is_temporal(kind):
        return _time(array, kind), True
    return array.cast(pa.string()), False


def _real(array: pa.Array) -> tuple[pa.Array, Any]:
    text = array.cast(pa.string())
    text = pc.if_else(pc.equal(text, "-0"), "-0.0", text)  # which would be an integer without a sign
    is_odd = pc.invert(pc.is_finite(array))
    if not pc.any(is_odd).as_py():
        return text, False
    names = pc.if_else(pc.is_nan(array), "NaN", pc.if_else(pc.greater(array, 0.0), "Infinity", "-Infinity"))
    return pc.if_else(is_odd, names, text), is_odd


def _time(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO 8601 with 3, 6 or 9 digits of a second, as few as there need be; with Z where a moment is meant."""
    number, unit = pa.int32() if kind.bit_width == 32 else pa.int64(), getattr(kind, "unit", "d")
    if pa.types.is_date(kind):
        unit, text = "d" if kind == pa.date32() else "ms", array.cast(pa.date32()).cast(pa.string())
    else:
        text = pc.replace_substring(_in_thousands(array, kind).cast(pa.string()), " ", "T")
        if unit in ("us", "ns"):
            text = pc.replace_substring_regex(text, r"(\.\d{3}(?:\d{3})??)(?:000)+$", r"\1")
    text = pc.replace_substring_regex(text, r"^(\d{5,}-)", r"+\1")  # as ISO 8601 and Java write such years
    is_dated = pc.match_substring_regex(text, r"^([-+]?\d{4,}-|\d\d:)")  # Arrow writes years up to 32767
    zoned = _join([text, "Z"]) if getattr(kind, "tz", None) is not None else text
    plain = array.view(number)
    ends = pc.is_in(plain, pa.array([sign * (2 ** (kind.bit_width - 1) - 1) for sign in (-1, 1)], number))
    if pa.types.is_time(kind) or not pc.any(pc.or_(ends, pc.invert(is_dated))).as_py():
        return zoned
    infinite = pc.if_else(pc.greater(plain, 0), "Infinity", "-Infinity")  # as duckdb has it
    if unit in ("us", "ns") and pa.types.is_timestamp(kind):
        per_ms = _PER_SECOND[unit] // 1000
        in_ms = pc.divide(plain, per_ms)
        is_whole = pc.equal(pc.multiply(in_ms, per_ms), plain)
        texts = pc.if_else(
            is_whole, _join([in_ms.cast(pa.string()), " ms"]), _join([plain.cast(pa.string()), f" {unit}"])
        )
    else:
        texts = _join([plain.cast(pa.string()), f" {unit}"])
    return pc.if_else(ends, infinite, pc.if_else(is_dated, zoned, texts))


def _in_thousands(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times without a zone, in milliseconds if all are whole ones, otherwise in their own unit of thousandths."""
    local = array.cast(pa.timestamp(kind.unit)) if pa.types.is_timestamp(kind) else array
    wanted = pa.timestamp("ms") if pa.types.is_timestamp(kind) else pa.time32("ms")
    if kind.unit == "ms":
        return local
    try:
        return local.cast(wanted)
    except pa.ArrowInvalid:
        return local


def _length(months: pa.Array | None, days: pa.Array | None, rest: pa.Array, per_second: int) -> pa.Array:
    """A length of time in ISO 8601; every part has its own sign: ``P1M-2DT3.5S``."""
    whole = rest.fill_null(0).to_numpy(zero_copy_only=False)
    minus = whole < 0
    size = np.where(minus, (-(whole + 1)).astype(np.uint64) + np.uint64(1), whole.astype(np.uint64))
    seconds, fraction = np.divmod(size, np.uint64(per_second))
    hours, seconds = np.divmod(seconds, np.uint64(3600))
    minutes, seconds = np.divmod(seconds, np.uint64(60))
    sign = pc.if_else(pa.array(minus), "-", "")
    parts: list[Any] = ["P"]
    for number, name in ((months, "M"), (days, "D")):
        if number is not None:
            parts.append(pc.if_else(pc.equal(number, 0), "", _join([number.cast(pa.string()), name])))
    is_clock = hours + minutes + seconds + fraction > 0
    dated = np.zeros(len(rest), np.bool_)
    for number in (months, days):
        if number is not None:
            dated |= number.fill_null(0).to_numpy(zero_copy_only=False) != 0
    parts.append(pc.if_else(pa.array(is_clock | ~dated), "T", ""))
    for values, name in ((hours, "H"), (minutes, "M")):
        parts.append(_part(values > 0, [sign, _digits(values), name]))
    digits = len(str(per_second)) - 1
    behind = pc.utf8_rtrim(pc.utf8_lpad(_digits(fraction), max(digits, 1), "0"), "0")
    point = pc.if_else(pa.array(fraction > 0), ".", "")
    parts.append(_part((seconds + fraction > 0) | (~is_clock & ~dated), [sign, _digits(seconds), point, behind, "S"]))
    return _with_nulls(_join(parts), rest)


def _digits(values: npt.NDArray[np.uint64]) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _part(there: npt.NDArray[np.bool_], texts: list[Any]) -> pa.Array:
    return pc.if_else(pa.array(there), _join(texts), "")
