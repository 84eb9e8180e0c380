"""Ends the transactions that are open in logs which were just written, and completes the log of their coordinator.

`values/internal/transaction_ends.py` decides; here markers and records are appended, as a coordinator does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pylogseg.config import LogConfig
from pylogseg.disk.listing import open_dir
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import Storage
from pylogseg.errors import PylogsegError
from pylogseg.format.control_batches import marker_batch
from pylogseg.format.messages.framing import encode_coordinator
from pylogseg.format.names import FileKind, TopicPartition, parse_file_name
from pylogseg.log.log import Log
from pylogseg.log.producer_state import Origin
from pylogseg.log.state import Start
from pylogseg.reading.arrow.encode import encode
from pylogseg.reading.logs import LogFiles, logs_of
from pylogseg.values.internal.producers import ProducerRow, marker_before, producers_of
from pylogseg.values.internal.transaction_ends import EndPlan, OpenEnd, StateRecord
from pylogseg.values.internal.transactions import TOPIC

_BATCH_BYTES = 1 << 20


class LogFolder(NamedTuple):
    """A folder of a log that nobody else has open, and how the engine opens it."""

    folder: str
    start: Start


def transactional_producers(folder: str, doubts: list[str], *, name: str = "", crc: bool = True) -> list[ProducerRow]:
    """Return the producers of a log that have or had a transaction, first the one with the oldest open one.

    `doubts` gets a sentence if the log has a batch that no broker would load, or a snapshot that cannot be read; it
    begins with a name, if one is given.
    """
    for log in logs_of(open_dir(folder)):
        return producers_with_transactions(log, doubts, name=name, crc=crc)
    return []


def producers_with_transactions(
    log: LogFiles, doubts: list[str], *, name: str = "", crc: bool = True
) -> list[ProducerRow]:
    """Do the work of `transactional_producers` for an open log."""
    refused = list[PylogsegError]()
    rows = producers_of(log, log.log_end_offset, refused.append, crc=crc).values()
    if refused:
        more = f", and {len(refused) - 1:,} more" if refused[1:] else ""
        text = f"which transactions are open in it, since no broker would load all of it: {refused[0]}{more}"
        doubts.append(f"{name}: {text}" if name else text)
    kept = [row for row in rows if row.first_txn_offset >= 0 or row.coordinator_epoch >= 0]
    for row in kept:
        if row.first_txn_offset >= 0 and row.marker is None and row.coordinator_epoch >= 0:
            row.marker = marker_before(log, row)
    return sorted(kept, key=lambda row: (row.first_txn_offset < 0, row.first_txn_offset, row.producer_id))


def apply_ends(
    storage: Storage, folders: Mapping[TopicPartition, LogFolder], plan: EndPlan
) -> dict[TopicPartition, int]:
    """Append markers and records; return by how many offsets each log grew."""
    grown = {}
    for place, ends in plan.ends.items():
        wanted = [(producer, end) for producer, end in ends if end.action != "leave"]
        if wanted and place in folders:
            _append(storage, folders[place], wanted, ())
            grown[place] = len(wanted)
    by_partition: dict[TopicPartition, list[StateRecord]] = {}
    for record in plan.records:
        by_partition.setdefault((TOPIC, record.partition), []).append(record)
    for place, records in by_partition.items():
        if place in folders:
            _append(storage, folders[place], (), records)
            grown[place] = len(records)
    return grown


def end_line(name: str, producer: ProducerRow, end: OpenEnd) -> str:
    """Return the line that says how an open transaction was ended."""
    of = "" if end.transactional_id is None else f"of {end.transactional_id}, "
    return (
        f"{name} from offset {producer.first_txn_offset} on: a transaction ({of}producer {producer.producer_id}, "
        f"epoch {producer.epoch}) is {'committed' if end.action == 'commit' else 'aborted'}: {end.why}"
    )


def _append(
    storage: Storage, to: LogFolder, ends: Sequence[tuple[ProducerRow, OpenEnd]], records: Sequence[StateRecord]
) -> None:
    environment = Environment(storage, SystemClock(), CollectingScheduler())
    log = Log.open(environment, to.folder, LogConfig.of(), to.start)
    try:
        epoch = max(log.epochs.latest_epoch, 0)
        for producer, end in ends:
            marker = marker_batch(
                "commit" if end.action == "commit" else "abort",
                base_offset=0,
                timestamp_ms=end.time_ms,
                producer_id=producer.producer_id,
                producer_epoch=end.epoch,
                coordinator_epoch=max(producer.coordinator_epoch, 0),
            )
            log.append_as_leader(marker, epoch, origin=Origin.COORDINATOR, in_place=True)
        for record in records:  # a batch each, as a coordinator writes them
            key, value = encode_coordinator(
                "TransactionLog", {"transactionalId": record.transactional_id}, record.version, record.fields
            )
            rows = [(record.fields["transactionLastUpdateTimestampMs"], key, value)]
            data = encode(rows, base_offset=0, batch_bytes=_BATCH_BYTES)
            log.append_as_leader(data, epoch, origin=Origin.COORDINATOR, in_place=True)
        log.flush()
    finally:
        log.close()
    _remove_stray_snapshots(storage, to.folder)
    storage.sync_folder(to.folder)


def _remove_stray_snapshots(storage: Storage, folder: str) -> None:
    """Remove a snapshot where the log ended before: a broker needs the snapshots of its segments, and the last one."""
    names = [(parse_file_name(entry.name), entry.name) for entry in storage.list_folder(folder) if not entry.is_dir]
    bases = {name.offset for name, _ in names if name.kind is FileKind.LOG}
    snapshots = sorted((name.offset or 0, text) for name, text in names if name.kind is FileKind.PRODUCER_SNAPSHOT)
    for offset, text in snapshots[:-1]:
        if offset not in bases:
            storage.remove(storage.join(folder, text))
