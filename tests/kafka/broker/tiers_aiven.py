#!/usr/bin/env python3
"""Tiers that Aiven's plugin writes for two brokers, which are killed and restarted with other keys.

    tiers_aiven.py --plugin DIR [--on files|s3] [--rounds N] [--seed N] [--keep DIR]

DIR has the jars of the plugin, which README.md says how to build. Two brokers and a controller run on this machine,
with small segments and chunks, zstd and AES. While records are written, in transactions and outside of them, the
leader of a partition is killed in the middle of an upload, and comes back; half-way the brokers get another key. Local
retention deletes what was uploaded. What consumers get, with both isolations, has to be what the disk of either broker
and the tier together give, and the tier alone for its part; `verify` has to find nothing; fresh brokers serve the same
from what was restored, without a warning. Then objects are damaged one after the other: each has to be named, nothing
else may be lost, and no key be shown. All that once on the file system, and once on a server that speaks S3 (moto).
Ten minutes; exit code 0 if all is well. Needs confluent-kafka, kafka-python, cryptography, zstandard, s3fs and
moto[server].
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from aiven_plugin import Place, broker_lines, free_ports, in_folder, in_store, key_lines, make_keys
from three_brokers import CONTROLLER, Node
from tier_damage import Said, check_damage, check_keys, run, secrets
from tiers import ISOLATIONS, Rows, broker, check, consumed, fill, make_topic, read, server

import pylogseg
from pylogseg.reading.seek import end_offset

PARTITIONS = 2
#: A broker is killed in the middle of an upload so often with each key.
ROUNDS = 2
_WAIT_S = 120


def until(what: str, is_so: Callable[[], Any], pause: float = 0.3) -> Any:
    """Wait until something is true; that."""
    end = time.monotonic() + _WAIT_S
    while time.monotonic() < end:
        found = is_so()
        if found:
            return found
        time.sleep(pause)
    sys.exit(f"{what} did not happen in {_WAIT_S} s")


class Uploads:
    """Uploads that can be caught in their middle: a file without its manifest, a manifest that is not accepted."""

    def __init__(self) -> None:
        self._armed, self._caught, self._killed = threading.Event(), threading.Event(), threading.Event()
        self._path = ""

    def on_put(self, path: str) -> bool:
        """Hold the PUT of a manifest until its broker was killed, and refuse it."""
        if not self._armed.is_set() or not path.endswith(".rsm-manifest"):
            return False
        self._path = path
        self._armed.clear()
        self._caught.set()
        self._killed.wait(_WAIT_S)
        return True

    def kill(self, place: Place, cluster: Cluster) -> Node:
        """Wait for an upload, and kill the leader that makes it."""
        if place.name == "S3":
            self._caught.clear()
            self._killed.clear()
            self._armed.set()
            if not self._caught.wait(_WAIT_S):
                sys.exit("nothing was uploaded")
            node = cluster.leader(int(self._path.split("/")[-2]))
            node.end("kill")
            self._killed.set()
            return node
        known = set(_unfinished(place))
        return until("an upload", lambda: _kill_in_upload(place, cluster, known), 0)


def _unfinished(place: Place) -> list[str]:
    """Segments without a manifest."""
    done = {path.removesuffix(".rsm-manifest") for path in place.objects(".rsm-manifest")}
    return [path for path in place.objects(".log") if path.removesuffix(".log") not in done]


def _kill_in_upload(place: Place, cluster: Cluster, known: set[str]) -> Node | None:
    """Stop the leaders for a moment; kill the one that has an upload under way."""
    nodes = [node for node in cluster.brokers if node.is_up]
    pids = [int((node.folder / "run" / "pid").read_text()) for node in nodes]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        for path in set(_unfinished(place)) - known:
            leader = cluster.leaders.get(int(path.split("/")[-2]))
            for node in nodes:
                if node.number == leader:
                    node.end("kill")
                    return node
    finally:
        for pid, node in zip(pids, nodes, strict=True):
            if node.is_up:
                os.kill(pid, signal.SIGCONT)
    return None


class Cluster:
    """A controller and two brokers."""

    def __init__(self, root: Path, lines: Callable[[str], list[str]]) -> None:
        one, two, three = free_ports(3)
        self._lines = lines
        self.controller = Node(root / "controller", CONTROLLER, two, one)
        self.controller.lines.append("remote.log.storage.system.enable=true")
        self.brokers = [Node(root / f"b{number}", number, port, one) for number, port in ((1, two), (2, three))]
        self._own = {node.number: list(node.lines) for node in self.brokers}
        self.leaders: dict[int, int] = {}

    def start(self, active: str, *nodes: Node) -> None:
        """Start brokers, with the id of the key that they encrypt with."""
        for node in nodes:
            node.lines = [*self._own[node.number], *self._lines(active)]
        self._start(*nodes)

    def start_all(self, active: str) -> None:
        """Start the controller too."""
        self._start(self.controller)
        self.start(active, *self.brokers)

    @staticmethod
    def _start(*nodes: Node) -> None:
        for process in [node.start() for node in nodes]:
            if process.wait():
                sys.exit("a node did not start")

    @property
    def one(self) -> Path:
        """The folder of a broker that is up."""
        return next(node.folder for node in self.brokers if node.is_up)

    def in_sync(self) -> bool:
        """Ask whether both brokers have all partitions; notes the leaders."""
        with contextlib.suppress(KafkaException):
            found = AdminClient({"bootstrap.servers": server(self.one)}).list_topics("orders", 10).topics["orders"]
            self.leaders = {number: part.leader for number, part in found.partitions.items()}
            return len(found.partitions) == PARTITIONS and all(len(p.isrs) == 2 for p in found.partitions.values())
        return False

    def leader(self, partition: int) -> Node:
        """Return the leader of a partition, when it was last looked."""
        return next(node for node in self.brokers if node.number == self.leaders[partition])

    def end(self) -> None:
        """Kill all."""
        for node in (*self.brokers, self.controller):
            node.end("kill")


def write(folder: Path, chance: random.Random) -> None:
    """Write; where brokers come and go, some of it may be refused."""
    try:
        fill(folder, chance)
    except KafkaException as error:
        print(f"the producer gave up: {error.args[0]}", flush=True)


@contextlib.contextmanager
def writing(folder: Path, chance: random.Random) -> Iterator[None]:
    """Write beside what runs."""
    thread = threading.Thread(target=write, args=(folder, chance))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def pad(folder: Path) -> None:
    """Records outside of transactions, some segments full."""
    producer = Producer({"bootstrap.servers": server(folder), "linger.ms": 5, "batch.size": 4000})
    for number in range(1200):
        producer.produce("orders", b"%0100d" % number, partition=number % PARTITIONS)
    if producer.flush(60):
        sys.exit("records were not taken")


def ends(disk: pylogseg.Disk) -> dict[int, int]:
    """Where the partitions end."""
    return {part.partition: end_offset(part.segments) or 0 for part in disk.topics["orders"]}


def play(
    cluster: Cluster, place: Place, ring: Path, uploads: Uploads, chance: random.Random, rounds: int
) -> dict[str, Rows]:
    """Write, kill, restart, rotate keys; what consumers get at the end."""
    admin = AdminClient({"bootstrap.servers": server(cluster.one)})
    settings = {"remote.storage.enable": "true", "internal.segment.bytes": "16384", "local.retention.ms": "1000",
                "min.insync.replicas": "1"}  # fmt: skip
    for made in admin.create_topics([NewTopic("orders", PARTITIONS, 2, config=settings)]).values():
        made.result(60)
    killed = 0
    for active in ("old", "new"):
        for node in cluster.brokers:
            if active == "new":  # one after the other: for a while they encrypt with different keys
                node.end("stop")
                cluster.start(active, node)
                until("all in sync", cluster.in_sync)
                write(cluster.one, chance)
        for _ in range(rounds):
            until("all in sync", cluster.in_sync)
            with writing(cluster.one, chance):
                node = uploads.kill(place, cluster)
                killed += 1
                print(f"broker {node.number} was killed in the middle of an upload, key {active!r}", flush=True)
            write(cluster.one, chance)
            cluster.start(active, node)
    until("all in sync", cluster.in_sync)

    def is_local(base: int) -> bool:
        folders = [node.disks[0] / f"orders-{n}" for node in cluster.brokers for n in range(PARTITIONS)]
        return any((folder / f"{base:020d}.log").exists() for folder in folders)

    until("the disks lost what was uploaded", lambda: not is_local(0))
    # From now on they keep what they have, though it is uploaded too.
    entry = ConfigEntry("local.retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    for changed in admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[entry])]
    ).values():
        changed.result(60)
    fill(cluster.one, chance)
    before = ends(pylogseg.open_dir(cluster.brokers[0].disks[0]))
    pad(cluster.one)

    def has_pad() -> bool:
        found = ends(pylogseg.open_tier(place.url, ring, storage_options=place.storage))
        return all(found.get(number, 0) > before[number] + 100 for number in range(PARTITIONS))

    until("the tier got all transactions", has_pad)
    left = len(_unfinished(place))
    print(f"{killed} kills, {left} uploads without a manifest, {len(place.objects('.log'))} segments", flush=True)
    if left < killed:
        sys.exit(f"{killed} brokers were killed in an upload, and {left} are unfinished")
    return {isolation: consumed(cluster.one, isolation) for isolation in ISOLATIONS}


def judge(cluster: Cluster, place: Place, ring: Path, wanted: dict[str, Rows], said: Said) -> dict[str, Rows]:
    """Compare the tier with what consumers got; what of it is in the tier alone."""
    tier = pylogseg.open_tier(place.url, ring, storage_options=place.storage)
    end = ends(tier)
    for node in cluster.brokers:
        disk = pylogseg.open_dir(
            node.disks[0], tier=place.url, storage_options={**place.storage, "tier_keys": str(ring)}
        )
        for isolation in ISOLATIONS:
            check(f"{place.name}: disk {node.number} and tier, {isolation}", read(disk, isolation), wanted[isolation])
        for words in ([node.disks[0], "orders", "--tier", place.url], [place.url]):
            text, _ = run(said, ["verify", *words, "--keys", ring, "--remote-metadata", node.disks[0]], (0,))
            (found,) = (line for line in text.splitlines() if line.startswith("no damage"))
            print(f"verify {' '.join(map(str, words))}: {found}", flush=True)
    alone = {}
    for isolation in ISOLATIONS:
        alone[isolation] = [row for row in wanted[isolation] if row[1] < end[row[0]]]
        check(f"{place.name}: the tier alone, {isolation}", read(tier, isolation), alone[isolation])
    return alone


def serve_restored(folder: Path, wanted: dict[str, Rows], said: Said, *words: object) -> None:
    """Restore into a fresh broker, and compare what its consumers get."""
    broker("start", folder)
    try:
        make_topic(folder, PARTITIONS)
        broker("stop", folder)
        text, _ = run(said, ["restore", words[0], folder / "data0", "orders", "--overwrite", *words[1:]], (0,))
        print(text, end="", flush=True)
        broker("start", folder)
        for isolation in ISOLATIONS:
            check(f"restored, {isolation}", consumed(folder, isolation), wanted[isolation])
        log = (folder / "run" / "server.log").read_text(encoding="utf-8").splitlines()
        odd = re.compile(r"\b(WARN|ERROR)\b.*orders-|Recovering unflushed segment.*orders-")
        # A new cluster begins with lower leader epochs than the log has: docs/cli.md, restore.
        words = [line for line in log if odd.search(line) and "LeaderEpochFileCache" not in line]
        if words:
            sys.exit("the broker complains:\n" + "\n".join(words[:5]))
        broker("stop", folder)
    finally:
        broker("kill", folder)


def drill(plugin: Path, scratch: Path, is_s3: bool, chance: random.Random, rounds: int) -> list[str]:
    """All of it on one kind of storage; what is wrong."""
    scratch.mkdir()
    uploads, said = Uploads(), Said()
    place = in_store(uploads.on_put) if is_s3 else in_folder(scratch / "tier")
    ring = make_keys(scratch / "keys", "old", "new")
    more = {
        "offsets.topic.replication.factor": 2,
        "transaction.state.log.replication.factor": 2,
        "rlmm.config.remote.log.metadata.topic.replication.factor": 2,
        "rlmm.config.remote.log.metadata.topic.min.isr": 1,
    }

    def lines(active: str) -> list[str]:
        of_plugin = ["chunk.size=4096", "compression.enabled=true", *key_lines(ring, active),
                     "custom.metadata.fields.include=REMOTE_SIZE,OBJECT_KEY"]  # fmt: skip
        return broker_lines(plugin, place, of_plugin, more)

    cluster = Cluster(scratch, lines)
    try:
        cluster.start_all("old")
        wanted = play(cluster, place, ring, uploads, chance, rounds)
    finally:
        cluster.end()
    alone = judge(cluster, place, ring, wanted, said)
    tier = ["--tier", place.url, "--keys", ring]
    serve_restored(scratch / "restored", wanted, said, cluster.brokers[0].disks[0], *tier)
    serve_restored(scratch / "restored-alone", alone, said, place.url, "--keys", ring)
    wrong = check_damage(place, ring, chance, said) + check_keys(place, ring, scratch, said)
    said.check(secrets(place, ring))
    return wrong


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plugin", type=Path, required=True, help="the folder with the jars of the plugin")
    parser.add_argument("--on", choices=("files", "s3"), nargs="+", default=["files", "s3"])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="kills with each key (%(default)s)")
    parser.add_argument("--keep", type=Path, help="work here, and leave everything behind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    scratch = options.keep or Path(tempfile.mkdtemp(prefix="tiers-aiven-"))
    scratch.mkdir(parents=True, exist_ok=True)
    wrong = []
    try:
        for kind in options.on:
            wrong += drill(
                options.plugin.resolve(), scratch / kind, kind == "s3", random.Random(options.seed), options.rounds
            )
    finally:
        if options.keep is None:
            shutil.rmtree(scratch)
    print("\n".join(wrong) or "all is well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
