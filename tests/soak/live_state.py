"""The state of a cluster, beside a broker: groups, offsets, transactions, topics and settings of a broker under load.

python tests/soak live-state [--minutes N] [--seed S] [--seconds S] [--keep DIR]

Rounds. In each, threads with random numbers of their own use a real Kafka (Java; tests/kafka/broker): consumers that
come and go, of the classic protocol, and by Kafka's console consumers of the new one (KIP-848) and of share groups,
some of which are still there at the end; commits and deletions of offsets, transactions with offsets, committed,
aborted or left open, topics and partitions that are made and deleted, settings. When all rest, the broker is asked, by
its API and by its own tools (`--describe`), and stopped. Its files must say the same as of that moment, and no table
may have a note. Then it starts again, and the next round goes on with what there is. Needs kafka-python.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

import pylogseg
from pylogseg.cli.groups import described_offsets, described_shares
from pylogseg.reading.seek import end_offset
from soak import BROKER, TESTS

TOPICS, PARTITIONS = 4, 3
_FIRST_COLUMNS = 10  # of --describe: group, topic, partition, leader epoch, offset, end, lag, member, host, client


class Broker:
    """A real broker in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._classes = subprocess.run(
            ["bash", TESTS / "kafka" / "kafka.sh", "tools"], check=True, capture_output=True, encoding="utf-8"
        ).stdout.strip()

    def run(self, command: str, *lines: str) -> None:
        """Start or stop it."""
        subprocess.run(["bash", BROKER, command, self.folder, *lines], check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        """Without a cleaner; an open transaction stays open while it is asked."""
        self.run("start", "log.cleaner.enable=false", "transaction.max.timeout.ms=900000")

    @property
    def server(self) -> str:
        return "127.0.0.1:" + (self.folder / "run" / "port").read_text().strip()

    @property
    def disks(self) -> list[str]:
        return [str(self.folder / name) for name in ("data0", "data1")]

    def command(self, name: str, *arguments: str) -> list[str]:
        """The command line of one of Kafka's own tools."""
        java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", self._classes]
        return [*java, f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.server, *arguments]

    def tool(self, name: str, *arguments: str) -> str:
        """What one of Kafka's own tools prints."""
        done = subprocess.run(self.command(name, *arguments), capture_output=True, encoding="utf-8", check=True)
        return done.stdout


class Load:
    """Threads that use a broker; `done` counts what they did, `left` are members that are still there."""

    def __init__(self, broker: Broker, seed: int, seconds: float) -> None:
        self._broker, self._server = broker, broker.server
        self._seed, self._end = seed, time.monotonic() + seconds
        self.done: Counter[str] = Counter()
        self.errors: list[str] = []
        self.left: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        """Let all threads work until the time is over."""
        works = [self._consume, self._consume, self._commit, self._transact, self._transact, self._manage]
        works += [self._consume_new, self._share]
        threads = [
            threading.Thread(target=self._guarded, args=(work, random.Random(f"{self._seed} {i}"), i))
            for i, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _guarded(self, work: Callable[[random.Random, int], None], rng: random.Random, number: int) -> None:
        try:
            work(rng, number)
        except Exception as error:
            self.errors.append(f"{work.__name__}: {error!r}")

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self._end

    def _consume(self, rng: random.Random, number: int) -> None:
        """Members of a group that come, commit and go; the last ones die without a word."""
        while not self._is_over:
            consumer = KafkaConsumer(
                *rng.sample([f"load-{i}" for i in range(TOPICS)], 2),
                bootstrap_servers=self._server,
                group_id=f"members-{number}-{rng.randrange(2)}",
                client_id=f"client-{rng.randrange(100)}",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            for _ in range(rng.randrange(2, 8)):
                if consumer.poll(timeout_ms=300, max_records=rng.randrange(1, 50)):
                    with contextlib.suppress(KafkaError):
                        consumer.commit()
                        self.done["commits of members"] += 1
            consumer.close(autocommit=False)

    def _consume_new(self, rng: random.Random, number: int) -> None:
        """Members of groups with the new protocol, whose state the broker keeps; the last one stays."""

        def member(stays: bool) -> list[str]:
            settings = ["group.protocol=consumer", f"client.id=new-{rng.randrange(100)}"]
            settings += [f"enable.auto.commit={str(not stays).lower()}"]  # nothing changes while the broker is asked
            settings += ["group.remote.assignor=range"] if rng.random() < 0.3 else []
            settings += [f"group.instance.id=static-{rng.randrange(2)}"] if rng.random() < 0.3 else []
            topic = ["--include", "load-[0-2]"] if rng.random() < 0.3 else ["--topic", f"load-{rng.randrange(TOPICS)}"]
            more = [part for setting in settings for part in ("--consumer-property", setting)]
            return ["consumer.ConsoleConsumer", "--group", f"new-{rng.randrange(3)}", "--from-beginning", *topic, *more]

        self._members(member)

    def _share(self, rng: random.Random, number: int) -> None:
        """Members of share groups; the last one stays."""

        def member(stays: bool) -> list[str]:
            group = f"shared-{rng.randrange(2)}"
            if rng.random() < 0.5:
                change = ["--alter", "--add-config", "share.auto.offset.reset=earliest"]
                command = self._broker.command("", "--entity-type", "groups", "--entity-name", group, *change)
                command[command.index("org.apache.kafka.tools.")] = "kafka.admin.ConfigCommand"
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            return ["consumer.ConsoleShareConsumer", "--group", group, "--topic", f"load-{rng.randrange(TOPICS)}"]

        self._members(member)

    def _members(self, member: Callable[[bool], list[str]]) -> None:
        """Console consumers, one after the other; the last one has joined when the time is over, and is still there."""
        while time.monotonic() + 5 < self._end:
            self._console([*member(False), "--timeout-ms", "1500"]).wait(60)
            self.done["console consumers that went"] += 1
        self.left.append(self._console(member(True)))
        time.sleep(max(6.0, self._end - time.monotonic()))
        self.done["console consumers that stayed"] += self.left[-1].poll() is None

    def _console(self, words: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._broker.command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _commit(self, rng: random.Random, number: int) -> None:
        """Offsets of groups without members, set and deleted, and groups deleted."""
        admin = KafkaAdminClient(bootstrap_servers=self._server)
        while not self._is_over:
            group = f"plain-{rng.randrange(6)}"
            at = TopicPartition(f"load-{rng.randrange(TOPICS)}", rng.randrange(PARTITIONS))
            kind = rng.random()
            with contextlib.suppress(KafkaError):
                if kind < 0.8:
                    offset = OffsetAndMetadata(
                        rng.randrange(500), rng.choice(["", "käse", '"{}\\']), rng.choice([-1, 0])
                    )
                    admin.alter_group_offsets(group, {at: offset})
                elif kind < 0.95:
                    admin.delete_group_offsets(group, [at])
                else:
                    admin.delete_groups([group])
                self.done["offsets set or deleted"] += 1
        admin.close()

    def _transact(self, rng: random.Random, number: int) -> None:
        """Transactions with records and offsets; the last one of some producers stays open."""
        producer = None
        while not self._is_over:
            if producer is None:
                producer = KafkaProducer(
                    bootstrap_servers=self._server,
                    transactional_id=f"tx-{number}-{rng.randrange(3)}",
                    transaction_timeout_ms=600_000,
                    linger_ms=0,
                )
                producer.init_transactions()
            producer.begin_transaction()
            for _ in range(rng.randrange(1, 6)):
                producer.send(
                    f"load-{rng.randrange(TOPICS)}", b"v" * rng.randrange(50), partition=rng.randrange(PARTITIONS)
                )
            if rng.random() < 0.6:
                at = TopicPartition(f"load-{rng.randrange(TOPICS)}", rng.randrange(PARTITIONS))
                producer.send_offsets_to_transaction(
                    {at: OffsetAndMetadata(rng.randrange(500), "", -1)}, f"plain-{rng.randrange(6)}"
                )
            producer.flush()
            if self._is_over and rng.random() < 0.7:
                self.done["transactions left open"] += 1
                return  # the producer is left as it is
            (producer.commit_transaction if rng.random() < 0.7 else producer.abort_transaction)()
            self.done["transactions ended"] += 1
            if rng.random() < 0.1:
                producer.close()
                producer = None
        if producer is not None:
            producer.close()

    def _manage(self, rng: random.Random, number: int) -> None:
        """Topics made, deleted and grown, settings set and taken back."""
        admin = KafkaAdminClient(bootstrap_servers=self._server)
        made: list[str] = []
        while not self._is_over:
            kind = rng.random()
            # A topic that was made a moment ago has no settings yet, for this client.
            with contextlib.suppress(KafkaError, ValueError):
                if kind < 0.4 or not made:
                    name = f"made-{self._seed}-{len(made)}-{rng.randrange(1000)}"
                    settings = {"retention.ms": str(rng.randrange(1, 9) * 100000)} if rng.random() < 0.5 else {}
                    admin.create_topics([NewTopic(name, rng.randrange(1, 5), 1, topic_configs=settings)])
                    made.append(name)
                elif kind < 0.6:
                    admin.delete_topics([made.pop(rng.randrange(len(made)))])
                elif kind < 0.75:
                    admin.create_partitions({rng.choice(made): NewPartitions(6)})
                else:
                    name = rng.choice(made)
                    setting = rng.choice(["max.message.bytes", "segment.bytes", "min.insync.replicas"])
                    value = {"max.message.bytes": "1000000", "segment.bytes": "2000000", "min.insync.replicas": "1"}
                    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {setting: value[setting]})])
                self.done["changes of topics"] += 1
            time.sleep(rng.random() * 0.1)
        admin.close()


def prepare(server: str) -> None:
    """Topics with records that all rounds use."""
    admin = KafkaAdminClient(bootstrap_servers=server)
    admin.create_topics([NewTopic(f"load-{i}", PARTITIONS, 1) for i in range(TOPICS)])
    producer = KafkaProducer(bootstrap_servers=server)
    for i in range(TOPICS):
        for partition in range(PARTITIONS):
            for _ in range(100):
                producer.send(f"load-{i}", b"record", partition=partition)
    producer.flush()
    producer.close()
    admin.close()


def table(text: str, columns: int) -> set[tuple[str, ...]]:
    """The rows of a text of Kafka's, without headings and notices."""
    rows = (tuple(line.split()[:columns]) for line in text.splitlines())
    return {row for row in rows if len(row) == columns and row[0] not in ("GROUP", "Consumer", "TransactionalId")}


def answers(broker: Broker) -> dict[str, Any]:
    """What the broker says."""
    admin = KafkaAdminClient(bootstrap_servers=broker.server)
    tool, share = "consumer.group.ConsumerGroupCommand", "consumer.group.ShareGroupCommand"
    found: dict[str, Any] = {
        "offsets": table(broker.tool(tool, "--describe", "--all-groups", "--verbose"), _FIRST_COLUMNS),
        "groups": table(broker.tool(tool, "--list", "--state"), 2),
        "kinds": table(broker.tool("GroupsCommand", "--list"), 2),
        "shares": table(broker.tool(share, "--describe", "--all-groups", "--offsets", "--verbose"), 6),
        "transactions": table(broker.tool("TransactionsCommand", "list"), 4),
    }
    topics = admin.describe_topics()
    found["topics"] = {each["name"]: len(each["partitions"]) for each in topics}
    found["leaders"] = {
        (each["name"], p["partition_index"]): (p["leader_id"], p["leader_epoch"], tuple(p["isr_nodes"]))
        for each in topics
        for p in each["partitions"]
    }
    names = [each["name"] for each in topics]
    settings = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])
    found["configs"] = {
        (topic, name, data["value"])
        for of in settings.values()
        for topic, each in of.items()
        for name, data in each.items()
        if "TOPIC" in str(data.get("config_source", data)).upper()
    }
    admin.close()
    return found


def moment(broker: Broker) -> dict[str, int]:
    """Where the internal topics end now."""
    disk = pylogseg.open_dir(*broker.disks)
    return {f"{p.topic}-{p.partition}": end_offset(p.segments) for p in disk.partitions if p.topic.startswith("__")}


def at_rest(broker: Broker) -> tuple[dict[str, Any], dict[str, int]]:
    """What the broker says while nothing is written, and the moment: a group may take a while to come to rest."""
    for _ in range(12):
        at = moment(broker)
        told = answers(broker)
        # A classic group in the middle of a rebalance is nowhere on the disk.
        after = moment(broker)
        is_same = all(after[log] == end for log, end in at.items() if log != "__cluster_metadata-0")  # it has no rest
        if is_same and not any("Rebalance" in state for _, state in told["groups"]):
            return told, at
    raise RuntimeError("the broker does not come to rest")


def ours(broker: Broker, at: dict[str, int]) -> tuple[dict[str, Any], list[str]]:
    """The same from the files as of the moment; and what the tables note."""
    state = pylogseg.cluster_state(broker.disks, at)

    def text(value: Any) -> str:
        return "-" if value is None else str(value)

    described = described_offsets(state, [])
    names = ("group", "topic", "partition", "leaderEpoch", "offset", "endOffset", "lag", "memberId", "host", "clientId")
    shown = {
        tuple(text(row.get(name)) for name in names)
        for row in described
        # Kafka's tool sees no offset that is pending alone.
        if row["offset"] is not None or row.get("memberId") is not None
    }
    groups = state.rows("groups")
    share_names = ("group", "topic", "partition", "leaderEpoch", "startOffset", "lag")
    found: dict[str, Any] = {
        "offsets": shown,
        "groups": {(row["group"], row["state"]) for row in groups if row["type"] in ("Classic", "Consumer")},
        "kinds": {(row["group"], row["type"]) for row in groups},
        "shares": {tuple(text(row[name]) for name in share_names) for row in described_shares(state, [])},
        "transactions": {
            (row["transactionalId"], "1", str(row["producerId"]), row["state"]) for row in state.rows("transactions")
        },
        "topics": {row["topic"]: row["partitions"] for row in state.rows("topics")},
        "configs": {
            (row["resource"], row["name"], row["value"])
            for row in state.rows("configs")
            if row["resourceType"] == "TOPIC"
        },
        "leaders": {
            (row["topic"], row["partition"]): (row["leader"], row["leaderEpoch"], tuple(row["isr"]))
            for row in state.rows("partitions")
        },
    }
    for name in state.tables:
        state.table(name)
    return found, list(state.notes)


def compare(told: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What differs."""
    wrong = []
    for name, expected in told.items():
        have = found[name]
        if isinstance(expected, dict):
            expected, have = set(expected.items()), set(have.items())
        if expected != have:
            wrong.append(
                f"{name}: the broker alone {sorted(expected - have)[:5]}, we alone {sorted(have - expected)[:5]}"
            )
    return wrong


def run(minutes: float, seed: int, seconds: float, keep: Path | None) -> int:
    """Rounds until the time is over; returns the exit code."""
    root = Path(tempfile.mkdtemp(prefix="live-state-", dir=keep))
    broker, wrong = Broker(root / "broker"), 0
    end, total = time.monotonic() + 60 * minutes, Counter[str]()
    try:
        broker.start()
        prepare(broker.server)
        while True:
            load = Load(broker, seed, seconds)
            try:
                load.run()
                time.sleep(2)  # markers are written a moment after the answer
                told, at = at_rest(broker)
                broker.run("stop")
            finally:
                for process in load.left:
                    process.kill()
                    process.wait()
            found, notes = ours(broker, at)
            differences = [*compare(told, found), *notes, *load.errors]
            for line in differences:
                print(f"seed {seed}: {line}")
            wrong += len(differences)
            total += load.done
            rows = {name: len(each) for name, each in told.items()}
            print(f"seed {seed}: {dict(load.done)}; compared {rows}; {len(differences)} differences", flush=True)
            seed += 1
            if time.monotonic() >= end:
                print(f"{dict(total)}: {wrong} differences")
                return 1 if wrong else 0
            broker.start()
    finally:
        subprocess.run(["bash", BROKER, "stop", broker.folder], check=False, stdout=subprocess.DEVNULL)
        if keep is None and not wrong:
            shutil.rmtree(root, ignore_errors=True)
        else:
            print(f"the broker's folder: {root}")


def main() -> int:
    """Run the rounds; exit code 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; the others follow")
    parser.add_argument("--seconds", type=float, default=15, help="of load in a round")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the broker's folder there")
    options = parser.parse_args()
    return run(options.minutes, options.seed, options.seconds, options.keep)


if __name__ == "__main__":
    sys.exit(main())
