"""A transaction as its coordinator knows it, as a state machine: no I/O, no threads, and a clock that the caller has.

A client gets a producer id and an epoch for its transactional id; a newer client with the same transactional id gets a
greater epoch, which fences the older one. The first partition begins a transaction. At its end it is *prepared*: the
decision has been made, and whoever has the machine writes markers into all partitions; then it is complete.

With version 2 (KIP-890) each end raises the epoch, so that nothing that comes late belongs to the next transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.names import TopicPartition

MOST_TIMEOUT_MS = 15 * 60 * 1000
#: An id that nobody has used for so long is forgotten: ``transactional.id.expiration.ms``.
EXPIRATION_MS = 7 * 24 * 60 * 60 * 1000
#: The greatest epoch; a client gets one below it at most, so that a fence has room.
LAST_EPOCH = 2**15 - 1


class TransactionState(Enum):
    """State of a transaction; the value is its number in Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_prepared(self) -> bool:
        """True if markers have to be written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class ProducerIdAndEpoch(NamedTuple):
    """Id and epoch of a producer; -1 and -1 are none."""

    id: int = -1
    epoch: int = -1


NOBODY = ProducerIdAndEpoch()


class TransactionEnd(NamedTuple):
    """The markers that end a transaction."""

    producer: ProducerIdAndEpoch  #: Of the markers.
    commits: bool
    places: tuple[TopicPartition, ...]  #: Partitions that get one.
    version: int  #: Of transactions, by which the engine checks the epoch of the markers.


@dataclass
class Transaction:
    """The current transaction of a transactional id; times are milliseconds."""

    id: str
    producer: ProducerIdAndEpoch
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    places: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    #: Its producer before the last change, which may ask again because an answer was lost.
    previous: ProducerIdAndEpoch = NOBODY
    started_ms: int = -1
    updated_ms: int = -1
    version: int = 0
    #: Who gets to use it when the markers are written, if that is another one.
    following: ProducerIdAndEpoch = NOBODY

    # ---- the producer ----

    def init(
        self, now_ms: int, timeout_ms: int, given: ProducerIdAndEpoch, new_id: Callable[[], int]
    ) -> TransactionEnd | None:
        """Let a client take over, which gets `producer`; first an open transaction has to be ended as returned.

        `given` is whom the client was before, if it has a producer that it wants to go on with.
        """
        if self.state.is_prepared:
            raise KafkaError(codes.CONCURRENT_TRANSACTIONS)
        if given != NOBODY and given not in (self.producer, self.previous):
            raise KafkaError(codes.PRODUCER_FENCED)
        if self.state is TransactionState.ONGOING:
            return self._fence(now_ms)
        if given == NOBODY or given == self.producer:
            self.previous, self.producer = given, self._next(self.producer, new_id)
        self.state, self.timeout_ms, self.started_ms, self.updated_ms = TransactionState.EMPTY, timeout_ms, -1, now_ms
        return None

    def _next(self, producer: ProducerIdAndEpoch, new_id: Callable[[], int]) -> ProducerIdAndEpoch:
        return (
            ProducerIdAndEpoch(producer.id, producer.epoch + 1)
            if producer.epoch < LAST_EPOCH - 1
            else ProducerIdAndEpoch(new_id(), 0)
        )

    def _fence(self, now_ms: int) -> TransactionEnd:
        """Abort for another one than its client: a greater epoch keeps that from going on."""
        self.previous = NOBODY
        self.producer = ProducerIdAndEpoch(self.producer.id, min(self.producer.epoch + 1, LAST_EPOCH))
        self.following = NOBODY
        return self._prepare(now_ms, TransactionState.PREPARE_ABORT)

    def check(self, producer: ProducerIdAndEpoch) -> None:
        """Raise KafkaError if a request comes from another producer."""
        if producer.id != self.producer.id:
            raise KafkaError(codes.INVALID_PRODUCER_ID_MAPPING)
        if producer.epoch != self.producer.epoch:
            raise KafkaError(codes.PRODUCER_FENCED)

    # ---- the transaction ----

    def add(
        self,
        now_ms: int,
        producer: ProducerIdAndEpoch,
        places: Iterable[TopicPartition] = (),
        groups: Iterable[str] = (),
    ) -> bool:
        """Add partitions, and groups whose offsets it commits; begin it if it is not open. Return whether it changes.

        Raises KafkaError for another producer, and while the last one is being ended.
        """
        self.check(producer)
        if self.state.is_prepared:
            raise KafkaError(codes.CONCURRENT_TRANSACTIONS)
        places, groups = set(places), set(groups)
        if self.state is TransactionState.ONGOING and places <= self.places and groups <= self.groups:
            return False
        if self.state is not TransactionState.ONGOING:
            self.state, self.started_ms = TransactionState.ONGOING, now_ms
            self.places, self.groups = set(), set()
        self.places |= places
        self.groups |= groups
        self.updated_ms = now_ms
        return True

    def end(
        self, now_ms: int, producer: ProducerIdAndEpoch, *, commits: bool, version: int, new_id: Callable[[], int]
    ) -> TransactionEnd | None:
        """Commit or abort; None if that was done already, and the client asks again.

        Raises KafkaError for another producer, and where there is nothing to end.
        """
        raises_epoch = version >= 2
        is_repeated = raises_epoch and producer == self.previous and self.state is not TransactionState.ONGOING
        if not is_repeated:
            self.check(producer)
        wanted = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
        if self.state.is_prepared:
            same = (self.state is TransactionState.PREPARE_COMMIT) == commits
            raise KafkaError(codes.CONCURRENT_TRANSACTIONS if same else codes.INVALID_TXN_STATE)
        if self.state is not TransactionState.ONGOING:
            if self.state is wanted and (is_repeated or not raises_epoch):
                return None
            if commits or is_repeated or not raises_epoch:
                raise KafkaError(codes.INVALID_TXN_STATE)
            self.places, self.groups = set(), set()  # an abort of nothing raises the epoch all the same
        self.version = version
        if raises_epoch:
            # The markers have the greater epoch; where there is none, a new id begins behind them.
            following = self._next(producer, new_id)
            self.previous, self.producer = producer, ProducerIdAndEpoch(producer.id, producer.epoch + 1)
            self.following = following
        return self._prepare(now_ms, TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT)

    def expire(self, now_ms: int) -> TransactionEnd | None:
        """Abort it if it has been open for too long."""
        if self.state is not TransactionState.ONGOING or now_ms < self.started_ms + self.timeout_ms:
            return None
        return self._fence(now_ms)

    def _prepare(self, now_ms: int, state: TransactionState) -> TransactionEnd:
        self.state, self.updated_ms = state, now_ms
        return self.ending()

    def ending(self) -> TransactionEnd:
        """Return the partitions and groups of a prepared transaction."""
        commits = self.state is TransactionState.PREPARE_COMMIT
        return TransactionEnd(self.producer, commits, tuple(sorted(self.places)), self.version)

    def complete(self, now_ms: int) -> None:
        self.state = (
            TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT
        )
        if self.following != NOBODY:
            self.producer, self.following = self.following, NOBODY
        self.places, self.groups = set(), set()
        self.started_ms, self.updated_ms = -1, now_ms

    def is_forgotten(self, now_ms: int) -> bool:
        """Return whether nobody has used it for so long that its id is nobody's any more."""
        return self.state is not TransactionState.ONGOING and not self.state.is_prepared and now_ms >= self.next_time()

    def next_time(self) -> float:
        """Return when it expires, or is forgotten."""
        return (
            self.started_ms + self.timeout_ms
            if self.state is TransactionState.ONGOING
            else self.updated_ms + EXPIRATION_MS
        )


def check_timeout(timeout_ms: int) -> None:
    """Raise KafkaError for a timeout that is not allowed."""
    if not 0 < timeout_ms <= MOST_TIMEOUT_MS:
        raise KafkaError(codes.INVALID_TRANSACTION_TIMEOUT)
