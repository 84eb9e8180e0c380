"""Tests of inspect/verify/findings.py. What a user may not read was not looked at: exit code 2, and no damage."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import pylogseg
from pylogseg.cli import shell

NOBODY = 65534


@contextlib.contextmanager
def without_rights(path: Path) -> Iterator[None]:
    """Nobody may read a file or folder; root becomes another user for as long."""
    mode = path.stat().st_mode
    is_root = os.geteuid() == 0
    path.chmod(0)
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        path.chmod(mode)


def _open_to_all() -> str:
    """A folder for temporary files that every user may enter; the one of this run may be its user's alone."""
    for folder in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if all(each.stat().st_mode & 0o001 for each in (folder, *folder.resolve().parents)):
            return str(folder)
    pytest.skip("no folder for temporary files that another user may enter")


@pytest.fixture
def disk(golden: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of a whole disk in a folder that all users may enter, and in which they may make temporary files."""
    with tempfile.TemporaryDirectory(dir=_open_to_all()) as scratch:
        Path(scratch).chmod(0o777)
        monkeypatch.setattr(tempfile, "tempdir", scratch)
        disk = Path(shutil.copytree(golden / "broker-4.3" / "txn" / "data0", Path(scratch) / "data0"))
        for path in (disk, *disk.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        # Loads what is loaded on first use: another user may not be able to.
        CliRunner().invoke(shell, ["verify", str(disk)])
        pylogseg.report(disk)
        yield disk


PLACES = (
    "txn-a-0",
    "txn-a-0/*.log",
    "txn-a-0/*.index",
    "txn-a-0/*.timeindex",
    "txn-a-0/*.txnindex",
    "txn-a-0/*.snapshot",
    "*/leader-epoch-checkpoint",
    "*/partition.metadata",
    "__cluster_metadata-0",
    "__cluster_metadata-0/*.log",
    "__cluster_metadata-0/*.checkpoint",
    "*-offset-checkpoint",
    "bootstrap.checkpoint",
    "meta.properties",
)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="rights of another kind")
def test_what_may_not_be_read_is_not_damage(disk: Path) -> None:
    assert CliRunner().invoke(shell, ["verify", str(disk)]).exit_code == 0
    for pattern in PLACES:
        for path in sorted(disk.glob(pattern))[:2]:
            with without_rights(path):
                done = CliRunner().invoke(shell, ["verify", str(disk)])
                assert "UNREAD" in done.output
                assert "DAMAGE" not in done.output, (path, done.output)
                assert "not looked at, for want of a key or of permission" in done.output
                assert done.exit_code == 2, (path, done.output)
                facts = pylogseg.report(disk).facts
                assert (facts.damage, facts.unread > 0) == (0, True), (path, facts.findings)
                assert "not looked at, for want of" in facts.verdict
