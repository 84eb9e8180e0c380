"""How fast a file system takes what a log does to it: appends, flushes, rolls, renames, removals; and its extents."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pylogseg.config import LogConfig
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.log.log import Log
from pylogseg.reading.arrow.encode import encode
from pylogseg.testing.clock import ManualClock, ManualScheduler

_SEGMENT_BYTES = 16 << 20
_BATCH_BYTES = 16 << 10


def measure(name: str, folder: Path) -> Iterator[str]:
    """A row for each way of making files: rates of one log, and extents of a segment that shared the disk with another.

    Columns: appends of 16 KiB and MB a second; append and flush, rolls, renames and removals of a segment a second;
    extents of a segment of 16 MiB that was flushed after each MiB, while another log was written beside it.
    """
    for preallocate in (False, True):
        at = folder / "rates"
        at.mkdir()
        rows = list(_rates(at, preallocate))
        shutil.rmtree(at)
        how = "preallocated" if preallocate else "growing"
        yield f"| {name} | {how} | " + " | ".join(rows) + " |"


def _log(folder: Path, preallocate: bool) -> Log:
    config = LogConfig.of(segment_bytes=_SEGMENT_BYTES, preallocate=preallocate, file_delete_delay_ms=0)
    clock = ManualClock(SystemClock().now_ms())
    return Log.open(Environment(LocalStorage(), clock, ManualScheduler(clock)), str(folder), config)


def _rates(folder: Path, preallocate: bool) -> Iterator[str]:
    batch = encode([(SystemClock().now_ms(), None, bytes(_BATCH_BYTES - 100))])
    log, other = _log(folder / "a-0", preallocate), _log(folder / "b-0", preallocate)

    def append() -> None:
        log.append_as_leader(batch, 0)

    def append_flushed() -> None:
        log.append_as_leader(batch, 0)
        log.flush()

    appends = _per_second(append, 6000)
    yield f"{appends:,.0f} ({appends * _BATCH_BYTES / 1e6:,.0f} MB/s)"
    yield f"{_per_second(append_flushed, 300):,.0f}"

    def roll() -> None:
        log.append_as_leader(batch, 0)
        log.roll()

    yield f"{_per_second(roll, 100):,.0f}"
    segments = list(log.segments)[:-1]
    going = iter(segments)
    yield f"{_per_second(lambda: next(going).change_suffix('.deleted'), len(segments)):,.0f}"
    going = iter(segments)
    yield f"{_per_second(lambda: next(going).delete(), len(segments)):,.0f}"
    for number in range(_SEGMENT_BYTES // len(batch) - 1):
        other.append_as_leader(batch, 0)
        log.append_as_leader(batch, 0)
        if number % 64 == 63:
            other.flush()
            log.flush()
    yield str(extents(Path(other.active.path)))
    for each in (log, other):
        each.close_handles()


def _per_second(work: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return count / (time.perf_counter() - start)


def extents(path: Path) -> int:
    """Pieces of the disk that a file lies in, by ``filefrag``."""
    told = subprocess.run(["filefrag", str(path)], capture_output=True, text=True, check=True).stdout
    return int(told.rpartition(": ")[2].split()[0])
