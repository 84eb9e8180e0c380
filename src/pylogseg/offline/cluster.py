"""What the metadata log of a KRaft cluster says of topics: ids, replicas and settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pylogseg.disk import open_dir
from pylogseg.errors import RequestError
from pylogseg.files.properties import parse_properties
from pylogseg.format.metadata_records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    TransactionRecord,
    decode_metadata_record,
)
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.reading.stream import read

FOLDER = f"{METADATA_TOPIC}-0"


@dataclass
class ClusterMetadata:
    """Topics and settings of a cluster.

    Attributes
    ----------
    topic_ids : dict of str to str
        Topic to id.
    replicas : dict of (str, int) to tuple of int
        Topic id and partition to ids of brokers.
    configs : dict of (int, str) to dict of str to str
        Type and name of a resource to its settings.
    """

    topic_ids: dict[str, str] = field(default_factory=dict)
    replicas: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str) -> ClusterMetadata:
        """Read the newest snapshot in a folder ``__cluster_metadata-0``, and the log behind it.

        Raises
        ------
        CorruptionError
            If a file is damaged, other than by a torn end.
        StorageError
            If the folder cannot be read.
        """
        (partition,) = open_dir(folder).partitions
        snapshots = [
            (name.offset, name.epoch, other.path)
            for other in partition.others
            if (name := other.name).kind is FileKind.KRAFT_SNAPSHOT and name.is_live
        ]
        start, _, snapshot = max(snapshots, default=(0, 0, None))
        metadata = cls()
        if snapshot is not None:
            metadata.apply(_records(snapshot, None))
        metadata.apply(_records(folder, start))
        return metadata

    def apply(self, records: Iterable[MetadataRecord]) -> None:
        """Follow records; those of a transaction that does not end count for nothing."""
        pending: list[MetadataRecord] | None = None
        for record in records:
            if isinstance(record, TransactionRecord):
                if record.step == "end":
                    self.apply(pending or [])
                pending = [] if record.step == "begin" else None
            elif pending is not None:
                pending.append(record)
            else:
                self._apply(record)

    def _apply(self, record: MetadataRecord) -> None:
        if isinstance(record, TopicRecord):
            self.topic_ids[record.name] = record.topic_id
        elif isinstance(record, RemoveTopicRecord):
            self._remove(record.topic_id)
        elif isinstance(record, PartitionRecord) and record.replicas is not None:
            self.replicas[record.topic_id, record.partition] = record.replicas
        elif isinstance(record, ConfigRecord):
            settings = self.configs.setdefault((record.resource_type, record.resource), {})
            settings.pop(record.name, None)
            if record.value is not None:
                settings[record.name] = record.value

    def _remove(self, topic_id: str) -> None:
        for topic in [name for name, found in self.topic_ids.items() if found == topic_id]:
            del self.topic_ids[topic]
            self.configs.pop((TOPIC_RESOURCE, topic), None)
        self.replicas = {key: value for key, value in self.replicas.items() if key[0] != topic_id}

    def of_topic(self, topic: str) -> dict[str, str]:
        """Settings that a topic has of its own."""
        return self.configs.get((TOPIC_RESOURCE, topic), {})

    def of_broker(self, node_id: str) -> dict[str, str]:
        """Settings of all brokers that were changed while they ran, and of this one."""
        return {**self.configs.get((BROKER_RESOURCE, ""), {}), **self.configs.get((BROKER_RESOURCE, node_id), {})}


def _records(path: str, start: int | None) -> Iterator[MetadataRecord]:
    for record in read(path, offset=start, columns=["value"], from_log_start=False):
        decoded = decode_metadata_record(record.value, path, record.offset)
        if decoded is not None:
            yield decoded


def find_metadata(log_dir: str, others: Iterable[str] = (), named: str | None = None) -> str | None:
    """The folder with the cluster's metadata.

    Parameters
    ----------
    log_dir : str
        Where to look first. Then in the folders beside it whose `meta.properties` names the same cluster.
    others : iterable of str
        Log directories to look into next.
    named : str, optional
        The folder itself, or the one that holds it, instead of all these.

    Returns
    -------
    str or None
        None if there is none.

    Raises
    ------
    RequestError
        If `named` is no such folder.
    """
    if named is not None:
        for folder in (named, os.path.join(named, FOLDER)):
            if os.path.basename(os.path.abspath(folder)) == FOLDER and os.path.isdir(folder):
                return folder
        raise RequestError(f"{named}: there is no folder {FOLDER}")
    cluster_id = _cluster_id(log_dir)
    above = os.path.dirname(os.path.abspath(log_dir))
    beside = [os.path.join(above, name) for name in sorted(os.listdir(above))] if os.access(above, os.R_OK) else []
    same = [folder for folder in beside if cluster_id is not None and _cluster_id(folder) == cluster_id]
    for candidate in [log_dir, *same, *others]:
        folder = os.path.join(candidate, FOLDER)
        if os.path.isdir(folder):
            return folder
    return None


def _cluster_id(log_dir: str) -> str | None:
    path = os.path.join(log_dir, FileKind.META_PROPERTIES.value)
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        return None
    with open(path, "rb") as file:
        return parse_properties(file.read(), path).get("cluster.id")
