"""Losses of a recovery: why bytes have to be removed, and which good batches are lost with them."""

from __future__ import annotations

from typing import NamedTuple

from pylogseg.env.filesystem import Readable
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import walk


class Loss(NamedTuple):
    """The content of a part of a segment that is removed."""

    reason: str  #: The fault at its beginning, and how many good batches follow.
    is_damage: bool  #: True if it is more than a crash leaves.
    next_offset: int | None  #: After the last offset that it is known to have held.
    is_zeros: bool


def of_tail(file: Readable, position: int, first_offset: int, *, is_last: bool) -> Loss:
    """Describe the bytes from `position` on, where the batches that can stay end; `first_offset` follows these.

    `is_last`: no segment follows, so a torn end is normal after a crash.
    """
    first: Gap | None = None
    batches, next_offset = 0, None
    for item in walk(file, start=position, lowest_offset=first_offset, is_last=is_last):
        if isinstance(item, Gap):
            first = first or item
        else:
            batches += len(item.batches)
            next_offset = int(item.batches.last_offset.max()) + 1
    reason = first.reason if first is not None else "no batch can be read here"
    if batches:
        reason += f"; {batches} good batch{'es' * (batches > 1)} after it go{'es' * (batches == 1)} with it"
    if next_offset is None:
        next_offset = _of_header(file, position, first_offset)
    is_damage = first is None or first.is_damage
    return Loss(reason, is_damage, next_offset, first is not None and first.kind is GapKind.ZEROS)


def _of_header(file: Readable, position: int, first_offset: int) -> int | None:
    """Return the offset after the batch at a position, if its header is whole and follows the batch before."""
    head = bytes(file.read(position, BATCH_HEADER_BYTES))
    if len(head) < BATCH_HEADER_BYTES or head[16] != 2:
        return None
    delta = int.from_bytes(head[23:27], "big", signed=True)
    return first_offset + delta + 1 if int.from_bytes(head[:8], "big") == first_offset and delta >= 0 else None
