"""Scan a table by tasks: prune, read ahead with several threads, filter exactly, project; rows in order."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import acero

from pylogseg.env.pool import flat_ordered
from pylogseg.reading.pruning import check_filter, explained, fields_of, filtered, no_column

#: A task of several threads is about so many bytes, one window: what they read ahead is kept until its turn, and has
#: left the processor's caches by then if it is much; and between windows a thread has to wait for Python's lock.
TASK_BYTES = (8 << 20) - (128 << 10)
#: Of a task that one thread reads, and of a fragment that an engine reads by itself.
FRAGMENT_BYTES = 64 << 20

Columns = Sequence[str] | Mapping[str, Any] | None


class Table(Protocol):
    """What can be scanned.

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
        Whether a filter is surely true of all rows of a task.
    ``files(task)``
        Return the segments that a task reads, and about how many bytes of each.
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


class Selection:
    """Which rows and columns of a table are wanted.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the table.
    columns : sequence of str or mapping of str to expression, optional
        What is returned; all columns by default.
    filter : pyarrow.compute.Expression, optional
        Only the rows for which it is true.

    Raises
    ------
    RequestError
        For columns that there are not, and for what is no filter on the columns.
    """

    def __init__(self, schema: pa.Schema, columns: Columns = None, filter: Any = None) -> None:
        if filter is not None:
            check_filter(filter, schema)
        made: dict[str, Any] | None = dict(columns) if isinstance(columns, Mapping) else None
        names = schema.names if columns is None else list(columns)
        used = [filter] if filter is not None else []
        if made is None:
            missing = [name for name in names if name not in schema.names]
            if missing:
                raise no_column(str(missing[0]), schema.names)
            self.needed = [name for name in schema.names if name in names or name in fields_of(used, schema.names)]
        else:
            self.needed = fields_of([*used, *made.values()], schema.names)
        self._all, self._names, self._made, self.filter = schema, names, made, filter
        empty = pa.schema([schema.field(name) for name in self.needed]).empty_table()
        try:
            self.schema: pa.Schema = self._projected(empty).schema
        except (pa.ArrowException, TypeError) as error:
            raise explained(error, f"columns {columns!r}", schema) from None

    @functools.cached_property
    def unfiltered(self) -> Selection:
        """Return the selection of the same columns of all rows."""
        return Selection(self._all, self._names if self._made is None else self._made)

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return the wanted rows and columns of a batch with the needed columns."""
        if self.filter is None and self._made is None:
            return [batch.select(self._names)]
        table = pa.Table.from_batches([batch])
        if self.filter is not None:
            table = filtered(table, self.filter)
        found: list[pa.RecordBatch] = self._projected(table).to_batches()
        return [each for each in found if each.num_rows]

    def _projected(self, table: pa.Table) -> pa.Table:
        if self._made is None:
            return table.select(self._names)
        options = acero.ProjectNodeOptions(list(self._made.values()), list(self._made))
        steps = [acero.Declaration("table_source", acero.TableSourceNodeOptions(table))]
        steps.append(acero.Declaration("project", options))
        return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def scan(
    table: Table, tasks: Callable[[], Iterator[Any]], selection: Selection, batch_rows: int | None, threads: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks in order; an empty batch for a task without rows, as pyarrow's own scans do.

    Parameters
    ----------
    table : Table
        What is scanned.
    tasks : callable
        Returns the tasks; they are taken one by one, as they are needed.
    selection : Selection
        The rows and columns.
    batch_rows : int, optional
        Most rows of a batch.
    threads : int
        That read; with 1 only what is asked for is read, else up to two tasks a thread ahead of all but the first.

    Raises
    ------
    CorruptionError, StorageError
        Those of reading, in the place of the rows. The threads end then, and when the iteration ends early.
    """
    found = _in_order(table, tasks(), selection, threads)
    yield from found if batch_rows is None else (part for batch in found for part in _cut(batch, batch_rows))


def _in_order(table: Table, tasks: Iterator[Any], selection: Selection, threads: int) -> Iterator[pa.RecordBatch]:
    # Memory of a thread while it reads a task. Engines ask for rows by one thread and then by another.
    free: list[Any] = []
    # Where a task has no rows: who waits for rows that do not come can stop in between.
    nothing = pa.RecordBatch.from_pylist([], selection.schema)

    def read(task: Any) -> Iterator[pa.RecordBatch]:
        chosen, found = _for_task(table, selection, task), False
        memory = free.pop() if free else table.memory(selection.needed)
        try:
            for batch in table.batches(task, chosen.needed, memory, chosen.filter):
                for part in chosen(batch):
                    found = True
                    yield part
            if not found:
                yield nothing
        finally:
            free.append(memory)

    # The first task is read as its rows are asked for: engines do not say that a query has a limit.
    return flat_ordered(read, tasks, threads)


def _for_task(table: Table, selection: Selection, task: Any) -> Selection:
    """The selection without its filter, and without the columns that only this needs, if all rows match."""
    if selection.filter is None or not table.all_match(task, selection.filter):
        return selection
    return selection.unfiltered


def _cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    return (batch.slice(first, rows) for first in range(0, max(batch.num_rows, 1), rows))


def processors() -> int:
    """How many threads can run at a time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
