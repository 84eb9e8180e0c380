"""Offsets, groups and transactions as records of Kafka's own topics, in Kafka's formats."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pylogseg._codec import crc32c
from pylogseg.errors import CorruptionError, PylogsegError
from pylogseg.format.batches import scan
from pylogseg.format.control import ControlKind, decode_control_key
from pylogseg.format.escape import printable
from pylogseg.format.files.javamap import hash_of_text
from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.framing import decode_coordinator, encode_coordinator
from pylogseg.format.names import TopicPartition
from pylogseg.format.records import RecordColumns, decode
from pylogseg.format.uuids import format_uuid
from pylogseg.log.log import Log
from pylogseg.log.producer_state import Origin
from pylogseg.reading.arrow.encode import encode
from pylogseg.server.catalog import Catalog
from pylogseg.server.committed import Committed, CommittedByTopic
from pylogseg.server.writing.topics import Topics
from pylogseg.server.writing.transactions import NOBODY, ProducerIdAndEpoch, Transaction, TransactionState

_log = logging.getLogger(__name__)

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
_FETCH_BYTES, _MOST_BYTES = 4 << 20, 1 << 30
_CRC_AT, _SEQUENCE_AT = 17, 53
#: Versions of values that a Kafka 4.3 writes, and types of keys.
_OFFSET_VERSION, _GROUP_VERSION, _TRANSACTION_VERSION = 4, 3, 1
_OFFSET_KEYS, _GROUP_KEY, _TRANSACTION_KEY = (0, 1), 2, 0
#: Kafka calls a transactional id dead that is about to be forgotten.
_DEAD, _EPOCH_FENCE = 6, 7


class LoadedGroups(NamedTuple):
    """The groups that `OffsetsJournal` loads."""

    offsets: CommittedByTopic
    staged: dict[int, CommittedByTopic]  #: Those of open transactions by producer id.
    groups: dict[str, dict[str, Any]]  #: The fields of the last record of each classic group.


class _Batch(NamedTuple):
    """A batch of a log: its records, and whose they are."""

    producer: int
    is_transactional: bool
    is_control: bool
    records: RecordColumns


def _batches(log: Log) -> Iterator[_Batch]:
    """Yield the batches of a log; CorruptionError if one is damaged."""
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        chunk = log.fetch(offset, _FETCH_BYTES)
        table = scan(chunk.data).batches
        if not len(table):
            raise CorruptionError(log.folder, 0, "no batch is readable", offset)
        for row in range(len(table)):
            batch = table[row : row + 1]
            columns, damage = decode(batch, chunk.data)
            if damage or int(batch.verdict[0]) > 1:
                raise CorruptionError(log.folder, 0, "a batch is damaged", int(batch.base_offset[0]))
            yield _Batch(
                int(batch.producer_id[0]), bool(batch.is_transactional[0]), bool(batch.is_control[0]), columns
            )  # fmt: skip
        offset = int(np.max(table.last_offset)) + 1


def _number(name: str, count: int) -> int:
    """Return the partition for a group or a transactional id, as Kafka finds it."""
    code = hash_of_text(name)
    code = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if code == -(1 << 31) else abs(code) % count


class _TopicJournal:
    """Appends records to a topic of Kafka's own."""

    topic: str

    def __init__(self, topics: Topics) -> None:
        self._topics, self._catalog = topics, topics.catalog

    def place_of(self, name: str) -> TopicPartition:
        """Return the partition of a group or a transactional id; KafkaError if the topic cannot be made."""
        return self.topic, _number(name, self._topics.internal(self.topic).count)

    def _append(
        self,
        name: str,
        pairs: Iterable[tuple[bytes, bytes | None]],
        producer: ProducerIdAndEpoch = NOBODY,
        now_ms: int | None = None,
    ) -> None:
        """Append records in one batch; KafkaError if they cannot be kept, so that nothing else may happen."""
        now_ms = self._topics.clock.now_ms() if now_ms is None else now_ms
        rows = [(now_ms, key, value) for key, value in pairs]
        if not rows:
            return
        topic, number = self.place_of(name)
        try:
            data = _batch_of(rows, producer)
            served = self._catalog.find(self._catalog.topics[topic], number)
            self._topics.append(served, data, origin=Origin.COORDINATOR)
            self._topics.store.compact(served)
        except PylogsegError as error:
            _log.warning("%s-%d: %s", topic, number, printable(str(error)))
            raise KafkaError(codes.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    def _logs(self) -> Iterator[Log]:
        topic = self._catalog.topics.get(self.topic)
        for number in sorted(topic.partitions) if topic is not None else ():
            yield self._catalog.find(topic, number).log()


def _batch_of(rows: list[tuple[int, bytes, bytes | None]], producer: ProducerIdAndEpoch) -> bytearray:
    """Return one batch; with a producer, it belongs to that producer's transaction."""
    if producer == NOBODY:
        return encode(rows, base_offset=0, batch_bytes=_MOST_BYTES)
    data = encode(
        rows,
        base_offset=0,
        batch_bytes=_MOST_BYTES,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )
    # A coordinator has no sequences, which no client may send.
    data[_SEQUENCE_AT : _SEQUENCE_AT + 4] = b"\xff" * 4
    data[_CRC_AT : _CRC_AT + 4] = crc32c(memoryview(data)[_CRC_AT + 4 :]).to_bytes(4, "big")
    return data


class OffsetsJournal(_TopicJournal):
    """The offsets of groups and the members of classic ones, in ``__consumer_offsets``.

    `of` is the catalog whose offsets they are, where these topics are there to keep them alone.
    """

    topic = OFFSETS

    def __init__(self, topics: Topics, of: Catalog | None = None) -> None:
        super().__init__(topics)
        self._of = topics.catalog if of is None else of

    def close(self) -> None:
        """Close the topics that only keep offsets; log an error, since the caller that stops only read."""
        if self._of is self._catalog:
            return
        try:
            self._catalog.close()
        except PylogsegError as error:
            _log.warning("%s", printable(str(error)))

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, Committed | None], producer: tuple[int, int] = NOBODY
    ) -> None:
        """Note offsets of a group; None deletes one. A producer's offsets take effect with its transaction."""
        now_ms = self._topics.clock.now_ms()
        records = [self._record(group, *committed, now_ms) for committed in offsets.items()]
        self._append(group, records, ProducerIdAndEpoch(*producer), now_ms)

    def _record(
        self, group: str, place: TopicPartition, committed: Committed | None, now_ms: int = -1
    ) -> tuple[bytes, bytes | None]:
        key = {"group": group, "topic": place[0], "partition": place[1]}
        if committed is None:
            return encode_coordinator("OffsetCommit", key)
        topic = self._of.topics.get(place[0])
        value: dict[str, Any] = {
            "offset": committed.offset,
            "leaderEpoch": committed.epoch,
            "metadata": committed.metadata,
            "commitTimestamp": now_ms,
        }
        if topic is not None:
            value["topicId"] = format_uuid(topic.id)
        return encode_coordinator("OffsetCommit", key, _OFFSET_VERSION, value)

    def delete_group(self, group: str, places: Iterable[TopicPartition]) -> None:
        head = encode_coordinator("GroupMetadata", {"group": group})
        self._append(group, [*(self._record(group, place, None) for place in places), head])

    def note_group(self, group: str, fields: Mapping[str, Any]) -> None:
        """Note the generation of a classic group, and its members with their assignments."""
        value = {**fields, "currentStateTimestamp": self._topics.clock.now_ms()}
        self._append(group, [encode_coordinator("GroupMetadata", {"group": group}, _GROUP_VERSION, value)])

    def load(self) -> LoadedGroups:
        offsets: CommittedByTopic = {}
        staged: dict[int, dict[str, dict[TopicPartition, Committed | None]]] = {}
        groups: dict[str, dict[str, Any]] = {}
        for log in self._logs():
            for batch in _batches(log):
                if batch.is_control:
                    kind = decode_control_key(batch.records.key(0), log.folder, 0).kind if len(batch.records) else None
                    ended = staged.pop(batch.producer, {})
                    for group, offsets_of in ended.items() if kind is ControlKind.COMMIT else ():
                        _apply(offsets.setdefault(group, {}), offsets_of)
                    continue
                for group, place, committed in self._decode_records(batch.records, log.folder, groups):
                    if batch.is_transactional:
                        staged.setdefault(batch.producer, {}).setdefault(group, {})[place] = committed
                    else:
                        _apply(offsets.setdefault(group, {}), {place: committed})
        left = {
            producer: {group: dict(_present(committed)) for group, committed in groups_of.items()}
            for producer, groups_of in staged.items()
        }
        return LoadedGroups({group: committed for group, committed in offsets.items() if committed}, left, groups)

    def _decode_records(
        self, records: RecordColumns, path: str, groups: dict[str, dict[str, Any]]
    ) -> Iterator[tuple[str, TopicPartition, Committed | None]]:
        """Yield the offsets; records about groups go into a dictionary."""
        for row in range(len(records)):
            key, value = decode_coordinator(self.topic, records.key(row) or b"", records.value(row), path)
            if key.number in _OFFSET_KEYS and key.fields is not None:
                place = key.fields["topic"], key.fields["partition"]
                fields = value.fields
                committed = None
                if fields is not None:
                    committed = Committed(fields["offset"], fields.get("leaderEpoch", -1), fields["metadata"])
                yield key.fields["group"], place, committed
            elif key.number == _GROUP_KEY and key.fields is not None:
                groups.pop(key.fields["group"], None)
                if value.fields is not None:
                    groups[key.fields["group"]] = value.fields


def _present(found: Mapping[TopicPartition, Committed | None]) -> Iterator[tuple[TopicPartition, Committed]]:
    return ((place, committed) for place, committed in found.items() if committed is not None)


def _apply(offsets: dict[TopicPartition, Committed], found: Mapping[TopicPartition, Committed | None]) -> None:
    for place, committed in found.items():
        if committed is None:
            offsets.pop(place, None)
        else:
            offsets[place] = committed


class TransactionsJournal(_TopicJournal):
    """Transactions, in ``__transaction_state``."""

    topic = TRANSACTIONS

    def note(self, transaction: Transaction) -> None:
        """Note the state of a transaction; KafkaError if that cannot be done, so that nothing else may happen."""
        places: dict[str, list[int]] = {}
        for topic, number in sorted(transaction.places):
            places.setdefault(topic, []).append(number)
        producer, following = transaction.producer, transaction.following
        value: dict[str, Any] = {
            "producerId": producer.id,
            "previousProducerId": transaction.previous.id,
            "producerEpoch": producer.epoch,
            "transactionTimeoutMs": transaction.timeout_ms,
            "transactionStatus": transaction.state.value,
            "transactionPartitions": [{"topic": topic, "partitionIds": numbers} for topic, numbers in places.items()],
            "transactionLastUpdateTimestampMs": transaction.updated_ms,
            "transactionStartTimestampMs": transaction.started_ms,
            "clientTransactionVersion": transaction.version,
        }
        if transaction.state is TransactionState.EMPTY:
            value["transactionPartitions"] = None
        if following not in (NOBODY, producer):
            value |= {"nextProducerId": following.id, "nextProducerEpoch": following.epoch}
        key = {"transactionalId": transaction.id}
        self._append(transaction.id, [encode_coordinator("TransactionLog", key, _TRANSACTION_VERSION, value)])

    def forget(self, name: str) -> None:
        """Note that a transactional id is nobody's any more; KafkaError if that cannot be done."""
        self._append(name, [encode_coordinator("TransactionLog", {"transactionalId": name})])

    def load(self) -> dict[str, Transaction]:
        transactions: dict[str, Transaction] = {}
        for log in self._logs():
            for batch in _batches(log):
                for row in range(0 if batch.is_control else len(batch.records)):
                    raw = batch.records.key(row) or b"", batch.records.value(row)
                    key, value = decode_coordinator(self.topic, *raw, log.folder)
                    if key.number != _TRANSACTION_KEY or key.fields is None:
                        continue
                    name = key.fields["transactionalId"]
                    if value.fields is None or value.fields["transactionStatus"] in (_DEAD, _EPOCH_FENCE):
                        transactions.pop(name, None)
                    else:
                        transactions[name] = _transaction(name, value.fields)
        return transactions


def _transaction(name: str, fields: Mapping[str, Any]) -> Transaction:
    producer = ProducerIdAndEpoch(fields["producerId"], fields["producerEpoch"])
    version = fields.get("clientTransactionVersion", 0)
    following = ProducerIdAndEpoch(fields.get("nextProducerId", -1), fields.get("nextProducerEpoch", -1))
    state = TransactionState(fields["transactionStatus"])
    previous = NOBODY
    if version >= 2 and state not in (TransactionState.EMPTY, TransactionState.ONGOING) and producer.epoch > 0:
        previous = ProducerIdAndEpoch(producer.id, producer.epoch - 1)  # its client may ask again
    return Transaction(
        name,
        producer,
        fields["transactionTimeoutMs"],
        state,
        {(topic["topic"], n) for topic in fields["transactionPartitions"] or () for n in topic["partitionIds"]},
        previous=previous,
        started_ms=fields["transactionStartTimestampMs"],
        updated_ms=fields["transactionLastUpdateTimestampMs"],
        version=version,
        following=NOBODY if following.id < 0 else ProducerIdAndEpoch(following.id, max(following.epoch, 0)),
    )
