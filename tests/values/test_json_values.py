"""Tests of _native/_json.pyx, values/schemas/frames.py, values/typed_json.py and values/typed_json_errors.py. JSON into
columns: the golden records, types of schemas, and lines that are bad.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.typed_values import placed

import pylogseg
from pylogseg._native import _json, _typed
from pylogseg.errors import RequestError
from pylogseg.values.schemas.frames import Framed, Named
from pylogseg.values.schemas.schema import Schema
from pylogseg.values.typed_json import JsonEngine, JsonTypes

BAD = 99


def test_golden(shop: Path) -> None:
    text = gzip.decompress((shop / "expected" / "typed.jsonl.gz").read_bytes())
    lines = {line["offset"]: line for line in map(json.loads, text.splitlines()) if line["topic"] == "docs"}
    table = pylogseg.read_arrow(shop, "docs", decoding="value", columns=["offset", "value"]).read_all()
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
    array, status, _, reasons = made.decode(framed, np.zeros(len(raw), np.int32), None)
    array.validate(full=True)
    assert len(array) == len(raw)
    assert [*reasons] == [row for row, each in enumerate(status.tolist()) if each not in (0, _typed.ABSENT)]
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
    free, other = run(FREE, LINES)  # a member of any type changes nothing for the others
    assert [free[row].as_py() and free[row].as_py()["a"] for row in range(len(free)) if not other[row]] == [
        1,
        2,
        None,
        3,
    ]
    assert other == status
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
        lines = bytes(_json.lines(place, size, sources, status, bare, BAD, ends))
        found = [lines[ends[i] : ends[i + 1]] for i in range(len(raw))]
        if bare:
            objects = [each if each and each.startswith(b"{") else None for each in values]
            assert found == [each + b"\n" if each else b"" for each in objects]
            assert status.tolist() == [BAD if i in (2, 7) else each for i, each in enumerate(bad)]
        else:
            assert found == [b'{"v":%b}\n' % each if each else b"" for each in values]
            assert status.tolist() == bad
    with pytest.raises(ValueError, match="differ in length"):
        _json.lines(place, size, sources, status, True, BAD, ends[1:])


def test_parts_without_a_type_are_as_they_were() -> None:
    """Whatever stands around them, and however names are written; digits, order and repeated names stay."""
    chance = random.Random(3)
    names = ["a", "b\u00fc", 'q"\\', "\U0001f600", "x"]

    def written(text: str) -> str:
        plain = json.dumps(text, ensure_ascii=chance.random() < 0.5)
        return plain.replace("a", "\\u0061") if chance.random() < 0.3 else plain

    def value(depth: int) -> str:
        kind = chance.randrange(9 if depth else 6)
        if kind < 6:
            return chance.choice(["null", "true", "1.10", "1e400", "-0", "12345678901234567890.5", written('\\"]},{[')])
        parts = [value(depth - 1) for _ in range(chance.randrange(4))]
        if kind == 6:
            return f"[{','.join(parts)}]"
        return "{" + ",".join(f"{written(chance.choice(names))}:{part}" for part in parts) + "}"

    # The value is an object with a member of any type, an object with one, and a list of such.
    rows = [[1, 1, 4, 0, 0], *([[3, 0, 0, 0, 1], [1, 5, 2, 1, 3], [2, 7, 1, 4, 3], [0, 0, 0, 7, 4]])]
    rows += [[3, 0, 0, 0, 1], [0, 0, 0, 1, 3], [3, 0, 0, 0, 0]]
    table, text = np.array(rows, np.int32), np.frombuffer("".join(names).encode(), np.uint8)
    raw = [value(4).encode() for _ in range(400)] + [b'{"a":1}', b'{"b\xc3\xbc":{"a":1.10,"a":{}}}', b"null"]
    place, size, sources = placed(list(raw))
    ends, status = np.empty(len(raw) + 1, np.int64), np.zeros(len(raw), np.uint8)
    lines = _json.lines(place, size, sources, status, False, BAD, ends)
    after = np.empty_like(ends)
    made = bytes(_json.with_parts(lines, ends, 5, 2, table, text, after))
    exact: dict[str, Any] = {"parse_int": str, "parse_float": str, "object_pairs_hook": lambda pairs: ("object", pairs)}

    def compare(one: Any, other: Any, part: int) -> None:
        kind, first, count, _, _ = rows[part]
        if kind == 3 and one is not None:
            assert json.loads(other, **exact) == one
        elif kind == 1 and isinstance(one, tuple):
            assert [name for name, _ in one[1]] == [name for name, _ in other[1]]
            known = {
                bytes(text[r[3] : r[3] + r[4]]).decode(): first + i for i, r in enumerate(rows[first : first + count])
            }
            for (name, mine), (_, their) in zip(one[1], other[1], strict=True):
                compare(mine, their, known[name]) if name in known else compare(mine, their, 4)
        elif kind == 2 and isinstance(one, list):
            for mine, their in zip(one, other, strict=True):
                compare(mine, their, first)
        else:
            assert one == other

    for i, each in enumerate(raw):
        line = made[after[i] : after[i + 1]]
        assert line.startswith(b'{"v":')
        assert line.endswith(b"}\n")
        compare(json.loads(each, **exact), json.loads(line[5:-2], **exact), 0)
    for wrong in ([9, 0, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 9, 0, 0], [3, 0, 0, 0, 99], [2, 1, 2, 0, 0]):
        with pytest.raises(ValueError, match="part 0 is not sound"):
            _json.with_parts(lines, ends, 5, 2, np.array([wrong, *rows[1:]], np.int32), text, after)
    with pytest.raises(ValueError, match="line 0 is not sound"):
        _json.with_parts(lines, ends, 500, 2, table, text, after)


def test_members_are_found_by_their_names_in_any_order() -> None:
    """Names that are prefixes of others, that have escapes, or lie beyond ASCII, as the schema lists them."""
    names = ["z", "ab", "a", "", "abc", "\u00fc", 'q"', "\U0001f600", "\uffff", "a\n", "A"]
    schema = {"type": "object", "properties": {name: {} for name in names}}
    for is_ascii in (True, False):
        value = {name: [number] for number, name in enumerate(reversed(names))} | {"b": [99], "abcd": [98]}
        array, status = run(schema, [json.dumps(value, ensure_ascii=is_ascii).encode()])
        assert status == [0]
        assert array.to_pylist() == [
            {name: f"[{number}]" for name, number in zip(names, range(10, -1, -1), strict=True)}
        ]


def test_lines_that_are_no_json_end() -> None:
    """The kernel is given what another one has checked; it reads and writes nothing elsewhere if it is not."""
    for raw in (b"[1}", b"[}", b"[", b'{"a', b'{"a\\u1', b"[,,,", b'["a":', b"]", b'{"a":{'):
        for kind in (1, 2, 3):
            table = np.array([[kind, 1, 1, 0, 0], [3, 0, 0, 0, 1]], np.int32)
            ends, made = np.array([0, len(raw)], np.int64), np.empty(2, np.int64)
            line, name = np.frombuffer(raw, np.uint8), np.frombuffer(b"a", np.uint8)
            found = bytes(_json.with_parts(line, ends, 0, 0, table, name, made))
            assert made.tolist() == [0, len(found)]
            assert len(found) <= 3 * len(raw) + 2


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
        with pytest.raises(RequestError, match="is not a JSON Schema"):
            JsonTypes({}, 1).field(text)


def test_wrong_kind_of_schema(shop: Path) -> None:
    table = pylogseg.read_arrow(shop, "orders", decoding="value", schema="docs-value", columns=["value"]).read_all()
    assert any("is AVRO, but the reader's schema is JSON" in (each or "") for each in table["valueError"].to_pylist())
