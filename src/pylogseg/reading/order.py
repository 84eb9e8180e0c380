"""Base offsets that cannot be: no check sum covers them, so they are compared with those around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pylogseg.disk import Segment
from pylogseg.format.batches import BatchTable
from pylogseg.reading.findings import Finding, Gap


def order_gaps(segment: Segment, rows: BatchTable, previous: BatchTable | None) -> Iterator[Gap]:
    """Batches with a base offset that cannot be, or that shows that the one before it cannot; `previous` precede them.

    No check sum covers a base offset, and a reader that believes a wrong one leaves out what it takes to be elsewhere.
    Batches that are there twice are left alone: a broker serves them twice. So are legacy wrappers, which do not tell
    their base offset.
    """
    found = rows.summary()
    if found.ascends and (not previous or found.first_base_offset > previous.summary().last_offset):
        return
    lowest = np.array([-1, -1])
    bases, lasts = (
        np.concatenate([lowest if before is None else np.append(lowest, before)[-2:], column])
        for before, column in (
            (None if previous is None else previous.base_offset, rows.base_offset),
            (None if previous is None else previous.last_offset, rows.last_offset),
        )
    )
    base, before, before_that = rows.base_offset, lasts[1:-1], lasts[:-2]
    goes_back = base <= before
    was_too_high = (base < bases[1:-1]) & (base > before_that)
    is_elsewhere = (base < segment.base_offset) & (bases[1:-1] >= segment.base_offset)
    wrong = (base < 0) | (rows.last_offset < base) | (goes_back & (was_too_high | is_elsewhere))
    for row in np.flatnonzero(wrong & (rows.magic == 2)).tolist():
        position, first, last, expected = (
            int(column[row]) for column in (rows.position, base, rows.last_offset, before + 1)
        )
        if first < expected:
            reason = f"base offset {first} is below {expected}, the offset behind the batch before it"
        else:
            reason = f"base offset {first} is too high: the batch would end at {last}"
        following = int(rows.base_offset[row + 1]) if row + 1 < len(rows) else -1
        yield Gap(
            segment.path,
            Finding.ORDER,
            position,
            position + int(rows.size[row]),
            expected,
            following if following > expected else None,
            reason,
            True,
        )


def last_too_high(
    segment: Segment, rows: BatchTable, previous: BatchTable | None, following_of: Callable[[], int | None]
) -> list[Gap]:
    """The last batch of a window, if what follows the window shows that its base offset is too high.

    It would end a reading whose range ends below it, before the next window could tell.

    Parameters
    ----------
    segment : Segment
        That the window is of.
    rows, previous : BatchTable
        The window, and batches in front of it.
    following_of : callable
        Looks for the offset that the bytes behind the window, or the next segment, begin with; None if it is not known.
        Asked only where it matters.
    """
    expected = segment.base_offset
    if len(rows) > 1:
        expected = int(rows.last_offset[-2]) + 1
    elif previous is not None and len(previous):
        expected = previous.summary().last_offset + 1
    first = rows.summary().last_base_offset
    following = following_of() if expected < first and rows.magic[-1] == 2 else None
    if following is None or not expected <= following < first:
        return []
    position = int(rows.position[-1])
    reason = f"base offset {first} is too high: {following} follows"
    end = position + int(rows.size[-1])
    return [Gap(segment.path, Finding.ORDER, position, end, expected, following, reason, True)]
