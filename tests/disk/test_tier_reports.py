"""Tests of disk/tier/tier.py and inspect/verify/tiers.py. A report of a tier finds what `verify` finds of it, whether
it reads all or not.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.tiered_logs import write_log
from helpers.tiers import Uploader

import pylogseg


@pytest.fixture
def manifests(tmp_path: Path) -> list[Path]:
    return Uploader(tmp_path / "tier").partition(write_log(tmp_path / "disk" / "orders-0"))


def kinds(tmp_path: Path, *, full: bool) -> list[str]:
    found = pylogseg.report(f"aiven+file://{tmp_path / 'tier'}", full=full)
    return [finding.kind for finding in found.facts.findings if finding.level == "damage"]


@pytest.mark.parametrize("full", [False, True])
def test_whole(manifests: list[Path], tmp_path: Path, full: bool) -> None:
    """Without `full` only some batches are read: their times are no contradiction to the manifests."""
    assert kinds(tmp_path, full=full) == []


@pytest.mark.parametrize("full", [False, True])
def test_missing_objects(manifests: list[Path], tmp_path: Path, full: bool) -> None:
    for kind in ("rsm-manifest", "log", "indexes"):
        manifests[1].with_suffix(f".{kind}").unlink()
    assert kinds(tmp_path, full=full) == ["tier-hole"]
    manifests[3].with_suffix(".log").unlink()
    assert sorted(kinds(tmp_path, full=full)) == ["tier-hole", "tier-object", "unreadable"]
