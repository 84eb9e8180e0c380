"""A copy of the cluster's metadata log, as the disk of a controller or a broker has it.

A copy is whole if each batch of its log and of its newest snapshot is good, and no offset is missing. The end of any
other copy is unknown: it is neither longer nor shorter than another one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pylogseg.disk.disk import Partition, Segment
from pylogseg.disk.lineage.chains import add_epochs, epoch_runs
from pylogseg.disk.listing import open_dir
from pylogseg.disk.small_files import read_meta_properties, read_quorum_state
from pylogseg.env.executor import Advance
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.locks import check_unlocked
from pylogseg.errors import CorruptionError, DirectoryLockedError, RequestError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.columns import TableColumn, declare_columns, line_type
from pylogseg.format.control import ControlKind
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.files.properties import MetaProperties
from pylogseg.format.files.status import QuorumState
from pylogseg.format.messages.control import ControlRecord, decode_control
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.format.records import Slice
from pylogseg.inspect.segment_pass import Visitor, visit
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window

#: Of a record of voters, and of the version of KRaft, that this module can read and write.
NEWEST_VOTERS_RECORD, NEWEST_KRAFT_VERSION = 0, 1
_NO_META = MetaProperties(1)


class Voter(NamedTuple):
    """A controller that votes, as a record of the log names it."""

    id: int
    directory_id: str
    endpoints: tuple[tuple[str, str, int], ...]  #: Listener, host and port.

    @property
    def address(self) -> str:
        """Host and port of the first listener."""
        return address_text(*self.endpoints[0][1:]) if self.endpoints else "?"

    def __str__(self) -> str:
        return f"{self.id}:{self.directory_id}@{self.address}"


def address_text(host: str, port: int) -> str:
    """Return host and port as settings have them: an address of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Snapshot(NamedTuple):
    """A snapshot of the metadata that is whole."""

    offset: int  #: Its records stand for those below this offset.
    epoch: int
    path: str
    size: int


@declare_columns(
    line_type("copy"),
    TableColumn("path", "string", "the log directory"),
    TableColumn("nodeId", "int32", "from meta.properties"),
    TableColumn("directoryId", "string", "from meta.properties"),
    TableColumn("clusterId", "string", "from meta.properties"),
    TableColumn("whole", "bool", "false: the end of this copy is unknown", source="is_whole"),
    TableColumn("error", "string", "why it is not whole", is_optional=True),
    TableColumn("running", "bool", "a node holds the lock of the directory", source="is_running"),
    TableColumn("snapshotOffset", "int64", "of the newest snapshot"),
    TableColumn("startOffset", "int64", "of the log", source="start"),
    TableColumn("endOffset", "int64", "behind the last whole batch, or the snapshot above it", source="end"),
    TableColumn("epoch", "int32", "leader epoch of the last batch"),
    TableColumn("tornBytes", "int64", "behind the last whole batch"),
    TableColumn("kraftVersion", "int16", "0: the voters stand in the settings"),
    TableColumn("voters", "list<string>", "id, directory id and address", source="voter_texts"),
    TableColumn("leaderId", "int32", "of the last change of the leader in the log"),
    TableColumn("leaderEpoch", "int32", "the same"),
    TableColumn("quorumEpoch", "int32", "from quorum-state"),
    TableColumn("votedId", "int32", "from quorum-state"),
    TableColumn("notes", "list<string>", "odd things that do not count"),
)
@dataclass
class MetadataCopy:
    """A copy of the metadata log on a disk."""

    path: str  #: The log directory.
    folder: str = ""  #: The folder of the metadata log; empty where there is none.
    meta: MetaProperties = _NO_META
    error: str = ""
    is_absent: bool = False  #: The disk was read, and has no metadata log.
    is_running: bool = False
    start: int | None = None
    end: int | None = None
    epoch: int | None = None
    torn_bytes: int = 0
    active_path: str = ""  #: The segment to which a leader would append; empty where a snapshot is above the log.
    active_bytes: int = 0  #: Of whole batches in it.
    epochs: list[EpochEntry] = field(default_factory=list)  #: Each leader epoch, and its first offset in the log.
    snapshots: tuple[Snapshot, ...] = ()
    voters: tuple[Voter, ...] | None = None
    kraft_version: int = 0
    leader: tuple[int, int] | None = None
    state: QuorumState | None = None
    time_ms: int = -1
    notes: list[str] = field(default_factory=list)
    partition: Partition | None = None

    @property
    def node_id(self) -> int | None:
        return self.meta.node_id

    @property
    def directory_id(self) -> str | None:
        return self.meta.directory_id

    @property
    def cluster_id(self) -> str | None:
        return self.meta.cluster_id

    @property
    def is_whole(self) -> bool:
        """True if nothing of it is missing or damaged up to its end."""
        return not self.error and self.end is not None

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot."""
        return max(self.snapshots, default=None)

    @property
    def snapshot_offset(self) -> int | None:
        return None if self.newest is None else self.newest.offset

    @property
    def voter_texts(self) -> list[str]:
        return [*map(str, self.voters or ())]

    @property
    def leader_id(self) -> int | None:
        return None if self.leader is None else self.leader[1]

    @property
    def leader_epoch(self) -> int | None:
        return None if self.leader is None else self.leader[0]

    @property
    def quorum_epoch(self) -> int | None:
        return None if self.state is None else self.state.leader_epoch

    @property
    def voted_id(self) -> int | None:
        return None if self.state is None else self.state.voted_id

    @property
    def rank(self) -> tuple[int, int]:
        """Epoch and end: a whole copy has all committed records of each copy with a lower rank."""
        return self.epoch or 0, self.end or 0

    @property
    def highest_epoch(self) -> int:
        """The highest leader epoch that this node took part in."""
        return max(self.epoch or 0, self.state.leader_epoch if self.state else 0)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments that count; none if a newer snapshot than the log's end replaces them."""
        return tuple(self.partition.segments) if self.partition is not None and self.active_path else ()

    @property
    def name(self) -> str:
        """A name for people: the node, and the path."""
        return f"{self.path} (node {self.node_id})" if self.node_id is not None else self.path


def read_copies(path: str, advance: Advance | None = None) -> list[MetadataCopy]:
    """Read the copies on a disk: a log directory, a folder of several, or a folder ``__cluster_metadata-0`` itself.

    Nothing is raised for a disk that cannot be read, or has no metadata log: it becomes a copy with an error.
    """
    try:
        disk = open_dir(path)
    except (StorageError, CorruptionError, RequestError) as error:
        return [MetadataCopy(path, error=str(error))]
    folders = [part for part in disk.partitions if part.topic == METADATA_TOPIC and part.is_live]
    if folders:
        return [_read(folder, advance) for folder in folders]
    places = [log_dir.path for log_dir in disk.log_dirs] or [path]
    return [_without_log(place) for place in places]


def _without_log(path: str) -> MetadataCopy:
    meta = read_meta_properties(LocalFiles(), path)
    return MetadataCopy(path, meta=meta.value or _NO_META, error="no metadata log here", is_absent=True)


def _read(partition: Partition, advance: Advance | None) -> MetadataCopy:
    files, folder = partition.files, partition.path
    above = os.path.dirname(folder) or files.split(folder)[0]
    meta, state = read_meta_properties(files, above), read_quorum_state(files, folder)
    copy = MetadataCopy(above, folder, meta.value or _NO_META, partition=partition, state=state.value)
    copy.notes += [file.problem for file in (meta, state) if not file.is_read]
    copy.is_running = _is_locked(above)
    try:
        if partition.error is not None:
            raise partition.error
        _read_snapshots(copy, partition, advance)
        _read_log(copy, partition, advance)
    except (CorruptionError, StorageError) as error:
        copy.error = str(error)
        copy.end = None
    return copy


def _is_locked(folder: str) -> bool:
    try:
        check_unlocked(folder)
    except DirectoryLockedError:
        return True
    except StorageError:  # a disk of another machine, or one that this user may not ask
        return False
    return False


# ---- the two parts of a copy ----


class _MetadataBatches(Visitor):
    """Checks that batches follow each other without a hole, and keeps control records."""

    def __init__(self, path: str, base: int, *, is_log: bool) -> None:
        self.path, self.end, self.is_log = path, base, is_log
        self.epoch: int | None = None
        self.bytes, self.time_ms, self.first_ms = 0, -1, -1
        self.records_of: list[tuple[int, ControlRecord]] = []
        self.leaders: list[tuple[int, int]] = []
        self.epochs: list[EpochEntry] = []
        self.kinds: list[ControlKind] = []

    def miss_segment(self, error: StorageError | None) -> None:
        raise error or StorageError(self.path, "open", "the file was removed meanwhile")

    def gap(self, gap: Gap) -> None:
        if gap.is_damage or not self.is_log:
            raise CorruptionError(gap.path, gap.position, gap.reason, gap.first_offset)

    def window(self, window: Window) -> BatchTable | None:
        rows = window.batches
        if self.is_log:
            self._check_order(rows)
            add_epochs(self.epochs, epoch_runs(rows))
        self.end, self.epoch = int(rows.last_offset[-1]) + 1, int(rows.leader_epoch[-1])
        self.bytes = int(rows.position[-1] + rows.size[-1])
        self.time_ms = max(self.time_ms, int(rows.max_timestamp.max()))
        return rows[rows.is_control]

    def _check_order(self, rows: BatchTable) -> None:
        expected = np.concatenate([[self.end], rows.last_offset[:-1] + 1])
        epochs = np.concatenate([[-1 if self.epoch is None else self.epoch], rows.leader_epoch])
        if (bad := rows.base_offset != expected).any():
            at = int(bad.argmax())
            reason = f"a batch begins at offset {rows.base_offset[at]}, and the one before it ends at {expected[at]}"
            raise CorruptionError(self.path, int(rows.position[at]), reason, int(expected[at]))
        if (bad := np.diff(epochs) < 0).any():
            at = int(bad.argmax())
            reason = f"leader epoch {epochs[at + 1]} follows the higher one {epochs[at]}"
            raise CorruptionError(self.path, int(rows.position[at]), reason, int(expected[at]))

    def records(self, part: Slice) -> None:
        if part.damage:
            raise CorruptionError(self.path, 0, f"a control batch: {part.damage[0].reason}")
        columns = part.columns
        for row in range(len(columns)):
            record = decode_control(columns.key(row), columns.value(row), self.path)
            self.kinds.append(record.key.kind)
            epoch = int(columns.batches.leader_epoch[columns.batch[row]])
            if record.key.kind is ControlKind.LEADER_CHANGE:
                self.leaders.append((epoch, record.fields["leaderId"]))
            self.records_of.append((int(columns.offset[row]), record))


def _read_snapshots(copy: MetadataCopy, partition: Partition, advance: Advance | None) -> None:
    """Read all snapshots; a damaged older one does not count, the newest one has to be whole."""
    files = [
        (other.name.offset or 0, other.name.epoch or 0, other)
        for other in partition.others
        if other.name.kind is FileKind.KRAFT_SNAPSHOT and other.name.is_live
    ]
    for offset, epoch, other in sorted(files, reverse=True, key=lambda row: row[:2]):
        segment = Segment(partition.files, other.path, 0, other.size, -1, True)
        batches = _MetadataBatches(other.path, 0, is_log=False)
        try:
            visit(segment, [batches], advance=advance)
            if batches.kinds[:1] != [ControlKind.SNAPSHOT_HEADER] or batches.kinds[-1] != ControlKind.SNAPSHOT_FOOTER:
                raise CorruptionError(other.path, other.size, "the snapshot has no header, or no footer: it is cut off")
        except (CorruptionError, StorageError) as error:
            if not copy.snapshots:
                raise
            copy.notes.append(f"{error}: an older snapshot, which does not count")
            continue
        if not copy.snapshots:
            copy.start = copy.end = offset
            copy.epoch, copy.time_ms = epoch, _contained_ms(batches)
            _take(copy, [(offset - 1, record) for _, record in batches.records_of])
        copy.snapshots += (Snapshot(offset, epoch, other.path, other.size),)


def _contained_ms(batches: _MetadataBatches) -> int:
    fields = batches.records_of[0][1].fields
    return int(fields.get("lastContainedLogTimestamp", batches.time_ms))


def _read_log(copy: MetadataCopy, partition: Partition, advance: Advance | None) -> None:
    segments = partition.segments
    if not segments:
        if copy.newest is None:
            raise CorruptionError(copy.folder, 0, "neither a segment nor a snapshot is here")
        return
    batches = _MetadataBatches(copy.folder, segments[0].base_offset, is_log=True)
    for segment in segments:
        if segment.base_offset != batches.end:
            reason = f"the segment begins here, and the log before it ends at {batches.end}"
            raise CorruptionError(segment.path, 0, reason, batches.end)
        batches.path, batches.bytes = segment.path, 0
        visit(segment, [batches], advance=advance)
    first, end = segments[0].base_offset, copy.newest.offset if copy.newest else 0
    if first > end:
        reason = f"the log begins at offset {first}, and no snapshot has the records below it"
        raise CorruptionError(copy.folder, 0, reason, end)
    copy.leader = max(batches.leaders, default=None)
    if batches.end < end:  # a broker drops the log at its start, and goes on with the snapshot
        copy.notes.append(f"the log ends at {batches.end}, below the snapshot: the snapshot counts alone")
        return
    copy.start, copy.end = first, batches.end
    copy.epoch = max(batches.epoch or 0, copy.epoch or 0)
    copy.time_ms = max(copy.time_ms, batches.time_ms)
    copy.active_path, copy.active_bytes = segments[-1].path, batches.bytes
    copy.epochs = batches.epochs
    copy.torn_bytes = segments[-1].size - batches.bytes
    _take(copy, [row for row in batches.records_of if copy.newest is None or row[0] >= copy.newest.offset])


def _take(copy: MetadataCopy, records: list[tuple[int, ControlRecord]]) -> None:
    """Note the voters and the version of KRaft that records say, the last one of each."""
    for offset, record in records:
        if record.key.kind is ControlKind.KRAFT_VERSION:
            copy.kraft_version = record.fields["kRaftVersion"]
        elif record.key.kind is ControlKind.KRAFT_VOTERS:
            if record.fields["version"] > NEWEST_VOTERS_RECORD:
                reason = f"a record of voters of version {record.fields['version']}, which a newer Kafka wrote"
                raise CorruptionError(copy.folder, 0, reason, offset)
            copy.voters = tuple(_voter(fields) for fields in record.fields["voters"])


def _voter(fields: dict[str, Any]) -> Voter:
    endpoints = tuple((row["name"], row["host"], row["port"]) for row in fields["endpoints"])
    return Voter(fields["voterId"], fields["voterDirectoryId"], endpoints)
