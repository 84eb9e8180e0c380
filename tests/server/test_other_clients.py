"""Tests of server/about.py and server/view.py. librdkafka and aiokafka read what `pylogseg.read` reads, alone and in
groups; libraries stall without complaint.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from helpers.depth import diagonals
from helpers.kafka_clients import PATIENCE_S

import pylogseg

confluent_kafka = pytest.importorskip("confluent_kafka")

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
TOPICS = ["txn-a", "cmp-txn", "codec-zstd", "del-records", "timestamps", "__consumer_offsets"]
ISOLATIONS = ["read_uncommitted", "read_committed"]
Row = tuple[int, int, int, bytes | None, bytes | None]


def ours(topic: str, isolation: Any) -> list[Row]:
    records = pylogseg.read(pylogseg.open_dir(DATA)[topic], isolation_level=isolation)
    return [(each.partition, each.offset, each.timestamp, each.key, each.value) for each in records]


def rows_until_the_end(client: Any, partitions: int) -> list[Row]:
    """Poll until every partition has said that its end is reached."""
    rows, ends, until = [], set(), time.monotonic() + PATIENCE_S
    while len(ends) < partitions:
        assert time.monotonic() < until, f"no progress; {len(rows)} records, ends of {ends}"
        message = client.poll(0.2)
        if message is None:
            continue
        if message.error() is None:
            kind, stamp = message.timestamp()
            stamp = stamp if kind else -1
            rows.append((message.partition(), message.offset(), stamp, message.key(), message.value()))
        else:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            ends.add(message.partition())
    return sorted(rows, key=lambda row: row[:2])


def librdkafka(server: pylogseg.Server, **more: Any) -> Any:
    return confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 2, **more}
    )  # fmt: skip


@pytest.mark.parametrize(("topic", "isolation"), diagonals(TOPICS, ISOLATIONS, 2))
def test_librdkafka(server: pylogseg.Server, topic: str, isolation: str) -> None:
    client = librdkafka(server, **{"isolation.level": isolation})
    numbers = sorted(server.catalog.topics[topic].partitions)
    client.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in numbers])
    assert rows_until_the_end(client, len(numbers)) == ours(topic, isolation)
    client.close()


@pytest.mark.parametrize(("topic", "isolation"), diagonals(TOPICS, reversed(ISOLATIONS), 2))
def test_aiokafka(server: pylogseg.Server, topic: str, isolation: str) -> None:
    async def read() -> list[Row]:
        client = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest", isolation_level=isolation
        )
        await client.start()
        try:
            partitions = server.catalog.topics[topic].partitions
            client.assign([aiokafka.TopicPartition(topic, number) for number in partitions])
            rows: list[Row] = []
            until = time.monotonic() + PATIENCE_S
            while len(rows) < len(wanted):
                assert time.monotonic() < until, f"no progress; {len(rows)} records"
                for records in (await client.getmany(timeout_ms=200)).values():
                    rows += [(each.partition, each.offset, each.timestamp, each.key, each.value) for each in records]
            return sorted(rows, key=lambda row: row[:2])
        finally:
            await client.stop()

    wanted = ours(topic, isolation)
    assert asyncio.run(read()) == wanted


def test_a_group_of_librdkafka(server: pylogseg.Server) -> None:
    """The second turn begins where the first has committed."""
    for wanted in (ours("codec-gzip", "read_uncommitted"), []):
        client = librdkafka(server, **{"group.id": "turns"})
        client.subscribe(["codec-gzip"])
        rows = rows_until_the_end(client, 1)
        assert rows == wanted
        if rows:
            client.commit(asynchronous=False)
        client.close()


def test_librdkafka_shows_why_it_may_not_write(server: pylogseg.Server) -> None:
    for idempotent in (False, True):
        said: list[Any] = []
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": idempotent, "log_level": 2}
        )
        producer.produce("codec-gzip", b"x", callback=lambda error, _, said=said: said.append(error))
        producer.flush(PATIENCE_S)
        assert [error.code() for error in said] == [confluent_kafka.KafkaError.POLICY_VIOLATION]
