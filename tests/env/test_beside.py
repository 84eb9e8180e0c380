"""What is written beside its name, interrupted at each step of it: all of it is there in the end, or nothing."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.interrupted import interrupted

from pylogseg.env import beside
from pylogseg.env.storage import LocalStorage

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # of what is closed when it is freed
]


def one_file(folder: Path) -> None:
    with beside.whole(folder / "made") as file:
        file.write(b"all")


def scratch(folder: Path) -> None:
    with beside.scratch_folder(folder / "scratch") as made:
        (made / "in").write_bytes(b"it")


def temporary(folder: Path) -> None:
    with beside.temporary_folder("pylogseg-") as made:
        assert made.parent == folder
        assert made.stat().st_mode & 0o777 == 0o700
        (made / "in").write_bytes(b"it")


def synced(folder: Path) -> None:
    with beside.synced(LocalStorage(), str(folder / "made.part"), str(folder / "made")) as file:
        file.append(b"all")


def one_folder(folder: Path) -> None:
    new = beside.NewFolder(LocalStorage(), str(folder / "made"))
    try:
        with new.locked():
            Path(new.beside, "in").write_bytes(b"it")
        new.finish()
    except BaseException:
        new.discard()
        raise


def folder_in_it(folder: Path) -> None:
    """As a merge does."""
    new = beside.NewFolder(LocalStorage(), str(folder / "made"))
    try:
        with new.locked():
            Path(new.beside, "log").mkdir()
        new.finish(str(Path(new.beside, "log")))
    finally:
        new.discard()


WORKS = [one_file, scratch, temporary, synced, one_folder, folder_in_it]


@pytest.mark.parametrize("work", WORKS)
def test_interrupts(work: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    work(tmp_path)  # what a first call finds out and keeps would be most of the instructions
    beside.remove(tmp_path / "made")
    at, states = 1, set()
    while interrupted(lambda: work(tmp_path), at):
        beside._drop_all()  # as at the end of the process
        left = sorted(os.listdir(tmp_path))
        assert left in ([], ["made"]), at
        assert beside._temporary == {}, at
        states.add(bool(left))
        beside.remove(tmp_path / "made")
        at += 1
    assert states == ({False} if work in (scratch, temporary) else {False, True})


def test_a_fork_leaves_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with beside.scratch_folder(tmp_path / "scratch") as made:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        beside._drop_all()
        assert made.is_dir()
    assert not made.exists()


def test_nothing_is_noted_for_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for work in WORKS:
        work(tmp_path)
        assert beside._temporary == {}
        beside.remove(tmp_path / "made")
