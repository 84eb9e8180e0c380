"""Reading an open log: slices of its files by offset, and offsets by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _lookup
from pylogseg.errors import CorruptionError, OffsetOutOfRangeError, RequestError
from pylogseg.format.batches import scan
from pylogseg.format.files.txnindex import AbortedTxn
from pylogseg.format.records import REWRITE_LIMIT_BYTES, decode
from pylogseg.log.leader_epochs import LeaderEpochs
from pylogseg.log.offsets import LogOffsets, OffsetMetadata
from pylogseg.log.read_result import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    FileSlice,
    FoundOffset,
)
from pylogseg.log.segment import LogSegment
from pylogseg.log.segment_lookup import SHORTER, raise_cut
from pylogseg.log.segments import Segments


class Fetched(NamedTuple):
    """Result of a fetch."""

    start: OffsetMetadata  #: Base offset and place of the first batch.
    #: As in the file, not copied if this process wrote it; the limit of bytes may cut off the last batch.
    data: memoryview
    first_incomplete: bool = False  #: True if the limit cuts off the first batch.
    #: Producer id and first offset of aborted transactions that overlap; None if not asked for.
    aborted: list[tuple[int, int]] | None = None
    #: Where the bytes are, if only that was asked for; None where there are none.
    place: FileSlice | None = None


class Places(NamedTuple):
    """Places of batches, in columns; -1 for offsets after the end or before the start."""

    segment: npt.NDArray[np.int64]  #: Its base offset.
    position: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]  #: Base offset of the batch; the last one for a compressed batch of magic 0 or 1.
    size: npt.NDArray[np.int64]


_NOTHING = memoryview(b"")
#: Bytes of the first looks for a timestamp: some distances between index entries.
_LOOKS_BYTES = (1 << 15, 1 << 17)
_LOWEST = -(1 << 63)


def fetch_batches(
    segments: Segments,
    offsets: LogOffsets,
    start: int,
    max_bytes: int,
    limit: OffsetMetadata,
    *,
    min_one: bool,
    aborted: bool,
    placed: bool = False,
) -> Fetched:
    """Read batches from an offset inside the log up to a limit: nothing at or after it is returned.

    With `min_one`, the first batch is returned whole even if it is larger than `max_bytes`. With `placed`, the bytes
    are not read: the result has their place.
    """
    if max_bytes < 0:
        raise RequestError(f"max_bytes must be at least 0, got {max_bytes}")
    bases, there = segments.snapshot()
    at = bisect_right(bases, start) - 1
    if at < 0:
        raise OffsetOutOfRangeError(f"offset {start} lies below the first segment, though the log starts below it")
    none: list[tuple[int, int]] | None = [] if aborted else None
    if start == limit.offset:
        return Fetched(limit, _NOTHING, False, none)
    if start > limit.offset:
        return Fetched(locate(segments, offsets, start), _NOTHING, False, none)
    while at < len(there):
        segment = there[at]
        batch = segment.find(start, 0 if placed else max_bytes, whole=min_one)
        if batch is None:
            at += 1
            continue
        position, size = batch.position, batch.size
        first = OffsetMetadata(batch.offset, segment.base_offset, position)
        if segment.base_offset < limit.segment:
            end = segment.log.size
        elif segment.base_offset == limit.segment:
            end = limit.position
        else:
            end = -1
        want = size if min_one and size > max_bytes else max_bytes
        length = max(0, min(end - position, want))  # none where the limit lies before the batch
        if want == 0 or end < 0:
            fetched, length = Fetched(first, _NOTHING), 0
        elif placed:
            place = FileSlice(segment.log, position, length) if length else None
            fetched = Fetched(first, _NOTHING, want < size, place=place)
        else:
            data = batch.data(segment.log, length)
            if data is None:
                continue
            fetched, length = Fetched(first, data, want < size), len(data)
        if aborted:
            return fetched._replace(aborted=_list_aborted(there[at:], offsets, start, first, length))
        return fetched
    return Fetched(offsets.end, _NOTHING)


def locate_many(segments: Segments, offsets: Any) -> Places:
    """Find the places of the batches that hold some offsets, in any order, or come next: `locate` for many at once."""
    requested = np.ascontiguousarray(offsets, np.int64)
    order = np.argsort(requested)  # so that a header that several of them need is read once
    requested = requested[order]
    base_offsets, there = segments.snapshot()
    bases = np.array(base_offsets, np.int64)
    places = Places(*np.full((4, len(requested)), -1, np.int64))
    # An offset after the last batch of its segment lies in the next one that has any.
    rest = np.flatnonzero(requested >= bases[0]) if len(bases) else np.empty(0, np.int64)
    at = np.searchsorted(bases, requested[rest], side="right") - 1
    while len(rest):
        for number in np.unique(at).tolist():
            rows = rest[at == number]
            columns = np.full((3, len(rows)), -1, np.int64)
            there[number].places_of(requested[rows], *columns)
            places.segment[rows] = np.where(columns[0] >= 0, bases[number], -1)
            places.position[rows], places.offset[rows], places.size[rows] = columns
        missing = (places.position[rest] < 0) & (at + 1 < len(bases))
        rest, at = rest[missing], at[missing] + 1
    unsorted = np.empty((4, len(order)), np.int64)
    unsorted[:, order] = places
    return Places(*unsorted)


def locate(segments: Segments, offsets: LogOffsets, offset: int) -> OffsetMetadata:
    """Find the batch that holds an offset or comes next; the end of the log after the last one.

    An offset outside of the log has no place.
    """
    if offset == offsets.end.offset:
        return offsets.end
    there = segments.from_offset(offset)
    if offset > offsets.end.offset or not there or there[0].base_offset > offset:
        return OffsetMetadata(offset)
    for segment in there:
        place = segment.place_of(offset)
        if place is not None:
            return OffsetMetadata(place.offset, segment.base_offset, place.position)
    return offsets.end


def _list_aborted(
    segments: list[LogSegment], offsets: LogOffsets, start: int, found: OffsetMetadata, size: int
) -> list[tuple[int, int]]:
    entry = segments[0].offset_index.upper_bound(found.position, size)
    if entry is not None:
        upper = entry.offset
    else:
        upper = segments[1].base_offset if len(segments) > 1 else offsets.end.offset
    return [(txn.producer_id, txn.first_offset) for txn in aborted_between(segments, start, upper)]


def aborted_between(segments: Iterable[LogSegment], start: int, upper: int) -> Iterator[AbortedTxn]:
    """Yield the aborted transactions that overlap a range of offsets, half-open, from the first of the segments on."""
    for segment in segments:
        txns, complete = segment.aborted_txns.collect(start, upper)
        yield from txns
        if complete:
            return


def offset_for_time(
    segments: Segments, offsets: LogOffsets, epochs: LeaderEpochs, timestamp: int
) -> FoundOffset | None:
    """Find the first record that is not older than a timestamp, or the offset of a special value.

    Special values: -1 the end of the log, -2 and -4 its start, -3 the record with the greatest timestamp, -5 nothing
    (no tiered storage), -6 the start.
    """
    if timestamp in (EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD):
        entries = epochs.entries
        is_covered = bool(entries) and entries[0].start_offset <= offsets.log_start
        return FoundOffset(-1, offsets.log_start, entries[0].epoch if is_covered else -1)
    if timestamp == LATEST:
        return FoundOffset(-1, offsets.end.offset, epochs.latest_epoch)
    if timestamp == LATEST_TIERED:
        return FoundOffset(-1, -1, -1)
    if timestamp == MAX_TIMESTAMP:
        return _max_timestamp(segments)
    for segment in segments:
        if segment.largest_timestamp() >= timestamp:
            return _offset_of_time(segment, timestamp, offsets.log_start)
    return None


def _offset_of_time(segment: LogSegment, timestamp: int, log_start_offset: int) -> FoundOffset | None:
    """Find the first record of a segment that is not older than a timestamp and not below an offset."""
    floor = segment.time_index.floor_pair(timestamp)[1]
    start = segment.offset_index.floor_pair(max(floor, log_start_offset))[1]
    log = segment.log
    if 0 <= start < log.copied_below:
        first = log.by_descriptor(_lookup.first_at_time_in_file, start, timestamp, log_start_offset)
        if first is not None:
            start, when, offset, epoch = first
            if offset == SHORTER:
                raise_cut(log)
            if offset >= 0:
                return FoundOffset(when, offset, epoch)
    for look_bytes in _LOOKS_BYTES if start < log.copied_below else (log.size - start,):
        near = log.view(start, look_bytes)
        record = _first_in(near, timestamp, log_start_offset, segment.path, start)
        if record is not None or start + len(near) >= log.size:
            break
    if record is None and start + len(near) < log.size:
        what = timestamp, log_start_offset, segment.path
        looks = (_first_in(window.buffer, *what, window.file_position) for window in segment.windows(start))
        record = next(filter(None, looks), None)
    elif record is None:
        for _ in segment.windows(start):  # raises if an impossible length ended the search
            pass
    return record


def _first_in(view: memoryview, timestamp: int, log_start_offset: int, path: str, position: int) -> FoundOffset | None:
    """Find the record in bytes that begin with a batch, at a position of a file; they may end in damage."""
    start, size = 0, len(view)
    while start < size:
        place = _lookup.first_at_time(view, start, size, timestamp, log_start_offset)
        if place is None:
            return None
        if place[2] >= 0:
            return FoundOffset(*place[1:])
        part = scan(view, start=place[0], crc=False, max_rows=1, any_magic=True).batches
        columns, damage = decode(part, view, limit_bytes=REWRITE_LIMIT_BYTES)
        hits = ((columns.timestamp >= timestamp) & (columns.offset >= log_start_offset)).nonzero()[0]
        if len(hits):
            first = int(hits[0])
            return FoundOffset(int(columns.timestamp[first]), int(columns.offset[first]), int(part.leader_epoch[0]))
        if damage:
            raise CorruptionError(path, position + place[0], damage[0].reason)
        start = place[0] + int(part.size[0])
    return None


def _max_timestamp(segments: Segments) -> FoundOffset | None:
    best = max(segments, key=lambda segment: segment.max_timestamp_so_far()[0])  # the first of equals
    timestamp, offset = best.max_timestamp_so_far()
    for window in best.windows(best.offset_index.floor(offset)[1]):
        for row in (window.batches.max_timestamp == timestamp).nonzero()[0].tolist():
            if window.batches.magic[row] == 0:
                return None
            position, size = int(window.batches.position[row]), int(window.batches.size[row])
            batch = window.buffer[position - window.file_position :][:size]
            first = _first_in(batch, timestamp, _LOWEST, best.path, position)
            return None if first is None else first._replace(leader_epoch=max(first.leader_epoch, -1))
    return None
