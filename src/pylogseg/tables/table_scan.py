"""Read the tables about a disk by tasks: which parts of it a filter needs, and the rows of some of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.disk import columns as disk_columns
from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.env.executor import Advance, Threads, processors
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.columns import TableColumn
from pylogseg.format.escape import readable
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.format.files.txnindex import TxnIndex
from pylogseg.format.names import FileKind
from pylogseg.inspect.stats.few_headers import partition_row
from pylogseg.inspect.stats.listing import partition_fields, segment_fields, shown_path
from pylogseg.inspect.stats.listing_windows import segment_row
from pylogseg.reading.arrow.columns import arrow_schema
from pylogseg.reading.bounds import Narrowing, matching, of_log, up_to
from pylogseg.reading.filters import fields_of
from pylogseg.reading.logs import partitions_of
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.ranges import Range, UncutRange
from pylogseg.reading.removed_segments import open_or_gap, unreadable_gap
from pylogseg.reading.seek import largest_timestamp
from pylogseg.tables.batch_rows import BATCHES, range_rows, row_of_gap
from pylogseg.tables.rows import TIMESTAMP, batch_of_rows, chosen, unheld
from pylogseg.walker.gaps import Gap, add_gaps, kind_of

INDEXES = arrow_schema(disk_columns.INDEXES)
PARTITIONS = arrow_schema(disk_columns.PARTITIONS)
SEGMENTS = arrow_schema(disk_columns.SEGMENTS)
#: The columns of each table.
TABLES: dict[str, pa.Schema] = {"batches": BATCHES, "segments": SEGMENTS, "partitions": PARTITIONS, "indexes": INDEXES}
#: Segments or partitions that one task lists.
_LISTED = 64
_Item = TypeVar("_Item", Partition, Segment)
#: Rows, and the times that their columns cannot hold.
Listed = tuple[pa.RecordBatch, list[Gap]]


class Place(NamedTuple):
    """A part of a disk whose rows belong together."""

    partition: Partition  #: Of the part; of a single file, one that has only this file.
    segment: Segment | None = None  #: None for the partition as such.
    first_offset: int = 0  #: Half-open: what is read of the segment.
    end_offset: int = OPEN_END
    size_bytes: int = 0  #: Of what is read, about.

    @property
    def listed(self) -> Segment:
        return cast("Segment", self.segment)


#: What one thread reads.
Places = tuple[Place, ...]


class TableScan:
    """One of `TABLES`, of a disk as it was listed; jobs list segments and partitions."""

    undecoded, is_unchecked = 0, False

    def __init__(self, table: str, partitions: Sequence[Partition], jobs: int) -> None:
        self._table, self._partitions, self._jobs = table, list(partitions), jobs
        self.schema = TABLES[table]
        self._lock = threading.Lock()
        #: What was no good batch, in all scans so far, each once.
        self.gaps: list[Gap] = []

    def __reduce__(self) -> Any:
        return TableScan, (self._table, self._partitions, self._jobs)

    @property
    def name(self) -> str:
        """For messages."""
        count = len(self._partitions)
        return f"{self._table} of {count} log{'' if count == 1 else 's'}"

    def memory(self, columns: Sequence[str]) -> None:
        """Return nothing: no memory is used again."""

    def guarantee(self, task: Places) -> Any:
        if len(task) == 1 and task[0].segment is not None:
            return self._of_segment(task[0])
        alike = {(place.partition.topic, place.partition.partition) for place in task}
        return _of_partition(task[0]) if len(alike) == 1 else pc.scalar(True)

    def all_match(self, task: Places, filter: Any) -> bool:
        """Return False: at damage, a fact about a task need not hold for all of its rows."""
        return False

    def files(self, task: Places) -> list[tuple[str, int]]:
        """Return the segments that a task reads, and about how many bytes of each; none where it only lists."""
        if self._table != "batches":
            return []
        return [(place.listed.path, place.size_bytes) for place in task if place.segment is not None]

    def tasks(self, filter: Any, target_bytes: int, columns: Sequence[str] | None = None) -> Iterator[Places]:
        """Yield tasks, by partition and offset."""
        places = self._places(filter)
        size = _LISTED if self._table in ("partitions", "segments") else 1
        while task := tuple(islice(places, size)):
            yield task

    def _places(self, filter: Any) -> Iterator[Place]:
        for place in _filter_places(filter, [Place(log) for log in self._partitions], _of_partition, self.schema):
            if self._table == "partitions" or place.partition.error is not None:
                yield place
                continue
            inside = [Place(place.partition, segment, size_bytes=segment.size) for segment in place.partition.segments]
            kept = _filter_places(filter, inside, self._of_segment, self.schema)
            if self._table == "batches" and filter is not None and fields_of([filter], ("maxTimestamp",)):
                kept = _filter_places(filter, kept, _of_times, self.schema)
            for part in kept:
                yield from _cut_segment(part, filter) if self._table == "batches" else (part,)

    def _of_segment(self, place: Place) -> Any:
        segment = place.listed
        facts = _of_partition(place) & (pc.field("segment") == readable(segment.name))
        if self._table == "segments":
            return facts & (pc.field("baseOffset") == segment.base_offset)
        if self._table == "indexes":
            return facts
        following = OPEN_END if segment.next_base is None else segment.next_base
        return facts & _of_offsets(segment.base_offset, following) & (pc.field("baseOffset") >= segment.base_offset)

    def batches(self, task: Places, columns: Sequence[str], memory: None, filter: Any) -> Iterator[pa.RecordBatch]:
        wanted = chosen(self.schema, columns)
        if self._table == "partitions":
            yield self._take_rows(_list_partitions([place.partition for place in task], wanted, self._jobs))
            return
        listed = [place for place in task if place.segment is not None]
        yield from (self._report_unlisted(place.partition, wanted) for place in task if place.segment is None)
        if self._table == "segments" and listed:
            yield self._take_rows(_list_segments([place.listed for place in listed], wanted, self._jobs))
        elif self._table != "segments":
            for place in listed:
                yield from self._batches(place, wanted) if self._table == "batches" else self._indexes(place, wanted)

    def _take_rows(self, listed: Listed) -> pa.RecordBatch:
        rows, gaps = listed
        for gap in gaps:
            self._add(gap)
        return rows

    def _batches(self, place: Place, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        segment = place.listed
        first, end = place.first_offset, place.end_offset
        opened = open_or_gap(segment, first, segment.next_base)
        if isinstance(opened, Gap):
            self._add(opened)
            yield row_of_gap(segment, opened, wanted)
            return
        with opened as view:
            for rows, gap in range_rows(segment, view, first, end, wanted, crc=False):
                if gap is not None:
                    self._add(gap)
                yield rows

    def _indexes(self, place: Place, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        segment = place.listed
        try:
            for rows, far in _read_indexes(segment, wanted):
                if far is not None:
                    self._add(far)
                yield rows
        except StorageError as error:
            self._add(unreadable_gap(segment, error, segment.base_offset, segment.next_base))
            same = {"topic": readable(segment.topic), "partition": segment.partition, "segment": readable(segment.name)}
            yield batch_of_rows(wanted, 1, {**same, "problem": readable(str(error))}, {})

    def _report_unlisted(self, partition: Partition, wanted: pa.Schema) -> pa.RecordBatch:
        """Return the row of a partition whose segments cannot be listed."""
        error = cast("StorageError", partition.error)
        reason = f"cannot {error.operation}: {error.reason}"
        self._add(Gap(error.path, kind_of(error), 0, 0, 0, None, reason, True))
        same = {
            "topic": readable(partition.topic),
            "partition": partition.partition,
            "path": readable(shown_path(partition.files, partition.path)),
            "error": readable(str(error)),
            "problem": readable(str(error)),
        }
        return batch_of_rows(wanted, 1, same, {})

    def _add(self, gap: Gap) -> None:
        with self._lock:
            add_gaps(self.gaps, [gap])


def table_of(table: str, disk: Disk, partition: int | Sequence[int] | None) -> TableScan:
    """Return one of `TABLES`, for the logs of `logs_of`; the table of partitions also has unread ones."""
    if table not in TABLES:
        raise RequestError(f"of={table!r}: must be one of {', '.join(['records', *TABLES])}")
    if table == "partitions":
        there = [*replace(disk, is_named=True).select(partition=partition).partitions]
    else:
        chosen = disk.select(partition=partition)
        there = [*partitions_of(chosen), *map(_alone, chosen.loose)]
    return TableScan(table, there, processors())


def _alone(segment: Segment) -> Partition:
    """Return a single file as a partition of its own."""
    folder = segment.files.split(segment.path)[0]
    return Partition(segment.files, segment.topic, segment.partition, folder, "", (segment,), (), 0)


def _filter_places(filter: Any, places: list[Place], of: Callable[[Place], Any], schema: pa.Schema) -> list[Place]:
    """Return the places that may have rows which a filter lets through."""
    if filter is None or not places:
        return places
    return [places[i] for i in matching(filter, [of(place) for place in places], schema)]


def _of_partition(place: Place) -> Any:
    return of_log(place.partition.topic, place.partition.partition)


def _of_offsets(first: int, end: int) -> Any:
    """Return an expression that holds for batches that end in a half-open range; without a batch, the last offset is
    null.
    """
    last = pc.field("lastOffset")
    begins, ends = (last >= first) | last.is_null(), (last <= end - 1) | last.is_null()
    return begins & ends & (pc.field("baseOffset") <= end - 1)


def _of_times(place: Place) -> Any:
    """Return an expression that holds for the times of a segment's batches, by its time index."""
    latest = largest_timestamp(place.listed)
    return pc.scalar(True) if latest is None else up_to(latest, "maxTimestamp")


def _of_parts(ranges: Sequence[Range]) -> Any:
    first, last = ranges[0], ranges[-1]
    return of_log(first.topic, first.partition) & _of_offsets(first.first_offset, last.end_offset)


def _cut_segment(place: Place, filter: Any) -> Iterator[Place]:
    """Yield the parts of a segment that may have batches which a filter on offsets lets through."""
    narrow = Narrowing(filter, BATCHES, ("baseOffset", "lastOffset"), _of_parts)
    if filter is None or not fields_of([filter], narrow.fields):
        yield place
        return
    segment = place.listed
    name = (segment.topic, segment.partition, segment.path)
    following = -1 if segment.next_base is None else segment.next_base
    whole = Range(*name, segment.base_offset, following, 0, following if following >= 0 else OPEN_END, 0, segment.size)
    for part in narrow([UncutRange(whole, segment, None)], max(segment.size, 1)):
        yield Place(place.partition, segment, part.first_offset, part.end_offset, part.size)


# ---- rows of listings: what `pylogseg ls` prints ----


def _list_partitions(partitions: Sequence[Partition], wanted: pa.Schema, jobs: int) -> Listed:
    """Return a row for each partition; segments are opened only for columns that need it."""
    return _make_rows(disk_columns.PARTITIONS, partitions, partition_row, partition_fields, wanted, jobs)


def _list_segments(segments: Sequence[Segment], wanted: pa.Schema, jobs: int) -> Listed:
    """Return a row for each segment; they are opened only for columns that need it."""
    return _make_rows(disk_columns.SEGMENTS, segments, segment_row, segment_fields, wanted, jobs)


def _make_rows(
    table: Iterable[TableColumn],
    found: Sequence[_Item],
    read: Callable[[_Item, Advance], Any],
    to_fields: Callable[[_Item, Any], dict[str, Any]],
    wanted: pa.Schema,
    jobs: int,
) -> Listed:
    is_read = any(column.is_read for column in table if column.name in wanted.names)
    listed = list(Threads(jobs).map(read, found)) if is_read else [None] * len(found)
    rows = [to_fields(*pair) for pair in zip(found, listed, strict=True)]
    values = {name: [_text(row[name]) for row in rows] for name in wanted.names}
    times = [field.name for field in wanted if field.type == TIMESTAMP]
    firsts = [item.base_offset if isinstance(item, Segment) else 0 for item in found]
    far = [
        gap
        for item, row, first in zip(found, rows, firsts, strict=True)
        for name in times
        if (gap := unheld(wanted, name, [row[name]], item.path, [first])) is not None
    ]
    return batch_of_rows(wanted, len(rows), {}, values), far


def _text(value: Any) -> Any:
    return readable(value) if isinstance(value, str) else value


# ---- entries of offset, time and transaction indexes ----


def _read_indexes(segment: Segment, wanted: pa.Schema) -> Iterator[tuple[pa.RecordBatch, Gap | None]]:
    """Yield the entries of the indexes of a segment, with the times that the column cannot hold.

    Raises StorageError if an index cannot be read.
    """
    where = {"topic": readable(segment.topic), "partition": segment.partition, "segment": readable(segment.name)}
    for kind, columns_of in _INDEXES.items():
        same = {**where, "index": kind.value[1:]}
        try:
            data = segment.companion(kind)
            if data is None:
                continue
            values, odd_bytes = columns_of(data, segment.base_offset, segment.companions[kind])
        except CorruptionError as error:
            yield batch_of_rows(wanted, 1, {**same, "problem": readable(str(error))}, {}), None
            continue
        count = len(values["offset"] if "offset" in values else values["lastOffset"])
        if count:
            times = values.get("timestamp", np.empty(0, np.int64))
            far = unheld(wanted, "timestamp", times, segment.companions[kind], values.get("offset"))
            yield batch_of_rows(wanted, count, same, {"slot": np.arange(count, dtype=np.int32), **values}), far
        if odd_bytes:
            yield (
                batch_of_rows(wanted, 1, {**same, "problem": f"{odd_bytes} bytes after the last whole entry"}, {}),
                None,
            )


def _of_offset_index(data: bytes, base_offset: int, path: str) -> tuple[dict[str, Any], int]:
    index = OffsetIndex(data, base_offset, path)
    return {"offset": index.offsets, "position": index.positions}, index.odd_bytes


def _of_time_index(data: bytes, base_offset: int, path: str) -> tuple[dict[str, Any], int]:
    index = TimeIndex(data, base_offset, path)
    return {"offset": index.offsets, "timestamp": index.timestamps.astype(np.int64)}, index.odd_bytes


def _of_txn_index(data: bytes, base_offset: int, path: str) -> tuple[dict[str, Any], int]:
    index = TxnIndex(data, path)
    names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    values: list[Any] = [list(column) for column in zip(*index, strict=True)] or [[], [], [], []]
    return dict(zip(names, values, strict=True)), index.odd_bytes


_INDEXES: dict[FileKind, Callable[[bytes, int, str], tuple[dict[str, Any], int]]] = {
    FileKind.OFFSET_INDEX: _of_offset_index,
    FileKind.TIME_INDEX: _of_time_index,
    FileKind.TXN_INDEX: _of_txn_index,
}
