"""Records with typed columns as a table: pruned as the records are, and decoded where a filter has left rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import pyarrow as pa

from pylogseg.disk.disk import Disk
from pylogseg.reading.arrow.columns import schema
from pylogseg.reading.log_reader import LogFiles, LogReader, first_chunks, topics_of
from pylogseg.reading.log_scan import LogScan
from pylogseg.reading.partition import OPEN_END, ReadOptions
from pylogseg.reading.pruning import fields_of, filtered
from pylogseg.reading.ranges import Task
from pylogseg.reading.scan_reader import ALL
from pylogseg.reading.scope import Scope
from pylogseg.values.decoding import Decoding, TypedBatches, typed_batches
from pylogseg.walker.gaps import Gap


class TypedTask(NamedTuple):
    """A task of the records, and a filter on what needs no decoding: it is applied before."""

    ranges: Task
    filter: Any


class TypedScan:
    """The table of the records of logs, some of its columns decoded.

    Parameters
    ----------
    logs, options, offsets, times
        As for `LogScan`.
    typed : TypedBatches
        Its names are the columns there are.

    Attributes
    ----------
    schema : pyarrow.Schema
    undecoded : int
        Payloads that scans so far could not decode; one that is read twice counts twice.
    """

    def __init__(
        self,
        logs: Sequence[LogFiles],
        options: ReadOptions,
        typed: TypedBatches,
        offsets: tuple[int, int] = (0, OPEN_END),
        times: tuple[int | None, int | None] = (None, None),
    ) -> None:
        self._typed = typed
        self.schema = typed.schema(schema(typed.names))
        self._scan = LogScan(logs, options, typed.names, offsets, times, self.schema)
        self.undecoded = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return _unpickled, (self._typed, self._scan)

    @property
    def name(self) -> str:
        """What it is, for messages."""
        return self._scan.name

    @property
    def gaps(self) -> list[Gap]:
        """The gaps of all scans so far, each once."""
        return self._scan.gaps

    @property
    def is_unchecked(self) -> bool:
        """Whether a scan so far was told by headers what, read whole, has its check sums computed."""
        return self._scan.is_unchecked

    def tasks(self, filter: Any, target_bytes: int, columns: Sequence[str] | None = None) -> Iterator[TypedTask]:
        """Yield what is to be read; see `LogScan.tasks`."""
        raw = None if columns is None else self._typed.of(columns).needed()
        made = [name for name in self.schema.names if self._typed.source_of(name) in self._typed.decoders]
        before = None if filter is None or fields_of([filter], made) else filter
        for ranges in self._scan.tasks(filter, target_bytes, raw):
            yield TypedTask(ranges, before)

    def batches(self, task: TypedTask, columns: Sequence[str], memory: Any) -> Iterator[pa.RecordBatch]:
        """Yield some columns of the rows of a task in order."""
        typed = self._typed.of(columns)
        raw = typed.needed()
        found = self._scan.batches(task.ranges, raw, memory)
        # Without the columns of the filter, it was found to be true of all rows.
        if task.filter is not None and {*fields_of([task.filter], self.schema.names)} <= {*raw}:
            found = _only(found, task.filter)
        try:
            for batch in typed.batches(found) if typed.decoders else found:
                yield batch.select(list(columns))
        finally:
            with self._lock:
                self.undecoded += typed.undecoded

    def memory(self, columns: Sequence[str]) -> Any:
        """Return memory for one thread that reads these columns."""
        return self._scan.memory(self._typed.of(columns).needed())

    def files(self, task: TypedTask) -> Sequence[tuple[str, int]]:
        """Return the segments of a task, and about how many bytes of each."""
        return self._scan.files(task.ranges)

    def all_match(self, task: TypedTask, filter: Any) -> bool:
        """Check whether a filter is sure to be true of all rows of a task."""
        return self._scan.all_match(task.ranges, filter)

    def guarantee(self, task: TypedTask) -> Any:
        """Return what is true of all rows of a task."""
        return self._scan.guarantee(task.ranges)


def _only(batches: Iterator[pa.RecordBatch], filter: Any) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from filtered(pa.Table.from_batches([batch]), filter).to_batches()


def _unpickled(typed: TypedBatches, scan: LogScan) -> TypedScan:
    made = TypedScan((), ReadOptions(), typed)
    made._scan = scan
    return made


def typed_scan(
    decoding: Decoding, disk: Disk, logs: Sequence[LogFiles], options: ReadOptions, names: Sequence[str]
) -> TypedScan:
    """Choose the reader's schemas for the records of logs; the first are read if nothing else says them.

    Schemas are on the disk, unless the decoding names another place.
    """
    readers = [LogReader.of(log, (0, OPEN_END), (None, None), options) for log in logs]
    typed = typed_batches(decoding, disk, topics_of(logs), names, lambda: first_chunks(readers))
    return TypedScan(logs, options, typed)


def typed_table(scope: Scope, typed: TypedBatches) -> TypedScan:
    """The table of all columns of a scope, those decoded that `typed` decodes."""
    logs = cast("Sequence[LogFiles]", scope.logs)
    return TypedScan(logs, scope.options, replace(typed, names=ALL), scope.offsets, scope.times)
