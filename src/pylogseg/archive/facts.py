"""The replacements for facts that damaged small files of a disk lost, and a fault for each."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pylogseg.archive.planning import Past
from pylogseg.archive.seen import SeenCluster, SeenCopy, made_up_id
from pylogseg.disk.disk import LogDir, Partition
from pylogseg.disk.indexed_ends import end_in_indexes, indexed_end
from pylogseg.disk.lineage.chains import Lineage, add_epochs, divergence
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.small_files import FileState, read_leader_epochs, read_partition_metadata, read_quorum_state
from pylogseg.disk.tier.point import ArchivedPartition
from pylogseg.env import filesystem
from pylogseg.errors import StorageError
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.inspect.verify.epochs import check_leader_epochs, needs_no_epochs
from pylogseg.inspect.verify.missing import Checkpoints
from pylogseg.inspect.verify.segment import header_report
from pylogseg.inspect.verify.segment_report import EpochRun
from pylogseg.reading.positions import position_of_offset
from pylogseg.reading.removed_segments import open_unless_removed
from pylogseg.reading.seek import end_offset, headers_from


def file_faults(log_dir: LogDir, checkpoints: OffsetCheckpoints) -> Iterator[str]:
    """Yield a fault for each damaged small file of a log directory, and for log starts that lost their entries."""
    for kind, effect in _EFFECTS.items():
        file = checkpoints.file(kind)
        # A broker may not have written recovery points yet, and the cleaner cleans where there is something to clean.
        harm = checkpoints.harm(kind) if kind is FileKind.LOG_STARTS else file.problem * file.is_damaged
        if harm:
            yield f"{harm}: {effect}"
    for part in log_dir.partitions:
        if part.topic == METADATA_TOPIC and (quorum := read_quorum_state(part.files, part.path)).is_damaged:
            yield f"{quorum.problem}: the vote of this node is unknown"


def id_faults(seen: SeenCluster) -> Iterator[str]:
    """Yield a fault for each `partition.metadata` that does not say the topic's id, where something else does.

    A broker of ZooKeeper's time wrote no such file.
    """
    for (topic, topic_id, _), copies in seen.copies.items():
        is_known = topic_id != made_up_id(seen.cluster_id, topic)
        for copy in copies if topic != METADATA_TOPIC else ():
            if copy.id_file.is_read or (copy.id_file.state is FileState.ABSENT and not is_known):
                continue
            part = copy.partition
            file = read_partition_metadata(part.files, part.path)  # a broker writes it soon after the folder
            if not file.is_read and os.path.isdir(part.path):
                yield f"{file.problem}: the point has the topic's id {topic_id}{_RECOVER * is_known}"


_RECOVER = "; while the broker is stopped, `pylogseg recover` writes the file by the cluster's metadata"


_EFFECTS = {
    FileKind.RECOVERY_POINTS: "how much of its logs lies on the disk is not known",
    FileKind.LOG_STARTS: "deleted records may be in the point: logs begin where leader epochs or the point before say",
    FileKind.CLEANER_OFFSETS: "which of its logs were compacted is not known",
}


def settle_facts(copy: SeenCopy, past: Past, seen: SeenCluster) -> None:
    """Take the leader epochs of a copy from its batches where its file has none, and its log start from the epochs.

    The newest point may know more.
    """
    if copy.is_settled:
        return
    copy.is_settled, part = True, copy.partition
    if part.topic == METADATA_TOPIC:
        copy.noted_end = _end_in_indexes(part)
    if not part.segments:
        return
    if not copy.epochs:
        _take_epochs(copy, past, seen)
    if part.topic != METADATA_TOPIC:
        _doubt_start(copy, seen)
        _prove_start(copy, past.partition, seen)


def _end_in_indexes(part: Partition) -> int:
    """Return the log's end by the indexes of the last segment, and by indexes without a segment."""
    orphans = [other for other in part.others if other.name.kind.is_index]
    ends = [end_in_indexes(part.files, o.name.offset or 0, [(o.name.kind, o.path)]) for o in orphans]
    return max([*ends, *map(indexed_end, part.segments[-1:])], default=0)


# ---- leader epochs ----


def _take_epochs(copy: SeenCopy, past: Past, seen: SeenCluster) -> None:
    part, file = copy.partition, copy.epochs_file
    checkpoints = Checkpoints(part.files, os.path.dirname(part.path))
    before = None if past.lost or file.is_damaged else past.partition
    if before is not None and seen.disks[copy.disk].path == past.path:
        needs_none = not before.epochs or needs_no_epochs(part, file.state, checkpoints)  # or no batch has one
        if needs_none and _has_all_of(before, part) and _is_older(part, past.time_ms):
            copy.epochs = [EpochEntry(*entry) for entry in before.epochs]
            return
    reports = [header_report(segment) for segment in part.segments]
    now = read_leader_epochs(part.files, part.path)
    if now.value:  # a broker has written it meanwhile
        copy.epochs, copy.epochs_file = now.value, now
        return
    findings = [each for each in check_leader_epochs(part, reports, checkpoints) if each.is_damage]
    is_harm = bool(findings) or file.is_damaged
    if is_harm or file.state is FileState.ABSENT:  # segments alone need no such file
        copy.epochs = _join_epochs([run for report in reports for run in report.epochs], past.partition)
    if not is_harm:
        return
    problem = file.problem or f"{file.path}: {findings[0].reason}"
    remedy = "while the broker is stopped, `pylogseg reindex DIR NAME --only epochs` writes the file"
    copy.doubts.append(f"{problem}: the point has the leader epochs of the batches; {remedy}")


def _has_all_of(archived: ArchivedPartition, part: Partition) -> bool:
    """Check whether the newest point has as many bytes of each segment.

    A partition with a fault may be of an older point, whose disk was not there at the newest one.
    """
    bases = [segment.base_offset for segment in part.segments]
    sizes = [0] * len(bases)
    for piece in archived.segments:
        if (at := bisect_right(bases, piece.base_offset) - 1) >= 0:
            sizes[at] += piece.size
    return not archived.fault and sizes == [segment.size for segment in part.segments]


def _is_older(part: Partition, time_ms: int) -> bool:
    """Check whether no segment was changed at a time or later, as far as the clock of its disk tells."""
    try:
        changes = [os.stat(segment.path).st_ctime_ns for segment in part.segments]
    except OSError:
        return False
    return max(changes) < time_ms * 1_000_000 - filesystem.SETTLED_NS


def _join_epochs(runs: Sequence[EpochRun], past: ArchivedPartition | None) -> list[EpochEntry]:
    """Return the leader epochs of batches, and of the newest point where the batches agree with it."""
    entries = list[EpochEntry]()
    add_epochs(entries, (run[:2] for run in runs))
    if past is None or not past.epochs:
        return entries
    old = Lineage.of(past.epochs, past.start_offset, past.end_offset)
    first = old.epochs[0].start_offset if old.epochs else 0
    if any(old.epoch_at(run.first_offset) != run.epoch for run in runs if first <= run.first_offset < old.end):
        return entries
    return [*old.epochs, *(each for each in entries if each.epoch > old.last_epoch)]


# ---- log starts ----


def _doubt_start(copy: SeenCopy, seen: SeenCluster) -> None:
    """Begin with the segments where a stopped broker's log start offset is behind the end of its log."""
    part, start = copy.partition, copy.partition.log_start_offset
    if start <= part.segments[-1].base_offset or seen.disks[copy.disk].state == "running":
        return
    if start > (end := end_offset(part.segments)):
        copy.partition = replace(part, log_start_offset=part.segments[0].base_offset)
        path = copy.checkpoints.file(FileKind.LOG_STARTS).path
        copy.doubts.append(
            f"{path}: it says that {part.name} begins at {start}, and the log ends at {end}: the point begins where "
            "leader epochs or segments do; take the line out of the file, or a broker deletes the segments"
        )


def _prove_start(copy: SeenCopy, past: ArchivedPartition | None, seen: SeenCluster) -> None:
    """Set the log start to the end of the deleted records, if the checkpoint of log starts has lost it."""
    part, checkpoints = copy.partition, copy.checkpoints
    start, first = part.log_start_offset, copy.epochs[0] if copy.epochs else None
    is_lost = bool(checkpoints.harm(FileKind.LOG_STARTS))
    path, texts = checkpoints.file(FileKind.LOG_STARTS).path, list[str]()
    if first is not None and first.start_offset > start:
        epoch = _epoch_below(part, first.start_offset)
        is_deletion = epoch == first.epoch
        if is_deletion or (epoch >= 0 and is_lost):
            start = first.start_offset
            texts.append(f"leader-epoch-checkpoint begins at {start}")
    if is_lost and past is not None and past.start_offset > start:
        old, now = (Lineage.of(each, 0, past.end_offset) for each in (past.epochs, copy.epochs))
        parting = divergence(old, now)
        if parting.epoch is not None and parting.offset >= past.start_offset:
            start = past.start_offset
            texts = [f"the newest point begins at {start}"]
    if start > part.log_start_offset:
        copy.partition = replace(part, log_start_offset=start)
        # A broker writes the epochs at once, and this file every minute and when it stops.
        if is_lost or seen.disks[copy.disk].state == "stopped":
            copy.doubts.append(
                f"{path}: the file does not say that records below {start} were deleted, and {texts[0]}: the point"
                f" begins there; `pylogseg delete-records` deletes them again"
            )


def _epoch_below(part: Partition, offset: int) -> int:
    """Return the leader epoch of the batch just below an offset; -1 if there is none, or it has no epoch."""
    for segment in part.segments:
        if segment.base_offset < offset and (segment.next_base is None or segment.next_base >= offset):
            try:
                opened = open_unless_removed(segment)
            except StorageError:
                return -1
            if opened is None:
                return -1
            with opened as view:
                epoch = -1
                for rows in headers_from(segment, view, position_of_offset(segment, view, offset - 1)):
                    below = rows[rows.base_offset < offset]
                    if len(below):
                        epoch = int(below.leader_epoch[-1]) if below.magic[-1] >= 2 else -1
                    if len(below) < len(rows):
                        break
                return epoch
    return -1
