"""Rebuilding the producers' state from snapshots and the log, after a load or a truncation."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pylogseg._native import _append
from pylogseg.format.batches import BatchTable
from pylogseg.log.producers import Producers

#: ``read(segment_base, start_offset, end_offset)`` yields the batches of a segment in pieces of (rows, buffer, file
#: position of the buffer): from the batch that holds `start_offset` up to the one that holds `end_offset`, exclusive;
#: to its end for None.
ReadSegment = Callable[[int, int, "int | None"], Iterable[tuple[BatchTable, Any, int]]]


def rebuild_producers(
    producers: Producers,
    segment_bases: Sequence[int],
    read: ReadSegment,
    *,
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    clean: bool,
) -> None:
    """Bring the producers' state from any to the one before `last_offset`, and write a snapshot there.

    Producers of a snapshot that were idle for too long at `now_ms` are left out. A log that was shut down cleanly and
    has no snapshot at all was written by a version without snapshots: the state stays empty, and empty snapshots save
    the next load the work. Raises TransactionStateError, InvalidRecordError or RequestError if batches contradict one
    another or a marker cannot be read.
    """
    snapshot_at = [*segment_bases[-2:], last_offset]
    if producers.snapshots.latest is None and clean:
        for offset in snapshot_at:
            producers.map_end_offset = offset
            producers.take_snapshot()
        return
    nothing_lost = producers.is_empty and producers.map_end_offset >= last_offset
    producers.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > producers.map_end_offset and not nothing_lost:
        _replay_segments(producers, segment_bases, read, snapshot_at, log_start_offset, last_offset)
    producers.map_end_offset = last_offset
    producers.take_snapshot()


def _replay_segments(
    producers: Producers,
    bases: Sequence[int],
    read: ReadSegment,
    snapshot_at: Sequence[int],
    log_start_offset: int,
    last_offset: int,
) -> None:
    first = max(bisect_right(bases, producers.map_end_offset) - 1, 0)
    holds_last = bisect_right(bases, last_offset) - 1
    for number in range(first, len(bases)):
        base = bases[number]
        if base >= last_offset:
            break
        start = max(base, producers.map_end_offset, log_start_offset)
        producers.map_end_offset = start
        if base in snapshot_at:
            producers.take_snapshot()
        pieces = read(base, start, last_offset if number == holds_last else None)
        producers.replay_pieces((_append.batches_of(rows.rows, True), buffer, at) for rows, buffer, at in pieces)
