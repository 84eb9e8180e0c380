"""The log directory of a new cluster of one broker, which has the topics of a point, with all that is no record.

Settings, ACLs, users, quotas and features go into Kafka's `bootstrap.checkpoint`, from which a controller takes its
first state; `meta.properties` comes last, without which no broker starts on a directory.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.tier.point import ArchivedPartition, Point
from pylogseg.disk.tier.point_json import INT32
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.files.properties import MetaProperties
from pylogseg.format.files.status import encode_clean_shutdown
from pylogseg.format.names import METADATA_TOPIC, FileKind, partition_folder_name
from pylogseg.offline.restoring.adopting import HANDED_OUT
from pylogseg.offline.result import PartitionResult
from pylogseg.server.acls import acls_of
from pylogseg.server.sasl import users_of
from pylogseg.server.writing.bootstrap_checkpoint import (
    FILE,
    BootstrapContents,
    KeptTopic,
    encode_kept,
    encode_label,
    random_id,
)
from pylogseg.transfer.staging import is_left_behind, is_of_dead_run
from pylogseg.values.internal.cluster import BROKER_RESOURCE, TOPIC_RESOURCE
from pylogseg.values.internal.image import Image

#: Producer ids that the new cluster leaves out: the controller may have handed some out after its metadata was read.
_SPARE_IDS = 1_000_000
_ID_BLOCK = 1000
#: No cluster of Kafka has more partitions; each has a record in `bootstrap.checkpoint`.
_MOST_PARTITIONS = 2_000_000
#: Settings of tiered topics, which a broker without remote storage refuses.
TIERED_SETTINGS = ("remote.storage.enable", "local.retention.ms", "local.retention.bytes", "remote.copy.disable",
           "remote.log.copy.disable", "remote.log.delete.on.disable")  # fmt: skip


def check_new(target: str, node_id: int) -> None:
    """Refuse a folder that is not empty, as far as a broker would see it."""
    check_node_id(node_id)
    names = sorted(os.listdir(target)) if os.path.isdir(target) else []
    empty = "lost+found", FileKind.LOCK.value  # a run that was killed leaves its lock, which nobody has then
    found = [name for name in names if name not in empty and not is_of_dead_run(os.path.join(target, name))]
    if found and is_left_behind(found[0]):
        raise RequestError(
            f"{target}: another restore is writing to {found[0]} there, or one was killed on another machine: wait, or "
            "remove that folder"
        )
    if found:
        raise RequestError(
            f"{target}: it is not empty ({found[0]}): a new cluster of node {node_id} begins in an empty folder; to "
            "add partitions to a log directory that a cluster has, leave --node-id out"
        )


def check_node_id(node_id: int) -> None:
    """Raise RequestError for a number that no broker can have: Kafka writes it in 32 bits."""
    if not 0 <= node_id <= INT32:
        raise RequestError(f"node_id must be 0 to {INT32}, not {node_id}")


def check_counts(url: str, highest: Mapping[str, int]) -> None:
    """Refuse more partitions than a cluster can have, by the highest numbers of topics; `url` names the source."""
    if sum(highest.values()) + len(highest) > _MOST_PARTITIONS:
        topic = max(highest, key=lambda each: highest[each])
        reason = (
            f"{partition_folder_name(topic, highest[topic])} is not a partition of a real cluster, which has at most "
            f"{_MOST_PARTITIONS:,}: name the topics or partitions to restore without it"
        )
        raise CorruptionError(url, 0, reason)


class LackingPartitions(NamedTuple):
    """Partitions of a topic that a restored cluster has, and the archive does not."""

    first: str  #: The name of the first one.
    partitions: int
    topic: str


class NewCluster(NamedTuple):
    """The small files by which a log directory becomes a cluster of one broker."""

    files: dict[str, bytes]  #: By their names; `meta.properties` comes last.
    notes: list[str]
    lacking: list[LackingPartitions]
    unread: list[str]  #: The metadata of the point that could not be taken over.


def found_cluster(
    disk: Disk, point: Point, target: str, node_id: int, result: Iterable[PartitionResult], instead: Mapping[str, str]
) -> NewCluster:
    """Make a new cluster of one broker; `result` says which partitions are in its log directory, `target`.

    `instead` has settings that all topics get.
    """
    image, notes, unread = _image(disk)
    contents = _contents(image, instead)
    states = {each.name: each.state for each in result}
    highest = _highest_numbers(image)
    for partition in point.by_name.values():
        if states.get(partition.name) in ("done", "unchanged"):
            _add(contents, partition, point, image, instead, highest.get(partition.topic_id, -1))
    check_counts(os.path.join(target, FILE), {topic.name: topic.count - 1 for topic in contents.topics.values()})
    lacking = []
    for topic in contents.topics.values():
        there = sum(partition_folder_name(topic.name, number) in states for number in range(topic.count))
        if there < topic.count:
            names = (partition_folder_name(topic.name, number) for number in range(topic.count))
            first = next(name for name in names if name not in states)
            lacking.append(LackingPartitions(first, topic.count - there, topic.name))
        left = [name for name in TIERED_SETTINGS if topic.settings.pop(name, None) is not None]
        if left:
            notes.append(f"topic {topic.name}: settings of its tier are left out: {', '.join(left)}")
    directory_id = random_id()
    files = {
        FILE: encode_kept(contents, node_id, directory_id),
        # All batches were checked when they were written: there is nothing to recover.
        FileKind.CLEAN_SHUTDOWN.value: encode_clean_shutdown(None),
        FileKind.META_PROPERTIES.value: encode_label(
            MetaProperties(1, point.cluster_id or random_id(), node_id, directory_id)
        ),
    }
    return NewCluster(files, notes, lacking, unread)


def _image(disk: Disk) -> tuple[Image | None, list[str], list[str]]:
    """Return the cluster's metadata at the point, notes about facts that only it has, and unreadable objects."""
    found: list[Partition] = [part for part in disk.partitions if part.topic == METADATA_TOPIC and part.segments]
    missing = "ACLs, users, quotas and settings of brokers and groups are not restored"
    if not found:
        return None, [f"the point has no metadata of the cluster: {missing}"], []
    try:
        image = Image.read(found[0])
    except (CorruptionError, StorageError) as error:
        return None, [], [f"{error}: {missing}"]
    unread = [f"{count} {what}" for what, count in image.unread().items()]
    lost = [f"of the cluster's metadata: {each}: not restored" for each in (*image.damage, *unread)]
    return image, [], [*image.notes, *lost]


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
    highest: int,
) -> None:
    """Add a partition to its topic in the new cluster; `highest` is the topic's highest partition number."""
    topic = contents.topics.get(partition.topic)
    if topic is None:
        settings = dict(point.settings.get(partition.topic_id, {}))
        if image is not None and image.topic_ids.get(partition.topic) == partition.topic_id:
            settings = dict(image.configs.get((TOPIC_RESOURCE, partition.topic), {}))
        topic = contents.topics[partition.topic] = KeptTopic(partition.topic, partition.topic_id)
        topic.settings = {**settings, **instead}
    number, known = partition.partition, {} if image is None else image.partitions
    fields = known.get((partition.topic_id, number), {})
    topic.count = max(topic.count, number + 1, highest + 1)
    topic.epochs[number] = max([0, fields.get("leaderEpoch", 0), *(epoch for epoch, _ in partition.epochs)])


def _highest_numbers(image: Image | None) -> dict[str, int]:
    """Return the highest number of a partition of each topic, by its id."""
    highest: dict[str, int] = {}
    for topic_id, number in () if image is None else image.partitions:
        highest[topic_id] = max(number, highest.get(topic_id, -1))
    return highest
