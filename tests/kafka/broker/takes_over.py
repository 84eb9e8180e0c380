#!/usr/bin/env python3
"""A real broker takes over a directory of `pylogseg broker`, with groups and transactions; and we take it back.

    PYTHONPATH=src:tests takes_over.py [--keep DIR]

Four times the directory changes hands: ours, closed cleanly; Kafka 4.3, stopped; ours, killed in the middle; Kafka 4.3.
Each finds the topics with their ids and settings, those of the broker, of a group and of what clients report, ACLs and
users of SCRAM that the first has made, all committed records, the offsets of all groups, a static member of
a classic group with its share, and an open transaction of the one before, which it fences and aborts. Then it writes:
records with a plain, an idempotent and a transactional producer, offsets of a group plainly and in a transaction, and a
transaction that stays open. A minute; exit code 0 if all is well. Needs confluent-kafka.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import admin
from helpers.kafka_clients import RawClient

HERE = Path(__file__).resolve().parent
TOPICS = {"orders": 3, "payments": 1}
#: The two copies that one asks for cannot be: with one replica, one in sync is enough for both sides.
SETTINGS = {
    "orders": {"retention.ms": "-1", "max.message.bytes": "77777", "min.insync.replicas": "2"},
    "payments": {"cleanup.policy": "compact"},
}
#: Of the broker, of all brokers, of a group, of what clients report: type and name of the resource.
OTHERS = {
    (4, "1"): {"log.cleaner.threads": "2"},
    (4, ""): {"log.retention.ms": "604800000", "message.max.bytes": "2000000"},
    (32, "g"): {"consumer.session.timeout.ms": "50000"},
    (16, "m"): {"interval.ms": "5000"},
}
ACLS = [
    {"resourceType": 2, "resourceName": "orders", "resourcePatternType": 3, "principal": "User:alice", "host": "*",
     "operation": 3, "permissionType": 3},
    {"resourceType": 3, "resourceName": "g-", "resourcePatternType": 4, "principal": "User:*", "host": "10.0.0.1",
     "operation": 2, "permissionType": 2},
]  # fmt: skip
USERS = [{"name": "alice", "mechanism": 2, "iterations": 8192, "salt": b"salt", "saltedPassword": b"p" * 64}]
PATIENCE_S = 300.0

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

Places = dict[tuple[str, int], int]


class World:
    """What there has to be: the values of each partition in their order, and the offsets of each group."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], list[bytes]] = {
            (topic, number): [] for topic, count in TOPICS.items() for number in range(count)
        }
        self.offsets: dict[str, Places] = {}
        self.ids: dict[str, str] = {}
        self.members: Any = None


@contextmanager
def ours(folder: Path, *, kill: bool) -> Iterator[str]:
    """Serve the directory by the command, which is stopped or killed in the end."""
    command = [sys.executable, "-m", "pylogseg", "broker", str(folder / "data0"), "--listen", "127.0.0.1:0",
               "--acls", "--super-user", "User:ANONYMOUS"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        print(said.strip(), flush=True)
        try:
            yield said.split(" at ")[1].split(",")[0]
        finally:
            process.send_signal(signal.SIGKILL if kill else signal.SIGINT)
            process.wait(PATIENCE_S)


@contextmanager
def kafkas(folder: Path) -> Iterator[str]:
    """Start a broker over the directory."""
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run" / "static").touch()  # who votes is in the broker's settings: the directory was never formatted
    start = ["bash", HERE / "broker.sh", "start", folder, f"log.dirs={folder / 'data0'}",
             f"authorizer.class.name={AUTHORIZER}", "super.users=User:ANONYMOUS"]  # fmt: skip
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL)
    server = f"127.0.0.1:{(folder / 'run' / 'port').read_text().strip()}"
    print(f"Kafka at {server}", flush=True)
    try:
        yield server
    finally:
        subprocess.run(["bash", HERE / "broker.sh", "stop", folder], check=True, stdout=subprocess.DEVNULL)


# ---- what is there ----


def check(server: str, world: World, who: str) -> list[str]:
    """Compare what a server has with what there has to be; return what is wrong."""
    client = admin.AdminClient({"bootstrap.servers": server})
    described = client.describe_topics(confluent_kafka.TopicCollection(list(TOPICS)))
    wrong = kept(server, who)
    for name, future in described.items():
        found = future.result(PATIENCE_S)
        known = world.ids.setdefault(name, str(found.topic_id))
        if (len(found.partitions), str(found.topic_id)) != (TOPICS[name], known):
            wrong.append(f"{who}: {name} has {len(found.partitions)} partitions and the id {found.topic_id}")
    resources = [admin.ConfigResource(admin.ConfigResource.Type.TOPIC, name) for name in TOPICS]
    for resource, future in client.describe_configs(resources).items():
        found = {key: each.value for key, each in future.result(PATIENCE_S).items() if key in SETTINGS[resource.name]}
        if found != SETTINGS[resource.name]:
            wrong.append(f"{who}: {resource.name} has {found}")
    values = read(server, world)
    wrong += [
        f"{who}: {place}: {values[place]}, not {each}" for place, each in world.values.items() if values[place] != each
    ]
    for group, offsets in world.offsets.items():
        places = [confluent_kafka.TopicPartition(*place) for place in offsets]
        asked = client.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(group, places)])
        found = {(each.topic, each.partition): each.offset for each in asked[group].result(PATIENCE_S).topic_partitions}
        if found != offsets:
            wrong.append(f"{who}: group {group} is at {found}, not {offsets}")
    if world.members is not None and members(client) != world.members:
        wrong.append(f"{who}: the group has {members(client)}, not {world.members}")
    count = sum(map(len, world.values.values()))
    print(f"{who}: {count} records, {len(world.offsets)} groups: {wrong or 'ok'}", flush=True)
    return wrong


def ask_for_all(client: RawClient, what: int) -> Any:
    """Return ACLs (29) and users (50) as rows that can be compared."""
    if what == 50:
        rows = client.ask(50, 0, {"users": None})["results"]
        return [
            (row["user"], [(each["mechanism"], each["iterations"]) for each in row["credentialInfos"]]) for row in rows
        ]
    wanted = {"resourceTypeFilter": 1, "patternTypeFilter": 1, "operation": 1, "permissionType": 1,
              "resourceNameFilter": None, "principalFilter": None, "hostFilter": None}  # fmt: skip
    found = client.ask(29, 3, wanted)
    assert found["errorCode"] == 0, found
    return sorted(
        (each["resourceType"], each["resourceName"], each["patternType"], *(acl[name] for name in ACL))
        for each in found["resources"] for acl in each["acls"]
    )  # fmt: skip


ACL = ("principal", "host", "operation", "permissionType")


def kept(server: str, who: str) -> list[str]:
    """Compare settings of all but topics, ACLs and users with what was made; return what is wrong."""
    wrong = []
    with RawClient(server) as client:
        for (kind, name), values in OTHERS.items():
            (row,) = client.ask(32, 4, {"resources": [{"resourceType": kind, "resourceName": name}]})["results"]
            found = {each["name"]: each["value"] for each in row["configs"] if each["name"] in values}
            if found != values:
                wrong.append(f"{who}: resource {kind} {name!r} has {found}, not {values}")
        expected = sorted(tuple(each[name] for name in (*list(each)[:3], *ACL)) for each in ACLS)
        if (found := ask_for_all(client, 29)) != expected:
            wrong.append(f"{who}: ACLs {found}, not {expected}")
        users = [(each["name"], [(each["mechanism"], each["iterations"])]) for each in USERS]
        if (found := ask_for_all(client, 50)) != users:
            wrong.append(f"{who}: users {found}, not {users}")
    return wrong


def read(server: str, world: World) -> dict[tuple[str, int], list[bytes]]:
    """Read what is committed, to the end of each partition."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": server, "group.id": "reader", "enable.auto.commit": False,
         "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )  # fmt: skip
    reader.assign([confluent_kafka.TopicPartition(*place, confluent_kafka.OFFSET_BEGINNING) for place in world.values])
    found: dict[tuple[str, int], list[bytes]] = {place: [] for place in world.values}
    left, until = set(found), time.monotonic() + PATIENCE_S
    while left and time.monotonic() < until:
        message = reader.poll(1.0)
        if message is None:
            continue
        place = message.topic(), message.partition()
        if message.error() is None:
            found[place].append(message.value())
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            left.discard(place)
        else:
            raise confluent_kafka.KafkaException(message.error())
    reader.close()
    return found


def members(client: Any) -> Any:
    """State of the group of static members, and each with its share."""
    found = client.describe_consumer_groups(["static"])["static"].result(PATIENCE_S)
    shares = [
        (
            each.member_id,
            each.group_instance_id,
            sorted((p.topic, p.partition) for p in each.assignment.topic_partitions),
        )
        for each in found.members
    ]
    return found.state.name, sorted(shares)


# ---- what is written ----


def create(server: str) -> None:
    """Make the topics."""
    client = admin.AdminClient({"bootstrap.servers": server})
    topics = [admin.NewTopic(name, count, 1, config=SETTINGS[name]) for name, count in TOPICS.items()]
    for future in client.create_topics(topics).values():
        future.result(PATIENCE_S)
    with RawClient(server) as raw:
        for (kind, name), values in OTHERS.items():
            configs = [{"name": key, "configOperation": 0, "value": value} for key, value in values.items()]
            asked = {"resources": [{"resourceType": kind, "resourceName": name, "configs": configs}]}
            (row,) = raw.ask(44, 1, asked)["responses"]
            assert row["errorCode"] == 0, row
        made = (
            raw.ask(30, 3, {"creations": ACLS})["results"]
            + raw.ask(51, 0, {"deletions": [], "upsertions": USERS})["results"]
        )
        assert not any(each["errorCode"] for each in made), made


def write(server: str, world: World, turn: int) -> None:
    """Fence the transaction that was left open, write all kinds of things, and leave one open again."""
    for kind, options in (("plain", {"enable.idempotence": False}), ("idempotent", {"enable.idempotence": True})):
        producer = confluent_kafka.Producer({"bootstrap.servers": server, **options})
        send(producer, world, b"%s %d" % (kind.encode(), turn))
        if producer.flush(PATIENCE_S):
            raise TimeoutError(kind)
    reader = confluent_kafka.Consumer({"bootstrap.servers": server, "group.id": "both", "enable.auto.commit": False})
    producer = confluent_kafka.Producer({"bootstrap.servers": server, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    for commits in (True, False):
        producer.begin_transaction()
        send(producer, world if commits else World(), b"transaction %d" % turn)
        position = {("orders", 0): 10 * turn + commits, ("payments", 0): 20 * turn + commits}
        offsets = [confluent_kafka.TopicPartition(*place, offset) for place, offset in position.items()]
        producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata())
        if commits:
            producer.commit_transaction(PATIENCE_S)
            world.offsets.setdefault("both", {}).update(position)
        else:
            producer.abort_transaction(PATIENCE_S)
    plain = {("orders", 1): 100 + turn, ("orders", 2): 200 + turn}
    offsets = [confluent_kafka.TopicPartition(*place, offset) for place, offset in plain.items()]
    reader.commit(offsets=offsets, asynchronous=False)
    world.offsets["both"].update(plain)
    reader.close()
    producer.begin_transaction()
    send(producer, World(), b"open %d" % turn)
    producer.flush(PATIENCE_S)


def join(server: str) -> Any:
    """Let a static member take its place, and go without a word, as such members do; who is in the group then."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": server, "group.id": "static", "group.instance.id": "one", "session.timeout.ms": 600_000,
         "max.poll.interval.ms": 600_000, "enable.auto.commit": False}
    )  # fmt: skip
    reader.subscribe(list(TOPICS))
    until = time.monotonic() + PATIENCE_S
    while len(reader.assignment()) < sum(TOPICS.values()):
        if time.monotonic() > until:
            raise TimeoutError("no share")
        reader.poll(0.1)
    reader.close()
    return members(admin.AdminClient({"bootstrap.servers": server}))


def send(producer: Any, world: World, what: bytes) -> None:
    """Send a value to each partition."""
    for place, values in world.values.items():
        value = b"%s to %s-%d" % (what, place[0].encode(), place[1])
        producer.produce(place[0], value, key=value, partition=place[1])
        values.append(value)


def fence(server: str) -> None:
    """Take the transactional id over, which aborts what was left open."""
    confluent_kafka.Producer({"bootstrap.servers": server, "transactional.id": "t"}).init_transactions(PATIENCE_S)


def main() -> int:
    """Let the directory change hands; exit code 1 if something is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the directory there")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="takes-over-", dir=options.keep))
    world, wrong = World(), []
    hands = [
        ("ours", lambda: ours(root, kill=False)),
        ("Kafka", lambda: kafkas(root)),
        ("ours again", lambda: ours(root, kill=True)),
        ("Kafka again", lambda: kafkas(root)),
        ("ours at last", lambda: ours(root, kill=False)),
    ]
    try:
        for turn, (who, hand) in enumerate(hands):
            with hand() as server:
                if turn == 0:
                    create(server)
                else:
                    fence(server)
                wrong += check(server, world, who)
                write(server, world, turn + 1)
                world.members = join(server)
        return 1 if wrong else 0
    finally:
        subprocess.run(["bash", HERE / "broker.sh", "kill", root], check=False, stdout=subprocess.DEVNULL)
        if options.keep is None:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
