"""Several logs as one stream, by time: of each one chunk is held, whatever their size."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.reading.partition import Chunk

#: Records, and bytes of their keys and values, that are given at a time; one record may be larger.
_BLOCK_RECORDS = 4096
_BLOCK_BYTES = 1 << 20


class Block(NamedTuple):
    """Records of several logs in their common order.

    Attributes
    ----------
    pieces : list of (Chunk, int, int)
        Chunks, and which of their records: half-open.
    order : numpy.ndarray of int64
        Numbers of the records of all pieces, one piece after the other.
    """

    pieces: list[tuple[Chunk, int, int]]
    order: npt.NDArray[np.int64]


class _Head:
    """The chunk of a log that is being merged, and how far it is."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks, self._latest = chunks, -1
        self.chunk: Chunk | None = None
        self.times: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self.at = 0

    def advance(self) -> bool:
        """Take the next chunk; whether there is one."""
        self.chunk = next(self._chunks, None)
        if self.chunk is None:
            return False
        # A record that is older than one in front of it comes right behind that: offsets only rise.
        self.times = np.maximum(np.maximum.accumulate(self.chunk.columns.timestamp), self._latest)
        self._latest, self.at = int(self.times[-1]), 0
        return True


def merge_by_time(logs: Sequence[Iterator[Chunk]]) -> Iterator[Block]:
    """The records of several logs by timestamp; where they are the same, by the order of the logs.

    Parameters
    ----------
    logs : sequence of iterators of Chunk
        Their chunks hold records, and stay valid until the next one is asked for.

    Yields
    ------
    Block
        Valid until the next one is asked for. A log keeps the order of its offsets: a record counts as being as late as
        the latest one in front of it.
    """
    heads = [_Head(chunks) for chunks in logs]
    there = [number for number, head in enumerate(heads) if head.advance()]
    starts = [(int(heads[number].times[0]), number) for number in there]
    ends = [(int(heads[number].times[-1]), number) for number in there]
    heapq.heapify(starts)
    heapq.heapify(ends)
    while ends:
        # Up to where the first of the chunks ends nothing can come in between.
        time, number = bound = heapq.heappop(ends)
        found = []
        while starts and starts[0] <= bound:
            found.append(heapq.heappop(starts)[1])
        yield from _blocks(heads, sorted(found), time, number)
        for each in found:
            head = heads[each]
            if head.at < len(head.times):
                heapq.heappush(starts, (int(head.times[head.at]), each))
        head = heads[number]
        if head.advance():
            heapq.heappush(starts, (int(head.times[0]), number))
            heapq.heappush(ends, (int(head.times[-1]), number))


def _blocks(heads: list[_Head], numbers: list[int], time: int, last: int) -> Iterator[Block]:
    """What some chunks have up to a moment, and which of their records these are noted."""
    pieces, times, sizes = [], [], []
    for number in numbers:
        head = heads[number]
        assert head.chunk is not None
        stop = int(np.searchsorted(head.times, time, "right" if number <= last else "left"))
        columns = head.chunk.columns
        pieces.append((head.chunk, head.at, stop))
        times.append(head.times[head.at : stop])
        sizes.append(np.maximum(columns.key_size, 0).astype(np.int64) + np.maximum(columns.value_size, 0))
        sizes[-1] = sizes[-1][head.at : stop]
        head.at = stop
    order = np.argsort(np.concatenate(times), kind="stable")
    yield from _cut(pieces, order, np.concatenate(sizes)[order])


def _cut(
    pieces: list[tuple[Chunk, int, int]], order: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> Iterator[Block]:
    """The same records in blocks of a bounded size."""
    counts = np.array([stop - start for _, start, stop in pieces])
    begins = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(pieces)), counts)[order]
    ends, at = np.cumsum(sizes), 0
    done = np.zeros(len(pieces), np.int64)
    while at < len(order):
        by_bytes = int(np.searchsorted(ends, (int(ends[at - 1]) if at else 0) + _BLOCK_BYTES, "right"))
        stop = min(max(by_bytes, at + 1), at + _BLOCK_RECORDS, len(order))
        of = owner[at:stop]
        taken = np.bincount(of, minlength=len(pieces))
        # Each piece gives its next records: their order within it is kept.
        local = order[at:stop] - (begins + done - np.cumsum(taken) + taken)[of]
        starts = [start for _, start, _ in pieces]
        parts = [
            (chunk, starts[i] + int(done[i]), starts[i] + int(done[i] + taken[i]))
            for i, (chunk, *_) in enumerate(pieces)
            if taken[i]
        ]
        yield Block(parts, local)
        done += taken
        at = stop
