"""What a test does to a broker: errors that it asks for, a pause, the list of requests."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from pylogseg.errors import RequestError
from pylogseg.messages.schema import numbered
from pylogseg.server import codes
from pylogseg.server.service import Call, Disconnected
from pylogseg.server.wire import Values

#: Requests that are remembered; the oldest go first.
_MOST_REQUESTS = 10_000
_LOOK_SECONDS = 0.05
_PRODUCE = 0


class Seen(NamedTuple):
    """A request that a client has sent.

    Attributes
    ----------
    api : str
        Its name, as ``"Produce"``.
    version : int
    client_id : str
    values : dict
        Its fields, by Kafka's names in the schema; records of Produce are their number of bytes.
    """

    api: str
    version: int
    client_id: str
    values: dict[str, Any]


@dataclass
class _Failure:
    code: int | None
    left: int


class Control:
    """Stands between the clients and the broker."""

    def __init__(self) -> None:
        self.requests: deque[Seen] = deque(maxlen=_MOST_REQUESTS)
        self._mutex = threading.Lock()
        self._failures: dict[int, deque[_Failure]] = {}
        self._running = threading.Event()
        self._running.set()

    def before(self, key: int, call: Call) -> Values | None:
        """Look at a request before it is answered; return the answer that a test wants instead."""
        self.requests.append(Seen(_NAMES[key], call.version, call.client_id, _without_records(key, call.values)))
        while not self._running.wait(_LOOK_SECONDS):
            call.wait(0.001)  # it raises if the client has gone, or the server stops
        failure = self._next(key)
        if failure is None:
            return None
        if failure.code is None:
            raise Disconnected("a test wants it")
        return failed(key, call, failure.code)

    def _next(self, key: int) -> _Failure | None:
        with self._mutex:
            waiting = self._failures.get(key)
            if not waiting:
                return None
            failure = waiting[0]
            failure.left -= 1
            if failure.left <= 0:
                waiting.popleft()
            return failure

    def fail(self, api: str, error: str | int | None, times: int) -> None:
        """Answer the next requests of an API with an error; None closes the connection instead."""
        key, code = key_of(api), None if error is None else code_of(error)
        if times < 1:
            raise RequestError(f"times must be at least 1, got {times}")
        with self._mutex:
            self._failures.setdefault(key, deque()).append(_Failure(code, times))

    def heal(self) -> None:
        """Forget the failures that were asked for."""
        with self._mutex:
            self._failures.clear()

    def pause(self) -> None:
        """Answer nothing until `resume`."""
        self._running.clear()

    def resume(self) -> None:
        """Answer again."""
        self._running.set()


def _without_records(key: int, values: Values) -> Values:
    """Return the fields of a request without the batches in it, which are too much to remember."""
    if key != _PRODUCE:
        return values
    topics = []
    for topic in values["topicData"]:
        rows = [{"index": each["index"], "records": len(each["records"] or b"")} for each in topic["partitionData"]]
        topics.append({**topic, "partitionData": rows})
    return {**values, "topicData": topics}


_NAMES = {key: of.name.removesuffix("Request") for key, of in numbered("clients", "request").items()}


def key_of(api: str) -> int:
    """Return the key of a request by its name; RequestError if there is none."""
    for key, name in _NAMES.items():
        if name.lower() == api.lower():
            return key
    raise RequestError(f"{api!r} is no request that is answered here: {', '.join(sorted(_NAMES.values()))}")


def code_of(error: str | int) -> int:
    """Return the code of an error by Kafka's name, as ``"NOT_ENOUGH_REPLICAS"``; RequestError if there is none."""
    if isinstance(error, int):
        return error
    if error.upper() in _CODES:
        return _CODES[error.upper()]
    raise RequestError(f"{error!r} is no error of Kafka's that is known here; give its number, or one of "
                       f"{', '.join(sorted(_CODES))}")  # fmt: skip


_CODES = {
    **{name: code for name, code in vars(codes).items() if name.isupper() and isinstance(code, int)},
    "NOT_LEADER_OR_FOLLOWER": codes.NOT_LEADER,
    "INVALID_TOPIC_EXCEPTION": codes.INVALID_TOPIC,
    "REQUEST_TIMED_OUT": 7,
    "BROKER_NOT_AVAILABLE": 8,
    "NETWORK_EXCEPTION": 13,
    "COORDINATOR_LOAD_IN_PROGRESS": 14,
    "NOT_COORDINATOR": 16,
    "RECORD_LIST_TOO_LARGE": 18,
    "NOT_ENOUGH_REPLICAS": 19,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": 20,
    "TOPIC_AUTHORIZATION_FAILED": 29,
    "GROUP_AUTHORIZATION_FAILED": 30,
    "CLUSTER_AUTHORIZATION_FAILED": 31,
    "NOT_CONTROLLER": 41,
    "DUPLICATE_SEQUENCE_NUMBER": 46,
    "TRANSACTION_COORDINATOR_FENCED": 52,
    "UNKNOWN_PRODUCER_ID": 59,
    "THROTTLING_QUOTA_EXCEEDED": 89,
}


class _Rows(NamedTuple):
    """How a list of an answer follows from one of its request."""

    answer: str
    request: str
    copied: tuple[str, ...]


_PARTITIONS = _Rows("partitions", "partitions", ("partitionIndex",))
#: Answers that have their errors in lists; the others have one for all.
_LISTS: dict[int, tuple[_Rows, ...]] = {
    0: (_Rows("responses", "topicData", ("name", "topicId")), _Rows("partitionResponses", "partitionData", ("index",))),
    2: (_Rows("topics", "topics", ("name",)), _PARTITIONS),
    3: (_Rows("topics", "topics", ("name", "topicId")),),
    8: (_Rows("topics", "topics", ("name", "topicId")), _PARTITIONS),
    19: (_Rows("topics", "topics", ("name",)),),
    21: (_Rows("topics", "topics", ("name",)), _PARTITIONS),
    23: (_Rows("topics", "topics", ("topic",)), _Rows("partitions", "partitions", ("partition",))),
    28: (_Rows("topics", "topics", ("name",)), _PARTITIONS),
    32: (_Rows("results", "resources", ("resourceType", "resourceName")),),
    33: (_Rows("responses", "resources", ("resourceType", "resourceName")),),
    37: (_Rows("results", "topics", ("name",)),),
    75: (_Rows("topics", "topics", ("name",)),),
    44: (_Rows("responses", "resources", ("resourceType", "resourceName")),),
}


#: The first version of Fetch that has an error for the whole answer.
_WHOLE_FETCH = 7


def _fetched(number: int, code: int) -> dict[str, Any]:
    return {"partitionIndex": number, "errorCode": code, "highWatermark": -1, "records": b""}


def failed(key: int, call: Call, code: int) -> Values | None:
    """Return the answer to a request that fails as a whole."""
    values, text = call.values, "a test wants this error"
    if key == 0 and values["acks"] == 0:
        return None
    found: Values = {"errorCode": code, "errorMessage": text}
    if key == 3:
        found |= {"brokers": [call.node()], "clusterId": call.catalog.cluster_id, "controllerId": call.catalog.node_id}
    if key == 1:
        if call.version < _WHOLE_FETCH:
            found["responses"] = [
                {**each, "partitions": [_fetched(row["partition"], code) for row in each["partitions"]]}
                for each in values["topics"]
            ]
    elif key in _LISTS:
        outer = _LISTS[key][0]
        found[outer.answer] = [_row(each, _LISTS[key], code, text) for each in values[outer.request] or ()]
    elif key == 9:
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
    elif key == 42:
        found["results"] = [{"groupId": name, "errorCode": code} for name in values["groupsNames"]]
    return found


def _row(asked: dict[str, Any], rows: tuple[_Rows, ...], code: int, text: str) -> dict[str, Any]:
    copied = {name: asked[name] for name in rows[0].copied}
    if len(rows) == 1:
        return {**copied, "errorCode": code, "errorMessage": text}
    inner = rows[1]
    return {**copied, inner.answer: [_row(each, rows[1:], code, text) for each in asked[inner.request]]}
