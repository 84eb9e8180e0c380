"""Tests of _native/_messages.pyx, format/messages/codec.py, format/messages/framing.py, format/messages/program.py,
format/messages/schema.py, format/messages/text.py and values/internal/message_arrays.py. Every message of the table, in
every version: both ways, in columns, and on bytes that lie.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.messages import VERSIONS, fields_of, lying
from hypothesis import given
from hypothesis import strategies as st

from pylogseg._native import _messages
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.messages.codec import UNKNOWN_TAGS, MalformedError, decode_message, encode_message
from pylogseg.format.messages.framing import decode_coordinator, decode_framed, encode_coordinator, encode_framed
from pylogseg.format.messages.program import decode_columns, heads, program_of
from pylogseg.format.messages.schema import by_number, message, messages
from pylogseg.format.messages.text import java_double, java_string, text_of
from pylogseg.values.internal.message_arrays import binary_spans, decode_binary, message_type


def same(a: Any, b: Any) -> bool:
    """Equal, where NaN is itself."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b)))


# ---- both ways ----


@given(which=st.sampled_from(VERSIONS), data=st.data())
def test_round_trip(which: tuple[str, int], data: st.DataObject) -> None:
    name, version = which
    of = message(name)
    fields = data.draw(fields_of(of, version))
    raw = encode_message(of, version, fields)
    found, end = decode_message(of, version, raw)
    assert end == len(raw)
    assert same(found, fields)
    assert encode_message(of, version, found) == raw
    json.loads(text_of(of, version, found).replace("NaN", "0").replace("Infinity", "1"))


@given(which=st.sampled_from(VERSIONS), data=st.data())
def test_columns_are_what_one_message_is(which: tuple[str, int], data: st.DataObject) -> None:
    name, version = which
    of = message(name)
    rows = data.draw(st.lists(st.none() | fields_of(of, version), max_size=4))
    raw = [None if row is None else encode_message(of, version, row) for row in rows]
    found, status = decode_binary(name, pa.array(raw, pa.binary()), version)
    found.validate(full=True)
    assert all(same(row or {}, wanted or {}) for row, wanted in zip(found.to_pylist(), rows, strict=True))
    assert status.tolist() == [_messages.ABSENT if row is None else 0 for row in rows]


@pytest.mark.parametrize("name", sorted(messages()))
def test_all_versions_in_one_column(name: str) -> None:
    """A column holds messages of all versions, with the defaults of the fields that one does not have."""
    of = message(name)
    versions = list(range(of.versions.first, of.versions.last + 1)) * 2
    raw = [encode_message(of, version, {}) for version in versions]
    place, size, data = binary_spans(pa.array(raw, pa.binary()))
    decoded = decode_columns(name, np.array(versions, np.int16), place, size, (data,))
    assert decoded.status.tolist() == [0] * len(versions)
    assert decoded.rest.tolist() == [0] * len(versions)


# ---- what is not known ----


def test_unknown_tags_are_kept() -> None:
    of = message("OffsetCommitValue")
    fields = {"offset": 5, "metadata": "m", "commitTimestamp": 7, UNKNOWN_TAGS: {9: b"new", 2: b""}}
    raw = encode_message(of, 4, fields)
    found, end = decode_message(of, 4, raw)
    assert (found["offset"], found[UNKNOWN_TAGS], end) == (5, {2: b"", 9: b"new"}, len(raw))
    assert encode_message(of, 4, found) == raw
    place, size, data = binary_spans(pa.array([raw], pa.binary()))
    decoded = decode_columns("OffsetCommitValue", np.array([4], np.int16), place, size, (data,))
    assert (decoded.status.tolist(), decoded.unknown_tags.tolist()) == ([0], [2])
    with pytest.raises(RequestError, match="version 3 has no field unknownTags"):
        encode_message(of, 3, {UNKNOWN_TAGS: {9: b"new"}})


def test_unknown_types_and_versions_stay_raw() -> None:
    key, value = decode_coordinator("__consumer_offsets", b"\x00\x63rest", b"\x00\x01abc")
    assert (key.message, key.number, key.fields, key.trailing) == (None, 99, None, b"rest")
    assert (value.message, value.version, value.trailing) == (None, 1, b"abc")
    raw, _ = encode_coordinator("OffsetCommit", {"group": "g", "topic": "t", "partition": 1})
    key, value = decode_coordinator("__consumer_offsets", raw, b"\x00\x09abc")
    assert key.fields == {"group": "g", "topic": "t", "partition": 1}
    assert (value.fields, value.version, value.trailing) == (None, 9, b"abc")
    part = decode_framed("__cluster_metadata", b"\x01\x02\x05future")
    assert (part.message, part.version, part.fields) == (message("TopicRecord"), 5, None)


def test_a_newer_version_stays_raw() -> None:
    raw = bytearray(encode_framed("TopicRecord", 0, {"name": "t", "topicId": "A" * 21 + "Q"}))
    raw[2] = 7
    part = decode_framed("__cluster_metadata", bytes(raw))
    assert (part.version, part.fields, part.trailing) == (7, None, bytes(raw[3:]))


def test_trailing_bytes_are_told() -> None:
    key, value = encode_coordinator("OffsetCommit", {"group": "g", "topic": "t"}, 1, {"offset": 3})
    assert value is not None
    first, second = decode_coordinator("__consumer_offsets", key + b"!", value + b"more")
    assert (first.trailing, second.trailing) == (b"!", b"more")
    place, size, data = binary_spans(pa.array([value + b"more"], pa.binary()))
    decoded = decode_columns("OffsetCommitValue", np.array([1], np.int16), place + 2, size - 2, (data,))
    assert (decoded.status.tolist(), decoded.rest.tolist()) == ([0], [4])


def test_tombstone() -> None:
    raw, none = encode_coordinator("GroupMetadata", {"group": "g"})
    assert none is None
    key, value = decode_coordinator("__consumer_offsets", raw, None)
    assert (key.fields, value.fields, value.version) == ({"group": "g"}, None, -1)


# ---- bytes that lie ----


@given(which=st.sampled_from(VERSIONS), data=st.data())
def test_cut_and_changed(which: tuple[str, int], data: st.DataObject) -> None:
    """One message and a column of them agree about what is malformed, and what is in it if it is not."""
    name, version = which
    of = message(name)
    changed = lying(data, encode_message(of, version, data.draw(fields_of(of, version))))
    found, status = decode_binary(name, pa.array([changed, None, changed], pa.binary()), version)
    found.validate(full=True)
    try:
        fields, _ = decode_message(of, version, changed)
    except MalformedError:
        assert status[0] == status[2] not in (0, _messages.ABSENT)
        assert found.to_pylist() == [None] * 3
    else:
        assert status.tolist() == [0, _messages.ABSENT, 0]
        assert same(json.loads(shown(found[2].as_py())), json.loads(shown(known(fields))))


def known(value: Any) -> Any:
    """A value without tagged fields that the table does not know: columns count them."""
    if isinstance(value, dict):
        return {name: known(item) for name, item in value.items() if name != UNKNOWN_TAGS}
    return [known(item) for item in value] if isinstance(value, list) else value


def shown(value: Any) -> str:
    """Text of a value in which bytes that were no UTF-8 are the same in both forms."""

    def plain(item: Any) -> Any:
        if isinstance(item, dict):
            return {name: plain(each) for name, each in item.items()}
        if isinstance(item, list):
            return [plain(each) for each in item]
        if isinstance(item, str):
            return item.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return item.hex() if isinstance(item, (bytes, memoryview)) else item

    return json.dumps(plain(value))


@pytest.mark.parametrize(
    ("name", "version", "raw", "reason"),
    [
        ("GroupMetadataValue", 0, b"", "protocolType: "),
        (
            "GroupMetadataValue",
            3,
            b"\0\0\0\0\0\1\xff\xff\xff\xff" + bytes(8) + b"\x7f\xff\xff\xff",
            "members: 2147483647 items",
        ),
        (
            "GroupMetadataValue",
            3,
            b"\0\0\0\0\0\1\xff\xff\xff\xff" + bytes(8) + b"\xff\xff\xff\xff",
            "members: it is null",
        ),
        (
            "GroupMetadataValue",
            3,
            b"\0\0\0\0\0\1\xff\xff\xff\xff" + bytes(8) + b"\xff\xff\xff\xfe",
            "members: a length of -2",
        ),
        ("OffsetCommitKey", 0, b"\xff\xff", "group: it is null"),
        ("OffsetCommitKey", 0, b"\0\x05ab", "group: 5 bytes are needed, 2 are left"),
        ("TopicRecord", 0, b"\xff\xff\xff\xff\x7f", "name: "),
        ("TopicRecord", 0, b"\x02t" + bytes(16) + b"\xff\xff\x03", "65535 tagged fields in 0 bytes"),
        ("TopicRecord", 0, b"\x02t" + bytes(16) + b"\x01\x00\x05", "tag 0 needs 5 bytes, 0 are left"),
        ("TopicRecord", 0, b"\x02t" + bytes(16) + b"\x02\x05\x00\x05\x00", "tag 5 comes after tag 5"),
        ("PartitionChangeRecord", 0, bytes(20) + b"\x01\x01\x05\0\0\0\1\0", "leader: 1 bytes of 5 are left over"),
        ("OffsetCommitValue", 1, bytes(8) + b"\0\1m" + bytes(9), "expireTimestamp: 8 bytes are needed, 1 are left"),
        (
            "GroupMetadataValue",
            3,
            b"\0\0\0\0\0\1\xff\xff\xff\xff" + bytes(8) + b"\0\0\0\1" + b"\0\x50m" + bytes(30),
            "members: memberId: 80 bytes are needed, 31 are left",
        ),
    ],
)
def test_reasons(name: str, version: int, raw: bytes, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        decode_message(message(name), version, raw)
    _, status = decode_binary(name, pa.array([raw]), version)
    assert _messages.REASONS[status[0]]


def test_a_list_of_nothing_takes_no_memory() -> None:
    """A count is compared with the bytes that are left, so that a few bytes never become many items."""
    of = message("PartitionRecord")
    raw = bytes(20) + b"\xff\xff\xff\xff\x0f" + bytes(40)
    with pytest.raises(MalformedError, match="replicas: 4294967294 items"):
        decode_message(of, 0, raw)
    found, status = decode_binary("PartitionRecord", pa.array([raw] * 100), 0)
    assert found.null_count == 100
    assert sum(buffer.size for child in found.flatten() for buffer in child.buffers() if buffer) < 100_000
    assert set(status.tolist()) == {4}


def test_what_a_message_left_is_taken_away() -> None:
    """After a message that breaks off in a list of lists, the next ones are whole."""
    of = message("GroupMetadataValue")
    member = {"memberId": "m", "clientId": "c", "clientHost": "h", "subscription": b"s", "assignment": b"a"}
    good = encode_message(of, 3, {"protocolType": "consumer", "members": [member] * 3})
    found, status = decode_binary("GroupMetadataValue", pa.array([good, good[:-2], good, None, good]), 3)
    found.validate(full=True)
    assert [row and len(row["members"]) for row in found.to_pylist()] == [3, None, 3, None, 3]
    assert status.tolist() == [0, 1, 0, _messages.ABSENT, 0]


def test_broken_frames() -> None:
    for key in (b"", b"\0"):
        with pytest.raises(CorruptionError, match="two bytes are needed"):
            decode_coordinator("__consumer_offsets", key, None)
    with pytest.raises(CorruptionError, match="frame version 2 is not 1"):
        decode_framed("__cluster_metadata", b"\x02\x02\x00", "file", 7)
    with pytest.raises(CorruptionError, match="metadata record of 0 bytes"):
        decode_framed("__cluster_metadata", b"")


def test_heads() -> None:
    values = pa.array(
        [b"\x01\x02\x03x", b"\x02\x02\x00", b"\x01", None, b"\x01\xff\xff\xff\x7f\x00", b"\x01\x80\x01\x05"]
    )
    place, size, data = binary_spans(values)
    found = heads(place, size, (data,), framed=True)
    assert found.number.tolist() == [2, -3, -2, -1, 32767, 128]
    assert found.version.tolist() == [3, 0, 0, 0, 0, 5]
    assert found.skip.tolist() == [3, 0, 0, 0, 0, 4]
    found = heads(place, size, (data,), framed=False)
    assert found.number.tolist() == [0x0102, 0x0202, -2, -1, 0x01FF, 0x0180]


def test_values_outside_of_their_buffer() -> None:
    place, size = np.array([0, 3, 1 << 40], np.int64), np.array([4, 4, 1], np.int32)
    decoded = decode_columns("GroupMetadataKey", np.zeros(3, np.int16), place, size, (b"\0\2abcd",))
    assert [_messages.REASONS[status] for status in decoded.status.tolist()][1:] == [
        "the value does not lie in its buffer"
    ] * 2
    assert heads(place, size, (b"\0\2abcd",), framed=False).number.tolist() == [2, -2, -2]


def test_unsound_programs_are_refused() -> None:
    plan = program_of("OffsetCommitKey")
    arrays = [np.zeros(1, kind) for kind in (np.int64, np.int32, np.int16, np.uint8, np.int32, np.int32)]
    place, size, version, status, rest, tags = arrays
    for column, value in ((0, 99), (1, 77), (1, -1)):
        ops = plan.ops.copy()
        ops[1, column] = value
        with pytest.raises(ValueError, match="not sound"):
            _messages.decode(place, size, (b"",), plan.entry, version, ops, plan.tags, plan.nodes, status, rest, tags)
    with pytest.raises(ValueError, match="differ in length"):
        _messages.decode(
            place, size, (b"",), plan.entry, version[:0], plan.ops, plan.tags, plan.nodes, status, rest, tags
        )


# ---- requests ----


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"offset": "x"}, "offset 'x': "),
        ({"offset": 1 << 63}, "offset "),
        ({"metadata": None}, "metadata: it must not be null"),
        ({"ofset": 1}, "not ofset"),
        ({"topicId": "A" * 21 + "Q"}, "version 1 has no field topicId"),
    ],
)
def test_fields_that_cannot_be_encoded(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        encode_message(message("OffsetCommitValue"), 1, fields)


@pytest.mark.parametrize("version", [3, 4])
def test_the_longest_text(version: int) -> None:
    """Kafka's limit is that of the form whose length has two bytes, in both forms and both ways."""
    of, most = message("OffsetCommitValue"), "é" * 16_383 + "x"
    raw = encode_message(of, version, {"metadata": most})
    assert decode_message(of, version, raw)[0]["metadata"] == most
    with pytest.raises(RequestError, match=r"^metadata: a text of 32,768 bytes, Kafka allows 32,767$"):
        encode_message(of, version, {"metadata": most + "x"})
    if version == 4:  # the other form cannot say more
        longer = raw.replace(b"\x80\x80\x02" + most.encode(), b"\x81\x80\x02" + most.encode() + b"x")
        with pytest.raises(MalformedError, match=r"^metadata: a text of 32,768 bytes, Kafka allows 32,767$"):
            decode_message(of, version, longer)
        found, status = decode_binary("OffsetCommitValue", pa.array([longer, raw]), version)
        assert [row and row["metadata"] for row in found.to_pylist()] == [None, most]
        assert [_messages.REASONS[each] for each in status] == ["a text of more than 32,767 bytes", ""]


def test_the_field_of_a_struct_is_named() -> None:
    """With the value, and the structs and lists around it."""
    member = {"memberId": "m", "clientId": "c", "clientHost": "h", "sessionTimeout": 1 << 40, "subscription": b""}
    with pytest.raises(RequestError, match=r"^members: sessionTimeout 1099511627776: "):
        encode_message(message("GroupMetadataValue"), 3, {"members": [member]})
    with pytest.raises(RequestError, match=r"^members: subscription 'text': .*must be bytes"):
        encode_message(
            message("GroupMetadataValue"), 3, {"members": [{**member, "sessionTimeout": 5, "subscription": "text"}]}
        )
    with pytest.raises(RequestError, match=r"^members 7: "):
        encode_message(message("GroupMetadataValue"), 3, {"members": 7})
    with pytest.raises(RequestError, match=r"^leader 'x': "):
        encode_message(message("PartitionChangeRecord"), 0, {"leader": "x"})


def test_defaults_are_of_each_message() -> None:
    """Who gets a dictionary may change it."""
    of = message("PartitionRecord")
    raw = encode_message(of, 0, {})
    decode_message(of, 0, raw)[0]["directories"].append("x")
    assert decode_message(of, 0, raw)[0]["directories"] == []


def test_names_and_versions_that_there_are_not() -> None:
    with pytest.raises(RequestError, match="Kafka has no message 'Offset'"):
        message("Offset")
    with pytest.raises(RequestError, match="OffsetCommitValue has the versions 0 to 4, not 5"):
        encode_message(message("OffsetCommitValue"), 5, {})
    with pytest.raises(RequestError, match="is not a record of the metadata log"):
        encode_framed("OffsetCommitKey", 0, {})


def test_types_of_the_topic_of_groups() -> None:
    assert sorted(by_number("group-coordinator", "coordinator-key")) == [*range(9), *range(10, 18), *range(19, 24)]
    assert message_type("OffsetCommitKey") == pa.struct(
        [pa.field("group", pa.string()), pa.field("topic", pa.string()), pa.field("partition", pa.int32())]
    )


# ---- text ----


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e7, "1.0E7"), (12.5, "12.5"), (9999999.0, "9999999.0"), (1e-3, "0.001"), (9e-4, "9.0E-4"), (-0.0, "-0.0"),
     (0.0, "0.0"), (1.5e300, "1.5E300"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, "NaN"),
     (123456789.125, "1.23456789125E8"), (-2.5e-7, "-2.5E-7")],
)  # fmt: skip
def test_java_doubles(value: float, text: str) -> None:
    assert java_double(value) == text


def test_java_strings() -> None:
    assert java_string('é"\\\x1b\n\x7f') == '"é\\"\\\\\\u001B\\n\x7f"'
    assert java_string("\\u001b") == '"\\\\u001b"'
    assert java_string("a\udcffb") == '"a�b"'
