"""Tests of server/writing/transacting.py and server/writing/transaction_coordinator.py. Transactions of real clients
against a broker in this process: what is committed is seen, what is aborted is not.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiokafka
import kafka
import pytest
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, batch, produced

import pylogseg
from pylogseg.format.messages import codes

confluent_kafka = pytest.importorskip("confluent_kafka")

TOPICS = {"in": 2, "out": 2}


def committed(broker: pylogseg.Broker, topic: str = "out") -> list[bytes]:
    return sorted(row[5] for row in assigned(broker, topic, isolation_level="read_committed"))


def uncommitted(broker: pylogseg.Broker, topic: str = "out") -> list[bytes]:
    return sorted(row[5] for row in assigned(broker, topic))


# ---- clients ----


def test_librdkafka(broker: pylogseg.Broker) -> None:
    options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"}
    producer = confluent_kafka.Producer(options)
    producer.init_transactions(PATIENCE_S)
    for name, ends in ((b"a", producer.commit_transaction), (b"b", producer.abort_transaction),
                       (b"c", producer.commit_transaction)):  # fmt: skip
        producer.begin_transaction()
        for number in range(2):
            producer.produce("out", name, partition=number)
        assert producer.flush(PATIENCE_S) == 0
        ends(PATIENCE_S)
    assert committed(broker) == [b"a", b"a", b"c", b"c"]
    assert set(uncommitted(broker)) == {b"a", b"b", b"c"}
    producer.begin_transaction()
    producer.produce("out", b"zombie")
    producer.flush(PATIENCE_S)
    confluent_kafka.Producer(options).init_transactions(PATIENCE_S)
    with pytest.raises(confluent_kafka.KafkaException) as error:
        producer.commit_transaction(PATIENCE_S)
    assert error.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    assert committed(broker) == [b"a", b"a", b"c", b"c"]


def test_librdkafka_consumes_transforms_and_produces(broker: pylogseg.Broker) -> None:
    """Offsets of a group are part of the transaction: what was aborted is read again, and nothing twice."""
    feed = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for i in range(40):
        feed.produce("in", b"%d" % i, partition=i % 2)
    assert feed.flush(PATIENCE_S) == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    reader: Any = None
    for turn in range(8):
        if reader is None:
            reader = confluent_kafka.Consumer(
                {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest",
                 "enable.auto.commit": False, "isolation.level": "read_committed"}
            )  # fmt: skip
            reader.subscribe(["in"])
        found = reader.consume(10, PATIENCE_S / 4)
        producer.begin_transaction()
        for message in found:
            producer.produce("out", b"done %s" % message.value())
        metadata = reader.consumer_group_metadata()
        producer.send_offsets_to_transaction(reader.position(reader.assignment()), metadata)
        if turn % 2:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
            reader.close()
            reader = None
    reader.close()
    assert committed(broker) == sorted(b"done %d" % i for i in range(40))


def test_kafka_python(broker: pylogseg.Broker) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("out", b"a")
    partition = kafka.TopicPartition("in", 0)
    metadata = kafka.ConsumerGroupMetadata("g") if hasattr(kafka, "ConsumerGroupMetadata") else "g"
    producer.send_offsets_to_transaction({partition: kafka.OffsetAndMetadata(7, "m", -1)}, metadata)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send("out", b"b")
    producer.abort_transaction()
    producer.close()
    assert committed(broker) == [b"a"]
    reader = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    assert reader.committed(partition) == 7
    reader.close()


def test_aiokafka(broker: pylogseg.Broker) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t")
        async with producer:
            async with producer.transaction():
                await producer.send_and_wait("out", b"a")
                place = aiokafka.TopicPartition("in", 1)
                await producer.send_offsets_to_transaction({place: 5}, "g")
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"b")
            await producer.abort_transaction()
        reader = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
        async with reader:
            assert await reader.committed(aiokafka.TopicPartition("in", 1)) == 5

    asyncio.run(run())
    assert committed(broker) == [b"a"]


# ---- requests ----


class Requests:
    """A transactional client that sends single requests."""

    def __init__(self, client: RawClient, name: str = "t") -> None:
        self.client, self.name = client, name
        self.id, self.epoch, self.sequence = -1, -1, 0

    def fields(self, **more: Any) -> dict[str, Any]:
        return {"transactionalId": self.name, "producerId": self.id, "producerEpoch": self.epoch, **more}

    def init(self, timeout_ms: int = 60_000, version: int = 5) -> int:
        asked = {"transactionalId": self.name, "transactionTimeoutMs": timeout_ms}
        answer = self.client.ask(22, version, asked)
        if not answer["errorCode"]:
            self.id, self.epoch, self.sequence = answer["producerId"], answer["producerEpoch"], 0
        return int(answer["errorCode"])

    def add(self, *places: tuple[str, int], version: int = 3) -> list[int]:
        topics = [{"name": topic, "partitions": [number]} for topic, number in places]
        answer = self.client.ask(24, version, {
            "v3AndBelowTransactionalId": self.name, "v3AndBelowProducerId": self.id,
            "v3AndBelowProducerEpoch": self.epoch, "v3AndBelowTopics": topics})  # fmt: skip
        rows = [row for topic in answer["resultsByTopicV3AndBelow"] for row in topic["resultsByPartition"]]
        return [row["partitionErrorCode"] for row in rows]

    def produce(self, value: bytes, version: int = 11) -> int:
        data = batch(value, producer_id=self.id, producer_epoch=self.epoch, base_sequence=self.sequence,
                     transactional=True)  # fmt: skip
        row = produced(self.client, "out", data, version=version, transactionalId=self.name)
        self.sequence += not row["errorCode"]
        return int(row["errorCode"])

    def stage(self, offset: int, version: int = 3, **more: Any) -> int:
        rows = [{"partitionIndex": 0, "committedOffset": offset, "committedMetadata": ""}]
        asked = self.fields(groupId="g", topics=[{"name": "in", "partitions": rows}], **more)
        answer = self.client.ask(28, version, asked)
        return int(answer["topics"][0]["partitions"][0]["errorCode"])

    def end(self, commits: bool = True, version: int = 3) -> int:
        answer = self.client.ask(26, version, self.fields(committed=commits))
        if version >= 5 and not answer["errorCode"]:
            self.sequence = 0
            self.id, self.epoch = answer["producerId"], answer["producerEpoch"]
        return int(answer["errorCode"])

    def offset(self, *, stable: bool = False) -> tuple[int, int]:
        topics = [{"name": "in", "partitionIndexes": [0]}]
        answer = self.client.ask(9, 7, {"groupId": "g", "topics": topics, "requireStable": stable})
        row = answer["topics"][0]["partitions"][0]
        return row["errorCode"], row["committedOffset"]


def test_the_order_of_requests_is_checked(broker: pylogseg.Broker, client: RawClient) -> None:
    found = Requests(client)
    assert found.add(("out", 0)) == [codes.INVALID_PRODUCER_ID_MAPPING]
    assert found.init(0) == codes.INVALID_TRANSACTION_TIMEOUT
    assert found.init() == 0
    assert found.end() == codes.INVALID_TXN_STATE
    assert found.produce(b"x") == codes.INVALID_TXN_STATE
    assert found.add(("out", 0), ("none", 0)) == [codes.OPERATION_NOT_ATTEMPTED, codes.UNKNOWN_TOPIC_OR_PARTITION]
    assert found.add(("out", 0), ("out", 1)) == [0, 0]
    assert found.produce(b"x") == 0
    assert found.stage(4) == codes.INVALID_TXN_STATE, "the group was not added"
    assert found.end() == 0
    assert found.end() == 0, "an answer may have been lost"
    assert found.end(commits=False) == codes.INVALID_TXN_STATE
    assert committed(broker) == [b"x"]


def test_offsets_take_effect_with_the_transaction(client: RawClient) -> None:
    found = Requests(client)
    assert found.init() == 0
    for offset, commits, seen in ((4, True, 4), (9, False, 4), (11, True, 11)):
        assert client.ask(25, 3, found.fields(groupId="g"))["errorCode"] == 0
        before = found.offset()
        assert found.stage(offset) == 0
        assert found.offset() == before
        assert found.offset(stable=True) == (codes.UNSTABLE_OFFSET_COMMIT, -1)
        assert found.end(commits) == 0
        assert found.offset(stable=True) == (0, seen)
    assert client.ask(25, 3, found.fields(groupId="g"))["errorCode"] == 0
    assert found.stage(4, generationIdOrMemberEpoch=7, memberId="nobody") == codes.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("version", "code"), [(1, codes.INVALID_PRODUCER_EPOCH), (3, codes.PRODUCER_FENCED)])
def test_a_newer_client_fences_the_older_one(
    broker: pylogseg.Broker, client: RawClient, version: int, code: int
) -> None:
    old, new = Requests(client), Requests(client)
    assert old.init() == 0
    assert old.add(("out", 0)) == [0]
    assert old.produce(b"old") == 0
    assert new.init() == 0
    assert (new.id, new.epoch > old.epoch) == (old.id, True)
    assert old.produce(b"late") == codes.INVALID_PRODUCER_EPOCH
    assert old.add(("out", 0), version=version) == [code]
    assert old.end(version=version) == code
    assert (uncommitted(broker), committed(broker)) == ([b"old"], [])


def test_with_version_2_a_batch_adds_its_partition(broker: pylogseg.Broker, client: RawClient) -> None:
    """KIP-890: each end raises the epoch, so that nothing of before comes into the next transaction."""
    found = Requests(client)
    assert found.init() == 0
    assert found.end(commits=True, version=5) == codes.INVALID_TXN_STATE
    for value, commits in ((b"a", True), (b"b", False), (b"c", True)):
        before = found.id, found.epoch
        assert found.produce(value, version=12) == 0
        assert found.stage(len(value), version=5) == 0
        assert found.end(commits, version=5) == 0
        assert (found.id, found.epoch) == (before[0], before[1] + 1)
        late = Requests(client)
        late.id, late.epoch = before
        assert late.produce(b"late", version=12) == codes.INVALID_PRODUCER_EPOCH
        assert late.end(commits, version=5) == 0, "the same answer once more"
        assert (late.id, late.epoch) == (found.id, found.epoch)
    epoch = found.epoch
    assert found.end(commits=False, version=5) == 0, "an abort of nothing"
    assert found.epoch == epoch + 1
    assert committed(broker) == [b"a", b"c"]


def test_a_transaction_that_takes_too_long_is_aborted(broker: pylogseg.Broker, client: RawClient) -> None:
    found = Requests(client)
    assert found.init(timeout_ms=120_000) == 0
    assert found.add(("out", 0)) == [0]
    assert found.produce(b"x") == 0
    broker.clock.advance(60.0)
    assert found.add(("out", 1)) == [0]
    broker.clock.advance(61.0)
    assert found.add(("out", 0)) == [codes.PRODUCER_FENCED]
    assert committed(broker) == []
    assert broker.catalog.topics["out"].partitions[0].log().last_stable_offset == 2
    assert found.init() == 0


def test_the_clock_runs_by_itself(broker: pylogseg.Broker, client: RawClient) -> None:
    found = Requests(client)
    assert found.init(timeout_ms=100) == 0
    assert found.add(("out", 0)) == [0]
    until = time.monotonic() + PATIENCE_S
    while found.add(("out", 0)) == [0]:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_topic_that_is_deleted_in_the_middle(broker: pylogseg.Broker, client: RawClient) -> None:
    found = Requests(client)
    assert found.init() == 0
    assert found.add(("out", 0), ("in", 0)) == [0, 0]
    assert found.produce(b"x") == 0
    assert client.ask(20, 5, {"topicNames": ["in"]})["responses"][0]["errorCode"] == 0
    assert found.end() == 0
    assert committed(broker) == [b"x"]
