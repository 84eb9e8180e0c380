#!/usr/bin/env python3
"""Producers of a lost cluster, and those of the new one that gets its logs.

    restored_producers.py [--merged | --tier] [--kept] [--keep DIR]

A broker is restarted four times, so that its leader epochs are high; Java's and librdkafka's producers of several
shapes write to every partition, idempotent and in transactions that are committed, aborted and left open; it is killed.
`restore` puts its logs into a new cluster, whose broker is started and killed before anyone writes. Then producers of
the same shapes write there, with the same ids as the old ones had. Each record that either cluster acknowledged has to
be there once, at its offset; consumers with read_committed have to get those of committed transactions, up to the end;
the broker must know no old producer by an id that it hands out; and an empty replica has to become in sync. Last, a
transaction that `restore` left open stops consumers, and the command that it printed ends it.

With --merged the logs come through `merge`. With --tier they come from what the old broker uploaded by Kafka's
LocalTieredStorage; no transaction is open there, all end by their timeout before. With --kept `restore` leaves
producers and leaders as they are, which has to fail: it shows what is missed otherwise. Three minutes; exit code 0 if
all is well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition as PlainPartition
from kafka.admin import KafkaAdminClient
from lost_cluster import shims
from three_brokers import CONTROLLER, HERE, Node
from tiers import broker, server, tier_lines

SHAPES = ("one", "three", "commit", "abort", "open")
TOPICS = {"shapes": 3, "left": 1}
HANDED_OUT = 1 << 40
#: Records of the old cluster that only fill segments, so that those before them are uploaded.
FILLER = "filler/"
_LATEST, _LATEST_TIERED = -1, -5
_TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "400"}
_QUIET = {"log_level": 0, "error_cb": lambda error: None}
_FORMAT = {"BROKER_HEAP": "350m", "FORMAT_ARGS": "--feature eligible.leader.replicas.version=0"}

Acks = dict[str, int]


class Writers:
    """Producers of all shapes; what they were told."""

    def __init__(self, classes: str) -> None:
        self._classes = classes
        self.acks: Acks = {}
        self.failed: list[str] = []
        self._open: list[Producer] = []

    def write(self, servers: str, topic: str, word: str, shapes: tuple[str, ...] = SHAPES) -> None:
        for shape in shapes:
            try:
                self._librdkafka(servers, topic, word, shape)
            except (KafkaException, SystemError) as error:  # a fatal error leaves `flush` without an exception
                self.failed.append(f"{word}/librdkafka/{shape} {error}")
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", self._classes, str(HERE / "Shapes.java")]
        done = subprocess.run(
            [*command, servers, topic, str(TOPICS[topic]), word, *shapes],
            check=True, capture_output=True, encoding="utf-8", timeout=300,
        )  # fmt: skip
        for line in done.stdout.splitlines():
            state, value, rest = line.split(" ", 2)
            if state == "ok":
                self.acks[value] = int(rest)
            else:
                self.failed.append(line)

    def _librdkafka(self, servers: str, topic: str, word: str, shape: str) -> None:
        def told(error: object, message: object) -> None:
            value = message.value().decode()  # type: ignore[attr-defined]
            if error is None:
                self.acks[value] = message.offset()  # type: ignore[attr-defined]
            else:
                self.failed.append(f"{value} {error}")

        is_plain = shape in ("one", "three")
        settings = {**_QUIET, "bootstrap.servers": servers, "enable.idempotence": True, "message.timeout.ms": 30_000}
        if not is_plain:
            limit = 300_000 if word.startswith("old") else 15_000
            settings |= {"transactional.id": f"librdkafka-{topic}-{shape}", "transaction.timeout.ms": limit}
            settings["message.timeout.ms"] = 15_000
        producer = Producer(settings)
        if not is_plain:
            producer.init_transactions(60)
            producer.begin_transaction()
        for number in range(3 if shape == "three" else 1):
            for partition in range(TOPICS[topic]):
                value = f"{word}/librdkafka/{shape}/{partition}/{number}"
                producer.produce(topic, value.encode(), None, partition, on_delivery=told)
            producer.flush(40)
        if shape == "commit":
            producer.commit_transaction(30)
        if shape == "abort":
            producer.abort_transaction(30)
        self._open.append(producer)  # its end would abort what is open


def read(servers: str, topic: str, isolation: str, wanted: int, seconds: float = 40) -> dict[str, list[int]]:
    """Read all partitions until as many records came, or for so long; returns the offsets of each value."""
    consumer = Consumer(
        {**_QUIET, "bootstrap.servers": servers, "group.id": "drill", "isolation.level": isolation,
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(TOPICS[topic])])
    found: dict[str, list[int]] = {}
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end and count < wanted:
        for message in consumer.consume(500, 0.5):
            if message.error() is None and not message.value().startswith(FILLER.encode()):
                found.setdefault(message.value().decode(), []).append(message.offset())
                count += 1
    consumer.close()
    return found


def compared(found: dict[str, list[int]], acks: Acks, what: str) -> list[str]:
    """Each value has to be there once, at its offset, and no other."""
    wrong = [f"{what}: {v} was acknowledged at {at}, and is at {found.get(v)}" for v, at in acks.items()
             if found.get(v) != [at]]  # fmt: skip
    wrong += [f"{what}: {value} at {found[value]} was not acknowledged" for value in found if value not in acks]
    print(f"{what}: {len(acks)} acknowledged, {len(wrong)} wrong", flush=True)
    return wrong


def is_committed(value: str) -> bool:
    return value.split("/")[2] in ("one", "three", "commit")


class Drill:
    """The old cluster and the new one."""

    def __init__(self, root: Path, how: str, kept: bool) -> None:
        self._root, self._how = root, how
        self._options = " --keep-producers" if kept else ""
        self._tools = root / "bin"
        self.old = root / "old"
        ports = iter(range(24_000 + os.getpid() % 5000, 32_000))
        one, two, first, second = (next(ports) for _ in range(4))
        self.controller = Node(root / "controller", CONTROLLER, one, two)
        self.brokers = [Node(root / f"b{i}", i, port, two) for i, port in ((1, first), (2, second))]
        for node in (self.controller, *self.brokers):
            node.lines += [f"{each}.replication.factor=1" for each in ("offsets.topic", "transaction.state.log")]
        self.server = f"127.0.0.1:{first}"
        shims(self._tools, root / "none")
        classes = subprocess.run(["bash", HERE.parent / "kafka.sh", "tools"], check=True, capture_output=True)
        self._classes = classes.stdout.decode().strip()
        java = f"exec java -XX:TieredStopAtLevel=1 -cp '{self._classes}' org.apache.kafka.tools"
        for name, tool in (
            ("transactions", "TransactionsCommand"),
            ("reassign-partitions", "reassign.ReassignPartitionsCommand"),
        ):
            path = self._tools / f"kafka-{name}.sh"
            path.write_text(f'#!/bin/sh\n{java}.{tool} "$@"\n')
            path.chmod(0o755)
        self.writers = Writers(self._classes)

    def shell(self, line: str, code: int = 0) -> str:
        """Run a command as a person does; its output."""
        script = f'export PATH="{self._tools}:$PATH"; {line}'
        done = subprocess.run(["bash", "-c", script], capture_output=True, encoding="utf-8", timeout=180)
        print(f"$ {line}\n{done.stdout}", end="", flush=True)
        if done.returncode != code:
            sys.exit(f"exit code {done.returncode}: {done.stderr[-3000:]}")
        return done.stdout

    def run(self) -> list[str]:
        self._lose()
        data: object = self.old / "data0"
        if self._how == "tier":
            data = f"localtier+file://{self._root / 'tier'}"
        if self._how == "merged":
            self.shell(f"pylogseg merge {data} --into {self._root / 'merged'} -t shapes -t left --quiet")
            data = self._root / "merged"
        self._begin()
        target = self.brokers[0].disks[0]
        said = self.shell(f"pylogseg restore {data} {target} shapes --abort-open-transactions{self._options}")
        if self._how != "tier":
            said += self.shell(f"pylogseg restore {data} {target} left{self._options}")
        self._start(self.brokers[0])
        self.brokers[0].end("kill")
        self._start(self.brokers[0])
        old = dict(self.writers.acks)
        self.writers.write(self.server, "shapes", "new")
        wrong = [f"the new cluster refused {line}" for line in self.writers.failed]
        acks = {value: at for value, at in self.writers.acks.items() if not value.startswith("old-left")}
        wrong += compared(read(self.server, "shapes", "read_uncommitted", len(acks)), acks, "read_uncommitted")
        committed = {value: at for value, at in acks.items() if is_committed(value)}
        wrong += compared(read(self.server, "shapes", "read_committed", len(committed)), committed, "read_committed")
        print(f"of them from the old cluster: {len([v for v in committed if v in old])}")
        wrong += self._known() + ([] if self._how == "tier" else self._left(said))
        return wrong + self._replicas() + self._again(acks)

    def _lose(self) -> None:
        lines = tier_lines(self._root, self._root / "tier") if self._how == "tier" else []
        settings = _TIERED if self._how == "tier" else {}
        broker("start", self.old, *lines)
        admin = AdminClient({**_QUIET, "bootstrap.servers": server(self.old)})
        topics = [NewTopic(name, count, 1, config=settings) for name, count in TOPICS.items()]
        for future in admin.create_topics(topics).values():
            future.result(30)
        for _ in range(4):
            broker("stop", self.old)
            broker("start", self.old, *lines)
        if self._how == "tier":
            self.writers.write(server(self.old), "shapes", "first")
            self._upload()
        else:
            self.writers.write(server(self.old), "shapes", "old")
            self.writers.write(server(self.old), "left", "old-left", ("one", "open"))
        broker("kill", self.old)
        if self.writers.failed:
            sys.exit(f"the old cluster refused {self.writers.failed}")
        print(f"the old cluster acknowledged {len(self.writers.acks)} records, and was killed", flush=True)

    def _upload(self) -> None:
        """Wait until all transactions have ended, and fill segments until what was written is in the tier."""
        end = time.monotonic() + 180
        while (stable := self._offsets(_LATEST, 1)) != (written := self._offsets(_LATEST)):
            if time.monotonic() > end:
                sys.exit(f"transactions did not end: stable {stable}, written {written}")
            time.sleep(1)
        producer = Producer({**_QUIET, "bootstrap.servers": server(self.old)})
        while any(self._offsets(_LATEST_TIERED)[number] < offset - 1 for number, offset in written.items()):
            if time.monotonic() > end:
                sys.exit(f"uploaded {self._offsets(_LATEST_TIERED)} of {written}")
            for number in written:
                producer.produce("shapes", FILLER.encode() + bytes(300), None, number)
            producer.flush(30)
            time.sleep(1)

    def _offsets(self, spec: int, isolation: int = 0) -> dict[int, int]:
        admin = KafkaAdminClient(bootstrap_servers=server(self.old))
        try:
            asked = {PlainPartition("shapes", number): spec for number in range(TOPICS["shapes"])}
            found = admin.list_partition_offsets(asked, isolation_level=isolation)
            return {at.partition: row.offset for at, row in found.items()}
        finally:
            admin.close()

    def _start(self, *nodes: Node) -> None:
        for node, process in [(node, node.start(**_FORMAT)) for node in nodes]:
            if process.wait():
                sys.exit(f"{node.folder} did not start")
        time.sleep(2)

    def _begin(self) -> None:
        self._start(self.controller, self.brokers[0])
        admin = AdminClient({**_QUIET, "bootstrap.servers": self.server})
        for future in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
            future.result(30)
        time.sleep(1)
        self.brokers[0].end("stop")

    def _known(self) -> list[str]:
        """The producers that the broker knows: new ones by ids of its own, and old ones by none that it hands out."""
        said = self.shell(
            f"kafka-transactions.sh --bootstrap-server {self.server} describe-producers --topic shapes --partition 0"
        )
        ids = [int(row.split()[0]) for row in said.splitlines()[1:] if row.split()]
        new = [each for each in ids if each < HANDED_OUT]
        print(f"producers of shapes-0: {len(new)} by ids that are handed out, {len(ids) - len(new)} by others")
        expected = 2 * len(SHAPES)
        return [] if len(new) == expected and len(ids) >= expected else [f"shapes-0 knows {sorted(ids)}"]

    def _left(self, said: str) -> list[str]:
        """A transaction that was left open: it stops consumers, until the command that was printed ends it."""
        commands = re.findall(r"kafka-transactions\.sh .*--topic left .*", said)
        before = read(self.server, "left", "read_committed", 4, 5)
        for command in commands:
            self.shell(command.replace("HOST:PORT", self.server))
        after = read(self.server, "left", "read_committed", 2, 20)
        wanted = {value for value in self.writers.acks if value.startswith("old-left") and is_committed(value)}
        print(
            f"left: {len(before)} records before its transactions were ended, {len(after)} of {len(wanted)} afterwards"
        )
        if len(commands) != 2 or set(after) != wanted or not set(before) < wanted:
            return [f"left: {commands}: {sorted(before)} before, {sorted(after)} afterwards, not {sorted(wanted)}"]
        return []

    def _replicas(self) -> list[str]:
        """A second broker gets a replica of every partition, and has to become in sync."""
        self._start(self.brokers[1])
        places = [{"topic": "shapes", "partition": n, "replicas": [1, 2]} for n in range(TOPICS["shapes"])]
        plan = self._root / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": places}))
        self.shell(
            f"kafka-reassign-partitions.sh --bootstrap-server {self.server} --reassignment-json-file {plan} --execute"
        )
        admin = AdminClient({**_QUIET, "bootstrap.servers": self.server})
        isr: list[list[int]] = []
        for _ in range(30):
            time.sleep(1)
            isr = [sorted(p.isrs) for p in admin.list_topics("shapes", timeout=10).topics["shapes"].partitions.values()]
            if all(each == [1, 2] for each in isr):
                break
        print(f"in sync after a reassignment: {isr}")
        return [] if all(each == [1, 2] for each in isr) else [f"a new replica is not in sync: {isr}"]

    def _again(self, acks: Acks) -> list[str]:
        """The broker is killed once more, and all is read again."""
        self.brokers[0].end("kill")
        self._start(self.brokers[0])
        committed = {value: at for value, at in acks.items() if is_committed(value)}
        found = read(self.server, "shapes", "read_committed", len(committed))
        return compared(found, committed, "read_committed, after a kill")


def main() -> int:
    """Run the drill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--merged", dest="how", action="store_const", const="merged", help="the logs come through merge"
    )
    parser.add_argument("--tier", dest="how", action="store_const", const="tier", help="the logs come from a tier")
    parser.add_argument("--kept", action="store_true", help="restore with --keep-producers")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the brokers' folders there")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="restored-producers-", dir=options.keep))
    drill = Drill(root, options.how or "disk", options.kept)
    try:
        wrong = drill.run()
        print("\n".join(wrong) or "every acknowledged record is there once")
        return 1 if wrong else 0
    finally:
        broker("kill", drill.old)
        for node in (drill.controller, *drill.brokers):
            node.end("kill")
        if options.keep is None:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
