"""Retention: the oldest segments go when they are too old, too much, or below the start of the log."""

from __future__ import annotations

import logging

from pylogseg.log.core import LogCore
from pylogseg.log.segment import LogSegment

_log = logging.getLogger(__name__)


def apply_retention(log: LogCore) -> int:
    """Delete the segments that a log's settings let go; how many.

    Without ``delete`` in ``cleanup.policy`` only those go that lie below the log's start.
    """
    count = delete_below_start(log)
    if "delete" in log.config.cleanup_policy:
        count += _by_size(log) + _by_time(log)
    if count:
        _log.info("%s: retention deleted %d segments; the log starts at %d", log.folder, count, log.log_start_offset)
    return count


def delete_below_start(log: LogCore) -> int:
    """Delete the segments all of whose records lie below the start of a log; how many."""
    first, start = log.segments.first, log.log_start_offset
    if first is None or first.base_offset >= start:
        return 0
    return log.delete_oldest(lambda segment, behind: behind is not None and behind.base_offset <= start)


def _by_size(log: LogCore) -> int:
    allowed = log.config.retention_bytes
    surplus = log.segments.size - allowed

    def breached(segment: LogSegment, behind: LogSegment | None) -> bool:
        nonlocal surplus
        if surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return log.delete_oldest(breached) if allowed >= 0 and surplus >= 0 else 0


def _by_time(log: LogCore) -> int:
    allowed, now_ms = log.config.retention_ms, log.clock.now_ms()
    if allowed < 0:
        return 0
    return log.delete_oldest(lambda segment, behind: now_ms - segment.largest_timestamp() > allowed)
