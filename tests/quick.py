"""The quick set: what an installed wheel must do anywhere, with nothing but its own dependencies.

    python tests/quick.py

Formats in every codec, a log, a recovery, four threads at once, a broker with a client (kafka-python, if it is there)
and SQL (duckdb, if it is there). It prints a line for each, and ends with 1 at the first that fails. Wheels are built
with it as their test.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pylogseg

RECORDS = [(1_700_000_000_000 + i, b"key-%d" % (i % 7), b"value %d" % i * 20) for i in range(2_000)]


def formats(_: Path) -> str:
    """Records in, bytes, the same records out."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        data = pylogseg.encode(RECORDS, compression=codec)
        columns, damage = pylogseg.decode(pylogseg.scan(data).batches, data)
        assert not damage
        found = [(int(columns.timestamp[i]), columns.key(i), columns.value(i)) for i in range(len(columns))]
        assert found == RECORDS, codec
    return "5 codecs"


def log(folder: Path) -> str:
    """Append, read and search."""
    with pylogseg.open_log(folder / "orders-0", segment_bytes=65_536) as orders:
        for begin in range(0, len(RECORDS), 100):
            orders.append(RECORDS[begin : begin + 100])
        assert [record.value for record in orders.read(offset=(1990, None))] == [
            value for _, _, value in RECORDS[1990:]
        ]
    assert pylogseg.read_arrow(folder, "orders").read_all().num_rows == len(RECORDS)
    (first,) = pylogseg.read(folder, "orders", timestamp=(RECORDS[1500][0], None), limit=1)
    assert first.offset == 1500
    return f"{len(list((folder / 'orders-0').glob('*.log')))} segments"


def recovery(folder: Path) -> str:
    """A torn tail, and no clean shutdown: the whole batches stay."""
    (folder / ".kafka_cleanshutdown").unlink()
    last = max((folder / "orders-0").glob("*.log"))
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 10)
    with pylogseg.open_log(folder / "orders-0", segment_bytes=65_536) as orders:
        assert orders.log_end_offset == 1900
        assert orders.report.actions
        orders.append(RECORDS[1900:])
        assert orders.log_end_offset == len(RECORDS)
    return "a torn batch was cut off"


def threads(folder: Path) -> str:
    """Four readers at once give what one gives; without the interpreter's lock, where this Python has none."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert not sys._is_gil_enabled(), "importing pylogseg turned the lock on"

    def total(_: int) -> int:
        return sum(len(record.value or b"") for record in pylogseg.read(folder, "orders"))

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(total, range(16)))) == 1
    return "with the lock" if getattr(sys, "_is_gil_enabled", lambda: True)() else "without the lock"


def broker(_: Path) -> str:
    """A client that is not ours produces and consumes."""
    if importlib.util.find_spec("kafka") is None:
        return "left out: no kafka-python"
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    with pylogseg.Broker() as here:
        producer = KafkaProducer(bootstrap_servers=here.bootstrap_servers, acks="all")
        for _, key, value in RECORDS[:50]:
            producer.send("orders", value, key, partition=0)
        producer.close(10)
        consumer = KafkaConsumer(bootstrap_servers=here.bootstrap_servers, consumer_timeout_ms=10_000)
        consumer.assign([TopicPartition("orders", 0)])
        consumer.seek_to_beginning()
        values = [next(consumer).value for _ in range(50)]
        consumer.close()
        assert values == [value for _, _, value in RECORDS[:50]]
        assert [record.value for record in here.records("orders")] == values
    return "50 records"


def sql(folder: Path) -> str:
    """The shell's SQL, in a process of its own."""
    if importlib.util.find_spec("duckdb") is None:
        return "left out: no duckdb"
    command = [sys.executable, "-m", "pylogseg", "sql", str(folder), "select count(*) n from orders", "--output", "csv"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[-1] == str(len(RECORDS)), done.stdout
    return "count(*)"


def shell(folder: Path) -> str:
    """The command that is installed, not only the package."""
    done = subprocess.run(
        [sys.executable, "-m", "pylogseg", "verify", str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return "no damage"


def main() -> None:
    print(f"pylogseg {pylogseg.__version__}, {platform.python_implementation()} {platform.python_version()}, {os.name}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for step in (formats, log, recovery, threads, broker, sql, shell):
            print(f"{step.__name__:10} {step(folder)}")


if __name__ == "__main__":
    main()
