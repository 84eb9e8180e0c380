"""Tests of env/append_file.py, env/handles.py, env/mapped_file.py, env/maps.py, env/positions.py and env/storage.py.
The storage of the real disk: what all storages do, bounds, threads, failures, the lock.
"""

from __future__ import annotations

import errno
import gc
import os
import random
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.storage_conformance import StorageConformance

from pylogseg.env import append_file, maps
from pylogseg.env.handles import Handles
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import ClosedError, StorageError


@pytest.fixture
def storage() -> LocalStorage:
    return LocalStorage()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


class TestLocalStorage(StorageConformance):
    """The conformance tests on the real disk."""


class TestLocalStorageOfOneHandle(StorageConformance):
    """The same while each file closes the one before it."""

    @pytest.fixture
    def storage(self) -> LocalStorage:
        return LocalStorage(Handles(1))


def test_sync_of_a_file_that_is_removed_at_the_same_moment(tmp_path: Path) -> None:
    """A snapshot goes by a truncation while the flush behind a roll is about to sync it: that is no failing disk."""
    path = tmp_path / "0.snapshot"
    path.touch()

    class Late(Handles):
        def open(self, opener: Callable[[], int]) -> int:
            path.unlink()
            return super().open(opener)

    LocalStorage(Late()).sync_file(str(path))
    assert not path.exists()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors by /proc")
def test_descriptors_are_bounded(tmp_path: Path) -> None:
    storage = LocalStorage(Handles(10))
    before = open_files()
    files = [storage.open_log(str(tmp_path / f"{i}.log")) for i in range(200)]
    indexes = [storage.open_index(str(tmp_path / f"{i}.index"), 4096) for i in range(200)]
    views = []
    for round_number in range(2):
        for i, (file, index) in enumerate(zip(files, indexes, strict=True)):
            file.append(b"%05d" % i)
            index.put(8 * round_number, b"%08d" % i)
            views.append(file.view(5 * round_number, 5))
    assert open_files() - before <= 10
    assert len(storage.handles) <= 10
    assert [bytes(view) for view in views] == [b"%05d" % i for i in range(200)] * 2
    assert all(bytes(index.buffer[:16]) == b"%08d" % i * 2 for i, index in enumerate(indexes))
    for each in (*files, *indexes):
        each.close()
    assert open_files() == before
    assert len(storage.handles) == 0


def test_thousand_segments_under_a_limit(tmp_path: Path) -> None:
    """A process that may open 256 files, of which others take most."""
    code = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from pylogseg.env.storage import LocalStorage
taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(180)]
storage = LocalStorage()
files = [storage.open_log(os.path.join(sys.argv[1], str(i))) for i in range(1000)]
for file in files:
    file.append(b"x" * 100)
views = [file.view(0, 100) for file in files]
print(sum(map(len, views)), sum(len(file.read(0, 100)) for file in files))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["100000", "100000"]


def test_maps_go_with_their_last_view(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("looks for maps in /proc")

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    file = LocalStorage().open_log(str(tmp_path / "a"))
    file.append(b"x" * 10_000)
    view = file.view(5, 10)
    file.append(b"y" * (2 << 20))
    later = file.view(10_000, 1 << 20)
    assert mapped() == 2
    del view
    gc.collect()
    assert mapped() == 1
    file.close()
    assert (mapped(), bytes(later)) == (1, b"y" * (1 << 20))
    del later
    assert mapped() == 0


def test_growth_needs_few_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = append_file.Mapping

    def count(*args: int) -> maps.Mapping:
        made.append(args)
        return real(*args)

    monkeypatch.setattr(append_file, "Mapping", count)
    file = LocalStorage().open_log(str(tmp_path / "a"))
    for i in range(1000):
        file.append(bytes([i % 256]) * 5000)
        assert bytes(file.view(i * 5000, 5000)) == bytes([i % 256]) * 5000
    assert len(made) == 4  # 1, 2, 4 and 8 MiB


class TestWithoutTheLibrary(StorageConformance):
    """The way of systems whose C library cannot be asked for maps: a map ends where the file ended."""

    @pytest.fixture(autouse=True)
    def without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(maps, "_LIBRARY", None)

    # There nothing can be put under views, and the system refuses to cut the file instead.
    test_views_keep_what_is_cut_off = None  # type: ignore[assignment]
    test_index_resize = None  # type: ignore[assignment]


def test_readers_while_it_is_written_and_cut(tmp_path: Path) -> None:
    """Threads that read see the old bytes or the new ones of each block, and views never change."""
    storage = LocalStorage(Handles(1))
    file, other = storage.open_log(str(tmp_path / "a")), storage.open_log(str(tmp_path / "b"))
    other.append(b"x")
    stop, wrong = threading.Event(), []
    block = 1000

    def read(seed: int) -> None:
        choose, held = random.Random(seed), []
        while not stop.is_set():
            number = choose.randrange(40)
            view = file.view(number * block, block)
            other.read(0, 1)
            if choose.random() < 0.1:
                held.append((view, bytes(view)))
            data = file.read(number * block, block)
            wrong.extend((number, bytes(seen)) for seen in (view, data) if len(set(seen)) > 1)
            if len(held) > 50:
                wrong.extend((number, "changed") for kept, copy in held if bytes(kept) != copy)
                held.clear()

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    choose = random.Random(0)
    for i in range(1500):
        file.append(bytes([i % 256]) * block)
        if file.size > 40 * block or choose.random() < 0.05:
            file.truncate(choose.randrange(file.size // block + 1) * block)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_read_beside_append_sees_whole_blocks(tmp_path: Path) -> None:
    file = LocalStorage().open_log(str(tmp_path / "a"))
    stop, wrong = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            size = file.size
            data = bytes(file.view(0, size))[-300:]
            if len(data) != min(size, 300) or (data and len(set(data)) > 1 and size <= 300):
                wrong.append(data)
            if size and file.read(size - 1, 1) == b"":
                wrong.append(size)

    thread = threading.Thread(target=read)
    thread.start()
    for i in range(3000):
        file.append(bytes([i % 255 + 1]) * 300)
    stop.set()
    thread.join()
    assert wrong == []
    assert 0 not in file.read(0, file.size)


@pytest.fixture
def file_size_limit() -> Iterator[None]:
    """No file grows beyond 10,000 bytes: the system then writes short, and refuses the rest."""
    import signal

    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, old)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("file_size_limit")
@pytest.mark.parametrize("many", [False, True])
def test_short_write(tmp_path: Path, many: bool) -> None:
    file = LocalStorage().open_log(str(tmp_path / "a"))
    file.append(b"x" * 9000)
    with pytest.raises(StorageError, match="cannot append: File too large") as caught:
        file.append_many([b"y" * 900] * 2) if many else file.append(b"y" * 1800)
    assert caught.value.operation == "append"
    assert (file.size, os.path.getsize(file.path)) == (9000, 9000)
    assert file.append(b"z" * 1000) == 9000
    assert file.read(8999, 2) == b"xz"


def test_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that a signal or a limit of the system made short is not a failure."""
    from pylogseg.env import positions

    calls = []

    def write(descriptor: int, data: bytes, position: int) -> int:
        calls.append(len(data))
        return os.pwrite(descriptor, data[:7], position)

    monkeypatch.setattr(append_file, "write_once", write)
    monkeypatch.setattr(positions, "write_once", write)
    file = LocalStorage().open_log(str(tmp_path / "a"))
    file.append(b"0123456789abcdefghij")
    assert calls == [20, 13, 6]
    assert file.read(0, 50) == b"0123456789abcdefghij"


def test_failed_sync_stays_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage()
    log, index = storage.open_log(str(tmp_path / "a")), storage.open_index(str(tmp_path / "b"), 8)
    log.append(b"x")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        for file in (log, index):
            with pytest.raises(StorageError, match="cannot sync: Input/output error"):
                file.sync()
    for file in (log, index):
        with pytest.raises(StorageError, match="an earlier sync failed") as caught:
            file.sync()
        assert caught.value.operation == "sync"


def test_full_disk_under_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is asked for before the map is touched, since a map on a full disk kills the process."""
    index = LocalStorage().open_index(str(tmp_path / "a"), 1 << 20)
    asked = []

    def allocate(descriptor: int, start: int, size: int) -> None:
        asked.append((start, size))
        if start:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    for position in range(0, 1 << 16, 4096):
        index.put(position, b"12345678")
    assert asked == [(0, 1 << 16)]
    with pytest.raises(StorageError, match="cannot append: No space left"):
        index.put(1 << 16, b"12345678")
    assert index.buffer[1 << 16] == 0


def test_reserving_without_the_call_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = random.Random(1).randbytes(100_000)
    (tmp_path / "a").write_bytes(content)
    monkeypatch.delattr(os, "posix_fallocate")
    index = LocalStorage().open_index(str(tmp_path / "a"))
    index.put(50, b"x")
    index.put(99_999, b"y")
    assert (tmp_path / "a").read_bytes() == content[:50] + b"x" + content[51:-1] + b"y"


def test_cut_by_another_program(tmp_path: Path) -> None:
    """A map that would kill the process is refused."""
    storage = LocalStorage()
    log, index = storage.open_log(str(tmp_path / "a")), storage.open_index(str(tmp_path / "b"), 8192)
    log.append(b"x" * 8192)
    for name in ("a", "b"):
        os.truncate(tmp_path / name, 10)
    with pytest.raises(StorageError, match="cut to 10 bytes by another program"):
        log.view(0, 8192)
    with pytest.raises(StorageError, match="cut to 10 bytes by another program"):
        _ = index.buffer


def test_close_waits_for_nobody_and_closes_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file closed in the middle of a sync keeps its descriptor until the sync is done."""
    file = LocalStorage().open_log(str(tmp_path / "a"))
    file.append(b"x")
    real, closed = os.fsync, []

    def close_meanwhile(descriptor: int) -> None:
        file.close()
        real(descriptor)
        closed.append(True)

    monkeypatch.setattr(os, "fsync", close_meanwhile)
    file.sync()
    assert closed == [True]
    with pytest.raises(ClosedError):
        file.append(b"y")


LOCKING = """
import sys
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import StorageError
try:
    lock = LocalStorage().lock(sys.argv[1])
except StorageError as error:
    print(error, flush=True)
else:
    print("locked", flush=True)
    sys.stdin.readline()
"""


def test_lock_between_processes(tmp_path: Path) -> None:
    storage = LocalStorage()
    other = subprocess.Popen(
        [sys.executable, "-c", LOCKING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(StorageError, match="has the lock") as caught:
            storage.lock(str(tmp_path))
        if sys.platform == "linux":
            assert f"process {other.pid} has the lock" in str(caught.value)
        other.kill()
    lock = storage.lock(str(tmp_path))  # what a killed process leaves is an empty file
    refused = subprocess.run([sys.executable, "-c", LOCKING, str(tmp_path)], capture_output=True, text=True, check=True)
    assert f"process {os.getpid()} has the lock" in refused.stdout or sys.platform != "linux"
    lock.release()
    assert list(tmp_path.iterdir()) == []
