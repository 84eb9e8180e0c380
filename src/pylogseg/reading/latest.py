"""Read the last record of each key, as compaction would keep it, without a change to the log.

The log is read twice. The first pass stores the last offset of each key in a map of bounded memory; the second returns
the records at these offsets, and decompresses only batches that have one. If the map gets full it continues with half
of the keys, chosen by hash; the others get another pass later.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import IO

import numpy as np
import numpy.typing as npt

from pylogseg.format.batches import BatchTable
from pylogseg.reading.partition import Chunk
from pylogseg.reading.state import ReadState
from pylogseg.walker.gaps import Gap, GapKind

#: Default memory of the map, as in Kafka's cleaner.
MEMORY_BYTES = 128 << 20
LEAST_MEMORY_BYTES = 64 << 10

_Offsets = npt.NDArray[np.int64]
_Read = Callable[[ReadState], Iterator[Chunk]]


def latest_chunks(
    read: _Read, state: ReadState, *, tombstones: bool = False, memory_bytes: int = MEMORY_BYTES
) -> Iterator[Chunk]:
    """Yield the last record of each key, in the order of offsets, never empty; records without a key are left out.

    `read` reads the log with the given state; it is called at least twice, and records appended after the first pass
    are ignored. The state's `gaps` receive also the number of records that a broker removed between the passes.
    `tombstones` includes keys whose last record has no value; a full map of `memory_bytes` costs more passes, and a
    temporary file with 8 bytes for each key.
    """
    with tempfile.TemporaryFile(prefix="pylogseg-latest-") as spill:
        last = _last_offsets(read, state, memory_bytes, spill)
        missed = len(last)
        again = replace(state, gaps=[], batches=last.touch)
        for columns, segment in read(again):
            of_key = last.among(columns.offset)
            missed -= int(of_key.sum())
            if not tombstones:
                of_key &= columns.value_size >= 0
            if of_key.any():
                yield Chunk(columns.take(of_key), segment)
        places = {(gap.path, gap.position) for gap in state.gaps}
        state.gaps += [gap for gap in again.gaps if (gap.path, gap.position) not in places]
        if missed > 0:
            state.gaps.append(_make_removed_gap(last, missed))


class _LastOffsets:
    """Sorted runs of offsets, one for each pass."""

    def __init__(self, runs: Sequence[_Offsets], path: str) -> None:
        self._runs, self.path = runs, path

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def lowest(self) -> int:
        return min(int(run[0]) for run in self._runs if len(run))

    def touch(self, batches: BatchTable) -> npt.NDArray[np.bool_]:
        """Return a mask of the batches that have, or may have, one of the offsets."""
        held = np.asarray(batches.magic < 2)
        for run in self._runs:
            held |= np.searchsorted(run, batches.base_offset) < np.searchsorted(run, batches.last_offset, "right")
        return held

    def among(self, offsets: _Offsets) -> npt.NDArray[np.bool_]:
        hits = np.zeros(len(offsets), np.bool_)
        for run in self._runs:
            if len(run):
                at = np.minimum(np.searchsorted(run, offsets), len(run) - 1)
                hits |= run[at] == offsets
        return hits


def _last_offsets(read: _Read, state: ReadState, memory_bytes: int, spill: IO[bytes]) -> _LastOffsets:
    """Read the log once, and again for each part of the keys that did not fit into the map."""
    # Imported where it is needed: all that reads records comes by here, and little of it asks for the last ones.
    from pylogseg.log.offset_map import OffsetMap

    offsets, path, end = OffsetMap(memory_bytes), "", -1
    runs: list[_Offsets] = []
    parts = [(0, 0)]
    while parts:
        part_mask, part = parts.pop()
        offsets.clear()
        offsets.narrow(part_mask, part)
        # Gaps are reported once, and records appended after the first pass are ignored by the others.
        for columns, segment in read(replace(state, gaps=[]) if runs else state):
            path = segment.path
            if not runs:
                end = max(end, int(columns.offset.max(initial=-1)))
            elif columns.offset.max(initial=-1) > end:
                columns = columns.take(columns.offset <= end)
            while (done := offsets.put(columns, 0)) < len(columns):
                columns = columns.take(slice(done, None))
                bit = part_mask + 1
                parts.append((part_mask | bit, part | bit))
                part_mask |= bit
                offsets.narrow(part_mask, part)
        last = offsets.offsets()
        runs.append(_spill_run(last, spill) if parts or runs else last)
    return _LastOffsets(runs, path)


def _spill_run(run: _Offsets, spill: IO[bytes]) -> _Offsets:
    """Move a run to a file, so that it needs memory only while it is used."""
    if not len(run):
        return run
    position = spill.seek(0, os.SEEK_END)
    spill.write(run.data)
    spill.flush()
    return np.memmap(spill, np.int64, "r", position, run.shape)


def _make_removed_gap(last: _LastOffsets, missed: int) -> Gap:
    reason = f"{missed} records that were the last of their key were deleted while the log was read: read it again"
    return Gap(last.path, GapKind.REMOVED, 0, 0, last.lowest, None, reason, False)
