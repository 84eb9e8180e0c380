"""Changes that an administrator makes: topics, their records, groups, and settings; refused in Kafka's words."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import Values
from pylogseg.server import about
from pylogseg.server.catalog import INTERNAL, Topic
from pylogseg.server.configs import KINDS, check_node, topic_rows
from pylogseg.server.defaults import settings, why_invalid
from pylogseg.server.service import Call
from pylogseg.server.writing.topics import Topics
from pylogseg.server.writing.writer import writing_of
from pylogseg.values.internal.cluster import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE

#: So many topics come into being by one request that names them.
_MOST_AT_ONCE = 1000
#: The first version of a request that names topics by their ids.
_DELETE_BY_ID = 6


def answer_metadata(call: Call) -> Values:
    """Answer Metadata; topics that are asked for come into being if the client allows it."""
    catalog = call.catalog
    if catalog.defaults.auto_create and call.values["allowAutoTopicCreation"]:
        names = dict.fromkeys(topic["name"] for topic in call.values["topics"] or ())
        missing = [name for name in names if name and name not in catalog.topics and name not in INTERNAL]
        if missing:
            _make(writing_of(call).topics, missing[:_MOST_AT_ONCE])  # the client asks again for the others
    return about.metadata(call)


def _make(topics: Topics, names: list[str]) -> None:
    """Make topics, as far as that is possible."""
    with contextlib.suppress(KafkaError), topics.together():
        for name in names:
            with contextlib.suppress(KafkaError):  # an invalid name; or another client was faster
                topics.make(name)


def try_row(row: dict[str, Any], work: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """Return a row of an answer, with the fields that the work returns, or with its error."""
    try:
        return {**row, "errorMessage": None, **(work() or {})}
    except KafkaError as error:
        return {**row, "errorCode": error.code, "errorMessage": error.text}


# ---- topics ----


def create_topics(call: Call) -> Values:
    names = Counter(topic["name"] for topic in call.values["topics"])
    rows = []
    try:
        with writing_of(call).topics.together():
            for asked in call.values["topics"]:
                rows.append(try_row({"name": asked["name"]}, functools.partial(_create, call, asked, names)))
    except KafkaError as error:  # of the disk: none of them is there
        rows = [
            row if row.get("errorCode") else {**row, "errorCode": error.code, "errorMessage": error.text}
            for row in rows
        ]
    return {"topics": rows}


def _create(call: Call, asked: dict[str, Any], names: Counter[str]) -> dict[str, Any]:
    name = asked["name"]
    if names[name] > 1:
        raise KafkaError(codes.INVALID_REQUEST, f"Duplicate topic name: {name}")
    settings = {entry["name"]: entry["value"] for entry in asked["configs"]}
    empty = [key for key, value in settings.items() if value is None]
    if empty:
        raise KafkaError(codes.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(empty)}")
    topic = writing_of(call).topics.make(name, _count(call, asked), settings, dry=call.values["validateOnly"])
    rows = list(topic_rows(call, topic))
    call.budget.spend(len(rows) // 2)  # rows of five fields, of texts that are here anyway
    return {"topicId": topic.id, "numPartitions": topic.count, "replicationFactor": 1, "configs": rows}


def _count(call: Call, asked: dict[str, Any]) -> int:
    count: int = asked["numPartitions"]
    if not asked["assignments"]:
        if asked["replicationFactor"] not in (-1, 1):
            raise KafkaError(codes.INVALID_REPLICATION_FACTOR, _why_not(asked["replicationFactor"]))
        return count
    if count != -1 or asked["replicationFactor"] != -1:
        raise KafkaError(codes.INVALID_REQUEST, "an assignment says how many partitions and replicas there are")
    numbers = sorted(assignment["partitionIndex"] for assignment in asked["assignments"])
    _check_replicas(call, [assignment["brokerIds"] for assignment in asked["assignments"]])
    if numbers != list(range(len(numbers))):
        raise KafkaError(codes.INVALID_REPLICA_ASSIGNMENT, f"partitions {numbers} are not 0 to {len(numbers) - 1}")
    return len(numbers)


def _why_not(factor: int) -> str:
    if factor <= 0:
        return "Replication factor must be larger than 0, or -1 to use the default value."
    return (
        f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
        "reached because only 1 broker(s) are registered."
    )


def _check_replicas(call: Call, replicas: Iterable[Any]) -> None:
    here = call.catalog.node_id
    if any(list(brokers) != [here] for brokers in replicas):
        raise KafkaError(codes.INVALID_REPLICA_ASSIGNMENT, f"a partition can be on broker {here} only")


def delete_topics(call: Call) -> Values:
    by_id = call.version >= _DELETE_BY_ID
    asked = call.values["topics"] if by_id else [{"name": name} for name in call.values["topicNames"]]
    rows = []
    for entry in asked:
        name, topic_id = entry["name"], entry.get("topicId", bytes(16))
        topic = call.topic(name, topic_id)
        row = {
            "name": topic.name if topic is not None else name,
            "topicId": topic.id if topic is not None else topic_id,
        }
        missing = codes.UNKNOWN_TOPIC_OR_PARTITION if name is not None else codes.UNKNOWN_TOPIC_ID
        rows.append(try_row(row, functools.partial(_delete, call, topic, missing)))
    return {"responses": rows}


def _delete(call: Call, topic: Topic | None, missing: int) -> None:
    if topic is None:
        raise KafkaError(missing, "This server does not host this topic.")
    if topic.name in INTERNAL:
        raise KafkaError(codes.INVALID_REQUEST, f"{topic.name} is in use")
    writing_of(call).topics.delete(topic)
    call.service.groups.forget_topic(topic.name)


def create_partitions(call: Call) -> Values:
    rows = []
    for asked in call.values["topics"]:
        rows.append(try_row({"name": asked["name"]}, functools.partial(_add_partitions, call, asked)))
    return {"results": rows}


def _add_partitions(call: Call, asked: dict[str, Any]) -> None:
    topic = call.topic(asked["name"])
    if topic is None:
        raise KafkaError(codes.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    if asked["assignments"] is not None:
        replicas = [assignment["brokerIds"] for assignment in asked["assignments"]]
        if len(replicas) != asked["count"] - topic.count:
            raise KafkaError(
                codes.INVALID_REPLICA_ASSIGNMENT,
                f"{len(replicas)} assignments for {asked['count'] - topic.count} new partitions",
            )
        _check_replicas(call, replicas)
    writing_of(call).topics.add_partitions(topic, asked["count"], dry=call.values["validateOnly"])


# ---- records ----


def answer_delete_records(call: Call) -> Values:
    """Answer DeleteRecords; of a partition that is there several times the last offset counts, as in Kafka."""
    asked = {
        (topic["name"], part["partitionIndex"]): part for topic in call.values["topics"] for part in topic["partitions"]
    }
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (name, _), part in asked.items():
        by_topic.setdefault(name, []).append(_delete_records(call, name, part))
    return {"topics": [{"name": name, "partitions": rows} for name, rows in by_topic.items()]}


def _delete_records(call: Call, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    row = {"partitionIndex": asked["partitionIndex"], "lowWatermark": -1}
    topics = writing_of(call).topics
    try:
        served = call.catalog.find(call.topic(name), asked["partitionIndex"])
        if not topics.config_of(name).delete:
            raise KafkaError(codes.POLICY_VIOLATION, f"{name} is compacted: its records cannot be deleted")
        return {**row, "lowWatermark": topics.delete_records(served, asked["offset"])}
    except KafkaError as error:
        return {**row, "errorCode": error.code}


# ---- groups ----


def delete_groups(call: Call) -> Values:
    rows = []
    for name in call.values["groupsNames"]:
        row: dict[str, Any] = {"groupId": name}
        try:
            call.service.groups.delete(name)
        except KafkaError as error:
            row["errorCode"] = error.code
        rows.append(row)
    return {"results": rows}


def delete_offsets(call: Call) -> Values:
    places = [
        (topic["name"], part["partitionIndex"]) for topic in call.values["topics"] for part in topic["partitions"]
    ]
    try:
        verdicts = call.service.groups.delete_offsets(call.values["groupId"], places)
    except KafkaError as error:
        return {"errorCode": error.code}
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), code in verdicts.items():
        by_topic.setdefault(topic, []).append({"partitionIndex": number, "errorCode": code})
    return {"topics": [{"name": name, "partitions": rows} for name, rows in by_topic.items()]}


# ---- settings: of topics, the broker, groups and client metrics ----

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

_Change = Callable[[int, dict[str, Any], Mapping[str, str]], dict[str, str]]


def alter_configs(call: Call) -> Values:
    """Answer AlterConfigs: settings that are not named go back to their defaults."""
    return _alter_all(call, lambda _, asked, __: {entry["name"]: _value_of(entry) for entry in asked["configs"]})


def alter_configs_in_part(call: Call) -> Values:
    return _alter_all(call, _change_some)


def _alter_all(call: Call, change: _Change) -> Values:
    rows = []
    for asked in call.values["resources"]:
        row = {"resourceType": asked["resourceType"], "resourceName": asked["resourceName"]}
        rows.append(try_row(row, functools.partial(_alter, call, asked, change)))
    return {"responses": rows}


def _alter(call: Call, asked: dict[str, Any], change: _Change) -> None:
    topics, kind, name = writing_of(call).topics, asked["resourceType"], asked["resourceName"]
    dry = call.values["validateOnly"]
    if kind == TOPIC_RESOURCE:
        if name == "":
            raise KafkaError(codes.INVALID_REQUEST, "Default topic resources are not allowed.")
        topic = call.topic(name)
        if topic is None:
            raise codes.unknown_topic(name, f"The topic '{name}' does not exist.")
        topics.configure(topic, change(kind, asked, topic.settings), dry=dry)
        return
    if kind not in KINDS:
        raise KafkaError(codes.INVALID_REQUEST, f"Unknown resource type {kind}")
    if kind == BROKER_RESOURCE and name:
        check_node(call, name, "Node")
    if kind != BROKER_RESOURCE and not name:
        raise KafkaError(codes.INVALID_REQUEST, f"Default {KINDS[kind].lower()} resources are not allowed.")
    before = call.catalog.dynamic.get((kind, name), {})
    settings_after = change(kind, asked, before)
    _check(kind, {key: value for key, value in settings_after.items() if before.get(key) != value})
    topics.set_dynamic((kind, name), settings_after, dry=dry)


def _value_of(each: dict[str, Any]) -> str:
    if each["value"] is None:
        raise KafkaError(codes.INVALID_REQUEST, f"Null value not supported for : {each['name']}")
    return str(each["value"])


def _change_some(kind: int, asked: dict[str, Any], own: Mapping[str, str]) -> dict[str, str]:
    values, definitions = dict(own), settings(KINDS[kind])
    for entry in asked["configs"]:
        name, operation = entry["name"], entry["configOperation"]
        if operation == _DELETE:
            values.pop(name, None)
        elif operation == _SET:
            values[name] = _value_of(entry)
        elif operation in (_APPEND, _SUBTRACT):
            word = "APPEND" if operation == _APPEND else "SUBTRACT"
            if name not in definitions or definitions[name].type != "LIST":
                raise KafkaError(codes.INVALID_CONFIG, f"Can't {word} to key {name} because its type is not LIST.")
            items = [item for item in (values.get(name) or definitions[name].default or "").split(",") if item]
            extra = _value_of(entry).split(",")
            kept = [item for item in items if item not in extra]
            values[name] = ",".join(items + [item for item in extra if item not in items] if word == "APPEND" else kept)
        else:
            raise KafkaError(codes.INVALID_REQUEST, f"operation {operation} on {name}: there are 0 to 3")
    return values


def _check(kind: int, changed: Mapping[str, str]) -> None:
    """Raise KafkaError for invalid settings of resources other than topics."""
    definitions = settings(KINDS[kind])
    if kind == BROKER_RESOURCE:
        fixed = sorted(name for name in changed if name in definitions and not definitions[name].is_dynamic)
        if fixed:
            raise KafkaError(codes.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    for name, value in changed.items():
        if name not in definitions and kind != BROKER_RESOURCE:
            code = codes.INVALID_CONFIG if kind == GROUP_RESOURCE else codes.INVALID_REQUEST
            text = "client metrics configuration" if kind == METRICS_RESOURCE else "group config name"
            raise KafkaError(code, f"Unknown {text}: {name}")
        why = why_invalid(name, definitions[name], value) if name in definitions else ""
        if why:
            raise KafkaError(codes.INVALID_CONFIG if kind == GROUP_RESOURCE else codes.INVALID_REQUEST, why)
        if kind == GROUP_RESOURCE:
            _check_between(name, value)


def _check_between(name: str, value: str) -> None:
    """Compare a setting of a group with the broker's bounds for all groups."""
    protocol, _, rest = name.partition(".")
    for word, sign, text in (("min", 1, "greater"), ("max", -1, "less")):
        bound = f"group.{protocol}.{word}.{rest}"
        limit = settings("BROKER").get(bound)
        if limit is not None and limit.default is not None and (int(value) - int(limit.default)) * sign < 0:
            raise KafkaError(codes.INVALID_CONFIG, f"{name} must be {text} than or equal to {bound}")
