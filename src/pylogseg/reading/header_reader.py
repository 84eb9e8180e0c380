"""Rows of records from batch headers alone: a batch's values, repeated for each record that it declares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pylogseg._native import _lookup
from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import FileView
from pylogseg.errors import StorageError
from pylogseg.format.batches import BATCH_DTYPE, BatchTable
from pylogseg.format.layout import BATCH_HEADER, LOG_OVERHEAD
from pylogseg.format.records import RecordColumns
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.partition import Chunk
from pylogseg.reading.positions import position_of_offset
from pylogseg.reading.seek import largest_timestamp
from pylogseg.reading.state import ReadState
from pylogseg.reading.transactions import TxnIndexView

#: Columns that say which log a record lies in: to count by them, headers suffice.
COUNTED = frozenset(["topic", "partition", "segment"])
#: Columns that headers tell, for who does without check sums; offsets only of batches without gaps.
COLUMNS = frozenset(
    ["topic", "partition", "offset", "timestampType", "batchOffset", "leaderEpoch", "producerId", "producerEpoch",
     "isTransactional", "isControl", "segment", "position"]
)  # fmt: skip
#: Headers that are read at once, and most records of a chunk: a topic's name so many times is kept for the next.
_HEADERS, _RECORDS = 4096, 1 << 16
_TO_THE_END = 2**63 - 1
#: Attribute of a batch: its times are the broker's.
_APPEND_TIME = 8


@dataclass(frozen=True)
class HeaderColumns:
    """Stands for `RecordColumns` of records whose bodies were not read."""

    batches: BatchTable
    first: int
    count: int

    def __len__(self) -> int:
        return self.count

    @cached_property
    def batch(self) -> npt.NDArray[np.intp]:
        numbers: npt.NDArray[np.intp] = np.repeat(np.arange(len(self.batches)), self.batches.count)
        return numbers[self.first : self.first + self.count]

    @cached_property
    def offset(self) -> npt.NDArray[np.int64]:
        """Offset of each record, as batches without gaps have them."""
        counts = self.batches.count.astype(np.int64)
        before = np.cumsum(counts) - counts
        starts: npt.NDArray[np.int64] = self.batches.base_offset - before
        return np.arange(self.first, self.first + self.count) + starts[self.batch]

    def take(self, which: slice) -> HeaderColumns:
        """Some records that follow one another."""
        start, stop, _ = which.indices(self.count)
        return HeaderColumns(self.batches, self.first + start, max(0, stop - start))


def header_chunks(
    segment: Segment,
    first_offset: int,
    end_offset: int,
    state: ReadState,
    transactions: TxnIndexView | None,
    *,
    with_offsets: bool = False,
) -> Iterator[Chunk] | None:
    """Return the chunks of a range of a segment, made of headers alone; None if these do not suffice.

    They do for batches of magic 2 in a local file that are wholly in the range. Anything odd is left to who reads it
    all: damage, batches that begin before the range, a segment that is gone. A check sum is not looked at.
    """
    rows = _rows_of(segment, first_offset, end_offset)
    if rows is None:
        return None
    if not state.reading.control:
        rows = rows[~rows.is_control]
    if transactions is not None and len(rows):
        rows = rows[transactions.mask_committed(rows, segment)[0]]
    if with_offsets and not (rows.count == rows.last_offset - rows.base_offset + 1).all():
        return None
    return _chunks(rows, segment)


def _chunks(rows: BatchTable, segment: Segment) -> Iterator[Chunk]:
    ends, first = np.cumsum(rows.count, dtype=np.int64), 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        after = max(first + 1, int(np.searchsorted(ends, before + _RECORDS, "right")))
        columns = HeaderColumns(rows[first:after], 0, int(ends[after - 1]) - before)
        yield Chunk(cast("RecordColumns", columns), segment)
        first = after


def _rows_of(segment: Segment, first_offset: int, end_offset: int) -> BatchTable | None:
    """The batches of a range, if all are plain and lie wholly in it."""
    try:
        opened = segment.open()
    except StorageError:
        return None
    with opened as view:
        # The end of a sealed segment is looked at too, as by who reads it.
        end = OPEN_END if end_offset == segment.next_base else end_offset
        rows = plain_batches(segment, view, first_offset, end)
    if rows is None or not len(rows):
        return rows
    is_inside = rows.base_offset[0] >= first_offset and rows.last_offset[-1] < end_offset
    return rows if is_inside else None


def plain_batches(segment: Segment, view: FileView, first: int, end: int) -> BatchTable | None:
    """Return the batches of a segment from an offset on, up to the batch that ends a range.

    Only headers are read. None, if there is anything but batches of magic 2 in order, or the file is not a local one;
    if the range is open (`OPEN_END`), also for what follows the last batch in the file.
    """
    if not tells_headers(view):
        return None
    last = _TO_THE_END if end == OPEN_END else end - 1
    position, tables = position_of_offset(segment, view, first), []
    most = max(1, min(_HEADERS, (view.size - position) // BATCH_HEADER.size))  # of a small segment not more than it has
    memory = memoryview(bytearray(most * BATCH_HEADER.size))
    while True:
        count, behind = read_headers(view, position, last, memory)
        if not count:
            break
        tables.append(header_table(memory[: count * BATCH_HEADER.size], position))
        position = behind
        if tables[-1]["last_offset"][-1] >= last:
            break
    rows = np.concatenate(tables) if tables else np.empty(0, BATCH_DTYPE)
    is_whole = position == view.size
    if last < _TO_THE_END:
        is_whole = len(rows) > 0 and rows["last_offset"][-1] >= last and (is_whole or _goes_on(view, position, rows))
    return BatchTable(rows[rows["last_offset"] >= first]) if is_whole and are_plain(rows, segment) else None


def _goes_on(view: FileView, position: int, rows: npt.NDArray[Any]) -> bool:
    """Check that the base offset of the batch behind some does not contradict the last of them."""
    return int.from_bytes(bytes(view.read(position, 8)), "big", signed=True) > int(rows["last_offset"][-1])


def end_before(segment: Segment, first_offset: int, until_ms: int) -> tuple[int, int] | None:
    """Return the offset and the position behind the last batch, from an offset on, up to a time; None without one.

    Known where a broker gave the times; a producer's own need not ascend, and a header does not tell the smallest of
    them. Then, and where no batch is later, both are above all that there are.
    """
    unknown = (OPEN_END, OPEN_END)
    try:
        opened = segment.open()
    except StorageError:
        return unknown
    with opened as view:
        first = position_of_offset(segment, view, first_offset)
        if not tells_headers(view) or not _has_append_time(view, first):
            return unknown
        largest = largest_timestamp(segment)
        if largest is not None and largest <= until_ms:
            return unknown
        rows = plain_batches(segment, view, first_offset, OPEN_END)
    if rows is None or not len(rows) or not (rows.timestamp_type == 1).all():
        return unknown
    early = np.flatnonzero(rows.max_timestamp <= until_ms)
    if not len(early):
        return None
    last = int(early[-1])
    return int(rows.last_offset[last]) + 1, int(rows.position[last] + rows.size[last])


def _has_append_time(view: FileView, position: int) -> bool:
    """Check whether the broker gave the times of the batch at a position."""
    head = bytes(view.read(position, BATCH_HEADER.size))
    return len(head) == BATCH_HEADER.size and head[16] == 2 and bool(head[22] & _APPEND_TIME)


def tells_headers(view: FileView) -> bool:
    """Check whether headers can be read without the bytes between them: only in local files."""
    return hasattr(view, "fileno") or hasattr(view, "whole")


def read_headers(view: Any, position: int, last_offset: int, memory: memoryview) -> tuple[int, int]:
    """Read headers from a local file up to the batch that has an offset; see `_lookup.read_headers`."""
    if hasattr(view, "whole"):
        return _lookup.mapped_headers(view.whole(), position, last_offset, memory)
    return _lookup.read_headers(view.fileno(), position, view.size, last_offset, memory)


def header_table(headers: memoryview, position: int) -> npt.NDArray[Any]:
    """Return rows of a batch table from the headers of adjacent batches; the first one lies at a position."""
    raw = np.frombuffer(headers, BATCH_HEADER.dtype)
    rows = np.zeros(len(raw), BATCH_DTYPE)
    for name in set(BATCH_HEADER.dtype.names or ()) & set(BATCH_DTYPE.names or ()):
        rows[name] = raw[name]
    rows["size"] += LOG_OVERHEAD.size
    rows["last_offset"] = rows["base_offset"] + raw["last_offset_delta"]
    rows["position"] = position + np.cumsum(rows["size"], dtype=np.int64) - rows["size"]
    return rows


def are_plain(rows: npt.NDArray[Any], segment: Segment) -> bool:
    """Check whether rows are of batches in order, inside the segment, with counts that fit their offsets."""
    first, last, count = rows["base_offset"], rows["last_offset"], rows["count"]
    return bool(
        (first >= segment.base_offset).all()
        and (first[1:] > last[:-1]).all()
        and (count >= 0).all()
        and (count - 1 <= last - first).all()
        and (segment.next_base is None or not len(rows) or last[-1] < segment.next_base)
    )
