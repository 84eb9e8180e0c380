"""The state of a cluster as tables: topics, partitions, settings, brokers, ACLs, quotas, users, features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from pylogseg.format.messages.secrets import MASK, RESOURCES, is_secret
from pylogseg.values.internal.image import Image
from pylogseg.values.internal.state_columns import CLUSTER_TABLES, state_table

_Row = dict[str, Any]
_ACL_RESOURCES = {2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER"}
_PATTERNS = {3: "LITERAL", 4: "PREFIXED"}
_OPERATIONS = {2: "ALL", 3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE",
               9: "CLUSTER_ACTION", 10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE",
               13: "CREATE_TOKENS", 14: "DESCRIBE_TOKENS", 15: "TWO_PHASE_COMMIT"}  # fmt: skip
_PERMISSIONS = {2: "DENY", 3: "ALLOW"}
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
#: Ids of directories that say something else.
_DIRECTORIES = {"A" * 22: "migrating", "A" * 21 + "Q": "unassigned", "A" * 21 + "g": "lost"}


def cluster_table(name: str, image: Image, *, show_secrets: bool = False) -> pa.Table:
    """Return one of the tables of `CLUSTER_TABLES`; secrets are masked unless they are wanted."""
    return state_table(_ROWS[name](image, show_secrets), CLUSTER_TABLES[name])


def _label(names: dict[int, str], number: int) -> str:
    return names.get(number, f"UNKNOWN({number})")


def _topics(image: Image, _: bool) -> Iterator[_Row]:
    counts: dict[str, list[int]] = {}
    for (topic_id, _number), fields in image.partitions.items():
        counts.setdefault(topic_id, []).append(len(fields["replicas"]))
    for name in sorted(image.topic_ids):
        topic_id = image.topic_ids[name]
        replicas = counts.get(topic_id, [])
        yield {
            "topic": name,
            "topicId": topic_id,
            "partitions": len(replicas),
            "replicationFactor": max(replicas, default=0),
            "configs": len(image.configs.get((2, name), {})),
        }


def _partitions(image: Image, _: bool) -> Iterator[_Row]:
    def order(key: tuple[str, int]) -> tuple[str, str, int]:
        return image.topics.get(key[0], ""), *key

    for key in sorted(image.partitions, key=order):
        fields = image.partitions[key]
        yield {
            "topic": image.topics.get(key[0]),
            "topicId": key[0],
            "partition": key[1],
            "leader": fields["leader"],
            "leaderEpoch": fields["leaderEpoch"],
            "partitionEpoch": fields["partitionEpoch"],
            "replicas": fields["replicas"],
            "isr": fields["isr"],
            "adding": fields["addingReplicas"],
            "removing": fields["removingReplicas"],
            "elr": fields["eligibleLeaderReplicas"] or [],
            "lastKnownElr": fields["lastKnownElr"] or [],
            "directories": [_DIRECTORIES.get(directory, directory) for directory in fields["directories"]],
            "isRecovering": fields["leaderRecoveryState"] == 1,
        }


def _configs(image: Image, show_secrets: bool) -> Iterator[_Row]:
    for (kind, resource), settings in sorted(image.configs.items()):
        for name in sorted(settings):
            secret = is_secret(kind, name)
            yield {
                "resourceType": _label(RESOURCES, kind),
                "resource": resource,
                "name": name,
                "value": MASK if secret and not show_secrets else settings[name],
                "isSecret": secret,
            }


def _endpoints(listed: Iterable[_Row]) -> list[str]:
    return [
        f"{host['name']}://{host['host']}:{host['port']} ({_label(_PROTOCOLS, host['securityProtocol'])})"
        for host in listed
    ]


def _brokers(image: Image, _: bool) -> Iterator[_Row]:
    for number in sorted(image.brokers):
        broker = image.brokers[number]
        yield {
            "brokerId": number,
            "rack": broker["rack"],
            "endpoints": _endpoints(broker["endPoints"]),
            "fenced": broker["fenced"],
            "inControlledShutdown": broker["inControlledShutdown"],
            "brokerEpoch": broker["brokerEpoch"],
            "incarnationId": broker["incarnationId"],
            "logDirs": broker["logDirs"],
            "cordonedLogDirs": broker["cordonedLogDirs"] or [],
            "features": [
                f"{feature['name']}={feature['minSupportedVersion']}-{feature['maxSupportedVersion']}"
                for feature in broker["features"]
            ],
        }


def _acls(image: Image, _: bool) -> Iterator[_Row]:
    for acl_id, acl in sorted(image.acls.items()):
        yield {
            "id": acl_id,
            "resourceType": _label(_ACL_RESOURCES, acl["resourceType"]),
            "resource": acl["resourceName"],
            "patternType": _label(_PATTERNS, acl["patternType"]),
            "principal": acl["principal"],
            "host": acl["host"],
            "operation": _label(_OPERATIONS, acl["operation"]),
            "permission": _label(_PERMISSIONS, acl["permissionType"]),
        }


def _quotas(image: Image, _: bool) -> Iterator[_Row]:
    rows = []
    for entity, values in image.quotas.items():
        of = {kind: "<default>" if name is None else name for kind, name in entity}
        for key, value in sorted(values.items()):
            rows.append(
                {
                    "user": of.get("user"),
                    "clientId": of.get("client-id"),
                    "ip": of.get("ip"),
                    "key": key,
                    "value": value,
                }
            )
    yield from sorted(rows, key=lambda row: tuple(str(row[name] or "") for name in ("user", "clientId", "ip", "key")))


def _users(image: Image, show_secrets: bool) -> Iterator[_Row]:
    for (name, mechanism), fields in sorted(image.users.items()):
        secrets = {key: fields[key].hex() if show_secrets else MASK for key in ("salt", "storedKey", "serverKey")}
        yield {"user": name, "mechanism": _label(_MECHANISMS, mechanism), "iterations": fields["iterations"]} | secrets


def _features(image: Image, _: bool) -> Iterator[_Row]:
    for name in sorted(image.features):
        yield {"feature": name, "level": image.features[name]}


_ROWS: dict[str, Callable[[Image, bool], Iterator[_Row]]] = {
    "topics": _topics,
    "partitions": _partitions,
    "configs": _configs,
    "brokers": _brokers,
    "acls": _acls,
    "quotas": _quotas,
    "users": _users,
    "features": _features,
}
