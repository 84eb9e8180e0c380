"""Tests of disk/lineage/authority.py, offline/merging/command.py and offline/merging/partition.py. A few of the
histories of `soak merge-histories`: what brokers leave, merged, is what the last leader serves.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.depth import some_of
from soak import merge_histories


@pytest.mark.parametrize("index", some_of(range(20), 7))
def test_merged_is_what_the_leader_serves(index: int, tmp_path: Path) -> None:
    merge_histories.check(index, 20_261_123, tmp_path)
