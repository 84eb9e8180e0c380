"""Fetch: batches from the files, as they lie there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pylogseg.errors import PylogsegError
from pylogseg.format.codecs import CODECS
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import NO_ID, Values
from pylogseg.server.catalog import ServedPartition
from pylogseg.server.offsets import end_of_epoch
from pylogseg.server.service import Call, check_epoch
from pylogseg.server.sessions import Wanted

if TYPE_CHECKING:
    from pylogseg.log.log import FetchIsolation, Log

_ISOLATIONS: dict[int, FetchIsolation] = {0: "high_watermark", 1: "txn_committed"}
_NO_REPLICA = -1
_LOOK_SECONDS = 0.25
#: The first versions that have topic ids, that say who leads now, and that have an error for the whole answer.
_IDS, _LEADERS, _WHOLE_FETCH = 13, 16, 7
_OFFLINE_SINCE = 6

_Answer = tuple[Wanted, dict[str, Any]]


class PartitionGrowth:
    """A waiter, during a ``with``, for growth of some partitions."""

    def __init__(self, partitions: Sequence[ServedPartition]) -> None:
        self._partitions = partitions
        self._grown = threading.Event()

    def __enter__(self) -> PartitionGrowth:
        for partition in self._partitions:
            partition.watchers.add(self._grown)
        return self

    def __exit__(self, *_: object) -> None:
        for partition in self._partitions:
            partition.watchers.discard(self._grown)

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; return whether one has grown since the last call."""
        if not self._grown.wait(max(0.0, seconds)):
            return False
        self._grown.clear()
        return True


def fetch(call: Call) -> Values:
    """Answer Fetch; where there is too little to send, after the time that the client wants to wait."""
    values = call.values
    if values["replicaId"] != _NO_REPLICA or values["replicaState"]["replicaId"] != _NO_REPLICA:
        return {"errorCode": codes.INVALID_REQUEST}
    isolation = _ISOLATIONS.get(values["isolationLevel"])
    if isolation is None:
        return {"errorCode": codes.INVALID_REQUEST}
    started = time.monotonic()
    turn = call.service.sessions.begin(values, call.version)
    if turn.error:
        return {"errorCode": turn.error}
    limit = max(0, min(values["maxBytes"], call.service.fetch_max_bytes))
    least, until = min(values["minBytes"], limit), started + values["maxWaitMs"] / 1000
    answers, size = _read(call, turn.wanted, isolation, limit)
    if turn.wanted and not _is_enough(answers, size, least) and time.monotonic() < until:
        if not call.catalog.logs.is_writable:
            call.wait(until - time.monotonic())  # what was read is what there is
        else:
            with PartitionGrowth(_list_watched(call, turn.wanted)) as growth:
                answers = _grown(call, growth, until, lambda: _read(call, turn.wanted, isolation, limit), least)
    return {"sessionId": turn.number, **_group_by_topic(call, turn.choose_answers(answers))}


def fail_fetch(call: Call, code: int, text: str | None) -> Values:
    """Return the error for each partition, where a version has none for the whole answer."""
    if call.version >= _WHOLE_FETCH:
        return {}
    nothing = {"errorCode": code, "highWatermark": -1, "records": b""}
    return {
        "responses": [
            {**topic, "partitions": [{"partitionIndex": row["partition"], **nothing} for row in topic["partitions"]]}
            for topic in call.values["topics"]
        ]
    }


def _list_watched(call: Call, wanted: list[Wanted]) -> list[ServedPartition]:
    topics = [(call.topic(item.topic, item.topic_id), item.number) for item in wanted]
    partitions = [topic.partitions.get(number) for topic, number in topics if topic is not None]
    return [partition for partition in partitions if partition is not None]


def _is_enough(answers: list[_Answer], size: int, least: int) -> bool:
    return size >= least or any(row["errorCode"] or "divergingEpoch" in row for _, row in answers)


def _grown(
    call: Call, growth: PartitionGrowth, until: float, read: Callable[[], tuple[list[_Answer], int]], least: int
) -> list[_Answer]:
    """Read again whenever a partition has grown, until there is enough or the time is over."""
    while True:
        answers, size = read()  # first of all once more: it may have grown before anybody looked
        if _is_enough(answers, size, least):
            return answers
        while not growth.wait(min(until - time.monotonic(), _LOOK_SECONDS)):
            if time.monotonic() >= until:
                return answers
            call.wait(0.001)  # it raises if the client has gone, or the server stops


def _read(call: Call, wanted: list[Wanted], isolation: FetchIsolation, limit: int) -> tuple[list[_Answer], int]:
    """Read partitions in their order. The first non-empty one gives at least one batch of any size."""
    answers: list[_Answer] = []
    left, min_one, size = limit, True, 0
    for item in wanted:
        row = _one(call, item, isolation, min(max(0, item.max_bytes), left), min_one)
        records = row["records"]
        if records != b"":
            min_one = False
            size += records.size
            left = max(0, left - records.size)
        answers.append((item, row))
    return answers, size


def _one(call: Call, each: Wanted, isolation: FetchIsolation, want: int, min_one: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "partitionIndex": each.number,
        "errorCode": codes.NONE,
        "highWatermark": -1,
        "logStartOffset": -1,
        "records": b"",  # never null: librdkafka takes that for a broken answer
        "abortedTransactions": None,
    }
    try:
        served = _find(call, each)
        if call.service.before_fetch is not None:
            call.service.before_fetch(call, served.topic, served.number)
        check_epoch(served, each.epoch)
        _check_codec(call, served)
        log = served.log()
        ends = {
            "highWatermark": log.high_watermark,
            "lastStableOffset": log.last_stable_offset,
            "logStartOffset": log.log_start_offset,
        }
        if each.last_epoch >= 0 and (diverging := _diverging(served, each)) is not None:
            row["divergingEpoch"] = diverging
        else:
            _fill(row, log, each, isolation, want, min_one)
        row |= ends  # an error, also of the offset, comes without them
    except KafkaError as error:
        row["errorCode"] = error.code
        if error.code == codes.KAFKA_STORAGE_ERROR and call.version < _OFFLINE_SINCE:
            row["errorCode"] = codes.NOT_LEADER
        if call.version >= _LEADERS and error.code in (codes.FENCED_LEADER_EPOCH, codes.NOT_LEADER):
            _name_leader(call, each, row)
    return row


def _find(call: Call, each: Wanted) -> ServedPartition:
    topic = call.topic(each.topic, each.topic_id)
    if topic is None:
        by_id = each.topic_id != NO_ID or call.version >= _IDS
        if not by_id:
            call.service.check_readable(call, each.topic)
        raise KafkaError(codes.UNKNOWN_TOPIC_ID if by_id else codes.UNKNOWN_TOPIC_OR_PARTITION)
    call.service.check_readable(call, topic.name)
    return call.catalog.find(topic, each.number)


def _check_codec(call: Call, served: ServedPartition) -> None:
    """Refuse a topic in a codec to a client that is older than it."""
    name = call.catalog.topics[served.topic].settings.get("compression.type")
    if any(codec.name == name and call.version < codec.first_fetch for codec in CODECS):
        raise KafkaError(codes.UNSUPPORTED_COMPRESSION_TYPE)


def _diverging(served: ServedPartition, each: Wanted) -> dict[str, int] | None:
    """Return epoch and end offset at which a log diverges from a client's records; None if it does not."""
    epoch, end = end_of_epoch(served, each.last_epoch)
    if epoch < 0 or end < 0:
        raise KafkaError(codes.OFFSET_OUT_OF_RANGE)
    return {"epoch": epoch, "endOffset": end} if epoch < each.last_epoch or end < each.offset else None


def _fill(row: dict[str, Any], log: Log, each: Wanted, isolation: FetchIsolation, want: int, min_one: bool) -> None:
    """Find the batches of a partition, and the aborted transactions that reach into them."""
    try:
        chunk = log.fetch(each.offset, want, isolation, min_one=min_one, placed=True)
    except PylogsegError as error:
        raise KafkaError.of(error) from error
    if chunk.first_incomplete:  # a part of a batch alone is of no use, and a broker says nothing of transactions then
        return
    if chunk.place is not None:
        row["records"] = chunk.place
    if chunk.aborted is not None:
        row["abortedTransactions"] = [
            {"producerId": producer, "firstOffset": offset} for producer, offset in chunk.aborted
        ]


def _name_leader(call: Call, each: Wanted, row: dict[str, Any]) -> None:
    topic = call.topic(each.topic, each.topic_id)
    served = None if topic is None else topic.partitions.get(each.number)
    if served is not None:
        row["currentLeader"] = {"leaderId": call.catalog.node_id, "leaderEpoch": served.leader_epoch}


def _group_by_topic(call: Call, answers: list[_Answer]) -> Values:
    """Put the answers of neighbours of one topic together."""
    topics: list[dict[str, Any]] = []
    for item, row in answers:
        last = topics[-1] if topics else None
        if last is None or last["topic"] != item.topic or last["topicId"] != item.topic_id:
            topics.append(last := {"topic": item.topic, "topicId": item.topic_id, "partitions": []})
        last["partitions"].append(row)
    led = call.version >= _LEADERS and any("currentLeader" in row for _, row in answers)
    return {"responses": topics, "nodeEndpoints": [call.node()] if led else []}
