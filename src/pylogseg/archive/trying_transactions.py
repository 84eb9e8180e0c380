"""A drill's last step: each transactional id commits a transaction on the copy, and the result is compared.

A transaction that a coordinator has forgotten is committed by the next one of its id in the same partition: that shows
only when there is a next one. So each id commits a record in every partition that knows its producer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pylogseg.archive.consuming import DrillClient
from pylogseg.archive.record_digest import RecordDigest
from pylogseg.disk.listing import open_dir
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.format.messages import codes
from pylogseg.format.names import TopicPartition
from pylogseg.offline.ending_transactions import transactional_producers
from pylogseg.reading.arrow.encode import encode
from pylogseg.reading.seek import end_offset
from pylogseg.server.opening import serve
from pylogseg.values.internal.cluster import INTERNAL_TOPICS
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.transactions import coordinator_log

#: Keys of requests, with versions in which a client adds partitions by itself.
_PRODUCE, _INIT, _ADD, _END = (0, 8), (22, 4), (24, 3), (26, 3)
_TIMEOUT_MS = 60_000
_PAUSE_S = 0.1
#: A coordinator is at work; it ends by itself.
_LATER = frozenset(("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE",
                    "NOT_COORDINATOR", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"))  # fmt: skip


@dataclass
class TransactionTrial:
    """The transactions of a restored copy, read before any broker opens it."""

    places: dict[str, list[TopicPartition]] = field(default_factory=dict)  #: Where each transactional id gets a record.
    expected: dict[TopicPartition, tuple[int, int, str]] = field(default_factory=dict)  #: End, records, their SHA-256.

    doubts: list[str] = field(default_factory=list)  #: Of logs that no broker would load whole.

    @classmethod
    def read(cls, target: str, wanted: Sequence[TopicPartition]) -> TransactionTrial:
        """Read a log directory; open transactions count as aborted."""
        disk, found = open_dir(target), cls()
        current = coordinator_log(disk, CutOff(), ()).current
        if not current:
            return found
        parts = {(part.topic, part.partition): part for part in disk.partitions if part.is_live}
        usable = [place for place in wanted if place in parts and place[0] not in INTERNAL_TOPICS]
        known: dict[int, list[TopicPartition]] = {}
        for place in usable:
            for producer in transactional_producers(parts[place].path, found.doubts, name=parts[place].name):
                known.setdefault(producer.producer_id, []).append(place)
        for name, row in current.items():
            ids = {row["producerId"], row["previousProducerId"]}
            found.places[name] = sorted({place for each in ids for place in known.get(each, ())}) or usable[:1]
        looked_at = {place for places in found.places.values() for place in places}
        with serve(target, end_open_transactions=True) as server, DrillClient(server.bootstrap_servers) as client:
            for place in sorted(looked_at):
                end = end_offset(parts[place].segments)
                found.expected[place] = (end, *_consume(client, place, end))
        return found

    def problems(self, address: str) -> Iterator[str]:
        """Let each id commit a transaction, and yield the problems."""
        yield from (f"it is not known: {doubt}" for doubt in self.doubts)
        client = TransactionClient(address)
        with client:
            for name, places in sorted(self.places.items()):
                try:
                    client.commit_one(name, places)
                except PylogsegError as error:
                    yield f"transactional id {name} does not go on: {error}"
            for place, (end, *should) in sorted(self.expected.items()):
                name = f"{place[0]}-{place[1]}"
                try:
                    records, digest = _consume(client, place, end)
                except PylogsegError as error:
                    yield f"{name}: after a transaction of each id: {error}"
                    continue
                if [records, digest] != should:
                    yield (
                        f"{name}: after a transaction of each id read_committed gives {records:,} records below offset "
                        f"{end}, and {should[0]:,} are committed: it shows what nobody committed, or lacks something"
                    )


def _consume(client: DrillClient, place: TopicPartition, end: int) -> tuple[int, str]:
    digest = RecordDigest()
    for columns in client.records(*place, "read_committed", end):
        digest.add(columns)
    return digest.records, digest.text()


class TransactionClient(DrillClient):
    """A client that commits transactions, as one of version 1 does."""

    def commit_one(self, name: str, places: Sequence[TopicPartition]) -> None:
        """Begin a transaction of an id, write a record to each partition, and commit; StorageError if that fails."""
        asked: dict[str, Any] = {"transactionalId": name, "transactionTimeoutMs": _TIMEOUT_MS, "producerId": -1}
        found = self._going(_INIT, {**asked, "producerEpoch": -1}, f"a producer for {name}", "errorCode")
        if not places:
            return
        who = found["producerId"], found["producerEpoch"]
        topics: dict[str, list[int]] = {}
        for topic, number in places:
            topics.setdefault(topic, []).append(number)
        rows = [{"name": topic, "partitions": numbers} for topic, numbers in topics.items()]
        fields = ("TransactionalId", "ProducerId", "ProducerEpoch", "Topics")
        asked = {f"v3AndBelow{key}": value for key, value in zip(fields, (name, *who, rows), strict=True)}
        self._going(_ADD, asked, f"partitions for {name}", "partitionErrorCode")
        now_ms = time.time_ns() // 1_000_000
        data = bytes(
            encode(
                [(now_ms, b"pylogseg-drill", b"pylogseg-drill")], base_offset=0, producer_id=who[0],
                producer_epoch=who[1], base_sequence=0, transactional=True,
            )
        )  # fmt: skip
        rows = [
            {"name": topic, "partitionData": [{"index": number, "records": data} for number in numbers]}
            for topic, numbers in topics.items()
        ]
        asked = {"transactionalId": name, "acks": -1, "timeoutMs": _TIMEOUT_MS, "topicData": rows}
        self._going(_PRODUCE, asked, f"a record of {name}", "errorCode")
        asked = {"transactionalId": name, "producerId": who[0], "producerEpoch": who[1], "committed": True}
        self._going(_END, asked, f"the end of the transaction of {name}", "errorCode")

    def _going(self, of: tuple[int, int], values: dict[str, Any], what: str, error_field: str) -> dict[str, Any]:
        """Ask until a coordinator has done it."""
        until = time.monotonic() + self._patience_s
        while True:
            answer = self._ask(of, values)
            errors = {codes.name_of(code) for code in _errors(answer, error_field) if code}
            if not errors:
                return answer
            if not errors <= _LATER or time.monotonic() > until:
                raise StorageError(self.address, f"ask for {what}", ", ".join(sorted(errors)))
            time.sleep(_PAUSE_S)


def _errors(answer: Any, name: str) -> Iterator[int]:
    """Yield the error codes in an answer, however deep they are."""
    if isinstance(answer, Mapping):
        for key, value in answer.items():
            if key == name:
                yield value
            else:
                yield from _errors(value, name)
    elif isinstance(answer, (list, tuple)):
        for each in answer:
            yield from _errors(each, name)
