#!/usr/bin/env python3
"""ACLs on a real Kafka and on `Broker`: the same users send the same requests to both, and get the same answers.

    PYTHONPATH=src:tests acls.py [--all]

Kafka has StandardAuthorizer and SASL, `Broker` has `Security(acls=True)`. An administrator makes topics and ACLs
(literal, prefixed, for all; that allow and that deny; of hosts and of everybody); then each user sends each request
of the table of `server/writing/handlers.py`, in its oldest and its newest version. Compared are errors, names and
authorized operations. A minute; exit code 0 if all is equal. --all prints what is equal too.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.access import TOPICS, logged_in, requests, rows
from helpers.kafka_clients import PATIENCE_S

import pylogseg
from pylogseg.format.messages import wire
from pylogseg.server.writing.handlers import WRITING

HERE = Path(__file__).resolve().parent
TOPIC, GROUP, CLUSTER, TXN = 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(2, 9)
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12
LITERAL, PREFIXED, DENY, ALLOW = 3, 4, 2, 3

Rule = tuple[Any, ...]
#: For each user: type, name, operation, and what differs from a literal rule that allows it from everywhere.
RULES: dict[str, list[Rule]] = {
    "nobody": [],
    "reader": [(TOPIC, "one", READ), (GROUP, "g1", READ)],
    "writer": [(TOPIC, "o", WRITE, PREFIXED), (TXN, "t1", WRITE)],
    "watcher": [*((kind, "*", DESCRIBE) for kind in (TOPIC, GROUP, TXN)), (CLUSTER, "kafka-cluster", DESCRIBE)],
    "barred": [*((kind, "*", ALL) for kind in (TOPIC, GROUP, TXN)), (CLUSTER, "kafka-cluster", ALL),
               (TOPIC, "one", READ, LITERAL, DENY), (TOPIC, "tw", WRITE, PREFIXED, DENY),
               (GROUP, "g1", DESCRIBE, LITERAL, DENY), (CLUSTER, "kafka-cluster", CREATE, LITERAL, DENY)],
    "maker": [(TOPIC, "new", CREATE, PREFIXED), (TOPIC, "one", ALTER), (TOPIC, "two", DELETE),
              (TOPIC, "one", ALTER_CONFIGS),
              (GROUP, "g1", ALTER_CONFIGS), (GROUP, "g2", DELETE), (TOPIC, "newer", DESCRIBE_CONFIGS)],
    "keeper": [(CLUSTER, "kafka-cluster", each) for each in (CREATE, ALTER, ALTER_CONFIGS, IDEMPOTENT_WRITE)],
    "near": [(TOPIC, "one", READ, LITERAL, ALLOW, "127.0.0.1"), (TOPIC, "two", READ, LITERAL, ALLOW, "10.1.2.3")],
    "far": [(TOPIC, "one", ALL), (TOPIC, "one", ALL, LITERAL, DENY, "127.0.0.1")],
    "*": [(TOPIC, "public", DESCRIBE), (GROUP, "g-of-all", READ)],
}  # fmt: skip
USERS = ["admin", *RULES]


# ---- the servers ----


@contextmanager
def kafkas() -> Iterator[str]:
    """Start a broker with StandardAuthorizer, for users whose passwords are their names."""
    folder = Path(tempfile.mkdtemp(prefix="acls-"))
    (folder / "run").mkdir()
    ports = {}
    for name in ("port", "controller-port"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports[name] = free.getsockname()[1]
        (folder / "run" / name).write_text(f"{ports[name]}\n")
    here = f"SASL_PLAINTEXT://127.0.0.1:{ports['port']}"
    passwords = " ".join(f'user_{name}="{name}"' for name in USERS if name != "*")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    lines = [
        f"listeners={here},CONTROLLER://127.0.0.1:{ports['controller-port']}",
        f"advertised.listeners={here}",
        "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name=SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        "sasl.enabled.mechanisms=PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config="
        f'{module} required username="admin" password="admin" {passwords};',
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:admin;User:ANONYMOUS",
        "auto.create.topics.enable=true",
    ]
    try:
        subprocess.run(["bash", HERE / "broker.sh", "start", folder, *lines], check=True, stdout=subprocess.DEVNULL)
        yield f"127.0.0.1:{ports['port']}"
    finally:
        subprocess.run(["bash", HERE / "broker.sh", "stop", folder], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ours() -> Iterator[str]:
    """Start a broker of ours for the same users."""
    users = {name: name for name in USERS if name != "*"}
    security = pylogseg.Security(users=users, mechanisms=["PLAIN"], acls=True, super_users=["User:admin"])
    with pylogseg.Broker(security=security) as broker:
        yield broker.bootstrap_servers


def prepare(server: str) -> None:
    """Make topics, a group with offsets, a transactional id, and the ACLs."""
    with logged_in(server, "admin") as admin:
        until = time.monotonic() + PATIENCE_S
        names = {**TOPICS, "two-b": 1, "public-b": 1}
        made = [{"name": name, "numPartitions": count, "replicationFactor": 1, "assignments": [], "configs": []}
                for name, count in names.items()]  # fmt: skip
        found = admin.ask(19, 7, {"topics": made, "timeoutMs": 30_000, "validateOnly": False})["topics"]
        assert not any(each["errorCode"] for each in found), found
        init = {"transactionalId": "t1", "transactionTimeoutMs": 10_000, "producerId": -1, "producerEpoch": -1}
        commit = {"groupId": "g1", "memberId": "", "generationIdOrMemberEpoch": -1, "topics": rows(
            ["one", "two"], partitions=[{"partitionIndex": 0, "committedOffset": 1}])}  # fmt: skip
        while (
            any(each["errorCode"] for kind, key in ((0, "g1"), (1, "t1")) for each in admin.ask(
                10, 4, {"keyType": kind, "coordinatorKeys": [key]})["coordinators"])
            or admin.ask(22, 4, init)["errorCode"]
            or any(each["partitions"][0]["errorCode"] for each in admin.ask(8, 9, commit)["topics"])
        ):  # fmt: skip
            assert time.monotonic() < until, "no coordinator"
            time.sleep(0.2)
        defaults = ("", "", 0, LITERAL, ALLOW, "*")
        wanted = []
        for user, rules in RULES.items():
            for rule in rules:
                kind, name, operation, pattern, permission, host = (*rule, *defaults[len(rule) :])
                wanted.append(
                    {"resourceType": kind, "resourceName": name, "resourcePatternType": pattern, "host": host,
                     "principal": f"User:{user}", "operation": operation, "permissionType": permission}
                )  # fmt: skip
        results = admin.ask(30, 3, {"creations": wanted})["results"]
        assert not any(each["errorCode"] for each in results), results
        any_acl = {"resourceTypeFilter": 1, "patternTypeFilter": 1, "operation": 1, "permissionType": 1,
                   "resourceNameFilter": None, "principalFilter": None, "hostFilter": None}  # fmt: skip
        while sum(len(each["acls"]) for each in admin.ask(29, 3, any_acl)["resources"]) < len(wanted):
            assert time.monotonic() < until, "ACLs"
            time.sleep(0.1)
        time.sleep(1)  # the authorizer has them a moment later


# ---- answers ----

_ERRORS = ("errorCode", "partitionErrorCode", "topicConfigErrorCode")
_NAMES = ("name", "topic", "topicName", "groupId", "transactionalId", "resourceName", "key", "user", "partitionIndex")
_SHOWN = (*_ERRORS, *_NAMES, "authorizedOperations", "topicAuthorizedOperations", "clusterAuthorizedOperations",
          "principal", "numPartitions", "committedOffset")  # fmt: skip
#: What one of both has alone, with the reasons.
LEFT_OUT = {
    "/__consumer_offsets": "in memory it does not exist",
    "/__transaction_state": "in memory it does not exist",
    "/CONTROLLER": "the name of a listener",
    "/PLAINTEXT": "the name of a listener",
    "/never": "a topic that comes into being by being asked for: Kafka has it a moment later",
}


def shown(value: Any, path: str = "") -> Iterator[str]:
    """Yield the errors, names and operations in an answer, each with the names above it."""
    if isinstance(value, dict):
        named = "/".join(str(value[name]) for name in _NAMES if name in value and value[name] not in ("", None))
        where = f"{path}/{named}" if named else path
        yield where
        for name, each in value.items():
            if isinstance(each, (dict, list, tuple)):
                yield from shown(each, where)
            elif name in _SHOWN and name not in _NAMES and (each or name not in _ERRORS):
                yield f"{where} {name}={each}"
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from shown(each, path)


def answers(server: str) -> dict[tuple[str, int, int, int], Counter[str]]:
    """Send all requests of all users; return what is shown by user, key, version and number."""
    found = {}
    for user in USERS[:-1]:
        for key, asked in requests().items():
            offer = WRITING.offered[key]
            of_old = {0: 3, 3: 8}.get(key, offer.first)
            last = {0: 12, 1: 12}.get(key, offer.last)
            if key in (8, 9):
                last = 9  # later ones have ids in place of names
            for version in sorted({of_old, last}):
                for number, values in enumerate(asked):
                    with logged_in(server, user) as client:
                        client.send(key, version, values)
                        frame = client.frame()
                    told = list(shown(decoded(key, version, frame))) if frame else ["closed"]
                    found[user, key, version, number] = Counter(
                        each for each in told if each and ("errorCode=29" in each or not each.startswith((*LEFT_OUT,)))
                    )
    return found


def decoded(key: int, version: int, frame: bytes) -> dict[str, Any]:
    """Return an answer."""
    of = wire.response_of(key)
    values, _ = wire.decode_body(of, version, frame, 5 if of.flexible.has(version) else 4)
    return values


def main() -> int:
    """Compare; exit code 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="print what is equal too")
    options = parser.parse_args()
    assert set(WRITING.apis) == {*requests(), wire.API_VERSIONS}
    found = []
    for server in (kafkas, ours):
        with server() as address:
            prepare(address)
            found.append(answers(address))
    theirs, mine = found
    wrong = 0
    for place, expected in theirs.items():
        if mine[place] != expected:
            wrong += 1
            print(f"{place}:\n  Kafka only {sorted((expected - mine[place]).elements())}")
            print(f"  ours only  {sorted((mine[place] - expected).elements())}")
        elif options.all:
            print(f"{place}: {sorted(expected.elements())}")
    print(f"{len(theirs)} answers to {len(USERS) - 1} users, {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
