"""Answers about settings: the cluster's metadata, this server's own values, and Kafka's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.schema import public_settings
from pylogseg.format.messages.wire import Values
from pylogseg.server.catalog import Topic
from pylogseg.server.defaults import broker_setting, settings
from pylogseg.server.service import Call
from pylogseg.values.internal.cluster import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    INTERNAL_TOPICS,
    METRICS_RESOURCE,
    TOPIC_RESOURCE,
)

# Where a value comes from, as in the schema of DescribeConfigs.
_OF_TOPIC, _OF_BROKER, _OF_ALL_BROKERS, _STATIC, _DEFAULT, _OF_METRICS, _OF_GROUP = 1, 2, 3, 4, 5, 7, 8
_TYPES = ("BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
#: Kafka's names of the types of resources.
KINDS = {
    TOPIC_RESOURCE: "TOPIC",
    BROKER_RESOURCE: "BROKER",
    METRICS_RESOURCE: "CLIENT_METRICS",
    GROUP_RESOURCE: "GROUP",
}


class _Value(NamedTuple):
    """A value, and whose it is: the first one of several counts."""

    name: str
    value: str
    source: int


def describe_configs(call: Call) -> Values:
    return {"results": [_resource(call, resource) for resource in call.values["resources"]]}


def _resource(call: Call, asked: dict[str, Any]) -> dict[str, Any]:
    kind, name, keys = asked["resourceType"], asked["resourceName"], asked["configurationKeys"]
    row = {"resourceType": kind, "resourceName": name}
    try:
        rows = list(of_resource(call, kind, name))
    except KafkaError as error:
        return {**row, "errorCode": error.code, "errorMessage": error.text}
    wanted = [row for row in rows if not keys or row["name"] in keys]
    call.budget.spend_again((kind, name), len(wanted))
    if not call.values["includeSynonyms"]:
        for value in wanted:
            value["synonyms"] = ()
    return {**row, "configs": wanted}


def of_resource(call: Call, kind: int, name: str) -> Iterator[dict[str, Any]]:
    """Return the settings of a topic, broker or group as rows of an answer; KafkaError if there is no such thing."""
    dynamic = call.catalog.dynamic.get((kind, name), {})
    if kind == TOPIC_RESOURCE:
        topic = call.catalog.topics.get(name)
        if topic is None:
            raise codes.unknown_topic(name)
        return topic_rows(call, topic)
    if kind == BROKER_RESOURCE and name == "":
        return (_row(call, kind, key, [_Value(key, value, _OF_ALL_BROKERS)]) for key, value in sorted(dynamic.items()))
    if kind == BROKER_RESOURCE:
        check_node(call, name, "Broker")
        return _rows(call, kind, dynamic, _OF_BROKER)
    if kind == GROUP_RESOURCE and name == "":
        raise KafkaError(codes.INVALID_REQUEST, "Group name must not be empty")
    if kind in KINDS:
        return _rows(call, kind, dynamic, _OF_GROUP if kind == GROUP_RESOURCE else _OF_METRICS)
    raise KafkaError(codes.INVALID_REQUEST, f"there are no settings here of resources of type {kind}")


def topic_rows(call: Call, topic: Topic) -> Iterator[dict[str, Any]]:
    return _rows(call, TOPIC_RESOURCE, {**_internal(topic.name), **topic.settings}, _OF_TOPIC)


def check_node(call: Call, name: str, what: str) -> None:
    """Raise KafkaError unless a name is the number of this node."""
    if not name.removeprefix("-").isdecimal():
        raise KafkaError(codes.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}")
    if int(name) != call.catalog.node_id:
        text = f"Unexpected broker id, expected {call.catalog.node_id} or empty string, but received {name}"
        raise KafkaError(codes.INVALID_REQUEST, text)


def _internal(topic: str) -> dict[str, str]:
    return {name.replace("_", "."): str(value) for name, value in INTERNAL_TOPICS.get(topic, {}).items()}


def _rows(call: Call, kind: int, own: Mapping[str, str], source: int) -> Iterator[dict[str, Any]]:
    definitions, static = settings(KINDS[kind]), _static(call) if kind == BROKER_RESOURCE else {}
    nodes = [(node, call.catalog.dynamic.get((BROKER_RESOURCE, node), {})) for node in (str(call.catalog.node_id), "")]
    others = nodes[1][1] if kind == BROKER_RESOURCE else {}
    for name in sorted({*definitions, *own, *static, *others}):
        values = [_Value(name, own[name], source)] if name in own else []
        default = definitions[name].default if name in definitions else None
        if kind == TOPIC_RESOURCE:
            above = broker_setting(name) or name
            values += [
                _Value(above, node[above], _OF_BROKER if of else _OF_ALL_BROKERS) for of, node in nodes if above in node
            ]
        else:
            above = f"group.{name}" if kind == GROUP_RESOURCE else name
            values += [_Value(name, others[name], _OF_ALL_BROKERS)] if name in others else []
            values += [_Value(name, static[name], _STATIC)] if name in static else []
        values += [] if default is None else [_Value(above, default, _DEFAULT)]
        yield _row(call, kind, name, values)


def _row(call: Call, kind: int, name: str, values: list[_Value]) -> dict[str, Any]:
    definition = settings(KINDS[kind]).get(name)
    is_public = name in public_settings(KINDS[kind])
    first = values[0] if values else _Value(name, "", _DEFAULT)
    is_fixed = kind == BROKER_RESOURCE and (definition is None or not definition.is_dynamic)
    return {
        "name": name,
        "value": first.value if is_public and values else None,
        "readOnly": is_fixed or not call.catalog.logs.is_writable,
        "configSource": first.source,
        "isSensitive": not is_public,
        "configType": 0 if definition is None else 1 + _TYPES.index(definition.type),
        "synonyms": [
            {"name": item.name, "value": item.value if is_public else None, "source": item.source} for item in values
        ],
    }


def _static(call: Call) -> dict[str, str]:
    """Return this server's own settings, and the settings by which clients recognize a broker of one node."""
    catalog, guard, node = call.catalog, call.service.guard, str(call.catalog.node_id)
    internal = str(catalog.defaults.internal_partitions)
    host = f"[{call.endpoint.host}]" if ":" in call.endpoint.host else call.endpoint.host
    protocol = ("SASL_" if guard.users is not None else "") + ("SSL" if guard.tls is not None else "PLAINTEXT")
    listener = f"{protocol}://{host}:{call.endpoint.port}"
    return {
        "advertised.listeners": listener,
        "auto.create.topics.enable": str(catalog.defaults.auto_create).lower(),
        "broker.id": node,
        "fetch.max.bytes": str(call.service.fetch_max_bytes),
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": str(round(call.service.groups.sessions[0] * 1000)),
        "listeners": listener,
        "log.dirs": ",".join(catalog.log_dirs),
        "node.id": node,
        "num.partitions": str(catalog.defaults.partitions),
        "offsets.topic.num.partitions": internal,
        "offsets.topic.replication.factor": "1",
        "process.roles": "broker,controller",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": internal,
        "transaction.state.log.replication.factor": "1",
    }
