"""Checks of small files: snapshots, status files, and the files of a log directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pylogseg.disk.disk import LogDir, OtherFile, Partition, Segment
from pylogseg.disk.small_files import FileState, read_offset_checkpoint
from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import CorruptionError, StorageError, is_missing
from pylogseg.format.control import ControlKind
from pylogseg.format.files.checkpoint import parse_offset_checkpoint
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.files.status import parse_partition_metadata, parse_quorum_state
from pylogseg.format.messages.control import control_kinds
from pylogseg.format.names import METADATA_TOPIC, FileKind, parse_file_name
from pylogseg.format.records import decode
from pylogseg.format.words import names_text
from pylogseg.inspect.verify.findings import DENIED, REMEDIES, WATERMARKS_ANEW, Finding, Level, of_error, of_failure
from pylogseg.inspect.verify.missing import Checkpoints
from pylogseg.inspect.verify.segment import verify_segment
from pylogseg.walker.gaps import GapKind
from pylogseg.walker.windows import Window, walk


def check_partition_files(partition: Partition, level: Level = Level.INDEXES) -> Iterator[Finding]:
    """Check snapshots and status files of a partition, and its KRaft snapshots (these by `level`)."""
    files = partition.files
    yield from _folders(partition)
    for other in partition.others:
        if not other.name.is_live:
            continue
        check = _CHECKS.get(other.name.kind)
        if check is not None:
            kind, parse = check
            yield from _parse(files, other.path, kind, parse)[1]
        elif other.name.kind is FileKind.KRAFT_SNAPSHOT:
            yield from _kraft_snapshot(partition, other, level)
    if partition.topic == METADATA_TOPIC and partition.segments:
        yield from _metadata_start(partition)


def _metadata_start(partition: Partition) -> Iterator[Finding]:
    """A metadata log continues where a snapshot ends; records between them are lost."""
    first = partition.segments[0]
    ends = _snapshot_ends(partition)
    end = max(ends, default=0)
    if first.base_offset > end:
        what = f"the newest snapshot ends at {end}" if ends else "there is no snapshot"
        reason = f"the log begins at offset {first.base_offset}, and {what}: the records between them are missing"
        yield Finding(first.path, "metadata-start", True, reason, None, end, first.base_offset - 1)


def _folders(partition: Partition) -> Iterator[Finding]:
    """Yield folders with the name of a file: a broker that opens one takes the whole log directory offline."""
    files = partition.files
    try:
        folders = [entry.name for entry in files.list_folder(partition.path) if entry.is_dir]
    except StorageError:  # reported already
        return
    for folder in folders:
        name = parse_file_name(folder)
        if name.kind not in (FileKind.UNKNOWN, FileKind.LOG):
            reason = "this is a folder with the name of a file that a broker reads or writes"
            path = files.join(partition.path, folder)
            yield Finding(path, GapKind.UNREADABLE.value, name.is_live, reason, other_remedy=_MOVE_FOLDER)


_MOVE_FOLDER = (
    "while the broker is stopped, move the folder out of the partition, and make the file anew: `pylogseg reindex DIR "
    "NAME`; for partition.metadata, write the topic's id into it"
)
_CHECKS: dict[FileKind, tuple[str, Callable[[Any, str], Any]]] = {
    FileKind.PRODUCER_SNAPSHOT: ("snapshot", parse_snapshot),
    FileKind.PARTITION_METADATA: ("metadata", parse_partition_metadata),
    FileKind.QUORUM_STATE: ("metadata", parse_quorum_state),
}


def _parse(files: FileSystem, path: str, kind: str, parse: Callable[[Any, str], Any]) -> tuple[Any, list[Finding]]:
    """Return the parsed file, or None and the findings. A file that was deleted meanwhile is not a finding."""
    try:
        return parse(files.read_all(path), path), []
    except CorruptionError as error:
        return None, [of_error(kind, error)]
    except StorageError as error:
        if is_missing(error):
            return None, []
        return None, [of_failure(error)]


def _kraft_snapshot(partition: Partition, other: OtherFile, level: Level) -> Iterator[Finding]:
    """Check a snapshot of the metadata; a broker reads the newest one."""
    segment = Segment(partition.files, other.path, 0, other.size, 0, False, partition.topic, partition.partition)
    report = verify_segment(segment, min(level, Level.RECORDS))
    # A broker ends at a bad batch, and takes a torn end for the end.
    findings = [
        finding._replace(kind="kraft-snapshot") if finding.is_damage and finding.kind != GapKind.TORN.value else finding
        for finding in report.findings
    ]
    if not report.is_damaged and other.name.offset is not None:
        # The bootstrap file has neither header nor footer in older versions.
        findings += _ends(segment)
    for finding in findings:
        remedied = finding._replace(other_remedy=REMEDIES["kraft-snapshot"]) if finding.is_damage else finding
        yield _soften(remedied, partition, other) if finding.kind == "kraft-snapshot" else remedied


def _ends(segment: Segment) -> Iterator[Finding]:
    kinds = _control_kinds(segment)
    if ControlKind.SNAPSHOT_HEADER not in kinds[:1] or ControlKind.SNAPSHOT_FOOTER not in kinds[-1:]:
        names = ", ".join(kind.name for kind in kinds) or "none"
        reason = f"the snapshot must begin with a header and end with a footer; found control records: {names}"
        yield Finding(segment.path, "kraft-snapshot", True, reason)


def _soften(finding: Finding, partition: Partition, other: OtherFile) -> Finding:
    """Return the finding as a notice where no broker reads the snapshot."""
    newest = max(_snapshot_ends(partition), default=0)
    if other.name.offset == 0 and not other.size and partition.segments and not partition.segments[0].base_offset:
        why = "it has 0 bytes, and the log has all from offset 0 on"
    elif other.name.offset is not None and other.name.offset < newest:
        why = f"the newest snapshot ends at {newest}"
    else:
        return finding
    return finding._replace(is_damage=False, reason=f"{finding.reason}; a broker starts all the same: {why}")


def _snapshot_ends(partition: Partition) -> list[int]:
    names = [other.name for other in partition.others if other.name.kind is FileKind.KRAFT_SNAPSHOT]
    return [name.offset for name in names if name.is_live and name.offset is not None]


def _control_kinds(segment: Segment) -> list[ControlKind]:
    kinds: list[ControlKind] = []
    with segment.open() as view:
        for item in walk(view, crc=False):
            if not isinstance(item, Window):
                continue
            columns, _ = decode(item.batches[item.batches.is_control], item.buffer, item.file_position)
            kinds += map(ControlKind, control_kinds(columns).tolist())
    return kinds


# ---- log directory ----


def check_log_dir(log_dir: LogDir) -> Iterator[Finding]:
    for kind, path in log_dir.checkpoints.items():
        if kind.is_offset_checkpoint:
            offsets, findings = _parse(log_dir.files, path, "checkpoint", parse_offset_checkpoint)
            for finding in findings:
                yield finding._replace(other_remedy=_CHECKPOINTS[kind]) if finding.kind == "checkpoint" else finding
            yield from _negative(path, offsets or {})
        elif kind is FileKind.KRAFT_SNAPSHOT:
            yield from _bootstrap(log_dir, path)


def check_watermarks(log_dir: LogDir, checkpoints: Checkpoints, asked: Callable[[str, int], bool]) -> Iterator[Finding]:
    """Check for partitions with records whose high watermark no file has: none of these records counts as committed.

    A broker writes all high watermarks when it stops, and every few seconds.
    """
    file = read_offset_checkpoint(log_dir.files, log_dir.path, FileKind.HIGH_WATERMARKS)
    if file.error is not None or not log_dir.checkpoints:  # a finding already; not a broker's
        return
    marks = file.value or {}
    # A broker that has just begun has not written it yet: it notes recovery points a minute later.
    recovered = read_offset_checkpoint(log_dir.files, log_dir.path, FileKind.RECOVERY_POINTS).value or {}
    names = [
        part.name for part in log_dir.partitions
        if not part.state and part.topic != METADATA_TOPIC and asked(part.topic, part.partition)
        and (part.topic, part.partition) not in marks and any(segment.size for segment in part.segments)
        and (checkpoints.is_stopped or (part.topic, part.partition) in recovered)
    ]  # fmt: skip
    if names:
        words = {
            FileState.ABSENT: "the file is missing",
            FileState.EMPTY: "the file has 0 bytes",
            FileState.CUT: "the file ends behind its version",
        }
        reason = f"{words.get(file.state, 'the file lacks partitions')}: nothing says how far {names_text(names)} "
        reason += "is committed" if len(names) == 1 else "are committed"
        # A restore adds logs without an entry: only a file that has lost all of them is damage.
        yield Finding(file.path, "high-watermark", checkpoints.is_stopped and not file.is_read, reason)


_DELETE = "take the file from a backup, or delete it while the broker is stopped: "
_CHECKPOINTS = {
    FileKind.RECOVERY_POINTS: f"{_DELETE}after a crash all of the log is then recovered",
    FileKind.LOG_STARTS: f"{_DELETE}deleted records that still lie in segments are then served again, until somebody "
    "deletes them again (`pylogseg delete-records`)",
    FileKind.HIGH_WATERMARKS: f"{_DELETE}{WATERMARKS_ANEW}",
    FileKind.CLEANER_OFFSETS: f"{_DELETE}the cleaner then begins at the start of each log",
}


def _bootstrap(log_dir: LogDir, path: str) -> Iterator[Finding]:
    """Check the first records of a cluster, which each node reads at every start."""
    try:
        segment = Segment(log_dir.files, path, 0, log_dir.files.stat(path).size, 0, False)
    except StorageError as error:
        if not is_missing(error):
            yield of_failure(error)
        return
    report = verify_segment(segment, Level.RECORDS)
    for finding in report.findings:
        yield finding if finding.kind in (GapKind.UNREADABLE.value, DENIED) else finding._replace(kind="bootstrap")
    if not report.findings and not report.records:
        reason = "the file has no records: a broker refuses to start without metadata.version"
        yield Finding(path, "bootstrap", True, reason)


def _negative(path: str, offsets: Mapping[tuple[str, int], int]) -> Iterator[Finding]:
    for (topic, partition), offset in offsets.items():
        if offset < 0:
            yield Finding(
                path, "negative-offset", True, f"offset {offset} of {topic}-{partition} is negative", None, offset
            )
