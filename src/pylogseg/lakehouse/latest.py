"""The latest record of each key as a table: the rows that a commit brings, and the files that lose rows by it.

Keys are those of a partition, as compaction has them. Records without a key are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pylogseg.env.executor import Advance
from pylogseg.lakehouse.files import COLUMNS, FileOptions, TimedFiles, Written, split_typed
from pylogseg.lakehouse.library_errors import library_errors
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.ranges import Task
from pylogseg.reading.scan import LogScan
from pylogseg.reading.selection import Selection
from pylogseg.walker.gaps import Gap

#: Rows wait in memory until a commit: this is the most that one takes of the log.
COMMIT_BYTES = 512 << 20
_WAITING_BYTES = 64 << 20
_IDENTITY = ("partition", "key")


def newest_task(
    work: tuple[int, Task, tuple[LogFiles, ...]], advance: Advance, how: FileOptions
) -> tuple[pa.Table, list[Gap]]:
    """Return the last record of each key of a task, tombstones too."""
    _, task, logs = work
    state = replace(how.state, gaps=[], on_bytes=advance)
    scan = LogScan(ReadScope(logs, Selection(), state), COLUMNS)
    rows, waiting, size = arrow.schema(COLUMNS).empty_table(), [], 0
    for batch in scan.batches(task, COLUMNS, scan.memory(COLUMNS), None):
        waiting.append(batch)
        size += batch.nbytes
        if size > _WAITING_BYTES:
            rows, waiting, size = newest([rows, pa.Table.from_batches(waiting)]), [], 0
    return newest([rows, *([pa.Table.from_batches(waiting)] if waiting else [])]), scan.gaps


def newest(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the last record of each key of some tables."""
    rows = pa.concat_tables(tables)
    rows = rows.filter(pc.is_valid(rows.column("key")))
    if not rows.num_rows:
        return rows
    key = rows.column("key").combine_chunks().dictionary_encode().indices.to_numpy()
    partition, offset = (rows.column(name).to_numpy() for name in ("partition", "offset"))
    order = np.lexsort((offset, key, partition))
    is_last = np.ones(len(order), np.bool_)
    key, partition = key[order], partition[order]
    is_last[:-1] = (key[1:] != key[:-1]) | (partition[1:] != partition[:-1])
    keep = np.zeros(len(order), np.bool_)
    keep[order[is_last]] = True
    return rows.filter(pa.array(keep))


def written_rows(rows: pa.Table, how: FileOptions, name: str) -> Written:
    """Write the records of a commit that are no tombstones to files."""
    return split_typed(rows.filter(pc.is_valid(rows.column("value"))).to_batches(), how, name)


def rewrite_task(work: tuple[str, str], advance: Advance, how: FileOptions, keys: pa.Table) -> Written:
    """Write a file's rows of other keys to new files, if it has some of the given keys."""
    name, path = work
    gone = _identities(keys)
    with library_errors(path, "read or write again"), pq.ParquetFile(how.rows.store.open_file(path)) as file:
        losses = [
            pc.is_in(_identities(file.read_row_group(i, columns=list(_IDENTITY))), gone)
            for i in range(file.num_row_groups)
        ]
        lost = sum(pc.sum(mask).as_py() or 0 for mask in losses)
        if not lost:
            return Written([], [], [])
        with TimedFiles(replace(how.rows, schema=file.schema_arrow), name, how.file_bytes) as files:
            for i, mask in enumerate(losses):
                files.write_all(file.read_row_group(i).filter(pc.invert(mask)).to_batches())
            return Written([], [], [], files.finish(), lost)


def _identities(rows: pa.Table) -> Any:
    """Partition and key as one value: a colon ends the partition's digits, so no two pairs are equal."""
    partition = rows.column("partition").cast(pa.string()).cast(pa.binary())
    key = rows.column("key").cast(pa.binary())
    joined = pc.binary_join_element_wise(partition, key, pa.scalar(b":", pa.binary()))
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
