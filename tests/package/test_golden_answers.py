"""Tests of the whole package. Answers change on purpose only: `outputs.txt` changes with them, in the same commit."""

from __future__ import annotations

from pathlib import Path

import outputs
import pytest
from helpers.depth import IS_DEEP

#: Each takes some seconds: CI asks about every third one.
HARMS = [*outputs.HARMS][:: 1 if IS_DEEP else 3]


@pytest.mark.parametrize("harm", HARMS)
def test_the_answers(harm: str, tmp_path: Path) -> None:
    """`python tests/outputs.py` writes the file anew; with a folder, it writes what the commands print."""
    before = [line for line in outputs.FILE.read_text(encoding="utf-8").splitlines() if line.startswith(f"{harm}: ")]
    assert [str(answer) for answer in outputs.answers(harm, tmp_path)] == before
