#!/usr/bin/env python3
"""Points of an archive that are written while clients write, each restored into a fresh broker.

    archives.py [--points N] [--seed N] [--keep DIR]

A broker has topics of several kinds; producers write idempotently, in transactions that are committed, aborted or left
open, and to a compacted topic with small segments; a group moves; records are deleted, a topic is deleted and made
again. Meanwhile `pylogseg archive` writes a point every few seconds. Then the broker is killed, `verify --read-all` has
to find nothing, and each point is restored by `restore --node-id` into an empty folder, which a new broker opens: it
may not recover anything or warn of a partition. Every record that was acknowledged two seconds before the point (the
broker notes its high watermark in between) has to be there once, at its offset, none that was not sent, none of a
transaction that was aborted; the group stands where the point's commits are; then the same producers and the group go
on. A compacted log may have a fault that its point names: the cleaner went on while it was read. Last, `drill` with
that Kafka has to agree. Three minutes; exit code 0 if all is well. Needs confluent-kafka.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tiers import broker, server

from pylogseg.archive import list_points, read_point
from pylogseg.archive.kafka_home import StartedKafka

TOPICS = {"plain": 3, "tx": 2, "state": 1, "again": 1}
SETTINGS = {
    "plain": {"internal.segment.bytes": "20000"},
    "tx": {"internal.segment.bytes": "20000"},
    "state": {"cleanup.policy": "compact", "internal.segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"},
}
LINES = ["replica.high.watermark.checkpoint.interval.ms=300", "log.flush.start.offset.checkpoint.interval.ms=300",
         "log.cleaner.backoff.ms=500", "offsets.topic.num.partitions=3"]  # fmt: skip
#: A record counts as one of the point if it was acknowledged so long before: the broker notes what is committed.
SETTLED_S = 2.0
QUIET = {"log_level": 0, "error_cb": lambda error: None}
ISOLATIONS = ("read_uncommitted", "read_committed")

Place = tuple[str, int, int]


class Sent(NamedTuple):
    """A record that was acknowledged."""

    value: str
    key: str
    at_s: float


class Life:
    """Clients of a broker, until they are stopped; what they were told."""

    def __init__(self, address: str, chance: random.Random) -> None:
        self._address, self._chance, self._stop = address, chance, threading.Event()
        self.acks: dict[Place, Sent] = {}
        self.values: set[str] = set()  #: Of all that was sent.
        self.committed: dict[str, float] = {}  #: Values of transactions, by when they were committed.
        self.aborted: set[str] = set()
        self.groups: list[tuple[float, dict[int, int]]] = []
        self.ids: dict[str, set[str]] = {}
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._plain, self._transactions, self._group)
        ]
        self._errors: list[str] = []

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def stop(self) -> list[str]:
        self._stop.set()
        for each in self._threads:
            each.join()
        return self._errors

    def _sent(self, producer: Producer, topic: str, partition: int, key: str, value: str) -> None:
        def told(error: Any, message: Any) -> None:
            if error is None:
                place = message.topic(), message.partition(), message.offset()
                self.acks[place] = Sent(message.value().decode(), key, time.time())

        self.values.add(value)
        while not self._stop.is_set():
            try:
                producer.produce(topic, value.encode(), key.encode(), partition, on_delivery=told)
                return
            except BufferError:
                producer.poll(0.5)

    def _plain(self) -> None:
        producer = Producer({**QUIET, "bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 5})
        number = 0
        while not self._stop.is_set():
            for _ in range(self._chance.randrange(1, 80)):
                number += 1
                self._sent(producer, "plain", number % 3, f"k{number}", f"plain {number} " + "x" * (number % 90))
                self._sent(producer, "state", 0, f"k{number % 11}", f"state {number} " + "y" * 60)
            producer.poll(0)
            time.sleep(0.05)
        producer.flush(30)

    def _transactions(self) -> None:
        settings = {**QUIET, "bootstrap.servers": self._address, "transactional.id": "archives"}
        producer = Producer(settings)
        producer.init_transactions(60)
        number = 0
        while not self._stop.is_set():
            producer.begin_transaction()
            values = []
            for _ in range(self._chance.randrange(1, 20)):
                number += 1
                values.append(f"tx {number} " + "z" * (number % 50))
                self._sent(producer, "tx", number % 2, f"k{number}", values[-1])
            producer.flush(30)
            time.sleep(self._chance.random() * 0.5)  # so that some are open at a point
            try:
                if self._chance.random() < 0.3:
                    producer.abort_transaction(30)
                    self.aborted.update(values)
                else:
                    producer.commit_transaction(30)
                    self.committed |= dict.fromkeys(values, time.time())
            except KafkaException as error:
                self._errors.append(f"a transaction: {error}")
                return

    def _group(self) -> None:
        consumer = Consumer({**QUIET, "bootstrap.servers": self._address, "group.id": "g", "enable.auto.commit": False,
                             "auto.offset.reset": "earliest"})  # fmt: skip
        consumer.subscribe(["plain"])
        while not self._stop.is_set():
            if consumer.consume(50, 0.3):
                try:
                    offsets = consumer.commit(asynchronous=False)
                except KafkaException:
                    continue
                self.groups.append((time.time(), {each.partition: each.offset for each in offsets}))
        consumer.close()


def shell(*words: object, code: int = 0) -> str:
    """Run a command of the shell, which has to end with a code."""
    command = [sys.executable, "-m", "pylogseg", *map(str, words)]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode != code:
        print(f"$ pylogseg {' '.join(map(str, words))}\n{done.stdout[-3000:]}")
        sys.exit(f"exit code {done.returncode}: {done.stderr[-3000:]}")
    return done.stdout


def archived(disk: Path, archive: Path) -> list[str]:
    """Write a point; what is wrong."""
    command = [sys.executable, "-m", "pylogseg", "archive", str(disk), str(archive)]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode == 1:  # a fault of a partition, which the point has too
        print(done.stderr, end="", flush=True)
    return [] if done.returncode < 2 else [f"archive ended with {done.returncode}: {done.stdout}{done.stderr}"]


def make_topics(address: str, names: list[str]) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": address})
    topics = [NewTopic(name, TOPICS[name], 1, config=SETTINGS.get(name, {})) for name in names]
    for future in admin.create_topics(topics).values():
        future.result(60)


def happen(address: str, number: int) -> None:
    """What happens between two points, besides clients."""
    admin = AdminClient({**QUIET, "bootstrap.servers": address})
    if number == 2:
        admin.delete_records([TopicPartition("plain", 0, 100)])[TopicPartition("plain", 0)].result(60)
    if number == 3:
        admin.delete_topics(["again"])["again"].result(60)
        time.sleep(1)
        make_topics(address, ["again"])


def consumed(address: str, topic: str, isolation: str, ends: dict[int, int]) -> dict[Place, tuple[str, str]]:
    """Read a topic up to the ends that it has now."""
    consumer = Consumer({**QUIET, "bootstrap.servers": address, "group.id": "reader", "isolation.level": isolation,
                         "enable.auto.commit": False, "enable.partition.eof": True})  # fmt: skip
    places = [TopicPartition(topic, number) for number in ends]
    for each in places:
        each.offset = consumer.get_watermark_offsets(each)[0]
    consumer.assign(places)
    found: dict[Place, tuple[str, str]] = {}
    left, until = set(ends), time.monotonic() + 60
    while left and time.monotonic() < until:
        for message in consumer.consume(1000, 1):
            if message.error() is not None:
                left.discard(message.partition())
                continue
            place = topic, message.partition(), message.offset()
            assert place not in found, f"{place} came twice"
            if message.offset() < ends[message.partition()]:
                found[place] = (message.key() or b"").decode(), (message.value() or b"").decode()
    consumer.close()
    assert not left, f"{topic}: partitions {left} did not come to their ends"
    return found


def check(address: str, life: Life, point: Any, begun_s: float) -> list[str]:
    """Compare what a restored broker gives with what clients were told."""
    ends = {(each.topic, each.partition): each.end_offset for each in point.partitions}
    starts = {(each.topic, each.partition): each.start_offset for each in point.partitions}
    wrong, count = [], 0
    faulty = {each.topic for each in point.partitions if each.fault} & {"state"}  # its cleaner went on meanwhile
    for topic in sorted({"plain", "tx", "state"} - faulty):
        own = {number: ends[topic, number] for number in range(TOPICS[topic])}
        found = consumed(address, topic, "read_uncommitted", own)
        count += len(found)
        last_of = {key: max(at for at, (other, _) in found.items() if other == key) for key, _ in found.values()}
        for place, (_, value) in found.items():
            known = life.acks.get(place)
            if value not in life.values or (known is not None and known.value != value):
                wrong.append(f"{place} has {value[:20]!r}, which is {None if known is None else known.value[:20]!r}")
        for place, sent in life.acks.items():
            if place[0] != topic or place[2] < starts[place[:2]] or sent.at_s > begun_s - SETTLED_S:
                continue
            is_cleaned = topic == "state" and last_of.get(sent.key, ("", 0, -1))[2] > place[2]
            if place not in found and not is_cleaned:
                wrong.append(f"{place} was acknowledged {begun_s - sent.at_s:.1f} s before the point, and is missing")
    shown = consumed(address, "tx", "read_committed", {number: ends["tx", number] for number in range(TOPICS["tx"])})
    values = {value for _, value in shown.values()}
    wrong += [f"{value[:20]!r} was aborted, and is shown" for value in values & life.aborted]
    settled = {value for value, at_s in life.committed.items() if at_s < begun_s - SETTLED_S}
    wrong += [f"{value[:20]!r} was committed, and is not shown" for value in settled - values]
    before = [offsets for at_s, offsets in life.groups if at_s < begun_s - SETTLED_S]
    consumer = Consumer({**QUIET, "bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "error"})
    places = [TopicPartition("plain", number) for number in range(3)]
    stands = {each.partition: each.offset for each in consumer.committed(places, 60)}
    consumer.close()
    known = {number: offset for _, offsets in life.groups for number, offset in offsets.items()}
    least = {number: max((each.get(number, -1) for each in before), default=-1) for number in known}
    for number in known:
        if not least[number] <= stands[number] <= ends["plain", number]:
            wrong.append(f"the group stands at {stands}, had committed {least}, and the logs end at {ends}")
    done = f"{count} records, {len(settled)} of committed transactions, group at {stands}"
    print(f"  {done}: {len(wrong)} wrong", flush=True)
    return wrong


def go_on(address: str) -> list[str]:
    """The same producers write, and the group reads it."""
    told: list[str] = []
    for settings in ({"enable.idempotence": True}, {"transactional.id": "archives"}):
        producer = Producer({**QUIET, "bootstrap.servers": address, **settings})
        if "transactional.id" in settings:
            producer.init_transactions(60)
            producer.begin_transaction()
        for number in range(3):
            producer.produce("plain", b"afterwards", None, number, on_delivery=lambda error, _: told.append(str(error)))
        producer.flush(60)
        if "transactional.id" in settings:
            producer.commit_transaction(60)
    return [f"a producer goes on: {each}" for each in told if each != "None"] + (["lost"] if len(told) != 6 else [])


def restored(root: Path, url: Path, life: Life, point: Any, begun_s: float) -> list[str]:
    """Restore a point into a fresh broker, and check it."""
    folder = root / f"restored-{point.id}"
    (folder / "data0").mkdir(parents=True)
    (folder / "run").mkdir()
    (folder / "run" / "static").touch()  # who votes is in the broker's settings
    print(shell("restore", url, folder / "data0", "--point", point.id, "--node-id", 1).splitlines()[-1], flush=True)
    broker("start", folder, *LINES)
    try:
        address = server(folder)
        wrong = check(address, life, point, begun_s)
        names = [each.name for each in point.partitions]
        said = StartedKafka(address, str(folder / "run" / "server.log")).complaints(names)
        wrong += [f"the broker says: {line[:300]}" for line in said]
        wrong += go_on(address)
    finally:
        broker("kill", folder)
    shutil.rmtree(folder)
    return [f"{point.id}: {each}" for each in wrong]


def kafka_home(root: Path) -> Path:
    """The folder of a Kafka, of the jars that broker.sh has fetched."""
    cache = Path(os.environ.get("ORACLE_HOME", Path.home() / ".cache" / "pylogseg-oracle"))
    version = os.environ.get("KAFKA_VERSION", "4.3.0")
    libs = root / "kafka" / "libs"
    libs.mkdir(parents=True)
    for jar in [*(cache / f"kafka-{version}").glob("*.jar"), *(cache / "broker-log").glob("*.jar")]:
        if "slf4j-nop" not in jar.name:
            (libs / jar.name).symlink_to(jar)
    return libs.parent


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep all files there")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="archives-", dir=options.keep))
    live, archive, begun = root / "live", root / "archive", []
    archive.mkdir()
    wrong: list[str] = []
    try:
        broker("start", live, *LINES)
        try:
            make_topics(server(live), list(TOPICS))
            life = Life(server(live), random.Random(options.seed))
            life.start()
            for number in range(options.points):
                time.sleep(2 + SETTLED_S)
                happen(server(live), number)
                begun.append(time.time())
                wrong += archived(live / "data0", archive)
                print(f"a point after {len(life.acks)} records were acknowledged", flush=True)
            wrong += life.stop()
        finally:
            broker("kill", live)
        print(shell("verify", archive, "--read-all"), end="", flush=True)
        points = [read_point(archive, name) for name in list_points(archive)]
        if len(points) != len(begun):
            sys.exit(f"{len(points)} points of {len(begun)} runs")
        ids = {each.topic_id for point in points for each in point.partitions if each.topic == "again"}
        wrong += [] if len(ids) == 2 or options.points < 5 else [f"topics of the name again: {ids}"]
        for point, begun_s in zip(points, begun, strict=True):
            wrong += restored(root, archive, life, point, begun_s)
        os.environ["KAFKA_OPTS"] = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
        code = 2 if any(each.fault for each in points[-1].partitions) else 0
        evidence = json.loads(shell("drill", archive, "--kafka-home", kafka_home(root), "--json", code=code))
        print(f"drill: {evidence['verdict']}, {[each['broker'] for each in evidence['brokers']]}")
        print("\n".join(wrong[:50]) or "all is as it was at each point")
        return 1 if wrong else 0
    finally:
        if options.keep is None:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
