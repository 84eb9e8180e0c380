"""Logs as a table of an engine: the scan on one core and on all, pruned queries, duckdb beside a Parquet file.

The log has two partitions in segments of a million records: keys out of 100,000, values of 100 bytes that differ. The
Parquet file has the same rows as duckdb writes them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import data
import halves
import many_segments
import numpy as np
import pyarrow as pa
from halves import drained
from measure import Clock, in_turn
from rows import Row
from sections import Bench, mapped, rate

import pylogseg
from pylogseg import encode, scan
from pylogseg.format.files.index import encode_offset_index, encode_time_index
from pylogseg.reading.column_names import DEFAULT_COLUMNS

_KEYS, _PARTITIONS, _OF_A_SEGMENT, _SEGMENTS = 100_000, 2, 1_000_000, 10_000
_TEXT = np.frombuffer(b'{"name":"page_view","country":"DE","device":"mobile"', np.uint8)[:50]
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_GROUPS = "select count(*), max(n) from (select key, count(*) as n from {} group by key)"
_FILTER = "select count(*) from {} where value::varchar like '%abcd%'"
_COUNT = "select count(*) from {}"


def segment(first: int, count: int, random: np.random.Generator) -> pa.Table:
    """Records as columns."""
    value = np.empty((count, 100), np.uint8)
    value[:, :50], value[:, 50:] = _TEXT, _DIGITS[random.integers(0, 16, (count, 50), dtype=np.uint8)]
    ends = np.arange(count + 1, dtype=np.int32) * 100
    offset = np.arange(first, first + count)
    return pa.table(
        {
            "key": pa.array([b"user-%06d" % key for key in random.integers(0, _KEYS, count)], pa.binary()),
            "value": pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(value)]),
            "offset": offset,
            "timestamp": pa.array((1_700_000_000_000 + offset) * 1000, pa.timestamp("us", "UTC")),
        }
    )


def written(folder: Path, records: int) -> Path:
    """The log, with the indexes that a broker would write; made once for each number of records."""
    folder = folder / f"keyed-{records}"
    if folder.exists():
        return folder
    random, unfinished = np.random.default_rng(11), folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    for partition in range(_PARTITIONS):
        inside = unfinished / f"orders-{partition}"
        inside.mkdir(parents=True)
        end = records // _PARTITIONS
        for first in range(0, end, _OF_A_SEGMENT):
            log = encode(segment(first, min(_OF_A_SEGMENT, end - first), random))
            batches = scan(log, crc=False).batches
            times = encode_time_index(first, batches.max_timestamp[1:], batches.last_offset[1:])
            stem = inside / f"{first:020d}"
            stem.with_suffix(".log").write_bytes(log)
            stem.with_suffix(".index").write_bytes(
                encode_offset_index(first, batches.last_offset[1:], batches.position[1:])
            )
            stem.with_suffix(".timeindex").write_bytes(times)
    os.sync()
    unfinished.rename(folder)
    return folder


class Engine:
    """A connection of duckdb that sees the log and the Parquet file; it has a thread for each core it may use."""

    def __init__(self, log: Path) -> None:
        import duckdb

        # No variable of this module is a table.
        settings: dict[str, Any] = {"threads": len(os.sched_getaffinity(0)), "python_enable_replacements": False}
        self.connection = duckdb.connect(config=settings)
        self.connection.register("logs", pylogseg.dataset(log))
        self.connection.register("mapped", pylogseg.dataset(mapped(log)))
        parquet = log.with_suffix(".parquet")
        if not parquet.exists():
            names = ", ".join(f'"{name}"' for name in DEFAULT_COLUMNS)
            options = "format parquet, compression snappy"
            self.connection.execute(f"copy (select {names} from logs) to '{parquet}.part' ({options})")
            os.rename(f"{parquet}.part", parquet)
        data.reload(parquet)
        self.connection.execute(f"create view parquet as select * from '{parquet}'")

    def asks(self, query: str) -> Callable[[], object]:
        """A function that asks a query."""
        return lambda: self.connection.sql(query).fetchall()


@contextlib.contextmanager
def all_cores(cores: set[int]) -> Iterator[None]:
    """Let this thread, and those that it starts, run on all cores; back to its own at the end."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def dataset(bench: Bench) -> list[Row]:
    """All of the above."""
    log = written(bench.folder, bench.records)
    for path in log.rglob("*.log"):
        data.reload(path)
    records, wall = pylogseg.dataset(log).count_rows(), Clock("wall")
    sides = {
        "stream": bench.timed(lambda: sum(len(batch) for batch in pylogseg.read_arrow(log))),
        "dataset": bench.timed(lambda: drained(log, use_threads=False)),
    }
    one = in_turn(sides, bench.rounds)
    table = [
        Row("dataset, one core: Spark's 8 columns", rate(records, one["dataset"]), "M records/s", "read_arrow",
            rate(records, one["stream"]), 0.98, "as read_arrow"),
        *_share(bench, log, records),
    ]  # fmt: skip
    with all_cores(bench.cores):
        engine, count = Engine(log), len(os.sched_getaffinity(0))
        scans = {
            "one": wall.timed(lambda: drained(log, use_threads=False)),
            "all": wall.timed(lambda: drained(log)),
        }
        best = in_turn(scans, bench.rounds)
        table.append(
            Row(f"dataset, {count} cores (wall)", rate(records, best["all"]), "M records/s", "one core",
                rate(records, best["one"]), 1.75 if count == 2 else None,
                "Python's lock; memory that one thread fills and another frees")
        )  # fmt: skip
        apart = halves.seconds(log, _PARTITIONS, bench.rounds)
        table.append(
            Row(f"{_PARTITIONS} processes, a partition each (wall)", rate(records, apart), "M records/s", "one core",
                rate(records, best["one"]), None, "the processor: they share nothing")
        )  # fmt: skip
        for text, query, bar, mapped_bar, bound in (
            (
                "group by key",
                _GROUPS,
                0.5,
                0.6,
                "all bytes of the log are read and checked, for its keys; duckdb's hash table",
            ),
            ("filter on the text of value", _FILTER, 0.5, 0.5, "duckdb's cast and comparison"),
            (
                "count(*)",
                _COUNT,
                None,
                0.3,
                "a system call or a page fault for the header of each batch; a footer has the count",
            ),
        ):
            asked = {name: wall.timed(engine.asks(query.format(name))) for name in ("logs", "mapped", "parquet")}
            best = in_turn(asked, max(3, bench.rounds // 2))
            theirs = rate(records, best["parquet"])
            table += [
                Row(f"duckdb, {text}{how}, {count} cores (wall)", rate(records, best[name]), "M records/s",
                    "its Parquet (snappy)", theirs, its_bar, bound)
                for name, how, its_bar in (("logs", "", bar), ("mapped", ", memory_map", mapped_bar))
            ]  # fmt: skip
    return [*table, _first_rows(bench)]


def _share(bench: Bench, log: Path, records: int) -> list[Row]:
    """A query of one percent of the records, beside the same query over a stream."""
    first = records // _PARTITIONS // 4
    engine = Engine(log)
    query = (
        'select count(*), max(octet_length(value)) from {} where "partition" = 1 and "offset" >= '
        f'{first} and "offset" < {first + records // 100}'
    )

    def over_stream() -> None:
        engine.connection.register("stream", pylogseg.read_arrow(log))
        engine.asks(query.format("stream"))()

    best = in_turn(
        {"part": bench.timed(engine.asks(query.format("logs"))), "stream": bench.timed(over_stream)}, bench.rounds
    )
    return [
        Row("duckdb, a query of 1 % of the offsets, one core", 1e3 * best["part"], "ms", "the same over a stream",
            1e3 * best["stream"], 33, "page faults of fresh memory")
    ]  # fmt: skip


def _first_rows(bench: Bench) -> Row:
    """`pylogseg sql` on very many segments, from the start of the process to its end."""
    folder = bench.folder / f"segments-{_SEGMENTS}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        many_segments.write(unfinished, _SEGMENTS)
        os.sync()
        unfinished.rename(folder)
    command = [sys.executable, "-m", "pylogseg", "sql", str(folder), "select * from orders limit 10"]
    # Compiled files of modules are kept, as an installed package has them.
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bench.folder / "compiled")}
    best = in_turn({"sql": lambda: bench.clock.of_process(command, **compiled)}, bench.rounds)
    return Row(
        f"sql 'limit 10' of {_SEGMENTS:,} segments",
        1e3 * best["sql"],
        "ms",
        "",
        None,
        300,
        "import numpy, pyarrow.dataset, duckdb: see starts; then the list",
    )
