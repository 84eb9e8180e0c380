"""Tests of server/grouping.py. Classic groups of librdkafka: they join, share, and survive a member that leaves or
dies; offsets by requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.kafka_clients import PATIENCE_S, RawClient

import pylogseg

confluent_kafka = pytest.importorskip("confluent_kafka")

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
TOPICS = ["codec-gzip", "codec-zstd", "txn-a", "levels"]
EVERY = {("codec-gzip", 0), ("codec-zstd", 0), ("txn-a", 0), ("txn-a", 1), ("levels", 0)}


@pytest.fixture
def server() -> Iterator[pylogseg.Server]:
    with pylogseg.serve(DATA, trace=print) as found:  # shown where a test fails
        yield found


def member(server: pylogseg.Server, strategy: str = "roundrobin") -> Any:
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest",
         "partition.assignment.strategy": strategy, "heartbeat.interval.ms": 300, "log_level": 2}
    )  # fmt: skip
    client.subscribe(TOPICS)
    return client


def poll_until(clients: list[Any], done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until, f"no progress: {[client.assignment() for client in clients]}"
        for client in clients:
            message = client.poll(0.05)
            assert message is None or message.error() is None, message.error()


def is_shared(clients: list[Any]) -> bool:
    """Whether every partition has one owner, and no member has all."""
    found = [(each.topic, each.partition) for client in clients for each in client.assignment()]
    return len(found) == len(EVERY) and set(found) == EVERY and all(client.assignment() for client in clients)


@pytest.mark.parametrize("strategy", ["roundrobin", "cooperative-sticky"])
def test_members_share_and_one_leaves(server: pylogseg.Server, strategy: str) -> None:
    members = [member(server, strategy) for _ in range(3)]
    poll_until(members, lambda: is_shared(members))
    with RawClient(server.bootstrap_servers) as client:

        def described() -> tuple[str, int]:
            (group,) = client.ask(15, 5, {"groups": ["g"]})["groups"]
            return group["groupState"], len(group["members"])

        poll_until(members, lambda: described() == ("Stable", 3) and is_shared(members))
        assert [each["groupId"] for each in client.ask(16, 4, {"statesFilter": ["stable"]})["groups"]] == ["g"]
    members.pop().close()
    poll_until(members, lambda: is_shared(members))
    for each in members:
        each.close()


def test_a_member_that_dies(server: pylogseg.Server) -> None:
    """It has joined and then says nothing: its partitions go to the other one after its session."""
    left = member(server)
    poll_until([left], lambda: is_shared([left]))
    with RawClient(server.bootstrap_servers) as dying:
        asked = {
            "groupId": "g", "sessionTimeoutMs": 6000, "rebalanceTimeoutMs": 6000, "protocolType": "consumer",
            "protocols": [{"name": "roundrobin", "metadata": b"\0\1\0\0\0\1\0\5txn-a\xff\xff\xff\xff\0\0\0\0"}],
        }  # fmt: skip
        dying.send(11, 2, asked)
        poll_until([left], lambda: len(members_of(server, "g")) == 2)
    poll_until([left], lambda: len(members_of(server, "g")) == 1 and is_shared([left]))
    left.close()


def members_of(server: pylogseg.Server, group: str) -> list[Any]:
    with RawClient(server.bootstrap_servers) as client:
        members: list[Any] = client.ask(15, 5, {"groups": [group]})["groups"][0]["members"]
        return members


def test_offsets_in_every_version(server: pylogseg.Server) -> None:
    with RawClient(server.bootstrap_servers) as client:
        topic_id = server.catalog.topics["levels"].id
        for version in range(2, 11):
            one = {"partitionIndex": 0, "committedOffset": version, "committedLeaderEpoch": 0, "committedMetadata": "m"}
            topic = {"name": "levels", "topicId": topic_id, "partitions": [one]}
            asked = {"groupId": f"g{version}", "generationIdOrMemberEpoch": -1, "topics": [topic]}
            (found,) = client.ask(8, version, asked)["topics"]
            assert found["partitions"][0]["errorCode"] == 0
        for version in range(1, 11):
            topic = {"name": "levels", "topicId": topic_id, "partitionIndexes": [0, 1]}
            asked = {"groupId": "g7", "topics": [topic], "groups": [{"groupId": "g7", "topics": [topic]}]}
            answer = client.ask(9, version, asked)
            (found,) = (answer["groups"][0] if version >= 8 else answer)["topics"]
            rows = [(each["committedOffset"], each["metadata"], each["errorCode"]) for each in found["partitions"]]
            assert rows == [(7, "m", 0), (-1, "", 0)]
            if version >= 2:
                asked = {"groupId": "g7", "topics": None, "groups": [{"groupId": "g7", "topics": None}]}
                answer = client.ask(9, version, asked)
                (found,) = (answer["groups"][0] if version >= 8 else answer)["topics"]
                assert [each["committedOffset"] for each in found["partitions"]] == [7]
        asked = {"groupId": "g", "generationIdOrMemberEpoch": 3, "memberId": "m", "topics": [
            {"name": "levels", "partitions": [{"partitionIndex": 0, "committedOffset": 1}]}]}  # fmt: skip
        for version, code in ((7, 22), (8, 22), (9, 69)):  # no such group
            assert client.ask(8, version, asked)["topics"][0]["partitions"][0]["errorCode"] == code


@pytest.mark.parametrize("version", range(4, 10))
def test_a_member_that_has_no_id_yet(server: pylogseg.Server, version: int) -> None:
    """It is told one, and no protocol: null from version 7 on."""
    asked = {"groupId": "g", "sessionTimeoutMs": 6000, "rebalanceTimeoutMs": 6000, "protocolType": "consumer",
             "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
    with RawClient(server.bootstrap_servers) as client:
        answer = client.ask(11, version, asked)
    assert (answer["errorCode"], answer["protocolName"]) == (79, None if version >= 7 else "")
    assert answer["memberId"]


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_that_nobody_knows_is_described(server: pylogseg.Server, version: int) -> None:
    with RawClient(server.bootstrap_servers) as client:
        (found,) = client.ask(69, version, {"groupIds": ["nobody"]})["groups"]
    assert (found["errorCode"], found["groupEpoch"], found["assignmentEpoch"]) == (69, 0, 0)
