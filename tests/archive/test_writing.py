"""Tests of archive/partitions.py, archive/planning.py, archive/seen.py, archive/uploading.py, archive/writing.py,
disk/tier/digest.py and transfer/log_here.py. Archives of disks: what is uploaded, once, and what the points say;
killed, failing and harmed.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest
from helpers import depth
from helpers.brokers import NAME, TOPIC_ID, Batch, Broker, Cluster, replicas
from helpers.damaged_logs import change_byte
from helpers.killed_changes import killed
from helpers.shell import pylogseg as shell
from helpers.tiers import Key

import pylogseg
from pylogseg import BrokerSettings, LogConfig, LogManager, offline
from pylogseg.archive import open_archive, read_point, seen, uploading, write
from pylogseg.archive.verifying import ArchiveSummary, verify_archive
from pylogseg.disk.disk import Segment
from pylogseg.disk.small_files import read_offset_checkpoint
from pylogseg.disk.stores import FolderStore
from pylogseg.disk.tier.digest import ObjectDigest
from pylogseg.disk.tier.point import ArchivedPartition, Point
from pylogseg.disk.tier.points import list_points
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.batches import scan
from pylogseg.format.names import FileKind
from pylogseg.inspect.verify.findings import Level
from pylogseg.transfer import log_here


def in_archive(url: Path | str, point: Point, **how: Any) -> list[bytes]:
    """The batches of the partition at a point, as its segments have them."""
    part = next(each for each in open_archive(url, point=point.id, **how).partitions if each.name == NAME)
    found = []
    for segment in part.segments:
        with segment.open() as view:
            data = bytes(view.read(0, view.size))
        rows = scan(data).batches
        found += [
            data[at : at + size]
            for at, size, last in zip(
                *(rows.rows[each].tolist() for each in ("position", "size", "last_offset")), strict=True
            )
            if last >= part.log_start_offset
        ]
    return found


def below(batches: list[Batch], part: ArchivedPartition) -> list[bytes]:
    return [each.data for each in batches if part.start_offset < each.end <= part.end_offset]


def of(point: Point) -> ArchivedPartition:
    (found,) = (each for each in point.partitions if each.topic_id == TOPIC_ID)
    return found


def flip(folder: Path, batch: Batch) -> None:
    change_byte(folder / NAME / f"{batch.segment:020d}.log", batch.position + 70)


# ---- what is uploaded ----


@pytest.mark.parametrize("seed", depth.some_of(range(24), 3))
def test_histories(seed: int, tmp_path: Path) -> None:
    """Three brokers with elections, crashes and deletions: each point has what the leader had committed then."""
    chance = random.Random(seed)
    cluster = Cluster(tmp_path, chance, unclean=seed % 2 == 1)
    archive = tmp_path / "archive"
    seen: list[tuple[Point, list[bytes]]] = []
    for _ in range(6):
        for _ in range(chance.randint(3, 25)):
            cluster.step()
        for broker in cluster.brokers:
            if broker is not cluster.leader:
                cluster.follow(broker, 1 << 30)
        for broker in cluster.brokers:
            broker.directory.checkpoint()
        done = write([each.folder for each in cluster.brokers], archive)
        part = of(done.point)
        assert done.faults == []
        assert part.end_offset == cluster.leader.log.high_watermark == cluster.leader.log.log_end_offset
        assert part.start_offset == cluster.leader.log.log_start_offset
        seen.append((done.point, [each.data for each in cluster.leader.batches()]))
        assert write([each.folder for each in cluster.brokers], archive).segments == 0
    for point, batches in seen:
        assert in_archive(archive, point) == batches
        assert read_point(archive, point.id) == point
    for broker in cluster.brokers:
        broker.kill()


@pytest.fixture
def disks(tmp_path: Path) -> tuple[list[Path], list[Batch]]:
    return replicas(tmp_path / "disks", 5, segments=3)


def test_digests_of_small_and_large_objects() -> None:
    """A thread hashes a large object from the first large step on, and ends with it."""
    data, sizes = random.Random(5).randbytes(2 << 20), [1 << 20, 2 << 20, 2 << 20, 7, 1 << 20]
    whole, digest = hashlib.sha256(), ObjectDigest()

    def has_thread() -> bool:
        return any(thread.name.startswith("pylogseg-digest") for thread in threading.enumerate())

    threads = set[bool]()
    for size in sizes:
        whole.update(data[:size])
        digest.update(memoryview(data)[:size])
        threads.add(has_thread())
    assert digest.hexdigest() == whole.hexdigest()
    digest.close()
    assert threads == {False, True}
    assert not has_thread()


def test_replicas_are_one_copy(disks: tuple[list[Path], list[Batch]], tmp_path: Path) -> None:
    folders, batches = disks
    one, three = write(folders[0], tmp_path / "one"), write(folders, tmp_path / "three")
    assert in_archive(tmp_path / "three", three.point) == [each.data for each in batches]
    assert three.size <= 1.1 * one.size
    assert [disk.state for disk in three.point.disks] == ["stopped"] * 3
    assert three.point.cluster_id == "3Db5QLSqSZieL3rJBUUegA"
    assert three.point.not_seen is None  # no disk has the metadata


def test_unchanged(disks: tuple[list[Path], list[Batch]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of disks that have nothing new, no segment is opened."""
    folders, _ = disks
    first = write(folders, tmp_path / "archive")
    monkeypatch.setattr(Segment, "open", lambda self: pytest.fail(f"{self.path} was opened"))
    second = write(folders, tmp_path / "archive")
    assert (second.segments, second.adopted) == (0, 0)
    assert second.point.partitions == first.point.partitions


def test_the_active_segment(tmp_path: Path) -> None:
    """Each run takes what was committed since; it begins where the last one ended, and the segments are whole logs."""
    cluster = Cluster(tmp_path, random.Random(3), unclean=False)
    broker = cluster.leader
    sizes = []
    for _ in range(4):
        for _ in range(4):
            cluster.write()
        for other in cluster.brokers[1:]:
            cluster.follow(other, 1 << 30)
        cluster.write()  # not committed yet
        broker.directory.checkpoint()
        done = write(broker.folder, tmp_path / "archive")
        assert of(done.point).end_offset == broker.log.high_watermark
        assert in_archive(tmp_path / "archive", done.point) == below(broker.batches(), of(done.point))
        sizes.append(sum(each.size for each in of(done.point).segments))
    assert sizes[-1] == sum(len(each) for each in below(broker.batches(), of(done.point)))
    ends = [each.end_offset for each in of(done.point).segments]
    assert [each.base_offset for each in of(done.point).segments] == [0, *ends[:-1]]
    assert [each.state for each in done.point.disks] == ["running"]
    stable = broker.log.last_stable_offset
    assert of(done.point).last_stable_offset == min(stable, ends[-1])
    for each in cluster.brokers:
        each.kill()


def test_cleaned_between(tmp_path: Path) -> None:
    """What a cleaner has removed since is in the points before, and not in those behind; both can be read."""
    settings = {"cleanup.policy": "compact", "internal.segment.bytes": "2000"}
    with pylogseg.Broker(tmp_path / "home") as broker:
        broker.create_topic("state", 1, settings)
        for number in range(200):
            broker.produce("state", b"%d" % number * 20, key=b"k%d" % (number % 5))
    before = write(tmp_path / "home", tmp_path / "archive")
    assert not offline.compact(tmp_path / "home", topic="state", config=settings).failed
    after = write(tmp_path / "home", tmp_path / "archive")
    assert 0 < after.segments < before.segments
    rows = [
        list(pylogseg.read(open_archive(tmp_path / "archive", point=each.point.id)["state"]))
        for each in (before, after)
    ]
    assert len(rows[0]) == 200 > len(rows[1])
    assert rows[1] == list(pylogseg.read(tmp_path / "home" / "state-0"))
    assert write(tmp_path / "home", tmp_path / "archive").segments == 0


def compacting(home: Path) -> BrokerSettings:
    """Settings of a broker that compacts small segments when it is told to."""
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=2000, min_cleanable_dirty_ratio=0.01)
    return BrokerSettings(
        (str(home),), config, log_cleaner_enable=False, log_initial_task_delay_ms=50,
        replica_high_watermark_checkpoint_interval_ms=50, log_cleaner_dedupe_buffer_size=1 << 20,
    )  # fmt: skip


def test_cleaned_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker cleans while it is read, for records behind its high watermark then: these are in the point too."""
    with LogManager(compacting(tmp_path / "home")) as manager:
        log = manager.log("state", topic_id=TOPIC_ID)

        def put(first: int) -> None:
            for number in range(first, first + 100):
                log.append([(None, b"k%d" % (number % 5), b"%d" % number * 20)])

        def clean_then_open(segment: Segment) -> Any:
            if not cleaned and "state-0" in segment.path:
                cleaned.append(True)
                put(100)
                assert manager.cleaning.clean_dirtiest(manager.cleaning.new_cleaner())
            return real(segment)

        put(0)
        manager.checkpoint()
        cleaned: list[bool] = []
        real = uploading.open_unless_removed
        monkeypatch.setattr(uploading, "open_unless_removed", clean_then_open)
        done = write(tmp_path / "home", tmp_path / "archive")
    assert (cleaned, done.faults, of(done.point).end_offset) == ([True], [], 200)
    rows = list(pylogseg.read(open_archive(tmp_path / "archive", point=done.point.id)["state"]))
    assert {row.offset for row in rows} >= set(range(195, 200))


def test_cleaned_once_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers stand where the records that were read left them, not where the cleaned log has them."""
    with LogManager(compacting(tmp_path / "home")) as manager:
        log = manager.log("state", topic_id=TOPIC_ID)
        producer = log.producer(7)

        def put(count: int) -> None:
            for _ in range(count):
                producer.append([(None, b"k", b"v" * 20)])

        def finished(writer: uploading.UploadWriter) -> str:
            if not cleaned and writer.size < 1500:  # the active segment
                cleaned.append(True)
                put(100)
                assert manager.cleaning.clean_dirtiest(manager.cleaning.new_cleaner())
            return finish(writer)

        put(50)
        manager.checkpoint()
        cleaned: list[bool] = []
        finish = uploading.UploadWriter.finish
        monkeypatch.setattr(uploading.UploadWriter, "finish", finished)
        done = write(tmp_path / "home", tmp_path / "archive")
    assert (cleaned, of(done.point).end_offset) == ([True], 50)
    found = verify_archive(str(tmp_path / "archive"), ArchiveSummary(Level.INDEXES), read="all")
    assert [each for each in found if each.is_damage] == []


def test_made_anew(tmp_path: Path) -> None:
    """A topic that was deleted and made again stays apart from the one before it, which somebody lets go."""
    confluent_kafka = pytest.importorskip("confluent_kafka.admin") and sys.modules["confluent_kafka"]
    points = []
    for value in (b"old", b"new"):
        with pylogseg.Broker(tmp_path / "home") as broker:
            broker.create_topic("t", 1)
            broker.produce("t", value)
        done = write(tmp_path / "home", tmp_path / "archive")
        points.append(done.point)
        with pylogseg.Broker(tmp_path / "home") as broker:
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            admin.delete_topics(["t"])["t"].result(30)
    assert any(fault.startswith("t-0: it is on none of the disks") for fault in done.faults)  # no metadata says it
    ids = [{each.topic_id for each in point.partitions if each.topic == "t"} for point in points]
    assert (len(ids[0]), len(ids[1]), ids[0] < ids[1]) == (1, 2, True)
    last = write(tmp_path / "home", tmp_path / "archive", forget=["t"])
    assert (last.point.partitions, last.faults) == ((), [])
    values = [[r.value for r in pylogseg.read(open_archive(tmp_path / "archive", point=p.id)["t"])] for p in points]
    assert values == [[b"old"], [b"new"]]


def test_commits_above_the_end(tmp_path: Path) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with pylogseg.Broker(tmp_path / "home") as broker:
        broker.create_topic("t", 1)
        for number in range(9):
            broker.produce("t", b"%d" % number)
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}
        )
        consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 9)], asynchronous=False)
        consumer.close()
        broker.stop()
    assert write(tmp_path / "home", tmp_path / "archive").point.above_end == ()
    path = tmp_path / "home" / "replication-offset-checkpoint"
    path.write_text(path.read_text().replace("t 0 9", "t 0 4"))
    (commit,) = write(tmp_path / "home", tmp_path / "other").point.above_end
    assert commit == ("g", "t", 0, 9, 4)


def test_a_segment_that_begins_during_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the last high watermark says is looked for in logs that were listed after it."""
    cluster = Cluster(tmp_path, random.Random(3), unclean=False)
    broker, marks = cluster.leader, []
    cluster.in_sync = [broker]
    cluster.write()
    broker.directory.checkpoint()
    first = len(broker.log.segments)

    def grown(files: Any, log_dir: str, kind: FileKind) -> Any:
        if kind is FileKind.HIGH_WATERMARKS:
            marks.append(kind)
            if len(marks) == 2:
                while len(broker.log.segments) < first + 3:
                    cluster.write()
                broker.directory.checkpoint()
        return read_offset_checkpoint(files, log_dir, kind)

    monkeypatch.setattr(seen, "read_offset_checkpoint", grown)
    done = write(broker.folder, tmp_path / "archive")
    assert len(marks) >= 2
    assert (done.faults, of(done.point).end_offset) == ([], broker.log.high_watermark)
    for each in cluster.brokers:
        each.kill()


def test_a_folder_that_goes_during_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker removes its replica, as after a reassignment: nothing of it is taken for a log of its own."""
    cluster = Cluster(tmp_path / "disks", random.Random(3), unclean=False)
    real, gone = log_here.read_leader_epochs, cluster.brokers[1].folder / NAME
    for _ in range(20):
        cluster.write()
        for broker in cluster.brokers[1:]:
            cluster.follow(broker, 1 << 30)
    for broker in cluster.brokers:
        broker.directory.checkpoint()

    def removed_first(files: Any, folder: str) -> Any:
        if folder == str(gone) and gone.exists():
            gone.rename(f"{gone}.0123456789abcdef0123456789abcdef-delete")
        return real(files, folder)

    monkeypatch.setattr(log_here, "read_leader_epochs", removed_first)
    done = write([each.folder for each in cluster.brokers], tmp_path / "archive")
    assert not gone.exists()
    assert (done.faults, done.point.notes) == ([], ())
    assert in_archive(tmp_path / "archive", done.point) == below(cluster.leader.batches(), of(done.point))
    for broker in cluster.brokers:
        broker.kill()


@pytest.mark.parametrize(("compress", "encrypted"), [(True, False), (False, True), (True, True)])
def test_forms(disks: tuple[list[Path], list[Batch]], tmp_path: Path, compress: bool, encrypted: bool) -> None:
    folders, batches = disks
    key = Key.make("ops", tmp_path / "keys") if encrypted else None
    public = tmp_path / "ops.pem"
    if key is not None:
        (tmp_path / "keys" / "ops.public").rename(public)
    done = write(folders, tmp_path / "archive", compress=compress, encrypt_to=public if encrypted else None)
    how = {"storage_options": {"tier_keys": tmp_path / "keys"}} if encrypted else {}
    assert in_archive(tmp_path / "archive", done.point, **how) == [each.data for each in batches]
    stored = b"".join(path.read_bytes() for path in (tmp_path / "archive").rglob("*.log"))
    assert not any(each.data in stored for each in batches)
    assert write(folders, tmp_path / "archive", compress=compress).segments == 0


# ---- damage ----


def test_a_replica_stands_in(disks: tuple[list[Path], list[Batch]], tmp_path: Path) -> None:
    folders, batches = disks
    flip(folders[0], batches[3])
    flip(folders[1], batches[-3])
    done = write(folders, tmp_path / "archive")
    assert of(done.point).fault == ""
    assert not done.is_whole
    assert all("CRC mismatch" in fault for fault in done.faults)
    assert in_archive(tmp_path / "archive", done.point) == [each.data for each in batches]
    assert shell("archive", *folders, tmp_path / "second").code == 1


def test_no_replica_is_whole(disks: tuple[list[Path], list[Batch]], tmp_path: Path) -> None:
    """What lies above the damage does not go up, and the run says so; once it is repaired, the next one goes on."""
    folders, batches = disks
    bad = batches[len(batches) // 2]
    path = folders[0] / NAME / f"{bad.segment:020d}.log"
    healthy = path.read_bytes()
    flip(folders[0], bad)
    for _ in range(2):
        done = write(folders[0], tmp_path / "archive")
        assert of(done.point).end_offset == bad.first
        assert "CRC mismatch" in of(done.point).fault
        assert not done.is_whole
        assert in_archive(tmp_path / "archive", done.point) == [each.data for each in batches if each.end <= bad.first]
    path.write_bytes(healthy)
    done = write(folders[0], tmp_path / "archive")
    assert done.is_whole
    assert of(done.point).segments[0].end_offset <= bad.first
    assert in_archive(tmp_path / "archive", done.point) == [each.data for each in batches]


def test_damage_of_what_is_archived(disks: tuple[list[Path], list[Batch]], tmp_path: Path) -> None:
    """A segment that was cut on the disk is not taken for another one: the archive keeps what it has."""
    folders, batches = disks
    write(folders[0], tmp_path / "archive")
    path = folders[0] / NAME / f"{batches[0].segment:020d}.log"
    os.truncate(path, path.stat().st_size - 20)
    done = write(folders[0], tmp_path / "archive")
    assert not done.is_whole
    assert in_archive(tmp_path / "archive", done.point) == [each.data for each in batches]


# ---- killed and failing ----


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes of POSIX")
def test_killed_at_each_change(disks: tuple[list[Path], list[Batch]], tmp_path: Path) -> None:
    """The newest point can be read, the next run goes on, and no offset is uploaded twice."""
    folders, batches = disks
    at = 1
    while True:
        archive = tmp_path / f"archive{at}"
        is_killed = killed(folders, archive, at)
        for name in list_points(archive):
            assert in_archive(archive, read_point(archive, name)) == [each.data for each in batches]
        whole = {p.name for p in archive.rglob("*.rsm-manifest")}
        done = write(folders, archive)
        assert done.adopted == (0 if list_points(archive)[1:] else len(whole))
        assert in_archive(archive, done.point) == [each.data for each in batches]
        names = [path.name[:20] for path in archive.rglob("*.log")]
        assert len(names) == len(set(names))
        if not is_killed:
            break
        at += 1 if depth.IS_DEEP else 3
    assert at > 15


def test_killed_again_and_again(tmp_path: Path) -> None:
    """Of runs of a log that grows, each is killed somewhere."""
    cluster = Cluster(tmp_path / "disks", random.Random(1), unclean=False)
    archive, folder = tmp_path / "archive", cluster.leader.folder
    for at in range(6, 40, 3):
        cluster.write()
        for broker in cluster.brokers[1:]:
            cluster.follow(broker, 1 << 30)
        cluster.leader.directory.checkpoint()
        killed([folder], archive, at)
        names = list_points(archive)
        if names:
            point = read_point(archive, names[-1])
            assert in_archive(archive, point) == below(cluster.leader.batches(), of(point))
    done = write(folder, archive)
    assert in_archive(archive, done.point) == below(cluster.leader.batches(), of(done.point))
    whole = {path.with_suffix(".log") for path in archive.rglob("*.rsm-manifest")}
    assert {archive / key for key in done.point.objects if key.endswith(".log")} == whole
    for broker in cluster.brokers:
        broker.kill()


def test_a_store_that_fails(disks: tuple[list[Path], list[Batch]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that writes fails once, before or after it is done: no point is wrong, and the next run goes on."""
    folders, batches = disks
    memory = type(fsspec.filesystem("memory"))
    at, ended = 0, False
    while not ended:
        for is_done in (False, True):
            at += not is_done
            url, count = f"memory://fails-{at}-{is_done}", 0

            def failing(name: str, is_done: bool = is_done, at: int = at) -> Any:
                real = getattr(memory, name)

                def call(self: Any, *given: Any, **named: Any) -> Any:
                    nonlocal count
                    count += 1
                    if count == at and not is_done:
                        raise OSError("the store does not answer")
                    found = real(self, *given, **named)
                    if count == at:
                        raise OSError("the connection broke")
                    return found

                return call

            with monkeypatch.context() as patch:
                for name in ("pipe_file", "put_file"):
                    patch.setattr(memory, name, failing(name))
                try:
                    write(folders, url)
                except StorageError:
                    pass
                else:
                    ended = count < at
            done = write(folders, url)
            assert in_archive(url, done.point) == [each.data for each in batches]
            manifests = [path for path in fsspec.filesystem("memory").find(url[8:]) if path.endswith(".rsm-manifest")]
            assert len(manifests) == len(of(done.point).segments)
    assert at > 8


@pytest.mark.parametrize("lags", [("points/",), ("points/", "t-", "__")])
def test_a_listing_that_lags(
    disks: tuple[list[Path], list[Batch]], monkeypatch: pytest.MonkeyPatch, lags: tuple[str, ...]
) -> None:
    """A run that no listing tells of the newest point, or of its objects, changes none of them."""
    folders, batches = disks
    url = f"memory://lags-{len(lags)}"
    first = write(folders, url).point
    memory = type(fsspec.filesystem("memory"))
    real = memory.find

    def find(self: Any, path: str, *given: Any, **named: Any) -> Any:
        found = real(self, path, *given, **named)
        late = [each for each in found if each.split("/", 2)[-1].startswith(lags)]
        return {each: info for each, info in found.items() if each not in late} if named.get("detail") else found

    with monkeypatch.context() as patch:
        patch.setattr(memory, "find", find)
        second = write(folders, url)
    for before, after in zip(of(first).segments, of(second.point).segments, strict=True):
        assert after._replace(log=before.log) == before
        assert before.log.sha256.startswith(after.log.sha256)
    assert (
        second.segments + second.adopted == 0
    )  # the note of the last run names the point, and each object is asked for
    summary = ArchiveSummary(Level.INDEXES)
    assert [each for each in verify_archive(url, summary, read="all") if each.is_damage] == []
    assert summary.points == 2
    for point in (first, second.point):
        assert in_archive(url, point) == [each.data for each in batches]


def test_a_disk_that_takes_no_more(disks: tuple[list[Path], list[Batch]], tmp_path: Path) -> None:
    """What the disk of the archive says is an error of the store: `--every` goes on, and no point is written."""
    resource = pytest.importorskip("resource")
    folders, batches = disks
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(StorageError, match="File too large"):
            write(folders, tmp_path / "archive")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list_points(tmp_path / "archive") == []
    done = write(folders, tmp_path / "archive")
    assert in_archive(tmp_path / "archive", done.point) == [each.data for each in batches]
    assert not [path for path in (tmp_path / "archive").rglob("*") if path.name.endswith(".tmp")]


# ---- places, and the shell ----


def test_what_is_no_archive(disks: tuple[list[Path], list[Batch]], tmp_path: Path) -> None:
    folders, _ = disks
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other").write_text("x")
    with pytest.raises(RequestError, match="this is not an archive, and not empty"):
        write(folders, tmp_path / "full")
    write(folders, tmp_path / "archive")
    other = Broker(tmp_path / "b9", 9)
    other.stop()
    meta = tmp_path / "b9" / "meta.properties"
    meta.write_text(meta.read_text().replace("3Db5QLSqSZieL3rJBUUegA", "4Db5QLSqSZieL3rJBUUegA"))
    with pytest.raises(RequestError, match="the archive of cluster 3Db5QLSqSZieL3rJBUUegA, and the disks are of"):
        write(tmp_path / "b9", tmp_path / "archive")
    with pytest.raises(RequestError, match="archive each by itself"):
        write([*folders, tmp_path / "b9"], tmp_path / "archive")
    with pytest.raises(RequestError, match="an archive is made of log directories"):
        write(folders[0] / NAME, tmp_path / "archive")
    assert len(list_points(tmp_path / "archive")) == 1


def test_commands(disks: tuple[list[Path], list[Batch]], tmp_path: Path) -> None:
    folders, batches = disks
    archive = tmp_path / "archive"
    (row,) = shell("archive", folders[0], archive, "--json").rows
    assert (row["segments"], row["faults"]) == (3, [])
    for folder in folders[1:]:
        assert shell("archive", folder, archive, "--jobs", 2).text.endswith("0 segments, 0 B, uploaded\n")
    points = shell("archive", "points", archive, "--json").rows
    assert [each["partitions"] for each in points] == [1, 1, 1]
    assert shell("archive", "show", archive, points[0]["point"]).text.startswith(points[0]["point"])
    (shown,) = shell("archive", "show", archive, "--json").rows
    assert shown["id"] == points[2]["point"]
    assert shell("archive", "diff", archive, points[0]["point"], points[1]["point"], "--json").rows == []
    assert shell("archive", "prune", archive).code == 2
    dry = shell("archive", "prune", archive, "--keep-last", 1, "--dry-run")
    assert (
        dry.text.endswith("2 points and 2 objects" + dry.text[dry.text.index(", ") :]) or "would be removed" in dry.text
    )
    assert len(list_points(archive)) == 3
    assert shell("archive", "prune", archive, "--keep-last", 1).code == 0
    (left,) = list_points(archive)
    assert in_archive(archive, read_point(archive, left)) == [each.data for each in batches]


def test_prune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept points stay whole, what only removed ones needed goes, and what is locked is said."""
    cluster = Cluster(tmp_path / "disks", random.Random(2), unclean=False)
    archive, broker, points = tmp_path / "archive", cluster.leader, []
    for _ in range(3):
        for _ in range(20):
            cluster.write()
        for other in cluster.brokers[1:]:
            cluster.follow(other, 1 << 30)
        bases = [batch.first for batch in broker.batches() if batch.first <= broker.log.high_watermark]
        broker.log.increment_log_start(bases[-2])
        broker.log.delete_below_start()
        broker.directory.checkpoint()
        points.append(write(broker.folder, archive).point)
    real = FolderStore.delete
    locked = next(iter(points[0].objects))

    def delete(self: FolderStore, name: str) -> None:
        if name == locked:
            raise StorageError(self.name(name), "delete", "it is locked", 13)
        real(self, name)

    monkeypatch.setattr(FolderStore, "delete", delete)
    done = pylogseg.archive.prune(archive, keep_last=1, keep_hourly=1)
    assert [each.id for each in done.kept] == [points[2].id]
    assert done.not_yet == [str(archive / locked)]
    there = {key for key in FolderStore(archive).list() if "-" in key.partition("/")[0]}
    assert there == set(points[2].objects) | {locked}
    monkeypatch.undo()
    assert pylogseg.archive.prune(archive, keep_daily=7).objects == 1
    assert in_archive(archive, points[2]) == below(broker.batches(), of(points[2]))
    for each in cluster.brokers:
        each.kill()


def test_beside_a_broker(tmp_path: Path) -> None:
    """Points that are made while a broker writes have its log up to where it was committed, and each goes on."""
    with pylogseg.Broker(tmp_path / "home") as broker:
        broker.create_topic("t", 1, {"internal.segment.bytes": "3000"})
        for number in range(5):
            for each in range(50):
                broker.produce("t", b"%d" % (number * 50 + each) * 10)
            done = write(tmp_path / "home", tmp_path / "archive")
            assert done.faults == []
            assert [disk.state for disk in done.point.disks] == ["running"]
            values = [r.value for r in pylogseg.read(open_archive(tmp_path / "archive")["t"])] if done.segments else []
            assert values == [b"%d" % each * 10 for each in range(len(values))]
    done = write(tmp_path / "home", tmp_path / "archive")
    assert len(list(pylogseg.read(open_archive(tmp_path / "archive")["t"]))) == 250
    assert [disk.state for disk in done.point.disks] == ["stopped"]
