"""The rows of the engine beside Kafka's own, on the same bytes, in memory and on disk."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import data
import numpy as np
from measure import Side, in_turn
from memory import anonymous_mb
from rows import Row

import pylogseg
from pylogseg.config import LogConfig
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import ThreadScheduler
from pylogseg.env.storage import LocalStorage
from pylogseg.format.batches import scan
from pylogseg.log.log import Log
from pylogseg.log.state import Start
from pylogseg.reading.arrow.encode import encode

_TMPFS = Path("/dev/shm")
_TEMPLATES = 512
_SEGMENTS = 1000


def places(bench: Any) -> list[tuple[str, Path]]:
    """Where logs are written: in memory, if there is such a place, and on the disk of the data."""
    found = [("disk", bench.folder / "engine")]
    if _TMPFS.is_dir() and os.access(_TMPFS, os.W_OK):
        found.insert(0, ("tmpfs", _TMPFS / f"pylogseg-engine-{os.getpid()}"))
    return found


def done(results: Iterable[object]) -> None:
    """Take results one after the other, and keep none: thousands of batches at once would measure fresh memory."""
    deque(results, maxlen=0)


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def open_log(folder: Path, *, clean: bool = True, fresh: bool = False, **settings: Any) -> Log:
    """A log as Kafka's benchmark has it."""
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    config = LogConfig.of(message_timestamp_after_max_ms=2**63 - 1, **settings)
    return Log.open(Environment(LocalStorage(), SystemClock(), ThreadScheduler()), str(folder), config, Start(clean))


def close(log: Log) -> None:
    """Close a log, and wait for what runs beside it: nothing of it is left when the next round begins."""
    log.close()
    log.scheduler.shutdown()


def recovered(folder: Path) -> None:
    """Make the indexes of a log anew: a benchmark that was killed left them as large as a segment may have them."""
    close(open_log(folder, clean=False))


def sent(path: Path) -> list[bytes]:
    """Batches of a file as a client sends them: with offsets from 0, and no leader epoch."""
    raw = path.read_bytes()
    batches = scan(raw, crc=False, max_rows=_TEMPLATES).batches
    found = []
    for start, size in zip(batches.position.tolist(), batches.size.tolist(), strict=True):
        found.append(bytes(8) + raw[start + 8 : start + 12] + b"\xff\xff\xff\xff" + raw[start + 16 : start + size])
    return found


def appends(bench: Any) -> list[Row]:
    """Prepared batches of 16 KiB, one a call and many a call; and records that are encoded first."""
    templates = sent(bench.log("none").path)
    joined = b"".join(templates)
    rounds = max(8, bench.records // 125_000)
    size, count = rounds * len(joined), rounds * len(templates)
    records = 145 * 6000
    table = data.table(records)
    rows: list[Row] = []
    for name, root in places(bench):
        with scratch(root) as folder:
            sides = _append_sides(bench, folder, templates, joined, rounds)
            path = str(bench.log("none").path)
            theirs = bench.kafka_side("append", path, str(folder / "k"), str(size), work="appendAsLeader")
            best = bench.beside_kafka(sides, theirs)
            side = _from_columns(bench, folder / "c", table)
            turns = {"columns": lambda side=side: min(side() for _ in range(bench.rounds))}
            theirs = bench.kafka_side("encodeappend", str(folder / "k"), str(records), work="encode and append")
            if theirs is not None:
                turns["kafka encode"] = theirs
            best |= in_turn(turns, 2, warm=False)
        us = {key: best[key] / count * 1e6 for key in ("bare", "one", "many", "kafka") if key in best}
        kafka, bare, who = us.get("kafka"), us["bare"], "Kafka appendAsLeader"
        write = "the write itself; then the CRC, the walk over records and a copy"
        rows += [
            Row(f"append of a 16 KiB batch, {name}", us["one"], "us", who, kafka, 1.1, write + "; 4 us of Python"),
            Row(f"append of a 16 KiB batch, {name}", us["one"], "us", "a bare write", bare, None, write),
            Row(f"append_many, a 16 KiB batch, {name}", us["many"], "us", who, kafka, 1.3, write),
            Row(f"append_many, a 16 KiB batch, {name}", us["many"], "us", "a bare write", bare, 0.6, write),
        ]
        columns = records / best["columns"] / 1e6
        slow = None if "kafka encode" not in best else records / best["kafka encode"] / 1e6
        rows.append(
            Row(f"append from columns, {name}", columns, "M records/s", "Kafka encode and append", slow, 1.5,
                "the write, the copy of values, the CRC")
        )  # fmt: skip
    return rows


def _from_columns(bench: Any, folder: Path, table: Any) -> Side:
    """Seconds of the appends alone, as Kafka's benchmark counts them: without opening, closing and deleting."""

    def side() -> float:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        log = pylogseg.open_log(folder / "t-0", message_timestamp_after_max_ms=2**63 - 1)
        began = bench.clock.now()
        for start in range(0, len(table), 1 << 17):
            log.append(table.slice(start, 1 << 17), batch_bytes=data.BATCH_BYTES)
        seconds: float = bench.clock.now() - began
        log.ownership.close_handles()
        return seconds

    return side


def _append_sides(bench: Any, folder: Path, templates: list[bytes], joined: bytes, rounds: int) -> dict[str, Side]:
    """Seconds of the appends alone, as Kafka's benchmark counts them: without opening, closing and deleting."""
    path = folder / "t-0"

    def bare() -> float:
        path.mkdir(exist_ok=True)
        descriptor, at = os.open(path / "bare", os.O_RDWR | os.O_CREAT | os.O_TRUNC), 0
        began = bench.clock.now()
        for _ in range(rounds):
            for batch in templates:
                at += os.pwrite(descriptor, batch, at)
        seconds: float = bench.clock.now() - began
        os.close(descriptor)
        return seconds

    def appended(work: Callable[[Log], None]) -> float:
        log = open_log(path, fresh=True)
        began = bench.clock.now()
        for _ in range(rounds):
            work(log)
        seconds: float = bench.clock.now() - began
        close(log)
        return seconds

    def one(log: Log) -> None:
        for batch in templates:
            log.append_as_leader(batch, 0)

    def many(log: Log) -> None:
        log.append_many(joined, 0).raise_first()

    return {"bare": bare, "one": lambda: appended(one), "many": lambda: appended(many)}


def recovery(bench: Any) -> list[Row]:
    """A segment without indexes, after a crash."""
    source = bench.log("none")
    rows: list[Row] = []
    for name, root in places(bench):
        with scratch(root) as folder:
            log = folder / "r" / "bench-0"
            log.mkdir(parents=True)
            shutil.copy(source.path, log / data.NAME)
            data.reload(log / data.NAME)

            def recover(log: Path = log) -> None:
                for other in log.iterdir():
                    if other.suffix != ".log":
                        other.unlink()
                close(open_log(log, clean=False))

            best = bench.against_kafka(
                {"ours": recover}, bench.kafka_side("recover", str(folder / "r"), work="recover")
            )
        rate = source.size_bytes / 1e9
        kafka = rate / best["kafka"] if "kafka" in best else None
        rows.append(
            Row(f"recovery without indexes, {name}", rate / best["ours"], "GB/s", "Kafka", kafka, 2.5,
                "page faults of the map and the CRC's read of memory")
        )  # fmt: skip
    return rows


def opening(bench: Any) -> list[Row]:
    """A clean log of a thousand segments."""
    rows: list[Row] = []
    for name, root in places(bench):
        with scratch(root) as folder:
            log = open_log(folder / "bench-0", segment_bytes=1 << 14)
            batch = bytes(encode([(1_700_000_000_000, None, bytes(15_000))]))
            log.append_many(batch * _SEGMENTS, 0).raise_first()
            count = len(log.segments)
            close(log)
            ours = lambda folder=folder: open_log(folder / "bench-0").close_handles()  # noqa: E731
            best = bench.against_kafka({"ours": ours}, bench.kafka_side("open", str(folder), work="open"))
        mine = best["ours"] / count * 1e3
        theirs = best["kafka"] / count * 1e3 if "kafka" in best else None
        work = f"open of a clean log of {count} segments, a segment, {name}"
        rows.append(Row(work, mine, "ms", "", None, 1, "a look at each file"))
        rows.append(Row(work, mine, "ms", "Kafka", theirs, None, "a look at each file"))
    return rows


def lookups(bench: Any) -> list[Row]:
    """Reads at random offsets, by the call and in bulk, and look-ups by time; warm page cache."""
    source = bench.log("none")
    recovered(source.path.parent)
    log = open_log(source.path.parent)
    random, end = np.random.default_rng(3), log.log_end_offset
    offsets = (random.random(100_000) * end).astype(np.int64)
    calls = offsets[:30_000].tolist()
    times = random.integers(1_700_000_000_000, 1_700_000_000_600, 5_000).tolist()
    ours: dict[str, Callable[[], object]] = {
        "place": lambda: done(log.fetch(offset, 1, placed=True) for offset in calls),
        "read": lambda: done(log.fetch(offset, 1) for offset in calls),
        "bulk": lambda: log.locate_many(offsets),
        "time": lambda: done(log.offset_for_time(timestamp) for timestamp in times),
    }
    best = bench.against_kafka(ours, None)
    close(log)
    theirs: dict[str, float] = {}
    reads = bench.kafka_reads
    for work, count in (("read at", reads), ("bytes at", reads), ("look-up by time", reads // 3)):
        side = bench.kafka_side("lookup", str(source.folder), str(reads), work=work)
        if side is not None:
            theirs[work] = bench.best_of(side) / count * 1e6
    place, read = best["place"] / len(calls) * 1e6, best["read"] / len(calls) * 1e6
    bulk = best["bulk"] / len(offsets) * 1e6
    time = best["time"] / len(times) * 1e6
    return [
        # Kafka's read has the place of the batch: who gets the records reads, or sends, its bytes.
        Row("place of a random offset, a call", place, "us", "Kafka's read", theirs.get("read at"), 1,
            "two reads of a header, 1.5 us; the call, 1.2 us"),
        Row("batch at a random offset, a call", read, "us", "Kafka's read, with bytes", theirs.get("bytes at"), 1,
            "a read of 16 KiB, 2.6 us; the call and the memory of its bytes"),
        Row("places of random offsets, in bulk", bulk, "us", "Kafka's read", theirs.get("read at"), 3,
            "a read of a header for each batch"),
        Row("look-up by time", time, "us", "Kafka", theirs.get("look-up by time"), 1.5,
            "a read of 16 KiB, the walk over records"),
    ]  # fmt: skip


def growth(bench: Any) -> list[Row]:
    """Memory of a process that appends."""
    if not Path("/proc/self/status").exists():
        return []
    templates = b"".join(sent(bench.log("none").path))
    with scratch(places(bench)[0][1]) as folder:
        log = open_log(folder / "t-0", fresh=True)
        for _ in range(4):
            log.append_many(templates, 0)
        early = anonymous_mb()
        for _ in range(60):
            log.append_many(templates, 0)
        grown = max(0.0, anonymous_mb() - early)
        size = log.segments.size / 1e6
        close(log)
    work = f"growth of own memory while a log grows to {size:.0f} MB"
    return [Row(work, grown, "MB", "", None, 2, "nothing is kept of what is written")]
