"""Tests of env/interrupts.py. Interrupts at each step of what a program does with files and logs: they can be closed
after it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.depth import IS_DEEP
from helpers.interrupted import interrupted

import pylogseg
from pylogseg.env.handles import Handles
from pylogseg.env.storage import LocalStorage

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # of what is closed when it is freed
]


def appended(folder: Path) -> None:
    with contextlib.closing(LocalStorage().open_log(str(folder / "log"))) as file:
        file.append(b"some")
        file.append_many([b"more", b"of it"])
        file.read(0, file.size)
        file.truncate(0)


def few_handles(folder: Path) -> None:
    """Each file takes the place of another one."""
    storage = LocalStorage(Handles(1))
    storage.write_plain(str(folder / "index"), bytes(8))
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(contextlib.closing(storage.open_log(str(folder / name)))) for name in "ab"]
        index = stack.enter_context(contextlib.closing(storage.open_index(str(folder / "index"))))
        for _ in range(2):
            for file in files:
                file.append(b"some")
            index.resize(8)
            index.put(0, b"12345678")
            index.read(0, 8)


def log(folder: Path) -> None:
    disk = folder / str(len(os.listdir(folder)))
    disk.mkdir()
    with pylogseg.open_log(disk / "orders-0") as opened:
        opened.append([(None, b"key", b"some")])
        assert opened.flush() is None


@pytest.mark.parametrize(("work", "step"), [(appended, 1), (few_handles, 3), (log, 17)])
def test_it_can_be_closed(work: Callable[[Path], None], step: int, tmp_path: Path) -> None:
    """Else what holds a lock waits for itself, and only a kill ends the program."""
    for number in range(2):  # what a first call imports and finds out is not of interest
        (tmp_path / f"first-{number}").mkdir()
        work(tmp_path / f"first-{number}")
    at = 1
    while interrupted(lambda: work(tmp_path), at):  # of a long one some moments, in a deep run all
        at += 1 if IS_DEEP else step
    assert at > 50
