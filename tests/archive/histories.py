"""What happens to the log directory of a broker between points: writes, groups, transactions, compaction, deletions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from helpers.archives import Archiver
from helpers.kafka_clients import PATIENCE_S

import pylogseg
from pylogseg import offline
from pylogseg.disk.tier.point import Point

confluent_kafka = pytest.importorskip("confluent_kafka")
pytest.importorskip("confluent_kafka.admin")

Isolation = Literal["read_uncommitted", "read_committed"]
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)
Rows = dict[tuple[str, str], list[pylogseg.Record]]
TOPICS = {"orders": 2, "state": 1, "again": 1, "empty": 1}
SETTINGS = {"orders": {"retention.ms": "-1", "internal.segment.bytes": "2000"},
            "state": {"cleanup.policy": "compact", "internal.segment.bytes": "2000"}}  # fmt: skip


def rows_of(disk: Any) -> Rows:
    """All records of all partitions, with both isolations."""
    disk = pylogseg.open_dir(disk) if isinstance(disk, (str, Path)) else disk
    return {
        (part.name, isolation): list(pylogseg.read(part, isolation_level=isolation))
        for part in disk.partitions
        if part.is_live
        for isolation in ISOLATIONS
    }


class History:
    """A directory of a broker of ours, with an archive that has points of it; what was there at each, by its id."""

    def __init__(self, root: Path, **how: Any) -> None:
        self.home, self.archiver = root / "home", Archiver(root / "archive", root / "home", **how)
        self.rows: dict[str, Rows] = {}
        self.offsets: dict[str, dict[tuple[str, int], int]] = {}
        self._number = 0
        with pylogseg.Broker(self.home) as broker:
            for name, count in TOPICS.items():
                broker.create_topic(name, count, SETTINGS.get(name))

    @property
    def url(self) -> str:
        return self.archiver.url

    def write(self, count: int = 60) -> None:
        """Write plain records, transactions that are committed, aborted and left open, and offsets of a group."""
        with pylogseg.Broker(self.home) as broker:
            for _ in range(count):
                number = self._number = self._number + 1
                broker.produce("orders", b"%d " % number * 20, key=b"k%d" % number, partition=number % 2)
                broker.produce(
                    "state", b"state %d " % number * 10, key=b"k%d" % (number % 7), headers={"n": b"%d" % number}
                )
                broker.produce("again", b"%d" % number)
            settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
            for name in ("commit", "abort", "open"):
                producer = confluent_kafka.Producer({**settings, "transactional.id": name})
                producer.init_transactions(PATIENCE_S)
                producer.begin_transaction()
                for partition in range(2):
                    producer.produce("orders", f"{name} {self._number}".encode(), partition=partition)
                producer.flush(PATIENCE_S)
                if name != "open":
                    (producer.commit_transaction if name == "commit" else producer.abort_transaction)(PATIENCE_S)
            consumer = confluent_kafka.Consumer({**settings, "group.id": "g"})
            places = [confluent_kafka.TopicPartition("orders", p, self._number // 2 + p) for p in range(2)]
            consumer.commit(offsets=places, asynchronous=False)
            consumer.close()
            broker.stop()

    def compact(self) -> None:
        """Compact what is to be compacted, as a broker's cleaner."""
        assert not offline.compact(self.home, topic="state", config=SETTINGS["state"]).failed

    def delete_records(self, offset: int) -> None:
        """Delete the first records of a partition."""
        offline.delete_records(self.home, {"orders-0": offset})

    def recreate(self) -> None:
        """Delete a topic and make one of the same name."""
        with pylogseg.Broker(self.home) as broker:
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            admin.delete_topics(["again"])["again"].result(PATIENCE_S)
            broker.create_topic("again", 2)
            broker.produce("again", b"anew", partition=1)

    def point(self) -> Point:
        """Write a point, and remember what is there."""
        with pylogseg.Broker(self.home) as broker:
            self.archiver.settings = {
                pylogseg.format.uuids.format_uuid(topic.id): dict(topic.settings)
                for topic in broker.catalog.topics.values()
            }
            self.archiver.settings = {id: each for id, each in self.archiver.settings.items() if each}
            offsets = broker.committed("g") if self._number else {}
        found = self.archiver.point()
        self.rows[found.id], self.offsets[found.id] = rows_of(self.home), offsets
        return found

    def run(self) -> None:
        """A short life, with a point after each thing that happens."""
        for step in self.steps:
            step()
            self.point()

    @property
    def steps(self) -> list[Callable[[], None]]:
        """What happens."""
        return [self.write, self.write, self.compact, lambda: self.delete_records(40), self.recreate, self.write]
