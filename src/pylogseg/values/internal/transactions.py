"""Transactions as their coordinator knows them, and transactions that are open in partitions (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.disk.disk import Disk
from pylogseg.errors import PylogsegError
from pylogseg.reading.state import LENIENT
from pylogseg.values.internal.cluster import clusters_of
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.keyed_log import KeyedLog, newest_replicas
from pylogseg.values.internal.message_arrays import typed_records
from pylogseg.values.internal.notes import Notes
from pylogseg.values.internal.offsets import PartitionEnds, utc
from pylogseg.values.internal.producers import ProducerRow, producers_of
from pylogseg.values.internal.state_columns import OPEN_TRANSACTIONS, PRODUCERS, state_table
from pylogseg.values.internal.transaction_ends import STATES, CoordinatorLog, noted_transactions

TOPIC = "__transaction_state"
_WITH_PARTITIONS = (1, 2, 3, 7)
#: The greatest timeout that a broker allows, unless it is told otherwise (``transaction.max.timeout.ms``).
MAX_TIMEOUT_MS = 15 * 60 * 1000
_Row = dict[str, Any]


def transaction_rows(disk: Disk, cut_off: CutOff, notes: Notes) -> list[_Row]:
    """Return the last value of each transactional id, with the columns of `TRANSACTIONS`."""
    rows = []
    for log in newest_replicas(disk, TOPIC, notes):
        typed = typed_records(TOPIC, KeyedLog(log, cut_off, notes).last_of_each_key())
        notes.add_typed(log.name, typed)
        for record in typed.tables[0].to_pylist() if 0 in typed.tables else ():
            rows.append(_transaction(record))
    return sorted(rows, key=lambda row: row["transactionalId"])


def coordinator_log(
    disk: Disk, cut_off: CutOff, producer_ids: Collection[int], count: int | None = None
) -> CoordinatorLog:
    """Return the state of each transactional id in the coordinator's log, and all transactions of some producers.

    `count` is the number of the topic's partitions in the cluster; None if unknown.
    """
    notes, result, histories = Notes(), CoordinatorLog(), dict[str, list[_Row]]()
    logs = newest_replicas(disk, TOPIC, notes)
    for log in logs:
        keyed = KeyedLog(log, cut_off, notes)
        for chunk in keyed.last_of_each_key():
            typed = typed_records(TOPIC, [chunk])
            notes.add_typed(log.name, typed)
            columns = chunk.columns
            versions = {
                offset: int.from_bytes((columns.value(i) or b"")[:2], "big")
                for i, offset in enumerate(columns.offset.tolist())
            }
            for record in typed.tables[0].to_pylist() if 0 in typed.tables else ():
                record["valueVersion"] = versions[record["recordOffset"]]
                result.current[record["transactionalId"]] = record
        if not producer_ids:
            continue
        state = LENIENT.start()
        wanted = pa.array(sorted(producer_ids), pa.int64())
        for chunk in keyed.read(state):
            typed = typed_records(TOPIC, [chunk])
            for table in typed.tables.values() if 0 in typed.tables else ():
                ids = pc.or_(pc.is_in(table["producerId"], wanted), pc.is_in(table["previousProducerId"], wanted))
                for record in table.filter(ids).to_pylist():
                    histories.setdefault(record["transactionalId"], []).append(record)
        keyed.note_gaps(state)
    for records in histories.values():
        for noted in noted_transactions(sorted(records, key=lambda record: record["recordOffset"])):
            result.noted.setdefault(noted.producer_id, []).append(noted)
    result.lacks = _lacks([int(log.name.rpartition("-")[2]) for log in logs], count, notes)
    return result


def coordinator_count(disk: Disk) -> int | None:
    """Return the number of the topic's partitions in a cluster, if its metadata is on the disk."""
    for metadata in clusters_of(disk)[0].values():
        topic_id = metadata.topic_ids.get(TOPIC)
        numbers = [key[1] for key in metadata.replicas if key[0] == topic_id]
        if numbers:
            return max(numbers) + 1
    return None


def _lacks(numbers: list[int], count: int | None, notes: Notes) -> str:
    """Say why a producer that no transactional id has may have one nevertheless."""
    if not numbers:
        return f"{TOPIC} is not here"
    missing = [number for number in range(count or max(numbers) + 1) if number not in numbers]
    if missing:
        return f"{TOPIC}-{missing[0]} is not here"
    if notes.has_damage or notes.has_left_out:
        return f"{TOPIC} cannot be read whole: {[*notes.damage, *notes][0]}"
    return ""


def _transaction(record: _Row) -> _Row:
    status = record["transactionStatus"]
    partitions = record["transactionPartitions"] if status in _WITH_PARTITIONS else None
    return {
        "transactionalId": record["transactionalId"],
        "producerId": record["producerId"],
        "producerEpoch": record["producerEpoch"],
        "state": STATES[status] if 0 <= status < len(STATES) else f"Unknown({status})",
        "timeoutMs": record["transactionTimeoutMs"],
        "startTime": utc(record["transactionStartTimestampMs"]),
        "lastUpdateTime": utc(record["transactionLastUpdateTimestampMs"]),
        "partitions": [{"topic": part["topic"], "partitions": part["partitionIds"]} for part in partitions or ()],
        "previousProducerId": _or_none(record["previousProducerId"]),
        "nextProducerId": _or_none(record["nextProducerId"]),
        "clientTransactionVersion": record["clientTransactionVersion"],
        "statePartition": record["internalPartition"],
    }


def _or_none(number: int) -> int | None:
    return None if number < 0 else number


def list_producers(disk: Disk, ends: PartitionEnds, notes: Notes) -> Iterator[tuple[str, int, ProducerRow]]:
    for topic in sorted(disk.topics):
        for log in newest_replicas(disk, topic, notes):
            partition = int(log.name.rpartition("-")[2])
            end, refused = ends.of(topic, partition).end, list[PylogsegError]()
            for _, producer in sorted(producers_of(log, end or 0, refused.append).items()):
                yield topic, partition, producer
            notes.add_damage(*(f"{log.name}: {error}" for error in refused))


def producers_table(disk: Disk, cut_off: CutOff, notes: Notes) -> pa.Table:
    names = {row["producerId"]: row["transactionalId"] for row in transaction_rows(disk, cut_off, notes)}
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "producerId": producer.producer_id,
            "producerEpoch": producer.epoch,
            "lastSequence": producer.last_sequence,
            "lastTimestamp": producer.last_timestamp,
            "coordinatorEpoch": _or_none(producer.coordinator_epoch),
            "openSinceOffset": _or_none(producer.first_txn_offset),
            "transactionalId": names.get(producer.producer_id),
        }
        for topic, partition, producer in list_producers(disk, PartitionEnds(disk, cut_off, notes), notes)
    ]
    return state_table(rows, PRODUCERS)


def open_transactions_table(
    disk: Disk, cut_off: CutOff, notes: Notes, now_ms: int, max_timeout_ms: int = MAX_TIMEOUT_MS
) -> pa.Table:
    """Return a row for each transaction that is open in a partition.

    It hangs if its producer wrote nothing for longer than any timeout, and no coordinator will end it: none of the
    transactional ids has the producer, or that id's transaction does not hold the partition.
    """
    transactions = {row["producerId"]: row for row in transaction_rows(disk, cut_off, notes)}
    rows = [
        open_row(topic, partition, producer, transactions, now_ms, max_timeout_ms)
        for topic, partition, producer in list_producers(disk, PartitionEnds(disk, cut_off, notes), notes)
        if producer.first_txn_offset >= 0
    ]
    return state_table(rows, OPEN_TRANSACTIONS)


def open_row(
    topic: str,
    partition: int,
    producer: ProducerRow,
    known: Mapping[int, _Row],
    now_ms: int,
    max_timeout_ms: int = MAX_TIMEOUT_MS,
) -> _Row:
    """Return the row of an open transaction; `known` are the rows of transactional ids, by producer."""
    transaction = known.get(producer.producer_id)
    held = [] if transaction is None else transaction["partitions"]
    is_held = any(part["topic"] == topic and partition in part["partitions"] for part in held)
    age = max(0, now_ms - producer.last_timestamp)
    hangs = age > max_timeout_ms and not is_held
    return {
        "topic": topic,
        "partition": partition,
        "producerId": producer.producer_id,
        "producerEpoch": producer.epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "startOffset": producer.first_txn_offset,
        "lastTimestamp": producer.last_timestamp,
        "ageMs": age,
        "transactionalId": None if transaction is None else transaction["transactionalId"],
        "hanging": hangs,
        "abortCommand": abort_command(topic, partition, producer) if hangs else None,
        "coordinatorState": None if transaction is None else transaction["state"],
        "isHeld": is_held and transaction is not None and producer.epoch in _epochs_of(transaction),
    }


def _epochs_of(transaction: _Row) -> tuple[int, ...]:
    """Return the epochs that the batches of a transaction may have: its end may have raised it."""
    epoch = transaction["producerEpoch"]
    return (epoch,) if transaction["state"] == "Ongoing" else (epoch, epoch - 1)


def abort_command(topic: str, partition: int, producer: ProducerRow) -> str:
    """The command of Kafka's that writes the missing marker."""
    return (
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort "
        f"--topic {topic} --partition {partition} --start-offset {producer.first_txn_offset}"
    )
