"""Answers about the cluster: versions, brokers, topics, settings, directories, producers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.errors import RequestError
from pylogseg.format.names import check_topic
from pylogseg.internal_topics.cluster import BROKER_RESOURCE, INTERNAL_TOPICS, TOPIC_RESOURCE
from pylogseg.messages.schema import public_settings
from pylogseg.server import codes
from pylogseg.server.catalog import Topic
from pylogseg.server.codes import KafkaError
from pylogseg.server.service import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, Call
from pylogseg.server.wire import NO_ID, Values

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MOST_PARTITIONS = 2000
#: Null by the schema, but Java's admin client reads them all the same.
_NO_ELR = {"eligibleLeaderReplicas": (), "lastKnownElr": ()}
_NOT_ASKED = -(2**31)
# Where a value comes from, and its type, as in the schema of DescribeConfigs.
_OF_TOPIC, _OF_BROKER, _STATIC, _DEFAULT = 1, 2, 4, 5
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7
_INTS = frozenset(
    {"segment.bytes", "segment.index.bytes", "index.interval.bytes", "max.message.bytes", "min.insync.replicas",
     "compression.gzip.level", "compression.lz4.level", "compression.zstd.level"}
)  # fmt: skip


def is_software_known(values: Values, version: int) -> bool:
    """Return whether a client has given its name and version in the form that Kafka asks for."""
    names = (values["clientSoftwareName"], values["clientSoftwareVersion"])
    return version < 3 or all(_SOFTWARE.fullmatch(name) for name in names)


# ---- brokers and topics ----


def metadata(call: Call) -> Values:
    """Answer Metadata."""
    asked, catalog = call.values["topics"], call.catalog
    if asked is None or (call.version == 0 and not asked):
        found = [_topic(call, topic) for topic in catalog.topics.values()]
    else:
        # Java names a topic twice now and then; it is answered once.
        found = [_asked_topic(call, *each) for each in dict.fromkeys((each["name"], each["topicId"]) for each in asked)]
    wants_topics = call.values["includeTopicAuthorizedOperations"]
    for topic in found:
        topic["topicAuthorizedOperations"] = TOPIC_OPERATIONS if wants_topics else _NOT_ASKED
    wants_cluster = call.values["includeClusterAuthorizedOperations"]
    return {
        "brokers": [call.node()],
        "clusterId": catalog.cluster_id,
        "controllerId": catalog.node_id,
        "topics": found,
        "clusterAuthorizedOperations": CLUSTER_OPERATIONS if wants_cluster else _NOT_ASKED,
    }


def _asked_topic(call: Call, name: str | None, topic_id: bytes) -> dict[str, Any]:
    topic = call.topic(name, topic_id)
    if topic is not None:
        return _topic(call, topic)
    if topic_id != NO_ID:
        return {"errorCode": codes.UNKNOWN_TOPIC_ID, "name": None, "topicId": topic_id}
    return {"errorCode": _unknown(name or ""), "name": name or ""}


def _unknown(name: str) -> int:
    """Return the error for a topic that is not here."""
    try:
        check_topic(name)
    except RequestError:
        return codes.INVALID_TOPIC
    return codes.UNKNOWN_TOPIC_OR_PARTITION


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
    names = sorted({each["name"] for each in call.values["topics"]} or topics)
    after, first = (cursor["topicName"], cursor["partitionIndex"]) if cursor is not None else ("", 0)
    if first < 0:  # Kafka says it of each topic that was named
        asked = call.values["topics"]
        return {"topics": [{"errorCode": codes.INVALID_REQUEST, "name": each["name"]} for each in asked]}
    left = min(max(1, call.values["responsePartitionLimit"]), _MOST_PARTITIONS)
    found: list[dict[str, Any]] = []
    for name in names:
        if name < after:
            continue
        topic = topics.get(name)
        if topic is None:
            found.append({"errorCode": _unknown(name), "name": name})
            continue
        start = first if name == after else 0
        if left <= 0:
            return {"topics": found, "nextCursor": {"topicName": name, "partitionIndex": start}}
        end = min(topic.count, start + left)
        partitions = [_partition(call, topic, number) for number in range(start, end)]
        found.append({**_topic(call, topic), "partitions": partitions, "topicAuthorizedOperations": TOPIC_OPERATIONS})
        left -= end - start
        if end < topic.count:
            return {"topics": found, "nextCursor": {"topicName": name, "partitionIndex": end}}
    return {"topics": found}


def cluster(call: Call) -> Values:
    """Answer DescribeCluster."""
    if call.values["endpointType"] != 1:
        text = "Unsupported endpoint type: only brokers are described here"
        return {"errorCode": codes.UNSUPPORTED_ENDPOINT_TYPE, "errorMessage": text}
    node = call.node()
    wants = call.values["includeClusterAuthorizedOperations"]
    return {
        "clusterId": call.catalog.cluster_id,
        "controllerId": call.catalog.node_id,
        "brokers": [{"brokerId": node["nodeId"], "host": node["host"], "port": node["port"]}],
        "clusterAuthorizedOperations": CLUSTER_OPERATIONS if wants else _NOT_ASKED,
    }


# ---- settings ----


#: Settings that a broker of 4.3, as which this server speaks, does not have.
_SINCE_4_4 = {
    "errors.deadletterqueue.group.enable", "max.decompressed.message.bytes", "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
}  # fmt: skip


def configs(call: Call) -> Values:
    """Answer DescribeConfigs: what the cluster's metadata says, and Kafka's defaults."""
    return {"results": [_resource(call, each) for each in call.values["resources"]]}


def _resource(call: Call, asked: dict[str, Any]) -> dict[str, Any]:
    kind, name, keys = asked["resourceType"], asked["resourceName"], asked["configurationKeys"]
    row = {"resourceType": kind, "resourceName": name}
    if kind == TOPIC_RESOURCE:
        topic = call.catalog.topics.get(name)
        if topic is None:
            return {**row, "errorCode": _unknown(name)}
        found = _topic_settings(call, topic)
    elif kind == BROKER_RESOURCE and name in ("", str(call.catalog.node_id)):
        found = _broker_settings(call, name)
    else:
        return {**row, "errorCode": codes.INVALID_REQUEST, "errorMessage": "this server has settings of topics and of "
                f"broker {call.catalog.node_id} only"}  # fmt: skip
    synonyms = call.values["includeSynonyms"]
    wanted = [each for each in found if keys is None or each["name"] in keys]
    call.budget.spend_again((kind, name), len(wanted))
    for each in wanted:
        if synonyms and not each["isSensitive"]:
            each["synonyms"] = [{"name": each["name"], "value": each["value"], "source": each["configSource"]}]
    return {**row, "configs": wanted}


def _topic_settings(call: Call, topic: Topic) -> Iterable[dict[str, Any]]:
    own = dict(topic.settings)
    for name, value in INTERNAL_TOPICS.get(topic.name, {}).items():
        own.setdefault(name.replace("_", "."), value)
    defaults = {name: value for name, value in LogConfig().to_properties().items() if name not in _SINCE_4_4}
    values = {**defaults, **own}
    public = public_settings("TOPIC")
    for name, value in sorted(values.items()):
        yield _setting(
            name, value, _OF_TOPIC if name in own else _DEFAULT, name in public, not call.catalog.is_writable
        )


def _broker_settings(call: Call, name: str) -> Iterable[dict[str, Any]]:
    own, public = call.catalog.broker_settings(), public_settings("BROKER")
    values = {key: (value, _OF_BROKER) for key, value in own.items()}
    if name:
        values |= {
            "broker.id": (name, _STATIC),
            "node.id": (name, _STATIC),
            "log.dirs": (",".join(call.catalog.log_dirs), _STATIC),
            "fetch.max.bytes": (str(call.service.fetch_max_bytes), _STATIC),
            "auto.create.topics.enable": (str(call.catalog.is_writable).lower(), _STATIC),
        }
    for key, (value, source) in sorted(values.items()):
        yield _setting(key, value, source, key in public)


def _setting(name: str, value: str, source: int, is_public: bool, read_only: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "value": value if is_public else None,
        "readOnly": read_only,
        "configSource": source,
        "isSensitive": not is_public,
        "configType": _type_of(name),
    }


def _type_of(name: str) -> int:
    default = getattr(LogConfig(), name.replace(".", "_"), "")
    if isinstance(default, bool):
        return _BOOLEAN
    if isinstance(default, int):
        return _INT if name in _INTS else _LONG
    return _DOUBLE if isinstance(default, float) else _LIST if isinstance(default, tuple) else _STRING


# ---- disks and producers ----


def log_dirs(call: Call) -> Values:
    """Answer DescribeLogDirs, with the sizes of the listing."""
    asked = call.values["topics"]
    wanted = None if asked is None else {each["topic"]: set(each["partitions"]) for each in asked}
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {path: {} for path in call.catalog.log_dirs}
    for served in call.catalog.partitions():
        if wanted is None or served.number in wanted.get(served.topic, ()):
            row = {"partitionIndex": served.number, "partitionSize": served.size}
            rows.setdefault(served.log_dir, {}).setdefault(served.topic, []).append(row)
    return {"results": [_log_dir(call, path, topics) for path, topics in rows.items()]}


def _log_dir(call: Call, path: str, topics: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    found = {"logDir": path, "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()]}
    if "://" in path:  # an object store has no size: the fields keep -1
        return found
    try:
        total, usable = call.catalog.usage(path)
    except OSError:
        return {**found, "errorCode": codes.KAFKA_STORAGE_ERROR}
    return {**found, "totalBytes": total, "usableBytes": usable}


def producers(call: Call) -> Values:
    """Answer DescribeProducers, with all producers that the files know."""
    found = []
    for asked in call.values["topics"]:
        topic = call.catalog.topics.get(asked["name"])
        rows = [_producers_of(call, topic, number) for number in asked["partitionIndexes"]]
        found.append({"name": asked["name"], "partitions": rows})
    return {"topics": found}


def _producers_of(call: Call, topic: Topic | None, number: int) -> dict[str, Any]:
    try:
        served = call.catalog.find(topic, number)
        log = served.log()
    except KafkaError as error:
        return {"partitionIndex": number, "errorCode": error.code, "errorMessage": error.text}
    active = [
        {
            "producerId": each.producer_id,
            "producerEpoch": each.producer_epoch,
            "lastSequence": each.last_sequence,
            "lastTimestamp": each.last_timestamp,
            "coordinatorEpoch": each.coordinator_epoch,
            "currentTxnStartOffset": each.first_txn_offset,
        }
        for each in list(log.producers.active.values())
    ]
    call.budget.spend_again((served.topic, number), len(active))
    return {"partitionIndex": number, "activeProducers": active}
