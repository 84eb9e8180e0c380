"""Histories that a real Kafka wrote, restored through Produce into another one, killed on the way, and compared.

    python tests/kafka/broker/produced_restores.py [--seed 1] [--histories 30] [--kills 8] [--keep FOLDER]
                                                   [--brokers 3] [--archive]

A broker writes one topic for each history: codecs, transactions side by side that are committed, aborted or left open,
compaction, deleted heads; and groups commit offsets. confluent-kafka's consumer reads all of it with both isolations.
Then the broker stops, an empty one starts, and `pylogseg restore` puts its log directories there. The command is killed
again and again, and run until it ends. At last the consumer reads the second cluster: it must see the same, offset by
offset. Where a history leaves transactions open, they are aborted, and the consumer sees what lies behind them.

With `--brokers 3`, the second cluster has three brokers, of which one after the other dies and comes back meanwhile. A
run that fails for that reason is repeated. With `--archive`, the source is an archive of the log directories.

Prints a line for each difference and a summary; exit code 1 if there is one. KAFKA_VERSION chooses the version.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parent))

import three_brokers
from one_broker import Broker
from three_brokers import SETTINGS, ThreeBrokers

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS = ("read_uncommitted", "read_committed")
#: A cleaner that has written nothing for so long has ended.
QUIET_S = 12
LINES = (
    "log.cleaner.backoff.ms=500",
    "log.cleaner.threads=2",
    "log.retention.check.interval.ms=1000",
    "group.initial.rebalance.delay.ms=0",
    "log.flush.start.offset.checkpoint.interval.ms=1000",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=5",
)

Row = tuple[int, bytes | None, bytes | None, int, tuple[tuple[str, bytes], ...]]
Rows = dict[str, list[Row]]


class History:
    """One topic of one partition, and what was done to it."""

    def __init__(self, address: str, number: int, seed: int) -> None:
        self.rng, self.topic = random.Random(f"{seed} {number}"), f"history-{number}"
        rng = self.rng
        self.codec, self.address = rng.choice(CODECS), address
        self.is_compacted, self.count, self.is_open = rng.random() < 0.4, 0, False
        self.ops: dict[str, int] = {}
        config = {
            "retention.ms": "-1",
            "compression.type": rng.choice(("producer", "producer", "zstd", "uncompressed")),
        }
        if self.is_compacted:
            config |= {"cleanup.policy": rng.choice(("compact", "compact,delete")), "segment.ms": "300",
                       "min.cleanable.dirty.ratio": "0.0001",
                       "delete.retention.ms": rng.choice(("0", "86400000"))}  # fmt: skip
        if rng.random() < 0.15:
            config["message.timestamp.type"] = "LogAppendTime"
        self.config = config

    def producer(self, name: str = "") -> Producer:
        settings = {"bootstrap.servers": self.address, "compression.type": self.codec, "linger.ms": 1, "log_level": 0,
                    "enable.idempotence": bool(name) or self.rng.random() < 0.5}  # fmt: skip
        if name:
            settings |= {"transactional.id": f"{self.topic}-{name}", "transaction.timeout.ms": 600_000}
        return Producer(settings)

    def send(self, producer: Producer, count: int) -> None:
        rng = self.rng
        for _ in range(count):
            key = b"k%d" % rng.randrange(12)
            self.count += 1
            value = None if rng.random() < 0.1 else b"%d " % self.count + b"x" * rng.randrange(200)
            headers = [("h", b"%d" % self.count)] if rng.random() < 0.2 else None
            when = int(time.time() * 1000) - rng.randrange(10**9)
            producer.produce(self.topic, value, key, partition=0, headers=headers, timestamp=when)
        producer.flush()

    def write(self, admin: AdminClient) -> None:
        rng = self.rng
        plain = self.producer()
        writers = [self.producer(f"p{n}") for n in range(rng.randrange(4))]
        for writer in writers:
            writer.init_transactions()
        running: set[int] = set()
        for _ in range(rng.randrange(20, 60)):
            kind = rng.choice(("plain", "plain", "write", "write", "write", "commit", "abort", "delete", "pause"))
            number = rng.randrange(len(writers)) if writers else -1
            if kind == "plain":
                self.send(plain, rng.choice((1, 3, 40)))
            elif kind == "write" and writers:
                if number not in running:
                    writers[number].begin_transaction()
                    running.add(number)
                self.send(writers[number], rng.choice((1, 2, 30)))
            elif kind in ("commit", "abort") and number in running:
                (writers[number].commit_transaction if kind == "commit" else writers[number].abort_transaction)()
                running.discard(number)
            elif kind == "delete" and rng.random() < 0.15 and self.config.get("cleanup.policy") != "compact":
                self.delete_head(admin)
            elif kind == "pause" and self.is_compacted:
                time.sleep(0.35)
            else:
                continue
            self.ops[kind] = self.ops.get(kind, 0) + 1
        self.is_open = bool(running) and rng.random() < 0.3
        for number in sorted(running):
            if self.is_open:
                self.ops["open"] = self.ops.get("open", 0) + 1
            else:
                (writers[number].commit_transaction if rng.random() < 0.5 else writers[number].abort_transaction)()
        if self.is_compacted:
            time.sleep(0.35)
            self.send(plain, 1)
        self.writers = writers  # a client that is freed ends its transaction

    def delete_head(self, admin: AdminClient) -> None:
        place = TopicPartition(self.topic, 0)
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "heads"})
        first, end = consumer.get_watermark_offsets(place)
        consumer.close()
        if end > first:
            place.offset = self.rng.randrange(first, end + 1)
            next(iter(admin.delete_records([place]).values())).result()


def consume(address: str, topics: list[str]) -> dict[str, Rows]:
    """Read topics to their ends with both isolations."""
    return {level: {topic: list(_consumed(address, topic, level)) for topic in topics} for level in LEVELS}


def _consumed(address: str, topic: str, level: str) -> Iterator[Row]:
    settings: dict[str, Any] = {"bootstrap.servers": address, "group.id": "judge", "enable.auto.commit": False,
                                "isolation.level": level, "auto.offset.reset": "earliest", "enable.partition.eof": True,
                                "check.crcs": True}  # fmt: skip
    consumer = Consumer(settings)
    first, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0))
    consumer.assign([TopicPartition(topic, 0, first)])
    while True:
        message = consumer.poll(20)
        if message is None:
            raise TimeoutError(f"{topic}: nothing comes")
        if message.error():
            break  # the end
        headers = tuple((name, value) for name, value in message.headers() or ())
        yield message.offset(), message.key(), message.value(), message.timestamp()[1], headers
    consumer.close()


def settle(folder: Path) -> None:
    """Wait until cleaners have nothing to do."""

    def sizes() -> dict[Path, int]:
        found = {}
        for path in folder.glob("data*/history-*/*.log"):
            try:
                found[path] = path.stat().st_size
            except FileNotFoundError:
                continue
        return found

    while True:
        before = sizes()
        time.sleep(QUIET_S)
        if before == sizes():
            return


def commit_groups(address: str, histories: list[History]) -> dict[tuple[str, str], int]:
    """Commit an offset of a group of each topic; return them."""
    committed = {}
    for each in histories:
        consumer = Consumer({"bootstrap.servers": address, "group.id": f"group-{each.topic}"})
        first, end = consumer.get_watermark_offsets(TopicPartition(each.topic, 0))
        offset = each.rng.randrange(first, end + 1)
        consumer.commit(offsets=[TopicPartition(each.topic, 0, offset)], asynchronous=False)
        consumer.close()
        committed[f"group-{each.topic}", each.topic] = offset
    return committed


class OneBroker(Broker):
    """A cluster of one broker, which nothing happens to."""

    replicas = 1

    def __init__(self, folder: Path, topics: list[str]) -> None:
        super().__init__(folder, BROKER_HEAP=os.environ.get("BROKER_HEAP", "512m"))
        self.harms = 0

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        self("start", *LINES)

    @contextlib.contextmanager
    def harmed(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self("kill")


def are_in_sync(rows: dict[tuple[str, int], three_brokers.Row]) -> bool:
    return all(row.isr == row.replicas for row in rows.values())


class HarmedBrokers(ThreeBrokers):
    """A cluster of three brokers, of which one is away again and again."""

    replicas = 3

    def __init__(self, folder: Path, topics: list[str], seed: int) -> None:
        settings = [line for line in SETTINGS if not line.startswith("unclean.leader")]
        super().__init__(folder, random.Random(seed), [*settings, *LINES])
        self._topics, self.harms = topics, 0

    names = property(lambda self: self._topics)
    partition_count = property(lambda self: len(self._topics))

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.brokers)

    def start(self) -> None:
        super().start(self.controller, *self.brokers)

    @contextlib.contextmanager
    def harmed(self) -> Iterator[None]:
        """Kill or stop one broker after the other meanwhile; at the end all of them run, in sync."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._harm, args=(is_over,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
        self.wait("replicas in sync", are_in_sync)

    def _harm(self, is_over: threading.Event) -> None:
        while not is_over.wait(self.chance.uniform(1, 5)):
            node = self.chance.choice(self.brokers)
            node.end(self.chance.choice(("kill", "stop")))
            is_over.wait(self.chance.uniform(0, 8))
            super().start(node)
            self.harms += 1
            limit = time.monotonic() + 60
            while not are_in_sync(self.rows()) and time.monotonic() < limit:
                time.sleep(0.5)

    def stop(self) -> None:
        self.end()


def restore(
    source: str, cluster: OneBroker | HarmedBrokers, kills: int, rng: random.Random
) -> tuple[int, list[dict[str, Any]]]:
    """Run the command until it has done all; return how often it was killed or failed, and its last lines of JSON."""
    command = [sys.executable, "-m", "pylogseg", "restore", source, "--to", f"kafka://{cluster.address}", "history-*",
               "--json", "--abort-open-transactions", "--jobs", "2",
               "--replicas", str(cluster.replicas)]  # fmt: skip
    killed = 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = process.communicate(timeout=rng.uniform(0.8, 6.0) if killed < kills else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            killed += 1
            continue
        print(err, end="")
        lines = [json.loads(line) for line in out.splitlines()]
        is_whole = lines and all(
            line["state"] in ("done", "unchanged") for line in lines if line["type"] == "partition"
        )
        if is_whole or cluster.replicas == 1 or killed > kills + 20:
            return killed, lines
        killed += 1
        for line in lines:
            if line["type"] == "partition" and line["state"] == "failed":
                print(f"run {killed}: {line['partition']}: {line['reason']}")


def compare(histories: list[History], before: dict[str, Rows], after: dict[str, Rows]) -> int:
    """Print what differs; return how many histories do."""
    differences = 0
    for each in histories:
        for level in LEVELS:
            expected, found = before[level][each.topic], after[level][each.topic]
            if level == "read_committed" and each.is_open:
                found = found[: len(expected)]  # up to where the consumer of the source could read
            if expected != found:
                differences += 1
                first = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), -1)
                print(f"{each.topic}: {level}: {len(expected)} and {len(found)} rows, the first other one is {first}")
    return differences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=30)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--keep", type=Path, help="a new folder for the brokers, which stays")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="of the second cluster")
    parser.add_argument("--archive", action="store_true", help="restore from an archive of the log directories")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if given.keep is None else given.keep
        source = folder / "source"
        first = OneBroker(source, [])
        first.start()
        try:
            address = first.address
            admin = AdminClient({"bootstrap.servers": address})
            histories = [History(address, number, given.seed) for number in range(given.histories)]
            made = admin.create_topics([NewTopic(each.topic, 1, 1, config=each.config) for each in histories])
            for future in made.values():
                future.result()
            for each in histories:
                each.write(admin)
            settle(source)
            topics = [each.topic for each in histories]
            before, committed = consume(address, topics), commit_groups(address, histories)
        finally:
            first.stop()  # else clients that stay would end their transactions
        disks = folder / "disks"
        subprocess.run([sys.executable, "-m", "pylogseg", "recover", source / "data0"], stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-m", "pylogseg", "recover", source / "data1"], stdout=subprocess.DEVNULL)
        disks.mkdir()
        for name in ("data0", "data1"):
            (disks / name).symlink_to(source / name)
        origin = str(disks)
        if given.archive:
            origin = f"aiven+file://{folder / 'archive'}"
            command = [sys.executable, "-m", "pylogseg", "archive", source / "data0", source / "data1", origin]
            subprocess.run(command, stdout=subprocess.DEVNULL)
        target = folder / "target"
        cluster = OneBroker(target, topics) if given.brokers == 1 else HarmedBrokers(target, topics, given.seed)
        try:
            cluster.start()
            started = time.monotonic()
            with cluster.harmed():
                killed, lines = restore(origin, cluster, given.kills, random.Random(given.seed))
            seconds = time.monotonic() - started
            address = cluster.address
            after = consume(address, topics)
            differences = compare(histories, before, after)
            differences += sum(
                line["state"] not in ("done", "unchanged") for line in lines if line["type"] == "partition"
            )
            for (group, topic), offset in committed.items():
                consumer = Consumer({"bootstrap.servers": address, "group.id": group})
                (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
                consumer.close()
                (start,) = (line["logStart"] for line in lines if line.get("partition") == f"{topic}-0")
                offset = max(offset, start)  # no record lies between
                if place.offset != offset:
                    differences += 1
                    print(f"{group}: {offset} was committed, and is {place.offset} now")
        finally:
            cluster.stop()
    sums: dict[str, int] = {}
    for each in histories:
        for kind, number in each.ops.items():
            sums[kind] = sums.get(kind, 0) + number
    parts = [line for line in lines if line["type"] == "partition"]
    totals = {
        name: sum(line[name] for line in parts) for name in ("records", "encoded", "burned", "markers", "aborted")
    }
    resumed = sum(line["resumedAt"] is not None for line in parts)
    print(
        f"seed {given.seed}: {len(histories)} histories, {sum(each.is_compacted for each in histories)} compacted, "
        f"{sums}"
    )
    print(
        f"{totals}; {killed} kills and failed runs, {cluster.harms} brokers away, {resumed} partitions resumed by the "
        f"last run; {seconds:.0f} s; {differences} differences"
    )
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
