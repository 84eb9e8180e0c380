"""Tests of archive/writing.py. Archives that runs of Spark, of the shell and of Python write and check: the same
objects, points and findings.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from archive.histories import History, rows_of
from helpers.brokers import NAME, Batch, replicas
from helpers.damaged_logs import change_byte
from helpers.shell import pylogseg as run
from helpers.tiers import Key

from pylogseg.archive import open_archive, read_point, write
from pylogseg.archive import writing as archive_writing
from pylogseg.disk.tier.point import Point
from pylogseg.disk.tier.points import list_points
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_row
from pylogseg.spark import jobs

pytestmark = pytest.mark.spark


def objects_of(archive: Path) -> dict[str, bytes]:
    """All but points, what names them, and their lists, by name."""
    found = (path for path in archive.rglob("*") if path.is_file() and path.name != "points.json")
    return {
        path.relative_to(archive).as_posix(): path.read_bytes()
        for path in found
        if path.relative_to(archive).parts[0] not in ("points", "lists") and path.name != ".lock"
    }


def like(point: Point) -> Point:
    """A point without its name, and without names of points in its faults and of its lists."""
    partitions = tuple(replace(part, fault=_without_ids(part.fault)) for part in point.partitions)
    return replace(point, id="", time_ms=0, partitions=partitions, lists=frozenset())


def _without_ids(text: str) -> str:
    return re.sub(r"(?<=Z-)[0-9a-f]{8}", "ID", text)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The time of runs, which is in manifests: it begins anew with each call."""

    class Time:
        monotonic, sleep = staticmethod(archive_writing.time.monotonic), staticmethod(archive_writing.time.sleep)

        def __init__(self) -> None:
            self.begin()

        def begin(self) -> None:
            self._ticks = itertools.count(1_790_000_000_000, 1000)

        def time_ns(self) -> int:
            return next(self._ticks) * 1_000_000

    found = Time()
    monkeypatch.setattr(archive_writing, "time", found)
    return found


def test_the_same_archive(spark: Any, command: Any, clock: Any, tmp_path: Path) -> None:
    """Of a history with transactions, a compaction and a topic made anew: byte for byte, whoever writes."""
    history = History(tmp_path)
    places = {name: tmp_path / name for name in ("python", "shell", "spark", "command")}
    for number, step in enumerate([history.write, history.compact, history.recreate, history.write]):
        step()
        rows = []
        for name, place in places.items():
            clock.begin()
            for _ in range(number):
                clock.time_ns()
            if name == "python":
                rows.append(to_row(write(history.home, place)))
            elif name == "spark":
                rows.append(jobs.archive(spark, history.home, place).first().asDict())
            else:
                words = ("archive", history.home, place, "--json")
                done = run(*words) if name == "shell" else command(*words)
                rows.append(json.loads((done.text if name == "shell" else done.output).splitlines()[-1]))
        for row in rows:
            row.pop("point")
            row.pop("type", None)
            row["faults"] = [_without_ids(fault) for fault in row["faults"]]
        assert rows[0] == rows[1] == rows[2] == rows[3]
    assert rows[0]["segments"] > 0
    first = objects_of(places["python"])
    for place in places.values():
        assert objects_of(place) == first
        points = [[like(read_point(each, name)) for name in list_points(each)] for each in (place, places["python"])]
        assert points[0] == points[1]
        assert len(points[0]) == 4
    assert rows_of(open_archive(places["spark"])) == rows_of(history.home)


def test_each_goes_on_after_the_other(spark: Any, tmp_path: Path) -> None:
    history, archive = History(tmp_path), tmp_path / "both"
    history.write()
    assert jobs.archive(spark, [history.home], archive).first().segments > 0
    assert write(history.home, archive).segments == 0
    history.write()
    assert write(history.home, archive).segments > 0
    assert jobs.archive(spark, history.home, archive).first().segments == 0
    for name in list_points(archive):
        assert not read_point(archive, name).partitions[0].fault
    assert rows_of(open_archive(archive)) == rows_of(history.home)


def test_what_is_encrypted(spark: Any, tmp_path: Path) -> None:
    """Workers get the public key from the driver; a store of fsspec, and nothing is left of a worker's own files."""
    history = History(tmp_path)
    history.write()
    Key.make("ops", tmp_path / "keys")
    (tmp_path / "keys" / "ops.public").rename(tmp_path / "ops.pem")
    url, how = f"local://{tmp_path}/archive", {"auto_mkdir": True}
    form = {"encrypt_to": tmp_path / "ops.pem", "compress": True}
    assert jobs.archive(spark, history.home, url, storage_options=how, **form).first().faults == []
    assert rows_of(open_archive(tmp_path / "archive", keys=tmp_path / "keys")) == rows_of(history.home)
    keys = {"storage_options": {**how, "tier_keys": tmp_path / "keys"}}
    found = jobs.verify(spark, url, read="all", **keys).filter("level != 'notice'")
    assert found.count() == 0
    unread = jobs.verify(spark, f"aiven+{url}", read="all", storage_options=how)
    assert {row.level for row in unread.collect()} == {"unread"}


@pytest.fixture
def disks(tmp_path: Path) -> tuple[list[Path], list[Batch]]:
    return replicas(tmp_path / "disks", 5, segments=3)


def test_damage(spark: Any, command: Any, disks: tuple[list[Path], list[Batch]], tmp_path: Path) -> None:
    """A replica stands in, and the exit code says that one is damaged, as in the shell."""
    folders, batches = disks
    path = folders[0] / NAME / f"{batches[3].segment:020d}.log"
    change_byte(path, batches[3].position + 70)
    row = jobs.archive(spark, folders, tmp_path / "spark").first()
    assert row.faults == write(folders, tmp_path / "python").faults
    assert "CRC mismatch" in row.faults[0]
    done, other = command("archive", *folders, tmp_path / "third"), run("archive", *folders, tmp_path / "fourth")
    assert (done.exit_code, other.code) == (1, 1)
    assert row.faults[0] in done.stderr
    done = command("archive", *folders, tmp_path / "third", "--jobs", 2)
    assert (done.exit_code, "--jobs is for threads" in done.stderr) == (2, True)


def test_a_store_that_fails(spark: Any, disks: tuple[list[Path], list[Batch]], tmp_path: Path) -> None:
    """A partition that a worker cannot upload is a fault of the point, and the next run uploads it."""
    folders, _ = disks
    archive = tmp_path / "archive"
    write(folders[0], archive)
    (topic,) = (path for path in archive.iterdir() if path.name.startswith(NAME.rpartition("-")[0]))
    shutil.rmtree(topic)
    topic.write_text("not a folder")
    for point in (archive / "points").iterdir():
        point.unlink()
    assert any("Not a directory" in fault for fault in jobs.archive(spark, folders[0], archive).first().faults)
    topic.unlink()
    assert jobs.archive(spark, folders[0], archive).first().segments == 3


def test_verify_says_what_the_command_says(spark: Any, command: Any, tmp_path: Path) -> None:
    """Of the list, of all that is read, and of what is new since."""
    history = History(tmp_path)
    history.run()
    root = history.archiver.root
    for given, read in ((["--read-new"], "new"), ([], None), (["--read-all"], "all")):
        places = [Path(shutil.copytree(root, tmp_path / f"{name}{read}")) for name in ("shell", "spark", "command")]
        for place in places:
            points = history.archiver.points
            gone = next(key for key in points[0].objects if key.endswith(".indexes"))
            (place / gone).unlink()
            rotten = place / next(key for key in points[-1].objects if key.endswith(".log"))
            rotten.write_bytes(rotten.read_bytes()[:-1] + b"?")
        shell, other = run("verify", places[0], *given, "--json"), command("verify", places[2], *given, "--json")
        lines = [json.loads(line.replace(str(places[2]), str(places[0]))) for line in other.output.splitlines()]
        assert shell.rows == lines
        assert shell.code == other.exit_code == 1
        findings = [{k: v for k, v in line.items() if k != "type"} for line in lines if line["type"] == "finding"]
        found = [
            row.asDict() for row in jobs.verify(spark, places[1], **({} if read is None else {"read": read})).collect()
        ]
        assert json.loads(json.dumps(found).replace(str(places[1]), str(places[0]))) == findings
    assert len(findings) >= 2
    for _ in range(2):
        assert jobs.verify(spark, root, read="new").filter("level = 'damage'").count() == 0
    assert len(list((root / "verified").iterdir())) == 1
    with pytest.raises(RequestError, match="has no points"):
        jobs.verify(spark, history.home, read="all")
