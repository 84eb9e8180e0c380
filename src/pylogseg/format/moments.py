"""Times as Kafka has them: milliseconds since 1970 in UTC."""

from __future__ import annotations

import datetime
import sys
import warnings

from pylogseg.errors import RequestError

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def ms_of(moment: datetime.datetime) -> int:
    """Return milliseconds since 1970; RequestError for a time without a zone."""
    if moment.tzinfo is None:
        raise RequestError(f"{moment!r} has no time zone; say which, e.g. tzinfo=datetime.timezone.utc")
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


def first_ms(moment: datetime.datetime) -> int:
    """Return the first millisecond that is not before a time: an end of a range of records; errors as of `ms_of`."""
    found = ms_of(moment)
    return found if moment <= _EPOCH + datetime.timedelta(milliseconds=found) else found + 1


def iso_text(timestamp_ms: int) -> str:
    """Return a time as ISO 8601 in UTC; the plain number if no calendar date fits."""
    try:
        moment = _EPOCH + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def seconds_note(number: int) -> str | None:
    """Return what to say of a number of milliseconds that is likely to be one of seconds: 1973 to 5138 as such.

    >>> seconds_note(1700000040).partition(";")[0]
    '1700000040 is milliseconds, 1970-01-20T16:13:20.040Z'
    """
    if not 10**8 <= number < 10**11:
        return None
    seconds = 1000 * number
    return f"{number} is milliseconds, {iso_text(number)}; if seconds are meant, write {seconds}, {iso_text(seconds)}"


def warned_of_seconds(number: int) -> int:
    """Return a number of milliseconds that a program gives; a warning names its line if seconds are likely meant."""
    note = seconds_note(number)
    if note is not None:
        frame, level = sys._getframe(1), 2
        while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "pylogseg":
            frame, level = frame.f_back, level + 1
        warnings.warn(note, stacklevel=level)
    return number
