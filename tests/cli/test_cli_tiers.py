"""Tests of cli/tiers.py. The URL of a tier where a command needs a folder: each says what to do instead, and makes no
folder of that name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import shell
from helpers.shell import expect
from helpers.tiered_logs import write_log
from helpers.tiers import Uploader


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("tiers")
    Uploader(top / "tier").partition(write_log(top / "disk" / "orders-0", epochs=1))
    return top


@pytest.mark.parametrize(
    "line",
    [
        *(f"{name} TIER" for name in ("recover", "compact", "retain", "delete-records", "truncate --to 5", "reindex",
                                      "redact --key k1", "recode --compression zstd", "repair")),
        "copy TIER new", "copy DISK TIER", "merge TIER DISK --into new", "merge DISK --into TIER", "move TIER DISK",
        "move DISK TIER", "restore DISK TIER", "compact DISK --into TIER", "repair DISK --from TIER",
        "repair DISK --keep TIER", "recover DISK --keep TIER", "export DISK --out TIER", "report DISK -o TIER",
        "report DISK --csv TIER",
    ],
)  # fmt: skip
def test_a_folder_is_needed(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"TIER": f"aiven+file://{folder / 'tier'}", "DISK": str(folder / "disk")}
    done = shell.pylogseg(*(places.get(word, word) for word in line.split()))
    expect(done, 2, "folder of this machine")
    assert "restore" in done.err or "the source comes first" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("groups TIER", "name a broker's log directory"),
        ("transactions TIER", "name a broker's log directory"),
        ("cluster TIER", "name a broker's log directory"),
        ("schemas TIER", "name a broker's log directory"),
        ("dump TIER", "`pylogseg ls -l` prints them"),
        ("cat TIER --follow", "give the disk"),
        ("broker TIER", "restore a tier first"),
    ],
)
def test_what_a_tier_has_not(folder: Path, line: str, remedy: str) -> None:
    done = shell.pylogseg(*(f"aiven+file://{folder / 'tier'}" if word == "TIER" else word for word in line.split()))
    assert done.code == 2
    assert remedy in done.err
