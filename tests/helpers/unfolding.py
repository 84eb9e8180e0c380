"""Values of few bytes that unfold to many, of each kind and shape; as a program of its own it prints what they take.

A line a case: its name, the bytes of the values, the most that memory grew by, rows, and values that did not decode.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from helpers.process_memory import Growth
from helpers.typed_values import varint
from pylogseg.values.decoding import Decoder, Decoding, TypedBatches
from pylogseg.values.schemas.schema import Schema
from pylogseg.values.schemas.store import Schemas

#: What each case unfolds to if nothing stops it, and columns of the wide ones.
UNFOLDED, COLUMNS = 100 << 20, 300
_NULL_BYTES = {
    "boolean": 2, "double": 9, "decimal": 33, "list": 5, "small": 17, "large": 1025, "huge": 5,
}  # fmt: skip
_TYPES = {
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 76},
    "list": {"type": "array", "items": "long"},
    "small": {"type": "fixed", "name": "S", "size": 16},
    "large": {"type": "fixed", "name": "L", "size": 1024},
    "huge": {"type": "fixed", "name": "H", "size": (1 << 31) - 1},
}
#: Name, the reader's schema, values; and the schema that wrote them, as number 7, where it is another.
Case = tuple[str, Schema, list[bytes], str]


def _record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


def cases() -> Iterator[Case]:
    """Rows that are null, and lists of nulls in one value, of every width; what else grows."""
    yield "nothing", Schema('"long"'), [b"\2"] * 1000, ""  # what Python and pyarrow take for the first time
    for kind, width in _NULL_BYTES.items():
        named = _TYPES.get(kind, kind)
        again = named["name"] if isinstance(named, dict) and "name" in named else named
        wide = _record("W", {f"f{i}": ["null", again if i else named] for i in range(COLUMNS)})
        count = UNFOLDED // (width * COLUMNS)
        yield f"avro, rows without {kind}", Schema(json.dumps(_record("R", {"w": ["null", wide]}))), [b"\0"] * count, ""
        items = {"type": "array", "items": ["null", wide]}
        yield f"avro, items without {kind}", Schema(json.dumps(items)), [varint(count) + bytes(count + 1)], ""
    written = _record("R", {"x": "int"})
    defaults = [{"name": f"m{i}", "type": "string", "default": "d" * 65536} for i in range(20)]
    given = written | {"fields": written["fields"] + defaults}
    yield "avro, defaults", Schema(json.dumps(given)), [b"\0\0\0\0\7\2"] * 100, json.dumps(written)
    count = UNFOLDED // (8 * COLUMNS)
    yield "proto, rows", _proto(""), [b""] * count, ""
    yield "proto, items", _proto("repeated"), [b"\n\0" * count], ""
    numbers = b"".join(_plain(i, 3) for i in range(1 << 14, 1 << 18))
    yield "proto, numbers of an enum", _proto("repeated"), [b"\x12" + _plain(len(numbers), 4) + numbers], ""
    properties: dict[str, Any] = {f"f{i}": {"type": "number"} for i in range(COLUMNS)}
    wide = {"type": "object", "properties": properties}
    items = {"type": "array", "items": wide}
    many = [b"[" + b",".join([b"{}"] * count) + b"]"]
    yield "json, rows", Schema(json.dumps(wide), "JSON"), [b"{}"] * count, ""
    yield "json, rows of two kinds", Schema(json.dumps(wide), "JSON"), [b"{}", b'{"\\u0061":0}'] * (count // 2), ""
    yield "json, items", Schema(json.dumps(items), "JSON"), many, ""
    properties["any"] = {}
    yield "json, items with any", Schema(json.dumps(items), "JSON"), many, ""
    yield "glue, one", Schema('"bytes"'), [_glue(40 << 20)], ""
    yield "glue, many", Schema('"bytes"'), [_glue(1 << 20)] * 100, ""


def _glue(size: int) -> bytes:
    """A frame of Glue around as many zeros, compressed."""
    return b"\3\5" + uuid.UUID(int=7).bytes + zlib.compress(varint(size) + bytes(size), 1)


def _plain(number: int, size: int) -> bytes:
    """A varint of so many bytes."""
    return bytes([number >> 7 * i & 127 | (128 if i < size - 1 else 0) for i in range(size)])


def _proto(label: str) -> Schema:
    fields = " ".join(f"int64 x{i} = {i + 1};" for i in range(COLUMNS))
    enum = "enum E { Z = 0; }"
    return Schema(
        f'syntax = "proto3"; message A {{ {label} W w = 1; repeated E e = 2; }} message W {{ {fields} }} {enum}',
        "PROTOBUF",
    )


def main() -> None:
    """Try each case, under a limit of what the process may take beside what is measured."""
    pa.set_memory_pool(pa.system_memory_pool())
    for name, schema, values, writer in cases():
        size = sum(map(len, values))
        growth = Growth(20 * size + (256 << 20))
        schemas = Schemas([Schema(writer, id=7)] if writer else [])
        frame = "auto" if writer or name.startswith("glue") else "plain"
        decoder = Decoder(schemas, schema, Decoding(frame=frame), "value")  # type: ignore[arg-type]
        headers = pa.nulls(len(values), pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
        batch = pa.record_batch({"value": pa.array(values, pa.binary()), "headers": headers})
        typed = TypedBatches({"value": decoder}, "raw", ("value",))
        rows = sum(made.num_rows for made in typed.batches([batch]))
        print(name, size, growth.peak(), rows, typed.undecoded, sep=";", flush=True)
        del batch, headers, typed, decoder


if __name__ == "__main__":
    main()
