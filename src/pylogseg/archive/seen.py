"""A cluster as its disks show it: log directories, the copies of each partition, and the facts in their files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.folders import not_topics_here
from pylogseg.disk.lineage.authority import Replica
from pylogseg.disk.lineage.chains import Lineage
from pylogseg.disk.listing import open_dir
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.small_files import (
    FileState,
    SmallFile,
    read_meta_properties,
    read_offset_checkpoint,
)
from pylogseg.disk.tier.point import NotSeen, Point, SeenDisk
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.locks import check_unlocked
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.files.properties import MetaProperties
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.format.uuids import format_uuid
from pylogseg.offline.copying.ledger import CopyLedger, ledger_of
from pylogseg.transfer.log_here import LogHere
from pylogseg.values.internal.cluster import ClusterMetadata, clusters_of, fallbacks_of

#: The topic's name, its id, and the number of the partition.
LogKey = tuple[str, str, int]
_INT32 = 2**31 - 1
METADATA_TOPIC_ID = "A" * 21 + "Q"
OFFSETS_TOPIC = "__consumer_offsets"
#: Offsets that groups commit are of records that were there before, so the ends of their partitions are looked up
#: first. `__transaction_state` is looked up with the partitions that its transactions are in.
MARKED_FIRST = (OFFSETS_TOPIC,)


@dataclass(frozen=True)
class Marks(SmallFile[dict[tuple[str, int], int]]):
    """The high watermarks of a log directory."""

    written_ns: int = -1  #: When its broker wrote them; -1 if that is not known.


class Lack(NamedTuple):
    """Offsets that a log should have, and that are in none of its batches; half-open."""

    first: int
    end: int
    is_known: bool  #: False where a cleaner may have removed them.
    text: str


@dataclass(eq=False, kw_only=True)
class SeenCopy(LogHere):
    """A folder of a partition on one of the disks."""

    disk: int
    node_id: int | None
    mark_file: Marks  #: Of its disk.
    end: int = 0  #: Of its log, or what is known to be in it.
    noted_end: int = 0  #: Of the metadata log: the end that files beside it have.
    is_settled: bool = False  #: True once the facts that its files lost are taken from elsewhere.
    doubts: list[str] = field(default_factory=list)  #: The facts that its files lost, and what the point has instead.
    lacks: list[Lack] = field(default_factory=list)  #: As far as somebody looked.

    @property
    def lineage(self) -> Lineage:
        return self.lineage_to(self.end)

    def lacks_offset(self, offset: int) -> bool:
        """Check whether a look has shown that it lacks an offset."""
        return any(lack.is_known and lack.first <= offset < lack.end for lack in self.lacks)

    @property
    def unmarked(self) -> str:
        """Why nobody knows its high watermark, or cannot believe it."""
        if self.watermark is not None:
            return f"{self.mark_file.path} has the high watermark {self.watermark}, at which the log starts"
        return self.mark_file.problem or f"{self.mark_file.path}: the file has no high watermark of it"

    @property
    def replica(self) -> Replica:
        """The facts by which one copy's history counts."""
        return Replica(self.lineage, self.watermark or 0, self.node_id)


@dataclass
class SeenCluster:
    """The log directories to archive, with their partitions, checkpoints and faults."""

    disk: Disk
    disks: list[SeenDisk]
    metadata: ClusterMetadata | None = None
    clusters: dict[str, ClusterMetadata] = field(default_factory=dict)  #: By the paths of log directories.
    copies: dict[LogKey, list[SeenCopy]] = field(default_factory=dict)
    checkpoints: list[OffsetCheckpoints] = field(default_factory=list)  #: By log directory.
    notes: list[str] = field(default_factory=list)
    unreadable: list[StorageError] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  #: Of files and folders that no partition of a point has.
    past_ids: dict[str, str] = field(default_factory=dict)  #: Of topics in the newest point.
    first_marks: list[Marks] = field(default_factory=list)  #: Of the topics in `MARKED_FIRST`, by log directory.

    @property
    def cluster_id(self) -> str:
        return next((disk.cluster_id for disk in self.disks if disk.cluster_id), "")

    @property
    def is_running(self) -> bool:
        """True if a broker has one of them open."""
        return any(disk.state == "running" for disk in self.disks)

    def not_seen(self) -> tuple[NotSeen, ...] | None:
        """Return the partitions of the metadata without a folder; None without metadata."""
        if self.metadata is None:
            return None
        names = {topic_id: topic for topic, topic_id in self.metadata.topic_ids.items()}
        there = {(topic_id, number) for _, topic_id, number in self.copies}
        lacking = sorted((names[key[0]], *key) for key in self.metadata.replicas if key not in there)
        return tuple(NotSeen(*each) for each in lacking)

    def look_at_marks(self, *, also_first: bool) -> None:
        """Look up high watermarks (of `__consumer_offsets` first, or as they were before), then list the disks.

        Logs are listed after that: what was committed may lie in a segment that a running broker has begun meanwhile,
        and a folder may be gone, or be on another disk.
        """
        paths = [log_dir.path for log_dir in self.disk.log_dirs]
        if also_first:
            self.first_marks = [_marks_of(path) for path in paths]
        marks = [_marks_of(path) for path in paths]
        if self.is_running:
            self.disk = open_dir(paths)
        self.take_copies(marks)

    def take_copies(self, marks: Sequence[Marks]) -> None:
        """Take the copies of partitions that are listed, with high watermarks by log directory."""
        self.copies, self.unreadable = {}, []
        self.checkpoints = [OffsetCheckpoints(LocalFiles(), log_dir.path) for log_dir in self.disk.log_dirs]
        for number, log_dir in enumerate(self.disk.log_dirs):
            node_id, file = self.disks[number].node_id, marks[number]
            if file.is_damaged:
                self._add_fault(f"{file.problem}: high watermarks of this disk are not known")
            if log_dir.not_topics:
                self._add_fault(f"{log_dir.path}: {not_topics_here(log_dir.not_topics)}")
            for part in log_dir.partitions:
                file = (self.first_marks if part.topic in MARKED_FIRST else marks)[number]
                copy = SeenCopy(
                    partition=part,
                    checkpoints=self.checkpoints[number],
                    watermark=(file.value or {}).get((part.topic, part.partition)),
                    disk=number,
                    node_id=node_id if node_id >= 0 else None,
                    mark_file=replace(file, value=None),  # a worker needs no entries of others
                )
                copy.read_files()
                if self.is_running and not os.path.isdir(part.path):
                    continue  # its broker removed it meanwhile
                if part.error is not None:
                    self.unreadable.append(part.error)
                elif part.is_live and part.topic:
                    key = part.topic, _topic_id(part, copy.id_file.value, self), part.partition
                    self.copies.setdefault(key, []).append(copy)
        self._leave_deleted()

    def take_ids(self, point: Point) -> None:
        """Take topic ids from a point where no file has one now, so that a topic keeps its id."""
        ids: dict[str, set[str]] = {}
        for each in point.partitions:
            ids.setdefault(each.topic, set()).add(each.topic_id)
        self.past_ids = {topic: next(iter(own)) for topic, own in ids.items() if len(own) == 1}
        for key in [key for key in self.copies if key[1] == made_up_id(self.cluster_id, key[0])]:
            copies = self.copies.pop(key)
            self.copies.setdefault((key[0], self.past_ids.get(key[0], key[1]), key[2]), []).extend(copies)

    def _add_fault(self, fault: str) -> None:
        self.faults += [] if fault in self.faults else [fault]

    def _leave_deleted(self) -> None:
        """Leave folders of a topic that was deleted, where the cluster has another one of its name: a broker would."""
        ids = {} if self.metadata is None else self.metadata.topic_ids
        for key in [key for key in self.copies if key[0] in ids and key[1] != ids[key[0]] and key[0] != METADATA_TOPIC]:
            note = (
                f"{key[0]}-{key[2]}: {self.copies.pop(key)[0].partition.path} is of a topic that was deleted, {key[1]}"
            )
            self.notes += [] if note in self.notes else [note]


def look(paths: Sequence[str | os.PathLike[str]]) -> SeenCluster:
    """List log directories of one cluster, and read the small files in them; RequestError for anything else."""
    early, late = _marks_below(paths), _marks_below(paths)  # before the logs are listed: see `look_at_marks`
    disk = open_dir(list(paths))
    inside = {part.path for log_dir in disk.log_dirs for part in log_dir.partitions}
    for part in disk.partitions:
        if part.path not in inside and part.error is not None:
            raise part.error
    alone = [part.path for part in disk.partitions if part.path not in inside] + [each.path for each in disk.loose]
    if alone or not all(isinstance(log_dir.files, LocalFiles) for log_dir in disk.log_dirs):
        what = alone[0] if alone else disk.log_dirs[0].path
        raise RequestError(f"{what}: an archive is made of log directories of this machine: name these")
    metas = [read_meta_properties(LocalFiles(), log_dir.path) for log_dir in disk.log_dirs]
    ledgers = [ledger_of(log_dir.path) for log_dir in disk.log_dirs]
    disks = [
        _disk(log_dir.path, meta.value, ledger)
        for log_dir, meta, ledger in zip(disk.log_dirs, metas, ledgers, strict=True)
    ]
    seen = SeenCluster(disk, disks, notes=list(disk.notes))
    seen.faults += [fault for ledger in ledgers if ledger is not None for fault in ledger.faults]
    seen.faults += [
        f"{m.problem}: so the broker of this disk is unknown"
        for m in metas
        if not m.is_read and m.state is not FileState.ABSENT
    ]
    of = {each.cluster_id: each.path for each in seen.disks if each.cluster_id}
    if len(of) > 1:
        (one, first), (other, second) = list(of.items())[:2]
        raise RequestError(f"{first} is of cluster {one}, and {second} of cluster {other}: archive each by itself")
    seen.clusters, problems = clusters_of(disk)
    seen.metadata = max(seen.clusters.values(), key=lambda each: each.offset, default=None)
    seen.faults += [*problems, *fallbacks_of(seen.clusters)]
    places = [os.path.abspath(log_dir.path) for log_dir in disk.log_dirs]
    seen.first_marks = [early[each] if each in early else _marks_of(each) for each in places]
    if all(each in late for each in places):
        seen.take_copies([late[each] for each in places])
    else:
        seen.look_at_marks(also_first=False)
    return seen


def _marks_below(paths: Sequence[str | os.PathLike[str]]) -> dict[str, Marks]:
    """Return the high watermarks of log directories, by their absolute paths, without a look at their partitions."""
    kind, found = FileKind.HIGH_WATERMARKS, dict[str, Marks]()
    for path in (place for each in paths for place in LocalFiles().glob(os.fspath(each))):
        folders = [path]
        if not os.path.exists(os.path.join(path, kind.value)) and os.path.isdir(path):
            folders = [os.path.join(path, entry.name) for entry in LocalFiles().list_names(path)]
        for folder in folders:
            if os.path.exists(os.path.join(folder, kind.value)):
                found[os.path.abspath(folder)] = _marks_of(folder)
    return found


def _topic_id(part: Partition, written: str | None, seen: SeenCluster) -> str:
    """Return the id of a topic; without one, an id made of the names of the cluster and the topic."""
    if part.topic == METADATA_TOPIC:
        return METADATA_TOPIC_ID
    known = seen.metadata.topic_ids.get(part.topic) if seen.metadata is not None else None
    found = written or known
    if found is None:
        note = f"{part.topic}: no file has its topic id, so a recreated topic of this name would go unnoticed"
        seen.notes += [note] if note not in seen.notes else []
        found = seen.past_ids.get(part.topic) or made_up_id(seen.cluster_id, part.topic)
    return found


def made_up_id(cluster_id: str, topic: str) -> str:
    """Return the id of a topic of which no file says one, made of its name."""
    return format_uuid(hashlib.sha256(f"{cluster_id}/{topic}".encode()).digest()[:16])


def _disk(path: str, meta: MetaProperties | None, ledger: CopyLedger | None) -> SeenDisk:
    node = -1 if meta is None or meta.node_id is None else meta.node_id
    ids = ("", "") if meta is None else (meta.cluster_id or "", meta.directory_id or "")
    if meta is None and ledger is not None:  # a copy of a running cluster is no broker's
        ids = (ledger.cluster_id, "")
    return SeenDisk(os.path.abspath(path), node if node <= _INT32 else -1, *ids, _state(path))


def _state(path: str) -> str:
    try:
        check_unlocked(path)
    except StorageError as error:
        if error.__cause__ is None:
            return "running"
    return "stopped" if os.path.exists(os.path.join(path, FileKind.CLEAN_SHUTDOWN.value)) else "crashed"


def _marks_of(log_dir: str) -> Marks:
    written_ns = _written_ns(log_dir)  # first: the file may be written anew meanwhile
    found = read_offset_checkpoint(LocalFiles(), log_dir, FileKind.HIGH_WATERMARKS)
    return Marks(found.path, found.state, found.value, found.problem, found.error, written_ns)


def stamps(disks: Iterable[SeenDisk]) -> list[int]:
    """Return when brokers wrote their high watermarks, in nanoseconds; -1 if unknown."""
    return [_written_ns(disk.path) for disk in disks]


def _written_ns(log_dir: str) -> int:
    path = os.path.join(log_dir, FileKind.HIGH_WATERMARKS.value)
    return os.stat(path).st_mtime_ns if os.path.exists(path) else -1
