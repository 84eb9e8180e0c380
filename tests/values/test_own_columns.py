"""Tests of format/messages/connect.py, format/messages/secrets.py and values/internal/own_topics.py. Topics that Kafka,
Connect and a registry write for themselves, as columns: in Python, `export`, `sql` and Spark.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers.internal_logs import write_log
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.errors import CorruptionError, NotOwnError, RequestError
from pylogseg.format.messages.connect import key_parts
from pylogseg.format.messages.framing import (
    COORDINATOR_TOPICS,
    HOMES,
    decode_coordinator,
    decode_framed,
    encode_coordinator,
    encode_framed,
)
from pylogseg.format.messages.secrets import MASK
from pylogseg.values.decoding import Decoding
from pylogseg.values.internal.own_topics import JsonColumn, connect_kind

BOTH = ("key", "value")


def table(path: Path, *names: str, **how: Any) -> pa.Table:
    decoding = how.pop("decoding", BOTH)
    found = pylogseg.dataset(path, names or None, decoding=decoding, **how).to_table()
    found.validate(full=True)
    return found


def agrees(found: dict[str, Any] | None, fields: dict[str, Any] | None) -> bool:
    """Whether a struct has the fields that a version has."""
    if found is None or fields is None:
        return found is fields
    return all(found[name] == value or _agree(found[name], value) for name, value in fields.items())


def _agree(found: Any, value: Any) -> bool:
    if isinstance(value, dict):
        return agrees(found, value)
    if isinstance(value, list):
        return len(found) == len(value) and all(a == b or _agree(a, b) for a, b in zip(found, value, strict=True))
    return bool(found == value)


@pytest.mark.parametrize("topic", sorted(HOMES))
def test_each_record(group_disk: Path, topic: str) -> None:
    """What the decoder of single records says, which the lines of Kafka's tool were compared with."""
    rows = table(group_disk, topic, decoding=Decoding(BOTH, show_secrets=True)).to_pylist()
    records = list(pylogseg.read(group_disk, topic))
    assert len(rows) == len(records) > 50
    seen = set()
    for row, record in zip(rows, records, strict=True):
        if topic in COORDINATOR_TOPICS:
            key, value = decode_coordinator(topic, record.key or b"", record.value)
            assert key.message is not None
            name = key.message.name.removesuffix("Key")
            assert row["key"]["type"] == name
            assert agrees(row["key"][name], key.fields)
            assert (row["value"] is None) == (record.value is None)
            found = row["value"] and row["value"][name]
        else:
            value = decode_framed(topic, record.value or b"")
            assert value.message is not None
            name = value.message.name
            assert row["value"]["type"] == name
            found = row["value"].get(name, {})  # a message without fields is only a type
            assert row["key"] is None
        if record.value is not None:
            assert row["value"]["version"] == value.version
            assert agrees(found, value.fields), name
            assert all(item is None for other, item in row["value"].items() if other not in ("type", "version", name))
        assert row["valueError"] is None
        seen.add(name)
    assert len(seen) > 1 or topic == "__transaction_state"


def test_secrets(group_disk: Path, tmp_path: Path) -> None:
    settings = {"retention.ms": "1", "sasl.jaas.config": "p", "of.a.plugin": "q"}
    fields = [{"resourceType": 4, "resourceName": "1", "name": n, "value": v} for n, v in settings.items()]
    path = write_log(tmp_path / "__cluster_metadata-0", [(None, encode_framed("ConfigRecord", 0, f)) for f in fields])
    for show, expected in ((True, ["1", "p", "q"]), (False, [MASK] * 3)):
        values = table(path, decoding=Decoding(show_secrets=show))["value"].to_pylist()
        assert [row["ConfigRecord"]["value"] for row in values] == expected
    topic = "__cluster_metadata"
    hidden, shown = (
        table(group_disk, topic, decoding=Decoding(show_secrets=show))["value"].combine_chunks()
        for show in (False, True)
    )
    kept = [row["value"] for row in shown.field("ConfigRecord").drop_null().to_pylist()]
    seen = [row["value"] for row in hidden.field("ConfigRecord").drop_null().to_pylist()]
    assert all(a in (b, MASK) for a, b in zip(seen, kept, strict=True))
    users = hidden.field("UserScramCredentialRecord").drop_null().to_pylist()
    assert users
    assert {row[name] for row in users for name in ("salt", "storedKey", "serverKey")} == {b""}
    assert all(row["salt"] for row in shown.field("UserScramCredentialRecord").drop_null().to_pylist())


def test_what_a_newer_kafka_wrote(tmp_path: Path) -> None:
    key, value = encode_coordinator("OffsetCommit", {"group": "g", "topic": "t", "partition": 0}, 4, {"offset": 7})
    assert value is not None
    records = [
        (key, value),
        (key, None),
        (b"\0\x63x", b"\0\0"),  # type 99
        (key, b"\0\x63" + value[2:]),  # version 99
        (key, value[:5]),
        (b"", value),
        (key, value[:-1] + b"\1\x7f\1x"),  # a tagged field that is not known
    ]
    path = write_log(tmp_path / "__consumer_offsets-0", records)
    found = table(path).to_pylist()
    assert [row["value"] and row["value"]["OffsetCommit"]["offset"] for row in found] == [
        7,
        None,
        None,
        None,
        None,
        None,
        7,
    ]
    errors = [row["valueError"] for row in found]
    assert errors[:2] == [None, None]
    assert errors[2] == "type 99 is not known"
    assert errors[3] == "OffsetCommitValue: version 99 is not known"
    assert errors[4].startswith("OffsetCommitValue: ")
    assert errors[5] == "nothing says its type"
    assert "unknown bytes or tagged fields" in errors[6]
    assert [row["valueRaw"] for row in found[2:]] == [pair[1] for pair in records[2:]]
    assert [row["keyError"] is None for row in found] == [True, True, False, True, True, False, True]
    assert table(path, on_undecoded="skip").num_rows == 3  # what is understood in part stays
    with pytest.raises(CorruptionError, match=r"the key of offset 2.*type 99"):
        table(path, on_undecoded="raise")
    metadata = [(None, encode_framed("NoOpRecord", 0, {})), (None, b"\1\x63\0"), (None, b"\7")]
    found = table(write_log(tmp_path / "__cluster_metadata-0", metadata), decoding="value").to_pylist()
    assert [row["value"] and row["value"]["type"] for row in found] == ["NoOpRecord", None, None]
    assert found[1]["valueError"] == "type 99 is not known"


def test_connect(group_disk: Path) -> None:
    only = Decoding(BOTH, only_own=True)
    state = {row["connector"]: row for row in pylogseg.cluster_state(group_disk).rows("connectors")}
    rows = table(group_disk, "connect-configs", decoding=only).to_pylist()
    last = {row["key"]["name"]: row["value"] for row in rows if row["key"]["type"] == "connector"}
    for name, row in state.items():
        assert dict(last[name]["properties"]) == dict(row["config"])
    statuses = table(group_disk, "connect-status", decoding=only).to_pylist()
    tasks = {row["key"]["name"] for row in statuses if row["key"]["type"] == "status-task"}
    assert {*state} <= tasks
    (session,) = {row["value"]["others"] for row in rows if row["key"]["type"] == "session-key"} or {None}
    assert session is None or json.loads(session)["key"] == MASK
    offsets = table(group_disk, "connect-offsets", decoding=only).to_pylist()
    assert {row["key"]["connector"] for row in offsets} <= {*state}
    assert all(isinstance(json.loads(row["value"]), dict) for row in offsets if row["value"])
    assert connect_kind([pa.array([b"k", b"task-x-0"])]) is None
    made, errors = JsonColumn("config", "value", False).decode(
        pa.array([b'{"properties":{"x.password":"p","n":1}}', b"[]", b"{", b'{"tasks":"many"}', None])
    )
    assert made.to_pylist()[0]["properties"] == [("x.password", MASK), ("n", "1")]
    assert [*errors] == [1, 2, 3]
    assert key_parts("status-topic-in:connector-file") == ("status-topic", "in:connector-file", None)


def test_a_registry(golden: Path) -> None:
    group_disk = golden / "inside" / "schemas"
    found = table(group_disk, "_schemas").to_pylist()
    for row, record in zip(found, pylogseg.read(group_disk, "_schemas"), strict=True):
        for which in BOTH:
            raw, made = getattr(record, which), row[which]
            if row[f"{which}Error"] is not None:
                assert raw == row[f"{which}Raw"]
                assert raw in (b"not json", b"")
            elif raw is None:
                assert made is None
            else:
                others = json.loads(made.pop("others") or "{}")
                assert {**json.loads(raw), **others} == json.loads(raw)
                assert {name: made.get(name, others.get(name)) for name in json.loads(raw)} == json.loads(raw)


def test_only_these(group_disk: Path) -> None:
    with pytest.raises(NotOwnError, match="in is not a topic that Kafka"):
        table(group_disk, "in", decoding=Decoding(only_own=True))
    with pytest.raises(RequestError, match="different records"):
        table(group_disk, "__consumer_offsets", "__transaction_state")
    again = pickle.loads(pickle.dumps(pylogseg.dataset(group_disk, "__consumer_offsets", decoding=BOTH)))
    is_commit = pc.field("key", "type") == "OffsetCommit"
    assert 0 < again.count_rows(is_commit & (pc.field("partition") == 1)) < again.count_rows()


def test_export(group_disk: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert shell("export", group_disk, "--internal", "--out", lake).code == 0
    parts = sorted((lake / "topic=__consumer_offsets").rglob("*.parquet"))
    found = pa.concat_tables(pq.ParquetFile(path).read() for path in parts)
    expected = pylogseg.read_arrow(
        group_disk, "__consumer_offsets", decoding=BOTH, columns=["key", "value", "offset"]
    ).read_all()
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist()
    plain = next((lake / "topic=in").rglob("*.parquet"))
    assert pq.read_schema(plain).field("value").type == pa.binary()
    one = tmp_path / "one.parquet"
    assert shell("export", group_disk, "__cluster_metadata", "--internal", "--show-secrets", "--out", one).code == 0
    users = pq.read_table(one)["value"].combine_chunks().field("UserScramCredentialRecord").drop_null().to_pylist()
    assert all(row["salt"] for row in users)
    for wrong in (
        ["--internal", "--out", tmp_path / "all.parquet"],
        ["--show-secrets", "--out", tmp_path / "no"],
        ["--internal", "--value-type", "string", "--out", tmp_path / "no"],
        ["--on-undecoded", "skip", "--out", tmp_path / "no"],
    ):
        assert shell("export", group_disk, *wrong).code == 2


def test_sql(group_disk: Path) -> None:
    pytest.importorskip("duckdb")

    def asked(query: str, *options: object) -> list[dict[str, Any]]:
        done = shell("sql", group_disk, query, "--output", "json", "--internal", *options)
        assert (done.code, done.err) == (0, ""), done.err
        return done.rows

    counted = asked("select value.type as type, count(*) as n from __cluster_metadata group by 1")
    assert sum(row["n"] for row in counted) == pylogseg.dataset(group_disk, "__cluster_metadata").count_rows()
    names = asked("select value.TopicRecord.name as name from __cluster_metadata where value.type = 'TopicRecord'")
    assert {row["topic"] for row in pylogseg.cluster_state(group_disk).rows("topics")} <= {row["name"] for row in names}
    (users,) = asked("select max(octet_length(value.UserScramCredentialRecord.salt)) as n from __cluster_metadata")
    assert users == {"n": 0}
    (shown,) = asked(
        "select max(octet_length(value.UserScramCredentialRecord.salt)) as n from __cluster_metadata", "--show-secrets"
    )
    assert shown["n"] > 0
    assert asked('select value::varchar as v from "in" limit 1')[0]["v"].startswith("v")
    checkpoint = max(group_disk.rglob("__cluster_metadata-0/*.checkpoint"))
    done = shell("sql", checkpoint, "select count(*) as n from __cluster_metadata where value.type = 'TopicRecord'",
                 "--internal", "--output", "json")  # fmt: skip
    assert done.rows[0]["n"] > 0
    assert shell("sql", group_disk, "--show-secrets", "from groups").code == 2


def test_spark(spark: Any, group_disk: Path) -> None:
    options = {"subscribe": "__consumer_offsets", "decoding": "key,value"}
    frame = spark.read.format("pylogseg").options(**options).load(str(group_disk))
    rows = frame.where("key.type = 'OffsetCommit'").selectExpr(
        "key.OffsetCommit.group as g", "value.OffsetCommit.offset as o"
    )
    expected = [
        (row["key"]["OffsetCommit"]["group"], row["value"] and row["value"]["OffsetCommit"]["offset"])
        for row in table(group_disk, "__consumer_offsets").to_pylist()
        if row["key"]["type"] == "OffsetCommit"
    ]
    assert sorted(map(str, ((row.g, row.o) for row in rows.collect()))) == sorted(map(str, expected))
