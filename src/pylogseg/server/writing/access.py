"""What each request has to be allowed, in one table, and the one place that asks for it.

What is refused leaves the request before it is answered, and its errors are put into the answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pylogseg.server import codes
from pylogseg.server.catalog import INTERNAL
from pylogseg.server.codes import KafkaError
from pylogseg.server.service import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, Call
from pylogseg.server.table import Handler
from pylogseg.server.wire import NO_ID, Values
from pylogseg.server.writing import acls
from pylogseg.server.writing.acls import Authorizer, Who
from pylogseg.server.writing.failures import failed
from pylogseg.values.internal.cluster import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE

#: Requests that are not like the others.
_PRODUCE, _FETCH_OFFSETS, _FIND_COORDINATOR, _DELETE_TOPICS, _INIT_PRODUCER, _ADD_PARTITIONS = 0, 9, 10, 20, 22, 24
_DELETE_OFFSETS, _DESCRIBE_PARTITIONS = 47, 75
#: DescribeLogDirs and OffsetDelete: their answers have no rows if they are refused as a whole.
_WITHOUT_ROWS = (35, _DELETE_OFFSETS)
#: The first versions: of OffsetFetch and FindCoordinator for several, of DeleteTopics with a list of rows.
_MANY_GROUPS, _MANY_COORDINATORS, _ROWS_TO_DELETE = 8, 4, 6
#: In a batch: the lower half of its attributes, and the bit of those of a transaction.
_FLAGS_AT, _TRANSACTIONAL = 22, 0x10
_ERRORS = {
    TOPIC: (codes.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    GROUP: (codes.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    CLUSTER: (codes.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    acls.TRANSACTIONAL_ID: (
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}
#: The resource that the settings of another one belong to.
_OF_SETTINGS = {
    TOPIC_RESOURCE: TOPIC,
    GROUP_RESOURCE: GROUP,
    BROKER_RESOURCE: CLUSTER,
    METRICS_RESOURCE: CLUSTER,
}


class Need(NamedTuple):
    """An operation that has to be allowed."""

    operation: int
    kind: int  #: On which type of resource; 0 is that of the settings that a row is about.
    field: str = ""  #: Where its name stands; without it, it is the cluster, or a row is the name.
    rows: str = ""  #: The list of the request whose rows need it, each for itself; without it the whole request does.
    #: The list of the answer with the errors of these rows; without it the request is refused if a row is.
    answer: str = ""
    enough: int = 0  #: An operation on the cluster that does as well.
    when: Callable[[Call, str], bool] | None = None  #: True if a resource needs it, by its name.


Needs = tuple[Need, ...]


def _cluster(operation: int) -> Needs:
    return (Need(operation, CLUSTER),)


def _topics(operation: int, answer: str = "topics", field: str = "name", **more: Any) -> Need:
    return Need(operation, TOPIC, field, more.pop("rows", "topics"), answer, **more)


def _has_transactions(call: Call, _: str) -> bool:
    """Return whether there are batches of a transaction in a request."""
    batches = (each["records"] for topic in call.values["topicData"] for each in topic["partitionData"])
    return any(data is not None and len(data) > _FLAGS_AT and data[_FLAGS_AT] & _TRANSACTIONAL for data in batches)


def _would_come(call: Call, name: str) -> bool:
    """Return whether a topic comes into being by being asked for."""
    makes = call.values["allowAutoTopicCreation"] and call.catalog.defaults.auto_create
    return makes and name not in call.catalog.topics and name not in INTERNAL


def _is_here(call: Call, name: str) -> bool:
    return name in call.catalog.topics


def _is_asked(kind: int) -> Callable[[Call, str], bool]:
    """Return what tells whether coordinators of groups (0) or of transactions (1) are asked for."""
    return lambda call, _: bool(call.values["keyType"] == kind)


_READ_GROUP = Need(acls.READ, GROUP, "groupId")
_OF_TRANSACTION = Need(acls.WRITE, acls.TRANSACTIONAL_ID, "transactionalId")
_DELETED = [_topics(acls.DESCRIBE, "responses", enough=acls.DELETE),
            _topics(acls.DELETE, "responses", enough=acls.DELETE, when=_is_here)]  # fmt: skip
_FOUND = [Need(acls.DESCRIBE, GROUP, "key", when=_is_asked(0)),
          Need(acls.DESCRIBE, acls.TRANSACTIONAL_ID, "key", when=_is_asked(1))]  # fmt: skip
_SETTINGS = Need(acls.ALTER_CONFIGS, 0, "resourceName", "resources", "responses")

#: Of each request that is answered.
NEEDS: dict[int, Needs] = {
    0: (_OF_TRANSACTION._replace(when=_has_transactions),
        _topics(acls.WRITE, "responses", rows="topicData")),
    1: (),  # of the topics of a session only the fetch itself knows: `Service.check_readable`
    2: (_topics(acls.DESCRIBE),),
    3: (_topics(acls.DESCRIBE), _topics(acls.CREATE, enough=acls.CREATE, when=_would_come)),
    8: (_READ_GROUP, _topics(acls.READ)),
    9: (),  # of each group: `_fetch_offsets`
    10: tuple(_FOUND),
    11: (_READ_GROUP,),
    12: (_READ_GROUP,),
    13: (_READ_GROUP,),
    14: (_READ_GROUP,),
    15: (Need(acls.DESCRIBE, GROUP, "", "groups", "groups"),),
    16: (),  # what may not be described is not shown: `_SHOWN`
    19: (_topics(acls.CREATE, enough=acls.CREATE),),
    20: tuple(_DELETED),
    21: (_topics(acls.DELETE),),
    22: (_OF_TRANSACTION,),
    23: (_topics(acls.DESCRIBE, field="topic", enough=acls.CLUSTER_ACTION),),
    24: (_OF_TRANSACTION._replace(field="v3AndBelowTransactionalId"),
         _topics(acls.WRITE, "resultsByTopicV3AndBelow", rows="v3AndBelowTopics")),
    25: (_OF_TRANSACTION, _READ_GROUP),
    26: (_OF_TRANSACTION,),
    28: (_OF_TRANSACTION, _READ_GROUP, _topics(acls.READ)),
    29: _cluster(acls.DESCRIBE),
    30: _cluster(acls.ALTER),
    31: _cluster(acls.ALTER),
    32: (_SETTINGS._replace(operation=acls.DESCRIBE_CONFIGS, answer="results"),),
    33: (_SETTINGS,),
    34: _cluster(acls.ALTER),
    35: _cluster(acls.DESCRIBE),
    37: (_topics(acls.ALTER, "results"),),
    42: (Need(acls.DELETE, GROUP, "", "groupsNames", "results"),),
    43: _cluster(acls.ALTER),
    44: (_SETTINGS,),
    45: _cluster(acls.ALTER),
    46: _cluster(acls.DESCRIBE),
    47: (Need(acls.DELETE, GROUP, "groupId"), _topics(acls.READ)),
    50: _cluster(acls.DESCRIBE),
    51: _cluster(acls.ALTER),
    55: _cluster(acls.DESCRIBE),
    60: (),  # whoever is in may see the brokers
    61: (_topics(acls.READ),),
    65: (Need(acls.DESCRIBE, acls.TRANSACTIONAL_ID, "", "transactionalIds", "transactionStates"),),
    66: (),  # as 16
    68: (_READ_GROUP, Need(acls.DESCRIBE, TOPIC, "", "subscribedTopicNames")),
    69: (Need(acls.DESCRIBE, GROUP, "", "groupIds", "groups"),),
    74: _cluster(acls.DESCRIBE_CONFIGS),
    75: (_topics(acls.DESCRIBE),),
}  # fmt: skip


class Asking(NamedTuple):
    """A request, and what may be decided about it."""

    authorizer: Authorizer
    key: int
    call: Call

    @property
    def who(self) -> Who:
        return Who(self.call.principal, self.call.host)

    def may(self, operation: int, kind: int, name: str = CLUSTER_NAME) -> bool:
        """Return whether who asks may do something to a resource."""
        return self.authorizer.allows(self.who, operation, kind, name)

    def meets(self, need: Need, name: str, kind: int) -> bool:
        """Return whether a need is met for a resource."""
        if need.when is not None and not need.when(self.call, name):
            return True
        return bool(need.enough and self.may(need.enough, CLUSTER)) or self.may(need.operation, kind, name)

    def refused(self, kind: int, values: Values | None = None) -> Values:
        """Return the answer of a request, or of some values of it, that is refused as a whole."""
        call = self.call if values is None else self.call._replace(values={**self.call.values, **values})
        code, text = _ERRORS[kind]
        if self.key in _WITHOUT_ROWS and values is None:
            return {"errorCode": code}
        return failed(self.key, call, code, text)


class AclRights:
    """Permissions of clients by an authorizer; see `Rights`."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def answer(self, key: int, call: Call, handler: Handler) -> Values | None:
        """Answer a request as far as its client may ask for it."""
        return _answered(Asking(self._authorizer, key, call), handler)

    def check_readable(self, call: Call, topic: str) -> None:
        """Raise KafkaError for a topic that a client may not read."""
        if not self._authorizer.allows(Who(call.principal, call.host), acls.READ, TOPIC, topic):
            raise KafkaError(codes.TOPIC_AUTHORIZATION_FAILED)

    def topics_that_may_be_described(self, call: Call) -> Callable[[str], bool]:
        """Return a check of topics' names for this client, which keeps nothing else of the request."""
        authorizer, who = self._authorizer, Who(call.principal, call.host)
        return lambda topic: authorizer.allows(who, acls.DESCRIBE, TOPIC, topic)

    def operations(self, call: Call, kind: int, name: str) -> int:
        """Return what a client may do to a resource, as bits."""
        return self._authorizer.operations(Who(call.principal, call.host), kind, name)


def _answered(asking: Asking, handler: Handler) -> Values | None:
    key, call = asking.key, asking.call
    denied = _denied(asking)
    silent = key == _PRODUCE and call.values["acks"] == 0
    if denied is not None:
        return None if silent else asking.refused(denied)
    if key == _FETCH_OFFSETS:
        return _fetch_offsets(asking, handler)
    if key == _DESCRIBE_PARTITIONS and not call.values["topics"]:
        return _describe_all_partitions(asking, handler)
    refused, left = _without_denied(asking)
    if not refused:
        done = handler(call)
    elif key == _ADD_PARTITIONS:  # all are added, or none
        done = failed(key, left, codes.OPERATION_NOT_ATTEMPTED)
    elif key == _DELETE_OFFSETS or any(left.values[need.rows] for need in needs_of(key, call.version) if need.answer):
        done = handler(left)
    else:
        done = failed(key, left, codes.NONE)
    if silent:
        return None if refused else done
    assert done is not None
    done = _SHOWN[key](asking, done) if key in _SHOWN else done
    is_whole = key == _DELETE_OFFSETS and done.get("errorCode")  # of the group
    for answer, rows in () if is_whole else refused:
        done = {**done, answer: [*done[answer], *rows]}
    return done


# ---- what is refused ----


@functools.cache
def needs_of(key: int, version: int) -> Needs:
    """Return what a version of a request needs: some name one thing, or stand for it, where others have a list."""
    needs = NEEDS[key]
    if key == _FIND_COORDINATOR and version >= _MANY_COORDINATORS:
        return tuple(each._replace(field="", rows="coordinatorKeys", answer="coordinators") for each in needs)
    if key == _DELETE_TOPICS and version < _ROWS_TO_DELETE:
        return tuple(each._replace(field="", rows="topicNames") for each in needs)
    return needs


def _denied(asking: Asking) -> int | None:
    """Return the type of a resource for whose sake a request is refused; None if it is not."""
    values = asking.call.values
    if asking.key == _INIT_PRODUCER and values["transactionalId"] is None:
        may = asking.may(acls.IDEMPOTENT_WRITE, CLUSTER)
        return None if may or asking.authorizer.allows_some(asking.who, acls.WRITE, TOPIC) else CLUSTER
    for need in needs_of(asking.key, asking.call.version):
        if not need.answer:
            names = values[need.rows] or () if need.rows else [values[need.field] if need.field else CLUSTER_NAME]
            if not all(asking.meets(need, name or "", need.kind) for name in names):
                return need.kind
    return None


def _without_denied(asking: Asking) -> tuple[list[tuple[str, list[Any]]], Call]:
    """Return the rows of errors, each with its list in the answer, and the request without what was refused."""
    left, found = asking.call, []
    for need in needs_of(asking.key, left.version):
        if not need.answer:
            continue
        kept, refused = [], dict[int, list[Any]]()
        for row in left.values[need.rows] or ():
            name, kind = _named(left, need, row)
            if name is None or not kind or asking.meets(need, name, kind):
                kept.append(row)
            else:
                refused.setdefault(kind, []).append(row)
        for kind, some in refused.items():
            found.append((need.answer, list(asking.refused(kind, {need.rows: some})[need.answer])))
        if refused:
            left = left._replace(values={**left.values, need.rows: kept})
    return found, left


def _named(call: Call, need: Need, row: Any) -> tuple[str | None, int]:
    """Return the name of the resource that a row is about, None if nobody knows it, and its type."""
    if isinstance(row, str):
        return row, need.kind
    name: str | None = row[need.field]
    if need.kind == TOPIC and row.get("topicId", NO_ID) != NO_ID:
        topic = call.topic(None, row["topicId"])
        name = None if topic is None else topic.name
    kind = need.kind or _OF_SETTINGS.get(row["resourceType"], 0)
    return (CLUSTER_NAME if kind == CLUSTER else name), kind


# ---- what an answer shows ----


def _describes(asking: Asking, kind: int, rows: Iterable[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the rows about what may be described."""
    return [row for row in rows if not row[name] or asking.may(acls.DESCRIBE, kind, row[name])]


def _show_topics(asking: Asking, done: Values) -> Values:
    return {**done, "topics": _describes(asking, TOPIC, done["topics"], "name")}


def _show_groups(asking: Asking, done: Values) -> Values:
    if asking.may(acls.DESCRIBE, CLUSTER):
        return done
    return {**done, "groups": _describes(asking, GROUP, done["groups"], "groupId")}


def _show_transactions(asking: Asking, done: Values) -> Values:
    rows = _describes(asking, acls.TRANSACTIONAL_ID, done.get("transactionStates", ()), "transactionalId")
    return {**done, "transactionStates": rows}


def _show_topics_of_transactions(asking: Asking, done: Values) -> Values:
    rows = [
        {**row, "topics": _describes(asking, TOPIC, row.get("topics", ()), "topic")}
        for row in done["transactionStates"]
    ]
    return {**done, "transactionStates": rows}


def _show_settings(asking: Asking, done: Values) -> Values:
    """Hide the settings of topics that were made."""
    hidden = {"topicConfigErrorCode": codes.TOPIC_AUTHORIZATION_FAILED, "numPartitions": -1, "replicationFactor": -1}
    rows = [
        row
        if row.get("errorCode") or asking.may(acls.DESCRIBE_CONFIGS, TOPIC, row["name"])
        else {**row, **hidden, "configs": None}
        for row in done["topics"]
    ]
    return {**done, "topics": rows}


def _show_members(asking: Asking, done: Values) -> Values:
    """Hide groups whose members have topics that may not be described."""
    text = "The group has described topic(s) that the client is not authorized to describe."
    hidden = {"errorCode": codes.TOPIC_AUTHORIZATION_FAILED, "errorMessage": text}
    rows = [
        row if _describes_all(asking, row) else {"groupId": row["groupId"], **hidden} for row in done.get("groups", ())
    ]
    return {**done, "groups": rows}


def _describes_all(asking: Asking, group: dict[str, Any]) -> bool:
    shares = (share for each in group.get("members", ()) for share in (each["assignment"], each["targetAssignment"]))
    topics = {row["topicName"] for share in shares for row in share["topicPartitions"]}
    return all(asking.may(acls.DESCRIBE, TOPIC, name) for name in topics)


_SHOWN: dict[int, Callable[[Asking, Values], Values]] = {
    3: _show_topics,
    16: _show_groups,
    19: _show_settings,
    65: _show_topics_of_transactions,
    66: _show_transactions,
    69: _show_members,
}


# ---- requests that are answered in another way ----


def _fetch_offsets(asking: Asking, handler: Handler) -> Values:
    """Answer OffsetFetch: of each group that may be described, the topics that may be."""
    call = asking.call
    if call.version < _MANY_GROUPS:
        if not asking.may(acls.DESCRIBE, GROUP, call.values["groupId"]):
            return asking.refused(GROUP)
        values, errors = _readable(asking, call.values)
        return _with_topics(asking, handler(call._replace(values=values)) or {}, errors)
    kept, denied = [], []
    for group in call.values["groups"]:
        if asking.may(acls.DESCRIBE, GROUP, group["groupId"]):
            kept.append(_readable(asking, group))
        else:
            denied.append(group)
    done = handler(call._replace(values={**call.values, "groups": [group for group, _ in kept]})) or {}
    rows = [_with_topics(asking, row, errors) for row, (_, errors) in zip(done["groups"], kept, strict=True)]
    return {"groups": [*rows, *asking.refused(GROUP, {"groups": denied})["groups"]]}


def _readable(asking: Asking, group: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what may be asked of a group, and the topics with errors."""
    need, kept, errors = _topics(acls.DESCRIBE), [], []
    for row in group["topics"] or ():
        name, kind = _named(asking.call, need, row)
        if name is None or asking.may(acls.DESCRIBE, kind, name):
            kept.append(row)
        else:
            no_offset = {"committedOffset": -1, "metadata": "", "errorCode": codes.TOPIC_AUTHORIZATION_FAILED}
            numbers = [{"partitionIndex": number, **no_offset} for number in row["partitionIndexes"]]
            errors.append({"name": row["name"], "topicId": row.get("topicId", NO_ID), "partitions": numbers})
    return (group if group["topics"] is None else {**group, "topics": kept}), errors


def _with_topics(asking: Asking, done: Values, errors: list[dict[str, Any]]) -> Values:
    if done.get("errorCode"):
        return done
    return {**done, "topics": [*_describes(asking, TOPIC, done["topics"], "name"), *errors]}


def _describe_all_partitions(asking: Asking, handler: Handler) -> Values:
    """Answer DescribeTopicPartitions about all topics that may be described."""
    call = asking.call
    names = [name for name in sorted(call.catalog.topics) if asking.may(acls.DESCRIBE, TOPIC, name)]
    if not names:
        return {"topics": []}
    return handler(call._replace(values={**call.values, "topics": [{"name": name} for name in names]})) or {}
