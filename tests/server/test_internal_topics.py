"""Tests of server/writing/journal.py and server/writing/topics.py. Kafka's own topics in a broker in memory: clients
find and read there what a broker writes.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.kafka_clients import PATIENCE_S, RawClient, consumer

import pylogseg
from pylogseg.format.messages import codes
from pylogseg.format.messages.framing import decode_coordinator
from pylogseg.server.writing import topics
from pylogseg.server.writing.journal import OFFSETS, TRANSACTIONS

confluent_kafka = pytest.importorskip("confluent_kafka")

TOPICS = {"a": 1}
_COMMIT, _FIND, _METADATA = 8, 10, 3
#: Types of keys.
_OFFSET, _GROUP = 1, 2


def decoded(broker: pylogseg.Broker, topic: str) -> list[tuple[int, dict[str, Any], dict[str, Any] | None]]:
    """Return number of the type, key and value of the records; None for a tombstone."""
    found = []
    for record in broker.records(topic):
        if record.key is not None:
            key, value = decode_coordinator(topic, record.key, record.value)
            found.append((key.number, key.fields or {}, value.fields))
    return found


def commit(client: RawClient, offset: int, metadata: str = "") -> int:
    row = {"partitionIndex": 0, "committedOffset": offset, "committedMetadata": metadata}
    values = {"groupId": "g", "generationIdOrMemberEpoch": -1, "topics": [{"name": "a", "partitions": [row]}]}
    code: int = client.ask(_COMMIT, 8, values)["topics"][0]["partitions"][0]["errorCode"]
    return code


def test_offsets_and_members_of_groups(broker: pylogseg.Broker, client: RawClient) -> None:
    assert broker.topics == ["a"]  # it comes into being with the first group
    assert client.ask(_FIND, 4, {"keyType": 0, "coordinatorKeys": ["g"]})["coordinators"][0]["errorCode"] == 0
    (topic,) = client.ask(_METADATA, 12, {"topics": [{"name": OFFSETS}]})["topics"]
    assert (topic["isInternal"], len(topic["partitions"])) == (True, 50)
    broker.produce("a", b"1", b"2")
    with consumer(broker, "a", group_id="g") as reader:
        assert [next(reader).value, next(reader).value] == [b"1", b"2"]
        reader.commit()
    rows = decoded(broker, OFFSETS)
    commits = [value for number, key, value in rows if number == _OFFSET and key["group"] == "g"]
    assert [each["offset"] for each in commits if each is not None] == [2]
    members = [value["members"] for number, _, value in rows if number == _GROUP and value is not None]
    assert ({len(each) for each in members[:-1]}, members[-1]) == ({1}, [])  # it may join more than once
    assert {record.partition for record in broker.records(OFFSETS)} == {ord("g") % 50}


def test_a_pattern_finds_them_where_that_is_wanted(broker: pylogseg.Broker, client: RawClient) -> None:
    assert commit(client, 1) == 0
    for excluded in (True, False):
        with consumer(broker, group_id="g2", exclude_internal_topics=excluded) as reader:
            reader.subscribe(pattern=".*")
            while not reader.assignment():
                reader.poll(100)
            assert (OFFSETS in {each.topic for each in reader.assignment()}) is not excluded


def test_transactions(broker: pylogseg.Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("a", b"1")
    member = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    place = confluent_kafka.TopicPartition("a", 0, 7)
    producer.send_offsets_to_transaction([place], member.consumer_group_metadata(), PATIENCE_S)
    assert broker.records(OFFSETS, isolation_level="read_committed") == []
    producer.commit_transaction(PATIENCE_S)
    member.close()
    assert [row[2]["offset"] for row in decoded(broker, OFFSETS) if row[2] is not None] == [7]
    (*_, (_, key, value)) = decoded(broker, TRANSACTIONS)
    assert value is not None
    assert (key["transactionalId"], value["transactionStatus"]) == ("t", 4)  # CompleteCommit
    assert broker.committed("g") == {("a", 0): 7}


def test_they_are_compacted(broker: pylogseg.Broker, client: RawClient) -> None:
    """A broker in memory may run for days; what groups commit again and again does not pile up."""
    for offset in range(1500):
        assert commit(client, offset, "x" * 4000) == 0
    rows = decoded(broker, OFFSETS)
    assert rows[-1][2] is not None
    assert rows[-1][2]["offset"] == 1499
    assert len(rows) < 800  # of 4 KB, in segments of 1 MiB
    broker.reset()
    assert broker.topics == ["a"]


def test_they_do_not_count_as_topics_of_clients(
    broker: pylogseg.Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is full of partitions still keeps offsets."""
    monkeypatch.setattr(topics, "MOST_IN_ALL", 1)
    (row,) = client.ask(19, 5, {"topics": [{"name": "b", "numPartitions": 1, "replicationFactor": 1}]})["topics"]
    assert row["errorCode"] == codes.POLICY_VIOLATION
    assert commit(client, 1) == 0
