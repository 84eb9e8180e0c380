"""Tests of archive/losses.py. What is lost, or not looked at, between two runs of an archive: no run takes it for
nothing.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import open_archive, prune, read_point, write
from pylogseg.archive.verifying import ArchiveSummary, verify_archive
from pylogseg.disk.tier.points import archive_store, list_points, new_id, write_point
from pylogseg.errors import RequestError
from pylogseg.inspect.verify.findings import Level


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory of a broker with ten records."""
    with pylogseg.Broker(tmp_path / "home") as broker:
        broker.create_topic("t", 1)
        for number in range(10):
            broker.produce("t", b"%d" % number)
    return tmp_path / "home"


@pytest.fixture
def groups(golden: Path) -> list[Path]:
    """The disks of a cluster of two brokers, with its metadata."""
    return [golden / "inside" / "groups" / name for name in ("data0", "data1")]


def values(archive: Path) -> list[bytes]:
    return [record.value for record in pylogseg.read(open_archive(archive)["t"])]


# ---- places ----


def test_no_trace_in_a_place_that_is_refused(home: Path, tmp_path: Path) -> None:
    """A broker does not start on a log directory with a folder that is no partition's: not even a lock is left."""
    other = tmp_path / "other"
    with pylogseg.Broker(other) as broker:
        broker.create_topic("t", 1)
    for place in (other, other / "backup", other / "t-0" / "backup", home, home / "a" / "b"):
        before = [sorted(folder.rglob("*")) for folder in (home, other)]
        with pytest.raises(RequestError, match=r"is (a log directory|the folder of a partition)"):
            write(home, place)
        assert shell("archive", home, place).code == 2
        assert [sorted(folder.rglob("*")) for folder in (home, other)] == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(RequestError, match="not empty"):
        write(home, tmp_path / "full")
    assert os.listdir(tmp_path / "full") == ["file"]
    assert shell("archive", "prune", tmp_path / "typo", "--keep-last", 1).code == 2
    assert not (tmp_path / "typo").exists()


# ---- clocks and points ----


def test_a_clock_that_goes_back(home: Path, tmp_path: Path) -> None:
    """The newest point is the one that was written last; a time that has not come yet is an alarm."""
    archive, store = tmp_path / "archive", archive_store(tmp_path / "archive")
    first = write(home, archive).point
    for skew_ms, is_whole in ((10_000, True), (3_600_000, False)):
        time_ms = first.time_ms + skew_ms
        write_point(store, replace(first, id=new_id(time_ms), time_ms=time_ms))
        with pylogseg.Broker(home) as broker:
            broker.produce("t", b"%d" % skew_ms)
        for more in (1, 2):
            done = write(home, archive)
            assert (done.is_whole, done.point.time_ms) == (is_whole, time_ms + more)
            assert any("the clock says" in note for note in done.point.notes)
            assert list_points(archive)[-1] == done.point.name
        assert values(archive)[-1] == b"%d" % skew_ms
        prune(archive, keep_last=1)
        assert values(archive)[-1] == b"%d" % skew_ms


def test_the_newest_point_is_damaged(home: Path, tmp_path: Path) -> None:
    """The run goes on from the one before it, uploads nothing twice, and says so."""
    archive = tmp_path / "archive"
    for _ in range(2):
        with pylogseg.Broker(home) as broker:
            broker.produce("t", b"more")
        points = [write(home, archive).point]
    path = archive / points[-1].name.key
    path.write_text(path.read_text().replace('"end":', '"end": '))
    objects = sorted(archive.rglob("*.log"))
    for _ in range(2):
        done = write(home, archive)
        assert done.is_whole == (done.faults == [])
        assert sorted(archive.rglob("*.log")) == objects
        assert values(archive)[-2:] == [b"more", b"more"]
        if path.exists():
            assert any(path.name in fault for fault in done.faults) or list_points(archive)[-1] == done.point.name
    summary = ArchiveSummary(Level.INDEXES)
    assert [each.path for each in verify_archive(str(archive), summary)] == [str(path)]


# ---- disks ----


def test_a_disk_that_was_put_back(home: Path, tmp_path: Path) -> None:
    """Records that a point has, and no disk any more, are a fault of the next one; groups may be above its end."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    older = Path(shutil.copytree(home / "t-0", tmp_path / "older"))
    marks = {path: path.read_bytes() for path in home.glob("*-checkpoint")}
    with pylogseg.Broker(home) as broker:
        for number in range(10, 20):
            broker.produce("t", b"%d" % number)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}
        consumer = confluent_kafka.Consumer(settings)
        consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 20)], asynchronous=False)
        consumer.close()
        broker.stop()
    first = write(home, tmp_path / "archive")
    assert (first.faults, first.point.above_end) == ([], ())
    shutil.rmtree(home / "t-0")
    shutil.copytree(older, home / "t-0")
    for path, data in marks.items():
        entries = path.read_text().splitlines()
        kept = [line for line in entries[2:] if not line.startswith("t ")]
        kept += [line for line in data.decode().splitlines()[2:] if line.startswith("t ")]
        path.write_text("\n".join([entries[0], str(len(kept)), *kept, ""]))
    done = write(home, tmp_path / "archive")
    assert any("t-0: offsets 10 to 19 were committed by point" in fault for fault in done.faults)
    assert done.point.above_end == (("g", "t", 0, 20, 10),)
    assert shell("archive", home, tmp_path / "archive").code == 0  # the next point has all that its disk has
    assert len(values(tmp_path / "archive")) == 10


def test_a_disk_that_is_not_there(groups: list[Path], tmp_path: Path) -> None:
    """What the cluster has and no disk any more stays in the points, with its objects, and each run says so."""
    archive = tmp_path / "archive"
    first = write(groups, archive)
    assert first.faults == []
    alone = {(each.topic, each.partition) for each in write(groups[0], tmp_path / "alone").point.not_seen or ()}
    assert alone
    for _ in range(3):
        done = write(groups[0], archive)
        assert {fault.partition(": ")[0] for fault in done.faults} == {f"{t}-{p}" for t, p in alone}
        assert {(each.topic, each.partition) for each in done.point.not_seen or ()} == alone
        assert {each.name for each in done.point.partitions} == {each.name for each in first.point.partitions}
        assert [disk.state for disk in done.point.disks][-1] == "absent"
        assert read_point(archive, done.point.id) == done.point
    assert shell("archive", groups[0], archive).code == 1
    prune(archive, keep_last=1)
    summary = ArchiveSummary(Level.INDEXES)
    assert ([*verify_archive(str(archive), summary, read="all")], summary.exit_code) == ([], 0)
    (tmp_path / "new").mkdir()
    done_again = write(groups, archive)
    assert (done_again.faults, done_again.segments) == ([], 0)
    assert done_again.point.partitions == first.point.partitions


def test_a_disk_that_is_not_there_without_metadata(home: Path, tmp_path: Path) -> None:
    """Nobody can tell whether its topics were deleted: the run says it."""
    other = Path(shutil.copytree(home, tmp_path / "other"))
    (other / "t-0").rename(other / "u-0")
    for path in other.glob("*-checkpoint"):
        path.write_text(path.read_text().replace("t 0 ", "u 0 "))
    archive = tmp_path / "archive"
    assert write([home, other], archive).faults == []
    (fault,) = write(home, archive).faults
    assert fault.startswith("u-0: it is on none of the disks")


def test_only_a_replica_that_was_not_in_sync(groups: list[Path], tmp_path: Path) -> None:
    """A copy of which the metadata says that others were in sync may lack what was committed."""
    disk = Path(shutil.copytree(groups[1], tmp_path / "disk"))
    label = disk / "meta.properties"
    label.write_text(label.read_text().replace("node.id=1", "node.id=2"))
    metadata = shutil.copytree(groups[0] / "__cluster_metadata-0", disk / "__cluster_metadata-0")
    done = write(disk, tmp_path / "archive")
    assert all(": brokers 1 were in sync, and none of their disks was given" in fault for fault in done.faults)
    assert len(done.faults) == len(done.point.partitions) - 1 > 0
    shutil.rmtree(metadata)
    assert write(disk, tmp_path / "without").faults == []


def test_two_topics_of_one_name(home: Path, groups: list[Path], tmp_path: Path) -> None:
    """A broker that was down kept the folder of a topic that was deleted: it is never taken for the new one."""
    for number in range(4):  # whichever id is the greater one
        stale = shutil.copytree(groups[1], tmp_path / f"stale{number}")
        metadata = stale / "words-0" / "partition.metadata"
        metadata.write_text(f"version: 0\ntopic_id: {'BKZz'[number]}AAAAAAAAAAAAAAAAAAAAA")
        done = write([groups[0], stale], tmp_path / f"archive{number}")
        assert "words-0" not in {each.name for each in done.point.partitions}
        assert any("words-0" in note and "was deleted" in note for note in done.point.notes)
        assert ("words", 0) in {(each.topic, each.partition) for each in done.point.not_seen or ()}
    with pylogseg.Broker(tmp_path / "other") as broker:
        broker.create_topic("t", 1)
        broker.produce("t", b"another")
    shutil.copy(home / "meta.properties", tmp_path / "other")
    archive, target = tmp_path / "archive", tmp_path / "new"
    target.mkdir()
    (fault,) = write([home, tmp_path / "other"], archive).faults
    assert fault.startswith("t-0: disks have 2 topics of this name")
    done_again = shell("restore", archive, target, "--node-id", 1)
    assert (done_again.code, "two topics of this name" in done_again.err) == (1, True)
    drilled = shell("drill", archive)
    assert (drilled.code, "two topics of this name" in drilled.text) == (2, True)


# ---- what is asked for ----


def test_a_place_that_is_no_archive(home: Path, tmp_path: Path) -> None:
    """Neither an empty list of points, nor a folder with the name of a point."""
    assert shell("archive", "points", tmp_path / "typo").code == 2
    write(home, tmp_path / "archive")
    url = f"aiven+file://{tmp_path / 'archive'}#latest"
    for command in (("points", url), ("show", url), ("prune", url, "--keep-last", 1), (home, url)):
        done = shell("archive", *command)
        assert (done.code, "name the archive" in done.err) == (2, True), command
    assert shell("drill", url).code == 2  # without metadata
    assert shell("verify", url).code == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["archive", "home"]


def test_a_name_that_selects_nothing(home: Path, tmp_path: Path) -> None:
    write(home, tmp_path / "archive")
    for names in (("nothere",), ("t", "nothere"), ("t-1",), ("t", "--partition", 1)):
        for how in ((), ("--read-all",), ("--read-new",)):
            assert shell("verify", tmp_path / "archive", *names, *how).code == 2
    assert shell("verify", tmp_path / "archive", "t-0").code == 0
