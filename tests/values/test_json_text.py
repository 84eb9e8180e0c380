"""Tests of values/json_text.py. The text of values: each type as JSON and back, the same from every door, and what no
calendar has.
"""

from __future__ import annotations

import datetime
import json
import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.shell import pylogseg as shell
from helpers.typed_values import encoded, varint

import pylogseg
from pylogseg.format.text import payload_of
from pylogseg.values.json_text import json_text, plain_text

ODD_TEXTS = ["", "a", 'q"\\/', "\0\x1b\x7f\n\t", "\u202e\u2028\u00fc\U0001f600", "base64:AAE=", "x" * 40]
ODD_BYTES = [b"", b"a", b"\0\x1b", b"\xff\xfe", b"base64:AAE=", "\u00fc\U0001f600".encode(), b"\xed\xa0\x80"]
_DAY = datetime.date(1970, 1, 1)


def _number(text: Any) -> float:
    return float(text)  # also of "NaN" and "Infinity"


def _moment(text: str) -> int:
    """Nanoseconds since 1970 of a time in ISO 8601."""
    head, _, fraction = text.rstrip("Z").partition(".")
    seconds = datetime.datetime.fromisoformat(head + "+00:00") - datetime.datetime.fromtimestamp(
        0, datetime.timezone.utc
    )
    return (seconds.days * 86400 + seconds.seconds) * 10**9 + int(fraction.ljust(9, "0"))


def _in(unit: str) -> Callable[[str], int]:
    return lambda text: _moment(text) // {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]


def _clock(unit: str) -> Callable[[str], int]:
    return lambda text: _in(unit)("1970-01-01T" + text)


#: A type, values of it as their numbers where it has such, and what makes one of parsed JSON.
SCALARS: list[tuple[pa.DataType, list[Any], Callable[[Any], Any]]] = [
    (pa.bool_(), [True, False], bool),
    *((kind, [0, 1, -1 if low else 1, low, high], int) for kind, low, high in (
        (pa.int8(), -128, 127), (pa.int16(), -(2**15), 2**15 - 1), (pa.int32(), -(2**31), 2**31 - 1),
        (pa.int64(), -(2**63), 2**63 - 1), (pa.uint8(), 0, 255), (pa.uint16(), 0, 2**16 - 1),
        (pa.uint32(), 0, 2**32 - 1), (pa.uint64(), 0, 2**64 - 1),
    )),
    *((kind, [0.0, -0.0, 1.5, -2.0, 1e22, math.inf, -math.inf, math.nan, least], _number) for kind, least in (
        (pa.float32(), 2.0**-149), (pa.float64(), 5e-324),
    )),
    (pa.decimal128(38, 10), [Decimal("1.10"), Decimal("-0.0000000001"), Decimal(10**27), Decimal(0)], Decimal),
    (pa.decimal128(20, 4), [Decimal("224182359528419.9806"), Decimal("-0.0001")], Decimal),
    (pa.decimal256(76, 30), [Decimal("1234567890123456789012345678901234567890.123456789")], Decimal),
    *((kind, ODD_TEXTS, str) for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()))),
    *((kind, ODD_BYTES, payload_of) for kind in (pa.binary(), pa.large_binary())),
    (pa.binary(2), [b"ab", b"\xff\0", b"\0\0"], payload_of),
    (pa.date32(), [0, -719162, 2932896], lambda text: (datetime.date.fromisoformat(text) - _DAY).days),
    *((pa.timestamp(unit, zone), [0, -1, 1, 1000, 1_000_000_000, 1_700_000_000_123], _in(unit))
      for unit in ("ms", "us", "ns") for zone in (None, "UTC")),
    (pa.timestamp("s"), [0, -1, 253402300799, -62135596800], _in("s")),
    (pa.time32("s"), [0, 86399], _clock("s")),
    (pa.time32("ms"), [0, 86399999], _clock("ms")),
    (pa.time64("us"), [0, 86399999999, 1000], _clock("us")),
    (pa.time64("ns"), [0, 86399999999999, 1000, 1000000], _clock("ns")),
]  # fmt: skip


def _same(one: Any, other: Any, kind: pa.DataType) -> bool:
    if isinstance(one, float):
        one, other = (pa.scalar(each, kind).as_py() for each in (one, other))
        return repr(one) == repr(other)
    return bool(one == other)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values).dictionary_encode()
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)


@pytest.mark.parametrize(
    ("kind", "values", "back"), SCALARS, ids=lambda each: str(each) if isinstance(each, pa.DataType) else ""
)
def test_a_value_comes_back(kind: pa.DataType, values: list[Any], back: Callable[[Any], Any]) -> None:
    """By itself, in a list, as a member, as a name and a value of a map; behind a slice, and beside nulls."""
    array = _array([*values[:1], *values, None], kind)[1:]
    texts = json_text(array).to_pylist()
    assert all("\n" not in text and text.isprintable() for text in texts)
    found = [json.loads(text, parse_float=Decimal) for text in texts]
    assert all(_same(value, back(each), kind) for value, each in zip(values, found, strict=False))
    assert found[len(values) :] == [None]
    # Each also in what nests; the text of the part is the same.
    size = len(values)
    lists = pa.ListArray.from_arrays([0, 0, size, size + 1], array)
    assert json_text(lists).to_pylist() == ["[]", f"[{','.join(texts[:-1])}]", "[null]"]
    large = pa.LargeListArray.from_arrays([0, size], array)
    assert json_text(large).to_pylist() == [f"[{','.join(texts[:-1])}]"]
    fixed = pa.FixedSizeListArray.from_arrays(array[:1], 1)
    assert json_text(fixed).to_pylist() == [f"[{texts[0]}]"]
    struct = pa.StructArray.from_arrays([array, array], names=["a", 'b"\u202e'])
    assert json_text(struct).to_pylist() == [f'{{"a":{text},"b\\"\\u202e":{text}}}' for text in texts]
    cells = plain_text(array).to_pylist()
    assert cells[-1] is None
    assert [json.loads(text) if text[0] == '"' else text for text in texts[:-1]] == cells[:-1]
    if not pa.types.is_dictionary(kind):
        pairs = pa.MapArray.from_arrays([0, size], array[:-1], array[:-1])
        (made,) = json_text(pairs).to_pylist()
        names = [name for name, _ in json.loads(made, object_pairs_hook=list)]
        assert names == cells[:-1]


def test_lengths_of_time() -> None:
    for kind, values in (
        (pa.duration("ns"), {0: "PT0S", -3_500_000_000: "PT-3.5S", 90_061_000_000_001: "PT25H1M1.000000001S",
                             -(2**63): "PT-2562047H-47M-16.854775808S"}),
        (pa.duration("s"), {60: "PT1M", -3600: "PT-1H"}),
        (pa.month_day_nano_interval(), {(1, -2, 3_500_000_000): "P1M-2DT3.5S", (0, 0, 0): "PT0S", (0, 3, 0): "P3D"}),
    ):  # fmt: skip
        array = pa.array([*values, None], kind)
        assert json_text(array).to_pylist() == [*(f'"{text}"' for text in values.values()), "null"]
        assert plain_text(array[1:]).to_pylist() == [*list(values.values())[1:], None]


def test_what_is_json_and_what_has_no_values() -> None:
    field = pa.field("x", pa.string(), metadata={b"pylogseg.role": b"json"})
    kept = ["12345678901234567890.123", "1.10", "1e400", '{"b":1,"a":2,"b":3}', '"\\u00e9"', None]
    assert json_text(pa.array(kept), field).to_pylist() == [*kept[:-1], "null"]
    assert json_text(pa.array(["[1,\n2]", '"\u202e"']), field).to_pylist() == ["[1, 2]", '"\\u202e"']
    for array, texts in (
        (pa.nulls(2), ["null", "null"]),
        (pa.array([{}, None], pa.struct([])), ["{}", "null"]),
        (pa.array([], pa.list_(pa.string())), []),
        (pa.array([], pa.string()), []),
        (pa.array([10**14], pa.timestamp("s")), ['"100000000000000 s"']),
        (pa.array([10**19 // 9], pa.timestamp("us")), ['"1111111111111111111 us"']),
        (pa.array([10**18 + 10**15], pa.timestamp("us")), ['"1001000000000000 ms"']),
    ):  # fmt: skip
        assert json_text(array).to_pylist() == texts
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array(["x", ""]), pa.array([0, 5])], ["name", "age"]
    )
    assert json_text(union).to_pylist() == ['{"name":"x","age":null}', '{"name":null,"age":5}']


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_years_that_python_does_not_have(unit: str, zone: str | None) -> None:
    """Signed as in ISO 8601, on either side of the years without a sign; what has no end is said."""
    in_seconds = {
        "-0001-12-31T23:59:59": -62167219201,
        "0000-01-01T00:00:00": -62167219200,
        "9999-12-31T23:59:59": 253402300799,
        "+10000-01-01T00:00:00": 253402300800,
        "+20000-01-01T00:00:00": 568971820800,
    }
    per_second = {"s": 1, "ms": 1000, "us": 10**6}[unit]
    values = [value * per_second for value in in_seconds.values()]
    array = pa.array([*values, 2**63 - 1, 1 - 2**63, None], pa.int64()).view(pa.timestamp(unit, zone))
    behind = ("" if unit == "s" else ".000") + ("" if zone is None else "Z")
    found = [*(text + behind for text in in_seconds), "Infinity", "-Infinity"]
    assert plain_text(array).to_pylist() == [*found, None]
    assert json_text(array).to_pylist() == [*(json.dumps(text) for text in found), "null"]
    days = pa.array([-2545375, 2932896, 2932897, 2**31 - 1, 1 - 2**31, 2**30, None], pa.int32()).view(pa.date32())
    found = ["-4999-01-01", "9999-12-31", "+10000-01-01", "Infinity", "-Infinity", f"{2**30} d"]
    assert plain_text(days).to_pylist() == [*found, None]


EVERY = {
    "type": "record", "name": "Every", "fields": [
        {"name": "many", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "raw", "type": {"type": "array", "items": "bytes"}},
        {"name": "either", "type": [
            "null", "string", {"type": "record", "name": "In", "fields": [{"name": "f", "type": "float"}]}
        ]},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}},
        {"name": "wide", "type": {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 4}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "fixed", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at", "type": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
    ],
}  # fmt: skip
_HEAD = b"\0\0\0\0\7"


def _every(random: random.Random) -> dict[str, Any]:
    numbers = [0.1, -0.0, 1e300, math.nan, math.inf, None, 5.0]
    micros = random.choice([0, -1, 1_700_000_000_123_456, 1_700_000_000_123_000])
    return {
        "many": {name: random.choice(numbers) for name in random.sample(ODD_TEXTS, 3)},
        "raw": random.sample(ODD_BYTES, 2),
        "either": random.choice([None, random.choice(ODD_TEXTS), {"f": 0.1}]),
        "paid": Decimal(random.randrange(-(10**19), 10**19)).scaleb(-4),
        "wide": Decimal(f"{random.randrange(10**45)}.{random.randrange(10**4):04}"),
        "kind": random.choice("AB"),
        "fixed": random.choice([b"ab", b"\xff\0"]),
        "day": datetime.date(1, 1, 1) + datetime.timedelta(random.randrange(3_652_058)),
        "clock": datetime.time(23, 59, 59, random.choice([0, 1000, 999_999])),
        "at": [datetime.datetime.fromtimestamp(micros // 10**6, datetime.timezone.utc)],
        "local": datetime.datetime(2026, 2, 3, 4, 5, 6, 7000),
    }


PROTO = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
message M { map<int32, bool> flags = 1; map<bool, bytes> raw = 2; google.protobuf.Duration took = 3;
            google.protobuf.Timestamp at = 4; uint64 big = 5; oneof either { string text = 6; float real = 7; }
            repeated double reals = 8; }"""
JSON = {
    "properties": {
        "id": {"type": "integer"}, "any": {}, "price": {"type": "number"},
        "lines": {"type": "array", "items": {"properties": {"what": {}, "n": {"type": "integer"}}}},
    }
}  # fmt: skip


def _plain(number: int) -> bytes:
    """A negative number as Protobuf writes it."""
    number += 1 << 64
    return bytes([number >> 7 * i & 0x7F | (0x80 if i < 9 else 0) for i in range(10)])


def _write(root: Path) -> dict[str, list[str]]:
    """A topic of each kind of schema; returns the values that are to be found, as JSON, for those that are known."""
    known: dict[str, list[str]] = {}
    chance = random.Random(7)
    schemas = {"avro": json.dumps(EVERY), "proto": PROTO, "json": json.dumps(JSON)}
    endings = {"avro": "avsc", "proto": "proto", "json": "json"}
    values = {
        "avro": encoded(EVERY, [_every(chance) for _ in range(40)]),
        "proto": [b"\0" + raw for raw in (
            b"", b"\x0a\x04\x08\x07\x10\x01", b"\x12\x06\x08\x01\x12\x02\xff\x00",
            b"\x1a\x16\x08" + _plain(-3) + b"\x10" + _plain(-500_000_000),
            b"\x22\x06\x08\x80\xe2\xcf\xaa\x06", b"\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x32\x07base64:", b"\x3d\xcd\xcc\xcc\x3d", b"\x42\x08\0\0\0\0\0\0\xf8\x7f",
        )],
        "json": [
            b'{"any":12345678901234567890.123,"price":0.1}', b'{"any":1.10}', b'{"any":1e400,"id":-0}',
            b'{"any":{"b":1, "a":2,"b":3}}',
            b'{"\\u0061ny":"\\u00e9\\n","lines":[{"what":[1.0,null],"n":1},{"what":null}]}',
            b'{"any":"base64:AAE="}',
            "{\"any\":\"\u202e\"}".encode(), b'{"any":[ ],"lines":[]}', b'{"other":{"a":1,"a":2}}',
        ],
    }  # fmt: skip
    for number, (topic, text) in enumerate(schemas.items(), 7):
        folder = root / "schemas"
        folder.mkdir(exist_ok=True, parents=True)
        (folder / f"{number}.{endings[topic]}").write_text(text)
        with pylogseg.open_log(root / f"{topic}-0") as log:
            log.append([{"key": f"k{i}".encode(), "value": b"\0\0\0\0" + bytes([number]) + value}
                        for i, value in enumerate(values[topic])])  # fmt: skip
    known["json"] = ["12345678901234567890.123", "1.10", "1e400", '{"b":1,"a":2,"b":3}', '"\\u00e9\\n"',
                     '"base64:AAE="', '"\\u202e"', "[]", "null"]  # fmt: skip
    return known


def test_every_door_has_the_same_text(tmp_path: Path) -> None:
    """What `cat` prints of a value is what SQL answers, and what Python's columns are as JSON, byte by byte."""
    pytest.importorskip("duckdb")
    disk = tmp_path / "disk"
    known = _write(disk)
    for topic, where in (("avro", "7"), ("proto", "8"), ("json", "9")):
        how = ["--value-as", "schema", "--registry", disk / "schemas", "--schema", where]
        printed = shell("cat", disk, topic, *how, "--fields", "value")
        assert (printed.code, printed.err) == (0, "")
        answered = shell("sql", disk, f"select value from {topic} order by offset", *how, "-O", "json")
        assert answered.code == 0, answered.err
        assert answered.out == printed.out
        found = shell("grep", "", disk, topic, "--empty", *how, "--fields", "value")
        assert (found.code, found.err, found.out) == (0, "", printed.out)
        assert shell("latest", disk, topic, *how, "--fields", "value").out == printed.out
        for more in ([], ["--on-undecoded", "raise"]):
            target = tmp_path / f"{topic}{len(more)}.jsonl"
            done = shell("export", disk, topic, "--out", target, *how, "--columns", "value", *more)
            assert (done.code, done.err) == (0, "")
            assert target.read_bytes() == printed.out
        lines = printed.text.splitlines()
        table = pylogseg.read_arrow(
            disk / f"{topic}-0", decoding="value", registry=disk / "schemas", schema=int(where), columns=["value"]
        ).read_all()
        column = table["value"].combine_chunks()
        texts = json_text(column, table.schema.field("value")).to_pylist()
        assert lines == [f'{{"value":{text}}}' for text in texts]
        cells = shell("sql", disk, f"select value from {topic} order by offset", *how, "-O", "csv").text
        assert cells.splitlines()[1:] == ['"' + text.replace('"', '""') + '"' for text in texts]
        for line, value in zip(lines, column.to_pylist(), strict=True):
            assert list(json.loads(line)["value"]) == list(value)
        for text, line in zip(known.get(topic, ()), lines, strict=False):
            assert f'"any":{text}' in line
    assert '"took":"PT-3.5S"' in shell("cat", disk, "proto", *how[:4], "--schema", "8").text


def test_no_calendar_has_it(tmp_path: Path) -> None:
    """Such a date or time is a value that does not decode, and ends nothing else."""
    kinds = {
        "date": [-719163, 2932897], "time-millis": [-1, 86_400_000],
        "time-micros": [-1, 86_400 * 10**6], "timestamp-millis": [-62135596800001, 253402300800000, 2**63 - 1],
        "timestamp-micros": [-62135596800000001, 253402300800000000], "local-timestamp-millis": [-(2**63)],
    }  # fmt: skip
    for number, (logical, bad) in enumerate(kinds.items(), 7):
        base = "int" if logical in ("date", "time-millis") else "long"
        schema = {"type": "array", "items": ["null", {"type": base, "logicalType": logical}]}
        (tmp_path / f"{number}.avsc").write_text(json.dumps(schema))
        edges = [value + (1 if value < 0 else -1) for value in bad[:2] if value > -(2**63)]
        with pylogseg.open_log(tmp_path / f"t{number}-0") as log:
            log.append([{"value": b"\0\0\0\0" + bytes([number]) + varint(1) + varint(1) + varint(value) + b"\0"}
                        for value in [0, *edges, *bad, 0]])  # fmt: skip
        how = {"decoding": "value", "registry": tmp_path / f"{number}.avsc", "schema": number}
        table = pylogseg.read_arrow(tmp_path / f"t{number}-0", **how).read_all()
        table.validate(full=True)
        reasons = table["valueError"].to_pylist()
        assert reasons[: 1 + len(edges)] == [None] * (1 + len(edges))
        assert [r and r.split(",")[0] for r in reasons[-1 - len(bad) :]] == [
            *["$[0]: a date or time that no calendar has"] * len(bad), None
        ]  # fmt: skip
        assert len(table["value"].to_pylist()) == table.num_rows  # Python has such dates too
