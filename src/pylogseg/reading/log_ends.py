"""Find the offset at which a consumer stops reading a log, and damage behind it."""

from __future__ import annotations

from dataclasses import replace

from pylogseg.reading.log_reader import LogFiles
from pylogseg.reading.partition import OPEN_END, IsolationLevel, ReadOptions
from pylogseg.reading.seek import LogEnd, end_of
from pylogseg.reading.stable_offset import last_stable_offset
from pylogseg.walker.windows import SMALL_WINDOW_BYTES


def consumer_end(log: LogFiles, isolation_level: IsolationLevel, *, skips: bool = False) -> LogEnd:
    """Return the end of a log, or with ``read_committed`` its last stable offset.

    For ``read_committed`` the headers after the newest producer snapshot are read. A segment that cannot be opened is
    then an error, or is skipped with `skips`.
    """
    found = end_of(log.segments)
    if isolation_level == "read_uncommitted" or not log.segments:
        return found
    stable = last_stable_offset(list(log.segments), log.snapshots, {} if skips else None)
    end = found.offset if stable is None else min(found.offset, stable)
    return LogEnd(end, found.is_at_file_end and end == found.offset)


def check_tail(log: LogFiles, end: LogEnd, how: ReadOptions) -> None:
    """Look at what lies behind the end of a log, as a reader of the whole log does.

    That is what follows the last good batch or, with ``read_committed``, precedes the first one of an open transaction.
    Damage there is a CorruptionError with ``on_corrupt="raise"``, else a gap.
    """
    if not end.is_at_file_end:
        next(log.chunks(end.offset, OPEN_END, replace(how, first_window_bytes=SMALL_WINDOW_BYTES, scratch=None)), None)
