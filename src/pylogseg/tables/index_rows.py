"""The table of the entries of indexes: offset, time and transaction index of each segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pylogseg.disk import columns
from pylogseg.disk.disk import Segment
from pylogseg.errors import CorruptionError
from pylogseg.format.escape import readable
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.format.files.txnindex import TxnIndex
from pylogseg.format.names import FileKind
from pylogseg.reading.arrow.columns import arrow_schema
from pylogseg.tables.rows import record_batch, unheld
from pylogseg.walker.gaps import Gap

INDEXES = arrow_schema(columns.INDEXES)


def of_indexes(segment: Segment, wanted: pa.Schema) -> Iterator[tuple[pa.RecordBatch, Gap | None]]:
    """Yield the entries of the indexes of a segment, with the times that the column cannot hold.

    Raises StorageError if an index cannot be read.
    """
    where = {"topic": readable(segment.topic), "partition": segment.partition, "segment": readable(segment.name)}
    for kind, columns_of in _INDEXES.items():
        same = {**where, "index": kind.value[1:]}
        try:
            data = segment.companion(kind)
            if data is None:
                continue
            values, odd_bytes = columns_of(data, segment.base_offset, segment.companions[kind])
        except CorruptionError as error:
            yield record_batch(wanted, 1, {**same, "problem": readable(str(error))}, {}), None
            continue
        count = len(values["offset"] if "offset" in values else values["lastOffset"])
        if count:
            times = values.get("timestamp", np.empty(0, np.int64))
            far = unheld(wanted, "timestamp", times, segment.companions[kind], values.get("offset"))
            yield record_batch(wanted, count, same, {"slot": np.arange(count, dtype=np.int32), **values}), far
        if odd_bytes:
            yield (
                record_batch(wanted, 1, {**same, "problem": f"{odd_bytes} bytes after the last whole entry"}, {}),
                None,
            )


def _of_offset_index(data: bytes, base_offset: int, path: str) -> tuple[dict[str, Any], int]:
    index = OffsetIndex(data, base_offset, path)
    return {"offset": index.offsets, "position": index.positions}, index.odd_bytes


def _of_time_index(data: bytes, base_offset: int, path: str) -> tuple[dict[str, Any], int]:
    index = TimeIndex(data, base_offset, path)
    return {"offset": index.offsets, "timestamp": index.timestamps.astype(np.int64)}, index.odd_bytes


def _of_txn_index(data: bytes, base_offset: int, path: str) -> tuple[dict[str, Any], int]:
    index = TxnIndex(data, path)
    names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    values: list[Any] = [list(column) for column in zip(*index, strict=True)] or [[], [], [], []]
    return dict(zip(names, values, strict=True)), index.odd_bytes


_INDEXES: dict[FileKind, Callable[[bytes, int, str], tuple[dict[str, Any], int]]] = {
    FileKind.OFFSET_INDEX: _of_offset_index,
    FileKind.TIME_INDEX: _of_time_index,
    FileKind.TXN_INDEX: _of_txn_index,
}
