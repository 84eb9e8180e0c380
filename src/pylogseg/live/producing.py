"""Batches, holes and aborted transactions into one partition of a cluster, each at an offset that the caller knows.

A leader gives offsets one after the other. So a hole of one offset is an empty transaction that is aborted: its marker
takes the offset, and no consumer sees it. The base offset in each answer is compared with the one that was expected.
Batches have a producer of ours with sequences, so that one that is sent again after a lost answer is not there twice.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pylogseg import _codec
from pylogseg._native._encoder import Columns
from pylogseg.errors import StorageError
from pylogseg.format.builder import CODEC_MASK, TRANSACTIONAL, build, shared_row
from pylogseg.format.messages import codes
from pylogseg.live.administering import COORDINATING, OF_TRANSACTION, ask_for_coordinator
from pylogseg.live.cluster import EARLIEST, LATEST, PATIENCE_S, Cluster, PassingError, check_code
from pylogseg.live.connection import LIST_OFFSETS, BrokenConnectionError, BrokerConnection

PRODUCE, DELETE_RECORDS, INIT_PRODUCER, ADD_PARTITIONS, END_TRANSACTION = 0, 21, 22, 24, 26
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS = 61, 65
#: The newest versions in which a transaction is begun by AddPartitionsToTxn, and its epoch stays the same at its end.
_PRODUCE_VERSION, _INIT_VERSION, _ADD_VERSION, _END_VERSION = 11, 4, 3, 4
#: So many batches a leader remembers of a producer: those may be sent again.
_MOST_SENT = 5
_MOST_SENT_BYTES = 16 << 20
_ALL_REPLICAS = -1
_TIMEOUT_MS = 25_000
#: The longest that brokers allow by default for a transaction, and what they allow in any case.
_LONG_MS, _SHORT_MS = 15 * 60 * 1000, 60_000
#: Transactional ids whose markers are written at the same time.
FILLERS = 8
_BURNED_AT_ONCE = 250_000
_REPLICAS = frozenset((codes.NOT_ENOUGH_REPLICAS, codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.001, 0.05
_ID_PREFIX = "pylogseg-restore"


class SentBatch(NamedTuple):
    """A batch that was sent, and is not yet known to be in the log."""

    offset: int | None  #: That it has to get; None if any is right.
    records: int
    note: Any  #: Of the caller.
    size: int
    values: dict[str, Any]


@dataclass
class _ProducerInUse:
    """A producer of ours; with a name it has transactions."""

    name: str | None = None
    id: int = -1
    epoch: int = -1
    sequence: int = 0
    is_open: bool = False  #: A transaction, in the partition.
    node: int | None = None  #: The coordinator of the name.


class PartitionProducer:
    """Writes into one partition, from one thread; it is closed by the caller.

    `on_offset` is called with each batch that is in the log, and its first offset there.
    """

    def __init__(
        self, cluster: Cluster, topic: str, number: int, on_offset: Callable[[SentBatch, int], None] | None = None
    ) -> None:
        self.path = f"{cluster.url}/{topic}-{number}"
        #: The offset of the next record; None if any is right.
        self.next: int | None = None
        self._cluster, self._topic, self._number = cluster, topic, number
        self._on_offset = on_offset or (lambda sent, offset: None)
        self._topic_id: bytes | None = None
        self._link: BrokerConnection | None = None
        self._node = -1
        self._coordinators: dict[int, BrokerConnection] = {}
        self._sent: deque[SentBatch] = deque()
        self._plain: _ProducerInUse | None = None
        self._named: dict[str, _ProducerInUse] = {}
        self._transaction_ms = _LONG_MS

    def close(self) -> None:
        """Close the connections; batches that were sent and not acknowledged may be in the log or not."""
        self._disconnect()
        self._leave_coordinators()

    # ---- the log ----

    def start(self) -> int:
        """Return the first offset of the log."""
        return self._offset_of(EARLIEST)

    def end(self) -> int:
        """Return the end of the log, which is its high watermark."""
        return self._offset_of(LATEST)

    def settle(self, slots: int) -> int:
        """Wait until no transaction of an earlier run is being ended; return the end of the log.

        `slots` is the number of slots that the run had.
        """
        for name in (*(f"fill-{n}" for n in range(FILLERS)), *(f"slot-{n}" for n in range(slots))):
            producer, until = _ProducerInUse(self._full_name(name)), time.monotonic() + PATIENCE_S
            while self._describe(producer)["transactionState"].startswith("Prepare"):
                if time.monotonic() > until:
                    raise StorageError(
                        self.path, "produce", f"transaction {producer.name} is being ended, and stays so"
                    )
                time.sleep(_MOST_PAUSE_S)
        return self.end()

    def delete_below(self, offset: int) -> None:
        """Delete the records below an offset, which becomes the start of the log."""
        rows = [{"partitionIndex": self._number, "offset": offset}]
        values = {"topics": [{"name": self._topic, "partitions": rows}], "timeoutMs": _TIMEOUT_MS}
        self._ask_leader("delete records", DELETE_RECORDS, values)

    # ---- records ----

    def produce(self, batch: bytearray, count: int, slot: int | None = None, note: Any = None) -> None:
        """Send a batch of consecutive records, with a producer of ours; a slot is an open transaction.

        StorageError if the records of this or an earlier batch did not get their offset.
        """
        producer = self._plain_producer() if slot is None else self._begin(f"slot-{slot}")
        if slot is not None and not producer.is_open:
            self._add([producer])
        stamp(batch, producer.id, producer.epoch, producer.sequence, is_transactional=slot is not None)
        producer.sequence = (producer.sequence + count) & 0x7FFFFFFF
        topic = {"name": self._topic, "partitionData": [{"index": self._number, "records": batch}]}
        values = {"transactionalId": producer.name, "acks": _ALL_REPLICAS, "timeoutMs": _TIMEOUT_MS}
        self._sent.append(SentBatch(self.next, count, note, len(batch), {**values, "topicData": [topic]}))
        if self.next is not None:
            self.next += count
        try:
            self._post(self._connect(), self._sent[-1])
            while len(self._sent) > _MOST_SENT - 1 or sum(sent.size for sent in self._sent) > _MOST_SENT_BYTES:
                self._receive()
        except (BrokenConnectionError, PassingError):
            self._send_again()

    def drain(self) -> None:
        """Wait until all that was sent is in the log."""
        try:
            while self._sent:
                self._receive()
        except (BrokenConnectionError, PassingError):
            self._send_again()

    def burn(self, count: int) -> None:
        """Use up offsets below the start of the log to be, by records that are deleted afterwards."""
        while count:
            some = min(count, _BURNED_AT_ONCE)
            self.produce(bytearray(empty_records(some)), some)
            count -= some

    # ---- markers ----

    def fill(self, count: int) -> None:
        """Use up offsets by markers of empty transactions, which consumers do not see."""
        self.drain()
        fillers = [self._begin(f"fill-{n}") for n in range(min(count, FILLERS))]
        left = count
        while left:
            some = fillers[:left]
            self._add([filler for filler in some if not filler.is_open])
            self._end(some)
            left -= len(some)
        self._reach(count)

    def abort(self, slot: int) -> None:
        """End the transaction of a slot; its marker takes the next offset."""
        producer = self._begin(f"slot-{slot}")
        if not producer.is_open:  # its earlier records have another marker already
            self.fill(1)
            return
        self.drain()
        self._end([producer])
        self._reach(1)

    def _reach(self, count: int) -> None:
        """Wait for markers: EndTxn is answered before they are written."""
        assert self.next is not None
        self.next += count
        until, pause = time.monotonic() + PATIENCE_S, _LEAST_PAUSE_S
        while (end := self.end()) < self.next:
            if time.monotonic() > until:
                reason = f"the log ends at {end}, and not at {self.next}, {PATIENCE_S:.0f} s after transactions ended"
                raise StorageError(self.path, "produce", reason)
            time.sleep(pause)
            pause = min(2 * pause, _MOST_PAUSE_S)
        if end > self.next:
            raise _other_offset(self.path, f"the log ends at offset {end}, and not at {self.next}")

    # ---- producers ----

    def _plain_producer(self) -> _ProducerInUse:
        if self._plain is None:
            self._plain = _ProducerInUse()

            def attempt() -> None:
                with self._cluster.connection() as link:
                    values = {"transactionalId": None, "transactionTimeoutMs": _SHORT_MS}
                    answer = link.ask(INIT_PRODUCER, values, _INIT_VERSION)
                _check_coordinator(answer["errorCode"], self.path)
                assert self._plain is not None
                self._plain.id, self._plain.epoch = answer["producerId"], answer["producerEpoch"]

            self._cluster.again(self.path, "get a producer id", attempt)
        return self._plain

    def _full_name(self, name: str) -> str:
        return f"{_ID_PREFIX}-{self._topic}-{self._number}-{name}"

    def _begin(self, name: str) -> _ProducerInUse:
        """Return a producer with transactions: one that an earlier run left open goes on."""
        if name not in self._named:
            producer = _ProducerInUse(self._full_name(name))
            state = self._describe(producer)
            places = {(row["topic"], number) for row in state["topics"] for number in row["partitions"]}
            if state["transactionState"] == "Ongoing" and (self._topic, self._number) in places:
                producer.id, producer.epoch, producer.is_open = state["producerId"], state["producerEpoch"], True
                producer.sequence = self._sequence_of(producer)
            else:
                self._init(producer)
            self._named[name] = producer
        return self._named[name]

    def _describe(self, producer: _ProducerInUse) -> dict[str, Any]:
        states: list[dict[str, Any]] = []

        def take(_: _ProducerInUse, answer: dict[str, Any]) -> int:
            (row,) = answer["transactionStates"]
            is_new = row["errorCode"] == codes.TRANSACTIONAL_ID_NOT_FOUND
            states.append(row)
            return 0 if is_new else int(row["errorCode"])

        self._ask_coordinators(
            [producer], DESCRIBE_TRANSACTIONS, 0, lambda asked: {"transactionalIds": [asked.name]}, take
        )
        return states[-1]

    def _sequence_of(self, producer: _ProducerInUse) -> int:
        values = {"topics": [{"name": self._topic, "partitionIndexes": [self._number]}]}
        row = self._ask_leader("list producers", DESCRIBE_PRODUCERS, values)
        last = (other["lastSequence"] for other in row["activeProducers"] if other["producerId"] == producer.id)
        return (next(last, -1) + 1) & 0x7FFFFFFF

    def _init(self, producer: _ProducerInUse) -> None:
        def values_of(producer: _ProducerInUse) -> dict[str, Any]:
            return {"transactionalId": producer.name, "transactionTimeoutMs": self._transaction_ms}

        def take(producer: _ProducerInUse, answer: dict[str, Any]) -> int:
            producer.id, producer.epoch, producer.sequence = answer["producerId"], answer["producerEpoch"], 0
            if answer["errorCode"] == codes.INVALID_TRANSACTION_TIMEOUT and self._transaction_ms > _SHORT_MS:
                self._transaction_ms = _SHORT_MS
                return codes.CONCURRENT_TRANSACTIONS  # ask again
            return int(answer["errorCode"])

        self._ask_coordinators([producer], INIT_PRODUCER, _INIT_VERSION, values_of, take)

    def _add(self, producers: Sequence[_ProducerInUse]) -> None:
        """Begin transactions in the partition."""
        topics = [{"name": self._topic, "partitions": [self._number]}]

        def values_of(producer: _ProducerInUse) -> dict[str, Any]:
            return {
                "v3AndBelowTransactionalId": producer.name,
                "v3AndBelowProducerId": producer.id,
                "v3AndBelowProducerEpoch": producer.epoch,
                "v3AndBelowTopics": topics,
            }

        def take(producer: _ProducerInUse, answer: dict[str, Any]) -> int:
            code = int(answer["resultsByTopicV3AndBelow"][0]["resultsByPartition"][0]["partitionErrorCode"])
            producer.is_open = not code
            return code

        self._ask_coordinators(producers, ADD_PARTITIONS, _ADD_VERSION, values_of, take)

    def _end(self, producers: Sequence[_ProducerInUse]) -> None:
        """Abort transactions; one whose answer was lost is ended once, however often that is asked for."""

        def values_of(producer: _ProducerInUse) -> dict[str, Any]:
            values = {"transactionalId": producer.name, "producerId": producer.id, "producerEpoch": producer.epoch}
            return {**values, "committed": False}

        def take(producer: _ProducerInUse, answer: dict[str, Any]) -> int:
            producer.is_open = bool(answer["errorCode"])
            return int(answer["errorCode"])

        self._ask_coordinators(producers, END_TRANSACTION, _END_VERSION, values_of, take)

    def _ask_coordinators(
        self,
        producers: Iterable[_ProducerInUse],
        key: int,
        most: int,
        values_of: Callable[[_ProducerInUse], dict[str, Any]],
        take: Callable[[_ProducerInUse, dict[str, Any]], int],
    ) -> None:
        """Ask for each producer, all at once, until none has to wait; `take` returns the code of an answer."""
        left = list(producers)

        def attempt() -> None:
            nonlocal left
            until, pause = time.monotonic() + PATIENCE_S, _LEAST_PAUSE_S
            try:
                while left:
                    for producer in left:
                        link = self._coordinator(producer)
                        link.send(key, link.version(key, most), values_of(producer))
                    waiting = []
                    for producer in left:
                        code = take(producer, self._coordinator(producer).receive())
                        if code == codes.CONCURRENT_TRANSACTIONS:  # the marker before is on its way
                            waiting.append(producer)
                        else:
                            _check_coordinator(code, f"{self.path}: transaction {producer.name}")
                    left = waiting
                    if left and time.monotonic() > until:
                        raise PassingError(codes.CONCURRENT_TRANSACTIONS)
                    if left:
                        time.sleep(pause)
                        pause = min(2 * pause, _MOST_PAUSE_S)
            except BaseException:
                self._leave_coordinators()
                raise

        self._cluster.again(self.path, "end transactions", attempt)

    def _coordinator(self, producer: _ProducerInUse) -> BrokerConnection:
        assert producer.name is not None
        if producer.node not in self._coordinators:
            producer.node = ask_for_coordinator(self._cluster, self.path, producer.name, OF_TRANSACTION)
        if producer.node not in self._coordinators:
            self._coordinators[producer.node] = self._cluster.take(producer.node)
        return self._coordinators[producer.node]

    def _leave_coordinators(self) -> None:
        for link in self._coordinators.values():
            link.close()
        self._coordinators.clear()

    # ---- the leader ----

    def _connect(self) -> BrokerConnection:
        if self._link is not None:
            return self._link
        state = self._cluster.topics([self._topic]).get(self._topic)
        leader = None if state is None else state.leaders.get(self._number)
        if state is None or leader is None:
            raise PassingError(codes.UNKNOWN_TOPIC_OR_PARTITION)
        self._topic_id = self._topic_id or state.topic_id
        if state.topic_id != self._topic_id:
            raise StorageError(self.path, "produce", "the topic was deleted and made again meanwhile")
        if leader.node < 0:
            raise PassingError(codes.LEADER_NOT_AVAILABLE)
        self._link, self._node = self._cluster.take(leader.node), leader.node
        return self._link

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _post(self, link: BrokerConnection, sent: SentBatch) -> None:
        link.send(PRODUCE, link.version(PRODUCE, _PRODUCE_VERSION), sent.values)

    def _receive(self) -> None:
        """Take the answer to the oldest batch that was sent."""
        assert self._link is not None
        answer = self._link.receive()
        (row,) = answer["responses"][0]["partitionResponses"]
        sent, code, offset = self._sent[0], row["errorCode"], row["baseOffset"]
        if code in _REPLICAS:
            raise PassingError(code)
        if code == codes.DUPLICATE_SEQUENCE_NUMBER and sent.offset is not None:
            code, offset = 0, sent.offset  # its answer was lost; it is in the log
        if code:
            with contextlib.suppress(StorageError):
                check_code(code, self.path, "produce")  # one that may end by itself
            where = "" if sent.offset is None else f" (offset {sent.offset})"
            reasons = [row["errorMessage"] or "", *(bad["batchIndexErrorMessage"] for bad in row["recordErrors"][:2])]
            raise StorageError(
                self.path, "produce", f"{codes.name_of(code)}{where}: {'; '.join(filter(None, reasons))}"
            )
        if sent.offset is not None and offset != sent.offset:
            raise _other_offset(self.path, f"records that belong to offset {sent.offset} went to offset {offset}")
        self._sent.popleft()
        self._on_offset(sent, offset)
        if answer["throttleTimeMs"]:
            time.sleep(answer["throttleTimeMs"] / 1000)

    def _send_again(self) -> None:
        """Send all unacknowledged batches again, to the current leader, in order and with the same sequences."""

        def attempt() -> None:
            self._disconnect()
            link = self._connect()
            for sent in self._sent:
                self._post(link, sent)
            while self._sent:
                self._receive()

        self._disconnect()
        self._cluster.again(self.path, "produce", attempt)

    def _offset_of(self, time_ms: int) -> int:
        row = {"partitionIndex": self._number, "currentLeaderEpoch": -1, "timestamp": time_ms}
        values = {"replicaId": -1, "isolationLevel": 0, "topics": [{"name": self._topic, "partitions": [row]}]}
        return int(self._ask_leader("ask for offsets", LIST_OFFSETS, values, 9)["offset"])

    def _ask_leader(self, operation: str, key: int, values: dict[str, Any], most: int = 99) -> dict[str, Any]:
        """Return the row of the partition in an answer of its leader."""
        self.drain()

        def attempt() -> dict[str, Any]:
            try:
                answer = self._connect().ask(key, values, most)
                row: dict[str, Any] = answer["topics"][0]["partitions"][0]
                check_code(row["errorCode"], self.path, operation)
                return row
            except (PassingError, BrokenConnectionError):
                self._disconnect()
                raise

        return self._cluster.again(self.path, operation, attempt)


def _check_coordinator(code: int, path: str) -> None:
    if code in COORDINATING:
        raise PassingError(code)
    check_code(code, path, "ask the coordinator")


def _other_offset(path: str, reason: str) -> StorageError:
    return StorageError(path, "produce", f"{reason}: another producer writes there, and this partition is given up")


def stamp(batch: bytearray, producer_id: int, epoch: int, sequence: int, *, is_transactional: bool) -> None:
    """Make a batch of a log one that a client sends: its base offset is 0, and its producer another one."""
    attributes = _SHORT.unpack_from(batch, 21)[0] & CODEC_MASK | (TRANSACTIONAL if is_transactional else 0)
    _LONG.pack_into(batch, 0, 0)
    _INT.pack_into(batch, 12, -1)
    _SHORT.pack_into(batch, 21, attributes)
    _PRODUCER.pack_into(batch, 43, producer_id, epoch, sequence)
    _UINT.pack_into(batch, 17, _codec.crc32c(memoryview(batch)[21:]))


_LONG, _INT, _UINT, _SHORT, _PRODUCER = (struct.Struct(f">{kind}") for kind in ("q", "i", "I", "h", "qhi"))


@functools.lru_cache(2)
def empty_records(count: int) -> bytes:
    """Return one batch of records without key, value and headers, of time 0: some 3 bytes each, compressed."""
    nulls = np.full(count, -1, np.int32)
    places = np.zeros(count, np.int64)
    columns = Columns(count, None, places, places, nulls, places, nulls, None, None, (b"",), 0)
    return bytes(build(columns, shared_row(compression="zstd"), batch_bytes=0x7FFFFFFF)[0])
