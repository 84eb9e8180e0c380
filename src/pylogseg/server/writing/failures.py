"""Answers that are errors, of a whole request or of some rows of it, in the form that each request has for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pylogseg.server.service import Call
from pylogseg.server.wire import Values


class Rows(NamedTuple):
    """How a list of an answer follows from one of its request."""

    answer: str
    request: str
    copied: tuple[str, ...]


_PARTITIONS = Rows("partitions", "partitions", ("partitionIndex",))
#: Answers that have their errors in lists; the others have one for all.
LISTS: dict[int, tuple[Rows, ...]] = {
    0: (Rows("responses", "topicData", ("name", "topicId")), Rows("partitionResponses", "partitionData", ("index",))),
    2: (Rows("topics", "topics", ("name",)), _PARTITIONS),
    3: (Rows("topics", "topics", ("name", "topicId")),),
    8: (Rows("topics", "topics", ("name", "topicId")), _PARTITIONS),
    19: (Rows("topics", "topics", ("name",)),),
    21: (Rows("topics", "topics", ("name",)), _PARTITIONS),
    23: (Rows("topics", "topics", ("topic",)), Rows("partitions", "partitions", ("partition",))),
    28: (Rows("topics", "topics", ("name",)), _PARTITIONS),
    32: (Rows("results", "resources", ("resourceType", "resourceName")),),
    33: (Rows("responses", "resources", ("resourceType", "resourceName")),),
    37: (Rows("results", "topics", ("name",)),),
    45: (Rows("responses", "topics", ("name",)), _PARTITIONS),
    47: (Rows("topics", "topics", ("name",)), _PARTITIONS),
    75: (Rows("topics", "topics", ("name",)),),
    44: (Rows("responses", "resources", ("resourceType", "resourceName")),),
}


#: The first versions of Fetch and OffsetFetch that have an error for the whole answer.
_WHOLE_FETCH, _WHOLE_OFFSETS = 7, 2


def _fetched(number: int, code: int) -> dict[str, Any]:
    return {"partitionIndex": number, "errorCode": code, "highWatermark": -1, "records": b""}


def _no_offset(number: int, code: int) -> dict[str, Any]:
    return {"partitionIndex": number, "errorCode": code, "committedOffset": -1, "metadata": ""}


def failed(key: int, call: Call, code: int, text: str | None = None) -> Values:
    """Return the answer to a request that fails as a whole."""
    values = call.values
    found: Values = {"errorCode": code, "errorMessage": text}
    if key == 3:
        found |= {"brokers": [call.node()], "clusterId": call.catalog.cluster_id, "controllerId": call.catalog.node_id}
    if key == 1:
        if call.version < _WHOLE_FETCH:
            found["responses"] = [
                {**each, "partitions": [_fetched(row["partition"], code) for row in each["partitions"]]}
                for each in values["topics"]
            ]
    elif key in LISTS:
        outer = LISTS[key][0]
        found[outer.answer] = [_row(each, LISTS[key], code, text) for each in values[outer.request] or ()]
    elif key == 9:
        if call.version < _WHOLE_OFFSETS:
            found["topics"] = [
                {**each, "partitions": [_no_offset(number, code) for number in each["partitionIndexes"]]}
                for each in values["topics"] or ()
            ]
        found["groups"] = [{"groupId": each["groupId"], "errorCode": code} for each in values["groups"]]
    elif key == 10:
        nowhere = {"nodeId": -1, "host": "", "port": -1}
        found |= nowhere
        keys = values["coordinatorKeys"]
        found["coordinators"] = [{"key": each, "errorCode": code, "errorMessage": text, **nowhere} for each in keys]
    elif key == 15:
        found["groups"] = [{"groupId": each, "errorCode": code} for each in values["groups"]]
    elif key == 69:
        found["groups"] = [{"groupId": each, "errorCode": code} for each in values["groupIds"]]
    elif key == 35:
        found["results"] = [{"logDir": each, "errorCode": code} for each in call.catalog.log_dirs or [""]]
    elif key == 61:
        found["topics"] = [
            {
                "name": each["name"],
                "partitions": [{"partitionIndex": number, "errorCode": code} for number in each["partitionIndexes"]],
            }
            for each in values["topics"]
        ]
    elif key == 20:
        names = values["topics"] or [{"name": name} for name in values["topicNames"]]
        found["responses"] = [{**each, "errorCode": code, "errorMessage": text} for each in names]
    elif key == 24:
        found["resultsByTopicV3AndBelow"] = [
            {
                "name": topic["name"],
                "resultsByPartition": [
                    {"partitionIndex": number, "partitionErrorCode": code} for number in topic["partitions"]
                ],
            }
            for topic in values["v3AndBelowTopics"]
        ]
    elif key == 31:
        found["filterResults"] = [{"errorCode": code, "errorMessage": text} for _ in values["filters"]]
    elif key == 30:
        found["results"] = [{"errorCode": code, "errorMessage": text} for _ in values["creations"]]
    elif key == 34:
        found["results"] = [
            {
                "topicName": topic["name"],
                "partitions": [{"partitionIndex": number, "errorCode": code} for number in topic["partitions"]],
            }
            for log_dir in values["dirs"]
            for topic in log_dir["topics"]
        ]
    elif key == 43:
        found["replicaElectionResults"] = [
            {
                "topic": topic["topic"],
                "partitionResult": [{"partitionId": number, "errorCode": code} for number in topic["partitions"]],
            }
            for topic in values["topicPartitions"] or ()
        ]
    elif key == 65:
        found["transactionStates"] = [
            {"transactionalId": name, "errorCode": code} for name in values["transactionalIds"]
        ]
    elif key == 50:  # without their names, as Kafka
        found["results"] = [{"user": "", "errorCode": code, "errorMessage": text} for _ in values["users"] or ()]
    elif key == 51:
        names = dict.fromkeys(each["name"] for each in (*values["deletions"], *values["upsertions"]))
        found["results"] = [{"user": name, "errorCode": code, "errorMessage": text} for name in names]
    elif key == 42:
        found["results"] = [{"groupId": name, "errorCode": code} for name in values["groupsNames"]]
    return found


def joined(found: Iterable[dict[str, Any]], rows: tuple[Rows, ...]) -> list[dict[str, Any]]:
    """Put rows of one topic together."""
    topics: dict[Any, dict[str, Any]] = {}
    for row in found:
        name = tuple(row.get(each) for each in rows[0].copied)
        known = topics.setdefault(name, row)
        if known is not row:
            known[rows[1].answer] = [*known[rows[1].answer], *row[rows[1].answer]]
    return list(topics.values())


def _row(asked: dict[str, Any], rows: tuple[Rows, ...], code: int, text: str | None) -> dict[str, Any]:
    copied = {name: asked[name] for name in rows[0].copied}
    if len(rows) == 1:
        return {**copied, "errorCode": code, "errorMessage": text}
    inner = rows[1]
    return {**copied, inner.answer: [_row(each, rows[1:], code, text) for each in asked[inner.request]]}
