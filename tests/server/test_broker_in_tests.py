"""Tests of server/writing/broker.py, server/writing/clock.py and server/writing/memory.py. What a test asks a broker in
this process for: records, offsets, topics, a stop and a start, a new beginning.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import kafka
import pytest
from helpers.kafka_clients import PATIENCE_S, RawClient, assigned, batch, produced, row_of

import pylogseg
from pylogseg.errors import ClosedError, InvalidRecordError, RequestError

confluent_kafka = pytest.importorskip("confluent_kafka")

TOPICS = {"one": 1, "three": 3}


def values(broker: pylogseg.Broker, topic: str, **options: Any) -> list[bytes | None]:
    return [record.value for record in broker.records(topic, **options)]


# ---- records ----


def test_records_are_those_that_a_client_reads(broker: pylogseg.Broker) -> None:
    """Written by a client, in every codec, and by the test itself."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        options = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 50}
        producer = confluent_kafka.Producer(options)
        for i in range(30):
            producer.produce("three", b"%d" % i * 100, b"k%d" % i, headers={"h": codec.encode()})
        assert producer.flush(PATIENCE_S) == 0
    broker.produce("three", "text", None, key="k", headers={"h": "x"}, timestamp=1_700_000_000_000, partition=2)
    found = [row_of(each) for each in broker.records("three")]
    assert found == assigned(broker, "three")
    assert len(found) == 152
    assert [row_of(each) for each in broker.records("three", 1)] == [row for row in found if row[1] == 1]
    assert found[-2:] == [
        ("three", 2, found[-3][2] + 1 + i, 1_700_000_000_000, b"k", value, (("h", b"x"),))
        for i, value in enumerate((b"text", None))
    ]


def test_a_key_chooses_its_partition_as_in_kafka(broker: pylogseg.Broker) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for i in range(20):
        broker.produce("three", b"ours", key=f"key {i}")
        producer.send("three", b"theirs", key=b"key %d" % i)
    producer.close()
    found = {(each.key, each.partition) for each in broker.records("three")}
    assert len(found) == 20
    assert {partition for _, partition in found} == {0, 1, 2}
    broker.produce("three", b"without a key")
    assert broker.records("three", 0)[-1].value == b"without a key"


def test_records_of_transactions(broker: pylogseg.Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    for value, end in ((b"committed", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("one", value)
        assert producer.flush(PATIENCE_S) == 0
        end(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("one", b"open")
    assert producer.flush(PATIENCE_S) == 0
    assert values(broker, "one") == [b"committed", b"aborted", b"open"]
    assert values(broker, "one", isolation_level="read_committed") == [b"committed"]


def test_what_is_asked_for_must_be_there(broker: pylogseg.Broker) -> None:
    with pytest.raises(RequestError, match="no topic 'ones'; there are one, three"):
        broker.records("ones")
    with pytest.raises(RequestError, match="has the partitions"):
        broker.records("one", 1)
    with pytest.raises(RequestError, match="0 to 2, not 3"):
        broker.produce("three", b"", partition=3)
    with pytest.raises(RequestError, match="a value for each record"):
        broker.produce("three")
    with pytest.raises(RequestError, match="not int"):
        broker.produce("three", 5)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="already exists"):
        broker.create_topic("one")
    with pytest.raises(RequestError, match="such"):
        broker.create_topic("two", config={"no.such": 1})
    with pytest.raises(RequestError, match="may not write"):
        broker.produce("__consumer_offsets", b"")
    broker.create_topic("compacted", 2, {"cleanup.policy": "compact"})
    with pytest.raises(InvalidRecordError, match="no key"):
        broker.produce("compacted", b"")
    broker.produce("made", b"")
    assert {name: each.count for name, each in broker.catalog.topics.items()} == {**TOPICS, "compacted": 2, "made": 1}


def test_a_refused_record_makes_no_topic(broker: pylogseg.Broker) -> None:
    for values, options in (((5,), {}), ((b"",), {"key": 5}), ((b"", 5), {}), ((b"",), {"partition": 9}),
                            ((b"",), {"headers": 5}), ((b"",), {"timestamp": "now"})):  # fmt: skip
        with pytest.raises(RequestError):
            broker.produce("new", *values, **options)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="no topic 'new'"):
            broker.records("new")
    broker.create_topic("new", config={"cleanup.policy": "compact"})


def test_a_group_that_has_not_come_yet_has_committed_nothing(broker: pylogseg.Broker) -> None:
    assert broker.committed("g") == {}


def test_options_in_plain_words() -> None:
    bad: dict[str, Any] = {"auto_create": "no", "partitions": "3", "node_id": -1, "max_connections": 0, "topics": "one"}
    for name, value in bad.items():
        with pytest.raises(RequestError, match=name):
            pylogseg.Broker(**{name: value})
    with pytest.raises(RequestError, match="partitions of one must be a whole number"):
        pylogseg.Broker(topics={"one": "3"})  # type: ignore[dict-item]
    with pylogseg.Broker(auto_create=False, node_id=7) as broker, RawClient(broker.bootstrap_servers) as client:
        assert [each["nodeId"] for each in client.ask(3, 9, {"topics": None})["brokers"]] == [7]
        with pytest.raises(RequestError, match="no topic"):
            broker.produce("one", b"")


def test_offsets_of_groups(broker: pylogseg.Broker) -> None:
    broker.produce("three", b"a", b"b", b"c", partition=1)
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    member = confluent_kafka.Consumer(options)
    member.commit(offsets=[confluent_kafka.TopicPartition("three", 1, 2)], asynchronous=False)
    member.close()
    assert broker.committed("g") == {("three", 1): 2}


# ---- a life ----


def served_by_nobody(broker: pylogseg.Broker) -> bool:
    with socket.socket() as found:
        return found.connect_ex(broker.address) != 0


def test_a_broker_stops_and_goes_on_at_its_port(broker: pylogseg.Broker) -> None:
    """What it has stays; a producer that was there before goes on without a doubled record."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0,
         "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}
    )  # fmt: skip
    producer.produce("one", b"before")
    assert producer.flush(PATIENCE_S) == 0
    with RawClient(broker.bootstrap_servers) as client:
        row = {"name": "one", "partitions": [{"partitionIndex": 0, "committedOffset": 1, "committedMetadata": ""}]}
        client.ask(8, 7, {"groupId": "g", "generationIdOrMemberEpoch": -1, "topics": [row]})
        broker.stop()
        broker.stop()
        assert client.is_closed()
    assert served_by_nobody(broker)
    assert "stopped" in repr(broker)
    assert values(broker, "one") == [b"before"]
    producer.produce("one", b"meanwhile")
    producer.poll(0.1)
    broker.start()
    broker.start()
    assert producer.flush(PATIENCE_S) == 0
    assert values(broker, "one") == [b"before", b"meanwhile"]
    assert broker.committed("g") == {("one", 0): 1}


def test_a_directory_is_free_while_its_broker_is_stopped(tmp_path: Path) -> None:
    with pylogseg.Broker(tmp_path, topics=["one"], node_id=5) as broker:
        broker.produce("one", b"before")
        broker.stop()
        assert [record.value for record in pylogseg.read(tmp_path, "one")] == [b"before"]
        with pytest.raises(ClosedError, match="start\\(\\)"):
            broker.records("one")
        with pylogseg.Broker(tmp_path) as other:
            assert other.catalog.node_id == 5
            other.produce("one", b"meanwhile")
        broker.start()
        broker.produce("one", b"after")
        assert values(broker, "one") == [b"before", b"meanwhile", b"after"]
        with pytest.raises(RequestError, match="only a broker in memory"):
            broker.reset()
    with pytest.raises(RequestError, match="is of node 5, not of 6"):
        pylogseg.Broker(tmp_path, node_id=6)


def test_a_new_beginning(broker: pylogseg.Broker) -> None:
    """Nothing is left but what was there at the beginning; clients lose their connections, and the port stays."""
    port = broker.address
    broker.produce("one", b"x")
    broker.create_topic("more")
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS")
    broker.delay("Produce", 600)
    broker.clock.advance(3600)
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(22, 4, {"transactionalId": "t", "transactionTimeoutMs": 1000, "producerId": -1})
        broker.pause()
        before = broker.catalog.topics["one"].id
        broker.reset()
        assert client.is_closed()
    assert (broker.address, sorted(broker.topics), broker.requests) == (port, sorted(TOPICS), [])
    assert broker.catalog.topics["one"].id != before
    assert values(broker, "one") == []
    with RawClient(broker.bootstrap_servers) as client:
        assert produced(client, "one", batch(b"y"))["baseOffset"] == 0
        assert client.ask(16, 2)["groups"] == []
    assert values(broker, "one") == [b"y"]
    with pylogseg.Broker() as other:
        assert abs(broker.clock.now_ms() - other.clock.now_ms()) < 60_000


def test_a_broker_that_is_closed(broker: pylogseg.Broker) -> None:
    with pylogseg.Broker() as other:
        pass
    with pytest.raises(ClosedError, match="make a new one"), other:
        pass
    for ask in (other.start, other.reset, lambda: other.records("one"), lambda: other.produce("one", b"")):
        with pytest.raises(ClosedError, match="in memory: closed"):
            ask()
    other.stop()
    other.close()
    assert repr(broker) == f"<pylogseg.Broker at {broker.bootstrap_servers}, in memory: 2 topics>"


def test_what_is_no_key_and_no_partition_is_refused(broker: pylogseg.Broker) -> None:
    broker.produce("t", b"1")
    with pytest.raises(RequestError, match="a key is bytes, text or None, not int"):
        broker.produce("t", b"1", key=2)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"'t' has the partitions \[0\], not 99"):
        broker.records("t", 99)
