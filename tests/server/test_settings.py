"""Tests of format/kafka_table.py, server/configs.py, server/defaults.py and server/writing/admin.py. Settings of
topics, the broker and groups: described, changed and refused as by a Kafka 4.3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.kafka_clients import RawClient, batch, produced

import pylogseg
from pylogseg.format.messages import codes
from pylogseg.server.defaults import settings, why_invalid

TOPICS = {"one": 1}
TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def altered(
    client: RawClient, kind: int, of: str, name: str, value: str | None, operation: int = SET
) -> tuple[int, str | None]:
    config = {"name": name, "configOperation": operation, "value": value}
    resource = {"resourceType": kind, "resourceName": of, "configs": [config]}
    row = client.ask(44, 1, {"resources": [resource]})["responses"][0]
    return row["errorCode"], row["errorMessage"]


def described(client: RawClient, kind: int, of: str) -> dict[str, dict[str, Any]]:
    resource = {"resourceType": kind, "resourceName": of, "configurationKeys": None}
    row = client.ask(32, 4, {"resources": [resource], "includeSynonyms": True})["results"][0]
    assert row["errorCode"] == 0, row
    return {each["name"]: each for each in row["configs"]}


def test_no_keys_are_all_keys(client: RawClient) -> None:
    """As of a Kafka 4.3: a list that is empty, and one that is not there."""
    counts = []
    for keys in (None, [], ["retention.ms"]):
        resource = {"resourceType": TOPIC, "resourceName": "one", "configurationKeys": keys}
        counts.append(len(client.ask(32, 4, {"resources": [resource]})["results"][0]["configs"]))
    assert counts[0] == counts[1] > counts[2] == 1


def chain(row: dict[str, Any]) -> list[tuple[str, str, int]]:
    assert (row["value"], row["configSource"]) == (row["synonyms"][0]["value"], row["synonyms"][0]["source"])
    return [(each["name"], each["value"], each["source"]) for each in row["synonyms"]]


#: What a Kafka 4.3.0 answers.
WORDS = [
    (TOPIC, "one", "bad.option", "1", SET, 40, "Unknown topic config name: bad.option"),
    (TOPIC, "one", "retention_ms", "1", SET, 40, "Unknown topic config name: retention_ms"),
    (TOPIC, "one", "retention.ms", "abc", SET, 40,
     "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    (TOPIC, "one", "retention.ms", "99999999999999999999", SET, 40,
     "Invalid value 99999999999999999999 for configuration retention.ms: Not a number of type LONG"),
    (TOPIC, "one", "retention.ms", "-5", SET, 40,
     "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
    (TOPIC, "one", "max.message.bytes", "3000000000", SET, 40,
     "Invalid value 3000000000 for configuration max.message.bytes: Not a number of type INT"),
    (TOPIC, "one", "compression.gzip.level", "0", SET, 40,
     "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"),
    (TOPIC, "one", "compression.zstd.level", "23", SET, 40,
     "Invalid value 23 for configuration compression.zstd.level: Value must be no more than 22"),
    (TOPIC, "one", "min.cleanable.dirty.ratio", "2", SET, 40,
     "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"),
    (TOPIC, "one", "preallocate", "x", SET, 40,
     "Invalid value x for configuration preallocate: Expected value to be either true or false"),
    (TOPIC, "one", "cleanup.policy", "x", SET, 40,
     "Invalid value x for configuration cleanup.policy: String must be one of: compact, delete"),
    (TOPIC, "one", "message.timestamp.type", "x", SET, 40,
     "Invalid value x for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime"),
    (TOPIC, "one", "retention.ms", "5", APPEND, 40, "Can't APPEND to key retention.ms because its type is not LIST."),
    (TOPIC, "one", "nope", "5", SUBTRACT, 40, "Can't SUBTRACT to key nope because its type is not LIST."),
    (TOPIC, "one", "retention.ms", None, SET, 42, "Null value not supported for : retention.ms"),
    (TOPIC, "one", "nope", None, DELETE, 0, None),
    (TOPIC, "nope", "retention.ms", "5", SET, 3, "The topic 'nope' does not exist."),
    (TOPIC, "", "retention.ms", "5", SET, 42, "Default topic resources are not allowed."),
    (TOPIC, "a b", "retention.ms", "5", SET, 17, "Topic name is invalid: 'a b' contains one or more characters other "
     "than ASCII alphanumerics, '.', '_' and '-'"),
    (BROKER, "1", "broker.id", "7", SET, 42, "Cannot update these configs dynamically: [broker.id]"),
    (BROKER, "", "num.partitions", "3", SET, 42, "Cannot update these configs dynamically: [num.partitions]"),
    (BROKER, "1", "log.retention.ms", "x", SET, 42,
     "Invalid value x for configuration log.retention.ms: Not a number of type LONG"),
    (BROKER, "x", "log.retention.ms", "5", SET, 42, "Node id must be an integer, but it is: x"),
    (BROKER, "1", "my.own", "x", SET, 0, None),
    (GROUP, "g", "nope", "1", SET, 40, "Unknown group config name: nope"),
    (GROUP, "", "consumer.session.timeout.ms", "46000", SET, 42, "Default group resources are not allowed."),
    (GROUP, "g", "consumer.session.timeout.ms", "x", SET, 40,
     "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT"),
    (GROUP, "g", "consumer.session.timeout.ms", "1", SET, 40,
     "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms"),
    (GROUP, "g", "consumer.heartbeat.interval.ms", "50000", SET, 40,
     "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
    (METRICS, "m", "x", "1", SET, 42, "Unknown client metrics configuration: x"),
    (0, "x", "y", "z", SET, 42, "Unknown resource type 0"),
]  # fmt: skip


def test_words(broker: pylogseg.Broker, client: RawClient) -> None:
    for kind, of, name, value, operation, code, text in WORDS:
        assert altered(client, kind, of, name, value, operation) == (code, text), (of, name, value)


@pytest.mark.parametrize("kind", ["TOPIC", "BROKER", "GROUP", "CLIENT_METRICS"])
def test_every_default_is_allowed(kind: str) -> None:
    """Checks and types are understood: no default of Kafka's is refused, and text is no number."""
    for name, each in settings(kind).items():
        assert each.default is None or why_invalid(name, each, each.default) == ""
        is_number = each.type in ("SHORT", "INT", "LONG", "DOUBLE")
        assert why_invalid(name, each, "x y").endswith(f"Not a number of type {each.type}") == is_number


def test_settings_of_the_broker_are_defaults_of_topics(broker: pylogseg.Broker, client: RawClient) -> None:
    """Those of all brokers, then those of this one, then the topic's own; what a log does follows."""
    assert altered(client, BROKER, "", "message.max.bytes", "2000") == (0, None)
    assert produced(client, "one", batch(b"x" * 3000))["errorCode"] == codes.MESSAGE_TOO_LARGE
    assert altered(client, BROKER, "1", "message.max.bytes", "5000") == (0, None)
    assert produced(client, "one", batch(b"x" * 3000))["errorCode"] == 0
    assert altered(client, TOPIC, "one", "max.message.bytes", "1000") == (0, None)
    assert produced(client, "one", batch(b"x" * 1500))["errorCode"] == codes.MESSAGE_TOO_LARGE
    names = ["max.message.bytes"] + ["message.max.bytes"] * 3
    found = described(client, TOPIC, "one")
    values = [("1000", 1), ("5000", 2), ("2000", 3), ("1048588", 5)]
    assert chain(found["max.message.bytes"]) == [(name, *each) for name, each in zip(names, values, strict=True)]
    assert chain(described(client, BROKER, "1")["message.max.bytes"]) == [(names[1], *each) for each in values[1:]]
    assert {name: each["value"] for name, each in described(client, BROKER, "").items()} == {
        names[1]: "2000", "min.insync.replicas": "1",  # a new cluster has it
    }  # fmt: skip
    for of in ("", "1"):
        assert altered(client, BROKER, of, "message.max.bytes", None, DELETE) == (0, None)
    assert altered(client, TOPIC, "one", "max.message.bytes", None, DELETE) == (0, None)
    assert chain(described(client, TOPIC, "one")["max.message.bytes"]) == [("message.max.bytes", "1048588", 5)]
    assert altered(client, BROKER, "", "min.insync.replicas", "2") == (0, None)
    assert described(client, TOPIC, "one")["min.insync.replicas"]["value"] == "2"


def test_a_broker_has_all_settings(broker: pylogseg.Broker, client: RawClient) -> None:
    found = described(client, BROKER, "1")
    assert len(found) >= 340
    assert found["advertised.listeners"]["value"] == f"PLAINTEXT://{broker.bootstrap_servers}"
    assert (found["node.id"]["value"], found["node.id"]["readOnly"], found["node.id"]["configSource"]) == ("1", True, 4)
    assert (found["log.retention.ms"]["value"], found["log.retention.ms"]["readOnly"]) == (None, False)
    assert found["auto.create.topics.enable"]["value"] == "true"
    assert found["ssl.keystore.password"]["isSensitive"]
    assert altered(client, GROUP, "g", "consumer.session.timeout.ms", "46000") == (0, None)
    assert len(described(client, GROUP, "g")) == 17
    assert chain(described(client, GROUP, "g")["consumer.session.timeout.ms"]) == [
        ("consumer.session.timeout.ms", "46000", 8), ("group.consumer.session.timeout.ms", "45000", 5)]  # fmt: skip
    for kind, of in ((BROKER, "77"), (BROKER, "x"), (GROUP, ""), (0, "x")):
        resource = {"resourceType": kind, "resourceName": of, "configurationKeys": None}
        row = client.ask(32, 4, {"resources": [resource]})["results"][0]
        assert (row["errorCode"], bool(row["errorMessage"])) == (codes.INVALID_REQUEST, True)


def test_settings_of_a_directory_last(tmp_path: Path) -> None:
    with pylogseg.Broker(tmp_path, topics=["one"]) as broker, RawClient(broker.bootstrap_servers) as client:
        assert altered(client, BROKER, "", "message.max.bytes", "2000") == (0, None)
        assert altered(client, GROUP, "g", "consumer.session.timeout.ms", "46000") == (0, None)
    with pylogseg.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert described(client, TOPIC, "one")["max.message.bytes"]["value"] == "2000"
        assert described(client, GROUP, "g")["consumer.session.timeout.ms"]["value"] == "46000"
        assert produced(client, "one", batch(b"x" * 3000))["errorCode"] == codes.MESSAGE_TOO_LARGE


def test_what_whoever_connects_may_do(broker: pylogseg.Broker, client: RawClient, tmp_path: Path) -> None:
    """All operations of Kafka where clients write; reading and describing where files stay as they are."""

    def allowed(of: RawClient, topic: str) -> tuple[int, int]:
        asked = {"includeTopicAuthorizedOperations": True, "includeClusterAuthorizedOperations": True}
        found = of.ask(3, 8, {"topics": [{"name": topic}], **asked})
        return found["topics"][0]["topicAuthorizedOperations"], found["clusterAuthorizedOperations"]

    assert allowed(client, "one") == (0b110111111000, 0b1111110100000)
    data = Path(__file__).resolve().parents[2] / "examples" / "data"
    for scratch, writes in ((True, True), (False, False)):
        with (
            pylogseg.Broker(above=data) if scratch else pylogseg.serve(data) as server,
            RawClient(server.bootstrap_servers) as other,
        ):
            assert (allowed(other, "legacy") == allowed(client, "one")) == writes
            assert allowed(other, "legacy")[0] & 1 << 3
