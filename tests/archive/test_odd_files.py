"""Tests of archive/place.py. Pipes, devices, holes and links under the names of an archive's objects: no command waits,
or takes all memory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from helpers.depth import diagonals
from helpers.process_memory import Growth
from helpers.shell import pylogseg as shell

import pylogseg

NO_ID = "A" * 22
COMMANDS: list[tuple[Any, ...]] = [
    ("archive", "DISK", "ARCHIVE"),
    ("archive", "points", "ARCHIVE"),
    ("archive", "show", "ARCHIVE"),
    ("archive", "prune", "ARCHIVE", "--keep-last", 1),
    ("verify", "ARCHIVE"),
    ("verify", "ARCHIVE", "--read-all"),
    ("ls", "aiven+file://ARCHIVE#latest"),
    ("cat", "aiven+file://ARCHIVE#latest", "orders-0"),
    ("restore", "ARCHIVE", "NEW", "--node-id", 1),
    ("drill", "ARCHIVE"),
]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n")
    with pylogseg.open_log(disk / "orders-0") as log:
        log.append([(None, b"k", b"v" * 100)] * 50)
    assert shell("archive", disk, tmp_path / "archive").code == 0
    return tmp_path / "archive"


def make(kind: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "hole":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.symlink_to({"device": "/dev/zero", "dangling": "/nowhere/at/all"}[kind])


NAMES = ["manifest", "left behind", ".log", ".indexes", "point", "mark", "verified", "list"]
KINDS = ["pipe", "device", "hole", "dangling", "loop"]


@pytest.mark.parametrize(("name", "kind"), diagonals(NAMES, KINDS, 5))
def test_what_is_no_file(archive: Path, tmp_path: Path, kind: str, name: str) -> None:
    (manifest,) = archive.rglob("*.rsm-manifest")
    (point,) = (archive / "points").iterdir()
    path = {
        "manifest": manifest,
        "left behind": manifest.with_name(f"{0:020d}-{NO_ID}.rsm-manifest"),
        ".log": manifest.with_suffix(".log"),
        ".indexes": manifest.with_suffix(".indexes"),
        "point": point,
        "mark": archive / "archive.json",
        "verified": archive / "verified" / point.name,
        "list": archive / "lists" / f"{'0' * 64}.jsonl",
    }[name]
    make(kind, path)
    for place, command in enumerate(COMMANDS):
        new = tmp_path / f"new-{place}"
        new.mkdir()
        texts = {"DISK": str(tmp_path / "disk"), "ARCHIVE": str(archive), "NEW": str(new)}
        words = [texts.get(str(word), str(word).replace("ARCHIVE", str(archive))) for word in command]
        growth = Growth(2 << 30)
        try:
            done = shell(*words)
        finally:
            assert growth.peak() < 200 << 20, command
        assert done.code in (0, 1, 2), command
        assert "Traceback" not in done.err, command
