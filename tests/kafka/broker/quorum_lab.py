"""Clusters of a real Kafka on this machine, each node with a folder of its own, and the steps that a command printed.

For programs that let a cluster lose something: they do what clients do, run `pylogseg`, and follow its steps there word
for word.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
VERSION = os.environ.get("KAFKA_VERSION", "4.3.0")
CACHE = Path(os.environ.get("ORACLE_HOME") or Path.home() / ".cache" / "pylogseg-oracle")
TOOLS = "4.3.0" if VERSION == "4.4.0" else VERSION  # as in ../kafka.sh
CLUSTER = "pylogsegQuorumLabAAAA0"
JAVA = f"java -Xmx{os.environ.get('BROKER_HEAP', '256m')} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
QUIET = {"error_cb": lambda error: None, "log_level": 0}
SCRIPTS = {
    "kafka-server-start.sh": """#!/bin/bash
[ "$1" = -daemon ] && shift
setsid {java} -Dlog4j2.configurationFile={log4j} -cp '{log}/*:{jars}' kafka.Kafka "$1" >>server.log 2>&1 </dev/null &
echo $! >pid
""",
    "kafka-server-stop.sh": """#!/bin/bash
[ -s pid ] && kill -TERM $(cat pid) 2>/dev/null || {{ echo 'No kafka server to stop'; exit 1; }}
for i in $(seq 600); do kill -0 $(cat pid) 2>/dev/null || {{ rm pid; exit 0; }}; sleep 0.1; done; exit 1
""",
    "kafka-storage.sh": "#!/bin/bash\nexec {java} -cp '{jars}' kafka.tools.StorageTool \"$@\"\n",
    "kafka-metadata-quorum.sh": """#!/bin/bash
exec {java} -cp '{tools}' org.apache.kafka.tools.MetadataQuorumCommand "$@"
""",
    "kafka-configs.sh": "#!/bin/bash\nexec {java} -cp '{tools}' kafka.admin.ConfigCommand \"$@\"\n",
}


class Failure(Exception):
    """Something is not as it should be."""


def must(fact: object, text: str) -> None:
    if not fact:
        raise Failure(text)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def jars(version: str) -> str:
    """Return the class path of a version, but for its binding of logs."""
    folder = CACHE / f"kafka-{version}"
    must(folder.is_dir(), f"no jars of {version}: KAFKA_VERSION={version} bash tests/kafka/kafka.sh classpath")
    found = [path for path in sorted(folder.glob("*.jar")) if "slf4j-nop" not in path.name]
    if not any("log4j-core" in path.name for path in found):  # 4.0 comes without
        found += (CACHE / "kafka-4.3.0").glob("log4j-*.jar")
    return ":".join(map(str, found))


def free_port() -> int:
    for number in random.SystemRandom().sample(range(20_000, 30_000), 200):
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", number))
            return number
    raise Failure("no free port")


class Node:
    """A node: a folder that stands for its machine."""

    def __init__(self, lab: Lab, number: int, roles: str) -> None:
        self.lab, self.number, self.roles = lab, number, roles
        self.home = lab.root / f"node{number}"
        self.data = self.home / "data"
        self.controller_port, self.port = free_port(), free_port()
        self.directory_id = ""
        (self.home / "bin").mkdir(parents=True)
        (self.home / "config").mkdir()
        names = {"java": JAVA, "log4j": HERE / "log4j2.properties", "log": CACHE / "broker-log",
                 "jars": jars(VERSION), "tools": jars(TOOLS)}  # fmt: skip
        for name, text in SCRIPTS.items():
            path = self.home / "bin" / name
            path.write_text(text.format(**names))
            path.chmod(0o755)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.controller_port}"

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def properties(self) -> Path:
        return self.home / "config" / "server.properties"

    def write(self) -> None:
        lab = self.lab
        quorum = ",".join((f"{c.number}@" if lab.static else "") + c.address for c in lab.controllers)
        listeners = [f"CONTROLLER://{self.address}"] * self.is_controller
        listeners += [f"PLAINTEXT://127.0.0.1:{self.port}"] * self.is_broker
        lines = {
            "process.roles": self.roles,
            "node.id": str(self.number),
            "log.dirs": f"{self.data},{self.home / 'data2'}" if self.is_broker else str(self.data),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(listeners),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"controller.quorum.{'voters' if lab.static else 'bootstrap.servers'}": quorum,
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "2",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "initial.broker.registration.timeout.ms": "300000",
            "num.network.threads": "2",
            "num.io.threads": "2",
            **lab.settings,
        }
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def set(self, line: str) -> None:
        """Put a line in the place of that of the same name."""
        name = line.split("=")[0]
        kept = [each for each in self.properties.read_text().splitlines() if each.split("=")[0] != name]
        self.properties.write_text("".join(f"{each}\n" for each in [*kept, *([line] if "=" in line else [])]))

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a line of the shell in this node's folder."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.home, capture_output=True, text=True, timeout=240, check=False
        )
        must(not check or done.returncode == 0, f"node {self.number}: {command}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def format(self, *arguments: str) -> None:
        self.run(f"bin/kafka-storage.sh format --cluster-id {CLUSTER} --config {self.properties} {' '.join(arguments)}")

    def start(self) -> None:
        self.run("bin/kafka-server-start.sh -daemon config/server.properties")

    @property
    def pid(self) -> int:
        try:
            return int((self.home / "pid").read_text())
        except (OSError, ValueError):
            return 0

    @property
    def is_up(self) -> bool:
        if not self.pid:
            return False
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            return state != "Z"
        return False

    def kill(self, *, lose: bool = False) -> None:
        if self.is_up:
            os.kill(self.pid, signal.SIGKILL)
            while self.is_up:
                time.sleep(0.05)
        (self.home / "pid").unlink(missing_ok=True)
        if lose:
            shutil.rmtree(self.data)


LABS: list[Lab] = []


class Lab:
    """Controllers and two brokers, or three nodes of both roles."""

    def __init__(self, root: Path, chance: random.Random, *, static: bool, controllers: int = 3, both: bool = False,
                 settings: dict[str, str] | None = None) -> None:  # fmt: skip
        LABS.append(self)
        self.root, self.chance, self.static, self.both = root, chance, static, both
        self.settings = settings or {}
        self.acknowledged: Counter[str] = Counter()
        self.partitions: dict[str, int] = {}
        self.controllers: list[Node] = []
        self.gone: list[Node] = []  #: Controllers that do not come back.
        roles = "broker,controller" if both else "controller"
        self.controllers += [Node(self, number, roles) for number in range(1, controllers + 1)]
        self.brokers = self.controllers if both else [Node(self, number, "broker") for number in (11, 12)]

    @property
    def nodes(self) -> list[Node]:
        return [*self.controllers, *(broker for broker in self.brokers if not broker.is_controller)]

    def start(self) -> None:
        """Format and start all."""
        for node in self.nodes:
            node.write()
        first = self.controllers
        if not self.static:
            ids = [_new_id(self.chance) for _ in first]
            voters = ",".join(f"{node.number}@{node.address}:{i}" for node, i in zip(first, ids, strict=True))
        for node in self.nodes:
            if self.static:
                node.format()
            elif node.is_controller:
                node.format("--initial-controllers", voters)
            else:
                node.format("--no-initial-controllers")
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            wait_for(f"node {node.number}", lambda node=node: "Kafka Server started" in log_of(node), 240)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    def create(self, topic: str, partitions: int = 3) -> bool:
        """Create a topic; False if that timed out."""
        admin = self.admin()  # which has to live until its answer is there
        try:
            admin.create_topics([NewTopic(topic, partitions, 2)], request_timeout=20)[topic].result(30)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":  # carried out after all
                return False
        except TimeoutError:
            return False
        self.partitions[topic] = partitions
        return True

    def produce(self, topic: str, count: int) -> int:
        """Produce with acks=all; return how many were acknowledged."""
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "message.timeout.ms": 30000, **QUIET})
        for i in range(count):
            producer.produce(topic, b"%d" % i, partition=i % self.partitions[topic],
                             on_delivery=lambda error, _: errors.append(error))  # fmt: skip
        producer.flush(40)
        done = errors.count(None)
        self.acknowledged[topic] += done
        return done

    def count(self, topic: str) -> int:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "lab", "enable.partition.eof": True, **QUIET}
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(self.partitions[topic])])
        records, ends, limit = 0, set(), time.monotonic() + 60
        while len(ends) < self.partitions[topic] and time.monotonic() < limit:
            for message in consumer.consume(1000, 1.0):
                ends.add(message.partition()) if message.error() else None
                records += not message.error()
        consumer.close()
        return records

    def check(self) -> None:
        """Check that brokers are there, and each acknowledged record is read."""
        for broker in self.brokers:
            must(broker.is_up, f"broker {broker.number} has ended: {log_of(broker)[-3000:]}")
        for topic, count in sorted(self.acknowledged.items()):
            if topic in self.partitions:
                read = 0
                for _ in range(3):
                    if (read := self.count(topic)) >= count:
                        break
                must(read >= count, f"{topic}: {read} of {count} acknowledged records are read")

    def leader(self) -> Node:
        """Return the leader of the quorum."""
        text = self.controllers[0].run(
            f"bin/kafka-metadata-quorum.sh --bootstrap-server {self.bootstrap} describe --status", check=False
        )
        match = re.search(r"LeaderId:\s+(-?\d+)", text)
        must(match, f"no leader: {text}")
        number = int(match[1]) if match else -1
        return next(node for node in self.controllers if node.number == number)

    def end(self) -> None:
        for node in self.nodes:
            node.kill()


def log_of(node: Node) -> str:
    path = node.home / "server.log"
    return path.read_text(errors="replace") if path.exists() else ""


def wait_for(text: str, is_so: Any, seconds: float = 120) -> None:
    limit = time.monotonic() + seconds
    while not is_so():
        must(time.monotonic() < limit, f"{text}: not within {seconds:.0f} s")
        time.sleep(0.5)


def _new_id(chance: random.Random) -> str:
    from pylogseg.format.uuids import format_uuid

    while (text := format_uuid(chance.randbytes(16))).startswith("-"):
        pass
    return text


# ---- the command and its steps ----


def pylogseg(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pylogseg", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def rescue(*arguments: object, codes: Sequence[int] = (0,)) -> str:
    """Run the dry run, then the command; return its text."""
    before = pylogseg("quorum", "rescue", *arguments)
    must(before[0] in codes, f"dry run: {before}")
    code, text, errors = pylogseg("quorum", "rescue", *arguments, "--write")
    must(code in codes, f"exit code {code}: {text}{errors}")
    files = [line for line in text.splitlines() if re.match(r"  \S+: ", line)]
    must(files and all(line in before[1] for line in files), f"the dry run showed other bytes: {before[1]}\n{text}")
    return text


class Step:
    """A printed step."""

    def __init__(self, text: str) -> None:
        self.text, self.lines = text, list[str]()

    @property
    def number(self) -> int:
        match = re.search(r"(?:node|controller|broker) (\d+)", self.text)
        return int(match[1]) if match else -1


def steps_of(text: str) -> Iterator[Step]:
    step = None
    for line in text.splitlines():
        if re.match(r"\d+\. ", line):
            if step:
                yield step
            step = Step(line)
        elif step and line.startswith("     "):
            step.lines.append(line.strip())
        elif step and line.startswith("   "):
            step.text += f" {line.strip()}"
        elif step:
            yield step
            step = None


def follow(lab: Lab, steps: Iterable[Step]) -> None:
    """Follow steps, word for word."""
    by_number = {node.number: node for node in (*lab.gone, *lab.nodes)}
    for step in steps:
        say(f"  {step.text[:110]}")
        node = by_number.get(step.number)
        if node is None:
            must(
                not any(line.startswith("$") for line in step.lines) or "Look at" in step.text, f"no node: {step.text}"
            )
            node = lab.nodes[0]
        if gone := re.search(r"remove (controller\.quorum\.[a-z.]+[a-z])", step.text):
            node.set(gone[1])
        if "with little Lag" in step.text:
            wait_for_lag(node, step)
        for line in step.lines:
            if "every controller and broker" in step.text:
                for each in lab.nodes:
                    each.set(line)
            elif not line.startswith("$ "):
                node.set(line)
            elif "describe --status" in line:
                look(node, line[2:], step.text)
            elif "server-stop" in line:
                node.run(line[2:], check=False)
            elif "add-controller" in line:  # the step says to repeat it
                wait_for(line, lambda node=node, line=line: add_controller(node, line[2:]), 180)
            else:
                node.run(line[2:])


def add_controller(node: Node, command: str) -> bool:
    try:
        node.run(command)
    except Failure as error:
        must(re.search("TimeoutException|DuplicateVoter", str(error)), str(error))
        return "DuplicateVoter" in str(error)
    return True


def look(node: Node, command: str, text: str) -> None:
    epoch, high = (int(number) for number in re.search(r"above (\d+), HighWatermark is (\d+)", text).groups())  # type: ignore[union-attr]
    ids = {int(number) for number in re.search(r"LeaderId is ([\d or]+), Leader", text)[1].split(" or ")}  # type: ignore[index]
    limit = time.monotonic() + 180
    while True:
        answer = node.run(command, check=False)
        rows = dict(re.findall(r"^(\w+):\s+(.*)$", answer, re.MULTILINE))
        with contextlib.suppress(KeyError, ValueError):
            if int(rows["LeaderId"]) in ids and int(rows["LeaderEpoch"]) > epoch and int(rows["HighWatermark"]) >= high:
                say(f"    leader {rows['LeaderId']} in epoch {rows['LeaderEpoch']}, ends at {rows['HighWatermark']}")
                return
        must(time.monotonic() < limit, f"no leader: {answer}")
        time.sleep(1)


def wait_for_lag(node: Node, step: Step) -> None:
    command = step.lines[0][2:].replace(
        f"--command-config {'config/server.properties'} add-controller", "describe --replication"
    )
    number = re.search(r"shows node (\d+)", step.text)[1]  # type: ignore[index]
    limit = time.monotonic() + 180
    while True:
        answer = node.run(command, check=False)
        rows = [
            line.split()
            for line in answer.splitlines()
            if line.startswith(f"{number}\t") or line.split()[:1] == [number]
        ]
        # one row for each of its directories: that of a disk that was wiped stays for some minutes
        if any(int(row[3] if len(row) > 6 else row[2]) < 50 for row in rows):
            return
        must(time.monotonic() < limit, f"node {number} does not follow: {answer}")
        time.sleep(1)


# ---- rounds ----


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return the options that all of these programs have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the folders of the nodes stay")
    return parser


def play_rounds(rounds: Sequence[tuple[str, Callable[[Path], str]]], keep: Path | None) -> int:
    """Play rounds, each a name and a call that gets a folder; return the exit code. No node runs at the end."""
    wrong = 0
    for name, play in rounds:
        root = Path(tempfile.mkdtemp(prefix="lab-", dir=keep))
        began = time.monotonic()
        LABS.clear()
        try:
            say(f"{name}, Kafka {VERSION}")
            text = play(root)
            say(f"{name}: ok, {text}, {time.monotonic() - began:.0f} s")
        except Exception as error:
            wrong += 1
            say(f"{name}: FAILED: {error if isinstance(error, Failure) else traceback.format_exc()} ({root})")
        finally:
            for lab in LABS:
                with contextlib.suppress(OSError):
                    lab.end()
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
    say(f"{len(rounds) - wrong} of {len(rounds)} ok, Kafka {VERSION}")
    return 1 if wrong else 0
