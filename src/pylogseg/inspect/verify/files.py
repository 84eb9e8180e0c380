"""Checks of small files: snapshots, status files, and the files of a log directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pylogseg.disk.disk import LogDir, OtherFile, Partition, Segment
from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import CorruptionError, StorageError, is_missing
from pylogseg.format.control import ControlKind
from pylogseg.format.files.checkpoint import parse_offset_checkpoint
from pylogseg.format.files.properties import parse_meta_properties
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.files.status import parse_partition_metadata, parse_quorum_state
from pylogseg.format.messages.control import control_kinds
from pylogseg.format.names import METADATA_TOPIC, FileKind, parse_file_name
from pylogseg.format.records import decode
from pylogseg.inspect.verify.findings import DENIED, Finding, Level, of_error, of_failure
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
            yield from _parsed(files, other.path, kind, parse)[1]
        elif other.name.kind is FileKind.KRAFT_SNAPSHOT:
            yield from _kraft_snapshot(partition, other, level)
    if partition.topic == METADATA_TOPIC and partition.segments:
        yield from _metadata_start(partition)


def _metadata_start(partition: Partition) -> Iterator[Finding]:
    """A metadata log goes on where a snapshot ends; what lies between them is lost."""
    first = partition.segments[0]
    kept = (other.name for other in partition.others if other.name.kind is FileKind.KRAFT_SNAPSHOT)
    ends = [name.offset for name in kept if name.is_live and name.offset is not None]
    end = max(ends, default=0)
    if first.base_offset > end:
        what = f"the newest snapshot ends at {end}" if ends else "there is no snapshot"
        reason = f"the log begins at offset {first.base_offset}, and {what}: what is between them is missing"
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
            yield Finding(files.join(partition.path, folder), GapKind.UNREADABLE.value, name.is_live, reason)


_CHECKS: dict[FileKind, tuple[str, Callable[[Any, str], Any]]] = {
    FileKind.PRODUCER_SNAPSHOT: ("snapshot", parse_snapshot),
    FileKind.PARTITION_METADATA: ("metadata", parse_partition_metadata),
    FileKind.QUORUM_STATE: ("metadata", parse_quorum_state),
}


def _parsed(files: FileSystem, path: str, kind: str, parse: Callable[[Any, str], Any]) -> tuple[Any, list[Finding]]:
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
    segment = Segment(partition.files, other.path, 0, other.size, 0, False, partition.topic, partition.partition)
    report = verify_segment(segment, min(level, Level.RECORDS))
    yield from report.findings
    if report.is_damaged:
        return
    if other.name.offset is None:  # the bootstrap file has neither header nor footer in older versions
        return
    kinds = _control_kinds(segment)
    if ControlKind.SNAPSHOT_HEADER not in kinds[:1] or ControlKind.SNAPSHOT_FOOTER not in kinds[-1:]:
        found = ", ".join(kind.name for kind in kinds) or "none"
        reason = f"the snapshot must begin with a header and end with a footer; found control records: {found}"
        yield Finding(other.path, "kraft-snapshot", True, reason)


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
    """Check the files of a log directory itself."""
    for kind, path in log_dir.checkpoints.items():
        if kind is FileKind.META_PROPERTIES:
            yield from _parsed(log_dir.files, path, "metadata", parse_meta_properties)[1]
        elif kind.is_offset_checkpoint:
            offsets, findings = _parsed(log_dir.files, path, "checkpoint", parse_offset_checkpoint)
            yield from findings
            yield from _negative(path, offsets or {})
        elif kind is FileKind.KRAFT_SNAPSHOT:
            yield from _bootstrap(log_dir, path)


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
            yield Finding(path, "checkpoint", True, f"offset {offset} of {topic}-{partition} is negative", None, offset)
