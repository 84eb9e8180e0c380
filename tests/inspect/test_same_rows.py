"""Tests of inspect/stats/few_headers.py. The short forms of two commands: the same rows from random damaged disks, and
read_committed beside a writer.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.depth import IS_DEEP, some_of
from soak import live_committed, same_rows

SEEDS = [0, 1, 2, 3, 1010, 50066, 50186, 50188, 50243, 50405, 60001, 60078, 60120, 60130]


@pytest.mark.parametrize("seed", some_of(SEEDS, 5))
def test_random_damaged_disks(seed: int, tmp_path: Path) -> None:
    assert same_rows.one(seed, tmp_path) == []


def test_read_committed_beside_a_writer() -> None:
    found = live_committed.run(0, 1, broker=False, seconds=4 if IS_DEEP else 1)
    assert found.wrong == []
    assert found.aborted > 0
    assert found.reads > 0
