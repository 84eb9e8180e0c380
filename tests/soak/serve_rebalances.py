"""Groups of real clients that join, leave and are killed, on `pylogseg serve`: who is left reads everything, soon.

    python tests/soak serve-rebalances [--seed N] [--events N] [--clients NAME,...] [--protocol classic|consumer]

Members are processes of their own: of confluent-kafka, aiokafka or kafka-python (--clients; by default the first two,
mixed in one group; kafka-python now and then stays in its second join, on a broker too). After each event, which starts
a member, stops one or kills one (SIGKILL), the two to five that are there must have all partitions, none of them twice,
and each must have read its partitions from the first record to the last, within the session timeout and some seconds.
With --protocol consumer, members are confluent-kafka's, of the new protocol. Two minutes. Exit code 0 if all is well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pylogseg
from soak import itself

TOPIC, PARTITIONS, RECORDS = "rebalanced", 7, 50
SESSION_S = 6.0
#: A killed member is missed after its session: here 6 s, and 45 s by the new protocol, where the server says so.
PATIENCE_S = {"classic": 25.0, "consumer": 70.0}
LEAST, MOST = 2, 5


# ---- a member: prints what it has, and what of it is read to the end ----


class Told:
    """Prints a line when something has changed."""

    def __init__(self) -> None:
        self.last: Any = None
        self.counts: dict[int, int] = {}

    def have(self, numbers: set[int], read: list[int]) -> None:
        """Take in what is assigned now, and the partitions of records that came."""
        self.counts = {number: self.counts.get(number, 0) + read.count(number) for number in numbers}
        now = sorted(self.counts), sorted(n for n, count in self.counts.items() if count >= RECORDS)
        if now != self.last:
            print(json.dumps(now), flush=True)
            self.last = now


def by_confluent(address: str, group: str, protocol: str) -> None:
    import confluent_kafka

    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "group.protocol": protocol, "log_level": 2}  # fmt: skip
    if protocol == "classic":
        settings |= {"session.timeout.ms": int(SESSION_S * 1000), "heartbeat.interval.ms": 500,
                     "partition.assignment.strategy": "range"}  # fmt: skip
    client, told = confluent_kafka.Consumer(settings), Told()
    client.subscribe([TOPIC])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(client.close()))
    while True:
        read = [message.partition() for message in client.consume(100, 0.2) if message.error() is None]
        told.have({each.partition for each in client.assignment()}, read)


def by_kafka_python(address: str, group: str, protocol: str) -> None:
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    client, told = kafka.KafkaConsumer(
        TOPIC, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=int(SESSION_S * 1000), heartbeat_interval_ms=500,
        partition_assignment_strategy=[RangePartitionAssignor],
    ), Told()  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(client.close()))
    while True:
        read = [record.partition for records in client.poll(200).values() for record in records]
        told.have({each.partition for each in client.assignment()}, read)


def by_aiokafka(address: str, group: str, protocol: str) -> None:
    import aiokafka
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    async def run() -> None:
        client, told = aiokafka.AIOKafkaConsumer(
            TOPIC, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=int(SESSION_S * 1000), heartbeat_interval_ms=500,
            partition_assignment_strategy=[RangePartitionAssignor],
        ), Told()  # fmt: skip
        await client.start()
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        while not ended.is_set():
            came = await client.getmany(timeout_ms=200)
            read = [record.partition for records in came.values() for record in records]
            told.have({each.partition for each in client.assignment()}, read)
        await client.stop()

    asyncio.run(run())


KINDS = {"confluent": by_confluent, "aiokafka": by_aiokafka, "kafka-python": by_kafka_python}


# ---- the group ----


class Member:
    """A process."""

    def __init__(self, kind: str, address: str, group: str, protocol: str) -> None:
        self.kind = kind
        command = [*itself(__file__), "--member", kind, address, group, protocol]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8")
        self.state: tuple[list[int], list[int]] = [], []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.state = tuple(json.loads(line))


def is_complete(members: list[Member]) -> bool:
    """Whether each partition has one owner, which has read it, and each member has some."""
    owned = sorted(number for member in members for number in member.state[0])
    return owned == list(range(PARTITIONS)) and all(
        member.state[0] and member.state[0] == member.state[1] for member in members
    )


def events(noise: random.Random, members: list[Member], count: int) -> Iterator[str]:
    """What happens next."""
    for _ in range(count):
        choices = ["start"] * (len(members) < MOST) + ["stop", "kill"] * (len(members) > LEAST)
        yield noise.choice(choices)


def main(arguments: list[str]) -> int:
    """Run the group."""
    if arguments and arguments[0] == "--member":
        KINDS[arguments[1]](*arguments[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--events", type=int, default=12)
    parser.add_argument("--clients", default="confluent,aiokafka")
    parser.add_argument("--protocol", default="classic", choices=["classic", "consumer"])
    chosen = parser.parse_args(arguments)
    noise, kinds = (
        random.Random(chosen.seed),
        chosen.clients.split(",") if chosen.protocol == "classic" else ["confluent"],
    )
    members: list[Member] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(PARTITIONS):
            with pylogseg.open_log(Path(folder) / f"{TOPIC}-{number}") as log:
                log.append([{"value": b"x"}] * RECORDS)
        with pylogseg.serve(folder) as server:
            try:
                members += [
                    Member(kinds[i % len(kinds)], server.bootstrap_servers, "g", chosen.protocol) for i in (0, 1)
                ]
                wait("two members", members, PATIENCE_S[chosen.protocol])
                for event in events(noise, members, chosen.events):
                    if event == "start":
                        member = Member(noise.choice(kinds), server.bootstrap_servers, "g", chosen.protocol)
                        members.append(member)
                    else:
                        member = members.pop(noise.randrange(len(members)))
                        member.process.send_signal(signal.SIGKILL if event == "kill" else signal.SIGTERM)
                        member.process.wait(30)
                    wait(f"{event} {member.kind}", members, PATIENCE_S[chosen.protocol])
            finally:
                for member in members:
                    member.process.kill()
                    member.process.wait()
    print(f"{chosen.events} events, all well (seed {chosen.seed})")
    return 0


def wait(what: str, members: list[Member], patience_s: float) -> None:
    """Wait until the group has settled."""
    began = time.monotonic()
    while not is_complete(members):
        assert time.monotonic() - began < patience_s, f"{what}: stuck with {[(m.kind, m.state) for m in members]}"
        time.sleep(0.05)
    print(f"{what}: {len(members)} members have read all after {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
