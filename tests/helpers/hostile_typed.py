"""A target of hostile bytes: typed values by random schemas, and what stands in front of them."""

from __future__ import annotations

import functools
import json
from random import Random
from typing import Any

import numpy as np

from helpers import hostile_logs, mutations
from pylogseg._native import _json, _typed
from pylogseg.errors import RequestError
from pylogseg.values.schemas.avro_program import AvroProgram
from pylogseg.values.schemas.avro_schema import parse_avro
from pylogseg.values.schemas.columns import Values
from pylogseg.values.schemas.frames import FRAMES, remove_frames
from pylogseg.values.schemas.proto_program import ProtoProgram
from pylogseg.values.schemas.proto_schema import parse_proto
from pylogseg.values.typed import ArrowColumn

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def typed(rng: Random) -> None:
    """Columns are sound whatever the bytes were, and as long as there are values."""
    names = [0]
    writer = _schema(rng, names, 0)
    reader = writer if rng.random() < 0.6 else _schema(rng, names, 0)
    try:
        program = AvroProgram(parse_avro(json.dumps(reader)), rng.randrange(3))
        program.add(parse_avro(json.dumps(writer)))
    except RequestError:
        return
    values = []
    for _ in range(rng.randrange(1, 5)):
        raw = (
            rng.randbytes(rng.randrange(40))
            if rng.random() < 0.3
            else bytes(rng.choice(b"\0\0\1\2\2\4\x06a\x80") for _ in range(rng.randrange(60)))
        )
        values.append(mutations.damaged(rng, raw) if raw and rng.random() < 0.3 else raw)
    buffer = hostile_logs.exact(b"".join(values))
    size = np.array([len(value) for value in values], np.int32)
    place = np.cumsum(size, dtype=np.int64) - size
    if rng.random() < 0.1:
        place[rng.randrange(len(values))] = rng.choice((1 << 40, 1 << 62, len(buffer)))
    room = rng.choice((None, None, 1 << 14, rng.randrange(1 << 13)))
    try:
        decoded = program.decode(place, size, (buffer,), np.zeros(len(values), np.int32), room=room)
    except OverflowError:
        assert room is not None
        return
    array = ArrowColumn(program.column).array(decoded.nodes)
    array.validate(full=True)
    assert len(array) == len(values)
    _named(decoded)
    framed = remove_frames(place, size, (buffer,), rng.choice(FRAMES), {})
    assert (framed.size <= size).all() or len(framed.sources) > 1
    code, skip = np.empty(len(size), np.int64), np.empty(len(size), np.int32)
    _typed.indexes(place, size, (buffer,), code, skip)
    assert (skip <= size).all()
    status = np.zeros(len(size), np.uint8)
    ends = np.empty(len(size) + 1, np.int64)
    lines = bytes(_json.lines(place, size, (buffer,), status, rng.random() < 0.3, 99, ends))
    assert lines.count(b"\n") == np.count_nonzero(np.diff(ends)) <= np.count_nonzero(status == 0)


_PROTO = (
    'syntax = "proto2"; message M { enum E { A = 1; B = 2; } optional E e = 1; repeated E es = 2; '
    "repeated group G = 3 { optional int32 x = 1; optional M m = 2; optional string t = 3; optional bool f = 4; } "
    "oneof o { M a = 4; string b = 5; G2 c = 6; } "
    "map<string, M> map = 7; repeated string s = 8; repeated double d = 9; optional bytes raw = 10; "
    "optional google.protobuf.Timestamp t = 11; repeated sint64 n = 12; optional M deep = 13; "
    "optional string text = 14; optional fixed64 big = 15; } message G2 { optional sint32 z = 1; optional M m = 2; } "
    'import "google/protobuf/timestamp.proto";'
)


@functools.cache
def _proto_program(recursion: int) -> ProtoProgram:
    file = parse_proto(_PROTO)
    return ProtoProgram(file, file.top[0], recursion)


def protobuf(rng: Random) -> None:
    """The same of Protobuf, by one schema that has everything."""
    program = _proto_program(rng.randrange(2))
    values = []
    for _ in range(rng.randrange(1, 5)):
        out = bytearray()
        for _ in range(rng.randrange(12)):
            kind = rng.choice((0, 0, 2, 2, 2, 3, 4, 1, 5))
            out.append(rng.randrange(1, 16) << 3 | kind)
            body = rng.randbytes(rng.choice((0, 1, 2, 8, 9)))
            out += bytes([len(body)]) + body if kind == 2 else body
        values.append(bytes(out))
    buffer = hostile_logs.exact(b"".join(values))
    size = np.array([len(value) for value in values], np.int32)
    place = np.cumsum(size, dtype=np.int64) - size
    room = rng.choice((None, None, 1 << 14, rng.randrange(1 << 13)))
    try:
        decoded = program.decode(place, size, (buffer,), np.zeros(len(values), np.int32), room=room)
    except OverflowError:
        assert room is not None
        return
    array = ArrowColumn(program.column).array(decoded.nodes)
    array.validate(full=True)
    assert len(array) == len(values)
    _named(decoded)


def _named(decoded: Values) -> None:
    """Only of values that failed a part is named; it is there in the schema, and items are not negative."""
    bad = np.flatnonzero(decoded.status)
    assert not set(decoded.paths(range(decoded.count))) - set(bad.tolist())
    for path in decoded.paths(bad.tolist()).values():
        assert path.startswith("$")
        assert "[-" not in path


def _schema(rng: Random, names: list[int], depth: int) -> Any:
    names[0] += 1
    name = f"N{names[0]}"
    kind = rng.choice(
        ("record", "record", "array", "map", "union", "fixed", "enum", "decimal", "primitive", "primitive")
    )
    if depth > 3:
        kind = "primitive"
    if kind == "record":
        fields = [{"name": f"f{i}", "type": _schema(rng, names, depth + 1)} for i in range(rng.randrange(4))]
        if rng.random() < 0.2:
            fields.append({"name": "again", "type": ["null", name]})
        if rng.random() < 0.2:
            fields.append({"name": f"d{names[0]}", "type": "long", "default": 7})
        return {"type": "record", "name": name, "fields": fields}
    if kind == "array":
        return {"type": "array", "items": _schema(rng, names, depth + 1)}
    if kind == "map":
        return {"type": "map", "values": _schema(rng, names, depth + 1)}
    if kind == "union":
        found = [_schema(rng, names, 4 if rng.random() < 0.5 else depth + 1) for _ in range(rng.randrange(1, 4))]
        return [each for each in found if not isinstance(each, list)]
    if kind == "fixed":
        size = rng.choice((0, 1, 3, 12, 16))
        return {"type": "fixed", "name": name, "size": size} | ({"logicalType": "duration"} if size == 12 else {})
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B", "C"][: rng.randrange(1, 4)]}
    if kind == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": rng.choice((1, 5, 18, 38, 39, 76)), "scale": 1}
    return rng.choice(_PRIMITIVES)
