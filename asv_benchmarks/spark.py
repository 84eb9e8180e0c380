"""The ratios of the Spark sources: beside Parquet files of the same rows, in turn, in one session.

    python asv_benchmarks/spark.py [--records N] [--rounds N] [--values repeated] [--clock wall] [--markdown]
        [--data DIR]

Four partitions of 100-byte values with 16-byte keys, read into Spark's sink that does nothing; the best of several
rounds. No two values are equal: of values that repeat Parquet keeps a dictionary, whatever codec it is told to use, and
then reads a third of the bytes; with ``--values repeated`` there are 4096 of them. The session has the settings that
docs/spark.md advises; both sides run in it. Times are of processors: the JVM, its Python workers and this process
together, so that they can be compared on a machine that does other things too; with ``--clock wall`` they are what a
user waits. Java 17 and pyspark are needed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

import data
import numpy as np
import pyarrow as pa
import rows as table_rows
from helpers.spark_sessions import small_session
from measure import Clock, in_turn
from rows import Row

import pylogseg
import pylogseg.spark
from pylogseg.env.filesystem import MappedReader, PositionedFile
from pylogseg.spark.options import parse
from pylogseg.spark.plan import plan
from pylogseg.spark.task import read_task

PARTITIONS = 4
_APPEND = 100_000
_SMALL_SEGMENTS = 10_000


def parser(what: str | None, records: int) -> argparse.ArgumentParser:
    """The options that all of these programs have."""
    made = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--records", type=int, default=records)
    made.add_argument("--rounds", type=int, default=4)
    made.add_argument("--clock", choices=["cpu", "wall"], default="cpu")
    made.add_argument("--markdown", action="store_true", help="for a page")
    made.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "pylogseg-spark-benchmark")
    return made


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    made = parser(__doc__, records=8_000_000)
    made.add_argument("--values", choices=["distinct", "repeated"], default="distinct")
    return made.parse_args()


def session(scratch: Path, more: Mapping[str, str] | None = None) -> Any:
    """A session of two cores with the settings of docs/spark.md, "Speed", and some more."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.extraJavaOptions": (
            "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
        ),
        **(more or {}),
    }
    return small_session(SparkSession.builder.master("local[2]").appName("pylogseg benchmark"), scratch, settings)


def prepare(folder: Path, records: int, values: str = "distinct") -> Path:
    """The log directory, made anew unless it is there with as many records."""
    root = folder / f"{values}-{records}"
    if not root.is_dir():
        scratch = folder / "making"
        shutil.rmtree(scratch, ignore_errors=True)
        for partition in range(PARTITIONS):
            _write(scratch / f"bench-{partition}", records // PARTITIONS, values)
        scratch.rename(root)
    return root


def _write(folder: Path, records: int, values: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    some = pa.array(data.values(4096))
    with pylogseg.open_log(folder, segment_bytes=64 << 20, retention_ms=-1) as log:
        for first in range(0, records, _APPEND):
            numbers = np.arange(first, min(first + _APPEND, records))
            keys = pa.array([b"%016d" % number for number in numbers])
            made = (
                some.take(numbers % len(some)) if values == "repeated" else pa.array(data.values(len(numbers), first))
            )
            columns = {"key": keys, "value": made, "timestamp": pa.array(numbers).cast(pa.timestamp("ms", "UTC"))}
            log.append(pa.table(columns), batch_bytes=data.BATCH_BYTES)


class Processors:
    """A clock: seconds of processors that this process and all below it have taken."""

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._total = 0.0

    def __call__(self) -> float:
        """The time by now. What a process took that ended without its parent's asking is not given back."""
        there = _seconds_below()
        self._total += sum(max(0.0, seconds - self._seen.get(pid, 0.0)) for pid, seconds in there.items())
        self._seen = there
        return self._total


def _seconds_below() -> dict[int, float]:
    """Seconds of this process and each below it, with the children that these have asked for their end."""
    found: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        found[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"))
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in ours} - ours:
        ours |= more
    return {pid: found[pid][1] for pid in ours if pid in found}


def clock(name: str) -> Callable[[], float]:
    """The clock that was asked for."""
    return Processors() if name == "cpu" else time.perf_counter


def scans(spark: Any, root: Path, folder: Path, asked: argparse.Namespace) -> Iterator[Row]:
    """Whole scans, and three columns of fixed width."""
    parquet = folder / "parquet"
    whole = pylogseg.spark.read_segments(spark, root)
    whole.write.mode("overwrite").option("compression", "none").parquet(str(parquet))
    few = ["partition", "offset", "timestamp"]
    ways = {
        "parquet": lambda: spark.read.parquet(str(parquet)),
        "source": lambda: spark.read.format("pylogseg").load(str(root)),
        "fast": lambda: pylogseg.spark.read_segments(spark, root),
        "few": lambda: pylogseg.spark.read_segments(spark, root, few),
    }
    now = clock(asked.clock)

    def side(make: Callable[[], Any]) -> Callable[[], float]:
        def timed() -> float:
            began = now()
            make().write.format("noop").mode("overwrite").save()
            return now() - began

        return timed

    best = in_turn({name: side(make) for name, make in ways.items()}, asked.rounds)
    rate = {name: asked.records / seconds / 1e6 for name, seconds in best.items()}
    unit, bound = "M rows/s", "the way through the socket to the JVM"
    yield Row(
        'format("pylogseg"), all columns', rate["source"], unit, "spark.read.parquet", rate["parquet"], 0.5, bound
    )
    yield Row("read_segments, all columns", rate["fast"], unit, "spark.read.parquet", rate["parquet"], 0.75, bound)
    yield Row("read_segments, three columns", rate["few"], unit, "all columns", rate["fast"], 1.5, "the decoder")


def window(root: Path, records: int) -> Iterator[Row]:
    """Bytes that tasks read for a hundredth of the time."""
    each = records // PARTITIONS
    options = parse({"startingTimestamp": each // 2, "endingTimestamp": each // 2 + each // 100})
    with counted() as read:
        found = sum(len(batch) for task in plan(str(root), options) for batch in read_task(task, options, ["value"]))
    assert found == PARTITIONS * (each // 100)
    size = sum(path.stat().st_size for path in root.rglob("*.log"))
    yield Row("a time window of 1 % of the records, bytes read", sum(read) / 2**20, "MB", "2 % of the data",
              0.02 * size / 2**20, 1, "windows of the reader, index entries")  # fmt: skip


class counted:
    """Collects the sizes of all reads of local files."""

    def __enter__(self) -> list[int]:
        self._own = {kind: kind.read for kind in (MappedReader, PositionedFile)}
        sizes: list[int] = []
        for kind, read in self._own.items():

            def noted(file: Any, position: int, size: int, read: Any = read) -> Any:
                found = read(file, position, size)
                sizes.append(len(found))
                return found

            kind.read = noted  # type: ignore[method-assign]
        return sizes

    def __exit__(self, *error: object) -> None:
        for kind, read in self._own.items():
            kind.read = read  # type: ignore[method-assign]


def planning(folder: Path, asked: argparse.Namespace) -> Iterator[Row]:
    """The driver's work for many small segments."""
    root = folder / "small"
    if not root.is_dir():
        scratch = folder / "making"
        shutil.rmtree(scratch, ignore_errors=True)
        _small(scratch)
        scratch.rename(root)
    best = in_turn({"plan": Clock(asked.clock).timed(lambda: plan(str(root)))}, 3)
    yield Row(f"a plan of {_SMALL_SEGMENTS} segments", best["plan"] * 1e3, "ms", "", None, 2000, "names of files")


def _small(root: Path) -> None:
    """A hundred partitions of a hundred segments, with the files that a broker has beside each."""
    batch = bytes(pylogseg.encode(data.table(10), base_offset=0))
    for number in range(_SMALL_SEGMENTS):
        partition, base = number % 100, number // 100 * 10
        folder = root / f"small-{partition}"
        folder.mkdir(parents=True, exist_ok=True)
        stem = folder / f"{base:020d}"
        stem.with_suffix(".log").write_bytes(base.to_bytes(8, "big") + batch[8:])
        for suffix in (".index", ".timeindex", ".snapshot"):
            stem.with_suffix(suffix).touch()


def memory(spark: Any, root: Path) -> Iterator[Row]:
    """What a worker has of its own at most while it reads, in small ranges and in large ones."""

    def own(batch: Any) -> Any:
        text = Path("/proc/self/status").read_text()
        size = int(text.partition("RssAnon:")[2].split()[0])
        return pa.record_batch({"kilobytes": pa.array([size], pa.int64())})

    most = {}
    for ranges in ("8m", "1g"):
        sizes = pylogseg.spark.read_segments(spark, root, batch_fn=own, schema="kilobytes bigint", rangeBytes=ranges)
        most[ranges] = sizes.selectExpr("max(kilobytes)").first()[0] / 1024
    yield Row("own memory of a worker, tasks of whole segments", most["1g"], "MB", "tasks of 8 MB", most["8m"], 0.7,
              "windows of 8 MB")  # fmt: skip


def main() -> None:
    """Measure, and print the table."""
    asked = arguments()
    asked.data.mkdir(parents=True, exist_ok=True)
    root = prepare(asked.data, asked.records, asked.values)
    found = [*planning(asked.data, asked), *window(root, asked.records)]
    spark = session(asked.data / "scratch")
    try:
        found += [*scans(spark, root, asked.data, asked), *memory(spark, root)]
    finally:
        spark.stop()
    print("\n".join(table_rows.lines(found, markdown=asked.markdown)))
    barred = [row for row in found if row.met is not None]
    print(f"\n{sum(bool(row.met) for row in barred)} of {len(barred)} bars met")


if __name__ == "__main__":
    main()
