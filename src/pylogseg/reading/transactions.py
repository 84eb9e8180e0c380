"""Which transactional batches a read_committed reader sees, from the files alone.

A batch is aborted if an abort marker of its producer ends its transaction. The aborts of a sealed segment are in its
`.txnindex`; where that is missing (a segment without aborts has none, and neither has a damaged folder) the headers of
the segment are read for its markers. Looking ahead stops as soon as nothing later can matter. The end of what is stable
is that of the oldest transaction still open at the end of the log: the last producer snapshot tells, and the headers
after it.

A writer may be at work, and three rules keep its aborted records out, whatever it does between two steps of a reader:

1. The log ends, for this reader, where it ended when open transactions were looked for. What came later, in a segment
   that is opened later too, belongs to transactions that nobody has looked for.
2. The index of the active segment is not believed: a writer appends an abort marker first and its entry then.
   A segment that another one follows has all of its entries.
3. Indexes are read before the segments that they tell of are opened: a cleaning drops entries whose records it removes,
   so an older index goes with a newer segment, and never the other way round.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pylogseg.disk import Segment
from pylogseg.env.files import FileSystem, LocalFiles
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.files.snapshot import parse_snapshot
from pylogseg.files.txnindex import TxnIndex
from pylogseg.format.batches import BatchTable
from pylogseg.format.names import FileKind
from pylogseg.format.records import decode
from pylogseg.reading.removal import open_unless_removed
from pylogseg.reading.seek import position_of_offset
from pylogseg.reading.windows import Window, walk

_ABORT = 0


class Outcomes(Protocol):
    """What became of transactions.

    ``committed(rows) -> (kept, last_stable_offset)``
        See `Transactions.committed`.
    """

    def committed(self, rows: BatchTable) -> tuple[npt.NDArray[np.bool_], int | None]: ...


@dataclass
class Tail:
    """What a reader that comes again knows of the end of a log, so that it reads headers from there on.

    Attributes
    ----------
    last_offset, crc : int
        Of the last batch seen; -1 before the first one.
    open_first : dict of int to int
        Producers with an open transaction behind that batch, and its first offset.
    """

    last_offset: int = -1
    crc: int = -1
    open_first: dict[int, int] = field(default_factory=dict)


class Transactions:
    """What became of the transactions of one partition; asked window by window, in the order of the log.

    A reader from the start of the log costs nothing before it meets the first transactional batch.

    Parameters
    ----------
    segments : list of Segment
        All of the partition, by base offset; none of them is opened yet.
    snapshots : dict of int to str
        Paths of producer snapshots by offset.
    first_offset : int
        Where the reader begins.
    ends_stable : bool
        Whether the reader is known to end before any open transaction: then none is looked for.
    tail : Tail, optional
        Kept by a reader that comes again.
    """

    def __init__(
        self,
        segments: list[Segment],
        snapshots: dict[int, str],
        first_offset: int = 0,
        *,
        ends_stable: bool = False,
        tail: Tail | None = None,
    ) -> None:
        self._segments, self._snapshots, self._ends_stable, self._tail = segments, snapshots, ends_stable, tail
        # A reader that begins in the middle of the log may begin behind the first batch of an open transaction.
        self._starts_inside = bool(segments) and first_offset > segments[0].base_offset
        self._next: int | None = None  # segment up to which outcomes are known
        self._stable: int | None = None
        self._ranges: dict[int, list[tuple[int, int]]] = {}  # producer -> aborted, both ends inclusive
        self._markers: dict[int, list[tuple[int, bool]]] = {}  # producer -> (offset, is abort), from headers
        self._indexed: list[Segment] = []  # of which only the index was looked at
        self._complete_below = -1  # no abort index entry that is still to come touches offsets below this
        self._open_first: dict[int, int] | None = {}  # at the beginning of the next segment, where headers told
        self._begins_at, self._known_from = 0, -1
        bases = [segment.base_offset for segment in segments]
        # Elsewhere nothing is replaced while it is read, and each look costs a request.
        self._indexes = {
            segment.path: segment.hint(FileKind.TXN_INDEX)
            for segment in segments[max(0, bisect_right(bases, first_offset) - 1) :]
            if isinstance(segment.files, LocalFiles) and not segment.is_last
        }

    def committed(self, rows: BatchTable) -> tuple[npt.NDArray[np.bool_], int | None]:
        """Which batches are not part of an aborted transaction, and the last stable offset.

        Returns
        -------
        kept : numpy.ndarray of bool
            Markers are kept: whoever wants no control records leaves them out by themselves.
        last_stable_offset : int or None
            Where the reader ends; None as long as no transactional batch was met.
        """
        kept = np.ones(len(rows), np.bool_)
        data = rows.is_transactional & ~rows.is_control
        if not data.any():
            if self._next is None and (self._starts_inside or rows.is_transactional.any()):
                self._begin(int(rows.base_offset[0]))
            return kept, self._stable
        if self._next is None:
            self._begin(int(rows.base_offset[0]))
        self._look_ahead(rows[data])
        for row in np.flatnonzero(data).tolist():
            kept[row] = not self._is_aborted(int(rows.producer_id[row]), int(rows.base_offset[row]))
        return kept, self._stable

    def _begin(self, offset: int) -> None:
        bases = [segment.base_offset for segment in self._segments]
        self._next = max(0, bisect_right(bases, offset) - 1)
        self._begins_at = offset
        if not self._ends_stable:
            found = _end_of_log(self._segments, self._snapshots, self._next, self._tail)
            self._stable = min([found.end_offset, *found.open_first.values()])

    def _is_aborted(self, producer_id: int, offset: int) -> bool:
        ranges = self._ranges.get(producer_id, [])
        at = bisect_right(ranges, (offset, 2**63)) - 1
        if at >= 0 and offset <= ranges[at][1]:
            return True
        markers = self._markers.get(producer_id, [])
        at = bisect_right(markers, (offset, True))
        # A marker from the headers ends the transaction that the batch belongs to, whatever came between.
        return at < len(markers) and markers[at][1]

    def _look_ahead(self, rows: BatchTable) -> None:
        last_of: dict[int, int] = {}
        for producer_id, offset in zip(rows.producer_id.tolist(), rows.last_offset.tolist(), strict=True):
            last_of[producer_id] = max(offset, last_of.get(producer_id, -1))
        upper = max(last_of.values()) + 1
        assert self._next is not None
        while self._next < len(self._segments) and not self._decided(last_of, upper):
            segment = self._segments[self._next]
            self._next += 1
            data = self._index_of(segment)
            if data and self._add_index(data, segment):
                self._indexed.append(segment)
                self._open_first = None
            else:
                self._add_headers(segment)

    def _index_of(self, segment: Segment) -> bytes | None:
        if segment.is_last:
            return None
        if segment.path in self._indexes:
            return self._indexes.pop(segment.path)
        return segment.hint(FileKind.TXN_INDEX)

    def _decided(self, last_of: dict[int, int], upper: int) -> bool:
        if upper <= self._complete_below:
            return True
        if all(self._markers.get(p) and self._markers[p][-1][0] > offset for p, offset in last_of.items()):
            return True
        # A snapshot where the next segment begins: nothing that was open there began below `upper`.
        assert self._next is not None
        base = self._segments[self._next].base_offset
        if base < upper:
            return False
        state = _open_at(self._segments[self._next].files, self._snapshots.get(base))
        return state is not None and all(first >= upper for first in state.values())

    def _add_index(self, data: bytes, segment: Segment) -> bool:
        try:
            entries = list(TxnIndex(data, segment.path))
        except CorruptionError:  # the headers know as well
            return False
        for entry in entries:
            insort(self._ranges.setdefault(entry.producer_id, []), (entry.first_offset, entry.last_offset))
            self._complete_below = max(self._complete_below, entry.last_stable_offset)
        return True

    def _add_headers(self, segment: Segment) -> None:
        opened = self._open_first
        if opened is None:
            opened, self._known_from = (
                _open_at(segment.files, self._snapshots.get(segment.base_offset)),
                segment.base_offset,
            )
        if opened is None:
            self._add_markers(segment)
            return
        # What is open here began at an offset that is known, or before all that is asked for.
        for offset, producer_id, ends, is_abort in _states(segment, max(self._begins_at, segment.base_offset)):
            if not ends:
                opened.setdefault(producer_id, offset)
                continue
            markers = self._markers.setdefault(producer_id, [])
            # Of what damage has hidden, no batch lies before the producer's last marker.
            first = opened.pop(producer_id, max(self._known_from, markers[-1][0] + 1 if markers else -1))
            insort(markers, (offset, False))
            if is_abort:
                insort(self._ranges.setdefault(producer_id, []), (first, offset))
        self._open_first = opened

    def _add_markers(self, segment: Segment) -> None:
        found = list(_markers_of(segment))
        if any(is_abort for _, _, is_abort in found):
            # This index is missing. An abort here must not reach back over commits that earlier indexes do not name.
            found += [marker for earlier in self._indexed for marker in _markers_of(earlier)]
            self._indexed.clear()
        for producer_id, offset, is_abort in sorted(found):
            insort(self._markers.setdefault(producer_id, []), (offset, is_abort))


def _markers_of(segment: Segment, start: int = 0) -> Iterator[tuple[int, int, bool]]:
    """Transaction markers of a segment: producer id, offset, whether it aborts."""
    for rows, window in _transactional(segment, start):
        control = rows[rows.is_control]
        yield from _marker_rows(control, window)


def _transactional(segment: Segment, start: int = 0) -> Iterator[tuple[BatchTable, Window]]:
    for window in _windows(segment, start):
        rows = window.batches
        yield rows[rows.is_transactional], window


def _windows(segment: Segment, first_offset: int = 0) -> Iterator[Window]:
    """Headers of a segment, from about an offset on."""
    opened = open_unless_removed(segment)
    if opened is None:
        return
    with opened as view:
        start = position_of_offset(segment, view, first_offset) if first_offset > segment.base_offset else 0
        # What a writer has not written whole has no say yet: its length may be there before its records are.
        found = walk(view, start=start, lowest_offset=segment.base_offset, is_last=segment.is_last, crc=segment.is_last)
        yield from (item for item in found if isinstance(item, Window))


def _states(segment: Segment, first_offset: int) -> Iterator[tuple[int, int, bool, bool]]:
    """Transactional batches from an offset on: offset, producer id, whether it is a marker, whether that aborts."""
    for rows, window in _transactional(segment, first_offset):
        rows = rows[rows.base_offset >= first_offset]
        ended = {offset: is_abort for _, offset, is_abort in _marker_rows(rows[rows.is_control], window)}
        for offset, producer_id, is_control in zip(
            rows.base_offset.tolist(), rows.producer_id.tolist(), rows.is_control.tolist(), strict=True
        ):
            if not is_control or offset in ended:
                yield offset, producer_id, is_control, ended.get(offset, False)


def _marker_rows(rows: BatchTable, window: Window) -> Iterator[tuple[int, int, bool]]:
    if not len(rows):
        return
    columns, _ = decode(rows, window.buffer, window.file_position)
    producers = columns.batches.producer_id[columns.batch].tolist()
    for i, (producer_id, offset) in enumerate(zip(producers, columns.offset.tolist(), strict=True)):
        key = columns.key(i)
        if key is not None and len(key) >= 4:
            yield producer_id, offset, int.from_bytes(key[2:4], "big", signed=True) == _ABORT


def _open_at(files: FileSystem, path: str | None) -> dict[int, int] | None:
    """Producers with an open transaction and its first offset, from a snapshot; None if there is no readable one."""
    if path is None:
        return None
    try:
        return {p.producer_id: p.first_txn_offset for p in parse_snapshot(files.read_all(path), path) if p.has_open_txn}
    except (CorruptionError, StorageError):
        return None


class _End(NamedTuple):
    end_offset: int
    open_first: dict[int, int]


def last_stable_offset(segments: list[Segment], snapshots: dict[int, str], from_segment: int = 0) -> int | None:
    """First offset of the oldest transaction that is open at the end of the log; None if none is.

    Parameters
    ----------
    segments : list of Segment
        All of the partition, by base offset.
    snapshots : dict of int to str
        Paths of producer snapshots by offset.
    from_segment : int
        Where to begin if no snapshot can be read.
    """
    return min(_end_of_log(segments, snapshots, from_segment).open_first.values(), default=None)


def _end_of_log(
    segments: list[Segment], snapshots: dict[int, str], from_segment: int, tail: Tail | None = None
) -> _End:
    """Where the log ends now, and what is open there: headers behind the newest snapshot, or behind a known tail."""
    if tail is not None and tail.last_offset >= 0:
        found = _read_on(segments, tail.last_offset, dict(tail.open_first), tail, tail.crc)
        if found is not None:
            return found
    start, open_first = (segments[from_segment].base_offset if segments else 0), dict[int, int]()
    for offset in sorted(snapshots, reverse=True):
        state = _open_at(segments[0].files, snapshots[offset]) if segments else None
        if state is not None:
            start, open_first = offset, state
            break
    found = _read_on(segments, start, open_first, tail)
    assert found is not None
    return found


def _read_on(
    segments: list[Segment], start: int, open_first: dict[int, int], tail: Tail | None, crc: int | None = None
) -> _End | None:
    """Follow open transactions from an offset on to the end; None if the batch that ends there has another CRC."""
    end, last_crc = start + (crc is not None), -1 if crc is None else crc
    is_known = crc is None
    for i, segment in enumerate(segments):
        if i + 1 < len(segments) and segments[i + 1].base_offset <= start:
            continue
        for window in _windows(segment, start):
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
    return _End(end, open_first)


def _follow(open_first: dict[int, int], rows: BatchTable, window: Window) -> None:
    """What is open after some transactional batches."""
    if not len(rows):
        return
    ended = {offset for _, offset, _ in _marker_rows(rows[rows.is_control], window)}
    for offset, producer, control in zip(
        rows.base_offset.tolist(), rows.producer_id.tolist(), rows.is_control.tolist(), strict=True
    ):
        if not control:
            open_first.setdefault(producer, offset)
        elif offset in ended:
            open_first.pop(producer, None)
