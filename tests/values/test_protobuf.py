"""Tests of _native/_typed.pyx, values/schemas/proto_program.py, values/schemas/proto_schema.py and values/typed.py.
Protobuf into columns: every golden record, random messages against Google's library, and bytes that lie.
"""

from __future__ import annotations

import base64
import gzip
import importlib
import json
import math
import re
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.depth import some_of
from helpers.mutations import damaged
from helpers.typed_values import placed
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg._native import _typed
from pylogseg.errors import RequestError
from pylogseg.reading.arrow.columns import schema
from pylogseg.values.decoding import Decoder, Decoding, first_message
from pylogseg.values.schemas.proto_program import ProtoProgram
from pylogseg.values.schemas.proto_schema import parse_proto
from pylogseg.values.schemas.schema import Schema
from pylogseg.values.schemas.store import Schemas
from pylogseg.values.typed import ArrowColumn

EXAMPLES = min(25, settings().max_examples)
MESSAGES = ["Created", "Event", "Event.Inner", "Event.Inner.Deep", "Third"]


@pytest.fixture(scope="module")
def lines(shop: Path) -> list[dict[str, Any]]:
    text = gzip.decompress((shop / "expected" / "typed.jsonl.gz").read_bytes())
    return [json.loads(line) for line in text.splitlines()]


def bare(value: Any) -> Any:
    """A value without what JSON of Protobuf leaves out: fields with their default; numbers are text."""
    if isinstance(value, dict):
        found = {name: bare(item) for name, item in value.items()}
        return {name: item for name, item in found.items() if item not in (None, [], {}, "", "0", False)}
    if isinstance(value, list):
        pairs = [each for each in value if isinstance(each, tuple)]
        if pairs:
            return {str(key): bare(item) for key, item in value}
        return [bare(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int | float):
        return repr(float(value)).removesuffix(".0") if isinstance(value, float) else str(value)
    return value


def decoded(shop: Path, topic: str, message: str) -> dict[int, dict[str, Any]]:
    decoding = Decoding(message=message, recursion=2)
    table = pylogseg.read_arrow(shop, topic, decoding=decoding, columns=["offset", "value"]).read_all()
    table.validate(full=True)
    return {row["offset"]: row for row in table.to_pylist()}


@pytest.mark.parametrize("message", MESSAGES)
def test_events(shop: Path, lines: list[dict[str, Any]], message: str) -> None:
    found = decoded(shop, "events", f"example.{message}")
    checked = 0
    for line in [each for each in lines if each["topic"] == "events"]:
        row = found[line["offset"]]
        if line.get("message") == f"example.{message}":
            their = bare(line["value"])
            if "at" in their:
                assert row["value"]["at"].isoformat().startswith("2023-11-14T22:13:20.000005")
                del their["at"], row["value"]["at"]
            assert bare(row["value"]) == their, line
            assert row["valueError"] is None
            checked += 1
        elif "error" in line and not (line["offset"] == 11 and message != "Created"):
            assert re.sub(r"^\$[^:]*: ", "", row["valueError"]).startswith(line["error"]), row
        else:
            assert row["valueError"].endswith(f"not example.{message}")
    assert checked


def test_every_type(shop: Path, lines: list[dict[str, Any]]) -> None:
    found = decoded(shop, "proto-types", "example.Types")
    for line in [each for each in lines if each["topic"] == "proto-types"]:
        mine, their = found[line["offset"]]["value"], line["value"]
        if mine["at"] is not None:
            assert str(mine.pop("at").isoformat()).startswith(their.pop("at")[:29])
            assert mine.pop("took").value == -1_500_000_000
            assert their.pop("took") == "-1.500s"
            assert mine.pop("any_json")["fields"][0][1]["list_value"]["values"][0]["number_value"] == 1.0
            del their["any_json"]
            assert mine["boxed"] == {"value": 0}
            del mine["boxed"], their["boxed"]
            assert mine.pop("maybe") == their.pop("maybe") == 0
            assert mine.pop("maybe_text") == their.pop("maybe_text") == ""
            mine.pop("left") if mine["left"] == 0 == their.pop("left", None) else None
            assert mine.pop("colors") == their.pop("colors")
            assert mine.pop("names") == their.pop("names")
            their["d"] = float(their["d"])
            mine["d"], their["d"] = str(mine["d"]), str(their["d"])
            mine["counts"] = {key: str(item) for key, item in mine["counts"]}
            if their.get("color") in (None, "RED"):
                their.pop("color", None)
                assert mine.pop("color") == "RED"
        elif mine["color"] == "RED":
            del mine["color"]
            if mine.get("child"):
                assert mine["child"].pop("color") == "RED"
        if isinstance(their.get("color"), int):
            their["color"] = str(their["color"])
        strip(mine)
        assert bare(mine) == bare(their), line["offset"]


def strip(value: Any) -> None:
    """The first value of an open enum is left out of JSON."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        item = each[1] if isinstance(each, tuple) else each
        if isinstance(item, dict):
            if item.get("color") == "RED":
                del item["color"]
            strip(item)
        elif isinstance(item, list):
            strip(item)


def test_proto2(shop: Path, lines: list[dict[str, Any]]) -> None:
    found = decoded(shop, "p2", "P2")
    for line in [each for each in lines if each["topic"] == "p2"]:
        assert bare(found[line["offset"]]["value"]) == bare(line["value"])
    assert found[0]["value"]["name"] is None  # absent: a default of proto2 is not a value


def test_ids_in_headers(shop: Path) -> None:
    found = {
        row["offset"]: row
        for row in pylogseg.read_arrow(
            shop, "guid", decoding="value", schema="events-value", columns=["offset", "value"]
        ).read_all().to_pylist()
    }  # fmt: skip
    assert found[6]["value"]["removed"] == "by guid"  # the message of the first record there is
    assert "is AVRO, but the reader's schema is PROTOBUF" in found[0]["valueError"]


def run(
    text: str, raw: list[bytes | None], message: str | None = None, recursion: int = 2
) -> tuple[list[Any], list[str]]:
    file = parse_proto(text)
    of = file.top[0] if message is None else file.find_message(message)
    assert of is not None
    made = ProtoProgram(file, of, recursion)
    place, size, sources = placed(raw)
    values = made.decode(place, size, sources, np.zeros(len(raw), np.int32))
    array = ArrowColumn(made.column).array(values.nodes)
    array.validate(full=True)
    assert len(array) == len(raw)
    return array.to_pylist(), ["" if s in (0, _typed.ABSENT) else _typed.REASONS[s] for s in values.status.tolist()]


NUMBERS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
    "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
TEXT = (
    'syntax = "proto3"; package t; enum E { A = 0; B = 5; C = -3; }\n'
    "message M {\n"
    + "".join(f"  {kind} s{i} = {i + 1};\n" for i, kind in enumerate(NUMBERS))
    + "".join(f"  repeated {kind} r{i} = {i + 101};\n" for i, kind in enumerate(NUMBERS))
    + "".join(f"  optional {kind} o{i} = {i + 201};\n" for i, kind in enumerate(NUMBERS))
    + "  oneof one { int32 x = 301; string y = 302; N n = 303; N n2 = 304; }\n"
    "  E e = 310; repeated E es = 311; N sub = 312; repeated N subs = 313;\n"
    "  map<string, int32> m1 = 314; map<int64, N> m2 = 315; repeated int32 loose = 316 [packed = false];\n}\n"
    "message N { int32 a = 1; repeated string b = 2; N c = 3; oneof q { bool d = 4; bytes e = 5; } }\n"
)


@pytest.fixture(scope="module")
def google() -> Any:
    """The class of `M`, made by Google's compiler."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    descriptor_pb2 = importlib.import_module("google.protobuf.descriptor_pb2")
    descriptor_pool = importlib.import_module("google.protobuf.descriptor_pool")
    message_factory = importlib.import_module("google.protobuf.message_factory")
    with tempfile.TemporaryDirectory() as shop:
        (Path(shop) / "t.proto").write_text(TEXT)
        out = Path(shop) / "set.bin"
        assert protoc.main(["protoc", f"-I{shop}", f"--descriptor_set_out={out}", "t.proto"]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.M"))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats(allow_nan=False), "float": st.floats(width=32, allow_nan=False), "bool": st.booleans(),
    "string": st.text(max_size=20), "bytes": st.binary(max_size=20),
}  # fmt: skip
for _name in NUMBERS:
    if _name not in VALUES:
        _bits, _signed = 32 if "32" in _name else 64, not _name.startswith(("u", "f"))
        _low = -(1 << (_bits - 1)) if _signed else 0
        VALUES[_name] = st.integers(_low, _low + (1 << _bits) - 1)


def fill_n(data: st.DataObject, n: Any, depth: int) -> None:
    n.a = data.draw(VALUES["int32"])
    n.b.extend(data.draw(st.lists(VALUES["string"], max_size=2)))
    if depth < 2 and data.draw(st.booleans()):
        fill_n(data, n.c, depth + 1)
    which = data.draw(st.sampled_from(["", "d", "e"]))
    if which:
        setattr(n, which, data.draw(VALUES["bool" if which == "d" else "bytes"]))


def filled(data: st.DataObject, cls: Any) -> Any:
    m = cls()
    for i in data.draw(st.lists(st.integers(0, len(NUMBERS) - 1), max_size=6)):
        setattr(m, f"s{i}", data.draw(VALUES[NUMBERS[i]]))
        getattr(m, f"r{i}").extend(data.draw(st.lists(VALUES[NUMBERS[i]], max_size=3)))
        setattr(m, f"o{i}", data.draw(VALUES[NUMBERS[i]]))
    one = data.draw(st.sampled_from(["", "x", "y", "n", "n2"]))
    if one in ("x", "y"):
        setattr(m, one, data.draw(VALUES["int32" if one == "x" else "string"]))
    elif one:
        fill_n(data, getattr(m, one), 0)
    m.e = data.draw(st.sampled_from([0, 5, -3, 77]))
    m.es.extend(data.draw(st.lists(st.sampled_from([0, 5, -3, 9]), max_size=3)))
    if data.draw(st.booleans()):
        fill_n(data, m.sub, 0)
    for _ in range(data.draw(st.integers(0, 2))):
        fill_n(data, m.subs.add(), 0)
    for key in data.draw(st.sets(VALUES["string"], max_size=2)):
        m.m1[key] = data.draw(VALUES["int32"])
    for key in data.draw(st.sets(VALUES["int64"], max_size=2)):
        fill_n(data, m.m2[key], 1)
    m.loose.extend(data.draw(st.lists(VALUES["int32"], max_size=3)))
    return m


ENUM = {0: "A", 5: "B", -3: "C"}


def shown_n(n: Any) -> Any:
    which = n.WhichOneof("q")
    return {"a": n.a, "b": list(n.b), "c": shown_n(n.c) if n.HasField("c") else None,
            "d": n.d if which == "d" else None, "e": n.e if which == "e" else None}  # fmt: skip


def shown(m: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for i in range(len(NUMBERS)):
        found |= {f"s{i}": getattr(m, f"s{i}"), f"r{i}": list(getattr(m, f"r{i}"))}
        found[f"o{i}"] = getattr(m, f"o{i}") if m.HasField(f"o{i}") else None
    one = m.WhichOneof("one")
    for name in ("x", "y", "n", "n2"):
        found[name] = None if one != name else getattr(m, name) if name in "xy" else shown_n(getattr(m, name))
    found["e"] = ENUM.get(m.e, str(m.e))
    found["es"] = [ENUM.get(each, str(each)) for each in m.es]
    found["sub"] = shown_n(m.sub) if m.HasField("sub") else None
    found["subs"] = [shown_n(each) for each in m.subs]
    found["m1"] = sorted(m.m1.items())
    found["m2"] = sorted((key, shown_n(each)) for key, each in m.m2.items())
    found["loose"] = list(m.loose)
    return found


def ordered(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"m1": sorted(row["m1"]), "m2": sorted(row["m2"], key=lambda pair: pair[0])}


def fields_of(raw: bytes) -> list[bytes]:
    """The fields of a message, each with its tag."""
    found, at = [], 0
    while at < len(raw):
        first, (tag, at) = at, varint(raw, at)
        if tag & 7 == 0:
            _, at = varint(raw, at)
        elif tag & 7 == 2:
            size, at = varint(raw, at)
            at += size
        else:
            at += {1: 8, 5: 4}[tag & 7]
        found.append(raw[first:at])
    return found


def varint(raw: bytes, at: int) -> tuple[int, int]:
    stop = next(i for i in range(at, len(raw)) if raw[i] < 0x80) + 1
    return sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(raw[at:stop])), stop


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_random_messages(google: Any, data: st.DataObject) -> None:
    """Also joined ones: the last of a field counts, lists go on, submessages merge, a oneof has its last member."""
    messages = [filled(data, google) for _ in range(3)]
    raw = [each.SerializeToString() for each in messages]
    joined = google.FromString(raw[0] + raw[1])
    raw.append(raw[0] + raw[1])
    messages.append(joined)
    pieces = fields_of(raw[-1])
    raw.append(b"".join(data.draw(st.permutations(pieces))))
    messages.append(google.FromString(raw[-1]))
    found, reasons = run(TEXT, [*raw, None], recursion=4)
    assert not any(reasons)
    assert [ordered(each) for each in found[:-1]] == [shown(each) for each in messages]
    assert found[-1] is None


@pytest.mark.parametrize("seed", some_of(range(20), 6))
def test_of_equal_keys_the_last_counts(seed: int) -> None:
    """In maps of any sizes, beside empty ones and null."""
    rng = Random(seed)
    text = 'syntax = "proto3"; package t; message M { map<string, string> m = 1; map<int32, M> n = 2; }'
    raw: list[bytes | None] = []
    expected: list[Any] = []
    most = rng.choice([2, 5, 40])
    for _ in range(30):
        pairs = [
            (f"k{rng.randrange(most)}", f"v{rng.randrange(100)}") for _ in range(rng.choice([0, 1, most, 3 * most]))
        ]
        raw.append(
            b"".join(b"\n" + _sized(b"\n" + _sized(k.encode()) + b"\x12" + _sized(v.encode())) for k, v in pairs)
        )
        expected.append(dict(pairs))
        if rng.random() < 0.1:
            raw.append(None)
            expected.append(None)
    found, reasons = run(text, raw, recursion=2)
    assert not any(reasons)
    assert [None if row is None else dict(row["m"]) for row in found] == expected
    assert all(row is None or len(row["m"]) == len(dict(row["m"])) for row in found)


def _sized(data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([len(data)]) + data


def test_what_google_refuses_is_refused(google: Any) -> None:
    """The same bytes are good or bad, and what is good has the same values."""
    rng, counts = Random(5), [0, 0]
    seeds = []
    for i in range(20):
        m = google(s0=1.5, s2=i, s13="text", s14=b"b", r2=[1, 2, i], o13="o", x=i)
        m.sub.a, m.sub.c.a = i, 2
        m.subs.add().b.append("q")
        m.m1["k"] = i
        seeds.append(m.SerializeToString())
    raw = [damaged(rng, rng.choice(seeds)) for _ in range(400)]
    found, reasons = run(TEXT, [*raw], recursion=6)
    for each, row, reason in zip(raw, found, reasons, strict=True):
        try:
            theirs = google.FromString(each)
        except Exception:
            assert reason, each
            counts[1] += 1
            continue
        assert reason == "", (each, reason)
        mine = ordered(row)
        if len({key for key, _ in mine["m1"]}) == len(mine["m1"]):
            assert repr(sorted(mine.items())) == repr(sorted(shown(theirs).items())), each
        counts[0] += 1
    assert min(counts) > 20, counts


SMALL = (
    'syntax = "proto3"; message S { int32 a = 1; string s = 2; S c = 3; repeated S d = 4; '
    "oneof o { S x = 5; int32 y = 6; } }"
)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x08", "the value ends too early"),
        (b"\x08" + b"\xff" * 10 + b"\1", "a varint that is too long"),
        (b"\x12\x05ab", "the value ends too early"),
        (b"\x12" + b"\xff" * 9 + b"\1", "the value ends too early"),
        (b"\x12\1\xff", "text that is not UTF-8"),
        (b"\x00\x01", "a tag that is none, or of another wire type than its field"),
        (b"\x0e", "a tag that is none, or of another wire type than its field"),
        (b"\x0c", "a group that ends without a beginning"),
        (b"\x7b\x08\x01", "the value ends too early"),
        (b"\x7b\x84\x01", "a group that ends without a beginning"),
        (b"\x7b" * 200, "nested too deeply"),
        (b"\x1a\x02\x12\x05", "the value ends too early"),
        (b"\x80\x80\x80\x80\x80\x01\x01", "a tag that is none, or of another wire type than its field"),
    ],
)
def test_what_is_refused(raw: bytes, reason: str) -> None:
    good = b"\x08\x05\x22\x02\x08\x01"
    found, reasons = run(SMALL, [good, raw, good])
    assert reasons == ["", reason, ""]
    assert found[0] == found[2]
    assert found[1] is None


@pytest.mark.parametrize("frame", ["auto", "apicurio"])
def test_the_type_in_front_of_a_value(frame: Any) -> None:
    """Apicurio names the message by a message of its own, where Confluent has indexes."""
    text = 'syntax = "proto3"; package p; message A { int32 n = 1; } message B { string n = 1; message C {} }'
    prefix = b"\0\0\0\0\7" if frame == "auto" else b"\0" + (7).to_bytes(8, "big")

    def ref(name: bytes) -> bytes:
        return prefix + bytes([len(name) + 2, 10, len(name)]) + name

    values = [ref(b"A") + b"\x08\5", ref(b"p.A") + b"\x08\6", ref(b"A"), ref(b"B") + b"\x0a\1x", None]
    values += [ref(b"C"), ref(b"D")]
    schemas = Schemas([Schema(text, "PROTOBUF", 7)])
    decoding = Decoding(frame=frame)
    array, errors = Decoder(schemas, Schema(text, "PROTOBUF", 7), decoding, "value", "A").decode(pa.array(values))
    assert array.to_pylist()[:3] == [{"n": 5}, {"n": 6}, {"n": 0}]
    assert array.to_pylist()[4] is None
    assert errors[3] == "the message is p.B, not p.A"
    assert errors[5] == "the message is p.B.C, not p.A"
    assert 4 not in errors
    assert 6 in errors  # as indexes of Confluent's, they are of no message
    batch = pa.record_batch({"value": pa.array(values[3:4]), "headers": pa.nulls(1, schema(["headers"]).field(0).type)})
    assert first_message(schemas, Schema(text, "PROTOBUF", 7), decoding, "value", lambda _: [batch]) == "p.B"


def test_recursion_oneofs_and_unknown_fields() -> None:
    deep = b""
    for _ in range(30):
        deep = b"\x1a" + bytes([len(deep)]) + deep if len(deep) < 120 else deep
    found, reasons = run(
        SMALL,
        [deep, b"\x2a\x04\x22\x02\x08\x01\x30\x07", b"\x30\x07\x2a\x00", b"\x7b\x08\x01\x7c\x08\x09"],
        recursion=1,
    )
    assert not any(reasons)
    assert isinstance(found[0]["c"]["c"], bytes)
    assert (found[1]["x"], found[1]["y"]) == (None, 7)
    assert (found[2]["x"]["a"], found[2]["y"]) == (0, None)
    assert found[3]["a"] == 9
    times = 'import "google/protobuf/timestamp.proto"; message T { optional google.protobuf.Timestamp at = 1; }'
    beyond = b"\x0a\x0a\x08" + b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
    found, reasons = run(times, [b"\x0a\x02\x08\x01", beyond])
    assert found[0]["at"].value == 10**9
    assert reasons[1] == "a time that does not fit in nanoseconds since 1970"


def test_closed_enums_and_groups() -> None:
    text = (
        'syntax = "proto2"; message M { enum E { A = 1; B = 2; } optional E e = 1; repeated E es = 2; '
        "repeated group G = 3 { optional int32 x = 1; } }"
    )
    found, reasons = run(text, [b"\x08\x02", b"\x08\x07", b"\x10\x01\x10\x09\x10\x02", b"\x1b\x08\x05\x1c\x1b\x1c"])
    assert not any(reasons)
    assert [each["e"] for each in found] == ["B", None, None, None]
    assert found[2]["es"] == ["A", "B"]
    assert found[3]["g"] == [{"x": 5}, {"x": None}]


@pytest.mark.parametrize(
    "text",
    ["message", "message M {", "message M { int32 a = ; }", "message M { int32 a = 1; int32 b = 1; }",
     "message M { X a = 1; }",
     'import "none.proto";', "message M { int32 a = 0; }", "message M {} message M {}", "nothing here", '"', "\x00",
     "message M { int32 a = 9999999999; }"],
)  # fmt: skip
def test_schemas_that_are_none(text: str) -> None:
    with pytest.raises(RequestError, match="is not a Protobuf schema"):
        parse_proto(text)


def test_the_text_of_files() -> None:
    text = """
    // a comment
    edition = "2023"; /* another */
    package a.b; option java_package = "x;y"; option (my.option) = { a: 1 b: [1, 2] };
    import public 'c.proto';
    extend Foo { optional int32 bar = 126; }
    message M {
      option deprecated = true; reserved 5, 7 to 9, "old"; extensions 100 to max;
      message message { int32 option = 0x10; } optional message reserved = 2 [deprecated = true, (x) = "]"];
      map<string, .a.b.M.message> by = 3; c.Other other = 4;
      enum E { option allow_alias = true; Z = 0; Y = -1 [(x) = 1]; }
      oneof kind { E e = 6; string to = 11; }
    }
    service S { rpc Call (M) returns (stream M) { option (http) = { get: "/x" }; } }
    """
    file = parse_proto(text, {"c.proto": "package c; message Other { required bool ok = 1; }"})
    of = file.find_message("M")
    assert of is not None
    assert [(f.name, f.number, f.type, f.is_repeated, f.has_presence, f.oneof) for f in of.fields] == [
        ("reserved", 2, "a.b.M.message", False, True, ""), ("by", 3, "a.b.M.by:entry", True, False, ""),
        ("other", 4, "c.Other", False, True, ""), ("e", 6, "a.b.M.E", False, True, "kind"),
        ("to", 11, "string", False, True, "kind"),
    ]  # fmt: skip
    assert file.at([0, 0]) is file.messages["a.b.M.message"]
    assert file.at([0, 1]) is None
    assert file.enums["a.b.M.E"].numbers == {"Z": 0, "Y": -1}


ROWS = [
    [1, 1, 1, 0, 0, 0, 0, 0], [1, 99, 1, 0, 0, 0, 0, 0], [1, 0, 9, 0, 0, 0, 0, 0], [1, 10, 1, 0, 0, 0, 0, 0],
    [1, 0, 1, 1, 0, 0, 0, 0], [1, 5, 1, 0, 0, 0, 0, 4], [1, 5, 1, 8, 0, 0, 0, 0], [1, 0, 1, 8, 0, 1, 0, 0],
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_programs_are_checked(row: list[int]) -> None:
    place, size, sources = placed([b"\0"])
    nodes, messages = np.array([[-1, -2, 2], [0, 4, 2]], np.int32), np.array([[0, 1, 0]], np.int32)
    entry, table, status = np.zeros(1, np.int32), np.empty(0, np.int32), np.empty(1, np.uint8)
    fields, position = np.array([row], np.int32), np.empty(1, np.int32)
    with pytest.raises(ValueError, match="not sound"):
        _typed.decode_protobuf(place, size, sources, entry, messages, fields, table, nodes, status, position, 1 << 20)
