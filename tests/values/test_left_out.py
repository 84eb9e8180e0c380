"""Tests of values/internal/cluster.py, values/internal/keyed_log.py and values/internal/notes.py. What is newer than
the schemas stays raw and is counted; what is malformed is damage.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.internal_logs import Record, write_log
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.errors import CorruptionError
from pylogseg.format.messages.framing import encode_coordinator, encode_framed
from pylogseg.format.messages.schema import message
from pylogseg.values.internal.cluster import ClusterMetadata

TOPIC_ID = "A" * 21 + "Q"


def commit(partition: int, version: int = 3) -> Record:
    key = {"group": "g", "topic": "t", "partition": partition}
    return encode_coordinator("OffsetCommit", key, version, {"offset": 7})


def newer(value: bytes | None, version: int = 9) -> bytes:
    """A value with the version of a later Kafka in front, and fields that nobody knows."""
    assert value is not None
    return version.to_bytes(2, "big") + value[2:] + b"more"


def topic(name: str, version: int = 0) -> Record:
    value = bytearray(encode_framed("TopicRecord", 0, {"name": name, "topicId": TOPIC_ID}))
    value[2] = version
    return None, bytes(value)


def test_values_of_a_newer_version(tmp_path: Path) -> None:
    key, value = commit(1)
    write_log(tmp_path / "__consumer_offsets-0", [commit(0), (key, newer(value)), (b"\0\x63future", b"\0\0")])
    state = pylogseg.cluster_state(tmp_path)
    assert state.table("group_offsets").select(["partition", "offset"]).to_pylist() == [{"partition": 0, "offset": 7}]
    assert state.notes == [
        "__consumer_offsets-0: OffsetCommitValue: version 9, which is not known, were left out (1)",
        "__consumer_offsets-0: records of unknown type 99, were left out (1)",
    ]
    assert not state.notes.has_damage
    done = shell("groups", tmp_path)
    assert (done.code, done.err.count("were left out")) == (1, 2)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"\0\1\0\5g", b"\0\3", "OffsetCommitKey: the bytes end inside a field"),
        (commit(1)[0], b"\0\3\0", "OffsetCommitValue: the bytes end inside a field"),
        (commit(1)[0], b"\0", "OffsetCommitValue: it has no version"),
        (b"\0", b"\0\3", "the key has no type"),
    ],
)
def test_malformed_records_are_damage(tmp_path: Path, key: bytes, value: bytes, reason: str) -> None:
    path = write_log(tmp_path / "__consumer_offsets-0", [commit(0), (key, value)])
    done = expect(shell("groups", tmp_path), 1, f"{path}: {reason} (1, the first at offset 1)")
    assert done.text.splitlines()[1].split()[0] == "g"


def test_metadata_of_a_newer_version(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    write_log(folder, [topic("old"), topic("new", 7)])
    state = pylogseg.cluster_state(tmp_path)
    assert state.table("topics")["topic"].to_pylist() == ["old"]
    assert state.notes == [f"{folder}: records of TopicRecord, version 7, which a newer Kafka wrote, were left out (1)"]
    assert not state.notes.has_damage
    assert shell("cluster", tmp_path).code == 1
    with pytest.raises(CorruptionError, match="1 records of TopicRecord, version 7"):
        ClusterMetadata.read(str(folder))


def test_malformed_metadata_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    write_log(folder, [topic("good"), (None, b"\1\2\0\x09"), (None, b"\2\2\0")])
    state = pylogseg.cluster_state(tmp_path)
    assert state.table("topics")["topic"].to_pylist() == ["good"]
    assert [note.partition(": metadata record")[0] for note in state.notes] == [
        f"{folder}: offset 1",
        f"{folder}: offset 2",
    ]
    assert shell("cluster", tmp_path).code == 1
    with pytest.raises(CorruptionError, match="offset 1"):
        ClusterMetadata.read(str(folder))


def test_a_metadata_log_behind_its_snapshots_is_found(golden: Path, tmp_path: Path) -> None:
    source = golden / "inside" / "groups" / "data0" / "__cluster_metadata-0"
    folder = Path(shutil.copytree(source, tmp_path / source.name))
    assert shell("verify", folder).code == 0
    for path in folder.iterdir():
        if path.suffix == ".checkpoint" or path.name.startswith("00000000000000000000."):
            path.unlink()
    done = expect(shell("verify", folder, "--json"), 1)
    assert '"kind":"metadata-start"' in done.text.replace(" ", "")


def test_secrets(tmp_path: Path) -> None:
    """Passwords to Kafka are masked, of listeners too, and what Kafka does not know; its other settings are not."""
    settings = {
        "listener.name.internal.ssl.keystore.password": True,
        "listener.name.internal.scram-sha-256.sasl.jaas.config": True,
        "ssl.truststore.certificates": True,
        "my.plugin.api.token": True,
        "log.cleaner.threads": False,
        "listener.name.internal.ssl.keystore.location": False,
        "listener.name.internal.plain.connections.max.reauth.ms": False,
    }
    of = {"resourceType": 4, "resourceName": "1"}
    records = [encode_framed("ConfigRecord", 0, of | {"name": name, "value": "v"}) for name in settings]
    write_log(tmp_path / "__cluster_metadata-0", [(None, record) for record in records])
    rows = pylogseg.cluster_state(tmp_path).table("configs").to_pylist()
    assert {row["name"]: row["isSecret"] for row in rows} == settings
    assert {row["value"] for row in rows if row["isSecret"]} == {"********"}
    shown = pylogseg.cluster_state(tmp_path, show_secrets=True).table("configs").to_pylist()
    assert {row["value"] for row in shown} == {"v"}


def test_an_export_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    write_log(tmp_path / "data" / "__consumer_offsets-0", [commit(0)])
    target = tmp_path / "saved.csv"
    assert shell("groups", tmp_path / "data", "--export", target).code == 0
    assert target.read_text() == "g,t,0,7\n"
    blocked = tmp_path / "folder"
    blocked.mkdir()
    assert shell("groups", tmp_path / "data", "--export", blocked, "--overwrite").code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "folder", "saved.csv"]


def test_the_newest_version_is_known() -> None:
    """The tests above take a version that no message has."""
    assert message("OffsetCommitValue").versions.last < 9
    assert message("TopicRecord").versions.last < 7


def test_a_group_without_offsets_stays_until_it_is_deleted(tmp_path: Path) -> None:
    """As a coordinator has it: deleting the last offset leaves an empty group."""

    def gone(name: str, group: str) -> Record:
        key = {"group": group} | ({"topic": "t", "partition": 0} if name == "OffsetCommit" else {})
        return encode_coordinator(name, key)

    def of(group: str) -> Record:
        return encode_coordinator("OffsetCommit", {"group": group, "topic": "t", "partition": 0}, 3, {"offset": 7})

    records = [of("kept"), gone("OffsetCommit", "kept"), of("away"), gone("OffsetCommit", "away")]
    records += [
        gone("GroupMetadata", "away"),
        gone("GroupMetadata", "again"),
        of("again"),
        gone("OffsetCommit", "again"),
    ]
    write_log(tmp_path / "__consumer_offsets-3", records)
    rows = pylogseg.cluster_state(tmp_path).table("groups").to_pylist()
    assert [(row["group"], row["state"], row["offsets"], row["offsetsPartition"]) for row in rows] == [
        ("again", "Empty", 0, 3),
        ("kept", "Empty", 0, 3),
    ]
