#!/usr/bin/env python3
"""Random histories of a tier with real brokers: what pylogseg reads, checks and restores is what a consumer got.

    tier_histories.py [--seed N] [--seeds N] [--rounds N] [--partitions N] [--keep DIR]

A controller and three brokers upload small segments by Kafka's own LocalTieredStorage (test jars from Maven), which
copies in halves. By the seed brokers are killed while they copy, leaders are elected, cleanly and not, records are
deleted, and retention deletes in the tier; each partition is a history. At the end a consumer reads all there is, with
both isolations. That has to be what each disk and the tier give as one log, what the tier alone gives for its part, and
what a fresh broker serves of both once they were restored; groups go on where they were. `verify` finds no damage;
then objects are damaged, and it has to name these and no others, and all other records have to be read. Printed is how
often what happened. Five minutes for a seed; exit code 0 if all is well. Needs confluent-kafka and kafka-python.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

# Neighbours, which are no package:
from three_brokers import Node
from tier_cluster import TOPICS, Cluster, Leader, Name, data_of, folder_of
from tiers import broker, server

import pylogseg
from pylogseg import offline
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.lineage.chains import UNKNOWN_EPOCH, Lineage
from pylogseg.disk.lineage.parts import LeftKind
from pylogseg.disk.tier.files import TierFiles
from pylogseg.format.files.checkpoint import parse_leader_epochs
from pylogseg.format.names import FileKind
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Finding, Level

HERE = Path(__file__).resolve().parent
ISOLATIONS = ("read_uncommitted", "read_committed")
_STUCK_SECONDS = 30

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
Rows = dict[Name, list[Row]]


class Seen(NamedTuple):
    """What a consumer got of all partitions."""

    rows: Rows
    epochs: dict[Name, list[int]]  #: Of the leaders that wrote the rows, as the broker said.
    stuck: dict[Name, int]  #: Where it could not read on.


def row_of(message: Message) -> Row:
    """A record as a consumer got it."""
    headers = tuple((name, value) for name, value in message.headers() or ())
    return message.offset(), message.timestamp()[1], message.key(), message.value(), headers


def consumed(servers: str, names: list[Name], isolation: str, starts: dict[Name, int] | None = None,
             group: str = "nobody") -> Seen:  # fmt: skip
    """Read partitions to their ends, from the earliest records on or from given offsets."""
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": group, "isolation.level": isolation, "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "error" if starts else "earliest", "log_level": 0,
        "fetch.wait.max.ms": 100, "check.crcs": True,
    })  # fmt: skip
    seen = Seen({name: [] for name in names}, {name: [] for name in names}, {})
    open_ones = set(names)
    try:
        consumer.assign([TopicPartition(*name, starts[name] if starts else -2) for name in names])
        last = time.monotonic()
        while open_ones and time.monotonic() - last < _STUCK_SECONDS:
            for message in consumer.consume(500, 0.5):
                error, name = message.error(), (message.topic(), message.partition())
                if error is None:
                    seen.rows[name].append(row_of(message))
                    seen.epochs[name].append(message.leader_epoch())
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(name)
                else:
                    print(f"consumer: {error}", flush=True)
                    continue
                last = time.monotonic()
        for at in consumer.position([TopicPartition(*name) for name in open_ones]):
            seen.stuck[at.topic, at.partition] = at.offset
    finally:
        consumer.close()
    return seen


def read(disk: pylogseg.Disk, name: Name, isolation: Any, **more: Any) -> list[Row]:
    """What pylogseg reads of a partition."""
    if not any(part.name == folder_of(name) for part in disk.partitions):
        return []
    return [
        (r.offset, r.timestamp, r.key, r.value, tuple((k, v) for k, v in r.headers or ()))
        for r in pylogseg.read(disk, folder_of(name), isolation_level=isolation, **more)
    ]


def difference(what: str, found: list[Row], wanted: list[Row]) -> list[str]:
    """Nothing, if two lists of records are the same; else a line that says where they differ."""
    if found == wanted:
        return []
    place = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), -1)
    pair = (found[place], wanted[place]) if place >= 0 else (found[len(wanted) :][:1], wanted[len(found) :][:1])
    return [f"{what}: {len(found)} records, not {len(wanted)}; first {str(pair[0])[:150]}, not {str(pair[1])[:150]}"]


class Judge:
    """A cluster that has ended, and what its consumers got."""

    def __init__(self, cluster: Cluster, root: Path, seen: dict[str, Seen], leaders: dict[Name, Leader]) -> None:
        self.cluster, self.root, self.seen, self.leaders = cluster, root, seen, leaders
        self.counts, self.url = cluster.counts, f"localtier+file://{cluster.tier}"
        self.names = [name for name in cluster.names if not seen[ISOLATIONS[0]].stuck.get(name)]
        self.wrong: list[str] = []
        self._disks: dict[Name, pylogseg.Disk] = {}
        self.foreign = {name: self._find_foreign(name) for name in self.names}

    def wanted(self, isolation: str, name: Name) -> list[Row]:
        """What a consumer got, without what the broker took from a lost branch, and what it left out for that."""
        low, high = self.foreign.get(name, (0, 0))
        return [row for row in self.seen[isolation].rows[name] if not low <= row[0] < high]

    def compare(self, what: str, name: Name, isolation: str, found: list[Row], wanted: list[Row] | None = None) -> None:
        """Compare records with those that a consumer got."""
        low, high = self.foreign.get(name, (0, 0))
        kept = [row for row in found if not low <= row[0] < high]
        wanted = self.wanted(isolation, name) if wanted is None else wanted
        self.wrong += difference(f"{folder_of(name)}: {what}, {isolation}", kept, wanted)

    def _find_foreign(self, name: Name) -> tuple[int, int]:
        """Offsets that the broker served with records of another leader than its own leader epochs say.

        A broker serves an uploaded segment up to its end, also if the log went on with another leader before that.
        """
        chain, seen = self.chain(name), self.seen[ISOLATIONS[0]]
        found = [row[0] for row, epoch in zip(seen.rows[name], seen.epochs[name], strict=True)
                 if chain.epoch_at(row[0]) not in (UNKNOWN_EPOCH, epoch)]  # fmt: skip
        if not found:
            return 0, 0
        self.counts["partitions of which the broker serves a lost branch"] += 1
        self.counts["records of lost branches that the broker serves"] += len(found)
        return min(found), max(found) + 1

    def chain(self, name: Name) -> Lineage:
        """The leader epochs of a log, as its leader has them."""
        path = data_of(self.cluster.node(self.leaders[name].node_id)) / folder_of(name) / "leader-epoch-checkpoint"
        return Lineage.of(parse_leader_epochs(path.read_bytes(), str(path)), 0, 1 << 62)

    # ---- what really happened ----

    def count(self) -> None:
        """Count what the histories have."""
        tier = self._tier().tier
        for name, uploads in tier.by_partition.items():
            ranges = sorted((u.segment.start_offset, u.segment.end_offset) for u in uploads)
            self.counts["overlapping pairs of uploads"] += sum(b[0] <= a[1] for a, b in combinations(ranges, 2))
            self.counts["uploads"] += len(uploads)
            self.counts["leader epochs with records"] += len(self.chain(name[:2]).epochs)
        changes = metadata_records(self.cluster.controller)
        self.counts["unclean elections"] += changes.count('"leaderRecoveryState":1')
        for log in tier.logs:
            for kind in LeftKind:
                self.counts[f"parts of uploads left out, {kind.value}"] += sum(e.kind is kind for _, e in log.left)
            self.counts["partitions with records of lost branches in the tier"] += any(
                each.kind is LeftKind.BRANCH for _, each in log.left
            )
        stems = {stored.path.rpartition(".")[0] for stored in tier.found.orphans}
        self.counts["half copies without enough files"] += len(stems)
        for node in self.cluster.brokers:
            logs = [node.folder / "run" / name for name in ("server.log", "server-before.log")]
            text = "".join(path.read_text(errors="replace") for path in logs if path.exists())
            self.counts["copies that failed"] += text.count("Error occurred while copying log segments")
            self.counts["segments deleted in the tier"] += len(re.findall("Deleted remote log segment", text))

    # ---- readers ----

    def _tier(self) -> TierFiles:
        files = pylogseg.open_tier(self.url).partitions[0].files
        assert isinstance(files, TierFiles)
        return files

    def disks(self) -> None:
        """Each disk in sync with the tier gives what the consumer got."""
        for node in self.cluster.brokers:
            disk = pylogseg.open_dir(data_of(node), tier=self.url)
            for name in self.names:
                if node.number not in self.leaders[name].in_sync:
                    continue
                who = "leader" if self.leaders[name].node_id == node.number else "follower"
                for isolation in ISOLATIONS:
                    found = read(disk, name, isolation)
                    self.compare(f"disk of {who} {node.number} and tier", name, isolation, found)
                    self.counts[f"records read of disk and tier, {isolation}"] += len(found)

    def tier_alone(self) -> Rows:
        """The tier gives its part; returns all that it gives."""
        disk, every = pylogseg.open_tier(self.url), {}
        logs = {(log.topic, log.partition): log for log in self._tier().tier.logs}
        for name in self.names:
            if name not in logs:
                self.counts["partitions without uploads"] += 1
                continue
            end = min(max(segment.end_offset for segment in logs[name].segments), self._parted(disk, name))
            for isolation in ISOLATIONS:
                wanted = [row for row in self.wanted(isolation, name) if row[0] < end]
                rows = self.seen[ISOLATIONS[0]].rows[name]
                start = rows[0][0] if rows else end
                found = [row for row in read(disk, name, isolation) if start <= row[0] < end]
                if isolation == ISOLATIONS[1] and len(found) < len(wanted):
                    self.counts["tiers that end in an open transaction"] += 1
                    last = found[-1][0] if found else -1
                    wanted = [row for row in wanted if row[0] <= last]
                self.compare("tier alone", name, isolation, found, wanted)
                self.counts[f"records read of the tier alone, {isolation}"] += len(found)
            every[name] = read(disk, name, ISOLATIONS[0])
        return every

    def _parted(self, disk: pylogseg.Disk, name: Name) -> int:
        """Where the tier goes on with a lost branch, since the leader has not uploaded its own records there yet.

        Anywhere else each record has to have the leader epoch that the log has there.
        """
        chain, newest = self.chain(name), -1
        for batch in pylogseg.read_arrow(disk, folder_of(name), columns=["offset", "leaderEpoch"]):
            newest = max([newest, *batch["leaderEpoch"].to_pylist()])
        for batch in pylogseg.read_arrow(disk, folder_of(name), columns=["offset", "leaderEpoch"]):
            for offset, epoch in zip(batch["offset"].to_pylist(), batch["leaderEpoch"].to_pylist(), strict=True):
                wanted = chain.epoch_at(offset)
                if wanted in (UNKNOWN_EPOCH, epoch):
                    continue
                if newest < wanted:  # nothing in the tier shows it
                    self.counts["tiers that end in a lost branch"] += 1
                    return int(offset)
                self.wrong.append(f"{folder_of(name)}: offset {offset} is of epoch {epoch}, not {wanted}")
                return 1 << 62
        return 1 << 62

    # ---- verify ----

    def verified(self, disk: pylogseg.Disk) -> list[Finding]:
        """The findings about the topics."""
        parts = [part for part in disk.partitions if part.topic in TOPICS and not part.state]
        summary, choice = VerifySummary(Level.INDEXES), PartitionChoice.of([*TOPICS])
        return list(verify_disk(disk, summary, partitions=parts, choice=choice, remote_metadata=self._metadata()))

    def _metadata(self) -> pylogseg.Disk:
        return pylogseg.open_dir(data_of(self.cluster.brokers[0]))

    def verify(self) -> None:
        """Nothing is damaged."""
        disks = {"the tier": pylogseg.open_tier(self.url)}
        disks |= {f"disk {n.number}": pylogseg.open_dir(data_of(n), tier=self.url) for n in self.cluster.brokers}
        for what, disk in disks.items():
            found = self.verified(disk)
            for finding in found:
                if what == "the tier":
                    self.counts[f"notices {finding.kind}"] += not finding.is_damage
                if finding.is_damage:
                    self.wrong.append(f"verify of {what}: {finding.kind} {finding.path}: {finding.reason}")

    def harm(self, count: int) -> None:
        """Damage objects: these are named, and what lies in the others is read."""
        chance = self.cluster.chance
        disk = pylogseg.open_tier(self.url)
        before = {name: read(disk, name, ISOLATIONS[0]) for name in self.names}
        slices = {s.upload.segment.segment_id: ((log.topic, log.partition), s) for log in self._tier().tier.logs
                  for s in log.segments}  # fmt: skip
        harmed: dict[str, str] = {}
        for segment_id in chance.sample(sorted(slices), min(count, len(slices))):
            _, found = slices[segment_id]
            paths = sorted(self.cluster.tier.glob(f"*/*-{segment_id}.*"))
            path = chance.choice([*paths, *[p for p in paths if p.suffix == ".log"] * 4])
            data = bytearray(path.read_bytes())
            how = chance.choice(["cut", "flip", "delete"])
            if how == "delete" or not data:
                path.unlink()
            elif how == "cut":  # not between two entries: an index may have fewer
                path.write_bytes(data[: chance.choice([n for n in range(len(data)) if n % 8 and n % 12])])
            else:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                path.write_bytes(data)
            harmed[segment_id] = f"{how} {path.suffix}"
            self.counts[f"harmed: {how} {path.suffix}"] += 1
        named: dict[str, list[Finding]] = {segment_id: [] for segment_id in harmed}
        for finding in self.verified(pylogseg.open_tier(self.url)):
            if not finding.is_damage:
                continue
            of = [segment_id for segment_id in harmed if segment_id in finding.path + finding.reason]
            of = of or [i for i in harmed if self._is_about(finding, *slices[i])]
            for segment_id in of:
                named[segment_id].append(finding)
            if not of:
                self.wrong.append(f"harmed {sorted(harmed.values())}: {finding.kind} {finding.path}: {finding.reason}")
        for segment_id, findings in named.items():
            if not findings:
                name, found = slices[segment_id]
                self.wrong.append(f"not named: {harmed[segment_id]} of {folder_of(name)}, {found.upload.name}")
        after = pylogseg.open_tier(self.url)
        for name in self.names:
            bad = [s for i, (n, s) in slices.items() if n == name and i in harmed]
            if not bad:
                self.wrong += difference(
                    f"{folder_of(name)}: others harmed", read(after, name, ISOLATIONS[0]), before[name]
                )
                continue
            found = read(after, name, ISOLATIONS[0], on_corrupt="skip")
            there = {row[0]: row for row in found}
            served = self.seen[ISOLATIONS[0]].rows[name]
            start = served[0][0] if served else 0  # where records were deleted below, a hole lets the log begin there
            for row in (row for row in before[name] if row[0] >= start):
                if there.pop(row[0], row) != row:
                    self.wrong.append(f"{folder_of(name)}: record {row[0]} is another one after harm")
                elif not any(s.first_offset <= row[0] < s.end_offset for s in bad) and row[0] not in {
                    r[0] for r in found
                }:
                    self.wrong.append(f"{folder_of(name)}: record {row[0]} is lost, and its object is whole")

    def _is_about(self, finding: Finding, name: Name, found: Any) -> bool:
        """Whether a finding names the files of a segment as those of the log, or its offsets."""
        if any(f"{folder_of(name)}/{at:020d}." in finding.path for at in (found.first_offset, found.end_offset)):
            return True
        if finding.path.endswith(f"{folder_of(name)}/{FileKind.LEADER_EPOCHS.value}"):
            return True  # the log has those of its newest upload
        if folder_of(name) not in finding.reason + finding.path or finding.offset is None:
            return False
        last = finding.offset if finding.last_offset is None else finding.last_offset
        return bool(finding.offset < found.end_offset and last >= found.first_offset)

    # ---- restore ----

    def restore(self, committed: dict[str, dict[Name, int]], alone: Rows) -> None:
        """A fresh broker serves what was restored of disks and tier, and then what was restored of the tier."""
        new = self.root / "new"
        broker("start", new)
        try:
            admin = AdminClient({"bootstrap.servers": server(new), "log_level": 0})
            count = len(self.cluster.names) // len(TOPICS)
            topics = [NewTopic(name, count, 1, config={"internal.segment.bytes": "9000"}) for name in TOPICS]
            for made in admin.create_topics(topics).values():
                made.result(30)
            touch_groups(server(new))
            broker("stop", new)
            for node in self.cluster.brokers:
                led = [folder_of(name) for name in self.names if self.leaders[name].node_id == node.number]
                if led:
                    self._restored(node, new, led, self.url)
            self._restored(self.cluster.brokers[0], new, ["__consumer_offsets"], None)
            self._serve(new, {i: {name: self._joined(name, i) for name in self.names} for i in ISOLATIONS}, committed)
            self._restored(None, new, [folder_of(name) for name in alone], self.url)
            tier = pylogseg.open_tier(self.url)
            rows = {i: {n: read(tier, n, i) for n in alone} for i in ISOLATIONS}
            self._serve(new, rows, {})
        finally:
            broker("kill", new)

    def _joined(self, name: Name, isolation: str) -> list[Row]:
        """What the leader's disk and the tier have, which was compared with what a consumer got."""
        if name not in self._disks:
            node = self.cluster.node(self.leaders[name].node_id)
            self._disks[name] = pylogseg.open_dir(data_of(node) / folder_of(name), tier=self.url)
        return read(self._disks[name], name, isolation)

    def _restored(self, node: Node | None, new: Path, names: list[str], tier: str | None) -> None:
        source, more = (self.url, None) if node is None else (data_of(node), tier)
        done = offline.restore(source, new / "data0", topic=names, overwrite=True, tier=more)
        self.wrong += [f"restore: {each.name}: {each.reason}" for each in done.failed]
        self.counts["partitions restored"] += sum(each.state == "done" for each in done)

    def _serve(self, new: Path, wanted: dict[str, Rows], committed: dict[str, dict[Name, int]]) -> None:
        broker("start", new)
        for isolation, rows in wanted.items():
            names = list(rows)
            seen = consumed(server(new), names, isolation)
            for name in names:
                what = f"{folder_of(name)}: restored, {isolation}"
                self.wrong += difference(what, seen.rows[name], rows[name])
            self.counts[f"records served after restore, {isolation}"] += sum(map(len, seen.rows.values()))
            self.wrong += [f"{folder_of(name)}: restored, stuck at {at}" for name, at in seen.stuck.items()]
        if committed:
            self._groups(new, committed, wanted)
        text = (new / "run" / "server.log").read_text()
        for line in text.splitlines():
            if re.search(rf"\b(WARN|ERROR)\b.*\b({'|'.join(TOPICS)})-\d", line) and "LeaderEpochFileCache" not in line:
                self.wrong.append(f"the fresh broker: {line}")
        broker("stop", new)

    def _groups(self, new: Path, committed: dict[str, dict[Name, int]], wanted: dict[str, Rows]) -> None:
        """Groups go on, by the copy of their topic, and, when that is gone, by the offsets that were exported."""
        for how in ("copied", "imported"):
            if how == "imported":
                self._import(new, sorted(committed))
            for group, offsets in committed.items():
                self._go_on(server(new), group, how, offsets, wanted)

    def _go_on(self, servers: str, group: str, how: str, offsets: dict[Name, int], wanted: dict[str, Rows]) -> None:
        found = committed_of(servers, group, list(offsets))
        if found != offsets:
            self.wrong.append(f"group {group}, {how}: {found}, not {offsets}")
            return
        names = [name for name in self.names if name in offsets]
        for isolation in ISOLATIONS:
            seen = consumed(servers, names, isolation, found, group)
            for name in names:
                rows = [row for row in wanted[isolation][name] if row[0] >= offsets[name]]
                self.wrong += difference(f"{folder_of(name)}: {group}, {how}, {isolation}", seen.rows[name], rows)
        self.counts[f"offsets of groups that were {how}"] += len(offsets)

    def _import(self, new: Path, groups: list[str]) -> None:
        """Delete the groups, and give them their offsets as `docs/lost-cluster.md` says."""
        admin = AdminClient({"bootstrap.servers": server(new), "log_level": 0})
        for done in admin.delete_consumer_groups(groups).values():
            done.result(30)
        csv = self.root / "offsets.csv"
        csv.unlink(missing_ok=True)
        shell("groups", data_of(self.cluster.brokers[0]), "--export", csv)
        classes = subprocess.run(
            ["bash", HERE.parent / "kafka.sh", "tools"], check=True, capture_output=True, encoding="utf-8"
        ).stdout.strip()
        words = [word for group in groups for word in ("--group", group)]
        tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        subprocess.run(
            ["java", "-XX:TieredStopAtLevel=1", "-cp", classes, tool,
             "--bootstrap-server", server(new), *words, "--reset-offsets", "--from-file", csv, "--execute"],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


def shell(*words: object) -> str:
    """Run a command of the shell, which has to end well."""
    done = subprocess.run(
        [sys.executable, "-m", "pylogseg", *map(str, words)], check=False, capture_output=True, encoding="utf-8"
    )
    if done.returncode:
        raise RuntimeError(f"pylogseg {words}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def metadata_records(controller: Node) -> str:
    """The records of the metadata log, as Kafka's tool prints them."""
    logs = sorted((data_of(controller) / "__cluster_metadata-0").glob("*.log"))
    return "".join(shell("dump", "--style", "kafka", "--cluster-metadata-decoder", path) for path in logs)


def touch_groups(servers: str) -> None:
    """Have a broker make `__consumer_offsets`."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "first", "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition("kept", 0, 0)], asynchronous=False)
    finally:
        consumer.close()


def commit(servers: str, group: str, offsets: dict[Name, int]) -> None:
    """Commit offsets of a group."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    try:
        for done in consumer.commit(
            offsets=[TopicPartition(*name, at) for name, at in offsets.items()], asynchronous=False
        ):
            if done.error:
                raise KafkaException(done.error)
    finally:
        consumer.close()


def committed_of(servers: str, group: str, names: list[Name]) -> dict[Name, int]:
    """The offsets that a group has."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    try:
        return {
            (at.topic, at.partition): at.offset for at in consumer.committed([TopicPartition(*n) for n in names], 30)
        }
    finally:
        consumer.close()


def play(cluster: Cluster, rounds: int) -> tuple[dict[str, Seen], dict[Name, Leader], dict[str, dict[Name, int]]]:
    """A history: what consumers got at the end, who led, and the offsets of groups."""
    cluster.start(cluster.controller, *cluster.brokers)
    cluster.make_topics()
    cluster.wait_for("leaders", lambda leader: leader.node_id > 0)
    cluster.write(5)
    for _ in range(rounds):
        cluster.act()
    print(f"{time.strftime('%T')} settle", flush=True)
    cluster.settle()
    print(f"{time.strftime('%T')} consume", flush=True)
    seen = {isolation: consumed(cluster.servers, cluster.names, isolation) for isolation in ISOLATIONS}
    committed: dict[str, dict[Name, int]] = {}
    for group in ("billing", "audit"):
        offsets = {}
        for name, rows in seen[ISOLATIONS[0]].rows.items():
            if rows and cluster.chance.random() < 0.8:
                offsets[name] = cluster.chance.choice(rows)[0] + cluster.chance.randrange(2)
        commit(cluster.servers, group, offsets)
        committed[group] = offsets
    leaders = cluster.leaders()
    cluster.end()
    return seen, leaders, committed


def one(seed: int, rounds: int, partitions: int, root: Path) -> tuple[list[str], Counter[str]]:
    """The history of a seed: what is wrong, and what happened."""
    cluster = Cluster(root, random.Random(seed), partitions)
    try:
        seen, leaders, committed = play(cluster, rounds)
    finally:
        cluster.kill()
    judge = Judge(cluster, root, seen, leaders)
    for isolation, each in seen.items():
        for name, at in each.stuck.items():
            judge.wrong.append(f"{folder_of(name)}: the broker does not serve on from offset {at}, {isolation}")
    judge.count()
    print(f"{time.strftime('%T')} read", flush=True)
    judge.disks()
    alone = judge.tier_alone()
    judge.verify()
    print(f"{time.strftime('%T')} restore", flush=True)
    judge.restore(committed, alone)
    print(f"{time.strftime('%T')} harm", flush=True)
    judge.harm(8)
    return judge.wrong, cluster.counts


def main() -> int:
    """Run the seeds; exit code 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--rounds", type=int, default=8, help="how often something happens to the brokers")
    parser.add_argument("--partitions", type=int, default=8, help="of each of the three topics")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep all folders there")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # what is left out of a tier is counted
    total, failed = Counter[str](), 0
    for seed in range(options.seed, options.seed + options.seeds):
        root = Path(tempfile.mkdtemp(prefix=f"tier-histories-{seed}-", dir=options.keep))
        try:
            wrong, counts = one(seed, options.rounds, options.partitions, root)
        finally:
            if options.keep is None:
                shutil.rmtree(root, ignore_errors=True)
        total += counts
        failed += bool(wrong)
        print(f"seed {seed}: " + ", ".join(f"{counts[what]} {what}" for what in sorted(counts)), flush=True)
        print("\n".join(wrong[:40]) or f"seed {seed}: all is well", flush=True)
    if options.seeds > 1:
        print(f"{options.seeds} seeds, {failed} with differences: " + json.dumps(total, sort_keys=True))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
