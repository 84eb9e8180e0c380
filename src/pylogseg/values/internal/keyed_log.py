"""Topics of coordinators as the coordinator loads them: the last record of each key that counts.

A coordinator reads its partition to the log's end. A record of a transaction counts when the transaction was committed;
until then it is pending. Since the last record of a key decides, and a tombstone takes away what is pending too, the
state is the last record of each key among those outside of transactions and in committed ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Disk, Partition
from pylogseg.format.batches import BatchTable, Mask
from pylogseg.format.control import ControlKind
from pylogseg.format.messages.control import control_kinds
from pylogseg.reading.latest import latest_chunks
from pylogseg.reading.logs import LogFiles, log_of
from pylogseg.reading.partition import Chunk
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import LENIENT, ReadState
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.notes import Notes


def newest_replicas(disk: Disk, topic: str, notes: Notes) -> list[LogFiles]:
    """Return the logs of a topic; of several copies of a partition, the longest."""
    by_number: dict[int, list[Partition]] = {}
    for partition in disk.partitions:
        if partition.topic == topic and not partition.state and partition.error is None:
            by_number.setdefault(partition.partition, []).append(partition)
        elif partition.topic == topic and partition.error is not None:
            notes.add_damage(f"{partition.path}: {partition.error}")
    newest = []
    for number in sorted(by_number):
        copies = [log_of(copy) for copy in by_number[number]]
        best = max(copies, key=lambda log: log.log_end_offset) if len(copies) > 1 else copies[0]
        if len(copies) > 1:
            notes.append(f"{best.name} lies in {len(copies)} folders: {best.path} is read, which goes furthest")
        newest.append(best)
    return newest


@dataclass
class KeyedLog:
    """One partition of a coordinator's topic up to a cut-off."""

    log: LogFiles
    cut_off: CutOff
    notes: Notes
    _markers: dict[int, tuple[npt.NDArray[np.int64], Mask]] | None = field(default=None, repr=False)
    #: True if a batch of an open transaction was met; None until the batches were looked at.
    _has_open: bool | None = field(default=None, repr=False)

    def read(self, state: ReadState) -> Iterator[Chunk]:
        """Yield the records that a state wants, up to the cut-off."""
        selection = Selection(until=self.cut_off.until_ms)
        return selection.chunks(self.log, self.log.log_start_offset, self.cut_off.end(self.log.name), state)

    def last_of_each_key(self, *, tombstones: bool = False) -> Iterator[Chunk]:
        """Yield the last record of each key that counts; a tombstone only if that is wanted."""
        self._has_open = self._has_open or False
        state = LENIENT.start(batches=self._counts)
        yield from latest_chunks(self.read, state, tombstones=tombstones)
        self.note_gaps(state)

    def note_gaps(self, state: ReadState) -> None:
        gaps = [gap for gap in state.gaps if gap.is_damage]
        self.notes.add_damage(*(f"{gap.path}, position {gap.position}: {gap.reason}" for gap in gaps))

    def pending(self) -> Iterator[Chunk]:
        """Yield the records of transactions that have no end, in the order of offsets."""
        if self._has_open is not False:
            yield from self.read(LENIENT.start(batches=self._is_open))

    def _counts(self, rows: BatchTable) -> Mask:
        return self._outcome(rows, False)

    def _is_open(self, rows: BatchTable) -> Mask:
        return self._outcome(rows, True)

    def _outcome(self, rows: BatchTable, is_open: bool) -> Mask:
        """Return a mask of the batches that count or, if `is_open`, of batches in open transactions."""
        transactional = np.asarray(rows.is_transactional & ~rows.is_control)
        mask: Mask = np.zeros(len(rows), np.bool_) if is_open else np.asarray(~rows.is_transactional & ~rows.is_control)
        if not transactional.any():
            return mask
        producers, bases = rows.producer_id, rows.base_offset
        for producer in np.unique(producers[transactional]).tolist():
            mine = transactional & (producers == producer)
            offsets, commits = self.markers().get(producer, (np.empty(0, np.int64), np.empty(0, np.bool_)))
            at = np.searchsorted(offsets, bases[mine])
            decided = at < len(offsets)
            self._has_open = self._has_open or not decided.all()
            if is_open:
                mask[mine] = ~decided
            elif len(offsets):
                mask[mine] = decided & commits[np.minimum(at, len(offsets) - 1)]
        return mask

    def markers(self) -> dict[int, tuple[npt.NDArray[np.int64], Mask]]:
        """Offsets of the markers of each producer, in order, and whether they commit."""
        if self._markers is None:
            producers, offsets, commits = [], [], []
            for columns, _ in self.read(
                replace(LENIENT, control=True).start(batches=lambda rows: np.asarray(rows.is_control))
            ):
                kinds = control_kinds(columns)
                ends = (kinds == ControlKind.ABORT) | (kinds == ControlKind.COMMIT)
                producers.append(columns.batches.producer_id[columns.batch][ends])
                offsets.append(columns.offset[ends])
                commits.append(kinds[ends] == ControlKind.COMMIT)
            self._markers = _by_producer(producers, offsets, commits)
        return self._markers


def _by_producer(producers: list[Any], offsets: list[Any], commits: list[Any]) -> dict[int, tuple[Any, Mask]]:
    if not producers:
        return {}
    who, where, what = map(np.concatenate, (producers, offsets, commits))
    order = np.lexsort((where, who))
    who, where, what = who[order], where[order], what[order]
    starts = np.flatnonzero(np.diff(who, prepend=who[:1] - 1)).tolist()
    ends = [*starts[1:], len(who)]
    return {int(who[start]): (where[start:end], what[start:end]) for start, end in zip(starts, ends, strict=True)}
