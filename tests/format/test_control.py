"""Tests of format/control.py, format/control_batches.py, format/messages/control.py and format/uuids.py. Control
records, against bytes that a real broker wrote and bytes that nobody would.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.depth import some_of
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.batches import scan
from pylogseg.format.control import ControlKind, decode_control_key
from pylogseg.format.control_batches import control_batch
from pylogseg.format.messages.control import control_kinds, decode_control, encode_control
from pylogseg.format.names import parse_file_name
from pylogseg.format.records import decode
from pylogseg.format.uuids import format_uuid, parse_uuid

i16 = st.integers(0, 2**15 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
uuids = st.binary(min_size=16, max_size=16).map(format_uuid)


def records(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries(fields)


voters_v0 = st.lists(records(voterId=i32), max_size=200)
voters_v1 = st.lists(records(voterId=i32, voterDirectoryId=uuids), max_size=4)
endpoints = st.lists(records(name=st.text(), host=st.text(max_size=300), port=st.integers(0, 65535)), max_size=3)
full_voters = st.lists(
    records(
        voterId=i32,
        voterDirectoryId=uuids,
        endpoints=endpoints,
        kRaftVersionFeature=records(minSupportedVersion=i16, maxSupportedVersion=i16),
    ),
    max_size=3,
)
zero, one = st.just(0), st.just(1)
CONTROL_RECORDS = st.one_of(
    st.tuples(st.sampled_from([ControlKind.COMMIT, ControlKind.ABORT]), records(version=zero, coordinatorEpoch=i32)),
    st.tuples(
        st.just(ControlKind.LEADER_CHANGE),
        st.one_of(
            records(version=zero, leaderId=i32, voters=voters_v0, grantingVoters=voters_v0),
            records(version=one, leaderId=i32, voters=voters_v1, grantingVoters=voters_v1),
        ),
    ),
    st.tuples(
        st.just(ControlKind.SNAPSHOT_HEADER),
        records(version=zero, lastContainedLogTimestamp=st.integers(-(2**63), 2**63 - 1)),
    ),
    st.tuples(st.just(ControlKind.SNAPSHOT_FOOTER), records(version=zero)),
    st.tuples(st.just(ControlKind.KRAFT_VERSION), records(version=zero, kRaftVersion=i16)),
    st.tuples(st.just(ControlKind.KRAFT_VOTERS), records(version=zero, voters=full_voters)),
)


@pytest.mark.parametrize("number", range(7))
def test_keys(number: int) -> None:
    key = decode_control_key(b"\0\0\0" + bytes([number]))
    assert key == (ControlKind(number), 0, number)


def test_unknown_type_is_reported() -> None:
    record = decode_control(bytes.fromhex("00000151"), b"any")
    assert record.key == (ControlKind.UNKNOWN, 0, 337)
    assert (record.fields, record.rest) == ({}, b"any")
    assert decode_control_key(b"\0\0\xff\xff").kind is ControlKind.UNKNOWN


def test_newer_versions_are_read_as_version_0() -> None:
    record = decode_control(bytes.fromhex("0005000112345678"), bytes.fromhex("0005000000030a0b"))
    assert record.key == (ControlKind.COMMIT, 5, 1)
    assert record.fields == {"version": 5, "coordinatorEpoch": 3}
    assert record.rest == b"\x0a\x0b"
    header = decode_control(bytes.fromhex("00000003"), bytes.fromhex("0007" + "000000000000002a" + "00" + "ff"))
    assert header.fields == {"version": 7, "lastContainedLogTimestamp": 42}
    assert header.rest == b"\xff"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("", "", "key of 0 bytes"),
        ("000000", "", "key of 3 bytes"),
        ("ffff0000", "000000000003", "key of version -1"),
        ("00000000", "", "ABORT value of 0 bytes"),
        ("00000001", "0000000000", "COMMIT marker of 5 bytes"),
        ("00000001", "ffff00000003", "version -1"),
        ("00000004", "ffff00", "version -1"),
        ("00000002", "000000000001" + "ffffffff0f", "voters: 4294967294 items"),
        ("00000002", "000000000001" + "ffffffffff01", "too long"),
        ("00000002", "000000000001" + "00", "voters: it is null"),
        ("00000004", "0000" + "ffffffff0f", "4294967295 tagged fields"),
        ("00000004", "0000" + "0101ffffff07", "tag 1 needs"),
        ("00000006", "000002" + "00000001" + "00" * 16 + "02" + "03ff", "voters: 1 items in 23 bytes"),
    ],
)
def test_corruption(key: str, value: str, reason: str) -> None:
    with pytest.raises(CorruptionError, match=reason) as caught:
        decode_control(bytes.fromhex(key), bytes.fromhex(value), "some.log", 77)
    assert (caught.value.path, caught.value.position) == ("some.log", 77)


def test_null_value() -> None:
    with pytest.raises(CorruptionError, match="0 bytes"):
        decode_control(b"\0\0\0\0", None)
    with pytest.raises(CorruptionError, match="key of 0 bytes"):
        decode_control(None, b"")
    with pytest.raises(CorruptionError, match="key of 0 bytes"):
        decode_control(np.empty(0, np.uint8), None)


def test_commit_marker_as_a_broker_writes_it() -> None:
    key, value = encode_control(ControlKind.COMMIT, {"coordinatorEpoch": 3})
    assert (key.hex(), value.hex()) == ("00000001", "000000000003")


def test_voters_as_kafka_4_3_writes_them() -> None:
    raw = bytes.fromhex(
        "0000" "02" "00000001" "b120e028cf04414bbeecd87e92da1ea5"
        "02" "0b434f4e54524f4c4c4552" "0a3132372e302e302e31" "736f" "00" "00000001" "00" "00" "00"
    )  # fmt: skip
    assert len(raw) == 55
    text = (
        '{"version":0,"voters":[{"voterId":1,"voterDirectoryId":"sSDgKM8EQUu-7Nh-ktoepQ",'
        '"endpoints":[{"name":"CONTROLLER","host":"127.0.0.1","port":29551}],'
        '"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}'
    )
    record = decode_control(bytes.fromhex("00000006"), raw)
    assert json.dumps(record.fields, separators=(",", ":")) == text
    assert encode_control(ControlKind.KRAFT_VOTERS, json.loads(text)) == (bytes.fromhex("00000006"), raw)


def test_leader_change_as_kafka_writes_it() -> None:
    raw = bytes.fromhex("0000" "00000001" "02" "00000001" "00" "02" "00000001" "00" "00")  # fmt: skip
    record = decode_control(bytes.fromhex("00000002"), raw)
    assert record.key.kind is ControlKind.LEADER_CHANGE
    assert record.fields == {
        "version": 0,
        "leaderId": 1,
        "voters": [{"voterId": 1}],
        "grantingVoters": [{"voterId": 1}],
    }
    assert encode_control(ControlKind.LEADER_CHANGE, record.fields)[1] == raw


def test_tagged_fields_are_passed_by() -> None:
    record = decode_control(bytes.fromhex("00000005"), bytes.fromhex("0000" + "0001" + "02" + "0001ff" + "0502abcd"))
    assert record.fields == {"version": 0, "kRaftVersion": 1}
    assert record.rest == b""


@given(st.lists(st.none() | st.binary(max_size=5) | st.integers(0, 8).map(lambda n: b"\0\0\0" + bytes([n]))))
def test_kinds_of_columns(keys: list[bytes | None]) -> None:
    raw = b"".join(control_batch(key, b"", base_offset=i, timestamp_ms=0) for i, key in enumerate(keys))  # type: ignore[arg-type]
    columns, _ = decode(scan(raw).batches, raw)
    kinds = []
    for key in keys:
        try:
            kinds.append(decode_control_key(key).kind)
        except CorruptionError:
            kinds.append(ControlKind.UNKNOWN)
    assert control_kinds(columns).tolist() == kinds


@given(CONTROL_RECORDS)
def test_round_trip(case: tuple[ControlKind, dict[str, object]]) -> None:
    kind, fields = case
    key, value = encode_control(kind, fields)
    record = decode_control(key, memoryview(value))
    assert (record.key.kind, record.fields, record.rest) == (kind, fields, b"")


@given(CONTROL_RECORDS)
def test_every_truncation_is_corruption(case: tuple[ControlKind, dict[str, object]]) -> None:
    key, value = encode_control(*case)
    for end in range(min(len(value), 400)):
        with pytest.raises(CorruptionError):
            decode_control(key, value[:end])
    for end in range(len(key)):
        with pytest.raises(CorruptionError):
            decode_control(key[:end], value)


@given(
    st.binary(max_size=8) | st.integers(0, 6).map(lambda number: b"\0\0\0" + bytes([number])), st.binary(max_size=200)
)
def test_any_bytes(key: bytes, value: bytes) -> None:
    try:
        record = decode_control(key, value)
    except CorruptionError:
        return
    assert record.key.kind in ControlKind


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ControlKind.UNKNOWN, {}),
        (ControlKind.COMMIT, {}),
        (ControlKind.COMMIT, {"coordinatorEpoch": 2**31}),
        (ControlKind.COMMIT, {"coordinatorEpoch": 1, "more": 1}),
        (ControlKind.SNAPSHOT_FOOTER, {"version": 1}),
        (ControlKind.SNAPSHOT_HEADER, {"lastContainedLogTimestamp": 2**63}),
        (ControlKind.LEADER_CHANGE, {"voters": [{"voterId": 1, "voterDirectoryId": "sSDgKM8EQUu-7Nh-ktoepQ"}]}),
        (
            ControlKind.LEADER_CHANGE,
            {"version": 1, "leaderId": 1, "voters": [{"voterId": 1, "voterDirectoryId": "x"}], "grantingVoters": []},
        ),
    ],
)
def test_records_that_cannot_be(kind: ControlKind, fields: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        encode_control(kind, fields)


@given(st.binary(min_size=16, max_size=16))
def test_uuids(raw: bytes) -> None:
    text = format_uuid(raw)
    assert len(text) == 22
    assert parse_uuid(text) == raw


def test_reserved_uuid() -> None:
    assert format_uuid(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    "text", ["", "A", "A" * 21, "A" * 23, "A" * 21 + "B", "A" * 21 + "+", "A" * 21 + "\u00e4", "A" * 20 + "=="]
)
def test_not_uuids(text: str) -> None:
    with pytest.raises(RequestError):
        parse_uuid(text)


DUMPED = re.compile(
    r" endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (-?[0-9]+)$"
    r"| (LeaderChange|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters):? ([{].*[}])$"
)


def _as_kafka_dumps_it(raw: bytes) -> Iterator[tuple[str, str]]:
    """Decode the records of one file's control batches, and write them as Kafka's tool does."""
    batches = scan(raw).batches
    columns, damage = decode(batches[batches.is_control], raw)
    assert not damage
    kinds = control_kinds(columns).tolist()
    for i in range(len(columns)):
        key, value = columns.key(i), columns.value(i)
        record = decode_control(key, value)
        assert record.key.kind == kinds[i]
        assert encode_control(record.key.kind, record.fields) == (key, value)
        if record.key.kind.ends_transaction:
            yield record.key.kind.name, str(record.fields["coordinatorEpoch"])
        else:
            name = record.key.kind.name.replace("_", "")
            yield name, json.dumps(record.fields, separators=(",", ":"))


def test_golden(golden: Path) -> None:
    found: Counter[tuple[str, str]] = Counter()
    dumped: Counter[tuple[str, str]] = Counter()
    for dump in some_of(sorted(golden.glob("broker-4.3/*/dump/*/*.txt.gz")), 80):
        folder = dump.parents[2] / dump.parent.name / dump.name.removesuffix(".txt.gz")
        if not folder.is_dir():
            continue
        for line in gzip.decompress(dump.read_bytes()).decode().splitlines():
            if match := DUMPED.search(line):
                name, value = (group for group in match.groups() if group is not None)
                dumped[name.upper(), value] += 1
        for path in folder.iterdir():
            name = parse_file_name(path.name)
            if name.kind.holds_batches and not name.suffix:
                found.update(_as_kafka_dumps_it(path.read_bytes()))
    assert found == dumped
    assert {name for name, _ in found} >= {"COMMIT", "ABORT", "LEADERCHANGE", "SNAPSHOTHEADER", "KRAFTVOTERS"}
