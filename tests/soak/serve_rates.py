"""What `pylogseg serve` costs: time to the first answer, memory, CPU of fetches, and the same of a Kafka broker.

    python tests/soak serve-rates [--kafka] [--folder FOLDER] [PART...]

PART is one of

    start     100 topics: process to first answer, and memory with 10 clients that have read all of them
    many      10,000 partitions: process to first Metadata, and the next one
    fetches   CPU of the server's process for a fetch, and bytes per second of CPU, with three sizes; one connection
    codec     a fetch request and its answer, by the policy of the server and by that of messages in files
    clients   kafka-consumer-perf-test (with --kafka) and librdkafka: wall clock of a whole log

By default all. With --kafka, `fetches` and `clients` run against a broker too (Kafka 4.3, the JVM's default compilers,
a heap of 768 MB), which gets 12 GB of fetches first; both have the same log in the page cache, written by the broker,
and take turns. Files are made in FOLDER (default: a temporary one, removed at the end). Wall clock depends on what else
the machine does, CPU much less.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from helpers.kafka_clients import RawClient

import pylogseg
from pylogseg.format.messages import wire
from pylogseg.format.messages.codec import decode_message, encode_message, plan_of
from pylogseg.format.messages.schema import message
from pylogseg.format.uuids import format_uuid
from soak import TESTS

#: Bytes of a fetch, and how many are sent in a round.
FETCHES = ((64 << 10, 8000), (1 << 20, 3000), (10 << 20, 300))
ROUNDS, WARM_BYTES = 3, 12 << 30
RECORDS, RECORD_BYTES = 400_000, 1000
TOPICS, PARTITIONS, STARTS = 100, 10_000, 15
PARTS = ["start", "many", "codec", "fetches", "clients"]
_JVM = "-Xms768m -Xmx768m"


class Process(NamedTuple):
    """A server, ours or a broker."""

    name: str
    pid: int
    address: str

    def cpu_seconds(self) -> float:
        """User and system time."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Memory that it has now."""
        line = next(x for x in Path(f"/proc/{self.pid}/status").read_text().splitlines() if x.startswith("VmRSS"))
        return int(line.split()[1]) / 1000


@contextmanager
def ours(*folders: Path) -> Iterator[Process]:
    """`pylogseg serve`, until it is not needed."""
    command = [sys.executable, "-m", "pylogseg", "serve", *map(str, folders), "--listen", "127.0.0.1:0"]
    # Compiled modules are kept, as they are where the package is installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", env=environment)
    assert process.stdout is not None
    try:
        yield Process("pylogseg", process.pid, process.stdout.readline().split(" at ")[1].split(",")[0])
    finally:
        process.terminate()
        process.wait()


# ---- start ----


def copies(folder: Path, count: int, partitions: int) -> Path:
    """A log directory with so many copies of one small log, `partitions` in a topic."""
    if folder.exists():
        return folder
    first = folder / "topic0-0"
    with pylogseg.open_log(first) as log:
        for _ in range(10):
            log.append([{"value": b"x" * 100}] * 10)
    for number in range(count):
        of = folder / f"topic{number // partitions}-{number % partitions}"
        if number:
            shutil.copytree(first, of)
        topic_id = format_uuid(uuid.uuid5(uuid.NAMESPACE_OID, str(number // partitions)).bytes)
        (of / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")  # as a broker does
    (folder / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return folder


def first_answers(folder: Path, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds from the start of a process to its first Metadata, and of the second one."""
    first, second = [], []
    for _ in range(count):
        started = time.perf_counter()
        with ours(folder) as server, RawClient(server.address) as client:
            client.ask(3, 12, {"topics": None})
            answered = time.perf_counter()
            client.ask(3, 12, {"topics": None})
            first.append((answered - started) * 1000)
            second.append((time.perf_counter() - answered) * 1000)
    return sorted(first), sorted(second)


def start(folder: Path) -> None:
    """100 topics."""
    made = copies(folder / "start", TOPICS, 1)
    first, _ = first_answers(made, STARTS)
    print(f"{TOPICS} topics, process to first answer: {statistics.median(first):.0f} ms (best {first[0]:.0f})")
    with ours(made) as server:
        clients = [RawClient(server.address) for _ in range(10)]
        for client in clients:
            asked = [{"topic": f"topic{i}", "partitions": [{"partition": 0, "partitionMaxBytes": 1 << 20}]}
                     for i in range(TOPICS)]  # fmt: skip
            found = client.ask(1, 12, {"maxWaitMs": 0, "maxBytes": 64 << 20, "topics": asked})
            assert all(part["records"] for topic in found["responses"] for part in topic["partitions"])
        print(f"{TOPICS} topics, {len(clients)} clients that have read all: {server.resident_mb():.0f} MB")
        for client in clients:
            client.socket.close()


def many(folder: Path) -> None:
    """10,000 partitions."""
    first, second = first_answers(copies(folder / "many", PARTITIONS, 100), 3)
    print(
        f"{PARTITIONS} partitions, process to first Metadata: {statistics.median(first):.0f} ms (best {first[0]:.0f});"
        f" the next: {statistics.median(second):.0f} ms"
    )


def codec(folder: Path) -> None:
    """Both policies."""
    row = {"partition": 0, "fetchOffset": 5, "partitionMaxBytes": 1 << 20}
    frame = wire.request(1, 12, 1, None, {"topics": [{"topic": "big", "partitions": [row]}]})[4:]
    asked, at = message("FetchRequest"), wire.read_header(frame).end
    part = {"partitionIndex": 0, "highWatermark": 9, "lastStableOffset": 9, "logStartOffset": 0, "records": b""}
    values = {"responses": [{"topic": "big", "partitions": [part]}]}
    given = message("FetchResponse")
    for what, run in {
        "decode a fetch, server": lambda: wire.decode_body(asked, 12, frame, at),
        "decode a fetch, messages in files": lambda: decode_message(asked, 12, frame, at),
        "encode its answer, server": lambda: plan_of(given.name, 12, wire.CLIENTS).write(values, []),
        "encode its answer, messages in files": lambda: encode_message(given, 12, values),
    }.items():
        print(f"{what}: {min(timeit.repeat(run, number=200, repeat=50)) / 200 * 1e6:.1f} us")


# ---- fetches ----


def fetch(client: RawClient, size: int, offset: int, into: memoryview) -> int:
    """Fetch once; how many bytes came."""
    row = {"partition": 0, "fetchOffset": offset, "partitionMaxBytes": size}
    asked = {"maxWaitMs": 0, "minBytes": 1, "maxBytes": size, "topics": [{"topic": "big", "partitions": [row]}]}
    client.socket.sendall(wire.request(1, 12, 1, "rates", asked))
    length = int.from_bytes(client.socket.recv(4, socket.MSG_WAITALL), "big")
    got = 0
    while got < length:
        got += client.socket.recv_into(into[got:length])
    return length


def fetched(client: RawClient, size: int, count: int, into: memoryview) -> int:
    """Fetch many times, from the start of the log to near its end and again; how many bytes came."""
    return sum(fetch(client, size, i * (size // 1100) % (RECORDS * 9 // 10), into) for i in range(count))


def fetches(servers: list[Process]) -> None:
    """CPU of each size."""
    memory = memoryview(bytearray(16 << 20))
    clients = [RawClient(server.address) for server in servers]
    for server, client in zip(servers, clients, strict=True):
        warm = WARM_BYTES if server.name != "pylogseg" else 1 << 30
        for size, _ in FETCHES:
            fetched(client, size, warm // (len(FETCHES) * size), memory)
    for size, count in FETCHES:
        rates: dict[str, list[tuple[float, float, float]]] = {server.name: [] for server in servers}
        for _ in range(ROUNDS):
            for server, client in zip(servers, clients, strict=True):
                before, began = server.cpu_seconds(), time.perf_counter()
                total = fetched(client, size, count, memory)
                spent, wall = server.cpu_seconds() - before, time.perf_counter() - began
                rates[server.name].append((spent / count * 1e6, total / spent / 1e9, total / wall / 1e9))
        for name, found in rates.items():
            each, of_cpu, of_wall = (statistics.median(column) for column in zip(*found, strict=True))
            print(f"{size >> 10:6} KiB, {name:8}: {each:5.0f} us CPU a request, {of_cpu:4.1f} GB per CPU second,"
                  f" {of_wall:4.1f} GB/s")  # fmt: skip
        if len(servers) > 1:
            medians = [statistics.median(row[1] for row in found) for found in rates.values()]
            print(f"{size >> 10:6} KiB: {medians[0] / medians[1]:.2f} of the broker's bytes per CPU second")
    for server, client in zip(servers, clients, strict=True):
        print(f"{server.name}: {server.resident_mb():.0f} MB")
        client.socket.close()


# ---- clients ----


def by_librdkafka(address: str) -> float:
    """MB per second of a whole log."""
    import confluent_kafka

    client = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "rates", "enable.auto.commit": False})
    client.assign([confluent_kafka.TopicPartition("big", 0, 0)])
    count, size, began = 0, 0, time.perf_counter()
    while count < RECORDS:
        for each in client.consume(10_000, 10.0):
            assert each.error() is None, each.error()
            count, size = count + 1, size + len(each.value())
    wall = time.perf_counter() - began
    client.close()
    return size / wall / 1e6


def by_perf_test(classpath: str) -> Callable[[str], float]:
    """Return what gives MB per second of kafka-consumer-perf-test, without its time to join a group."""

    def run(address: str) -> float:
        command = ["java", "-Xmx512m", "-cp", classpath, "org.apache.kafka.tools.ConsumerPerformance"]
        command += ["--bootstrap-server", address, "--topic", "big", "--num-records", str(RECORDS), "--hide-header"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
        return float(done.stdout.strip().splitlines()[-1].split(",")[8])

    return run


def clients(servers: list[Process], readers: dict[str, Callable[[str], float]]) -> None:
    """Wall clock of whole clients."""
    for what, read in readers.items():
        found: dict[str, list[float]] = {server.name: [] for server in servers}
        for _ in range(ROUNDS):
            for server in servers:
                found[server.name].append(read(server.address))
        for name, rates in found.items():
            print(f"{what}, {name}: {statistics.median(rates):.0f} MB/s (best {max(rates):.0f})")


# ---- the log, and the broker ----


def write(folder: Path) -> Path:
    """Write the log by ourselves, unless it is there."""
    if not (folder / "big-0").exists():
        with pylogseg.open_log(folder / "big-0") as log:
            while log.log_end_offset < RECORDS:
                log.append([{"value": os.urandom(RECORD_BYTES)} for _ in range(64)])
    return folder


@contextmanager
def broker(folder: Path) -> Iterator[tuple[Process, list[Path]]]:
    """A broker that has written the log, and copies of its directories."""
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, NewTopic
    from offline import Broker

    os.environ["BROKER_OPTIONS"] = _JVM
    run, directories = Broker(folder), [folder / "copy0", folder / "copy1"]
    settings = ("log.index.size.max.bytes=10485760", "log.segment.bytes=1073741824")
    if not directories[0].exists():
        run("start", *settings)
        try:
            address = f"127.0.0.1:{(folder / 'run' / 'port').read_text().strip()}"
            admin = AdminClient({"bootstrap.servers": address})
            admin.create_topics([NewTopic("big", 1, 1)])["big"].result()
            producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 50, "batch.size": 65536})
            for i in range(RECORDS):
                producer.produce("big", os.urandom(RECORD_BYTES), partition=0)
                if i % 1000 == 0:
                    producer.poll(0)
                    if len(producer) > 50_000:
                        producer.flush()
            producer.flush()
        finally:
            run("stop")
        for number, copy in enumerate(directories):
            shutil.copytree(folder / f"data{number}", copy)
    run("start", *settings)
    try:
        address = f"127.0.0.1:{(folder / 'run' / 'port').read_text().strip()}"
        yield Process("broker", int((folder / "run" / "pid").read_text()), address), directories
    finally:
        run("stop")


def main(arguments: list[str]) -> int:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--kafka", action="store_true", help="a broker beside it")
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args(arguments)
    parts = chosen.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}")
    folder = (chosen.folder or Path(tempfile.mkdtemp(prefix="pylogseg-rates-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for part in (start, many, codec):
            if part.__name__ in parts:
                part(folder)
        if {"fetches", "clients"} & set(parts):
            readers: dict[str, Callable[[str], float]] = {"librdkafka": by_librdkafka}
            if chosen.kafka:
                script = [TESTS / "kafka" / "kafka.sh", "tools"]
                classpath = subprocess.run(script, check=True, capture_output=True, encoding="utf-8").stdout.strip()
                readers["perf-test"] = by_perf_test(classpath)
                with broker(folder / "broker") as (theirs, directories), ours(*directories) as mine:
                    compare([mine, theirs], parts, readers)
            else:
                with ours(write(folder / "log")) as mine:
                    compare([mine], parts, readers)
    finally:
        if chosen.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def compare(servers: list[Process], parts: list[str], readers: dict[str, Callable[[str], float]]) -> None:
    """Run the parts that read the log."""
    if "fetches" in parts:
        fetches(servers)
    if "clients" in parts:
        clients(servers, readers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
