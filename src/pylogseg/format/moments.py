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
    time_ms = ms_of(moment)
    return time_ms if moment <= _EPOCH + datetime.timedelta(milliseconds=time_ms) else time_ms + 1


def iso_text(timestamp_ms: int) -> str:
    """Return a time as ISO 8601 in UTC; the plain number if no calendar date fits."""
    try:
        moment = _EPOCH + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def time_text(timestamp_ms: int | None) -> str | None:
    """Return a timestamp as ISO 8601 in UTC; None for none, the plain number if no calendar date fits."""
    return None if timestamp_ms is None or timestamp_ms < 0 else iso_text(timestamp_ms)


#: Units of a number, each with the exponent of ten from which it stands for dates of 1973 to 5138.
_UNITS = {"seconds": 8, "milliseconds": 11, "microseconds": 14, "nanoseconds": 17}
#: Kafka's "for ever".
_FOR_EVER = 2**63 - 1


def unit_note(number: int, unit: str = "milliseconds") -> str | None:
    """Return a note on a number that is likely of another unit, since in that unit it is a time of 1973 to 5138.

    >>> unit_note(1700000040).partition(";")[0]
    '1700000040 is milliseconds, 1970-01-20T16:13:20.040Z'
    >>> unit_note(1700000040000000).partition("; ")[2]
    'if microseconds are meant, write 1700000040000, 2023-11-14T22:14:00.000Z'
    """
    meant = next((name for name, least in _UNITS.items() if 10**least <= number < 10 ** (least + 3)), unit)
    if meant == unit or number == _FOR_EVER:
        return None
    steps = (_UNITS[unit] - _UNITS[meant]) // 3
    converted = number * 1000**steps if steps > 0 else number // 1000**-steps
    return (
        f"{number} is {unit}, {_unit_text(number, unit)}; "
        f"if {meant} are meant, write {converted}, {_unit_text(converted, unit)}"
    )


def _unit_text(number: int, unit: str) -> str:
    steps = (_UNITS["milliseconds"] - _UNITS[unit]) // 3
    text = iso_text(number * 1000**steps if steps > 0 else number // 1000**-steps)
    return "after the year 9999" if text.endswith(" ms") else text


def warned_of_unit(number: int) -> int:
    """Return milliseconds that a program gives; a warning names its line if another unit is likely meant."""
    note = unit_note(number)
    if note is not None:
        warn_caller(note)
    return number


def warn_caller(note: str, category: type[Warning] = UserWarning) -> None:
    """Warn of a line of the program that called this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "pylogseg":
        frame, level = frame.f_back, level + 1
    warnings.warn(note, category, stacklevel=level)
