"""Tests of server/overlays.py. Transactions that the dead cluster never ended: by default they hold back, and with the
option they are aborted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from helpers.depth import some_of
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned

import pylogseg

confluent_kafka = pytest.importorskip("confluent_kafka")

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
TOPIC = "txn-a"  # each of its two partitions has one
OPEN = {0: 141, 1: 12}
Row = tuple[int, int]


def wanted(folder: Path) -> list[Row]:
    """Partitions and offsets of what is committed in a copy whose open transactions were really aborted."""
    rows = []
    for number in OPEN:
        shutil.copytree(DATA / f"{TOPIC}-{number}", folder / f"{TOPIC}-{number}")
        with pylogseg.open_log(folder / f"{TOPIC}-{number}") as log:
            log.producer(5).abort()
        read = pylogseg.read(folder / f"{TOPIC}-{number}", isolation_level="read_committed")
        rows += [(number, each.offset) for each in read]
    return rows


def by_librdkafka(server: pylogseg.Server) -> list[Row]:
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "enable.partition.eof": True, "log_level": 2,
         "isolation.level": "read_committed"}
    )  # fmt: skip
    client.assign([confluent_kafka.TopicPartition(TOPIC, number, 0) for number in OPEN])
    rows, ends, until = [], set(), time.monotonic() + PATIENCE_S
    while len(ends) < len(OPEN):
        assert time.monotonic() < until
        message = client.poll(0.2)
        if message is not None and message.error() is None:
            rows.append((message.partition(), message.offset()))
        elif message is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            ends.add(message.partition())
    client.close()
    return sorted(rows)


def by_aiokafka(server: pylogseg.Server, count: int) -> list[Row]:
    async def read() -> list[Row]:
        client = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        await client.start()
        try:
            client.assign([aiokafka.TopicPartition(TOPIC, number) for number in OPEN])
            rows: list[Row] = []
            until = time.monotonic() + PATIENCE_S
            while len(rows) < count:
                assert time.monotonic() < until, len(rows)
                for records in (await client.getmany(timeout_ms=200)).values():
                    rows += [(each.partition, each.offset) for each in records]
            return sorted(rows)
        finally:
            await client.stop()

    return asyncio.run(read())


def test_three_clients_go_behind_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = wanted(tmp_path)
    assert any(row[1] > OPEN[row[0]] for row in rows)
    with (
        caplog.at_level(logging.WARNING, "pylogseg.server"),
        pylogseg.serve(DATA, end_open_transactions=True) as server,
    ):
        assert server.aborted == 0
        assert by_librdkafka(server) == rows
        assert [row[1:3] for row in assigned(server, TOPIC, isolation_level="read_committed")] == rows
        assert by_aiokafka(server, len(rows)) == rows
        assert server.aborted == 2
        assert caplog.text.count("1 open transaction counts as aborted, from offset") == 2
        assert "txn-a-0: 1 open transaction counts as aborted, from offset 141" in caplog.text
        assert any("count as aborted" in note for note in server.catalog.notes)
    with pylogseg.serve(DATA) as server:
        assert [row[1:3] for row in assigned(server, TOPIC, isolation_level="read_committed")] == [
            row for row in rows if row[1] < OPEN[row[0]]
        ]


def test_the_numbers_that_are_told() -> None:
    """The last stable offset is the end, the transaction is in the list, and no producer has one open."""
    with pylogseg.serve(DATA, end_open_transactions=True) as server, RawClient(server.bootstrap_servers) as client:
        asked = [{"partition": 0, "fetchOffset": 144, "partitionMaxBytes": 1 << 20, "currentLeaderEpoch": -1}]
        fetch = {"maxBytes": 1 << 20, "replicaId": -1, "sessionEpoch": -1, "isolationLevel": 1,
                 "topics": [{"topic": TOPIC, "partitions": asked}]}  # fmt: skip
        (row,) = client.ask(1, 12, fetch)["responses"][0]["partitions"]
        assert row["lastStableOffset"] == row["highWatermark"] > 144
        assert {"producerId": 5, "firstOffset": 141} in row["abortedTransactions"]
        times = [{"name": TOPIC, "partitions": [{"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": -1}]}]
        (end,) = client.ask(2, 7, {"replicaId": -1, "isolationLevel": 1, "topics": times})["topics"][0]["partitions"]
        assert end["offset"] == row["highWatermark"]
        (found,) = client.ask(61, 0, {"topics": [{"name": TOPIC, "partitionIndexes": [0]}]})["topics"][0]["partitions"]
        assert {each["currentTxnStartOffset"] for each in found["activeProducers"]} == {-1}


@pytest.mark.parametrize("seed", some_of(range(8), 3))
def test_any_mix_of_transactions(tmp_path: Path, seed: int) -> None:
    """Several producers at once, some of whose transactions stay open, over many segments and small fetches."""
    drawn = random.Random(seed)
    good: list[int] = []
    with pylogseg.open_log(tmp_path / "t-0", segment_bytes=drawn.choice([1500, 6000, 1 << 20])) as log:
        producers = [log.producer(number) for number in range(1, 6)]
        running: dict[int, list[int]] = {}
        for _ in range(150):
            number = drawn.randrange(5)
            producer: Any = producers[number]
            if drawn.random() < 0.2:
                good.append(log.append([(None, None, b"plain")]).first_offset)
            elif number not in running:
                producer.begin()
                running[number] = []
            elif drawn.random() < 0.6:
                records = [(None, None, b"x" * drawn.randrange(50)) for _ in range(drawn.randrange(1, 4))]
                done = producer.append(records)
                running[number] += range(done.first_offset, done.last_offset + 1)
            elif drawn.random() < 0.6:
                producer.commit()
                good += running.pop(number)
            else:
                producer.abort()
                running.pop(number)
        opened = sum(map(bool, running.values()))
    options = {"isolation_level": "read_committed", "max_partition_fetch_bytes": drawn.choice([200, 2000, 1 << 20])}
    with pylogseg.serve(tmp_path, end_open_transactions=True) as server:
        assert [row[2] for row in assigned(server, "t", **options)] == sorted(good)
        assert server.aborted == opened


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_the_command_counts_them() -> None:
    serve = ["serve", str(DATA), "--listen", "127.0.0.1:0", "--end-open-transactions", "--topic", TOPIC]
    command = [sys.executable, "-m", "pylogseg", *serve]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split(" at ")[1].split(",")[0]
        with RawClient(address) as client:
            times = [{"name": TOPIC, "partitions": [{"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": -1}]}]
            client.ask(2, 7, {"replicaId": -1, "topics": times})
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert out == "stopped; 1 open transaction counted as aborted\n"
    assert "transactions that were open when the copy was made count as aborted" in err
