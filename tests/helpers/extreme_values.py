"""Values at the ends of what their types have, in each kind of schema, and the JSON that each is: a topic of a kind."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import NamedTuple

import pylogseg
from helpers.handmade import batch, varint

FIRST_DAY, LAST_DAY, DAY_S = -719_162, 2_932_896, 86_400


class Case(NamedTuple):
    """A value of one field, all others are absent; `text` is its JSON, None where it does not decode."""

    field: str
    raw: bytes
    text: str | None
    in_table: str | None = None  #: Its JSON in a table of Delta or Iceberg, if another.
    in_sql: str | None = None  #: For duckdb, if another.
    is_cut: bool = False  #: Whether these two lack digits.


def unsigned(number: int) -> bytes:
    """A varint of Protobuf."""
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def signed(number: int) -> bytes:
    """A number of Avro."""
    return unsigned(number << 1 ^ number >> 63)


def sized(data: bytes) -> bytes:
    return signed(len(data)) + data


def _logical(name: str, base: str = "long", **more: int) -> dict[str, object]:
    return {"type": base, "logicalType": name, **more}


_AVRO_TYPES = {
    "id": "long", "real": "double", "text": "string", "raw": "bytes",
    "ms": _logical("timestamp-millis"), "us": _logical("timestamp-micros"), "ns": _logical("timestamp-nanos"),
    "local_ns": _logical("local-timestamp-nanos"), "local_us": _logical("local-timestamp-micros"),
    "day": _logical("date", "int"), "clock": _logical("time-micros"),
    "d38": _logical("decimal", "bytes", precision=38, scale=38),
    "d39": _logical("decimal", "bytes", precision=39, scale=0),
    "d76": _logical("decimal", "bytes", precision=76, scale=3),
    "d80": _logical("decimal", "bytes", precision=80, scale=3),
    "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "a"]},
}  # fmt: skip
#: Fields whose columns are text in tables; the text is JSON.
AS_TEXT = ("d39", "d76", "any")
_DIGITS = "9" * 39


def _decimal(number: int) -> bytes:
    return sized(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def _avro_cases() -> list[Case]:
    found = [Case("id", signed(n), str(n)) for n in (2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1)]
    found += [
        Case("real", struct.pack("<d", number), text)
        for number, text in (
            (float("nan"), '"NaN"'), (float("inf"), '"Infinity"'), (-float("inf"), '"-Infinity"'), (-0.0, "-0.0"),
            (5e-324, "5e-324"),
        )
    ]  # fmt: skip
    found += [Case("text", sized(raw), text) for raw, text in (
        (b"", '""'), (b"\0", '"\\u0000"'), (b"\xff", None), (b"\xed\xa0\x80", None), ("\u202e".encode(), '"\\u202e"'),
        (b"base64:AAE=", '"base64:AAE="'),
    )]  # fmt: skip
    found += [Case("raw", sized(raw), text) for raw, text in (
        (b"", '""'), (b"\0", '"\\u0000"'), (b"\xff", '"base64:/w=="'), (b"base64:", '"base64:YmFzZTY0Og=="'),
    )]  # fmt: skip
    for field, unit in (("ms", 10**3), ("us", 10**6), ("local_us", 10**6)):
        zone = "" if field == "local_us" else "Z"
        first, end = FIRST_DAY * DAY_S * unit, (LAST_DAY + 1) * DAY_S * unit
        last = "999" if unit == 1000 else "999999"
        found += [Case(field, signed(n), text) for n, text in (
            (first, f'"0001-01-01T00:00:00.000{zone}"'), (end - 1, f'"9999-12-31T23:59:59.{last}{zone}"'),
            (first - 1, None), (end, None), (2**63 - 1, None), (-(2**63), None), (1 - 2**63, None),
        )]  # fmt: skip
    for field, zone in (("ns", "Z"), ("local_ns", "")):
        found += [Case(field, signed(n), None) for n in (2**63 - 1, -(2**63), 1 - 2**63)]
        found += [
            Case(field, signed(2**63 - 2), f'"2262-04-11T23:47:16.854775806{zone}"',
                 f'"2262-04-11T23:47:16.854775{zone}"', is_cut=True),
            Case(field, signed(1000), f'"1970-01-01T00:00:00.000001{zone}"'),
        ]  # fmt: skip
    found += [Case("day", signed(n), text) for n, text in (
        (FIRST_DAY, '"0001-01-01"'), (LAST_DAY, '"9999-12-31"'), (FIRST_DAY - 1, None), (LAST_DAY + 1, None),
        (2**31 - 1, None), (-(2**31), None),
    )]  # fmt: skip
    last = DAY_S * 10**6 - 1
    found += [Case("clock", signed(n), text, table) for n, text, table in (
        (last, '"23:59:59.999999"', str(last)), (0, '"00:00:00.000"', "0"), (-1, None, None), (last + 1, None, None),
    )]  # fmt: skip
    for field, precision, text in (
        ("d38", 38, "0." + _DIGITS[:38]), ("d39", 39, _DIGITS), ("d76", 76, f"{'9' * 73}.999"),
    ):  # fmt: skip
        found += [
            Case(field, _decimal(sign * (10**precision - 1)), minus + text) for sign, minus in ((1, ""), (-1, "-"))
        ]
        found.append(Case(field, _decimal(10**precision), None))
    return [*found, Case("d80", sized(b"\1" * 34), json.dumps("\1" * 34)), Case("kind", signed(1), '"a"'),
            Case("kind", signed(2), None), Case("kind", signed(-1), None)]  # fmt: skip


_PROTO = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
enum Kind { ZERO = 0; ONE = 1; }
message M { optional uint64 u = 1; optional fixed64 f = 2; optional double real = 3; optional string text = 4;
            google.protobuf.Timestamp at = 5; google.protobuf.Duration took = 6; optional Kind kind = 7;
            optional uint32 w = 8; optional sint64 s = 9; }"""


def _moment(tag: bytes, seconds: int, nanos: int) -> bytes:
    inside = b"\x08" + unsigned(seconds) + b"\x10" + unsigned(nanos)
    return tag + bytes([len(inside)]) + inside


_PROTO_CASES = [
    Case("u", b"\x08" + unsigned(2**64 - 1), str(2**64 - 1)), Case("u", b"\x08" + unsigned(2**63), str(2**63)),
    Case("f", b"\x11" + b"\xff" * 8, str(2**64 - 1)), Case("real", b"\x19" + struct.pack("<d", float("nan")), '"NaN"'),
    Case("text", b"\x22\x01\xff", None), Case("text", b"\x22\x01\0", '"\\u0000"'), Case("text", b"\x22\0", '""'),
    Case("at", _moment(b"\x2a", 9_223_372_036, 0), None), Case("at", _moment(b"\x2a", FIRST_DAY * DAY_S, 0), None),
    Case("at", _moment(b"\x2a", -1, 1), '"1969-12-31T23:59:59.000000001Z"',
         '"1969-12-31T23:59:59.000001Z"', is_cut=True),  # towards 1970
    Case("at", _moment(b"\x2a", 1, 5000), '"1970-01-01T00:00:01.000005Z"'),
    Case("took", _moment(b"\x32", 9_223_372_036, 0), None),
    Case("took", _moment(b"\x32", 1, 1), '"PT1.000000001S"', "1000000001", '"PT1S"', is_cut=True),
    Case("took", _moment(b"\x32", -9_000_000_000, 0), '"PT-2500000H"', "-9000000000000000000"),
    Case("kind", b"\x38\x07", '"7"'), Case("w", b"\x40" + unsigned(2**32 - 1), str(2**32 - 1)),
    Case("s", b"\x48" + unsigned(2**64 - 1), str(-(2**63))),
]  # fmt: skip
_JSON = {
    "properties": {
        "id": {"type": "integer"}, "real": {"type": "number"}, "text": {"type": "string"}, "any": {},
        "list": {"type": "array", "items": {"type": "number"}},
    }
}  # fmt: skip


def _json_case(field: str, written: str, text: str | None) -> Case:
    return Case(field, f'{{"{field}":{written}}}'.encode(), text)


_JSON_CASES = [
    *(_json_case("id", text, text) for text in ("9223372036854775807", "-9223372036854775808", "9007199254740993")),
    *(_json_case("id", text, None) for text in ("9223372036854775808", "-9223372036854775809", "1.0", "1e3", '"1"')),
    _json_case("id", "-0", "0"),
    *(_json_case("real", text, None) for text in (
        "9007199254740993", "-9007199254740993", "9223372036854775807", "123456789012345678901", "1e400", "-1e400",
        "1e-400", "-1.5e-1000", "NaN", "9" * 400,
    )),
    *(_json_case("real", text, made) for text, made in (
        ("9007199254740992", "9.007199254740992e+15"), ("-0.0", "-0.0"), ("-0", "-0.0"), ("0e-400", "0"),
        ("0.1", "0.1"), ("1e22", "1e+22"), ("10000000000000000000000", "1e+22"), ("5e-324", "5e-324"),
    )),
    _json_case("list", "[1,9007199254740993]", None), _json_case("list", "[1,0,9007199254740992.0]",
                                                                 "[1,0,9.007199254740992e+15]"),
    _json_case("text", '"\\ud800"', None), _json_case("text", '"\\u0000"', '"\\u0000"'),
    _json_case("text", '"a","text":"b"', None), Case("text", b'{"text":"\xff"}', None),
    *(_json_case("any", text, text) for text in ("9007199254740993", '{"a":1,"a":2}', "1.10", "1e400")),
]  # fmt: skip

CASES = {"avro": _avro_cases(), "proto": _PROTO_CASES, "json": _JSON_CASES}
SCHEMA_IDS = {"avro": 7, "proto": 8, "json": 9}


def _avro_value(case: Case) -> bytes:
    return b"".join(b"\2" + case.raw if name == case.field else b"\0" for name in _AVRO_TYPES)


def write_topics(root: Path) -> Path:
    """Write a topic of each kind with its cases, one a record, and the schemas; return the log directory."""
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in _AVRO_TYPES.items()]
    texts = {"7.avsc": json.dumps({"type": "record", "name": "R", "fields": fields}), "8.proto": _PROTO,
             "9.json": json.dumps(_JSON)}  # fmt: skip
    (root / "schemas").mkdir(parents=True)
    for name, text in texts.items():
        (root / "schemas" / name).write_text(text)
    values = {
        "avro": [_avro_value(case) for case in CASES["avro"]],
        "proto": [b"\0" + case.raw for case in CASES["proto"]],
        "json": [case.raw for case in CASES["json"]],
    }
    for topic, number in SCHEMA_IDS.items():
        with pylogseg.open_log(root / f"{topic}-0") as log:
            log.append([(1000, b"k", b"\0\0\0\0" + bytes([number]) + value) for value in values[topic]])
    return root


#: Payloads that differ from each other as bytes, and not always as text.
ODD = [None, b"", b"\0", b"\xff", b"\xfe", b"base64:/w==", b"base64:", b"base64:!", b"a\xed\xa0\x80", "\u202e".encode()]
BASES = (0, 2**31 - 5, 2**53 - 5, 2**63 - 1 - len(ODD))


def _payload(data: bytes | None) -> bytes:
    return b"\1" if data is None else varint(len(data)) + data


def write_records(root: Path) -> Path:
    """Write a partition for each of `BASES`, with a record of each payload as key, value and in headers."""
    for number, base in enumerate(BASES):
        body = b""
        for i, odd in enumerate(ODD):
            headers = [] if odd is None else [(odd, odd), (odd, None), (b"k", b"")]
            record = b"\0\0" + varint(i) + _payload(odd) + _payload(ODD[-1 - i]) + varint(len(headers))
            record += b"".join(_payload(name) + _payload(value) for name, value in headers)
            body += varint(len(record)) + record
        folder = root / f"orders-{number}"
        folder.mkdir(parents=True)
        (folder / f"{base:020}.log").write_bytes(batch(body, len(ODD), base=base, codec=0))
    return root
