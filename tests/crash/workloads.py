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


def _steps(words: str) -> Callable[[Witness], None]:
    """Return work of some words, behind an opening of the log: what the witness does, with a number or without.

    `append:3` appends a batch of three records, `produce:2` the batch of a producer with this sequence number, and
    `epoch:1` begins an epoch.
    """

    def run(w: Witness) -> None:
        w.open()
        for word in words.split():
            name, _, number = word.partition(":")
            if name == "append":
                w.append(count=int(number or 1))
            elif name == "produce":
                w.append(producer=Producer(1, 0, int(number)))
            elif name == "epoch":
                w.epoch = int(number)
            else:
                getattr(w, name)(*([int(number)] if number else []))

    return run


def _full(w: Witness) -> None:
    """Rolls by size; the background flush behind each makes the sealed ones durable."""
    w.open()
    for _ in range(14):
        w.append(90)
    w.flush(w.opened.log_end_offset - 2)
    w.append(90)


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


_PREALLOCATED = TINY.with_changes(preallocate=True)

#: The last segment is empty: if it alone came back, the producer would be ahead of the batches.
_THREE_OF_A_PRODUCER = "produce:0 roll produce:1 roll produce:2 roll"
_ROLL = _steps("append roll append flush append")
_TRUNCATE_SEGMENTS = _steps(
    "append append roll " * 3 + "append flush truncate:1 epoch:1 append append flush append advance:2000"
)

#: Up to 40 operations of the storage: all images are looked at.
SHORT = [
    Workload("appends", _steps("append append:3 flush append")),
    Workload("flush each", _steps("append append append append"), TINY.with_changes(flush_messages=1)),
    Workload("roll", _ROLL),
    Workload("truncate", _steps("append append append append flush truncate:2 append flush")),
    Workload("truncate fully", _steps("append append flush truncate_fully:50 append flush advance:2000")),
    # The new segment has the name of the old one.
    Workload("truncate fully to the same offset", _steps("append append flush truncate_fully:0 append flush")),
    Workload("close and open", _steps("produce:0 close open produce:1 flush")),
    Workload("preallocated", _ROLL, _PREALLOCATED),
]

#: More operations: images are drawn.
LONG = [
    Workload("full segments", _full),
    Workload("truncate segments", _TRUNCATE_SEGMENTS),
    Workload("truncate, preallocated", _TRUNCATE_SEGMENTS, _PREALLOCATED),
    Workload("truncate a producer", _steps(f"{_THREE_OF_A_PRODUCER} truncate:1 append flush")),
    Workload("truncate a producer fully", _steps(f"{_THREE_OF_A_PRODUCER} truncate_fully:0 append flush")),
    Workload(
        "delete records", _steps("append:2 roll " * 3 + "append flush delete_records:3 append flush advance:2000")
    ),
    Workload("crash and open", _steps("append roll append crash open append flush")),
    Workload("transactions", _transactions),
    Workload("producers", _producers),
    Workload("epochs", _steps("append epoch:2 append flush truncate:1 epoch:5 append append flush")),
    Workload("split", _steps("append flush"), begin=_overflowed),
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
