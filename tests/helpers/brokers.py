"""Three brokers with one partition, made of the engine: leaders, followers that lag, elections, crashes, damage.

A broker is a `Log` in a log directory of its own. Followers cut and fetch as the protocol has it (KIP-101, KIP-279),
by the engine's own leader epochs; what replicas have is compared byte by byte.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from helpers.descriptions import described
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import OffsetOutOfRangeError, OffsetsOutOfOrderError
from pylogseg.format.batches import scan
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Log
from pylogseg.testing.clock import ManualClock

NOW = 1_700_000_000_000
NAME = "t-0"
TOPIC_ID = "b1Gzvhy5SKqdtrTNWzbGow"
CONFIG = LogConfig.of(
    segment_bytes=1500, index_interval_bytes=100, segment_index_bytes=4096, segment_ms=2**62, file_delete_delay_ms=0
)
META = "#\n#Sat Nov 21 06:35:13 UTC 2026\nversion=1\ncluster.id=3Db5QLSqSZieL3rJBUUegA\nnode.id={}\n"


class Batch(NamedTuple):
    """A batch of a log, and where it lies."""

    first: int
    end: int
    data: bytes
    segment: int
    position: int


class Broker:
    """One of the three."""

    def __init__(self, folder: Path, node_id: int, config: LogConfig = CONFIG) -> None:
        self.folder, self.node_id, self.config = folder, node_id, config
        self.in_order = True
        folder.mkdir(parents=True)
        (folder / "meta.properties").write_text(META.format(node_id))
        self.start()

    def start(self) -> None:
        self.directory = LogDirectory(LocalStorage(), str(self.folder))
        begin = self.directory.claim(NAME)
        # The time of the records: a broker forgets producers that were silent for a day, and with all gone it takes
        # the state of an older snapshot as it is after a truncation: replicas would differ.
        environment = Environment(self.directory.storage, ManualClock(NOW), CollectingScheduler())
        self.log = Log.open(environment, str(self.folder / NAME), self.config, begin, topic_id=TOPIC_ID)
        self.log.update_high_watermark(min(begin.high_watermark, self.log.log_end_offset))
        self.directory.attach(NAME, self.log)
        if not self.directory.was_clean:
            self.directory.checkpoint()

    def stop(self) -> None:
        self.log.flush()
        self.log.close()
        self.directory.release(NAME, clean=True)
        self.directory.close()

    def kill(self) -> None:
        """Let go of everything as it is."""
        self.log.close_handles()
        self.directory._lock.release()

    def batches(self, *, deleted: bool = False) -> list[Batch]:
        """All batches from the log's start on, or also those below that are in its files."""
        found = []
        for segment in self.log.segments:
            data = segment.log.read(0, segment.size)
            rows = scan(data).batches
            for base, last, at, size in zip(
                rows.base_offset.tolist(),
                rows.last_offset.tolist(),
                rows.position.tolist(),
                rows.size.tolist(),
                strict=True,
            ):
                if deleted or last >= self.log.log_start_offset:
                    found.append(Batch(base, last + 1, bytes(data[at : at + size]), segment.base_offset, at))
        return found

    def open_txns(self) -> set[int]:
        """Producers with a transaction that has no end in the log."""
        found: set[int] = set()
        for batch in self.batches():
            row = scan(batch.data).batches
            if row.is_control[0]:
                found.discard(int(row.producer_id[0]))
            elif row.is_transactional[0]:
                found.add(int(row.producer_id[0]))
        return found


class Cluster:
    """Three brokers, changed at random by `step`."""

    def __init__(self, folder: Path, chance: random.Random, *, unclean: bool = True) -> None:
        self.chance, self.unclean = chance, unclean
        self.brokers = [Broker(folder / f"b{number}", number) for number in range(1, 4)]
        self.leader, self.epoch, self.number = self.brokers[0], 0, 0
        self.in_sync = list(self.brokers)
        self.open_txns: set[int] = set()
        #: Below it, records were deleted and came back by a crash, without their leader epochs: a follower that is cut
        #: there keeps what it has, so replicas may differ. A broker of Kafka does the same.
        self.came_back = 0
        self.deleted = 0  #: Up to where a leader deleted records, which another one may still have.
        self.leader.log.epochs.assign(0, 0)

    def step(self) -> None:
        todo = [(self.write, 10), (self.fetch, 12), (self.elect_clean, 1.5), (self.kill, 1.5), (self.checkpoint, 2),
                (self.delete_records, 0.3)]  # fmt: skip
        if self.unclean:
            todo.append((self.elect_any, 1.5))
        steps, weights = zip(*todo, strict=True)
        self.chance.choices(steps, weights)[0]()

    def write(self) -> None:
        chance = self.chance
        for _ in range(chance.randint(1, 3)):
            base, spec = self.leader.log.log_end_offset, {}
            if self.open_txns and chance.random() < 0.3:
                producer = chance.choice(sorted(self.open_txns))
                self.open_txns.remove(producer)
                spec = {"control": chance.choice(["commit", "abort"]), "producer_id": producer, "producer_epoch": 0}
                spec["timestamp"] = NOW + self.number
            else:
                spec = self._data(base)
            data = described([{**spec, "base_offset": base, "leader_epoch": self.epoch}])
            self.leader.log.append_as_follower(data, self.epoch)
            self.number += 1
        if chance.random() < 0.3:
            end = self.leader.log.log_end_offset
            self.in_sync = [each for each in self.in_sync if each is self.leader or each.log.log_end_offset == end]
        self.advance()

    def _data(self, base: int) -> dict[str, object]:
        chance = self.chance
        records = [
            {"timestamp": NOW + self.number, "value": f"{self.number}-{i}" * chance.randint(1, 6), "offset": base + i}
            for i in range(chance.randint(1, 4))
        ]
        spec: dict[str, object] = {"records": records, "compression": chance.choice(["none", "zstd", "lz4"])}
        if chance.random() < 0.4:
            producer = chance.randint(1, 3)
            self.open_txns.add(producer)
            spec |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.number, "transactional": True}
        return spec

    def advance(self) -> None:
        """Move the leader's high watermark."""
        committed = min(each.log.log_end_offset for each in self.in_sync)
        if committed > self.leader.log.high_watermark:
            self.leader.log.update_high_watermark(committed)

    def fetch(self) -> None:
        follower = self.chance.choice([each for each in self.brokers if each is not self.leader])
        self.follow(follower, self.chance.choice((200, 800, 100_000)))

    def follow(self, follower: Broker, most: int) -> None:
        mine, led = follower.log, self.leader.log
        self._cut(follower)
        if mine.log_end_offset < led.log_start_offset:
            # From the batch that the leader's log begins in, as a follower does when it gets that.
            batches = self.leader.batches()
            mine.truncate_fully(min(batches[0].first if batches else led.log_start_offset, led.log_start_offset))
        try:
            while most > 0 and mine.log_end_offset < led.log_end_offset:
                data = bytes(led.fetch(mine.log_end_offset, min(most, 1000)).data)
                rows = scan(data).batches
                data = data[: int(rows.position[-1] + rows.size[-1])]
                for at, size in zip(rows.position.tolist(), rows.size.tolist(), strict=True):
                    mine.append_as_follower(data[at : at + size], self.epoch)
                most -= len(data)
        except (OffsetOutOfRangeError, OffsetsOutOfOrderError):  # its history is too old to compare: it begins again
            batches = self.leader.batches()
            mine.truncate_fully(batches[0].first if batches else led.log_end_offset)
        if mine.log_start_offset < led.log_start_offset:
            mine.update_high_watermark(min(led.high_watermark, mine.log_end_offset))
            if led.log_start_offset <= mine.high_watermark:
                mine.increment_log_start(led.log_start_offset)
                mine.delete_below_start()
        if mine.log_end_offset == led.log_end_offset and follower not in self.in_sync:
            self.in_sync.append(follower)
        self.advance()
        mine.update_high_watermark(min(led.high_watermark, mine.log_end_offset))

    def _cut(self, follower: Broker) -> None:
        """Ask the leader where epochs end, until both agree on one."""
        mine, led = follower.log, self.leader.log
        epoch = mine.epochs.latest_epoch
        while epoch >= 0:
            theirs, end = led.epochs.end_offset_for(epoch, led.log_end_offset)
            if theirs < 0:
                mine.truncate_to(min(mine.log_end_offset, led.log_end_offset))
                return
            own, own_end = mine.epochs.end_offset_for(theirs, mine.log_end_offset)
            if own == theirs:
                mine.truncate_to(min(end, own_end))
                return
            lower = [entry.epoch for entry in mine.epochs.entries if entry.epoch < epoch]
            if not lower:
                mine.truncate_to(min(end, mine.log_end_offset))
                return
            mine.truncate_to(min(own_end, mine.log_end_offset) if own >= 0 else mine.log_end_offset)
            epoch = lower[-1]

    def elect_clean(self) -> None:
        self.elect(self.chance.choice(self.in_sync))

    def elect_any(self) -> None:
        self.elect(self.chance.choice(self.brokers))

    def elect(self, broker: Broker) -> None:
        self.epoch += 1
        if broker not in self.in_sync:
            self.in_sync = [broker]
        self.leader = broker
        self.open_txns = broker.open_txns()
        broker.log.epochs.assign(self.epoch, broker.log.log_end_offset)
        self.advance()

    def kill(self) -> None:
        """One crashes, and starts again at once, or after an election."""
        broker = self.chance.choice(self.brokers)
        start = broker.log.log_start_offset
        broker.kill()
        broker.start()
        if broker.log.log_start_offset < start:
            self.came_back = max(self.came_back, start)
        if broker is self.leader:
            others = [each for each in self.in_sync if each is not broker]
            self.elect(self.chance.choice(others or [broker]))

    def checkpoint(self) -> None:
        self.chance.choice(self.brokers).directory.checkpoint()

    def delete_records(self) -> None:
        log = self.leader.log
        ends = [batch.end for batch in self.leader.batches() if batch.end <= log.high_watermark]
        if ends:
            log.increment_log_start(self.chance.choice(ends))
            log.delete_below_start()
            self.deleted = max(self.deleted, log.log_start_offset)


def replicas(folder: Path, seed: int = 7, segments: int = 4) -> tuple[list[Path], list[Batch]]:
    """The disks of three brokers that were stopped, with the same log of so many segments; and its batches."""
    cluster = Cluster(folder, random.Random(seed), unclean=False)
    while len({batch.segment for batch in cluster.leader.batches()}) < segments:
        cluster.write()
    for broker in cluster.brokers[1:]:
        cluster.follow(broker, 1 << 30)
    batches = cluster.leader.batches()
    for broker in cluster.brokers:
        broker.stop()
    return [broker.folder for broker in cluster.brokers], batches
