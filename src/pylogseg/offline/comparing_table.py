"""Compare records of a table with partitions that are there: before a restore says that there is nothing to do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg.disk.listing import open_dir
from pylogseg.errors import PylogsegError
from pylogseg.format.batches import scan
from pylogseg.format.records import RecordColumns, decode
from pylogseg.offline.comparing import Side
from pylogseg.offline.comparing_columns import changes
from pylogseg.offline.restoring.partition import has_append_time
from pylogseg.reading.arrow.encode import encode
from pylogseg.reading.arrow.inputs import timestamps_ms
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import logs_of
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading


def compare_partitions(
    tables: Iterable[pa.RecordBatch], root: str, timestamp_type: str = "keep"
) -> Iterator[tuple[str, int, bool]]:
    """Yield the partitions of rows that follow each other, and whether a log directory has just these records.

    The rows have columns of `offline.restoring.rows.COLUMNS`, and in each partition ascending offsets. Compared are
    offset, key, value, headers, and timestamp with its type.
    """
    pieces = (piece for table in tables for piece in _runs(table))
    for (topic, number), found in groupby(pieces, lambda piece: piece[0]):
        rows = (piece for _, piece in found)
        yield topic, number, _is_same(rows, os.path.join(root, f"{topic}-{number}"), timestamp_type)
        for _ in rows:  # the others of a partition that differs
            pass


def _runs(table: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """Cut rows where the partition changes."""
    if not table.num_rows:
        return
    topics = table.column("topic").dictionary_encode()
    codes, numbers = topics.indices.to_numpy(), table.column("partition").to_numpy()
    changed = np.flatnonzero((np.diff(codes) != 0) | (np.diff(numbers) != 0)) + 1
    for first, end in pairwise([0, *changed.tolist(), table.num_rows]):
        yield (topics.dictionary[int(codes[first])].as_py(), int(numbers[first])), table.slice(first, end - first)


def _is_same(tables: Iterable[pa.RecordBatch], folder: str, timestamp_type: str) -> bool:
    types: list[npt.NDArray[np.bool_]] = []
    try:
        (log,) = logs_of(open_dir(folder))
        reader = LogReader.of(log, Selection(), Reading(control=True).start())
        there = Side(chunk.columns for chunk in reader.chunks())
        wanted = Side(_columns(tables, timestamp_type, types))
        while (limit := min((side.last_offset for side in (there, wanted) if side.fill()), default=None)) is not None:
            a, b = there.take(limit), wanted.take(limit)
            if a is None or b is None or not np.array_equal(a.offset, b.offset) or changes(a, b).any():
                return False
            said = np.concatenate(types)
            if (said[: len(a)] != (a.batches.timestamp_type == 1)[a.batch]).any():
                return False
            types[:] = [said[len(a) :]]
    except PylogsegError:  # what cannot be read or written is not the same
        return False
    return True


def _columns(
    tables: Iterable[pa.RecordBatch], timestamp_type: str, types: list[npt.NDArray[np.bool_]]
) -> Iterator[RecordColumns]:
    """Yield rows as they would be read from a log; which of them have the broker's time is added to `types`."""
    for batch in tables:
        table = pa.Table.from_batches([batch])
        types.append(has_append_time(table, timestamps_ms(table), timestamp_type))
        data = encode(table)
        yield decode(scan(data, crc=False).batches, data)[0]
