"""Tests of disk/swaps.py and log/segment_replace.py. A crash while segments replace others: who reads the folder finds
what a load makes of it, and copies carry that.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.damaged_logs import change_byte
from helpers.depth import some_of
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import PylogsegError
from pylogseg.format.names import parse_file_name
from pylogseg.log.log import Log
from pylogseg.log.state import Start
from pylogseg.testing.clock import ManualClock, ManualScheduler

NOW = 1_800_000_000_000
PART = "cmp-short-0"
KINDS = (".log", ".index", ".timeindex")


def name_of(base: int, kind: str) -> str:
    return f"{base:020}{kind}"


def merged(folder: Path) -> bytes:
    """The segments 624 and 845 in one, without a batch in the middle."""
    data = b"".join((folder / name_of(base, ".log")).read_bytes() for base in (624, 845))
    places, position = [], 0
    while position < len(data):
        places.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return data[: places[1]] + data[places[2] :]


def swapped(*gone: int, suffix: str = ".swap") -> Callable[[Path], None]:
    """The new segment has a suffix; some of the old ones are not there any more."""

    def harm(folder: Path) -> None:
        (folder / name_of(624, f".log{suffix}")).write_bytes(merged(folder))
        for base in gone:
            for kind in KINDS:
                path = folder / name_of(base, kind)
                path.rename(f"{path}.deleted")

    return harm


def half_renamed(folder: Path) -> None:
    """The log has its name already, an index not."""
    data = merged(folder)
    for kind in KINDS:
        shutil.copy(folder / name_of(624, kind), folder / name_of(624, f"{kind}.swap"))
        (folder / name_of(845, kind)).rename(folder / name_of(845, f"{kind}.deleted"))
    (folder / name_of(624, ".log.swap")).unlink()
    (folder / name_of(624, ".log")).write_bytes(data)
    for kind in KINDS[1:]:
        (folder / name_of(624, kind)).unlink()


def undone(folder: Path) -> None:
    """A segment that is still `.cleaned` takes back all that are above it."""
    swapped()(folder)
    (folder / name_of(0, ".log.cleaned")).write_bytes(b"")


STATES: dict[str, Callable[[Path], None]] = {
    "beside the old ones": swapped(),
    "one is gone": swapped(845),
    "all are gone": swapped(624, 845),
    "half renamed": half_renamed,
    "undone": undone,
    "being written": swapped(suffix=".cleaned"),
}


def after_load(folder: Path, to: Path) -> list[int]:
    """Offsets that a broker has of a copy of a folder, after its load."""
    shutil.copytree(folder, to)
    clock = ManualClock(NOW)
    start = Start(clean=True, recovery_point=2**62)
    log = Log.open(Environment(LocalStorage(), clock, ManualScheduler(clock)), str(to), LogConfig(), start)
    log.close()
    assert not [path for path in to.iterdir() if parse_file_name(path.name).suffix in (".swap", ".cleaned")]
    return [record.offset for record in pylogseg.read(to)]


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest, examples: Path, tmp_path: Path) -> tuple[Path, list[int]]:
    disk = tmp_path / "disk"
    shutil.copytree(examples / PART, disk / PART)
    for kind in ("recovery-point", "replication"):
        (disk / f"{kind}-offset-checkpoint").write_text("0\n1\ncmp-short 0 1965\n")
    shutil.copy(examples / "meta.properties", disk)
    STATES[request.param](disk / PART)
    expected = after_load(disk / PART, tmp_path / "loaded" / PART)
    assert len(expected) > 250
    return disk, expected


@pytest.mark.parametrize("state", some_of(STATES, 3), indirect=True)
def test_each_command_finds_what_a_load_makes_of_it(state: tuple[Path, list[int]], tmp_path: Path) -> None:
    disk, expected = state
    before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    loaded = tmp_path / "loaded"
    assert [row["offset"] for row in shell("cat", disk, "--fields", "offset").rows] == expected
    assert {row["offset"] for row in shell("latest", disk, "--fields", "offset").rows} <= set(expected)
    assert shell("latest", disk).rows == shell("latest", loaded).rows
    assert shell("diff", disk, loaded).code == 0
    assert shell("verify", disk).code == 0
    assert shell("report", disk, "-o", tmp_path / "report.html").code == 0
    sizes = [sum(part.size for part in pylogseg.open_dir(place).partitions) for place in (disk, loaded)]
    assert sizes[0] == sizes[1]
    assert shell("export", disk, "--out", tmp_path / "all.jsonl").code == 0
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == len(expected)
    (tmp_path / "new").mkdir()
    for command, to in (("restore", tmp_path / "new"), ("copy", tmp_path / "copy")):
        assert shell(command, disk, to).code == 0, command
        assert [record.offset for record in pylogseg.read(to)] == expected, command
        assert not list(to.rglob("*.swap")), command
        assert shell("verify", to).code == 0, command
    assert {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("also", ["alone", "whole", "as loaded"])
def test_merge_takes_what_a_load_leaves(
    also: str, state: tuple[Path, list[int]], examples: Path, tmp_path: Path
) -> None:
    disk, expected = state
    before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    shutil.copytree(examples / PART, tmp_path / "whole" / PART)
    others = {"alone": [], "whole": [tmp_path / "whole"], "as loaded": [tmp_path / "loaded"]}[also]
    assert shell("merge", disk, *others, "--into", tmp_path / "merged", "--take", f"{PART}={disk}").code == 0
    assert [record.offset for record in pylogseg.read(tmp_path / "merged")] == expected
    assert shell("verify", tmp_path / "merged").code == 0
    assert {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()} == before


def test_repair_takes_from_a_replica_what_a_load_leaves(state: tuple[Path, list[int]], tmp_path: Path) -> None:
    disk, expected = state
    harmed = tmp_path / "harmed"
    shutil.copytree(tmp_path / "loaded" / PART, harmed / PART)
    change_byte(max(harmed.rglob("*.log")))
    expect(shell("repair", harmed, "--from", disk), 0)
    assert [record.offset for record in pylogseg.read(harmed)] == expected


@pytest.mark.parametrize("seed", some_of(range(40), 10))
def test_any_suffixes(seed: int, examples: Path, tmp_path: Path) -> None:
    """Files renamed or copied at random: the catalog has the segments that a load leaves."""
    rng = random.Random(seed)
    folder = Path(shutil.copytree(examples / "codec-none-1", tmp_path / "d" / "codec-none-1"))
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    for _ in range(rng.randrange(1, 4)):
        base, suffix = rng.choice(bases), rng.choice([".swap", ".swap", ".cleaned", ".deleted"])
        for kind in rng.choice([KINDS, KINDS[:1], KINDS[1:2]]):
            path = folder / name_of(base, kind)
            if path.exists():
                rng.choice([Path.rename, shutil.copy])(path, f"{path}{suffix}")  # type: ignore[operator]
    (part,) = pylogseg.open_dir(folder).partitions
    found = [(segment.base_offset, segment.size) for segment in part.segments]
    try:
        after_load(folder, tmp_path / "loaded" / folder.name)
    except PylogsegError:
        assert not found
        return
    (loaded,) = pylogseg.open_dir(tmp_path / "loaded" / folder.name).partitions
    expected = [(segment.base_offset, segment.size) for segment in loaded.segments if segment.size]
    assert found == expected
