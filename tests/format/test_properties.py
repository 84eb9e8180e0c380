"""Tests of format/files/javamap.py, format/files/properties.py and format/files/status.py. Java properties text,
``meta.properties`` and the small status files.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.files.javamap import hash_of_long, hash_of_text, map_order
from pylogseg.format.files.properties import (
    MetaProperties,
    encode_meta_properties,
    encode_properties,
    parse_meta_properties,
    parse_properties,
)
from pylogseg.format.files.status import (
    PartitionMetadata,
    QuorumState,
    encode_clean_shutdown,
    encode_partition_metadata,
    encode_quorum_state,
    parse_clean_shutdown,
    parse_partition_metadata,
    parse_quorum_state,
)
from pylogseg.format.uuids import format_uuid

DATE = "Sat Nov 21 06:35:13 UTC 2026"
UUID = "Ar-1dIRgVpSS1c6WqPTtwQ"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        # What java.util.Properties of JDK 17 makes of each.
        (b"", {}),
        (b"a=b", {"a": "b"}),
        (b"a:b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        (b"  a  =  b  \n", {"a": "b  "}),
        (b"a = : b", {"a": ": b"}),
        (b"a==b", {"a": "=b"}),
        (b"=v", {"": "v"}),
        (b":", {"": ""}),
        (b"# c\n ! c\n\n \t\f\na=1", {"a": "1"}),
        (b"! x\\\na=1", {"a": "1"}),
        (b"a\rb\r\nc", {"a": "", "b": "", "c": ""}),
        (b"a=b\\\n c\n", {"a": "bc"}),
        (b"a=b\\\r\n  c", {"a": "bc"}),
        (b"a=b\\\n#c\nd=e", {"a": "b#c", "d": "e"}),
        (b"a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"a\\\n=b\n\n", {"a": "b"}),
        (b"\\\n#c\n\\\n\na", {"a": ""}),
        (b"\\", {"": ""}),
        (b"k\\", {"k": ""}),
        (b"k=v\\", {"k": "v"}),
        (b"a\\:b:c", {"a:b": "c"}),
        (b"a\\ b=c", {"a b": "c"}),
        (b"\\#a=1", {"#a": "1"}),
        (b"a=\\q\\t\\n\\r\\f\\\\", {"a": "q\t\n\r\f\\"}),
        (b"a\\u0041=\\u00e4\\uD83D\\uDE00", {"aA": "\u00e4\U0001f600"}),
        ("a=\u00e4".encode(), {"a": "\u00e4"}),
        (b"a=\xe4", {"a": "\u00e4"}),
        (b"a=1\na=2", {"a": "2"}),
    ],
)
def test_text(raw: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(raw) == expected


@pytest.mark.parametrize("raw", [b"a=1\nb=\\u00g0", b"a=1\nb=\\u12", b"a=1\nb=\\u"])
def test_bad_escapes(raw: bytes) -> None:
    with pytest.raises(CorruptionError, match="four hex digits") as caught:
        parse_properties(raw, "m.properties")
    assert (caught.value.path, caught.value.position) == ("m.properties", 4)


def test_escapes_as_java_writes_them() -> None:
    raw = encode_properties({"a b": "  lead \\ = : # ! \u00e4\u20ac"}, DATE)
    assert raw == f"#\n#{DATE}\na\\ b=\\  lead \\\\ \\= \\: \\# \\! \u00e4\u20ac\n".encode()


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=12))
def test_round_trip(properties: dict[str, str]) -> None:
    assert parse_properties(encode_properties(properties, DATE)) == properties


@given(st.binary(max_size=80) | st.text(alphabet="ab\\\\\n\r =:#!u0041\t", max_size=80).map(str.encode))
def test_any_bytes(raw: bytes) -> None:
    try:
        found = parse_properties(raw)
    except CorruptionError as error:
        assert 0 <= error.position <= len(raw)  # noqa: PT017 - few inputs are refused
    else:
        assert all(isinstance(value, str) for value in found.values())


def test_long_continued_lines_are_not_slow() -> None:
    assert parse_properties(b"k=" + b"v\\\n" * 300_000) == {"k": "v" * 300_000}


def test_java_hashes() -> None:
    assert hash_of_text("cluster.id") == sum(ord(c) * 31 ** (9 - i) for i, c in enumerate("cluster.id")) & 0xFFFFFFFF
    assert [hash_of_long(number) for number in (1, -7, 4294967297)] == [1, 6, 0]
    assert map_order([100, 1, 17, 4294967297, 33, 5, -7], hash_of_long) == [4294967297, 1, 17, 33, 100, 5, -7]


META_V1 = MetaProperties(1, "pylogsegOracleBrokerAA", 1, UUID)


def test_meta_properties_as_kafka_4_3_writes_them() -> None:
    raw = f"#\n#{DATE}\nnode.id=1\ndirectory.id={UUID}\nversion=1\ncluster.id=pylogsegOracleBrokerAA\n".encode()
    assert parse_meta_properties(raw) == META_V1
    assert encode_meta_properties(META_V1, DATE) == raw


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", MetaProperties(0)),
        (b"version=0\nbroker.id=7\n", MetaProperties(0, None, 7)),
        (b"version = 0 \nbroker.id:7\ncluster.id abc", MetaProperties(0, "abc", 7)),
        (b"broker.id=7\nnode.id=8", MetaProperties(0, None, 7)),
        (b"version=1\ncluster.id=\nnode.id=0", MetaProperties(1, "", 0)),
    ],
)
def test_meta_properties(raw: bytes, expected: MetaProperties) -> None:
    assert parse_meta_properties(raw) == expected
    assert parse_meta_properties(encode_meta_properties(expected, DATE)) == expected


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"version=2", "unknown version 2"),
        (b"version=-1", "unknown version -1"),
        (b"version=x", "version is 'x'"),
        (b"version=" + b"9" * 9000, "version is '999"),
        (b"version=1\nnode.id=1", "cluster.id is missing"),
        (b"version=1\ncluster.id=a", "node.id is missing"),
        (b"version=1\ncluster.id=a\nnode.id=2147483648", "node.id is '2147483648'"),
        (b"broker.id=", "broker.id is ''"),
        (b"directory.id=short", "directory.id: 'short' is not a UUID"),
    ],
)
def test_bad_meta_properties(raw: bytes, reason: str) -> None:
    with pytest.raises(CorruptionError, match=reason):
        parse_meta_properties(raw)


def test_meta_properties_that_cannot_be() -> None:
    for meta in [MetaProperties(2), MetaProperties(1), MetaProperties(1, "c"), MetaProperties(1, None, 1)]:
        with pytest.raises(RequestError):
            encode_meta_properties(meta, DATE)
    with pytest.raises(RequestError):
        encode_properties({}, "two\nlines")


def test_partition_metadata() -> None:
    raw = b"version: 0\ntopic_id: E18T5q29RkuTFFNuJ69DSA"
    assert parse_partition_metadata(raw) == PartitionMetadata("E18T5q29RkuTFFNuJ69DSA")
    assert encode_partition_metadata(PartitionMetadata("E18T5q29RkuTFFNuJ69DSA")) == raw
    assert parse_partition_metadata(b"version:  9\r\ntopic_id: " + UUID.encode() + b"\n").version == 9
    with pytest.raises(RequestError):
        encode_partition_metadata(PartitionMetadata("x"))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "version is ''"),
        (b"version: 0", "topic_id: ''"),
        (b"version: -1\ntopic_id: " + UUID.encode(), "version is '-1'"),
        (b"version: 0\ntopic_id: " + b"A" * 22, "reserved zero UUID"),
        (b"version: 0\nnonsense", "malformed line b'nonsense'"),
        (b"version: 0\n\xff\xfe: x", "topic_id"),
        (b"version: 0\ntopic_id: " + UUID.encode()[:-1], "not a UUID"),
    ],
)
def test_bad_partition_metadata(raw: bytes, reason: str) -> None:
    with pytest.raises(CorruptionError, match=reason):
        parse_partition_metadata(raw)


QUORUM_V1 = b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
QUORUM_V0 = (
    b'{"clusterId":"","leaderId":2,"leaderEpoch":49,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
)


def test_quorum_state() -> None:
    v1, v0 = parse_quorum_state(QUORUM_V1), parse_quorum_state(QUORUM_V0)
    assert v1 == QuorumState(1, 1, 3, -1, "A" * 22)
    assert v0 == QuorumState(0, 2, 49, -1, None, (1, 2, 3), "")
    assert (encode_quorum_state(v1), encode_quorum_state(v0)) == (QUORUM_V1, QUORUM_V0)
    with pytest.raises(RequestError):
        encode_quorum_state(v1._replace(version=2))


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"[]", b"{}", b"\xff", b"[" * 100_000, QUORUM_V1[:-1]),
        *(QUORUM_V1.replace(b"3", other) for other in (b'"3"', b"true", b"3.5", b"9" * 9000)),
        *(QUORUM_V0.replace(b'{"voterId":1}', b"1"), QUORUM_V0.replace(b'""', b"5")),
    ],
)
def test_bad_quorum_state(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        parse_quorum_state(raw)


@pytest.mark.parametrize(
    ("raw", "epoch"),
    [
        (b"", None),
        (b'{"version":0,"brokerEpoch":105}', 105),
        (b'{"version":0,"brokerEpoch":-1}', None),
        (b'{"version":3,"brokerEpoch":10,"more":1}', 10),
        (b'{"brokerEpoch":true}', None),
        (b"[1]", None),
        (b"[" * 100_000, None),
        (b"\xff\xfe", None),
    ],
)
def test_clean_shutdown(raw: bytes, epoch: int | None) -> None:
    assert parse_clean_shutdown(raw) == epoch
    assert parse_clean_shutdown(encode_clean_shutdown(epoch)) == epoch


def test_clean_shutdown_as_kafka_writes_it() -> None:
    assert encode_clean_shutdown(105) == b'{"version":0,"brokerEpoch":105}'
    assert encode_clean_shutdown(None) == b'{"version":0,"brokerEpoch":-1}'


@given(st.binary(max_size=80))
def test_any_bytes_in_status_files(raw: bytes) -> None:
    parse_clean_shutdown(raw)
    for parse in (parse_partition_metadata, parse_quorum_state, parse_meta_properties):
        try:
            parse(raw)
        except CorruptionError as error:
            assert error.position <= len(raw)  # noqa: PT017 - most inputs are refused


@given(st.binary(min_size=16, max_size=16).filter(any), st.integers(0, 9))
def test_partition_metadata_round_trip(raw: bytes, version: int) -> None:
    metadata = PartitionMetadata(format_uuid(raw), version)
    assert parse_partition_metadata(encode_partition_metadata(metadata)) == metadata


def test_corpus(corpus: Path) -> None:
    rows = json.loads((corpus / "expected.json").read_text())
    seen = set()
    for row in rows:
        path = corpus / row["path"]
        if row["kind"] == "meta.properties":
            assert parse_meta_properties(path.read_bytes(), row["path"]).node_id is not None
        elif row["kind"] == "partition.metadata":
            assert encode_partition_metadata(parse_partition_metadata(path.read_bytes())) == path.read_bytes().rstrip()
        elif row["kind"] == "quorum-state":
            assert encode_quorum_state(parse_quorum_state(path.read_bytes())) == path.read_bytes()
        elif row["kind"] == ".kafka_cleanshutdown":
            assert not row["size"] or parse_clean_shutdown(path.read_bytes()) is not None
        seen.add(row["kind"])
    assert {"meta.properties", "partition.metadata", "quorum-state", ".kafka_cleanshutdown"} <= seen


def test_golden(golden: Path) -> None:
    count = 0
    for path in golden.rglob("meta.properties"):
        raw = path.read_bytes()
        meta = parse_meta_properties(raw, str(path))
        assert encode_meta_properties(meta, raw.split(b"\n")[1][1:].decode()) == raw
        count += 1
    for path in golden.rglob("partition.metadata"):
        assert encode_partition_metadata(parse_partition_metadata(path.read_bytes())) == path.read_bytes()
        count += 1
    for path in golden.rglob("quorum-state"):
        assert encode_quorum_state(parse_quorum_state(path.read_bytes())) == path.read_bytes()
        count += 1
    for path in golden.rglob(".kafka_cleanshutdown"):
        marker = path.read_bytes()  # that of an old broker is empty
        assert marker in (b"", encode_clean_shutdown(parse_clean_shutdown(marker)))
        count += 1
    assert count > 100
