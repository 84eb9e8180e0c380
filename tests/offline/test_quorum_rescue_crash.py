"""Tests of offline/rescuing/writing.py. A rescue that is killed at any call of the system, or whose disk fails: the old
folder or the new one.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from crash import kills
from helpers.metadata_logs import LOG, MetadataLog
from helpers.trees import tree

from pylogseg import offline
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import StorageError
from pylogseg.inspect.quorum.copies import read_copies
from pylogseg.testing.faults import FaultyStorage


@pytest.mark.parametrize("name", ["rescue-into", "rescue-in-place"])
def test_killed(name: str) -> None:
    faults = list(kills.sweep(name, every=4))  # `python tests/crash kills` has each call
    assert len(faults) > 10
    assert [fault for fault in faults if fault] == []


@pytest.mark.parametrize("error", [errno.EIO, "short", "sync"])
def test_a_disk_that_fails(tmp_path: Path, error: int | str) -> None:
    log = MetadataLog()
    log.topic("orders")
    b11 = str(log.disk(tmp_path / "b11", 11))
    before, k = tree(tmp_path), 0
    while True:
        k += 1
        storage = FaultyStorage(LocalStorage(), k, error)  # type: ignore[arg-type]
        try:
            offline.rescue_quorum(
                [b11], into=[str(tmp_path / "new")], voters=["1@c1:9093"], write=True, storage=storage
            )
        except StorageError:
            (copy,) = read_copies(str(tmp_path / "new")) if (tmp_path / "new").exists() else (None,)
            assert copy is None or copy.end == log.end + 2
            shutil.rmtree(tmp_path / "new", ignore_errors=True)
            for left in tmp_path.glob(".new.*"):
                shutil.rmtree(left)
            assert {path: data for path, data in tree(tmp_path).items() if "b11" in path} == {
                path: data for path, data in before.items() if "b11" in path
            }
        else:
            break
    assert k > 5
    assert (tmp_path / "new" / LOG).is_dir()
