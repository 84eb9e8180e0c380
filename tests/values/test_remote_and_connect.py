"""Tests of values/internal/connectors.py and values/internal/remote.py. Segments in remote storage, and connectors: as
the broker and a Connect worker left them.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.internal_logs import write_log

import pylogseg
from pylogseg.format.messages.framing import encode_framed
from pylogseg.format.uuids import format_uuid

TOPIC_ID = "A" * 21 + "Q"
AT = {"name": "t", "id": TOPIC_ID, "partition": 0}
IDS = [format_uuid(bytes([i] * 16)) for i in range(6)]


def segment(number: int, state: int = 0) -> bytes:
    fields = {
        "remoteLogSegmentId": {"topicIdPartition": AT, "id": IDS[number]},
        "startOffset": 10 * number,
        "endOffset": 10 * number + 9,
        "brokerId": 1,
        "maxTimestampMs": 5,
        "eventTimestampMs": 6,
        "segmentLeaderEpochs": [{"leaderEpoch": 3, "offset": 10 * number}],
        "segmentSizeInBytes": 100,
        "remoteLogSegmentState": state,
    }
    return encode_framed("RemoteLogSegmentMetadataRecord", 0, fields)


def update(number: int, state: int, custom: bytes | None = None) -> bytes:
    fields = {
        "remoteLogSegmentId": {"topicIdPartition": AT, "id": IDS[number]},
        "brokerId": 2,
        "eventTimestampMs": 7,
        "customMetadata": custom,
        "remoteLogSegmentState": state,
    }
    return encode_framed("RemoteLogSegmentMetadataUpdateRecord", 0, fields)


def test_states_of_segments(tmp_path: Path) -> None:
    """A state that may not follow is passed by; what is deleted is gone."""
    values = [
        *map(segment, range(5)),
        update(0, 1, b"place"),
        update(0, 1),  # again
        update(0, 3),  # not from here
        update(1, 2),
        update(1, 1),  # no way back
        update(2, 2),
        update(2, 3),
        update(3, 3),
        update(5, 1),  # never begun
        segment(4, 1),  # a record begins with the first state
    ]
    write_log(tmp_path / "__remote_log_metadata-0", [(None, value) for value in values])
    rows = pylogseg.cluster_state(tmp_path).table("remote_segments").to_pylist()
    assert [(row["startOffset"], row["state"], row["brokerId"], row["customMetadata"]) for row in rows] == [
        (0, "COPY_SEGMENT_FINISHED", 2, b"place"),
        (10, "DELETE_SEGMENT_STARTED", 2, None),
        (30, "COPY_SEGMENT_STARTED", 1, None),
        (40, "COPY_SEGMENT_FINISHED", 1, None),
    ]
    assert (rows[0]["topic"], rows[0]["size"], rows[0]["leaderEpochs"]) == (
        "t",
        100,
        [{"leaderEpoch": 3, "offset": 0}],
    )


def test_a_partition_that_was_deleted(tmp_path: Path) -> None:
    deleted = encode_framed(
        "RemotePartitionDeleteMetadataRecord",
        0,
        {"topicIdPartition": AT, "brokerId": 1, "eventTimestampMs": 8, "remotePartitionDeleteState": 2},
    )
    values = [segment(0), segment(1), deleted, segment(2)]
    write_log(tmp_path / "__remote_log_metadata-0", [(None, value) for value in values])
    rows = pylogseg.cluster_state(tmp_path).table("remote_segments").to_pylist()
    assert [row["startOffset"] for row in rows] == [20]


def test_segments_of_a_broker(golden: Path) -> None:
    """What is there covers the topic from its start, without holes."""
    state = pylogseg.cluster_state(golden / "inside" / "groups")
    rows = [row for row in state.table("remote_segments").to_pylist() if row["state"] == "COPY_SEGMENT_FINISHED"]
    assert rows
    assert state.notes == []
    for before, after in itertools.pairwise(rows):
        if (before["topicId"], before["partition"]) == (after["topicId"], after["partition"]):
            assert after["startOffset"] == before["endOffset"] + 1


# ---- Connect ----


def test_connectors_as_the_worker_told_them(golden: Path) -> None:
    folder = golden / "inside" / "groups"
    told = json.loads((folder / "expected" / "connect" / "connectors.json").read_text())
    rows = {row["connector"]: row for row in pylogseg.cluster_state(folder).table("connectors").to_pylist()}
    assert rows.keys() == told.keys()
    states = {"STOPPED": "STOPPED", "PAUSED": "PAUSED", "RUNNING": "STARTED"}
    for name, row in rows.items():
        assert dict(row["config"]) == told[name]["info"]["config"]
        assert row["targetState"] == states[told[name]["status"]["connector"]["state"]]
        assert row["taskCount"] == len(told[name]["info"]["tasks"])
        assert len(row["tasks"]) == len(told[name]["status"]["tasks"])
        failed = [task for task in told[name]["status"]["tasks"] if task["state"] == "FAILED"]
        assert [task["trace"] for task in row["tasks"] if task["state"] == "FAILED"] == [t["trace"] for t in failed]
    offsets = json.loads((folder / "expected" / "connect" / "offsets-file-source.json").read_text())["offsets"]
    found = [
        {"partition": json.loads(each["partition"]), "offset": json.loads(each["offset"])}
        for each in rows["file-source"]["sourceOffsets"]
    ]
    assert sorted(map(str, found)) == sorted(map(str, offsets))


def connect(name: str, config: dict[str, Any]) -> tuple[bytes, bytes]:
    return f"connector-{name}".encode(), json.dumps({"properties": config}).encode()


@pytest.mark.parametrize("seed", range(3))
def test_secrets_of_connectors(tmp_path: Path, seed: int) -> None:
    secret = {
        "connection.password": "p",
        "aws.secret.access.key": "k",
        "database.history.consumer.sasl.jaas.config": "j",
        "api-key": "a",
        "oauth.token": "t",
        "connection.url": "jdbc:mysql://user:word@host/db",
        "jdbc.url": "jdbc:sqlserver://host;Password=word",
    }
    plain = {"name": "c", "key.converter": "StringConverter", "topics": "a", "tasks.max": "1", "url": "http://host/x"}
    config = list((secret | plain).items())
    random.Random(seed).shuffle(config)
    write_log(tmp_path / "our-configs-0", [connect("c", dict(config)), (b"session-key", b'{"key":"k"}')])
    (row,) = pylogseg.cluster_state(tmp_path).table("connectors").to_pylist()
    assert dict(row["config"]) == dict.fromkeys(secret, "********") | plain
    (row,) = pylogseg.cluster_state(tmp_path, show_secrets=True).table("connectors").to_pylist()
    assert dict(row["config"]) == secret | plain


def test_topics_that_are_not_connect_s(tmp_path: Path) -> None:
    write_log(tmp_path / "a-0", [connect("c", {"name": "c"}), (b"other", b"{}")])
    write_log(tmp_path / "b-0", [(None, b"{}")])
    assert pylogseg.cluster_state(tmp_path).table("connectors").num_rows == 0


def test_values_that_are_no_json_are_damage(tmp_path: Path) -> None:
    write_log(tmp_path / "c-0", [connect("c", {"name": "c"}), (b"connector-d", b"{")])
    state = pylogseg.cluster_state(tmp_path)
    assert state.table("connectors")["connector"].to_pylist() == ["c"]
    assert state.notes.has_damage
    assert "offset 1: no record of Kafka Connect" in state.notes[0]
