"""Tests of the whole package. A change of what a release keeps is a decision: `surface.txt` changes with it, in the
same commit.
"""

from __future__ import annotations

import pytest
import surface


@pytest.mark.spark
def test_what_a_release_keeps() -> None:
    """`python tests/surface.py` writes the file anew; docs/compatibility.md says what may change when."""
    before = surface.FILE.read_text(encoding="utf-8").splitlines()
    after = surface.surface().splitlines()
    gone, new = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    assert (gone, new) == ([], [])
