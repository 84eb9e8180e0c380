"""How far offsets are behind the end of a partition: in records that are there, in bytes, in time.

`end - offset` counts numbers: markers of transactions, records that compaction removed, and numbers that were never
used are among them. Here the headers of the batches behind an offset are read, and a record or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pylogseg.format.batches import BatchTable
from pylogseg.reading.log_reader import LogFiles
from pylogseg.reading.partition import ReadOptions
from pylogseg.reading.transaction_markers import windows_between


class Lag(NamedTuple):
    """What lies between an offset and the end of a partition.

    Attributes
    ----------
    records : int
        Data records, those of aborted transactions among them.
    size : int
        Bytes of their batches on the disk, and of control batches.
    ms : int or None
        Timestamp of the last record less that of the first one; None if there is no record.
    """

    records: int
    size: int
    ms: int | None


class _Span(NamedTuple):
    """What was there before the batch of an offset, and that batch."""

    records: int
    size: int
    base: int
    last: int
    is_dense: bool


def lags_of(log: LogFiles, end_offset: int, offsets: Sequence[int]) -> list[Lag]:
    """Return the lag of each offset to an end; the headers from the lowest offset on are read once.

    Parameters
    ----------
    log : LogFiles
        All of the partition.
    end_offset : int
        Batches from here on do not count.
    offsets : sequence of int
        In any order; below the log start they count from there.
    """
    wanted = sorted({max(offset, log.log_start_offset) for offset in offsets})
    if not wanted:
        return []
    found: dict[int, _Span] = {}
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
            if offset in found or offset > last[-1]:
                continue
            at = int(np.searchsorted(last, offset))
            base, stop = int(rows.base_offset[at]), int(rows.last_offset[at])
            is_dense = bool(rows.is_control[at]) or stop - base + 1 == counts[at]
            found[offset] = _Span(int(before[at]), int(before_bytes[at]), base, stop, is_dense)
        records, size = records + int(counts.sum()), size + int(rows.size.sum())
        data = np.flatnonzero(counts > 0)
        if len(data):
            tail = int(rows.base_offset[data[-1]]), int(rows.last_offset[data[-1]]) + 1
    newest = None if tail is None else _last_timestamp(log, tail[0], min(tail[1], end_offset))
    made = {offset: _lag(log, offset, found.get(offset), (records, size, newest), end_offset) for offset in wanted}
    return [made[max(offset, log.log_start_offset)] for offset in offsets]


def _lag(log: LogFiles, offset: int, span: _Span | None, total: tuple[int, int, int | None], end: int) -> Lag:
    if span is None:
        return Lag(0, 0, None)
    records, size, newest = total
    here = records - span.records
    if offset > span.base:  # what of its batch lies below
        here -= offset - span.base if span.is_dense else _count(log, span.base, offset)
    if here <= 0 or newest is None:
        return Lag(0, size - span.size, None)
    first = _first_timestamp(log, offset, end)
    return Lag(here, size - span.size, None if first is None else newest - first)


def _counts(log: LogFiles, rows: BatchTable, end: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Data records of batches; they are decoded where the header does not say it."""
    counts = np.where(rows.is_control, 0, rows.rows["count"]).astype(np.int64)
    for i in np.flatnonzero((counts < 0) | (rows.last_offset >= end)).tolist():
        counts[i] = _count(log, int(rows.base_offset[i]), min(int(rows.last_offset[i]) + 1, end))
    return counts


def _options() -> ReadOptions:
    return ReadOptions(on_corrupt="skip", skip_unreadable=True)


def _count(log: LogFiles, first: int, end: int) -> int:
    return sum(len(columns) for columns, _ in log.chunks(first, end, _options()))


def _first_timestamp(log: LogFiles, first: int, end: int) -> int | None:
    found = (columns for columns, _ in log.chunks(first, end, _options()) if len(columns))
    return next((int(columns.timestamp[0]) for columns in found), None)


def _last_timestamp(log: LogFiles, first: int, end: int) -> int | None:
    found = None
    for columns, _ in log.chunks(first, end, _options()):
        found = int(columns.timestamp[-1]) if len(columns) else found
    return found
