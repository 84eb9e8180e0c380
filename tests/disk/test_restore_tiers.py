"""Tests of offline/restoring/tier.py and transfer/segment_files.py. `restore` from tiered storage: folders that have
what was uploaded, and that the engine opens.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers import shell
from helpers.damaged_logs import change_byte
from helpers.shell import expect
from helpers.tiered_logs import write_log
from helpers.tiers import TOPIC_ID, Uploader

import pylogseg


def rows(disk: object) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(r.offset, r.timestamp, r.key, r.value) for r in pylogseg.read(disk)]  # type: ignore[arg-type]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("disk") / "orders-0")


@pytest.fixture
def tier(folder: Path, tmp_path: Path) -> Path:
    Uploader(tmp_path / "tier", 3000, is_compressed=True).partition(folder)
    return tmp_path / "tier"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def test_files_are_the_broker_s(folder: Path, tier: Path, target: Path) -> None:
    """Sealed segments, their indexes and snapshots come back byte for byte."""
    result = pylogseg.offline.restore(f"aiven+file://{tier}", target)
    (part,) = result.partitions
    bases = [segment.base_offset for segment in pylogseg.open_dir(folder).partitions[0].segments]
    assert (part.state, part.log_start, part.log_end) == ("done", 0, bases[-1])
    there, made = files_of(folder), files_of(target / "orders-0")
    assert {name: data for name, data in made.items() if name[0] == "0"} == {
        name: data
        for name, data in there.items()
        if name[0] == "0" and int(name[:20]) in (bases if name.endswith(".snapshot") else bases[:-1])
    }
    assert made["partition.metadata"] == f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    assert made["leader-epoch-checkpoint"] == b"0\n3\n0 0\n1 400\n2 800\n"
    found = shell.pylogseg("verify", target, "--quiet")
    assert (found.code, found.text) == (0, "")
    with pylogseg.open_log(target / "orders-0", index_interval_bytes=512) as log:
        assert log.report.actions == []
        assert log.log_end_offset == bases[-1]


def test_again_is_unchanged(tier: Path, target: Path) -> None:
    url = f"aiven+file://{tier}"
    pylogseg.offline.restore(url, target)
    before = files_of(target / "orders-0")
    (part,) = pylogseg.offline.restore(url, target).partitions
    assert part.state == "unchanged"
    assert files_of(target / "orders-0") == before


@pytest.mark.parametrize("to", [1, 395, 400, 777])
def test_to_an_offset(folder: Path, tier: Path, target: Path, to: int) -> None:
    assert shell.pylogseg("restore", f"aiven+file://{tier}", target, "--to", to, "--json").code == 0
    expected = [row for row in rows(folder) if row[0] < to // 10 * 10]  # batches have ten records
    assert rows(target) == expected
    assert shell.pylogseg("verify", target, "--quiet").text == ""


def test_to_a_time(folder: Path, tier: Path, target: Path) -> None:
    assert shell.pylogseg("restore", f"aiven+file://{tier}", target, "--until", 500_000).code == 0
    assert rows(target) == [row for row in rows(folder) if row[1] < 500_000]


def test_disk_and_tier(folder: Path, tier: Path, target: Path, tmp_path: Path) -> None:
    """What the disk has that was not uploaded yet is restored too."""
    data = tmp_path / "data"
    data.mkdir()
    copy = Path(shutil.copytree(folder, data / "orders-0"))
    (copy / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    for segment in pylogseg.open_dir(folder).partitions[0].segments[:3]:
        Path(copy / segment.name).unlink()
    assert shell.pylogseg("restore", data, target, "--tier", f"aiven+file://{tier}").code == 0
    assert rows(target) == rows(folder)


def test_a_partition_that_the_disk_has_lost(folder: Path, tier: Path, target: Path, tmp_path: Path) -> None:
    """Its checkpoints know it: nothing is restored without a word, unless others are named."""
    data = tmp_path / "data"
    data.mkdir()
    shutil.copytree(folder, data / "orders-0")
    (data / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 100\norders 5 100\n")
    where = [data, target, "--tier", f"aiven+file://{tier}"]
    for names in ((), ("orders",)):
        done = shell.pylogseg("restore", *where[:2], *names, *where[2:])
        assert (done.code, "the folder of this partition is missing" in done.err) == (1, True)
        assert not list(target.iterdir())
    assert shell.pylogseg("restore", *where[:2], "orders-0", *where[2:]).code == 0
    shutil.rmtree(target / "orders-0")
    done = shell.pylogseg("restore", *where, "--force")
    assert (done.code, "missing: " in done.err, (target / "orders-0").is_dir()) == (1, True, True)


def test_damage(folder: Path, tier: Path, target: Path) -> None:
    """By default nothing is restored; else all but what is damaged, with indexes made anew, and a note."""
    path = sorted(tier.rglob("*.log"))[2]
    change_byte(path, 100, 255)
    done = shell.pylogseg("restore", f"aiven+file://{tier}", target)
    assert done.code != 0
    assert str(path) in done.err
    assert not (target / "orders-0").exists()
    expect(shell.pylogseg("restore", f"aiven+file://{tier}", target, "--on-corrupt", "skip"), 1, out="left out")
    url = f"aiven+file://{tier}"
    left = [(r.offset, r.timestamp, r.key, r.value) for r in pylogseg.read(pylogseg.open_tier(url), on_corrupt="skip")]
    assert rows(target) == left
    assert 0 < len(left) < len(rows(folder))


def test_hole(folder: Path, tier: Path, target: Path) -> None:
    manifest = sorted(tier.rglob("*.rsm-manifest"))[1]
    manifest.unlink()
    expect(shell.pylogseg("restore", f"aiven+file://{tier}", target), 1, "are in no upload")
    assert shell.pylogseg("restore", f"aiven+file://{tier}", target, "--on-corrupt", "skip").code == 1


def test_refused(folder: Path, target: Path, tmp_path: Path) -> None:
    assert shell.pylogseg("restore", folder, target, "--to", 3).code == 2
    assert shell.pylogseg("restore", f"aiven+file://{tmp_path}", target).code == 2
    assert shell.pylogseg("restore", f"aiven+file://{tmp_path}/none", target).code == 2
