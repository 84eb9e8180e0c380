"""Header fields of the batches of a segment."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pylogseg.errors import CorruptionError
from pylogseg.format.batches import BatchTable
from pylogseg.format.records import decode

#: The least that a disk writes atomically.
SECTOR_BYTES = 512
#: The base offset, and the leading zeros of the length of a small batch.
_MOST_LOST_BYTES = 11


class BatchLocation(NamedTuple):
    """Base offset, position and size of a batch."""

    offset: int
    position: int
    size: int


def batch_facts(rows: BatchTable) -> list[tuple[int, int, int]]:
    """Greatest timestamp, last offset and size of each batch."""
    return list(zip(rows.max_timestamp.tolist(), rows.last_offset.tolist(), rows.size.tolist(), strict=True))


def first_offset(batches: BatchTable, view: memoryview, path: str, start: int = 0) -> int:
    """Return the offset of the first record of one legacy batch of a file, which may have to be decompressed for it."""
    columns, damage = decode(batches, view, start)
    if damage or not len(columns):
        why = damage[0].reason if damage else "no record"
        raise CorruptionError(path, int(batches.position[0]), f"the batch cannot be decoded: {why}")
    return int(columns.offset[0])


def torn_offsets(rows: BatchTable, before: tuple[int, int]) -> Any:
    """Return a mask of the batches whose base offset lost its first bytes in a torn write.

    No checksum covers the base offset, so it is compared with the expected one: the offset after the last batch. A disk
    loses whole sectors, so the zeros have to end with a sector, before the length and what the checksum covers.
    `before` is the last offset and checksum of the batch before; one below the segment's first, and -1, without one.
    """
    if not len(rows):
        return np.zeros(0, bool)
    expected = np.concatenate(([before[0]], rows.last_offset[:-1])) + 1
    crc_before = np.concatenate(([before[1]], rows.crc[:-1]))
    lost = -rows.position % SECTOR_BYTES
    kept_bits = 8 * np.clip(8 - lost, 0, 7)
    what_is_left = expected & ((np.int64(1) << kept_bits) - 1)
    torn = (lost > 0) & (lost <= _MOST_LOST_BYTES) & (rows.base_offset == what_is_left) & (what_is_left < expected)
    return torn & (rows.crc != crc_before)  # a duplicate batch is not torn
