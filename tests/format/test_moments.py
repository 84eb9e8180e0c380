"""Tests of format/moments.py. Numbers of another unit where milliseconds are meant: every argument of a time says so,
at the caller's line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylogseg
from pylogseg.format.moments import unit_note

TAKES: dict[str, Callable[[Path, int], Any]] = {
    "read": lambda path, ms: pylogseg.read(path, "codec-none", timestamp=ms),
    "read, end": lambda path, ms: pylogseg.read(path, "codec-none", timestamp=(None, ms)),
    "read_arrow": lambda path, ms: pylogseg.read_arrow(path, "codec-none", timestamp=ms),
    "report": lambda path, ms: pylogseg.report(path, "codec-none", since=ms),
    "cluster_state": lambda path, ms: pylogseg.cluster_state(path, as_of=ms),
}


#: The same moment, and how it begins when it counts as milliseconds.
OTHER_UNITS = {
    "seconds": (1_700_000_040, "1970-01-20T16:13:20.040Z"),
    "microseconds": (1_700_000_040_000_000, "after the year 9999"),
    "nanoseconds": (1_700_000_040_000_000_000, "after the year 9999"),
}


@pytest.mark.parametrize("unit", OTHER_UNITS)
@pytest.mark.parametrize("name", TAKES)
def test_another_unit_is_noticed(examples: Path, name: str, unit: str) -> None:
    number, shown = OTHER_UNITS[unit]
    expected = f"{number} is milliseconds, {shown}; if {unit} are meant, write 1700000040000, 2023-11-14T22:14:00.000Z"
    with pytest.warns(UserWarning, match=f"^{expected}$") as found:
        TAKES[name](examples, number)
    assert {each.filename for each in found} == {__file__}
    for plain in (99_999_999, 0, 10**11, 1_700_000_000_000, 10**14 - 1, 2**63 - 1):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            TAKES[name](examples, plain)


@pytest.mark.parametrize("unit", ["seconds", "milliseconds", "microseconds", "nanoseconds"])
def test_each_unit_is_told_from_each_other(unit: str) -> None:
    for power, meant in enumerate(["seconds", "milliseconds", "microseconds", "nanoseconds"]):
        for seconds in (10**8, 1_700_000_040, 10**11 - 1):
            note = unit_note(seconds * 1000**power, unit)
            assert (note is None) == (unit == meant)
            assert note is None or f"if {meant} are meant, write {unit_note_value(note)}, " in note
            if note is not None:
                assert unit_note(int(unit_note_value(note)), unit) is None


def unit_note_value(note: str) -> str:
    return note.partition(" are meant, write ")[2].partition(",")[0]
