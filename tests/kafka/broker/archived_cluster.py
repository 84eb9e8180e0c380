"""Three brokers whose disks are archived, and what happens to them and to their topics, at random."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import shutil
import signal
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Neighbours, which are no package:
from archive_clients import MOVED, NOTHING, PARTITIONS, Clients, Move, Place
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import TopicPartition as OtherTopicPartition
from three_brokers import QUIET, Node, Row, ThreeBrokers

from pylogseg.format.names import FileKind
from pylogseg.format.uuids import format_uuid

_LINES = [
    "replica.high.watermark.checkpoint.interval.ms=300",
    "log.flush.start.offset.checkpoint.interval.ms=300",
    "log.cleaner.backoff.ms=500",
    "log.retention.check.interval.ms=500",
    "file.delete.delay.ms=1000",
    "replica.lag.time.max.ms=4000",
    "broker.session.timeout.ms=6000",
    "broker.heartbeat.interval.ms=500",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.replication.factor=3",
    "internal.leader.imbalance.check.interval.seconds=3600",
    # snapshots of the metadata every few seconds, and few of them are kept
    "metadata.log.max.record.bytes.between.snapshots=6000",
    "metadata.log.max.snapshot.interval.ms=4000",
    "metadata.log.segment.ms=10000",
    "metadata.max.retention.bytes=20000",
]
_REPLICAS = {"kept": 2, "again": 2}
_SMALL = {"internal.segment.bytes": "20000", "min.insync.replicas": "2"}
_COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000"}
SETTINGS: dict[str, dict[str, str]] = {
    "plain": _SMALL,
    "tx": _SMALL,
    "state": {**_SMALL, **_COMPACT, "internal.segment.bytes": "4000"},
    "kept": {**_SMALL, "min.insync.replicas": "1"},
    "loose": {**_SMALL, "min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
    "again": {**_SMALL, "min.insync.replicas": "1"},
}
Records = dict[Place, tuple[str, str | None]]


class Low(NamedTuple):
    """Where a log began, and between which times that was asked."""

    offset: int
    asked_s: float
    told_s: float


def consumed(servers: str, ranges: dict[tuple[str, int], tuple[int, int]], isolation: str) -> Records:
    """Read offsets of partitions: keys and values by place. RuntimeError if they do not come to an end."""
    consumer = Consumer({
        **QUIET, "bootstrap.servers": servers, "group.id": "reader", "isolation.level": isolation,
        "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "error",
    })  # fmt: skip
    consumer.assign([TopicPartition(*of, first) for of, (first, end) in ranges.items() if first < end])
    found: Records = {}
    left, until = {of for of, (first, end) in ranges.items() if first < end}, time.monotonic() + 60
    while left and time.monotonic() < until:
        for message in consumer.consume(2000, 0.5):
            of, error = (message.topic(), message.partition()), message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    left.discard(of)
                continue
            place = *of, message.offset()
            if place in found:
                raise RuntimeError(f"{place} came twice")
            value = message.value()
            if message.offset() < ranges[of][1]:
                found[place] = (message.key() or b"").decode(), None if value is None else value.decode()
            if message.offset() >= ranges[of][1] - 1:
                left.discard(of)
    consumer.close()
    if left:
        raise RuntimeError(f"a consumer did not come to the ends of {sorted(left)}, {isolation}")
    return found


class ArchivedCluster(ThreeBrokers):
    """The brokers, their topics, and what happened."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        super().__init__(root, chance, _LINES)
        self.clients = Clients("", random.Random(chance.random()))
        self.disturbed: list[tuple[float, float]] = []  #: When leaders came and went.
        self.gone: dict[Place, list[tuple[str | None, float, float]]] = defaultdict(list)
        self.lows: dict[tuple[str, int], list[Low]] = defaultdict(list)
        self.lives: dict[str, int] = {}  #: Of the topic that is made anew, by topic id.
        self.deleted: dict[str, float] = {}  #: Topic ids, and when they were deleted for sure.
        self.settings: list[tuple[float, float, str, str, str]] = []
        self.events: list[str] = []
        self.end_records: Records = {}  #: What the cluster gave in the end, by topic, or life of one.
        self._noted: list[tuple[float, float]] = []
        self._is_over = threading.Event()

    @property
    def names(self) -> Collection[str]:
        return self.clients.partitions

    @property
    def partition_count(self) -> int:
        return sum(self.clients.partitions.values())

    @property
    def all_events(self) -> dict[str, Callable[[], None]]:
        """What can happen, by name."""
        return {
            "reassign": self.reassign,
            "unclean election": self.unclean,
            "compact": self.compact,
            "retention": self.retention,
            "delete records": self.delete_records,
            "topic made anew": self.recreate,
            "partition added": self.add_partition,
            "transaction open": self.open_transaction,
            "transaction left": self.leave_transaction,
            "group rebalanced": self.rebalance,
            "group deleted": self.forget,
            "killed": self.kill,
            "stopped": self.stop_one,
            "stalled": self.stall,
            "elected": self.elect,
            "settings": self.change_settings,
            "disks changed": self.change_disks,
            "topic made anew twice": self.recreate_twice,
            "policy switched": self.switch_policy,
            "times and codecs switched": self.switch_times,
            "preallocated": self.preallocate,
            "segments of other sizes": self.resize_segments,
            "cleaned all the time": self.clean_always,
            "deleted to the end": self.delete_all_records,
            "transactions short": self.shorten_transactions,
            "coordinator stalled": self.stall_coordinator,
            "disk emptied": self.empty_disk,
            "disk added": self.add_disk,
            "disks swapped": self.swap_disks,
            "node wiped": self.wipe_node,
            "all at once": self.end_all,
        }

    def begin(self) -> None:
        """Start all, make the topics, let clients begin."""
        self.start(self.controller, *self.brokers)
        self.clients.servers = ",".join(f"127.0.0.1:{node.port}" for node in self.brokers)
        self._make(*PARTITIONS)
        self._wait_whole("leaders")
        self.clients.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """See when the brokers that run noted what is committed."""
        while not self._is_over.wait(0.2):
            now_s, noted = time.time(), []
            for disk in (disk for node in self.up for disk in node.disks):
                with contextlib.suppress(FileNotFoundError):
                    noted.append(os.stat(disk / FileKind.HIGH_WATERMARKS.value).st_mtime)
            self._noted.append((now_s, min(noted, default=0.0)))

    def noted_before(self, at_s: float) -> float:
        """When the last of the brokers that run noted what was committed, before a time."""
        return max((noted_s for now_s, noted_s in self._noted if now_s <= at_s), default=0.0)

    def end(self) -> None:
        self._is_over.set()
        super().end()

    def look_at_the_end(self) -> list[str]:
        """Read all there is when nobody writes any more; what is wrong with it is the cluster's fault."""
        self.look_at_starts()
        consumer = self._reader()
        ranges = {
            (topic, number): consumer.get_watermark_offsets(TopicPartition(topic, number), 20, cached=False)
            for topic, count in self.clients.partitions.items()
            for number in range(count)
        }
        consumer.close()
        found = consumed(self.servers, ranges, "read_uncommitted")
        for place, record in found.items():
            self.end_records[self.stream(place[0]), place[1], place[2]] = record
        return [
            f"the cluster itself has lost {place}"
            for place, sent in self.clients.known().items()
            if place[0] not in ("loose", "state") and "/" not in place[0]
            and place[2] >= ranges[place[:2]][0]
            and self.end_records.get(place, ("", ""))[1] not in {each.value for each in sent}
        ]  # fmt: skip

    def stream(self, topic: str) -> str:
        """What the records of a topic are kept under: of the one that is made anew, this life."""
        return f"again/{self.clients.life}" if topic == "again" else topic

    def happen(self, name: str) -> None:
        """Let something happen; then see what is left of the topic of unclean elections."""
        begun_s = time.time()
        self.events.append(name)
        self.all_events[name]()
        self.look_at_starts()
        self._note_losses(begun_s)

    def look_at_starts(self) -> None:
        """Ask where logs begin."""
        consumer = self._reader()
        for topic, count in list(self.clients.partitions.items()):
            for number in range(count):
                asked_s = time.time()
                with contextlib.suppress(KafkaException), self.clients.paused:
                    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=3, cached=False)
                    self.lows[self.stream(topic), number].append(Low(low, asked_s, time.time()))
        consumer.close()

    def _note_losses(self, begun_s: float) -> None:
        """What was acknowledged and is not in the log any more was lost by an election since then."""
        known, now_s = self.clients.known(), time.time()
        consumer = self._reader()
        ranges = {
            ("loose", number): consumer.get_watermark_offsets(TopicPartition("loose", number), 20, cached=False)
            for number in range(PARTITIONS["loose"])
        }
        consumer.close()
        found = consumed(self.servers, ranges, "read_uncommitted")
        for place, sent in known.items():
            if place[0] != "loose" or place[2] < ranges[place[:2]][0]:
                continue
            for each in sent:
                there = found.get(place)
                is_known = any(value == each.value for value, _, _ in self.gone[place])
                if each.at_s < now_s and (there is None or there[1] != each.value) and not is_known:
                    self.gone[place].append((each.value, begun_s, time.time()))
                    self.counts["acknowledged records lost by elections"] += 1

    # ---- what happens ----

    @contextlib.contextmanager
    def _disturbance(self) -> Iterator[None]:
        """Leaders come and go; until all have one, and enough are in sync, what is committed is not known to all."""
        begun_s = time.time()
        place = len(self.disturbed)
        self.disturbed.append((begun_s, float("inf")))
        try:
            yield
            self._wait_whole("leaders", enough=True)
        finally:
            self.disturbed[place] = begun_s, time.time()

    def _wait_whole(self, what: str, enough: bool = False, seconds: float = 180) -> None:
        def is_so(rows: dict[tuple[str, int], Row]) -> bool:
            return all(
                row.leader in row.isr
                and (len(row.isr) == len(row.replicas) or (enough and (len(row.isr) > 1 or len(row.replicas) == 2)))
                for row in rows.values()
            )

        if not self.wait(what, is_so, seconds):
            raise RuntimeError(f"the cluster does not come to {what}: {self.rows()}")

    def _pause(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    def kill(self) -> None:
        """A broker goes at once, the others lead without it for a while, and it comes back."""
        self._goes("kill")

    def stop_one(self) -> None:
        """A broker is stopped in order, and comes back."""
        self._goes("stop")

    def _goes(self, how: str) -> None:
        node = self.chance.choice(self.brokers)
        with self._disturbance():
            node.end(how)
            self.wait("other leaders", lambda rows: all(r.leader != node.number for r in rows.values()), 20)
        self._pause(1, 4)
        with self._disturbance():
            self.start(node)
            self._wait_whole("replicas in sync")

    def stall(self) -> None:
        """A broker does not answer for a while, shorter or longer than it may."""
        self._stall(self.chance.choice(self.brokers))

    def stall_coordinator(self) -> None:
        """The same, of one that coordinates transactions."""
        parts = self._admin.list_topics("__transaction_state", timeout=20).topics["__transaction_state"].partitions
        leaders = {part.leader for part in parts.values()} & {node.number for node in self.brokers}
        self._stall(self.node(self.chance.choice(sorted(leaders))))

    def _stall(self, node: Node) -> None:
        with self._disturbance():
            node.signal(signal.SIGSTOP)
            self._pause(1, 10)
            node.signal(signal.SIGCONT)
            self._pause(0.5, 1)
            self._wait_whole("replicas in sync")

    def unclean(self) -> None:
        """Two go, the third writes alone and goes, and the two lead without what it had."""
        alone, *others = self.chance.sample(self.brokers, 3)
        with self._disturbance():
            for node in others:
                node.end("kill")
            leads = self.wait("one leader", lambda rows: all(r.leader in (-1, alone.number) for r in rows.values()), 20)
            self._pause(2, 4)
            alone.end("kill")
            self.start(*others)
            if leads:
                self.wait(
                    "unclean leaders",
                    lambda rows: all(r.leader > 0 for (name, _), r in rows.items() if name == "loose"),
                    30,
                )
            self._pause(1, 3)
            self.start(alone)
            self._wait_whole("replicas in sync")

    def reassign(self) -> None:
        """Some partitions get other replicas, fewer for a while."""
        keys = [(topic, number) for topic, count in self.clients.partitions.items() for number in range(count)]
        some = self.chance.sample(sorted(keys), 5)
        for counts in ((2, 3), (3,)):
            places = {}
            for topic, number in some:
                count = _REPLICAS.get(topic, self.chance.choice(counts))
                places[OtherTopicPartition(topic, number)] = self.chance.sample([1, 2, 3], count)
            wanted = {(each.topic, each.partition): tuple(sorted(to)) for each, to in places.items()}
            with self._disturbance():
                with self.other_admin() as admin:
                    admin.alter_partition_reassignments(places, timeout_ms=10_000)
                if not self._are_placed(wanted):
                    raise RuntimeError(f"partitions are not reassigned to {wanted}: {self.rows()}")
                self._wait_whole("replicas in sync")
            self._pause(1, 3)

    def _are_placed(self, wanted: dict[tuple[str, int], tuple[int, ...]]) -> bool:
        return self.wait("reassigned", lambda rows: all(rows[key].replicas == to for key, to in wanted.items()), 40)

    def elect(self) -> None:
        """The first of the replicas leads again."""
        with self._disturbance(), self.other_admin() as admin:
            admin.elect_leaders(0, None, timeout_ms=5000, raise_errors=False)

    def change_disks(self) -> None:
        """Some partitions go to other log directories of their broker."""
        several = [node for node in self.brokers if len(node.disks) > 1]
        if not several:
            return self.elect()
        node = self.chance.choice(several)
        there = [key for key, row in self.rows().items() if node.number in row.replicas]
        some = self.chance.sample(sorted(there), min(len(there), 3))
        moves = {OtherTopicPartition(*key): str(self.chance.choice(node.disks)) for key in some}
        with self.other_admin() as admin:
            admin.alter_replica_log_dirs({(each.topic, each.partition, node.number): to for each, to in moves.items()})
        self._pause(1, 3)
        return None

    def delete_records(self) -> None:
        """The beginning of some partitions goes."""
        places = []
        consumer = self._reader()
        for of in [("plain", self.chance.randrange(3)), ("tx", 0), ("loose", 1)]:
            low, high = consumer.get_watermark_offsets(TopicPartition(*of), timeout=20, cached=False)
            places.append(TopicPartition(*of, self.chance.randint(low, high)))
        consumer.close()
        for future in self._admin.delete_records(places, request_timeout=20).values():
            future.result(30)

    def retention(self) -> None:
        """A topic keeps little; then all again."""
        self._set("kept", "retention.bytes", str(self.chance.choice((1, 30_000))))
        self._pause(3, 5)
        self._set("kept", "retention.bytes", "-1")

    def compact(self) -> None:
        """Keys are deleted, and the cleaner has more to do."""
        self.clients.deletes_keys += 30
        self._set("state", "internal.segment.bytes", str(self.chance.choice((2000, 4000, 9000))))
        self._pause(3, 5)

    def recreate(self) -> None:
        """A topic is deleted, and made again, soon or later."""
        with self.clients.paused:
            old = [topic_id for topic_id, life in self.lives.items() if life == self.clients.life]
            self._admin.delete_topics(["again"])["again"].result(60)
            count = self.clients.partitions.pop("again")
            self.deleted |= dict.fromkeys(old, time.time())
            self._pause(0, 4)
            self._make("again")
            self.clients.partitions["again"] = count
            self.clients.life += 1
            self._note_life()
        self._wait_whole("leaders")

    def add_partition(self) -> None:
        """A topic gets one more, which is written to at once."""
        count = self.clients.partitions["plain"] + 1
        self._admin.create_partitions([NewPartitions("plain", count)])["plain"].result(60)
        self.clients.partitions["plain"] = count
        self._wait_whole("leaders")
        self._pause(1, 2)

    def open_transaction(self) -> None:
        """Transactions last so long that points are made in the middle."""
        self.clients.hold_s = 12
        self._pause(5, 8)
        self.clients.hold_s = 0.5

    def leave_transaction(self) -> None:
        """A producer goes in the middle of a transaction."""
        self.clients.leaves += 1
        self._pause(4, 10)

    def rebalance(self) -> None:
        """A member comes to the group, or goes."""
        self.clients.members = 3 - self.clients.members
        self._pause(3, 5)

    def forget(self) -> None:
        """A group is deleted, and comes back."""
        with self.clients.moving:
            asked_s = time.time()
            with contextlib.suppress(KafkaException):
                self._admin.delete_consumer_groups([MOVED])[MOVED].result(30)
                for key, moves in self.clients.moves.items():
                    if key[0] == MOVED:
                        moves.append(Move(NOTHING, asked_s, time.time()))
            self._pause(2, 5)

    def change_settings(self) -> None:
        """A topic gets another setting."""
        self._set("plain", "max.message.bytes", str(self.chance.randrange(500_000, 900_000)))

    def recreate_twice(self) -> None:
        """The topic that is made anew has three lives within a few seconds."""
        self.recreate()
        self._pause(0, 1)
        self.recreate()

    def switch_policy(self) -> None:
        """A topic is not cleaned for a while, and then again."""
        for policy in ("delete", "compact,delete", "compact"):
            self._set("state", "cleanup.policy", policy)
            self._pause(1, 3)

    def switch_times(self) -> None:
        """Brokers write their own times for a while, and compress from now on."""
        codec = self.chance.choice(("zstd", "lz4", "gzip", "snappy", "uncompressed"))
        for name, value in (("message.timestamp.type", "LogAppendTime"), ("compression.type", codec)):
            for topic in ("plain", "tx"):
                self._set(topic, name, value)
            self._pause(1, 3)
        for topic in ("plain", "tx"):
            self._set(topic, "message.timestamp.type", "CreateTime")

    def preallocate(self) -> None:
        """Segments end in zeros as long as they are written; perhaps a kill leaves some."""
        for topic in ("plain", "tx", "state", "kept"):
            self._set(topic, "preallocate", "true")
        self._pause(2, 5)
        if self.chance.random() < 0.5:
            self.kill()

    def resize_segments(self) -> None:
        """Segments and the steps of their indexes are small or large from now on."""
        for topic in ("plain", "tx", "state"):
            self._set(topic, "internal.segment.bytes", str(self.chance.choice((1500, 5000, 200_000))))
            self._set(topic, "index.interval.bytes", str(self.chance.choice((0, 1, 10_000))))
        self._pause(1, 3)

    def clean_always(self) -> None:
        """The cleaner never ends: tiny segments, any ratio, tombstones that go at once."""
        self.clients.deletes_keys += 60
        lines = {"internal.segment.bytes": "1200", "min.cleanable.dirty.ratio": "0.0", "delete.retention.ms": "0"}
        for name, value in lines.items():
            self._set("state", name, value)
        self._pause(5, 8)

    def delete_all_records(self) -> None:
        """All records of some partitions go, up to the high watermark."""
        places = [TopicPartition(*of, -1) for of in (("plain", 0), ("plain", 2), ("tx", 1))]
        for future in self._admin.delete_records(places, request_timeout=20).values():
            future.result(30)
        self._pause(0, 2)

    def shorten_transactions(self) -> None:
        """Transactions end at once, many of them between two notes of what is committed."""
        self.clients.hold_s = 0.0
        self._pause(5, 8)
        self.clients.hold_s = 0.5

    # ---- what happens to disks ----

    def empty_disk(self) -> None:
        """One of several disks of a broker is replaced by an empty one."""
        several = [node for node in self.brokers if len(node.disks) > 1]
        if not several:
            return self.wipe_node()
        node = self.chance.choice(several)
        with self._away(node, self.chance.choice(("stop", "kill"))):
            self._replace(node.disks[1])
        return None

    def wipe_node(self) -> None:
        """A broker comes back with empty disks."""
        node = self.chance.choice(self.brokers)
        with self._away(node, "stop"):
            for disk in node.disks:
                self._replace(disk)

    def add_disk(self) -> None:
        """A broker gets one more disk, and some partitions go there."""
        node = self.chance.choice(self.brokers)
        disk = node.folder / f"data{len(node.disks)}"
        with self._away(node, "stop"):
            disk.mkdir()
            self._format(disk, (node.disks[0] / "meta.properties").read_text())
            node.use(*node.disks, disk)
        there = sorted(key for key, row in self.rows().items() if node.number in row.replicas)
        some = self.chance.sample(there, min(len(there), 3))
        with self.other_admin() as admin:
            admin.alter_replica_log_dirs({(*key, node.number): str(disk) for key in some})
        self._pause(1, 3)

    def swap_disks(self) -> None:
        """Two disks of a broker are mounted where the other one was."""
        several = [node for node in self.brokers if len(node.disks) > 2]
        if not several:
            return self.add_disk()
        node = self.chance.choice(several)
        with self._away(node, self.chance.choice(("stop", "kill"))):
            _, one, other = node.disks[:3]  # the first one has the metadata
            aside = one.with_name("aside")
            for path, to in ((one, aside), (other, one), (aside, other)):
                path.rename(to)
        return None

    def end_all(self) -> None:
        """All brokers end at once, and come back."""
        with self._disturbance():
            for node in self.brokers:
                node.end(self.chance.choice(("stop", "kill", "kill")))
            self.start(*self.brokers)
            self._wait_whole("replicas in sync")

    @contextlib.contextmanager
    def _away(self, node: Node, how: str) -> Iterator[None]:
        """A broker is ended while others have all it had; it comes back with what was done to its disks."""
        with self._disturbance():
            self._wait_whole("replicas in sync")
            node.end(how)
            self.wait("other leaders", lambda rows: all(r.leader != node.number for r in rows.values()), 20)
            yield
            self._pause(0, 3)
            self.start(node)
            self._wait_whole("replicas in sync", seconds=240)

    def _replace(self, disk: Path) -> None:
        lines = (disk / "meta.properties").read_text()
        for path in disk.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        self._pause(0, 2)
        self._format(disk, lines)

    @staticmethod
    def _format(disk: Path, lines: str) -> None:
        """Give an empty disk the words of another one, with an id of its own."""
        text = re.sub(r"directory\.id=\S+", f"directory.id={format_uuid(uuid.uuid4().bytes)}", lines)
        (disk / "meta.properties").write_text(text)

    # ---- how ----

    @functools.cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({**QUIET, "bootstrap.servers": self.clients.servers})

    def _make(self, *topics: str) -> None:
        for topic in topics:
            count = _REPLICAS.get(topic, 3)
            places = [self.chance.sample([1, 2, 3], count) for _ in range(PARTITIONS[topic])]
            made = NewTopic(topic, len(places), replica_assignment=places, config=SETTINGS[topic])
            until = time.monotonic() + 60
            while True:
                try:
                    self._admin.create_topics([made], operation_timeout=30, request_timeout=40)[topic].result(60)
                    break
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS and topics == tuple(PARTITIONS):
                        break
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.3)
        if topics == tuple(PARTITIONS):
            self._note_life()

    def _note_life(self) -> None:
        """Note the id of the topic that is made anew."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(KafkaException):
                found: Any = self._admin.describe_topics(TopicCollection(["again"]))["again"].result(30)
                data = found.topic_id
                bits = (data.get_most_significant_bits() % 2**64, data.get_least_significant_bits() % 2**64)
                topic_id = format_uuid(b"".join(each.to_bytes(8, "big") for each in bits))
                if topic_id not in self.lives:
                    self.lives[topic_id] = self.clients.life
                    return
            time.sleep(0.3)
        raise RuntimeError("the topic that was made anew has no other id")

    def _reader(self) -> Consumer:
        """A consumer that is told where logs end, open transactions or not."""
        settings = {"bootstrap.servers": self.servers, "group.id": "none", "isolation.level": "read_uncommitted"}
        return Consumer({**QUIET, **settings})

    def _set(self, topic: str, name: str, value: str) -> None:
        asked_s = time.time()
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(60)
        self.settings.append((asked_s, time.time(), topic, name, value))

    def node(self, number: int) -> Node:
        """A broker by its number."""
        return self.brokers[number - 1]
