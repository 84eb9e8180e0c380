#!/usr/bin/env python3
"""Whole clusters of a real Kafka, restored from a point of their archive into new machines, and compared.

    [KAFKA_VERSION=4.4.0] whole_clusters.py [SEED...] [--to BROKERS] [--keep DIR]

Each seed makes a cluster of three brokers: topics, compacted ones too, records of several codecs, transactions, one of
them open, groups, users with ACLs and quotas, settings, a topic that was made again. Controllers are one or three,
static or dynamic, or brokers too. Its disks are archived while it runs, after a stop, or after `kill -9`. `pylogseg
restore --cluster` makes folders for three brokers or one, each with one or two log directories, on other addresses, and
a program follows the printed steps word for word. It compares each record with the old cluster, in both isolations.
Then clients go on: groups where they stood, transactions with their ids, users with their passwords.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Neighbours, which are no package:
import quorum_lab
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from quorum_lab import (
    QUIET,
    Lab,
    Node,
    free_port,
    log_of,
    must,
    parser_of,
    play_rounds,
    pylogseg,
    say,
    steps_of,
    wait_for,
)

Place = tuple[str, int, int]
Records = dict[Place, tuple[Any, ...]]
ISOLATIONS = "read_uncommitted", "read_committed"
PASSWORD = b"a secret"


class Machine(Node):
    """A node with two listeners: one for passwords."""

    def __init__(self, lab: Lab, number: int, roles: str) -> None:
        super().__init__(lab, number, roles)
        self.login_port = free_port()
        script = self.home / "bin" / "kafka-topics.sh"
        tools = quorum_lab.jars(quorum_lab.TOOLS)
        script.write_text(
            f"#!/bin/bash\nexec {quorum_lab.JAVA} -cp '{tools}' org.apache.kafka.tools.TopicCommand \"$@\"\n"
        )
        script.chmod(0o755)
        self.folders = [self.data]

    def write(self) -> None:
        super().write()
        if not self.is_broker:
            return
        listeners = [f"CONTROLLER://{self.address}"] * self.is_controller
        listeners += [f"PLAINTEXT://127.0.0.1:{self.port}", f"LOGIN://127.0.0.1:{self.login_port}"]
        for line in (
            f"listeners={','.join(listeners)}",
            f"advertised.listeners={','.join(listeners)}",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms=SCRAM-SHA-256",
            "listener.name.login.scram-sha-256.sasl.jaas.config="
            "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            f"log.dirs={','.join(map(str, self.folders))}",
        ):
            self.set(line)


class Cluster(Lab):
    """Controllers and brokers."""

    def __init__(self, root: Path, chance: random.Random, *, static: bool, controllers: int, both: bool) -> None:
        super().__init__(root, chance, static=static, controllers=0, settings={
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "replica.high.watermark.checkpoint.interval.ms": "500",
        })  # fmt: skip
        self.brokers = []
        if both:
            self.both = True
            self.controllers = [Machine(self, number, "broker,controller") for number in (1, 2, 3)]
            self.brokers = self.controllers
        else:
            self.controllers = [Machine(self, 100 + i, "controller") for i in range(controllers)]
            self.brokers = [Machine(self, number, "broker") for number in (1, 2, 3)]
        for node in self.brokers:
            if chance.random() < 0.5:
                node.folders = [node.data, node.home / "data2"]  # type: ignore[attr-defined]

    @property
    def logins(self) -> str:
        return ",".join(f"127.0.0.1:{broker.login_port}" for broker in self.brokers if broker.is_up)  # type: ignore[attr-defined]

    @property
    def disks(self) -> list[Path]:
        """All log directories."""
        own = [folder for node in self.brokers for folder in node.folders]  # type: ignore[attr-defined]
        return own + [node.data for node in self.controllers if not node.is_broker]


# ---- what the old cluster gets ----


class History:
    """What clients did, and what is known of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.chance = cluster, cluster.chance
        self.topics: dict[str, int] = {}
        self.users: list[str] = []
        self.groups: list[str] = []
        self.ids: list[str] = []
        self.open: Producer | None = None

    def make(self) -> None:
        chance = self.chance
        for i in range(chance.randrange(3, 6)):
            replicas = chance.choice((2, 3, 3))
            settings = {"min.insync.replicas": "2"} if replicas == 3 else {}
            if chance.random() < 0.3:
                settings |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
            if chance.random() < 0.5:
                settings |= {"internal.segment.bytes": "20000"}
            if chance.random() < 0.3:
                settings |= {"retention.ms": str(10**11)}
            self.create(f"t{i}", chance.randrange(1, 5), replicas, settings)
        self.create("again", 2, 3, {})
        self.produce("again", 50)
        admin = self.cluster.admin()
        admin.delete_topics(["again"])["again"].result(30)
        time.sleep(2)
        self.create("again", 3, 3, {})
        for topic in [*self.topics]:
            self.produce(topic, chance.randrange(50, 800))
        self.transactions()
        self.users_and_rules()
        self.groups_read()
        for topic in [*self.topics]:
            self.produce(topic, chance.randrange(1, 200))
        victim = chance.choice(self.cluster.brokers)
        if not self.cluster.both:  # leaders and epochs change
            victim.run("bin/kafka-server-stop.sh", check=False)
            for topic in [*self.topics]:
                self.produce(topic, chance.randrange(1, 50))
            victim.start()
            wait_for("in sync again", self.in_sync)
        self.open_transaction()

    def create(self, topic: str, partitions: int, replicas: int, settings: dict[str, str]) -> None:
        admin = self.cluster.admin()
        wait_for(f"topic {topic}", lambda: _done(
            lambda: admin.create_topics([NewTopic(topic, partitions, replicas, config=settings)])[topic].result(30)
        ))  # fmt: skip
        self.topics[topic] = partitions

    def in_sync(self) -> bool:
        found = self.cluster.admin().list_topics(timeout=10).topics
        return all(
            len(part.isrs) == len(part.replicas) and part.leader >= 0 for topic in found.values()
            for part in topic.partitions.values()
        )  # fmt: skip

    def produce(self, topic: str, count: int) -> None:
        chance, errors = self.chance, list[object]()
        producer = Producer({
            "bootstrap.servers": self.cluster.bootstrap, "acks": "all", **QUIET, "enable.idempotence": True,
            "batch.size": 8000,  # of small segments
            "compression.type": chance.choice(("none", "gzip", "snappy", "lz4", "zstd")),
        })  # fmt: skip
        for i in range(count):
            headers = [("h", b"%d" % i)] if chance.random() < 0.2 else []
            producer.produce(
                topic, chance.randbytes(chance.randrange(0, 200)), key=b"k%d" % chance.randrange(100), headers=headers,
                partition=i % self.topics[topic], on_delivery=lambda error, _: errors.append(error),
            )  # fmt: skip
        producer.flush(60)
        bad = [str(error) for error in errors if error is not None]
        must(len(errors) == count and not bad, f"{topic}: {len(errors)} of {count} acknowledged, {bad[:2]}")

    def transactions(self) -> None:
        for i in range(self.chance.randrange(2, 5)):
            self.ids.append(f"tx{i}")
            producer = transactional(self.cluster.bootstrap, self.ids[-1])
            for _ in range(self.chance.randrange(1, 4)):
                self._transaction(producer)
                if self.chance.random() < 0.3:
                    producer.abort_transaction(30)
                else:
                    producer.commit_transaction(30)

    def _transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        for _ in range(self.chance.randrange(1, 30)):
            topic = self.chance.choice([*self.topics])
            producer.produce(topic, b"of a transaction", key=b"k", partition=self.chance.randrange(self.topics[topic]))
        producer.flush(30)

    def open_transaction(self) -> None:
        """One that nobody ends: the coordinator aborts it, here or in the restored cluster."""
        self.open = transactional(self.cluster.bootstrap, "open")
        self._transaction(self.open)

    def users_and_rules(self) -> None:
        admin = self.cluster.admin()
        for i in range(self.chance.randrange(1, 4)):
            user, topic = f"u{i}", self.chance.choice([*self.topics])
            change = UserScramCredentialUpsertion(
                user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), PASSWORD
            )
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(30)
            rules = [(ResourceType.TOPIC, topic, operation) for operation in (AclOperation.READ, AclOperation.WRITE)]
            rules += [(ResourceType.GROUP, f"of-{user}", AclOperation.READ)]
            bindings = [
                AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation,
                           AclPermissionType.ALLOW)
                for kind, name, operation in rules
            ]  # fmt: skip
            for done in admin.create_acls(bindings).values():
                done.result(30)
            rate = f"consumer_byte_rate={self.chance.randrange(10**8, 10**9)}"
            ask_configs(self.cluster, f"--alter --add-config {rate} --entity-type users --entity-name {user}")
            self.users.append(f"{user}/{topic}")

    def groups_read(self) -> None:
        for i in range(self.chance.randrange(1, 4)):
            protocol = self.chance.choice(("classic", "consumer"))
            topics = self.chance.sample([*self.topics], 2)
            read_in_group(self.cluster.bootstrap, f"g{i}", topics, self.chance.randrange(20, 300), protocol)
            self.groups.append(f"g{i}")


def _done(call: Any) -> bool:
    try:
        call()
    except KafkaException as error:
        return bool(error.args[0].name() == "TOPIC_ALREADY_EXISTS")
    return True


def transactional(servers: str, name: str) -> Producer:
    producer = Producer({
        "bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 15000, **QUIET,
        "batch.size": 8000,
    })  # fmt: skip
    producer.init_transactions(60)
    return producer


def read_in_group(servers: str, group: str, topics: list[str], count: int, protocol: str, more: Any = None) -> int:
    """Read some records as a member of a group, and commit."""
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "group.protocol": protocol,
        "enable.auto.commit": False, **QUIET, **(more or {}),
    })  # fmt: skip
    consumer.subscribe(topics)
    found, limit, quiet = 0, time.monotonic() + 40, 0
    while found < count and time.monotonic() < limit and (quiet < 8 or not found):
        messages = consumer.consume(min(50, count - found), 1.0)
        good = [message for message in messages if message.error() is None]
        quiet = 0 if good else quiet + 1
        found += len(good)
    if found:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


# ---- what a cluster has ----


def ask_configs(cluster: Cluster, arguments: str) -> str:
    """Run Kafka's own tool for settings and quotas on a broker."""
    node = cluster.brokers[0]
    return node.run(f"bin/kafka-configs.sh --bootstrap-server {cluster.bootstrap} {arguments}")


def quotas_of(cluster: Cluster) -> list[str]:
    lines = ask_configs(cluster, "--describe --entity-type users").splitlines()
    return sorted(line for line in lines if line.startswith("Quota"))


class Facts:
    """What clients see of a cluster."""

    def __init__(self, servers: str, topics: dict[str, int], groups: list[str]) -> None:
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, **QUIET})
        described = self.admin.describe_topics(TopicCollection([*topics]))
        self.topic_ids = {name: str(done.result(30).topic_id) for name, done in described.items()}
        self.settings = {
            name: {entry.name: entry.value for entry in self.settings_of(name)
                   if entry.source == 1}  # of the topic itself
            for name in topics
        }  # fmt: skip
        self.offsets = {group: self.offsets_of(group) for group in groups}
        self.users = {
            name: [(each.mechanism, each.iterations) for each in user.scram_credential_infos]
            for name, user in self.admin.describe_user_scram_credentials().result(30).items()
        }
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        self.rules = sorted(map(str, self.admin.describe_acls(everything).result(30)))

    def settings_of(self, name: str) -> Any:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        return self.admin.describe_configs([resource])[resource].result(30).values()

    def offsets_of(self, group: str) -> dict[tuple[str, int], int]:
        request = ConsumerGroupTopicPartitions(group)
        (done,) = self.admin.list_consumer_group_offsets([request]).values()
        return {(each.topic, each.partition): each.offset for each in done.result(30).topic_partitions}


def records_of(servers: str, topics: dict[str, int], isolation: str) -> Records:
    """Read all of some topics."""
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "reader", "isolation.level": isolation, "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "error", "fetch.min.bytes": 1, **QUIET,
    })  # fmt: skip
    places = [(topic, number) for topic, count in topics.items() for number in range(count)]
    lows = {of: consumer.get_watermark_offsets(TopicPartition(*of), 30, cached=False)[0] for of in places}
    consumer.assign([TopicPartition(*of, low) for of, low in lows.items()])
    found, left, limit = Records(), set(places), time.monotonic() + 120
    while left and time.monotonic() < limit:
        for message in consumer.consume(5000, 1.0):
            of = message.topic(), message.partition()
            if message.error() is not None:
                must(message.error().name() == "_PARTITION_EOF", f"{of}: {message.error()}")
                left.discard(of)
                continue
            place = *of, message.offset()
            must(place not in found, f"{place} came twice")
            headers = tuple(message.headers() or ())
            found[place] = message.key(), message.value(), message.timestamp(), headers
    consumer.close()
    must(not left, f"a consumer did not come to the ends of {sorted(left)}, {isolation}")
    return found


# ---- the new machines ----


def new_cluster(root: Path, old: Cluster, brokers: list[int], controllers: int) -> Cluster:
    new = Cluster(root, old.chance, static=old.static, controllers=controllers, both=old.both)
    new.brokers = [node for node in new.brokers if node.number in brokers]
    if new.both:
        new.controllers = new.brokers
    return new


def follow(new: Cluster, text: str) -> None:
    """Follow the steps, word for word."""
    by_number = {node.number: node for node in new.nodes}
    for node in new.nodes:
        node.write()
        for name in ("process.roles", "node.id", "controller.quorum.voters", "controller.quorum.bootstrap.servers"):
            node.set(name)
        node.set("log.dirs")
    seen = list[int]()
    for step in steps_of(text):
        say(f"  {step.text[:110]}")
        node = by_number.get(step.number) or new.nodes[0]
        if gone := re.search(r"remove (controller\.quorum\.[a-z.]+[a-z])", step.text):
            node.set(gone[1])
        if "all other brokers have started" in step.text:
            for other in new.brokers:
                if other is not node:
                    wait_for(f"node {other.number}", lambda other=other: "Kafka Server started" in log_of(other), 240)
        for line in step.lines:
            if not line.startswith("$ "):
                must(step.number in by_number, f"no node: {step.text}")
                node.set(line)
                seen.append(step.number)
            elif "describe --status" in line:
                quorum_lab.look(node, line[2:], step.text)
            elif "kafka-topics.sh" in line:
                first = line[2:].replace("HOST:PORT", f"127.0.0.1:{new.brokers[0].port}")
                wait_for(line, lambda node=node, first=first: topics_are_well(new, node, first), 180)
            else:
                node.run(line[2:])
    must({*by_number} <= {*seen}, f"steps name {seen}")


def topics_are_well(new: Cluster, node: Node, command: str) -> bool:
    for broker in new.brokers:
        must(broker.is_up, f"broker {broker.number} has ended: {log_of(broker)[-3000:]}")
    return not [line for line in node.run(command, check=False).splitlines() if not line.startswith("SLF4J")]


def restore(new: Cluster, archive: Path, codes: tuple[int, ...] = (0,)) -> str:
    arguments: list[object] = ["restore", archive, "--cluster"]
    for node in new.controllers:
        folder = node.home / "metadata" if node.is_broker else node.data
        arguments += ["--controller", f"{node.number}@{node.address}={folder}"]
    for node in new.brokers:
        arguments += ["--broker", f"{node.number}={','.join(map(str, node.folders))}"]  # type: ignore[attr-defined]
    before = pylogseg(*arguments, "-n")
    must(before[0] in codes, f"dry run: {before}")
    for node in new.nodes:
        must(not node.data.exists(), "the dry run has written")
    code, text, errors = pylogseg(*arguments)
    must(code in codes, f"exit code {code}: {text}{errors}")
    if errors:
        say(f"  stderr: {errors}")
    steps = [[step.text, *step.lines] for step in steps_of(text)]
    must(steps and steps == [[s.text, *s.lines] for s in steps_of(before[1])], "the dry run has other steps")
    for node in new.brokers:
        check = pylogseg("verify", *node.folders)  # type: ignore[attr-defined]
        must(check[0] == 0, f"verify: {check}")
    return text


def drill(archive: Path) -> None:
    """Try the archive as a whole cluster, with the same Kafka."""
    home = quorum_lab.CACHE / f"kafka-{quorum_lab.VERSION}"
    code, text, errors = pylogseg("drill", archive, "--cluster", "--kafka-home", home, "--json")
    rows = [json.loads(line) for line in text.splitlines()]
    clusters = [row for row in rows if row.get("type") == "broker" and row["broker"] == "Kafka cluster"]
    must(code == 0 and clusters, f"drill: exit code {code}: {text[:3000]}{errors}")
    row = clusters[0]
    say(f"  drill: {row['groupOffsets']} offsets of groups, {row['transactionalIds']} transactional ids")


def cleaned(old: Facts, gone: set[Place], before: Records, after: Records) -> set[Place]:
    """Return the records that the new brokers' cleaner has removed: a later one of the same key is there."""
    newest: dict[tuple[str, int, Any], int] = {}
    for (topic, number, offset), record in after.items():
        key = topic, number, record[0]
        newest[key] = max(newest.get(key, -1), offset)
    return {
        place
        for place in gone
        if "compact" in old.settings[place[0]].get("cleanup.policy", "")
        and newest.get((place[0], place[1], before[place][0]), -1) > place[2]
    }


def compare(old: Facts, new: Facts, before: dict[str, Records], after: dict[str, Records], fewer: bool) -> int:
    for name in ("topic_ids", "offsets", "users", "rules"):
        must(getattr(old, name) == getattr(new, name), f"{name}: {getattr(old, name)} and {getattr(new, name)}")
    for topic, settings in old.settings.items():
        there = new.settings[topic]
        other = {name for name in {*settings, *there} if settings.get(name) != there.get(name)}
        must(other <= ({"min.insync.replicas"} if fewer else set()), f"settings of {topic}: {settings} and {there}")
    for isolation in ISOLATIONS:
        gone = before[isolation].keys() - after[isolation].keys()
        gone -= cleaned(old, gone, before[isolation], after[isolation])
        more = after[isolation].keys() - before[isolation].keys()
        must(not gone and not more, f"{isolation}: {len(gone)} records are gone, {len(more)} are new: "
             f"{sorted(gone)[:3]}, {sorted(more)[:3]}")  # fmt: skip
        both = before[isolation].keys() & after[isolation].keys()
        other = [place for place in sorted(both) if after[isolation][place] != before[isolation][place]]
        must(not other, f"{isolation}: {len(other)} records are others: {other[:3]}")
    return sum(map(len, before.values()))


def go_on(new: Cluster, done: History, old: Facts, ends: Records) -> None:
    """Clients go on: transactions by their ids, groups, users, new topics."""
    for name in [*done.ids, "open"]:
        producer = transactional(new.bootstrap, name)
        producer.begin_transaction()
        for topic, count in done.topics.items():
            for number in range(count):
                producer.produce(topic, b"later", key=name.encode(), partition=number)
        producer.commit_transaction(60)
    for group in done.groups:
        topics = sorted({topic for topic, _ in old.offsets[group]})
        stood = {of: offset for of, offset in old.offsets[group].items() if offset >= 0}
        first = first_of_group(new.bootstrap, group, topics)
        wrong = {of: (stood[of], offset) for of, offset in first.items() if of in stood and offset < stood[of]}
        must(first and not wrong, f"group {group} begins elsewhere: {wrong or 'with nothing'}")
        must(all(of in first for of in stood), f"group {group} reads nothing of {stood.keys() - first.keys()}")
    for text in done.users:
        user, _, topic = text.partition("/")
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user,
                 "sasl.password": PASSWORD.decode()}  # fmt: skip
        must(sends(new.logins, topic, login), f"user {user} cannot produce to {topic}")
        must(read_in_group(new.logins, f"of-{user}", [topic], 10, "classic", login) > 0, f"{user} cannot read {topic}")
        wrong_login = {**login, "sasl.password": "other"}
        must(not sends(new.logins, topic, wrong_login), f"user {user} comes in with another password")
    admin = new.admin()
    wait_for("a new topic", lambda: _done(
        lambda: admin.create_topics([NewTopic("after", 3, len(new.brokers))])["after"].result(30)
    ))  # fmt: skip
    done.cluster, done.topics["after"] = new, 3
    for topic in done.topics:
        done.produce(topic, 30)
    for broker in new.brokers:
        must(broker.is_up, f"broker {broker.number} has ended")
        odd = [line for line in log_of(broker).splitlines() if re.search(r"-stray|ERROR|FATAL", line)]
        # while a broker is alone: too few replicas in sync, and a controller that does not lead any more
        odd = [line for line in odd if not re.search("processing append|CONTROLLER_REGISTRATION", line)]
        must(not odd, f"broker {broker.number} says: {odd[:3]}")


def sends(servers: str, topic: str, login: dict[str, str]) -> bool:
    """Check whether a user can produce."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": 8000, **QUIET, **login})
    producer.produce(topic, b"by a user", key=b"k", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    return len(errors) == 1 and errors[0] is None


def first_of_group(servers: str, group: str, topics: list[str]) -> dict[tuple[str, int], int]:
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "isolation.level": "read_committed", **QUIET,
    })  # fmt: skip
    consumer.subscribe(topics)
    first, limit, quiet = dict[tuple[str, int], int](), time.monotonic() + 60, 0
    while time.monotonic() < limit and (quiet < 6 or not first):
        messages = [message for message in consumer.consume(1000, 1.0) if message.error() is None]
        quiet = 0 if messages else quiet + 1
        for message in messages:
            first.setdefault((message.topic(), message.partition()), message.offset())
    consumer.close()
    return first


def case(root: Path, seed: int, count: int | None) -> str:
    chance = random.Random(seed)
    static, kind, how = chance.random() < 0.3, chance.choice((1, 3, "both")), chance.choice(("run", "stop", "kill"))
    old = Cluster(root / "old", chance, static=static, controllers=3 if kind == 3 else 1, both=kind == "both")
    left = chance.choice((1, 3)) if count is None else count
    brokers = sorted(chance.sample((1, 2, 3), left))
    say(f"  {'static' if static else 'dynamic'}, controllers {kind}, {how}, to {brokers}")
    old.start()
    done = History(old)
    done.make()
    wait_for("in sync", done.in_sync)
    facts, quotas = Facts(old.bootstrap, done.topics, done.groups), quotas_of(old)
    must(len(quotas) == len(done.users), f"quotas: {quotas}")
    before = {isolation: records_of(old.bootstrap, done.topics, isolation) for isolation in ISOLATIONS}
    time.sleep(2)  # high watermarks are noted
    if how == "stop":
        for node in [*old.brokers, *old.controllers]:
            node.run("bin/kafka-server-stop.sh", check=False)
    elif how == "kill":
        old.end()
    archive = root / "archive"
    found = pylogseg("archive", *old.disks, archive)
    must(found[0] == 0, f"archive: {found}")
    old.end()
    drill(archive)
    new = new_cluster(root / "new", old, brokers, 3 if kind == "both" and left == 3 else chance.choice((1, 3)))
    text = restore(new, archive)
    (root / "restore.txt").write_text(text)
    for path in (root / "old").glob("node*/data*"):
        shutil.rmtree(path)
    follow(new, text)
    after = {ISOLATIONS[0]: records_of(new.bootstrap, done.topics, ISOLATIONS[0])}
    # what was open is aborted by the coordinator: committed readers see no more of it
    wait_for("the end of the open transaction", lambda: ended(new, done, before), 90)
    after[ISOLATIONS[1]] = records_of(new.bootstrap, done.topics, ISOLATIONS[1])
    for place in after[ISOLATIONS[1]].keys() - before[ISOLATIONS[1]].keys():
        # records of others behind the transaction that was open
        must(before[ISOLATIONS[0]].get(place) == after[ISOLATIONS[1]][place], f"{place} was not there before")
        before[ISOLATIONS[1]][place] = after[ISOLATIONS[1]][place]
    restored = quotas_of(new)
    must(restored == quotas, f"quotas: {quotas} and {restored}")
    compared = compare(facts, Facts(new.bootstrap, done.topics, done.groups), before, after, left < 3)
    go_on(new, done, facts, before[ISOLATIONS[0]])
    return f"{compared:,} records the same, {sum(map(len, facts.offsets.values()))} offsets of groups"


def ended(new: Cluster, done: History, before: dict[str, Records]) -> bool:
    consumer = Consumer({"bootstrap.servers": new.bootstrap, "group.id": "ends", "isolation.level": "read_committed",
                         **QUIET})  # fmt: skip
    other = Consumer({"bootstrap.servers": new.bootstrap, "group.id": "ends", "isolation.level": "read_uncommitted",
                      **QUIET})  # fmt: skip
    try:
        return all(
            _end(consumer, topic, number) == _end(other, topic, number)
            for topic, count in done.topics.items() for number in range(count)
        )  # fmt: skip
    finally:
        consumer.close()
        other.close()


def _end(consumer: Consumer, topic: str, number: int) -> int:
    (found,) = consumer.offsets_for_times([TopicPartition(topic, number, -1)], timeout=20) or (None,)
    return int(found.offset) if found is not None else -1


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("seeds", nargs="*", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--to", type=int, choices=(1, 2, 3), help="brokers of the new cluster")
    given = parser.parse_args()

    def round_of(seed: int) -> Callable[[Path], str]:
        return lambda root: case(root, seed, given.to)

    return play_rounds([(f"seed {seed}", round_of(seed)) for seed in given.seeds], given.keep)


if __name__ == "__main__":
    sys.exit(main())
