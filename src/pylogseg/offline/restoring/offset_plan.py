"""The plan of a log that is produced again at its own offsets: the content of each offset, from 0 to the end.

A leader gives offsets one after the other. Records take theirs. Aborted records go into a transaction
of ours, and its marker takes the offset of the old marker. A hole (a marker of a committed transaction, a record that
compaction removed) is taken by the marker of an empty transaction. Offsets below the first record are burned: records
take them, and are deleted. Committed records need no transaction: nothing hides them, and nothing has to.

All of it follows from the headers of the batches, and the offsets of records where a batch has holes; nothing is read
or written here.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.format.batches import BatchTable
from pylogseg.format.control import ControlKind
from pylogseg.reading.transaction_markers import MarkerRow

#: Half-open ranges of offsets.
OffsetRuns = Sequence[tuple[int, int]]


class AbortedRange(NamedTuple):
    """The records of one producer, from an offset to a marker that aborts them."""

    first_offset: int
    marker_offset: int


class OffsetStep(NamedTuple):
    """A half-open range of offsets, and the kind of batch or marker that takes them."""

    kind: Literal["burn", "records", "holes", "abort"]
    first_offset: int
    next_offset: int
    slot: int = -1  #: Of the transaction that the records are in, or that is aborted; -1 none.
    row: int = -1  #: Of the records' batch in its table.


@dataclass
class Outcomes:
    """The aborted ranges of a log and its open transactions, as its markers say."""

    aborted: dict[int, list[AbortedRange]] = field(default_factory=dict)  #: By producer, in the order of the log.
    open_first: dict[int, int] = field(default_factory=dict)  #: By producer.

    def add(self, rows: BatchTable, markers: Iterable[MarkerRow]) -> None:
        """Add batches of the log, which begin where the last ones ended."""
        ends = {marker.offset: marker for marker in markers}
        some = rows[rows.is_transactional & (rows.is_control | (rows.count > 0))]
        columns = (some.base_offset, some.producer_id, some.is_control)
        for offset, producer, is_control in zip(*(column.tolist() for column in columns), strict=True):
            if not is_control:
                self.open_first.setdefault(producer, offset)
            elif (marker := ends.get(offset)) is not None:
                first = self.open_first.pop(producer, None)
                if first is not None and marker.kind is ControlKind.ABORT:
                    self.aborted.setdefault(producer, []).append(AbortedRange(first, offset))

    def mask_committed(self, rows: BatchTable) -> npt.NDArray[np.bool_]:
        """Return a mask of batches whose records were not aborted."""
        kept = np.ones(len(rows), np.bool_)
        for row in np.flatnonzero(rows.is_transactional & ~rows.is_control).tolist():
            ranges, offset = self.aborted.get(int(rows.producer_id[row]), ()), int(rows.base_offset[row])
            at = bisect_right(ranges, offset, key=lambda aborted: aborted.first_offset) - 1
            kept[row] = at < 0 or offset > ranges[at].marker_offset
        return kept

    def abort_open(self, end: int) -> int:
        """Abort open transactions, in the order of the log, with markers behind its end; return the new end."""
        for producer, first in sorted(self.open_first.items(), key=lambda item: item[1]):
            self.aborted.setdefault(producer, []).append(AbortedRange(first, end))
            end += 1
        self.open_first.clear()
        return end


def consecutive(offsets: Sequence[int] | npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return ascending offsets as ranges."""
    some = np.asarray(offsets, np.int64)
    cuts = np.flatnonzero(np.diff(some) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(some, cuts) if len(run)]


class OffsetPlan:
    """The steps of one log, asked for batch by batch in the order of offsets; the same log always has the same ones.

    Records below `log_start` are left out, but for those of a batch that begins below it.
    """

    def __init__(self, outcomes: Outcomes, log_start: int, log_end: int) -> None:
        self.next = 0  #: The offset up to which all is planned.
        self._start, self._end = log_start, log_end
        self._ranges = {producer: deque(ranges) for producer, ranges in outcomes.aborted.items()}
        self._slots: dict[int, int] = {}  #: Of producers whose records are being aborted.
        self._free: list[int] = []
        self.slots = 0  #: Slots that were needed at the same time.

    def steps(self, rows: BatchTable, runs_of: Callable[[int], OffsetRuns]) -> Iterator[OffsetStep]:
        """Yield the steps of batches; `runs_of` returns the offsets of the records in a row's batch."""
        taken = (rows.last_offset >= self._start) & (rows.base_offset < self._end) & (rows.count != 0)
        columns = (rows.base_offset, rows.producer_id, rows.is_control, rows.is_transactional)
        values = [column[taken].tolist() for column in columns]
        for row, base, producer, is_control, is_transactional in zip(
            np.flatnonzero(taken).tolist(), *values, strict=True
        ):
            if is_control:
                yield from self._marker(producer, base)
                continue
            slot = self._slot_of(producer, base) if is_transactional else -1
            for first, following in runs_of(row):
                if following > self._start:
                    yield from self._up_to(first)
                    yield OffsetStep("records", first, following, slot, row)
                    self.next = following

    def last_steps(self) -> Iterator[OffsetStep]:
        """Yield the steps behind the last batch: up to the end, and the markers that are to lie behind it."""
        yield from self._up_to(min([self._end, *(marker for _, marker in self._behind())]))
        for producer, marker in self._behind():
            yield from self._marker(producer, marker)
        yield from self._up_to(self._end)

    def _behind(self) -> list[tuple[int, int]]:
        markers = [(producer, self._ranges[producer][0].marker_offset) for producer in self._slots]
        return sorted(markers, key=lambda item: item[1])

    def _up_to(self, offset: int) -> Iterator[OffsetStep]:
        """Yield the step for the offsets that nothing takes."""
        if offset > self.next:
            # Below the first record nothing can be seen, also if there is none.
            yield OffsetStep("burn" if not self.next else "holes", self.next, offset)
            self.next = offset

    def _marker(self, producer: int, offset: int) -> Iterator[OffsetStep]:
        """Yield the end of a transaction of ours; other markers are holes."""
        ranges = self._ranges.get(producer)
        if not ranges or ranges[0].marker_offset != offset:
            return
        ranges.popleft()
        slot = self._slots.pop(producer, None)
        if slot is not None:
            yield from self._up_to(offset)
            yield OffsetStep("abort", offset, offset + 1, slot)
            self.next = offset + 1
            heapq.heappush(self._free, slot)

    def _slot_of(self, producer: int, offset: int) -> int:
        """Return the slot for records at an offset; -1 if they were not aborted."""
        ranges = self._ranges.get(producer)
        if not ranges or offset < ranges[0].first_offset:
            return -1
        if producer not in self._slots:
            if not self._free:
                heapq.heappush(self._free, self.slots)
                self.slots += 1
            self._slots[producer] = heapq.heappop(self._free)
        return self._slots[producer]
