"""Tests of server/writing/one_node.py. What a broker of one node answers to those who ask for replicas, elections, the
quorum, transactions, ACLs.
"""

from __future__ import annotations

import pytest
from helpers.kafka_clients import PATIENCE_S, RawClient

import pylogseg
from pylogseg.format.messages import codes

confluent_kafka = pytest.importorskip("confluent_kafka")

TOPICS = {"one": 2}


@pytest.mark.parametrize("version", range(3))
def test_elections(client: RawClient, version: int) -> None:
    """There is one replica, which leads already."""
    asked = [{"topic": "one", "partitions": [0, 7]}, {"topic": "none", "partitions": [0]}]
    one, none = client.ask(43, version, {"topicPartitions": asked, "timeoutMs": 1000})["replicaElectionResults"]
    missing = codes.UNKNOWN_TOPIC_OR_PARTITION
    assert [each["errorCode"] for each in one["partitionResult"]] == [codes.ELECTION_NOT_NEEDED, missing]
    assert [each["errorCode"] for each in none["partitionResult"]] == [missing]
    assert client.ask(43, version, {"topicPartitions": None, "timeoutMs": 1000})["replicaElectionResults"] == []


def test_partitions_stay_where_they_are(broker: pylogseg.Broker, client: RawClient) -> None:
    def move(number: int, replicas: list[int] | None) -> int:
        rows = [{"partitionIndex": number, "replicas": replicas}]
        answer = client.ask(45, 1, {"topics": [{"name": "one", "partitions": rows}], "timeoutMs": 1000})
        return int(answer["responses"][0]["partitions"][0]["errorCode"])

    assert (move(0, [1]), move(0, [2]), move(0, None)) == (
        0, codes.INVALID_REPLICA_ASSIGNMENT, codes.NO_REASSIGNMENT_IN_PROGRESS)  # fmt: skip
    assert move(5, [1]) == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert client.ask(46, 0, {"topics": None, "timeoutMs": 1000})["topics"] == []
    for path, code in ((broker.catalog.log_dirs[0], 0), ("/elsewhere", codes.LOG_DIR_NOT_FOUND)):
        dirs = [{"path": path, "topics": [{"name": "one", "partitions": [0, 9]}]}]
        (row,) = client.ask(34, 2, {"dirs": dirs})["results"]
        assert [each["errorCode"] for each in row["partitions"]] == [code, codes.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", range(3))
def test_the_quorum(client: RawClient, version: int) -> None:
    asked = [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]
    found = client.ask(55, version, {"topics": asked})["topics"][0]["partitions"][0]
    assert (found["errorCode"], found["leaderId"]) == (0, 1)
    assert [each["replicaId"] for each in found["currentVoters"]] == [1]


def test_what_has_settings(client: RawClient) -> None:
    configs = [{"name": "consumer.session.timeout.ms", "configOperation": 0, "value": "46000"}]
    client.ask(44, 1, {"resources": [{"resourceType": 32, "resourceName": "g", "configs": configs}]})
    found = client.ask(74, 1, {"resourceTypes": []})["configResources"]
    assert {(each["resourceType"], each["resourceName"]) for each in found} == {(2, "one"), (4, "1"), (32, "g")}
    assert [each["resourceName"] for each in client.ask(74, 1, {"resourceTypes": [32]})["configResources"]] == ["g"]
    assert client.ask(74, 0)["configResources"] == []
    assert client.ask(74, 1, {"resourceTypes": [99]})["errorCode"] == codes.UNSUPPORTED_VERSION


def test_transactions_are_listed(broker: pylogseg.Broker, client: RawClient) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx-1"})
    producer.init_transactions(PATIENCE_S)

    def listed(version: int = 2, **asked: object) -> dict[str, str]:
        defaults = {"stateFilters": [], "producerIdFilters": [], "durationFilter": -1, "transactionalIdPattern": None}
        found = client.ask(66, version, {**defaults, **asked})
        assert found["errorCode"] == 0
        return {each["transactionalId"]: each["transactionState"] for each in found["transactionStates"]}

    assert listed() == {"tx-1": "Empty"}
    producer.begin_transaction()
    producer.produce("one", b"x", partition=1)
    assert producer.flush(PATIENCE_S) == 0
    assert (
        listed(0) == listed(stateFilters=["Ongoing"]) == listed(transactionalIdPattern="tx-.*") == {"tx-1": "Ongoing"}
    )
    assert listed(stateFilters=["Empty"]) == listed(transactionalIdPattern="tx") == {}
    assert listed(producerIdFilters=[12345]) == listed(durationFilter=3_600_000) == {}
    assert client.ask(66, 2, {"transactionalIdPattern": "("})["errorCode"] == codes.INVALID_REGULAR_EXPRESSION
    open_one, missing = client.ask(65, 0, {"transactionalIds": ["tx-1", "none"]})["transactionStates"]
    assert missing["errorCode"] == codes.TRANSACTIONAL_ID_NOT_FOUND
    assert (open_one["transactionState"], open_one["topics"]) == ("Ongoing", [{"topic": "one", "partitions": [1]}])
    producer.commit_transaction(PATIENCE_S)
    assert listed() == {"tx-1": "CompleteCommit"}


def test_acls_are_refused_as_by_a_broker_without_an_authorizer(client: RawClient) -> None:
    """None can be kept that is not enforced."""
    wanted = {"resourceTypeFilter": 2, "operation": 3, "permissionType": 3}
    rule = {"resourceType": 2, "resourceName": "one", "principal": "User:a", "host": "*", "operation": 3}
    for version in range(1, 4):
        found = [
            client.ask(29, version, wanted),
            *client.ask(30, version, {"creations": [{**rule, "permissionType": 3}]})["results"],
            *client.ask(31, version, {"filters": [wanted]})["filterResults"],
        ]
        assert [each["errorCode"] for each in found] == [codes.SECURITY_DISABLED] * 3
