"""A controller and three real brokers, and what can be asked of them whatever happens to them."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as OtherKafkaError

HERE = Path(__file__).resolve().parent
CONTROLLER = 100
QUIET = {"error_cb": lambda error: None, "log_level": 0}
SETTINGS = [
    "replica.high.watermark.checkpoint.interval.ms=300",
    "log.flush.start.offset.checkpoint.interval.ms=300",
    "replica.lag.time.max.ms=1500",
    "broker.session.timeout.ms=4000",
    "broker.heartbeat.interval.ms=500",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.replication.factor=3",
    "unclean.leader.election.enable=true",  # of Kafka's own topics; ours say it themselves
    "internal.leader.imbalance.check.interval.seconds=3600",
]


class Node:
    """A controller or a broker."""

    def __init__(
        self,
        folder: Path,
        number: int,
        port: int,
        controller_port: int,
        disks: int = 1,
        settings: Sequence[str] = SETTINGS,
    ) -> None:
        self.folder, self.number, self.port = folder, number, port
        self.disks = [folder / f"data{i}" for i in range(disks)]
        (folder / "run").mkdir(parents=True)
        (folder / "run" / "static").touch()
        (folder / "run" / "port").write_text(f"{port}\n")
        (folder / "run" / "controller-port").write_text(f"{controller_port}\n")
        is_controller = number == CONTROLLER
        listener = f"CONTROLLER://127.0.0.1:{controller_port}" if is_controller else f"PLAINTEXT://127.0.0.1:{port}"
        self.lines = [
            f"process.roles={'controller' if is_controller else 'broker'}",
            f"node.id={number}",
            f"listeners={listener}",
            f"advertised.listeners={listener}",
            f"controller.quorum.voters={CONTROLLER}@127.0.0.1:{controller_port}",
            f"log.dirs={','.join(map(str, self.disks))}",
            *settings,
        ]

    def use(self, *disks: Path) -> None:
        """Have these disks from the next start on."""
        self.disks = list(disks)
        line = f"log.dirs={','.join(map(str, disks))}"
        self.lines = [line if each.startswith("log.dirs=") else each for each in self.lines]

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        """Start it; it is ready when the process that is returned has ended."""
        environment = {"BROKER_HEAP": "400m", **os.environ, **more}
        return subprocess.Popen(["bash", HERE / "broker.sh", "start", self.folder, *self.lines], env=environment)

    def end(self, how: str) -> None:
        """Stop or kill it."""
        subprocess.run(["bash", HERE / "broker.sh", how, self.folder], check=True)

    @property
    def is_up(self) -> bool:
        return (self.folder / "run" / "pid").exists()

    def signal(self, number: signal.Signals) -> None:
        os.kill(int((self.folder / "run" / "pid").read_text()), number)

    def said(self, pattern: str) -> set[str]:
        """What of the logs of all its lives matches a pattern: the first groups."""
        found: set[str] = set()
        for path in (self.folder / "run").glob("server*.log"):
            found |= set(re.findall(pattern, path.read_text(errors="replace")))
        return found


class Row(NamedTuple):
    """A partition, as the cluster describes it."""

    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


Key = tuple[str, int]


class ThreeBrokers:
    """The controller and the brokers."""

    def __init__(self, root: Path, chance: random.Random, settings: Sequence[str] = SETTINGS) -> None:
        self.chance, self.counts = chance, Counter[str]()
        ports = list(_free_ports(5))
        self.controller = Node(root / "controller", CONTROLLER, ports[0], ports[1], 1, settings)
        disks = [chance.choice((1, 1, 2, 3)) for _ in range(3)]
        self.brokers = [Node(root / f"b{i + 1}", i + 1, ports[2 + i], ports[1], disks[i], settings) for i in range(3)]
        self.with_elr = chance.random() < 0.7

    @property
    def names(self) -> Collection[str]:
        """Topics whose partitions are looked at."""
        raise NotImplementedError

    @property
    def partition_count(self) -> int:
        """How many partitions these have."""
        raise NotImplementedError

    @property
    def up(self) -> list[Node]:
        """Brokers that run."""
        return [node for node in self.brokers if node.is_up]

    @property
    def servers(self) -> str:
        """Where clients begin."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.up or self.brokers)

    def start(self, *nodes: Node) -> None:
        """Start some, and wait until they are ready."""
        more = {"FORMAT_ARGS": f"--feature eligible.leader.replicas.version={int(self.with_elr)}"}
        for process in [node.start(**more) for node in nodes]:
            if process.wait():
                raise RuntimeError("a node did not start")

    def rows(self) -> dict[tuple[str, int], Row]:
        """Ask one broker for all partitions."""
        admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        try:
            found = admin.list_topics(timeout=10).topics
        except KafkaException:
            return {}
        return {
            (name, number): Row(part.leader, tuple(sorted(part.isrs)), tuple(sorted(part.replicas)))
            for name in set(self.names) & found.keys()
            for number, part in found[name].partitions.items()
        }

    def wait(self, what: str, is_so: Callable[[dict[tuple[str, int], Row]], bool], seconds: float = 120) -> bool:
        """Wait until the partitions are so; False if they do not become so."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            rows = self.rows()
            if len(rows) == self.partition_count and is_so(rows):
                return True
            time.sleep(0.3)
        self.counts[f"without {what}"] += 1
        return False

    @contextlib.contextmanager
    def other_admin(self) -> Iterator[KafkaAdminClient]:
        """The other client's, for what confluent-kafka cannot ask; what it is refused is passed over."""
        try:
            admin = KafkaAdminClient(bootstrap_servers=self.servers.split(","), request_timeout_ms=15_000)
        except OtherKafkaError:
            return
        try:
            with contextlib.suppress(OtherKafkaError):
                yield admin
        finally:
            admin.close()

    def end(self) -> None:
        """Stop all at once, as they are: the controller first, so that nobody is elected."""
        for node in (self.controller, *self.brokers):
            node.end("kill")


def _free_ports(count: int) -> Iterator[int]:
    """Ports that no client takes while a broker is down."""
    with contextlib.ExitStack() as stack:
        for number in random.sample(range(20_000, 30_000), 1000):
            taken = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                taken.bind(("127.0.0.1", number))
                yield number
                count -= 1
            if not count:
                return
