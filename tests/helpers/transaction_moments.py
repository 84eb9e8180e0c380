"""One transactional id over two partitions, and log directories whose logs end at different moments of it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pylogseg
from pylogseg.errors import PylogsegError
from pylogseg.format.control_batches import marker_batch
from pylogseg.format.messages.framing import encode_coordinator
from pylogseg.log.producer_state import Origin
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.transactions import TOPIC, coordinator_log

NAME, PRODUCER = "app", 7
PLACES = ("orders-0", "orders-1")
STATE = f"{TOPIC}-0"
_STATES = {"Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4, "CompleteAbort": 5}


class Step(NamedTuple):
    """One batch of one of the logs."""

    log: str
    data: bytes
    control: bool = False


class TransactionMoments:
    """What the logs get, in the order of time; `committed` are the values that became committed."""

    def __init__(self, chance: random.Random, version: int, count: int = 4) -> None:
        self._chance, self._version, self._epoch, self._now_ms = chance, version, 0, 1_780_000_000_000
        self.steps: list[Step] = []
        self.committed: set[bytes] = set()
        self.values: list[bytes] = []
        self._sequences: dict[tuple[str, int], int] = {}
        self._note("Empty", ())
        for number in range(count):
            self._transaction(number)

    def _transaction(self, number: int) -> None:
        places = self._chance.choice((PLACES[:1], PLACES[1:], PLACES, PLACES[::-1]))
        end = self._chance.choice(("Commit", "Abort", "Commit", "fence"))
        started = self._tick()
        for i, place in enumerate(places):
            self._note("Ongoing", places[: i + 1], started)
            for _ in range(self._chance.randint(1, 2)):
                value = b"%d in %s: %s" % (number, place.encode(), end.encode())
                self._data(place, value)
                if end == "Commit":
                    self.committed.add(value)
        kind = "Commit" if end == "Commit" else "Abort"
        self._epoch += self._version >= 2 or end == "fence"
        self._note(f"Prepare{kind}", places, started)
        for place in self._chance.sample(places, len(places)):
            data = marker_batch(
                "commit" if kind == "Commit" else "abort",
                base_offset=0,
                timestamp_ms=self._tick(),
                producer_id=PRODUCER,
                producer_epoch=self._epoch,
            )
            self.steps.append(Step(place, bytes(data), True))
        self._note(f"Complete{kind}", self._chance.choice((places, ())), started)
        if end == "fence":
            self._epoch += 1
            self._note("Empty", ())

    def _tick(self) -> int:
        self._now_ms += self._chance.randint(1, 3)
        return self._now_ms

    def _data(self, place: str, value: bytes) -> None:
        sequence = self._sequences.get((place, self._epoch), 0)
        self._sequences[place, self._epoch] = sequence + 1
        time_ms = self._chance.choice((self._tick(), 5))  # an application may have times of its own
        data = data_batch(value, self._epoch, sequence, time_ms)
        self.values.append(value)
        self.steps.append(Step(place, data))

    def _note(self, state: str, places: Iterable[str], started: int = -1) -> None:
        numbers = sorted(int(place[-1]) for place in places)
        self.steps.append(Step(STATE, state_batch(state, self._epoch, numbers, self._version, self._tick(), started)))

    def write(self, root: Path, ends: dict[str, int], *, segment_bytes: int = 1 << 20) -> None:
        """Write a log directory whose logs have so many batches each."""
        for name in (STATE, *PLACES):
            steps = [step for step in self.steps if step.log == name][: ends[name]]
            with pylogseg.open_log(root / name, segment_bytes=segment_bytes) as log:
                for step in steps:
                    origin = Origin.COORDINATOR if step.control or name == STATE else Origin.CLIENT
                    log.engine.append_as_leader(bytearray(step.data), 0, origin=origin)

    def count(self, name: str) -> int:
        """The batches of a log at the end."""
        return sum(step.log == name for step in self.steps)


def data_batch(value: bytes, epoch: int, sequence: int, time_ms: int = 5) -> bytes:
    """A record of the producer."""
    return bytes(
        pylogseg.encode([(time_ms, None, value)], base_offset=0, producer_id=PRODUCER, producer_epoch=epoch,
                        base_sequence=sequence, transactional=True)
    )  # fmt: skip


def state_batch(
    state: str, epoch: int, numbers: list[int], version: int, now_ms: int, started: int, **more: Any
) -> bytes:
    """A record of the coordinator's log."""
    fields = {
        "producerId": PRODUCER,
        "producerEpoch": epoch,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": _STATES[state],
        "transactionPartitions": [{"topic": "orders", "partitionIds": numbers}] if numbers else [],
        "transactionLastUpdateTimestampMs": now_ms,
        "transactionStartTimestampMs": started,
        "clientTransactionVersion": version,
        **more,
    }
    if state == "Empty":
        fields["transactionPartitions"] = None
    pair = encode_coordinator("TransactionLog", {"transactionalId": NAME}, 1, fields)
    return bytes(pylogseg.encode([(now_ms, *pair)], base_offset=0))


def coordinator_starts(root: Path, version: int) -> list[str]:
    """Do what a broker does at its start, and its client then: markers of what is prepared, and a transaction.

    Each of the two partitions gets a record. Returns what is refused.
    """
    current = coordinator_log(pylogseg.open_dir(root), CutOff(), ()).current.get(NAME)
    if current is None:
        return []
    refused: list[str] = []
    status, epoch = current["transactionStatus"], current["producerEpoch"]
    places = [f"orders-{n}" for each in current["transactionPartitions"] or () for n in each["partitionIds"]]
    kind: Literal["commit", "abort"] = "commit" if status == _STATES["PrepareCommit"] else "abort"
    if status == _STATES["Ongoing"]:  # the client that begins fences it
        epoch += 1
    if status in (_STATES["Ongoing"], _STATES["PrepareCommit"], _STATES["PrepareAbort"]):
        refused += _marked(root, places, kind, epoch, version)
    epoch += 1
    for place in PLACES:
        with pylogseg.open_log(root / place) as log:
            try:
                log.engine.append_as_leader(bytearray(data_batch(b"next", epoch, 0)), 0)
            except PylogsegError as error:
                refused.append(f"{place}: the first batch: {error}")
    return refused + _marked(root, PLACES, "commit", epoch + (version >= 2), version)


def _marked(root: Path, places: Iterable[str], kind: Literal["commit", "abort"], epoch: int, version: int) -> list[str]:
    refused = []
    for place in places:
        with pylogseg.open_log(root / place) as log:
            data = marker_batch(kind, base_offset=0, timestamp_ms=9, producer_id=PRODUCER, producer_epoch=epoch)
            try:
                log.engine.append_as_leader(data, 0, origin=Origin.COORDINATOR, transaction_version=version)
            except PylogsegError as error:
                refused.append(f"{place}: the marker: {error}")
    return refused
