"""Check of a partition's leader epochs against its batches, which have the epoch of the leader that wrote them.

A broker takes the file as it is when it was stopped in order. Followers truncate by it, elections go by it, and a merge
of disks compares it. The file may have more than the batches: leaders that wrote nothing, and batches that a cleaner
removed. It has less where records were deleted: the first entry is moved to the log start offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from pylogseg.disk.disk import Partition
from pylogseg.disk.small_files import FileState, SmallFile, read_leader_epochs
from pylogseg.disk.tier.joined import DiskWithTier
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.remote import RemoteFiles
from pylogseg.errors import CorruptionError
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.inspect.verify.findings import Finding, of_error, of_failure
from pylogseg.inspect.verify.missing import Checkpoints, has_changed
from pylogseg.inspect.verify.segment_report import EpochRun, SegmentReport

_LATE = (
    "if records were deleted up to there, delete them again before a broker starts (`pylogseg delete-records`), or "
    "take log-start-offset-checkpoint from a backup; else, while the broker is stopped, `pylogseg reindex DIR NAME "
    "--only epochs` makes the entries anew from the batches"
)


def check_leader_epochs(
    partition: Partition, reports: Sequence[SegmentReport], checkpoints: Checkpoints | None
) -> Iterator[Finding]:
    file = read_leader_epochs(partition.files, partition.path)
    if file.error is not None:
        if isinstance(file.error, CorruptionError):
            yield of_error("leader-epoch-file", file.error)
        elif any(other.path == file.path for other in partition.others):  # a folder has a finding already
            yield of_failure(file.error)
        return
    entries = file.value or []
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            what = f"epoch {after.epoch} from offset {after.start_offset} on"
            reason = f"{what} follows {before.epoch} from {before.start_offset} on"
            yield Finding(file.path, "leader-epoch", True, reason, None, after.start_offset)
            return
    if entries:
        yield from _others(entries, reports)
    findings = list(_inside(file.path, entries, [run for report in reports for run in report.epochs]))
    # An upload has those of its own segment, and a disk with a tier may know less than the tier.
    if isinstance(partition.files, (LocalFiles, RemoteFiles)) and not isinstance(partition.files, DiskWithTier):
        check = _late if entries else _without
        findings += check(partition, file, reports, checkpoints)
    if findings and not has_changed(partition, reports):
        yield from findings


def _others(entries: Sequence[EpochEntry], reports: Sequence[SegmentReport]) -> Iterator[Finding]:
    """Find batches of another epoch than the file has for their first offset."""
    starts = [entry.start_offset for entry in entries]
    for report in reports:
        for epoch, offset, _ in report.epochs:
            at = bisect_right(starts, offset) - 1
            # Batches below the first entry are below the log start offset.
            if at >= 0 and entries[at].epoch != epoch:
                reason = f"leader epoch {epoch} in the batch at offset {offset}, {entries[at].epoch} in the checkpoint"
                yield Finding(report.path, "leader-epoch", True, reason, None, offset)


def _inside(path: str, entries: Sequence[EpochEntry], runs: Sequence[EpochRun]) -> Iterator[Finding]:
    """Find entries that begin among the batches of another epoch: the batches behind them are not of the entry's."""
    firsts = [run.first_offset for run in runs]
    for epoch, start in entries:
        at = bisect_right(firsts, start - 1) - 1
        if at >= 0 and start <= runs[at].last_offset and runs[at].epoch != epoch:
            run = runs[at]
            reason = (
                f"leader epoch {epoch} begins at {start}, and the batches of offsets {run.first_offset} to "
                f"{run.last_offset} are of epoch {run.epoch}"
            )
            yield Finding(path, "leader-epoch", True, reason, None, start)


def _late(
    partition: Partition,
    file: SmallFile[list[EpochEntry]],
    reports: Sequence[SegmentReport],
    checkpoints: Checkpoints | None,
) -> Iterator[Finding]:
    """Find a file that begins too late: behind batches above the log start offset that are of an earlier epoch.

    A first entry inside of the batches of its own epoch is what a deletion of records leaves: `check_ends` looks at
    that. Batches of magic 0 and 1 have no epoch; where a topic went back to them, the file began anew.
    """
    first, start = (file.value or [])[0]
    below = [run for report in reports for run in report.epochs if run.first_offset < start]
    if (
        not below
        or below[-1].epoch == first
        or max(partition.log_start_offset, 0) >= start
        or partition.topic == METADATA_TOPIC  # its log start offset is that of a snapshot
        or any(report.has_legacy for report in reports)
    ):
        return
    reason = (
        f"the first entry, epoch {first}, begins at {start}, and the batch at offset {below[0].first_offset} "
        f"is of epoch {below[0].epoch}: entries are lost, or records below {start} were deleted and nothing says so"
    )
    # A broker writes the epochs at once, and the log start offset every minute and when it stops.
    is_certain = checkpoints is None or checkpoints.is_stopped or not checkpoints.partitions
    if not is_certain:
        reason += ", unless a broker runs, or crashed within a minute after the deletion"
    where = None, below[0].first_offset, start - 1
    yield Finding(file.path, "leader-epoch", is_certain, reason, *where, other_remedy=_LATE)


def _without(
    partition: Partition,
    file: SmallFile[list[EpochEntry]],
    reports: Sequence[SegmentReport],
    checkpoints: Checkpoints | None,
) -> Iterator[Finding]:
    """Find a file that is absent or without entries although the last batch, above the log start, has an epoch.

    Uploaded segments have it with each upload. A broker gives each segment its indexes: a folder without any was
    copied in part, and that is no damage.
    """
    runs = [run for report in reports for run in report.epochs]
    if not runs or runs[-1].last_offset + 1 != reports[-1].next_offset:  # the last batches are of magic 0 or 1
        return
    if reports[-1].next_offset <= partition.log_start_offset or needs_no_epochs(partition, file.state, checkpoints):
        return
    words = {
        FileState.ABSENT: "it is missing",
        FileState.EMPTY: "it has 0 bytes",
        FileState.CUT: "it ends behind its version",
    }.get(file.state, "it has no entry")
    reason = f"{words}, and the batches from offset {runs[0].first_offset} on are of leader epoch {runs[0].epoch}"
    more = len({run.epoch for run in runs}) - 1
    reason += f" and {more} more" if more else ""
    has_indexes = any(kind.is_index for segment in partition.segments for kind in segment.companions)
    # Who opens a log makes the file first, with 0 bytes, and then the indexes.
    is_begun = file.state in (FileState.ABSENT, FileState.EMPTY)
    is_whole = has_indexes or FileKind.PARTITION_METADATA in _kinds_beside(partition) or not is_begun
    if not is_whole:
        reason += "; no segment has an index either: the folder was copied in part"
    yield Finding(file.path, "leader-epoch", is_whole, reason, None, runs[0].first_offset, runs[-1].last_offset)


def needs_no_epochs(partition: Partition, state: FileState, checkpoints: Checkpoints | None) -> bool:
    """Check for segments alone: they have no file of leader epochs, and nothing else that a broker has beside them."""
    is_alone = _kinds_beside(partition).isdisjoint((FileKind.PARTITION_METADATA, FileKind.PRODUCER_SNAPSHOT))
    return state is FileState.ABSENT and is_alone and not (checkpoints and checkpoints.partitions)


def _kinds_beside(partition: Partition) -> set[FileKind]:
    return {other.name.kind for other in partition.others if other.name.is_live}
