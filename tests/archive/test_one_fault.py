"""Tests of archive/place.py. One bad thing is one fault, and all else is archived; places, locks, names and times."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from helpers.damaged_logs import change_byte
from helpers.internal_logs import write_log
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import list_points, open_archive, prune, write
from pylogseg.archive.place import list_objects, lost_objects
from pylogseg.disk.stores import store_of
from pylogseg.disk.tier.points import archive_store, new_id, write_point
from pylogseg.env.beside import make_temporary_name
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.messages.framing import encode_framed
from pylogseg.tables.export import notes
from pylogseg.tables.export.notes import lock_place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory of a broker with two topics of ten records."""
    with pylogseg.Broker(tmp_path / "home") as broker:
        for topic in "tu":
            broker.create_topic(topic, 1)
            for number in range(10):
                broker.produce(topic, b"%d" % number)
    return tmp_path / "home"


def values(archive: Path, topic: str = "t") -> list[bytes]:
    return [record.value for record in pylogseg.read(open_archive(archive)[topic])]


# ---- what is gone ----


def test_forget(home: Path, tmp_path: Path) -> None:
    """A partition that no disk has is a fault of each run, and stays, until somebody names it."""
    archive = tmp_path / "archive"
    assert shell("archive", home, archive, "--forget", "t").code == 2
    assert list_points(archive) == []
    assert write(home, archive).faults == []
    shutil.rmtree(home / "t-0")
    for _ in range(3):
        done = shell("archive", home, archive)
        assert (done.code, "t-0: it is on none" in done.err and "--forget" in done.err) == (1, True)
        assert shell("archive", "prune", archive, "--keep-last", 1).code == 0
        assert len(values(archive)) == 10
    for names in (["x"], ["u"], ["u-0"], ["t-1"]):
        with pytest.raises(RequestError, match=names[0]):
            write(home, archive, forget=names)
    assert shell("archive", home, archive, "--forget", "t", "--every", "1s").code == 2
    assert write(home, archive, forget=["t-0"]).faults == []
    assert {each.name for each in write(home, archive).point.partitions} == {"u-0"}


def test_objects_that_the_store_lost(home: Path, tmp_path: Path) -> None:
    """A run uploads again what a disk has, as older points know it; what no disk has is a fault with the names."""
    archive = tmp_path / "archive"
    write(home, archive)
    first = {path: path.read_bytes() for path in archive.rglob("*-*/0/*")}
    for path in first:
        path.unlink()
        done = write(home, archive)
        assert (done.faults, path.read_bytes()) == ([], first[path])
        assert any(path.name in note for note in done.point.notes)
    shutil.rmtree(home / "u-0")
    (log,) = archive.glob("u-*/0/*.log")
    log.unlink()
    for _ in range(2):
        assert any(log.name in fault and "no disk has" in fault for fault in write(home, archive).faults)


def test_a_log_of_which_the_disk_is_damaged_too(tmp_path: Path) -> None:
    """Objects behind a hole that no disk can fill stay in the point."""
    home, archive = tmp_path / "home", tmp_path / "archive"
    home.mkdir()
    (home / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=3Db5QLSqSZieL3rJBUUegA\n")
    with pylogseg.open_log(home / "t-0", segment_bytes=2000) as log:
        for number in range(60):
            log.append([(0, None, b"%d" % number + b"v" * 100)])
    point = write(home, archive).point
    first = point.partitions[0].segments[0]
    path = archive / (point.partitions[0].stem(first) + ".log")
    path.unlink()
    change_byte((home / "t-0" / f"{0:020d}.log"), 70)
    done = write(home, archive)
    assert any(path.name in fault for fault in done.faults)
    assert done.point.partitions[0].segments == point.partitions[0].segments[1:]
    prune(archive, keep_last=1)
    assert len(list(archive.glob("t-*/0/*.log"))) == len(point.partitions[0].segments) - 1


def test_many_objects_are_compared_in_a_second(tmp_path: Path) -> None:
    """The comparison of a point of 6,000 segments with a listing takes no look at each object."""
    from helpers.brokers import replicas

    folders, _ = replicas(tmp_path / "disks", 5, segments=3)
    point = write(folders[0], tmp_path / "archive").point
    part = point.partitions[0]
    one = part.segments[0]
    many = tuple(one._replace(base_offset=n, end_offset=n + 1, segment_id=f"{n:022d}") for n in range(6000))
    large = replace(part, segments=many, end_offset=6000)
    store = store_of(tmp_path / "archive")
    listing = list_objects(store)
    for name, stored in large.objects.items():
        listing.add(name, stored.size)
    asked: list[str] = []
    store.size = lambda name: asked.append(name)  # type: ignore[method-assign,assignment,return-value,func-returns-value]
    assert (lost_objects(store, listing, [large]), asked) == (set(), [])


# ---- names and places ----


@pytest.mark.parametrize("name", ["old copy-0", "..-0", "a;b-0", "a\nb-0"])
def test_a_folder_without_the_name_of_a_topic(home: Path, tmp_path: Path, name: str) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(home / "t-0", home / name)
    for _ in range(2):
        done = shell("archive", home, archive)
        assert (done.code, f"no topic can have the name of {name!r}" in done.err) == (1, True)
    assert (len(values(archive)), len(values(archive, "u"))) == (10, 10)


def test_a_topic_of_which_the_name_is_too_long(tmp_path: Path) -> None:
    """In a folder it is a fault; a store of objects takes it; an export has it in both."""
    name = "n" * 249
    with pylogseg.Broker(tmp_path / "home") as broker:
        for topic in (name, "t"):
            broker.create_topic(topic, 1)
            broker.produce(topic, b"v")
    (fault,) = write(tmp_path / "home", tmp_path / "archive").faults
    assert "File name too long" in fault
    assert values(tmp_path / "archive") == [b"v"]
    assert write(tmp_path / "home", "memory://long").faults == []
    for more in ((), ("--by-date",), ("--by-date",)):
        expect(shell("export", tmp_path / "home", "--out", tmp_path / f"export{len(more)}", *more), 0)


@pytest.mark.parametrize("name", [".ssh/id_rsa", ".bashrc", ".git/HEAD", ".x.1@elsewhere.tmp2", "_other/file"])
def test_a_place_with_files_of_others(home: Path, tmp_path: Path, name: str) -> None:
    """It is refused; in an archive they are left alone."""
    place = tmp_path / "place"
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text("mine")
    assert shell("archive", home, place).code == 2
    archive = tmp_path / "archive"
    write(home, archive)
    ended = make_temporary_name("x").replace(f"{os.getpid()}@", f"{2**22 + 1}@")
    mine = [name, f"t-x/{make_temporary_name('y').replace('@', '@else')}", ".syncthing.x.tmp"]
    for each in (*mine, ended):
        (archive / each).parent.mkdir(parents=True, exist_ok=True)
        (archive / each).write_text("mine")
    assert write(home, archive).faults == []
    assert [(archive / each).exists() for each in (*mine, ended)] == [True, True, True, False]


def test_a_partition_that_cannot_be_uploaded(home: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    folder = write(home, archive).point.partitions[0].folder
    shutil.rmtree(archive / folder)
    (archive / folder).write_text("a file")
    done = write(home, archive)
    assert any(fault.startswith("t-0: ") for fault in done.faults)
    assert len(values(archive, "u")) == 10


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_no_object(home: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    folder = archive / write(home, archive).point.partitions[0].folder
    for path in (archive / "points").iterdir():
        path.unlink()
    os.mkfifo(folder / f"{0:020d}-{'A' * 22}.rsm-manifest")
    os.symlink("/dev/zero", folder / f"{0:020d}-{'B' * 22}.rsm-manifest")
    with open(folder / f"{0:020d}-{'C' * 22}.rsm-manifest", "wb") as file:
        file.truncate(1 << 40)
    assert write(home, archive).segments + write(home, archive).adopted == 0


# ---- high watermarks ----


@pytest.mark.parametrize("harm", ["absent", "empty", "zeros", "garbage", "lacking", "unset"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_an_unknown_high_watermark(home: Path, tmp_path: Path, harm: str, is_clean: bool) -> None:
    """It is never an empty partition with exit code 0."""
    path, archive = home / "replication-offset-checkpoint", tmp_path / "archive"
    if not is_clean:
        (home / ".kafka_cleanshutdown").unlink()
    contents = {"empty": "", "zeros": "\0" * 9, "garbage": "x", "lacking": "0\n1\nu 0 10\n", "unset": "0\n1\nt 0 0\n"}
    path.unlink()
    if harm in contents:
        path.write_text(contents[harm])
    done = shell("archive", home, archive)
    if done.code == 0:
        assert len(values(archive)) == 10
    elif not values(archive):
        assert "10 offsets, offsets 0 to 9, lie above" in done.err
        assert "--to-end" in done.err
    assert shell("archive", home, archive, "--to-end").code == (1 if harm in ("zeros", "garbage") else 0)
    assert len(values(archive)) == 10
    shell("archive", home, archive)  # what a point has was committed
    assert len(values(archive)) == 10


def test_the_only_replica(golden: Path, tmp_path: Path) -> None:
    """By the metadata nobody else has records: all of its log is committed."""
    disks = [Path(shutil.copytree(golden / "inside" / "groups" / n, tmp_path / n)) for n in ("data0", "data1")]
    ends = {each.name: each.end_offset for each in write(disks, tmp_path / "whole").point.partitions}
    for disk in disks:
        (disk / "replication-offset-checkpoint").unlink()
        (disk / ".kafka_cleanshutdown").unlink(missing_ok=True)
    done = write(disks, tmp_path / "archive")
    assert (done.faults, {each.name: each.end_offset for each in done.point.partitions}) == ([], ends)


# ---- locks and times ----


@pytest.mark.parametrize("content", ["{}", "[]", "3", '{"host": 1}', "", '{"host":"a","process":"b","since":"c"}'])
def test_a_damaged_lock(home: Path, content: str) -> None:
    store = store_of("memory://damaged-lock")
    store.put("_pylogseg/lock-0.json", content.encode())
    with pytest.raises(StorageError, match=r"lock-0\.json.*delete this object"):
        write(home, store.url)


def test_a_second_run_names_the_first(home: Path, tmp_path: Path) -> None:
    for url in (tmp_path / "archive", "memory://second"):
        store = archive_store(url)
        with lock_place(store, "archive"):
            store.put("archive.json", b'{"format": 1, "clusterId": ""}')
            done = shell("archive", home, url)
        assert (done.code, f"archive, process {os.getpid()}" in done.err) == (2, True), done.err
        assert "broker" not in done.err


def test_of_runs_that_begin_together_one_writes(home: Path) -> None:
    """Of three runs into a store at the same moment, not all three give way."""
    for number in range(3):
        url, barrier, done = f"memory://together{number}", threading.Barrier(3), list[str]()

        def run(url: str = url, barrier: threading.Barrier = barrier, done: list[str] = done) -> None:
            barrier.wait()
            try:
                with lock_place(store_of(url), "archive"):
                    done.append("worked")
            except StorageError:
                pass

        runs = [threading.Thread(target=run) for _ in range(3)]
        for each in runs:
            each.start()
        for each in runs:
            each.join()
        assert done
        assert fsspec.filesystem("memory").find(f"/together{number}/{notes.NOTES}") == []


def test_times(home: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for text in ("0s", "0ms"):
        assert shell("archive", home, archive, "--every", text).code == 2
    first = write(home, archive).point
    last_ms = 253402300799999
    write_point(archive_store(archive), replace(first, id=new_id(last_ms), time_ms=last_ms))
    done = shell("archive", home, archive)
    assert (done.code, "remove that point" in done.err) == (2, True)
    assert len(list_points(archive)) == len(list((archive / "points").iterdir())) == 2


def test_the_newest_point_is_gone(home: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for _ in range(2):
        newest = write(home, archive).point
    (archive / newest.name.key).unlink()
    assert shell("archive", "prune", archive, "--keep-last", 1).code == 1
    assert any(newest.id in fault for fault in write(home, archive).faults)
    assert write(home, archive).faults == []
    note = archive / "_pylogseg" / "points.json"
    for content in ("", "{}", "[]", json.dumps({"format": 1, "isWritten": True, "points": ["../x"]})):
        note.write_text(content)
        assert shell("archive", "prune", archive, "--keep-last", 1).code == 1
        assert any(note.name in fault for fault in write(home, archive).faults)


def test_prune_where_points_is_a_link(home: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for _ in range(3):
        write(home, archive)
    (archive / "points").rename(tmp_path / "elsewhere")
    (archive / "points").symlink_to(tmp_path / "elsewhere")
    assert shell("archive", "prune", archive, "--keep-last", 1, "--dry-run").code == 0


# ---- deletions ----


def test_the_removal_of_a_topic_is_the_proof(tmp_path: Path) -> None:
    """The metadata of a later moment explains an absent partition; an older one, or none, does not."""
    home, archive, topic_id = tmp_path / "home", tmp_path / "archive", "A" * 20 + "BQ"
    home.mkdir()
    (home / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=3Db5QLSqSZieL3rJBUUegA\n")
    with pylogseg.open_log(home / "t-0") as log:
        log.append([(0, None, b"v")])
    (home / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    made = [
        ("TopicRecord", {"name": "t", "topicId": topic_id}),
        ("PartitionRecord", {"partitionId": 0, "topicId": topic_id, "replicas": [1], "isr": [1], "leader": 1}),
    ]

    def metadata(*records: tuple[str, dict[str, object]]) -> None:
        shutil.rmtree(home / "__cluster_metadata-0", ignore_errors=True)
        write_log(home / "__cluster_metadata-0", [(None, encode_framed(kind, 0, of)) for kind, of in records])

    metadata(*made)
    assert write(home, archive).faults == []
    other = Path(shutil.copytree(archive, tmp_path / "other"))
    shutil.rmtree(home / "t-0")
    for records in (made, made[:1]):
        metadata(*records)
        assert any(fault.startswith("t-0: ") for fault in write(home, archive).faults)
    shutil.rmtree(home / "__cluster_metadata-0")
    assert any(fault.startswith("t-0: ") for fault in write(home, archive).faults)
    metadata(*made, ("RemoveTopicRecord", {"topicId": topic_id}))
    done = write(home, archive)
    assert {each.topic for each in done.point.partitions} == {"__cluster_metadata"}
    assert [fault for fault in done.faults if fault.startswith("t-0: ")] == []
    for records in ([("NoOpRecord", {})], [("NoOpRecord", {})], [("NoOpRecord", {})] * 9):
        metadata(*records)
        assert any(fault.startswith("t-0: ") for fault in write(home, other).faults)
