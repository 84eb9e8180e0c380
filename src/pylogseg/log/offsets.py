"""The offsets of a log: start, end, high watermark, first unstable offset, recovery point, and the order they keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pylogseg.log.producers import Producers


class OffsetMetadata(NamedTuple):
    """An offset and, if known, where its batch lies: base offset of the segment and position in its file."""

    offset: int
    segment: int = -1
    position: int = -1

    @property
    def is_bare(self) -> bool:
        """True if the place is unknown."""
        return self.segment < 0


class LogOffsets:
    """Start and end of a log, and the offsets up to which it may be read.

    `locate` returns the place of the batch with an offset; the batch's base offset may be lower. Changed under the
    log's lock; attributes may be read without.
    """

    def __init__(self, producers: Producers, locate: Callable[[int], OffsetMetadata]) -> None:
        self._producers, self._locate = producers, locate
        self.begin(0, 0, OffsetMetadata(0))

    def begin(self, log_start_offset: int, recovery_point: int, end: OffsetMetadata) -> None:
        """Set the offsets that a load found; nothing counts as replicated yet."""
        self.log_start, self.recovery_point, self.end = log_start_offset, recovery_point, end
        self.high_watermark = OffsetMetadata(log_start_offset)
        self.first_unstable: OffsetMetadata | None = None

    @property
    def last_stable(self) -> int:
        """The last stable offset: a read_committed reader sees only records below it."""
        unstable = self.first_unstable
        if unstable is not None and unstable.offset < self.high_watermark.offset:
            return unstable.offset
        return self.high_watermark.offset

    def set_log_start(self, offset: int) -> None:
        """Set the log start offset; raise high watermark and recovery point to it."""
        self.log_start = offset
        if self.high_watermark.offset < offset:
            self.update_high_watermark(OffsetMetadata(offset))
        self.recovery_point = max(self.recovery_point, offset)

    def set_end(self, end: OffsetMetadata) -> None:
        """Set the log end offset; lower the recovery point to it."""
        self.end = end
        self.recovery_point = min(self.recovery_point, end.offset)

    def update_high_watermark(self, new: OffsetMetadata) -> int:
        """Move the high watermark, kept between start and end; return where it is then."""
        if new.offset < self.log_start:
            new = OffsetMetadata(self.log_start)
        elif new.offset >= self.end.offset:
            new = self.end
        self._set_high_watermark(new)
        return new.offset

    def _set_high_watermark(self, to: OffsetMetadata) -> None:
        self.high_watermark = to
        self._producers.on_high_watermark(to.offset)
        self.note_first_unstable()

    def follow_end(self) -> None:
        """Move a high watermark at the log's end with the end, after a truncation or a roll."""
        if self.high_watermark.offset >= self.end.offset:
            self._set_high_watermark(self.end)

    def note_first_unstable(self) -> None:
        """Ask the producers again for the first unstable offset."""
        txn = self._producers.first_unstable
        if txn is None:
            self.first_unstable = None
            return
        begin = OffsetMetadata(txn.first_offset, txn.segment_base, txn.position)
        if begin.is_bare or begin.offset < self.log_start:
            begin = self._locate(max(begin.offset, self.log_start))
        self.first_unstable = begin

    def located_high_watermark(self) -> OffsetMetadata:
        """Return the high watermark with its place; inside a batch, or in a gap, it moves to the batch found."""
        if self.high_watermark.is_bare:
            self._set_high_watermark(self._locate(self.high_watermark.offset))
        return self.high_watermark

    def located_last_stable(self) -> OffsetMetadata:
        """Return the last stable offset with its place."""
        high_watermark = self.located_high_watermark()
        unstable = self.first_unstable
        if unstable is None or unstable.offset >= high_watermark.offset:
            return high_watermark
        if unstable.is_bare:
            unstable = self.first_unstable = self._locate(unstable.offset)
        return unstable
