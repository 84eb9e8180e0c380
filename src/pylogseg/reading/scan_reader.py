"""What a reader is to read, read by tasks: pruned by a filter, by several threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.reading.column_names import BATCH_COLUMNS, DEFAULT_COLUMNS
from pylogseg.reading.log_reader import LogFiles
from pylogseg.reading.log_scan import ColumnDecoding, LogScan
from pylogseg.reading.pruning import moment
from pylogseg.reading.scanning import FRAGMENT_BYTES, TASK_BYTES, Selection, Table, processors, scan
from pylogseg.reading.scope import Scope

#: The columns of a table that a filter may be about.
ALL = (*DEFAULT_COLUMNS, *BATCH_COLUMNS)


def records_table(scope: Scope, typed: ColumnDecoding | None = None) -> LogScan:
    """The table of a scope: of all columns, or those of what decodes some of them."""
    names = ALL if typed is None else typed.names
    return LogScan(cast("Sequence[LogFiles]", scope.logs), scope.options, names, scope.offsets, scope.times, typed)


def scanned(table: Table, scope: Scope, columns: Sequence[str], filter: Any) -> Iterator[pa.RecordBatch]:
    """Yield the records of a scope for which a filter is true, in the order of its reader, out of a table of it.

    Raises
    ------
    RequestError
        For an invalid filter.
    """
    if filter is not None:
        Selection(table.schema, (), filter)
    whole = _in_time(filter, scope.times)
    selection = Selection(table.schema, columns, whole)
    threads = scope.options.threads or processors()
    target = TASK_BYTES if threads > 1 else FRAGMENT_BYTES
    found = scan(table, lambda: table.tasks(whole, target, selection.needed), selection, None, threads)
    return found if scope.limit is None else _limited(found, scope.limit)


def _in_time(filter: Any, times: tuple[int | None, int | None]) -> Any:
    since, until = times
    time = pc.field("timestamp")
    found = [] if filter is None else [filter]
    found += [] if since is None else [time >= moment(since)]
    found += [] if until is None else [time < moment(until)]
    whole = None
    for part in found:
        whole = part if whole is None else whole & part
    return whole


def _limited(found: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in found if limit > 0 else ():
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return
