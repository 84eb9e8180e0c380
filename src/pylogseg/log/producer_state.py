"""The state of one producer in a log, and the checks of its appends.

An append is checked against the state without changing it: `ProducerAppend` collects the changes, and
`Producers.update` applies them when the bytes are written. Rules: KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from pylogseg._native._append import Batch
from pylogseg.errors import FencedError, OutOfOrderSequenceError, RequestError, TransactionStateError
from pylogseg.log.transaction_markers import Marker

#: Number of batches remembered per producer, to detect duplicates.
CACHED_BATCHES = 5
#: No transaction version given.
UNKNOWN_VERSION = -1

_HIGHEST_SEQUENCE = 0x7FFFFFFF
_HIGHEST_EPOCH = 0x7FFF


class Origin(enum.Enum):
    """The origin of an append; it decides the checks."""

    CLIENT = "client"
    """A producer: all checks."""
    COORDINATOR = "coordinator"
    """A coordinator of groups or transactions: no sequences, control records allowed."""
    REPLICATION = "replication"
    """The partition's leader, which has checked: offsets are kept, epochs only noted."""


class CachedBatch(NamedTuple):
    """A batch that is remembered."""

    last_sequence: int
    last_offset: int
    offset_delta: int  #: Last less first offset, and last less first sequence.
    timestamp: int  #: The greatest in it, ms.

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record; 2^31-1 comes before 0."""
        if self.last_sequence < self.offset_delta:
            return _int32(_HIGHEST_SEQUENCE - (self.offset_delta - self.last_sequence) + 1)
        return _int32(self.last_sequence - self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTxn(NamedTuple):
    """A transaction whose marker is being appended; its last offset is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(slots=True)
class Txn:
    """A transaction that holds back the last stable offset."""

    producer_id: int
    first_offset: int
    segment_base: int = -1  #: Where its first batch lies; -1 where that is not known, as after a load.
    position: int = -1
    last_offset: int = -1  #: Of its marker; -1 as long as it is open.


class ProducerState:
    """The state of one producer."""

    __slots__ = ("batches", "coordinator_epoch", "first_txn_offset", "last_timestamp", "producer_epoch", "producer_id")

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = -1,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        first_txn_offset: int = -1,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch  #: Of its last marker; -1 none.
        self.last_timestamp = last_timestamp  #: Of its last batch or marker, ms.
        self.first_txn_offset = first_txn_offset  #: Where its open transaction began; -1 if none is open.
        self.batches: list[CachedBatch] = []  #: Its last five at most, oldest first, all of its epoch.

    def __repr__(self) -> str:
        return (
            f"ProducerState({self.producer_id}, epoch {self.producer_epoch}, {len(self.batches)} batches, "
            f"open transaction from {self.first_txn_offset})"
        )

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record of its last batch; -1 without one."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def has_open_txn(self) -> bool:
        return self.first_txn_offset >= 0

    def find(self, producer_epoch: int, first_sequence: int, last_sequence: int) -> CachedBatch | None:
        """Return the remembered batch with exactly these sequences, if there is one."""
        if producer_epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        return None

    def add_batch(self, producer_epoch: int, batch: CachedBatch) -> None:
        """Remember a batch; forget batches of another epoch."""
        self.set_epoch(producer_epoch)
        self._remember(batch)
        self.last_timestamp = batch.timestamp

    def set_epoch(self, producer_epoch: int) -> None:
        """Set a new epoch, which begins without batches."""
        if self.producer_epoch != producer_epoch:
            self.batches = []
            self.producer_epoch = producer_epoch

    def update(self, newer: ProducerState) -> None:
        """Apply the changes of an append."""
        self.set_epoch(newer.producer_epoch)
        for batch in newer.batches:
            self._remember(batch)
        self.coordinator_epoch = newer.coordinator_epoch
        self.first_txn_offset = newer.first_txn_offset
        self.last_timestamp = newer.last_timestamp

    def _remember(self, batch: CachedBatch) -> None:
        if len(self.batches) == CACHED_BATCHES:
            del self.batches[0]
        self.batches.append(batch)


class ProducerAppend:
    """The changes that one append makes to one producer; the current state is not changed."""

    __slots__ = ("_current", "_origin", "started", "updated")

    def __init__(self, current: ProducerState, origin: Origin) -> None:
        self._current = current
        self._origin = origin
        #: With the batches of this append only.
        self.updated = ProducerState(
            current.producer_id,
            current.producer_epoch,
            current.coordinator_epoch,
            current.last_timestamp,
            current.first_txn_offset,
        )
        self.started: list[Txn] = []  #: Transactions that it opens.

    def add_data(self, batch: Batch, segment_base: int = -1, position: int = -1) -> None:
        """Check a batch of records, which has its offsets, and note it; the place is for a transaction that it opens.

        Raises FencedError for an epoch below the last one seen (not in replication), OutOfOrderSequenceError for a
        client's sequence that is not the next, TransactionStateError for a batch outside of the open transaction.
        """
        epoch, first, updated = batch.producer_epoch, batch.base_offset, self.updated
        self._check_epoch(epoch, first, UNKNOWN_VERSION)
        if self._origin is Origin.CLIENT:
            self._check_sequence(epoch, batch.base_sequence, first)
        last = batch.last_offset
        updated.add_batch(epoch, CachedBatch(batch.last_sequence, last, _int32(last - first), batch.max_timestamp))
        transactional = batch.is_transactional
        if updated.first_txn_offset >= 0:
            if not transactional:
                raise TransactionStateError(
                    f"offset {first}: producer {updated.producer_id} has an open transaction from offset "
                    f"{updated.first_txn_offset} on, but the batch is not transactional"
                )
        elif transactional:
            updated.first_txn_offset = first
            self.started.append(Txn(updated.producer_id, first, segment_base, position))

    def add_marker(
        self, batch: Batch, marker: Marker, transaction_version: int = UNKNOWN_VERSION
    ) -> CompletedTxn | None:
        """Check the end of a transaction and note it; return None if no transaction was open.

        Raises FencedError for an older epoch of the producer or the coordinator, and RequestError without a transaction
        version; neither in replication.
        """
        if transaction_version == UNKNOWN_VERSION:
            if self._origin is not Origin.REPLICATION:
                raise RequestError(f"a marker needs a transaction version; the origin is {self._origin.value}")
            transaction_version = 0
        epoch, offset, updated = batch.producer_epoch, batch.base_offset, self.updated
        self._check_epoch(epoch, offset, transaction_version)
        if updated.coordinator_epoch > marker.coordinator_epoch and self._origin is not Origin.REPLICATION:
            raise FencedError(
                f"offset {offset}: coordinator epoch {marker.coordinator_epoch} for producer {updated.producer_id}, "
                f"but {updated.coordinator_epoch} was already seen"
            )
        completed = None
        if updated.first_txn_offset >= 0:
            completed = CompletedTxn(updated.producer_id, updated.first_txn_offset, offset, marker.aborted)
        updated.set_epoch(epoch)
        updated.coordinator_epoch = marker.coordinator_epoch
        updated.first_txn_offset = -1
        updated.last_timestamp = marker.timestamp
        return completed

    def _check_epoch(self, epoch: int, offset: int, version: int) -> None:
        current = self.updated.producer_epoch
        if epoch > current or (epoch == current and version < 2):
            return
        if epoch == current and (self.updated.first_txn_offset < 0 or epoch == _HIGHEST_EPOCH):
            return  # a marker repeated after its answer was lost (KAFKA-19999)
        if self._origin is not Origin.REPLICATION:
            relation = "not above" if version >= 2 else "below"
            raise FencedError(
                f"offset {offset}: epoch {epoch} of producer {self.updated.producer_id} is {relation} {current}, "
                "the last one seen"
            )

    def _check_sequence(self, epoch: int, first: int, offset: int) -> None:
        updated = self.updated
        if epoch != updated.producer_epoch:
            if first != 0 and updated.producer_epoch != -1:
                raise self._out_of_order(
                    offset, first, f"expected 0 in the new epoch {epoch}, after {updated.producer_epoch}"
                )
            return
        last = updated.last_sequence
        if not updated.batches and epoch == self._current.producer_epoch:
            last = self._current.last_sequence
        follows = first == last + 1 or (first == 0 and last == _HIGHEST_SEQUENCE)
        if not follows and self._current.producer_epoch != -1:
            raise self._out_of_order(offset, first, f"the last one is {last}")

    def _out_of_order(self, offset: int, first: int, expected: str) -> OutOfOrderSequenceError:
        return OutOfOrderSequenceError(
            f"offset {offset}: producer {self.updated.producer_id} sends sequence {first}, {expected}"
        )


class Checked(NamedTuple):
    """Result of checking the producers of an append."""

    duplicate: CachedBatch | None  #: The batch in the log that it duplicates; then nothing of the append is written.
    appends: list[ProducerAppend]  #: For `Producers.update`, once the bytes are written.
    completed: list[CompletedTxn]  #: For `Producers.complete`, once their aborts are in the transaction index.


NOTHING = Checked(None, [], [])


def _int32(value: int) -> int:
    """Wrap as Java's int: in a batch from a leader, the last offset may be far from the first."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000
