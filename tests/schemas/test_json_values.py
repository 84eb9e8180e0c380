"""JSON into columns: the golden records, types of schemas, and lines that are bad."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.typed_values import placed

import pylogseg
from pylogseg._native import _typed
from pylogseg.arrow.typed_json import JsonEngine, JsonTypes
from pylogseg.schemas.frames import Framed, Named
from pylogseg.schemas.schema import Schema

BAD = 99


@pytest.fixture(scope="module")
def folder(golden: Path) -> Path:
    return golden / "inside" / "schemas"


def test_golden(folder: Path) -> None:
    text = gzip.decompress((folder / "expected" / "typed.jsonl.gz").read_bytes())
    lines = {line["offset"]: line for line in map(json.loads, text.splitlines()) if line["topic"] == "docs"}
    table = pylogseg.read_arrow(folder, "docs", decode="value", columns=["offset", "value"]).read_all()
    for row in table.to_pylist():
        line = lines[row["offset"]]
        if "error" in line:
            assert row["valueError"].startswith(line["error"])
            continue
        expected = {name: line["value"].get(name) for name in ("id", "name", "price", "items", "when")}
        assert row["value"] == expected
    assert len(lines) == table.num_rows == 4


def run(schema: Any, raw: list[bytes | None], recursion: int = 1) -> tuple[pa.Array, list[int]]:
    made = JsonEngine(pylogseg.Schemas(), Schema(json.dumps(schema), "JSON"), recursion, -BAD)
    place, size, sources = placed(raw)
    framed = Framed([Named("given")], np.zeros(len(raw), np.int32), place, size, sources, room=1 << 20)
    array, status, _ = made.decode(framed, np.zeros(len(raw), np.int32), None)
    array.validate(full=True)
    assert len(array) == len(raw)
    return array, status.tolist()


ITEM = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": ["string", "null"]},
        "c": {"type": "array", "items": {"type": "number"}},
    },
}
FREE = {"type": "object", "properties": {"a": {"type": "integer"}, "x": True}}
LINES = [
    b'{"a":1,"b":"\xc3\xbc","c":[1,2.5]}', None, b'{"a":1.5}', b"{", b"", b'{"a":\n2}', b'{"a":"no"}',
    b'{"a":1}{"a":2}', b'1,"x":2', b"null", b'{"a":1,"a":2}', b"[1]", b'{"z":{"y":[]},"a":3}',
    b'{"a":9223372036854775808}', b"\xff",
]  # fmt: skip


def test_bad_lines_take_no_others_with_them() -> None:
    array, status = run(ITEM, LINES)
    good = [row for row, each in enumerate(status) if each == 0]
    assert [array[row].as_py() and array[row].as_py()["a"] for row in good] == [1, 2, None, 3]
    assert [row for row, each in enumerate(status) if each == BAD] == [2, 6, 10, 11, 13]
    assert {_typed.REASONS[each] for each in status if each not in (0, BAD, _typed.ABSENT)} == {"no JSON"}
    assert array[0].as_py() == {"a": 1, "b": "\u00fc", "c": [1.0, 2.5]}
    free, other = run(FREE, LINES)
    assert [free[row].as_py() and free[row].as_py()["a"] for row in range(len(free)) if not other[row]] == [
        1,
        2,
        None,
        2,
        3,
    ]
    assert run(FREE, [b'{"x":{"k":[1, null]}}'])[0].to_pylist() == [{"a": None, "x": '{"k":[1,null]}'}]


def test_lines() -> None:
    raw = [
        b' {"a" :\r\n[1 , "x  y" ] }\n',
        None,
        b" \n[2]",
        b"{}",
        b" null ",
        b"",
        b"{",
        b'"a b"',
        b'{ "b":"' + b"c" * 40 + b'"}',
    ]
    place, size, sources = placed(raw)
    long = b'{"b":"' + b"c" * 40 + b'"}'
    values = [b'{"a":[1,"x  y"]}', None, b"[2]", b"{}", b"null", None, None, b'"a b"', long]
    bad = [0, _typed.ABSENT, 0, 0, 0, 18, 18, 0, 0]
    for bare in (False, True):
        ends, status = (
            np.empty(len(raw) + 1, np.int64),
            np.array([0 if each is not None else _typed.ABSENT for each in raw], np.uint8),
        )
        lines = bytes(_typed.json_lines(place, size, sources, status, bare, BAD, ends))
        found = [lines[ends[i] : ends[i + 1]] for i in range(len(raw))]
        if bare:
            objects = [each if each and each.startswith(b"{") else None for each in values]
            assert found == [each + b"\n" if each else b"" for each in objects]
            assert status.tolist() == [BAD if i in (2, 7) else each for i, each in enumerate(bad)]
        else:
            assert found == [b'{"v":%b}\n' % each if each else b"" for each in values]
            assert status.tolist() == bad
    with pytest.raises(ValueError, match="differ in length"):
        _typed.json_lines(place, size, sources, status, True, BAD, ends[1:])


def kind_of(schema: Any, **references: Any) -> str:
    texts = {name: json.dumps(text) for name, text in references.items()}
    return str(JsonTypes(texts, 1).field(json.dumps(schema)).type)


def test_types() -> None:
    for name, kind in (
        ("string", "string"),
        ("integer", "int64"),
        ("number", "double"),
        ("boolean", "bool"),
        ("null", "null"),
    ):
        assert kind_of({"type": name}) == kind
        assert kind_of({"type": [name, "null"]}) == kind
        assert name == "null" or kind_of({"oneOf": [{"type": "null"}, {"type": name}]}) == kind
    assert kind_of({"type": ["integer", "number"]}) == "double"
    assert (
        kind_of({"type": ["integer", "string"]})
        == kind_of({})
        == kind_of(True)
        == kind_of({"type": "object"})
        == "string"
    )
    node = {"properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}}
    assert kind_of(node) == "struct<v: int64, next: struct<v: int64, next: struct<v: int64, next: string>>>"
    pointed = {"type": "array", "items": {"$ref": "#/$defs/a~1b"}, "$defs": {"a/b": {"type": "boolean"}}}
    assert kind_of(pointed) == "list<element: bool>"
    assert kind_of({"$ref": "o#/d"}, o={"d": {"type": "number"}}) == "double"
    assert kind_of({"$ref": "none"}) == "string"
    for text in ("{", "5"):
        with pytest.raises(pylogseg.RequestError, match="is no JSON Schema"):
            JsonTypes({}, 1).field(text)


def test_wrong_kind_of_schema(folder: Path) -> None:
    table = pylogseg.read_arrow(folder, "orders", decode="value", schema="docs-value", columns=["value"]).read_all()
    assert any("is AVRO, and JSON is read" in (each or "") for each in table["valueError"].to_pylist())
