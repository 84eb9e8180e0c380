"""What a check has to say about a file: damage, or news; with a remedy."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from pylogseg.errors import CorruptionError, StorageError
from pylogseg.walker.findings import Finding, Gap


class Level(enum.IntEnum):
    """How much is checked; each level includes those before it."""

    HEADERS = 0
    """Batch headers: lengths, magic, offsets in order and inside the segment."""
    CRC = 1
    """The checksum of every batch."""
    RECORDS = 2
    """Every record, decompressed: structure, offsets, timestamps, the checksums inside of legacy wrappers."""
    INDEXES = 3
    """Every entry of every index against the log, and the small files of partitions and log directories."""


class Remark(NamedTuple):
    """One thing that a check found.

    Attributes
    ----------
    path : str
    kind : str
        One of `REMEDIES`.
    is_damage : bool
        Whether bytes are wrong, records are missing, or a broker does not start with it; otherwise it is news: worth
        knowing, and what a broker takes in its stride.
    reason : str
        What is wrong, with the value found.
    position : int or None
        Byte position in the file.
    offset : int or None
        The first offset concerned.
    last_offset : int or None
        The last one, where it is known that there are more.
    """

    path: str
    kind: str
    is_damage: bool
    reason: str
    position: int | None = None
    offset: int | None = None
    last_offset: int | None = None

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return REMEDIES[self.kind]

    def as_row(self) -> dict[str, Any]:
        """Fields for a JSON line."""
        level = "damage" if self.is_damage else "notice"
        return {
            "type": "finding",
            "level": level,
            "kind": self.kind,
            "path": self.path,
            "position": self.position,
            "offset": self.offset,
            "lastOffset": self.last_offset,
            "reason": self.reason,
            "remedy": self.remedy,
        }


_COPY = "take the partition from another replica; or read around it with --on-corrupt skip"
_REBUILT = "delete the file while the broker is stopped: it is built again from the log"

#: What to do about each kind of finding.
REMEDIES = {
    Finding.CRC_BAD.value: _COPY,
    Finding.RECORDS_BAD.value: _COPY,
    Finding.BAD_LENGTH.value: _COPY,
    Finding.UNKNOWN_MAGIC.value: _COPY,
    Finding.FOREIGN.value: "unpack an archive; else use the tools of the program that wrote it",
    Finding.REMOVED.value: "none: a broker deletes the oldest segments, and a new leader has the newest truncated",
    Finding.TORN.value: "none: a broker cuts it off when it recovers the log",
    Finding.ZEROS.value: "none after a crash; remove .kafka_cleanshutdown if it is there, so that the log is recovered",
    "header": _COPY,
    "order": "take the partition from another replica: a broker serves these offsets twice or not at all",
    "inner-crc": _COPY,
    "timestamp": "none: look-ups by time may miss records",
    "gap": "take the partition from another replica; none is needed if the topic is, or was, a compacted one",
    "missing": "take the partition from another replica, or its files from a backup, before a broker starts: it goes "
    "on without these offsets, and forgets that they were there",
    "perhaps-remote": "name all log directories of the broker: the metadata of the cluster, in one of them, tells "
    "whether the topic is tiered; if it is not, take the partition from another replica before a broker starts",
    "log-start": "before a broker starts, take the partition's line out of log-start-offset-checkpoint, and lower the "
    "count in its second line: then all segments stay",
    "log-start-lost": "take log-start-offset-checkpoint from a backup before a broker starts, or delete the records "
    "again: `pylogseg delete-records`, or kafka-delete-records.sh once it runs",
    "bootstrap": "take bootstrap.checkpoint from another node, or delete it where the metadata log is whole: only a "
    "new cluster needs it",
    "foreign-folder": "move it out of the log directory; if it is the file system's own (lost+found), let a folder "
    "below the mount point be the log directory",
    "meta-properties": "write the file again with cluster.id and node.id of this broker, and the directory.id that the "
    "directory had: with a new one, partitions whose only replica is here have no leader (docs/operators.md)",
    "twice": "move the folder that is older or shorter out of its log directory (`pylogseg diff` compares them)",
    "topic-id": "write the topic's id into partition.metadata, unless the folder is that of a topic that was deleted",
    "stray": "none if the topics were deleted: a KRaft broker renames such folders to -stray when it starts",
    "not-here": "name all log directories of the broker; else take the partitions from other replicas",
    "empty": "take the partition from another replica if it held records: a broker begins a new log here",
    "orphan-lost": "take the .log file of the same name from a backup, or the partition from another replica, before a "
    "broker starts: it deletes the index and goes on without these offsets",
    "overlap": "take the partition from another replica: two segments claim the same offsets",
    "leader-epoch": "delete leader-epoch-checkpoint while the broker is stopped, or take another replica",
    "offset-index": _REBUILT,
    "time-index": _REBUILT,
    "transaction-index": "delete .txnindex and .index of the segment while the broker is stopped: they are built again",
    "missing-index": "none for .index: a broker builds it again when it starts; for .timeindex `pylogseg reindex`: a "
    "broker begins an empty one, and retention then goes by the time of the .log file",
    "orphan": "none: a broker deletes it when it starts",
    "leftover": "none: a broker deletes it, or finishes the swap, when it starts",
    "swap": "before a broker or `pylogseg recover` loads the log, move this file and its indexes out of the folder: "
    "segments that it would replace stay then; where they are gone already, take the partition from another replica",
    "snapshot": "delete the file while the broker is stopped: it is built again from the log",
    "kraft-snapshot": "take the file from another controller, or delete it if an older one is there",
    "checkpoint": "take the file from a backup, or delete it while the broker is stopped: the log is then recovered",
    "metadata": "write the file again, with the ids that the cluster knows",
    Finding.UNREADABLE.value: "see to the disk, to the permissions, or to where a link leads",
}


def of_gap(gap: Gap) -> Remark:
    """The remark about a stretch without good batches."""
    span = f" (bytes {gap.position} to {gap.end_position})"
    last = None if gap.next_offset is None or gap.next_offset <= gap.first_offset else gap.next_offset - 1
    return Remark(gap.path, gap.kind.value, gap.is_damage, gap.reason + span, gap.position, gap.first_offset, last)


def of_error(kind: str, error: CorruptionError, is_damage: bool = True) -> Remark:
    """The remark about a file that cannot be parsed."""
    return Remark(error.path, kind, is_damage, error.reason, error.position, error.offset)


def of_failure(error: StorageError) -> Remark:
    """The remark about what the disk or its rights refuse."""
    return Remark(error.path, Finding.UNREADABLE.value, True, f"cannot {error.operation}: {error.reason}")
