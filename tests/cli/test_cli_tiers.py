"""Mistakes with tiers in a shell: what was meant is said, and nothing is taken for an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.shell import pylogseg


@pytest.fixture(scope="module")
def tier(golden: Path) -> Path:
    return golden / "tier" / "aiven-plain"


def test_urls_that_are_none(tier: Path, tmp_path: Path) -> None:
    for url, words in {
        f"aivn+file://{tier}": "no tier has the layout 'aivn'; there are aiven+ and localtier+",
        f"aiven+{tier}": "the store is missing, as in aiven+file:///path",
        f"localtier+file://{tier}": "no uploaded segment here",
        f"aiven+file://{tmp_path}": "no uploaded segment here",
    }.items():
        done = pylogseg("ls", url)
        assert (done.code, words in done.err) == (2, True), done.err


def test_a_restore_the_wrong_way_round(tier: Path, tmp_path: Path) -> None:
    done = pylogseg("restore", tmp_path, f"aiven+file://{tier}")
    assert done.code == 2
    assert "not a folder of this machine; what is read comes first" in done.err


def test_metadata_that_says_nothing_of_tiers(tier: Path, golden: Path) -> None:
    disk = golden / "broker-4.4" / "all" / "data0"
    done = pylogseg("verify", f"aiven+file://{tier}", "--remote-metadata", disk)
    assert (done.code, "no partition of __remote_log_metadata here" in done.err) == (2, True), done.err
    done = pylogseg("verify", disk, "--remote-metadata", golden / "tier" / "metadata")
    assert (done.code, "give its URL" in done.err) == (2, True), done.err
