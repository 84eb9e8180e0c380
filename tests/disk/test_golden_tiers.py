"""Tests of disk/tier/files.py and disk/tiers.py. Golden tiers: what brokers uploaded is read as what they had."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import shell

import pylogseg

ISOLATION = ["read_uncommitted", "read_committed"]


def url(golden: Path, name: str) -> str:
    layout = "localtier" if "local" in name else "aiven"
    return f"{layout}+file://{golden / 'tier' / name}"


def key_of(golden: Path) -> Path:
    return golden / "tier" / "aiven-zstd-aesgcm" / "private.pem"


def disk_of(golden: Path, name: str) -> pylogseg.Disk:
    return pylogseg.open_tier(url(golden, name), key_of(golden) if "aesgcm" in name else None)


@pytest.mark.parametrize(
    ("name", "partition", "counts"),
    [
        ("aiven-plain", 0, (2885, 2884)),
        ("aiven-zstd-aesgcm", 0, (2878, 2877)),  # what a consumer of that broker got
        ("aiven-zstd-aesgcm", 1, (2805, 2804)),
        ("kafka-localtieredstorage", 0, (1447, 1447)),
    ],
)
def test_records(golden: Path, name: str, partition: int, counts: tuple[int, int]) -> None:
    disk = disk_of(golden, name)
    assert not disk.notes
    for isolation, count in zip(ISOLATION, counts, strict=True):
        records = list(pylogseg.read(disk, "orders", partition, isolation_level=isolation))  # type: ignore[arg-type]
        assert len(records) == count
        table = pylogseg.read_arrow(disk, "orders", partition, isolation_level=isolation).read_all()  # type: ignore[arg-type]
        assert table["value"].to_pylist() == [record.value for record in records]
        assert table["offset"].to_pylist() == [record.offset for record in records]


def test_restored_by_hand(golden: Path, tmp_path: Path) -> None:
    """The plain tier is the same log as a folder of its objects under the names of a broker."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for path in (golden / "tier" / "aiven-plain").rglob("*.log"):
        (folder / f"{path.name[:20]}.log").write_bytes(path.read_bytes())
    wanted = pylogseg.read_arrow(folder).read_all()
    assert pylogseg.read_arrow(disk_of(golden, "aiven-plain")).read_all().equals(wanted)


def test_files(golden: Path) -> None:
    """The folder of a partition has the files that a broker would have, and they fit each other."""
    (part,) = disk_of(golden, "aiven-zstd-aesgcm").select("orders-0").partitions
    names = [entry.name for entry in part.files.list_folder(part.path)]
    assert names[-2:] == ["leader-epoch-checkpoint", "partition.metadata"]
    assert [name for name in names if name.endswith(".snapshot")] == [
        f"{base:020d}.snapshot" for base in (483, 971, 1452, 1927, 2415, 2880)
    ]
    assert part.files.read_all(part.files.join(part.path, "leader-epoch-checkpoint")) == b"0\n1\n0 0\n"
    metadata = part.files.read_all(part.files.join(part.path, "partition.metadata"))
    assert metadata == b"version: 0\ntopic_id: 6NPD2oO_TXeMlJgJr2znqA"


@pytest.mark.parametrize("name", ["", "/orders-6NPD2oO_TXeMlJgJr2znqA", "/orders-6NPD2oO_TXeMlJgJr2znqA/1"])
def test_folders_of_a_tier(golden: Path, name: str) -> None:
    found = pylogseg.open_tier(url(golden, "aiven-zstd-aesgcm/pre") + name, key_of(golden))
    assert [part.name for part in found] == (["orders-1"] if name.endswith("/1") else ["orders-0", "orders-1"])


def test_ranges(golden: Path) -> None:
    disk = disk_of(golden, "aiven-zstd-aesgcm")
    whole = list(pylogseg.read(disk, "orders-1"))
    offsets, times = [record.offset for record in whole], [record.timestamp for record in whole]
    for first in range(0, len(offsets), 97):
        part = pylogseg.read_arrow(disk, "orders-1", offset=(offsets[first], offsets[first] + 50)).read_all()
        assert part["offset"].to_pylist() == [o for o in offsets if offsets[first] <= o < offsets[first] + 50]
        since = times[first]
        late = pylogseg.read_arrow(disk, "orders-1", timestamp=(since, since + 20)).read_all()
        expected = [o for o, t in zip(offsets, times, strict=True) if since <= t < since + 20]
        assert late["offset"].to_pylist() == expected


@pytest.mark.parametrize("command", ["cat", "stats", "ls", "verify", "latest", "grep"])
def test_commands(golden: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands say of a tier what they say of a folder with its files."""
    monkeypatch.setenv("PYLOGSEG_TIER_KEYS", str(key_of(golden)))
    place = url(golden, "aiven-zstd-aesgcm/pre")
    (part,) = pylogseg.open_tier(place).select("orders-0").partitions
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for entry in part.files.list_folder(part.path):
        (folder / entry.name).write_bytes(part.files.read_all(part.files.join(part.path, entry.name)))
    words = [
        command,
        *(["commit"] if command == "grep" else []),
        "PLACE",
        *(["--json"] if command in ("stats", "ls", "verify") else []),
    ]
    places = [f"{place}!/orders-0", str(folder)]
    said = [shell.pylogseg(*(root if word == "PLACE" else word for word in words)) for root in places]
    assert said[0].code == said[1].code == 0
    texts = [done.text.replace(root, "PLACE") for done, root in zip(said, places, strict=True)]
    unsaid = re.compile(r'"notChecked":.*')  # of a tier it says more
    assert unsaid.sub("", texts[0]) == unsaid.sub("", texts[1])


def test_engines(golden: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    disk = disk_of(golden, "aiven-zstd-aesgcm")
    engine = duckdb.connect()
    engine.register("found", pylogseg.dataset(disk))
    assert engine.sql("select count(*) from found where partition = 1").fetchall() == [(2805,)]
