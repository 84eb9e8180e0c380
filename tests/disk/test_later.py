"""Tests of disk/disk.py, disk/listing.py and env/filesystem.py. A disk whose folders are listed when they are asked for
is the same disk.
"""

from __future__ import annotations

import os
import pickle
import shutil
import time
from pathlib import Path

import pytest

from pylogseg import open_dir
from pylogseg.disk.disk import Segment
from pylogseg.disk.listing import Later, open_later
from pylogseg.env.filesystem import LocalFiles

DATA = Path("examples/data")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Files of a disk that nobody has changed for a while."""
    shutil.copytree(DATA, tmp_path / "data")
    rested(tmp_path / "data")
    return tmp_path / "data"


def _of(segment: Segment) -> tuple[object, ...]:
    """What is known of a segment, but for the file system, which each disk has its own of."""
    return repr(segment), segment.companions, segment.next_base


def rested(path: Path) -> None:
    """Let the last change of each folder be a minute ago."""
    for folder in [path, *path.iterdir()]:
        os.utime(folder, (time.time() - 60,) * 2)


def test_it_is_the_same_disk(copied: Path) -> None:
    """Each partition has the segments, files and start that it has when all is listed at once."""
    now, later = open_dir(copied), open_later([str(copied)])
    assert any(isinstance(each.segments, Later) for each in later.partitions)
    for one, other in zip(now.partitions, later.partitions, strict=True):
        assert (other.name, other.log_start_offset, other.size) == (one.name, one.log_start_offset, one.size)
        assert [_of(each) for each in other.segments] == [_of(each) for each in one.segments]
        assert other.others == one.others
        assert pickle.loads(pickle.dumps(other)).others == one.others


def test_files_are_listed_when_they_are_asked_for(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then only names are looked at; then the folder is listed once, as it is."""
    listed: list[str] = []
    whole = LocalFiles.list_folder

    def noted(self: LocalFiles, path: str) -> object:
        listed.append(os.path.basename(path))
        return whole(self, path)

    monkeypatch.setattr(LocalFiles, "list_folder", noted)
    disk = open_later([str(copied)])
    assert listed == ["data"]
    (partition,) = disk["codec-none-1"]
    assert partition.segments[0].size
    assert partition.others
    assert listed == ["data", "codec-none-1"]


def test_a_folder_that_is_gone_has_no_segment(copied: Path) -> None:
    """A broker deletes topics while it is read."""
    (partition,) = open_later([str(copied)])["codec-none-1"]
    shutil.rmtree(copied / "codec-none-1")
    assert not partition.segments
    assert not partition.others


def test_a_folder_that_is_changed_is_listed_at_once(copied: Path) -> None:
    """What a load would leave, and what a writer is about to rename, is not told from names alone."""
    (copied / "codec-none-1" / "new").touch()
    swapped = copied / "mixed-0"
    next(iter(swapped.glob("*.log"))).rename(swapped / "00000000000000000000.log.swap")
    os.utime(swapped, (time.time() - 60,) * 2)
    disk = open_later([str(copied)])
    for name in ("codec-none-1", "mixed-0"):
        (partition,) = disk[name]
        assert isinstance(partition.segments, tuple), name
