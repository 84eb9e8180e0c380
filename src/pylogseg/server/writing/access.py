"""The one place that asks whether a client has the rights that a request needs (`Api.needs`).

Refused parts leave the request before it is answered, and their errors are put into the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import NO_ID, Values
from pylogseg.server import acls
from pylogseg.server.acls import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, TRANSACTIONAL_ID, Authorizer, Who
from pylogseg.server.service import Call
from pylogseg.server.table import Api, Need, need_topics
from pylogseg.server.writing.failures import fail
from pylogseg.values.internal.cluster import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE

#: The first version of OffsetFetch for several groups.
_MANY_GROUPS = 8
_ERRORS = {
    TOPIC: (codes.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    GROUP: (codes.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    CLUSTER: (codes.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    TRANSACTIONAL_ID: (
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


class Asking(NamedTuple):
    """A request, and the decisions about it."""

    authorizer: Authorizer
    api: Api
    call: Call

    @property
    def who(self) -> Who:
        return Who(self.call.principal, self.call.host)

    def may(self, operation: int, kind: int, name: str = CLUSTER_NAME) -> bool:
        """Return whether who asks may do something to a resource."""
        return self.authorizer.allows(self.who, operation, kind, name)

    def may_somewhere(self, operation: int, kind: int) -> bool:
        """Return whether who asks may do something to a resource of a type, by ACLs of that resource."""
        return self.authorizer.allows_some(self.who, operation, kind)

    def meets(self, need: Need, name: str, kind: int) -> bool:
        """Return whether a need is met for a resource."""
        if need.when is not None and not need.when(self, name):
            return True
        return bool(need.enough and self.may(need.enough, CLUSTER)) or self.may(need.operation, kind, name)

    def refuse(self, kind: int, values: Values | None = None) -> Values:
        """Return the answer of a request, or of some values of it, that is refused as a whole."""
        call = self.call if values is None else self.call._replace(values={**self.call.values, **values})
        code, text = _ERRORS[kind]
        if self.api.fails_first and values is None:
            return {"errorCode": code}
        return fail(self.api, call, code, text)


class AclRights:
    """Permissions of clients by an authorizer; see `Rights`."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def answer(self, api: Api, call: Call) -> Values | None:
        """Answer a request as far as its client may ask for it."""
        return _answer(Asking(self._authorizer, api, call))

    def check_readable(self, call: Call, topic: str) -> None:
        """Raise KafkaError for a topic that a client may not read."""
        if not self._authorizer.allows(Who(call.principal, call.host), acls.READ, TOPIC, topic):
            raise KafkaError(codes.TOPIC_AUTHORIZATION_FAILED)

    def topics_that_may_be_described(self, call: Call) -> Callable[[str], bool]:
        """Return a check of topics' names for this client, without a reference to the request."""
        authorizer, who = self._authorizer, Who(call.principal, call.host)
        return lambda topic: authorizer.allows(who, acls.DESCRIBE, TOPIC, topic)

    def operations(self, call: Call, kind: int, name: str) -> int:
        """Return the operations that a client may do on a resource, as bits."""
        return self._authorizer.operations(Who(call.principal, call.host), kind, name)


def _answer(asking: Asking) -> Values | None:
    api, call = asking.api, asking.call
    denied = _find_denied(asking)
    is_silent = call.values.get("acks") == 0
    if denied is not None:
        return None if is_silent else asking.refuse(denied)
    if api.answer_allowed is not None and (answer := api.answer_allowed(asking)) is not None:
        return answer
    refused, left = _without_denied(asking)
    if not refused:
        done = api.handler(call)
    elif api.is_atomic:
        done = fail(api, left, codes.OPERATION_NOT_ATTEMPTED)
    elif api.fails_first or any(left.values[need.rows] for need in api.needs if need.answer):
        done = api.handler(left)
    else:
        done = fail(api, left, codes.NONE)
    if is_silent:
        return None if refused else done
    assert done is not None
    done = done if api.show is None else api.show(asking, done)
    is_whole = api.fails_first and done.get("errorCode")
    for answer_list, rows in () if is_whole else refused:
        done = {**done, answer_list: [*done[answer_list], *rows]}
    return done


# ---- what is refused ----


def _find_denied(asking: Asking) -> int | None:
    """Return the type of the resource that the client may not use; None if the request is allowed."""
    values = asking.call.values
    for need in asking.api.needs:
        if not need.answer:
            names = values[need.rows] or () if need.rows else [values[need.field] if need.field else CLUSTER_NAME]
            if not all(asking.meets(need, name or "", need.kind) for name in names):
                return need.kind
    return None


def _without_denied(asking: Asking) -> tuple[list[tuple[str, list[Any]]], Call]:
    """Return the rows of errors, each with its list in the answer, and the request without the refused rows."""
    left, answers = asking.call, []
    for need in asking.api.needs:
        if not need.answer:
            continue
        kept, refused = [], dict[int, list[Any]]()
        for row in left.values[need.rows] or ():
            name, kind = _name_resource(left, need, row)
            if name is None or not kind or asking.meets(need, name, kind):
                kept.append(row)
            else:
                refused.setdefault(kind, []).append(row)
        for kind, some in refused.items():
            answers.append((need.answer, list(asking.refuse(kind, {need.rows: some})[need.answer])))
        if refused:
            left = left._replace(values={**left.values, need.rows: kept})
    return answers, left


def _name_resource(call: Call, need: Need, row: Any) -> tuple[str | None, int]:
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
    return [row for row in rows if not row[name] or asking.may(acls.DESCRIBE, kind, row[name])]


def show_topics(asking: Asking, done: Values) -> Values:
    return {**done, "topics": _describes(asking, TOPIC, done["topics"], "name")}


def show_groups(asking: Asking, done: Values) -> Values:
    if asking.may(acls.DESCRIBE, CLUSTER):
        return done
    return {**done, "groups": _describes(asking, GROUP, done["groups"], "groupId")}


def show_transactions(asking: Asking, done: Values) -> Values:
    rows = _describes(asking, TRANSACTIONAL_ID, done.get("transactionStates", ()), "transactionalId")
    return {**done, "transactionStates": rows}


def show_topics_of_transactions(asking: Asking, done: Values) -> Values:
    rows = [
        {**row, "topics": _describes(asking, TOPIC, row.get("topics", ()), "topic")}
        for row in done["transactionStates"]
    ]
    return {**done, "transactionStates": rows}


def show_settings(asking: Asking, done: Values) -> Values:
    """Hide the settings of topics that were made."""
    hidden = {"topicConfigErrorCode": codes.TOPIC_AUTHORIZATION_FAILED, "numPartitions": -1, "replicationFactor": -1}
    rows = [
        row
        if row.get("errorCode") or asking.may(acls.DESCRIBE_CONFIGS, TOPIC, row["name"])
        else {**row, **hidden, "configs": None}
        for row in done["topics"]
    ]
    return {**done, "topics": rows}


def show_members(asking: Asking, done: Values) -> Values:
    """Hide groups whose members have topics that may not be described."""
    text = "The group has described topic(s) that the client is not authorized to describe."
    hidden = {"errorCode": codes.TOPIC_AUTHORIZATION_FAILED, "errorMessage": text}
    rows = [
        row if _describes_all(asking, row) else {"groupId": row["groupId"], **hidden} for row in done.get("groups", ())
    ]
    return {**done, "groups": rows}


def _describes_all(asking: Asking, group: dict[str, Any]) -> bool:
    shares = (share for row in group.get("members", ()) for share in (row["assignment"], row["targetAssignment"]))
    topics = {row["topicName"] for share in shares for row in share["topicPartitions"]}
    return all(asking.may(acls.DESCRIBE, TOPIC, name) for name in topics)


# ---- requests that are answered in another way ----


def fetch_allowed_offsets(asking: Asking) -> Values:
    """Answer OffsetFetch: of each group that may be described, the topics that may be."""
    call = asking.call
    if call.version < _MANY_GROUPS:
        if not asking.may(acls.DESCRIBE, GROUP, call.values["groupId"]):
            return asking.refuse(GROUP)
        values, errors = _readable(asking, call.values)
        return _with_topics(asking, asking.api.handler(call._replace(values=values)) or {}, errors)
    kept, denied = [], []
    for group in call.values["groups"]:
        if asking.may(acls.DESCRIBE, GROUP, group["groupId"]):
            kept.append(_readable(asking, group))
        else:
            denied.append(group)
    left = call._replace(values={**call.values, "groups": [group for group, _ in kept]})
    done = asking.api.handler(left) or {}
    rows = [_with_topics(asking, row, errors) for row, (_, errors) in zip(done["groups"], kept, strict=True)]
    return {"groups": [*rows, *asking.refuse(GROUP, {"groups": denied})["groups"]]}


def _readable(asking: Asking, group: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the allowed part of a request about a group, and the topics with errors."""
    need, kept, errors = need_topics(acls.DESCRIBE), [], []
    for row in group["topics"] or ():
        name, kind = _name_resource(asking.call, need, row)
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


def describe_all_partitions(asking: Asking) -> Values | None:
    """Answer DescribeTopicPartitions about all topics that may be described, if it names none."""
    call = asking.call
    if call.values["topics"]:
        return None
    names = [name for name in sorted(call.catalog.topics) if asking.may(acls.DESCRIBE, TOPIC, name)]
    if not names:
        return {"topics": []}
    return asking.api.handler(call._replace(values={**call.values, "topics": [{"name": name} for name in names]})) or {}
