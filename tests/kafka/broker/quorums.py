#!/usr/bin/env python3
"""Quorums of a real Kafka that lose their majority and start again: `pylogseg quorum rescue`, its steps word for word.

    [KAFKA_VERSION=4.4.0] quorums.py [CASE...] [--random N] [--seed SEED] [--keep DIR]

Cases: `a` one of three controllers survives, in place; `b` the same with static voters; `c` none survives, three new
ones come from a broker's copy; `d` the survivor is shorter than the brokers: refused by name, then as `c`; `g` as `a`
with trimmed logs and controllers that come back with their old disks; `h` all controllers have other addresses; `r`
both roles in one process; `f` two of five. Without a case, `--random` histories: topics, ACLs, SCRAM users, settings,
leader changes, snapshots, torn tails, by seed. Each node has a folder with Kafka's own names of scripts, and the
printed steps are run there. At the end no broker has ended, each acknowledged record is read, and the state of the
cluster is that of the longest copy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from pylogseg.format.control_batches import empty_batch
from pylogseg.inspect.quorum.copies import read_copies
from pylogseg.inspect.quorum.pairs import changes_between
from pylogseg.values.internal.image import Image

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


def follow(lab: Lab, text: str) -> None:
    """Follow the steps, word for word."""
    by_number = {node.number: node for node in lab.nodes}
    for step in steps_of(text):
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
            if not line.startswith("$ "):
                node.set(line)
            elif "describe --status" in line:
                look(node, line[2:], step.text)
            elif "server-stop" in line:
                node.run(line[2:], check=False)
            else:
                node.run(line[2:])


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
        if rows and int(rows[0][3] if len(rows[0]) > 6 else rows[0][2]) < 50:
            return
        must(time.monotonic() < limit, f"node {number} does not follow: {answer}")
        time.sleep(1)


# ---- histories ----


def disks(lab: Lab, nodes: Sequence[Node]) -> list[Path]:
    return [node.data for node in nodes]


def image_of(folders: Sequence[Path]) -> Image:
    """Return the state by the longest copy."""
    copies = [copy for folder in folders for copy in read_copies(str(folder)) if copy.is_whole]
    best = max(copies, key=lambda copy: copy.rank)
    return Image.read(best.partition, best.end)  # type: ignore[arg-type]


def compare_images(before: Image, folder: Path) -> None:
    """Check that a controller has all that the longest copy had: what came later may be more."""
    (copy,) = read_copies(str(folder))
    must(copy.is_whole, f"{folder}: {copy.error}")
    after = Image.read(copy.partition, before.offset)  # type: ignore[arg-type]
    other = list(changes_between(before, after))
    must(not other, f"the state differs: {other[:5]}")


def survive(lab: Lab, survivors: Sequence[Node], *, lose: bool = True) -> None:
    for node in lab.controllers:
        node.kill(lose=lose and node not in survivors)


def after_all(lab: Lab, before: Image) -> None:
    """The state, records, a new topic: all that a rescue has to leave."""
    compare_images(before, lab.controllers[0].data)
    for name in [*lab.partitions]:
        must(name in before.topic_ids, f"the longest copy lacks {name}")
    wait_for("a topic after the rescue", lambda: lab.create("after"), 180)
    must(lab.produce("after", 30) == 30, "records of the new topic are not acknowledged")
    for topic in [*lab.partitions]:
        if topic != "after":
            wait_for(f"records of {topic}", lambda topic=topic: lab.produce(topic, 30) == 30, 180)
    lab.check()


def grown(lab: Lab, survivor: Node) -> None:
    """The survivor goes, and the quorum goes on without it."""
    survivor.kill()
    wait_for("a topic without the survivor", lambda: lab.create(f"without{survivor.number}"), 180)
    lab.check()


def history(lab: Lab, events: int) -> None:
    """Do things that the metadata log has to keep."""
    admin, chance = lab.admin(), lab.chance
    for i in range(events):
        kind = chance.choice(("topic", "topic", "records", "acl", "user", "setting", "partitions", "remove", "leader"))
        names = sorted(lab.partitions)
        with contextlib.suppress(KafkaException, TimeoutError):
            if kind == "topic" or not names:
                lab.create(f"t{i}", chance.randrange(1, 5))
            elif kind == "records":
                lab.produce(chance.choice(names), chance.randrange(1, 300))
            elif kind == "acl":
                name, kind_of_name = chance.choice(names), ResourcePatternType.LITERAL
                binding = AclBinding(ResourceType.TOPIC, name, kind_of_name, f"User:u{i}", "*",
                                     AclOperation.READ, AclPermissionType.ALLOW)  # fmt: skip
                for done in admin.create_acls([binding]).values():
                    done.result(30)
            elif kind == "user":
                change = UserScramCredentialUpsertion(
                    f"u{i}", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"secret"
                )
                for done in admin.alter_user_scram_credentials([change]).values():
                    done.result(30)
            elif kind == "setting":
                entry = ConfigEntry("retention.ms", str(10**9 + i), incremental_operation=AlterConfigOpType.SET)
                resource = ConfigResource(ConfigResource.Type.TOPIC, chance.choice(names), incremental_configs=[entry])
                for done in admin.incremental_alter_configs([resource]).values():
                    done.result(30)
            elif kind == "partitions":
                name = chance.choice(names)
                admin.create_partitions([NewPartitions(name, lab.partitions[name] + 1)])[name].result(30)
                lab.partitions[name] += 1
            elif kind == "remove" and len(names) > 2:
                name = chance.choice(names)
                admin.delete_topics([name])[name].result(30)
                del lab.partitions[name]
            elif kind == "leader" and not lab.both:
                leader = lab.leader()
                leader.kill()
                time.sleep(3)
                leader.start()
                time.sleep(8)


# ---- cases ----


def case_a(root: Path, chance: random.Random, *, static: bool = False) -> Lab:
    lab = Lab(root, chance, static=static)
    lab.start()
    wait_for("a topic", lambda: lab.create("orders"))
    lab.produce("orders", 3000)
    survivor = chance.choice([node for node in lab.controllers if node is not lab.leader()])
    survive(lab, [survivor])
    must(lab.produce("orders", 300) == 300, "brokers do not go on without controllers")
    before = image_of([survivor.data, *disks(lab, lab.brokers)])
    text = rescue(survivor.data, *disks(lab, lab.brokers), "--in-place", survivor.data, "--keep", root / "kept",
                  "--voter", f"{survivor.number}@{survivor.address}")  # fmt: skip
    lab.controllers.sort(key=lambda node: node is not survivor)
    follow(lab, text)
    after_all(lab, before)
    if not static:
        grown(lab, survivor)
    return lab


def case_b(root: Path, chance: random.Random) -> Lab:
    return case_a(root, chance, static=True)


def case_c(root: Path, chance: random.Random, *, static: bool = False) -> Lab:
    lab = Lab(root, chance, static=static)
    lab.start()
    wait_for("a topic", lambda: lab.create("orders"))
    lab.produce("orders", 3000)
    survive(lab, [])
    new_controllers(lab, lab.brokers)
    one = chance.choice(lab.controllers)
    grown(lab, one)
    return lab


def new_controllers(lab: Lab, sources: Sequence[Node], *more: object, codes: Sequence[int] = (0,)) -> None:
    """Three new controllers of the longest copy, and all that has to be so."""
    before = image_of(disks(lab, sources))
    arguments = [*disks(lab, sources), *more]
    for node in lab.controllers:
        node.data = node.home / "new"
        arguments += ["--into", node.data, "--voter", f"{node.number}@{node.address}"]
    follow(lab, rescue(*arguments, codes=codes))
    after_all(lab, before)


def case_d(root: Path, chance: random.Random) -> Lab:
    lab = Lab(root, chance, static=False)
    lab.start()
    wait_for("a topic", lambda: lab.create("orders"))
    lab.produce("orders", 300)
    survivor = chance.choice([node for node in lab.controllers if node is not lab.leader()])
    survivor.kill()
    wait_for("a topic that the survivor lacks", lambda: lab.create("late"))
    lab.produce("late", 300)
    survive(lab, [survivor])
    nodes = [survivor, *lab.brokers]
    code, text, errors = pylogseg("quorum", "rescue", *disks(lab, nodes), "--in-place", survivor.data, "--keep",
                                  root / "kept",
                                  "--voter", f"{survivor.number}@{survivor.address}", "--write")  # fmt: skip
    must(code == 2 and "late" in errors, f"a shorter copy is not refused by name: {code} {text} {errors}")
    code, text, errors = pylogseg("quorum", *disks(lab, nodes))
    must(code == 0 and "late" in text, f"the look does not name the topic: {code} {text} {errors}")
    new_controllers(lab, nodes)
    return lab


def case_g(root: Path, chance: random.Random) -> Lab:
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "3000",
        "metadata.log.segment.bytes": "8388608",
        "metadata.log.segment.ms": "4000",
        "metadata.max.retention.bytes": "20000",
        "metadata.max.retention.ms": "20000",
        "metadata.max.idle.interval.ms": "100",
    }
    lab = Lab(root, chance, static=False, settings=settings)
    lab.start()
    wait_for("a topic", lambda: lab.create("orders"))
    lab.produce("orders", 3000)
    history(lab, 12)
    survivor = chance.choice([node for node in lab.controllers if node is not lab.leader()])
    wait_for("a trimmed log", lambda: (read_copies(str(survivor.data))[0].start or 0) > 0, 150)
    survive(lab, [survivor], lose=False)
    others = [node for node in lab.controllers if node is not survivor]
    before = image_of([survivor.data, *disks(lab, lab.brokers)])
    text = rescue(survivor.data, *disks(lab, lab.brokers), "--in-place", survivor.data, "--keep", root / "kept",
                  "--voter", f"{survivor.number}@{survivor.address}")  # fmt: skip
    lab.controllers.sort(key=lambda node: node is not survivor)
    follow_first(lab, text)
    for node in others:  # as they were: with their disks and settings
        node.start()
    time.sleep(25)
    status = survivor.run(
        f"bin/kafka-metadata-quorum.sh --bootstrap-controller {survivor.address} describe --replication"
    )
    for node in others:
        row = [line.split() for line in status.splitlines() if line.split()[:1] == [str(node.number)]]
        must(row and row[0][-1] == "Observer", f"node {node.number} is no observer: {status}")
    after_all(lab, before)
    return lab


def follow_first(lab: Lab, text: str) -> None:
    """Follow the steps up to the brokers: nothing is wiped, and nobody joins."""
    kept = []
    for step in steps_of(text):
        if "wipe" in step.text or "When " in step.text:
            continue
        kept += [step.text, *(f"     {line}" for line in step.lines)]
    follow(lab, "\n".join([*kept, ""]))


def case_h(root: Path, chance: random.Random) -> Lab:
    lab = Lab(root, chance, static=False)
    lab.start()
    wait_for("a topic", lambda: lab.create("orders"))
    lab.produce("orders", 3000)
    for node in lab.nodes:
        node.kill()
    before = image_of(disks(lab, lab.nodes))
    arguments: list[object] = [*disks(lab, lab.nodes)]
    for node in lab.controllers:
        old, node.controller_port = node.address, free_port()
        node.data = node.home / "new"
        arguments += ["--rename", f"{old}={node.address}", "--into", node.data]
    follow(lab, rescue(*arguments))
    after_all(lab, before)
    return lab


def case_r(root: Path, chance: random.Random) -> Lab:
    lab = Lab(root, chance, static=False, both=True)
    lab.start()
    wait_for("a topic", lambda: lab.create("orders"))
    lab.produce("orders", 3000)
    survivor = chance.choice([node for node in lab.controllers if node is not lab.leader()])
    nodes = [*lab.controllers]
    for node in nodes:
        node.kill()
    for node in nodes:
        if node is not survivor:  # the disk of the metadata is lost, and that of the topics is not
            shutil.rmtree(node.data / "__cluster_metadata-0")
    before = image_of([survivor.data])
    text = rescue(survivor.data, "--in-place", survivor.data, "--keep", root / "kept",
                  "--voter", f"{survivor.number}@{survivor.address}", codes=(0, 1))  # fmt: skip
    lab.controllers.sort(key=lambda node: node is not survivor)
    follow(lab, text)
    after_all(lab, before)
    return lab


def case_f(root: Path, chance: random.Random) -> Lab:
    lab = Lab(root, chance, static=False, controllers=5)
    lab.start()
    wait_for("a topic", lambda: lab.create("orders"))
    lab.produce("orders", 3000)
    survivors = chance.sample(lab.controllers, 2)
    survive(lab, survivors)
    copies = {node.number: read_copies(str(node.data))[0] for node in survivors}
    survivor = max(survivors, key=lambda node: copies[node.number].rank)
    before = image_of(disks(lab, [*survivors, *lab.brokers]))
    text = rescue(*disks(lab, [*survivors, *lab.brokers]), "--in-place", survivor.data, "--keep", root / "kept",
                  "--voter", f"{survivor.number}@{survivor.address}")  # fmt: skip
    lab.controllers.sort(key=lambda node: node is not survivor)
    follow(lab, text)
    after_all(lab, before)
    grown(lab, survivor)
    return lab


def torn_tail(node: Node, chance: random.Random) -> bytes:
    """What a crash may leave: a part of a batch, or zeros."""
    (copy,) = read_copies(str(node.data))
    batch = empty_batch(
        base_offset=copy.end or 0, last_offset=copy.end or 0, max_timestamp_ms=1, leader_epoch=copy.epoch or 0
    )
    return bytes(batch[: chance.randrange(1, 61)]) if chance.random() < 0.5 else bytes(4096)


CASES = {"a": case_a, "b": case_b, "c": case_c, "d": case_d, "f": case_f, "g": case_g, "h": case_h, "r": case_r}


def random_case(root: Path, chance: random.Random) -> Lab:
    """A history, a loss, a rescue."""
    settings = {}
    if chance.random() < 0.5:
        settings = {"metadata.log.max.record.bytes.between.snapshots": str(chance.choice((2000, 20000)))}
    static, survives = chance.random() < 0.35, chance.choice((0, 1, 1))
    lab = Lab(root, chance, static=static, settings=settings)
    say(f"  static {static}, survivors {survives} of 3, {settings}")
    lab.start()
    wait_for("a topic", lambda: lab.create("orders"))
    history(lab, chance.randrange(4, 16))
    survivors = chance.sample(lab.controllers, survives)
    if survives and chance.random() < 0.3:
        survivors[0].kill()  # it misses what comes
        history(lab, 3)
    survive(lab, survivors)
    for node in survivors:
        if chance.random() < 0.5:
            log = max((node.data / "__cluster_metadata-0").glob("*.log"))
            with open(log, "ab") as file:
                file.write(torn_tail(node, chance))
    nodes = [*survivors, *lab.brokers]
    copies = {node.number: read_copies(str(node.data))[0] for node in nodes}
    best = max(copies.values(), key=lambda copy: copy.rank)
    say(f"  copies: {json.dumps({number: copy.rank for number, copy in copies.items()})}")
    survivor = survivors[0] if survivors else None
    if survivor is None or copies[survivor.number].rank < best.rank:
        if survivor is not None:
            code, _, errors = pylogseg("quorum", "rescue", *disks(lab, nodes), "--in-place", survivor.data, "--keep",
                                       root / "kept", "--voter", f"{survivor.number}@{survivor.address}")  # fmt: skip
            must(code == 2 and "shorter" in errors, f"a shorter copy is not refused: {code} {errors}")
            say("  the shorter survivor is refused")
        new_controllers(lab, nodes)
        grown(lab, chance.choice(lab.controllers))
        return lab
    before = image_of(disks(lab, nodes))
    text = rescue(*disks(lab, nodes), "--in-place", survivor.data, "--keep", root / "kept", "--voter",
                  f"{survivor.number}@{survivor.address}")  # fmt: skip
    lab.controllers.sort(key=lambda node: node is not survivor)
    follow(lab, text)
    after_all(lab, before)
    if not static:
        grown(lab, survivor)
    return lab


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    todo: list[tuple[str, Any, random.Random]] = [
        (name, CASES[name], random.Random(f"{name} {given.seed}")) for name in given.cases
    ]
    todo += [
        (f"seed {seed}", random_case, random.Random(seed)) for seed in range(given.seed, given.seed + given.random)
    ]
    wrong = 0
    for name, case, chance in todo:
        root = Path(tempfile.mkdtemp(prefix="quorums-", dir=given.keep))
        began = time.monotonic()
        LABS.clear()
        try:
            say(f"{name}, Kafka {VERSION}")
            case(root, chance)
            say(f"{name}: ok, {time.monotonic() - began:.0f} s, records {sum(LABS[0].acknowledged.values()):,}")
        except Exception as error:
            wrong += 1
            say(f"{name}: FAILED: {error if isinstance(error, Failure) else traceback.format_exc()} ({root})")
        finally:
            for lab in LABS:
                lab.end()
        if not given.keep:
            shutil.rmtree(root, ignore_errors=True)
    say(f"{len(todo) - wrong} of {len(todo)} ok, Kafka {VERSION}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
