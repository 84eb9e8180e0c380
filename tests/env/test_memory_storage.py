"""Tests of env/clock.py, env/environment.py, env/scheduler.py, testing/clock.py, testing/faults.py and
testing/memory.py. The storage in memory, and the one that fails at a chosen operation.
"""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path

import pytest
from helpers.checks import wait_for
from helpers.storage_conformance import StorageConformance

from pylogseg.env.clock import SystemClock
from pylogseg.env.scheduler import ThreadScheduler
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import ClosedError, RequestError, StorageError
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage


@pytest.fixture
def folder(storage: Storage) -> str:
    storage.make_folder("/d")
    return "/d"


class TestMemoryStorage(StorageConformance):
    """The conformance tests in memory."""

    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage()


class TestFaultyStorage(StorageConformance):
    """A storage that never fails passes everything on."""

    @pytest.fixture
    def storage(self) -> FaultyStorage:
        return FaultyStorage(MemoryStorage())


def workload(storage: Storage) -> list[str]:
    """Some of everything; the steps that were done."""
    done = []
    storage.make_folder("/d")
    log, index = storage.open_log("/d/log", preallocate_bytes=50), storage.open_index("/d/index", 16)
    done.append("opened")
    log.append(b"0123456789")
    index.put(0, b"12345678")
    done.append("appended")
    log.sync()
    index.sync()
    storage.sync_folder("/d")
    done.append("synced")
    log.append_many([b"abc", b"def"])
    log.truncate(12)
    index.resize(8)
    storage.write_whole("/d/check", b"point")
    log.rename("/d/log.deleted")
    storage.remove("/d/log.deleted")
    done.append("deleted")
    return done


def test_trace_leads_to_the_state() -> None:
    storage = MemoryStorage()
    workload(storage)
    state = storage.trace.initial.copy()
    for operation in storage.trace.operations:
        state.apply(operation)
    assert state.fingerprint() == storage.state.fingerprint()
    assert [path for path, _ in state.walk()] == ["d", "d/check", "d/index"]


def test_written_out(tmp_path: Path) -> None:
    storage = MemoryStorage()
    workload(storage)
    storage.state.write_to(tmp_path / "out")
    real = LocalStorage()
    assert real.read_all(str(tmp_path / "out" / "d" / "check")) == b"point"
    assert real.read_all(str(tmp_path / "out" / "d" / "index")) == b"12345678"


def test_modified_by_the_clock() -> None:
    clock = ManualClock(5)
    storage = MemoryStorage(clock=clock)
    file = storage.open_log("a")
    clock.set_ms(70)
    file.append(b"x")
    assert file.modified_ms() == 70


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, "short", "sync"])
def test_sweep(error: int) -> None:
    """Each operation fails once; none is passed over, none fails twice."""
    counting = FaultyStorage(MemoryStorage(), error=error)
    workload(counting)
    assert counting.count == {"short": 3, "sync": 5}.get(str(error), 17)
    failed = []
    for k in range(1, counting.count + 1):
        storage = FaultyStorage(MemoryStorage(), k, error)
        with pytest.raises(StorageError) as caught:
            workload(storage)
        assert storage.failed == f"{caught.value.operation} {caught.value.path}"
        failed.append(storage.failed)
    assert failed[-1] == {"short": "write /d/check.tmp", "sync": "sync /d"}.get(str(error), "remove /d/log.deleted")


def test_short_write_leaves_half() -> None:
    memory = MemoryStorage()
    storage = FaultyStorage(memory, 2, "short")
    file = storage.open_log("a")
    file.append(b"0123")
    with pytest.raises(StorageError, match="No space left"):
        file.append(b"abcdef")
    assert memory.read_all("a") == b"0123abc"
    assert (file.size, file.read(0, 10), bytes(file.view(0, 10))) == (4, b"0123", b"0123")
    file.append(b"xy")
    assert memory.read_all("a") == b"0123xy"


def test_failed_sync_is_for_ever() -> None:
    file = FaultyStorage(MemoryStorage(), 1, "sync").open_log("a")
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot sync"):
            file.sync()


def test_manual_scheduler() -> None:
    clock = ManualClock(1000)
    scheduler, ran = ManualScheduler(clock), []
    scheduler.schedule("now", lambda: ran.append(("now", clock.now_ms())))
    assert ran == [("now", 1000)]
    scheduler.schedule("late", lambda: ran.append(("late", clock.now_ms())), 50)
    cancelled = scheduler.schedule("cancelled", lambda: ran.append(("cancelled", 0)), 10)
    scheduler.schedule("early", lambda: ran.append(("early", clock.now_ms())), 20)
    every = scheduler.schedule("every", lambda: ran.append(("every", clock.now_ms())), 20, 30)
    assert (cancelled.cancel(), cancelled.cancel()) == (True, False)
    scheduler.advance(19)
    assert len(ran) == 1
    scheduler.advance(31)
    assert ran[1:] == [("early", 1050), ("every", 1050), ("late", 1050), ("every", 1050)]
    assert every.cancel()
    scheduler.advance(1000)
    assert len(ran) == 5
    assert len(scheduler) == 0


def test_manual_scheduler_passes_errors_on() -> None:
    scheduler = ManualScheduler(ManualClock())

    def fail() -> None:
        raise StorageError("a", "remove", "no")

    scheduler.schedule("fail", fail, 5)
    with pytest.raises(StorageError):
        scheduler.advance(5)
    scheduler.schedule("rest", fail, 5)
    scheduler.shutdown()
    scheduler.advance(5)


def test_thread_scheduler(caplog: pytest.LogCaptureFixture) -> None:
    scheduler, ran, last = ThreadScheduler(), [], threading.Event()

    def fail() -> None:
        ran.append("fail")
        raise ValueError("wrong")

    never = scheduler.schedule("never", lambda: ran.append("never"), 60_000)
    far = scheduler.schedule("far", lambda: ran.append("far"), 2**62)
    scheduler.schedule("last", last.set, 60)
    scheduler.schedule("second", lambda: ran.append("second"), 20)
    scheduler.schedule("fail", fail)
    every = scheduler.schedule("every", lambda: ran.append("every"), 0, 5)
    assert (never.cancel(), never.cancel()) == (True, False)
    assert last.wait(60)
    wait_for(lambda: ran.count("every") >= 2)
    assert every.cancel()
    scheduler.shutdown()
    assert [each for each in ran if each != "every"] == ["fail", "second"]
    assert "the task fail failed" in caplog.text
    assert far.cancel()
    with pytest.raises(ClosedError):
        scheduler.schedule("after", fail)
    scheduler.shutdown()


def test_thread_scheduler_from_inside() -> None:
    scheduler, done = ThreadScheduler(), threading.Event()

    def outer() -> None:
        scheduler.schedule("inner", inner)

    def inner() -> None:
        scheduler.shutdown()
        done.set()

    scheduler.schedule("outer", outer)
    assert done.wait(60)
    for wrong in ({"delay_ms": -1}, {"period_ms": 0}):
        with pytest.raises(RequestError):
            scheduler.schedule("wrong", outer, **wrong)


def test_system_clock() -> None:
    assert abs(SystemClock().now_ms() - time.time() * 1000) < 5000
