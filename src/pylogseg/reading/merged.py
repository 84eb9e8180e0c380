"""Merge several logs into one stream by time, with one chunk of each in memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.reading.partition import Chunk

#: Most records, and bytes of keys and values, in a block; a single record may be larger.
_BLOCK_RECORDS = 4096
_BLOCK_BYTES = 1 << 20


class Block(NamedTuple):
    """Records of several logs in their common order."""

    pieces: list[tuple[Chunk, int, int]]  #: Chunks, each with a half-open range of its records.
    order: npt.NDArray[np.int64]  #: Of all records, numbered piece by piece.


class _LogHead:
    """The current chunk of a log, and the position in it."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks, self._latest = chunks, -1
        self.chunk: Chunk | None = None
        self.times: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self.at = 0

    def advance(self) -> bool:
        """Take the next chunk; return False if there is none."""
        self.chunk = next(self._chunks, None)
        if self.chunk is None:
            return False
        # A record that is older than one before it comes right after that one: offsets must ascend.
        self.times = np.maximum(np.maximum.accumulate(self.chunk.columns.timestamp), self._latest)
        self._latest, self.at = int(self.times[-1]), 0
        return True


def merge_by_time(logs: Sequence[Iterator[Chunk]]) -> Iterator[Block]:
    """Yield the records of several logs by timestamp; for equal timestamps, by the order of the logs.

    Chunks must not be empty, and stay valid until the next one is requested; so does a block. Records of a log stay in
    the order of offsets: a record counts as at least as late as all records before it.
    """
    heads = [_LogHead(chunks) for chunks in logs]
    there = [number for number, head in enumerate(heads) if head.advance()]
    starts = [(int(heads[number].times[0]), number) for number in there]
    ends = [(int(heads[number].times[-1]), number) for number in there]
    heapq.heapify(starts)
    heapq.heapify(ends)
    while ends:
        # Up to the earliest end of a chunk, all records are known.
        time, number = bound = heapq.heappop(ends)
        numbers = []
        while starts and starts[0] <= bound:
            numbers.append(heapq.heappop(starts)[1])
        yield from _blocks(heads, sorted(numbers), time, number)
        for waiting in numbers:
            head = heads[waiting]
            if head.at < len(head.times):
                heapq.heappush(starts, (int(head.times[head.at]), waiting))
        head = heads[number]
        if head.advance():
            heapq.heappush(starts, (int(head.times[0]), number))
            heapq.heappush(ends, (int(head.times[-1]), number))


def _blocks(heads: list[_LogHead], numbers: list[int], time: int, last: int) -> Iterator[Block]:
    """Yield the records of some chunks up to a time, and advance their positions."""
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
    yield from _cut_blocks(pieces, order, np.concatenate(sizes)[order])


def _cut_blocks(
    pieces: list[tuple[Chunk, int, int]], order: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> Iterator[Block]:
    """Split records into blocks of bounded size."""
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
