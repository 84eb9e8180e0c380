"""The short forms of two commands: the same rows from random damaged disks, and read_committed beside a writer."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak import live_committed, same_rows


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 1010, 50066, 50186, 50188, 50243, 50405, 60001, 60078, 60120, 60130])
def test_random_damaged_disks(seed: int, tmp_path: Path) -> None:
    assert same_rows.one(seed, tmp_path) == []


def test_read_committed_beside_a_writer() -> None:
    found = live_committed.run(0, 1, broker=False, seconds=4)
    assert found.wrong == []
    assert found.aborted > 0
    assert found.reads > 0
