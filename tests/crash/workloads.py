"""What a log may be in the middle of when the plug is pulled: short lists of work, and random long ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from crash.promises import FOLDER, NOW_MS, TINY, Producer, Promise, Witness, Written
from pylogseg.config import LogConfig
from pylogseg.env.storage import Storage
from pylogseg.errors import OutOfOrderSequenceError
from pylogseg.reading.arrow.encode import encode
from pylogseg.testing.memory import MemoryStorage


class Workload(NamedTuple):
    """Something to do with a log.

    Attributes
    ----------
    name : str
    run : callable
        ``run(witness)`` does it.
    config : LogConfig
    begin : callable, optional
        ``begin(storage)`` puts files there first; the batches in them.
    """

    name: str
    run: Callable[[Witness], None]
    config: LogConfig = TINY
    begin: Callable[[MemoryStorage], list[Written]] | None = None

    def prepared(self) -> tuple[MemoryStorage, list[Written]]:
        """A storage with what the work begins with, all of it durable."""
        storage = MemoryStorage()
        storage.make_folder(FOLDER)
        written = self.begin(storage) if self.begin is not None else []
        return MemoryStorage(storage.state), written

    def witnessed(self, storage: Storage, note: Callable[[Promise], object], written: list[Written]) -> Witness:
        """A witness for it, who has noted the first promise."""
        witness = Witness(storage, note, self.config, written=written)
        witness.promised()
        return witness


def _appends(w: Witness) -> None:
    w.open()
    w.append()
    w.append(count=3)
    w.flush()
    w.append()


def _flush_each(w: Witness) -> None:
    w.open()
    for _ in range(4):
        w.append()


def _roll(w: Witness) -> None:
    w.open()
    w.append()
    w.roll()
    w.append()
    w.flush()
    w.append()


def _full(w: Witness) -> None:
    """Rolls by size; the background flush behind each makes the sealed ones durable."""
    w.open()
    for _ in range(14):
        w.append(90)
    w.flush(w.opened.log_end_offset - 2)
    w.append(90)


def _truncate(w: Witness) -> None:
    w.open()
    for _ in range(4):
        w.append()
    w.flush()
    w.truncate(2)
    w.append()
    w.flush()


def _truncate_segments(w: Witness) -> None:
    w.open()
    for _ in range(3):
        w.append()
        w.append()
        w.roll()
    w.append()
    w.flush()
    w.truncate(1)
    w.epoch = 1
    w.append()
    w.append()
    w.flush()
    w.append()
    w.advance(2000)


def _three_of_a_producer(w: Witness) -> None:
    """The last segment is empty: if it alone came back, the producer would be ahead of the batches."""
    w.open()
    for number in range(3):
        w.append(producer=Producer(1, 0, number))
        w.roll()


def _truncate_producer(w: Witness) -> None:
    _three_of_a_producer(w)
    w.truncate(1)
    w.append()
    w.flush()


def _truncate_producer_fully(w: Witness) -> None:
    _three_of_a_producer(w)
    w.truncate_fully(0)
    w.append()
    w.flush()


def _truncate_fully(w: Witness) -> None:
    w.open()
    w.append()
    w.append()
    w.flush()
    w.truncate_fully(50)
    w.append()
    w.flush()
    w.advance(2000)


def _truncate_fully_same(w: Witness) -> None:
    """The new segment has the name of the old one."""
    w.open()
    w.append()
    w.append()
    w.flush()
    w.truncate_fully(0)
    w.append()
    w.flush()


def _delete_records(w: Witness) -> None:
    w.open()
    for _ in range(3):
        w.append(count=2)
        w.roll()
    w.append()
    w.flush()
    w.delete_records(3)
    w.append()
    w.flush()
    w.advance(2000)


def _reopen(w: Witness) -> None:
    w.open()
    w.append(producer=Producer(1, 0, 0))
    w.close()
    w.open()
    w.append(producer=Producer(1, 0, 1))
    w.flush()


def _reopen_after_crash(w: Witness) -> None:
    w.open()
    w.append()
    w.roll()
    w.append()
    w.crash()
    w.open()
    w.append()
    w.flush()


def _transactions(w: Witness) -> None:
    w.open()
    one, two = Producer(1, 0, 0, True), Producer(2, 0, 0, True)
    w.append(producer=one)
    w.append(producer=two)
    w.end_txn("abort", one)
    w.append(producer=one._replace(sequence=1))
    w.flush()
    w.replicate()
    w.end_txn("commit", two)
    w.roll()
    w.append()
    w.end_txn("abort", one)
    w.flush()


def _producers(w: Witness) -> None:
    w.open()
    for number in range(4):
        w.append(count=2, producer=Producer(7, 0, 2 * number))
        if number == 1:
            w.roll()
    w.flush()
    w.append(producer=Producer(7, 1, 0))
    w.append(producer=Producer(8, 0, 0))


def _epochs(w: Witness) -> None:
    w.open()
    w.append()
    w.epoch = 2
    w.append()
    w.flush()
    w.truncate(1)
    w.epoch = 5
    w.append()
    w.append()
    w.flush()


def _overflowed(storage: MemoryStorage) -> list[Written]:
    """A segment with offsets that are too far apart, as compaction of older brokers left them, and no index."""
    written, data = [], b""
    for number, offset in enumerate([0, 1, 2**31 + 5, 2**31 + 6]):
        rows = [{"offset": offset, "timestamp": NOW_MS - 100 + number, "key": None, "value": b"v%d" % number}]
        batch = bytes(encode(rows, leader_epoch=0))
        written.append(Written(batch, offset, offset, NOW_MS - 100 + number, 0, 0))
        data += batch
    storage.write_plain(f"{FOLDER}/{0:020d}.log", data)
    storage.write_plain(f"{FOLDER}/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    return written


def _split(w: Witness) -> None:
    w.open()
    w.append()
    w.flush()


_PREALLOCATED = TINY.with_changes(preallocate=True)

#: Up to 40 operations of the storage: all images are looked at.
SHORT = [
    Workload("appends", _appends),
    Workload("flush each", _flush_each, TINY.with_changes(flush_messages=1)),
    Workload("roll", _roll),
    Workload("truncate", _truncate),
    Workload("truncate fully", _truncate_fully),
    Workload("truncate fully to the same offset", _truncate_fully_same),
    Workload("close and open", _reopen),
    Workload("preallocated", _roll, _PREALLOCATED),
]

#: More operations: images are drawn.
LONG = [
    Workload("full segments", _full),
    Workload("truncate segments", _truncate_segments),
    Workload("truncate, preallocated", _truncate_segments, _PREALLOCATED),
    Workload("truncate a producer", _truncate_producer),
    Workload("truncate a producer fully", _truncate_producer_fully),
    Workload("delete records", _delete_records),
    Workload("crash and open", _reopen_after_crash),
    Workload("transactions", _transactions),
    Workload("producers", _producers),
    Workload("epochs", _epochs),
    Workload("split", _split, begin=_overflowed),
]


def random_workload(seed: int, steps: int = 25) -> Workload:
    """Anything in any order."""

    def run(w: Witness) -> None:
        w.open()
        Wanderer(w, seed).walk(steps)

    changes = random.Random(seed)
    config = TINY.with_changes(preallocate=changes.random() < 0.3, flush_messages=changes.choice([1, 5, 2**62]))
    return Workload(f"random {seed}", run, config)


class Wanderer:
    """Does anything to a log, in any order.

    Parameters
    ----------
    witness : Witness
        Of a log that is open.
    seed : int
        The same seed does the same.
    large : bool
        Whether to append batches of several pages too.
    """

    def __init__(self, witness: Witness, seed: int, *, large: bool = False) -> None:
        self.witness, self.choose = witness, random.Random(seed)
        self.sizes = [(60, 1), (700, 3), (5000, 1), (4096, 2)] if large else [(20, 1), (60, 1), (250, 1), (60, 4)]
        self.sequences: dict[tuple[int, int], int] = {}
        self.open_txns: set[int] = set()

    def walk(self, steps: int) -> None:
        """Take some steps."""
        step: Callable[[], object]
        for _ in range(steps):
            step = self.choose.choices(
                [
                    self._append,
                    self._produce,
                    self._transact,
                    self._flush,
                    self._roll,
                    self._cut,
                    self._delete,
                    self._again,
                ],
                [8, 4, 3, 4, 2, 2, 1, 1],
            )[0]
            step()

    def _append(self) -> None:
        self.witness.append(*self.choose.choice(self.sizes))

    def _produce(self, producer_id: int = 0, *, transactional: bool = False) -> None:
        """An idempotent producer; after a truncation it begins a new epoch."""
        producer_id = producer_id or self.choose.choice((1, 2))
        count = self.choose.choice((1, 2))
        epoch = self.witness.epoch
        sequence = self.sequences.get((producer_id, epoch), 0)
        try:
            self.witness.append(count=count, producer=Producer(producer_id, epoch, sequence, transactional))
        except OutOfOrderSequenceError:  # its records were deleted, and the log has forgotten them
            self.witness.append(count=count)
        else:
            self.sequences[producer_id, epoch] = sequence + count
            if transactional:
                self.open_txns.add(producer_id)

    def _transact(self) -> None:
        producer_id = self.choose.choice((11, 12))
        if producer_id in self.open_txns and self.choose.random() < 0.5:
            self.open_txns.discard(producer_id)
            self.witness.end_txn(
                self.choose.choice(("commit", "abort")), Producer(producer_id, self.witness.epoch, 0, True)
            )
        else:
            self._produce(producer_id, transactional=True)

    def _flush(self) -> None:
        self.witness.flush()

    def _roll(self) -> None:
        if self.witness.opened.active.size:
            self.witness.roll()

    def _cut(self) -> None:
        """Another leader has taken over: the end is cut, and a new epoch begins."""
        log = self.witness.opened
        if self.open_txns or not self.witness.live:
            return
        at = self.witness.history[self.choose.choice(self.witness.live[-6:])].base
        if at < log.log_start_offset:
            return
        if self.choose.random() < 0.15:
            self.witness.truncate_fully(log.log_end_offset + self.choose.choice((0, 3)))
        else:
            self.witness.truncate(at)
        self.witness.epoch += 1

    def _delete(self) -> None:
        log = self.witness.opened
        if log.log_end_offset > log.log_start_offset:
            self.witness.delete_records(self.choose.randint(log.log_start_offset + 1, log.log_end_offset))

    def _again(self) -> None:
        (self.witness.close if self.choose.random() < 0.5 else self.witness.crash)()
        self.witness.open()
        self.witness.advance(2000)
