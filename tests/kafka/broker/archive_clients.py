"""Clients of a cluster whose disks are archived, and what it told them: so what has to be in a point is known."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

# A neighbour, which is no package:
from three_brokers import QUIET

#: Topics with their partitions, and how often what is written to them, in records of a turn.
PARTITIONS = {"plain": 3, "tx": 2, "state": 2, "kept": 1, "loose": 2, "again": 1}
GROUP, MOVED = "g", "h"
#: What a group that was deleted has committed.
NOTHING = -1001
_KEYS = 11
_PATIENCE_S = 90

#: A topic, or of the one that is made anew again and again one of its lives; the partition; the offset.
Place = tuple[str, int, int]


class Sent(NamedTuple):
    """A record that was acknowledged, and when the client knew it."""

    value: str | None
    key: str
    at_s: float


class Transaction(NamedTuple):
    """What was written in one, how it ended, and when that was known."""

    values: tuple[str, ...]
    state: str  #: committed, aborted, left (its producer is gone) or unknown
    at_s: float


class Move(NamedTuple):
    """An offset that was committed, when it was asked for, and when that was known; infinite if never."""

    offset: int
    asked_s: float
    told_s: float


class Clients:
    """Producers and groups, until they are stopped; what they were told."""

    def __init__(self, servers: str, chance: random.Random) -> None:
        self.servers, self._chance = servers, chance
        self._stop, self._one = threading.Event(), threading.Lock()
        self.partitions = dict(PARTITIONS)
        self.acks: dict[Place, list[Sent]] = defaultdict(list)
        self.values: set[str] = set()  #: Of all that was sent.
        self.transactions: list[Transaction] = []
        self.ids: set[str] = set()  #: Of transactional producers.
        self.moves: dict[tuple[str, str, int], list[Move]] = defaultdict(list)
        self.life = 1  #: Of the topic that is made anew.
        self.hold_s = 0.5  #: Transactions are open so long, at most.
        self.leaves = 0  #: So many are to be left open by producers that go.
        self.members = 1  #: Of the group.
        self.deletes_keys = 0  #: So many keys are to be deleted of the compacted topic.
        self.paused = threading.RLock()  #: Who has it, writes to the topic that is made anew, or makes it anew.
        self.moving = threading.RLock()  #: Who has it, moves the other group.
        self.errors: list[str] = []
        works = (self._strict, self._transactions, self._loose, self._member, self._mover)
        self._threads = [threading.Thread(target=self._guarded, args=(each,), daemon=True) for each in works]

    def start(self) -> None:
        """Let them work."""
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Let them end what they do."""
        self._stop.set()
        for each in self._threads:
            each.join(_PATIENCE_S * 2)
            if each.is_alive():
                self.errors.append("a client does not end")

    def known(self) -> dict[Place, list[Sent]]:
        """What was acknowledged so far."""
        with self._one:
            return {place: list(each) for place, each in self.acks.items()}

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.errors.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _producer(self, **settings: Any) -> Producer:
        return Producer({
            **QUIET, "bootstrap.servers": self.servers, "linger.ms": 5, "topic.metadata.refresh.interval.ms": 1000,
            "acks": "all", **settings,
        })  # fmt: skip

    def _send(
        self, producer: Producer, topic: str, partition: int, key: str, value: str | None, stream: str = ""
    ) -> None:
        def told(error: Any, message: Any) -> None:
            if error is None:
                place = stream or topic, partition, message.offset()
                with self._one:
                    self.acks[place].append(Sent(value, key, time.time()))

        if value is not None:
            self.values.add(value)
        while not self._stop.is_set():
            try:
                data = None if value is None else value.encode()
                producer.produce(topic, data, key.encode(), partition, on_delivery=told)
                return
            except BufferError:
                producer.poll(0.5)
            except KafkaException:  # a partition that it does not know yet
                return

    # ---- producers ----

    def _strict(self) -> None:
        """An idempotent one, which tries again until it is told: each of its records is there once."""
        producer, number, chance = self._producer(**{"enable.idempotence": True}), 0, self._chance
        while not self._stop.is_set():
            for _ in range(chance.randrange(1, 40)):
                number += 1
                rest = "x" * (number % 90)
                self._send(producer, "plain", number % self.partitions["plain"], f"k{number}", f"plain {number} {rest}")
                self._send(producer, "kept", 0, f"k{number}", f"kept {number} {rest}")
            for _ in range(chance.randrange(1, 20)):
                number += 1
                key = number % _KEYS
                self._send(producer, "state", key % 2, f"k{key}", f"state {number} {'y' * 60}")
            if self.deletes_keys:
                self.deletes_keys -= 1
                key = chance.randrange(_KEYS)
                self._send(producer, "state", key % 2, f"k{key}", None)
            producer.poll(0)
            time.sleep(0.1)
        if producer.flush(_PATIENCE_S):
            self.errors.append("the idempotent producer was not told of all")

    def _loose(self) -> None:
        """One that gives up soon, to a topic of unclean elections, and to one that is made anew."""
        producer, number, chance = self._producer(**{"message.timeout.ms": 5000}), 0, self._chance
        while not self._stop.is_set():
            for _ in range(chance.randrange(1, 10)):
                number += 1
                self._send(producer, "loose", number % 2, f"k{number}", f"loose {number} {'z' * (number % 70)}")
            with self.paused:
                for _ in range(chance.randrange(1, 5)):
                    number += 1
                    value = f"again {self.life} {number}"
                    self._send(producer, "again", 0, f"k{number}", value, f"again/{self.life}")
                producer.flush(6)
            time.sleep(0.1)
        producer.flush(10)

    def _transactions(self) -> None:
        producer, number, chance = None, 0, self._chance
        while not self._stop.is_set():
            if producer is None:
                producer = self._transactional("archives", 120_000)
                continue
            values: list[str] = []
            try:
                if self.leaves:
                    self.leaves -= 1
                    self._leave_open(number)
                producer.begin_transaction()
                for _ in range(chance.randrange(1, 20)):
                    number += 1
                    values.append(f"tx {number} " + "t" * (number % 50))
                    self._send(producer, "tx", number % 2, f"k{number}", values[-1])
                producer.flush(30)
                self._stop.wait(chance.random() * self.hold_s)
                is_kept = chance.random() > 0.3
                _ended(producer.commit_transaction if is_kept else producer.abort_transaction)
                self.transactions.append(Transaction(tuple(values), "committed" if is_kept else "aborted", time.time()))
            except KafkaException:  # the next one of this id ends it, this way or that
                self.transactions.append(Transaction(tuple(values), "unknown", time.time()))
                producer = None

    def _transactional(self, name: str, timeout_ms: int) -> Producer | None:
        self.ids.add(name)
        more = {"transactional.id": name, "transaction.timeout.ms": timeout_ms}
        producer = self._producer(**more, **{"message.timeout.ms": min(timeout_ms, 60_000)})
        try:
            producer.init_transactions(30)
        except KafkaException:
            self._stop.wait(0.5)
            return None
        return producer

    def _leave_open(self, number: int) -> None:
        """A producer that goes in the middle: the coordinator aborts what it wrote, some seconds later."""
        producer, values = self._transactional(f"left-{number}", 6000), []
        if producer is None:
            return
        producer.begin_transaction()
        for each in range(6):
            values.append(f"left {number} {each}")
            self._send(producer, "tx", each % 2, f"l{each}", values[-1])
        producer.flush(5)
        self.transactions.append(Transaction(tuple(values), "left", time.time()))

    # ---- groups ----

    def _member(self) -> None:
        """A member of the group; another one comes and goes beside it."""
        second: threading.Thread | None = None
        goes = threading.Event()
        settings = {
            **QUIET, "bootstrap.servers": self.servers, "group.id": GROUP, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "topic.metadata.refresh.interval.ms": 1000,
        }  # fmt: skip

        def work(until: Callable[[], bool]) -> None:
            consumer = Consumer(settings)
            consumer.subscribe(["plain", "kept"])
            while not until():
                offsets: dict[tuple[str, int], int] = {}
                for message in consumer.consume(50, 0.3):
                    if message.error() is None:
                        place = message.topic(), message.partition()
                        offsets[place] = max(offsets.get(place, 0), message.offset() + 1)
                if offsets:
                    self._commit(consumer, GROUP, offsets)
            consumer.close()

        first = threading.Thread(target=work, args=(self._stop.is_set,), daemon=True)
        first.start()
        while not self._stop.wait(0.2):
            if self.members > 1 and second is None:
                goes.clear()
                second = threading.Thread(
                    target=work, args=(lambda: goes.is_set() or self._stop.is_set(),), daemon=True
                )
                second.start()
            if self.members == 1 and second is not None:
                goes.set()
                second.join()
                second = None
        for each in filter(None, (first, second)):
            each.join()

    def _mover(self) -> None:
        """A group without members, whose offsets go to and fro."""
        settings = {**QUIET, "bootstrap.servers": self.servers, "group.id": MOVED, "enable.auto.commit": False}
        consumer, chance = Consumer(settings), self._chance
        while not self._stop.wait(0.4):
            number = chance.randrange(PARTITIONS["plain"])
            with self._one:
                most = max((place[2] for place in self.acks if place[:2] == ("plain", number)), default=0)
            with self.moving:
                self._commit(consumer, MOVED, {("plain", number): chance.randrange(most + 1)})
        consumer.close()

    def _commit(self, consumer: Consumer, group: str, offsets: dict[tuple[str, int], int]) -> None:
        asked_s, done = time.time(), set()
        try:
            wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
            found = consumer.commit(offsets=wanted, asynchronous=False)
            done = {(each.topic, each.partition) for each in found if each.error is None}
        except KafkaException:
            pass
        told_s = time.time()
        for place, offset in offsets.items():
            self.moves[(group, *place)].append(Move(offset, asked_s, told_s if place in done else float("inf")))


def _ended(end: Callable[[float], None]) -> None:
    """End a transaction, however long it takes."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            end(10)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise
