"""A table as a `pyarrow.dataset.Dataset`, whose filters and columns engines push down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from pylogseg.env.executor import processors
from pylogseg.errors import RequestError
from pylogseg.reading.filters import ColumnChoice, Projection
from pylogseg.reading.scan import (
    ALONE_BYTES,
    FRAGMENT_BYTES,
    TASK_BYTES,
    Planned,
    Table,
    plan_scan,
    scan_rows,
    warn_at_end,
)


class TableScanner(pads.Scanner):
    """One scan of a table, which begins when rows are asked for; each method begins anew."""

    def __init__(self, table: Table, tasks: Any, projection: Projection, batch_rows: int | None, jobs: int) -> None:
        self._table, self._tasks, self._projection = table, tasks, projection
        self._batch_rows, self._jobs = batch_rows, jobs

    @property
    def dataset_schema(self) -> pa.Schema:
        """The columns of the dataset."""
        return self._table.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._projection.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, in order."""
        return self._rows(self._jobs)

    def _rows(self, jobs: int) -> Iterator[pa.RecordBatch]:
        return warn_at_end(
            scan_rows(self._table, self._tasks, self._projection, self._batch_rows, jobs), self._table.gaps
        )

    def scan_batches(self) -> Iterator[Any]:
        """Refuse: rows do not say which fragment they come from.

        Raises
        ------
        RequestError
        """
        raise RequestError("a scan has no batches tagged with fragments: use to_batches()")

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows; no more is read than they need."""
        batches: list[pa.RecordBatch] = []
        left = num_rows
        for batch in self._rows(1) if left > 0 else ():
            batches.append(batch.slice(0, left))
            left -= len(batches[-1])
            if left <= 0:
                break
        return pa.Table.from_batches(batches, self.projected_schema)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return sum(batch.num_rows for batch in self.to_batches())

    def take(self, indices: Any) -> pa.Table:
        """Return the rows with these numbers, counted from 0 on; all before the last of them is read."""
        wanted = pa.array(indices, pa.int64())
        most = pc.max(wanted).as_py()
        return self.head(0 if most is None else most + 1).take(wanted)


class TableFragment(pads.Fragment):
    """Some ranges of a table, which an engine reads as a task of its own."""

    def __init__(self, table: Table, task: Any, filter: Any = None) -> None:
        self._table, self._task, self._filter = table, task, filter

    def __reduce__(self) -> Any:
        return TableFragment, (self._table, self._task, self._filter)

    def __repr__(self) -> str:
        """Return a short text."""
        return f"<pylogseg fragment of {self._table.name}>"

    @property
    def physical_schema(self) -> pa.Schema:
        """The columns."""
        return self._table.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """A condition that holds for all its rows: topic, partition, offsets, and the largest time where an index has
        it.
        """
        return self._table.guarantee(self._task)

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: ColumnChoice = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        use_threads: bool = False,
        **_: Any,
    ) -> TableScanner:
        """Return a scan of these rows, by the thread that asks for them: engines read several fragments at once."""
        projection = Projection(self._table.schema, columns, _both(self._filter, filter))
        return TableScanner(self._table, lambda: iter([self._task]), projection, batch_size, 1)

    def to_batches(self, schema: pa.Schema | None = None, **how: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `scanner` for the arguments."""
        return self.scanner(schema, **how).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **how: Any) -> pa.Table:
        """Return the rows; see `scanner` for the arguments."""
        return self.scanner(schema, **how).to_table()

    def head(self, num_rows: int, **how: Any) -> pa.Table:
        """Return the first rows; see `scanner` for the arguments."""
        return self.scanner(**how).head(num_rows)

    def take(self, indices: Any, **how: Any) -> pa.Table:
        """Return the rows with these numbers; see `scanner` for the arguments."""
        return self.scanner(**how).take(indices)

    def count_rows(self, **how: Any) -> int:
        """Return the number of rows; see `scanner` for the arguments."""
        return self.scanner(**{"columns": [], **how}).count_rows()


class TableDataset(pads.Dataset):
    """A table that engines scan: it reads only the columns and rows that the engine asks for.

    It is a snapshot: every scan finds the segments that were listed when it was made, up to the offsets at which the
    logs ended when they were first asked for.
    """

    def __init__(self, table: Table, filter: Any = None) -> None:
        self._table, self._filter = table, filter

    def __reduce__(self) -> Any:
        return TableDataset, (self._table, self._filter)

    def __repr__(self) -> str:
        """Return a short text without paths."""
        return f"<pylogseg dataset of {self._table.name}>"

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """The condition that holds for all rows: none."""
        return pc.scalar(True)

    @property
    def gaps(self) -> Any:
        """Gaps that scans have skipped so far: a list of `Gap`; with ``on_corrupt="raise"`` only torn tails."""
        return self._table.gaps

    @property
    def is_unchecked(self) -> bool:
        """True if a scan so far counted rows from batch headers without checking their CRCs."""
        return self._table.is_unchecked

    @property
    def undecoded(self) -> int:
        """How many payloads scans so far could not decode."""
        return self._table.undecoded

    def scanner(
        self,
        columns: ColumnChoice = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        use_threads: bool = True,
        **_: Any,
    ) -> TableScanner:
        """Return a scan.

        Parameters
        ----------
        columns : sequence of str, or mapping of str to expression, optional
            The columns of the result, by default all.
        filter : pyarrow.compute.Expression, optional
            Selects rows; segments and ranges that cannot have such rows are not read.
        batch_size : int, optional
            Most rows of a record batch.
        use_threads : bool
            Read ahead on all processors.
        **_
            What pyarrow has besides for its own formats: it has no effect.

        Raises
        ------
        RequestError
            For unknown columns, also in the filter.
        """
        both = _both(self._filter, filter)
        projection = Projection(self.schema, columns, both)
        if batch_size is not None and batch_size < 1:
            raise RequestError(f"batch_size must be above 0, not {batch_size}")
        jobs = processors() if use_threads else 1
        target = TASK_BYTES if jobs > 1 else ALONE_BYTES
        return TableScanner(
            self._table, lambda: self._table.tasks(both, target, projection.needed), projection, batch_size, jobs
        )

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[TableFragment]:
        """Yield the parts that may have rows for which a filter is true."""
        both = _both(self._filter, filter)
        Projection(self.schema, [], both)
        return (TableFragment(self._table, task, self._filter) for task in self._table.tasks(both, FRAGMENT_BYTES))

    def planned(self, filter: pc.Expression | None = None) -> Planned:
        """Return the ranges that a scan with a filter would read; no record is read for it."""
        return plan_scan(self._table, _both(self._filter, filter))

    def to_batches(self, **how: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches; see `scanner` for the arguments."""
        return self.scanner(**how).to_batches()

    def to_table(self, **how: Any) -> pa.Table:
        """Return the rows; see `scanner` for the arguments."""
        return self.scanner(**how).to_table()

    def head(self, num_rows: int, **how: Any) -> pa.Table:
        """Return the first rows; see `scanner` for the arguments."""
        return self.scanner(**how).head(num_rows)

    def take(self, indices: Any, **how: Any) -> pa.Table:
        """Return the rows with these numbers; see `scanner` for the arguments."""
        return self.scanner(**how).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **how: Any) -> int:
        """Return the number of rows; see `scanner` for the arguments."""
        return self.scanner(**{"columns": [], **how}, filter=filter).count_rows()

    def filter(self, expression: pc.Expression) -> TableDataset:
        """Return the dataset of the rows for which an expression is true."""
        both = _both(self._filter, expression)
        Projection(self.schema, [], both)
        return TableDataset(self._table, both)

    def sort_by(self, sorting: Any, **how: Any) -> pads.InMemoryDataset:
        """Return the rows in another order; all are read into memory."""
        return pads.InMemoryDataset(self.to_table().sort_by(sorting, **how))

    def join(self, right_dataset: Any, *args: Any, **how: Any) -> pads.InMemoryDataset:
        """Join with another dataset or table; both are read into memory."""
        return pads.InMemoryDataset(self.to_table().join(_table(right_dataset), *args, **how))

    def join_asof(self, right_dataset: Any, *args: Any, **how: Any) -> pads.InMemoryDataset:
        """Join by nearest values with another dataset or table; both are read into memory."""
        return pads.InMemoryDataset(self.to_table().join_asof(_table(right_dataset), *args, **how))

    def replace_schema(self, schema: pa.Schema) -> TableDataset:
        """Refuse: the format of a log has fixed columns."""
        raise RequestError(
            "the columns of a log have fixed types: choose and cast them with columns={name: expression}"
        )


def _both(one: Any, other: Any) -> Any:
    """Both of two filters; DataFusion gives a boolean where it knows the answer."""
    if isinstance(other, (bool, pa.BooleanScalar)):
        other = pc.scalar(other)
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _table(right: Any) -> pa.Table:
    return right.to_table() if isinstance(right, pads.Dataset) else right
