"""A controller and three real brokers that share a tier, and the random things that happen to them."""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kafka import TopicPartition as PlainPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as PlainError

# Neighbours, which are no package:
from three_brokers import CONTROLLER, Node
from tiers import jars

HERE = Path(__file__).resolve().parent
#: Topics by what happens to the beginning of their logs, with settings.
TOPICS = {
    "kept": {"internal.segment.bytes": "6000", "local.retention.ms": "1000"},
    "trimmed": {"internal.segment.bytes": "5000", "local.retention.bytes": "9000", "retention.bytes": "60000"},
    "wiped": {"internal.segment.bytes": "9000", "local.retention.ms": "2000"},
}
_SETTINGS = {
    "remote.storage.enable": "true",
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "1",
    "index.interval.bytes": "1000",
    "file.delete.delay.ms": "500",
}
_SECONDS, _UPLOAD_SECONDS = 120, 40
_EARLIEST, _LATEST, _LATEST_TIERED = -2, -1, -5

Name = tuple[str, int]


class Leader(NamedTuple):
    """Who leads a partition, and who is in sync."""

    node_id: int
    in_sync: tuple[int, ...]


def folder_of(name: Name) -> str:
    """The name of a partition's folder."""
    return f"{name[0]}-{name[1]}"


def data_of(node: Node) -> Path:
    """The log directory of a node."""
    return node.folder / "data0"


def wait(what: str, is_so: Callable[[], object], seconds: float = _SECONDS) -> None:
    """Wait until something is so."""
    if not within(seconds, is_so):
        raise TimeoutError(f"{what} did not happen in {seconds} s")


def within(seconds: float, is_so: Callable[[], object]) -> bool:
    """Wait for something that need not happen; whether it did."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def free_ports(count: int) -> list[int]:
    """Ports that the system has free."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Cluster:
    """The cluster, and what writes to it."""

    def __init__(self, root: Path, chance: random.Random, partitions: int) -> None:
        self.chance, self.tier, self.counts = chance, root / "tier" / "kafka-tiered-storage", Counter[str]()
        self.names = [(topic, number) for topic in TOPICS for number in range(partitions)]
        port, *ports = free_ports(4)
        class_path = jars(root)
        lines = [
            "remote.log.storage.system.enable=true",
            "remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
            f"remote.log.storage.manager.class.path={class_path}:{_slow_copies(root, class_path)}/",
            f"rsm.config.dir={root / 'tier'}",
            "rsm.config.transferer.class=SlowTransferer",
            "remote.log.metadata.manager.listener.name=PLAINTEXT",
            "rlmm.config.remote.log.metadata.topic.replication.factor=3",
            "rlmm.config.remote.log.metadata.topic.min.isr=1",
            "rlmm.config.remote.log.metadata.topic.num.partitions=3",
            "remote.log.manager.task.interval.ms=300",
            "log.retention.check.interval.ms=400",
            "log.flush.start.offset.checkpoint.interval.ms=400",
            "offsets.topic.replication.factor=3",
            "transaction.state.log.replication.factor=3",
            "transaction.state.log.min.isr=1",
        ]
        self.controller = Node(root / "controller", CONTROLLER, port, port)
        self.controller.lines += lines[:1]
        self.brokers = [Node(root / f"b{i}", i, ports[i - 1], port) for i in (1, 2, 3)]
        for node in self.brokers:
            node.lines += lines
        self.written = 0
        self._is_late = False

    # ---- what is there ----

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.brokers if node.is_up)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def node(self, node_id: int) -> Node:
        return self.brokers[node_id - 1]

    def leaders(self) -> dict[Name, Leader]:
        """The leaders of all partitions; empty if nobody tells."""
        with contextlib.suppress(KafkaException):
            topics = self.admin().list_topics(timeout=5).topics
            return {(t, n): Leader(p.leader, tuple(p.isrs)) for t in TOPICS if t in topics
                    for n, p in topics[t].partitions.items()}  # fmt: skip
        return {}

    def wait_for(self, what: str, is_so: Callable[[Leader], bool]) -> None:
        """Wait until all leaders are as they should be."""

        def all_so() -> bool:
            found = self.leaders()
            return len(found) == len(self.names) and all(map(is_so, found.values()))

        wait(what, all_so)

    def half_copies(self) -> Iterator[Name]:
        """Partitions of which a segment is being copied, or was when its broker died."""
        for folder in self.tier.glob("*"):
            files: dict[str, set[str]] = {}
            for entry in os.scandir(folder):
                stem, _, suffix = entry.name.partition(".")
                files.setdefault(stem, set()).add(suffix)
            if any("snapshot" not in suffixes for suffixes in files.values()):
                match = re.fullmatch(r"(.+)-(\d+)-.{22}", folder.name)
                if match:
                    yield match[1], int(match[2])

    def uploads(self) -> int:
        """Segments in the tier."""
        return sum(1 for _ in self.tier.glob("*/*.log"))

    def offsets(self, spec: int, isolation: int = 0) -> dict[Name, int]:
        """Offsets of all partitions, as their leaders tell them."""
        admin = KafkaAdminClient(bootstrap_servers=self.servers.split(","))
        try:
            found = admin.list_partition_offsets(
                {PlainPartition(*name): spec for name in self.names}, isolation_level=isolation
            )
        finally:
            admin.close()
        return {(at.topic, at.partition): row.offset for at, row in found.items()}

    # ---- what happens ----

    def start(self, *nodes: Node) -> None:
        for process in [node.start() for node in nodes]:
            if process.wait():
                raise RuntimeError("a node did not start")

    def make_topics(self) -> None:
        admin = self.admin()
        count = len(self.names) // len(TOPICS)
        topics = [NewTopic(name, count, 3, config=_SETTINGS | more) for name, more in TOPICS.items()]
        for made in admin.create_topics(topics).values():
            made.result(60)

    def write(self, bursts: int = 3) -> None:
        """Records outside and inside of transactions; some get lost where there is no leader."""
        chance = self.chance
        for _ in range(bursts):
            how = chance.choice(["plain", "plain", "idempotent", "transactional", "transactional"])
            settings = {
                "bootstrap.servers": self.servers,
                "compression.type": chance.choice(["none", "none", "gzip", "lz4", "zstd"]),
                "linger.ms": chance.choice([0, 2, 5]),
                "message.timeout.ms": 6000,
                "log_level": 0,
            }
            if how == "plain":
                self._send(Producer(settings | {"acks": 1}), 300)
            elif how == "idempotent":
                self._send(Producer(settings | {"enable.idempotence": True}), 300)
            else:
                self._transactions(settings)
            self.counts[f"bursts {how}"] += 1

    def _transactions(self, settings: dict[str, object]) -> None:
        producer = Producer(
            settings | {"transactional.id": f"t{self.chance.randrange(5)}", "transaction.timeout.ms": 8000}
        )
        with contextlib.suppress(KafkaException):
            producer.init_transactions(20)
            for _ in range(self.chance.randrange(2, 6)):
                producer.begin_transaction()
                self._send(producer, 60)
                is_aborted = self.chance.random() < 0.4
                self.counts["transactions aborted" if is_aborted else "transactions committed"] += 1
                (producer.abort_transaction if is_aborted else producer.commit_transaction)(20)
            return
        self.counts["transactions broken off"] += 1  # its leader, or its coordinator, is gone

    def _send(self, producer: Producer, count: int) -> None:
        chance = self.chance
        names = chance.sample(self.names, chance.randrange(2, len(self.names) + 1))
        for _ in range(count):
            topic, number = chance.choice(names)
            self.written += 1
            key = None if chance.random() < 0.1 else b"k%d" % chance.randrange(100)
            value = None if chance.random() < 0.05 else b"%d " % self.written + chance.randbytes(chance.randrange(200))
            headers = [(f"h{i}", chance.choice([None, b"", b"v"])) for i in range(chance.choice([0, 0, 0, 1, 3]))]
            at = int(time.time() * 1000) - chance.choice([0, 0, 0, 5000, 86_400_000])
            producer.produce(topic, value, key, number, headers=headers, timestamp=at)
        producer.flush(15)

    def kill_in_copy(self) -> None:
        """Kill a broker while it copies a segment; it comes back."""
        leaders = self.leaders()
        half: list[Name] = []

        def is_copying() -> bool:
            half[:] = [name for name in self.half_copies() if name in leaders]
            return bool(half)

        self.write(2)
        within(5, is_copying)
        name = half[-1] if half else self.chance.choice(self.names)
        node_id = leaders[name].node_id if name in leaders else 1
        self._away(self.node(max(node_id, 1)), "kill")

    def restart(self) -> None:
        """A broker goes and comes back."""
        self._away(self.chance.choice(self.brokers), self.chance.choice(["kill", "stop"]))

    def _away(self, node: Node, how: str) -> None:
        node.end(how)
        self.counts[f"{how}s"] += 1
        self.write(self.chance.randrange(1, 4))
        self.start(node)
        self.write(1)

    def unclean(self) -> None:
        """A leader is lost with what it alone had, and perhaps uploaded; another one is elected without it."""
        alone, *others = self.chance.sample(self.brokers, 3)
        for node in others:
            node.end("kill")
        self.wait_for("one leader", lambda leader: leader.in_sync == (alone.number,))
        before = self.uploads()
        self.write(3)
        if self.chance.random() < 0.8:
            within(10, lambda: self.uploads() > before + 5)
        alone.end("kill")
        self.start(*others)
        ids = {node.number for node in others}
        self.wait_for("an election", lambda leader: leader.node_id in ids)
        self.counts["kills"] += 3
        self.counts["brokers lost with what they had"] += 1
        self.write(3)
        if self.chance.random() < 0.5:
            within(10, lambda: not any(self.half_copies()))
        self.start(alone)

    def elect(self) -> None:
        """Other replicas come first, and lead."""
        orders = {name: self.chance.sample([1, 2, 3], 3) for name in self.names if self.chance.random() < 0.6}
        admin = KafkaAdminClient(bootstrap_servers=self.servers.split(","))
        try:
            admin.alter_partition_reassignments({PlainPartition(*name): order for name, order in orders.items()})
        except PlainError as error:
            print(f"no reassignment: {error}", flush=True)
        finally:
            admin.close()
        self.write(1)
        with contextlib.suppress(KafkaException):
            self.admin().elect_leaders(ElectionType.PREFERRED, None).result(20)
        self.counts["reassignments and elections"] += len(orders)
        self.write(1)

    def delete_records(self) -> None:
        """Records of some partitions are deleted up to an offset."""
        ends = self.offsets(_LATEST)
        starts = self.offsets(_EARLIEST)
        admin = self.admin()
        wanted = []
        for name in self.names:
            if name[0] == "wiped" and ends.get(name, 0) > starts.get(name, 0) and self.chance.random() < 0.5:
                before = starts[name] + int((ends[name] - starts[name]) * self.chance.random() ** 2)
                wanted.append(TopicPartition(*name, before))
        if wanted:
            for asked in admin.delete_records(wanted, request_timeout=20).values():
                with contextlib.suppress(KafkaException):
                    asked.result(25)
                    self.counts["DeleteRecords"] += 1

    def act(self) -> None:
        """One thing of these."""
        every = [self.kill_in_copy, self.kill_in_copy, self.restart, self.unclean, self.unclean, self.elect,
                 self.elect, self.delete_records]  # fmt: skip
        chosen = self.chance.choice(every)
        print(f"{time.strftime('%T')} {chosen.__name__}: {self.uploads()} segments in the tier", flush=True)
        chosen()

    # ---- the end ----

    def settle(self) -> None:
        """All brokers are there and in sync, all is uploaded that can be, nothing is deleted any more."""
        self.start(*(node for node in self.brokers if not node.is_up))
        self.wait_for("all in sync", lambda leader: leader.node_id > 0 and len(leader.in_sync) == 3)
        admin = self.admin()
        keep = ConfigResource(ResourceType.TOPIC, "trimmed", incremental_configs=[
            ConfigEntry("retention.bytes", "-1", incremental_operation=AlterConfigOpType.SET)])  # fmt: skip
        for done in admin.incremental_alter_configs([keep]).values():
            done.result(30)
        self.write(5)
        wait("all in sync", lambda: all(len(leader.in_sync) == 3 for leader in self.leaders().values()))
        for node in self.brokers:
            if self._is_all_uploaded():
                return
            # A broker may wait for ever for what it knows of its uploads ("Remote log metadata cache is not
            # initialized"): it neither uploads nor serves then, until another one leads or it is started again.
            self.counts["restarts of brokers that did not upload"] += 1
            node.end("stop")
            self.start(node)
            self.wait_for("all in sync", lambda leader: leader.node_id > 0 and len(leader.in_sync) == 3)
        if not self._is_all_uploaded():
            print(f"not uploaded, or not noted: {list(self._late())[:5]}", flush=True)
            self.counts["partitions with uploads that did not come"] += len(list(self._late()))
            self._is_late = True

    def _is_all_uploaded(self) -> bool:
        return within(_UPLOAD_SECONDS, lambda: not any(self._late()))

    def _late(self) -> Iterator[str]:
        """Partitions of which sealed segments are not uploaded, or the start of the log is not in the checkpoint."""
        leaders, tiered = self.leaders(), self.offsets(_LATEST_TIERED)
        stable, starts = self.offsets(_LATEST, 1), self.offsets(_EARLIEST)
        for name in self.names:
            leader = leaders[name].node_id
            data = data_of(self.node(leader))
            bases = [int(path.stem) for path in (data / folder_of(name)).glob("*.log")]
            sealed = max((base for base in bases if base <= stable[name]), default=0)
            if sealed - 1 > max(tiered[name], starts[name] - 1):
                yield f"{folder_of(name)}: broker {leader} has uploaded up to {tiered[name]}, sealed up to {sealed - 1}"
            for node_id in leaders[name].in_sync:
                path = data_of(self.node(node_id)) / "log-start-offset-checkpoint"
                lines = path.read_text().splitlines()[2:] if path.exists() else []
                noted = {(t, int(n)): int(at) for t, n, at in map(str.split, lines)}.get(name, 0)
                if noted != starts[name]:
                    yield f"{folder_of(name)}: broker {node_id} has noted {noted} as its start, which is {starts[name]}"

    def end(self) -> None:
        """Stop or kill what runs.

        A replica in sync whose leader epochs begin later than its leader's deletes in the tier what is below, once it
        leads ("due to leader-epoch-cache truncation"). Without a controller none comes to lead while others stop.
        """
        if self._is_late:
            self.controller.end("kill")
        for node in self.brokers:
            if node.is_up:
                node.end("kill" if self._is_late else self.chance.choice(["stop", "kill"]))

    def kill(self) -> None:
        """Kill all."""
        for node in (*self.brokers, self.controller):
            node.end("kill")


def _slow_copies(root: Path, class_path: str) -> Path:
    """The class that copies in halves, for the tier."""
    target = root / "slow"
    subprocess.run(
        ["javac", "-nowarn", "-cp", class_path, "-d", target, HERE / "SlowTransferer.java"], check=True, cwd=root
    )
    return target
