"""Columns of the tables of a cluster's state: the state itself, SQL and the documents take them from here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from pylogseg.format.columns import TableColumn
from pylogseg.reading.arrow.columns import arrow_schema

_GROUP = TableColumn("group", "string", "name of the group")
_TOPIC = TableColumn("topic", "string", "name of the topic")
_PARTITION = TableColumn("partition", "int32", "number of the partition")
_TOPIC_ID = TableColumn("topicId", "string", "id of the topic; null if unknown")
_LEADER_EPOCH = TableColumn("leaderEpoch", "int32", "leader epoch of the record that was read last")
_PRODUCER_ID = TableColumn("producerId", "int64", "id of the producer")
_PRODUCER_EPOCH = TableColumn("producerEpoch", "int16", "epoch of the producer")
_COORDINATOR_EPOCH = TableColumn(
    "coordinatorEpoch", "int32", "epoch of the last marker's coordinator; null without one"
)
_LAST_TIMESTAMP = TableColumn("lastTimestamp", "int64", "timestamp of the producer's last batch", "ms")
_TRANSACTIONAL_ID = TableColumn("transactionalId", "string", "transactional id; null if no coordinator's log has it")


def _partitions(meaning: str) -> tuple[TableColumn, ...]:
    return (
        TableColumn("topic", "string", meaning),
        TableColumn("partitions", "list<int32>", "their numbers"),
    )


_ASSIGNED = _partitions("name of the topic; of a streams group its subtopology")

GROUPS = (
    _GROUP,
    TableColumn("type", "string", "Classic, Consumer, Share or Streams"),
    TableColumn("state", "string", "state of the group, as Kafka's tools name it"),
    TableColumn("protocolType", "string", "protocol of the members; empty for a simple group"),
    TableColumn("assignor", "string", "strategy of the assignment"),
    TableColumn("groupEpoch", "int32", "generation of a classic group, else the group's epoch"),
    TableColumn("assignmentEpoch", "int32", "epoch of the target assignment"),
    TableColumn("members", "int32", "number of members"),
    TableColumn("offsets", "int32", "number of committed offsets"),
    TableColumn("isSimple", "bool", "the group has offsets only: a classic group without members and protocol"),
    TableColumn("offsetsPartition", "int32", "partition of `__consumer_offsets` that has the group"),
)
MEMBERS = (
    _GROUP,
    TableColumn("memberId", "string", "id of the member"),
    TableColumn("instanceId", "string", "`group.instance.id` of a static member"),
    TableColumn("clientId", "string", "`client.id` of the client"),
    TableColumn("host", "string", "address of the client"),
    TableColumn("rackId", "string", "rack of the client"),
    TableColumn("memberEpoch", "int32", "epoch of the member"),
    TableColumn("state", "string", "state of the member's assignment"),
    TableColumn("isClassic", "bool", "the member speaks the classic protocol in a group of the new one"),
    TableColumn("subscribedTopics", "list<string>", "names that the member subscribes to"),
    TableColumn("subscribedRegex", "string", "pattern that the member subscribes to"),
    TableColumn("assignment", "list<struct>", "partitions that the member has", fields=_ASSIGNED),
    TableColumn("targetAssignment", "list<struct>", "partitions that the group gives it", fields=_ASSIGNED),
    TableColumn("standbyTasks", "list<struct>", "standby tasks of a streams group", fields=_ASSIGNED),
    TableColumn("warmupTasks", "list<struct>", "warm-up tasks of a streams group", fields=_ASSIGNED),
)
OFFSETS = (
    _GROUP,
    _TOPIC,
    _PARTITION,
    TableColumn("offset", "int64", "committed offset; null if one is only pending"),
    _LEADER_EPOCH,
    TableColumn("metadata", "string", "text that the client committed with the offset"),
    TableColumn("commitTime", "timestamp[ms]", "time of the commit"),
    TableColumn("expireTime", "timestamp[ms]", "time at which the offset expires, of old clients only"),
    _TOPIC_ID,
    TableColumn("stale", "bool", "the topic was deleted, or made again with another id; null if unknown"),
    TableColumn("startOffset", "int64", "start of the partition's log"),
    TableColumn("endOffset", "int64", "end of the partition's log"),
    TableColumn("lag", "int64", "`endOffset - offset`; negative above the end"),
    TableColumn("lagFromStart", "int64", "the same, from the log start if the offset is below it"),
    TableColumn("pendingOffset", "int64", "offset in a transaction that is still open"),
    TableColumn("pendingProducerId", "int64", "producer of that transaction"),
    TableColumn("recordOffset", "int64", "offset of the commit in `__consumer_offsets`"),
)
#: Columns that follow those of `OFFSETS`: the fields of `Lag`.
LAGS = (
    TableColumn("lagRecords", "int64", "records that still exist from the offset on"),
    TableColumn("lagBytes", "int64", "size of their batches on the disk", "bytes"),
    TableColumn("lagMs", "int64", "time from the first of them to the last", "ms"),
)
MAPPED = (
    *(column for column in OFFSETS if column.name in ("group", "topic", "partition", "offset")),
    TableColumn("mappedTopic", "string", "name of the topic in the other cluster"),
    TableColumn("mappedPartition", "int32", "number of the partition there"),
    TableColumn("mappedOffset", "int64", "offset there"),
    TableColumn("reason", "string", "why there is none; null if there is one"),
)
SHARE_OFFSETS = (
    _GROUP,
    _TOPIC,
    _PARTITION,
    TableColumn("startOffset", "int64", "first offset that may still be delivered"),
    _LEADER_EPOCH,
    TableColumn("stateEpoch", "int32", "epoch of the state"),
    TableColumn("snapshotEpoch", "int32", "number of the snapshot"),
    TableColumn("endOffset", "int64", "end of the partition's log"),
    TableColumn("delivered", "int32", "records above the start that are done; null if unknown"),
    TableColumn("lag", "int64", "`endOffset - startOffset - delivered`"),
    TableColumn(
        "batches",
        "list<struct>",
        "states of records above the start",
        fields=(
            TableColumn("firstOffset", "int64", "offset of the first record"),
            TableColumn("lastOffset", "int64", "offset of the last record"),
            TableColumn("state", "string", "state of their delivery"),
            TableColumn("deliveryCount", "int16", "number of deliveries"),
        ),
    ),
    _TOPIC_ID,
)
TRANSACTIONS = (
    _TRANSACTIONAL_ID._replace(meaning="transactional id"),
    _PRODUCER_ID,
    _PRODUCER_EPOCH,
    TableColumn("state", "string", "state of its last transaction, as Kafka's tools name it"),
    TableColumn("timeoutMs", "int32", "timeout of a transaction", "ms"),
    TableColumn("startTime", "timestamp[ms]", "start of the transaction; null without one"),
    TableColumn("lastUpdateTime", "timestamp[ms]", "time of the last change"),
    TableColumn("partitions", "list<struct>", "partitions of the transaction", fields=_partitions("name of the topic")),
    TableColumn("previousProducerId", "int64", "producer id that the id had before; null for none"),
    TableColumn("nextProducerId", "int64", "producer id that the id gets next; null for none"),
    TableColumn("clientTransactionVersion", "int16", "version of the transaction protocol"),
    TableColumn("statePartition", "int32", "partition of `__transaction_state` that has the id"),
)
PRODUCERS = (
    _TOPIC,
    _PARTITION,
    _PRODUCER_ID,
    _PRODUCER_EPOCH,
    TableColumn("lastSequence", "int32", "sequence of the producer's last record"),
    _LAST_TIMESTAMP,
    _COORDINATOR_EPOCH,
    TableColumn("openSinceOffset", "int64", "first offset of its open transaction; null without one"),
    _TRANSACTIONAL_ID,
)
OPEN_TRANSACTIONS = (
    _TOPIC,
    _PARTITION,
    _PRODUCER_ID,
    _PRODUCER_EPOCH,
    _COORDINATOR_EPOCH,
    TableColumn("startOffset", "int64", "offset at which the transaction begins"),
    _LAST_TIMESTAMP,
    TableColumn("ageMs", "int64", "time since then, at the moment of the state", "ms"),
    _TRANSACTIONAL_ID,
    TableColumn("hanging", "bool", "no coordinator will end it; null if unknown"),
    TableColumn("abortCommand", "string", "the command that aborts a hanging transaction"),
    TableColumn("coordinatorState", "string", "state that the coordinator's log has, `no entry` or `not of this one`"),
    TableColumn("isHeld", "bool", "its coordinator goes on with it"),
)
REMOTE_SEGMENTS = (
    _TOPIC,
    _PARTITION,
    TableColumn("startOffset", "int64", "first offset of the segment"),
    TableColumn("endOffset", "int64", "last offset of the segment"),
    TableColumn("state", "string", "state of the copy or the deletion"),
    TableColumn("size", "int64", "size of the segment", "bytes"),
    TableColumn("maxTimestamp", "timestamp[ms]", "the largest timestamp of its records"),
    TableColumn("eventTime", "timestamp[ms]", "time of the last change of its state"),
    TableColumn("brokerId", "int32", "broker that made the change"),
    TableColumn(
        "leaderEpochs",
        "list<struct>",
        "leader epochs of its records",
        fields=(
            TableColumn("leaderEpoch", "int32", "leader epoch"),
            TableColumn("offset", "int64", "first offset of the epoch"),
        ),
    ),
    TableColumn("customMetadata", "binary", "bytes of the storage plugin"),
    TableColumn("isTxnIndexEmpty", "bool", "the segment has no aborted transaction"),
    _TOPIC_ID,
    TableColumn("segmentId", "string", "id of the remote segment"),
)
CONNECTORS = (
    TableColumn("connector", "string", "name of the connector"),
    TableColumn("connectorClass", "string", "its class"),
    TableColumn("targetState", "string", "state that somebody asked for"),
    TableColumn("state", "string", "state that its worker reported"),
    TableColumn("workerId", "string", "that worker"),
    TableColumn("version", "string", "version of the plugin"),
    TableColumn("trace", "string", "error of a failed connector"),
    TableColumn(
        "tasks",
        "list<struct>",
        "its tasks",
        fields=(
            TableColumn("task", "string", "number of the task"),
            TableColumn("state", "string", "its state"),
            TableColumn("workerId", "string", "its worker"),
            TableColumn("trace", "string", "error of a failed task"),
        ),
    ),
    TableColumn("taskCount", "int32", "number of tasks in its settings"),
    TableColumn("config", "map<string, string>", "its settings; secrets are masked"),
    TableColumn(
        "sourceOffsets",
        "list<struct>",
        "offsets in the source",
        fields=(
            TableColumn("partition", "string", "partition of the source, as JSON"),
            TableColumn("offset", "string", "offset in it, as JSON"),
        ),
    ),
    TableColumn("configTopic", "string", "topic of the Connect cluster's settings"),
)
SCHEMAS = (
    TableColumn("context", "string", "context of the registry"),
    TableColumn("subject", "string", "name of the subject"),
    TableColumn("version", "int32", "version of the schema in the subject"),
    TableColumn("id", "int32", "id of the schema"),
    TableColumn("type", "string", "AVRO, JSON or PROTOBUF"),
    TableColumn("deleted", "string", "`soft`: hidden, still used to decode; `hard`: deleted, still in the log"),
    TableColumn(
        "references",
        "list<struct>",
        "schemas that it refers to",
        fields=(
            TableColumn("name", "string", "name in the schema's text"),
            TableColumn("subject", "string", "name of the subject"),
            TableColumn("version", "int32", "version in the subject"),
        ),
    ),
    TableColumn("guid", "string", "the schema's GUID"),
    TableColumn("schema", "string", "text of the schema"),
)
#: Tables of `__cluster_metadata`.
CLUSTER_TABLES: dict[str, tuple[TableColumn, ...]] = {
    "topics": (
        _TOPIC,
        _TOPIC_ID,
        TableColumn("partitions", "int32", "number of partitions"),
        TableColumn("replicationFactor", "int32", "the most replicas of a partition"),
        TableColumn("configs", "int32", "number of its own settings"),
    ),
    "partitions": (
        _TOPIC,
        _TOPIC_ID,
        _PARTITION,
        TableColumn("leader", "int32", "broker that leads; -1 for none"),
        TableColumn("leaderEpoch", "int32", "leader epoch"),
        TableColumn("partitionEpoch", "int32", "number of the last change"),
        TableColumn("replicas", "list<int32>", "brokers with a replica"),
        TableColumn("isr", "list<int32>", "replicas in sync"),
        TableColumn("adding", "list<int32>", "replicas that a reassignment adds"),
        TableColumn("removing", "list<int32>", "replicas that a reassignment removes"),
        TableColumn("elr", "list<int32>", "eligible leader replicas"),
        TableColumn("lastKnownElr", "list<int32>", "the last known eligible leaders"),
        TableColumn("directories", "list<string>", "directory ids, in the order of the replicas"),
        TableColumn("isRecovering", "bool", "an unclean election is being recovered from"),
    ),
    "configs": (
        TableColumn("resourceType", "string", "kind of the resource"),
        TableColumn("resource", "string", "its name; empty for all brokers"),
        TableColumn("name", "string", "name of the setting"),
        TableColumn("value", "string", "its value; a secret is masked"),
        TableColumn("isSecret", "bool", "the value is a secret"),
    ),
    "brokers": (
        TableColumn("brokerId", "int32", "id of the broker"),
        TableColumn("rack", "string", "its rack"),
        TableColumn("endpoints", "list<string>", "its listeners"),
        TableColumn("fenced", "bool", "the controller has fenced it"),
        TableColumn("inControlledShutdown", "bool", "it is shutting down"),
        TableColumn("brokerEpoch", "int64", "epoch of its registration"),
        TableColumn("incarnationId", "string", "id of its process"),
        TableColumn("logDirs", "list<string>", "ids of its log directories"),
        TableColumn("cordonedLogDirs", "list<string>", "log directories that get no new partitions"),
        TableColumn("features", "list<string>", "features that it supports"),
    ),
    "acls": (
        TableColumn("id", "string", "id of the entry"),
        TableColumn("resourceType", "string", "kind of the resource"),
        TableColumn("resource", "string", "its name, or the beginning of names"),
        TableColumn("patternType", "string", "LITERAL or PREFIXED"),
        TableColumn("principal", "string", "the user"),
        TableColumn("host", "string", "the host; * for all"),
        TableColumn("operation", "string", "the operation"),
        TableColumn("permission", "string", "ALLOW or DENY"),
    ),
    "quotas": (
        TableColumn("user", "string", "the user; <default> for all others"),
        TableColumn("clientId", "string", "the client id; <default> for all others"),
        TableColumn("ip", "string", "the address; <default> for all others"),
        TableColumn("key", "string", "name of the quota"),
        TableColumn("value", "float64", "its value"),
    ),
    "users": (
        TableColumn("user", "string", "name of the SCRAM user"),
        TableColumn("mechanism", "string", "SCRAM-SHA-256 or SCRAM-SHA-512"),
        TableColumn("iterations", "int32", "rounds of the hash"),
        TableColumn("salt", "string", "masked unless secrets are shown"),
        TableColumn("storedKey", "string", "masked unless secrets are shown"),
        TableColumn("serverKey", "string", "masked unless secrets are shown"),
    ),
    "features": (
        TableColumn("feature", "string", "name of the feature"),
        TableColumn("level", "int32", "its finalized level"),
    ),
}
STATE_COLUMNS: dict[str, tuple[TableColumn, ...]] = {
    "groups": GROUPS,
    "group_members": MEMBERS,
    "group_offsets": OFFSETS,
    "group_lags": (*OFFSETS, *LAGS),
    "share_offsets": SHARE_OFFSETS,
    "transactions": TRANSACTIONS,
    "open_transactions": OPEN_TRANSACTIONS,
    "producers": PRODUCERS,
    "remote_segments": REMOTE_SEGMENTS,
    "connectors": CONNECTORS,
    "schemas": SCHEMAS,
    **CLUSTER_TABLES,
}


def state_table(rows: Iterable[dict[str, Any]], columns: tuple[TableColumn, ...]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), arrow_schema(columns))
