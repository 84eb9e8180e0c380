"""The rows of compaction beside Kafka's cleaner, on the same bytes and with as much memory; and of many logs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import data
import engine
import numpy as np
import pyarrow as pa
from memory import anonymous_mb
from rows import Row

from pylogseg import BrokerSettings, LogManager
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_filter import CleanerStats
from pylogseg.log.cleaner_range import Cleanable, cleanable
from pylogseg.log.log import Log
from pylogseg.log.offset_map import SLOT_BYTES, OffsetMap
from pylogseg.reading.arrow.encode import encode

MAP_BYTES = 128 << 20
LOGS = 2000
_KEYS = 67_000


def write_keyed(folder: Path, records: int, keys: int = _KEYS, **settings: Any) -> Path:
    """A log in ``folder/bench-0`` whose records have one of so many keys each, in random order."""
    random, target = np.random.default_rng(5), folder / "bench-0"
    log = engine.open_log(target, fresh=True, **settings)
    for first in range(0, records, 1 << 17):
        table = data.table(min(1 << 17, records - first), first)
        names = pa.array([b"key-%08d" % key for key in random.integers(0, keys, len(table)).tolist()], pa.binary())
        batches = encode(table.append_column("key", names), batch_bytes=data.BATCH_BYTES, leader_epoch=0)
        log.append_as_follower(batches, 0)
    engine.close(log)
    return target


def dirty(folder: Path, **settings: Any) -> tuple[Log, Cleanable]:
    """Open a log that is all to be cleaned, but for its active segment."""
    log = engine.open_log(folder, cleanup_policy="compact", **settings)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    return log, cleanable(log, None, log.clock.now_ms())


def compaction(bench: Any) -> list[Row]:
    """A cleaning from the beginning, and the map alone."""
    records = bench.records // 2
    with engine.scratch(engine.places(bench)[0][1]) as folder:
        source = write_keyed(folder, records)
        size = (source / data.NAME).stat().st_size
        best = {"map": float("inf"), "clean": float("inf")}
        cleaner = Cleaner(OffsetMap(MAP_BYTES))
        for _ in range(bench.rounds):
            copy = folder / "round" / "bench-0"
            shutil.rmtree(copy.parent, ignore_errors=True)
            shutil.copytree(source, copy)
            log, what = dirty(copy)
            began = bench.clock.now()
            cleaner.read_keys(log, what.first_dirty, what.first_uncleanable, CleanerStats())
            between = bench.clock.now()
            cleaner.clean(log, what)
            ended = bench.clock.now()
            engine.close(log)
            best = {"map": min(best["map"], between - began), "clean": min(best["clean"], ended - between)}
        shutil.rmtree(folder / "round")
        theirs: dict[str, float | None] = {}
        for work, kafka in (("map", "offset map"), ("clean", "clean")):
            side = bench.kafka_side("clean", str(folder), str(MAP_BYTES), work=kafka)
            theirs[work] = None if side is None else records / bench.best_of(side) / 1e6
    unit, log_size = "M records/s", f"{size / 1e6:.0f} MB, {_KEYS:,} keys, {MAP_BYTES >> 20} MiB of map"
    mine = {work: records / seconds / 1e6 for work, seconds in best.items()}
    return [
        Row(f"compaction of {log_size}", mine["clean"], unit, "Kafka's cleaner", theirs["clean"], 7,
            "the copy out of the page cache, twice; the decoder"),
        Row("its map of keys alone", mine["map"], unit, "Kafka's cleaner", theirs["map"], 8,
            "the copy out of the page cache; the decoder, the table"),
    ]  # fmt: skip


def passes(bench: Any) -> list[Row]:
    """Memory while a partition is cleaned whose keys do not fit into the map."""
    if not Path("/proc/self/status").exists():
        return []
    records = bench.records // 8
    slots = max(1000, records // 8)
    used = []
    with engine.scratch(engine.places(bench)[0][1]) as folder:
        small = {"segment_bytes": 32 << 20}
        log, what = dirty(write_keyed(folder, records, 10**8, **small), **small)
        size = log.segments.size / 1e6
        before = anonymous_mb()
        cleaner = Cleaner(OffsetMap(slots * SLOT_BYTES), check=lambda: used.append(anonymous_mb() - before))
        ends = [0]
        while what.first_dirty < what.first_uncleanable:
            next_dirty, _ = cleaner.clean(log, what)
            ends.append(len(used))
            what = what._replace(first_dirty=next_dirty)
        engine.close(log)
    half = ends[len(ends) // 2]
    first, later = max(used[:half]), max(used[half:])
    what = f"{len(ends) - 1} passes over {size:.0f} MB, a map of {slots * SLOT_BYTES / 1e6:.1f} MB"
    work = f"growth of own memory in the second half of {what}"
    return [Row(work, max(0.0, later - first), "MB", "", None, 4, "the map, one window, what it decodes to")]


@contextmanager
def _seconds(clock: Any, found: list[float]) -> Iterator[None]:
    began = clock()
    yield
    found.append(clock() - began)


def make_many(settings: BrokerSettings, count: int = LOGS) -> None:
    """Logs of 50 topics, each with a few records and a start that retention has moved."""
    batch = [(None, b"key", bytes(100))] * 20
    with LogManager(settings) as manager:
        for i in range(count):
            log = manager.log(f"topic-{i % 50}", i // 50)
            log.append(batch)
            log.engine.roll()
            log.append(batch)
            log.increment_log_start(20)


def many(bench: Any) -> list[Row]:
    """2,000 logs in two directories: load, a round of retention and checkpoints, an orderly end."""
    rounds, loads, ends, walls = [], [], [], []
    _use(bench.cores)  # its threads are to use them
    try:
        with engine.scratch(engine.places(bench)[0][1]) as folder:
            settings = BrokerSettings(log_dirs=(str(folder / "a"), str(folder / "b")), log_cleaner_enable=False)
            make_many(settings)
            for _ in range(max(2, bench.rounds // 2)):
                with _seconds(bench.clock.now, loads), _seconds(time.perf_counter, walls):
                    manager = LogManager(settings)
                for _ in range(4):
                    for key in manager:
                        manager[key].append([(None, b"key", b"value")])
                    with _seconds(bench.clock.now, rounds):
                        manager.retain()
                        manager.checkpoint()
                with _seconds(bench.clock.now, ends):
                    manager.close()
    finally:
        _use({max(bench.cores)} if bench.cores else set())
    size = f"{LOGS:,} logs"
    return [
        Row(f"retention and checkpoints over {size}, all of which grew, a round", min(rounds) * 1e3, "ms", "", None, 50,
            "Python: a look at each log"),
        Row(f"load of {size} that were closed in order, a log", min(loads) / LOGS * 1e3, "ms", "", None, None,
            "a look at each file, Python"),
        Row("the same on the wall", min(walls) / LOGS * 1e3, "ms", "", None, None, "the interpreter's lock"),
        Row(f"orderly end of {size}, a log", min(ends) / LOGS * 1e3, "ms", "", None, None, "the syncs"),
    ]  # fmt: skip


def cold(bench: Any) -> list[Row]:
    """A load whose files are not in the system's memory, beside a bare read of the same files; and on one core."""
    best = {"bare": float("inf"), "load": float("inf")}
    if len(bench.cores) > 1:
        best["one core"] = float("inf")
    try:
        with engine.scratch(engine.places(bench)[-1][1]) as folder:
            settings = BrokerSettings(log_dirs=(str(folder / "a"), str(folder / "b")), log_cleaner_enable=False)
            make_many(settings)
            LogManager(settings).close()  # what the first load of all takes away is gone for the others
            for _ in range(max(3, bench.rounds)):
                for work in best:
                    _use({max(bench.cores)} if work == "one core" else bench.cores)
                    how = _forget(folder)
                    began = time.perf_counter()
                    manager = _read_all(settings.log_dirs) if work == "bare" else LogManager(settings)
                    best[work] = min(best[work], (time.perf_counter() - began) / LOGS * 1e3)
                    if manager is not None:
                        manager.close()
    finally:
        _use({max(bench.cores)} if bench.cores else set())
    load = f"load of {LOGS:,} logs that were closed in order, cold ({how}), a log"
    return [
        Row(load, best["load"], "ms", "a bare read of the same files, two threads", best["bare"], 0.77, "the disk"),
        Row("the same", best["load"], "ms", "on one core", best.get("one core"), None, "the interpreter's lock"),
    ]


def _use(cores: set[int]) -> None:
    if cores:
        os.sched_setaffinity(0, cores)


def _forget(folder: Path) -> str:
    """Make the system forget the files; how."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        for path in folder.rglob("*"):
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)
        return "POSIX_FADV_DONTNEED, so names and sizes are warm"
    return "drop_caches"


def _read_all(folders: Sequence[str]) -> None:
    """Every name, and the first page of every file: a thread for each folder."""

    def read(folder: str) -> None:
        for above, _, names in os.walk(folder):
            for name in names:
                with open(os.path.join(above, name), "rb") as file:
                    file.read(4096)

    with ThreadPoolExecutor(len(folders)) as pool:
        list(pool.map(read, folders))
