"""Tests of disk/tier/joined.py and inspect/verify/disk.py. A broker's disk and its tier are one log: whatever the
folder lacks, nothing is left out without a word.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.tiered_logs import follow, write_log
from helpers.tiers import TOPIC_ID, Uploader

import pylogseg
from pylogseg.format.uuids import format_uuid
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import PERHAPS_REMOTE, Level

OTHER_ID = format_uuid(b"another topic id")


class World:
    """A leader that uploaded its log, and the disk of a follower with other segments, of which the first are gone."""

    def __init__(self, folder: Path) -> None:
        leader = write_log(folder / "leader" / "orders-0")
        self.uploader = Uploader(folder / "tier")
        self.manifests = self.uploader.partition(leader)
        self.part = follow(leader, folder / "disk" / "orders-0", segment_bytes=9000)
        self.first = 0
        for base in sorted(int(path.stem) for path in self.part.glob("*.log")):
            if base < 600:
                for path in self.part.glob(f"{self.first:020d}.*") if base else ():
                    path.unlink()
                self.first = base
        self.metadata = self.part / "partition.metadata"
        self.metadata.write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
        self.url = f"aiven+file://{folder / 'tier'}"

    def open(self) -> pylogseg.Disk:
        return pylogseg.open_dir(self.part.parent, tier=self.url)


def offsets(disk: pylogseg.Disk) -> list[int]:
    return [record.offset for record in pylogseg.read(disk)]


def test_whole(world: World) -> None:
    disk = world.open()
    assert offsets(disk) == list(range(1200))
    assert disk.notes == ()
    assert 0 < world.first < 600


@pytest.mark.parametrize("content", ["garbage", None])
def test_without_topic_id(world: World, content: str | None) -> None:
    """The name alone tells which uploads are meant, and a note says so."""
    world.metadata.unlink()
    if content is not None:
        world.metadata.write_text(content)
    disk = world.open()
    assert offsets(disk) == list(range(1200))
    assert "found by the name alone" in "".join(disk.notes)


def test_without_topic_id_of_several(world: World, tmp_path: Path) -> None:
    """Which of two topics is meant, nobody knows: the partition is not read as if the tier had nothing of it."""
    world.uploader.partition(write_log(tmp_path / "older" / "orders-0"), OTHER_ID)
    world.metadata.unlink()
    (part,) = world.open().partitions
    assert OTHER_ID in str(part.error)
    with pytest.raises(pylogseg.StorageError, match="several topics of this name"):
        offsets(world.open())


def test_another_topic(world: World, tmp_path: Path) -> None:
    world.metadata.write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    disk = world.open()
    assert offsets(disk) == list(range(world.first, 1200))
    assert f"it has topic id {OTHER_ID}" in "".join(disk.notes)
    (tmp_path / "new").mkdir()
    restored = pylogseg.offline.restore(world.part.parent, tmp_path / "new", tier=world.url, force=True)
    assert f"it has topic id {OTHER_ID}" in "".join(restored.notes)


def test_without_epochs(world: World) -> None:
    """Without the checkpoint too, uploads end where the disk begins."""
    (world.part / "leader-epoch-checkpoint").unlink()
    disk = world.open()
    assert offsets(disk) == list(range(1200))
    assert not any(file.path.endswith("leader-epoch-checkpoint") for file in disk.partitions[0].others)


def test_damaged_manifest(world: World) -> None:
    """One of offsets that the disk has does no harm."""
    for path in world.manifests:
        if json.loads(path.read_text())["remoteLogSegmentMetadata"]["startOffset"] > world.first:
            path.write_text("{")
    assert offsets(world.open()) == list(range(1200))


@pytest.mark.parametrize("knows", [False, True])
def test_first_segments_that_neither_has(world: World, tmp_path: Path, knows: bool) -> None:
    """The tier may have deleted them after the disk was written: it is not known, and it is said."""
    if knows:
        (world.part.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    assert not [each for each in verify_disk(world.open(), VerifySummary(Level.INDEXES)) if each.kind == PERHAPS_REMOTE]
    first = world.manifests[0]
    for path in first.parent.glob(first.name.split(".")[0] + ".*"):
        path.unlink()
    start = offsets(world.open())[0]
    assert start > 0
    (found,) = (each for each in verify_disk(world.open(), VerifySummary(Level.INDEXES)) if each.kind == PERHAPS_REMOTE)
    assert (found.is_damage, found.offset, found.last_offset) == (False, 0, start - 1)
    (tmp_path / "new").mkdir()
    restored = pylogseg.offline.restore(world.part.parent, tmp_path / "new", tier=world.url)
    assert f"{found.path}: {found.reason}" in restored.notes
    assert "were deleted in their tier since" in found.reason


def test_partitions_that_the_disk_has_not(world: World, tmp_path: Path) -> None:
    world.uploader.partition(write_log(tmp_path / "leader" / "orders-7"))
    (note,) = world.open().notes
    assert "without a folder on these disks: 1, such as orders-7" in note
    assert pylogseg.open_dir(world.part, tier=world.url).notes == ()  # nobody asked for others
