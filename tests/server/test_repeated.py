"""Tests of server/budget.py. What a request names thousands of times is done once, or costs as little as other rows;
the answers are Kafka's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.kafka_clients import RawClient, batch, produced
from helpers.repeated import repeated

import pylogseg
from pylogseg.server.writing.control import ReceivedRequest, Requests
from pylogseg.server.writing.handlers import WRITING
from pylogseg.server.writing.topics import Topics

#: Of each thing, and the most CPU time for these: 0.4 ms for one, on a machine that does other things beside it.
COUNT, MOST_SECONDS = 5000, 2.0
_JOINS, _SYNC, _LOGIN = 11, 14, (17, 36)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[pylogseg.Broker]:
    with pylogseg.Broker(tmp_path / "own", topics={"t": 8}) as found:
        yield found


def known(client: RawClient) -> dict[str, object]:
    """What fields are, where a topic has records, a group a member and a commit, and a transactional id a producer."""
    for _ in range(3):
        produced(client, "t", batch(*[b"v"] * 20))
    join = {"groupId": "t", "sessionTimeoutMs": 600_000, "rebalanceTimeoutMs": 1, "protocolType": "consumer",
            "protocols": [{"name": "t", "metadata": b"m"}]}  # fmt: skip
    joined = client.ask(11, 3, join)
    member = {"memberId": joined["memberId"], "generationId": joined["generationId"]}
    client.ask(14, 3, {"groupId": "t", **member, "assignments": [{"memberId": joined["memberId"], "assignment": b"x"}]})
    producer = client.ask(22, 4, {"transactionalId": "t", "transactionTimeoutMs": 60_000})
    named = {name: producer[name] for name in ("producerId", "producerEpoch")}
    topic = client.ask(3, 12, {"topics": [{"name": "t"}]})["topics"][0]
    return {
        **member, **named, "generationIdOrMemberEpoch": joined["generationId"], "topicId": topic["topicId"],
        "v3AndBelowProducerId": producer["producerId"], "v3AndBelowProducerEpoch": producer["producerEpoch"],
        "acks": 1, "offset": 3, "timestamp": -1, "count": 8, "numPartitions": 1, "replicationFactor": 1,
        "maxBytes": 1 << 20, "partitionMaxBytes": 1000, "records": batch(b"x"), "sessionEpoch": -1, "replicaId": -1,
        "resourceType": 2, "resourcePatternType": 3, "patternTypeFilter": 3, "resourceTypeFilter": 2, "operation": 2,
        "permissionType": 3, "permissionTypeFilter": 3, "principal": "User:t", "configurationKeys": "retention.ms",
        "mechanism": 1, "iterations": 4096, "timeoutMs": 1000, "currentLeaderEpoch": -1, "committedLeaderEpoch": -1,
        "committedOffset": 1, "validateOnly": True,
    }  # fmt: skip


@pytest.mark.long
def test_no_list_of_one_thing_takes_much_time(broker: pylogseg.Broker, client: RawClient) -> None:
    """Every list of every request, of a broker with files of its own."""
    answered = 0
    for case in repeated(WRITING, known(client)):
        if case.of.number in (_JOINS, _SYNC, *_LOGIN):  # a join that is served waits for others
            continue
        frame, before = case.frame(COUNT), time.process_time()
        with RawClient(broker.bootstrap_servers) as asking:
            asking.socket.sendall(frame)
            answered += asking.frame() != b""
        assert time.process_time() - before < MOST_SECONDS, case
    assert answered > 60


def test_records_of_a_partition_are_deleted_once(broker: pylogseg.Broker, client: RawClient) -> None:
    """The last offset counts, and a partition has one row, as in Kafka."""
    produced(client, "t", batch(*[b"v"] * 20))
    rows = [{"partitionIndex": 0, "offset": offset} for offset in (5, 12, 7)] + [{"partitionIndex": 9, "offset": 1}] * 2
    topics = [{"name": "t", "partitions": rows}, {"name": "t", "partitions": [{"partitionIndex": 1, "offset": 0}]}]
    (topic,) = client.ask(21, 2, {"topics": [*topics, topics[1]], "timeoutMs": 1000})["topics"]
    assert topic["name"] == "t"
    found = {row["partitionIndex"]: (row["lowWatermark"], row["errorCode"]) for row in topic["partitions"]}
    assert found == {0: (7, 0), 9: (-1, 3), 1: (0, 0)}
    assert len(topic["partitions"]) == 3


def test_each_offset_of_a_partition_takes_no_step_of_its_own(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        produced(client, "t", batch(*[b"v"] * 50))
    steps, delete = [], Topics.delete_records
    monkeypatch.setattr(Topics, "delete_records", lambda *args: (steps.append(args), delete(*args))[1])
    rows = [{"partitionIndex": 0, "offset": offset + 1} for offset in range(1000)] * 20
    (topic,) = client.ask(21, 2, {"topics": [{"name": "t", "partitions": rows}], "timeoutMs": 1000})["topics"]
    assert [row["lowWatermark"] for row in topic["partitions"]] == [1000]
    assert len(steps) == 1


def test_requests_that_are_remembered_are_bounded_in_bytes(
    broker: pylogseg.Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylogseg.server.writing.control.MOST_REQUEST_BYTES", 1 << 20)
    for number in range(20):
        client.ask(3, 4, {"topics": [{"name": f"no such topic {number} {i}"} for i in range(1000)]})
    found = broker.requests
    assert 1 <= len(found) < 10
    assert found[-1].values["topics"][0]["name"] == "no such topic 19 0"
    sizes = [sum(sys.getsizeof(row) + sys.getsizeof(row["name"]) for row in each.values["topics"]) for each in found]
    assert sum(sizes) < 1 << 20
    client.ask(3, 4, {"topics": [{"name": "x" * 100} for _ in range(10_000)]})  # more than all may take
    assert [len(each.values["topics"]) for each in broker.requests] == [10_000]
    broker.clear_requests()
    client.ask(3, 4, {"topics": []})
    assert len(broker.requests) == 1


def test_the_newest_requests_are_remembered() -> None:
    kept = Requests()
    for number in range(12_000):
        kept.add(ReceivedRequest("Metadata", number, "", {}))
    assert [each.version for each in kept.list_requests()] == [*range(2000, 12_000)]
