"""The table of record batches: the fields of their headers, and the reasons for bytes without a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pylogseg.disk import columns
from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import FileView
from pylogseg.format.batches import BatchTable
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.format.escape import readable
from pylogseg.reading.arrow.columns import arrow_schema
from pylogseg.reading.header_reader import plain_batches
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.positions import position_of_offset
from pylogseg.tables.rows import batch_of_rows, unheld
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import walk

_CODECS = pa.array([*CODEC_NAMES, None, None, None])

BATCHES = arrow_schema(columns.BATCHES)


def range_rows(
    segment: Segment,
    view: FileView,
    first_offset: int,
    end_offset: int,
    wanted: pa.Schema,
    *,
    crc: bool,
    begins: bool = False,
    ends: bool = False,
) -> Iterator[tuple[pa.RecordBatch, Gap | None]]:
    """Yield the batches that end in a half-open range of offsets, and the gaps there.

    Batches have a gap for the timestamps that the column cannot hold.

    A gap that reaches into the range from before it belongs to the range before, unless this one `begins` the read.
    Bytes after the last batch belong to the range if it `ends` the segment. Without CRCs, headers alone are read where
    there is nothing but batches of magic 2.
    """
    plain = None if crc else plain_batches(segment, view, first_offset, end_offset)
    if plain is not None:
        plain = plain[plain.last_offset < end_offset] if end_offset != OPEN_END else plain
        if len(plain):
            yield of_batches(segment, plain, wanted), _unheld(segment, plain, wanted)
        return
    start = position_of_offset(segment, view, first_offset)
    for item in walk(view, start=start, lowest_offset=segment.base_offset, is_last=segment.is_last, crc=crc):
        if isinstance(item, Gap):
            if _is_in(item, first_offset, end_offset, begins, ends):
                yield row_of_gap(segment, item, wanted), item
            continue
        last = item.batches.last_offset
        rows = item.batches[(last >= first_offset) & (last < end_offset)]
        if len(rows):
            yield of_batches(segment, rows, wanted), _unheld(segment, rows, wanted)
        if last[-1] >= end_offset - (not ends):
            return


def _unheld(segment: Segment, rows: BatchTable, wanted: pa.Schema) -> Gap | None:
    return unheld(wanted, "maxTimestamp", rows.max_timestamp, segment.path, rows.base_offset)


def _is_in(gap: Gap, first_offset: int, end_offset: int, begins: bool, ends: bool) -> bool:
    if gap.first_offset < first_offset:
        return begins and (gap.next_offset is None or gap.next_offset > first_offset)
    return gap.first_offset < end_offset or (ends and gap.first_offset == end_offset)


def of_batches(segment: Segment, rows: BatchTable, wanted: pa.Schema = BATCHES) -> pa.RecordBatch:
    values = {
        "position": rows.position,
        "size": rows.size,
        "baseOffset": rows.base_offset,
        "lastOffset": rows.last_offset,
        "count": rows.count,
        "magic": rows.magic,
        "codec": _CODECS.take(pa.array(rows.codec)),
        "timestampType": rows.timestamp_type,
        "maxTimestamp": rows.max_timestamp,
        "leaderEpoch": rows.leader_epoch,
        "producerId": rows.producer_id,
        "producerEpoch": rows.producer_epoch,
        "baseSequence": rows.base_sequence,
        "isTransactional": rows.is_transactional,
        "isControl": rows.is_control,
    }
    return batch_of_rows(wanted, len(rows), _where(segment), values)


def row_of_gap(segment: Segment, gap: Gap, wanted: pa.Schema = BATCHES) -> pa.RecordBatch:
    """Return the row of a stretch of bytes that is no good batch."""
    same = {
        "position": gap.position,
        "size": gap.end_position - gap.position,
        "baseOffset": gap.first_offset,
        "problem": f"{gap.kind.value}: {gap.reason}",
    }
    return batch_of_rows(wanted, 1, {**_where(segment), **same}, {})


def _where(segment: Segment) -> dict[str, Any]:
    return {"topic": readable(segment.topic), "partition": segment.partition, "segment": readable(segment.name)}
