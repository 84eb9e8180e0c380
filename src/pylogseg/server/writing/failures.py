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
    copied: tuple[str, ...] = ()
    item: str = ""  #: The field for what the request has a list of, where it has no rows.
    error: str = "errorCode"


_NAME = ("name",)
_PARTITIONS = Rows("partitions", "partitions", ("partitionIndex",))
_RESOURCES = Rows("responses", "resources", ("resourceType", "resourceName"))
_TOPICS = Rows("topics", "topics", _NAME)
#: Answers that have their errors in lists; the others have one for all.
LISTS: dict[int, tuple[Rows, ...]] = {
    0: (Rows("responses", "topicData", ("name", "topicId")), Rows("partitionResponses", "partitionData", ("index",))),
    2: (_TOPICS, _PARTITIONS),
    3: (Rows("topics", "topics", ("name", "topicId")),),
    8: (Rows("topics", "topics", ("name", "topicId")), _PARTITIONS),
    15: (Rows("groups", "groups", item="groupId"),),
    19: (_TOPICS,),
    20: (Rows("responses", "topics", ("name", "topicId")),),
    21: (_TOPICS, _PARTITIONS),
    23: (Rows("topics", "topics", ("topic",)), Rows("partitions", "partitions", ("partition",))),
    24: (
        Rows("resultsByTopicV3AndBelow", "v3AndBelowTopics", _NAME),
        Rows("resultsByPartition", "partitions", item="partitionIndex", error="partitionErrorCode"),
    ),
    28: (_TOPICS, _PARTITIONS),
    30: (Rows("results", "creations"),),
    31: (Rows("filterResults", "filters"),),
    32: (_RESOURCES._replace(answer="results"),),
    33: (_RESOURCES,),
    37: (Rows("results", "topics", _NAME),),
    42: (Rows("results", "groupsNames", item="groupId"),),
    43: (
        Rows("replicaElectionResults", "topicPartitions", ("topic",)),
        Rows("partitionResult", "partitions", item="partitionId"),
    ),
    44: (_RESOURCES,),
    45: (Rows("responses", "topics", _NAME), _PARTITIONS),
    47: (_TOPICS, _PARTITIONS),
    61: (_TOPICS, Rows("partitions", "partitionIndexes", item="partitionIndex")),
    65: (Rows("transactionStates", "transactionalIds", item="transactionalId"),),
    69: (Rows("groups", "groupIds", item="groupId"),),
    75: (_TOPICS,),
}
_DELETE_TOPICS, _ROWS_TO_DELETE = 20, 6
_NAMES_TO_DELETE = (Rows("responses", "topicNames", item="name"),)


def lists_of(key: int, version: int) -> tuple[Rows, ...]:
    """Return the lists with the errors of an answer, as a version has them; none if there is one error for all."""
    return _NAMES_TO_DELETE if key == _DELETE_TOPICS and version < _ROWS_TO_DELETE else LISTS.get(key, ())


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
    elif lists := lists_of(key, call.version):
        found[lists[0].answer] = [_row(each, lists, code, text) for each in values[lists[0].request] or ()]
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
    elif key == 35:
        found["results"] = [{"logDir": each, "errorCode": code} for each in call.catalog.log_dirs or [""]]
    elif key == 34:
        found["results"] = [
            {
                "topicName": topic["name"],
                "partitions": [{"partitionIndex": number, "errorCode": code} for number in topic["partitions"]],
            }
            for log_dir in values["dirs"]
            for topic in log_dir["topics"]
        ]
    elif key == 50:  # without their names, as Kafka
        found["results"] = [{"user": "", "errorCode": code, "errorMessage": text} for _ in values["users"] or ()]
    elif key == 51:
        names = dict.fromkeys(each["name"] for each in (*values["deletions"], *values["upsertions"]))
        found["results"] = [{"user": name, "errorCode": code, "errorMessage": text} for name in names]
    return found


def joined(found: Iterable[dict[str, Any]], rows: tuple[Rows, ...]) -> list[dict[str, Any]]:
    """Put rows of one topic together."""
    topics: dict[Any, dict[str, Any]] = {}
    for row in found:
        name = tuple(row.get(each) for each in rows[0].copied or (rows[0].item,))
        known = topics.setdefault(name, row)
        if known is not row:
            known[rows[1].answer] = [*known[rows[1].answer], *row[rows[1].answer]]
    return list(topics.values())


def _row(asked: Any, rows: tuple[Rows, ...], code: int, text: str | None) -> dict[str, Any]:
    outer = rows[0]
    copied = {outer.item: asked} if outer.item else {name: asked[name] for name in outer.copied}
    if len(rows) == 1:
        return {**copied, outer.error: code, "errorMessage": text}
    inner = rows[1]
    return {**copied, inner.answer: [_row(each, rows[1:], code, text) for each in asked[inner.request]]}
