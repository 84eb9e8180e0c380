"""Values in Avro's JSON encoding as the binary encoding of the same schema, which the kernel reads."""

from __future__ import annotations

import struct
from typing import Any

from pylogseg._codec import encode_varlong
from pylogseg.format import bounded_json
from pylogseg.values.schemas.avro_schema import AvroType

_BITS = {"int": 32, "long": 64}
_REALS = {"float": "<f", "double": "<d"}


def binary_of(kind: AvroType, raw: bytes) -> bytes:
    """Return the binary encoding of a writer's value from Avro's JSON; a ValueError names the place that is wrong.

    A union's value is in an object with the name of its branch; bytes are text of the characters up to 255.
    """
    out = bytearray()
    try:
        _write(kind, bounded_json.loads(raw), out, "value")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return bytes(out)


def _write(kind: AvroType, value: Any, out: bytearray, place: str) -> None:
    name = kind.kind
    if name == "record":
        if not isinstance(value, dict):
            raise ValueError(f"{place} is not an object")
        for field in kind.fields:
            if field.name not in value:
                raise ValueError(f"{place} has no {field.name}")
            _write(field.type, value[field.name], out, f"{place}.{field.name}")
    elif name == "union":
        _union(kind, value, out, place)
    elif name in ("array", "map"):
        _blocks(kind, value, out, place)
    else:
        out += _scalar(kind, value, place)


def _union(kind: AvroType, value: Any, out: bytearray, place: str) -> None:
    branch = "null" if value is None else next(iter(value)) if isinstance(value, dict) and len(value) == 1 else ""
    for number, member in enumerate(kind.branches):
        if branch in (member.name or member.kind, member.short_name):
            out += encode_varlong(number)
            if value is not None:
                _write(member, value[branch], out, place)
            return
    raise ValueError(f"{place} names no branch of its union")


def _blocks(kind: AvroType, value: Any, out: bytearray, place: str) -> None:
    if not isinstance(value, list if kind.kind == "array" else dict):
        raise ValueError(f"{place} is not of type {kind.kind}")
    if value:
        out += encode_varlong(len(value))
    for item in value:
        if kind.kind == "map":
            text = item.encode()
            out += encode_varlong(len(text)) + text
        _write(kind.inner, value[item] if kind.kind == "map" else item, out, place)
    out += b"\0"


def _scalar(kind: AvroType, value: Any, place: str) -> bytes:
    name = kind.kind
    if name == "null" and value is None:
        return b""
    if name == "boolean" and isinstance(value, bool):
        return bytes([value])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in _BITS and is_number and value == int(value) and -(1 << _BITS[name] - 1) <= value < 1 << _BITS[name] - 1:
        return encode_varlong(int(value))
    if name in _REALS and (is_number or value in ("NaN", "Infinity", "-Infinity")):
        return struct.pack(_REALS[name], float(value))
    if isinstance(value, str):
        if name == "string":
            text = value.encode()
            return encode_varlong(len(text)) + text
        if name == "enum" and value in kind.symbols:
            return encode_varlong(kind.symbols.index(value))
        if name in ("bytes", "fixed"):
            text = value.encode("latin-1")  # UnicodeEncodeError is a ValueError
            if name == "bytes":
                return encode_varlong(len(text)) + text
            if len(text) == kind.size:
                return text
    raise ValueError(f"{place} is not of type {name}")
