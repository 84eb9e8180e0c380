#!/usr/bin/env python3
"""The disks of three real brokers, merged, against what a consumer got from the leaders that survived.

    merges.py [--seed N] [--rounds N] [--keep DIR]

A controller and three brokers run on this machine. While records are written, brokers are killed and come back, by the
seed; at the end the leaders of some partitions are lost with what they alone had, and others are elected without it. A
consumer reads all there is. Then all stop, bytes of two disks are damaged, and the disks are merged: where committed
records were lost, the merge has to say so, and to take the side that it is told. The result has to hold what the
consumer got, and a fresh broker has to open it without a warning and serve the same. Two minutes; exit code 0 if all
is well. Needs kafka-python.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

import pylogseg
from pylogseg import offline

HERE = Path(__file__).resolve().parent
TOPIC, PARTITIONS = "orders", 4
_CONTROLLER = 100
Records = dict[int, list[tuple[int, bytes]]]


class Node:
    """A controller or a broker."""

    def __init__(self, folder: Path, number: int, port: int, controller_port: int) -> None:
        self.folder, self.number, self.port = folder, number, port
        self.data = folder / "data0"
        (folder / "run").mkdir(parents=True)
        (folder / "run" / "static").touch()
        (folder / "run" / "port").write_text(f"{port}\n")
        (folder / "run" / "controller-port").write_text(f"{controller_port}\n")
        is_controller = number == _CONTROLLER
        listener = f"CONTROLLER://127.0.0.1:{controller_port}" if is_controller else f"PLAINTEXT://127.0.0.1:{port}"
        self.lines = [
            f"process.roles={'controller' if is_controller else 'broker'}",
            f"node.id={number}",
            f"listeners={listener}",
            f"advertised.listeners={listener}",
            f"controller.quorum.voters={_CONTROLLER}@127.0.0.1:{controller_port}",
            f"log.dirs={self.data}",
            "replica.high.watermark.checkpoint.interval.ms=300",
            "replica.lag.time.max.ms=1500",
            "broker.session.timeout.ms=3000",
            "broker.heartbeat.interval.ms=500",
        ]

    def start(self) -> subprocess.Popen[bytes]:
        """Start it; it is ready when the process that is returned has ended."""
        environment = {**os.environ, "BROKER_HEAP": "384m"}
        return subprocess.Popen(["bash", HERE / "broker.sh", "start", self.folder, *self.lines], env=environment)

    def end(self, how: str) -> None:
        """Stop or kill it."""
        subprocess.run(["bash", HERE / "broker.sh", how, self.folder], check=True)

    @property
    def is_up(self) -> bool:
        return (self.folder / "run" / "pid").exists()


class Cluster:
    """A controller, three brokers, and what writes to them."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.chance, base = chance, chance.randrange(30000, 50000, 10)
        self.controller = Node(root / "controller", _CONTROLLER, base, base + 1)
        self.brokers = [Node(root / f"b{i}", i, base + 1 + i, base + 1) for i in (1, 2, 3)]
        self.number = 0
        self.alone: Node | None = None  #: The one that has what is lost.

    @property
    def servers(self) -> list[str]:
        return [f"127.0.0.1:{node.port}" for node in self.brokers if node.is_up]

    def start(self, *nodes: Node) -> None:
        for process in [node.start() for node in nodes]:
            if process.wait():
                raise RuntimeError("a node did not start")

    def write(self, count: int) -> None:
        """Write records to all partitions that have a leader."""
        producer = KafkaProducer(bootstrap_servers=self.servers, acks=1, retries=3, request_timeout_ms=5000,
                                 max_block_ms=8000, linger_ms=5)  # fmt: skip
        for _ in range(count):
            value = b"%d " % self.number + bytes(self.chance.randrange(20, 200))
            with contextlib.suppress(KafkaError):
                producer.send(TOPIC, value, partition=self.number % PARTITIONS)
            self.number += 1
        producer.close(timeout=10)

    def leaders(self) -> dict[int, tuple[int, list[int]]]:
        """Leader and in-sync replicas of each partition."""
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            (topic,) = admin.describe_topics([TOPIC])
        finally:
            admin.close()
        rows = topic["partitions"]
        return {row.get("partition_index", row.get("partition")): (row.get("leader_id", row.get("leader")),
                row.get("isr_nodes", row.get("isr"))) for row in rows}  # fmt: skip

    def wait(self, what: str, is_so: Callable[[dict[int, tuple[int, list[int]]]], bool]) -> None:
        """Wait until the leaders are as they should be."""
        found: dict[int, tuple[int, list[int]]] = {}
        for _ in range(120):
            with contextlib.suppress(KafkaError):  # it asks a broker that is gone
                found = self.leaders()
                if is_so(found):
                    return
            time.sleep(0.5)
        raise RuntimeError(f"{what} did not happen in a minute: {found}")


def consumed(servers: list[str]) -> Records:
    """Read all partitions from the beginning to the end."""
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False)
    parts = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    consumer.assign(parts)
    ends = consumer.end_offsets(parts)
    consumer.seek_to_beginning()
    found: Records = {number: [] for number in range(PARTITIONS)}
    limit = time.monotonic() + 60
    while time.monotonic() < limit and any(consumer.position(part) < end for part, end in ends.items()):
        for part, records in consumer.poll(timeout_ms=500).items():
            found[part.partition] += [(record.offset, record.value) for record in records]
    consumer.close(autocommit=False)
    return found


def play(cluster: Cluster, rounds: int) -> Records:
    """Write, kill, elect; what a consumer gets at the end."""
    chance, brokers = cluster.chance, cluster.brokers
    cluster.start(cluster.controller, *brokers)
    admin = KafkaAdminClient(bootstrap_servers=cluster.servers)
    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1", "internal.segment.bytes": "16384"}
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, topic_configs=configs)])
    admin.close()
    cluster.write(300)
    for _ in range(rounds):
        node = chance.choice(brokers)
        node.end(chance.choice(["kill", "kill", "stop"]))
        print(f"broker {node.number} is gone", flush=True)
        cluster.write(chance.randint(100, 300))
        cluster.start(node)
        cluster.write(chance.randint(50, 200))
    cluster.wait("all in sync", lambda found: all(len(isr) == 3 for _, isr in found.values()))
    alone, *others = chance.sample(brokers, 3)
    cluster.alone = alone
    for node in others:
        node.end("kill")
    cluster.wait("one leader", lambda found: all(isr == [alone.number] for _, isr in found.values()))
    cluster.write(120)  # committed on one broker
    time.sleep(1)  # its high watermark is noted
    alone.end("kill")
    cluster.start(*others)
    print(f"broker {alone.number} is lost with what it alone had", flush=True)
    cluster.wait(
        "an unclean election", lambda found: all(row[0] in {n.number for n in others} for row in found.values())
    )
    cluster.write(150)
    cluster.wait("both in sync", lambda found: all(len(isr) == 2 for _, isr in found.values()))
    return consumed(cluster.servers)


def damage(chance: random.Random, node: Node, which: int) -> int:
    """Flip bits in every second segment that is not a last one, so that another broker has it whole."""
    paths = sorted(node.data.glob(f"{TOPIC}-*/*.log"))
    closed = [path for path, after in pairwise(paths) if path.parent == after.parent][which::2]
    for path in closed:
        data = bytearray(path.read_bytes())
        for _ in range(3):
            data[chance.randrange(70, len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    return len(closed)


def merged(cluster: Cluster, chance: random.Random, into: Path) -> list[str]:
    """Merge the disks; returns what is wrong."""
    sources = [str(node.data) for node in cluster.brokers]
    chance.shuffle(sources)
    first = offline.merge(sources, into, topics=[TOPIC])
    left = [result for result in first if result.state == "left"]
    print(f"{len(left)} of {PARTITIONS} partitions need a side: {left[0].reason if left else ''}", flush=True)
    wrong = [f"{result.name}: {result.state}: {result.reason}" for result in first if result.state == "failed"]
    if not left:
        return [*wrong, "no alarm, though committed records were lost"]
    take = {}
    for result in left:  # the side that the metadata, and so the cluster, is on
        (row,) = [row for row in result.rows if row.get("authoritative")]
        take[result.name] = row["logDirectory"]
    shutil.rmtree(into, ignore_errors=True)
    second = offline.merge(sources, into, topics=[TOPIC], take=take)
    for result in second:
        print(f"{result.name}: {result.state}, {result.numbers}", flush=True)
        if result.state != "done" or result.numbers["offsetsMissing"]:
            wrong.append(f"{result.name}: {result.state}: {result.reason} {result.notes}")
    if not any(result.numbers["offsetsFromOthers"] for result in second):
        wrong.append("nothing was healed")
    return wrong


def served(root: Path, into: Path) -> tuple[Records, list[str]]:
    """Let a fresh broker open the merged partitions; what it serves, and what it warns of."""
    fresh, lines = root / "fresh", [f"log.dirs={root / 'fresh' / 'data0'}"]
    subprocess.run(["bash", HERE / "broker.sh", "start", fresh, *lines], check=True)
    try:
        server = f"127.0.0.1:{(fresh / 'run' / 'port').read_text().strip()}"
        admin = KafkaAdminClient(bootstrap_servers=server)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, topic_configs={"internal.segment.bytes": "16384"})])
        admin.close()
        subprocess.run(["bash", HERE / "broker.sh", "stop", fresh], check=True)
        done = offline.restore(into, fresh / "data0", topics=[TOPIC])
        if done.exit_code:
            return {}, [f"restore: {result.name}: {result.reason}" for result in done.failed]
        subprocess.run(["bash", HERE / "broker.sh", "start", fresh, *lines], check=True)
        found = consumed([server])
        log = (fresh / "run" / "server.log").read_text()
    finally:
        subprocess.run(["bash", HERE / "broker.sh", "kill", fresh], check=True)
    odd = re.compile(rf"\b(WARN|ERROR)\b.*\b{TOPIC}-|partition={TOPIC}-.*Recovering unflushed")
    said = [line for line in log.splitlines() if odd.search(line)]
    # A new cluster begins with lower leader epochs than the log has: docs/cli.md, restore.
    warnings = [line for line in said if "LeaderEpochFileCache" not in line]
    return found, warnings


def main() -> int:
    """Run it; exit code 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="how often a broker goes and comes back")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the brokers' folders there")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    root = Path(tempfile.mkdtemp(prefix="merges-", dir=options.keep))
    cluster = Cluster(root, chance)
    wrong: list[str] = []
    try:
        try:
            wanted = play(cluster, options.rounds)
            for node, how in zip(cluster.brokers, ("stop", "kill", "stop"), strict=True):
                if node.is_up:
                    node.end(how)
        finally:
            for node in (*cluster.brokers, cluster.controller):
                node.end("kill")
        ends = [node for node in cluster.brokers if node is not cluster.alone]
        for which, node in enumerate(ends):
            print(f"{damage(chance, node, which)} segments of broker {node.number} are damaged", flush=True)
        wrong += merged(cluster, chance, root / "merged")
        ours: Records = {number: [] for number in range(PARTITIONS)}
        for record in pylogseg.read(root / "merged"):
            ours[record.partition].append((record.offset, record.value or b""))
        wrong += [f"{TOPIC}-{n}: {len(ours[n])} records, not {len(wanted[n])}" for n in wanted if ours[n] != wanted[n]]
        theirs, warnings = served(root, root / "merged")
        wrong += warnings
        wrong += [f"{TOPIC}-{n}: the fresh broker serves others" for n in wanted if theirs.get(n) != wanted[n]]
        count = sum(map(len, wanted.values()))
        print("\n".join(wrong) or f"{count} records merged: what the consumer got, and what a fresh broker serves")
        return 1 if wrong else 0
    finally:
        if options.keep is None:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
