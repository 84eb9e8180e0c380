"""Scan tables by tasks, and the table of records: ranges, windows, masks, columns, a filter, decoding."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, cast

import pyarrow as pa

from pylogseg.disk.disk import Segment
from pylogseg.env.executor import Threads
from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import NullTimestampWarning, StorageError
from pylogseg.format.moments import warn_caller
from pylogseg.format.scratch import Besides, Density, Scratch
from pylogseg.reading import header_reader
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.bounds import Bounds, Narrowing, bound_logs, guarantee_of, matching, up_to
from pylogseg.reading.column_names import BATCH_COLUMNS, DEFAULT_COLUMNS
from pylogseg.reading.filters import ColumnChoice, Projection, check_filter, fields_of, filter_table
from pylogseg.reading.log_reader import ReadScope, losses_of
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.offset_range import OPEN_END, OffsetRange
from pylogseg.reading.partition import Chunk
from pylogseg.reading.ranges import (
    Extent,
    PlannedLogs,
    Range,
    RangeReader,
    Task,
    is_all_damage,
    pieces,
    plan_tasks,
    url_of,
)
from pylogseg.reading.seek import LogEnd, end_of, largest_timestamp
from pylogseg.reading.stable_offset import last_stable_offset
from pylogseg.reading.state import IsolationLevel, ReadState
from pylogseg.walker.gaps import Gap, GapKind, add_gaps, joined_times
from pylogseg.walker.windows import SMALL_WINDOW_BYTES

#: A task of several jobs is about so many bytes, one window: what they read ahead is kept until its turn, and has
#: left the processor's caches by then if it is much; and between windows a thread has to wait for Python's lock.
TASK_BYTES = (8 << 20) - (128 << 10)
#: Of a fragment that an engine reads by itself.
FRAGMENT_BYTES = 64 << 20
#: Of a task where one thread reads all of them: each costs half a millisecond, and no other waits for it.
ALONE_BYTES = 256 << 20
#: The columns that a filter may be about.
_ALL_COLUMNS = (*DEFAULT_COLUMNS, *BATCH_COLUMNS)
_SURE = ("topic", "partition", "offset")
_GUARANTEED = (*_SURE, "timestamp")
#: How many times as large a task is of which only headers are read.
_HEADER_TASKS = 4


class Table(Protocol):
    """A table that can be scanned.

    ``schema``
        All columns.
    ``name``
        For messages.
    ``tasks(filter, target_bytes, columns)``
        Yield what is to be read, in order; a task is about so many bytes, more where few of them are read for the
        columns. The filter only saves reading.
    ``batches(task, columns, memory, filter)``
        Yield the rows of a task as record batches with these columns. Rows that the filter, if it is not None, leaves
        out need not be among them.
    ``memory(columns)``
        Return what one thread may use again from task to task.
    ``guarantee(task)``
        Return an expression that is true of all rows of a task.
    ``all_match(task, filter)``
        True if a filter is surely true of all rows of a task.
    ``files(task)``
        Return the segments that a task reads, and about how many bytes of each.
    ``gaps``, ``undecoded``, ``is_unchecked``
        What scans so far skipped, how many payloads they could not decode, and whether rows were counted from the
        headers of batches without the check sums that were asked for.
    """

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def name(self) -> str: ...
    def tasks(self, filter: Any, target_bytes: int, columns: Sequence[str] | None = None) -> Iterator[Any]: ...
    def batches(self, task: Any, columns: Sequence[str], memory: Any, filter: Any) -> Iterator[pa.RecordBatch]: ...
    def memory(self, columns: Sequence[str]) -> Any: ...
    def guarantee(self, task: Any) -> Any: ...
    def all_match(self, task: Any, filter: Any) -> bool: ...
    def files(self, task: Any) -> Sequence[tuple[str, int]]: ...
    @property
    def gaps(self) -> list[Gap]: ...
    @property
    def undecoded(self) -> int: ...
    @property
    def is_unchecked(self) -> bool: ...


def scan_rows(
    table: Table, tasks: Callable[[], Iterator[Any]], projection: Projection, batch_rows: int | None, jobs: int
) -> Generator[pa.RecordBatch]:
    """Yield the rows of tasks in order; an empty batch for a task without rows, as pyarrow's own scans do.

    Tasks are taken one by one, as they are needed. One job reads only what is asked for; several read up to two
    tasks each ahead, of all but the first, and end with the iteration. An error comes in the place of its rows.
    """
    batches = _in_order(table, tasks(), projection, jobs)
    yield from batches if batch_rows is None else (part for batch in batches for part in _cut_rows(batch, batch_rows))


def rows_of(
    table: Table, columns: ColumnChoice = None, filter: Any = None, *, jobs: int = 1
) -> Generator[pa.RecordBatch]:
    projection = Projection(table.schema, columns, filter)
    target = TASK_BYTES if jobs > 1 else ALONE_BYTES
    return scan_rows(table, lambda: table.tasks(filter, target, projection.needed), projection, None, jobs)


class Planned(NamedTuple):
    """Segments and bytes that a scan would read."""

    segments: int  #: That it would open.
    size_bytes: int  #: Of them, about.


def plan_scan(table: Table, filter: Any = None) -> Planned:
    """Return the ranges that a scan with a filter would read; no record is read for it."""
    Projection(table.schema, [], filter)
    read = [file for task in table.tasks(filter, TASK_BYTES) for file in table.files(task)]
    return Planned(len({path for path, _ in read}), sum(size for _, size in read))


def _in_order(table: Table, tasks: Iterator[Any], projection: Projection, jobs: int) -> Iterator[pa.RecordBatch]:
    # Memory of a thread while it reads a task. Engines ask for rows by one thread and then by another.
    free: list[Any] = []
    # Where a task has no rows: who waits for rows that do not come can stop in between.
    nothing = pa.RecordBatch.from_pylist([], projection.schema)

    def read(task: Any) -> Iterator[pa.RecordBatch]:
        chosen, has_rows = _for_task(table, projection, task), False
        memory = free.pop() if free else table.memory(projection.needed)
        try:
            for batch in table.batches(task, chosen.needed, memory, chosen.filter):
                for part in chosen(batch):
                    has_rows = True
                    yield part
            if not has_rows:
                yield nothing
        finally:
            free.append(memory)

    # The first task is read as its rows are asked for: engines do not say that a query has a limit.
    return Threads(jobs).flat(read, tasks)


def _for_task(table: Table, projection: Projection, task: Any) -> Projection:
    """The projection without its filter, and without the columns that only this needs, if all rows match."""
    if projection.filter is None or not table.all_match(task, projection.filter):
        return projection
    return projection.unfiltered


def _cut_rows(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    return (batch.slice(first, rows) for first in range(0, max(batch.num_rows, 1), rows))


class ColumnDecoding(Protocol):
    """Makes typed columns of bytes: the last stage of a scan; see `values.decoding.TypedBatches`.

    ``with_names`` returns the decoding for records with other columns, ``of`` for a part of the columns. ``needed`` are
    the raw columns that they are made of; ``is_made`` tells if a column is decoded. ``gaps`` has the records with times
    that a column rounds.
    """

    @property
    def undecoded(self) -> int: ...
    @property
    def gaps(self) -> list[Gap]: ...
    def with_names(self, names: Sequence[str]) -> ColumnDecoding: ...
    def of(self, columns: Sequence[str]) -> ColumnDecoding: ...
    def is_made(self, column: str) -> bool: ...
    def list_needed_columns(self) -> list[str]: ...
    def schema(self) -> pa.Schema: ...
    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...


class LogScan:
    """The table of the records of logs as they were listed, up to where they ended when they were first asked for.

    Its rows are in the scope's times, also if a column cannot hold them. The state's `gaps` get those of all scans,
    each once. `names` are the columns; `typed` decodes some of them. Each scan has a filter of its own; that of the
    scope counts only if the table `filters_rows`, as where it is about other columns.
    """

    def __init__(
        self,
        scope: ReadScope,
        names: Sequence[str],
        typed: ColumnDecoding | None = None,
        *,
        filters_rows: bool = False,
    ) -> None:
        self._scope, self._names, self._filters_rows = scope, tuple(names), filters_rows
        self.logs, self._state = cast("Sequence[LogFiles]", scope.logs), scope.state
        self.selection = scope.selection if filters_rows else replace(scope.selection, filter=None)
        self._typed = None if typed is None else typed.with_names(names)
        #: True if rows were counted by headers, without the check sums that were asked for.
        self.is_unchecked = False
        #: Payloads that scans so far could not decode; one that is read twice counts twice.
        self.undecoded = 0
        self.schema = arrow.schema(names) if self._typed is None else self._typed.schema()
        # Guarantees are about these. They come last: a filter may name columns by number.
        more = arrow.schema([name for name in _GUARANTEED if name not in self.schema.names])
        self._all = pa.schema([*self.schema, *more])
        self._ends: dict[str, LogEnd] = {}
        self._lock = threading.Lock()
        self._segments: dict[str, Segment] = {}
        self._density: Density | None = None  # of the task that was read last: the next thread expects the same

    def __reduce__(self) -> Any:
        return _restore_scan, ((self._scope, self._names, self._typed), self._filters_rows, self._ends)

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"records of {len(self.logs)} log{'' if len(self.logs) == 1 else 's'}"

    @functools.cached_property
    def _known(self) -> dict[str, LogFiles]:
        """Logs by folder; not single files, which may share one."""
        return {url_of(log.segments[0].files, log.path): log for log in self.logs if _is_folder(log)}

    @property
    def gaps(self) -> list[Gap]:
        """The gaps of all scans so far, each once."""
        return self._state.gaps

    def tasks(self, filter: Any, target_bytes: int, columns: Sequence[str] | None = None) -> Iterator[Task]:
        """Yield tasks of about so many bytes, by log and offset; larger ones if headers are enough.

        For a log that cannot be listed, and damage behind its last batch, it raises or notes a gap.
        """
        if columns is not None and self._are_told(self._read_for(columns)):
            target_bytes *= _HEADER_TASKS
        for log, bounds in bound_logs(self.logs, filter, self._all):
            if log.error is not None:
                self._unreadable(log.error)
                continue
            extent = self._extent(log, bounds)
            self._add_losses(log, bounds)
            if extent is None:
                continue
            if self._state.ends_at_damage:  # what is read ends where damage begins: before that all is read
                yield tuple(piece.range for piece in pieces(extent))
                continue
            ranges = list(pieces(extent, *self._times(bounds)))
            self._segments.update((piece.range.path, piece.segment) for piece in ranges)
            yield from plan_tasks(ranges, target_bytes, narrow=Narrowing(filter, self._all))

    def _times(self, bounds: Bounds) -> tuple[int | None, int | None]:
        """Return the first and last time that rows can have, by the scope and a filter."""
        since, before = self.selection.times
        until = None if before is None else before - 1
        starts = [ms for ms in (since, bounds.since_ms) if ms is not None]
        ends = [ms for ms in (until, bounds.until_ms) if ms is not None]
        return max(starts, default=None), min(ends, default=None)

    def _extent(self, log: LogFiles, bounds: Bounds) -> Extent | None:
        if not log.segments:
            return None
        first, stop = self.selection.range_of(log)
        if self.selection.filter is not None:
            wanted = self.selection.filter.range_of(log)
            bounds = bounds._replace(first_offset=wanted[0], end_offset=wanted[1])
        first = first if self._state.ends_at_damage else max(first, bounds.first_offset)
        end = self._end(log, min(stop, bounds.end_offset))
        return Extent(log, first, end) if first < end or is_all_damage(log.segments, end) else None

    def _end(self, log: LogFiles, stop: int) -> int:
        """Return the end, or else the log's end at the first call; then the scan looks for damage behind it."""
        end = self._ends.get(log.path)
        if end is None:
            end = consumer_end(log, self._state.reading.isolation_level, skips=self._state.reading.on_corrupt == "skip")
            end = self._ends.setdefault(log.path, end)
        if stop <= end.offset:
            return stop
        state = replace(self._state, gaps=[])
        check_tail(log, end, state)
        self._add_gaps(state.gaps)
        return end.offset

    def _add_losses(self, log: LogFiles, bounds: Bounds) -> None:
        """Note the known losses in the part of a log that a filter leaves."""
        end, (first, stop) = self._ends.get(log.path), self.selection.offsets.within(log)
        part = OffsetRange(max(first, bounds.first_offset), min(stop, bounds.end_offset))
        for loss in losses_of(log, replace(self.selection, offsets=part), 0 if end is None else end.offset):
            state = replace(self._state, gaps=[])
            state.note(loss)
            self._add_gaps(state.gaps)

    def _unreadable(self, error: StorageError) -> None:
        state = replace(self._state, gaps=[])
        for log in self.logs:
            if log.error is error:
                for _ in log.chunks(0, 1, state):  # raises, or makes a gap
                    pass
        self._add_gaps(state.gaps)

    def _add_gaps(self, gaps: Sequence[Gap]) -> None:
        with self._lock:
            add_gaps(self._state.gaps, gaps)

    def memory(self, columns: Sequence[str]) -> Scratch:
        """Return memory for one thread that reads these columns."""
        memory = Scratch(besides=arrow.copies_for(self._read_for(columns)), allocate=arrow.lend)
        memory.density = self._density
        return memory

    def _read_for(self, columns: Sequence[str]) -> Sequence[str]:
        return columns if self._typed is None else self._typed.of(columns).list_needed_columns()

    def batches(self, task: Task, columns: Sequence[str], memory: Scratch, filter: Any) -> Iterator[pa.RecordBatch]:
        """Yield some columns of the rows of a task in order; a filter may leave out rows before they are decoded."""
        state = replace(self._state, gaps=[], scratch=lambda: memory)
        typed = None if self._typed is None else self._typed.of(columns)
        names = columns if typed is None else typed.list_needed_columns()
        # A record batch has a length only if it has a column.
        rows = arrow.record_batches(self._chunks(task, state, names), arrow.schema(names or ["partition"]), state.gaps)
        try:
            if typed is not None:
                yield from self._decode_rows(typed, rows, columns, filter)
            else:
                yield from rows if columns else (batch.select([]) for batch in rows)
        finally:
            self._density = memory.density
            self._add_gaps(state.gaps)

    def _decode_rows(
        self, typed: ColumnDecoding, rows: Iterator[pa.RecordBatch], columns: Sequence[str], filter: Any
    ) -> Iterator[pa.RecordBatch]:
        if filter is not None and not any(map(typed.is_made, fields_of([filter], self.schema.names))):
            rows = _only(rows, filter)
        try:
            for batch in typed.batches(rows):
                yield batch.select(list(columns))
        finally:
            self._add_gaps(typed.gaps)
            with self._lock:
                self.undecoded += typed.undecoded

    def _chunks(self, task: Task, state: ReadState, columns: Sequence[str]) -> Iterator[Chunk]:
        whole = self._known if state.reading.isolation_level == "read_committed" else None
        logs = PlannedLogs(state.reading.isolation_level, self._place, whole, skips=state.reading.on_corrupt == "skip")
        is_told = self._are_told(columns)
        for part in task:
            counted = self._by_headers(part, state, logs, columns) if is_told else None
            self.is_unchecked |= counted is not None and state.reading.check_crc
            chunks = map(self.selection.of_chunk, counted or RangeReader(part, state, logs))
            yield from (chunk for chunk in chunks if len(chunk.columns))
            if state.ends_at_damage and any(gap.is_damage for gap in state.gaps):
                return

    def _by_headers(
        self, part: Range, state: ReadState, logs: PlannedLogs, columns: Sequence[str]
    ) -> Iterator[Chunk] | None:
        (segment,), transactions = logs.segments(part), logs.transactions(part)  # before it is opened, as for a reader
        return header_reader.header_chunks(
            segment, part.first_offset, part.end_offset, state, transactions, with_offsets="offset" in columns
        )

    def _are_told(self, columns: Sequence[str]) -> bool:
        """Check whether headers are enough for columns."""
        enough = header_reader.COUNTED if self._state.reading.check_crc else header_reader.COLUMNS
        is_all = not self.selection.has_times and self.selection.filter is None
        return is_all and self._state.reading.on_corrupt == "raise" and enough.issuperset(columns)

    def _place(self, part: Range) -> tuple[FileSystem, str]:
        segment = self._segment(part)
        return segment.files, segment.path

    def _segment(self, part: Range) -> Segment:
        if part.path not in self._segments:  # of a task that was planned in another process
            self._segments.update((url_of(s.files, s.path), s) for log in self.logs for s in log.segments)
        return self._segments[part.path]

    def files(self, task: Task) -> Sequence[tuple[str, int]]:
        """Return the segments of a task, and about how many bytes of each."""
        return [(part.path, part.size) for part in task]

    def all_match(self, task: Task, filter: Any) -> bool:
        """Check whether a filter is sure to be true of all rows of a task: one on nothing but places in the log."""
        if not {*_SURE}.issuperset(fields_of([filter], self._all.names)):
            return False
        return not matching(~filter | filter.is_null(), [guarantee_of(task)], self._all)

    def guarantee(self, task: Task) -> Any:
        """Return an expression true of all rows of a task: topic, partition, offsets, the largest time if known."""
        facts, latest = guarantee_of(task), [largest_timestamp(self._segment(part)) for part in task]
        times = [time for time in latest if time is not None]
        return facts & up_to(max(times)) if len(times) == len(latest) else facts


def consumer_end(log: LogFiles, isolation_level: IsolationLevel, *, skips: bool = False) -> LogEnd:
    """Return the end of a log, or with ``read_committed`` its last stable offset.

    For ``read_committed`` the headers after the newest producer snapshot are read. A segment that cannot be opened is
    then an error, or is skipped with `skips`.
    """
    file_end = end_of(log.segments)
    if isolation_level == "read_uncommitted" or not log.segments:
        return file_end
    stable = last_stable_offset(list(log.segments), log.snapshots, {} if skips else None)
    end = file_end.offset if stable is None else min(file_end.offset, stable)
    return LogEnd(end, file_end.is_at_file_end and end == file_end.offset)


def check_tail(log: LogFiles, end: LogEnd, state: ReadState) -> None:
    """Look for damage behind the end of a log, as a reader of the whole log does.

    That is what follows the last good batch or, with ``read_committed``, precedes the first one of an open transaction.
    Damage there is a CorruptionError with ``on_corrupt="raise"``, else a gap.
    """
    if not end.is_at_file_end:
        next(
            log.chunks(end.offset, OPEN_END, replace(state, first_window_bytes=SMALL_WINDOW_BYTES, scratch=None)), None
        )


def record_stream(
    scope: ReadScope,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    typed: ColumnDecoding | None = None,
    *,
    views: bool = False,
) -> pa.RecordBatchReader:
    """Return the records of a scope as a stream: in one go, or by tasks if a filter or jobs are worth a plan."""
    target, gaps = arrow.schema(columns, views=views), scope.state.gaps
    typed = None if typed is None else typed.with_names(target.names)
    schema = target if typed is None else typed.schema()
    if not scope.selection.latest and not views and (filter is not None or scope.state.reading.jobs > 1):
        rows = _by_tasks(LogScan(scope, _ALL_COLUMNS, typed), scope, schema.names, filter)
        return pa.RecordBatchReader.from_batches(schema, warn_at_end(rows, gaps))
    read = target if typed is None else arrow.schema(typed.list_needed_columns())
    besides: Besides = "views" if views else arrow.copies_for(read.names)
    # ColumnChoice are copied out of the decoder's memory: it can be the same for every chunk. Views point at payloads.
    scratch = functools.partial(Scratch, with_arena=not views, besides=besides, allocate=arrow.lend)
    chunks = scope._replace(state=replace(scope.state, scratch=scratch)).chunks()
    rows = arrow.record_batches(chunks, read, gaps)
    return pa.RecordBatchReader.from_batches(schema, warn_at_end(rows if typed is None else typed.batches(rows), gaps))


def warn_at_end(batches: Iterable[pa.RecordBatch], gaps: list[Gap]) -> Generator[pa.RecordBatch]:
    """Yield batches for a program; at the end warn once of timestamps that became null."""
    try:
        yield from batches
    finally:
        for gap in joined_times(gap for gap in gaps if gap.kind is GapKind.TIME):
            warn_caller(str(gap), NullTimestampWarning)


def _by_tasks(table: LogScan, scope: ReadScope, columns: Sequence[str], filter: Any) -> Iterator[pa.RecordBatch]:
    if filter is not None:
        check_filter(filter, table.schema)
    rows = rows_of(table, columns, filter, jobs=scope.state.reading.jobs)
    limit = scope.selection.limit
    return rows if limit is None else _limit_rows(rows, limit)


def _limit_rows(found: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in found if limit > 0 else ():
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def _only(batches: Iterator[pa.RecordBatch], filter: Any) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from filter_table(pa.Table.from_batches([batch]), filter).to_batches()


def _is_folder(log: LogFiles) -> bool:
    return bool(log.segments) and log.path != log.segments[0].path


def _restore_scan(made: Any, filters_rows: bool, ends: dict[str, LogEnd]) -> LogScan:
    table = LogScan(*made, filters_rows=filters_rows)
    table._ends.update(ends)
    return table
