"""Executors and drivers that die in mid-job, and tasks that are tried again: what is left is one set of files.

    python tests/soak spark-faults [--records N] [--keep]

A cluster of two executors on this machine (`local-cluster[2,1,1024]`) does each job while something dies:

1. `export`, while an executor is killed: every record once, nothing half beside the files;
2. `df.write.format("pylogseg")`, while an executor is killed: every record once, in order;
3. the same with a task that fails in the middle and is tried again: the two attempts leave one partition;
4. a driver that is killed in mid-write: nothing is in place, the next write works, what was left goes a day later;
5. `verify` over a directory in which a segment is removed meanwhile: it says so, and ends;
6. a scan whose segments retention removes: an error that names the offsets, or all other rows, as the option says;
7. a stream under which a byte changes: an error that names the place, and nothing lost or doubled once the byte is
   as it was; with `onCorrupt=skip` all other records;
8. `restore_tier`, while an executor is killed: the bytes of the command on one machine, nothing beside them;
9. a write with `spark.speculation` on two hosts, in which a task stalls: its second copy counts, the first leaves
   nothing.

A line for each; exit code 0 if all is well. Takes some minutes on two free cores.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from helpers.spark_sessions import small_session
from helpers.tiers import Uploader

import pylogseg
import pylogseg.spark
from pylogseg.spark import jobs
from pylogseg.spark._compat import cause_of
from pylogseg.tables.short_forms import read_arrow
from pylogseg.transfer.staging import FORGOTTEN_MS, finish_commits
from soak import itself

SOURCE = os.pathsep.join(path for path in sys.path if path)


def session(scratch: Path, master: str = "local-cluster[2,1,1024]", **more: str) -> Any:
    """Two executors of one core each, which may be lost."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.log.level": "OFF",
        "spark.executorEnv.PYTHONPATH": SOURCE,
        "spark.sql.adaptive.enabled": "false",
        "spark.task.maxFailures": "8",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return small_session(SparkSession.builder.master(master).appName("pylogseg faults"), scratch, settings)


@contextlib.contextmanager
def two_hosts(scratch: Path) -> Iterator[str]:
    """A standalone cluster of two workers under two addresses of the loopback: a host gets no second copy of a task."""
    import pyspark

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"spark://127.0.0.1:{free.getsockname()[1]}"
    program = [Path(pyspark.__file__).parent / "bin" / "spark-class"]
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", url.rpartition(":")[2]]
    worker = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "2g", "--work-dir", scratch, url]
    commands = [master, *([*worker, "--host", host] for host in ("127.0.0.1", "127.0.0.2"))]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    running = [
        subprocess.Popen(
            [*program, *command, "--webui-port", "0"],
            env={**environment, "SPARK_DAEMON_MEMORY": "256m"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for command in commands
    ]  # fmt: skip
    try:
        yield url
    finally:
        for process in running:
            process.terminate()
            process.wait(30)


def fill(root: Path, records: int) -> None:
    """Four partitions, each of several segments."""
    for partition in range(4):
        with pylogseg.open_log(root / f"orders-{partition}", segment_bytes=4 << 20, retention_ms=-1) as log:
            for first in range(0, records // 4, 50_000):
                numbers = range(first, min(first + 50_000, records // 4))
                columns = {
                    "key": pa.array([b"%016d" % n for n in numbers]),
                    "value": pa.array([b"%0100d" % n for n in numbers]),
                    "timestamp": pa.array([86_400 * n for n in numbers], pa.timestamp("ms", "UTC")),
                }
                log.append(pa.table(columns), batch_bytes=16384)


def family(pid: int) -> dict[int, str]:
    """Process ids and command lines of a process and all below it."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, encoding="utf-8", check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    found = {pid}
    while more := {int(row[0]) for row in rows if int(row[1]) in found} - found:
        found |= more
    return {int(row[0]): row[2] for row in rows if int(row[0]) in found}


def executors() -> list[int]:
    """Process ids of the executors of this process's cluster."""
    return [pid for pid, words in family(os.getpid()).items() if "ExecutorBackend" in words and "/java" in words]


def killing(when: Callable[[], bool]) -> threading.Thread:
    """Kill an executor as soon as something is so."""

    def work() -> None:
        end = time.monotonic() + 120
        while not when() and time.monotonic() < end:
            time.sleep(0.02)
        victims = executors()
        os.kill(victims[0], signal.SIGKILL)
        print(f"   killed executor {victims[0]} of {victims}")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def exported_while_killed(spark: Any, root: Path, scratch: Path) -> None:
    out = scratch / "table"
    thread = killing(lambda: any(out.rglob("*.tmp")))
    jobs.export(spark, root, str(out))
    thread.join()
    table = ds.dataset(out, format="parquet", partitioning="hive").to_table(columns=["partition", "offset", "value"])
    expected = read_arrow(str(root), columns=["partition", "offset", "value"]).read_all()
    order = [("partition", "ascending"), ("offset", "ascending")]
    assert table.sort_by(order).equals(expected.sort_by(order)), "the table is not what the log is"
    assert not list(out.rglob("*.tmp")), "something half was left"
    assert {row.state for row in jobs.export(spark, root, str(out)).collect()} == {"unchanged"}


def restored_while_killed(spark: Any, root: Path, scratch: Path) -> None:
    by_spark, alone = scratch / "by-spark", scratch / "alone"
    for path in (by_spark, alone):
        path.mkdir()
    uploader = Uploader(scratch / "tier", 256 << 10, is_compressed=True)
    for folder in sorted(root.glob("orders-*")):
        uploader.partition(folder)
    url = f"aiven+file://{scratch / 'tier'}"
    thread = killing(lambda: any(by_spark.glob("*-delete/*/*/*.log")))
    rows = jobs.restore_tier(spark, url, str(by_spark)).collect()
    thread.join()
    assert {row.state for row in rows} == {"done"}, rows
    pylogseg.offline.restore(url, alone)
    files = [{str(f.relative_to(p)): f.read_bytes() for f in p.rglob("*") if f.is_file()} for p in (by_spark, alone)]
    assert files[0] == files[1], "what was restored is not what the local command restores"


def slowly(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows, each batch after a while."""
    for batch in rows:
        time.sleep(0.1)
        yield batch


def written_while_killed(spark: Any, root: Path, scratch: Path) -> None:
    target = scratch / "written"
    rows = ordered(spark, root)
    thread = killing(lambda: any(target.glob("*-delete/*/*/*.log")))
    rows.mapInArrow(slowly, rows.schema).write.format("pylogseg").mode("append").save(str(target))
    thread.join()
    same(root, target)


def ordered(spark: Any, root: Path) -> Any:
    rows = pylogseg.spark.read(spark, root)
    return rows.repartition(4, "topic", "partition").sortWithinPartitions("topic", "partition", "offset")


def same(root: Path, target: Path) -> None:
    columns = ["key", "value", "topic", "partition", "offset", "timestamp"]
    left, right = (read_arrow(str(path), columns=columns).read_all() for path in (root, target))
    assert left.equals(right), "what was written is not what was read"
    assert not list(target.glob("*-delete")), "a staging folder was left"


def written_twice(spark: Any, root: Path, scratch: Path) -> None:
    target, seen = scratch / "twice", scratch / "attempts"
    seen.mkdir()
    rows = ordered(spark, root)

    def fails_once(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        mark = seen / str(context.partitionId())
        first = not mark.exists()
        (seen / f"{context.partitionId()}-{context.attemptNumber()}").touch()
        mark.touch()
        for i, table in enumerate(tables):
            if first and i == 1:
                raise RuntimeError("the first attempt ends here")
            yield table

    rows.mapInArrow(fails_once, rows.schema).write.format("pylogseg").mode("append").save(str(target))
    attempts = len(list(seen.glob("*-*")))
    print(f"   {attempts} attempts at 4 tasks")
    assert attempts > 4, "no task ran twice"
    same(root, target)


def speculated(root: Path, scratch: Path) -> None:
    target, seen = scratch / "speculated", scratch / "copies"
    seen.mkdir()

    def stalls_once(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        (seen / f"{context.partitionId()}-{context.attemptNumber()}").touch()
        for i, table in enumerate(tables):
            yield table
            if i == 0 and context.attemptNumber() == 0:
                with contextlib.suppress(FileExistsError):  # the first task that has rows
                    (seen / "stalled").touch(exist_ok=False)
                    time.sleep(300)

    with two_hosts(scratch / "workers") as master:
        spark = session(
            scratch, master, spark_speculation="true", spark_speculation_quantile="0.5",
            spark_speculation_interval="100ms", spark_speculation_minTaskRuntime="1s", spark_executor_memory="1g",
        )  # fmt: skip
        try:
            pylogseg.spark.register(spark)
            rows = ordered(spark, root)
            started = time.perf_counter()
            rows.mapInArrow(stalls_once, rows.schema).write.format("pylogseg").mode("append").save(str(target))
        finally:
            spark.stop()
    attempts = len(list(seen.glob("*-*")))
    print(f"   {attempts} attempts at 4 tasks")
    assert (seen / "stalled").exists(), "no task stalled"
    assert attempts > 4, "no task had a second copy"
    assert time.perf_counter() - started < 300, "the stalled copy was waited for"
    same(root, target)


def driver_killed(root: Path, scratch: Path) -> None:
    target = scratch / "abandoned"
    command = [*itself(__file__), "--write", str(root), str(target), "--scratch", str(scratch / "other")]
    driver = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": SOURCE})
    end = time.monotonic() + 200
    while not list(target.glob("*-delete/*/*/*.log")) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in family(driver.pid):  # its JVM and executors too
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver.wait()
    assert not list(target.glob("orders-*")), "a write that was cut short is in place"
    assert list(target.glob("*-delete")), "nothing was begun"
    print(f"   killed driver {driver.pid}")


def write_again(spark: Any, root: Path, scratch: Path) -> None:
    target = scratch / "abandoned"
    ordered(spark, root).write.format("pylogseg").mode("append").save(str(target))
    assert list(target.glob("*-delete")), "what another write has begun is not ours to remove yet"
    later = time.time_ns() // 1_000_000 + FORGOTTEN_MS + 60_000
    finish_commits(str(target), now_ms=lambda: later)
    same(root, target)


def verified_while_deleted(spark: Any, root: Path, scratch: Path) -> None:
    copy = shutil.copytree(root, scratch / "shrinking")
    victim = sorted((copy / "orders-1").glob("*.log"))[0]

    class Vanishing(threading.Thread):
        def run(self) -> None:
            time.sleep(0.05)
            victim.unlink()

    thread = Vanishing()
    thread.start()
    rows = jobs.verify(spark, copy).collect()
    thread.join()
    print(f"   {len(rows)} findings")
    assert all(row.path.startswith(str(copy / "orders-1")) for row in rows), "a finding elsewhere"


def scanned_while_deleted(spark: Any, root: Path, scratch: Path) -> None:
    strict = lenient = None
    for lossy in (False, True):
        copy, mark = scratch / f"scan-{lossy}", scratch / f"begun-{lossy}"
        shutil.copytree(root, copy)
        *sealed, active = sorted((copy / "orders-3").glob("*.log"))

        def slow(batch: pa.RecordBatch, mark: Path = mark) -> pa.RecordBatch:
            mark.touch()
            time.sleep(0.05)
            return batch

        rows = pylogseg.spark.read_segments(
            spark, copy, ["partition", "offset"], batch_fn=slow, rangeBytes="4m", failOnDataLoss=not lossy
        )
        with once(mark.exists, lambda sealed=sealed: [remove(path) for path in sealed]):
            try:
                found = sorted(map(tuple, rows.collect()))
            except Exception as error:
                strict = cause_of(error)
            else:
                lenient = found
    assert strict is not None, "rows were left out in silence"
    print(f"   {strict[0]}: {strict[1]}")
    assert "of orders-3 are gone" in strict[1], strict
    per_partition = pylogseg.read_arrow(root, "orders", 0, columns=["offset"]).read_all().num_rows
    left = [(3, offset) for offset in range(int(active.stem), per_partition)]
    others = [(number, offset) for number in range(3) for offset in range(per_partition)]
    assert lenient == others + left, "the rows that are left are not all there, each once"


@contextlib.contextmanager
def once(when: Callable[[], bool], work: Callable[[], object]) -> Iterator[None]:
    """Do something as soon as something is so, beside what runs inside; that it was done is checked."""

    def wait() -> None:
        end = time.monotonic() + 120
        while not when():
            if time.monotonic() > end:
                return
            time.sleep(0.005)
        work()
        done.set()

    done = threading.Event()
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield
    thread.join()
    assert done.is_set(), "nothing happened meanwhile"


def remove(log: Path) -> None:
    """What retention does with a segment in the end."""
    for path in log.parent.glob(f"{log.stem}.*"):
        path.unlink()


def flip(log: Path) -> None:
    """Change a byte in the middle of a segment, or change it back."""
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    other = log.with_suffix(".new")
    other.write_bytes(data)
    other.rename(log)


def streamed_while_damaged(spark: Any, root: Path, scratch: Path) -> None:
    expected = offsets(read_arrow(str(root), columns=["partition", "offset"]).read_all())
    for choice in ("raise", "skip"):
        home = scratch / f"stream-{choice}"
        shutil.copytree(root, home / "data")
        victim = sorted((home / "data" / "orders-2").glob("*.log"))[-2]
        with once((home / "checkpoint" / "commits" / "0").exists, lambda victim=victim: flip(victim)):
            error = streamed(spark, home, choice)
        if choice == "raise":
            assert error is not None, "damage was read"
            print(f"   {error[0]}: {error[1]}")
            assert victim.name in error[1], error
            flip(victim)
            assert streamed(spark, home, choice) is None
            assert offsets(ds.dataset(home / "table", format="parquet").to_table()) == expected
        else:
            assert error is None, error
            found = offsets(ds.dataset(home / "table", format="parquet").to_table())
            lost = sorted(set(expected) - set(found))
            print(f"   skipped {len(lost)} records of one batch")
            assert len(found) == len(set(found)), "records are doubled"
            assert lost == [(2, offset) for offset in range(lost[0][1], lost[-1][1] + 1)], "more than a batch is lost"
            assert 0 < len(lost) < 1000


def streamed(spark: Any, home: Path, choice: str) -> tuple[str, str] | None:
    """Run a query over all that is there; what ended it."""
    frame = spark.readStream.format("pylogseg").option("startingOffsets", "earliest").option("onCorrupt", choice)
    frame = frame.option("maxOffsetsPerTrigger", 60_000).load(str(home / "data")).select("partition", "offset")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(home / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(home / "table"))
    try:
        query.awaitTermination(300)
    except Exception as error:
        return cause_of(error) or ("", str(error)[:500])
    return None


def offsets(table: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def run_faults(root: Path, scratch: Path, only: str) -> None:
    """All faults, or those whose line matches; one cluster at a time."""
    again = "the next write works, and what the dead one left goes"
    if re.search(only, again):
        print("a driver is killed in mid-write", flush=True)
        driver_killed(root, scratch)
    spark = session(scratch)
    try:
        pylogseg.spark.register(spark)
        for name, fault in {
            again: write_again,
            "an executor is killed during export": exported_while_killed,
            "an executor is killed during a write": written_while_killed,
            "an executor is killed during a restore of a tier": restored_while_killed,
            "a task fails in the middle and is tried again": written_twice,
            "a segment vanishes during verify": verified_while_deleted,
            "retention removes segments under a scan": scanned_while_deleted,
            "a byte changes under a stream": streamed_while_damaged,
        }.items():
            if re.search(only, name):
                print(name, flush=True)
                fault(spark, root, scratch)
                print("   ok", flush=True)
    finally:
        spark.stop()
    if re.search(only, name := "a task stalls, and a second copy of it is faster"):
        print(name, flush=True)
        speculated(root, scratch)
        print("   ok", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--only", default="", metavar="REGEX", help="only those whose line matches")
    parser.add_argument("--keep", action="store_true", help="leave the files")
    parser.add_argument("--write", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    scratch = asked.scratch or Path(tempfile.mkdtemp(prefix="pylogseg-faults-"))
    if asked.write:
        spark = session(scratch)
        rows = ordered(spark, asked.write[0])
        rows.mapInArrow(slowly, rows.schema).write.format("pylogseg").mode("append").save(str(asked.write[1]))
        return
    try:
        fill(scratch / "data", asked.records)
        run_faults(scratch / "data", scratch, asked.only)
    finally:
        if not asked.keep:
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
