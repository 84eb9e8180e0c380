"""Answers about the cluster: versions, brokers, topics, directories, producers."""

from __future__ import annotations

import re
from typing import Any

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import NO_ID, Values
from pylogseg.server.acls import CLUSTER, TOPIC
from pylogseg.server.catalog import Topic
from pylogseg.server.service import Call

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MOST_PARTITIONS = 2000
#: Null by the schema, but Java's admin client reads them all the same.
_NO_ELR = {"eligibleLeaderReplicas": (), "lastKnownElr": ()}
_NOT_ASKED = -(2**31)


def api_versions(call: Call) -> Values:
    """Answer ApiVersions; the client gives its name and version in the form that Kafka asks for."""
    names = (call.values["clientSoftwareName"], call.values["clientSoftwareVersion"])
    is_known = call.version < 3 or all(map(_SOFTWARE.fullmatch, names))
    return call.service.table.api_versions(call.version, codes.NONE if is_known else codes.INVALID_REQUEST)


# ---- brokers and topics ----


def metadata(call: Call) -> Values:
    asked, catalog = call.values["topics"], call.catalog
    if asked is None or (call.version == 0 and not asked):
        rows = [_topic(call, topic) for topic in catalog.topics.values()]
    else:
        # Java names a topic twice now and then; it is answered once.
        rows = [_asked_topic(call, *pair) for pair in dict.fromkeys((pair["name"], pair["topicId"]) for pair in asked)]
    wants_topics = call.values["includeTopicAuthorizedOperations"]
    for topic in rows:
        topic["topicAuthorizedOperations"] = call.operations(TOPIC, topic["name"] or "") if wants_topics else _NOT_ASKED
    wants_cluster = call.values["includeClusterAuthorizedOperations"]
    return {
        "brokers": [call.node()],
        "clusterId": catalog.cluster_id,
        "controllerId": catalog.node_id,
        "topics": rows,
        "clusterAuthorizedOperations": call.operations(CLUSTER) if wants_cluster else _NOT_ASKED,
    }


def fail_metadata(call: Call, code: int, text: str | None) -> Values:
    """Return the cluster, which stands in an answer that fails as well."""
    catalog = call.catalog
    return {"brokers": [call.node()], "clusterId": catalog.cluster_id, "controllerId": catalog.node_id}


def _asked_topic(call: Call, name: str | None, topic_id: bytes) -> dict[str, Any]:
    topic = call.topic(name, topic_id)
    if topic is not None:
        return _topic(call, topic)
    if topic_id != NO_ID:
        return {"errorCode": codes.UNKNOWN_TOPIC_ID, "name": None, "topicId": topic_id}
    return {"errorCode": codes.unknown_topic(name or "").code, "name": name or ""}


def _topic(call: Call, topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topicId": topic.id,
        "isInternal": topic.is_internal,
        "partitions": [_partition(call, topic, number) for number in range(topic.count)],
    }


def _partition(call: Call, topic: Topic, number: int) -> dict[str, Any]:
    """Return a partition; one that was on another broker has no leader, but is counted."""
    served = topic.partitions.get(number)
    if served is None:
        return {"errorCode": codes.LEADER_NOT_AVAILABLE, "partitionIndex": number, "leaderId": -1, **_NO_ELR}
    here = (call.catalog.node_id,)
    return {
        "partitionIndex": number,
        "leaderId": call.catalog.node_id,
        "leaderEpoch": served.leader_epoch,
        "replicaNodes": here,
        "isrNodes": here,
        **_NO_ELR,
    }


def topic_partitions(call: Call) -> Values:
    """Answer DescribeTopicPartitions: topics by name, so many partitions at a time."""
    topics, cursor = call.catalog.topics, call.values["cursor"]
    names = sorted({topic["name"] for topic in call.values["topics"]} or topics)
    after, first = (cursor["topicName"], cursor["partitionIndex"]) if cursor is not None else ("", 0)
    if first < 0:  # Kafka says it of each topic that was named
        asked = call.values["topics"]
        return {"topics": [{"errorCode": codes.INVALID_REQUEST, "name": row["name"]} for row in asked]}
    left = min(max(1, call.values["responsePartitionLimit"]), _MOST_PARTITIONS)
    rows: list[dict[str, Any]] = []
    for name in names:
        if name < after:
            continue
        topic = topics.get(name)
        if topic is None:
            may = call.operations(TOPIC, name)
            rows.append({"errorCode": codes.unknown_topic(name).code, "name": name, "topicAuthorizedOperations": may})
            continue
        start = first if name == after else 0
        if left <= 0:
            return {"topics": rows, "nextCursor": {"topicName": name, "partitionIndex": start}}
        end = min(topic.count, start + left)
        partitions = [_partition(call, topic, number) for number in range(start, end)]
        rows.append(
            {
                **_topic(call, topic),
                "partitions": partitions,
                "topicAuthorizedOperations": call.operations(TOPIC, name),
            }
        )
        left -= end - start
        if end < topic.count:
            return {"topics": rows, "nextCursor": {"topicName": name, "partitionIndex": end}}
    return {"topics": rows}


def describe_cluster(call: Call) -> Values:
    if call.values["endpointType"] != 1:
        text = "Unsupported endpoint type: only brokers are described here"
        return {"errorCode": codes.UNSUPPORTED_ENDPOINT_TYPE, "errorMessage": text}
    node = call.node()
    wants = call.values["includeClusterAuthorizedOperations"]
    return {
        "clusterId": call.catalog.cluster_id,
        "controllerId": call.catalog.node_id,
        "brokers": [{"brokerId": node["nodeId"], "host": node["host"], "port": node["port"]}],
        "clusterAuthorizedOperations": call.operations(CLUSTER) if wants else _NOT_ASKED,
    }


# ---- disks and producers ----


def log_dirs(call: Call) -> Values:
    """Answer DescribeLogDirs, with the sizes of the listing."""
    asked = call.values["topics"]
    wanted = None if asked is None else {topic["topic"]: set(topic["partitions"]) for topic in asked}
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {path: {} for path in call.catalog.log_dirs}
    for served in call.catalog.partitions():
        if wanted is None or served.number in wanted.get(served.topic, ()):
            row = {"partitionIndex": served.number, "partitionSize": served.size}
            rows.setdefault(served.log_dir, {}).setdefault(served.topic, []).append(row)
    return {"results": [_log_dir(call, path, topics) for path, topics in rows.items()]}


def fail_log_dirs(call: Call, code: int, text: str | None) -> Values:
    return {"results": [{"logDir": path, "errorCode": code} for path in call.catalog.log_dirs or [""]]}


def _log_dir(call: Call, path: str, topics: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    fields = {"logDir": path, "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()]}
    if "://" in path:  # an object store has no size: the fields keep -1
        return fields
    try:
        total, usable = call.catalog.logs.usage(path)
    except OSError:
        return {**fields, "errorCode": codes.KAFKA_STORAGE_ERROR}
    return {**fields, "totalBytes": total, "usableBytes": usable}


def producers(call: Call) -> Values:
    """Answer DescribeProducers, with all producers that the files know."""
    topics = []
    for asked in call.values["topics"]:
        topic = call.catalog.topics.get(asked["name"])
        rows = [_producers_of(call, topic, number) for number in asked["partitionIndexes"]]
        topics.append({"name": asked["name"], "partitions": rows})
    return {"topics": topics}


def _producers_of(call: Call, topic: Topic | None, number: int) -> dict[str, Any]:
    try:
        served = call.catalog.find(topic, number)
        log = served.log()
    except KafkaError as error:
        return {"partitionIndex": number, "errorCode": error.code, "errorMessage": error.text}
    active = [
        {
            "producerId": producer.producer_id,
            "producerEpoch": producer.producer_epoch,
            "lastSequence": producer.last_sequence,
            "lastTimestamp": producer.last_timestamp,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnStartOffset": producer.first_txn_offset,
        }
        for producer in list(log.producers.active.values())
    ]
    call.budget.spend_again((served.topic, number), len(active))
    return {"partitionIndex": number, "activeProducers": active}
