#!/usr/bin/env python3
"""Three real brokers, read and copied over their protocol while brokers die, stall, and elect leaders, cleanly and not.

    live_cluster.py [--seed N] [--rounds N] [--partitions N] [--steps N]

A round starts a controller and three brokers. Each partition has a history of its own: settings, replicas, producers
(plain, idempotent, in transactions) and codecs are a matter of chance. While that happens, a thread reads one partition
after the other. A reading has to end, with records whose offsets rise, or with an error of ours that names a reason.
When all brokers are back, each partition is read in both isolations and compared with what librdkafka gets, field by
field. A copy of the cluster is compared with the leaders' segments, byte by byte, and verified. Prints a line for each
difference and a summary; exit code 1 if there is one. KAFKA_VERSION is that of the brokers (4.3.0). Two to four minutes
a round. Needs confluent-kafka and kafka-python.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from merging_cluster import ISOLATIONS, Cluster, Key, consumed
from rounds import play_rounds

import pylogseg
from pylogseg import offline
from pylogseg.errors import PylogsegError

#: Longer than a transaction may be open, and than its coordinator takes to end it.
SETTLE_S = 12
_VARIES = re.compile(r"\d+")


def records_of(address: str, key: Key, isolation: str) -> list[tuple[Any, ...]]:
    """Read a partition over the protocol; each record as `consumed` has it."""
    records = pylogseg.read(f"kafka://{address}/{key[0]}-{key[1]}", isolation_level=isolation)
    return [(r.offset, r.timestamp, r.timestamp_type + 1, r.key, r.value, r.headers) for r in records]


class Watching(threading.Thread):
    """Reads partitions in turn while the cluster is disturbed, and counts how each reading ends."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._cluster, self._chance, self._is_over = cluster, chance, threading.Event()
        self.ends: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        while not self._is_over.is_set():
            key, isolation = self._chance.choice(self._cluster.keys), self._chance.choice(ISOLATIONS)
            address = ",".join(f"127.0.0.1:{node.port}" for node in self._cluster.brokers)
            began = time.monotonic()
            try:
                offsets = [record[0] for record in records_of(address, key, isolation)]
                self.ends["read to the end"] += 1
                if offsets != sorted(set(offsets)):
                    self.faults.append(f"{key}: offsets do not rise")
            except PylogsegError as error:
                self.ends[_VARIES.sub("N", str(error).split(": ", 1)[-1])[:110]] += 1
            except Exception as error:
                self.faults.append(f"{key}: {type(error).__name__}: {error}")
            if time.monotonic() - began > 120:
                self.faults.append(f"{key}: a reading took {time.monotonic() - began:.0f} s")
            time.sleep(0.2)

    def end(self) -> None:
        self._is_over.set()
        self.join()


def compare_records(cluster: Cluster) -> Iterator[str]:
    """Yield the partitions of which librdkafka gets other records."""
    consumed_there = consumed(cluster.servers, cluster.keys)
    for key in cluster.keys:
        if key not in consumed_there:
            yield f"{key}: librdkafka cannot read it"
            continue
        for isolation in ISOLATIONS:
            expected = consumed_there[key].records[isolation]
            records = records_of(cluster.servers, key, isolation)
            if records != expected:
                first = next((pair for pair in zip(records, expected, strict=False) if pair[0] != pair[1]), None)
                yield f"{key}, {isolation}: {len(records)} records, and {len(expected)} by librdkafka: {first}"


def compare_copy(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Yield what a copy has otherwise than the leaders' disks."""
    rows = cluster.rows()
    copied = {row.name: row for row in offline.copy(f"kafka://{cluster.servers}", folder)}
    for topic, number in cluster.keys:
        name, row = f"{topic}-{number}", copied[f"{topic}-{number}"]
        leader = next(node for node in cluster.brokers if node.number == rows[topic, number].leader)
        (own,) = (disk / name for disk in leader.disks if (disk / name).exists())
        copy, stored = (
            b"".join(path.read_bytes() for path in sorted(each.glob("*.log"))).rstrip(b"\0")
            for each in (folder / name, own)
        )
        if row.state != "copied" or not stored.endswith(copy):
            yield f"{name}: {row.state} {row.reason}: {len(copy)} bytes in the copy, {len(stored)} on the leader's disk"
    command = [sys.executable, "-m", "pylogseg", "verify", "-q", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        yield f"verify of the copy: {done.stdout}{done.stderr}"


def play(seed: int, partitions: int, steps: int, root: Path) -> tuple[int, list[str]]:
    """Play one round; return the partitions and the differences."""
    chance = random.Random(seed)
    cluster = Cluster(root / "cluster", chance, partitions)
    try:
        cluster.begin()
        watching = Watching(cluster, random.Random(seed))
        watching.start()
        cluster.write()
        for _ in range(steps):
            cluster.step()
        cluster.start(*[node for node in cluster.brokers if not node.is_up])
        cluster.writers.close()
        watching.end()
        is_whole = cluster.wait("leaders", lambda rows: all(row.leader in row.isr for row in rows.values()))
        time.sleep(SETTLE_S)
        differences = [] if is_whole else ["not every partition has a leader"]
        differences += [*watching.faults, *compare_records(cluster), *compare_copy(cluster, root / "copy")]
        for end, count in watching.ends.most_common():
            print(f"  {count:5} {end}")
        print(f"  {dict(cluster.counts + cluster.writers.counts)}")
    finally:
        cluster.end()
    return len(cluster.keys), differences


if __name__ == "__main__":
    play_rounds(__doc__, play)
