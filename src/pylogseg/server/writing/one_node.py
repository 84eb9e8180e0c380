"""Answers of a broker of one node on replicas, elections, the quorum and transactions: there is one place for all."""

from __future__ import annotations

from typing import Any

from pylogseg.errors import RequestError
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import Values
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.server.configs import KINDS
from pylogseg.server.service import Call
from pylogseg.server.writing.transactions import Transaction, TransactionState
from pylogseg.server.writing.writer import writing_of
from pylogseg.values.internal.cluster import BROKER_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE

_LOGGER_RESOURCE = 8
_UNKNOWN = "This server does not host this topic-partition."


def _code(call: Call, topic: str, number: int, found: int = codes.NONE) -> dict[str, Any]:
    """Return the error of a partition, which is `found` if it is here."""
    try:
        call.catalog.find(call.topic(topic), number)
        return {"errorCode": found}
    except KafkaError as error:
        return {"errorCode": error.code, "errorMessage": _UNKNOWN}


def elect_leaders(call: Call) -> Values:
    """Answer ElectLeaders: all are led here already."""
    asked = call.values["topicPartitions"]
    if asked is None:  # all that need one: none does
        return {"replicaElectionResults": []}
    topics = []
    needless = {"errorMessage": "Leader election not needed for topic partition."}
    for topic in asked:
        rows = [_code(call, topic["topic"], number, codes.ELECTION_NOT_NEEDED) for number in topic["partitions"]]
        rows = [row if "errorMessage" in row else {**row, **needless} for row in rows]
        numbered = [{"partitionId": number, **row} for number, row in zip(topic["partitions"], rows, strict=True)]
        topics.append({"topic": topic["topic"], "partitionResult": numbered})
    return {"replicaElectionResults": topics}


def alter_reassignments(call: Call) -> Values:
    """Answer AlterPartitionReassignments: a partition stays where it is, and nothing can be cancelled."""
    responses = []
    for topic in call.values["topics"]:
        rows = [
            {"partitionIndex": partition["partitionIndex"], **_move_partition(call, topic["name"], partition)}
            for partition in topic["partitions"]
        ]
        responses.append({"name": topic["name"], "partitions": rows})
    return {"responses": responses}


def _move_partition(call: Call, topic: str, asked: dict[str, Any]) -> dict[str, Any]:
    row = _code(call, topic, asked["partitionIndex"])
    if row["errorCode"]:
        return row
    if asked["replicas"] is None:
        text = f"No partition reassignment is in progress for the partition {topic}-{asked['partitionIndex']}."
        return {"errorCode": codes.NO_REASSIGNMENT_IN_PROGRESS, "errorMessage": text}
    if list(asked["replicas"]) != [call.catalog.node_id]:
        text = f"a partition can be on broker {call.catalog.node_id} only"
        return {"errorCode": codes.INVALID_REPLICA_ASSIGNMENT, "errorMessage": text}
    return row


def reassignments(call: Call) -> Values:
    """Answer ListPartitionReassignments: there are none."""
    return {"topics": []}


def alter_log_dirs(call: Call) -> Values:
    """Answer AlterReplicaLogDirs: a partition is in its directory already, and nothing is moved to another one."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for log_dir in call.values["dirs"]:
        for topic in log_dir["topics"]:
            for number in topic["partitions"]:
                row = _code(call, topic["name"], number)
                if (
                    not row["errorCode"]
                    and call.catalog.topics[topic["name"]].partitions[number].log_dir != log_dir["path"]
                ):
                    row["errorCode"] = codes.LOG_DIR_NOT_FOUND
                by_topic.setdefault(topic["name"], []).append({"partitionIndex": number, **row})
    return {"results": [{"topicName": name, "partitions": rows} for name, rows in by_topic.items()]}


def fail_moves(call: Call, code: int, text: str | None) -> Values:
    topics = (topic for log_dir in call.values["dirs"] for topic in log_dir["topics"])
    return {
        "results": [
            {
                "topicName": topic["name"],
                "partitions": [{"partitionIndex": number, "errorCode": code} for number in topic["partitions"]],
            }
            for topic in topics
        ]
    }


def quorum(call: Call) -> Values:
    """Answer DescribeQuorum: this node is all of it."""
    catalog = call.catalog
    voter = {"replicaId": catalog.node_id, "logEndOffset": 0, "lastFetchTimestamp": -1, "lastCaughtUpTimestamp": -1}
    topics = []
    for topic in call.values["topics"]:
        rows: list[dict[str, Any]] = []
        for partition in topic["partitions"]:
            row = {"partitionIndex": partition["partitionIndex"], "errorCode": codes.NONE, "leaderId": catalog.node_id,
                   "leaderEpoch": 1, "highWatermark": 0, "currentVoters": [voter], "observers": []}  # fmt: skip
            if topic["topicName"] != METADATA_TOPIC or partition["partitionIndex"]:
                row = {"partitionIndex": partition["partitionIndex"], "errorCode": codes.UNKNOWN_TOPIC_OR_PARTITION}
            rows.append(row)
        topics.append({"topicName": topic["topicName"], "partitions": rows})
    listener = {"name": "PLAINTEXT", "host": call.endpoint.host, "port": call.endpoint.port}
    return {"topics": topics, "nodes": [{"nodeId": catalog.node_id, "listeners": [listener]}]}


def config_resources(call: Call) -> Values:
    """Answer ListConfigResources; version 0 asks only for client metrics."""
    wanted = set(call.values["resourceTypes"]) or set(KINDS) if call.version else {METRICS_RESOURCE}
    pairs = {(TOPIC_RESOURCE, name) for name in call.catalog.topics} | {(BROKER_RESOURCE, str(call.catalog.node_id))}
    pairs |= {
        of
        for of, settings in call.catalog.dynamic.items()
        if of[0] not in (TOPIC_RESOURCE, BROKER_RESOURCE) and settings
    }
    if wanted - {*KINDS, _LOGGER_RESOURCE}:
        return {"errorCode": codes.UNSUPPORTED_VERSION}
    rows = [{"resourceName": name, "resourceType": kind} for kind, name in sorted(pairs) if kind in wanted]
    return {"configResources": rows}


# ---- transactions ----


def _state_of(state: TransactionState) -> str:
    """Return Kafka's word for a state."""
    return "".join(word.title() for word in state.name.split("_"))


def list_transactions(call: Call) -> Values:
    values, now_ms = call.values, writing_of(call).topics.clock.now_ms()
    names = {_state_of(state) for state in TransactionState}
    wanted, producers = set(values["stateFilters"]), set(values["producerIdFilters"])
    pattern = values["transactionalIdPattern"]
    by_id = {transaction.id: transaction for transaction in writing_of(call).transactions.names()}
    chosen = set(by_id)
    if pattern:
        from pylogseg.server.regex import (  # few clients need Arrow, which takes long to import
            check_pattern,
            whole_matches,
        )

        try:
            check_pattern(pattern)
        except RequestError:
            return {"errorCode": codes.INVALID_REGULAR_EXPRESSION}
        chosen = whole_matches(by_id, pattern)
    rows = []
    for name in sorted(chosen):
        transaction = by_id[name]
        state = _state_of(transaction.state)
        if (wanted and state not in wanted) or (producers and transaction.producer.id not in producers):
            continue
        if values["durationFilter"] >= 0 and (
            transaction.started_ms < 0 or now_ms - transaction.started_ms < values["durationFilter"]
        ):
            continue
        rows.append({"transactionalId": name, "producerId": transaction.producer.id, "transactionState": state})
    return {"unknownStateFilters": sorted(wanted - names), "transactionStates": rows}


def describe_transactions(call: Call) -> Values:
    by_id = {transaction.id: transaction for transaction in writing_of(call).transactions.names()}
    return {"transactionStates": [_describe(name, by_id.get(name)) for name in call.values["transactionalIds"]]}


def _describe(name: str, found: Transaction | None) -> dict[str, Any]:
    if found is None:
        return {"errorCode": codes.TRANSACTIONAL_ID_NOT_FOUND, "transactionalId": name}
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(found.places):
        topics.setdefault(topic, []).append(number)
    return {
        "transactionalId": name,
        "transactionState": _state_of(found.state),
        "transactionTimeoutMs": found.timeout_ms,
        "transactionStartTimeMs": found.started_ms,
        "producerId": found.producer.id,
        "producerEpoch": found.producer.epoch,
        "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
    }
