"""Which transactional batches a read_committed reader sees, from the files alone.

A batch is aborted if an abort marker of its producer ends its transaction. The markers of a segment are in its
`.txnindex`; where that is missing (a segment without aborts has none, and neither has a damaged folder) the headers of
the segment are read for them. Looking ahead stops as soon as nothing later can matter. The end of what is stable is
that of the oldest transaction still open at the end of the log: the last producer snapshot tells, and the headers
behind it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pylogseg.disk import Segment
from pylogseg.env.files import FileSystem
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.files.snapshot import parse_snapshot
from pylogseg.files.txnindex import TxnIndex
from pylogseg.format.batches import BatchTable
from pylogseg.format.names import FileKind
from pylogseg.format.records import decode
from pylogseg.reading.removal import open_unless_removed
from pylogseg.reading.windows import Window, walk

_ABORT = 0


class Outcomes(Protocol):
    """What became of transactions.

    ``committed(rows) -> (kept, last_stable_offset)``
        See `Transactions.committed`.
    """

    def committed(self, rows: BatchTable) -> tuple[npt.NDArray[np.bool_], int | None]: ...


class Transactions:
    """What became of the transactions of one partition; asked window by window, in the order of the log.

    A reader from the start of the log costs nothing before it meets the first transactional batch.

    Parameters
    ----------
    segments : list of Segment
        All of the partition, by base offset.
    snapshots : dict of int to str
        Paths of producer snapshots by offset.
    first_offset : int
        Where the reader begins.
    ends_stable : bool
        Whether the reader is known to end before any open transaction: then none is looked for.
    """

    def __init__(
        self, segments: list[Segment], snapshots: dict[int, str], first_offset: int = 0, *, ends_stable: bool = False
    ) -> None:
        self._segments, self._snapshots, self._ends_stable = segments, snapshots, ends_stable
        # A reader that begins in the middle of the log may begin behind the first batch of an open transaction.
        self._starts_inside = bool(segments) and first_offset > segments[0].base_offset
        self._next: int | None = None  # segment up to which outcomes are known
        self._stable: int | None = None
        self._ranges: dict[int, list[tuple[int, int]]] = {}  # producer -> aborted, both ends inclusive, from indexes
        self._markers: dict[int, list[tuple[int, bool]]] = {}  # producer -> (offset, is abort), from headers
        self._indexed: list[Segment] = []  # of which only the index was looked at
        self._complete_below = -1  # no abort index entry that is still to come touches offsets below this

    def committed(self, rows: BatchTable) -> tuple[npt.NDArray[np.bool_], int | None]:
        """Which batches are not part of an aborted transaction, and the last stable offset.

        Returns
        -------
        kept : numpy.ndarray of bool
            Markers are kept: whoever wants no control records leaves them out by themselves.
        last_stable_offset : int or None
            None as long as no transactional batch was met, or if none is open.
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
        if not self._ends_stable:
            self._stable = last_stable_offset(self._segments, self._snapshots, self._next)

    def _is_aborted(self, producer_id: int, offset: int) -> bool:
        if any(first <= offset <= last for first, last in self._ranges.get(producer_id, ())):
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
            data = segment.companion(FileKind.TXN_INDEX)
            if data and self._add_index(data, segment):
                self._indexed.append(segment)
            else:
                self._add_headers(segment)

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
            self._ranges.setdefault(entry.producer_id, []).append((entry.first_offset, entry.last_offset))
            self._complete_below = max(self._complete_below, entry.last_stable_offset)
        return True

    def _add_headers(self, segment: Segment) -> None:
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
    opened = open_unless_removed(segment)
    if opened is None:
        return
    with opened as view:
        for item in walk(view, start=start, lowest_offset=segment.base_offset, crc=False):
            if isinstance(item, Window):
                rows = item.batches
                yield rows[rows.is_transactional], item


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
    start, open_first = (segments[from_segment].base_offset if segments else 0), dict[int, int]()
    for offset in sorted(snapshots, reverse=True):
        state = _open_at(segments[0].files, snapshots[offset]) if segments else None
        if state is not None:
            start, open_first = offset, state
            break
    for i, segment in enumerate(segments):
        if i + 1 < len(segments) and segments[i + 1].base_offset <= start:
            continue
        for rows, window in _transactional(segment):
            ended = {offset: producer for producer, offset, _ in _marker_rows(rows[rows.is_control], window)}
            for offset, producer, control in zip(
                rows.base_offset.tolist(), rows.producer_id.tolist(), rows.is_control.tolist(), strict=True
            ):
                if offset < start:
                    continue
                if not control:
                    open_first.setdefault(producer, offset)
                elif offset in ended:
                    open_first.pop(producer, None)
    return min(open_first.values(), default=None)
