"""Tests of format/messages/codes.py, format/messages/wire.py and server/table.py. Requests and responses as bytes: in
every version those of the policy of files, and bytes that lie.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pytest
from helpers.messages import VERSIONS, fields_of, lying
from helpers.wire_values import raw_ids
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.errors import RequestError
from pylogseg.format.messages import wire
from pylogseg.format.messages.codec import encode_message, plan_of
from pylogseg.format.messages.schema import Message, message, messages

ON_THE_WIRE = [(name, version) for name, version in VERSIONS if message(name).kind in ("request", "response")]
REQUESTS = [of for of in messages().values() if of.kind == "request"]


def plain(value: Any) -> Any:
    """A value without the difference between lists and tuples, bytes and views of them."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return repr(value) if isinstance(value, float) else bytes(value) if isinstance(value, memoryview) else value


@given(which=st.sampled_from(ON_THE_WIRE), data=st.data())
def test_both_policies_agree(which: tuple[str, int], data: st.DataObject) -> None:
    """The bytes do not depend on the policy, and come back as what they were."""
    name, version = which
    of = message(name)
    fields = data.draw(fields_of(of, version))
    raw = encode_message(of, version, fields)
    values = raw_ids(of.fields, fields)
    parts: list[bytes] = []
    plan_of(name, version, wire.CLIENTS).write(values, parts)
    assert b"".join(parts) == raw
    found, end = wire.decode_body(of, version, raw)
    assert end == len(raw)
    assert plain(found) == plain(values)
    assert plain(wire.decode_body(of, version, memoryview(raw))[0]) == plain(values)


@given(which=st.sampled_from(ON_THE_WIRE), data=st.data())
def test_cut_and_changed(which: tuple[str, int], data: st.DataObject) -> None:
    """Bytes that lie are decoded to something, or are malformed: nothing else is raised."""
    name, version = which
    of = message(name)
    changed = lying(data, encode_message(of, version, data.draw(fields_of(of, version))))
    try:
        _, end = wire.decode_body(of, version, changed)
    except wire.MalformedRequest:
        return
    assert end <= len(changed)


@pytest.mark.parametrize(
    ("name", "version", "raw", "reason"),
    [
        ("FetchRequest", 4, bytes(17) + struct.pack(">i", 2**31 - 1), "topics: 2147483647 items in 0 bytes"),
        ("FetchRequest", 4, bytes(17) + struct.pack(">ihi", 1, 9, 0), "topics: topic: 9 bytes are needed, 4 are left"),
        ("FetchRequest", 12, bytes(7), "maxWaitMs: 4 bytes are needed, 3 are left"),
        ("FetchRequest", 12, bytes(25) + b"\xff\xff\xff\xff\x0f", "topics: "),
        ("FetchRequest", 12, bytes(25) + b"\1\1\1\2\0\1\0\0\1\0", "tag 0 comes after tag 0"),
        ("FetchRequest", 12, bytes(25) + b"\1\1\1\1\0\3\1xy", "clusterId: 2 bytes of 3 are left over"),
        ("MetadataRequest", 0, struct.pack(">i", -2), "topics: a length of -2"),
        ("MetadataRequest", 12, b"\xff\xff\xff\xff\xff\xff", "topics: "),
        ("ApiVersionsRequest", 3, b"\x7f", "clientSoftwareName: 126 bytes are needed, 0 are left"),
        ("ApiVersionsRequest", 3, b"\x81\x80\x02" + bytes(2**15), "clientSoftwareName: a text of 32,768 bytes, "),
        ("ApiVersionsRequest", 3, b"\x01\x01\xff\xff\xff\xff\x0f", "4294967295 tagged fields in 0 bytes"),
    ],
)
def test_lengths_that_lie(name: str, version: int, raw: bytes, reason: str) -> None:
    with pytest.raises(wire.MalformedRequest, match=f"^{name} {version}: {reason}"):
        wire.decode_body(message(name), version, raw)


def test_what_does_not_fit_is_named() -> None:
    """An answer that a handler made wrong says where."""
    rows = [{"partitionIndex": 0, "errorCode": 1 << 20, "records": b""}]
    with pytest.raises(RequestError, match=r"^responses: partitions: errorCode 1048576: "):
        wire.answer(1, 12, 1, {"responses": [{"topic": "t", "partitions": rows}]})


class Place(NamedTuple):
    """Bytes that are somewhere else."""

    size: int


def test_holes() -> None:
    """The records of an answer are left out, and their sizes are in the lengths."""
    there = Place(1000)
    for version in range(4, 19):
        partitions = [{"partitionIndex": number, "records": records} for number, records in ((0, there), (1, b""))]
        fields = {"responses": [{"topic": "t", "topicId": bytes(range(16)), "partitions": partitions}]}
        frame = wire.answer(1, version, 7, fields)
        assert [part for part in frame if not isinstance(part, bytes)] == [there]
        whole = b"".join(part if isinstance(part, bytes) else b"r" * part.size for part in frame)
        assert struct.unpack_from(">ii", whole) == (len(whole) - 4, 7)
        of = wire.response_of(1)
        found, end = wire.decode_body(of, version, whole, 9 if of.flexible.has(version) else 8)
        assert end == len(whole)
        assert [bytes(each["records"]) for each in found["responses"][0]["partitions"]] == [b"r" * 1000, b""]


@pytest.mark.parametrize("of", REQUESTS, ids=lambda of: of.name)
def test_headers(of: Message) -> None:
    """The body begins where the header ends, in every version; an unknown version has a header all the same."""
    assert of.number is not None
    for version in range(of.versions.first, of.versions.last + 1):
        frame = wire.request(of.number, version, 5, "me", {})
        head = wire.read_header(frame[4:])
        assert head[:4] == (of.number, version, 5, "me")
        assert wire.decode_body(of, version, frame[4:], head.end)[1] == len(frame) - 4
    beyond = struct.pack(">hhih", of.number, of.versions.last + 1, 5, -1)
    assert wire.read_header(beyond) == (of.number, of.versions.last + 1, 5, None, -1)
    with pytest.raises(wire.MalformedRequest, match="header"):
        wire.read_header(beyond[:7])


def test_the_answer_to_api_versions_has_the_oldest_header() -> None:
    frame = wire.answer(wire.API_VERSIONS, 4, 9, {})
    assert wire.decode_body(wire.response_of(wire.API_VERSIONS), 4, b"".join(frame), 8)[1] == len(b"".join(frame))
