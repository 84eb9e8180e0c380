"""All transactions of this node: here markers are written, offsets take effect, and time is looked at."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pylogseg.errors import PylogsegError
from pylogseg.format.control_batches import marker_batch
from pylogseg.format.escape import printable
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.names import TopicPartition
from pylogseg.log.producer_state import Origin
from pylogseg.server.group_coordinator import GroupCoordinator
from pylogseg.server.writing.topics import Topics
from pylogseg.server.writing.transactions import (
    NOBODY,
    ProducerIdAndEpoch,
    Transaction,
    TransactionEnd,
    TransactionState,
    check_timeout,
)

_log = logging.getLogger(__name__)
_RETRY_MS = 1000
_MOST_WAIT_S = 3600.0
#: From this version of Produce on a batch adds its partition to the transaction by itself.
ADDS_ITSELF = 12
#: So many ids there may be, and so long.
MOST_IDS, MOST_ID_CHARACTERS = 10_000, 2 << 10


class Journal(Protocol):
    """Where transactions are noted before anything else happens, so that they outlast this process."""

    def note(self, transaction: Transaction) -> None: ...
    def forget(self, name: str) -> None: ...


class TransactionCoordinator:
    """The transactional ids; without a journal nothing of them outlasts the process."""

    def __init__(
        self,
        topics: Topics,
        groups: GroupCoordinator,
        new_id: Callable[[], int],
        now_ms: Callable[[], int],
        journal: Journal | None = None,
    ) -> None:
        self._topics, self._groups, self._new_id, self._now_ms = topics, groups, new_id, now_ms
        self._journal = journal
        self._changed = threading.Condition(threading.RLock())
        self._transactions: dict[str, Transaction] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def resume(self, found: dict[str, Transaction]) -> None:
        """Go on with transactions of an earlier process; end the prepared ones."""
        with self._changed:
            self._transactions.update(found)
            self.tick()
            if self._transactions:
                self._watch()

    # ---- requests ----

    def init(self, name: str, timeout_ms: int, given: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        """Give a client a producer for its transactional id; an open transaction of it is aborted."""
        if not name:
            raise KafkaError(codes.INVALID_REQUEST)
        check_timeout(timeout_ms)
        with self._changed:
            txn = self._transactions.get(name)
            if txn is None:
                if given != NOBODY:
                    raise KafkaError(codes.INVALID_PRODUCER_ID_MAPPING)
                self._check_room(name)
                txn = self._transactions[name] = Transaction(name, ProducerIdAndEpoch(self._new_id(), -1), timeout_ms)
                if self._thread is None:  # a new one is the last to be forgotten: who looks at the time need not hear
                    self._watch()
            now_ms = self._now_ms()
            if txn.init(now_ms, timeout_ms, given, self._new_id) is not None:
                self._finish(txn)
                txn.init(now_ms, timeout_ms, NOBODY, self._new_id)
            self._note(txn)
            return txn.producer

    def _check_room(self, name: str) -> None:
        """Refuse one more id, so that its client does not ask again and again; unused ones are forgotten in time."""
        if len(name) > MOST_ID_CHARACTERS:
            raise KafkaError(codes.INVALID_REQUEST, f"a transactional id has {MOST_ID_CHARACTERS} characters at most")
        if len(self._transactions) >= MOST_IDS:
            many = f"there are {len(self._transactions)} transactional ids already"
            raise KafkaError(codes.POLICY_VIOLATION, f"{many}; one that nobody uses for seven days is forgotten")

    def add(
        self, name: str, producer: ProducerIdAndEpoch, places: Iterable[TopicPartition] = (), groups: Iterable[str] = ()
    ) -> None:
        """Add partitions, and groups, to a transaction."""
        with self._changed:
            self._add(self._find_transaction(name), producer, places, groups)

    def _add(
        self,
        found: Transaction,
        producer: ProducerIdAndEpoch,
        places: Iterable[TopicPartition] = (),
        groups: Iterable[str] = (),
    ) -> None:
        groups = list(groups)
        places = [*places, *filter(None, map(self._groups.place_of, groups))]
        if found.add(self._now_ms(), producer, places, groups):
            self._note(found)
            self._watch()

    @contextlib.contextmanager
    def appending(
        self, name: str | None, producer: ProducerIdAndEpoch, place: TopicPartition, version: int
    ) -> Iterator[None]:
        """Let a batch of a transaction be appended during a ``with``; KafkaError if it does not belong to one."""
        if name is None:
            raise KafkaError(codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the batch names no transactional id")
        with self._changed:
            txn = self._find_transaction(name)
            try:
                txn.check(producer)
            except KafkaError as error:
                fenced = error.code == codes.PRODUCER_FENCED
                raise KafkaError(codes.INVALID_PRODUCER_EPOCH if fenced else error.code) from error
            if version >= ADDS_ITSELF:
                self._add(txn, producer, [place])
            elif txn.state is not TransactionState.ONGOING or place not in txn.places:
                raise KafkaError(codes.INVALID_TXN_STATE, f"{place[0]}-{place[1]} is not part of the transaction")
            yield

    def stage(self, name: str, producer: ProducerIdAndEpoch, group: str, *, adds: bool) -> None:
        """Check that offsets of a group belong to an open transaction; with `adds`, the group is added to it."""
        with self._changed:
            txn = self._find_transaction(name)
            txn.check(producer)
            if adds:
                self._add(txn, producer, groups=[group])
            elif txn.state is not TransactionState.ONGOING or not self._has_group(txn, group):
                raise KafkaError(codes.INVALID_TXN_STATE)

    def _has_group(self, found: Transaction, group: str) -> bool:
        # After a restart only the partition is known that keeps the group's offsets.
        return group in found.groups or self._groups.place_of(group) in found.places

    def end(self, name: str, producer: ProducerIdAndEpoch, *, commits: bool, version: int) -> ProducerIdAndEpoch:
        """Commit or abort; return the producer id and epoch that the client has from then on."""
        with self._changed:
            txn = self._find_transaction(name)
            if txn.end(self._now_ms(), producer, commits=commits, version=version, new_id=self._new_id) is not None:
                self._finish(txn)
            return txn.producer if txn.following == NOBODY else txn.following

    def _find_transaction(self, name: str) -> Transaction:
        txn = self._transactions.get(name)
        if txn is None:
            raise KafkaError(codes.INVALID_PRODUCER_ID_MAPPING)
        return txn

    def names(self) -> list[Transaction]:
        with self._changed:
            return [self._transactions[name] for name in sorted(self._transactions)]

    # ---- the end of a transaction ----

    def _finish(self, found: Transaction) -> None:
        """Write the markers and offsets of a prepared transaction; a later call retries after a failure of the disk."""
        self._watch()
        self._note(found)  # where that fails, nothing has been decided
        try:
            self._write(found.ending())
        except (KafkaError, PylogsegError) as error:
            _log.warning("%s: its transaction cannot be ended now: %s", printable(found.id), printable(str(error)))
            return
        found.complete(self._now_ms())
        self._note(found)

    def _write(self, ending: TransactionEnd) -> None:
        marker = marker_batch(
            "commit" if ending.commits else "abort",
            base_offset=0,
            timestamp_ms=self._now_ms(),
            producer_id=ending.producer.id,
            producer_epoch=ending.producer.epoch,
            coordinator_epoch=self._coordinator_epoch(),
        )
        for topic, number in ending.places:
            topic_here = self._topics.catalog.topics.get(topic)
            if topic_here is not None and number < topic_here.count:  # else it has been deleted
                served = self._topics.catalog.find(topic_here, number)
                version = ending.version
                self._topics.append(served, marker, origin=Origin.COORDINATOR, transaction_version=version)
        self._groups.end_transaction(ending.producer.id, commits=ending.commits)

    def _coordinator_epoch(self) -> int:
        """Return the epoch of markers: as in Kafka, the leader epoch of the partition of `__transaction_state`."""
        topic = self._topics.catalog.topics.get("__transaction_state")
        return max((part.leader_epoch for part in topic.partitions.values()), default=0) if topic is not None else 0

    def _note(self, found: Transaction) -> None:
        if self._journal is not None:
            self._journal.note(found)

    # ---- time ----

    def tick(self) -> None:
        """Abort transactions that were open for too long, retry failed ends, and forget unused ids."""
        with self._changed:
            now_ms = self._now_ms()
            for txn in list(self._transactions.values()):
                if txn.is_forgotten(now_ms):
                    self._forget(txn)
                elif txn.state.is_prepared or txn.expire(now_ms) is not None:
                    _log.info("%s: its transaction is ended", printable(txn.id))
                    try:
                        self._finish(txn)
                    except KafkaError as error:
                        _log.warning("%s: that cannot be noted now: %s", printable(txn.id), printable(str(error)))
            self._changed.notify_all()

    def _forget(self, found: Transaction) -> None:
        try:
            if self._journal is not None:
                self._journal.forget(found.id)
        except KafkaError as error:
            _log.warning("%s: it cannot be forgotten now: %s", printable(found.id), printable(str(error)))
            return
        del self._transactions[found.id]

    def _watch(self) -> None:
        """Let a thread look at the time."""
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="pylogseg-transactions", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                wait_s = (self._next_ms() - self._now_ms()) / 1000
                if wait_s <= 0:
                    self.tick()
                    wait_s = _RETRY_MS / 1000 if self._next_ms() <= self._now_ms() else 0
                if wait_s > 0:
                    self._changed.wait(min(wait_s, _MOST_WAIT_S))

    def _next_ms(self) -> float:
        late = any(txn.state.is_prepared for txn in self._transactions.values())
        return 0 if late else min((txn.next_time() for txn in self._transactions.values()), default=float("inf"))

    def close(self) -> None:
        """Stop looking at the time; open transactions stay as they are."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
