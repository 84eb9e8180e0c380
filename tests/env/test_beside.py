"""Tests of env/beside.py. What is written beside its name, interrupted at each step of it: all of it is there in the
end, or nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.interrupted import interrupted
from helpers.shell import environment

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
    with beside.open_synced(LocalStorage(), str(folder / "made.part"), str(folder / "made")) as file:
        file.append(b"all")


def one_folder(folder: Path) -> None:
    new = beside.NewFolder(LocalStorage(), str(folder / "made"))
    try:
        with new.lock():
            Path(new.beside, "in").write_bytes(b"it")
        new.finish()
    except BaseException:
        new.discard()
        raise


def folder_in_it(folder: Path) -> None:
    """As a merge does."""
    new = beside.NewFolder(LocalStorage(), str(folder / "made"))
    try:
        with new.lock():
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


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_only_the_own_disk_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sync", lambda: pytest.fail("all disks of the machine were flushed"))
    beside.flush(tmp_path)


def test_temporary_folders_of_killed_processes(tmp_path: Path) -> None:
    """They go when the next one is made; those of who lives stay, and what only has such a name."""
    program = (
        "import sys; from pylogseg.env import beside\n"
        "with beside.temporary_folder('pylogseg-', sys.argv[1]) as made: print(made, flush=True); sys.stdin.read()"
    )
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", program, tmp_path], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    living, killed, young = (Path(each.stdout.readline().decode().strip()) for each in holders if each.stdout)
    (killed / "large").write_bytes(b"large")
    others = [tmp_path / name for name in ("pylogseg-mine.tmp", f"pylogseg-{'0' * 31}.tmp", f"pylogseg-{'0' * 32}")]
    for other in others:
        other.mkdir()
    for holder in holders[1:]:
        holder.kill()
        holder.wait()
    for path in (living, killed, *others):
        os.utime(path, (1, 1))
    with beside.temporary_folder("pylogseg-", tmp_path) as made:
        assert {*tmp_path.iterdir()} == {living, young, made, *others}
        os.utime(made, (1, 1))
        with beside.temporary_folder("pylogseg-", tmp_path):
            assert made.exists()
    holders[0].communicate()
    assert {*tmp_path.iterdir()} == {young, *others}
