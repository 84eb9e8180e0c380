"""Findings of `verify`: damage, a notice, or an omitted check; each with a remedy."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pylogseg.errors import CorruptionError, StorageError, is_denied
from pylogseg.format.columns import TableColumn, declare_columns, line_type
from pylogseg.format.names import FileKind
from pylogseg.format.words import FEW
from pylogseg.walker.gaps import Gap, GapKind, kind_of


class Level(enum.IntEnum):
    """The amount of checking; each level includes the levels before it."""

    HEADERS = 0
    """Batch headers: lengths, magic, offsets in order and inside the segment."""
    CRC = 1
    """The checksum of every batch."""
    RECORDS = 2
    """Every record, decompressed: structure, offsets, timestamps, the checksums inside legacy wrappers."""
    INDEXES = 3
    """Every entry of every index against the log, and the small files of partitions and log directories."""


@declare_columns(
    line_type("finding"),
    TableColumn("level", "string", "damage, notice, unread or unknown"),
    TableColumn("urgency", "string", "start, lost, early, unknown, unread, mend or heals"),
    TableColumn("kind", "string", "such as crc; `verify` in the manual of the shell lists them"),
    TableColumn("path", "string", "of the file or folder"),
    TableColumn("position", "int64", "in the file", "bytes"),
    TableColumn("offset", "int64", "the first one concerned"),
    TableColumn("lastOffset", "int64", "the last one; null if unknown"),
    TableColumn("reason", "string", "with the value found"),
    TableColumn("remedy", "string", "the recommended action"),
)
class Finding(NamedTuple):
    """One finding of a check."""

    path: str
    kind: str  #: One of `REMEDIES`.
    #: Wrong bytes, missing records, or no start of a broker; else a notice, which does not disturb one.
    is_damage: bool
    reason: str  #: What is wrong, with the value found.
    position: int | None = None  #: Byte position in the file.
    offset: int | None = None  #: The first offset concerned.
    last_offset: int | None = None  #: The last one, if it is known.
    end_position: int | None = None  #: Byte after the last one, of a gap.
    other_remedy: str = ""  #: In place of that of the kind.

    @property
    def offsets(self) -> tuple[int, int]:
        """The offsets concerned, half-open: only the first one, or 0, without a last one."""
        first = self.offset or 0
        return first, first + 1 if self.last_offset is None else self.last_offset + 1

    def is_about(self, first: int, end: int) -> bool:
        """True if any of the offsets concerned is in a range; half-open."""
        start, stop = self.offsets
        return start < end and first < stop

    @property
    def remedy(self) -> str:
        """The recommended action."""
        return self.other_remedy or REMEDIES[self.kind]

    @property
    def is_unread(self) -> bool:
        """True if it names an omitted check: for want of a key or of permission, or behind a link."""
        return self.kind in (GapKind.LOCKED.value, DENIED, TIER_LINKS)

    @property
    def is_unknown(self) -> bool:
        """True if these files cannot show whether records are lost."""
        return self.kind in _UNKNOWN

    @property
    def level(self) -> str:
        """``damage``, ``notice``, ``unread`` or ``unknown``."""
        if self.is_damage:
            return "damage"
        return "unread" if self.is_unread else "unknown" if self.is_unknown else "notice"

    @property
    def urgency(self) -> str:
        """One of `URGENCIES`."""
        if self.is_unread or self.is_unknown:
            return self.level
        if self.remedy.startswith("none"):
            return "heals"
        if self.is_damage and self.kind == _EARLY:
            return "early"
        if not self.is_damage or self.kind in _AT_LEISURE:
            return "mend"
        return "start" if self.kind in NO_START else "lost"

    def lines(self, others: Sequence[Finding] = ()) -> Iterator[str]:
        """Yield the lines for people; `others` have the same reason and remedy."""
        place = "" if self.position is None else f", position {self.position}"
        place += "" if self.offset is None else f", offset {self.offset}"
        more = f", and {len(others):,} more with the same reason (--json has each)" if others else ""
        level = self.level if self.level == "notice" else self.level.upper()
        yield f"{level}  {self.kind}  {self.path}{place}{more}"
        yield from (f"        also: {other.path}" for other in others[: FEW - 1])
        yield f"        {self.reason}"
        yield f"        urgency: {URGENCIES[self.urgency]}"
        yield f"        remedy: {self.remedy}"


#: How soon somebody should look at a finding; the most urgent first.
URGENCIES = {
    "start": "the broker does not start, or not with this folder",
    "lost": "records are lost, or not served",
    "unknown": "it is not known whether records are lost",
    "unread": "not looked at",
    "early": "records will be deleted too early, by retention",
    "mend": "to be mended at leisure",
    "heals": "heals by itself, or needs nothing",
}
NO_START = ("control", "meta-properties", "foreign-folder", "twice", "topic-id", "bootstrap", "metadata-start",
            "kraft-snapshot", "metadata", "leader-epoch-file", "checkpoint", GapKind.UNREADABLE.value)  # fmt: skip
_AT_LEISURE = ("uncleanable", "offset-index", "time-index", "transaction-index", "missing-index", "snapshot",
               "leader-epoch", "high-watermark", "negative-offset")  # fmt: skip
#: A time index of a sealed segment whose last entry is not that of the greatest timestamp: retention goes by it.
_EARLY = "time-index-end"

#: The kind of a finding about what may not be read.
DENIED = "denied"
#: Links to folders in a tier.
TIER_LINKS = "tier-links"
#: Missing offsets that the leader's cleaner may have removed, or that are in remote storage.
PERHAPS_COMPACTED, PERHAPS_REMOTE = "perhaps-compacted", "perhaps-remote"
_UNKNOWN = (PERHAPS_COMPACTED, PERHAPS_REMOTE)

_COPY = "take the partition from another replica; or read around it with --on-corrupt skip"
_REBUILT = "delete the file while the broker is stopped: it is rebuilt from the log"
#: Of these files a broker that was stopped in order rebuilds none.
_REINDEX = "while the broker is stopped, `pylogseg reindex DIR NAME --only {}` rebuilds it from the log"

#: Kinds of what a crash leaves at the end of a log, where a broker cuts it off.
ENDS = (GapKind.TORN.value, GapKind.ZEROS.value)
#: What to do about those where nothing but a crash explains them: in a segment that others follow; and beside the
#: marker of a clean shutdown.
_INSIDE = (
    "take the partition from another replica before a broker recovers the log: it would delete all segments behind "
    "this place; or keep them by `pylogseg repair --keep-behind`"
)
_UNCUT = (
    "remove .kafka_cleanshutdown before a broker starts, so that it recovers the log and cuts this off: with the file "
    "it appends behind it; what was there before is with other replicas"
)

#: What becomes of high watermarks that no file has.
WATERMARKS_ANEW = (
    "a broker that starts finds the high watermarks anew, from the replicas in sync; until then no record of these "
    "partitions counts as committed, and `pylogseg archive` and `lake` take none"
)

#: The remedy of each kind of finding; the comments are the meanings that docs/cli.md lists.
REMEDIES = {
    #: bytes that give no batch, or a batch without its records
    GapKind.CRC_BAD.value: _COPY,
    GapKind.BAD_LENGTH.value: _COPY,
    GapKind.UNKNOWN_MAGIC.value: _COPY,
    GapKind.RECORDS_BAD.value: _COPY,
    GapKind.TORN.value: "none: a broker cuts it off when it recovers the log",
    GapKind.ZEROS.value: "none: a broker cuts it off when it recovers the log",
    GapKind.FOREIGN.value: "unpack an archive; else use the tools of the program that wrote it",
    #: a header that contradicts itself; offsets that go back, or are below the base offset of the segment
    "header": _COPY,
    "order": "take the partition from another replica: a broker serves these offsets twice or not at all",
    #: a control batch without a control record: a broker that recovers the log ends there
    "control": "take the partition from another replica, or its files from a backup, while the broker is stopped: one "
    "that recovers the log ends at this batch, its cleaner too, and consumers skip the records",
    #: a notice: fields that no producer writes, or a time below -1. Kafka's cleaner ends with an error there
    "uncleanable": "if the topic is compacted, clean the log by `pylogseg compact` while the broker is stopped: "
    "Kafka's own cleaner ends with an error at such a batch",
    #: the checksum of a message inside an old wrapper
    "inner-crc": _COPY,
    #: a header's greatest timestamp differs from that of the records
    "timestamp": "none: lookups by time may miss records",
    #: offsets between batches or segments: absent, or there twice
    "gap": "take the partition from another replica; none is needed if the topic is, or was, a compacted one",
    "overlap": "take the partition from another replica: two segments claim the same offsets",
    #: a notice: offsets that `repair` cut out on purpose, with the day
    "cut": "none: it was done on purpose; where the file that says so is damaged, delete it",
    #: the end of a log, a segment or a partition is missing; a log has no segment; the segment of an index was lost
    "missing": "take the partition from another replica, or its files from a backup, before a broker starts: it "
    "continues without these offsets, and the evidence is lost",
    "empty": "take the partition from another replica if it held records: a broker begins a new log here",
    "orphan-lost": "take the .log file of the same name from a backup, or the partition from another replica, before a "
    "broker starts: it deletes the index and continues without these offsets",
    #: `UNKNOWN`: offsets that no batch has, in a log that may be compacted
    PERHAPS_COMPACTED: "look up the topic's cleanup.policy, or name all log directories of a KRaft broker: if it never "
    "was compact, take the partition from another replica",
    #: `UNKNOWN`: first segments of a topic that may be tiered; with `--tier`, neither the disk nor its tier has them:
    #: they are lost, or were deleted in the tier after the disk was written
    PERHAPS_REMOTE: "name all log directories of the broker: the cluster metadata in one of them shows "
    "whether the topic is tiered; if it is not, take the partition from another replica before a broker starts; where "
    "the tier was given, --remote-metadata tells what was deleted there",
    #: a damaged or short `.swap` file, which a starting broker would put in the place of good segments
    "swap": "before a broker or `pylogseg recover` loads the log, move this file and its indexes out of the folder: "
    "then the segments that it would replace stay; if they are deleted already, take the partition from another "
    "replica",
    #: a log start offset after the end of its log: a starting broker deletes all segments
    "log-start": "before a broker starts, take the partition's line out of log-start-offset-checkpoint, and lower the "
    "count in its second line: then all segments stay",
    #: deleted records that a broker serves again, since its checkpoint no longer names the partition
    "log-start-lost": "take log-start-offset-checkpoint from a backup before a broker starts, or delete the records "
    "again: `pylogseg delete-records`, or kafka-delete-records.sh once it runs",
    #: folders and files that keep a broker from starting, that it sets aside, or that belong on another disk
    "foreign-folder": "move it out of the log directory; if it is the file system's own (lost+found), use a folder "
    "below the mount point as the log directory",
    "meta-properties": "write the file again with cluster.id and node.id of this broker, and the directory.id that the "
    "directory had: with a new one, partitions whose only replica is here have no leader (docs/operators.md)",
    "twice": "move the folder that is older or shorter out of its log directory (`pylogseg diff` compares them)",
    "topic-id": "write the topic's id into partition.metadata (two lines, `version: 0` and `topic_id: ID`), unless the "
    "folder is that of a topic that was deleted",
    "stray": "none if the topics were deleted: a KRaft broker renames such folders to -stray when it starts",
    "not-here": "name all log directories of the broker; else take the partitions from other replicas",
    #: a `-stray` or `-delete` folder, with topic and id, and the offsets that no partition on these disks has: damage
    #: if a new log took its place, else a notice
    "set-aside": "while the broker is stopped, `pylogseg restore LOG_DIR LOG_DIR NAME`, with the name of this folder",
    "awaits-deletion": "none if it was deleted on purpose",
    #: a setting in the cluster's metadata with which a newer Kafka does not start
    "setting": "before the upgrade, raise the topic's segment.bytes, or delete the setting: kafka-configs.sh --alter",
    #: records of partitions whose high watermark no file has: none counts as committed
    "high-watermark": f"take replication-offset-checkpoint from a backup, or start a broker: {WATERMARKS_ANEW}",
    #: an index that contradicts its log, is missing, or has no log
    "offset-index": _REBUILT,
    "time-index": _REINDEX.format("time"),
    "time-index-end": _REINDEX.format("time"),
    "transaction-index": "delete .txnindex and .index of the segment while the broker is stopped: they are rebuilt",
    "missing-index": "none for .index: a broker rebuilds it when it starts; for .timeindex `pylogseg reindex`: a "
    "broker begins an empty one, and retention then goes by the time of the .log file",
    "orphan": "none: a broker deletes it when it starts",
    #: other files
    "leader-epoch": f"{_REINDEX.format('epochs')}; where a batch is wrong, take the partition from another replica",
    "leader-epoch-file": f"{_REINDEX.format('epochs')}; if it was not closed in order, `pylogseg repair DIR NAME` does",
    "snapshot": _REINDEX.format("snapshots"),
    "kraft-snapshot": "take the file from another controller, or delete it if an older one is there",
    "metadata-start": "take the snapshots, or the whole folder, from another controller: no controller starts with "
    "this log",
    "bootstrap": "take bootstrap.checkpoint from another node, or delete it where the metadata log is whole: only a "
    "new cluster needs it",
    "checkpoint": "take the file from a backup, or delete it while the broker is stopped",
    "negative-offset": "take the file from a backup, or the partition's line out of it while the broker is stopped, "
    "and lower the count in its second line",
    "metadata": "write the file again, with the ids that the cluster knows",
    "leftover": "none: a broker deletes it, or finishes the swap, when it starts",
    #: the disk could not read it
    GapKind.UNREADABLE.value: "check the disk, and the targets of links",
    #: `UNREAD`: no permission, no key, or a link in a tier
    DENIED: "run it again as a user that may read the files, such as the broker's own: sudo -u kafka pylogseg ...",
    GapKind.LOCKED.value: "give the private key that the reason names: --keys, keys= or PYLOGSEG_TIER_KEYS",
    TIER_LINKS: "none if they do not belong to the tier; else verify each folder that they lead to by itself",
    #: a segment that retention removed while the check ran
    GapKind.REMOVED.value: "none: retention deletes the oldest segments, followers of a new leader truncate the newest",
    #: damage: an object is missing, or its size differs from the manifest
    "tier-object": "take the object from a backup or an older version of the bucket; `pylogseg restore` brings back "
    "the others",
    #: damage: a manifest is unreadable, or has another end offset, largest timestamp or leader epoch than the segment
    "tier-manifest": "upload the segment again from a replica that still has it; what the manifest says is not "
    "to be relied on",
    #: damage: offsets of the log that no upload has
    "tier-hole": "take the offsets from a replica or a backup: no upload has them",
    #: damage: an upload is absent that `__remote_log_metadata` has as finished
    "tier-missing": "take the objects from a backup or an older version of the bucket: a broker answers reads of these "
    "offsets with an error",
    #: damage: the metadata and the objects disagree about offsets, size or leader epochs
    "tier-metadata": "compare both with a replica: either the objects or the metadata belong to another segment",
    #: a notice, with `--tier`: a broker would have uploaded these sealed segments by now, and no finished upload has
    #: them
    "tier-unsent": "none if the broker was just about to; else look into its log for why it does not upload (plugins "
    "can stop without a word), and keep the disk: nothing else has these records but the other replicas",
    #: a notice: an upload began and never finished, and whether another one has its offsets: a plugin that fails
    #: silently
    "tier-unfinished": "look into the broker's log for why the upload failed; the segment stays on its disk until one "
    "succeeds",
    #: a notice: a complete upload, which is unfinished or being deleted by the metadata
    "tier-state": "none: a broker that runs goes on with it",
    #: a notice: another leader wrote the offsets of an upload, which are not in the log
    "tier-branch": "none: another leader wrote the log there (an unclean election); export the upload by itself, if "
    "its records are wanted",
    #: a notice: objects without a manifest, or unknown to the metadata. An upload or a deletion may be running
    "tier-orphan": "none is needed to read the tier; delete it only if no broker uploads or deletes meanwhile, and the "
    "complete metadata does not know it",
    #: an object is missing, has another size or another SHA-256: it was lost, cut, rotted or swapped
    "archive-object": "take the object from a copy of the archive or an older version of the bucket; points that do "
    "not need it can be restored",
    #: `archive.json`, with the cluster id, is missing, damaged or that of another cluster
    "archive-mark": "write the file again, with the id of the cluster: no record and no point is lost with it, but "
    "`pylogseg archive` refuses to go on",
    #: a point is unreadable or changed, its segments have other offsets, or the newest point is gone
    "archive-point": "take the file from a copy of the archive or an older version of the bucket, or delete it: other "
    "points do not need it",
    #: `_pylogseg/points.json`, which names the newest points, cannot be read
    "archive-note": "run `pylogseg archive` again, which writes the file again",
}


def finding_of_gap(gap: Gap) -> Finding:
    span = f" (bytes {gap.position} to {gap.end_position})"
    last = None if gap.next_offset is None or gap.next_offset <= gap.first_offset else gap.next_offset - 1
    place = gap.position, gap.first_offset, last, gap.end_position
    is_damage = gap.is_damage and gap.kind is not GapKind.LOCKED
    finding = Finding(gap.path, gap.kind.value, is_damage, gap.reason + span, *place)
    is_inside = is_damage and gap.kind.value in ENDS
    return finding._replace(other_remedy=_INSIDE) if is_inside else finding


def uncut(findings: Iterable[Finding], is_stopped: bool) -> Iterator[Finding]:
    """Yield the findings of a segment; with the marker of a clean shutdown, no broker cuts off the remains of a
    crash.
    """
    for finding in findings:
        if is_stopped and not finding.is_damage and finding.kind in ENDS:
            reason = f"{finding.reason}, and {FileKind.CLEAN_SHUTDOWN.value} says that the log was closed in order"
            finding = finding._replace(is_damage=True, reason=reason, other_remedy=_UNCUT)
        yield finding


def proved_early(findings: Iterable[Finding], is_deleted_by_time: bool) -> Iterator[Finding]:
    """Yield the findings of a segment; of a topic whose records go by their time, a wrong end of an index is damage."""
    for finding in findings:
        yield finding._replace(is_damage=True) if is_deleted_by_time and finding.kind == _EARLY else finding


def of_error(kind: str, error: CorruptionError) -> Finding:
    """Return the finding for a malformed file."""
    return Finding(error.path, kind, True, error.reason, error.position, error.offset)


def of_failure(error: StorageError) -> Finding:
    """Return the finding for a file or folder that cannot be read: damage, unless it was not to be looked at."""
    kind = DENIED if is_denied(error) else kind_of(error).value
    finding = Finding(error.path, kind, True, f"cannot {error.operation}: {error.reason}")
    return finding._replace(is_damage=not finding.is_unread)
