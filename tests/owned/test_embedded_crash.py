"""Tests of log/directory.py and owned/ownership.py. What `open_log` promises when the power goes, marker and
checkpoints included; and when the disk fails.
"""

from __future__ import annotations

import contextlib
import errno
import os

import pytest
from crash.images import Names, crash_images
from helpers.depth import IS_DEEP

from pylogseg import EmbeddedLog, open_log
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.owned.ownership import Ownership
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

NOW = 1_700_000_000_000
LIMIT = int(os.environ.get("PYLOGSEG_CRASH_IMAGES", "600" if IS_DEEP else "200"))


def opened(storage: object, name: str = "orders-0", scheduler: ManualScheduler | None = None) -> EmbeddedLog:
    clock = ManualClock(NOW)
    return open_log(
        f"/data/{name}",
        storage=storage,  # type: ignore[arg-type]
        clock=clock,
        scheduler=scheduler or ManualScheduler(clock),
        segment_bytes=400,
        segment_index_bytes=96,
        index_interval_bytes=100,
        producer_id_expiration_ms=2**62,
    )


def values(first: int, count: int) -> list[tuple[int, None, bytes]]:
    return [(NOW + i, None, b"value %d" % i) for i in range(first, first + count)]


class Workload:
    """Two partitions, opened, appended to, flushed, closed and opened again; what was promised is marked."""

    def __init__(self, storage: MemoryStorage | FaultyStorage) -> None:
        self.storage = storage
        self.flushed = {"orders-0": 0, "orders-1": 0}
        self.appended = {"orders-0": 0, "orders-1": 0}

    def append(self, log: EmbeddedLog, count: int) -> None:
        name = log.folder[-8:]
        self.appended[name] += count
        log.producer(1).append(values(self.appended[name] - count, count))

    def flush(self, log: EmbeddedLog) -> None:
        log.flush()
        self.promise(log)

    def close(self, log: EmbeddedLog) -> None:
        log.close()
        self.promise(log)

    def promise(self, log: EmbeddedLog) -> None:
        name = log.folder[-8:]
        self.flushed[name] = self.appended[name]
        if isinstance(self.storage, MemoryStorage):
            self.storage.mark(dict(self.flushed))

    def run(self) -> None:
        first = opened(self.storage)
        self.append(first, 4)
        self.flush(first)
        second = opened(self.storage, "orders-1")
        self.append(first, 9)
        self.append(second, 2)
        self.close(second)
        self.append(first, 3)
        self.close(first)
        first = opened(self.storage)
        self.append(first, 5)
        self.flush(first)
        self.append(first, 2)
        self.close(first)


def check(storage: MemoryStorage, promised: dict[str, int]) -> None:
    """Both logs hold what was promised, in order and nothing else, and the next opening finds nothing to do."""
    with contextlib.ExitStack() as stack:  # all at once, so that the whole directory is known to be clean afterwards
        for log in [stack.enter_context(opened(storage, name)) for name in promised]:
            found = [record.value for record in log.read()]
            assert found == [value for _, _, value in values(0, len(found))]
            assert len(found) >= promised[log.folder[-8:]]
            assert log.producer(1).next_sequence == len(found)
            log.append([(NOW, None, b"goes on")])
    for name in promised:
        with opened(storage, name) as log:
            assert (log.report.recovered_segments, log.report.cut_bytes) == (0, 0)
            assert [record.value for record in log.read()][-1] == b"goes on"


def test_what_was_flushed_or_closed_survives_a_crash() -> None:
    storage = MemoryStorage()
    Workload(storage).run()
    count = 0
    for image in crash_images(storage.trace, LIMIT, seed=1):
        promised = image.marks[-1] if image.marks else {"orders-0": 0, "orders-1": 0}
        try:
            check(image.open(), promised)  # type: ignore[arg-type]
        except (AssertionError, PylogsegError) as error:
            raise AssertionError(f"{image.description}: {error}") from error
        count += 1
    assert count > LIMIT // 3


class Later(ManualScheduler):
    """Does nothing at once: the flush of a segment that was rolled has not begun when the plug is pulled."""

    def run_due(self) -> None:
        pass


def flushed_before(storage: MemoryStorage) -> EmbeddedLog:
    """A log of 20 records in small segments, all of it flushed, with a checkpoint that says so."""
    with opened(storage) as log:
        for first in range(0, 20, 2):
            log.append(values(first, 2))
    return opened(storage, scheduler=Later(ManualClock(NOW)))


@pytest.mark.parametrize("cut", ["truncate_to", "truncate_fully"])
def test_recovery_begins_where_the_log_was_cut(cut: str) -> None:
    """What is appended behind a cut was not flushed, though an older checkpoint is above it: recovery looks at it."""
    storage = MemoryStorage()
    log = flushed_before(storage)
    getattr(log.engine, cut)(2)
    for first in range(0, 40, 2):
        log.append([(NOW, None, b"again %d" % i) for i in range(first, first + 2)])
    looked = 0
    for image in crash_images(storage.trace, 300, seed=3, rules=[Names.JOURNAL]):
        with opened(image.open()) as found:
            looked += found.report.cut_bytes > 0
            try:
                read = [record.value for record in found.read()]
            except PylogsegError as error:
                raise AssertionError(f"{image.description}: {error}") from error
        numbers = [int(value.split()[1]) for value in read if value.startswith(b"again")]
        assert numbers == sorted(set(numbers)), image.description
    assert looked > 10


def test_recovery_begins_where_a_recovery_cut() -> None:
    """The same where damage, and not a call, has made the log shorter than its checkpoint says."""
    storage = MemoryStorage()
    flushed_before(storage).close_handles()
    checkpoint = "/data/recovery-point-offset-checkpoint"
    assert storage.read_all(checkpoint) == b"0\n1\norders 0 20\n"
    last = max(e.name for e in storage.list_folder("/data/orders-0") if e.name.endswith(".log"))
    path = f"/data/orders-0/{last}"
    storage.write_plain(path, storage.read_all(path)[:-1])
    log = opened(storage)
    assert 0 < log.log_end_offset < 20
    assert storage.read_all(checkpoint) == b"0\n1\norders 0 %d\n" % log.log_end_offset


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, "short", "sync"], ids=str)
def test_whatever_fails_the_lock_goes_and_what_was_promised_stays(error: int | str) -> None:
    """Every operation fails once. The directory can be opened by the next one, who finds what was promised."""
    counter = FaultyStorage(MemoryStorage(), None, error)  # type: ignore[arg-type]
    Workload(counter).run()
    assert counter.count > 10
    for k in range(1, counter.count + 1):
        inner = MemoryStorage()
        storage = FaultyStorage(inner, k, error)  # type: ignore[arg-type]
        workload = Workload(storage)
        logs: list[Ownership] = []
        try:
            workload.run()
            failed = False
        except StorageError:
            failed = True
        finally:
            from pylogseg.log import directory

            for (owner, _), found in list(directory._shared.items()):
                if owner == id(storage):
                    logs += [log.state.on_failure.__self__ for log in found._logs.values() if log is not None]
            for log in logs:
                try:
                    log.close()
                except StorageError:
                    failed = True
        assert failed or storage.failed is not None
        assert not inner._locked
        check(inner, workload.flushed)
