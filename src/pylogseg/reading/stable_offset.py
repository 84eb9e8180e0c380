"""The last stable offset: a read_committed reader ends before the first transaction that is open at the log's end.

It is found by the newest readable producer snapshot and the headers after it; without a snapshot, by all headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pylogseg.disk.disk import Segment, fetched_from
from pylogseg.format.batches import BatchTable
from pylogseg.reading.transaction_markers import Unopened, marker_rows, open_at, windows
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window


@dataclass
class Tail:
    """The end of a log as known from an earlier reading, so that only later headers are read."""

    last_offset: int = -1  #: Of the last batch that was read; -1 before the first one.
    crc: int = -1
    #: Producers with an open transaction after that batch, and its first offset.
    open_first: dict[int, int] = field(default_factory=dict)


class EndState(NamedTuple):
    """The open transactions at an offset of a log."""

    offset: int  #: After the last batch that was read.
    open_first: dict[int, int]  #: Producers with an open transaction there, and its first offset.


def last_stable_offset(
    segments: list[Segment], snapshots: Mapping[int, str], unopened: Unopened | None = None
) -> int | None:
    """Return the first offset of the oldest transaction that is open at the end of the log; None if none is.

    `unopened` as of `end_of_log`.
    """
    if segments and (cluster := fetched_from(segments[-1])) is not None:
        return cluster.ends_of(segments[-1].path).stable
    return min(end_of_log(segments, snapshots, unopened=unopened).open_first.values(), default=None)


def end_of_log(
    segments: list[Segment],
    snapshots: Mapping[int, str],
    tail: Tail | None = None,
    unopened: Unopened | None = None,
    damage: list[Gap] | None = None,
) -> EndState:
    """Return the end of the log and the open transactions there; reads headers after the newest snapshot or `tail`.

    Segments that cannot be opened are errors, or skipped and noted in `unopened`; damage is noted in `damage`.
    """
    if tail is not None and tail.last_offset >= 0:
        checkpoint = EndState(tail.last_offset, dict(tail.open_first))
        state = _read_on(segments, checkpoint, tail, tail.crc, unopened=unopened, damage=damage)
        if state is not None:
            return state
    start = newest_snapshot(segments, snapshots) or EndState(segments[0].base_offset if segments else 0, {})
    state = _read_on(segments, start, tail, unopened=unopened, damage=damage)
    assert state is not None
    return state


def newest_snapshot(segments: list[Segment], snapshots: Mapping[int, str]) -> EndState | None:
    """Return the open transactions in the newest readable producer snapshot; None without one."""
    for offset in sorted(snapshots, reverse=True) if segments else ():
        state = open_at(segments[0].files, snapshots[offset])
        if state is not None:
            return EndState(offset, state)
    return None


def _read_on(
    segments: list[Segment],
    state: EndState,
    tail: Tail | None,
    crc: int | None = None,
    *,
    unopened: Unopened | None,
    damage: list[Gap] | None,
) -> EndState | None:
    """Follow open transactions from an offset to the end; None if the batch that ends there has another CRC."""
    start, open_first = state
    end, last_crc = start + (crc is not None), -1 if crc is None else crc
    is_known = crc is None
    for i, segment in enumerate(segments):
        if i + 1 < len(segments) and segments[i + 1].base_offset <= start:
            continue
        # A damaged batch does not open a transaction, as for a reader from the start of the log.
        for window in windows(segment, start, crc=True, unopened=unopened, damage=damage):
            rows = window.batches
            if not is_known:
                same = rows.last_offset == start
                is_known = bool((rows.crc[same] == crc).any())
                if not is_known and int(rows.last_offset.max()) >= start:
                    return None
            _follow(open_first, rows[(rows.base_offset >= end) & rows.is_transactional], window)
            if int(rows.last_offset.max()) >= end:
                end, last_crc = int(rows.last_offset.max()) + 1, int(rows.crc[int(rows.last_offset.argmax())])
    if not is_known:
        return None
    if tail is not None:
        tail.last_offset, tail.crc, tail.open_first = end - 1, last_crc, dict(open_first)
    return EndState(end, open_first)


def _follow(open_first: dict[int, int], rows: BatchTable, window: Window) -> None:
    """Update the open transactions by some transactional batches."""
    if not len(rows):
        return
    ended = {marker.offset for marker in marker_rows(rows[rows.is_control], window)}
    for offset, producer, control in zip(
        rows.base_offset.tolist(), rows.producer_id.tolist(), rows.is_control.tolist(), strict=True
    ):
        if not control:
            open_first.setdefault(producer, offset)
        elif offset in ended:
            open_first.pop(producer, None)
