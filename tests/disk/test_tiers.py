"""Tests of disk/tier/files.py, disk/tier/layouts.py, disk/tier/opening.py, disk/tier/tier.py, disk/tier/uploads.py and
disk/tiers.py. Uploaded segments are read as the log that they were: whatever their chunks, overlaps, leaders and keys.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest
from helpers.tiered_logs import follow, write_log
from helpers.tiers import Key, Uploader

import pylogseg
from pylogseg.format.uuids import format_uuid

OTHER_ID = format_uuid(b"another topic id")


def rows(disk: pylogseg.Disk) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(r.offset, r.timestamp, r.key, r.value) for r in pylogseg.read(disk)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("disk") / "orders-0")


@pytest.mark.parametrize("chunk_bytes", [700, 4096, 1 << 20])
@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_chunks(folder: Path, tmp_path: Path, chunk_bytes: int, is_compressed: bool, is_encrypted: bool) -> None:
    key = Key.make("key-1", tmp_path / "keys") if is_encrypted else None
    Uploader(tmp_path / "tier", chunk_bytes, is_compressed, key).partition(folder, active=True)
    disk = pylogseg.open_tier(f"aiven+file://{tmp_path / 'tier'}", tmp_path / "keys" if is_encrypted else None)
    expected = rows(pylogseg.open_dir(folder))
    assert rows(disk) == expected
    for first in range(0, 1200, 111):
        found = [r.offset for r in pylogseg.read(disk, offset=(first, first + 30))]
        assert found == list(range(first, min(first + 30, 1200)))


def test_keys_of_several_ids(folder: Path, tmp_path: Path) -> None:
    """Keys are rotated: old segments keep the id of the key that they were uploaded with."""
    for number, name in enumerate(["first", "second"]):
        key = Key.make(name, tmp_path / "keys")
        up = Uploader(tmp_path / "tier", is_compressed=True, key=key)
        bases = [segment.base_offset for segment in pylogseg.open_dir(folder).partitions[0].segments]
        for base, end in list(itertools.pairwise(bases))[number::2]:
            up.segment(folder, base, end)
    url = f"aiven+file://{tmp_path / 'tier'}"
    expected = [row for row in rows(pylogseg.open_dir(folder)) if row[0] < bases[-1]]
    assert rows(pylogseg.open_tier(url, tmp_path / "keys")) == expected
    given = {"first": tmp_path / "keys" / "first.pem"}
    with pytest.raises(pylogseg.StorageError, match=r"key 'second' is not in the key ring, which has 'first'"):
        rows(pylogseg.open_tier(url, given))
    found = pylogseg.read(pylogseg.open_tier(url, given), on_corrupt="skip")
    assert {record.offset for record in found} == {
        row[0] for row in expected for i in range(0, len(bases) - 1, 2) if bases[i] <= row[0] < bases[i + 1]
    }


def test_overlaps(folder: Path, tmp_path: Path) -> None:
    """A second broker uploads with other bounds, and one segment twice; each offset is read once."""
    up = Uploader(tmp_path / "tier", is_compressed=True)
    bases = [segment.base_offset for segment in pylogseg.open_dir(folder).partitions[0].segments]
    assert len(bases) > 5
    for base, end in [(bases[0], bases[1]), (bases[1], bases[2]), (bases[1], bases[2]), (bases[2], bases[3])]:
        up.segment(folder, base, end)
    other = follow(folder, tmp_path / "b" / "orders-0", segment_bytes=23000)
    up.partition(other)
    there = pylogseg.open_dir(other).partitions[0].segments
    assert {s.base_offset for s in there} & set(bases) == {0}
    disk = pylogseg.open_tier(f"aiven+file://{tmp_path / 'tier'}")
    assert rows(disk) == [row for row in rows(pylogseg.open_dir(folder)) if row[0] < there[-1].base_offset]
    table = pylogseg.read_arrow(disk, offset=(bases[2] - 5, bases[2] + 40)).read_all()
    assert table["offset"].to_pylist() == list(range(bases[2] - 5, bases[2] + 40))


def test_other_branch(folder: Path, tmp_path: Path) -> None:
    """What a leader uploaded that an unclean election made a loser is left out."""
    up = Uploader(tmp_path / "tier")
    lost = write_log(tmp_path / "lost" / "orders-0", 1, 700)  # epoch 0 went on to 700 there
    up.partition(lost)
    up.partition(folder)  # in which epoch 1 begins at 400
    disk = pylogseg.open_tier(f"aiven+file://{tmp_path / 'tier'}")
    assert any("records of other leaders" in note for note in disk.notes)
    last = pylogseg.open_dir(folder).partitions[0].segments[-1].base_offset
    assert rows(disk) == [row for row in rows(pylogseg.open_dir(folder)) if row[0] < last]


def test_topic_made_anew(folder: Path, tmp_path: Path) -> None:
    up = Uploader(tmp_path / "tier")
    up.partition(write_log(tmp_path / "old" / "orders-0", 1, 100, segment_bytes=2000), OTHER_ID)
    up.later_ms = 100_000
    up.partition(folder)
    disk = pylogseg.open_tier(f"aiven+file://{tmp_path / 'tier'}")
    (note,) = disk.notes
    assert f"orders-{OTHER_ID}" in note
    assert rows(disk)[-1][0] > 1000
    old = pylogseg.open_tier(f"aiven+file://{tmp_path / 'tier' / f'orders-{OTHER_ID}'}")
    assert rows(old)[-1][0] < 100


def test_topic_made_anew_in_a_copied_bucket(folder: Path, tmp_path: Path) -> None:
    """The times of uploads tell which topic is the latest; those of objects are those of the copy, in any order."""
    tier = tmp_path / "tier"
    up = Uploader(tier)
    up.later_ms = 100_000
    up.partition(folder)
    up.later_ms = 0
    old = write_log(tmp_path / "old" / "orders-0", 1, 100, segment_bytes=2000)
    up.partition(old, OTHER_ID)
    up.partition(Path(shutil.copytree(old, tmp_path / "old" / "orders-1")), OTHER_ID)
    for path in tier.rglob("*"):
        os.utime(path, (2e9, 2e9) if OTHER_ID in str(path) else (1e9, 1e9))
    disk = pylogseg.open_tier(f"aiven+file://{tier}")
    assert [part.name for part in disk.partitions] == ["orders-0"]
    assert rows(disk)[-1][0] > 1000
    # By the path of the partition too, as the tasks of a plan open it.
    assert rows(pylogseg.open_dir(f"aiven+file://{tier}!/orders-0"))[-1][0] > 1000
    with pytest.raises(pylogseg.StorageError, match="no such partition"):
        pylogseg.open_dir(f"aiven+file://{tier}!/orders-1")


@pytest.mark.parametrize("overlap", [0, 2])
def test_disk_and_tier(folder: Path, tmp_path: Path, overlap: int) -> None:
    """The broker deleted what it uploaded, perhaps not all of it yet."""
    data = tmp_path / "data"
    data.mkdir()
    copy = Path(shutil.copytree(folder, data / "orders-0"))
    (copy / "partition.metadata").write_text(f"version: 0\ntopic_id: {format_uuid(bytes(range(16)))}")
    Uploader(tmp_path / "tier").partition(folder)
    bases = [segment.base_offset for segment in pylogseg.open_dir(folder).partitions[0].segments]
    for base in bases[: len(bases) - 1 - overlap]:
        for path in copy.glob(f"{base:020d}.*"):
            path.unlink()
    expected = rows(pylogseg.open_dir(folder))
    assert rows(pylogseg.open_dir(data))[0][0] > 0
    disk = pylogseg.open_dir(data, tier=f"aiven+file://{tmp_path / 'tier'}")
    assert rows(disk) == expected
    assert [s.base_offset for s in disk.partitions[0].segments] == bases
    assert rows(pylogseg.open_dir(data / "orders-0", tier=f"aiven+file://{tmp_path / 'tier'}")) == expected
    assert pylogseg.read_arrow(disk, jobs=2).read_all()["offset"].to_pylist() == [row[0] for row in expected]
