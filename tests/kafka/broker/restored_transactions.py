#!/usr/bin/env python3
"""Copies and points of a broker under transactions: what a broker on each shows, and whether each id goes on.

    restored_transactions.py [--seed N] [--count N] [--kafka N] [--keep DIR]

A broker gets small transactions of Java's clients (transaction version 2) and of librdkafka's (version 1), which
commit and abort by chance. Meanwhile COUNT copies and points are taken, one after the other. A copy is that of
`pylogseg copy`: between the topic with the transactions and `__transaction_state` it takes one of 40 MB. A point is of
log directories whose high watermarks were noted at different moments, as brokers note them: hard links of the live
files, with the checkpoint of one moment for `__transaction_state`, and that of another one, up to three seconds away,
for the topics. Each is opened by a broker of ours, and every KAFKA-th one by a Kafka.
There each transactional id begins, and commits a record in each partition: no record may be shown with `read_committed`
that its client did not commit, no id may hang, and consumers have to get to the end. Exit code 0 if all is well. Needs
Java 17, Maven, confluent-kafka.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

# Neighbours, which are no package:
from tiers import broker, server

import pylogseg
from pylogseg import offline
from pylogseg.archive import restore_point, write
from pylogseg.archive.trying_transactions import TransactionClient

HERE = Path(__file__).resolve().parent
TOPIC, PARTITIONS, STATE = "tx", 3, "__transaction_state"
JAVA, NATIVE = ("java-0", "java-1"), ("native-0", "native-1")
QUIET = {"error_cb": lambda error: None, "log_level": 0}
MARKS = "replication-offset-checkpoint"
_SETTINGS = ("replica.high.watermark.checkpoint.interval.ms=100", "log.retention.check.interval.ms=2147483647")
_PATIENCE_S = 40


def version() -> str:
    """The version of Kafka."""
    return os.environ.get("KAFKA_VERSION", "4.3.0")


def java_command(classes: Path, *words: object) -> list[str]:
    """The command that runs the client."""
    cache = Path(os.environ.get("ORACLE_HOME", Path.home() / ".cache" / "pylogseg-oracle"))
    jars = str(cache / f"kafka-{version()}" / "*")
    if not (classes / "Transactions.class").exists():
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, HERE / "Transactions.java"], check=True)
    how = ["-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{jars}"]
    return ["java", *how, "Transactions", *map(str, words)]


class Load:
    """The clients; `committed` has each transaction that its client decided to commit."""

    def __init__(self, address: str, classes: Path, seed: int) -> None:
        self.address, self.committed, self.ended, self.errors = address, set[str](), Counter[str](), list[str]()
        self._stops, self._lock = threading.Event(), threading.Lock()
        command = java_command(classes, "load", address, TOPIC, PARTITIONS, *JAVA)
        self._java = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        self._threads = [threading.Thread(target=self._read, daemon=True)]
        self._threads += [
            threading.Thread(target=self._native, args=(name, random.Random(seed + i)), daemon=True)
            for i, name in enumerate(NATIVE)
        ]
        for thread in self._threads:
            thread.start()

    def _note(self, value: str, how: str) -> None:
        with self._lock:
            self.ended[how] += 1
            if how == "commit":
                self.committed.add(value)

    def _read(self) -> None:
        assert self._java.stdout is not None
        for line in self._java.stdout:
            words = line.split()
            if words[-1] in ("commit", "abort"):
                self._note(f"{words[0]} {words[1]}", words[-1])
            else:
                self.errors.append(line.strip())

    def _native(self, name: str, chance: random.Random) -> None:
        producer = Producer({**QUIET, "bootstrap.servers": self.address, "transactional.id": name, "linger.ms": 0,
                             "transaction.timeout.ms": 600_000})  # fmt: skip
        try:
            producer.init_transactions(_PATIENCE_S)
            number = 0
            while not self._stops.is_set():
                number += 1
                time.sleep(chance.random() * 0.05)
                producer.begin_transaction()
                for _ in range(chance.randint(1, 3)):
                    producer.produce(TOPIC, f"{name} {number}".encode(), partition=chance.randrange(PARTITIONS))
                    producer.flush(10)
                if chance.random() < 0.12:
                    time.sleep(chance.random() * 0.3)
                how = chance.choice(("commit", "abort"))
                self._note(f"{name} {number}", how)
                (producer.commit_transaction if how == "commit" else producer.abort_transaction)(_PATIENCE_S)
        except KafkaException as error:
            self.errors.append(f"{name}: {error}")

    def stop(self) -> None:
        """End the clients."""
        self._stops.set()
        assert self._java.stdin is not None
        self._java.stdin.close()
        self._java.wait(60)
        for thread in self._threads:
            thread.join(60)


class Moments:
    """A live log directory, and what is taken of it."""

    def __init__(self, live: Path, root: Path, chance: random.Random) -> None:
        self._live, self._root, self._chance = live, root, chance

    def copy(self, into: Path) -> list[str]:
        """Copy it; what the copy says."""
        return offline.copy(self._live, into).notes

    def point(self, into: Path) -> list[str]:
        """Archive it with high watermarks of two moments, and restore that; what the restore says."""
        shadow, archive = self._root / "shadow", self._root / "archive"
        for old in (shadow, archive):
            shutil.rmtree(old, ignore_errors=True)
        subprocess.run(["cp", "-al", self._live, shadow], check=True)
        first = self._marks()
        time.sleep(self._chance.choice((0, 0.05, 0.3, 1, 3)))
        last = self._marks()
        older, newer = (first, last) if self._chance.random() < 0.6 else (last, first)
        marks = {name: (older if name.startswith(STATE) else newer).get(name, "0") for name in {*first, *last}}
        (shadow / MARKS).unlink()  # it is a link
        (shadow / MARKS).write_text(f"0\n{len(marks)}\n" + "".join(f"{name} {at}\n" for name, at in marks.items()))
        write(shadow, archive)
        into.mkdir()
        return restore_point(archive, into, node_id=1).clients

    def _marks(self) -> dict[str, str]:
        rows = (self._live / MARKS).read_text().splitlines()[2:]
        return dict(row.rsplit(" ", 1) for row in rows)


def shown(address: str) -> tuple[list[str], list[str]]:
    """What a consumer of committed records gets, and where it does not get to the end."""
    consumer = Consumer({**QUIET, "bootstrap.servers": address, "group.id": "looks", "enable.partition.eof": True,
                         "isolation.level": "read_committed", "enable.auto.commit": False})  # fmt: skip
    places = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    consumer.assign(places)
    values, ended, until = list[str](), set[int](), time.monotonic() + _PATIENCE_S
    while len(ended) < PARTITIONS and time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            continue
        values.append((message.value() or b"").decode())
        until = time.monotonic() + _PATIENCE_S
    ends = [(place.partition, consumer.get_watermark_offsets(place, 10)[1]) for place in places]
    stands = {place.partition: place.offset for place in consumer.position(places)}
    consumer.close()
    return values, [f"{TOPIC}-{n} stops at {stands[n]} of {end}" for n, end in ends if stands[n] < end]


def end_native(address: str, names: tuple[str, ...]) -> list[str]:
    """A transaction of each id, by librdkafka; why it could not be."""
    wrong = []
    for name in names:
        error: Any = None
        for _ in range(3):
            producer = Producer({**QUIET, "bootstrap.servers": address, "transactional.id": name})
            try:
                producer.init_transactions(_PATIENCE_S)
                producer.begin_transaction()
                for number in range(PARTITIONS):
                    producer.produce(TOPIC, f"{name} end".encode(), partition=number)
                producer.commit_transaction(_PATIENCE_S)
                error = None
                break
            except KafkaException as found:
                error = found
        if error is not None:
            wrong.append(f"{name} hangs: {error}")
    return wrong


def with_ours(folder: Path) -> tuple[list[str], list[str]]:
    """End a transaction of each id on a broker of ours in this process; what is shown, and what is wrong."""
    wrong, places = [], [(TOPIC, number) for number in range(PARTITIONS)]
    with pylogseg.Broker(folder) as ours, TransactionClient(ours.bootstrap_servers) as client:
        for name in (*NATIVE, *JAVA):
            try:
                client.commit_one(name, places)
            except pylogseg.PylogsegError as error:
                wrong.append(f"{name} hangs: {error}")
        for place in places:
            _, end, stable = client.ends(*place)
            wrong += [f"{place} stops at {stable} of {end}"] * (stable < end)
    rows = pylogseg.read(folder, TOPIC, isolation_level="read_committed")
    values = [(record.value or b"").decode() for record in rows]
    return [f"{value} end" if value == "pylogseg-drill" else value for value in values], wrong


def with_kafka(folder: Path, classes: Path) -> tuple[list[str], list[str]]:
    """End a transaction of each id on a Kafka, each with its own client; what is shown, and what is wrong."""
    home = folder.parent / f"kafka-{folder.name}"
    (home / "run").mkdir(parents=True)
    (home / "run" / "static").touch()
    folder.rename(home / "data0")
    try:
        broker("start", home, *_SETTINGS)
        address = server(home)
        wrong = end_native(address, NATIVE)
        command = java_command(classes, "end", address, TOPIC, PARTITIONS, *JAVA)
        done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", timeout=300)
        said = done.stdout.splitlines()
        wrong += [f"{name} hangs: {said}" for name in JAVA if f"{name} ok" not in said]
        values, stops = shown(address)
        return values, wrong + stops
    finally:
        broker("kill", home)
        shutil.rmtree(home, ignore_errors=True)


def main() -> int:
    """Take copies and points, and look at them; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50, help="copies and points")
    parser.add_argument("--kafka", type=int, default=10, help="each so-many-th one is opened by a Kafka")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no other one after that")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in this folder")
    options = parser.parse_args()
    os.environ.setdefault("BROKER_HEAP", "300m")
    chance, counts, wrong = random.Random(options.seed), Counter[str](), list[str]()
    root = Path(tempfile.mkdtemp(prefix="restored-transactions-", dir=options.keep))
    source, begun_s = root / "source", time.monotonic()
    (source / "run").mkdir(parents=True)
    (source / "run" / "static").touch()
    try:
        broker("start", source, *_SETTINGS)
        admin = AdminClient({**QUIET, "bootstrap.servers": server(source)})
        topics = [NewTopic(TOPIC, PARTITIONS, 1), NewTopic("u-filler", 1, 1)]
        for made in admin.create_topics(topics).values():
            made.result(60)
        filler = Producer({**QUIET, "bootstrap.servers": server(source)})
        for _ in range(50):
            filler.produce("u-filler", os.urandom(800_000))
            filler.flush(20)
        load = Load(server(source), root, options.seed)
        time.sleep(5)
        moments = Moments(source / "data0", root, chance)
        for number in range(options.count):
            if load.errors or time.monotonic() - begun_s > options.seconds:
                break
            how = chance.choice(("copy", "point"))
            into = root / f"{how}-{number}"
            notes = moments.copy(into) if how == "copy" else moments.point(into)
            is_kafka = number % options.kafka == options.kafka - 1
            values, problems = with_kafka(into, root) if is_kafka else with_ours(into)
            shutil.rmtree(into, ignore_errors=True)
            foreign = sorted({v for v in values if not v.endswith(" end") and v not in load.committed})
            problems += [f"{len(foreign)} transactions are shown that nobody committed: {foreign[:5]}"] * bool(foreign)
            counts[how] += 1
            counts["opened by Kafka"] += is_kafka
            for word in ("aborted", "committed"):
                counts[f"{word} by pylogseg"] += sum(f"is {word}:" in note for note in notes)
            counts["records of the coordinator added"] += sum("gets a record" in note for note in notes)
            counts["records shown"] += len(values)
            wrong += [f"{how} {number}{' on Kafka' * is_kafka}: {each}; {notes}" for each in problems]
            print(f"{how} {number}{' on Kafka' * is_kafka}: {len(values):,} records, {len(notes)} notes, "
                  f"{len(problems)} wrong, {time.monotonic() - begun_s:.0f} s", flush=True)  # fmt: skip
            for each in problems:
                print(f"  {each}", flush=True)
        wrong += load.errors
        load.stop()
        counts += Counter({f"transactions to {how}": number for how, number in load.ended.items()})
    finally:
        broker("kill", source)
        shutil.rmtree(root, ignore_errors=True)
    numbers = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    print("\n".join(each[:1500] for each in wrong[:20]))
    print(f"seed {options.seed}, Kafka {version()}: {numbers}; {time.monotonic() - begun_s:.0f} s; "
          f"{f'{len(wrong)} wrong' if wrong else 'all is well'}")  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
