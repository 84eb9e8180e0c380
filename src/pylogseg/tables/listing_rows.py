"""The tables of partitions and of segments: what `pylogseg ls` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from pylogseg.disk import columns
from pylogseg.disk.disk import Partition, Segment
from pylogseg.env.executor import Advance, Threads
from pylogseg.format.columns import TableColumn
from pylogseg.format.escape import readable
from pylogseg.inspect.stats.few_headers import partition_row
from pylogseg.inspect.stats.listing import partition_fields, segment_fields
from pylogseg.inspect.stats.listing_windows import segment_row
from pylogseg.reading.arrow.columns import arrow_schema
from pylogseg.tables.rows import TIMESTAMP, record_batch, unheld
from pylogseg.walker.gaps import Gap

PARTITIONS = arrow_schema(columns.PARTITIONS)
SEGMENTS = arrow_schema(columns.SEGMENTS)
_Listed = TypeVar("_Listed", Partition, Segment)
#: Rows, and the times that their columns cannot hold.
Listed = tuple[pa.RecordBatch, list[Gap]]


def of_partitions(partitions: Sequence[Partition], wanted: pa.Schema, jobs: int) -> Listed:
    """Return a row for each partition; segments are opened only for columns that need it."""
    return _rows(columns.PARTITIONS, partitions, partition_row, partition_fields, wanted, jobs)


def of_segments(segments: Sequence[Segment], wanted: pa.Schema, jobs: int) -> Listed:
    """Return a row for each segment; they are opened only for columns that need it."""
    return _rows(columns.SEGMENTS, segments, segment_row, segment_fields, wanted, jobs)


def _rows(
    table: Iterable[TableColumn],
    found: Sequence[_Listed],
    read: Callable[[_Listed, Advance], Any],
    fields_of: Callable[[_Listed, Any], dict[str, Any]],
    wanted: pa.Schema,
    jobs: int,
) -> Listed:
    is_read = any(column.is_read for column in table if column.name in wanted.names)
    listed = list(Threads(jobs).map(read, found)) if is_read else [None] * len(found)
    rows = [fields_of(*pair) for pair in zip(found, listed, strict=True)]
    values = {name: [_text(row[name]) for row in rows] for name in wanted.names}
    times = [field.name for field in wanted if field.type == TIMESTAMP]
    firsts = [item.base_offset if isinstance(item, Segment) else 0 for item in found]
    far = [
        gap
        for item, row, first in zip(found, rows, firsts, strict=True)
        for name in times
        if (gap := unheld(wanted, name, [row[name]], item.path, [first])) is not None
    ]
    return record_batch(wanted, len(rows), {}, values), far


def _text(value: Any) -> Any:
    return readable(value) if isinstance(value, str) else value
