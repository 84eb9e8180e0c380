"""A log directory in memory for tests of the offline commands, and what becomes of it when a command is cut short."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from crash.images import crash_images

import pylogseg
from helpers.depth import IS_DEEP
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.format.names import parse_partition_folder
from pylogseg.format.records import decode
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Log
from pylogseg.offline.result import Result
from pylogseg.testing.clock import ManualClock
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

NOW = 1_700_000_000_000
DIR = "/data"
#: Partitions and their batches, of four records each: three segments, and one.
BATCHES = {"users-0": 14, "users-1": 2}
LIMIT = int(os.environ.get("PYLOGSEG_CRASH_IMAGES", "60"))
CONFIG = {
    "cleanup.policy": "compact,delete",
    "segment.bytes": "700",
    "segment.index.bytes": "96",
    "index.interval.bytes": "100",
    "retention.ms": "-1",
}

Records = list[tuple[int, bytes | None, bytes | None]]
Contents = dict[str, Records]
Command = Callable[..., Result]


def world() -> MemoryStorage:
    """Two partitions of few keys, closed in order by a broker of epoch 7; all of it durable."""
    return MemoryStorage(_world().state, ManualClock(NOW))


@functools.cache
def _world() -> MemoryStorage:
    storage = MemoryStorage(clock=ManualClock(NOW))
    directory = LogDirectory(storage, DIR)
    for name, count in BATCHES.items():
        log = _opened(storage, directory, name)
        for i in range(count):
            keys = [b"key %d" % ((3 * i + j) % 7) for j in range(4)]
            records = [(NOW + 1000 * i, key, None if i % 6 == 5 else b"value %d" % i) for key in keys]
            log.append_as_leader(pylogseg.encode(records, compression="lz4" if i % 3 else "none"), 0)
        log.update_high_watermark(log.log_end_offset)
        _close(directory, name, log)
    directory.broker_epoch = 7
    directory.close()
    return storage


def contents(storage: Any, log_dir: str = DIR) -> Contents:
    """What a broker that starts on the directory gives its consumers; it is closed in order again."""
    directory = LogDirectory(storage, log_dir)
    found: Contents = {}
    for entry in storage.list_folder(log_dir):
        folder = parse_partition_folder(entry.name) if entry.is_dir else None
        if folder is not None and folder.state != "delete":
            log = _opened(storage, directory, entry.name)
            found[entry.name] = _records(log)
            assert not log.report.is_damage, log.report.actions
            _close(directory, entry.name, log)
    directory.close()
    return found


def _opened(storage: Any, directory: LogDirectory, name: str) -> Log:
    start = directory.claim(name)
    log = Log.open(
        Environment(storage, ManualClock(NOW), CollectingScheduler()),
        storage.join(directory.path, name),
        LogConfig.from_properties(CONFIG),
        start,
    )
    log.update_high_watermark(start.high_watermark)
    return log


def _close(directory: LogDirectory, name: str, log: Log) -> None:
    log.flush()
    log.close()
    directory.attach(name, log)
    directory.release(name, clean=True, write=False)


def _records(log: Log) -> Records:
    out: Records = []
    for segment in log.segments:
        for window in segment.windows():
            rows = window.batches[~window.batches.is_control]
            columns, damage = decode(rows, window.buffer, window.file_position)
            assert not damage
            out += [(int(columns.offset[i]), columns.key(i), columns.value(i)) for i in range(len(columns))]
    return [record for record in out if record[0] >= log.log_start_offset]


def files(storage: MemoryStorage, folder: str = DIR) -> dict[str, bytes]:
    """Every file below a folder."""
    found: dict[str, bytes] = {}
    for entry in storage.list_folder(folder):
        path = storage.join(folder, entry.name)
        found |= files(storage, path) if entry.is_dir else {path: storage.read_all(path)}
    return found


def run(command: Command, storage: Any, **own: Any) -> Result:
    """Run a command on the directory; a partition that is given up raises its error."""
    result = command(DIR, storage=storage, config=CONFIG, now_ms=NOW + 100_000, **own)
    for part_result in result.failed:
        assert part_result.error is not None
        raise part_result.error
    return result


def crashes(command: Command, **own: Any) -> Iterator[tuple[str, MemoryStorage]]:
    """What may lie on the disk after a crash in the middle of a command: a description, and a fresh disk each time."""
    storage = world()
    run(command, storage, **own)
    count = 0
    for image in crash_images(storage.trace, LIMIT, seed=1):
        count += 1
        yield image.description, image.open()
    assert count > 20


def faults(command: Command, **own: Any) -> Iterator[tuple[str, MemoryStorage]]:
    """The disk behind each failing operation of a command: which it was, and what is on the disk.

    In a deep run each of them fails in three ways, else in one of the three.
    """
    for turn, error in enumerate((errno.EIO, "short", "sync")):
        counter = FaultyStorage(world(), None, error)  # type: ignore[arg-type]
        run(command, counter, **own)
        assert counter.count
        for k in range(1, counter.count + 1) if IS_DEEP else range(1 + turn, counter.count + 1, 3):
            inner = world()
            storage = FaultyStorage(inner, k, error)  # type: ignore[arg-type]
            with contextlib.suppress(StorageError):
                run(command, storage, **own)
            yield f"{error} {k}: {storage.failed}", inner


def check_cut_short(command: Command, judge: Callable[[Contents], None], into: str | None = None, **own: Any) -> None:
    """After a crash or a failure at any point the directory opens, `judge` holds, and running it again completes it.

    Parameters
    ----------
    command : callable
        Of `pylogseg.offline`.
    judge : callable
        Gets what a broker finds behind the crash; raises if something is lost.
    into : str, optional
        The folder of the copy: then the input stays as it is, byte for byte, and the copy is whole or not there.
    **own
        Arguments of the command.
    """
    if into is not None:
        own["into"] = into
    whole = world()
    before = files(whole)
    run(command, whole, **own)
    expected = contents(whole, into or DIR)
    judge(expected)
    for cut_short in (crashes, faults):
        for description, disk in cut_short(command, **own):
            try:
                state = disk.state.copy()
                _check_one(disk, judge, before, into, expected)
                again = MemoryStorage(state, ManualClock(NOW))
                if into is None or not again.exists(into):
                    run(command, again, **own)
                assert contents(again, into or DIR) == expected
            except (AssertionError, PylogsegError) as error:
                raise AssertionError(f"{description}: {error}") from error


def _check_one(
    disk: MemoryStorage,
    judge: Callable[[Contents], None],
    before: dict[str, bytes],
    into: str | None,
    expected: Contents,
) -> None:
    if into is None:
        judge(contents(disk))
        return
    assert files(disk) == before
    if disk.exists(into):
        assert contents(disk, into) == expected
