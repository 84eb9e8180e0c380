"""The tables of partitions and of segments: what `pylogseg ls` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pylogseg.disk.disk import Partition, Segment
from pylogseg.env.pool import map_ordered
from pylogseg.format.escape import readable
from pylogseg.inspect.stats.listing import (
    PartitionRow,
    SegmentRow,
    bytes_on_disk,
    companions_of,
    partition_row,
    segment_row,
    shown_path,
    state_of,
)
from pylogseg.tables.rows import TIMESTAMP, record_batch

PARTITIONS = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "state": pa.string(),
        "path": pa.string(),
        "segments": pa.int32(),
        "logStartOffset": pa.int64(),
        "logEndOffset": pa.int64(),
        "sizeBytes": pa.int64(),
        "diskBytes": pa.int64(),
        "firstTimestamp": TIMESTAMP,
        "newestTimestamp": TIMESTAMP,
        "missingSegments": pa.list_(pa.int64()),
        "error": pa.string(),
    }
)
SEGMENTS = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "segment": pa.string(),
        "path": pa.string(),
        "state": pa.string(),
        "baseOffset": pa.int64(),
        "endOffset": pa.int64(),
        "sizeBytes": pa.int64(),
        "modified": TIMESTAMP,
        "firstTimestamp": TIMESTAMP,
        "largestTimestamp": TIMESTAMP,
        "companions": pa.list_(pa.string()),
        "error": pa.string(),
    }
)
#: Columns for which segments are opened; the others are known from the listing.
_OPENED = frozenset(["logEndOffset", "endOffset", "firstTimestamp", "newestTimestamp", "largestTimestamp", "error"])


def of_partitions(partitions: Sequence[Partition], wanted: pa.Schema, threads: int) -> pa.RecordBatch:
    """Return a row for each partition; segments are opened only for columns that need it."""
    read = bool(_OPENED & {*wanted.names}) or "missingSegments" in wanted.names
    listed = list(map_ordered(partition_row, partitions, threads)) if read else [None] * len(partitions)
    rows = [_of_partition(*pair) for pair in zip(partitions, listed, strict=True)]
    return record_batch(wanted, len(rows), {}, {name: [row[name] for row in rows] for name in wanted.names})


def of_segments(segments: Sequence[Segment], wanted: pa.Schema, threads: int) -> pa.RecordBatch:
    """Return a row for each segment; they are opened only for columns that need it."""
    read = bool(_OPENED & {*wanted.names})
    listed = list(map_ordered(segment_row, segments, threads)) if read else [None] * len(segments)
    rows = [_of_segment(*pair) for pair in zip(segments, listed, strict=True)]
    return record_batch(wanted, len(rows), {}, {name: [row[name] for row in rows] for name in wanted.names})


def _of_partition(partition: Partition, row: PartitionRow | None) -> dict[str, Any]:
    known = partition.error is None
    error = partition.error or (None if row is None else row.error)
    return {
        "topic": readable(partition.topic),
        "partition": partition.partition,
        "state": state_of(partition),
        "path": readable(shown_path(partition.files, partition.path)),
        "segments": len(partition.segments) if known else None,
        "logStartOffset": partition.log_start_offset if known else None,
        "logEndOffset": row.log_end_offset if row is not None and known else None,
        "sizeBytes": partition.size if known else None,
        "diskBytes": bytes_on_disk(partition) if known else None,
        "firstTimestamp": None if row is None else row.first_timestamp,
        "newestTimestamp": None if row is None else row.newest_timestamp,
        "missingSegments": list(row.missing) if row is not None and row.missing else None,
        "error": None if error is None else readable(str(error)),
    }


def _of_segment(segment: Segment, row: SegmentRow | None) -> dict[str, Any]:
    return {
        "topic": readable(segment.topic),
        "partition": segment.partition,
        "segment": readable(segment.name),
        "path": readable(shown_path(segment.files, segment.path)),
        "state": "active" if segment.is_last else "sealed",
        "baseOffset": segment.base_offset,
        "endOffset": None if row is None else row.end_offset,
        "sizeBytes": segment.size if row is None else row.size_bytes,
        "modified": segment.modified_ms,
        "firstTimestamp": None if row is None else row.first_timestamp,
        "largestTimestamp": None if row is None else row.largest_timestamp,
        "companions": companions_of(segment),
        "error": None if row is None or row.error is None else readable(str(row.error)),
    }
