"""Tests of server/writing/admin.py. Changes that an administrator makes to a broker in this process: by Kafka's admin
clients, and by single requests.
"""

from __future__ import annotations

import time
from typing import Any

import kafka
import pytest
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, batch, produced
from helpers.servers import topics_of

import pylogseg
from pylogseg.format.messages import codes

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

TOPICS = {"one": 1}


def created(client: RawClient, name: str, version: int = 7, **asked: Any) -> dict[str, Any]:
    defaults = {"name": name, "numPartitions": 2, "replicationFactor": 1}
    row: dict[str, Any] = client.ask(19, version, {"topics": [{**defaults, **asked}]})["topics"][0]
    return row


def test_the_admin_client_of_librdkafka(broker: pylogseg.Broker) -> None:
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def done(futures: dict[Any, Any]) -> list[Any]:
        return [each.result(PATIENCE_S) for each in futures.values()]

    done(client.create_topics([admin.NewTopic("new", 3, 1, config={"retention.ms": "1000"})]))
    assert len(client.list_topics("new").topics["new"].partitions) == 3
    done(client.create_partitions([admin.NewPartitions("new", 5)]))
    assert len(client.list_topics("new").topics["new"].partitions) == 5
    resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, "new")
    entry = admin.ConfigEntry("max.message.bytes", "2000", incremental_operation=admin.AlterConfigOpType.SET)
    changed = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, "new", incremental_configs=[entry])
    done(client.incremental_alter_configs([changed]))
    (settings,) = done(client.describe_configs([resource]))
    assert (settings["retention.ms"].value, settings["max.message.bytes"].value) == ("1000", "2000")
    assert not settings["retention.ms"].is_read_only
    with RawClient(broker.bootstrap_servers) as raw:
        assert produced(raw, "new", batch(b"x" * 3000))["errorCode"] == codes.MESSAGE_TOO_LARGE
        assert produced(raw, "new", batch(b"x"))["baseOffset"] == 0
        assert produced(raw, "new", batch(b"y", b"z"))["baseOffset"] == 1
    (gone,) = done(client.delete_records([confluent_kafka.TopicPartition("new", 0, 2)]))
    assert gone.low_watermark == 2
    assert [row[5] for row in assigned(broker, "new")] == [b"z"]
    done(client.delete_topics(["new"]))
    assert "new" not in client.list_topics().topics


def test_the_admin_client_of_kafka_python(broker: pylogseg.Broker) -> None:
    client = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    client.create_topics({"new": {"num_partitions": 2, "replication_factor": 1}})
    assert sorted(client.list_topics()) == ["new", "one"]
    client.delete_topics(["new"])
    assert sorted(client.list_topics()) == ["one"]
    client.close()


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_made_and_deleted(broker: pylogseg.Broker, client: RawClient, version: int) -> None:
    row = created(client, "new", version, configs=[{"name": "cleanup.policy", "value": "compact"}])
    topic = broker.catalog.topics["new"]
    assert row["errorCode"] == 0
    if version >= 5:
        assert (row["numPartitions"], row["replicationFactor"]) == (2, 1)
        assert {"cleanup.policy": "compact"}.items() <= {each["name"]: each["value"] for each in row["configs"]}.items()
    if version >= 7:
        assert row["topicId"] == topic.id
    assert created(client, "new", version)["errorCode"] == codes.TOPIC_ALREADY_EXISTS
    asked = {"topics": [{"topicId": topic.id}]} if version >= 6 else {"topicNames": ["new"]}
    assert client.ask(20, min(version, 6), asked)["responses"][0]["errorCode"] == 0
    again = client.ask(20, min(version, 6), asked)["responses"][0]["errorCode"]
    assert again == (codes.UNKNOWN_TOPIC_ID if version >= 6 else codes.UNKNOWN_TOPIC_OR_PARTITION)
    assert created(client, "new", version)["errorCode"] == 0
    assert broker.catalog.topics["new"].id != topic.id


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"name": "a b"}, codes.INVALID_TOPIC),
        ({"name": "one"}, codes.TOPIC_ALREADY_EXISTS),
        ({"numPartitions": 0}, codes.INVALID_PARTITIONS),
        ({"numPartitions": -5}, codes.INVALID_PARTITIONS),
        ({"numPartitions": 2**31 - 1}, codes.INVALID_PARTITIONS),
        ({"replicationFactor": 2}, codes.INVALID_REPLICATION_FACTOR),
        ({"configs": [{"name": "no.such", "value": "1"}]}, codes.INVALID_CONFIG),
        ({"configs": [{"name": "segment.bytes", "value": "x"}]}, codes.INVALID_CONFIG),
        *(
            ({"configs": [{"name": name, "value": value}]}, codes.INVALID_CONFIG)
            for name, value in {  # a Kafka that takes the directory over would not start
                "retention.ms": "\u00a05",
                "segment.ms": "\u300060000",
                "preallocate": "true\u00a0",
                "message.timestamp.type": "\u2003LogAppendTime",
                "cleanup.policy": "\u00a0compact",
                "compression.type": "zstd\u3000",
                "min.cleanable.dirty.ratio": "0_1.0",
                "leader.replication.throttled.replicas": "1:2,*",
                "remote.storage.enable": "true",
            }.items()
        ),
        ({"assignments": [{"partitionIndex": 0, "brokerIds": [1]}]}, codes.INVALID_REQUEST),
    ],
)
def test_topics_that_are_not_made(broker: pylogseg.Broker, client: RawClient, asked: Any, code: int) -> None:
    row = created(client, **{"name": "new", **asked})
    assert row["errorCode"] == code
    assert row["errorMessage"]
    assert broker.topics == ["one"]


def test_assignments_and_checks_alone(broker: pylogseg.Broker, client: RawClient) -> None:
    def assign(*brokers: int) -> int:
        rows = [{"partitionIndex": i, "brokerIds": [each]} for i, each in enumerate(brokers)]
        asked = {"numPartitions": -1, "replicationFactor": -1, "assignments": rows}
        return int(created(client, "new", **asked)["errorCode"])

    assert assign(1, 2) == codes.INVALID_REPLICA_ASSIGNMENT
    assert assign(1, 1, 1) == 0
    assert broker.catalog.topics["new"].count == 3
    asked = {"topics": [{"name": "other", "numPartitions": 1, "replicationFactor": 1}], "validateOnly": True}
    assert client.ask(19, 7, asked)["topics"][0]["errorCode"] == 0
    assert "other" not in broker.topics
    names = {"topics": [{"name": "x", "numPartitions": 1, "replicationFactor": 1}] * 2}
    assert {each["errorCode"] for each in client.ask(19, 7, names)["topics"]} == {codes.INVALID_REQUEST}
    assert created(client, "a.b")["errorCode"] == 0
    assert created(client, "a_b")["errorCode"] == codes.INVALID_TOPIC


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_and_never_removed(broker: pylogseg.Broker, client: RawClient, version: int) -> None:
    def grow(name: str, count: int, **more: Any) -> int:
        answer = client.ask(37, version, {"topics": [{"name": name, "count": count, "assignments": None}], **more})
        return int(answer["results"][0]["errorCode"])

    assert produced(client, "one", batch(b"kept"))["errorCode"] == 0
    assert grow("none", 2) == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert grow("one", 1) == codes.INVALID_PARTITIONS
    assert grow("one", 3, validateOnly=True) == 0
    assert broker.catalog.topics["one"].count == 1
    assert grow("one", 3) == 0
    assert produced(client, "one", batch(b"new"), number=2)["errorCode"] == 0
    assert [(row[1], row[5]) for row in assigned(broker, "one")] == [(0, b"kept"), (2, b"new")]


def test_settings(broker: pylogseg.Broker, client: RawClient) -> None:
    def change(key: int, *configs: dict[str, Any], **more: Any) -> int:
        resource = {"resourceType": 2, "resourceName": "one", "configs": configs}
        return int(client.ask(key, 1, {"resources": [resource], **more})["responses"][0]["errorCode"])

    settings = broker.catalog.topics["one"]

    def changed(name: str, operation: int, value: str | None = None, **more: Any) -> int:
        return change(44, {"name": name, "configOperation": operation, "value": value}, **more)

    assert changed("retention.ms", 0, "5", validateOnly=True) == 0
    assert settings.settings == {}
    assert changed("retention.ms", 0, "5") == 0
    assert changed("cleanup.policy", 2, "compact") == 0
    assert settings.settings == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert changed("cleanup.policy", 3, "delete") == 0
    assert changed("retention.ms", 1) == 0
    assert settings.settings == {"cleanup.policy": "compact"}
    assert changed("no.such", 0, "5") == codes.INVALID_CONFIG
    assert changed("retention.ms", 0) == codes.INVALID_REQUEST
    assert changed("retention.ms", 9, "5") == codes.INVALID_REQUEST
    assert change(33, {"name": "segment.ms", "value": "7"}) == 0
    assert settings.settings == {"segment.ms": "7"}


def test_records_are_deleted(broker: pylogseg.Broker, client: RawClient) -> None:
    def delete(offset: int, topic: str = "one") -> tuple[int, int]:
        asked = {"name": topic, "partitions": [{"partitionIndex": 0, "offset": offset}]}
        row = client.ask(21, 2, {"topics": [asked], "timeoutMs": 1000})["topics"][0]["partitions"][0]
        return row["errorCode"], row["lowWatermark"]

    assert produced(client, "one", batch(b"a", b"b", b"c"))["errorCode"] == 0
    for offset in (4, -2, -5, -1001):  # of the negative ones, -1 alone says something
        assert delete(offset) == (codes.OFFSET_OUT_OF_RANGE, -1)
    assert delete(1) == (0, 1)
    assert delete(0) == (0, 1)
    assert delete(-1) == (0, 3)
    assert delete(0, "none") == (codes.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert created(client, "c", configs=[{"name": "cleanup.policy", "value": "compact"}])["errorCode"] == 0
    assert delete(0, "c") == (codes.POLICY_VIOLATION, -1)


def test_groups_are_deleted(broker: pylogseg.Broker, client: RawClient) -> None:
    def delete(group: str) -> int:
        return int(client.ask(42, 2, {"groupsNames": [group]})["results"][0]["errorCode"])

    def delete_offset(group: str) -> Any:
        asked = {"groupId": group, "topics": [{"name": "one", "partitions": [{"partitionIndex": 0}]}]}
        answer = client.ask(47, 0, asked)
        return answer["errorCode"] or answer["topics"][0]["partitions"][0]["errorCode"]

    def committed() -> int:
        topics = [{"name": "one", "partitionIndexes": [0]}]
        return int(
            client.ask(9, 7, {"groupId": "g", "topics": topics})["topics"][0]["partitions"][0]["committedOffset"]
        )

    assert (delete("g"), delete_offset("g")) == (codes.GROUP_ID_NOT_FOUND, codes.GROUP_ID_NOT_FOUND)
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    member = confluent_kafka.Consumer(options)
    member.subscribe(["one"])
    assert produced(client, "one", batch(b"a"))["errorCode"] == 0
    until = time.monotonic() + PATIENCE_S
    while member.poll(0.2) is None:
        assert time.monotonic() < until
    member.commit(asynchronous=False)
    assert committed() == 1
    assert (delete("g"), delete_offset("g")) == (codes.NON_EMPTY_GROUP, codes.GROUP_SUBSCRIBED_TO_TOPIC)
    member.close()
    assert delete_offset("g") == 0
    assert committed() == -1
    assert delete("g") == 0
    assert delete("g") == codes.GROUP_ID_NOT_FOUND


def test_offsets_of_a_deleted_topic_are_forgotten(broker: pylogseg.Broker, client: RawClient) -> None:
    rows = [{"partitionIndex": 0, "committedOffset": 5, "committedMetadata": ""}]
    answer = client.ask(8, 7, {"groupId": "g", "generationIdOrMemberEpoch": -1,
                               "topics": [{"name": "one", "partitions": rows}]})  # fmt: skip
    assert answer["topics"][0]["partitions"][0]["errorCode"] == 0
    assert client.ask(20, 5, {"topicNames": ["one"]})["responses"][0]["errorCode"] == 0
    assert client.ask(9, 7, {"groupId": "g", "topics": None})["topics"] == []


def test_sizes_of_what_is_in_memory(client: RawClient) -> None:
    data = batch(b"x" * 1000)
    assert produced(client, "one", data)["errorCode"] == 0
    (log_dir,) = client.ask(35, 4, {"topics": None})["results"]
    assert (log_dir["errorCode"], log_dir["totalBytes"], log_dir["usableBytes"]) == (0, -1, -1)
    assert log_dir["topics"][0]["partitions"][0]["partitionSize"] == len(data)


def test_groups_of_the_new_protocol_see_topics_that_come_later(
    broker: pylogseg.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer is there first; the topic is made, grows, and its partitions are shared out without another member."""
    monkeypatch.setattr("pylogseg.server.consumer_groups._HEARTBEAT_MS", 200)  # a member learns its share with one
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "group.protocol": "consumer",
               "topic.metadata.refresh.interval.ms": 100}  # fmt: skip
    member = confluent_kafka.Consumer(options)
    member.subscribe(["later"])

    def owns(count: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while len(member.assignment()) != count:
            assert time.monotonic() < until, member.assignment()
            member.poll(0.05)

    member.poll(1.0)
    topics_of(broker).make("later", 2)
    owns(2)
    topics_of(broker).add_partitions(broker.catalog.topics["later"], 3)
    owns(3)
    topics_of(broker).delete(broker.catalog.topics["later"])
    owns(0)
    member.close()


def test_partitions_of_all_topics_are_bounded(
    broker: pylogseg.Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylogseg.server.writing.topics.MOST_IN_ALL", 10)
    asked = [{"name": name, "numPartitions": 4, "replicationFactor": 1} for name in ("p", "q", "r")]
    made = client.ask(19, 7, {"topics": asked})["topics"]
    assert [each["errorCode"] for each in made] == [0, 0, codes.POLICY_VIOLATION]
    assert "there are 9 partitions already, of 10 that" in made[2]["errorMessage"]
    grown = client.ask(37, 3, {"topics": [{"name": "p", "count": 7, "assignments": None}]})["results"][0]
    assert grown["errorCode"] == codes.POLICY_VIOLATION
    topics_of(broker).delete(broker.catalog.topics["q"])
    assert client.ask(19, 7, {"topics": asked[2:]})["topics"][0]["errorCode"] == 0
