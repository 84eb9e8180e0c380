"""Tests of values/internal/cluster.py. The disks of a broker of Kafka 4.4: its metadata, groups and transactions, and
that nothing on them is damage.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.config import LogConfig
from pylogseg.format.messages.framing import Part
from pylogseg.format.messages.schema import message
from pylogseg.values.internal.cluster import ClusterMetadata
from pylogseg.values.internal.image import Image


@pytest.fixture(scope="module")
def broker(golden: Path) -> Path:
    return golden / "broker-4.4" / "all"


def test_topics_and_settings_are_those_of_the_broker(broker: Path) -> None:
    said = json.loads((broker / "expected.json").read_text())["topics"]
    cluster = ClusterMetadata.read(str(broker / "data0" / "__cluster_metadata-0"))
    assert {topic: of["topicId"] for topic, of in said.items()} == {topic: cluster.topic_ids[topic] for topic in said}
    for topic, of in said.items():
        own = cluster.of_topic(topic)
        assert own == {name: of["config"][name] for name in own}, topic
    known = [known for key, known in cluster.leaders.items() if key[0] in cluster.topic_ids.values()]
    assert {each.leader for each in known} == {-1}  # the broker has said good-bye
    assert {each.isr or each.elr for each in known} == {(1,)}


@pytest.fixture(scope="module")
def state(broker: Path) -> pylogseg.ClusterState:
    return pylogseg.cluster_state(pylogseg.open_dir(broker / "data0", broker / "data1"))


@pytest.fixture(scope="module")
def said(broker: Path) -> dict[str, Any]:
    """What the broker answered."""
    found: dict[str, Any] = json.loads((broker / "expected.json").read_text())
    return found


def test_groups_are_those_of_the_broker(state: pylogseg.ClusterState, said: dict[str, Any]) -> None:
    rows = state.table("groups").to_pylist()
    told = {name: (of["type"], of["state"], of["protocol"]) for name, of in said["groups"].items()}
    assert {row["group"]: (row["type"], row["state"], row["protocolType"]) for row in rows} == told
    offsets: dict[str, dict[str, Any]] = {}
    for row in state.table("group_offsets").to_pylist():
        names = ("offset", "leaderEpoch", "metadata")
        place = f"{row['topic']}-{row['partition']}"
        offsets.setdefault(row["group"], {})[place] = {name: row[name] for name in names}
    assert offsets == {name: of["offsets"] for name, of in said["groups"].items() if of["type"] != "Share"}
    shared = {
        f"{row['topic']}-{row['partition']}": "SharePartitionOffsetInfo{{startOffset={startOffset}, "
        "leaderEpoch={leaderEpoch}, lag={lag}}}".format(**row)
        for row in state.table("share_offsets").to_pylist()
    }
    assert shared == said["groups"]["sg"]["offsets"]
    assert state.notes == []


def test_transactions_and_features_are_those_of_the_broker(state: pylogseg.ClusterState, said: dict[str, Any]) -> None:
    rows = {row["transactionalId"]: row for row in state.table("transactions").to_pylist()}
    assert rows.keys() == {each["transactionalId"] for each in said["transactions"]}
    for each in said["transactions"]:
        row = rows[each["transactionalId"]]
        assert {name: row[name] for name in each if name in row and name != "partitions"} == {
            name: of for name, of in each.items() if name in row and name != "partitions"
        }
        places = [f"{of['topic']}-{number}" for of in row["partitions"] for number in of["partitions"]]
        assert sorted(places) == sorted(each["partitions"])
    assert {row["feature"]: row["level"] for row in state.table("features").to_pylist()} == said["features"]
    assert state.notes == []


def test_nothing_is_damaged(broker: Path) -> None:
    expect(shell("verify", broker / "data0", broker / "data1"), 0)


def test_new_settings_are_known() -> None:
    text = {
        "max.decompressed.message.bytes": "1000",
        "remote.copy.lag.ms": "60000",
        "remote.copy.lag.bytes": "-1",
        "errors.deadletterqueue.group.enable": "true",
        "cleanup.policy": "",
    }
    config = LogConfig.from_properties(text)
    assert config.max_decompressed_message_bytes == 1000
    assert (config.remote_copy_lag_ms, config.remote_copy_lag_bytes) == (60000, -1)
    assert config.errors_deadletterqueue_group_enable
    assert config.cleanup_policy == ()


def test_a_controller_leaves() -> None:
    image = Image()
    for name in ("RegisterControllerRecord", "UnregisterControllerRecord"):
        of = message(name)
        image.apply(Part(of, of.number or 0, 0, {"controllerId": 7}))
        assert list(image.controllers) == ([7] if name.startswith("Register") else [])
