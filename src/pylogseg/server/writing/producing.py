"""Produce: batches go through the engine, whose verdicts become Kafka's codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pylogseg.errors import (
    CorruptionError,
    FencedError,
    InvalidRecordError,
    OutOfOrderSequenceError,
    PylogsegError,
    RequestError,
    TooLargeError,
    TransactionStateError,
)
from pylogseg.format.codecs import CODECS
from pylogseg.format.layout import BATCH_HEADER
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import Values
from pylogseg.log.append_result import Appended
from pylogseg.server.catalog import INTERNAL, Topic
from pylogseg.server.service import Call
from pylogseg.server.table import NO_ANSWER
from pylogseg.server.writing.transactions import ProducerIdAndEpoch
from pylogseg.server.writing.writer import writing_of

_MAGIC_AT, _SIZE_AT, _ATTRIBUTES_AT, _PRODUCER_AT = 16, 8, 21, 43
_OVERHEAD_BYTES, _TRANSACTIONAL = 12, 0x10
_ACKS = (0, 1, -1)
#: The first version with topic ids.
_WITH_IDS = 13
_VERDICTS: tuple[tuple[type[PylogsegError], int], ...] = (
    (TooLargeError, codes.MESSAGE_TOO_LARGE),
    (OutOfOrderSequenceError, codes.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (FencedError, codes.INVALID_PRODUCER_EPOCH),
    (TransactionStateError, codes.INVALID_TXN_STATE),
    (CorruptionError, codes.CORRUPT_MESSAGE),
    (InvalidRecordError, codes.INVALID_RECORD),
    (RequestError, codes.CORRUPT_MESSAGE),
    (PylogsegError, codes.KAFKA_STORAGE_ERROR),
)


class BatchProducer(NamedTuple):
    """The producer in the header of a batch."""

    producer: ProducerIdAndEpoch
    is_transactional: bool


def produce(call: Call) -> Values | None:
    """Answer Produce; without an answer where the client waits for none, None if something was refused then."""
    acks = call.values["acks"]
    topics: dict[tuple[str, bytes], dict[int, list[Any]]] = {}
    for asked in call.values["topicData"]:
        batches_of = topics.setdefault((asked["name"], asked["topicId"]), {})
        for part in asked["partitionData"]:
            batches_of.setdefault(part["index"], []).append(part["records"])
    responses = []
    is_refused = False
    for (name, topic_id), batches_of in topics.items():
        topic = call.topic(name, topic_id)
        rows = [_row(call, topic, index, batches, acks) for index, batches in batches_of.items()]
        is_refused |= any(row["errorCode"] for row in rows)
        responses.append({"name": name, "topicId": topic_id, "partitionResponses": rows})
    if acks == 0:
        return None if is_refused else NO_ANSWER
    return {"responses": responses}


def _row(call: Call, topic: Topic | None, index: int, batches: Sequence[Any], acks: int) -> dict[str, Any]:
    try:
        if acks not in _ACKS:
            raise KafkaError(codes.INVALID_REQUIRED_ACKS, f"acks is {acks}, it may be 0, 1 or -1")
        done = _append(call, topic, index, batches)
        return {
            "index": index,
            "errorCode": codes.NONE,
            "baseOffset": done.first_offset,
            "logAppendTimeMs": done.append_time_ms,
            "logStartOffset": done.log_start_offset,
        }
    except KafkaError as error:
        return {
            "index": index,
            "errorCode": error.code,
            "baseOffset": -1,
            "recordErrors": _record_errors(error.__cause__),
            "errorMessage": error.text,
        }


def _record_errors(error: BaseException | None) -> list[dict[str, Any]]:
    errors = error.record_errors if isinstance(error, InvalidRecordError) else ()
    return [{"batchIndex": index, "batchIndexErrorMessage": reason} for index, reason in errors]


def _append(call: Call, topic: Topic | None, index: int, batches: Sequence[Any]) -> Appended:
    """Append the last good batch that a request has for a partition; a bad one is the answer, as in Kafka."""
    if topic is None:
        raise KafkaError(codes.UNKNOWN_TOPIC_ID if call.version >= _WITH_IDS else codes.UNKNOWN_TOPIC_OR_PARTITION)
    writing = writing_of(call)
    if topic.name in INTERNAL:
        raise KafkaError(codes.INVALID_TOPIC, f"clients may not write to {topic.name}")
    served = call.catalog.find(topic, index)
    good, refusal = None, None
    for data in batches:
        try:
            good = data, _check_batch(data, call.version)
        except KafkaError as error:
            refusal = error
    done = None
    if good is not None:
        data, stamp = good
        try:
            if not stamp.is_transactional:
                done = writing.topics.append(served, data)
            else:
                name, place = call.values["transactionalId"], (topic.name, index)
                with writing.transactions.appending(name, stamp.producer, place, call.version):
                    done = writing.topics.append(served, data)
        except PylogsegError as error:
            raise KafkaError(code_of_verdict(error), str(error)) from error
    if refusal is not None:
        raise refusal
    assert done is not None
    return done


def _check_batch(data: memoryview | None, version: int) -> BatchProducer:
    """Check that there is one batch of today's format; the rest is the engine's."""
    if data is None or not len(data):
        raise KafkaError(codes.INVALID_RECORD, "there is no batch")
    if len(data) <= _MAGIC_AT:
        raise KafkaError(codes.CORRUPT_MESSAGE, f"a batch of {len(data)} bytes is shorter than its header")
    if data[_MAGIC_AT] != 2:
        raise KafkaError(codes.INVALID_RECORD, f"a batch of magic {data[_MAGIC_AT]}, only 2 is stored")
    size = int.from_bytes(data[_SIZE_AT : _SIZE_AT + 4], "big", signed=True) + _OVERHEAD_BYTES
    if size > len(data) or len(data) < BATCH_HEADER.size:
        raise KafkaError(codes.CORRUPT_MESSAGE, f"a batch of {size} bytes in {len(data)}")
    if size < len(data):
        raise KafkaError(codes.INVALID_RECORD, f"more than one batch for a partition: {len(data) - size} bytes follow")
    attributes = int.from_bytes(data[_ATTRIBUTES_AT : _ATTRIBUTES_AT + 2], "big")
    for codec in CODECS:
        if codec.number == attributes & 7 and version < codec.first_produce:
            needs = f"{codec.name} needs version {codec.first_produce} of Produce"
            raise KafkaError(codes.UNSUPPORTED_COMPRESSION_TYPE, needs)
    producer_id = int.from_bytes(data[_PRODUCER_AT : _PRODUCER_AT + 8], "big", signed=True)
    epoch = int.from_bytes(data[_PRODUCER_AT + 8 : _PRODUCER_AT + 10], "big", signed=True)
    return BatchProducer(ProducerIdAndEpoch(producer_id, epoch), bool(attributes & _TRANSACTIONAL))


def code_of_verdict(error: PylogsegError) -> int:
    """Return Kafka's code for a verdict of the engine."""
    if isinstance(error, InvalidRecordError) and any("timestamp" in reason for _, reason in error.record_errors):
        return codes.INVALID_TIMESTAMP
    return next(code for kind, code in _VERDICTS if isinstance(error, kind))
