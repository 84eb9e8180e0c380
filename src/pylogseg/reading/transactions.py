"""Find the transactional batches that a read_committed reader sees, from the files alone.

A batch is aborted if an abort marker of its producer ends its transaction. The aborts of a sealed segment are in its
`.txnindex`; if that is missing (because there are no aborts, or because the folder is damaged) or inconsistent, the
headers of the segment are read for its markers.

Each batch is decided by one rule, whatever range is read: evidence is collected segment by segment from its own one on,
and the first evidence decides. So a damaged folder returns the same records for any ranges. In each segment the
evidence is, in this order:

- an index entry that covers the batch: aborted;
- an index entry whose last stable offset is after the batch: committed, since all aborts below are in the indexes;
- the next marker of its producer, if headers are read: the result in that marker. Before an abort is accepted, the
  indexed segments in between are searched for a commit, which indexes do not have;
- the producer snapshot where the next segment begins, if the transaction is not open there: committed.

The last stable offset is the first offset of the oldest transaction that is open at the end of the log.

Three rules keep aborted records out while a writer is active:

1. For this reader, the log ends where it ended when open transactions were searched. Later records may belong to
   transactions that were not found.
2. The index of the active segment is not trusted: a writer appends an abort marker first, and its entry later.
   A segment with a successor has all entries.
3. Indexes are read before their segments are opened: a cleaning drops entries whose records it removes,
   so an older index may be used with a newer segment, but not the other way round.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import CorruptionError
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.txnindex import AbortedRanges, TxnIndex
from pylogseg.format.names import FileKind
from pylogseg.reading.offset_order import has_next
from pylogseg.reading.stable_offset import Tail, end_of_log, newest_snapshot
from pylogseg.reading.transaction_markers import Unopened, markers_of, open_at
from pylogseg.walker.gaps import Gap

_NEVER = 2**63


class TxnIndexView(Protocol):
    """An object that knows the outcomes of transactions; see `Transactions.mask_committed`."""

    def mask_committed(self, rows: BatchTable, segment: Segment) -> tuple[npt.NDArray[np.bool_], int | None]: ...


class _Indexed(NamedTuple):
    """The aborted transactions in the index of a segment."""

    ranges: AbortedRanges
    decided_below: int  #: No transaction below this offset was open after the segment's last abort.


#: Markers of a segment by producer: offset, and whether it aborts.
_Markers = dict[int, list[tuple[int, bool]]]


class Transactions:
    """Outcomes of the transactions of one partition; queried window by window, in the order of the log.

    For a reader from the start of the log the only cost before the first transactional batch is to read one snapshot.
    With `ends_stable`, the reader ends before any open transaction, so these need not be searched; `tail` is reused by
    repeated readings. All segments of the partition are given, not opened yet. With `skips`, `unopened` has indexes
    that could not be opened, so they prove nothing; `damage` lies behind the last stable offset: the open transaction
    may end in it.
    """

    def __init__(
        self,
        segments: list[Segment],
        snapshots: Mapping[int, str],
        first_offset: int = 0,
        *,
        ends_stable: bool = False,
        tail: Tail | None = None,
        skips: bool = False,
    ) -> None:
        self._segments, self._snapshots, self._tail = segments, snapshots, tail
        self.unopened: Unopened | None = {} if skips else None
        self.damage: list[Gap] = []
        self._bases = [segment.base_offset for segment in segments]
        # A reader in the middle of the log may begin after the first batch of an open transaction.
        self._starts_inside = bool(segments) and first_offset > segments[0].base_offset
        self._is_first, self._knows_end = True, ends_stable
        self._stable: int | None = None
        self._aborted: dict[int, _Indexed | None] = {}  # these three by segment number, as far as needed
        self._markers: dict[int, _Markers] = {}
        self._open: dict[int, dict[int, int] | None] = {}
        # Other file systems: nothing is replaced while it is read, and each access costs a request.
        self._indexes = {
            segment.path: segment.hint(FileKind.TXN_INDEX)
            for segment in segments[max(0, bisect_right(self._bases, first_offset) - 1) :]
            if isinstance(segment.files, LocalFiles) and not segment.is_last
        }

    def mask_committed(self, rows: BatchTable, segment: Segment) -> tuple[npt.NDArray[np.bool_], int | None]:
        """Return a mask of batches that are not part of an aborted transaction, and the last stable offset.

        Markers are kept; the caller leaves out control records. The offset, the reader's end, is None before the first
        transactional batch.
        """
        if not self._knows_end and (rows.is_transactional.any() or (self._is_first and self._may_begin_after_open())):
            damage: list[Gap] = []
            end = end_of_log(self._segments, self._snapshots, self._tail, self.unopened, damage)
            self._knows_end, self._stable = True, min([end.offset, *end.open_first.values()])
            self.damage += [gap for gap in damage if gap.first_offset >= self._stable]
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

    def _may_begin_after_open(self) -> bool:
        """Check whether the first batch of an open transaction may be before the reader's first offset."""
        if self._starts_inside:
            return True
        newest = newest_snapshot(self._segments, self._snapshots)
        return newest is not None and bool(newest.open_first)

    def _forget(self, number: int) -> None:
        """Drop the data of the segments before one."""
        for by_segment in (self._aborted, self._markers, self._open):
            for old in [other for other in by_segment if other < number]:
                del by_segment[old]

    def _is_aborted(self, producer_id: int, offset: int, number: int) -> bool:
        indexed: list[int] = []
        for at in range(number, len(self._segments)):
            aborted = self._aborted_in(at)
            if aborted is None:
                is_abort = self._next_marker(producer_id, offset, at)
                if is_abort:
                    earlier = (self._next_marker(producer_id, offset, other) for other in indexed)
                    return next((is_abort for is_abort in earlier if is_abort is not None), True)
                if is_abort is not None:
                    return False
            else:
                if aborted.ranges.covers(producer_id, offset):
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
        """Return whether the next marker of a producer in a segment aborts; None if there is none."""
        by_producer = self._markers.get(number)
        if by_producer is None:
            by_producer = {}
            # All later queries for this segment are about offsets from here on.
            for producer, position, is_abort in markers_of(self._segments[number], offset, unopened=self.unopened):
                by_producer.setdefault(producer, []).append((position, is_abort))
            self._markers[number] = by_producer
        markers = by_producer.get(producer_id, ())
        at = bisect_right(markers, (offset, True))
        return markers[at][1] if at < len(markers) else None

    def _aborted_in(self, number: int) -> _Indexed | None:
        """Return the aborts in the index of a segment; None if its headers must be read."""
        if number not in self._aborted:
            segment = self._segments[number]
            data = None
            if not segment.is_last:
                is_read = segment.path in self._indexes
                data = self._indexes.pop(segment.path) if is_read else segment.hint(FileKind.TXN_INDEX)
            self._aborted[number] = _parse(data, segment) if data else None
        return self._aborted[number]

    def _open_where(self, number: int) -> dict[int, int] | None:
        """Return the open transactions at the start of a segment, by the snapshot there; None without one."""
        if number not in self._open:
            segment = self._segments[number]
            self._open[number] = open_at(segment.files, self._snapshots.get(segment.base_offset))
        return self._open[number]


def _parse(data: bytes, segment: Segment) -> _Indexed | None:
    """Parse the index of a segment; None if it is empty or inconsistent, so that the headers are read."""
    try:
        index = TxnIndex(data, segment.path)
    except CorruptionError:
        return None
    entries = index.entries
    if not len(entries) or index.odd_bytes:
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
    return _Indexed(AbortedRanges(index), int(stable[-1]))
