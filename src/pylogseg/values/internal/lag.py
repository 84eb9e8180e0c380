"""How far offsets are behind the end of a partition: in records that are there, in bytes, in time.

`end - offset` counts numbers: markers of transactions, records that compaction removed, and numbers that were never
used are among them. `lags_of` reads the headers of the batches behind an offset, and a record or two. `first_unread`
and `newest_timestamp` read a batch each: since when a group is behind, and where the partition ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pylogseg.format.batches import BatchTable
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.state import LENIENT
from pylogseg.reading.transaction_markers import windows_between
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import SMALL_WINDOW_BYTES

#: Why an offset has no lag: a consumer that begins there is reset, as its `auto.offset.reset` says.
ABOVE_END = "the offset is above the end of the log"


class Lag(NamedTuple):
    """The records between an offset and the end of a partition: aborted records count, and bytes of control batches.

    `ms` is the timestamp of the last record less that of the first one.
    """

    records: int
    size: int
    ms: int | None


class Unread(NamedTuple):
    """The first record that a group has not read.

    Attributes
    ----------
    timestamp : int or None
        Of the first record that is there, at the offset or behind it; None if there is none.
    why : str
        Why that is not the first unread record of the group, or why it is unknown; otherwise empty.
    """

    timestamp: int | None
    why: str = ""


class _Span(NamedTuple):
    """The counts before the batch of an offset, and that batch."""

    records: int
    size: int
    base: int
    last: int
    is_dense: bool


def lags_of(log: LogFiles, end_offset: int, offsets: Sequence[int]) -> list[Lag]:
    """Return the lag of each offset, in any order, to an end; the headers from the lowest offset on are read once.

    Offsets below the log start count from there.
    """
    wanted = sorted({max(offset, log.log_start_offset) for offset in offsets})
    if not wanted:
        return []
    spans: dict[int, _Span] = {}
    records = size = 0
    tail: tuple[int, int] | None = None
    for window in windows_between(log.segments, wanted[0], end_offset, crc=False):
        rows = window.batches
        rows = rows[(rows.base_offset < end_offset) & (rows.last_offset >= wanted[0])]
        if not len(rows):
            continue
        counts = _counts(log, rows, end_offset)
        before, before_bytes = records + np.cumsum(counts) - counts, size + np.cumsum(rows.size) - rows.size
        last = np.maximum.accumulate(rows.last_offset)
        for offset in wanted:
            if offset in spans or offset > last[-1]:
                continue
            at = int(np.searchsorted(last, offset))
            base, stop = int(rows.base_offset[at]), int(rows.last_offset[at])
            is_dense = bool(rows.is_control[at]) or stop - base + 1 == counts[at]
            spans[offset] = _Span(int(before[at]), int(before_bytes[at]), base, stop, is_dense)
        records, size = records + int(counts.sum()), size + int(rows.size.sum())
        data = np.flatnonzero(counts > 0)
        if len(data):
            tail = int(rows.base_offset[data[-1]]), int(rows.last_offset[data[-1]]) + 1
    newest = None if tail is None else _last_timestamp(log, tail[0], min(tail[1], end_offset))
    lags = {offset: _lag(log, offset, spans.get(offset), (records, size, newest), end_offset) for offset in wanted}
    return [lags[max(offset, log.log_start_offset)] for offset in offsets]


def _lag(log: LogFiles, offset: int, span: _Span | None, total: tuple[int, int, int | None], end: int) -> Lag:
    if span is None:
        return Lag(0, 0, None)
    records, size, newest = total
    here = records - span.records
    if offset > span.base:  # what of its batch lies below
        here -= offset - span.base if span.is_dense else _count(log, span.base, offset)
    if here <= 0 or newest is None:
        return Lag(0, size - span.size, None)
    first = first_unread(log, offset, end, OPEN_END).timestamp
    return Lag(here, size - span.size, None if first is None else newest - first)


def _counts(log: LogFiles, rows: BatchTable, end: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Data records of batches; they are decoded where the header does not say it."""
    counts = np.where(rows.is_control, 0, rows.rows["count"]).astype(np.int64)
    for i in np.flatnonzero((counts < 0) | (rows.last_offset >= end)).tolist():
        counts[i] = _count(log, int(rows.base_offset[i]), min(int(rows.last_offset[i]) + 1, end))
    return counts


def _count(log: LogFiles, first: int, end: int) -> int:
    return sum(len(columns) for columns, _ in log.chunks(first, end, LENIENT.start()))


def _last_timestamp(log: LogFiles, first: int, end: int) -> int | None:
    timestamp = None
    for columns, _ in log.chunks(first, end, LENIENT.start()):
        timestamp = int(columns.timestamp[-1]) if len(columns) else timestamp
    return timestamp


# ---- of one offset, by a batch ----

#: Of markers, or of what compaction emptied, that are read behind an offset in search of a record.
_MOST_BYTES = 4 << 20
_GONE = "there is no record at the offset any more: compaction removes such"


def first_unread(
    log: LogFiles, offset: int, end: int, most_bytes: int = _MOST_BYTES, read: list[int] | None = None
) -> Unread:
    """Return the first record at an offset or behind it: of the batch that has the offset, or behind markers.

    `read` takes the bytes that were read: without an index these are all before the offset in its segment.
    """
    if offset > end:
        return Unread(None, f"{ABOVE_END}, {end}")
    start = log.log_start_offset
    timestamp, why = _first_record(log, max(offset, start), end, most_bytes, [] if read is None else read)
    if offset < start:
        why = f"records below {start}, the start of the log, were deleted"
    elif timestamp is not None and timestamp < 0:
        why = why or "the record has no timestamp"
    return Unread(None if timestamp is None or timestamp < 0 else timestamp, why)


def _first_record(log: LogFiles, at: int, end: int, most_bytes: int, read: list[int]) -> tuple[int | None, str]:
    """Return the timestamp of the first record, and why it may not be the first one that was written."""
    before = sum(read)
    state = replace(LENIENT, control=True).start(
        on_bytes=read.append, window_bytes=SMALL_WINDOW_BYTES, first_window_bytes=SMALL_WINDOW_BYTES
    )
    why = ""
    for stop in (min(at + 1, end), end):  # the batch that has the offset; then what is behind it
        for columns, _ in log.chunks(at, stop, state):
            is_data = ~columns.batches.is_control[columns.batch]
            rows = np.flatnonzero(is_data)
            row = int(rows[0]) if len(rows) else len(columns) - 1
            if len(columns) and int(columns.offset[row]) != at + row:
                why = why or _why_not(state.gaps, int(columns.offset[row]))
            if len(rows):
                return int(columns.timestamp[row]), why
            at = int(columns.offset[row]) + 1 if len(columns) else at
            if sum(read) - before > most_bytes:
                return None, f"the first {most_bytes >> 20} MB behind the offset have no record"
    return None, why or ("" if at >= end else _why_not(state.gaps, end))


def _why_not(gaps: Sequence[Gap], offset: int) -> str:
    """Return why the records before an offset are absent."""
    return next((f"damage: {gap.reason}" for gap in gaps if gap.is_damage and gap.first_offset <= offset), _GONE)


def newest_timestamp(log: LogFiles, end: int) -> int | None:
    """Return the timestamp of the last record below an end; None if the last batches have no record."""
    for span in (1, 64, 4096):
        first = max(log.log_start_offset, end - span)
        for window in reversed(list(windows_between(log.segments, first, end, crc=False))):
            rows = window.batches
            data = rows[(rows.base_offset < end) & ~rows.is_control & (rows.rows["count"] != 0)]
            if len(data):
                timestamp = _last_timestamp(log, int(data.base_offset[-1]), min(int(data.last_offset[-1]) + 1, end))
                return None if timestamp is None or timestamp < 0 else timestamp
    return None
