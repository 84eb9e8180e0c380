"""Batches cut into pieces that a log takes in one append each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pylogseg.format.batches import BatchTable

#: The offsets of a segment.
_MAX_RELATIVE = 2**31 - 1


def cut_pieces(rows: BatchTable, most_bytes: int) -> Iterator[BatchTable]:
    """Yield batches that lie back to back, of so many bytes at most, and that fit into one segment by their offsets.

    A piece ends with a marker, so that the log knows which transactions were open then. A larger batch is a piece.
    """
    ends, lasts = rows.position + rows.size, rows.last_offset
    leaps = (rows.position[1:] != ends[:-1]) | rows.is_control[:-1]
    breaks, first = np.append(np.flatnonzero(leaps) + 1, len(rows)), 0
    while first < len(rows):
        by_size = int(np.searchsorted(ends, int(rows.position[first]) + most_bytes, "right"))
        by_offset = int(np.searchsorted(lasts, int(rows.base_offset[first]) + _MAX_RELATIVE, "right"))
        by_break = int(breaks[np.searchsorted(breaks, first, "right")])
        stop = max(first + 1, min(by_size, by_offset, by_break))
        yield rows[first:stop]
        first = stop


def bytes_of(piece: BatchTable, buffer: Any, position: int) -> memoryview:
    """Return the bytes of a piece; its buffer begins at a position of the file."""
    first, last = int(piece.position[0]), int(piece.position[-1] + piece.size[-1])
    return memoryview(buffer)[first - position : last - position]
