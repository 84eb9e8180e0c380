"""Summaries of segments and partitions by file names, indexes and a few headers, to list a whole disk."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pylogseg.disk.disk import Partition, Segment
from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.errors import StorageError
from pylogseg.format.names import FileKind


@dataclass(frozen=True)
class SegmentRow:
    """One segment of a list."""

    path: str
    base_offset: int  #: From the file's name.
    next_offset: int | None  #: After the last whole batch.
    size: int
    modified_ms: int
    first_timestamp: int | None  #: Of the first record that has one; None if no record has one.
    largest_timestamp: int | None  #: The largest in any header.
    error: StorageError | None = None  #: Why the segment cannot be read; then the end and the timestamps are None.


@dataclass(frozen=True)
class PartitionRow:
    """One partition of a list."""

    log_start_offset: int
    log_end_offset: int | None
    first_timestamp: int | None  #: Of the first record in the files that has one.
    newest_timestamp: int | None  #: The largest one in the last segment that has any: older segments are not opened.
    error: StorageError | None = None  #: Why a segment cannot be read; then the end and the timestamps are None.
    missing: tuple[int, ...] = ()  #: Base offsets of segments that have indexes but no `.log` file.


def state_of(partition: Partition) -> str:
    """Return ``live``, ``unreadable``, or the state of the folder's name: ``delete``, ``future``, ``stray``."""
    return "unreadable" if partition.error is not None else partition.state or "live"


def bytes_on_disk(partition: Partition) -> int:
    """Return the bytes of all files in a partition's folder."""
    return partition.size + sum(other.size for other in partition.others)


def companions_of(segment: Segment) -> list[str]:
    """Return the names of the indexes and snapshots that lie beside a segment, as they end files' names."""
    kinds = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX, FileKind.PRODUCER_SNAPSHOT)
    return [kind.value[1:] for kind in kinds if kind in segment.companions]


def shown_path(files: FileSystem, path: str) -> str:
    """Return a path as the user can give it to the next command, also for a URL."""
    return path if isinstance(files, LocalFiles) else files.real(path)


def partition_fields(partition: Partition, row: PartitionRow | None) -> dict[str, Any]:
    """Return the columns `PARTITIONS` of a partition; without a row, columns from headers are null."""
    is_readable = partition.error is None
    error = partition.error or (None if row is None else row.error)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "state": state_of(partition),
        "path": shown_path(partition.files, partition.path),
        "segments": len(partition.segments) if is_readable else None,
        "logStartOffset": partition.log_start_offset if is_readable else None,
        "logEndOffset": row.log_end_offset if row is not None and is_readable else None,
        "size": partition.size if is_readable else None,
        "diskBytes": bytes_on_disk(partition) if is_readable else None,
        "firstTimestamp": None if row is None else row.first_timestamp,
        "newestTimestamp": None if row is None else row.newest_timestamp,
        "missingSegments": list(row.missing) if row is not None and row.missing else None,
        "error": None if error is None else str(error),
    }


def segment_fields(segment: Segment, row: SegmentRow | None) -> dict[str, Any]:
    """Return the columns `SEGMENTS` of a segment; without a row, columns from headers are null."""
    return {
        "topic": segment.topic,
        "partition": segment.partition,
        "segment": segment.name,
        "path": shown_path(segment.files, segment.path),
        "state": "active" if segment.is_last else "sealed",
        "baseOffset": segment.base_offset,
        "nextOffset": None if row is None else row.next_offset,
        "size": segment.size if row is None else row.size,
        "modified": segment.modified_ms,
        "firstTimestamp": None if row is None else row.first_timestamp,
        "largestTimestamp": None if row is None else row.largest_timestamp,
        "companions": companions_of(segment),
        "error": None if row is None or row.error is None else str(row.error),
    }


def missing_segments(partition: Partition) -> tuple[int, ...]:
    """Return the base offsets of segments that have indexes but no log, not even one that is pending deletion."""
    names = [other.name for other in partition.others]
    bases = {segment.base_offset for segment in partition.segments}
    bases |= {name.offset or 0 for name in names if name.kind is FileKind.LOG and name.suffix}
    left = {name.offset or 0 for name in names if name.kind.is_index and not name.suffix}
    return tuple(sorted(base for base in left - bases if base >= partition.log_start_offset))


def gaps_between(rows: Sequence[SegmentRow]) -> list[tuple[int, int]]:
    """Return the half-open ranges of offsets between a partition's segments."""
    pairs = ((before.next_offset, after.base_offset) for before, after in itertools.pairwise(rows))
    return [(end, base) for end, base in pairs if end is not None and end < base]
