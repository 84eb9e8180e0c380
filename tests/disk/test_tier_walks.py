"""Tests of disk/tier/files.py. A few of the random histories of `tests/soak/tier_walks.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak import tier_walks


# 1-20: a disk whose log begins inside a transaction; 2-26: copies that broke off, below where records were deleted.
@pytest.mark.parametrize(("seed", "index"), [(1, 0), (1, 1), (1, 2), (1, 3), (1, 20), (2, 26)])
def test_a_tier_is_what_the_last_leader_has(tmp_path: Path, seed: int, index: int) -> None:
    wrong, counts = tier_walks.run(index, seed, tmp_path)
    assert wrong == []
    assert counts["uploads"] > 2
