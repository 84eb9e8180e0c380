"""Groups of kafka-python: they join, share, commit, go on, and survive a member that dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka
import pytest
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, consumer, row_of

import pylogseg

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
TOPICS = ("codec-gzip", "codec-zstd", "txn-a", "levels")


@pytest.fixture
def server() -> Any:
    with pylogseg.serve(DATA, trace=print) as found:  # shown where a test fails
        yield found


def poll_until(clients: list[Any], done: Callable[[], bool]) -> list[Any]:
    """Poll all members in turn until something is so; returns the records."""
    rows, until = [], time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until, "no progress"
        for client in clients:
            for records in client.poll(100).values():
                rows += [row_of(record) for record in records]
    return rows


def test_a_group_goes_on_where_it_was(server: pylogseg.Server) -> None:
    wanted = assigned(server, "codec-gzip")
    with consumer(server, "codec-gzip", group_id="g", max_poll_records=100) as client:
        first = [row_of(each) for records in client.poll(PATIENCE_S * 1000).values() for each in records]
        client.commit()
    assert len(first) == 100
    rest: list[Any] = []
    with consumer(server, "codec-gzip", group_id="g") as client:
        rest += poll_until([client], lambda: bool(client.assignment()))
        rest += poll_until([client], lambda: client.position(kafka.TopicPartition("codec-gzip", 0)) >= 505)
    assert first + rest == wanted


def test_members_share_and_one_leaves(server: pylogseg.Server) -> None:
    members = [
        kafka.KafkaConsumer(
            *TOPICS, group_id="g", bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest"
        )
        for _ in range(3)
    ]
    every = {(topic, number) for topic in TOPICS for number in range(server.catalog.topics[topic].count)}

    def shares(of: list[Any]) -> list[set[tuple[str, int]]]:
        return [{tuple(each) for each in client.assignment()} for client in of]

    def is_shared(of: list[Any]) -> bool:
        found = shares(of)
        return sum(map(bool, found)) >= 2 and set().union(*found) == every and sum(map(len, found)) == len(every)

    poll_until(members, lambda: is_shared(members))
    with RawClient(server.bootstrap_servers) as client:
        (group,) = client.ask(15, 5, {"groups": ["g"]})["groups"]
        assert (group["groupState"], len(group["members"])) == ("Stable", 3)
        assert [each["groupId"] for each in client.ask(16, 4, {"statesFilter": ["stable"]})["groups"]] == ["g"]
    members.pop().close()
    poll_until(members, lambda: is_shared(members))
    for each in members:
        each.close()


def test_a_member_that_dies(server: pylogseg.Server) -> None:
    """Its partitions go to the other one after its session."""
    with consumer(server, "txn-a", "levels", group_id="g", heartbeat_interval_ms=500) as left:
        poll_until([left], lambda: len(left.assignment()) == 3)
        with RawClient(server.bootstrap_servers) as dying:
            asked = {
                "groupId": "g", "sessionTimeoutMs": 6000, "rebalanceTimeoutMs": 6000, "protocolType": "consumer",
                "protocols": [{"name": "range", "metadata": b"\0\1\0\0\0\1\0\5txn-a\xff\xff\xff\xff\0\0\0\0"}],
            }  # fmt: skip
            dying.send(11, 2, asked)
            poll_until([left], lambda: len(members_of(server, "g")) == 2)
        poll_until([left], lambda: len(members_of(server, "g")) == 1 and len(left.assignment()) == 3)


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
        assert client.ask(8, 7, asked)["topics"][0]["partitions"][0]["errorCode"] == 22
