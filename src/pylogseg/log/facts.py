"""What batches of a segment say of themselves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pylogseg.errors import RequestError
from pylogseg.format.batches import BatchTable
from pylogseg.format.records import decode


class Place(NamedTuple):
    """Where a batch lies: its base offset, position and size."""

    offset: int
    position: int
    size: int


def batch_facts(rows: BatchTable) -> list[tuple[int, int, int]]:
    """Greatest timestamp, last offset and size of each batch."""
    return list(zip(rows.max_timestamp.tolist(), rows.last_offset.tolist(), rows.size.tolist(), strict=True))


def first_offset(batches: BatchTable, view: memoryview) -> int:
    """Offset of the first record of one legacy batch, which may have to be decompressed for it."""
    columns, damage = decode(batches, view)
    if damage or not len(columns):
        raise RequestError(f"a batch at position {int(batches.position[0])} cannot be opened: {damage}")
    return int(columns.offset[0])


def torn_offsets(rows: BatchTable, before: tuple[int, int, int]) -> Any:
    """Which batches look as if a torn write had lost the first bytes of their base offset.

    No check sum covers it, so only what should stand there tells: the offset behind the last batch, less some leading
    bytes. A batch that is there twice is none of these, nor one behind a leap: there the leap may be the damage.

    Parameters
    ----------
    rows : BatchTable
        Batches that follow one another.
    before : (int, int, int)
        Base and last offset of the batch in front of them, and the last offset in front of that; at the beginning of a
        segment the last ones are one below its first.
    """
    base, last = rows.base_offset, rows.last_offset
    base_before = np.concatenate(([before[0]], base[:-1]))[: len(rows)]
    last_before = np.concatenate(([before[1]], last[:-1]))[: len(rows)]
    last_before_that = np.concatenate(([before[2]], last_before[:-1]))[: len(rows)]
    leapt = base_before > last_before_that + 1
    expected = last_before + 1
    torn = np.zeros(len(rows), bool)
    for kept in range(8):
        torn |= base == (expected & ((1 << 8 * kept) - 1))
    return torn & ~leapt & (base < expected) & ~((base == base_before) & (last == last_before))
