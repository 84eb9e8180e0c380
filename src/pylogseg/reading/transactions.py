"""Which transactional batches a read_committed reader sees, from the files alone.

A batch is aborted if an abort marker of its producer ends its transaction. The aborts of a sealed segment are in its
`.txnindex`; where that is missing (a segment without aborts has none, and neither has a damaged folder) or cannot be
right, the headers of the segment are read for its markers.

One rule for each batch, whatever is asked for besides it: evidence is looked at segment after segment, from its own one
on, and the first that decides has the last word. So a damaged folder gives the same records in whatever ranges it is
read. In each segment that is, in this order:

- an index entry that covers the batch: aborted;
- an index entry whose last stable offset lies behind it: committed, since all that was aborted below is in the indexes;
- the next marker of its producer, where headers are read: what that says. Before an abort is believed, the indexed
  segments passed by are looked through for a commit, which indexes do not name;
- the producer snapshot where the next segment begins, if the transaction is not open there: committed.

The end of what is stable is that of the oldest transaction still open at the end of the log.

A writer may be at work, and three rules keep its aborted records out, whatever it does between two steps of a reader:

1. The log ends, for this reader, where it ended when open transactions were looked for. What came later, in a segment
   that is opened later too, belongs to transactions that nobody has looked for.
2. The index of the active segment is not believed: a writer appends an abort marker first and its entry then.
   A segment that another one follows has all of its entries.
3. Indexes are read before the segments that they tell of are opened: a cleaning drops entries whose records it removes,
   so an older index goes with a newer segment, and never the other way round.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pylogseg.catalog.disk import Segment
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import CorruptionError
from pylogseg.files.txnindex import TxnIndex
from pylogseg.format.batches import BatchTable
from pylogseg.format.names import FileKind
from pylogseg.reading.offset_order import has_next
from pylogseg.reading.stable_offset import Tail, end_of_log, newest_snapshot
from pylogseg.reading.transaction_markers import markers_of, open_at

_NEVER = 2**63


class TxnIndexView(Protocol):
    """What became of transactions.

    ``committed(rows, segment) -> (kept, last_stable_offset)``
        See `Transactions.committed`.
    """

    def committed(self, rows: BatchTable, segment: Segment) -> tuple[npt.NDArray[np.bool_], int | None]: ...


class _Aborted(NamedTuple):
    """What the index of a segment tells.

    Attributes
    ----------
    ranges : dict of int to list
        Aborted offsets by producer, both ends inclusive, in order.
    decided_below : int
        No transaction below this offset was open after the segment's last abort.
    """

    ranges: dict[int, list[tuple[int, int]]]
    decided_below: int

    def covers(self, producer_id: int, offset: int) -> bool:
        """Whether a batch is in an aborted transaction."""
        ranges = self.ranges.get(producer_id, ())
        at = bisect_right(ranges, (offset, _NEVER)) - 1
        return at >= 0 and offset <= ranges[at][1]


#: Markers of a segment by producer: offset, and whether it aborts.
_Markers = dict[int, list[tuple[int, bool]]]


class Transactions:
    """What became of the transactions of one partition; asked window by window, in the order of the log.

    A reader from the start of the log costs nothing but a look at a snapshot before it meets the first transactional
    batch.

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
        self._segments, self._snapshots, self._tail = segments, snapshots, tail
        self._bases = [segment.base_offset for segment in segments]
        # A reader that begins in the middle of the log may begin behind the first batch of an open transaction.
        self._starts_inside = bool(segments) and first_offset > segments[0].base_offset
        self._is_first, self._knows_end = True, ends_stable
        self._stable: int | None = None
        self._aborted: dict[int, _Aborted | None] = {}  # these three by number of the segment, as far as was asked
        self._markers: dict[int, _Markers] = {}
        self._open: dict[int, dict[int, int] | None] = {}
        # Elsewhere nothing is replaced while it is read, and each look costs a request.
        self._indexes = {
            segment.path: segment.hint(FileKind.TXN_INDEX)
            for segment in segments[max(0, bisect_right(self._bases, first_offset) - 1) :]
            if isinstance(segment.files, LocalFiles) and not segment.is_last
        }

    def committed(self, rows: BatchTable, segment: Segment) -> tuple[npt.NDArray[np.bool_], int | None]:
        """Which batches are not part of an aborted transaction, and the last stable offset.

        Parameters
        ----------
        rows : BatchTable
            In the order of the log; at least one.
        segment : Segment
            That they are read from.

        Returns
        -------
        kept : numpy.ndarray of bool
            Markers are kept: whoever wants no control records leaves them out by themselves.
        last_stable_offset : int or None
            Where the reader ends; None as long as no transactional batch was met.
        """
        if not self._knows_end and (rows.is_transactional.any() or (self._is_first and self._may_begin_behind_open())):
            end = end_of_log(self._segments, self._snapshots, self._tail)
            self._knows_end, self._stable = True, min([end.offset, *end.open_first.values()])
        self._is_first = False
        kept = np.ones(len(rows), np.bool_)
        data = np.flatnonzero(rows.is_transactional & ~rows.is_control)
        if len(data):
            number = max(0, bisect_right(self._bases, segment.base_offset) - 1)
            self._forget(number)
            kept[data] = [
                not self._is_aborted(producer_id, offset, number)
                for producer_id, offset in zip(
                    rows.producer_id[data].tolist(), rows.base_offset[data].tolist(), strict=True
                )
            ]
        return kept, self._stable

    def _may_begin_behind_open(self) -> bool:
        """Whether the first batch of an open transaction may be none that the reader meets."""
        if self._starts_inside:
            return True
        newest = newest_snapshot(self._segments, self._snapshots)
        return newest is not None and bool(newest.open_first)

    def _forget(self, number: int) -> None:
        """Drop what is known of the segments before one."""
        for known in (self._aborted, self._markers, self._open):
            for old in [other for other in known if other < number]:
                del known[old]

    def _is_aborted(self, producer_id: int, offset: int, number: int) -> bool:
        indexed: list[int] = []
        for at in range(number, len(self._segments)):
            aborted = self._aborted_in(at)
            if aborted is None:
                is_abort = self._next_marker(producer_id, offset, at)
                if is_abort:
                    earlier = (self._next_marker(producer_id, offset, other) for other in indexed)
                    return next((found for found in earlier if found is not None), True)
                if is_abort is not None:
                    return False
            else:
                if aborted.covers(producer_id, offset):
                    return True
                if offset < aborted.decided_below:
                    return False
                indexed.append(at)
            if at + 1 < len(self._bases) and offset < self._bases[at + 1]:
                opened = self._open_where(at + 1)
                if opened is not None and offset < opened.get(producer_id, _NEVER):
                    return False
        return False

    def _next_marker(self, producer_id: int, offset: int, number: int) -> bool | None:
        """Whether the next marker of a producer in a segment aborts; None if there is none."""
        known = self._markers.get(number)
        if known is None:
            known = {}
            # All that is asked from now on lies at or behind this offset, if it lies in this segment.
            for producer, position, is_abort in markers_of(self._segments[number], offset):
                known.setdefault(producer, []).append((position, is_abort))
            self._markers[number] = known
        markers = known.get(producer_id, ())
        at = bisect_right(markers, (offset, True))
        return markers[at][1] if at < len(markers) else None

    def _aborted_in(self, number: int) -> _Aborted | None:
        """What the index of a segment tells; None if its headers are to be asked."""
        if number not in self._aborted:
            segment = self._segments[number]
            data = None
            if not segment.is_last:
                is_read = segment.path in self._indexes
                data = self._indexes.pop(segment.path) if is_read else segment.hint(FileKind.TXN_INDEX)
            self._aborted[number] = _parse(data, segment) if data else None
        return self._aborted[number]

    def _open_where(self, number: int) -> dict[int, int] | None:
        """What was open where a segment begins, by the snapshot there; None without one."""
        if number not in self._open:
            segment = self._segments[number]
            self._open[number] = open_at(segment.files, self._snapshots.get(segment.base_offset))
        return self._open[number]


def _parse(data: bytes, segment: Segment) -> _Aborted | None:
    """The index of a segment; None if it is empty or cannot be right: the headers know as well."""
    try:
        index = TxnIndex(data, segment.path)
    except CorruptionError:
        return None
    entries = index.entries
    if not len(entries):
        return None
    first, last = entries["first_offset"].astype(np.int64), entries["last_offset"].astype(np.int64)
    stable = entries["last_stable_offset"].astype(np.int64)
    ends = int(last[-1])
    is_right = (
        bool((first >= 0).all() and (first <= last).all() and (stable >= 0).all() and (stable - 1 <= last).all())
        and bool((np.diff(last) > 0).all() and (np.diff(stable) >= 0).all() and last[0] >= segment.base_offset)
        and (segment.next_base is None or ends < segment.next_base or not has_next(segment))
    )
    if not is_right:
        return None
    ranges: dict[int, list[tuple[int, int]]] = {}
    for producer_id, begin, end in zip(entries["producer_id"].tolist(), first.tolist(), last.tolist(), strict=True):
        ranges.setdefault(producer_id, []).append((begin, end))
    return _Aborted({producer_id: sorted(of_one) for producer_id, of_one in ranges.items()}, int(stable[-1]))
