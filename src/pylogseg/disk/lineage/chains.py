"""Chains of leader epochs: of batches, and the offset at which two logs part.

An epoch that two logs of one partition have was written by one leader, so both have the same records up to
where that epoch ends in the one that has less of it (KIP-101, KIP-279). Nothing here reads a file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from pylogseg.format.files.checkpoint import EpochEntry

if TYPE_CHECKING:
    from pylogseg.format.batches import BatchTable

#: The epoch of records below the first known one: of formats before leader epochs, or of a lost checkpoint.
UNKNOWN_EPOCH = -1


class Lineage(NamedTuple):
    """The history of one log, or of a part of one, with its half-open range of offsets.

    `epochs` ascend in both fields; the first may begin before `start`, and the last may have no records yet.
    """

    epochs: tuple[EpochEntry, ...]
    start: int
    end: int

    @classmethod
    def of(cls, epochs: Iterable[tuple[int, int]], start: int, end: int) -> Lineage:
        """Return the lineage of a log from pairs of an epoch and its start, as a checkpoint or a manifest has them.

        An epoch that the next one leaves without offsets is dropped, and so are entries that begin after the end.
        """
        kept: list[EpochEntry] = []
        for epoch, first in sorted(epochs):
            while kept and kept[-1].start_offset >= first:
                kept.pop()
            if first <= end:
                kept.append(EpochEntry(epoch, first))
        return cls(tuple(kept), start, max(start, end))

    @property
    def last_epoch(self) -> int:
        """The highest epoch; -1 without epochs."""
        return self.epochs[-1].epoch if self.epochs else UNKNOWN_EPOCH

    def ends(self) -> dict[int, int]:
        """Return where each epoch ends, by epoch: where the next one begins, or the log ends."""
        ends = [entry.start_offset for entry in self.epochs[1:]] + [self.end]
        by_epoch = {entry.epoch: end for entry, end in zip(self.epochs, ends, strict=False)}
        first = self.epochs[0].start_offset if self.epochs else self.end
        if not self.epochs or first > self.start:
            by_epoch[UNKNOWN_EPOCH] = first
        return by_epoch

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that an offset was written in; -1 below the first entry."""
        place = bisect_right(self.epochs, offset, key=lambda entry: entry.start_offset)
        return self.epochs[place - 1].epoch if place else UNKNOWN_EPOCH

    def shorten(self, end: int) -> Lineage:
        """Return the lineage of the log without the offsets from `end` on."""
        if end >= self.end:
            return self
        end = max(end, self.start)
        return Lineage(tuple(entry for entry in self.epochs if entry.start_offset < end), self.start, end)


class Divergence(NamedTuple):
    """Where two logs part."""

    offset: int  #: What both have below it is the same; from it on it differs, or one of them ends.
    epoch: int | None  #: The highest one of both; None if they have none in common: nothing is known to be the same.


def divergence(a: Lineage, b: Lineage) -> Divergence:
    """Return where two logs of one partition part: at the end of the shorter one if one continues the other."""
    ends, others = a.ends(), b.ends()
    common = ends.keys() & others.keys()
    if not common:
        return Divergence(min(max(a.start, b.start), a.end, b.end), None)
    epoch = max(common)
    return Divergence(min(ends[epoch], others[epoch]), epoch)


def epoch_runs(rows: BatchTable) -> list[tuple[int, int]]:
    """Return the leader epoch of each run of batches, and the first offset; a batch without an epoch is in none."""
    rows = rows[(rows.magic >= 2) & (rows.leader_epoch >= 0)]
    changes = (rows.leader_epoch[1:] != rows.leader_epoch[:-1]).nonzero()[0] + 1
    firsts = [0, *changes.tolist()][: len(rows)]
    return list(zip(rows.leader_epoch[firsts].tolist(), rows.base_offset[firsts].tolist(), strict=True))


def add_epochs(entries: list[EpochEntry], runs: Iterable[tuple[int, int]]) -> None:
    """Add the leader epochs of runs of batches, each with its first offset, to the epochs of earlier batches.

    An epoch that is higher than a later one is none, as no checksum covers it: the later one begins there.
    """
    for epoch, first in runs:
        while entries and entries[-1].epoch > epoch:
            first = entries.pop().start_offset
        if not entries or entries[-1].epoch < epoch:
            entries.append(EpochEntry(epoch, first))
