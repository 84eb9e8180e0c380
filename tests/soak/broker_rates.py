"""How fast `pylogseg.Broker` starts, and what it takes from a producer beside the engine and, if asked for, a broker.

    python tests/soak broker-rates [--kafka]

Prints the time from `Broker()` to its readiness, and to the first record that a client has produced and fetched; then
the rate of batches of 16 KiB over one connection with five requests in flight, in memory and in a directory, beside the
rate of the engine alone with the same batches. With `--kafka` a Kafka 4.3 (`tests/kafka/broker/broker.sh`) takes them,
too, after ten times as many to warm up. Wall clock depends on what else the machine does.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.kafka_clients import RawClient, batch, produced

import pylogseg
from pylogseg.format.messages import wire
from soak import BROKER

ROUNDS, BATCHES, IN_FLIGHT = 15, 6000, 5
SERVER = """
import sys, pylogseg
with pylogseg.Broker(*sys.argv[1:], topics=["rates"]) as broker:
    print(broker.bootstrap_servers, flush=True)
    broker.wait()
"""


def first_record(broker: pylogseg.Broker) -> None:
    """Send a record, and get it by a fetch."""
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(3, 9, {"topics": [{"name": "one"}], "allowAutoTopicCreation": True})
        assert produced(client, "one", batch(b"x"))["errorCode"] == 0
        row = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
        topics = [{"topic": "one", "partitions": [row]}]
        client.send(1, 11, {"replicaId": -1, "maxWaitMs": 1000, "minBytes": 1, "maxBytes": 1 << 20,
                            "sessionEpoch": -1, "topics": topics})  # fmt: skip
        assert b"x" in client.frame()


def starts() -> None:
    """Print how long a broker needs to be ready, and to give a consumer its first record."""
    ready, first = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        with pylogseg.Broker() as broker:
            ready.append(time.perf_counter() - began)
            first_record(broker)
            first.append(time.perf_counter() - began)
    print(f"Broker() ready after {statistics.median(ready) * 1000:.1f} ms (median of {ROUNDS})")
    print(f"Broker() to the first record: {statistics.median(first) * 1000:.1f} ms")


def batches() -> list[bytes]:
    """Batches of 16 KiB: sixteen records of 1000 bytes."""
    return [batch(*(bytes([65 + i % 26]) * 1000 for _ in range(16)), batch_bytes=1 << 20) for i in range(26)]


def frames() -> list[bytes]:
    """Requests with one batch each, made beforehand."""
    return [
        wire.request(0, 9, i, "rates", {"acks": 1, "timeoutMs": 1000, "topicData": [
            {"name": "rates", "partitionData": [{"index": 0, "records": data}]}]})
        for i, data in enumerate(batches())
    ]  # fmt: skip


def send(address: str, count: int) -> float:
    """Send batches; how many a second were acknowledged."""
    asked = frames()
    with RawClient(address) as client:
        for i in range(IN_FLIGHT):
            client.socket.sendall(asked[i % len(asked)])
        began = time.perf_counter()
        for i in range(count):
            assert client.frame()
            client.socket.sendall(asked[i % len(asked)])
        rate = count / (time.perf_counter() - began)
        for _ in range(IN_FLIGHT):
            client.frame()
        return rate


def engine(folder: str) -> float:
    """Append the same batches to a log; how many a second."""
    data = batches()
    with pylogseg.open_log(f"{folder}/rates-0") as log:
        for i in range(BATCHES):
            log.append_batch(data[i % len(data)])
        began = time.perf_counter()
        for i in range(BATCHES):
            log.append_batch(data[i % len(data)])
        return BATCHES / (time.perf_counter() - began)


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """Run a broker in a process of its own."""
    command = [sys.executable, "-c", SERVER, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@contextmanager
def kafka(folder: str) -> Iterator[str]:
    """Run a broker of Kafka's."""
    script = BROKER
    subprocess.run(["bash", script, "start", folder], check=True, stdout=subprocess.DEVNULL)
    try:
        address = f"127.0.0.1:{(Path(folder) / 'run' / 'port').read_text().strip()}"
        with RawClient(address) as client:
            asked = {"name": "rates", "numPartitions": 1, "replicationFactor": 1}
            client.ask(19, 5, {"topics": [asked], "timeoutMs": 10_000})
            time.sleep(1)  # until the partition has its leader
        yield address
    finally:
        subprocess.run(["bash", script, "stop", folder], check=True, stdout=subprocess.DEVNULL)


def main(arguments: list[str]) -> int:
    """Print all rates."""
    starts()
    with tempfile.TemporaryDirectory() as folder:
        print(f"engine, from memory to a file: {engine(folder):8.0f} batches a second")
        rows: list[tuple[str, Any]] = [("Broker()", served()), ("Broker(path)", served(f"{folder}/own"))]
        if "--kafka" in arguments:
            rows.append(("Kafka 4.3, warm", kafka(f"{folder}/kafka")))
        for name, opened in rows:
            with opened as address:
                send(address, BATCHES * (10 if "Kafka" in name else 1))
                rate = send(address, BATCHES)
            print(f"{name:29}: {rate:8.0f} batches a second, {rate * 16 / 1024:5.0f} MiB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
