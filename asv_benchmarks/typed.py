"""Values by their schemas: Avro and Protobuf to Arrow, flat and nested, and JSON.

Others read files, or lines that were joined before: that is no part of their time.
"""

from __future__ import annotations

import io
import json
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
from measure import in_turn
from rows import Row
from sections import Bench, millions, rate

from pylogseg.values.decoding import Decoder, Decoding
from pylogseg.values.schemas.schema import Schema
from pylogseg.values.schemas.store import Schemas

_PIECE = 32768
_FEW = 2  # pieces, for what takes long
FLAT = {
    "long": "long", "time": {"type": "long", "logicalType": "timestamp-millis"}, "text": "string",
    "enum": {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}, "double": "double", "int": "int",
    "yes": "boolean", "maybe": ["null", "string"], "bytes": "bytes", "float": "float",
}  # fmt: skip
_LINE = {"type": "record", "name": "L", "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}
_POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "double"}]}
NESTED = {
    "id": "long", "at": _POINT, "lines": {"type": "array", "items": _LINE}, "tags": {"type": "map", "values": "string"},
}  # fmt: skip
PROTO = (
    'syntax = "proto3"; enum E { A = 0; B = 1; C = 2; } message M { int64 long = 1; int64 time = 2; string text = 3; '
    "E enum = 4; double double = 5; int32 int = 6; bool yes = 7; optional string maybe = 8; bytes bytes = 9; "
    "float float = 10; }"
)
_NAMES = ("id", "price", "name", "ok")
JSON = {"properties": dict(zip(_NAMES, ({"type": t} for t in ("integer", "number", "string", "boolean")), strict=True))}


def record(fields: dict[str, Any]) -> dict[str, Any]:
    """The schema of a record."""
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def _varint(number: int, *, zigzag: bool) -> bytes:
    raw, out = (number << 1) ^ (number >> 63) if zigzag else number, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def _sized(raw: bytes, *, zigzag: bool) -> bytes:
    return _varint(len(raw), zigzag=zigzag) + raw


def avro_flat(i: int) -> bytes:
    """A value of ten fields."""
    maybe = b"\0" if i % 3 == 0 else b"\2\x08note"
    head = _varint(i * 10**9, zigzag=True) + _varint(1_700_000_000_000 + i, zigzag=True)
    head += _sized(b"customer-%d" % (i % 1000), zigzag=True) + _varint(i % 3, zigzag=True) + struct.pack("<d", i / 2)
    return head + _varint(i, zigzag=True) + bytes([i % 2]) + maybe + b"\x10" + bytes(8) + struct.pack("<f", 1.5)


def avro_nested(i: int) -> bytes:
    """A record in a record, a list of two records, a map of one entry."""
    lines = b"\4" + b"".join(_sized(b"sku-%d" % j, zigzag=True) + _varint(j, zigzag=True) for j in range(2)) + b"\0"
    return _varint(i, zigzag=True) + struct.pack("<dd", 1.5, i) + lines + b"\2\2a\2x\0"


def protobuf_flat(i: int) -> bytes:
    """The same ten fields."""
    parts = [b"\x08", _varint(i * 10**9, zigzag=False), b"\x10", _varint(1_700_000_000_000 + i, zigzag=False), b"\x1a",
             _sized(b"customer-%d" % (i % 1000), zigzag=False), b"\x20", _varint(i % 3, zigzag=False), b"\x29",
             struct.pack("<d", i / 2), b"\x30", _varint(i, zigzag=False), b"\x38\1"]  # fmt: skip
    parts += [b"" if i % 3 == 0 else b"\x42\4note", b"\x4a\x08", bytes(8), b"\x55", struct.pack("<f", 1.5)]
    return b"".join(parts)


def json_flat(i: int) -> bytes:
    """Four fields."""
    return json.dumps({"id": i, "price": i / 2, "name": f"n-{i % 1000}", "ok": i % 2 == 0}).encode()


def pieces(make: Callable[[int], bytes], count: int) -> list[pa.Array]:
    """So many payloads, in arrays as long as a chunk has them."""
    return [pa.array(map(make, range(at, min(at + _PIECE, count))), pa.binary()) for at in range(0, count, _PIECE)]


def _decoded(pieces: list[pa.Array], schema: Schema) -> Callable[[], int]:
    """Work that decodes each piece."""
    decoder = Decoder(Schemas(), schema, Decoding(frame="plain"), "value")
    return lambda: sum(len(decoder.decode(piece)[0]) for piece in pieces)


def _fastavro(pieces: list[pa.Array], schema: dict[str, Any]) -> Callable[[], object] | None:
    """Work that reads values into dicts, and makes a table of them."""
    try:
        import fastavro
    except ImportError:
        return None
    parsed = fastavro.parse_schema(schema)
    few = [raw for piece in pieces for raw in piece.to_pylist()]
    return lambda: pa.Table.from_pylist([fastavro.schemaless_reader(io.BytesIO(raw), parsed, None) for raw in few])


def _json_peers(lines: list[bytes], folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Work that reads lines of JSON by the same types, of each reader that is installed."""
    kinds = {"integer": pa.int64(), "number": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}
    schema = pa.schema([pa.field(name, kinds[each["type"]]) for name, each in JSON["properties"].items()])
    options, one = pj.ParseOptions(schema), pj.ReadOptions(use_threads=False)
    yield "pyarrow", lambda: [pj.read_json(pa.py_buffer(each), one, options) for each in lines]
    try:
        from arro3.core import Schema as ArrowSchema
        from arro3.io import read_json
    except ImportError:
        pass
    else:
        given = ArrowSchema.from_arrow(schema)
        yield "arrow-json", lambda: [read_json(io.BytesIO(each), given, batch_size=_PIECE).read_all() for each in lines]
    try:
        import polars
    except ImportError:
        pass
    else:
        typed = dict(zip(_NAMES, (polars.Int64, polars.Float64, polars.String, polars.Boolean), strict=True))
        yield "polars", lambda: [polars.read_ndjson(each, schema=typed) for each in lines]
    try:
        import duckdb
    except ImportError:
        return
    (folder / "values.json").write_bytes(b"\n".join(lines))
    columns = "{id: 'BIGINT', price: 'DOUBLE', name: 'VARCHAR', ok: 'BOOLEAN'}"
    query = f"from read_json('{folder / 'values.json'}', format='newline_delimited', columns={columns})"
    engine = duckdb.connect(config={"threads": 1})
    yield "duckdb", lambda: engine.sql(query).to_arrow_table()


def _arrow_avro(values: list[bytes], schema: dict[str, Any], folder: Path) -> Callable[[], object] | None:
    """Work that reads a container file with the same values, by arrow-avro as polars-avro has it."""
    try:
        import fastavro
        from polars_avro._avro_rs import AvroSource
    except ImportError:
        return None
    parsed, path = fastavro.parse_schema(schema), str(folder / "values.avro")
    with open(path, "wb") as file:
        rows = (fastavro.schemaless_reader(io.BytesIO(raw), parsed, None) for raw in values)
        fastavro.writer(file, parsed, rows, sync_interval=1 << 20)
    return lambda: [pa.record_batch(each) for each in AvroSource([path], False, False).batch_iter(_PIECE, None)]


def _ptars(values: list[list[bytes]]) -> Callable[[], object] | None:
    """Work that decodes lists of messages."""
    try:
        import ptars
        from google.protobuf import descriptor_pb2, descriptor_pool
        from grpc_tools import protoc
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "m.proto").write_text(PROTO)
        protoc.main(["", f"-I{folder}", f"--descriptor_set_out={folder}/m.set", f"{folder}/m.proto"])
        (file,) = descriptor_pb2.FileDescriptorSet.FromString(Path(folder, "m.set").read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindFileByName(file.name)
    handler = ptars.HandlerPool([found]).get_for_message(found.message_types_by_name["M"])
    return lambda: [handler.list_to_record_batch(each) for each in values]


def typed(bench: Bench) -> list[Row]:
    """Payloads of 32,768 records at a time to Arrow arrays, frames aside."""
    count = min(bench.records, 400_000)
    flat, nested = record(FLAT), record(NESTED)
    parts = {"flat": pieces(avro_flat, count), "nested": pieces(avro_nested, count),
             "protobuf": pieces(protobuf_flat, count), "json": pieces(json_flat, count)}  # fmt: skip
    schemas = {
        "flat": Schema(json.dumps(flat)),
        "nested": Schema(json.dumps(nested)),
        "protobuf": Schema(PROTO, "PROTOBUF"),
        "json": Schema(json.dumps(JSON), "JSON"),
    }
    sides = {name: bench.timed(_decoded(parts[name], schemas[name])) for name in parts}
    with tempfile.TemporaryDirectory() as scratch:
        lines = [b"\n".join(piece.to_pylist()) for piece in parts["json"]]
        readers = dict(_json_peers(lines, Path(scratch)))
        few = parts["flat"][:_FEW]
        some = [raw for piece in few for raw in piece.to_pylist()]
        peers = {
            **readers,
            "fastavro": _fastavro(few, flat),
            "arrow-avro": _arrow_avro(some, flat, Path(scratch)),
            "ptars": _ptars([piece.to_pylist() for piece in parts["protobuf"]]),
        }
        sides |= {name: bench.timed(work) for name, work in peers.items() if work is not None}
        best = in_turn(sides, bench.rounds)
    avro, protobuf = rate(count, best["flat"]), rate(count, best["protobuf"])
    theirs = {name: millions(len(some) if "avro" in name else count, best.get(name)) for name in peers}
    return [
        Row("Avro of 10 flat fields to Arrow", avro, "M records/s", "fastavro, to Arrow", theirs["fastavro"], 80,
            "an op a field"),
        Row("the same", avro, "M records/s", "arrow-avro, of a file", theirs["arrow-avro"], 2.5, "an op a field"),
        Row("Avro, nested, to Arrow", rate(count, best["nested"]), "M records/s", "", None, 5, "lists"),
        Row("Protobuf of 10 fields to Arrow", protobuf, "M records/s", "ptars", theirs["ptars"], 2.5,
            "fields in any order"),
        *(Row("JSON of 4 fields to Arrow", rate(count, best["json"]), "M records/s", f"{name}, of lines", theirs[name],
              1.5, "strings and numbers") for name in readers),
    ]  # fmt: skip
