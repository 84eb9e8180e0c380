"""A controller and three brokers with many partitions, what writes to them, and what happens to them, at random."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition as OtherTopicPartition

# A neighbour, which is no package:
from three_brokers import QUIET, ThreeBrokers

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ISOLATIONS = ("read_uncommitted", "read_committed")
_WORDS = [b"alpha", b"beta", b"gamma", b"delta", b"omega"]

Key = tuple[str, int]


class Topic(NamedTuple):
    """A topic, and how it is written."""

    name: str
    partitions: int
    replicas: int
    settings: dict[str, str]
    writer: str  #: plain, idempotent or transactional
    codec: str


def drawn_topics(chance: random.Random, partitions: int) -> list[Topic]:
    """Topics of one to three partitions, with settings of all kinds."""
    topics: list[Topic] = []
    while partitions > 0:
        count = min(chance.choice((1, 2, 2, 3)), partitions)
        partitions -= count
        settings = {
            "unclean.leader.election.enable": chance.choice(("true", "true", "false")),
            "min.insync.replicas": chance.choice(("1", "1", "2")),
            "internal.segment.bytes": str(chance.choice((3000, 8192, 30000))),
            "index.interval.bytes": str(chance.choice((512, 4096))),
            "compression.type": chance.choice(("producer", "producer", "producer", "zstd", "lz4", "uncompressed")),
            "message.timestamp.type": chance.choice(("CreateTime", "CreateTime", "CreateTime", "LogAppendTime")),
        }
        writer = chance.choice(("plain", "plain", "idempotent", "transactional", "transactional"))
        name = f"t{len(topics)}-{writer}"
        topics.append(Topic(name, count, chance.choice((3, 3, 2)), settings, writer, chance.choice(CODECS)))
    return topics


class Writers:
    """Producers that go on whatever happens: what cannot be written is given up."""

    def __init__(self, chance: random.Random, topics: list[Topic]) -> None:
        self._chance, self._topics = chance, topics
        self._producers: dict[tuple[str, str], Producer] = {}
        self._number = 0
        self.counts: Counter[str] = Counter()

    def write(self, servers: str, most: int) -> None:
        """Write up to so many records to most partitions."""
        keys = [(topic, p) for topic in self._topics for p in range(topic.partitions) if self._chance.random() < 0.7]
        self._chance.shuffle(keys)
        of: dict[tuple[str, str], list[tuple[Topic, int]]] = {}
        for topic, number in keys:
            of.setdefault((topic.writer, topic.codec if topic.writer == "plain" else "any"), []).append((topic, number))
        for (writer, codec), chosen in of.items():
            try:
                producer = self._producers.get((writer, codec)) or self._made(servers, writer, codec)
                self._producers[writer, codec] = producer
                if writer == "transactional":
                    self._transactions(producer, chosen, most)
                else:
                    self._send(producer, chosen, most)
            except (KafkaException, BufferError) as error:
                self.counts["producers given up"] += 1
                self._producers.pop((writer, codec), None)
                del error
        limit = time.monotonic() + 3
        for (writer, codec), producer in list(self._producers.items()):
            if writer == "transactional":
                continue
            try:
                producer.flush(max(limit - time.monotonic(), 0.1))
            except (KafkaException, SystemError):  # an idempotent one whose batches an election has cut off
                self.counts["producers given up"] += 1
                self._producers.pop((writer, codec))

    def close(self) -> None:
        for producer in self._producers.values():
            with contextlib.suppress(KafkaException):
                producer.flush(3)
        self._producers.clear()

    def _made(self, servers: str, writer: str, codec: str) -> Producer:
        chance = self._chance
        settings: dict[str, Any] = {
            **QUIET,
            "bootstrap.servers": servers,
            "compression.type": codec if writer == "plain" else chance.choice(CODECS),
            "linger.ms": chance.choice((0, 5, 20)),
            "message.timeout.ms": 3000,
            "batch.num.messages": chance.choice((5, 20, 200)),
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if writer == "plain":
            settings["acks"] = "1"
        elif writer == "idempotent":
            settings["enable.idempotence"] = True
        else:
            settings |= {"transactional.id": f"tx-{codec}", "transaction.timeout.ms": 6000, "message.timeout.ms": 5000}
        producer = Producer(settings)
        if writer == "transactional":
            producer.init_transactions(6)
        return producer

    def _send(self, producer: Producer, chosen: list[tuple[Topic, int]], most: int) -> None:
        chance = self._chance
        for topic, partition in chosen:
            for _ in range(chance.randint(1, most)):
                value = b"%d " % self._number + b" ".join(chance.choices(_WORDS, k=chance.choice((0, 1, 10, 40, 60))))
                key = chance.choice((None, b"", b"key %d" % chance.randrange(20)))
                headers = chance.choice((None, None, None, [("h", b"1"), ("h", None)]))
                producer.produce(
                    topic.name, chance.choice((value, value, value, value, None)), key, partition, headers=headers,
                    timestamp=int(time.time() * 1000) - chance.randrange(5000), on_delivery=self._noted,
                )  # fmt: skip
                self._number += 1
            producer.poll(0)

    def _noted(self, error: Any, message: Any) -> None:
        self.counts["not written" if error else "written"] += 1

    def _transactions(self, producer: Producer, chosen: list[tuple[Topic, int]], most: int) -> None:
        chance, rest = self._chance, list(chosen)
        while rest:
            some, rest = rest[:8], rest[8:]
            producer.begin_transaction()
            self._send(producer, some, most)
            end = chance.random()
            if end < 0.1:  # it stays open, until its time is over
                producer.flush(3)
                self.counts["left open"] += 1
                raise BufferError
            if end < 0.35:
                producer.flush(3)
                producer.abort_transaction(6)
                self.counts["aborted"] += 1
            else:
                producer.commit_transaction(6)
                self.counts["committed"] += 1


class Cluster(ThreeBrokers):
    """The brokers, what is written, and what happens to them."""

    def __init__(self, root: Path, chance: random.Random, partitions: int) -> None:
        super().__init__(root, chance)
        self.topics = drawn_topics(chance, partitions)
        self.writers = Writers(chance, self.topics)

    @property
    def keys(self) -> list[Key]:
        return [(topic.name, number) for topic in self.topics for number in range(topic.partitions)]

    @property
    def names(self) -> Collection[str]:
        return {topic.name for topic in self.topics}

    @property
    def partition_count(self) -> int:
        return len(self.keys)

    def begin(self) -> None:
        """Start all, and make the topics."""
        self.start(self.controller, *self.brokers)
        admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        made = []
        for topic in self.topics:
            places = [self.chance.sample([1, 2, 3], topic.replicas) for _ in range(topic.partitions)]
            made.append(NewTopic(topic.name, topic.partitions, replica_assignment=places, config=topic.settings))
        for future in admin.create_topics(made, operation_timeout=60, request_timeout=90).values():
            future.result(90)
        self.wait("leaders", lambda rows: all(row.leader in row.isr for row in rows.values()))

    # ---- what happens ----

    def step(self) -> None:
        """Something happens, while records are written."""
        self.start(*[node for node in self.brokers if not node.is_up])
        steps = [(self.kill_some, 4), (self.stall, 4), (self.stop_one, 1), (self.reassign, 2), (self.delete_records, 1),
                 (self.elect, 1), (self.turn, 2)]  # fmt: skip
        (event,) = self.chance.choices([each for each, _ in steps], [weight for _, weight in steps])
        print(f"  {event.__name__}", flush=True)
        self.counts[event.__name__] += 1
        event()
        self.write()

    def write(self, most: int = 25) -> None:
        self.writers.write(self.servers, most)

    def kill_some(self) -> None:
        """One or two go, and come back in any order."""
        gone = self.chance.sample(self.brokers, self.chance.choice((1, 1, 2)))
        for node in gone:
            node.end("kill")
        self.write()
        self.chance.shuffle(gone)
        if self.chance.random() < 0.5:
            for node in gone:
                self.start(node)
                self.write(5)
        else:
            self.start(*gone)

    def stall(self) -> None:
        """Some do not answer for a while, shorter or longer than a follower may lag; then a leader may go."""
        stalled = self.chance.sample(self.brokers, self.chance.choice((1, 2)))
        for node in stalled:
            node.signal(signal.SIGSTOP)
        self.write(6)
        time.sleep(self.chance.choice((0, 0, 0.5, 2)))
        gone = None
        if self.chance.random() < 0.7:
            gone = self.chance.choice([node for node in self.brokers if node not in stalled])
            gone.end("kill")
        for node in stalled:
            node.signal(signal.SIGCONT)
        self.write(6)
        if gone is not None:
            self.start(gone)

    def stop_one(self) -> None:
        """One is stopped in order."""
        node = self.chance.choice(self.brokers)
        node.end("stop")
        self.write()
        self.start(node)

    def turn(self) -> None:
        """Two go, the third writes alone and goes; the two come back, and lead without what it had, if they may."""
        alone, *others = self.chance.sample(self.brokers, 3)
        for node in others:
            node.end("kill")
        self.wait("one leader", lambda rows: all(row.leader in (-1, alone.number) for row in rows.values()), 20)
        self.write(6)
        time.sleep(0.6)  # its high watermark is noted
        alone.end("kill")
        self.start(*others)
        self.write()
        self.alone = alone
        if self.chance.random() < 0.6:
            self.start(alone)

    def reassign(self) -> None:
        """Some partitions get other replicas."""
        some = self.chance.sample(self.keys, max(len(self.keys) // 6, 1))
        with self.other_admin() as admin:
            places = {
                OtherTopicPartition(*key): self.chance.sample([1, 2, 3], self.chance.choice((2, 3))) for key in some
            }
            admin.alter_partition_reassignments(places, timeout_ms=10_000)
        self.write()

    def delete_records(self) -> None:
        """The beginning of some partitions goes."""
        rows, before = self.rows(), {}
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "none", **QUIET})
        for key in self.chance.sample(self.keys, max(len(self.keys) // 10, 1)):
            if key in rows and rows[key].leader > 0:
                with contextlib.suppress(KafkaException):
                    low, high = consumer.get_watermark_offsets(TopicPartition(*key), timeout=3, cached=False)
                    if high > low:
                        before[TopicPartition(*key, self.chance.randint(low, high))] = True
        consumer.close()
        admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        for future in admin.delete_records(list(before), request_timeout=10).values() if before else ():
            with contextlib.suppress(KafkaException):
                future.result(15)
                self.counts["with deleted records"] += 1

    def elect(self) -> None:
        """The first of the replicas leads again."""
        with self.other_admin() as admin:
            admin.elect_leaders(0, None, timeout_ms=5000, raise_errors=False)


class Seen(NamedTuple):
    """What consumers got of a partition, by isolation: records with all fields, and the end."""

    start: int
    records: dict[str, list[tuple[Any, ...]]]
    ends: dict[str, int]


def consumed(servers: str, keys: list[Key]) -> dict[Key, Seen]:
    """Read partitions from the beginning to the end, with both isolations; those that cannot be read are left out."""
    records: dict[str, dict[Key, list[tuple[Any, ...]]]] = {}
    ends: dict[str, dict[Key, tuple[int, int]]] = {}
    for isolation in ISOLATIONS:
        records[isolation], ends[isolation] = _consumed(servers, keys, isolation)
    found = {}
    for key in keys:
        if all(key in ends[isolation] for isolation in ISOLATIONS):
            start = ends[ISOLATIONS[0]][key][0]
            found[key] = Seen(start, {each: records[each][key] for each in ISOLATIONS},
                              {each: ends[each][key][1] for each in ISOLATIONS})  # fmt: skip
    return found


def _consumed(
    servers: str, keys: list[Key], isolation: str
) -> tuple[dict[Key, list[tuple[Any, ...]]], dict[Key, tuple[int, int]]]:
    settings = {
        **QUIET,
        "bootstrap.servers": servers,
        "group.id": "none",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "check.crcs": True,
    }
    consumer = Consumer(settings)
    found: dict[Key, list[tuple[Any, ...]]] = {key: [] for key in keys}
    ends: dict[Key, tuple[int, int]] = {}
    for key in keys * 3:  # a leader may have been elected a moment ago
        if key not in ends:
            with contextlib.suppress(KafkaException):
                ends[key] = consumer.get_watermark_offsets(TopicPartition(*key), timeout=10, cached=False)
    consumer.assign([TopicPartition(*key, low) for key, (low, _) in ends.items()])
    waiting = set(ends)
    limit = time.monotonic() + 120
    while waiting and time.monotonic() < limit:
        for message in consumer.consume(5000, 0.5):
            key = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                kind, timestamp = message.timestamp()
                found[key].append(
                    (message.offset(), timestamp, kind, message.key(), message.value(), tuple(message.headers() or ()))
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(key)
    consumer.close()
    for key in waiting:
        del ends[key]
    return found, ends
