"""Topic ids, replicas and settings from the metadata log of a KRaft cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.lineage.authority import Known
from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.env.remote import RemoteFiles
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.files.properties import parse_properties
from pylogseg.format.names import METADATA_TOPIC, FileKind

FOLDER = f"{METADATA_TOPIC}-0"
#: Types of resources that have settings.
TOPIC_RESOURCE, BROKER_RESOURCE, METRICS_RESOURCE, GROUP_RESOURCE = 2, 4, 16, 32
#: Settings that a broker gives to internal topics: without metadata, these topics must not get the defaults.
INTERNAL_TOPICS: dict[str, dict[str, str]] = {
    "__consumer_offsets": {"cleanup_policy": "compact"},
    "__transaction_state": {"cleanup_policy": "compact"},
    "__share_group_state": {"retention_ms": "-1"},
}
#: Records without which topics and settings would be wrong.
_NEEDED = ("TopicRecord", "RemoveTopicRecord", "PartitionRecord", "PartitionChangeRecord", "ConfigRecord")
_TOPIC_FIELDS = {*LogConfig.__dataclass_fields__, "internal_segment_bytes"}


@dataclass
class ClusterMetadata:
    """Topics and settings of a cluster.

    Attributes
    ----------
    topic_ids : dict of str to str
        Topic to id.
    replicas : dict of (str, int) to tuple of int
        Topic id and partition to ids of brokers.
    directories : dict of (str, int) to tuple of str
        Topic id and partition to ids of log directories, if known.
    configs : dict of (int, str) to dict of str to str
        Type and name of a resource to its settings.
    leaders : dict of (str, int) to Known
        Topic id and partition to the leader, its epoch, and which replicas may lead.
    offset : int
        Of the metadata log, up to where it was read: of several copies, the highest is the newest.
    time_ms : int
        Of its last record.
    seen_ms : dict of int to int
        Of a broker, until when it was there: the time of the last record, or of the last one about it, if it is fenced.
    acls, users : list of dict
        Fields of the records of ACLs, and of users of SCRAM.
    removed_topics : set of str
        Names of topics that records of the log removed; one may have been made again.
    notes : list of str
        Snapshots that cannot be read whole, each with where the state comes from instead: a difference to say.
    """

    topic_ids: dict[str, str] = field(default_factory=dict)
    replicas: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    directories: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    leaders: dict[tuple[str, int], Known] = field(default_factory=dict)
    offset: int = 0
    time_ms: int = -1
    seen_ms: dict[int, int] = field(default_factory=dict)
    acls: list[dict[str, Any]] = field(default_factory=list)
    users: list[dict[str, Any]] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list)
    removed_topics: set[str] = field(default_factory=set, compare=False)

    @classmethod
    def read(cls, of: str | Partition) -> ClusterMetadata:
        """Read the newest snapshot in ``__cluster_metadata-0``, a folder or a partition, and the log after it.

        Raises
        ------
        CorruptionError
            If a file is damaged, other than by a torn end, or has records of topics that a newer Kafka wrote.
        StorageError
            If the folder cannot be read.
        """
        from pylogseg.values.internal.image import Image  # with numpy: only where there is metadata to read

        image = Image.read(of)
        unread = [*image.damage, *(f"{count} {what}" for what, count in image.unread(_NEEDED).items())]
        if unread:
            raise CorruptionError(of if isinstance(of, str) else of.path, 0, "; ".join(unread[:3]))
        return cls(
            image.topic_ids,
            {key: tuple(fields["replicas"]) for key, fields in image.partitions.items()},
            {key: tuple(fields["directories"]) for key, fields in image.partitions.items() if fields["directories"]},
            image.configs,
            {key: _convert_partition(fields) for key, fields in image.partitions.items()},
            image.offset,
            image.time_ms,
            image.seen_ms | {node: image.time_ms for node, fields in image.brokers.items() if not fields["fenced"]},
            list(image.acls.values()),
            list(image.users.values()),
            image.notes,
            image.removed_topics,
        )

    def is_only_replica(self, topic: str, partition: int) -> bool:
        """Check whether the metadata shows a single replica of a partition: then all of its log is committed."""
        return len(self.replicas.get((self.topic_ids.get(topic, ""), partition), ())) == 1

    def of_topic(self, topic: str) -> dict[str, str]:
        """Return the settings of a topic."""
        return self.configs.get((TOPIC_RESOURCE, topic), {})

    def fields_of_topic(self, topic: str) -> dict[str, str] | None:
        """Return the settings of a topic for `LogConfig.with_changes`; None for an unknown topic.

        Internal topics have it without any metadata. Settings of a Kafka that is newer than this package are left
        out, and so are `refused_settings`.
        """
        if topic not in self.topic_ids and topic not in INTERNAL_TOPICS:
            return None
        refused = self.refused_settings(topic)
        own = {field: value for field, value in self._own_fields(topic).items() if field not in refused}
        return {**INTERNAL_TOPICS.get(topic, {}), **own}

    def refused_settings(self, topic: str) -> dict[str, str]:
        """Return which settings of a topic `LogConfig` refuses, by its fields, with the reasons."""
        refused: dict[str, str] = {}
        for name, value in self._own_fields(topic).items():
            try:
                LogConfig.of(**{name: value})
            except RequestError as error:
                refused[name] = str(error)
        return refused

    def _own_fields(self, topic: str) -> dict[str, str]:
        fields = {name.replace(".", "_"): value for name, value in self.of_topic(topic).items()}
        return {name: value for name, value in fields.items() if name in _TOPIC_FIELDS}

    def of_broker(self, node_id: str) -> dict[str, str]:
        """Return the dynamic settings of all brokers and of one broker."""
        return {**self.configs.get((BROKER_RESOURCE, ""), {}), **self.configs.get((BROKER_RESOURCE, node_id), {})}


def _convert_partition(fields: dict[str, Any]) -> Known:
    lists = (fields.get(name) or () for name in ("isr", "eligibleLeaderReplicas", "lastKnownElr"))
    return Known(fields["leader"], fields["leaderEpoch"], *map(tuple, lists))


def clusters_of(disk: Disk) -> tuple[dict[str, ClusterMetadata], list[str]]:
    """Read the cluster metadata on a disk, by the path of the log directory, with notes on unreadable parts.

    A log directory without a metadata log takes that of another one of the same cluster.
    """
    clusters: dict[str, ClusterMetadata] = {}
    notes: list[str] = []
    by_cluster: dict[str, ClusterMetadata] = {}
    chosen = [log_dir for log_dir in disk.log_dirs if not isinstance(log_dir.files, RemoteFiles)]
    for log_dir in chosen:
        logs = [part for part in log_dir.partitions if part.is_live and part.topic == METADATA_TOPIC and part.segments]
        if not logs:
            continue
        of = logs[0].path if isinstance(log_dir.files, LocalFiles) else logs[0]  # that of a broker may have gone on
        try:
            clusters[log_dir.path] = metadata = ClusterMetadata.read(of)
            by_cluster.setdefault(cluster_id_of(log_dir.path, log_dir.files) or logs[0].path, metadata)
        except (CorruptionError, StorageError) as error:
            notes.append(f"what the metadata of the cluster says of topics: {error}")
    for log_dir in chosen:
        same = by_cluster.get(cluster_id_of(log_dir.path, log_dir.files) or "")
        if same is not None:
            clusters.setdefault(log_dir.path, same)
    return clusters, notes


def fallbacks_of(clusters: Mapping[str, ClusterMetadata]) -> list[str]:
    """Return the metadata snapshots that were not whole, and the file read instead of each."""
    return list(dict.fromkeys(note for metadata in clusters.values() for note in metadata.notes))


def find_metadata(log_dirs: Iterable[str], named: str | None = None) -> str | None:
    """Find the folder with the cluster's metadata: `named` or in it, or else in one of the broker's log directories.

    Folders beside them are not searched.
    """
    if named is not None:
        for folder in (named, os.path.join(named, FOLDER)):
            if os.path.basename(os.path.abspath(folder)) == FOLDER and os.path.isdir(folder):
                return folder
        raise RequestError(f"{named}: there is no folder {FOLDER}")
    folders = [os.path.join(log_dir, FOLDER) for log_dir in log_dirs]
    return next((folder for folder in folders if os.path.isdir(folder)), None)


def metadata_beside(log_dir: str) -> str | None:
    """Find metadata of the same cluster beside a log directory; only for a hint in messages."""
    cluster_id = cluster_id_of(log_dir)
    above = os.path.dirname(os.path.abspath(log_dir))
    beside = [os.path.join(above, name) for name in sorted(os.listdir(above))] if os.access(above, os.R_OK) else []
    same = [folder for folder in beside if cluster_id is not None and cluster_id_of(folder) == cluster_id]
    return find_metadata(same)


def cluster_id_of(log_dir: str, files: FileSystem | None = None) -> str | None:
    """Return the id of the cluster in `meta.properties` of a log directory; None if unknown."""
    files = LocalFiles() if files is None else files
    path = files.join(log_dir, FileKind.META_PROPERTIES.value)
    try:
        return parse_properties(files.read_all(path), path).get("cluster.id")
    except (CorruptionError, StorageError):  # unknown
        return None
