"""Requests of each kind that is answered, and clients that log in, to ask who may do what."""

from __future__ import annotations

from typing import Any

from helpers.kafka_clients import RawClient, batch

TOPICS = {"one": 2, "two": 1, "public": 1}


def logged_in(server: str, user: str) -> RawClient:
    """Return a connection of a user."""
    client = RawClient(server)
    assert client.ask(17, 1, {"mechanism": "PLAIN"})["errorCode"] == 0
    said = client.ask(36, 2, {"authBytes": f"\0{user}\0{user}".encode()})
    assert said["errorCode"] == 0, said
    return client


def rows(names: list[str], **more: Any) -> list[dict[str, Any]]:
    """Return a row for each name."""
    return [{"name": name, **more} for name in names]


def requests() -> dict[int, list[dict[str, Any]]]:
    """Return what is asked by each request."""
    topics, groups = ["one", "two", "none", "public"], ["g1", "g2", "g-of-all"]
    settings = [(2, "one"), (2, "none"), (4, "1"), (32, "g1"), (32, "g2"), (16, "m")]
    member = {"groupId": "g1", "memberId": "m", "generationId": 1, "generationIdOrMemberEpoch": 1}
    transaction = {"transactionalId": "t1", "producerId": 987_654, "producerEpoch": 0, "groupId": "g1"}
    commits = rows(topics, partitions=[{"partitionIndex": 0, "committedOffset": 1}])
    transactions = ["t1", "t2"]
    options = {"producer_id": 987_654, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    batches = [batch(b"x"), batch(b"x", **options)]
    made = {"numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
    numbered, coordinators = rows(topics, partitionIndexes=[0]), ((0, groups), (1, transactions))
    resources = [{"resourceType": kind, "resourceName": name, "configs": []} for kind, name in settings]
    rule = {"resourceType": 2, "resourceName": "two", "resourcePatternType": 3, "principal": "User:x",
            "host": "*", "operation": 3, "permissionType": 3}  # fmt: skip
    wanted = {"resourceTypeFilter": 2, "resourceNameFilter": "two", "patternTypeFilter": 2, "principalFilter": None,
              "hostFilter": None, "operation": 3, "permissionType": 1}  # fmt: skip
    return {
        0: [{"acks": -1, "timeoutMs": 1000, "transactionalId": "t1",
             "topicData": rows(topics, partitionData=[{"index": 0, "records": each}])} for each in batches],
        1: [{"maxBytes": 1 << 20, "topics": [{"topic": name, "partitions": [
            {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1000}]} for name in topics]}],
        2: [{"replicaId": -1, "topics": rows(topics, partitions=[{"partitionIndex": 0, "timestamp": -1}])}],
        3: [{"topics": rows(topics), "allowAutoTopicCreation": False, "includeTopicAuthorizedOperations": True,
             "includeClusterAuthorizedOperations": True},
            {"topics": None, "includeTopicAuthorizedOperations": True},
            {"topics": rows(["never"]), "allowAutoTopicCreation": True}],
        8: [{**member, "topics": commits}],
        9: [{"groupId": "g1", "topics": some, "groups": [{"groupId": name, "topics": some} for name in groups]}
            for some in (numbered, None)],
        10: [{"key": keys[0], "keyType": kind, "coordinatorKeys": keys} for kind, keys in coordinators],
        11: [{"groupId": "g2", "memberId": "", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 10_000,
              "protocolType": "consumer", "protocols": []}],
        12: [member],
        13: [{**member, "members": [{"memberId": "m", "groupInstanceId": None}]}],
        14: [{**member, "protocolType": "consumer", "protocolName": "range", "assignments": []}],
        15: [{"groups": groups, "includeAuthorizedOperations": True}],
        16: [{}],
        19: [{"topics": rows(["new-1", "newer", "other"], **made), "timeoutMs": 10_000, "validateOnly": True}],
        20: [{"topics": [{**row, "topicId": bytes(16)} for row in rows(["two-b", "none", "public-b"])],
              "topicNames": ["two-b", "none", "public-b"], "timeoutMs": 10_000}],
        21: [{"topics": rows(topics, partitions=[{"partitionIndex": 0, "offset": 0}]), "timeoutMs": 1000}],
        22: [{"transactionalId": name, "transactionTimeoutMs": 10_000, "producerId": -1, "producerEpoch": -1}
             for name in (None, "t1", "t2")],
        23: [{"replicaId": -1, "topics": [{"topic": name, "partitions": [
            {"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": 0}]} for name in topics]}],
        24: [{"v3AndBelowTransactionalId": "t1", "v3AndBelowProducerId": 987_654, "v3AndBelowProducerEpoch": 0,
              "v3AndBelowTopics": rows(some, partitions=[0])} for some in (["one", "two"], ["one"])],
        25: [transaction],
        26: [{**transaction, "committed": True}],
        28: [{**transaction, "memberId": "", "generationIdOrMemberEpoch": -1, "topics": commits}],
        29: [wanted],
        30: [{"creations": [rule]}],
        31: [{"filters": [{**wanted, "principalFilter": "User:x"}]}],
        32: [{"resources": [{**each, "configurationKeys": ["retention.ms"]} for each in resources]}],
        33: [{"resources": [each for each in resources if each["resourceType"] != 4], "validateOnly": True}],
        34: [{"dirs": [{"path": "/nowhere", "topics": rows(["one"], partitions=[0])}]}],
        35: [{"topics": [{"topic": "one", "partitions": [0]}]}],
        37: [{"topics": rows(topics, count=5, assignments=None), "timeoutMs": 10_000, "validateOnly": True}],
        42: [{"groupsNames": groups}],
        43: [{"electionType": 0, "topicPartitions": [{"topic": "one", "partitions": [0]}], "timeoutMs": 10_000}],
        44: [{"resources": resources, "validateOnly": True}],
        45: [{"topics": rows(["one"], partitions=[{"partitionIndex": 0, "replicas": None}]), "timeoutMs": 10_000}],
        46: [{"topics": None, "timeoutMs": 10_000}],
        47: [{"groupId": name, "topics": rows(topics, partitions=[{"partitionIndex": 0}])} for name in ("g1", "g2")],
        50: [{"users": [{"name": "nemo"}]}],
        51: [{"deletions": [{"name": "nemo", "mechanism": 1}], "upsertions": []}],
        55: [{"topics": [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]}],
        60: [{"includeClusterAuthorizedOperations": True, "endpointType": 1}],
        61: [{"topics": numbered}],
        65: [{"transactionalIds": transactions}],
        66: [{"durationFilter": -1}],
        68: [{"groupId": name, "memberId": "m", "memberEpoch": 7, "rebalanceTimeoutMs": 10_000, "topicPartitions": [],
              "subscribedTopicNames": some} for name in ("g1", "g2") for some in (["one"], ["one", "two"])],
        69: [{"groupIds": groups, "includeAuthorizedOperations": True}],
        74: [{"resourceTypes": [2]}],
        75: [{"topics": rows(topics), "responsePartitionLimit": 100, "cursor": None},
             {"topics": [], "responsePartitionLimit": 100, "cursor": None}],
    }  # fmt: skip
