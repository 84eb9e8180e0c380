"""A point of an archive: the state of each partition at a moment, and the objects that hold it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pylogseg.format.columns import TableColumn, declare_columns
from pylogseg.format.moments import iso_text

#: The folder of the points, and that of files that are not of the tier's layout.
POINTS, FILES = "points", "files"
#: Says that a place is an archive, and of which cluster: a tier of brokers is none.
MARK = "archive.json"
#: The suffixes of a segment's objects, in the order of `ArchivedSegment.objects`.
SUFFIXES = (".log", ".indexes", ".rsm-manifest")
#: Formats of points: 1 has no checksum of its own; 3 names lists, which points share.
UNSEALED_FORMAT, SEALED_FORMAT, LISTED_FORMAT = 1, 2, 3


class ArchivedFile(NamedTuple):
    """An object: how many bytes, and their SHA-256 in hexadecimal digits, or the first 24 of them.

    These are in the id of the segment. An object of a killed run has nothing else to say without being read.
    """

    size: int
    sha256: str

    def is_of(self, size: int, sha256: str) -> bool:
        """Check whether an object has this size and SHA-256."""
        return size == self.size and sha256.startswith(self.sha256)


class ArchivedSegment(NamedTuple):
    """A segment of the archive: half-open offsets, bytes before compression, and its three objects.

    Its id begins with the first 24 digits of the SHA-256 of its `log`.
    """

    base_offset: int
    end_offset: int
    size: int
    segment_id: str
    log: ArchivedFile
    indexes: ArchivedFile
    manifest: ArchivedFile

    @property
    def objects(self) -> tuple[ArchivedFile, ArchivedFile, ArchivedFile]:
        """Its objects, in the order of `SUFFIXES`."""
        return self.log, self.indexes, self.manifest


@dataclass(frozen=True)
class ArchivedPartition:
    """A partition at a point.

    Attributes
    ----------
    topic, topic_id, partition : str, str, int
    start_offset, end_offset : int
        The log: from its start to the end of the committed records, or of the archived ones.
    last_stable_offset : int
        The start of the first open transaction; without one `end_offset`.
    ended_by : str
        ``"watermark"``, or ``"log end"`` on a cleanly closed disk without a high watermark.
    disk : int
        Which of the point's disks it was read from.
    epochs : tuple of (int, int)
        Leader epochs and their first offsets.
    segments : tuple of ArchivedSegment
        By offset, without overlap. The first may begin below the start, the last ends with the end.
    files : dict of str to ArchivedFile
        Files of the partition's folder that no segment has, by name: the newest ``.checkpoint`` of the metadata, the
        ``.snapshot`` of an empty log.
    fault : str
        Why the archive has less than the disk; empty if it has all.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    last_stable_offset: int
    ended_by: str
    disk: int
    epochs: tuple[tuple[int, int], ...]
    segments: tuple[ArchivedSegment, ...] = field(repr=False)
    files: Mapping[str, ArchivedFile] = field(default_factory=dict, repr=False)
    fault: str = ""

    @property
    def name(self) -> str:
        """Topic and partition, as in a folder's name."""
        return f"{self.topic}-{self.partition}"

    @property
    def folder(self) -> str:
        """The folder of its segments in the archive."""
        return f"{self.topic}-{self.topic_id}/{self.partition}"

    def stem(self, segment: ArchivedSegment) -> str:
        """Return the part of a segment's object names before `SUFFIXES`."""
        return f"{self.folder}/{segment.base_offset:020d}-{segment.segment_id}"

    def file_key(self, name: str) -> str:
        """Return the name of the object with one of `files`."""
        return f"{FILES}/{self.folder}/{self.files[name].sha256[:16]}/{name}"

    @property
    def objects(self) -> dict[str, ArchivedFile]:
        """All its objects, by their names in the archive."""
        objects = {
            self.stem(segment) + suffix: stored
            for segment in self.segments
            for suffix, stored in zip(SUFFIXES, segment.objects, strict=True)
        }
        return objects | {self.file_key(name): stored for name, stored in self.files.items()}


class SeenDisk(NamedTuple):
    """A log directory that was archived; -1 and empty where it does not say."""

    path: str
    node_id: int
    cluster_id: str
    directory_id: str
    #: ``"running"``, ``"stopped"`` (cleanly) or ``"crashed"``; ``"absent"`` one that an earlier point had.
    state: str


class CommitAboveEnd(NamedTuple):
    """A committed offset of a group that lies above the end of its partition at the point."""

    group: str
    topic: str
    partition: int
    offset: int
    end_offset: int


class NotSeen(NamedTuple):
    """A partition of the cluster's metadata that was on none of the disks."""

    topic: str
    topic_id: str
    partition: int


class PointName(NamedTuple):
    """A point by its name, as a listing shows it."""

    id: str
    time_ms: int

    @property
    def key(self) -> str:
        """The name of its object in the archive."""
        return f"{POINTS}/{self.id}.json"


@declare_columns(
    TableColumn("point", "string", "its id", source="id"),
    TableColumn("time", "string", "of the look at the disks", source=lambda head: iso_text(head.time_ms)),
    TableColumn("partitions", "int64", "their number"),
    TableColumn("bytes", "int64", "of their objects", "bytes", source="size"),
    TableColumn("notSeen", "int64", "partitions that are on no disk; null without the cluster's metadata"),
    TableColumn("faults", "int64", "their number: of partitions, of small files, of the metadata, of the store"),
)
class PointHead(NamedTuple):
    """The head of a point, without its lists: numbers of partitions, bytes of objects, and so on."""

    id: str
    time_ms: int
    cluster_id: str
    partitions: int
    size: int
    not_seen: int | None  #: None if nobody knows.
    faults: int
    is_sealed: bool
    depth: int = 0  #: How many lists of lists are above those of partitions.
    lists: tuple[str, ...] = ()

    @property
    def name(self) -> PointName:
        """The name of the point."""
        return PointName(self.id, self.time_ms)


@dataclass(frozen=True)
class Point:
    """A point of an archive.

    Attributes
    ----------
    id, time_ms : str, int
        The time is that at which the archive began to look at the disks.
    writer : str
        The program that wrote it, with its version.
    cluster_id : str
        Empty if no disk says it.
    disks : tuple of SeenDisk
    partitions : tuple of ArchivedPartition
        By topic, id and number; Kafka's own topics and the metadata too.
    settings : dict of str to dict of str to str
        Settings of topics by topic id, from the cluster's metadata.
    not_seen : tuple of NotSeen, or None
        None if none of the disks has the metadata, so that nobody knows.
    above_end : tuple of CommitAboveEnd
    notes : tuple of str
        Disagreements of replicas, and other facts for a restore.
    faults : tuple of str
        The notes that are faults: of small files, of the cluster's metadata, of the store. Points of older versions
        have none.
    is_sealed : bool
        True if it has a checksum of its own. Points of format 1 have none: nobody can tell if they were changed.
    lists : frozenset of str
        The names of the lists that it was read from; empty if it is one object.
    """

    id: str
    time_ms: int
    writer: str
    cluster_id: str
    disks: tuple[SeenDisk, ...]
    partitions: tuple[ArchivedPartition, ...] = field(repr=False)
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    not_seen: tuple[NotSeen, ...] | None = ()
    above_end: tuple[CommitAboveEnd, ...] = ()
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    is_sealed: bool = True
    lists: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def name(self) -> PointName:
        """Its name."""
        return PointName(self.id, self.time_ms)

    @property
    def objects(self) -> dict[str, ArchivedFile]:
        """All objects that it needs, by their names in the archive."""
        return {key: stored for partition in self.partitions for key, stored in partition.objects.items()}

    @property
    def head(self) -> PointHead:
        """Its row in a list of points."""
        stored = [file for part in self.partitions for segment in part.segments for file in segment.objects]
        stored += [file for part in self.partitions for file in part.files.values()]
        return PointHead(
            self.id,
            self.time_ms,
            self.cluster_id,
            len(self.partitions),
            sum(file.size for file in stored),
            None if self.not_seen is None else len(self.not_seen),
            sum(bool(part.fault) for part in self.partitions) + len(self.faults),
            self.is_sealed,
        )

    @property
    def by_name(self) -> dict[str, ArchivedPartition]:
        """The partition to read for each name: of several topics with one name the last, preferably one on a disk."""
        return {partition.name: partition for partition in sorted(self.partitions, key=self._is_on_a_disk)}

    def _is_on_a_disk(self, partition: ArchivedPartition) -> bool:
        return self.disks[partition.disk].state != "absent"

    @property
    def is_whole(self) -> bool:
        """True if it has all partitions of the cluster with all committed records, by the cluster's metadata."""
        return self.not_seen == () and not self.faults and not any(partition.fault for partition in self.partitions)

    @property
    def text(self) -> str:
        """The point as JSON."""
        text = json.dumps(
            {
                "format": SEALED_FORMAT if self.is_sealed else UNSEALED_FORMAT,
                "id": self.id,
                "time": iso_text(self.time_ms),
                "timeMs": self.time_ms,
                "writer": self.writer,
                "clusterId": self.cluster_id,
                "disks": list(map(disk_fields, self.disks)),
                "settings": self.settings,
                "notSeen": self.not_seen,
                "aboveEnd": self.above_end,
                "notes": self.notes,
                "faults": self.faults,
                "partitions": [
                    {
                        **archived_partition_fields(partition),
                        "segments": list(map(archived_segment_fields, partition.segments)),
                    }
                    for partition in self.partitions
                ],
            },
            separators=(",", ":"),
        )
        return seal(text) if self.is_sealed else text


def seal(text: str) -> str:
    """Return a JSON object with the SHA-256 of all that is before it as its last member."""
    body = text[:-1]
    return f'{body},"sha256":"{hashlib.sha256(body.encode()).hexdigest()}"}}'


def disk_fields(disk: SeenDisk) -> dict[str, Any]:
    return {
        "path": disk.path,
        "nodeId": disk.node_id,
        "clusterId": disk.cluster_id,
        "directoryId": disk.directory_id,
        "state": disk.state,
    }


def archived_partition_fields(partition: ArchivedPartition) -> dict[str, Any]:
    """Return a partition as JSON has it, without its segments."""
    return {
        "topic": partition.topic,
        "topicId": partition.topic_id,
        "partition": partition.partition,
        "start": partition.start_offset,
        "end": partition.end_offset,
        "lastStable": partition.last_stable_offset,
        "endedBy": partition.ended_by,
        "disk": partition.disk,
        "epochs": partition.epochs,
        "fault": partition.fault,
        "files": partition.files,
    }


def archived_segment_fields(segment: ArchivedSegment) -> list[Any]:
    return [segment.base_offset, segment.end_offset, segment.size, segment.segment_id, *sum(segment.objects, ())]
