#!/usr/bin/env python3
"""The disks of three real brokers, merged, against what consumers got from the leaders that survived.

    merges.py [--seed N] [--partitions N] [--steps N] [--keep DIR]

A controller and three brokers with one to three disks each run on this machine. Each partition has a history of its
own: settings, replicas, producers (idempotent, in transactions) and codecs are a matter of chance. While records are
written, brokers are killed, stall and come back, leaders are elected cleanly and not, replicas are reassigned, all by
the seed. At the end consumers read all there is with both isolations, and all brokers are killed. Then the
disks of two brokers are copies of half way: what they lack has to be said. And disks are damaged: bits, ends of
segments, of all replicas too, whole segments, folders, a whole disk. The merge has to give every batch of the
surviving leader that is whole on any disk, byte for byte, and to name what is not, with its exit code; it has to refuse
exactly where committed records were lost by an election. The result has to hold what consumers got, and a fresh broker
has to open it without a warning and to serve the same. Five to ten minutes; exit code 0 if
all is well. KAFKA_VERSION is that of the brokers (4.3.0). Needs confluent-kafka and kafka-python.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parent))

from merging_cluster import ISOLATIONS, Cluster, Key, Seen, consumed
from one_broker import Broker
from three_brokers import Row

import pylogseg
from pylogseg import offline
from pylogseg.errors import IncompleteError
from pylogseg.format.batches import scan
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Level

#: A disk whose broker was there so long after its copy was made is known to be older: twelve, and some more.
_OLDER_SECONDS = 20


class Batch(NamedTuple):
    """A batch on a disk."""

    first: int
    end: int
    data: bytes
    path: Path
    position: int

    @property
    def is_there(self) -> bool:
        """Whether it is still on the disk as it was."""
        if not self.path.is_file():
            return False
        with self.path.open("rb") as file:
            file.seek(self.position)
            return file.read(len(self.data)) == self.data


class Replica(NamedTuple):
    """What a disk has of a partition before it is damaged."""

    node: int
    disk: Path
    batches: list[Batch]
    high_watermark: int


class History(NamedTuple):
    """A partition: what the cluster said at the end, what consumers got, and what the disks have."""

    key: Key
    row: Row
    seen: Seen
    replicas: list[Replica]

    @property
    def name(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def leader(self) -> Replica:
        return next(each for each in self.replicas if each.node == self.row.leader)

    @property
    def batches(self) -> list[Batch]:
        """What the leader has, from where its log begins."""
        return [batch for batch in self.leader.batches if batch.end > self.seen.start]

    def lost_by_election(self) -> list[tuple[Replica, list[Batch]]]:
        """Replicas that know records as committed that the leader has not, with the batches."""
        theirs = {batch.data for batch in self.leader.batches}
        found = []
        for each in self.replicas:
            known = [b for b in each.batches if b.first < each.high_watermark and b.end > self.seen.start]
            if lost := [b for b in known if b.data not in theirs]:
                found.append((each, lost))
        return found


def batches_in(folder: Path) -> list[Batch]:
    """All batches of a partition's folder."""
    found = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        rows = scan(data).batches
        for first, last, at, size in zip(rows.base_offset.tolist(), rows.last_offset.tolist(), rows.position.tolist(),
                                         rows.size.tolist(), strict=True):  # fmt: skip
            found.append(Batch(first, last + 1, data[at : at + size], path, at))
    return found


def noted(disk: Path, checkpoint: str, key: Key) -> int:
    path = disk / checkpoint
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return next((int(words[2]) for line in lines if (words := line.split())[:2] == [key[0], str(key[1])]), 0)


def replicas_of(cluster: Cluster, key: Key) -> list[Replica]:
    found = []
    for node in cluster.brokers:
        for disk in node.disks:
            folder = disk / f"{key[0]}-{key[1]}"
            if folder.is_dir():
                mark = noted(disk, "replication-offset-checkpoint", key)
                found.append(Replica(node.number, disk, batches_in(folder), mark))
    return found


def play(cluster: Cluster, steps: int) -> list[History]:
    """Write, kill, elect, and stop all; what consumers got, and what is on the disks."""
    chance, copied = cluster.chance, time.monotonic()
    cluster.begin()
    for _ in range(3):
        cluster.write(60)
    for number in range(steps):
        print(f"step {number + 1} of {steps}", flush=True)
        cluster.step()
        if number == steps // 2:
            copy_running(cluster)
            copied = time.monotonic()
    cluster.start(*[node for node in cluster.brokers if not node.is_up])
    cluster.write()
    if chance.random() < 0.5:
        cluster.turn()
    cluster.writers.close()
    time.sleep(max(0.0, copied + _OLDER_SECONDS - time.monotonic()))
    cluster.wait("leaders at the end", lambda rows: all(row.leader > 0 for row in rows.values()), 15)
    rows, seen = settled(cluster)
    cluster.end()
    for each in cluster.keys:
        if each not in seen:
            cluster.counts["without a leader at the end"] += 1
    return [History(key, rows[key], seen[key], replicas_of(cluster, key)) for key in cluster.keys if key in seen]


def older(disk: Path) -> Path:
    """Where the copy of half way is."""
    return disk.parent.parent / "older" / disk.parent.name / disk.name


def copy_running(cluster: Cluster) -> None:
    """Copy all disks while the brokers run; files come and go meanwhile."""
    for node in cluster.brokers:
        for disk in node.disks:
            with contextlib.suppress(shutil.Error):
                shutil.copytree(disk, older(disk), ignore=shutil.ignore_patterns(".lock"))


def settled(cluster: Cluster) -> tuple[dict[Key, Row], dict[Key, Seen]]:
    """Read until nothing changes any more: then the leaders are those that were read."""
    before: tuple[Any, Any] = ({}, {})
    for _ in range(8):
        time.sleep(3)  # transactions that were left open end, followers follow
        rows = cluster.rows()
        keys = [key for key, row in rows.items() if row.leader > 0]
        seen = consumed(cluster.servers, keys)
        if (rows, seen) == before or (rows == before[0] and all(seen[k] == before[1].get(k) for k in seen)):
            break
        before = rows, seen
    else:
        cluster.counts["not settled"] += 1
    return rows, seen


# ---- damage ----


def damage(cluster: Cluster, histories: list[History]) -> tuple[Counter[str], set[Path]]:
    """Damage disks at random; counts, and the disks that are gone."""
    chance, counts = cluster.chance, Counter[str]()
    gone: set[Path] = set()
    if chance.random() < 0.6:
        disks = [
            disk for node in cluster.brokers for disk in node.disks if len(node.disks) > 1 or chance.random() < 0.3
        ]
        if disks:
            gone.add(chance.choice(disks))
            counts["disks lost"] += 1
    for history in histories:
        if chance.random() < 0.2:
            counts["ends of all replicas"] += 1
            for replica in history.replicas:
                cut_end(chance, replica.disk / history.name)
            continue
        for replica in history.replicas:
            if chance.random() < 0.4:
                counts[damage_one(chance, replica.disk / history.name)] += 1
    return counts, gone


def cut_end(chance: random.Random, folder: Path) -> None:
    """Tear the last batches off, or leave zeros in their place, as far as there are any."""
    path = max(folder.glob("*.log"))
    batches = [batch for batch in batches_in(folder) if batch.path == path]
    if batches:
        at = chance.choice(batches[-3:]).position
        size = path.stat().st_size
        os.truncate(path, at + chance.choice((0, 30)))
        if chance.random() < 0.3:
            os.truncate(path, size)


def damage_one(chance: random.Random, folder: Path) -> str:
    paths = sorted(path for path in folder.glob("*.log") if path.stat().st_size)
    if not paths:
        return "nothing"
    kind = chance.choice(
        ("flip", "flip", "zeros", "cut", "cut", "segment deleted", "unreadable", "folder deleted", "small files")
    )
    path = chance.choice(paths)
    if kind == "flip":
        data = bytearray(path.read_bytes())
        for batch in chance.choices([batch for batch in batches_in(folder) if batch.path == path], k=3):
            # Of the header, offset and leader epoch are covered by no checksum.
            at = chance.choice((8, 9, 10, 11, chance.randrange(16, len(batch.data))))
            data[batch.position + at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    elif kind == "zeros":
        data = bytearray(path.read_bytes())
        at = chance.randrange(len(data))
        data[at : at + 4096] = bytes(len(data[at : at + 4096]))
        path.write_bytes(data)
    elif kind == "cut":
        os.truncate(path, chance.randrange(path.stat().st_size))
    elif kind == "segment deleted":
        path.unlink()
    elif kind == "unreadable":
        path.unlink()
        path.symlink_to(path.name)  # too many levels of symbolic links
    elif kind == "folder deleted":
        shutil.rmtree(folder)
    else:
        for each in folder.iterdir():
            if each.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
                each.write_bytes(b"x" * 24)
    return kind


# ---- judgement ----


class Judge:
    """Merges the disks, and compares."""

    def __init__(self, cluster: Cluster, histories: list[History], root: Path) -> None:
        self._cluster, self._histories, self._root = cluster, histories, root
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._topics = [topic.name for topic in cluster.topics]

    def say(self, history: History, text: str) -> None:
        self.wrong.append(f"{history.name}: {text[:1500]}")

    def before_damage(self, sources: list[str]) -> None:
        """A dry run over whole disks: the leader's log, an alarm exactly where committed records were lost."""
        result = offline.merge(sources, self._root / "merged", topic=self._topics, dry_run=True, jobs=2)
        by_name = {each.name: each for each in result}
        for history in self._histories:
            each = by_name[history.name]
            lost = history.lost_by_election()
            self.counts["partitions with lost commits"] += bool(lost)
            if (each.state == "skipped") != bool(lost):
                what = [(replica.disk, [batch.first for batch in batches]) for replica, batches in lost]
                self.say(history, f"whole disks: state {each.state}, {each.reason}, but lost were {what}; {each.notes}")
            if each.state == "failed":
                self.say(history, f"whole disks: {each.reason}")
            branches = {b.data for r in history.replicas for b in r.batches if b.end > history.seen.start}
            self.counts["partitions with branches"] += bool(branches - {batch.data for batch in history.leader.batches})
            numbers = each.numbers
            if numbers.get("offsetsMissing") or numbers.get("damagedRanges"):
                self.say(history, f"whole disks: {numbers}, {each.notes}")
            if each.log_end != max([history.seen.start, *(b.end for b in history.batches)]):
                self.say(history, f"whole disks: end {each.log_end}, not that of {history.batches[-1:]}")

    def with_older(self, cluster: Cluster) -> None:
        """The disks of two brokers are copies of half way: a merge that lacks what consumers got has to say so."""
        nodes = cluster.chance.sample(cluster.brokers, 2)
        sources = [str(older(disk) if node in nodes else disk) for node in cluster.brokers for disk in node.disks]
        result = offline.merge(sources, self._root / "merged", dry_run=True, jobs=2)
        by_name = {each.name: each for each in result}
        older_copies = sum(": it is an older copy" in note for note in result.notes)
        self.counts["older copies among the disks"] += older_copies
        if not older_copies:
            numbers = [node.number for node in nodes]
            self.wrong.append(f"disks of {numbers} are older copies, and none is known as one: {result.notes}")
        for history in self._histories:
            each = by_name.get(history.name)
            end = history.seen.ends["read_uncommitted"]
            if each is None:
                if not result.exit_code:
                    self.say(history, "it is on no disk any more, and the exit code does not show it")
                continue
            lacks = (each.log_end or 0) < end or any(row["type"] == "missing" for row in each.rows)
            is_said = each.not_done or each.state == "failed"
            self.counts["with older disks: lacking"] += lacks
            self.counts["with older disks: said, and nothing is lacking"] += is_said and not lacks
            if lacks and not is_said:
                self.say(history, f"older disks {nodes}: the log ends at {each.log_end}, not {end}: {each.notes}")

    def after_damage(self, sources: list[str], into: Path) -> None:
        """Merge what is left; where sides have to be named, that of the leader."""
        there = {path.name.rpartition("-")[0] for source in sources for path in Path(source).glob("t*-*")}
        topics = [topic for topic in self._topics if topic in there]
        first = offline.merge(sources, into, topic=topics, jobs=2)
        take = {}
        results = {each.name: each for each in first}
        for history in self._histories:
            each = results.get(history.name)
            if each is not None and each.state == "skipped":
                self._check_alarm(history, each)
                disk = str(history.leader.disk)
                there = disk in sources and (Path(disk) / history.name).is_dir()
                (row,) = [row for row in each.rows if row.get("authoritative")]
                take[history.name] = disk if there else row["logDirectory"]
        if take:
            shutil.rmtree(into, ignore_errors=True)
            second = offline.merge(sources, into, topic=topics, take=take, jobs=2)
            if not first.exit_code:
                self.wrong.append(f"exit code {first.exit_code}, though partitions were left")
            results = {each.name: each for each in second}
        for history in self._histories:
            self._check(history, results.get(history.name), sources, into, history.name in take)

    def _check_alarm(self, history: History, each: Any) -> None:
        self.counts["alarms"] += 1
        if not history.lost_by_election() and self._leader_is_left(history):
            self.say(history, f"an alarm, and nothing was lost by an election: {each.reason}")

    def _leader_is_left(self, history: History) -> bool:
        return (history.leader.disk / history.name).is_dir()

    def _check(self, history: History, each: Any, sources: list[str], into: Path, was_taken: bool) -> None:
        left = [r for r in history.replicas if str(r.disk) in sources and (r.disk / history.name).is_dir()]
        if each is None:
            self.counts["partitions on no disk any more"] += 1
            if left:
                self.say(history, "it is on a disk, and the merge does not know it")
            return
        if each.state != "done":
            self.say(history, f"{each.state}: {each.reason}")
            return
        wanted, gone = [], []
        for batch in history.batches:
            there = any(b.data == batch.data and b.is_there for r in left for b in r.batches)
            (wanted if there else gone).append(batch)
        start = history.seen.start
        found = [batch for batch in batches_in(into / history.name) if batch.end > start]
        self.counts["with ranges of others"] += each.numbers["offsetsFromOthers"] > 0
        self.counts["with damage"] += each.numbers["damagedRanges"] > 0
        in_sync = [r for r in left if r.node in history.row.isr]
        if not in_sync:
            # What was committed on the others alone cannot be had; it has to be said.
            self.counts["no replica in sync is left"] += 1
            theirs = {b.data for b in history.batches}
            if any(b.data not in theirs for b in found) or any(
                b.data not in {f.data for f in found} for b in history.batches
            ):
                self.counts["records lost or of another branch, as no replica in sync is left"] += 1
                if not each.not_done:
                    self.say(history, f"no replica in sync is left, records are lost, and it is not said: {each.notes}")
            return
        if [b.data for b in found] != [b.data for b in wanted]:
            extra = [b.first for b in found if b.data not in {w.data for w in wanted}]
            less = [b.first for b in wanted if b.data not in {f.data for f in found}]
            # Above the high watermark, records of the leader alone go with its disk.
            end = history.seen.ends["read_uncommitted"]
            lost = {b.first for _, batches in history.lost_by_election() for b in batches}
            if not self._leader_is_left(history):
                extra = [
                    first for first in extra if first not in lost
                ]  # where its history parts, the leader alone knew
            if extra or self._leader_is_left(history) or any(offset < end for offset in less):
                self.say(
                    history,
                    f"batches {extra} too many, {less} too few; wanted {[b.first for b in wanted]}; {each.notes}",
                )
        self.counts["with batches on no disk"] += bool(gone)
        named = {
            offset
            for row in each.rows
            if row["type"] == "missing"
            for offset in range(row["firstOffset"], row["nextOffset"])
        }
        marks = [noted(r.disk, "replication-offset-checkpoint", history.key) for r in in_sync]
        must = {o for b in gone for o in range(max(b.first, start), b.end) if o < max(marks, default=0)}
        if not must <= named:
            self.say(
                history, f"offsets {sorted(must - named)} are on no disk, and not said to be missing: {each.notes}"
            )
        if must and not each.not_done:
            self.say(history, "committed offsets are on no disk, and the exit code does not show it")
        there = {o for b in wanted for o in range(max(b.first, start), b.end)}
        if named & there:
            self.say(history, f"offsets {sorted(named & there)} are said to be missing, and are there")
        self._check_records(history, into, {o for b in gone for o in range(b.first, b.end)})

    def _check_records(self, history: History, into: Path, gone: set[int]) -> None:
        """Consumers got the same."""
        for isolation in ISOLATIONS:
            ours = read(into, history, isolation)
            end = history.seen.ends[isolation]
            got = [row for row in history.seen.records[isolation] if row[0] not in gone]
            mine = [row for row in ours if history.seen.start <= row[0] < end]
            self.counts[f"records {isolation}"] += len(got)
            if mine == got:
                continue
            if gone and isolation == "read_committed" and set(mine) >= set(got):
                continue  # a marker is gone
            different = next((pair for pair in zip(mine, got, strict=False) if pair[0] != pair[1]), None)
            if gone and isolation == "read_committed":
                self.counts["read_committed not compared: a marker may be gone"] += 1
                continue
            self.say(history, f"{isolation}: {len(mine)} records, consumers got {len(got)}: {different}")

    def opened(self, into: Path, results_have_gaps: bool) -> None:
        """`verify` finds nothing but what is missing."""
        bad = [each for each in verify_disk(pylogseg.open_dir(into), VerifySummary(Level.INDEXES)) if each.is_damage]
        if bad and not results_have_gaps:
            self.wrong += [f"verify: {each}" for each in bad[:5]]


def read(into: Path, history: History, isolation: Any) -> list[tuple[Any, ...]]:
    """What pylogseg reads, in the words of the consumer."""
    records = pylogseg.read(into, history.name, isolation_level=isolation)
    return [(r.offset, r.timestamp, r.timestamp_type + 1, r.key, r.value, headers_of(r)) for r in records]


def headers_of(record: Any) -> Any:
    return tuple((key, value) for key, value in record.headers)


def served(judge: Judge, cluster: Cluster, histories: list[History], root: Path, into: Path) -> None:
    """Let a fresh broker open the merged partitions: it says nothing about them, and serves what we read."""
    fresh = root / "fresh"
    broker, line = Broker(fresh), f"log.dirs={fresh / 'data0'}"
    broker("start", line)
    try:
        admin = AdminClient({"bootstrap.servers": broker.address, "error_cb": lambda error: None, "log_level": 0})
        made = [NewTopic(topic.name, topic.partitions, 1, config=topic.settings | {"min.insync.replicas": "1"})
                for topic in cluster.topics]  # fmt: skip
        for future in admin.create_topics(made, operation_timeout=60, request_timeout=60).values():
            future.result(90)
        broker("stop")
        there = sorted({topic.name for topic in cluster.topics for number in range(topic.partitions)
                        if (into / f"{topic.name}-{number}").is_dir()})  # fmt: skip
        try:
            done = offline.restore(into, fresh / "data0", topic=there)
        except IncompleteError as error:
            judge.counts["restore refused what lacks records"] += 1
            judge.wrong += [] if judge.counts["with batches on no disk"] else [f"restore: {error}"]
            done = offline.restore(into, fresh / "data0", topic=there, force=True)
        judge.wrong += [f"restore: {result.name}: {result.reason}" for result in done.failed]
        broker("start", line)
        merged = [history for history in histories if (into / history.name).is_dir()]
        admin = AdminClient({"bootstrap.servers": broker.address, "error_cb": lambda error: None, "log_level": 0})
        names = {topic.name for topic in cluster.topics}
        for _ in range(300):
            topics = admin.list_topics(timeout=30).topics
            parts = [part for name in names & topics.keys() for part in topics[name].partitions.values()]
            if parts and all(part.leader > 0 for part in parts):
                break
            time.sleep(0.3)
        found = consumed(broker.address, [history.key for history in merged])
        said = broker.words()
    finally:
        broker("kill")
    for history in merged:
        for isolation in ISOLATIONS:
            ours = read(into, history, isolation)
            theirs = found[history.key].records[isolation] if history.key in found else []
            judge.counts[f"served {isolation}"] += len(theirs)
            if ours != theirs:
                different = next((pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]), None)
                judge.say(
                    history, f"{isolation}: the fresh broker serves {len(theirs)}, we read {len(ours)}: {different}"
                )
    names = "|".join(re.escape(topic.name) for topic in cluster.topics)
    odd = re.compile(rf"\b(WARN|ERROR)\b.*\b({names})-\d|partition=({names})-\d.*Recovering unflushed")
    # A new cluster begins with lower leader epochs than the log has: docs/cli.md, restore.
    judge.wrong += [line for line in said if odd.search(line) and "LeaderEpochFileCache" not in line][:10]


def print_counts(cluster: Cluster, histories: list[History], damages: Counter[str], judge: Judge) -> None:
    """Say what really happened."""
    names = "|".join(re.escape(topic.name) for topic in cluster.topics)
    part = rf"(?:{names})-\d+"
    cut = set().union(*(node.said(rf"partition=({part})[,\]].*Truncating to offset") for node in cluster.brokers))
    print(f"{len(histories)} partitions of {len(cluster.keys)}: {len(cut)} were truncated; "
          f"{sum(len(h.leader.batches) for h in histories)} batches, "
          f"{sum(max(0, len({b.path for b in h.leader.batches}) - 1) for h in histories)} rolled segments, "
          f"{sum(h.seen.start > 0 for h in histories)} begin above 0, ELR {'on' if cluster.with_elr else 'off'}, "
          f"disks {[len(node.disks) for node in cluster.brokers]}")  # fmt: skip
    for what, counts in (("events", cluster.counts), ("writers", cluster.writers.counts), ("damage", damages),
                         ("merge", judge.counts)):  # fmt: skip
        print(f"{what}: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count))


def main() -> int:
    """Run it; exit code 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=80)
    parser.add_argument("--steps", type=int, default=6, help="how often something happens to the brokers")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the brokers' folders there")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    root = Path(tempfile.mkdtemp(prefix="merges-", dir=options.keep))
    cluster = Cluster(root, chance, options.partitions)
    try:
        try:
            histories = play(cluster, options.steps)
        finally:
            cluster.end()
        sources = [str(disk) for node in cluster.brokers for disk in node.disks]
        chance.shuffle(sources)
        judge = Judge(cluster, histories, root)
        judge.before_damage(sources)
        judge.with_older(cluster)
        if options.keep is not None:
            shutil.copytree(root, root.with_name(f"{root.name}-before"), symlinks=True)
        damages, gone = damage(cluster, histories)
        sources = [each for each in sources if Path(each) not in gone]
        into = root / "merged"
        judge.after_damage(sources, into)
        judge.opened(into, results_have_gaps=judge.counts["with batches on no disk"] > 0)
        served(judge, cluster, histories, root, into)
        print_counts(cluster, histories, damages, judge)
        print("\n".join(judge.wrong) or "all is well")
        return 1 if judge.wrong or not histories else 0
    finally:
        if options.keep is None:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
