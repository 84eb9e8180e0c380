"""Typed columns as the golden lines have them, and random Avro schemas with values."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
import pyarrow as pa

from pylogseg.values.schemas.avro_program import AvroProgram
from pylogseg.values.schemas.avro_schema import parse_avro


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value as ``typed.jsonl.gz`` has it, `raw`: without logical types, bytes as base64."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, value)
    return value


def without_logic(array: pa.Array) -> pa.Array:
    """Times, dates and decimals as the numbers and bytes below them."""
    kind = array.type
    if pa.types.is_temporal(kind):
        return array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_dictionary(kind):
        return array.cast(pa.string())
    return array


def encoded(schema: Any, values: list[Any]) -> list[bytes]:
    """Each value by fastavro."""
    import fastavro

    parsed, out = fastavro.parse_schema(schema), []
    for value in values:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, value)
        out.append(file.getvalue())
    return out


def placed(raw: list[bytes | None]) -> tuple[Any, Any, tuple[np.ndarray, ...]]:
    """Places and sizes of values in a buffer that ends where they end."""
    size = np.array([-1 if each is None else len(each) for each in raw], np.int32)
    place = np.cumsum(np.maximum(size, 0), dtype=np.int64) - np.maximum(size, 0)
    return place, size, (np.frombuffer(b"".join(each or b"" for each in raw), np.uint8).copy(),)


def program(reader: str, writer: str | None = None, **options: Any) -> AvroProgram:
    """A program of two schemas' texts."""
    made = AvroProgram(parse_avro(reader), **options)
    made.add(parse_avro(writer or reader))
    return made


def varint(number: int) -> bytes:
    """As Avro writes a number."""
    raw, out = (number << 1) ^ (number >> 63), bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])
