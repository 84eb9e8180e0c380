"""Tests of archive/newest.py and archive/read_notes.py. Runs that nobody reads: each harm of a disk or of the store,
then `archive` and `prune`, three times.

Either the last copy of each record is still there, or a run did not end with 0. After runs that all ended with 0, the
newest point is whole, and has what the disk has.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import depth
from helpers.archives import rows_of
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import list_points, open_archive, write
from pylogseg.archive.verifying import ArchiveSummary, verify_archive
from pylogseg.disk.stores import Fingerprint, FolderStore
from pylogseg.inspect.verify.findings import Level

Harm = Callable[[Path], None]

SMALL_FILES = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "meta.properties",
    ".kafka_cleanshutdown",
    "t-0/partition.metadata",
    "t-0/leader-epoch-checkpoint",
)
#: Objects of an archive: a beginning and an end of the name, and which one of those.
OBJECTS = [(f"{topic}-", suffix, 0) for topic in "tu" for suffix in (".log", ".indexes", ".rsm-manifest")]
OBJECTS += [("points/", ".json", 0), ("points/", ".json", -1), ("lists/", ".jsonl", 0), ("archive.json", "", 0)]
OBJECTS += [("_pylogseg/points.json", "", 0)]


def absent(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(64))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if path.exists() else b"0")


def garbage(path: Path) -> None:
    path.write_bytes(b"{}\x00garbage")


HARMS = (absent, empty, zeros, cut, garbage)
FOLDERS = (("t-0",), ("u-0",), ("t-0", "u-0"), ("t-0/00000000000000000000.log",))
CASES = [("disk", name, harm) for name in SMALL_FILES for harm in HARMS]
CASES += [("disk", name, harm) for name in ("t-0/00000000000000000000.log",) for harm in (empty, cut, zeros)]
CASES += [("disk", ",".join(names), absent) for names in FOLDERS]
CASES += [("store", "*".join(map(str, each)), harm) for each in OBJECTS for harm in HARMS]
CASES += [("store", f"{topic}-*folder", absent) for topic in "tu"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's disk with two topics as it was at two moments, and an archive with two points of the first one."""
    folder = tmp_path_factory.mktemp("prepared")
    with pylogseg.Broker(folder / "home") as broker:
        for topic in "tu":
            broker.create_topic(topic, 1)
            for number in range(8):
                broker.produce(topic, b"%d" % number)
    shutil.copytree(folder / "home", folder / "same")
    for _ in range(2):
        assert write(folder / "same", folder / "archive").faults == []
    with pylogseg.Broker(folder / "home") as broker:
        for topic in "tu":
            broker.produce(topic, b"more")
    return folder


def harmed(case: tuple[str, str, Harm], disk: Path, archive: Path) -> None:
    place, name, harm = case
    if place == "disk":
        for each in name.split(","):
            harm(disk / each)
    elif name.endswith("*folder"):
        for path in archive.glob(f"{name[0]}-*"):
            harm(path)
    else:
        begin, end, number = name.split("*")
        paths = sorted(p for p in archive.rglob("*") if p.relative_to(archive).as_posix().startswith(begin))
        paths = [path for path in paths if path.is_file() and path.name.endswith(end)]
        if paths:
            harm(paths[int(number)])


def listings(kind: str, archive: Path) -> Callable[[FolderStore, str], dict[str, Fingerprint]]:
    """What a store lists: all, or points, or other objects, as they were at the beginning."""
    real, before = FolderStore.list, FolderStore(archive).list()

    def list_(self: FolderStore, name: str = "") -> dict[str, Fingerprint]:
        now = real(self, name)
        late = {"points": ("points/",), "folders": ("t-", "u-", "lists/")}.get(kind, ())
        stale = {each: of for each, of in before.items() if late and each.startswith(late) and each.startswith(name)}
        return {each: of for each, of in now.items() if not late or not each.startswith(late)} | stale

    return list_


def ids() -> Iterator[str]:
    return (f"{place}-{name}-{harm.__name__}".replace("/", ".") for place, name, harm in CASES)


@pytest.mark.parametrize("case", depth.some_of([pytest.param(c, id=i) for c, i in zip(CASES, ids(), strict=True)], 20))
def test_no_last_copy_is_lost(
    prepared: Path, case: tuple[str, str, Harm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a disk with nothing new and of one with more records, with a listing that is whole and two that lag."""
    for disk_of, lag in itertools.product(("same", "home"), ("whole", "points", "folders")):
        disk, archive = tmp_path / f"{disk_of}-{lag}", tmp_path / f"archive-{disk_of}-{lag}"
        shutil.copytree(prepared / disk_of, disk)
        shutil.copytree(prepared / "archive", archive)
        before = rows_of(disk) | rows_of(open_archive(archive))
        with monkeypatch.context() as patch:
            if lag != "whole":
                patch.setattr(FolderStore, "list", listings(lag, archive))
            harmed(case, disk, archive)
            codes = []
            for _ in range(3):
                codes += [shell("archive", disk, archive).code]
                codes += [shell("archive", "prune", archive, "--keep-last", 2).code]
        if any(codes):
            assert set(codes) <= {0, 1, 2}
            continue
        after = rows_of(disk) | rows_of(open_archive(archive))
        assert before <= after, (disk_of, lag)
        if lag == "whole":
            summary = ArchiveSummary(Level.INDEXES)
            newest = list_points(archive)[-1]
            found = [each for each in verify_archive(str(archive), summary, read="all") if each.is_damage]
            assert [each for each in found if newest.id in each.reason] == []
            assert rows_of(open_archive(archive)) >= rows_of(disk), (disk_of, lag)
