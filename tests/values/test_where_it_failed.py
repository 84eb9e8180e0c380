"""Tests of values/typed_engines.py and values/typed_json_errors.py. The part of a value that does not decode is named,
in Avro and Protobuf as in JSON.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.typed_values import encoded, varint

from pylogseg.values.decoding import Decoding, column_decoder

ORDER = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": ["null", "boolean"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "tags", "type": {"type": "map", "values": "string"}},
            {"name": "odd_name", "type": {"type": "array", "items": {"type": "array", "items": "boolean"}}},
            {"name": "kind", "type": ["null", "int", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}]},
        ]}}},
    ],
}  # fmt: skip
PROTO = """syntax = "proto2"; message Order { optional int64 id = 1; repeated Line lines = 2; optional Line first = 3;
message Line { optional string name = 1; repeated string tags = 2; map<string, Line> more = 3;
    repeated fixed32 n = 4; } }"""


def _errors(schema: str | Path, values: list[bytes]) -> list[str]:
    decoder = column_decoder(schema, frame="plain")
    array, errors = decoder.decode(pa.array(values, pa.binary()))
    assert [array[row].as_py() is None for row in range(len(values))] == [row in errors for row in range(len(values))]
    return [errors.get(row, "") for row in range(len(values))]


def _line(tags: bytes = b"\0", odd: bytes = b"\0", kind: bytes = b"\0") -> bytes:
    return tags + odd + kind


def _order(*lines: bytes, head: bytes = b"\2\0") -> bytes:
    return head + varint(len(lines)) + b"".join(lines) + b"\0" if lines else head + b"\0"


def test_avro() -> None:
    good = _line()
    values = {
        _order(good): "",
        b"": "$.id: the value ends too early, at byte 0",
        b"\2\2\2": "$.paid: a boolean that is neither 0 nor 1, at byte 2",
        b"\2\4": "$.paid: a union has no such branch, at byte 2",
        _order(good, good, _line(tags=b"\4\2a\2b\2c\2\xff\0")): "$.lines[2].tags[1].value: text that is not UTF-8, at",
        _order(good, _line(odd=b"\4\4\0\1\0\4\1\2\0\0")): "$.lines[1].odd_name[1][1]: a boolean that is neither",
        _order(good, _line(odd=b"\2\4\0\1\0\2\2\1\0\0")): "",
        _order(_line(kind=b"\4\6")): "$.lines[0].kind.Kind: an enum has no such symbol, at byte",
        _order(_line(kind=b"\6")): "$.lines[0].kind: a union has no such branch, at byte",
        b"\2\0\7": "$.lines: ",
        _order(good) + b"?": "bytes behind the value, at byte",
    }
    for value, (expected, reason) in zip(
        values, zip(values.values(), _errors(json.dumps(ORDER), [*values]), strict=True), strict=True
    ):
        assert reason.startswith(expected) if expected else not reason, (value, reason)


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def test_protobuf() -> None:
    line = _field(1, b"x")
    bad = _field(1, b"\xff")
    values = {
        _field(2, line) * 2: "",
        b"\x08": "$.id: the value ends too early, at byte 0",
        _field(2, line) + _field(2, bad): "$.lines[1].name: text that is not UTF-8, at byte",
        _field(3, bad): "$.first.name: text that is not UTF-8",
        _field(2, line)
        + _field(3, line)
        + _field(2, _field(2, b"a") * 2 + _field(2, b"\xff")): "$.lines[1].tags[2]: text",
        _field(
            3, _field(3, _field(1, b"k") + _field(2, line)) + _field(3, _field(2, bad))
        ): "$.first.more[1].value.name: text",
        _field(2, _field(4, b"\0\0\0\0\0")): "$.lines[0].n[1]: the value ends too early",
        _field(2, b"\x04"): "$.lines[0]: a ",
        b"\x04": "a ",
        _field(2, b"\x80"): "$.lines[0]: the value ends too early",
    }
    for value, (expected, reason) in zip(
        values, zip(values.values(), _errors(PROTO, [*values]), strict=True), strict=True
    ):
        assert reason.startswith(expected) if expected else not reason, (value, reason)


@pytest.mark.parametrize("seed", range(3))
def test_the_part_is_there(seed: int) -> None:
    """Of values that are cut anywhere, the path leads to a part of the type; behind good values and between them."""
    chance = random.Random(seed)
    whole = encoded(ORDER, [{"id": n, "paid": True, "lines": [
        {"tags": {str(i): "é" * i for i in range(3)}, "odd_name": [[True], [], [False, True]], "kind": 7}
    ] * n} for n in range(4)])  # fmt: skip
    values = [raw[: chance.randrange(len(raw) + 1)] if chance.random() < 0.7 else raw for raw in whole * 30]
    decoder = column_decoder(json.dumps(ORDER), frame="plain")
    _, errors = decoder.decode(pa.array(values, pa.binary()))
    assert set(errors) == {row for row, raw in enumerate(values) if raw not in whole}
    for row, reason in errors.items():
        path = reason.partition(":")[0]
        assert path.startswith("$."), reason
        assert _exists(decoder.type, path), path
        assert decoder.decode(pa.array([values[row]], pa.binary()))[1] == {0: reason}


def _exists(kind: pa.DataType, path: str) -> bool:
    for step in path[2:].replace("[", ".[").split("."):
        if step.startswith("["):
            if pa.types.is_map(kind):
                kind = pa.struct([kind.key_field, kind.item_field])
            else:
                kind = kind.value_type
        else:
            kind = kind[kind.get_field_index(step)].type
    return True


def test_one_reason_for_each_engine(tmp_path: Path) -> None:
    """JSON, Avro and Protobuf write a path in one way."""
    json_schema = {"properties": {"lines": {"type": "array", "items": {"properties": {"name": {"type": "string"}}}}}}
    (tmp_path / "x.json").write_text(json.dumps(json_schema))
    found: list[Any] = [
        _errors(tmp_path / "x.json", [b'{"lines":[{},{"name":1}]}']),
        _errors(PROTO, [_field(2, b"") + _field(2, _field(1, b"\xff"))]),
    ]
    assert [reason.partition(":")[0] for (reason,) in found] == ["$.lines[1].name"] * 2
    assert Decoding(frame="plain")
