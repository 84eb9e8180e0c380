"""True if two replicas hold the same records where both have some: leader epochs say it, and checksums show it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.format.batches import BatchTable

#: Of each replica, so many batches are remembered: those of the lowest hashes, which are the same ones in all replicas.
_MOST = 1 << 16
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Agreement(NamedTuple):
    """The result of a comparison."""

    same: int  #: Batches that both have.
    differs_at: int | None  #: The lowest offset at which each has another batch.


class Checksums:
    """The checksums of batches by their base offsets, of a sample if there are many."""

    def __init__(self) -> None:
        self._rows = np.empty(0, [("hash", "u8"), ("offset", "i8"), ("crc", "u4")])

    def add(self, batches: BatchTable) -> None:
        """Remember good batches."""
        rows = np.empty(len(batches), self._rows.dtype)
        rows["offset"], rows["crc"] = batches.base_offset, batches.rows["crc"]
        rows["hash"] = rows["offset"].astype(np.uint64) * _FACTOR
        self._rows = np.concatenate([self._rows, rows])
        if len(self._rows) > 2 * _MOST:
            self._rows = _lowest(self._rows)

    def compared(self, other: Checksums, first: int, end: int) -> Agreement:
        """Compare the batches that both have from one offset on and below another."""
        ours, theirs = _lowest(self._rows), _lowest(other._rows)
        _, at, there = np.intersect1d(ours["offset"], theirs["offset"], return_indices=True)
        ours, theirs = ours[at], theirs[there]
        inside = (ours["offset"] >= first) & (ours["offset"] < end)
        differ = inside & (ours["crc"] != theirs["crc"])
        offsets = ours["offset"][differ]
        return Agreement(int(inside.sum() - differ.sum()), int(offsets.min()) if len(offsets) else None)


def _lowest(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return rows if len(rows) <= _MOST else rows[np.argpartition(rows["hash"], _MOST)[:_MOST]]
