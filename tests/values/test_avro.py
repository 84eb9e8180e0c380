"""Tests of _native/_typed.pyx, values/schemas/avro_json.py, values/schemas/avro_program.py,
values/schemas/avro_schema.py, values/schemas/columns.py and values/schemas/store.py. Avro into columns: random schemas
and values against fastavro, evolution, and bytes that lie.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.hostile_typed import protobuf, typed
from helpers.mutations import damaged
from helpers.typed_values import encoded, placed, program, varint
from hypothesis import given, settings
from hypothesis import strategies as st

from pylogseg._native import _typed
from pylogseg.errors import RequestError
from pylogseg.values.decoding import Decoder, Decoding
from pylogseg.values.schemas.avro_json import binary_of
from pylogseg.values.schemas.avro_program import AvroProgram, IncompatibleError
from pylogseg.values.schemas.avro_schema import fingerprint, parse_avro
from pylogseg.values.schemas.schema import Schema
from pylogseg.values.schemas.store import Schemas
from pylogseg.values.typed import ArrowColumn

fastavro = pytest.importorskip("fastavro")
EXAMPLES = min(25, settings().max_examples)
PRIMITIVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=40),
    "string": st.text(max_size=20),
}


def run(made: AvroProgram, raw: list[bytes | None]) -> tuple[list[Any], list[str]]:
    """Values, and the reasons of those that do not decode."""
    place, size, sources = placed(raw)
    values = made.decode(place, size, sources, np.zeros(len(raw), np.int32))
    array = ArrowColumn(made.column).array(values.nodes)
    array.validate(full=True)
    assert len(array) == len(raw)
    reasons = ["" if s in (0, _typed.ABSENT) else _typed.REASONS[s] for s in values.status.tolist()]
    return array.to_pylist(), reasons


@st.composite
def schemas(draw: Any, names: list[int] | None = None, depth: int = 0) -> Any:
    names = [0] if names is None else names
    kinds = ["primitive", "fixed", "enum"] + (["record", "array", "map", "optional", "union"] if depth < 3 else [])
    kind = "record" if depth == 0 else draw(st.sampled_from(kinds))
    names[0] += 1
    name = f"N{names[0]}"
    if kind == "primitive":
        return draw(st.sampled_from([*PRIMITIVES]))
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": draw(st.integers(1, 20))}
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B", "C"][: draw(st.integers(1, 3))]}
    inner = schemas(names, depth + 1)
    if kind in ("array", "map"):
        return {"type": kind, "items" if kind == "array" else "values": draw(inner)}
    if kind == "optional":
        item = draw(inner.filter(lambda s: s != "null" and not isinstance(s, list)))
        return ["null", item] if draw(st.booleans()) else [item, "null"]
    if kind == "union":
        return draw(st.permutations(["null", "int", "string", {"type": "array", "items": draw(inner)}]))
    fields = [{"name": f"f{i}", "type": draw(inner)} for i in range(draw(st.integers(0, 4)))]
    return {"type": "record", "name": name, "fields": fields}


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.one_of([values_of(each) for each in schema])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in PRIMITIVES:
        return PRIMITIVES[kind]
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "array":
        return st.lists(values_of(schema["items"]), max_size=4)
    if kind == "map":
        return st.dictionaries(st.text(max_size=5), values_of(schema["values"]), max_size=3)
    return st.fixed_dictionaries({field["name"]: values_of(field["type"]) for field in schema["fields"]})


def shown(schema: Any, value: Any) -> Any:
    """A value as Arrow gives it."""
    if isinstance(schema, list):
        those = [each for each in schema if each != "null"]
        if value is None or len(those) == 1:
            return None if value is None else shown(those[0], value)
        kinds = {"int": int, "string": str, "array": list}
        names = [each["type"] if isinstance(each, dict) else each for each in those]
        return {n: shown(s, value) if isinstance(value, kinds[n]) else None for n, s in zip(names, those, strict=True)}
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "array":
        return [shown(schema["items"], each) for each in value]
    if kind == "map":
        return [(key, shown(schema["values"], each)) for key, each in value.items()]
    if kind == "record":
        return {field["name"]: shown(field["type"], value[field["name"]]) for field in schema["fields"]}
    return struct.unpack("<f", struct.pack("<f", value))[0] if kind == "float" else value


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_random_schemas(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    values = data.draw(st.lists(values_of(schema), min_size=1, max_size=6))
    raw: list[bytes | None] = [*encoded(schema, values), None]
    found, reasons = run(program(json.dumps(schema)), raw)
    assert found == [*(shown(schema, value) for value in values), None]
    assert not any(reasons)
    # What comes before and behind a damaged value is not touched by it.
    rng = data.draw(st.randoms(use_true_random=False))
    broken: list[bytes | None] = [damaged(rng, each) if i % 2 and each else each for i, each in enumerate(raw)]
    again, _ = run(program(json.dumps(schema)), broken)
    assert again[::2] == found[::2]


def in_json(schema: Any, value: Any) -> Any:
    """A value in Avro's JSON encoding."""
    if isinstance(schema, list):
        if value is None:
            return None
        fitting = {"int": int, "string": str, "array": list}
        those = [(each["type"] if isinstance(each, dict) else each, each) for each in schema if each != "null"]
        name, branch = next((n, s) for n, s in those if len(those) == 1 or isinstance(value, fitting[n]))
        if isinstance(branch, dict) and "name" in branch:
            name = branch["name"]
        return {name: in_json(branch, value)}
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in ("bytes", "fixed"):
        return value.decode("latin-1")
    if kind == "array":
        return [in_json(schema["items"], each) for each in value]
    if kind == "map":
        return {key: in_json(schema["values"], each) for key, each in value.items()}
    if kind == "record":
        return {field["name"]: in_json(field["type"], value[field["name"]]) for field in schema["fields"]}
    return value


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_the_json_encoding(data: st.DataObject) -> None:
    """By the specification, it is the same value as the binary that fastavro writes; damaged, an error."""
    schema = data.draw(schemas())
    values = data.draw(st.lists(values_of(schema), min_size=1, max_size=4))
    rng, kind = data.draw(st.randoms(use_true_random=False)), parse_avro(json.dumps(schema))
    for value, raw in zip(values, encoded(schema, values), strict=True):
        line = json.dumps(in_json(schema, value)).encode()
        assert binary_of(kind, line) == raw
        with contextlib.suppress(ValueError, OverflowError):
            binary_of(kind, damaged(rng, line))


def test_json_in_records_of_apicurio() -> None:
    """A header says that a value is in JSON; older versions are resolved, and reasons name the place."""
    fields = [{"name": "n", "type": "int"}, {"name": "u", "type": ["null", "string", "bytes"]}]
    old = json.dumps({"type": "record", "name": "R", "fields": fields})
    more = {"name": "more", "type": "long", "default": 7}
    new = json.dumps({"type": "record", "name": "R", "fields": [*fields, more]})
    schemas = Schemas([Schema(old, id=1), Schema(new, id=2)])
    header = [("apicurio.value.contentId", (1).to_bytes(8, "big"))]
    values = [
        b'{"n":1,"u":{"string":"x"}}',
        b"\2\0",
        b'{"n":"1"}',
        b'{"n":1e99,"u":null}',
        b'{"n":2,"u":{"int":3}}',
        b"{",
    ]
    headers = [[*header, ("apicurio.value.encoding", b"JSON")]] * len(values)
    headers[1] = header
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [[{"key": key, "value": value} for key, value in each] for each in headers]
    made, errors = Decoder(schemas, Schema(new), Decoding(), "value").decode(pa.array(values), pa.array(rows, kind))
    assert made.to_pylist()[:2] == [
        {"n": 1, "u": {"string": "x", "bytes": None}, "more": 7},
        {"n": 1, "u": None, "more": 7},
    ]
    assert [errors[row].partition(": ")[2] for row in (2, 3, 4)] == [
        "value.n is not of type int", "value.n is not of type int", "value.u names no branch of its union"
    ]  # fmt: skip
    assert errors[5].startswith("not in the JSON of its schema")


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_evolution(data: st.DataObject) -> None:
    """What fastavro makes of a writer's and a reader's schema."""
    wider = {"int": ["int", "long", "float", "double"], "long": ["long", "float", "double"],
             "float": ["float", "double"], "string": ["string", "bytes"], "bytes": ["bytes"]}  # fmt: skip
    kept = [*wider, "boolean", "double"]
    record: dict[str, Any] = {"type": "record", "name": "R", "fields": []}
    reader: dict[str, Any] = {"type": "record", "name": "R", "fields": []}
    for i in range(data.draw(st.integers(1, 5))):
        kind: Any = data.draw(st.sampled_from(kept))
        other: Any = data.draw(st.sampled_from(wider.get(kind, [kind])))
        form = data.draw(st.sampled_from(["plain", "optional", "array", "map", "made optional"]))
        if form == "optional":
            kind, other = ["null", kind], ["null", other]
        elif form in ("array", "map"):
            name = "items" if form == "array" else "values"
            kind, other = {"type": form, name: kind}, {"type": form, name: other}
        elif form == "made optional":
            other = ["null", kind]
        record["fields"].append({"name": f"f{i}", "type": kind})
        if data.draw(st.booleans()):
            renamed = data.draw(st.booleans())
            reader["fields"].append(
                {"name": f"g{i}", "type": other, "aliases": [f"f{i}"]} if renamed else {"name": f"f{i}", "type": other}
            )
    for name, kind, default in (
        ("new", "string", "d\u00fc"),
        ("gone", ["null", "int"], None),
        ("list", {"type": "array", "items": "long"}, [1, -2]),
    ):
        if data.draw(st.booleans()):
            reader["fields"].append({"name": name, "type": kind, "default": default})
    reader["fields"] = data.draw(st.permutations(reader["fields"]))
    values = data.draw(st.lists(values_of(record), min_size=1, max_size=5))
    raw = encoded(record, values)
    expected = [fastavro.schemaless_reader(io.BytesIO(each), record, json.loads(json.dumps(reader))) for each in raw]
    found, reasons = run(program(json.dumps(reader), json.dumps(record)), [*raw])
    assert not any(reasons), reasons
    assert [bytes_as_text(each) for each in found] == [bytes_as_text(shown(reader, each)) for each in expected]


def bytes_as_text(row: dict[str, Any]) -> str:
    """Fastavro leaves text as it is where bytes are asked for."""
    return repr(json.loads(json.dumps(row, default=lambda each: each.decode("utf-8", "replace"))))


R = '{"type":"record","name":"R","fields":[%s]}'


def test_enums_and_unions_by_name() -> None:
    writer = '{"type":"enum","name":"E","symbols":["A","B","C"]}'
    assert run(program('{"type":"enum","name":"E","symbols":["C","A"],"default":"A"}', writer), [b"\0", b"\2", b"\4"])[
        0
    ] == ["A", "A", "C"]
    found, reasons = run(
        program('{"type":"enum","name":"E","symbols":["C","A"]}', writer), [b"\0", b"\2", b"\4", b"\6"]
    )
    assert found == ["A", None, "C", None]
    assert reasons[1] == reasons[3] == "an enum has no such symbol"
    two = '[{"type":"record","name":"a.X","fields":[%s]},{"type":"record","name":"b.X","fields":[]}]'
    two = two % '{"name":"x","type":"int"}'
    assert run(program(two), [b"\0\2", b"\2"])[0] == [{"a.X": {"x": 1}, "b.X": None}, {"a.X": None, "b.X": {}}]
    assert run(program('["long","string"]', '["string","int"]'), [b"\0\2x", b"\2\4"])[0] == [
        {"long": None, "string": "x"}, {"long": 2, "string": None},
    ]  # fmt: skip
    found, reasons = run(program('"int"', '["null","int"]'), [b"\0", b"\2\4"])
    assert (found, reasons[0]) == ([None, 2], "a branch that the reader's schema does not have")
    with pytest.raises(IncompatibleError, match=r"field f: string cannot be read as int"):
        program(R % '{"name":"f","type":"int"}', R % '{"name":"f","type":"string"}')
    with pytest.raises(IncompatibleError, match="no field f, and the reader no default"):
        program(R % '{"name":"f","type":"int"}', R % "")


def test_recursion_is_cut() -> None:
    node = '{"type":"record","name":"N","fields":[{"name":"v","type":"int"},{"name":"next","type":["null","N"]}]}'
    raw = [b"".join(varint(i) + b"\2" for i in range(6)) + varint(9) + b"\0"]
    found, _ = run(program(node, recursion=1), [*raw])
    rest = b"".join(varint(i) + b"\2" for i in range(2, 6)) + varint(9) + b"\0"
    assert found == [{"v": 0, "next": {"v": 1, "next": rest}}]
    # A reader without the recursive field goes over it.
    assert run(program('{"type":"record","name":"N","fields":[{"name":"v","type":"int"}]}', node), [*raw])[0] == [
        {"v": 0}
    ]
    deep = [b"\0\2" * 5000 + b"\0\0"]
    assert run(program(node), [*deep])[1] == ["nested too deeply"]
    endless = '{"type":"record","name":"E","fields":[{"name":"a","type":"E"},{"name":"b","type":"E"}]}'
    assert run(program(endless, recursion=1), [b"", b"\0"])[1] == ["nested too deeply"] * 2


DECIMAL = '{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}'
ARRAY_OF_NOTHING = '{"type":"array","items":{"type":"record","name":"R","fields":[]}}'


@pytest.mark.parametrize(
    ("schema", "raw", "reason"),
    [
        ('{"type":"array","items":"null"}', varint(1 << 62) + b"\0", "too many items without bytes"),
        ('{"type":"array","items":"null"}', varint(-(1 << 62)) + b"\0\0", "too many items without bytes"),
        (ARRAY_OF_NOTHING, varint(1 << 40), "too many items without bytes"),
        ('{"type":"array","items":"int"}', varint(1 << 62), "the value ends too early"),
        ('{"type":"array","items":"int"}', varint(-(1 << 63)), "too many items without bytes"),
        ('{"type":"map","values":"null"}', varint(1 << 62), "the value ends too early"),
        ('"string"', varint(1 << 40) + b"x", "the value ends too early"),
        ('"string"', varint(-1), "a negative length"),
        ('"string"', b"\4\xff\xff", "text that is not UTF-8"),
        ('"string"', varint(20) + b"x" * 18 + b"\xc3(", "text that is not UTF-8"),
        ('"int"', varint(1 << 31), "a number that its type cannot hold"),
        ('"long"', b"\xff" * 10 + b"\1", "a varint that is too long"),
        ('"long"', b"\xff" * 9 + b"\2", "a varint that is too long"),
        ('"long"', b"\xff" * 9, "the value ends too early"),
        ('"boolean"', b"\2", "a boolean that is neither 0 nor 1"),
        ('"double"', b"1234567", "the value ends too early"),
        ('["null","int"]', b"\4", "a union has no such branch"),
        ('["null","int"]', b"\1", "a union has no such branch"),
        ('["null","int","string"]', varint(3), "a union has no such branch"),
        ('"null"', b"\0", "bytes behind the value"),
        (DECIMAL, b"\4\x03\xe8", "a decimal of more digits than its precision"),
        (DECIMAL, b"\4\xfc\x18", "a decimal of more digits than its precision"),
    ],
)  # fmt: skip
def test_what_is_refused(schema: str, raw: bytes, reason: str) -> None:
    good = b"\2\1" if "decimal" in schema else encoded(json.loads(schema), [DEFAULTS[kind_of(schema)]])[0]
    found, reasons = run(program(schema), [good, raw, good])
    assert reasons == ["", reason, ""]
    assert found[0] == found[2]


DEFAULTS: dict[str, Any] = {
    "array": [], "map": {}, "string": "a", "int": 1, "long": 1, "boolean": True, "double": 1.0, "null": None
}  # fmt: skip


def kind_of(schema: str) -> str:
    parsed = json.loads(schema)
    return "null" if isinstance(parsed, list) else parsed["type"] if isinstance(parsed, dict) else parsed


@pytest.mark.parametrize("precision", [1, 4, 9, 18, 19, 37, 38, 39, 60, 76])
def test_decimals(precision: int) -> None:
    schema = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 1})
    top = 10**precision - 1
    numbers = [0, 1, -1, top, -top, top // 2, -128, 127, 128, -129]
    numbers = [number for number in numbers if abs(number) <= top]
    raw = [number.to_bytes(36, "big", signed=True) for number in numbers]
    found, reasons = run(program(schema), [varint(len(each)) + each for each in raw])
    assert not any(reasons)
    assert [int(str(each).replace(".", "")) for each in found] == numbers
    beyond = [(sign * (top + 1)).to_bytes(36, "big", signed=True) for sign in (1, -1)]
    assert run(program(schema), [varint(36) + each for each in beyond])[0] == [None, None]
    short = [number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True) for number in numbers]
    assert [
        int(str(each).replace(".", "")) for each in run(program(schema), [varint(len(s)) + s for s in short])[0]
    ] == numbers


@pytest.mark.parametrize(
    "text",
    ["{", "5", '"x y"', '{"type":"record"}', '{"type":"record","name":"R"}', '{"type":"array"}', '[["int"]]',
     '["nothing"]',
     '{"type":"fixed","name":"F","size":-1}', '{"type":"record","name":"R","fields":[{"name":"a"}]}', "[" * 5000,
     '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}'],
)  # fmt: skip
def test_schemas_that_are_none(text: str) -> None:
    with pytest.raises(RequestError, match="is not an Avro schema"):
        parse_avro(text)


def test_schemas_that_unfold_too_far() -> None:
    levels = ['{"type":"record","name":"L0","fields":[{"name":"x","type":"int"}]}']
    for i in range(1, 20):
        inner = levels[-1]
        fields = f'{{"name":"a","type":{inner}}},{{"name":"b","type":"L{i - 1}"}}'
        levels.append(f'{{"type":"record","name":"L{i}","fields":[{fields}]}}')
    with pytest.raises(RequestError, match="unfolds to more than"):
        program(levels[-1])
    with pytest.raises(RequestError, match="unfolds to more than"):
        program('{"type":"record","name":"L19","fields":[]}', levels[-1])
    deep = '"int"'
    for _ in range(40):
        deep = f'{{"type":"array","items":{deep}}}'
    with pytest.raises(RequestError, match="nests more than"):
        program(deep)


def test_bytes_alone_have_no_length() -> None:
    made = AvroProgram(parse_avro('"bytes"'))
    assert made.add(parse_avro('"bytes"'), is_bare=True) == 0
    assert run(made, [b"\x10abc", b""])[0] == [b"\x10abc", b""]


def test_fingerprints() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    field = {"name": "x", "type": ["null", enum], "default": None}
    record = {"type": "record", "name": "R", "namespace": "a.b", "doc": "d", "fields": [field]}
    for schema in (record, {"type": "map", "values": {"type": "fixed", "name": "F", "size": 3}}, "int"):
        canonical = fastavro.schema.to_parsing_canonical_form(schema)
        raw = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
        assert fingerprint(json.dumps(schema)) == int.from_bytes(raw, "little", signed=True)
    assert fingerprint("{") is None


OPS = [
    [99, 0, 0, 0, 0, 0], [2, 5, 0, 0, 0, 0], [16, 0, 0, 0, 0, 1], [13, 0, 0, 4, 0, 0], [27, 0, 0, 9, 0, 0],
    [22, 0, 0, 4, 0, 1], [14, 0, -1, 0, 0, 0],
]  # fmt: skip


def test_programs_are_checked() -> None:
    place, size, sources = placed([b"\0"])
    empty = np.empty(0, np.int32)
    nodes = np.array([[-1, 4, 1]], np.int32)
    entry, entries = np.zeros(1, np.int32), np.array([[0, 1]], np.int32)
    constants, status, position = np.empty(0, np.uint8), np.empty(1, np.uint8), np.empty(1, np.int32)
    for op in OPS:
        ops = np.array([op], np.int32)
        with pytest.raises(ValueError, match="not sound"):
            _typed.decode_avro(
                place, size, sources, entry, entries, ops, empty, constants, nodes, status, position, 1 << 20
            )
    outside = program('"int"').decode(
        np.array([1 << 41, 5]), np.array([1, 9], np.int32), (b"\0" * 6,), np.zeros(2, np.int32)
    )
    assert [_typed.REASONS[s] for s in outside.status] == ["the value does not lie in its buffer"] * 2
    unknown = program('"int"').decode(
        np.zeros(2, np.int64), np.ones(2, np.int32), (b"\0",), np.array([7, -40], np.int32)
    )
    assert unknown.status.tolist() == [_typed.UNKNOWN, 40]


def test_hostile_bytes() -> None:
    import random

    rng = random.Random(7)
    for _ in range(300):
        typed(rng)
        protobuf(rng)


def test_memory_is_bounded_by_bytes() -> None:
    """Zero-sized items are the only ones that cost nothing; there is a budget of them for each value."""
    schema = '{"type":"array","items":"null"}'
    found, reasons = run(program(schema), [varint(1000) + b"\0", varint(1000) + varint(1000) + b"\0"])
    assert [len(each) if each else each for each in found] == [1000, None]
    assert reasons[1] == "too many items without bytes"
