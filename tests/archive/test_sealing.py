"""Tests of archive/planning.py and disk/tier/writing.py. The active segment goes up in pieces; once it is sealed, it is
one object again.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest
from helpers import depth
from helpers.depth import IS_DEEP
from helpers.killed_changes import killed
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import list_points, open_archive, prune, read_point, restore_point, write
from pylogseg.archive.planning import MOST_PIECES
from pylogseg.disk.tier.point import ArchivedPartition, Point

SETTINGS = {"internal.segment.bytes": "1500"}


def part(point: Point) -> ArchivedPartition:
    return next(each for each in point.partitions if each.topic == "t")


def produce(home: Path, number: int) -> None:
    with pylogseg.Broker(home) as broker:
        if number == 0:
            broker.create_topic("t", 1, SETTINGS)
        broker.produce("t", b"%d " % number * 30)


def values(archive: Path, point: str | None = None) -> list[bytes | None]:
    return [record.value for record in pylogseg.read(open_archive(archive, point=point)["t"])]


def expected(count: int) -> list[bytes]:
    return [b"%d " % number * 30 for number in range(count)]


def sealed(home: Path) -> list[tuple[int, int]]:
    """The ranges of the sealed segments."""
    bases = sorted(int(path.stem) for path in (home / "t-0").glob("*.log"))
    return list(itertools.pairwise(bases))


@pytest.fixture
def pieces(tmp_path: Path) -> tuple[Path, Path, int]:
    """A disk of which a segment has just been sealed, an archive with many pieces of it, and the number of records."""
    home, archive, number = tmp_path / "home", tmp_path / "archive", 0
    while True:
        produce(home, number)
        number += 1
        if sealed(home):
            return home, archive, number
        assert write(home, archive).is_whole


def test_many_runs(tmp_path: Path) -> None:
    """Objects, the points and what goes up stay bounded, and all is as it is on the disk."""
    count = 55 if IS_DEEP else 25
    home, archive, uploaded = tmp_path / "home", tmp_path / "archive", dict[str, int]()
    for number in range(count):
        produce(home, number)
        done = write(home, archive)
        assert done.is_whole
        segments = part(done.point).segments
        uploaded |= {each.segment_id: each.size for each in segments}
        for base, end in sealed(home):
            inside = [each for each in segments if base <= each.base_offset < end]
            assert (len(inside) <= MOST_PIECES, inside[-1].end_offset) == (True, end)
    assert sum(uploaded.values()) <= 2 * sum(path.stat().st_size for path in (home / "t-0").glob("*.log"))
    assert len(sealed(home)) >= count // 11
    assert values(archive) == expected(count)
    prune(archive, keep_last=1)
    assert len(list(archive.glob("t-*/0/*.log"))) == len(part(done.point).segments)
    assert shell("verify", archive, "--read-all").code == 0
    (tmp_path / "new").mkdir()
    restore_point(archive, tmp_path / "new", node_id=1)
    for base, _ in sealed(home):
        name = f"t-0/{base:020d}.log"
        assert (tmp_path / "new" / name).read_bytes() == (home / name).read_bytes()


def test_a_sealed_segment_goes_up_once_more(pieces: tuple[Path, Path, int]) -> None:
    home, archive, count = pieces
    before = read_point(archive, list_points(archive)[-1])
    assert len(part(before).segments) > MOST_PIECES
    assert part(write(home, archive).point).segments[0].end_offset == sealed(home)[0][1]
    assert values(archive) == expected(count)
    assert values(archive, before.id) == expected(count - 1)
    assert write(home, archive).segments == 0


def test_few_pieces_stay(tmp_path: Path) -> None:
    """What is in few pieces is not worth a second upload."""
    home, archive, number = tmp_path / "home", tmp_path / "archive", 0
    while not sealed(home):
        produce(home, number)
        number += 1
        if number in (2, 4):
            write(home, archive)
    done = write(home, archive)
    assert [each.base_offset for each in part(done.point).segments][:2] == [0, 2]
    assert values(archive) == expected(number)


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_a_sealed_segment_that_is_damaged(pieces: tuple[Path, Path, int], at: float) -> None:
    """The pieces stand in, what is behind them goes up, and the next run after a repair makes one."""
    home, archive, count = pieces
    path = home / "t-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    place = int(len(whole) * at)
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    for _ in range(2):
        done = write(home, archive)
        base, end = sealed(home)[0]
        is_behind = at > 0.8 and part(done.point).end_offset < count  # in what was not archived yet
        assert done.faults
        assert values(archive) == expected(part(done.point).end_offset)
        assert is_behind or part(done.point).end_offset == count
        assert part(done.point).end_offset >= end - 1
    path.write_bytes(whole)
    done = write(home, archive)
    assert done.is_whole
    assert (part(done.point).segments[0].base_offset, part(done.point).segments[0].end_offset) == (base, end)
    assert values(archive) == expected(count)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes of POSIX")
def test_killed_while_it_goes_up_once_more(pieces: tuple[Path, Path, int], tmp_path: Path) -> None:
    home, archive, count = pieces
    at, is_killed, copy = 0, True, tmp_path / "copy"
    while is_killed:
        at += 1 if depth.IS_DEEP else 4
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(archive, copy)
        is_killed = killed([home], copy, at)
        assert values(copy)[: count - 1] == expected(count - 1)
        done = write(home, copy)
        assert done.is_whole
        assert values(copy) == expected(count)
        assert part(done.point).segments[0].end_offset == sealed(home)[0][1]
        large = [path for path in copy.glob("t-*/0/*.log") if path.stat().st_size == part(done.point).segments[0].size]
        assert len(large) == 1
    assert at > 8
