"""Numbers of seconds where milliseconds are meant: every argument of a time says so, at the caller's line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylogseg

TAKES: dict[str, Callable[[Path, int], Any]] = {
    "read": lambda path, ms: pylogseg.read(path, "codec-none", timestamp=ms),
    "read, end": lambda path, ms: pylogseg.read(path, "codec-none", timestamp=(None, ms)),
    "read_arrow": lambda path, ms: pylogseg.read_arrow(path, "codec-none", timestamp=ms),
    "report": lambda path, ms: pylogseg.report(path, "codec-none", since=ms),
    "inside": lambda path, ms: pylogseg.inside(path, as_of=ms),
}


@pytest.mark.parametrize("name", TAKES)
def test_seconds_are_noticed(examples: Path, name: str) -> None:
    with pytest.warns(UserWarning, match="1700000040 is milliseconds, 1970-01-20.*if seconds are meant") as found:
        TAKES[name](examples, 1_700_000_040)
    assert {each.filename for each in found} == {__file__}
    for plain in (99_999_999, 0, 10**11, 1_700_000_000_000):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            TAKES[name](examples, plain)
