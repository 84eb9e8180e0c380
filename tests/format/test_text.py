"""Tests of _native/_text.pyx and format/text.py. Records as text: JSON lines, CSV, templates and the search for bytes,
against plain Python.
"""

from __future__ import annotations

import csv as csv_module
import io
import json

import numpy as np
import pytest
from helpers.drawn_columns import PAYLOAD, RECORDS, build
from hypothesis import given
from hypothesis import strategies as st
from reference import text as reference
from reference.text import Record

from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.batches import BATCH_DTYPE

# ---- JSON lines ----


@given(RECORDS, st.sampled_from(["text", "base64", "hex", "json"]), st.sampled_from([b"", b"\xff" * 40]))
def test_json_lines_say_what_the_records_say(records: list[Record], form: str, pad: bytes) -> None:
    fields = ("offset", "timestamp", "key", "value", "headers")
    out = bytes(text.render(build(records, pad=pad), text.json_lines(fields, key=form, value=form, header=form)))
    lines = out.decode("utf-8").split("\n")
    assert lines.pop() == ""
    # repr tells 1 from 1.0 and True, which == does not.
    assert [repr(json.loads(line)) for line in lines] == [
        repr(reference.json_object(record, form)) for record in records
    ]


@given(PAYLOAD)
def test_text_gives_every_byte_back(data: bytes) -> None:
    line = bytes(text.render(build([Record(0, 0, None, data)]), text.json_lines(("value",))))
    assert text.payload_of(json.loads(line)["value"]) == data


def test_a_line_in_full() -> None:
    rows = np.zeros(1, BATCH_DTYPE)
    for name, value in {
        "magic": 2,
        "attributes": 0x18,
        "leader_epoch": 7,
        "producer_id": 9,
        "producer_epoch": 1,
        "base_offset": 40,
        "base_sequence": 0x7FFFFFFF,
        "position": 1234,
    }.items():
        rows[name] = value
    columns = build([Record(42, 1700000000000, b"k\x01\xff", None, ((b"h", b"1"), (b"h", None)))], rows)
    fields = (
        *text.JSON_FIELDS,
        "leaderEpoch",
        "producerId",
        "producerEpoch",
        "sequence",
        "isTransactional",
        "position",
        "segment",
        "keySize",
        "valueSize",
    )
    out = bytes(text.render(columns, text.json_lines(fields, topic="orders", partition=3)))
    assert out == (
        b'{"topic":"orders","partition":3,"offset":42,"timestamp":1700000000000,"timestampType":"LogAppendTime","key":"base64:awH/",'
        b'"value":null,"headers":[{"key":"h","value":"1"},{"key":"h","value":null}],"leaderEpoch":7,"producerId":9,"producerEpoch":1,'
        b'"sequence":1,"isTransactional":true,"position":1234,"segment":null,"keySize":3,"valueSize":-1}\n'
    )


@pytest.mark.parametrize(
    ("magic", "attributes", "name"), [(0, 8, "NoTimestampType"), (1, 0, "CreateTime"), (1, 8, "LogAppendTime")]
)
def test_timestamp_types_of_old_messages(magic: int, attributes: int, name: str) -> None:
    rows = np.zeros(1, BATCH_DTYPE)
    rows["magic"], rows["attributes"] = magic, attributes
    out = bytes(
        text.render(
            build([Record(1, 2, None, None)], rows), text.json_lines(("timestampType", "sequence", "isTransactional"))
        )
    )
    assert json.loads(out) == {"timestampType": name, "sequence": -1, "isTransactional": False}


@pytest.mark.parametrize(
    "value",
    [
        0,
        9,
        10,
        99,
        100,
        999,
        1000,
        9999,
        10000,
        12345678,
        -1,
        -10,
        (1 << 63) - 1,
        -(1 << 63),
        *(10**k for k in range(19)),
    ],
)
def test_numbers(value: int) -> None:
    assert bytes(text.render(build([Record(value, 0, None, None)]), text.template("%o"))) == str(value).encode()


def test_digit_pairs() -> None:
    records = [Record(n, 0, None, None) for n in range(11000)]
    assert bytes(text.render(build(records), text.template("%o "))).split() == [b"%d" % n for n in range(11000)]


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[",
        b'"',
        b"}",
        b"]",
        b",",
        b"",
        b" ",
        b"tru",
        b"truee",
        b"nul",
        b"-",
        b"1.",
        b".5",
        b"1e",
        b"1e+",
        b"+1",
        b"01",
        b"-01",
        b'"\\x"',
        b'"\\u12g4"',
        b'"\\u123',
        b'"\t"',
        b'"a',
        b"[1 2]",
        b'{"a" 1}',
        b'{"a":}',
        b"{a:1}",
        b'{"a":1,}',
        b"[,1]",
        b"[1,]",
        b"1 2",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf1",
        b"NaN",
        b"Infinity",
        b"[1}",
        b'{"a":1]',
        b"// x\n1",
        b"'a'",
        b"\x0b1",
        b"{1:2}",
        b"[" * 513 + b"]" * 513,
    ],
)
def test_what_is_not_json_is_text(data: bytes) -> None:
    line = bytes(text.render(build([Record(0, 0, None, data)]), text.json_lines(("value",), value="json")))
    assert text.payload_of(json.loads(line)["value"]) == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"[" * 512 + b"]" * 512, None),
        (b'{"a": 1.50e+007, "a": 2}', None),
        (b'{\r\n "a": "\\n"\n}', b'{   "a": "\\n" }'),
        (b" [ ] ", None),
        (b"12345678901234567890123", None),
        (b'"\\ud800"', None),
        (b'{"":{"x":[{},[]]}}', None),
        (b"-0", None),
    ],
)
def test_json_stays_as_it_is_but_on_one_line(data: bytes, expected: bytes | None) -> None:
    line = bytes(text.render(build([Record(0, 0, None, data)]), text.json_lines(("value",), value="json")))
    assert line == b'{"value":' + (expected or data) + b"}\n"


def test_no_fields_and_wrong_fields() -> None:
    assert bytes(text.render(build([Record(0, 0, None, None)] * 2), text.json_lines(()))) == b"{}\n{}\n"
    for wrong in (("colour",), "key"):
        with pytest.raises(RequestError):
            text.json_lines(wrong)
    with pytest.raises(RequestError):
        text.json_lines(value="xml")


# ---- CSV ----


@given(RECORDS, st.sampled_from(["text", "base64", "hex"]), st.sampled_from([",", ";", "\t", "|"]))
def test_csv(records: list[Record], form: str, delimiter: str) -> None:
    program = text.csv(("topic", "offset", "key", "value"), key=form, value=form, delimiter=delimiter, topic='t"')
    between = delimiter.encode()
    expected = [
        between.join(
            [b'"t"""', b"%d" % r.offset, *(reference.csv_field(data, form, between) for data in (r.key, r.value))]
        )
        + b"\n"
        for r in records
    ]
    assert bytes(text.render(build(records), program)) == b"".join(expected)


@given(RECORDS)
def test_headers_in_csv(records: list[Record]) -> None:
    out = bytes(text.render(build(records), text.csv(("offset", "headers"))))
    rows = list(csv_module.reader(io.StringIO(out.decode(), newline=""), strict=True))
    assert [[int(offset), json.loads(headers)] for offset, headers in rows] == [
        [record.offset, reference.json_object(record, "text")["headers"]] for record in records
    ]


def test_csv_header_and_delimiters() -> None:
    assert text.csv_header(("topic", "key"), ";") == b"topic;key\n"
    for wrong in ("", ",,", "a", "-", '"', "\n", "é"):
        with pytest.raises(RequestError):
            text.csv(delimiter=wrong)
    with pytest.raises(RequestError):
        text.csv(())


# ---- templates ----


@given(RECORDS)
def test_template(records: list[Record]) -> None:
    program = text.template(r"%t-%p %o/%T[%K|%S|%R]%k=%s\x41\x7\t\r\0\\%%{%h}\q" + "é\n", topic="orders", partition=3)
    expected = b""
    for r in records:
        sizes = [-1 if data is None else len(data) for data in (r.key, r.value)]
        expected += b"orders-3 %d/%d[%d|%d|" % (r.offset, r.timestamp, *sizes) + sizes[1].to_bytes(
            4, "big", signed=True
        )
        expected += (
            b"]"
            + (r.key or b"")
            + b"="
            + (r.value or b"")
            + b"A\x07\t\r\0\\%{"
            + reference.headers_as_kcat(r)
            + b"}q\xc3\xa9\n"
        )
    assert bytes(text.render(build(records), program)) == expected


@pytest.mark.parametrize("wrong", ["%", "%z", r"\x", r"\xg", "a%\n"])
def test_templates_that_are_none(wrong: str) -> None:
    with pytest.raises(RequestError):
        text.template(wrong)


def test_template_formats_and_constants() -> None:
    columns = build([Record(0, 0, b"\xff", b"")])
    assert bytes(text.render(columns, text.template("%t%p%k|%s\\", key="hex", value="base64"))) == b"ff|\\"


# ---- search ----


@given(
    st.lists(st.none() | st.text("abAB\x00é", max_size=60).map(str.encode)),
    st.text("abABé", max_size=20).map(str.encode),
    st.booleans(),
)
def test_find(values: list[bytes | None], needle: bytes, ignore_case: bool) -> None:
    columns = build([Record(0, 0, None, value) for value in values])
    found = text.find(columns.value_place, columns.value_size, columns.sources, needle, ignore_case=ignore_case)
    if ignore_case:
        expected = [value is not None and needle.lower() in value.lower() for value in values]
    else:
        expected = [value is not None and needle in value for value in values]
    assert found.dtype == np.bool_
    assert found.tolist() == expected


@pytest.mark.parametrize("size", range(1, 40))
def test_find_at_every_place(size: int) -> None:
    needle = bytes(range(65, 65 + size))
    for before in range(40):
        values = [b"A" * before + needle, b"A" * before + needle[:-1], needle + b"A" * before]
        columns = build([Record(0, 0, None, value) for value in values])
        spans = columns.value_place, columns.value_size, columns.sources
        expected = [needle in value for value in values]
        assert text.find(*spans, needle).tolist() == expected
        assert text.find(*spans, needle.lower(), ignore_case=True).tolist() == [
            needle.lower() in value.lower() for value in values
        ]
