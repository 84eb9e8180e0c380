"""Rows as lazy frames of polars, which read only the parts that a query needs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads

from pylogseg.errors import RequestError, install_text
from pylogseg.tables.dataset import TableDataset

if TYPE_CHECKING:
    import polars
    from polars import DataFrame as DataFrame
    from polars import LazyFrame as LazyFrame

#: Columns by which there is something to prune. They are never null: nulls mean something else in polars than in Arrow.
_PRUNING = frozenset(["topic", "partition", "offset", "timestamp"])
#: Fewer rows are read by one thread, no further than they need.
_FEW_ROWS = 100_000


def lazy_frame(rows: TableDataset) -> LazyFrame:
    polars, io = _polars()
    schema: Any = polars.DataFrame(rows.schema.empty_table()).schema
    return io.register_io_source(functools.partial(_read, rows), schema=schema)


def frame_of(rows: pa.Table) -> DataFrame:
    polars, _ = _polars()
    frame: DataFrame = polars.from_arrow(rows)
    return frame


def _polars() -> tuple[Any, Any]:
    try:
        import polars
        from polars.io import plugins
    except ImportError as error:
        raise RequestError(f"frames of polars need polars ({error}): {install_text('polars')}") from error
    return polars, plugins


def _read(
    rows: TableDataset,
    with_columns: list[str] | None,
    predicate: polars.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[polars.DataFrame]:
    """Yield the rows; a limit counts them before the filter."""
    import polars
    from polars import DataFrame as DataFrame
    from polars import LazyFrame as LazyFrame

    used = set() if predicate is None else set(predicate.meta.root_names())
    wanted = rows.schema.names if with_columns is None else with_columns
    columns = [name for name in rows.schema.names if name in wanted or name in used]
    pruning = None if predicate is None or n_rows is not None else _pruning(predicate, rows.schema)
    use_threads = n_rows is None or n_rows > _FEW_ROWS
    left = n_rows
    for batch in rows.to_batches(columns=columns, filter=pruning, batch_size=batch_size, use_threads=use_threads):
        part = batch if left is None else batch.slice(0, left)
        frame = polars.DataFrame(part)
        yield (frame if predicate is None else frame.filter(predicate)).select(wanted)
        if left is not None:
            left -= part.num_rows
            if left <= 0:
                return


class _Recorder(pads.Dataset):
    """An empty dataset that notes the filter which polars asks it for."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns, self.filter_asked_for = schema, None

    @property
    def schema(self) -> pa.Schema:
        return self._columns

    def to_batches(self, filter: Any = None, **_: Any) -> Iterator[pa.RecordBatch]:
        self.filter_asked_for = filter
        return iter(())

    def to_table(self, filter: Any = None, **_: Any) -> pa.Table:
        """Called by older polars."""
        self.filter_asked_for = filter
        return self._columns.empty_table()


def _pruning(predicate: polars.Expr, schema: pa.Schema) -> Any:
    """The part of a predicate that leaves out segments, as an expression of Arrow; polars itself translates it."""
    import polars
    from polars import DataFrame as DataFrame
    from polars import LazyFrame as LazyFrame

    pruning = None
    for part in _conjuncts(predicate):
        if not _PRUNING.issuperset(part.meta.root_names()):
            continue
        recorder = _Recorder(schema)
        polars.scan_pyarrow_dataset(recorder).filter(part).collect()
        expression = recorder.filter_asked_for
        if expression is not None:
            pruning = expression if pruning is None else pruning & expression
    return pruning


def _conjuncts(predicate: polars.Expr) -> list[polars.Expr]:
    """The expressions that are all true where a predicate is."""
    parts = predicate.meta.pop()
    if len(parts) == 2 and (parts[1] & parts[0]).meta.eq(predicate):
        return [*_conjuncts(parts[1]), *_conjuncts(parts[0])]
    if len(parts) == 2 and (parts[0] & parts[1]).meta.eq(predicate):
        return [*_conjuncts(parts[0]), *_conjuncts(parts[1])]
    return [predicate]
