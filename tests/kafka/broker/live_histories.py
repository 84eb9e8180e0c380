#!/usr/bin/env python3
"""Copies of three real brokers that go on: each partition has a history, and its copy is the leader's log.

    live_histories.py [--seed N] [--rounds N] [--partitions N] [--steps N] [--mode copy|archive]

A round starts a controller and three brokers. Settings, replicas, producers (plain, idempotent, in transactions) and
codecs are a matter of chance; topics are compacted, lose their beginning, and are deleted and made again; brokers die,
stall, and elect leaders, cleanly and not. All the while a process copies the cluster again and again, and is often
killed. At the end the copy of each partition has to be what its leader has on its disk, byte by byte and segment by
segment, from where both have it; or the run has named why it is not: the log was cut, or the topic made again. Of a
compacted log, whatever the leader has is in the copy. With `--mode archive` the process archives the cluster without a
copy. What is restored from the newest point has to be the leader's log, also of a log that was cut or made again, and
an archive by a copy has to say the same of each partition. Prints a line for each difference and a summary; exit code 1
if there is one. KAFKA_VERSION is that of the brokers (4.3.0). Three to five minutes a round. Needs confluent-kafka and
kafka-python.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from merging_cluster import Cluster, Key
from rounds import play_rounds
from three_brokers import QUIET

import pylogseg

#: Longer than a transaction may be open, than its coordinator takes to end it, and than a cleaner takes.
SETTLE_S = 15
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0", "segment.ms": "2000"}


class Histories(Cluster):
    """Topics of which some are compacted, and some are made again."""

    def __init__(self, root: Path, chance: random.Random, partitions: int) -> None:
        super().__init__(root, chance, partitions)
        self.topics = [
            topic._replace(settings={**topic.settings, **COMPACTED}) if chance.random() < 0.25 else topic
            for topic in self.topics
        ]
        self.made_again = Counter[str]()
        for node in (self.controller, *self.brokers):
            node.lines += ["log.cleaner.backoff.ms=500", "log.retention.check.interval.ms=1000"]

    def is_compacted(self, topic: str) -> bool:
        return any(each.name == topic and "cleanup.policy" in each.settings for each in self.topics)

    def make_again(self) -> None:
        """Delete a topic, and make another one of its name."""
        topic = self.chance.choice(self.topics)
        admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        try:
            for future in admin.delete_topics([topic.name], operation_timeout=20).values():
                future.result(30)
        except KafkaException:
            return
        self.made_again[topic.name] += 1
        self.counts["made again"] += 1
        for _ in range(20):
            time.sleep(0.5)
            places = [self.chance.sample([1, 2, 3], topic.replicas) for _ in range(topic.partitions)]
            made = NewTopic(topic.name, topic.partitions, replica_assignment=places, config=topic.settings)
            with contextlib.suppress(KafkaException):
                for future in admin.create_topics([made], operation_timeout=20).values():
                    future.result(30)
                return
        raise RuntimeError(f"{topic.name} was not made again")


class Copying(threading.Thread):
    """Runs `copy`, or `archive`, again and again; a run may be killed at any moment."""

    def __init__(self, cluster: Cluster, chance: random.Random, folder: Path, command: str) -> None:
        super().__init__(daemon=True)
        self._chance, self._folder, self._is_over = chance, folder, threading.Event()
        self._command = command
        self._url = "kafka://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.brokers)
        self.counts, self.said = Counter[str](), list[str]()

    def run(self) -> None:
        while not self._is_over.is_set():
            self.copy(self._chance.choice((None, None, 0.2, 0.5, 1, 2, 4)))
            time.sleep(self._chance.choice((0, 0.3, 1, 3)))

    def copy(self, seconds: float | None, *more: str) -> int:
        """Run it, and kill it after the time that it takes to start, and some seconds."""
        words = [sys.executable, "-m", "pylogseg", self._command, self._url, str(self._folder), "--json", "--jobs", "2"]
        words += more
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                output, errors = process.communicate(timeout=None if seconds is None else 0.4 + seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self.counts["killed"] += 1
                return -9
        code = process.returncode
        self.counts[f"exit code {code}"] += 1
        self.said += errors.splitlines()
        if code not in (0, 1, 2) or "Traceback" in errors:
            self.said.append(f"DIFFERENCE {self._command} ended with {code}: {errors[-2000:]}")
        for line in output.splitlines():
            row = json.loads(line)
            if row["type"] == "partition":
                self.counts[row["state"]] += 1
                self.counts["gaps"] += len(row["removed"])
        return code

    def end(self) -> None:
        self._is_over.set()
        self.join()


def segments_of(folder: Path) -> dict[int, bytes]:
    """Return the segments of a partition, the last one without the zeros that a broker preallocates."""
    found = {int(path.name[:20]): path.read_bytes() for path in sorted(folder.glob("*.log"))}
    there = {base: data for base, data in found.items() if data.rstrip(b"\0")}
    return {base: data if base < max(there) else data.rstrip(b"\0") for base, data in there.items()}


def compare(cluster: Histories, folder: Path, stopped: dict[str, str]) -> Iterator[str]:
    """Yield what a copy has otherwise than the leaders' disks; count what is the same."""
    rows = cluster.rows()
    for key in cluster.keys:
        name = f"{key[0]}-{key[1]}"
        leader = next(node for node in cluster.brokers if node.number == rows[key].leader)
        (own,) = (disk / name for disk in leader.disks if (disk / name).exists())
        if name in stopped:
            kind = "made again" if "made again" in stopped[name] else "cut" if "was cut" in stopped[name] else "other"
            cluster.counts[f"same as named: {kind}"] += 1
            if kind == "other" or (kind == "made again" and not cluster.made_again[key[0]]):
                yield f"{name}: stopped: {stopped[name]}"
            continue
        yield from _compare_log(cluster, key, folder / name, own)


def _compare_log(cluster: Histories, key: Key, copy: Path, own: Path) -> Iterator[str]:
    name = copy.name
    if cluster.is_compacted(key[0]):
        yield from _compare_records(copy, own)
        cluster.counts["compacted logs"] += 1
        return
    there, leaders = segments_of(copy), segments_of(own)
    ours, theirs = b"".join(there.values()), b"".join(leaders.values())
    # Each may begin before the other: the copy keeps what retention removes later.
    if not (ours.endswith(theirs) or theirs.endswith(ours)):
        yield f"{name}: {len(ours)} bytes in the copy, {len(theirs)} on the leader's disk, and no end of the other"
    cluster.counts["the same bytes"] += 1
    cluster.counts["the same borders"] += sorted(there)[1:] == sorted(leaders)[1:]
    found = [record.offset for record in pylogseg.read(copy, on_corrupt="skip")]
    if found != sorted(set(found)):
        yield f"{name}: offsets do not rise"


def _compare_records(copy: Path, own: Path) -> Iterator[str]:
    """Yield whether something is not in the copy that the leader has; of each key, both have the same last record."""
    ours = {r.offset: (r.timestamp, r.key, r.value, r.headers) for r in pylogseg.read(copy)}
    theirs = {r.offset: (r.timestamp, r.key, r.value, r.headers) for r in pylogseg.read(own)}
    lacking = [offset for offset, record in theirs.items() if ours.get(offset) != record]
    if lacking:
        yield f"{copy.name}: compacted, and {len(lacking)} records are not in the copy, the first at {lacking[0]}"


def check_copy(cluster: Histories, copying: Copying, folder: Path, stopped: dict[str, str]) -> Iterator[str]:
    yield from compare(cluster, folder, stopped)
    done = subprocess.run(
        [sys.executable, "-m", "pylogseg", "verify", "-q", str(folder)], capture_output=True, text=True
    )
    if done.returncode and not copying.counts["gaps"]:
        yield f"verify of the copy: {done.stdout[-1500:]}{done.stderr[-1500:]}"


def check_archive(cluster: Histories, archiving: Copying, place: Path) -> Iterator[str]:
    """Yield what the newest point has otherwise than the leaders' disks, or than an archive that is made by a copy."""
    restored, other, copy = place.with_name("restored"), place.with_name("by-copy"), place.with_name("copied")
    restored.mkdir()
    for words in (("restore", place, restored), ("verify", "-q", "--read-all", place)):
        done = subprocess.run([sys.executable, "-m", "pylogseg", *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            yield f"{words[0]} ended with {done.returncode}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    yield from compare(cluster, restored, {})
    by_copy = Copying(cluster, random.Random(0), other, "archive")
    code = by_copy.copy(None, "--copy", str(copy))
    if code:
        yield f"the archive by a copy ended with {code}: {by_copy.said}"
    points = [pylogseg.archive.read_point(each, pylogseg.archive.list_points(each)[-1]) for each in (place, other)]
    ours, theirs = ({part.name: part for part in point.partitions} for point in points)
    for key in cluster.keys:
        name = f"{key[0]}-{key[1]}"
        one, two = ours.get(name), theirs[name]
        if one is None:
            yield f"{name}: it is not in the point"
            continue
        facts = [(p.topic_id, p.end_offset, p.last_stable_offset, p.fault) for p in (one, two)]
        if facts[0] != facts[1]:
            yield f"{name}: {facts[0]}, and by a copy {facts[1]}"
        starts = {each.base_offset: each for each in two.segments}
        same = sum(starts.get(each.base_offset) == each for each in one.segments)
        equal = sum(
            (found := starts.get(each.base_offset)) is not None and found.log == each.log for each in one.segments
        )
        cluster.counts["segments"] += len(one.segments)
        cluster.counts["of the same bytes as by a copy"] += max(same, equal)


def play(seed: int, partitions: int, steps: int, root: Path, mode: str) -> tuple[int, list[str]]:
    """Play one round; return the partitions and the differences."""
    chance, folder = random.Random(seed), root / mode
    cluster = Histories(root / "cluster", chance, partitions)
    try:
        cluster.begin()
        copying = Copying(cluster, random.Random(seed), folder, mode)
        copying.start()
        cluster.write()
        for _ in range(steps):
            if chance.random() < 0.25 and len(cluster.up) == 3:
                cluster.make_again()
            cluster.step()
        cluster.start(*[node for node in cluster.brokers if not node.is_up])
        cluster.writers.close()
        is_whole = cluster.wait("leaders", lambda rows: all(row.leader in row.isr for row in rows.values()))
        time.sleep(SETTLE_S)
        copying.end()
        differences = [] if is_whole else ["not every partition has a leader"]
        copying.said = [line for line in copying.said if "DIFFERENCE" in line]
        differences += copying.said
        code = copying.copy(None)
        stopped = {}
        for line in copying.said:
            name, _, rest = line.removeprefix("pylogseg: ").partition(" ends at offset ")
            if rest:
                stopped[name] = rest
        if code not in (0, 1):
            differences.append(f"the last run ended with {code}: {copying.said}")
        if mode == "archive":
            if copying.copy(None):  # what the one before has said, it has said once
                differences.append(f"one more run has faults: {copying.said}")
            differences += check_archive(cluster, copying, folder)
        else:
            differences += check_copy(cluster, copying, folder, stopped)
        print(f"  {dict(copying.counts)}")
        print(f"  {dict(cluster.counts + cluster.writers.counts)}", flush=True)
    finally:
        cluster.end()
    return len(cluster.keys), differences


if __name__ == "__main__":
    play_rounds(__doc__, play, modes=("copy", "archive"))
