"""What batches of a segment say of themselves."""

from __future__ import annotations

from typing import NamedTuple

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
