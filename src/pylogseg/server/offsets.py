"""Answers about offsets: by time, the ends of logs, the ends of leader epochs."""

from __future__ import annotations

from typing import Any

from pylogseg.errors import PylogsegError
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import Values
from pylogseg.log.read_result import EARLIEST_PENDING_UPLOAD, LATEST, LATEST_TIERED, MAX_TIMESTAMP, FoundOffset
from pylogseg.server.catalog import ServedPartition
from pylogseg.server.service import Call, check_epoch

#: The first version of ListOffsets that has a special timestamp.
_SINCE = {LATEST: 1, -2: 1, MAX_TIMESTAMP: 7, -4: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_NOTHING = FoundOffset(-1, -1, -1)


def list_offsets(call: Call) -> Values:
    committed = call.values["isolationLevel"] == 1
    counts: dict[tuple[str, int], int] = {}
    for topic in call.values["topics"]:
        for partition in topic["partitions"]:
            key = topic["name"], partition["partitionIndex"]
            counts[key] = counts.get(key, 0) + 1
    topics = []
    for topic in call.values["topics"]:
        rows = []
        for partition in topic["partitions"]:
            row = {"partitionIndex": partition["partitionIndex"]}
            try:
                if counts[topic["name"], partition["partitionIndex"]] > 1:
                    raise KafkaError(codes.INVALID_REQUEST)
                at = _find(call, topic["name"], partition, committed)
                row |= {"timestamp": at.timestamp, "offset": at.offset, "leaderEpoch": at.leader_epoch}
            except KafkaError as error:
                row["errorCode"] = error.code
            rows.append(row)
        topics.append({"name": topic["name"], "partitions": rows})
    return {"topics": topics}


def _find(call: Call, topic: str, asked: dict[str, Any], committed: bool) -> FoundOffset:
    timestamp = asked["timestamp"]
    if timestamp < 0 and call.version < _SINCE.get(timestamp, 2**15):
        raise KafkaError(codes.UNSUPPORTED_VERSION)
    served = call.catalog.find(call.catalog.topics.get(topic), asked["partitionIndex"])
    check_epoch(served, asked["currentLeaderEpoch"])
    log = served.log()
    readable = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        return FoundOffset(-1, readable, served.leader_epoch)
    try:
        offset = log.offset_for_time(timestamp)
    except PylogsegError as error:
        raise KafkaError.of(error) from error
    if offset is None or ((timestamp >= 0 or timestamp == MAX_TIMESTAMP) and offset.offset >= readable):
        return _NOTHING
    if offset.leader_epoch < 0 and offset.offset == log.log_end_offset:
        return offset._replace(leader_epoch=served.leader_epoch)  # a leader's epoch begins at its end at the latest
    return offset


def epoch_ends(call: Call) -> Values:
    topics = []
    for topic in call.values["topics"]:
        rows = []
        for partition in topic["partitions"]:
            row = {"partition": partition["partition"]}
            try:
                served = call.catalog.find(call.catalog.topics.get(topic["topic"]), partition["partition"])
                check_epoch(served, partition["currentLeaderEpoch"])
                row["leaderEpoch"], row["endOffset"] = end_of_epoch(served, partition["leaderEpoch"])
            except KafkaError as error:
                row["errorCode"] = error.code
            rows.append(row)
        topics.append({"topic": topic["topic"], "partitions": rows})
    return {"topics": topics}


def end_of_epoch(served: ServedPartition, epoch: int) -> tuple[int, int]:
    """Return the largest known epoch that is not above one, and where the next begins; -1 and -1 if it is unknown.

    This server gives a leader's epoch, which begins at the end of its log at the latest.
    """
    log = served.log()
    if epoch == served.leader_epoch:
        return epoch, log.log_end_offset
    return log.epochs.end_offset_for(epoch, log.log_end_offset)
