"""Which of two batches that contradict each other has a wrong base offset: no checksum covers it.

A batch may claim an offset that is too high for the next batch, or too low for the batch before it. The batch after
both decides: offsets go on without a gap in most logs. Where they do not, a single flipped bit may explain one of the
two alone. A batch may also have a right base offset, and claim more offsets than it has records.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.format.batches import BatchTable

_BITS = [1 << bit for bit in range(64)]


class Span(NamedTuple):
    """The offsets that a batch claims, both inclusive."""

    base: int
    last: int
    records: int = 1 << 31  #: More than there can be, if it is not known.

    @property
    def is_full(self) -> bool:
        """True if it has a record for each offset: then its records prove the last one."""
        return self.records > self.last - self.base


def is_too_high(batch: Span, expected: int, following: Span | None, after: int | None) -> bool:
    """Check whether a batch from the expected offset on is wrong, by the batch after it and the base offset after both.

    False if it fits, if the batch after it is wrong instead, or if nothing follows. In doubt, an offset above the
    expected one is wrong.
    """
    if following is None or not expected <= following.base <= batch.last:
        return False
    if batch.base == expected:  # then its last offset may be; only what follows both speaks for it
        goes_on = following.base == batch.base + batch.records
        return not batch.is_full and following != batch and (goes_on or after is None or after <= batch.last)
    width = batch.last - batch.base + 1
    fits_below = following.base == expected + width
    if following == batch:  # written twice, or lifted
        return fits_below
    size = following.last - following.base + 1
    if after is None or after == following.last + 1:
        return True
    if after == batch.last + size + 1:
        return False
    first = any(expected <= batch.base ^ bit <= following.base - width for bit in _BITS)
    second = any(batch.last < following.base ^ bit <= after - size for bit in _BITS)
    return fits_below or first or not second


class Judged(NamedTuple):
    """Batches with good offsets, and others."""

    before: npt.NDArray[np.int64]  #: The offset expected at each batch.
    too_high: npt.NDArray[np.bool_]
    too_low: npt.NDArray[np.bool_]

    @property
    def is_wrong(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.too_high | self.too_low)


def spans_of(rows: BatchTable) -> list[Span]:
    """Return the offsets and counts in batches' headers; magic 0 and 1 have only the last offset."""
    bases = np.where(rows.magic < 2, rows.last_offset, rows.base_offset).tolist()
    return [
        Span(*claim) for claim in zip(bases, rows.last_offset.tolist(), np.maximum(rows.count, 1).tolist(), strict=True)
    ]


def judge_base_offsets(rows: BatchTable, expected: int, limit: int | None = None) -> Judged:
    """Judge the base offsets of batches that follow each other, from an expected one on.

    `limit` is the base offset behind them, if there is one.
    """
    bases = np.where(rows.magic < 2, rows.last_offset, rows.base_offset)
    lasts = rows.last_offset
    before = np.concatenate(([expected], lasts[:-1] + 1))
    too_high, too_low = np.zeros(len(rows), np.bool_), bases < before
    if not too_low.any():
        return Judged(before, too_high, too_low)
    spans = spans_of(rows)
    for row, span in enumerate(spans):
        before[row] = expected
        too_low[row] = span.base < expected
        if span.base >= expected and not (span.base == expected and span.is_full):
            following = spans[row + 1] if row + 1 < len(spans) else None
            after = spans[row + 2].base if row + 2 < len(spans) else limit
            too_high[row] = is_too_high(span, expected, following, after)
        if not too_low[row] and not too_high[row]:
            expected = max(expected, span.last + 1)
    return Judged(before, too_high, too_low)
