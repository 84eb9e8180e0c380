"""Columns of tables about a disk: how a column is made, and record batches of the columns that are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg.reading.arrow.columns import are_held
from pylogseg.walker.gaps import Gap, GapKind

#: Timestamps, as in the columns of records.
TIMESTAMP = pa.timestamp("us", tz="UTC")


def batch_of_rows(wanted: pa.Schema, count: int, same: Mapping[str, Any], columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return rows of the wanted columns, by name: values that all rows have, and arrays or lists; others are null."""
    if not len(wanted):  # a batch knows its number of rows only by a column
        return pa.RecordBatch.from_arrays([pa.nulls(count)], ["none"]).select([])
    arrays = []
    for field in wanted:
        if field.name in columns:
            arrays.append(_array(columns[field.name], field.type))
        elif same.get(field.name) is not None:
            arrays.append(pa.repeat(pa.scalar(same[field.name], field.type), count))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    if kind == TIMESTAMP:
        return timestamps(column)
    if isinstance(column, np.ndarray):
        native = np.ascontiguousarray(column, column.dtype.newbyteorder("="))
        return pa.array(native).cast(kind)
    return column if isinstance(column, pa.Array) else pa.array(column, kind)


def timestamps(ms: Sequence[int | None] | npt.NDArray[np.int64]) -> pa.Array:
    """Return timestamps from milliseconds since 1970.

    Null for None and -1, which mean that there is none, and for one that microseconds of 64 bits cannot hold.
    """
    if not isinstance(ms, np.ndarray):
        ms = np.array([-1 if t is None else t for t in ms], np.int64)
    none = (ms == -1) | ~are_held(ms)
    return pa.array(np.where(none, 0, ms).astype(np.int64) * 1000, mask=none).cast(TIMESTAMP)


def unheld(wanted: pa.Schema, name: str, ms: Any, path: str, offsets: Any) -> Gap | None:
    """Return the gap of the times of a column, in milliseconds, that are null because the column cannot hold them.

    `offsets` are those of the rows, for the message.
    """
    if name not in wanted.names:
        return None
    times = np.array([-1 if t is None else t for t in ms], np.int64) if not isinstance(ms, np.ndarray) else ms
    far = np.flatnonzero(~are_held(times))
    if not len(far):
        return None
    first, last = (int(offsets[row]) for row in far[[0, -1]])
    reason = f"{name}, {times[far[0]]} ms, does not fit a column of timestamps: null there"
    return Gap(path, GapKind.TIME, 0, 0, first, last + 1, reason, False, len(far))


def chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the schema of some of its columns, in their order here."""
    return pa.schema([field for field in schema if field.name in names])
