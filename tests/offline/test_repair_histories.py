"""Tests of offline/repairing/replicas.py. A few of the histories of `soak repair-histories`: a damaged replica gets
from another one what belongs to it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.depth import some_of
from soak import repair_histories


@pytest.mark.parametrize("index", some_of(range(12), 5))
def test_nothing_comes_that_does_not_belong(index: int, tmp_path: Path) -> None:
    repair_histories.check(index, 20_261_123, tmp_path)
