"""Tests of cli/compact.py and cli/options.py. Options of one meaning have one word; the word of another command works
too, and help does not show it.
"""

from __future__ import annotations

import pytest
from helpers.shell import pylogseg as shell


@pytest.mark.parametrize(
    ("command", "name", "other"),
    [("cat", "--fields", "--columns"), ("export", "--columns", "--fields")],
)
def test_other_words(command: str, name: str, other: str) -> None:
    words = shell(command, "--help").text.split()
    assert name in words
    assert other not in words
    assert "No such option" not in shell(command, "/nonexistent", other, "key").err


def test_cat_takes_both() -> None:
    (one, two) = (
        shell("cat", "examples/data", "codec-zstd-0", "--offset", "0:2", word, "offset,key")
        for word in ("--fields", "--columns")
    )
    assert (one.code, one.rows) == (0, two.rows)
