"""Tests of log/flushing.py and log/recovery.py. The plug is pulled on whole logs: crash images of every kind of work,
and every operation that can fail.

`python tests/crash images` looks at many more, `python tests/crash cuts` at real file systems.
"""

from __future__ import annotations

import errno
import itertools
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash import sweeps
from crash.images import Names, crash_images
from crash.judge import Broken, Recovered, judge
from crash.promises import FOLDER, NOW_MS, TINY, Producer, Promise, Witness, as_sent
from crash.workloads import LONG, SHORT, Workload, random_workload
from helpers.depth import IS_DEEP, some_of

from pylogseg.env.scheduler import Handle
from pylogseg.errors import CorruptionError, PylogsegError, StorageError
from pylogseg.log.log import Log
from pylogseg.log.segment import LogSegment
from pylogseg.reading.arrow.encode import encode
from pylogseg.testing.faults import Fault, FaultyStorage
from pylogseg.testing.memory import MemoryStorage


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def named(workload: Workload) -> str:
    return workload.name.replace(" ", "-")


#: Crash images that are drawn of each workload, some twice.
IMAGES = 260 if IS_DEEP else 80


def wrong(judged: Iterator[sweeps.Judged]) -> list[sweeps.Judged]:
    everything = list(judged)
    assert everything
    return [each for each in everything if each.fault]


def test_every_image() -> None:
    """Appends and a flush: all that the barriers allow, one image for each."""
    assert wrong(sweeps.judge_images(SHORT[0], 10_000)) == []


@pytest.mark.parametrize("workload", [*SHORT[1:], *LONG], ids=named)
def test_images(workload: Workload) -> None:
    assert wrong(sweeps.judge_images(workload, IMAGES, 1)) == []


def test_there_are_enough_images() -> None:
    """More than 2,000 different ones are judged in a deep run."""
    traces = [sweeps.played(workload)[0] for workload in [*SHORT[1:], *LONG]]
    drawn = [{image.description for image in crash_images(trace, IMAGES, 1) if image.marks} for trace in traces]
    assert sum(map(len, drawn)) > (2000 if IS_DEEP else 600)


@pytest.mark.parametrize("seed", some_of(range(6), 3))
def test_images_of_anything(seed: int) -> None:
    """Random work, and a second crash while the first is recovered."""
    assert wrong(sweeps.judge_images(random_workload(seed), 25, seed, nested=1)) == []


@pytest.mark.parametrize("error", [errno.ENOSPC, "short", "sync"])
@pytest.mark.parametrize("workload", SHORT, ids=named)
def test_failures(workload: Workload, error: int | Fault) -> None:
    assert wrong(sweeps.sweep(workload, error, 1)) == []


@pytest.mark.parametrize("workload", LONG[3:], ids=named)
def test_failing_disk(workload: Workload) -> None:
    assert wrong(sweeps.sweep(workload, errno.EIO, 0)) == []


def witness(storage: MemoryStorage | FaultyStorage, **settings: object) -> Witness:
    storage.make_folder(FOLDER)
    found = Witness(storage, config=TINY.with_changes(**settings))
    found.open()
    return found


def after_changed_offset(lost: int, offset: bytes) -> tuple[int, int]:
    """Offset and position of the end, after a crash, of 300 records and a batch whose offset was changed.

    A sector ends `lost` bytes behind the place where that batch begins.
    """
    storage = MemoryStorage()
    work = witness(storage, index_interval_bytes=1 << 20, segment_bytes=1 << 20, max_message_bytes=1 << 20)
    for size in itertools.count():
        first = encode([*[(NOW_MS, None, b"")] * 299, (NOW_MS, None, bytes(size))], batch_bytes=1 << 20)
        if -len(first) % 512 == lost:
            break
    for batch in (first, encode([(NOW_MS, b"key", b"value")])):
        work.opened.append_as_leader(batch, 0)
    work.crash()
    path = f"{FOLDER}/{0:020d}.log"
    data = storage.read_all(path)
    storage.write_plain(path, data[: len(first)] + offset + data[len(first) + len(offset) :])
    with Recovered(storage, work.promise, 0, work.config) as recovered:
        return recovered.log.log_end_offset, recovered.log.active.size - len(first)


@pytest.mark.parametrize("lost", [7, 8, 10])
def test_torn_write_that_loses_the_offset(lost: int) -> None:
    """No check sum covers the base offset: a write whose first sector is lost may leave a good batch at a wrong one."""
    assert after_changed_offset(lost, bytes(lost)) == (300, 0)


@pytest.mark.parametrize(("lost", "offset"), [(300, 0), (8, 200), (7, 0)])
def test_batch_at_a_wrong_offset_stays(lost: int, offset: int) -> None:
    """What no torn write left is kept, as Kafka keeps it."""
    end, size = after_changed_offset(lost, offset.to_bytes(8, "big"))
    assert end == offset + 1
    assert size > 0


@pytest.mark.parametrize(("magic", "end"), [(3, 2), (127, 2), (128, 1), (255, 1)])
def test_magic_is_a_signed_byte(magic: int, end: int) -> None:
    """Kafka takes one above 2 for 2, whose check sum does not cover it, and a negative one for less than 2."""
    storage = MemoryStorage()
    work = witness(storage)
    work.append()
    at = work.opened.active.size + 16
    work.append()
    work.crash()
    path = f"{FOLDER}/{0:020d}.log"
    data = storage.read_all(path)
    storage.write_plain(path, data[:at] + bytes([magic]) + data[at + 1 :])
    with Recovered(storage, work.promise, 0, work.config) as recovered:
        assert recovered.log.log_end_offset == end


@pytest.mark.parametrize("work", [each for each in LONG if "a producer" in each.name], ids=named)
def test_truncation_goes_from_the_end(work: Workload) -> None:
    """Also where a file system keeps no order of names: no segment comes back alone, with its producers' snapshot."""
    assert wrong(sweeps.judge_images(work, 300, 1)) == []


def test_offset_that_no_split_brings_into_reach() -> None:
    """A broker does not start; here the load fails, and says where."""
    storage = MemoryStorage()
    work = witness(storage)
    work.append()
    position = work.opened.active.size
    work.append()
    work.append()
    work.crash()
    path = f"{FOLDER}/{0:020d}.log"
    storage.write_plain(path, storage.read_all(path)[:position] + b"\0\0\6" + storage.read_all(path)[position + 3 :])
    with pytest.raises(
        CorruptionError, match="offset 6597069766657, not the last one, is too far from the base offset 0"
    ) as caught:
        Recovered(storage, work.promise, 0, work.config)
    assert (caught.value.path, caught.value.position) == (path, position)


def test_failure_while_recovering_loses_nothing() -> None:
    """An error of the disk ends the load; it is no reason to empty a segment."""
    storage = MemoryStorage()
    work = witness(storage)
    work.append()
    work.flush()
    work.crash()
    failing = FaultyStorage(storage, 3, errno.EIO)
    with pytest.raises(StorageError) as caught:
        Recovered(failing, work.promise, 0, TINY)
    assert FOLDER in str(caught.value)
    assert judge(storage, work.promise, work.history, TINY, recovery_point=0) == [0]


def test_failed_sync_is_not_tried_again() -> None:
    """The system may forget what it could not write: a second sync that works would be a lie."""
    inner = MemoryStorage()
    storage = FaultyStorage(inner, 3, "sync")
    work = witness(storage)
    work.append()
    with pytest.raises(StorageError) as caught:
        work.flush()
    assert caught.value.path.startswith(FOLDER)
    log, point = work.opened, work.opened.recovery_point
    for refused in (log.flush, log.take_snapshot, log.close, lambda: log.fetch(0), work.append):
        with pytest.raises(StorageError, match="offline since"):
            refused()
    assert log.recovery_point == point == 0


def meanwhile(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Do something in the middle of the next flush, as another thread may."""
    flush, left = LogSegment.flush, [work]

    def flush_and_work(segment: LogSegment, *, make_indexes: bool = True) -> None:
        flush(segment, make_indexes=make_indexes)
        if left:
            left.pop()()

    monkeypatch.setattr(LogSegment, "flush", flush_and_work)


def test_truncation_while_the_log_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended in place of what was cut has not been flushed by a flush that began before."""
    storage = MemoryStorage()
    work = witness(storage)
    for _ in range(4):
        work.append()

    def cut() -> None:
        work.truncate(1)
        work.append()

    meanwhile(monkeypatch, cut)
    work.opened.flush_to(4)
    assert work.opened.recovery_point == work.opened.log_end_offset == 2
    work._flushed(2)
    for image in crash_images(storage.trace, 50, rules=[Names.FREE]):
        if image.marks and image.point == len(storage.trace.operations):
            assert judge(image.open(), image.marks[-1], work.history, TINY, recovery_point=2) == [0, 4]  # type: ignore[arg-type]


def flushes_behind_rolls(log: Log) -> list[Callable[[], object]]:
    """From now on they are not run; the list gets them."""
    tasks: list[Callable[[], object]] = []
    schedule = log.state.tasks.schedule

    def late(name: str, task: Callable[[], object], *more: int) -> Handle | None:
        return tasks.append(task) if name == "flush-log" else schedule(name, task, *more)  # type: ignore[func-returns-value]

    log.state.tasks.schedule = late  # type: ignore[assignment, method-assign]
    return tasks


def test_truncation_before_the_flush_behind_a_roll() -> None:
    """The task comes late: what it was to flush is not there any more, and what is has not been flushed."""
    work = witness(MemoryStorage())
    work.append()
    work.append()
    tasks = flushes_behind_rolls(work.opened)
    work.roll()
    work.truncate(1)
    (flush,) = tasks
    flush()
    assert work.opened.recovery_point == work.opened.log_end_offset == 1


def test_removal_while_the_log_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that goes in the middle of a flush needs none."""
    work = witness(MemoryStorage(), file_delete_delay_ms=0)
    tasks = flushes_behind_rolls(work.opened)
    for _ in range(3):
        work.append()
        work.roll()
    assert len(tasks) == 3
    assert work.opened.recovery_point == 0
    meanwhile(monkeypatch, lambda: work.truncate(1))
    work.opened.flush()
    assert work.opened.recovery_point == work.opened.log_end_offset == 1


def test_failure_in_the_background() -> None:
    """Removing files is nobody's call; when it fails the log goes offline all the same."""
    storage = FaultyStorage(MemoryStorage())
    work = witness(storage)
    work.append()
    work.roll()
    work.append()
    work.truncate(0)
    storage.count, storage.fail_at = 0, 1
    with pytest.raises(StorageError):
        work.advance(5000)
    with pytest.raises(StorageError, match="offline since"):
        work.append()


def test_new_folder_is_durable() -> None:
    """What was flushed is of no use in a folder without a name."""
    storage = MemoryStorage()
    work = Witness(storage, storage.mark)
    storage.make_folder("/d")
    storage.sync_folder("/")
    work.promised()
    work.open()
    work.append()
    work.flush()
    last = [image for image in crash_images(storage.trace) if image.marks and image.marks[-1].flushed]  # type: ignore[attr-defined]
    assert last
    assert all(image.open().exists(FOLDER) for image in last)


class Forgetful(MemoryStorage):
    """Syncs nothing, and says that it did."""

    def do(self, operation: object) -> None:
        if getattr(operation, "kind", "") not in ("sync", "sync_folder"):
            super().do(operation)  # type: ignore[arg-type]


def test_the_judge_sees_what_is_lost() -> None:
    """Without barriers promises are broken, and the judge says so."""
    storage = Forgetful()
    storage.make_folder(FOLDER)
    work = Witness(storage, storage.mark)
    work.open()
    work.append()
    work.flush()
    faults = 0
    for image in crash_images(storage.trace, 200):
        if image.marks:
            try:
                told = image.marks[-1]
                assert isinstance(told, Promise)
                judge(image.open(), told, work.history, TINY, recovery_point=0)
            except (Broken, PylogsegError):
                faults += 1
    assert faults


def test_the_judge_sees_what_is_invented() -> None:
    storage = MemoryStorage()
    work = witness(storage)
    work.append(producer=Producer(1, 0, 0))
    work.opened.append_as_leader(witness_batch(2), 0)
    work.flush()
    work.crash()
    with pytest.raises(Broken, match="invented"):
        judge(storage, work.promise, work.history, TINY, recovery_point=0)


def witness_batch(number: int) -> bytes:
    other = witness(MemoryStorage())
    for _ in range(number):
        other.append()
    return as_sent(other.history[-1].data)


@pytest.mark.parametrize("count", [1, 60 if IS_DEEP else 20])
def test_judging_from_the_command_line(count: int) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "crash", "images", "--count", str(count)],
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.stdout == f"{count} judged, 0 wrong\n"


def test_what_is_wrong_shows_in_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    judged = [sweeps.Judged("work", "an image", ""), sweeps.Judged("work", "another image", "Broken: gone")]
    assert sweeps.report(judged, None) == 1
    assert capsys.readouterr().out == "work: another image\n    Broken: gone\n2 judged, 1 wrong\n"
    assert sweeps.report(judged, 1) == 0
