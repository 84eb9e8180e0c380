"""Tests of cli/copy.py, offline/copying/command.py, offline/copying/copied.py, offline/copying/into.py,
offline/copying/partition.py, transfer/checkpoints.py and transfer/files.py. `pylogseg copy`: consistent whatever a
broker does meanwhile, whole or not there; the source stays as it was.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crash.images import crash_images
from helpers.checks import some, wait_for
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.files.checkpoint import encode_offset_checkpoint, parse_leader_epochs, parse_offset_checkpoint
from pylogseg.format.records import decode
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import cleanable
from pylogseg.log.log import Log
from pylogseg.log.offset_map import OffsetMap
from pylogseg.log.state import Start
from pylogseg.offline import copy
from pylogseg.offline.copying import partition as copying_partition
from pylogseg.offline.copying.copied import Copied
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

NOW = 1_700_000_000_000
SMALL = LogConfig.of(
    cleanup_policy="compact", segment_bytes=600, segment_index_bytes=120, index_interval_bytes=60, preallocate=True
)
SOURCE, TARGET = "/d/t-0", "/x"


def opened(storage: Any, folder: str, **options: Any) -> Log:
    clock = ManualClock(NOW)
    return Log.open(Environment(storage, clock, ManualScheduler(clock)), folder, SMALL, Start(**options))


def append(log: Log, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        at = log.log_end_offset
        batch = pylogseg.encode(
            [(NOW + at, b"key-%d" % (at % 7), b"%d" % at)], base_offset=at, leader_epoch=epoch, producer_id=at % 3,
            producer_epoch=0, base_sequence=at // 3,
        )  # fmt: skip
        log.append_as_follower(batch, epoch)
        log.update_high_watermark(log.log_end_offset)


def contents(log: Log) -> list[tuple[int, bytes | None]]:
    """Offsets and values of all records."""
    found = []
    for segment in log.segments:
        for window in segment.windows():
            columns, damage = decode(window.batches, window.buffer, window.file_position)
            assert not damage
            found += [(int(columns.offset[i]), columns.value(i)) for i in range(len(columns))]
    return found


def written(storage: Any) -> Log:
    """An open log of seven segments, the active one with zeros behind its batches."""
    storage.make_folder("/d")
    log = opened(storage, SOURCE, clean=True)
    append(log, 20)
    append(log, 25, epoch=3)
    log.update_high_watermark(log.log_end_offset)
    return log


def loaded(storage: Any, folder: str) -> list[tuple[int, bytes | None]]:
    """What a broker finds that starts on a copy; nothing may have to be cut."""
    log = opened(storage, folder)
    assert log.report.cut_bytes == 0
    assert not log.report.is_damage
    assert log.recovery_point <= log.log_end_offset
    found = contents(log)
    log.close()
    return found


def delete_half(log: Log) -> None:
    log.increment_log_start(list(log.segments)[3].base_offset)
    log.delete_oldest(
        lambda segment, following: following is not None and following.base_offset <= log.log_start_offset
    )


def clean(log: Log) -> None:
    Cleaner(OffsetMap()).clean(log, cleanable(log, 0, NOW))


def truncate(log: Log) -> None:
    log.truncate_to(log.log_end_offset - 12)
    append(log, 15, epoch=4)


def roll(log: Log) -> None:
    append(log, 8, epoch=3)
    log.roll()
    append(log, 2, epoch=3)


ACTIONS: dict[str, Callable[[Log], None]] = {
    "append": lambda log: append(log, 2, epoch=3),
    "roll": roll,
    "clean": clean,
    "delete": delete_half,
    "truncate": truncate,
}


class Meddled:
    """A storage in which something happens in front of its k-th operation."""

    def __init__(self, inner: MemoryStorage, at: int | None, action: Callable[[], None]) -> None:
        self._inner, self._at, self._action = inner, at, action
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self._at:
                self._action()
            return found(*arguments, **options)

        return found if name in ("join", "split") else call


@pytest.mark.parametrize("action", ACTIONS)
def test_whatever_a_broker_does_meanwhile(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each step of the copy: it is what the log was before, or what it was after, or while it grew."""
    monkeypatch.setattr(copying_partition, "_PAUSE_SECONDS", 0)
    for k in itertools.count(1, 2):
        storage = MemoryStorage()
        log = written(storage)
        before = contents(log)
        meddled = Meddled(storage, k, lambda log=log: ACTIONS[action](log))  # type: ignore[misc]
        (row,) = copy(SOURCE, TARGET, storage=meddled)  # type: ignore[arg-type]
        if meddled.count < k:
            break
        after = contents(log)
        assert before != after
        copied = loaded(storage, f"{TARGET}/t-0")
        grown = copied[: len(before)] == before and after[: len(copied)] == copied
        assert copied in (before, after) or grown, k
        assert row.log_end == copied[-1][0] + 1
    assert k > 30


def test_a_partition_that_is_deleted_meanwhile() -> None:
    storage = MemoryStorage()
    log = written(storage)
    meddled = Meddled(storage, 12, log.delete)
    (row,) = copy(SOURCE, TARGET, storage=meddled)  # type: ignore[arg-type]
    assert (row.state, storage.list_folder(TARGET)) == ("gone", [])


class Restless:
    """A storage whose segment is another one at each listing of a folder."""

    def __init__(self, inner: MemoryStorage, folder: str) -> None:
        self._inner, self._folder = inner, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def list_folder(self, path: str) -> Any:
        if path == self._folder:
            file = self._inner.open_log(f"{path}/{0:020}.log", create=False)
            file.set_modified_ms(file.modified_ms() + 1)
            file.close()
        return self._inner.list_folder(path)


def test_one_that_never_holds_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops no other."""
    monkeypatch.setattr(copying_partition, "_PAUSE_SECONDS", 0)
    storage = MemoryStorage()
    written(storage)
    with pytest.raises(StorageError, match="changed at each of 50 tries, at last: segment 0 was replaced meanwhile"):
        copy(SOURCE, TARGET, storage=Restless(storage, SOURCE))  # type: ignore[arg-type]
    assert [entry.name for entry in storage.list_folder("/")] == ["d"]
    storage, _ = disk()
    done = copy("/d", TARGET, storage=Restless(storage, SOURCE))  # type: ignore[arg-type]
    assert [(row.name, row.state) for row in done] == [("t-0", "failed"), ("u-0", "copied")]


def disk() -> tuple[MemoryStorage, list[tuple[int, bytes | None]]]:
    """A log directory with two partitions and checkpoints."""
    storage = MemoryStorage()
    log = written(storage)
    found = contents(log)
    log.close()
    storage.make_folder("/d/u-0")
    log = opened(storage, "/d/u-0", clean=True)
    append(log, 3)
    log.close()
    for name, offset in (("recovery-point", 40), ("log-start", 5), ("replication", 99), ("cleaner", 21)):
        offsets = {("gone", 4): 1, ("t", 0): offset, ("u", 0): 2}
        storage.write_synced(f"/d/{name}-offset-checkpoint", encode_offset_checkpoint(offsets))
    storage.write_synced("/d/meta.properties", b"version=1\n")
    for folder in ("/", "/d", "/d/t-0", "/d/u-0"):
        storage.sync_folder(folder)
        for entry in storage.list_folder(folder):
            if not entry.is_dir:
                storage.sync_file(storage.join(folder, entry.name))
    return storage, found


def files(storage: Any, folder: str) -> dict[str, bytes]:
    """All files below a folder."""
    found = {}
    for entry in storage.list_folder(folder):
        path = storage.join(folder, entry.name)
        found.update(files(storage, path) if entry.is_dir else {path: storage.read_all(path)})
    return found


def test_checkpoints_say_no_more_than_the_copy_has() -> None:
    storage, _ = disk()
    copy("/d", TARGET, storage=storage)

    def checkpoint(name: str) -> dict[tuple[str, int], int]:
        return dict(parse_offset_checkpoint(storage.read_all(f"{TARGET}/{name}-offset-checkpoint")))

    assert checkpoint("recovery-point") == {("t", 0): 40, ("u", 0): 2}
    assert checkpoint("log-start") == {("t", 0): 5, ("u", 0): 2}
    assert checkpoint("replication") == {("t", 0): 45, ("u", 0): 2}
    assert checkpoint("cleaner") == {("t", 0): 21, ("u", 0): 2}
    assert storage.read_all(f"{TARGET}/meta.properties") == b"version=1\n"


def test_whole_or_not_there_after_a_crash() -> None:
    storage, found = disk()
    source = files(storage, "/d")
    begun = MemoryStorage(storage.state)
    copy("/d", TARGET, storage=begun)
    begun.mark("done")
    seen = set()
    for image in crash_images(begun.trace, 600, seed=3):
        after = image.open()
        assert files(after, "/d") == source, image.description
        there = after.exists(TARGET)
        seen.add((there, bool(image.marks)))
        assert there or not image.marks, image.description
        if not there:
            copy("/d", TARGET, storage=after)  # whatever was left of the first one
        whole = files(after, TARGET)
        assert loaded(after, f"{TARGET}/t-0") == found, image.description
        assert whole.keys() >= {f"{TARGET}/replication-offset-checkpoint", f"{TARGET}/u-0/leader-epoch-checkpoint"}
    assert seen == {(False, False), (True, False), (True, True)}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, "short", "sync"], ids=str)
def test_whatever_fails(error: int | str) -> None:
    """Each operation fails once: an error, the source as it was, no copy; the next try succeeds."""
    storage, found = disk()
    source = files(storage, "/d")
    counter = FaultyStorage(MemoryStorage(storage.state), None, error)  # type: ignore[arg-type]
    copy("/d", TARGET, storage=counter)
    assert counter.count > (20 if error in ("short", "sync") else 60)
    for k in range(1, counter.count + 1):
        inner = MemoryStorage(storage.state)
        faulty = FaultyStorage(inner, k, error)  # type: ignore[arg-type]
        try:
            copy("/d", TARGET, storage=faulty)
        except StorageError:
            pass
        else:
            pytest.fail(f"{faulty.failed} did not end it")
        assert files(inner, "/d") == source, faulty.failed
        if not inner.exists(TARGET):
            copy("/d", TARGET, storage=inner)
        assert loaded(inner, f"{TARGET}/t-0") == found, faulty.failed
        assert not inner._locked


# ---- on a disk ----


def test_the_same_files(examples: Path, tmp_path: Path) -> None:
    """But for what waits for its removal; of a source that was closed the marker is copied too."""
    expect(shell("copy", examples, tmp_path / "new", "--jobs", 3), 0, out="a broker trusts it as it is")

    def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
        return {
            str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns if path.suffix == ".log" else 0)
            for path in folder.rglob("*")
            if path.is_file() and path.suffix != ".deleted"
        }

    assert tree(tmp_path / "new") == tree(examples)
    assert shell("diff", examples, tmp_path / "new", "-q").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_one_partition_and_a_plan(examples: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    plan = shell("copy", examples / "txn-a-0", target, "--dry-run", "--json").rows
    assert not target.exists()
    rows = shell("copy", examples / "txn-a-0", target, "--json").rows
    assert [row["bytes"] for row in plan] == [row["bytes"] for row in rows]
    assert rows[0]["logEnd"] == 148
    offsets = parse_offset_checkpoint((target / "recovery-point-offset-checkpoint").read_bytes())
    assert list(offsets) == [("txn-a", 0)]
    assert shell("diff", examples / "txn-a-0", target, "txn-a-0").code == 0
    assert shell("copy", examples, tmp_path / "two", "codec-*", "-p", 1).text.count(" segments, ") == 2


def test_what_a_killed_broker_left(golden: Path, tmp_path: Path) -> None:
    """Preallocated zeros in indexes and logs stay behind; every record comes along."""
    for name in ("data0", "data1"):
        source = golden / "broker-4.3" / "unclean" / name
        copied: Copied = copy(source, tmp_path / name)
        assert not copied.is_marked_clean
        for row in some(copied):
            assert list(pylogseg.read(row.source)) == list(pylogseg.read(row.target))
            epochs = [
                parse_leader_epochs((Path(folder) / "leader-epoch-checkpoint").read_bytes())
                for folder in (row.source, row.target)
            ]
            assert epochs[0] == epochs[1]
        sizes = [path.stat().st_size for path in (tmp_path / name).rglob("*.index")]
        assert max(sizes) < 10 << 20
        assert shell("recover", tmp_path / name, "--dry-run", "--no-keep").code == 0


@pytest.mark.skipif(not hasattr(os, "SEEK_HOLE"), reason="no holes here")
def test_holes_stay_holes(tmp_path: Path) -> None:
    log = tmp_path / "d" / "t-0"
    log.mkdir(parents=True)
    with (log / f"{0:020}.log").open("wb") as out:
        out.write(bytes(pylogseg.encode([(1, None, b"x")])))
        out.truncate(8 << 20)
    (log / f"{9:020}.log").write_bytes(bytes(pylogseg.encode([(1, None, b"y")], base_offset=9)))
    copy(log, tmp_path / "new")
    status = (tmp_path / "new" / "t-0" / f"{0:020}.log").stat()
    assert status.st_size == 8 << 20
    if (log / f"{0:020}.log").stat().st_blocks < 1000:
        assert status.st_blocks < 1000


def test_damage_comes_along_and_is_told(examples: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1"))
    active = max(source.glob("*.log"))
    data = bytearray(active.read_bytes())
    data[100] ^= 1
    active.write_bytes(bytes(data) + data[:50])
    rows = shell("copy", source, tmp_path / "new", "--json").rows
    assert rows[0]["cutBytes"] == 50
    assert "the source is damaged, and so is the copy" in rows[0]["notes"][0]
    assert (tmp_path / "new" / source.name / active.name).read_bytes() == bytes(data)


def test_wrong_usage(examples: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"")
    for target in (tmp_path / "full", tmp_path / "full" / "file", examples / "inside"):
        assert shell("copy", examples, target).code == 2
    with pytest.raises(RequestError, match="no topic or partition 'nothing'"):
        copy(examples, tmp_path / "new", topic=["nothing"])
    lock = LocalStorage()
    lock.make_folder(str(tmp_path / ".new.pylogseg-unfinished"))
    held = lock.lock(str(tmp_path / ".new.pylogseg-unfinished"))
    with pytest.raises(StorageError, match="lock"):
        copy(examples, tmp_path / "new")
    held.release()
    (tmp_path / ".new.pylogseg-unfinished" / "left-0").mkdir()
    copy(examples, tmp_path / "new", topic=["txn-b"])
    assert not (tmp_path / "new" / "left-0").exists()


WRITER = """
import sys
import pylogseg
log = pylogseg.open_log(sys.argv[1], segment_bytes=20_000, index_interval_bytes=500, retention_bytes=200_000,
                        file_delete_delay_ms=0, preallocate=True)
at = 0
print("ready", flush=True)
while True:
    log.append([(None, b"%d" % (at % 50), b"%d" % at * 20)])
    at += 1
    if at % 500 == 0:
        log.apply_retention()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Path]:
    """The folder of a log that another process appends to, rolls and cuts off at its start without end."""
    folder = tmp_path / "live" / "t-0"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", WRITER, folder], env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield folder
    process.kill()
    process.communicate()


def newest(folder: Path) -> str:
    """The name of the active segment."""
    return max(path.name for path in folder.glob("*.log"))


def test_while_another_process_writes(writer: Path, tmp_path: Path) -> None:
    ends = []
    for i in range(4):
        (row,) = copy(writer, tmp_path / f"copy-{i}")
        values = [(record.offset, record.value) for record in pylogseg.read(row.target, from_log_start=False)]
        first = values[0][0] if values else row.log_end
        assert values == [(offset, b"%d" % offset * 20) for offset in range(first, row.log_end)]
        assert shell("recover", tmp_path / f"copy-{i}", "--dry-run", "--no-keep", "--json").code == 0
        ends.append(row.log_end)
        active = newest(writer)
        wait_for(lambda active=active: newest(writer) != active)
    assert ends == sorted(ends)
    assert ends[-1] > ends[0]
