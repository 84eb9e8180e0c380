"""Changes of settings: of topics, of the broker, of groups and of client metrics; refused in Kafka's words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import Values
from pylogseg.server.configs import KINDS, check_node
from pylogseg.server.defaults import settings, why_invalid
from pylogseg.server.service import Call
from pylogseg.server.writing.admin import try_row
from pylogseg.server.writing.writer import writing_of
from pylogseg.values.internal.cluster import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

_Change = Callable[[int, dict[str, Any], Mapping[str, str]], dict[str, str]]


def alter(call: Call) -> Values:
    """Answer AlterConfigs: settings that are not named go back to their defaults."""
    return _alter_all(call, lambda _, asked, __: {entry["name"]: _value_of(entry) for entry in asked["configs"]})


def alter_in_part(call: Call) -> Values:
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
