"""Milliseconds since 1970 as the moments that rows of Spark take from Python: of the years 1 to 9999."""

from __future__ import annotations

import datetime
import logging

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_log = logging.getLogger("pylogseg.spark")


def moment_of(timestamp_ms: int | None, column: str, place: str) -> datetime.datetime | None:
    """Return a moment; None for None and -1, and with a warning for a time of no such year."""
    if timestamp_ms is None or timestamp_ms == -1:
        return None
    try:
        return _EPOCH + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        _log.warning("%s: %s, %d ms, is of no year from 1 to 9999: null there", place, column, timestamp_ms)
        return None
