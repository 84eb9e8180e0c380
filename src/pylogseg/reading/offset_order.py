"""Check base offsets by their order: no checksum covers them.

All readers of a segment use one rule: offsets ascend from the base offset, and end before the base offset of the next
segment, and a batch has no more records than offsets. Batches that break it are damage, wherever the reading begins and
however it is divided. So if segments were swapped, misnamed or copied, no record is returned twice or with another
segment's offsets; and a duplicate batch in a file is returned once, as a broker's consumer gets it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Segment, uploaded_end
from pylogseg.env.filesystem import Readable
from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.walker.base_offsets import Span, is_too_high, spans_of
from pylogseg.walker.batch_search import BatchSearch
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.unreadable import Patched

_NONE = 2**63
#: The batch after one, and the base offset behind it; None for what is not known.
_Following = tuple[Span | None, int | None]


class InOrder(NamedTuple):
    """The result of checking a window."""

    rows: BatchTable  #: Batches with good offsets.
    gaps: list[Gap]  #: The other batches; adjacent ones form one gap.
    is_done: bool  #: True if everything after the window is above the last requested offset.


def has_next(segment: Segment) -> bool:
    """Check whether the segment after a segment, as listed, still exists."""
    if segment.next_base is None:
        return False
    files = segment.files
    try:
        files.stat(files.join(files.split(segment.path)[0], f"{segment.next_base:020d}.log"))
    except StorageError:
        return False
    return True


def are_overfull(rows: BatchTable) -> npt.NDArray[np.bool_]:
    """Return which batches of magic 2 say that they have more records than offsets."""
    overfull: npt.NDArray[np.bool_] = (rows.count > rows.last_offset - rows.base_offset + 1) & (rows.magic == 2)
    return overfull


def _span(head: bytes) -> Span:
    """Return the offsets in the header of a batch; of magic 0 and 1 it has only the last one."""
    base = int.from_bytes(head[:8], "big", signed=True)
    if head[16] < 2:
        return Span(base, base, 1)
    last, count = (int.from_bytes(head[at : at + 4], "big", signed=True) for at in (23, 57))
    return Span(base, base + last, max(count, 1))


def _get_following(spans: list[Span], row: int) -> _Following:
    return spans[row], spans[row + 1].base


class Order:
    """Checks the offsets of a segment's batches, window by window.

    With `starts_inside`, the first window begins at a batch from the offset index: then its offset is trusted.
    """

    def __init__(self, segment: Segment, view: Readable, *, starts_inside: bool = False) -> None:
        self._view = Patched(view)
        self._segment, self._limit = segment, _NONE if segment.next_base is None else segment.next_base
        uploaded = uploaded_end(segment.files, segment.path)
        #: A batch that ends behind it, after a jump, has a false offset.
        self._uploaded = _NONE if uploaded is None or uploaded < 0 else uploaded
        self._expected = segment.base_offset
        self._is_first, self._trusts = True, starts_inside
        self._open: Gap | None = None

    def check(self, rows: BatchTable, last: int = _NONE - 1) -> InOrder:
        """Check the batches of the next window, at least one; `last` is the last requested offset."""
        summary = rows.summary()
        if (
            summary.ascends
            and summary.first_base_offset >= self._expected
            and summary.last_offset < min(self._limit, self._uploaded)
            and self._open is None
            and not summary.is_overfull
        ):
            before = self._expected if summary.offset_before_last is None else summary.offset_before_last + 1
            if before > last or not self._is_too_high(rows, before):
                self._expected, self._is_first, self._trusts = summary.last_offset + 1, False, False
                return InOrder(rows, [], summary.last_offset >= last)
        return self._one_by_one(rows, last)

    def _is_too_high(self, rows: BatchTable, expected: int) -> bool:
        """Check whether the batch after the window shows that the window's last offset is too high."""
        summary = rows.summary()
        span = Span(summary.last_base_offset, summary.last_offset, max(1, int(rows.rows["count"][-1])))
        if self._trusts and len(rows) == 1:
            expected = span.base
        if span.base == expected and span.is_full:
            return False
        return is_too_high(span, expected, *self._following(summary.end_position, expected, span.last))

    def _following(self, position: int, expected: int, last: int) -> _Following:
        """Return the offset that the next batch claims, after a window whose last batch ends with an unexpected `last`.

        The next header is enough if it contradicts `last`; otherwise the next good batch decides, which may come after
        damage. With it comes the base offset of the batch behind, or of the next segment.
        """
        view = self._view
        if position >= view.size:
            return None, None
        try:
            head = bytes(view.read(position, BATCH_HEADER_BYTES))
            is_next = len(head) >= 17 and head[16] == 2 and any(head[8:12])
            if not (is_next and expected <= int.from_bytes(head[:8], "big", signed=True) <= last):
                next_good = BatchSearch(view, position, view.size).next(position, expected)
                if next_good is None:
                    return None, None
                position, head = next_good, bytes(view.read(next_good, BATCH_HEADER_BYTES))
            behind = position + 12 + int.from_bytes(head[8:12], "big", signed=True)
            after = self._limit if behind >= view.size else _NONE
            if position < behind <= view.size - 17:
                after = int.from_bytes(bytes(view.read(behind, 8)), "big", signed=True)
            return _span(head), None if after == _NONE else after
        except StorageError:  # the walk will report it
            return None, None

    def _one_by_one(self, rows: BatchTable, last: int) -> InOrder:
        spans = spans_of(rows)
        positions, sizes = rows.position.tolist(), rows.size.tolist()
        overfull = are_overfull(rows).tolist()
        gaps: list[Gap] = []
        good: list[int] = []
        for row, span in enumerate(spans):
            base, end = span.base, span.last
            if row + 2 < len(spans):
                following = functools.partial(_get_following, spans, row + 1)
            elif row + 1 < len(spans):
                following = functools.partial(self._following, positions[row + 1], self._expected, end)
            else:
                following = functools.partial(self._following, rows.summary().end_position, self._expected, end)
            reason = self._reason(span, following)
            if reason is None and overfull[row]:
                reason = f"{rows.count[row]} records declared for {end - base + 1} offsets"
            if reason is None:
                gaps += self.finish(base)
                good.append(row)
                self._expected, self._is_first = end + 1, False
                if end >= last:
                    return InOrder(rows[good], gaps, True)
                continue
            if self._open is None or self._open.end_position != positions[row]:
                gaps += self.finish(None)
                self._open = Gap(
                    self._segment.path,
                    GapKind.ORDER,
                    positions[row],
                    positions[row],
                    self._expected,
                    None,
                    reason,
                    True,
                )
            self._open = self._open._replace(end_position=positions[row] + sizes[row])
        return InOrder(rows[good], gaps, False)

    def _reason(self, span: Span, following_of: Callable[[], _Following]) -> str | None:
        """Return why a batch is misplaced; None if it is not."""
        trusts, self._trusts = self._trusts, False
        base, end = span.base, span.last
        if base < self._expected:
            before = "the segment's base offset" if self._is_first else "the offset after the batch before it"
            return f"base offset {base} is below {self._expected}, {before}"
        if end < base:
            return f"base offset {base} is too high: the batch would end at {end}"
        if end >= self._limit and self._ends_there():
            return (
                f"base offset {base} is too high: the batch ends at {end}, and the next segment begins at {self._limit}"
            )
        expected = base if trusts else self._expected
        if base == expected and span.is_full:
            return None
        if base > expected and end >= self._uploaded:
            return f"base offset {base} is too high: the batch ends at {end}, and its upload at {self._uploaded - 1}"
        following, after = following_of()
        if following is None or not is_too_high(span, expected, following, after):
            return None
        which = f"last offset {end}" if base == expected else f"base offset {base}"
        return f"{which} is too high: {following.base} follows"

    def _ends_there(self) -> bool:
        """Check whether the next segment still exists: a cleaning may have merged it, or a truncation deleted it."""
        if not has_next(self._segment):
            self._limit = _NONE
        return self._limit != _NONE

    def finish_above(self, offset: int) -> list[Gap]:
        """Return the open gap, if any, unless it may end before an offset: the next good batch tells."""
        return [] if self._open is None or self._open.first_offset < offset else self.finish()

    def finish(self, next_offset: int | None = None) -> list[Gap]:
        """Return the open gap, if any; `next_offset` is the offset of the good batch after it, None at the end."""
        self._trusts = False  # after a gap comes another batch than the one in the index
        gap, self._open = self._open, None
        if gap is None:
            return []
        if next_offset is None and self._limit != _NONE:
            next_offset = self._limit
        return [gap._replace(next_offset=next_offset)]
