"""The ratios of the Spark jobs: beside plain Python, Spark's own Parquet writer and Kafka's cleaner, in turn.

    python asv_benchmarks/spark_jobs.py [--records N] [--rounds N] [--clock wall] [--markdown] [--data DIR]

The data and the clocks are those of `spark.py`; `verify` has the same partitions as a dozen topics, by links. Kafka's
cleaner works on one partition with one thread (only the thread that cleans is counted, its compiler and collector are
free), ours on four with two workers: the time of all processors is halved, and the copy that Spark's job makes of the
input counts as ours.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import pyarrow as pa
import rows as table_rows
import spark as readers
from jvm import Kafka
from measure import all_cores, in_turn
from rows import Row

import pylogseg
import pylogseg.spark
from pylogseg.inspect.verify.disk import Level, VerifySummary, verify_disk
from pylogseg.spark import jobs

_MAP_BYTES = 128 << 20
_TOPICS = 12


def timed(clock: str, work: Callable[[], object]) -> Callable[[], float]:
    """A side of a comparison: seconds of this process with all below it, or of the wall."""
    now = readers.clock(clock)

    def side() -> float:
        began = now()
        work()
        return now() - began

    return side


def checks(spark: Any, root: Path, asked: Any) -> Iterator[Row]:
    """`verify` by Spark and by threads, of a disk of a dozen topics; what a job costs by itself is in it."""
    root = _linked(root, _TOPICS)
    size = sum(path.stat().st_size for path in root.rglob("*.log"))

    def plain() -> None:
        assert not [
            r for r in verify_disk(pylogseg.open_dir(root), VerifySummary(Level.INDEXES), jobs=2) if r.is_damage
        ]

    def by_spark() -> None:
        assert jobs.verify(spark, root).filter("level = 'damage'").count() == 0

    best = in_turn({"spark": timed(asked.clock, by_spark), "plain": timed(asked.clock, plain)}, asked.rounds)
    rates = {name: _TOPICS * asked.records / seconds / 1e6 for name, seconds in best.items()}
    yield Row(f"verify, {size / 1e9:.1f} GB", rates["spark"], "Mrec/s", "plain Python, two threads", rates["plain"],
              0.7, "check sums, records")  # fmt: skip


def _linked(root: Path, topics: int) -> Path:
    """A log directory with the partitions of another one under so many names; the files are links."""
    found = root.with_name(f"{root.name}-as-{topics}")
    if not found.is_dir():
        making = root.with_name("making")
        shutil.rmtree(making, ignore_errors=True)
        for topic in range(topics):
            for partition in root.glob("bench-*"):
                shutil.copytree(
                    partition, making / partition.name.replace("bench", f"bench{topic}"), copy_function=os.link
                )
        making.rename(found)
    return found


def exports(spark: Any, root: Path, folder: Path, asked: Any) -> Iterator[Row]:
    """`export` and Spark's own write of the same rows, which come from Parquet files without compression."""
    source = folder / "rows"
    pylogseg.spark.read_segments(spark, root).write.mode("overwrite").option("compression", "none").parquet(str(source))

    def ours() -> None:
        shutil.rmtree(folder / "exported", ignore_errors=True)
        jobs.export(spark, root, str(folder / "exported"), compression="snappy")

    def theirs() -> None:
        frame = spark.read.parquet(str(source)).write.mode("overwrite").option("compression", "snappy")
        frame.parquet(str(folder / "written"))

    best = in_turn({"ours": timed(asked.clock, ours), "theirs": timed(asked.clock, theirs)}, asked.rounds)
    rates = {name: asked.records / seconds / 1e6 for name, seconds in best.items()}
    yield Row("export to Parquet", rates["ours"], "Mrec/s", "Spark's write of the same rows", rates["theirs"], 0.8,
              "the Parquet encoder")  # fmt: skip


def compactions(spark: Any, folder: Path, asked: Any) -> Iterator[Row]:
    """`compact` of four partitions, ten records a key, and Kafka's cleaner on one of them."""
    root, each = folder / f"keyed-{asked.records}", asked.records // readers.PARTITIONS
    if not root.is_dir():
        shutil.rmtree(folder / "making", ignore_errors=True)
        for partition in range(readers.PARTITIONS):
            _keyed(folder / "making" / f"bench-{partition}", each)
        (folder / "making").rename(root)
    out = folder / "compacted"

    def ours() -> None:
        shutil.rmtree(out, ignore_errors=True)
        done = jobs.compact(spark, str(root), str(out), force=True, include_active=True, map_bytes=_MAP_BYTES)
        assert {row.state for row in done.collect()} == {"done"}

    seconds = in_turn({"ours": timed(asked.clock, ours)}, asked.rounds)["ours"]
    cores = 2 if asked.clock == "cpu" else 1
    work = "compact, four partitions on two cores"
    missing = Kafka.missing()
    if missing:
        yield Row(f"{work} (no Kafka: {missing})", asked.records / (seconds / cores) / 1e6, "Mrec/s", "", None, None)
        return
    theirs = folder / "kafka"
    shutil.rmtree(theirs, ignore_errors=True)
    shutil.copytree(root / "bench-0", theirs / "bench-0")
    figures = Kafka(asked.clock, all_cores()).bench("clean", str(theirs), str(_MAP_BYTES))
    (clean,) = (figure for figure in figures if figure.work.startswith("clean"))
    shutil.rmtree(theirs)
    yield Row(work, asked.records / (seconds / cores) / 1e6, "Mrec/s", "Kafka's cleaner on one",
              clean.records / clean.seconds / 1e6, 5, "copies of the input, hashes of keys")  # fmt: skip


def _keyed(folder: Path, records: int) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with pylogseg.open_log(folder, segment_bytes=64 << 20, retention_ms=-1) as log:
        for first in range(0, records, 100_000):
            numbers = range(first, min(first + 100_000, records))
            keys = pa.array([b"%016d" % (n * 7919 % (records // 10)) for n in numbers])
            values = pa.array([os.urandom(50).hex().encode() for _ in numbers])
            log.append(pa.table({"key": keys, "value": values}), batch_bytes=16384)


def main() -> None:
    """Measure, and print the table."""
    asked = readers.arguments()
    asked.data.mkdir(parents=True, exist_ok=True)
    root = readers.prepare(asked.data, asked.records, asked.values)
    spark = readers.session(asked.data / "scratch")
    try:
        found = [
            *checks(spark, root, asked),
            *exports(spark, root, asked.data, asked),
            *compactions(spark, asked.data, asked),
        ]
    finally:
        spark.stop()
    print("\n".join(table_rows.lines(found, markdown=asked.markdown)))


if __name__ == "__main__":
    main()
