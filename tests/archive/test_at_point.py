"""Tests of archive/at_point.py, archive/one_broker.py, archive/restoring.py, archive/verifying.py,
disk/tier/at_point.py and disk/tier/point.py. An archive opened and restored at each of its points: the records, groups
and settings of that moment.
"""

from __future__ import annotations

import datetime
import os
import pickle
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from archive.histories import SETTINGS, History, rows_of
from helpers.damaged_logs import change_byte
from helpers.process_memory import Growth
from helpers.shell import pylogseg as shell
from helpers.tiers import Key

import pylogseg
from pylogseg.archive import open_archive, point_url, restore_point, write
from pylogseg.archive.at_point import archive_url
from pylogseg.archive.verifying import ArchiveSummary, verify_archive
from pylogseg.disk.tier.point import NotSeen
from pylogseg.disk.tier.points import archive_store, new_id, write_point
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.files.checkpoint import encode_offset_checkpoint, parse_offset_checkpoint
from pylogseg.inspect.verify.findings import Level
from pylogseg.offline import restore


def test_reads(history: History) -> None:
    """Through the URL and by the function; what was written later, cleaned or deleted since does not count."""
    assert len({len(rows["orders-0", "read_committed"]) for rows in history.rows.values()}) > 2
    for point in history.archiver.points:
        disk = open_archive(history.url, point=point.id)
        assert disk.notes == ()
        assert rows_of(disk) == history.rows[point.id]
        assert rows_of(f"{history.url}#{point.id}") == history.rows[point.id]
        assert rows_of(pickle.loads(pickle.dumps(disk))) == history.rows[point.id]


def test_points_of_the_writer(tmp_path: Path) -> None:
    """Segments that are cleaned to the same bytes again, or to none, are objects of their own: points stay whole."""
    history, archive, rows = History(tmp_path), tmp_path / "written", {}
    for step in (*history.steps, history.compact, history.write, history.compact):
        step()
        rows[write([history.home], archive).point.id] = rows_of(history.home)
    for point, expected in rows.items():
        assert rows_of(open_archive(archive, point=point)) == expected
    summary = ArchiveSummary(Level.INDEXES)
    assert [each for each in verify_archive(str(archive), summary, read="all") if each.is_damage] == []
    assert (summary.points, summary.exit_code) == (len(rows), 0)


def test_a_cleaner_went_on(tmp_path: Path) -> None:
    """What a cleaner may have removed for records behind the end of the point is a fault of the point."""
    history = History(tmp_path)
    history.write()
    history.compact()
    assert write([history.home], tmp_path / "one").faults == []
    path = history.home / "cleaner-offset-checkpoint"
    offsets = parse_offset_checkpoint(path.read_bytes()) if path.exists() else {}
    path.write_bytes(encode_offset_checkpoint({**offsets, ("state", 0): 1000}))
    (fault,) = write([history.home], tmp_path / "two").faults
    assert fault.startswith("state-0: a cleaner went up to offset 1000")


def test_a_cleaner_at_work_has_noted_nothing_yet(tmp_path: Path) -> None:
    """It puts one segment after the other in place, and says how far it went when it is done with all."""
    history = History(tmp_path)
    for step in (history.write, history.compact, history.write):
        step()
    partition, marks = history.home / "state-0", history.home / "replication-offset-checkpoint"
    (history.home / ".kafka_cleanshutdown").unlink()
    bases = sorted(int(path.stem) for path in partition.glob("*.log"))
    offsets = {**parse_offset_checkpoint(marks.read_bytes()), ("state", 0): bases[-1] - 1}
    marks.write_bytes(encode_offset_checkpoint(offsets))
    noted_ns, second = time.time_ns(), 10**9
    os.utime(marks, ns=(noted_ns + 5 * second,) * 2)  # long after what was cleaned till now
    assert write([history.home], tmp_path / "before").faults == []
    cleaned = partition / f"{bases[0]:020}.log"
    before = cleaned.stat().st_mtime_ns
    (partition / "new").write_bytes(cleaned.read_bytes())
    os.utime(partition / "new", ns=(before, before))
    (partition / "new").rename(cleaned)
    os.utime(marks, ns=(noted_ns,) * 2)
    (fault,) = write([history.home], tmp_path / "meanwhile").faults
    assert fault.startswith(f"state-0: a cleaner was at work while it was read, and the log ends at {bases[-1] - 1}")
    os.utime(marks, ns=(time.time_ns() + 5 * second,) * 2)  # noted again
    assert write([history.home], tmp_path / "after").faults == []


def test_which_point(history: History) -> None:
    first, second, *_, last = history.archiver.points
    for wanted, asked in (
        (last, point_url(history.archiver.root)),
        (last, f"{history.url}#latest"),
        (first, point_url(history.url, at=second.time_ms - 1)),
        (
            second,
            point_url(history.url, at=datetime.datetime.fromtimestamp(second.time_ms / 1000, datetime.timezone.utc)),
        ),
        (second, f"{history.url}#2026-05-28T21:26:40Z"),
        (second, point_url(history.url, point=second.id[:13])),
    ):
        found = pylogseg.open_dir(asked).log_dirs[0].path
        assert found == f"{history.url}#{wanted.id}"
    with pytest.raises(RequestError, match="which point is meant"):
        point_url(f"{history.url}#{first.id}", point=second.id)
    with pytest.raises(RequestError, match=r"no point is as old as 2026-05-28T20:26:39\.999Z"):
        open_archive(history.url, at=first.time_ms - 1)
    with pytest.raises(RequestError, match="expected an id"):
        open_archive(history.url, point="yesterday")


def test_restores(history: History, tmp_path: Path) -> None:
    """As a cluster of one broker, which finds nothing to recover; and again, which finds nothing to do."""
    for number, point in enumerate(history.archiver.points):
        target = tmp_path / str(number)
        target.mkdir()
        result = restore_point(history.url, target, point=point.id, node_id=4)
        assert (result.exit_code, result.is_closed_clean) == (0, True)
        assert rows_of(target) == history.rows[point.id]
        wanted = {(each.topic, each.partition): each.end_offset for each in point.partitions}
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            assert parse_offset_checkpoint((target / name).read_bytes()) == wanted
        again = restore(f"{history.url}#{point.id}", target)
        assert {each.state for each in again} == {"unchanged"}
        with pylogseg.Broker(target) as broker:
            assert broker.catalog.notes == []
            assert (broker.catalog.node_id, broker.catalog.cluster_id) == (4, point.cluster_id)
            assert broker.committed("g") == history.offsets[point.id]
            for name, settings in SETTINGS.items():
                assert broker.catalog.topics[name].settings == settings
            for each in point.partitions:
                served = broker.catalog.find(broker.catalog.topics[each.topic], each.partition)
                assert (served.log().log_start_offset, served.log().high_watermark) == (
                    each.start_offset,
                    each.end_offset,
                )
                assert served.log().report.actions == []
                assert served.log().last_stable_offset == each.last_stable_offset
            broker.produce("orders", b"it goes on", partition=0)


def test_what_is_no_record_of_a_topic(golden: Path, tmp_path: Path) -> None:
    """Users of SCRAM with their keys, quotas, ACLs, features and settings of a cluster of Kafka are in the new one."""
    disks, target = [golden / "inside" / "groups" / name for name in ("data0", "data1")], tmp_path / "new"
    assert write(disks, tmp_path / "archive").faults == []
    target.mkdir()
    assert restore_point(tmp_path / "archive", target, node_id=7).exit_code == 0
    log = target / "__cluster_metadata-0" / f"{0:020d}.log"
    log.parent.mkdir()
    shutil.copy(target / "bootstrap.checkpoint", log)  # as a controller does at its first start
    before, after = (pylogseg.cluster_state(each, show_secrets=True) for each in (disks, target))

    def rows(state: pylogseg.ClusterState, table: str) -> list[str]:
        found = state.table(table).to_pylist()
        assert state.notes == []
        if table == "configs":  # neither those of a broker that is not there, nor of tiers
            found = [each for each in found if (each["resourceType"], each["resource"]) != ("BROKER", "1")]
            found = [each for each in found if not each["name"].startswith(("remote.storage", "local.retention"))]
        if table == "features":  # the version of its quorum is that of the new cluster
            found = [each for each in found if each["feature"] != "kraft.version"]
        return sorted(map(repr, found))

    for table, count in {"users": 2, "quotas": 7, "acls": 10, "features": 6, "configs": 81}.items():
        assert rows(after, table) == rows(before, table)
        assert len(rows(after, table)) == count
    for table in ("users", "quotas", "acls"):
        old, new = (shell("cluster", *each, table, "--json").rows for each in (disks, [target]))
        assert sorted(map(repr, new)) == sorted(map(repr, old)) != []


def test_some_topics_into_a_cluster(history: History, tmp_path: Path) -> None:
    """Into the log directory of another cluster, which has its own id of the topic: producers are others."""
    with pylogseg.Broker(tmp_path / "other") as broker:
        broker.create_topic("orders", 2)
    point = history.archiver.points[1]
    result = restore(f"{history.url}#{point.id}", tmp_path / "other", topic="orders", overwrite=True)
    assert (result.exit_code, [each.name for each in result]) == (0, ["orders-0", "orders-1"])
    assert "it is another cluster" in result.clients[0]
    with pylogseg.Broker(tmp_path / "other") as broker:
        found = [record.value for record in broker.records("orders", 0)]
    assert found == [record.value for record in history.rows[point.id]["orders-0", "read_uncommitted"]]


def test_what_is_missing_of_a_new_cluster(history: History, tmp_path: Path) -> None:
    """A topic of which not all partitions are restored begins empty there, and this is said."""
    result = restore_point(history.url, tmp_path, topic="orders", partition=1, node_id=1)
    assert result.exit_code == 1
    assert [(each.name, each.state) for each in result] == [("orders-1", "done"), ("orders-0", "skipped")]
    with pytest.raises(RequestError, match="it is not empty"):
        restore_point(history.url, tmp_path, node_id=1)
    with pytest.raises(RequestError, match="give node_id"):
        restore_point(history.url, tmp_path, settings={"retention.ms": "-1"})


def test_the_last_records_were_cleaned_away(history: History, tmp_path: Path) -> None:
    """Behind a segment without a batch a log has another one: offsets that were given are not given again."""
    archive = Path(shutil.copytree(history.archiver.root, tmp_path / "archive"))
    point = history.archiver.points[0]
    state = next(each for each in point.partitions if each.name == "state-0")
    without = replace(state, segments=(*state.segments[:-1], state.segments[-1]._replace(size=0)))
    partitions = tuple(without if each is state else each for each in point.partitions)
    time_ms = point.time_ms - 1
    write_point(archive_store(archive), replace(point, id=new_id(time_ms), time_ms=time_ms, partitions=partitions))
    (tmp_path / "new").mkdir()
    assert restore_point(archive, tmp_path / "new", at=time_ms, node_id=1).exit_code == 0
    assert (tmp_path / "new" / "state-0" / f"{state.end_offset:020d}.log").stat().st_size == 0
    assert rows_of(tmp_path / "new") == history.rows[point.id]


def test_serves(history: History) -> None:
    for point in history.archiver.points[:2]:
        with pylogseg.serve(f"{history.url}#{point.id}", group_offsets=True) as server:
            for each in point.partitions:
                log = server.catalog.find(server.catalog.topics[each.topic], each.partition).log()
                assert (log.log_start_offset, log.high_watermark) == (each.start_offset, each.end_offset)
            assert server.catalog.cluster_id == point.cluster_id


def test_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(tmp_path, is_compressed=True, key=Key.make("k", tmp_path / "keys"))
    history.write()
    point = history.point()
    assert rows_of(open_archive(history.url, keys=tmp_path / "keys")) == history.rows[point.id]
    monkeypatch.setenv("PYLOGSEG_TIER_KEYS", str(tmp_path / "keys"))
    (tmp_path / "new").mkdir()
    assert restore_point(history.url, tmp_path / "new", node_id=1).exit_code == 0
    assert rows_of(tmp_path / "new") == history.rows[point.id]


@pytest.mark.parametrize("suffix", [".log", ".rsm-manifest"])
def test_an_object_is_gone(tmp_path: Path, suffix: str) -> None:
    """What cannot be read is an error that names it, and never less records."""
    history = History(tmp_path)
    history.write()
    point = history.point()
    (gone,) = [each for each in point.partitions if each.name == "orders-1"]
    path = history.archiver.root / (gone.stem(gone.segments[0]) + suffix)
    path.unlink()
    with pytest.raises(StorageError, match=path.name):
        rows_of(open_archive(history.url))
    (tmp_path / "new").mkdir()
    with pytest.raises(StorageError, match=path.name):
        restore_point(history.url, tmp_path / "new", node_id=1)
    assert list((tmp_path / "new").iterdir()) == []


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of two partitions whose objects have the same offsets and sizes."""
    root = tmp_path_factory.mktemp("twins")
    with pylogseg.Broker(root / "home") as broker:
        broker.create_topic("t", 2)
        for number in range(20):
            for partition in range(2):
                broker.produce("t", b"%d: %d" % (partition, 10 + number), partition=partition)
    assert write(root / "home", root / "archive").faults == []
    return root / "archive"


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".rsm-manifest"])
def test_objects_of_others(twins: Path, tmp_path: Path, suffix: str) -> None:
    """Good batches, indexes or a manifest, but not those of the point: no restore takes them, and a drill says it."""
    archive, target = Path(shutil.copytree(twins, tmp_path / "archive")), tmp_path / "new"
    one, other = sorted(archive.glob(f"t-*/*/*{suffix}"))
    if suffix == ".rsm-manifest":
        one.write_text(one.read_text().replace('"brokerId": 1', '"brokerId": 2'))
        assert one.read_bytes() != (twins / one.relative_to(archive)).read_bytes()
    elif suffix == ".indexes":  # the end of the leader epochs, which a point has itself
        one.write_bytes(one.read_bytes()[:-1] + b" ")
    else:
        assert one.stat().st_size == other.stat().st_size
        shutil.copy(other, one)
    target.mkdir()
    for how in ({"node_id": 1}, {"topic": "t"}):
        with pytest.raises((CorruptionError, StorageError), match=f"{one.name}.*SHA-256"):
            restore_point(archive, target, **how)
        assert list(target.iterdir()) == []
    done = shell("drill", archive)
    assert (done.code, one.name in done.text) == (1, True)
    if suffix != ".rsm-manifest":
        result = restore(f"{archive_url(archive)}#latest", target, on_corrupt="skip")
        assert result.exit_code == 1
        assert any(one.name in note for each in result for note in each.notes)


def test_a_snapshot_of_another(golden: Path, tmp_path: Path) -> None:
    """Of the metadata too: a new cluster is not made of it, or it is said."""
    disks = [golden / "inside" / "groups" / name for name in ("data0", "data1")]
    assert write(disks, tmp_path / "archive").faults == []
    (path,) = (tmp_path / "archive" / "files").rglob("*.checkpoint")
    change_byte(path)
    (tmp_path / "new").mkdir()
    result = restore_point(tmp_path / "archive", tmp_path / "new", node_id=7)
    assert result.exit_code == 1
    (metadata,) = [each for each in result if each.not_done]
    assert (metadata.name, metadata.state) == ("__cluster_metadata-0", "skipped")
    assert path.name in metadata.reason
    assert "SHA-256" in metadata.reason


def test_a_point_that_lacks_something(history: History, tmp_path: Path) -> None:
    """What there is of it is restored, and that it is not all is said, and an exit code."""
    archive = Path(shutil.copytree(history.archiver.root, tmp_path / "archive"))
    point = history.archiver.points[1]
    partitions = tuple(replace(each, fault="it lacks something") if each.name == "orders-1" else each
                       for each in point.partitions)  # fmt: skip
    harms = {"partitions": partitions}, {"not_seen": (NotSeen("lost", "A" * 22, 0),)}
    for number, (harm, what) in enumerate(zip(harms, ("it lacks something", "lost-0"), strict=True)):
        time_ms = point.time_ms + 1 + number
        write_point(archive_store(archive), replace(point, id=new_id(time_ms), time_ms=time_ms, **harm))
        for how in (("--node-id", 1), ()):
            target = tmp_path / f"new-{number}-{len(how)}"
            target.mkdir()
            done = shell("restore", archive, target, "--point", str(time_ms), *how)
            assert (done.code, what in done.err) == (1, True)
            assert rows_of(target) == history.rows[point.id]
    assert shell("restore", archive, target, "state", "--point", str(time_ms)).code == 0


def with_numbers(history: History, place: Path, *numbers: int) -> Path:
    """An archive of one topic with a partition that has records, and empty ones of these numbers."""
    archive = Path(shutil.copytree(history.archiver.root, place))
    point = history.archiver.points[-1]
    first = next(each for each in point.partitions if each.name == "orders-0")
    empty = replace(first, segments=(), start_offset=0, end_offset=0, last_stable_offset=0, files={}, epochs=())
    partitions = (first, *(replace(empty, partition=number) for number in numbers))
    time_ms = point.time_ms + 1
    write_point(archive_store(archive), replace(point, id=new_id(time_ms), time_ms=time_ms, partitions=partitions))
    return archive


COMMANDS_OF_POINTS: list[tuple[object, ...]] = [
    ("archive", "show", "ARCHIVE"),
    ("archive", "points", "ARCHIVE"),
    ("archive", "diff", "ARCHIVE", "latest", "latest"),
    ("archive", "prune", "ARCHIVE", "--keep-last", 1, "--dry-run"),
    ("verify", "ARCHIVE"),
    ("report", "URL", "-o", "NEW.html"),
    ("ls", "URL"),
    ("cat", "URL", "orders-0"),
    ("stats", "URL"),
    ("restore", "ARCHIVE", "NEW", "--point", "latest"),
    ("restore", "ARCHIVE", "NEW", "--node-id", 1),
    ("restore", "ARCHIVE", "NEW", "--node-id", 1, "orders-0"),
    ("drill", "ARCHIVE"),
]


@pytest.mark.parametrize("number", [2**31 - 1, 2**31 - 2, 3_000_000])
def test_a_partition_of_a_great_number(history: History, tmp_path: Path, number: int) -> None:
    """Whatever number a point has, no command goes on without end, or takes memory by it."""
    archive = with_numbers(history, tmp_path / "archive", number)
    for place, command in enumerate(COMMANDS_OF_POINTS):
        new = tmp_path / f"new-{place}"
        new.mkdir()
        texts = {"ARCHIVE": str(archive), "URL": f"aiven+file://{archive}#latest", "NEW": str(new)}
        words = [texts.get(str(each), str(each).replace("NEW", str(new))) for each in command]
        growth = Growth(1 << 30)
        try:
            done = shell(*words)
        finally:
            assert growth.peak() < 200 << 20, command
        is_whole_cluster = "--node-id" in command[-2:] or command[0] == "drill"
        assert done.code == (1 if is_whole_cluster else 0), (command, done.err)
        assert not is_whole_cluster or f"orders-{number}" in done.err + done.text


def test_lacking_partitions_are_one_line(history: History, tmp_path: Path) -> None:
    """Of a topic whose other partitions lie on disks that nobody archived, in a time that grows with their number."""
    archive = with_numbers(history, tmp_path / "archive", 2, 30_000)
    began = time.process_time()
    result = restore_point(archive, tmp_path / "new", node_id=1) if (tmp_path / "new").mkdir() is None else None
    assert result is not None
    assert time.process_time() - began < 5
    lacking = [each for each in result if each.state == "skipped"]
    assert [each.name for each in lacking] == ["orders-1", "__cluster_metadata-0"][: len(lacking)]
    assert "nor 29,997 more of topic orders: they begin empty" in lacking[0].reason
    assert result.exit_code == 1
