"""Tests of _native/_reads.pyx, log/identity.py, log/indexes.py, log/segment.py, log/segment_removal.py and
log/segments.py. Readers beside a writer, and many segments under a low limit of open files.

`python tests/crash readers` is the same crowd for as long as one likes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from crash.promises import Producer, Witness
from crash.readers import crowd

from pylogseg.env.environment import Environment
from pylogseg.env.filesystem import Entry
from pylogseg.env.storage import LocalStorage, MappedFile
from pylogseg.errors import ClosedError
from pylogseg.log.indexes import MutableOffsetIndex
from pylogseg.log.log import Log
from pylogseg.log.reads import locate
from pylogseg.log.segment import LogSegment
from pylogseg.log.segments import Segments
from pylogseg.log.state import Start
from pylogseg.testing.memory import MemoryStorage


def test_crowd(tmp_path: Path) -> None:
    """Slices are of one state of the log, and no reader dies of a file that shrinks."""
    steps, batches, records = crowd(tmp_path, 2.5, threads=2, processes=1, seed=1)
    assert min(steps, batches, records) > 0


def test_segments_go_while_one_is_looked_for() -> None:
    """A look-up sees the segments of one moment."""
    segments = Segments()

    class Offset(int):
        def __lt__(self, other: int) -> bool:
            segments.clear()
            return int(self) < other

    for look_up, found in ((segments.floor, 10), (segments.higher, 20)):
        for base in (0, 10, 20):
            segments.add(cast(LogSegment, SimpleNamespace(base_offset=base)))
        segment = look_up(Offset(15))
        assert segment is not None
        assert segment.base_offset == found
        assert len(segments) == 0


def test_segments_become_one_while_a_record_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaning that ends between two segments of a look-up hides no record: the look-up goes on in the old ones."""
    work = Witness(MemoryStorage())
    work.storage.make_folder(work.folder)
    log = work.open()
    for _ in range(3):
        work.append()
        log.roll()
    first, second, _, _ = log.segments
    find = LogSegment.find

    def find_and_clean(segment: LogSegment, offset: int, *how: Any, **more: Any) -> Any:
        if segment is not first:
            return find(segment, offset, *how, **more)
        log.segments.remove(second.base_offset)  # as if `first` had lost its last record, and then taken in the second
        return None

    monkeypatch.setattr(LogSegment, "find", find_and_clean)
    assert log.fetch(0).start.segment == second.base_offset
    log.segments.add(second)
    assert locate(log.segments, log.offsets, 0).segment == second.base_offset


def test_index_is_opened_while_it_is_renamed(tmp_path: Path) -> None:
    """Readers open indexes beside a writer that renames them: under the old name or the new one, and once."""

    class Slow(LocalStorage):
        def open_index(self, path: str, size: int | None = None) -> MappedFile:
            found = super().exists(path)
            asked.set()
            renaming.wait(0.05)
            assert super().exists(path) == found
            return super().open_index(path, size)

    asked, renaming = threading.Event(), threading.Event()
    index = MutableOffsetIndex(Slow(), str(tmp_path / "0.index"), 0, 80)
    (tmp_path / "0.index").write_bytes(bytes(80))
    reader = threading.Thread(target=lambda: index.count)
    reader.start()
    assert asked.wait(60)
    index.rename(str(tmp_path / "0.index.deleted"))
    reader.join()
    assert os.listdir(tmp_path) == ["0.index.deleted"]
    assert index.count == 10
    index.close()
    with pytest.raises(ClosedError, match="closed"):
        _ = index.file


@pytest.mark.parametrize("slots", [2, 3])
def test_an_index_is_durable_when_it_is_closed(slots: int) -> None:
    """Also one that entries fill exactly, so that it is not cut."""
    storage = MemoryStorage()
    index = MutableOffsetIndex(storage, "0.index", 0, slots * 8)
    index.extend(bytes([0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 1, 0]), 2)
    index.close()
    kinds = [operation.kind for operation in storage.trace.operations]
    assert "sync" in kinds[kinds.index("write") :]


def test_file_is_cut_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size may have been greater a moment ago than what a view of it shows."""
    work = Witness(MemoryStorage())
    work.storage.make_folder(work.folder)
    log = work.open()
    work.append()
    size = log.active.size
    work.append()
    file = type(log.active.log)
    view = file.view
    monkeypatch.setattr(file, "view", lambda self, position, wanted: view(self, position, min(wanted, size - position)))
    assert log.active.place_of(0) == (0, 0, size)
    assert log.active.place_of(1) is None
    assert log.locate_many([0, 1]).position.tolist() == [0, -1]
    assert log.offset_for_time(2**62) is None
    found = log.offset_for_time(0)
    assert found is not None
    assert found.offset == 0


@pytest.mark.skipif(sys.platform == "win32", reason="a file with readers cannot be replaced there")
def test_cut_file_stays_for_those_who_have_it_open(tmp_path: Path) -> None:
    """Another process, by its own descriptor, sees the file as it was; the name leads to the new one."""
    storage, path = LocalStorage(), tmp_path / "x.log"
    log = storage.open_log(str(path))
    log.append(b"old " * 3000)
    view = log.view(0, 12_000)
    with path.open("rb") as other:
        log.truncate(8000, aside=True)
        assert log.append(b"new") == 8000
        assert other.read() == b"old " * 3000
    assert bytes(view) == b"old " * 3000
    assert path.read_bytes() == b"old " * 2000 + b"new"
    assert log.read(7996, 100) == bytes(log.view(7996, 100)) == b"old new"
    assert [each.name for each in tmp_path.iterdir()] == ["x.log"]


@pytest.mark.parametrize("producer", [None, Producer(7, 0, 0)], ids=["plain", "producer"])
def test_a_recovery_of_many_segments_lists_their_folder_no_more_often(producer: Producer | None) -> None:
    """A listing has the files of all segments: one for each of them took most of the time."""

    class Counted(MemoryStorage):
        listings = 0

        def list_folder(self, path: str) -> list[Entry]:
            self.listings += 1
            return super().list_folder(path)

    found = []
    for count in (2, 12):
        storage = Counted()
        work = Witness(storage)
        storage.make_folder(work.folder)
        log = work.open()
        work.append(producer=producer)
        for _ in range(count):
            log.roll()
            work.append()
        before = storage.listings
        again = Log.open(Environment(storage, work.clock, work.scheduler), work.folder, work.config, Start(False))
        assert again.report.recovered_segments == count + 1
        found.append(storage.listings - before)
    assert found[0] == found[1] < 5


_MANY = """
    import resource, sys
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    from pylogseg.config import LogConfig
    from pylogseg.env.clock import SystemClock
    from pylogseg.env.environment import Environment
    from pylogseg.env.storage import LocalStorage
    from pylogseg.log.log import Log
    from pylogseg.log.state import Start
    from pylogseg.testing.clock import ManualClock, ManualScheduler
    from pylogseg.reading.arrow.encode import encode

    folder, count = sys.argv[1], 1000
    config = LogConfig.of(segment_index_bytes=4096)
    clock = ManualClock(SystemClock().now_ms())
    batch = encode([(clock.now_ms(), b"key", b"value")], producer_id=7, producer_epoch=0, base_sequence=0)
    plain = encode([(clock.now_ms(), b"key", b"value")])

    def maps():
        with open("/proc/self/maps") as lines:
            return sum(folder in line for line in lines)

    def opened(clean):
        environment = Environment(LocalStorage(), clock, ManualScheduler(clock))
        return Log.open(environment, folder + "/t-0", config, Start(clean))

    log = opened(True)
    for number in range(count - 1):
        log.append_as_leader(plain, 0)
        log.roll()
    log.append_as_leader(batch, 0)
    log.flush()
    log.close()
    most = 0
    for clean in (True, False):  # as after an orderly stop, and as after a crash
        log = opened(clean)
        assert len(log.segments) - count in (0, 1) and log.log_end_offset == count
        views = []
        for offset in range(count):
            fetched = log.fetch(offset, 1)
            assert fetched.start.offset == offset and len(fetched.data) in (len(plain), len(batch))
            if offset % 10 == 0:
                assert log.offset_for_time(clock.now_ms()).offset == 0
                most = max(most, maps())
            if offset % 100 == 0:
                views.append((bytes(fetched.data), fetched.data))
        assert log.append_as_leader(batch, 0).is_duplicate
        log.roll()
        log.append_as_leader(plain, 0)
        log.truncate_to(count)  # leaves the new segment, empty
        log.close()
        assert all(copy == bytes(view) for copy, view in views)
    print(most)
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc")
def test_thousand_segments_with_256_files() -> None:
    """Opened, read everywhere, appended to, rolled and closed; maps stay few."""
    # Thousands of syncs: in memory, where there is a file system for that.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(_MANY), folder], capture_output=True, text=True, timeout=1800
        )
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) <= 128 + 20
