"""A cluster of a few brokers as lists: leaders, followers that lag, elections of any kind, truncations, uploads.

A record is a number that is given once, so two logs have the same record where they have the same number. The rules
are those of the protocol, told as plainly as it goes: who becomes leader notes its epoch, who follows cuts what its
leader does not have, and fetches.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pylogseg.disk.lineage.chains import Lineage
from pylogseg.disk.lineage.parts import LogRange
from pylogseg.format.files.checkpoint import EpochEntry


@dataclass
class Replica:
    """The log of one broker: number and epoch of each record, from offset 0 on, and where it begins."""

    records: list[tuple[int, int]] = field(default_factory=list)
    epochs: list[EpochEntry] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def lineage(self) -> Lineage:
        return Lineage.of(self.epochs, self.start, self.end)

    def append(self, number: int, epoch: int) -> None:
        if not self.epochs or self.epochs[-1].epoch != epoch:
            self.note(epoch)
        self.records.append((number, epoch))

    def note(self, epoch: int) -> None:
        while self.epochs and self.epochs[-1].start_offset >= self.end:
            self.epochs.pop()
        self.epochs.append(EpochEntry(epoch, self.end))

    def truncate(self, end: int) -> None:
        del self.records[end:]
        self.epochs = [entry for entry in self.epochs if entry.start_offset < end]
        self.high_watermark, self.start = min(self.high_watermark, end), min(self.start, end)

    def forget(self, start: int) -> None:
        """Move the start, as retention does."""
        self.start = max(self.start, min(start, self.end))
        below = [entry for entry in self.epochs if entry.start_offset <= self.start]
        above = self.epochs[len(below) :]
        self.epochs = [*([EpochEntry(below[-1].epoch, self.start)] if below else []), *above]


@dataclass
class Upload:
    """A segment in a tier, with its records."""

    part: LogRange
    records: list[int]


class History:
    """Replicas and a tier, changed by `step` at random."""

    def __init__(self, chance: random.Random, brokers: int = 3) -> None:
        self.chance = chance
        self.replicas = [Replica() for _ in range(brokers)]
        self.leader, self.epoch, self.next_number = 0, 0, 0
        self.in_sync = set(range(brokers))
        self.uploads: list[Upload] = []
        self.lost = False  #: Whether an election lost committed records.
        self.log[0].note(0)

    @property
    def log(self) -> list[Replica]:
        return self.replicas

    @property
    def led(self) -> Replica:
        return self.replicas[self.leader]

    def step(self) -> None:
        does = self.chance.choices(
            (self.write, self.fetch, self.elect_clean, self.elect_any, self.upload, self.expire), (8, 10, 2, 1, 3, 0.3)
        )
        does[0]()

    def write(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            self.led.append(self.next_number, self.epoch)
            self.next_number += 1
        self.shrink()

    def shrink(self) -> None:
        """Followers that lag leave the in-sync replicas now and then."""
        if self.chance.random() < 0.3:
            self.in_sync = {each for each in self.in_sync if self.log[each].end == self.led.end} | {self.leader}
        self.advance()

    def advance(self) -> None:
        committed = min(self.log[each].end for each in self.in_sync)
        self.led.high_watermark = max(self.led.high_watermark, committed)

    def fetch(self) -> None:
        number = self.chance.randrange(len(self.replicas))
        if number != self.leader:
            self.follow(number, self.chance.choice((2, 5, 100)))

    def follow(self, number: int, most: int) -> None:
        """Cut what the leader does not have, then fetch."""
        mine, led = self.log[number], self.led
        same = next((i for i in range(min(mine.end, led.end)) if mine.records[i] != led.records[i]), None)
        mine.truncate(min(mine.end, led.end) if same is None else same)
        if mine.end < led.start:
            mine.records, mine.epochs, mine.start = led.records[: led.start], [], led.start
        for record, epoch in led.records[mine.end : mine.end + most]:
            mine.append(record, epoch)
        if mine.start < led.start and self.chance.random() < 0.5:
            mine.forget(led.start)
        if mine.end == led.end and mine.end >= led.high_watermark:
            self.in_sync.add(number)
        self.advance()
        mine.high_watermark = max(mine.high_watermark, min(mine.end, led.high_watermark))

    def elect_clean(self) -> None:
        self.elect(self.chance.choice(sorted(self.in_sync)))

    def elect_any(self) -> None:
        self.elect(self.chance.randrange(len(self.replicas)))

    def elect(self, number: int) -> None:
        committed = max(replica.high_watermark for replica in self.replicas)
        self.leader, self.epoch = number, self.epoch + self.chance.randint(1, 2)
        self.lost |= self.led.end < committed or number not in self.in_sync
        self.led.note(self.epoch)
        self.in_sync = {number} if number not in self.in_sync else self.in_sync
        self.advance()

    def upload(self) -> None:
        """The leader uploads what is committed, from where it believes that the tier ends, which may be wrong."""
        ends = [upload.part.end_offset for upload in self.uploads]
        known = self.chance.choice([*ends[-3:], self.led.start])
        first = max(self.led.start, min(known, self.led.end))
        end = min(self.led.high_watermark, first + self.chance.randint(1, 12))
        if first < end:
            self.uploads.append(self.segment(self.led, first, end))

    def segment(self, log: Replica, first: int, end: int) -> Upload:
        epochs = log.lineage.shorten(end).epochs
        if self.chance.random() < 0.5:  # a manifest has only those of the segment
            below = [entry for entry in epochs if entry.start_offset <= first]
            epochs = (*(below[-1:] and [EpochEntry(below[-1].epoch, first)]), *epochs[len(below) :])
        return Upload(LogRange(first, end, epochs), [number for number, _ in log.records[first:end]])

    def expire(self) -> None:
        self.led.forget(self.chance.randint(self.led.start, max(self.led.high_watermark, self.led.start)))
