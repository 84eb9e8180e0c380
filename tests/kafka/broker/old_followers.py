#!/usr/bin/env python3
"""Two brokers of an older Kafka under load: `verify` calls nothing on their disks damaged, and finds harms to indexes.

    old_followers.py [--kafka VERSION] [--records N] [--harms N] [--seed N] [--keep DIR]

One of the two stops and comes back, so that it fetches many batches at once: before 3.9.1, and in 4.0.0, such an append
has one entry in the indexes. Both disks are checked after an orderly stop and after a kill, read by random offsets and
times, and then entries of their indexes are changed. Kafka's jars come from Maven Central: 2.x and 3.x run with
ZooKeeper, 4.x without.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.index_lookups import Lookups

import pylogseg
from pylogseg.disk.listing import open_dir
from pylogseg.errors import CorruptionError
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Finding, Level
from pylogseg.inspect.verify.segment import verify_segment

CLUSTER_ID = "pylogsegOldFollowersAA"
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{}</version>
</dependency></dependencies></project>"""
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
SETTINGS = """
auto.create.topics.enable=false
num.replica.fetchers=1
offsets.topic.replication.factor=2
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=2
transaction.state.log.num.partitions=2
transaction.state.log.min.isr=1
log.index.size.max.bytes=65536
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.threads=1
log.retention.check.interval.ms=2000
num.network.threads=2
num.io.threads=2
"""


def jars_of(version: str) -> Path:
    """Return the folder with the jars of a version, downloaded on first use."""
    home = Path(os.environ.get("ORACLE_HOME") or Path.home() / ".cache" / "pylogseg-oracle")
    folder = home / f"old-{version}"
    if not folder.exists():
        home.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=home))
        (fresh / "pom.xml").write_text(POM.format(version))
        subprocess.run(
            ["mvn", "-q", "-B", COPY, "-f", fresh / "pom.xml", f"-DoutputDirectory={fresh / 'jars'}"], check=True
        )
        (fresh / "jars").rename(folder)
        shutil.rmtree(fresh)
    return folder


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    taken = [socket.socket() for _ in range(count)]
    for one in taken:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in taken]
    for one in taken:
        one.close()
    return ports


class Cluster:
    """A controller or ZooKeeper, and two brokers."""

    def __init__(self, root: Path, version: str) -> None:
        self.root, self.version, self.jars = root, version, jars_of(version)
        self.is_kraft = int(version.split(".")[0]) >= 4
        self.middle, self.extra, *self.ports = free_ports(4)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def disk(self, number: int) -> Path:
        return self.root / f"b{number}"

    def begin(self) -> None:
        """Start what the brokers need."""
        file = self.root / "middle.properties"
        if self.is_kraft:
            listener = f"CONTROLLER://127.0.0.1:{self.middle}"
            lines = ["process.roles=controller", "node.id=100", f"listeners={listener}", f"log.dirs={self.root}/c",
                     *self._quorum()]  # fmt: skip
            file.write_text("\n".join(lines))
            self._format(file)
            self._run("middle", "kafka.Kafka", file)
        else:
            lines = [f"dataDir={self.root}/zk", f"clientPort={self.middle}", "clientPortAddress=127.0.0.1",
                     "maxClientCnxns=0", "admin.enableServer=false", "tickTime=1000"]  # fmt: skip
            file.write_text("\n".join(lines))
            self._run("middle", "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)

    def _quorum(self) -> list[str]:
        return ["controller.listener.names=CONTROLLER", f"controller.quorum.voters=100@127.0.0.1:{self.middle}"]

    def start(self, number: int) -> None:
        """Start a broker, and wait until it answers."""
        file, port = self.root / f"b{number}.properties", self.ports[number - 1]
        listener = f"PLAINTEXT://127.0.0.1:{port}"
        lines = [f"listeners={listener}", f"advertised.listeners={listener}", f"log.dirs={self.disk(number)}"]
        if self.is_kraft:
            lines += ["process.roles=broker", f"node.id={number}", *self._quorum()]
        else:
            lines += [f"broker.id={number}", f"zookeeper.connect=127.0.0.1:{self.middle}",
                      "zookeeper.session.timeout.ms=6000"]  # fmt: skip
        is_new = not file.exists()
        file.write_text("\n".join(lines) + SETTINGS)
        if is_new and self.is_kraft:
            self._format(file)
        self._run(f"b{number}", "kafka.Kafka", file)
        limit = time.monotonic() + 300
        while time.monotonic() < limit:
            try:
                brokers = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}).list_topics(timeout=5)
                if number in brokers.brokers:
                    return
            except KafkaException:  # it is not there yet
                time.sleep(0.5)
        raise RuntimeError(f"broker {number} did not start: see {self.root}/b{number}.out")

    def _java(self, memory: str) -> list[str]:
        return ["java", f"-Xmx{memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{self.jars}/*"]

    def _format(self, file: Path) -> None:
        command = [*self._java("256m"), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def _run(self, name: str, main: str, file: Path) -> None:
        with (self.root / f"{name}.out").open("ab") as out:
            command = [*self._java("400m"), main, str(file)]
            self._running[name] = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop or kill one of them."""
        process = self._running.pop(name, None)
        if process is not None:
            process.send_signal(how)
            process.wait(120)

    def close(self) -> None:
        for name in list(self._running):
            self.end(name, signal.SIGKILL)

    def make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        small = {"segment.bytes": "300000"}
        topics = [NewTopic("plain", 2, 2, config=small), NewTopic("large", 2, 2)]
        topics.append(NewTopic("compact", 1, 2, config={"cleanup.policy": "compact", "segment.bytes": "60000",
                                                        "min.cleanable.dirty.ratio": "0.01"}))  # fmt: skip
        if self.version.startswith("2."):
            for form in ("0.8.2", "0.10.2"):
                name = "as-" + form.replace(".", "_")
                topics.append(NewTopic(name, 1, 2, config={**small, "message.format.version": form}))
        for future in admin.create_topics(topics, operation_timeout=30).values():
            future.result(60)
        self.topics = [(topic.topic, topic.num_partitions) for topic in topics]

    def write(self, count: int, chance: random.Random) -> None:
        """Produce records in small batches, by several codecs."""
        for codec in ("none", "lz4", "gzip"):
            settings = {"bootstrap.servers": self.servers, "acks": "1", "linger.ms": 0, "batch.num.messages": 10,
                        "compression.type": codec, "queue.buffering.max.messages": 200_000}  # fmt: skip
            producer = Producer(settings)
            for i in range(count // 3):
                topic, partitions = self.topics[i % len(self.topics)]
                value = b"v%d " % i + b"x" * chance.choice((20, 120, 400))
                producer.produce(topic, value, b"k%d" % (i % 500), partition=chance.randrange(partitions))
                if i % 200 == 0:
                    producer.poll(0)
            producer.flush(120)

    def wait_in_sync(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        limit = time.monotonic() + 300
        while time.monotonic() < limit:
            found = admin.list_topics(timeout=10).topics
            if all(len(part.isrs) == 2 for name, _ in self.topics for part in found[name].partitions.values()):
                return
            time.sleep(0.5)
        raise RuntimeError("the brokers did not get in sync")


def damage(path: Path) -> list[Finding]:
    """Return what `verify` finds damaged."""
    return [finding for finding in verify_disk(open_dir(path), VerifySummary(Level.INDEXES)) if finding.is_damage]


def by_append(path: Path) -> int:
    """Count the entries that name another offset than the last one of the batch at their place."""
    count = 0
    for segment in (segment for part in open_dir(path).partitions for segment in part.segments if segment.size):
        rows = Lookups(Path(segment.path).read_bytes()).rows
        data = Path(segment.path).with_suffix(".index")
        index = OffsetIndex(data.read_bytes() if data.exists() else b"", segment.base_offset)
        lasts = dict(zip(rows.position.tolist(), rows.last_offset.tolist(), strict=True))
        count += sum(lasts.get(entry.position) != entry.offset for entry in map(index.__getitem__, range(len(index))))
    return count


def read_at_random(path: Path, chance: random.Random, counts: Counter[str]) -> None:
    """Read by offset and by time, against all records."""
    disk = open_dir(path)
    for part in disk.partitions:
        if part.topic.startswith("__"):
            continue
        every = [(r.offset, r.timestamp) for r in pylogseg.read(disk, part.topic, part.partition)]
        for offset, timestamp in chance.sample(every, min(len(every), 12)):
            found = [r.offset for r in pylogseg.read(disk, part.topic, part.partition, offset=offset, limit=2)]
            counts["reads by offset"] += 1
            counts["wrong"] += found != [each for each, _ in every if each >= offset][:2]
            if timestamp >= 0:
                first = next(iter(pylogseg.read(disk, part.topic, part.partition, timestamp=(timestamp, None))), None)
                counts["reads by time"] += 1
                counts["wrong"] += first is None or first.offset != next(o for o, t in every if t >= timestamp)


def harm(path: Path, chance: random.Random, most: int, counts: Counter[str]) -> None:
    """Change entries of indexes; what misleads a look-up has to be found."""
    segments = [segment for part in open_dir(path).partitions for segment in part.segments if segment.size]
    for segment in chance.sample(segments, min(len(segments), most)):
        log = Path(segment.path)
        lookups = Lookups(log.read_bytes())
        both = {kind: log.with_suffix(kind) for kind in (".index", ".timeindex")}
        if not all(each.exists() for each in both.values()) or not (np.diff(lookups.rows.last_offset) > 0).all():
            continue
        whole = {kind: each.read_bytes() for kind, each in both.items()}
        for kind, width in ((".index", 8), (".timeindex", 12)):
            used = width * len((OffsetIndex if width == 8 else TimeIndex)(whole[kind], segment.base_offset))
            for _ in range(8 if used > width else 0):
                data = bytearray(whole[kind])
                if chance.random() < 0.5:
                    at = chance.randrange(0, used - width, width) + width - 4
                    del data[at : at + width]  # one key, and the place of the next one
                else:
                    data[chance.randrange(used)] ^= 1 << chance.randrange(8)
                now = whole | {kind: bytes(data)}
                index = OffsetIndex(now[".index"], segment.base_offset)
                times = TimeIndex(now[".timeindex"], segment.base_offset)
                try:
                    index.check_entries()
                    times.check_entries()
                    is_harm = lookups.are_misled(index, times)
                except CorruptionError:
                    is_harm = True
                both[kind].write_bytes(data)
                is_found = any(finding.is_damage for finding in verify_segment(segment).findings)
                counts["harms"] += is_harm
                counts["missed"] += is_harm and not is_found
                if is_harm and not is_found:
                    print(f"  missed: {both[kind]}", flush=True)
            both[kind].write_bytes(whole[kind])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", default="4.0.0")
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--harms", type=int, default=40, help="segments of each disk")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    root = args.keep or Path(tempfile.mkdtemp(prefix="old-followers."))
    root.mkdir(exist_ok=True)
    cluster, counts = Cluster(root, args.kafka), Counter[str]({"false": 0, "missed": 0, "wrong": 0})
    try:
        cluster.begin()
        for number in (1, 2):
            cluster.start(number)
        cluster.make_topics()
        cluster.write(args.records // 3, chance)
        for round_, how in enumerate((signal.SIGTERM, signal.SIGKILL)):
            number = 2 - round_
            cluster.end(f"b{number}", how)
            cluster.write(args.records // 3, chance)
            cluster.start(number)
            cluster.write(args.records // 30, chance)
            cluster.wait_in_sync()
            for number in (2, 1):
                cluster.end(f"b{number}", how)
            for number in (1, 2):
                copy = Path(shutil.copytree(cluster.disk(number), root / f"copy-{how.name}-{number}"))
                found = damage(copy)
                counts["false"] += len(found)
                for finding in found[:5]:
                    print(f"  false: {finding}", flush=True)
                counts["entries of appends"] += by_append(copy)
                read_at_random(copy, chance, counts)
                harm(copy, chance, args.harms, counts)
            if not round_:
                for number in (1, 2):
                    cluster.start(number)
                cluster.wait_in_sync()
    finally:
        cluster.close()
        if args.keep is None:
            shutil.rmtree(root)
    print(f"{args.kafka}: {dict(counts)}")
    sys.exit(bool(counts["false"] or counts["missed"] or counts["wrong"]))


if __name__ == "__main__":
    main()
