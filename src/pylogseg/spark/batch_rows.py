"""Record batches and gaps of ranges of segments as Arrow rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pylogseg.errors import StorageError
from pylogseg.format.batches import CODEC_NAMES, BatchTable
from pylogseg.reading.seek import position_of_offset
from pylogseg.spark.options import SourceOptions
from pylogseg.spark.plan import Range
from pylogseg.spark.planned_logs import PlannedLogs, Vanished
from pylogseg.walker.findings import Gap
from pylogseg.walker.windows import Window, walk

#: Of `pylogseg.spark.batches`. A stretch that is no good batch has a `problem`, and nulls for what is not known of it.
BATCH_SCHEMA = (
    "topic string, `partition` int, segment string, position bigint, sizeBytes bigint, baseOffset bigint, "
    "lastOffset bigint, count int, magic int, codec string, timestampType int, maxTimestamp timestamp, "
    "leaderEpoch int, producerId bigint, producerEpoch smallint, baseSequence int, isTransactional boolean, "
    "isControl boolean, problem string"
)
_CODECS = pa.array([*CODEC_NAMES, None, None, None])
_ARROW = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "segment": pa.string(),
        "position": pa.int64(),
        "sizeBytes": pa.int64(),
        "baseOffset": pa.int64(),
        "lastOffset": pa.int64(),
        "count": pa.int32(),
        "magic": pa.int32(),
        "codec": pa.string(),
        "timestampType": pa.int32(),
        "maxTimestamp": pa.timestamp("us", tz="UTC"),
        "leaderEpoch": pa.int32(),
        "producerId": pa.int64(),
        "producerEpoch": pa.int16(),
        "baseSequence": pa.int32(),
        "isTransactional": pa.bool_(),
        "isControl": pa.bool_(),
        "problem": pa.string(),
    }
)


def read_batches(task: Iterable[Range], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the headers of a task as rows; payloads are read only with ``checkCrc``.

    Raises
    ------
    StorageError
        If a segment was deleted.
    """
    logs = PlannedLogs(options)
    for part in task:
        segment = logs.segments(part)[0]
        where = {"topic": part.topic, "partition": part.partition, "segment": segment.name}
        try:
            view = segment.open()
        except Vanished as error:
            raise StorageError(part.path, "read", "deleted since the plan was made") from error
        with view:
            start = position_of_offset(segment, view, part.first_offset)
            is_last = segment.is_last
            for item in walk(view, start=start, lowest_offset=part.base_offset, is_last=is_last, crc=options.check_crc):
                if isinstance(item, Gap):
                    if part.first_offset <= item.first_offset < part.end_offset:
                        yield _rows(1, where, _of_gap(item))
                    continue
                found = _within(item, part)
                if len(found):
                    yield _rows(len(found), where, _of_batches(found))
                if item.batches.last_offset[-1] >= part.end_offset - 1:
                    break


def _within(window: Window, part: Range) -> BatchTable:
    """The batches that end in a range; each ends in one."""
    last = window.batches.last_offset
    return window.batches[(last >= part.first_offset) & (last < part.end_offset)]


def _of_batches(rows: BatchTable) -> dict[str, Any]:
    return {
        "position": rows.position,
        "sizeBytes": rows.size,
        "baseOffset": rows.base_offset,
        "lastOffset": rows.last_offset,
        "count": rows.count,
        "magic": rows.magic,
        "codec": _CODECS.take(pa.array(rows.codec)),
        "timestampType": rows.timestamp_type,
        "maxTimestamp": np.ascontiguousarray(rows.max_timestamp).astype("datetime64[ms]"),
        "leaderEpoch": rows.leader_epoch,
        "producerId": rows.producer_id,
        "producerEpoch": rows.producer_epoch,
        "baseSequence": rows.base_sequence,
        "isTransactional": rows.is_transactional,
        "isControl": rows.is_control,
    }


def _of_gap(gap: Gap) -> dict[str, Any]:
    return {
        "position": [gap.position],
        "sizeBytes": [gap.end_position - gap.position],
        "baseOffset": [gap.first_offset],
        "problem": [f"{gap.kind.value}: {gap.reason}"],
    }


def _rows(count: int, where: dict[str, Any], columns: dict[str, Any]) -> pa.RecordBatch:
    """A record batch of some columns; what is the same everywhere is repeated, what is missing is null."""
    arrays = []
    for field in _ARROW:
        if field.name in where:
            arrays.append(pa.repeat(pa.scalar(where[field.name], field.type), count))
        elif field.name in columns:
            column = columns[field.name]
            found = column if isinstance(column, pa.Array) else pa.array(_contiguous(column))
            arrays.append(found.cast(field.type))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _contiguous(column: Any) -> Any:
    return np.ascontiguousarray(column) if isinstance(column, np.ndarray) else column
