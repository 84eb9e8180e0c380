"""Checks for missing data: ends of logs, segments and whole partitions that other files on the disk mention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pylogseg.disk.disk import Disk, LogDir, OtherFile, Partition, Segment
from pylogseg.disk.indexed_ends import end_in_indexes
from pylogseg.disk.small_files import read_leader_epochs
from pylogseg.env.filesystem import Entry, FileSystem
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.files.checkpoint import EpochEntry, parse_offset_checkpoint
from pylogseg.format.names import METADATA_TOPIC, FileKind, parse_file_name, parse_partition_folder, segment_file_name
from pylogseg.format.words import names_text
from pylogseg.inspect.verify.findings import PERHAPS_REMOTE, Finding
from pylogseg.inspect.verify.owners import LogDirOwner, owner_of
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.values.internal.cluster import ClusterMetadata
from pylogseg.walker.gaps import offsets_text

_Key = tuple[str, int]
_NAMED = 5
#: The folder of tiered storage, the only folder in a log directory that is no partition and that a broker ignores.
TIERED_FOLDER = "remote-log-index-cache"


class Checkpoints:
    """The offset checkpoints of a log directory; an unreadable one counts as empty."""

    def __init__(self, files: FileSystem, folder: str) -> None:
        self.folder = folder
        tiered = _entry(files, files.join(folder, TIERED_FOLDER))
        self.is_tiered = tiered is not None and tiered.is_dir
        self.is_stopped = _entry(files, files.join(folder, FileKind.CLEAN_SHUTDOWN.value)) is not None
        self._of = {kind: _offsets(files, files.join(folder, kind.value)) for kind in _ENDS}

    def of(self, kind: FileKind, key: _Key) -> int | None:
        """Return a partition's offset in one checkpoint; None if there is no entry."""
        return self._of[kind].get(key)

    def keys(self, kind: FileKind) -> Iterable[_Key]:
        """Return the partitions with an entry in one checkpoint."""
        return self._of[kind].keys()

    @cached_property
    def partitions(self) -> dict[_Key, int]:
        """All partitions with an entry, with the greatest offset noted for each."""
        ends: dict[_Key, int] = {}
        for offsets in self._of.values():
            for key, offset in offsets.items():
                ends[key] = max(offset, ends.get(key, 0))
        return ends

    def ends(self, key: _Key) -> Iterator[tuple[int, str]]:
        """Yield the offsets that a log has reached, each with its source in words."""
        for kind, what in _ENDS.items():
            offset = self._of[kind].get(key)
            if offset is not None and offset > 0:
                yield offset, f"{kind.value} says {what} {offset}"


_ENDS = {
    FileKind.RECOVERY_POINTS: "recovery point",
    FileKind.HIGH_WATERMARKS: "high watermark",
    FileKind.LOG_STARTS: "log start offset",
    FileKind.CLEANER_OFFSETS: "cleaned up to",
}


def _entry(files: FileSystem, path: str) -> Entry | None:
    try:
        return files.stat(path)
    except StorageError:
        return None


def _offsets(files: FileSystem, path: str) -> Mapping[_Key, int]:
    try:
        return parse_offset_checkpoint(files.read_all(path), path)
    except (CorruptionError, StorageError):
        return {}


class Around:
    """Facts from around partitions: checkpoints of their log directories, and the metadata of the cluster."""

    def __init__(self, disk: Disk, clusters: Mapping[str, ClusterMetadata]) -> None:
        self.clusters = clusters
        self._by_folder: dict[str, Checkpoints] = {}
        self._owners: dict[str, LogDirOwner] = {}
        self._clusters = {absolute(d.files, d.path): clusters[d.path] for d in disk.log_dirs if d.path in clusters}

    def checkpoints(self, files: FileSystem, folder: str) -> Checkpoints:
        """Return the checkpoints of a log directory, which are read once."""
        if folder not in self._by_folder:
            self._by_folder[folder] = Checkpoints(files, folder)
        return self._by_folder[folder]

    def owner(self, log_dir: LogDir) -> LogDirOwner:
        """Return whose log directory it is; each `meta.properties` is read once."""
        if log_dir.path not in self._owners:
            self._owners[log_dir.path] = owner_of(log_dir)
        return self._owners[log_dir.path]

    def of(self, part: Partition) -> tuple[Checkpoints, ClusterMetadata | None]:
        """Return checkpoints and cluster metadata for the log directory of a partition.

        No checkpoint has a folder that a broker took out of use: the entry is that of the log in its place.
        """
        folder = part.files.split(part.path)[0]
        of = part.path if part.state in ("stray", "delete") else folder
        return self.checkpoints(part.files, of), self._clusters.get(folder)


def absolute(files: FileSystem, log_dir: str) -> str:
    """Return the path in the form that `split` returns for the folder of a partition."""
    return files.split(files.join(log_dir, "x"))[0]


class Missing(NamedTuple):
    """A half-open range of offsets that no batch has, and the file that lacks it."""

    first: int
    end: int
    path: str
    where: str


def gaps_of(reports: Sequence[SegmentReport], log_start_offset: int = 0) -> list[Missing]:
    """Return the ranges of offsets that are missing above the log start offset; damage is reported elsewhere.

    A range before a batch that lies above the next segment is none: the batch has a wrong offset.
    """
    gaps: list[Missing] = []
    before: SegmentReport | None = None
    for report, following in zip(reports, [*reports[1:], None], strict=False):
        where = "before the first batch of this segment"
        first = report.base_offset if before is None else before.next_offset
        if (before is None or before.is_end_known) and not report.begins_damaged and report.first_offset > first:
            gaps.append(Missing(first, report.first_offset, report.path, where))
        limit = None if following is None else following.base_offset
        inside = [(first, end) for first, end in report.missing if limit is None or end <= limit]
        gaps += [Missing(first, end, report.path, "between batches") for first, end in inside]
        before = report
    return [gap._replace(first=max(gap.first, log_start_offset)) for gap in gaps if gap.end > log_start_offset]


def check_ends(
    partition: Partition,
    reports: Sequence[SegmentReport],
    checkpoints: Checkpoints | None,
    cluster: ClusterMetadata | None = None,
) -> Iterator[Finding]:
    """Check for missing offsets at either end of a log, and for records that a load would drop."""
    if partition.state:
        return
    key = partition.topic, partition.partition
    log_start = checkpoints.of(FileKind.LOG_STARTS, key) if checkpoints else None
    epochs = read_leader_epochs(partition.files, partition.path).value or []
    is_tiered = _is_tiered(partition, reports, checkpoints, cluster)
    at_start = list(_at_start(partition, reports, epochs, checkpoints, is_tiered))
    yield from _find_undeleted(partition, reports, epochs, checkpoints)
    if reports and not reports[-1].is_end_known:
        yield from at_start
        return
    end = reports[-1].next_offset if reports else max(log_start or 0, 0)
    said = list(checkpoints.ends(key)) if checkpoints else []
    dropped = None
    if log_start is not None and log_start > end and reports and reports[-1].next_offset > reports[0].first_offset:
        dropped = _find_dropped(partition, reports, log_start, checkpoints)
        said = [(offset, text) for offset, text in said if not text.startswith(FileKind.LOG_STARTS.value)]
    is_stopped = checkpoints is not None and checkpoints.is_stopped  # then no crash has cut it
    is_certain = not reports or reports[-1].end_gap is None or is_stopped or any(offset > end for offset, _ in said)
    said += _beside(partition, epochs)
    beyond = sorted((offset, text) for offset, text in said if offset > end)
    if (reports and not (dropped or beyond or at_start)) or has_changed(partition, reports):
        return
    yield from at_start
    if dropped:
        yield dropped
    if beyond:
        last, why = beyond[-1][0], "; ".join(text for _, text in beyond)
        path = reports[-1].path if reports else partition.path
        ends = f"the log ends at {end}" if reports else "there is no segment"
        reason = f"{offsets_text(end, last)} are missing: {ends}, but {why}"
        yield Finding(path, "missing", is_certain, reason, None, end, last - 1)
    elif not reports and partition.error is None:
        reason = "there is no segment, and no sign whether it held records"
        yield Finding(partition.path, "empty", partition.topic == METADATA_TOPIC, reason)


def _find_dropped(
    partition: Partition, reports: Sequence[SegmentReport], log_start: int, checkpoints: Checkpoints | None
) -> Finding:
    assert checkpoints is not None
    files, first, end = partition.files, reports[0].first_offset, reports[-1].next_offset
    reason = (
        f"log start offset {log_start} of {partition.name} is after the end of its log, {end}: a broker that starts "
        f"deletes all its segments, {offsets_text(first, end)}, and goes on at {log_start}"
    )
    path = files.join(checkpoints.folder, FileKind.LOG_STARTS.value)
    return Finding(path, "log-start", True, reason, None, first, end - 1)


def _find_undeleted(
    partition: Partition,
    reports: Sequence[SegmentReport],
    epochs: Sequence[EpochEntry],
    checkpoints: Checkpoints | None,
) -> Iterator[Finding]:
    """Check for deleted records that are served again, since the checkpoint lost the log start offset.

    Only a log start offset moves the first leader epoch into the middle of its batches. (Batches of magic 0 and 1 have
    no leader epoch; the batches after them begin a new one.)
    """
    if not epochs or partition.topic == METADATA_TOPIC or checkpoints is None or not checkpoints.partitions:
        return
    (epoch, start), first = epochs[0], max(reports[0].first_offset, 0) if reports else 0
    runs = [run for report in reports for run in report.epochs if run.first_offset <= start]
    if partition.log_start_offset >= start or not runs or runs[-1].epoch != epoch or runs[-1].first_offset == start:
        return
    first = max(first, partition.log_start_offset)
    reason = (
        f"{FileKind.LEADER_EPOCHS.value} of {partition.name} begins at {start}, inside of leader epoch {epoch}: "
        f"records below it were deleted. This file does not say so any more, and {offsets_text(first, start)} are "
        "served again"
    )
    # A broker writes the epochs at once, and this file every minute and when it stops.
    if not checkpoints.is_stopped:
        reason += ", unless a broker runs, or crashed within a minute after the deletion"
    path = partition.files.join(checkpoints.folder, FileKind.LOG_STARTS.value)
    yield Finding(path, "log-start-lost", checkpoints.is_stopped, reason, None, first, start - 1)


def _beside(partition: Partition, epochs: Sequence[EpochEntry]) -> Iterator[tuple[int, str]]:
    """Yield the offsets that the log has reached by files in its folder, each with its source in words."""
    for kind, text in ((FileKind.PRODUCER_SNAPSHOT, "there is {}"), (FileKind.OFFSET_INDEX, "{} had a segment")):
        files = [other for other in partition.others if other.name.kind is kind and other.name.is_live]
        last = max(files, key=lambda other: other.name.offset or 0, default=None)
        if last is not None and last.name.offset:
            yield last.name.offset, text.format(partition.files.split(last.path)[1])
    if epochs:
        last_epoch = epochs[-1]
        what = f"leader epoch {last_epoch.epoch} begins at {last_epoch.start_offset}"
        yield last_epoch.start_offset, f"{FileKind.LEADER_EPOCHS.value} says that {what}"


def _at_start(
    partition: Partition,
    reports: Sequence[SegmentReport],
    epochs: Sequence[EpochEntry],
    checkpoints: Checkpoints | None,
    is_tiered: bool | None,
) -> Iterator[Finding]:
    """Check for missing first segments: deleting them would have moved the first leader epoch."""
    if not reports:
        return
    base, has_tier = reports[0].base_offset, _has_tier(partition, is_tiered)
    if partition.topic == METADATA_TOPIC:
        first = _snapshot_end(partition)
        why = "no snapshot holds them" if not first else f"the newest snapshot ends with {first - 1}"
    elif epochs and (not is_tiered or has_tier):
        first = epochs[0].start_offset
        why = (
            f"{FileKind.LEADER_EPOCHS.value} begins at {first}, and a log start offset of {base} would have moved that"
        )
    else:
        return
    if first >= base or any(_is_deleted(other, first, base) for other in partition.others):
        return
    if (has_tier or is_tiered is None) and partition.topic != METADATA_TOPIC:
        else_ = "were deleted in their tier since" if has_tier else "are in the remote storage of a tiered topic"
        reason = (
            f"not known whether {offsets_text(first, base)} are missing before the first segment, or {else_}: {why}"
        )
        yield Finding(reports[0].path, PERHAPS_REMOTE, False, reason, None, first, base - 1)
        return
    crash = "" if partition.topic == METADATA_TOPIC else ", unless the broker crashed just then"
    reason = f"{offsets_text(first, base)} are missing before the first segment: {why}{crash}"
    is_certain = checkpoints is not None and bool(checkpoints.partitions)
    yield Finding(reports[0].path, "missing", is_certain, reason, None, first, base - 1)


def _has_tier(partition: Partition, is_tiered: bool | None) -> bool:
    """Check whether a partition is read together with its tier, where other brokers may have deleted since."""
    is_uploaded = getattr(partition.files, "is_uploaded", None)
    if is_uploaded is None:
        return False
    return is_tiered is not False or any(is_uploaded(segment.path) for segment in partition.segments)


def _snapshot_end(partition: Partition) -> int:
    """Return the offset up to which snapshots replace the metadata log."""
    names = [other.name for other in partition.others if other.name.kind is FileKind.KRAFT_SNAPSHOT]
    return max((name.offset or 0 for name in names if name.is_live), default=0)


def _is_tiered(
    partition: Partition,
    reports: Sequence[SegmentReport],
    checkpoints: Checkpoints | None,
    cluster: ClusterMetadata | None,
) -> bool | None:
    """Check whether older segments may be in remote storage; None if unknown.

    Only one log directory of a broker has the metadata, and one the folder of tiered storage. A broker writes a log
    start offset below the first segment only for tiered topics, but an offset also stays if its segment was lost.
    """
    if cluster is not None and partition.topic in cluster.topic_ids:
        return cluster.of_topic(partition.topic).get("remote.storage.enable") == "true"
    if checkpoints is None or not reports:
        return False
    log_start = checkpoints.of(FileKind.LOG_STARTS, (partition.topic, partition.partition))
    is_below = cluster is None and log_start is not None and log_start < reports[0].base_offset
    return None if checkpoints.is_tiered or is_below else False


def _is_deleted(other: OtherFile, first: int, base: int) -> bool:
    """Check whether a file is a segment in a range of offsets that retention has just deleted."""
    name = other.name
    return name.kind is FileKind.LOG and name.suffix == ".deleted" and first <= (name.offset or 0) < base


def has_changed(partition: Partition, reports: Sequence[SegmentReport]) -> bool:
    """Check whether somebody writes the log: then the segments and the other files were read at different times."""
    try:
        entries = partition.files.list_folder(partition.path)
    except StorageError:
        return True
    parsed = {entry.name: parse_file_name(entry.name) for entry in entries}
    logs = {entry.name: entry.size for entry in entries if parsed[entry.name].kind is FileKind.LOG}
    names = {name for name in logs if parsed[name].suffix in ("", ".swap")}
    names_listed = {segment.name for segment in partition.segments}
    files = [other for other in partition.others if other.name.kind is FileKind.LOG]
    names_listed |= {partition.files.split(other.path)[1] for other in files if other.name.suffix in ("", ".swap")}
    return names != names_listed or (bool(reports) and logs[partition.segments[-1].name] != reports[-1].end_position)


# ---- indexes without their log ----


def check_orphans(partition: Partition, reports: Sequence[SegmentReport]) -> Iterator[Finding]:
    """Check for indexes without a segment: its records are lost if no segment has them and they were not deleted.

    Those of a segment that is empty are such indexes, too, if they have an entry.
    """
    bases = {segment.base_offset for segment in partition.segments}
    absent = {other.name.offset for other in partition.others if other.name.kind is FileKind.LOG}
    orphans: dict[int, list[OtherFile]] = {}
    for other in partition.others:
        name = other.name
        if name.kind.is_index and not name.suffix and name.offset is not None and name.offset not in bases:
            orphans.setdefault(name.offset, []).append(other)
    for segment in partition.segments:
        if not segment.size and (own := _indexes_of(segment)) and _named_by(partition.files, own):
            orphans[segment.base_offset] = own
    for base, others in sorted(orphans.items()):
        more = f" (with {', '.join(partition.files.split(other.path)[1] for other in others[1:])})" * (len(others) > 1)
        reason, last = _orphan(partition, reports, base, others, base in absent)
        if _is_written(partition, base):
            continue
        is_lost = last is not None
        yield Finding(others[0].path, "orphan-lost" if is_lost else "orphan", is_lost, reason + more, None, base, last)


def _is_written(partition: Partition, base: int) -> bool:
    """Check whether a segment has records by now: its files were made, or written, while the folder was listed."""
    log = _entry(partition.files, partition.files.join(partition.path, segment_file_name(base, FileKind.LOG)))
    return log is not None and bool(log.size)


def _indexes_of(segment: Segment) -> list[OtherFile]:
    paths = [path for kind, path in segment.companions.items() if kind.is_index]
    return [OtherFile(path, parse_file_name(segment.files.split(path)[1]), 0) for path in sorted(paths)]


def _orphan(
    partition: Partition, reports: Sequence[SegmentReport], base: int, others: Sequence[OtherFile], is_deleted: bool
) -> tuple[str, int | None]:
    """Return the reason, and the last offset that is certainly lost."""
    is_empty = any(report.base_offset == base for report in reports)
    plain = "an index whose segment is empty" if is_empty else "an index without its segment"
    if is_deleted or partition.state:
        return plain, None
    before = next((report for report in reversed(reports) if report.base_offset < base), None)
    follows = next((report for report in reports if report.base_offset > base), None)
    first = base if before is None else max(base, before.next_offset)
    end = _named_by(partition.files, others) if follows is None else follows.first_offset
    if end <= max(first, _deleted_below(partition)) or (before is not None and not before.is_end_known):
        return plain, None
    least = " at least" * (follows is None)
    return f"{offsets_text(first, end)}{least} are missing: {plain}", end - 1


def _named_by(files: FileSystem, others: Sequence[OtherFile]) -> int:
    """Return the offset after the last one in the indexes of a segment; 0 if they have no entry."""
    base = next((other.name.offset or 0 for other in others), 0)
    return end_in_indexes(files, base, [(other.name.kind, other.path) for other in others])


def _deleted_below(partition: Partition) -> int:
    """Return the log start offset from the checkpoint; -1 if it is not above the first segment."""
    if partition.topic == METADATA_TOPIC:
        return _snapshot_end(partition)
    first = partition.segments[0].base_offset if partition.segments else 0
    return partition.log_start_offset if partition.log_start_offset > first else -1


# ---- partitions ----


def check_partitions(
    log_dir: LogDir,
    checkpoints: Checkpoints,
    elsewhere: Mapping[_Key, str],
    asked: Callable[[str, int], bool],
) -> Iterator[Finding]:
    """Check for partitions with an entry in the checkpoints of a log directory but no folder.

    Those `elsewhere`, in other log directories of the same broker, were moved.
    """
    here = {(part.topic, part.partition) for part in log_dir.partitions if not part.state}
    absent = {key: offset for key, offset in checkpoints.partitions.items() if key not in here and asked(*key)}
    if not absent:
        return
    entries = log_dir.files.list_folder(log_dir.path)
    now, files = ({entry.name for entry in entries if entry.is_dir is is_dir} for is_dir in (True, False))
    moving = [folder for name in now if (folder := parse_partition_folder(name)) is not None and folder.state]
    empty = []
    for (topic, number), offset in sorted(absent.items()):
        name = f"{topic}-{number}"
        is_moving = any(folder.partition == number and topic.startswith(folder.topic) for folder in moving)
        if name in now or is_moving or (topic, number) in elsewhere:
            continue
        path = log_dir.files.join(log_dir.path, name)
        said = "; ".join(text for _, text in checkpoints.ends((topic, number)))
        if offset > 0:
            start = max(checkpoints.of(FileKind.LOG_STARTS, (topic, number)) or 0, 0)
            first = start if start < offset else 0
            what = "the folder of this partition is missing" + ", a file lies in its place" * (name in files)
            reason = f"{what}, with its offsets below {offset}: {said}"
            yield Finding(path, "missing", True, reason, None, first, offset - 1)
        else:
            empty.append(name)
    if empty:
        reason = f"folders of partitions are missing whose logs were empty: {names_text(empty)}"
        yield Finding(log_dir.path, "missing", False, reason)
