"""`pylogseg.scan_polars`: logs as a lazy frame of polars."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads

from pylogseg.disk.disk import Disk, Partition
from pylogseg.errors import RequestError, install_text
from pylogseg.reading.stream import Path
from pylogseg.tables.dataset import TableDataset
from pylogseg.tables.opening import RecordOptions, dataset
from pylogseg.values.decoding import Decoding
from pylogseg.values.forms import for_polars

if TYPE_CHECKING:
    import polars
    from typing_extensions import Unpack

#: Columns by which there is something to prune. They are never null: nulls mean something else in polars than in Arrow.
_PRUNING = frozenset(["topic", "partition", "offset", "timestamp"])
#: Fewer rows are read by one thread, no further than they need.
_FEW_ROWS = 100_000


def scan_polars(
    path: Path | Sequence[Path] | Disk | Partition | Sequence[Partition],
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    **how: Unpack[RecordOptions],
) -> polars.LazyFrame:
    """Return logs as a lazy frame of polars, which reads what a query needs.

    Parameters
    ----------
    path, topic, partition, **how
        As for `pylogseg.dataset`.

    Returns
    -------
    polars.LazyFrame
        It reads only the columns of the query, and no more rows than ``head`` asks for. Filters on topic, partition,
        offset and timestamp leave out segments and ranges of segments; polars applies all filters to the rest.

    Raises
    ------
    RequestError
        For invalid arguments, unknown names, and without polars.
    StorageError
        If a folder cannot be listed.

    Examples
    --------
    >>> import polars, pylogseg
    >>> logs = pylogseg.scan_polars("examples/data", "txn-a")
    >>> logs.filter(polars.col("offset") < 2).select("partition", "offset").collect().rows()
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    try:
        import polars
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise RequestError(f"scan_polars needs polars ({error}): {install_text('polars')}") from error
    decoding = how.get("decoding")
    if decoding is not None:  # polars has no decimals of more than 38 digits
        given = {name: how.pop(name, None) for name in ("schema", "registry", "on_undecoded")}  # type: ignore[misc]
        how["decoding"] = replace(Decoding.of(decoding, **given), form=for_polars)
    found = dataset(path, topic, partition, **how)
    schema: Any = polars.DataFrame(found.schema.empty_table()).schema
    return register_io_source(functools.partial(_read, found), schema=schema)


def _read(
    found: TableDataset,
    with_columns: list[str] | None,
    predicate: polars.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[polars.DataFrame]:
    """Yield the rows; a limit counts them before the filter."""
    import polars

    used = set() if predicate is None else set(predicate.meta.root_names())
    wanted = found.schema.names if with_columns is None else with_columns
    columns = [name for name in found.schema.names if name in wanted or name in used]
    pruning = None if predicate is None or n_rows is not None else _pruning(predicate, found.schema)
    use_threads = n_rows is None or n_rows > _FEW_ROWS
    left = n_rows
    for batch in found.to_batches(columns=columns, filter=pruning, batch_size=batch_size, use_threads=use_threads):
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
    """The part of a predicate that leaves out segments, as an expression of Arrow; polars makes that of it itself."""
    import polars

    pruning = None
    for part in _conjuncts(predicate):
        if not _PRUNING.issuperset(part.meta.root_names()):
            continue
        recorder = _Recorder(schema)
        polars.scan_pyarrow_dataset(recorder).filter(part).collect()
        made = recorder.filter_asked_for
        if made is not None:
            pruning = made if pruning is None else pruning & made
    return pruning


def _conjuncts(predicate: polars.Expr) -> list[polars.Expr]:
    """The expressions that are all true where a predicate is."""
    parts = predicate.meta.pop()
    if len(parts) == 2 and (parts[1] & parts[0]).meta.eq(predicate):
        return [*_conjuncts(parts[1]), *_conjuncts(parts[0])]
    if len(parts) == 2 and (parts[0] & parts[1]).meta.eq(predicate):
        return [*_conjuncts(parts[0]), *_conjuncts(parts[1])]
    return [predicate]
