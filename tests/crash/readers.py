"""Readers in threads and in processes, while a writer appends, rolls, truncates, deletes and replaces segments.

    python tests/crash readers [--seconds 60] [--threads 2] [--processes 2] [--seed 0]

A thread takes slices with `Log.fetch`: all batches of one slice must have been in the log together at one time. A
process reads the folder with `pylogseg.read`: each record must be whole, at its own offset, behind the one before. It
begins again where a file was truncated away after it had been listed, and the log has grown since. One more thread
flushes: the recovery point must not be above the end of the log.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pylogseg
from crash.judge import Broken, must
from pylogseg.config import LogConfig
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import ThreadScheduler
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import OffsetOutOfRangeError, StorageError
from pylogseg.format.batches import scan
from pylogseg.log.log import Log
from pylogseg.log.segment_replace import copy_batches, new_cleaned_segment, replace_segments
from pylogseg.reading.arrow.encode import encode

_CONFIG = LogConfig.of(
    segment_bytes=30_000, segment_index_bytes=4096, index_interval_bytes=500, file_delete_delay_ms=2000
)
_FOR_EVER = 2**62
#: A process may start later than all work ends.
_PATIENCE_S = 60
_VALUE = re.compile(rb"#(\d+) (\d+) ")


class Writer:
    """Writes a log, and notes when each batch came and went."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.scheduler = ThreadScheduler()
        self.log = Log.open(Environment(LocalStorage(), SystemClock(), self.scheduler), str(folder / "t-0"), _CONFIG)
        self._choose = random.Random(seed)
        self.born: list[int] = []
        self.died: dict[int, int] = {}
        self._live: list[tuple[int, int]] = []
        self._tick = 0

    def step(self) -> None:
        """Do something; appends mostly."""
        self._tick += 1
        self._choose.choices(
            [self._append, self._roll, self._truncate, self._delete, self._replace, self.log.flush],
            [60, 2, 3, 1, 2, 1],
        )[0]()

    def _append(self) -> None:
        count = self._choose.choice((1, 2, 20))
        base, number, now = self.log.log_end_offset, len(self.born), self.log.clock.now_ms()
        self.born.append(self._tick)
        rows = [
            (now, None, b"#%d %d " % (number, base + i) + b"." * self._choose.choice((1, 90))) for i in range(count)
        ]
        self.log.append_as_leader(encode(rows, batch_bytes=1 << 20), 0)
        self._live.append((base, number))

    def _roll(self) -> None:
        if self.log.active.size:
            self.log.roll()

    def _truncate(self) -> None:
        start = self.log.log_start_offset
        places = [base for base, _ in self._live[-30:] if base >= start]
        if not places:
            return
        whole = self._choose.random() < 0.1
        at = start if whole else self._choose.choice(places)
        for base, number in self._live:
            if base >= at:
                self.died[number] = self._tick
        self._live = [each for each in self._live if each[0] < at]
        if whole:
            self.log.truncate_fully(self.log.log_end_offset)
        else:
            self.log.truncate_to(at)

    def flush(self) -> None:
        """As the flushes by time, beside the writer."""
        self.log.flush()
        with self.log.state.lock:
            point, end = self.log.recovery_point, self.log.log_end_offset
        must(point <= end, f"the recovery point is {point}, the log ends at {end}")

    def _delete(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        if len(self.log.segments) > 6:
            self.log.increment_log_start(list(self.log.segments)[2].base_offset)
            self.log.apply_retention()

    def _replace(self) -> None:
        """A sealed segment gives way to one with the same batches, as after a cleaning."""
        log = self.log
        with log.state.lock:
            sealed = list(log.segments)[:-1]
            if not sealed:
                return
            old = self._choose.choice(sealed)
            new = new_cleaned_segment(log, old.base_offset)
            copy_batches(old, 0, new)
            new.become_inactive()
            new.flush()
            replace_segments(log.storage, log.folder, log.segments, [new], [old], log.state.remover)


def fetch_once(writer: Writer, choose: random.Random) -> int:
    """Take one slice and look at it; how many batches."""
    log = writer.log
    start, end = log.log_start_offset, log.log_end_offset
    try:
        data = log.fetch(choose.randint(start, max(start, end)), choose.choice((1, 5000, 1 << 20))).data
    except OffsetOutOfRangeError:  # it was truncated or deleted in between
        return 0
    rows = scan(data, crc=True).batches
    must((rows.verdict == 0).all(), "a batch in a slice does not match its CRC")
    numbers = []
    for base, position, size in zip(rows.base_offset.tolist(), rows.position.tolist(), rows.size.tolist(), strict=True):
        number, offset = _told(bytes(data[position + 61 : position + size]))
        must(offset == base, f"a batch of offset {offset} lies at {base}")
        numbers.append(number)
    if numbers:
        born = max(writer.born[n] for n in numbers)
        died = min(writer.died.get(n, _FOR_EVER) for n in numbers)
        must(born < died or born == died == 0, f"a slice of batches born until {born} and dead from {died} on")
    return len(numbers)


def _told(batch: bytes) -> tuple[int, int]:
    """What the first record says: the number of its batch, and its offset."""
    found = _VALUE.search(batch)
    must(found, "a batch without what was written")
    assert found is not None
    return int(found[1]), int(found[2])


def read_folder(folder: str, out: Any) -> None:
    """Read the folder again and again, once it has said that it is there; sends how many records, or what is wrong."""
    out.send("ready")
    until, total = out.recv(), 0
    try:
        while time.time() < until or (not total and time.time() < until + _PATIENCE_S):
            try:
                total += _read_once(folder)
            except StorageError as error:
                # A segment that was truncated away between listing and opening, whatever has its name now: begin again.
                must("no such file" in str(error).lower(), str(error))
        out.send((total, ""))
    except BaseException as error:
        out.send((total, f"{type(error).__name__}: {error}"))


def _read_once(folder: str) -> int:
    before, count = -1, 0
    for record in pylogseg.read(folder, "t"):
        must(_told(record.value or b"")[1] == record.offset, f"offset {record.offset} holds {record.value!r}")
        must(record.offset > before, f"offset {record.offset} comes behind {before}")
        before, count = record.offset, count + 1
    return count


def crowd(folder: Path, seconds: float, threads: int, processes: int, seed: int) -> tuple[int, int, int]:
    """Let them all loose; steps of the writer, batches that threads read, records that processes read.

    Raises
    ------
    Broken
        If a reader saw what it must not see, or died.
    """
    context = multiprocessing.get_context("spawn")
    until, faults, batches = 0.0, list[str](), itertools.count()
    writer = Writer(folder, seed)
    writer.step()

    def watched(work: Callable[[], object]) -> None:
        try:
            while time.time() < until and not faults:
                work()
        except BaseException as error:
            faults.append(f"{type(error).__name__}: {error}")

    def reading(number: int) -> None:
        choose = random.Random(number)
        watched(lambda: [next(batches) for _ in range(fetch_once(writer, choose))])

    readers = []
    for _ in range(processes):
        told, out = context.Pipe()
        process = context.Process(target=read_folder, args=(str(folder), out), daemon=True)
        process.start()
        out.close()
        readers.append((process, told))
    for _, told in readers:
        told.recv()  # a process may take longer to start than the others are let loose
    until = time.time() + seconds
    for _, told in readers:
        told.send(until)
    crew = [threading.Thread(target=reading, args=(number,)) for number in range(threads)]
    crew.append(threading.Thread(target=watched, args=(writer.flush,)))
    for thread in crew:
        thread.start()
    watched(writer.step)
    records = 0
    for thread in crew:
        thread.join()
    for process, told in readers:
        try:
            count, fault = told.recv()
        except EOFError:
            count, fault = 0, "died"
        process.join()
        records += count
        if fault or process.exitcode:
            faults.append(f"process {process.pid}, exit code {process.exitcode}: {fault}")
    writer.scheduler.shutdown()
    writer.log.close()
    if faults:
        raise Broken("; ".join(faults))
    return writer._tick, next(batches), records
