"""Answers to the requests of idempotent and transactional producers."""

from __future__ import annotations

from typing import Any

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import Values
from pylogseg.server.grouping import committed_of
from pylogseg.server.service import Call
from pylogseg.server.writing.transactions import NOBODY, ProducerIdAndEpoch
from pylogseg.server.writing.writer import writing_of

#: First versions: of InitProducerId, of AddPartitionsToTxn and AddOffsetsToTxn, of EndTxn that know PRODUCER_FENCED;
#: of TxnOffsetCommit that adds its group by itself, of EndTxn that raises the epoch.
_INIT_FENCED, _FENCED, _ADDS_GROUP, _RAISES_EPOCH = 4, 2, 5, 5


def _code(error: KafkaError, version: int, since: int) -> int:
    """Return the code of an error; older clients do not know that they are fenced."""
    return codes.INVALID_PRODUCER_EPOCH if error.code == codes.PRODUCER_FENCED and version < since else error.code


def _producer(call: Call) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(call.values["producerId"], call.values["producerEpoch"])


def init_producer_id(call: Call) -> Values:
    writing, values = writing_of(call), call.values
    if values["transactionalId"] is None:
        return {"producerId": writing.new_id(), "producerEpoch": 0}
    before = _producer(call) if values["producerId"] >= 0 else NOBODY
    try:
        producer = writing.transactions.init(values["transactionalId"], values["transactionTimeoutMs"], before)
    except KafkaError as error:
        return {"errorCode": _code(error, call.version, _INIT_FENCED), "producerEpoch": -1}
    return {"producerId": producer.id, "producerEpoch": producer.epoch}


def add_partitions(call: Call) -> Values:
    """Answer AddPartitionsToTxn, as clients send it."""
    values = call.values
    asked = [(topic["name"], number) for topic in values["v3AndBelowTopics"] for number in topic["partitions"]]
    missing = {place for place in asked if not _is_here(call, *place)}
    error = codes.OPERATION_NOT_ATTEMPTED if missing else codes.NONE
    if not missing:
        producer = ProducerIdAndEpoch(values["v3AndBelowProducerId"], values["v3AndBelowProducerEpoch"])
        try:
            writing_of(call).transactions.add(values["v3AndBelowTransactionalId"], producer, asked)
        except KafkaError as refused:
            error = _code(refused, call.version, _FENCED)
    by_topic: dict[str, list[dict[str, int]]] = {}
    for topic, number in asked:
        code = codes.UNKNOWN_TOPIC_OR_PARTITION if (topic, number) in missing else error
        by_topic.setdefault(topic, []).append({"partitionIndex": number, "partitionErrorCode": code})
    return {"resultsByTopicV3AndBelow": [{"name": name, "resultsByPartition": rows} for name, rows in by_topic.items()]}


def _is_here(call: Call, topic: str, number: int) -> bool:
    topic_here = call.catalog.topics.get(topic)
    return topic_here is not None and 0 <= number < topic_here.count


def add_offsets(call: Call) -> Values:
    values = call.values
    try:
        writing_of(call).transactions.add(values["transactionalId"], _producer(call), groups=[values["groupId"]])
    except KafkaError as error:
        return {"errorCode": _code(error, call.version, _FENCED)}
    return {}


#: What Kafka says instead, in answers about offsets.
_OF_OFFSETS = {
    codes.PRODUCER_FENCED: codes.INVALID_PRODUCER_EPOCH,
    codes.GROUP_ID_NOT_FOUND: codes.ILLEGAL_GENERATION,
}


def commit_offsets(call: Call) -> Values:
    """Answer TxnOffsetCommit: the offsets take effect with the transaction."""
    values = call.values
    error = codes.NONE
    try:
        generation = values["generationIdOrMemberEpoch"]
        if values["memberId"] or generation >= 0:
            call.service.groups.check_commit(
                values["groupId"], values["memberId"], values["groupInstanceId"], generation
            )
        adds = call.version >= _ADDS_GROUP
        writing_of(call).transactions.stage(values["transactionalId"], _producer(call), values["groupId"], adds=adds)
    except KafkaError as refused:
        error = _OF_OFFSETS.get(refused.code, refused.code)
    topics = []
    for topic in values["topics"]:
        rows = []
        for partition in topic["partitions"]:
            is_here = _is_here(call, topic["name"], partition["partitionIndex"])
            code = error or _stage(call, topic["name"], partition) if is_here else codes.UNKNOWN_TOPIC_OR_PARTITION
            rows.append({"partitionIndex": partition["partitionIndex"], "errorCode": code})
        topics.append({"name": topic["name"], "partitions": rows})
    return {"topics": topics}


def _stage(call: Call, topic: str, asked: dict[str, Any]) -> int:
    place, group = (topic, asked["partitionIndex"]), call.values["groupId"]
    try:
        call.service.groups.stage(_producer(call), group, place, committed_of(asked))
    except KafkaError as error:
        return error.code
    return codes.NONE


def end(call: Call) -> Values:
    values = call.values
    version = 2 if call.version >= _RAISES_EPOCH else 0
    try:
        producer = writing_of(call).transactions.end(
            values["transactionalId"], _producer(call), commits=values["committed"], version=version
        )
    except KafkaError as error:
        return {"errorCode": _code(error, call.version, _FENCED)}
    return {"producerId": producer.id, "producerEpoch": producer.epoch}


def mark_undecided(call: Call, answered: Values) -> Values:
    """Mark offsets that an open transaction may change, for a client that wants to know of them."""
    if not call.values["requireStable"]:
        return answered
    for group in answered["groups"] if "groups" in answered else [{"groupId": call.values["groupId"], **answered}]:
        unstable = call.service.groups.unstable(group["groupId"])
        for topic in group.get("topics", ()):
            for row in topic["partitions"]:
                if not row["errorCode"] and (_name(call, topic), row["partitionIndex"]) in unstable:
                    row.update(errorCode=codes.UNSTABLE_OFFSET_COMMIT, committedOffset=-1, metadata="")
    return answered


def _name(call: Call, topic: dict[str, Any]) -> str:
    topic_here = call.topic(None, topic["topicId"]) if topic["topicId"] != bytes(16) else None
    return topic["name"] if topic_here is None else topic_here.name
