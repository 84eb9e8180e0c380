"""Tests of server/handlers.py, server/writing/handlers.py, server/writing/producing.py and server/writing/writer.py. A
broker in this process: what producers send is read by consumers, and verdicts of the engine have Kafka's codes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import aiokafka
import kafka
import pytest
from helpers.checks import wait_for
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, batch, consumer, produced
from helpers.servers import topics_of

import pylogseg
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.messages import codes

confluent_kafka = pytest.importorskip("confluent_kafka")

NOW_MS = time.time_ns() // 1_000_000
TOPICS = {"one": 1, "three": 3}


# ---- clients ----


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_writes_what_is_read(broker: pylogseg.Broker, compression: str | None) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, compression_type=compression, enable_idempotence=True
    )
    sent = [
        producer.send("three", b"value %d" % i, key=b"%d" % i, partition=i % 3, headers=[("h", b"x")])
        for i in range(300)
    ]
    places = [(found.partition, found.offset) for found in (each.get(PATIENCE_S) for each in sent)]
    producer.close()
    assert places == [(i % 3, i // 3) for i in range(300)]
    rows = assigned(broker, "three")
    assert [(row[1], row[2], row[5], row[6]) for row in rows] == sorted(
        (i % 3, i // 3, b"value %d" % i, (("h", b"x"),)) for i in range(300)
    )


def test_librdkafka_makes_the_topic_by_asking_for_it(broker: pylogseg.Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for i in range(1000):
        producer.produce("made", b"%d" % i)
    assert producer.flush(PATIENCE_S) == 0
    assert [row[5] for row in assigned(broker, "made")] == [b"%d" % i for i in range(1000)]


def test_aiokafka_writes_and_reads_in_a_group(broker: pylogseg.Broker) -> None:
    async def run() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True
        ) as producer:
            for i in range(20):
                await producer.send_and_wait("one", b"%d" % i)
        reader = aiokafka.AIOKafkaConsumer(
            "one", bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        )
        async with reader:
            return [(await asyncio.wait_for(reader.getone(), PATIENCE_S)).value for _ in range(20)]

    assert asyncio.run(run()) == [b"%d" % i for i in range(20)]


def test_a_fetch_waits_for_records(broker: pylogseg.Broker) -> None:
    """It is answered when one of its partitions grows, long before its time is over."""
    with RawClient(broker.bootstrap_servers) as reader, RawClient(broker.bootstrap_servers) as writer:
        asked = [{"partition": n, "fetchOffset": 0, "partitionMaxBytes": 1 << 20} for n in range(3)]
        topics = [{"topic": "three", "partitions": asked}]
        reader.send(1, 11, {"replicaId": -1, "maxWaitMs": 600_000, "minBytes": 1, "maxBytes": 1 << 20,
                            "sessionEpoch": -1, "topics": topics})  # fmt: skip
        reader.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            reader.frame()
        reader.socket.settimeout(PATIENCE_S)
        assert produced(writer, "three", batch(b"late"), number=2)["errorCode"] == 0
        assert b"late" in reader.frame()


def test_a_stop_does_not_wait_for_fetches(broker: pylogseg.Broker) -> None:
    with consumer(broker, auto_offset_reset="latest", fetch_max_wait_ms=20_000) as client:
        client.assign([kafka.TopicPartition("one", 0)])
        thread = threading.Thread(target=client.poll, args=(1000,), daemon=True)
        thread.start()
        thread.join(0.3)
        broker.close()
        wait_for(lambda: not broker.connections)
        thread.join(PATIENCE_S)


# ---- verdicts ----


def good(**options: Any) -> bytes:
    return batch(b"a", b"b", **options)


def test_offsets_and_times_of_an_append(broker: pylogseg.Broker, client: RawClient) -> None:
    rows = [produced(client, "one", good(), version=version) for version in range(3, 13)]
    assert [(row["errorCode"], row["baseOffset"]) for row in rows] == [(0, 2 * i) for i in range(10)]
    assert {row["logAppendTimeMs"] for row in rows} == {-1}
    asked = {"name": "stamped", "numPartitions": 1, "replicationFactor": 1,
             "configs": [{"name": "message.timestamp.type", "value": "LogAppendTime"}]}  # fmt: skip
    assert client.ask(19, 5, {"topics": [asked]})["topics"][0]["errorCode"] == 0
    stamped = produced(client, "stamped", batch(b"a", timestamp=5))["logAppendTimeMs"]
    assert abs(stamped - broker.clock.now_ms()) < PATIENCE_S * 1000
    assert assigned(broker, "stamped")[0][3] == stamped


def test_topics_by_id(broker: pylogseg.Broker, client: RawClient) -> None:
    known = broker.catalog.topics["one"].id
    for topic_id, expected in ((known, codes.NONE), (bytes(15) + b"x", codes.UNKNOWN_TOPIC_ID)):
        asked = {"topicId": topic_id, "partitionData": [{"index": 0, "records": good()}]}
        found = client.ask(0, 13, {"acks": 1, "topicData": [asked]})["responses"][0]
        assert (found["topicId"], found["partitionResponses"][0]["errorCode"]) == (topic_id, expected)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(None, codes.INVALID_RECORD, id="null"),
        pytest.param(b"", codes.INVALID_RECORD, id="empty"),
        pytest.param(b"x" * 10, codes.CORRUPT_MESSAGE, id="too short"),
        pytest.param(good()[:-3], codes.CORRUPT_MESSAGE, id="cut"),
        pytest.param(flipped(good()), codes.CORRUPT_MESSAGE, id="crc"),
        pytest.param(good() + good(), codes.INVALID_RECORD, id="two batches"),
        pytest.param(good(magic=1), codes.INVALID_RECORD, id="magic 1"),
        pytest.param(batch(b"x" * 1_100_000, batch_bytes=2 << 20), codes.MESSAGE_TOO_LARGE, id="large"),
        pytest.param(good(timestamp=NOW_MS + 7_200_000), codes.INVALID_TIMESTAMP, id="of tomorrow"),
        pytest.param(good(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True),
                     codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, id="transactional"),
    ],
)  # fmt: skip
def test_what_is_refused(broker: pylogseg.Broker, client: RawClient, data: bytes | None, code: int) -> None:
    row = produced(client, "one", data)
    assert (row["errorCode"], row["baseOffset"]) == (code, -1)
    assert row["errorMessage"]
    assert assigned(broker, "one") == []


def test_records_are_refused_one_by_one(broker: pylogseg.Broker, client: RawClient) -> None:
    topics_of(broker).configure(broker.catalog.topics["one"], {"cleanup.policy": "compact"})
    data = bytes(pylogseg.encode([(NOW_MS, b"k", b"v"), (NOW_MS, None, b"v"), (NOW_MS, None, b"v")], base_offset=0))
    row = produced(client, "one", data)
    assert row["errorCode"] == codes.INVALID_RECORD
    assert [each["batchIndex"] for each in row["recordErrors"]] == [1, 2]
    assert "no key" in row["recordErrors"][0]["batchIndexErrorMessage"]


def test_places_that_are_not_there(client: RawClient) -> None:
    assert produced(client, "none", good())["errorCode"] == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert produced(client, "one", good(), number=1)["errorCode"] == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert produced(client, "one", good(), acks=2)["errorCode"] == codes.INVALID_REQUIRED_ACKS


def test_idempotent_batches(client: RawClient) -> None:
    def send(epoch: int, sequence: int) -> tuple[int, int]:
        row = produced(client, "one", good(producer_id=7, producer_epoch=epoch, base_sequence=sequence))
        return row["errorCode"], row["baseOffset"]

    assert send(1, 0) == (0, 0)
    assert send(1, 2) == (0, 2)
    assert send(1, 0) == (0, 0), "a repeated batch is answered as the first time"
    assert send(1, 9) == (codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(0, 4) == (codes.INVALID_PRODUCER_EPOCH, -1)
    assert send(2, 0) == (0, 4)


def test_a_partition_that_is_named_repeatedly(broker: pylogseg.Broker, client: RawClient) -> None:
    """As in Kafka, the last batch counts, there is one answer, and a batch that is none refuses all but its append."""
    data = [batch(value) for value in (b"first", b"second", b"third")]

    def send(*given: tuple[int, bytes]) -> list[tuple[int, int, int]]:
        rows = [{"index": number, "records": records} for number, records in given]
        topics = [{"name": "three", "partitionData": rows[:2]}, {"name": "three", "partitionData": rows[2:]}]
        found = client.ask(0, 9, {"acks": -1, "timeoutMs": 1000, "topicData": topics})["responses"]
        assert [each["name"] for each in found] == ["three"]
        return [(each["index"], each["errorCode"], each["baseOffset"]) for each in found[0]["partitionResponses"]]

    assert send((0, data[0]), (1, data[1]), (0, data[2])) == [(0, 0, 0), (1, 0, 0)]
    assert send((0, data[1]), (0, b""), (2, data[0])) == [(0, codes.INVALID_RECORD, -1), (2, 0, 0)]
    assert [(row[1], row[2], row[5]) for row in assigned(broker, "three")] == [
        (0, 0, b"third"), (0, 1, b"second"), (1, 0, b"second"), (2, 0, b"first")
    ]  # fmt: skip


def test_without_acks(broker: pylogseg.Broker, client: RawClient) -> None:
    """There is no answer; that it was refused shows by the end of the connection."""
    asked = {"name": "one", "partitionData": [{"index": 0, "records": good()}]}
    client.send(0, 9, {"acks": 0, "topicData": [asked]})
    assert client.ask(2, 5, {"replicaId": -1, "topics": [{"name": "one", "partitions": [
        {"partitionIndex": 0, "timestamp": -1}]}]})["topics"][0]["partitions"][0]["offset"] == 2  # fmt: skip
    asked["partitionData"][0]["records"] = b""
    client.send(0, 9, {"acks": 0, "topicData": [asked]})
    assert client.is_closed()


def test_internal_topics_are_not_written_to(broker: pylogseg.Broker, client: RawClient) -> None:
    topics_of(broker).make("__consumer_offsets", 1)
    assert produced(client, "__consumer_offsets", good())["errorCode"] == codes.INVALID_TOPIC


# ---- the broker itself ----


def test_topics_from_the_beginning() -> None:
    with pylogseg.Broker(topics=["a", "b"], partitions=2, auto_create=False) as broker:
        assert broker.topics == ["a", "b"]
        with RawClient(broker.bootstrap_servers) as client:
            found = client.ask(3, 9, {"topics": [{"name": "a"}, {"name": "c"}], "allowAutoTopicCreation": True})
            errors = [(each["name"], each["errorCode"], len(each["partitions"])) for each in found["topics"]]
            assert errors == [("a", 0, 2), ("c", codes.UNKNOWN_TOPIC_OR_PARTITION, 0)]


def test_an_address_that_is_taken(broker: pylogseg.Broker) -> None:
    with pytest.raises(StorageError, match="listen on"):
        pylogseg.Broker(listen=broker.bootstrap_servers)
    with pytest.raises(RequestError, match="HOST:PORT"):
        pylogseg.Broker(listen="nowhere")


def test_a_server_that_reads_has_none_of_it() -> None:
    """It neither imports what writes, nor says that it could."""
    code = "import sys, pylogseg.server.opening, pylogseg.server.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8").stdout
    assert not [name for name in loaded.split() if name.startswith("pylogseg.server.writing")]
    from pylogseg.server.handlers import READ_ONLY
    from pylogseg.server.writing.handlers import WRITING

    assert not {19, 20, 21, 24, 25, 26, 28, 33, 37, 42, 44, 47} & set(READ_ONLY.offered)
    assert set(READ_ONLY.offered) < set(WRITING.offered)
