"""A few of the random histories of `tests/tier_walks.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import tier_walks


@pytest.mark.parametrize("index", [0, 1, 2, 3, 20])  # 20: a disk whose log begins inside a transaction
def test_a_tier_is_what_the_last_leader_has(tmp_path: Path, index: int) -> None:
    wrong, counts = tier_walks.run(index, 1, tmp_path)
    assert wrong == []
    assert counts["uploads"] > 2
