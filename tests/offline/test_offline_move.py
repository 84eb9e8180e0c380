"""Tests of cli/move.py, offline/moving.py and transfer/files.py. Partitions on their way to another disk: the same
bytes there, nothing lost by whatever cuts a move short.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import documents
import pytest
from crash.images import crash_images
from helpers.damaged_logs import change_byte
from helpers.offline_world import DIR, LIMIT, NOW, contents, files, world
from helpers.shell import expect, pylogseg
from helpers.trees import entries

import pylogseg as package
from pylogseg import offline
from pylogseg.env.locks import FolderLock
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError, StorageError
from pylogseg.log.directory import LogDirectory
from pylogseg.log.identity import topic_id_of
from pylogseg.offline.moving import _RESTORE
from pylogseg.offline.result import Result
from pylogseg.testing.clock import ManualClock
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage
from pylogseg.values.internal.cluster import ClusterMetadata

OTHER = "/other"
CLUSTER = b"version=1\ncluster.id=pylogsegOracleBrokerAA\nnode.id=1\n"
MARKER = ".kafka_cleanshutdown"
OFFSETS = {"recovery-point": 56, "log-start": 21, "replication": 40, "cleaner": 30}


# ---- what a crash leaves ----


def disks(*, unmarked: str = "") -> MemoryStorage:
    """Two log directories, all durable: of users-0 every checkpoint tells; the other one has users-2."""
    disk = world()
    directory = LogDirectory(disk, OTHER)
    directory.broker_epoch = 7
    directory.close()
    disk.make_folder(f"{OTHER}/users-2")
    for path, data in files(world(), f"{DIR}/users-1").items():
        disk.write_plain(path.replace(f"{DIR}/users-1", f"{OTHER}/users-2"), data)
    for name, offset in OFFSETS.items():
        disk.write_plain(f"{DIR}/{name}-offset-checkpoint", f"0\n2\nusers 0 {offset}\nusers 1 0\n".encode())
        disk.write_plain(f"{OTHER}/{name}-offset-checkpoint", b"0\n2\nusers 2 0\nusers 0 3\n")
    if unmarked:
        disk.remove(f"{unmarked}/{MARKER}")
    return MemoryStorage(disk.state, ManualClock(NOW))


def run(disk: Any, **own: Any) -> Result:
    result = offline.move(DIR, OTHER, storage=disk, topic=["users-0"], **own)
    for part_result in result.failed:
        assert part_result.error is not None
        raise part_result.error
    return result


def live(disk: MemoryStorage) -> dict[str, dict[str, bytes]]:
    """Files of the partitions that a broker would look at, by log directory and name."""
    found = {}
    for log_dir in (DIR, OTHER):
        names = [entry.name for entry in disk.list_folder(log_dir) if entry.is_dir and "-delete" not in entry.name]
        for name in names:
            folder = f"{log_dir}/{name}"
            found[folder] = {path.removeprefix(folder): data for path, data in files(disk, folder).items()}
    return found


def cut_short(**own: Any) -> Iterator[tuple[str, MemoryStorage]]:
    disk = disks(**own)
    run(disk)
    images = list(crash_images(disk.trace, LIMIT, seed=1))
    assert len(images) > 20
    for image in images:
        yield image.description, image.open()
    for error in (errno.EIO, "short", "sync"):
        counter = FaultyStorage(disks(**own), None, error)  # type: ignore[arg-type]
        run(counter)
        assert counter.count
        for k in range(1, counter.count + 1):
            inner = disks(**own)
            storage = FaultyStorage(inner, k, error)  # type: ignore[arg-type]
            with contextlib.suppress(StorageError):
                run(storage)
            yield f"{error} {k}: {storage.failed}", inner


@pytest.mark.parametrize("unmarked", ["", DIR, OTHER])
def test_cut_short(unmarked: str) -> None:
    """At any point the partition is whole, byte for byte, in one of the two or in both; once more ends it."""
    before = live(disks())
    done = disks(unmarked=unmarked)
    assert [result.state for result in run(done)] == ["done"]
    expected = files(done, DIR) | files(done, OTHER)
    assert live(done) == {
        f"{DIR}/users-1": before[f"{DIR}/users-1"],
        f"{OTHER}/users-0": before[f"{DIR}/users-0"],
        f"{OTHER}/users-2": before[f"{OTHER}/users-2"],
    }
    seen = set()
    for description, disk in cut_short(unmarked=unmarked):
        found = live(disk)
        places = [folder for folder in found if folder.endswith("/users-0")]
        assert places, description
        seen.add(tuple(places))
        for folder, content in found.items():
            assert content == before[folder.replace(OTHER, DIR) if folder in places else folder], (description, folder)
        if unmarked == DIR and f"{OTHER}/users-0" in places:
            assert not disk.exists(f"{OTHER}/{MARKER}"), description
        again = MemoryStorage(disk.state, ManualClock(NOW))
        assert [result.state for result in run(again)] in (["done"], ["unchanged"]), description
        assert files(again, DIR) | files(again, OTHER) == expected, description
    assert seen == {(f"{DIR}/users-0",), (f"{DIR}/users-0", f"{OTHER}/users-0"), (f"{OTHER}/users-0",)}


def test_records_and_checkpoints() -> None:
    """A broker that starts on the target gives what it gave before; what was noted of a namesake there is gone."""
    expected = contents(disks())["users-0"]
    assert expected[0][0] == 21
    disk = disks()
    result = run(disk)
    assert sorted((each.file, each.topic, each.partition, each.before, each.after) for each in result.checkpoints) == [
        *((f"{DIR}/{name}-offset-checkpoint", "users", 0, offset, None) for name, offset in sorted(OFFSETS.items())),
        *((f"{OTHER}/{name}-offset-checkpoint", "users", 0, 3, offset) for name, offset in sorted(OFFSETS.items())),
    ]
    assert contents(disk, OTHER)["users-0"] == expected
    assert set(contents(disk)) == {"users-1"}
    assert result.is_closed_clean
    (part_result,) = result
    assert (part_result.log_start, part_result.log_end) == (21, 56)


def test_without_a_clean_shutdown() -> None:
    """The target's marker does not vouch for what comes from a directory without one."""
    result = run(disks(unmarked=DIR))
    assert not result.is_closed_clean
    assert f"{DIR} has no clean shutdown, so {OTHER} has none any more" in result.notes[0]


def test_an_empty_folder_becomes_a_log_directory() -> None:
    disk = world()
    disk.make_folder(OTHER)
    expected = contents(world())
    result = offline.move(DIR, OTHER, storage=disk, topic=["*"])
    assert [part_result.state for part_result in result] == ["done", "done"]
    assert result.is_closed_clean
    assert contents(disk, OTHER) == expected
    assert contents(disk) == {}
    assert f"{DIR} has no partition any more: start the broker once with both directories" in result.notes[0]


# ---- refusals, on real disks ----


@pytest.fixture
def jbod(tmp_path: Path) -> Path:
    """Two log directories of one broker that was stopped."""
    for number, names in enumerate((("codec-zstd-0", "txn-a-0", "del-records-0"), ("codec-gzip-0",)), 1):
        documents.directory(tmp_path / f"disk{number}", *names)
        documents.owned(tmp_path / f"disk{number}", 1, f"disk{number}")
    return tmp_path


def records(*log_dirs: Path) -> list[tuple[Any, ...]]:
    found = package.read([str(path) for path in log_dirs])
    return sorted((r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers) for r in found)


def test_shell(jbod: Path) -> None:
    before = records(jbod / "disk1", jbod / "disk2")
    files_before = entries(jbod / "disk1" / "txn-a-0")
    planned = pylogseg("move", jbod / "disk1", jbod / "disk2", "txn-a", "del-records-0", "--dry-run")
    assert planned.code == 0
    assert "dry run: nothing was changed" in planned.text
    assert "no segment was read" in planned.text
    done = expect(pylogseg("move", jbod / "disk1", jbod / "disk2", "txn-a", "del-records-0", "--json"), 0)
    assert [(row["partition"], row["state"]) for row in done.rows[:-1]] == [
        ("del-records-0", "done"),
        ("txn-a-0", "done"),
    ]
    assert entries(jbod / "disk2" / "txn-a-0") == files_before
    assert not (jbod / "disk1" / "txn-a-0").exists()
    assert records(jbod / "disk1", jbod / "disk2") == before
    assert not list(jbod.glob("disk?/*-delete"))
    assert pylogseg("verify", jbod / "disk1", jbod / "disk2", "--quiet").code == 0
    expect(pylogseg("move", jbod / "disk1", jbod / "disk2", "txn-a"), 0, out="it is in")
    refused = pylogseg("move", jbod / "disk1", jbod / "disk2", "txn-*").text
    assert "has no such partition; matching ones are in" in refused


def test_a_dry_run_changes_nothing(jbod: Path) -> None:
    before = entries(jbod)
    assert pylogseg("move", jbod / "disk1", jbod / "disk2", "*", "-n").code == 0
    assert entries(jbod) == before


@pytest.mark.parametrize("locked", ["disk1", "disk2"])
def test_a_running_broker(jbod: Path, locked: str) -> None:
    before = entries(jbod)
    lock = FolderLock(str(jbod / locked))
    try:
        expect(pylogseg("move", jbod / "disk1", jbod / "disk2", "txn-a"), 2, "has the lock")
        expect(pylogseg("move", jbod / "disk1", jbod / "disk2", "txn-a", "-n"), 0, out="files may change meanwhile")
    finally:
        lock.release()
    assert entries(jbod) == before


def test_damage_is_not_moved(jbod: Path) -> None:
    """The partition stays where it is, with the place of the damage; the others go."""
    log = next((jbod / "disk1" / "codec-zstd-0").glob("*.log"))
    change_byte(log, 200)
    before = entries(jbod / "disk1" / "codec-zstd-0")
    done = pylogseg("move", jbod / "disk1", jbod / "disk2", "codec-zstd", "txn-a")
    assert done.code == 1
    assert str(log) in done.text
    assert "CRC mismatch" in done.text
    assert "pylogseg repair" in done.text
    assert entries(jbod / "disk1" / "codec-zstd-0") == before
    assert {path.name for path in (jbod / "disk2").iterdir() if path.is_dir()} == {"codec-gzip-0", "txn-a-0"}


def test_another_one_is_there(jbod: Path) -> None:
    """Only the same bytes are what a move left; else nobody but the user can tell which one is right."""
    shutil.copytree(jbod / "disk1" / "txn-a-0", jbod / "disk2" / "txn-a-0")
    log = next((jbod / "disk2" / "txn-a-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    before = entries(jbod)
    expect(pylogseg("move", jbod / "disk1", jbod / "disk2", "txn-a"), 1, out=[log.name, "is not the same"])
    assert entries(jbod) == before
    log.write_bytes((jbod / "disk1" / "txn-a-0" / log.name).read_bytes())
    assert pylogseg("move", jbod / "disk1", jbod / "disk2", "txn-a").code == 0
    assert not (jbod / "disk1" / "txn-a-0").exists()


def test_a_link(jbod: Path) -> None:
    """One partition under two names: what is removed here would be gone there."""
    (jbod / "disk2" / "txn-a-0").symlink_to(jbod / "disk1" / "txn-a-0")
    before = entries(jbod / "disk1")
    expect(pylogseg("move", jbod / "disk1", jbod / "disk2", "txn-a"), 2, out="symbolic link")
    assert entries(jbod / "disk1") == before


def test_what_the_broker_moves(jbod: Path) -> None:
    (jbod / "disk2" / f"txn-a-0.{'7' * 32}-future").mkdir()
    expect(pylogseg("move", jbod / "disk1", jbod / "disk2", "txn-a"), 1, out="a broker has begun to move it itself")
    assert (jbod / "disk1" / "txn-a-0").exists()


def test_the_metadata_log_stays(jbod: Path, examples: Path) -> None:
    shutil.copytree(examples / "__cluster_metadata-0", jbod / "disk1" / "__cluster_metadata-0")
    expect(pylogseg("move", jbod / "disk1", jbod / "disk2", "*"), 0, out="the metadata of the cluster")
    assert {path.name for path in (jbod / "disk1").iterdir() if path.is_dir()} == {"__cluster_metadata-0"}
    assert pylogseg("move", jbod / "disk1", jbod / "disk2", "__cluster_metadata-0").code == 1


def test_a_log_of_another_cluster(jbod: Path, examples: Path) -> None:
    """What shows it is said: its producers would be taken for those of this cluster."""
    shutil.copytree(examples / "__cluster_metadata-0", jbod / "disk2" / "__cluster_metadata-0")
    (topic, known), *_ = ClusterMetadata.read(str(jbod / "disk2" / "__cluster_metadata-0")).topic_ids.items()
    for name in (f"{topic}-0", f"{topic}-1"):
        shutil.copytree(jbod / "disk1" / "txn-a-0", jbod / "disk1" / name)
    own = topic_id_of(LocalStorage(), str(jbod / "disk1" / "txn-a-0"))
    path = jbod / "disk1" / f"{topic}-1" / "partition.metadata"
    path.write_text(path.read_text().replace(str(own), known))
    (jbod / "disk1" / "meta.properties").unlink()
    for dry_run in (True, False):
        result = offline.move(jbod / "disk1", jbod / "disk2", topic=[topic], dry_run=dry_run)
        assert [note for note in result.notes if "pylogseg restore" in note and "has no meta.properties" in note]
        foreign, home = (each.notes for each in result)
        assert foreign == [f"the topic has another id in this cluster ({known}, not {own}): {_RESTORE}"]
        assert home == []
    documents.owned(jbod / "disk1")
    assert not offline.move(jbod / "disk1", jbod / "disk2", topic=["txn-a"]).notes


def test_refusals(jbod: Path) -> None:
    disk1, disk2 = jbod / "disk1", jbod / "disk2"
    for arguments, message in [
        ((disk1, disk2), "nothing is named"),
        ((disk1, disk1, "txn-a"), "one folder"),
        ((disk1, disk1 / "txn-a-0", "txn-a"), "one lies in the other"),
        ((disk1, disk2, "nobody"), "no topic or partition 'nobody'"),
        ((disk1 / "txn-a-0", disk2, "txn-a"), "name the log directory"),
    ]:
        done = pylogseg("move", *arguments)
        assert done.code == 2, message
        assert message in done.err
    (jbod / "elsewhere").mkdir()
    (jbod / "elsewhere" / "notes.txt").touch()
    with pytest.raises(RequestError, match="neither a log directory nor an empty folder"):
        offline.move(disk1, jbod / "elsewhere", topic=["txn-a"])
    text = (disk2 / "meta.properties").read_text()
    (disk2 / "meta.properties").write_text(text.replace("node.id=1", "node.id=2"))
    with pytest.raises(RequestError, match="belong to two brokers"):
        offline.move(disk1, disk2, topic=["txn-a"])
