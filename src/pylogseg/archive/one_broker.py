"""The log directory of a new cluster of one broker, which has the topics of a point, with all that is no record.

Settings, ACLs, users, quotas and features go into Kafka's `bootstrap.checkpoint`, from which a controller takes its
first state; `meta.properties` is written last, without which no broker starts on a directory.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.tier.point import ArchivedPartition, Point
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.files.properties import MetaProperties
from pylogseg.format.files.status import encode_clean_shutdown
from pylogseg.format.names import METADATA_TOPIC, FileKind, partition_folder_name
from pylogseg.offline.restoring.adopting import HANDED_OUT
from pylogseg.server.sasl import users_of
from pylogseg.server.writing.acls import acls_of
from pylogseg.server.writing.bootstrap_checkpoint import (
    FILE,
    BootstrapContents,
    KeptTopic,
    encode_kept,
    new_id,
    write_label,
)
from pylogseg.values.internal.cluster import BROKER_RESOURCE, TOPIC_RESOURCE
from pylogseg.values.internal.image import Image

#: Producer ids that the new cluster leaves out: the controller may have handed some out after its metadata was read.
_SPARE_IDS = 1_000_000
_ID_BLOCK = 1000
#: Settings of tiered topics, which a broker without remote storage refuses.
_TIERED = ("remote.storage.enable", "local.retention.ms", "local.retention.bytes", "remote.copy.disable",
           "remote.log.copy.disable", "remote.log.delete.on.disable")  # fmt: skip


def check_new(target: str, node_id: int) -> None:
    """Refuse a folder that is not empty, as far as a broker would see it."""
    found = [name for name in sorted(os.listdir(target)) if name != "lost+found"] if os.path.isdir(target) else []
    if found:
        raise RequestError(
            f"{target}: it is not empty ({found[0]}): a new cluster of node {node_id} begins in an empty folder; to "
            "add partitions to a log directory that a cluster has, leave --node-id out"
        )
    if node_id < 0:
        raise RequestError(f"node_id must be 0 or more, not {node_id}")


def found_cluster(
    disk: Disk, point: Point, target: str, node_id: int, names: Collection[str], instead: Mapping[str, str]
) -> tuple[list[str], list[str], list[str]]:
    """Make a log directory that of a broker which is a cluster by itself; `names` are the partitions that are in it.

    `instead` has settings that all topics get. Returns notes, the partitions of these topics that are missing, and what
    of the metadata at the point could not be taken over.
    """
    image, notes, unread = _image(disk)
    contents = _contents(image, instead)
    kept = {each.name: each for each in point.partitions if each.name in names}
    for partition in kept.values():
        _add(contents, partition, point, image, instead)
    lacking = []
    for topic in contents.topics.values():
        for number in range(topic.count):
            name = partition_folder_name(topic.name, number)
            if name not in kept:
                lacking.append(name)
        left = [name for name in _TIERED if topic.settings.pop(name, None) is not None]
        if left:
            notes.append(f"topic {topic.name}: settings of its tier are left out: {', '.join(left)}")
    storage, directory_id = LocalStorage(), new_id()
    storage.write_whole(os.path.join(target, FILE), encode_kept(contents, node_id, directory_id))
    # All batches were checked when they were written: there is nothing to recover.
    storage.write_whole(os.path.join(target, FileKind.CLEAN_SHUTDOWN.value), encode_clean_shutdown(None))
    label = MetaProperties(1, point.cluster_id or new_id(), node_id, directory_id)
    write_label(storage, os.path.join(target, FileKind.META_PROPERTIES.value), label)
    return notes, lacking, unread


def _image(disk: Disk) -> tuple[Image | None, list[str], list[str]]:
    """Return the cluster's metadata at the point, notes of what is not known without it, and what cannot be read."""
    found: list[Partition] = [part for part in disk.partitions if part.topic == METADATA_TOPIC and part.segments]
    missing = "ACLs, users, quotas and settings of brokers and groups are not restored"
    if not found:
        return None, [f"the point has no metadata of the cluster: {missing}"], []
    try:
        image = Image.read(found[0])
    except (CorruptionError, StorageError) as error:
        return None, [], [f"{error}: {missing}"]
    unread = [f"{count} {what}" for what, count in image.unread().items()]
    return image, [], [f"of the cluster's metadata: {each}: not restored" for each in (*image.damage, *unread)]


def _contents(image: Image | None, instead: Mapping[str, str]) -> BootstrapContents:
    if image is None:
        return BootstrapContents(more=[_producer_ids(HANDED_OUT)])
    found = BootstrapContents(acls=acls_of(image.acls.values()), users=users_of(image.users.values()))
    found.dynamic = {
        (kind, of): dict(settings)
        for (kind, of), settings in image.configs.items()
        if kind != TOPIC_RESOURCE and settings and (kind != BROKER_RESOURCE or not of)
    }
    features = {name: level for name, level in image.features.items() if name != "kraft.version"}
    found.features = features or found.features
    found.more = [_producer_ids(max(image.next_producer_id, 0) + _SPARE_IDS)]
    found.more += [_quota(entity, *each) for entity, values in image.quotas.items() for each in values.items()]
    found.more += [("DelegationTokenRecord", 0, fields) for fields in image.tokens.values()]
    return found


def _producer_ids(first: int) -> tuple[str, int, dict[str, Any]]:
    first = -(-first // _ID_BLOCK) * _ID_BLOCK
    return "ProducerIdsRecord", 0, {"brokerId": 0, "brokerEpoch": 0, "nextProducerId": first}


def _quota(entity: Collection[tuple[str, str | None]], key: str, value: float) -> tuple[str, int, dict[str, Any]]:
    parts = [{"entityType": kind, "entityName": name} for kind, name in sorted(entity, key=str)]
    return "ClientQuotaRecord", 0, {"entity": parts, "key": key, "value": value, "remove": False}


def _add(
    contents: BootstrapContents,
    partition: ArchivedPartition,
    point: Point,
    image: Image | None,
    instead: Mapping[str, str],
) -> None:
    """Add a partition to what the new cluster has of its topic."""
    topic = contents.topics.get(partition.topic)
    if topic is None:
        settings = dict(point.settings.get(partition.topic_id, {}))
        if image is not None and image.topic_ids.get(partition.topic) == partition.topic_id:
            settings = dict(image.configs.get((TOPIC_RESOURCE, partition.topic), {}))
        topic = contents.topics[partition.topic] = KeptTopic(partition.topic, partition.topic_id)
        topic.settings = {**settings, **instead}
    number, known = partition.partition, {} if image is None else image.partitions
    fields = known.get((partition.topic_id, number), {})
    counts = [key[1] + 1 for key in known if key[0] == partition.topic_id]
    topic.count = max(topic.count, number + 1, *counts)
    topic.epochs[number] = max([0, fields.get("leaderEpoch", 0), *(epoch for epoch, _ in partition.epochs)])
