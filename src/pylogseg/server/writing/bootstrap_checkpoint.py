"""The state of an own directory beside its records, in Kafka's `bootstrap.checkpoint`: a controller takes its first
state from it.

A broker that is started over the directory finds topics, settings, ACLs and users there, as it finds the records in the
logs. Its own metadata, `__cluster_metadata`, takes over from then on.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pylogseg.env.storage import Storage
from pylogseg.errors import CorruptionError, Verdict
from pylogseg.format.batches import scan
from pylogseg.format.control import ControlKind
from pylogseg.format.control_batches import control_batch
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties
from pylogseg.format.messages.control import encode_control
from pylogseg.format.messages.framing import decode_framed, encode_framed
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.format.records import decode
from pylogseg.format.uuids import format_uuid
from pylogseg.reading.arrow.encode import encode
from pylogseg.server.acls import FIELDS, Acl, acls_of
from pylogseg.server.sasl import SCRAM, ScramCredential, users_of
from pylogseg.values.internal.cluster import TOPIC_RESOURCE

FILE = "bootstrap.checkpoint"
#: What a Kafka 4.3 writes when it formats a directory.
_FEATURES = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
_PARTITION_VERSION = 2
#: A head, records, and a foot.
_LEAST_BATCHES = 3


@dataclass
class KeptTopic:
    """A topic; its id is 22 characters. `epochs` are leader epochs of partitions, 0 by default."""

    name: str
    topic_id: str
    count: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)


@dataclass
class BootstrapContents:
    """The content of the file: topics by name, other settings by type and name, ACLs by id, users by mechanism and
    name.

    `features` are those of a cluster; `more` has other records, by the names of their messages, version and fields.
    """

    topics: dict[str, KeptTopic] = field(default_factory=dict)
    dynamic: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    acls: dict[str, Acl] = field(default_factory=dict)
    users: dict[tuple[str, str], ScramCredential] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=lambda: dict(_FEATURES))
    more: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list, repr=False)


def read_kept(data: bytes, path: str) -> BootstrapContents:
    """Return the content of the file; CorruptionError if it is damaged."""
    contents = BootstrapContents(features={})
    by_id: dict[str, KeptTopic] = {}
    for name, version, fields in _records(data, path):
        if name == "TopicRecord":
            kept = contents.topics[fields["name"]] = KeptTopic(fields["name"], fields["topicId"])
            by_id[kept.topic_id] = kept
        elif name == "PartitionRecord" and fields["topicId"] in by_id:
            kept = by_id[fields["topicId"]]
            kept.count += 1
            kept.epochs[fields["partitionId"]] = fields["leaderEpoch"]
        elif name == "ConfigRecord":
            _read_setting(contents, fields)
        elif name == "AccessControlEntryRecord":
            contents.acls |= acls_of([fields])
        elif name == "UserScramCredentialRecord":
            contents.users |= users_of([fields])
        elif name == "FeatureLevelRecord":
            contents.features[fields["name"]] = fields["featureLevel"]
        elif name != "PartitionRecord":
            contents.more.append((name, version, fields))
    contents.features = contents.features or dict(_FEATURES)
    return contents


def _read_setting(found: BootstrapContents, fields: dict[str, Any]) -> None:
    kind, of = fields["resourceType"], fields["resourceName"]
    if kind != TOPIC_RESOURCE:
        found.dynamic.setdefault((kind, of), {})[fields["name"]] = fields["value"]
    elif of in found.topics:
        found.topics[of].settings[fields["name"]] = fields["value"]


def _records(data: bytes, path: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    batches = scan(data).batches
    end = sum(map(int, batches.size))
    bad = batches.verdict != Verdict.GOOD
    # Without its last batch it may lack topics, whose folders would be taken for strays.
    if end != len(data) or bad.any() or len(batches) < _LEAST_BATCHES or not batches.is_control[-1]:
        position = int(batches.position[bad][0]) if bad.any() else end
        raise CorruptionError(path, position, "it is damaged or cut: put the file of a copy in its place")
    columns, damage = decode(batches[~batches.is_control], data)
    if damage:
        raise CorruptionError(path, 0, damage[0].reason)
    for row in range(len(columns)):
        part = decode_framed(METADATA_TOPIC, columns.value(row) or b"", path)
        if part.message is not None and part.fields is not None:
            yield part.message.name, part.version, part.fields


def _setting(kind: int, of: str, name: str, value: str) -> bytes:
    return encode_framed("ConfigRecord", 0, {"resourceType": kind, "resourceName": of, "name": name, "value": value})


def encode_kept(contents: BootstrapContents, node_id: int, directory_id: str) -> bytes:
    """Return the file: features, each topic with its settings and partitions, and all else."""
    values = [
        encode_framed("FeatureLevelRecord", 0, {"name": name, "featureLevel": level})
        for name, level in contents.features.items()
    ]
    for topic in contents.topics.values():
        values.append(encode_framed("TopicRecord", 0, {"name": topic.name, "topicId": topic.topic_id}))
        values += [_setting(TOPIC_RESOURCE, topic.name, *setting) for setting in sorted(topic.settings.items())]
        for number in range(topic.count):
            here = {"replicas": [node_id], "isr": [node_id], "leader": node_id, "directories": [directory_id]}
            epoch = topic.epochs.get(number, 0)
            fields = {"partitionId": number, "topicId": topic.topic_id, "leaderEpoch": epoch, "partitionEpoch": 0}
            fields |= here
            values.append(encode_framed("PartitionRecord", _PARTITION_VERSION, fields))
    for (kind, name), settings in sorted(contents.dynamic.items()):
        values += [_setting(kind, name, *setting) for setting in sorted(settings.items())]
    for acl_id, acl in contents.acls.items():
        named = dict(zip(FIELDS, acl, strict=True))
        values.append(encode_framed("AccessControlEntryRecord", 0, {"id": acl_id, **named}))
    for (mechanism, name), stored in sorted(contents.users.items()):
        values.append(encode_framed("UserScramCredentialRecord", 0, _user(mechanism, name, stored)))
    values += [encode_framed(*record) for record in contents.more]
    now_ms = time.time_ns() // 1_000_000
    head, foot = (
        encode_control(ControlKind.SNAPSHOT_HEADER, {}),
        encode_control(ControlKind.SNAPSHOT_FOOTER, {}),
    )
    records = encode([(now_ms, None, value) for value in values], base_offset=1, leader_epoch=0, batch_bytes=1 << 20)
    return b"".join(
        (
            control_batch(*head, base_offset=0, timestamp_ms=now_ms, leader_epoch=0),
            records,
            control_batch(*foot, base_offset=1 + len(values), timestamp_ms=now_ms, leader_epoch=0),
        )
    )


def _user(mechanism: str, name: str, stored: ScramCredential) -> dict[str, Any]:
    return {
        "name": name,
        "mechanism": next(number for number, word in SCRAM.items() if word == mechanism),
        "salt": stored.salt,
        "storedKey": stored.stored_key,
        "serverKey": stored.server_key,
        "iterations": stored.iterations,
    }


def random_id() -> str:
    """Return a random id; like Kafka's, it does not begin with ``-``, which is a nuisance in a shell."""
    while (text := format_uuid(uuid.uuid4().bytes)).startswith("-"):
        pass
    return text


def write_label(storage: Storage, path: str, meta: MetaProperties) -> None:
    """Write `meta.properties`, by which a broker knows the directory for one of its own."""
    storage.write_whole(path, encode_label(meta))


def encode_label(meta: MetaProperties) -> bytes:
    """Return the content of `meta.properties`, with the present time."""
    return encode_meta_properties(meta, time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime()))
