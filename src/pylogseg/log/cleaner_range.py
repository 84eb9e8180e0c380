"""The part of a log that may be compacted, and how dirty it is."""

from __future__ import annotations

import logging
from typing import NamedTuple

from pylogseg.log.log import Log
from pylogseg.log.segment import LogSegment

_log = logging.getLogger(__name__)


class Cleanable(NamedTuple):
    """The range of offsets that a cleaning may cover."""

    first_dirty: int  #: Below it, earlier cleanings left at most one record of a key.
    first_uncleanable: int  #: End of the range.
    reset_checkpoint: bool  #: True if the offset in the checkpoint is no longer in the log.


class Dirtiness(NamedTuple):
    """Bytes of the clean and the dirty section, by whole segments."""

    clean_bytes: int
    cleanable_bytes: int
    first_uncleanable: int  #: Rounded to the beginning of a segment.

    @property
    def total_bytes(self) -> int:
        """Both sections."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def ratio(self) -> float:
        """Share of the dirty section, 0 to 1; 0 for an empty log."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


def cleanable(log: Log, last_clean: int | None, now_ms: int) -> Cleanable:
    """Return the range of offsets that a cleaning may cover; `last_clean` is from the checkpoint."""
    start, end = log.log_start_offset, log.log_end_offset
    noted = start if last_clean is None else last_clean
    reset = not start <= noted <= end
    if reset and not (noted < start and {"compact", "delete"} <= set(log.config.cleanup_policy)):
        _log.warning("%s: cleaned up to %d, which is not in %d..%d; starting over", log.folder, noted, start, end)
    first_dirty = start if reset else noted
    bounds = [log.last_stable_offset, log.active.base_offset]
    lag = max(log.config.min_compaction_lag_ms, 0)
    if lag > 0:
        young = (s for s in _sealed_from(log, first_dirty) if s.largest_timestamp() > now_ms - lag)
        bounds += [segment.base_offset for segment in young][:1]
    return Cleanable(first_dirty, max(first_dirty, min(bounds)), reset)


def dirtiness(log: Log, what: Cleanable) -> Dirtiness:
    """Return how many bytes of a log are clean, and how many a cleaning would cover."""
    clean = sum(segment.size for segment in log.segments.from_offset(-1, what.first_dirty))
    sealed = _sealed_from(log, what.first_uncleanable)
    end = (sealed[0] if sealed else log.active).base_offset
    dirty = sum(segment.size for segment in log.segments.from_offset(min(what.first_dirty, end), end))
    return Dirtiness(clean, dirty, end)


def needs_cleaning_at(log: Log, what: Cleanable, now_ms: int) -> bool:
    """Return whether a record waits longer than ``max.compaction.lag.ms``."""
    lag = max(log.config.max_compaction_lag_ms, 0)
    waiting = [segment.first_timestamp() for segment in _sealed_from(log, what.first_dirty)]
    timestamps = [timestamp for timestamp in waiting if timestamp is not None and timestamp > 0]
    return bool(timestamps) and min(timestamps) < now_ms - lag


def _sealed_from(log: Log, offset: int) -> list[LogSegment]:
    active = log.active.base_offset
    return log.segments.from_offset(offset, active) if offset <= active else []
