"""Tests of env/locks.py. The lock of a log directory, and who gives it up."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

from pylogseg.env.locks import LOCK_NAME, FolderLock, check_unlocked
from pylogseg.errors import DirectoryLockedError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file that is closed when it is freed
def test_a_lock_that_nobody_has_any_more(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    with pytest.raises(DirectoryLockedError, match="this process has the lock already"):
        FolderLock(str(tmp_path))
    del lock
    gc.collect()
    check_unlocked(str(tmp_path))
    again = FolderLock(str(tmp_path))
    again.release()
    again.release()
    assert not (tmp_path / LOCK_NAME).exists() or os.name == "nt"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_the_child_of_a_fork_leaves_it_to_the_parent(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    child = os.fork()
    if not child:
        lock.release()
        del lock
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / LOCK_NAME).exists()
    with pytest.raises(DirectoryLockedError):
        check_unlocked(str(tmp_path))
    lock.release()
