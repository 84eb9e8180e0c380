"""Logs of one cluster made fit for another, which must not take its producers and leaders for those of the old one.

A cluster hands out producer ids from 0 on, and a log remembers its producers by their batches, so a new producer with
an id that the log knows would be taken for the old one: its first batch would count as written already, or as out of
order. So the old producers get ids that no cluster hands out, the same in batches, markers, indexes and snapshots:
offsets, sequences and what was aborted stay as they are. Leader epochs begin again with 0: followers and consumers ask
a leader where the epoch of what they have ended, and a leader forgets the epochs above its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg._native import _append
from pylogseg.config import LogConfig
from pylogseg.disk.disk import open_dir
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import Storage
from pylogseg.errors import CorruptionError
from pylogseg.format.control_batches import marker_batch
from pylogseg.format.files.checkpoint import EpochEntry, encode_leader_epochs
from pylogseg.format.files.snapshot import encode_snapshot, parse_snapshot
from pylogseg.format.files.txnindex import TxnIndex
from pylogseg.format.names import FileKind, parse_file_name
from pylogseg.inspect.verify.findings import Finding
from pylogseg.log.directory import partition_of
from pylogseg.log.log import Log
from pylogseg.log.producer_state import Origin
from pylogseg.log.state import Start
from pylogseg.offline.reindexing import reindex
from pylogseg.offline.restoring.adopting_offsets import forget_cluster
from pylogseg.offline.result import PartitionResult
from pylogseg.reading.logs import logs_of
from pylogseg.values.internal.groups import TOPIC as GROUPS
from pylogseg.values.internal.producers import ProducerRow, producers_of
from pylogseg.values.internal.shares import TOPIC as SHARES
from pylogseg.values.internal.transactions import abort_command
from pylogseg.walker.windows import Window, walk

#: A cluster hands out ids from 0 on, and none gets as far as this.
HANDED_OUT = 1 << 40
#: `pylogseg broker` draws its ids at random below this.
_DRAWN = 1 << 61
#: Transactions that are named.
_FEW = 20


class Arrival(NamedTuple):
    """How a log comes into a cluster."""

    #: Whether its producers and leaders are those of another cluster, or of another topic of its name.
    is_foreign: bool = False
    why: str = ""  #: What shows it.
    origin: str = ""  #: What is known of where it comes from: logs of one origin get the same ids.
    aborts: bool = False  #: Whether transactions that are open at its end are aborted.

    def ids(self, found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the ids that producers get."""
        return renamed(found, self.origin) if self.is_foreign else found

    def changes(self, name: str) -> Callable[[Window], Any] | None:
        """Return what changes the records of a partition, a window at a time; None if nothing does."""
        if not self.is_foreign or partition_of(name)[0] != GROUPS:
            return None

        def changed(window: Window) -> bytearray:
            data = bytearray(window.buffer)
            forget_cluster(data, window)
            return data

        return changed


def renamed(ids: npt.NDArray[np.int64], origin: str) -> npt.NDArray[np.int64]:
    """Return producer ids that no cluster hands out: the low 40 bits are the old id. Others stay."""
    base = _DRAWN | (_codec.crc32c(origin.encode()) & 0xFFFFF) << 40
    return np.where((ids >= 0) & (ids < HANDED_OUT), ids + base, ids)


def adopt(
    storage: Storage,
    folder: str,
    arrival: Arrival,
    start: Start,
    result: PartitionResult,
    on_bytes: Callable[[int], None] = lambda size: None,
) -> int:
    """Make a log that was just written fit for where it comes to; return by how many offsets it grew.

    The numbers of the result get ``producersRenamed``, ``transactionsAborted`` and ``transactionsOpen``, its rows the
    open transactions.
    """
    if arrival.is_foreign:
        result.numbers["producersRenamed"] = _rename(storage, folder, arrival.origin, result, on_bytes)
    found = open_transactions(folder)
    if found and arrival.aborts:
        _abort(storage, folder, found, start)
    result.numbers["transactionsAborted" if arrival.aborts else "transactionsOpen"] = len(found)
    result.rows += [_row(result.name, producer, arrival) for producer in found]
    return len(found) if arrival.aborts else 0


def _row(name: str, producer: ProducerRow, arrival: Arrival) -> dict[str, Any]:
    topic, partition = partition_of(name)
    return {
        "type": "abortedTransaction" if arrival.aborts else "openTransaction",
        "partition": name,
        "producerId": producer.producer_id,
        "producerEpoch": producer.epoch,
        "startOffset": producer.first_txn_offset,
        "abortCommand": None if arrival.aborts else abort_command(topic, partition, producer),
    }


# ---- producers and leaders ----


def _rename(
    storage: Storage, folder: str, origin: str, result: PartitionResult, on_bytes: Callable[[int], None]
) -> int:
    """Give all producers other ids, and all batches leader epoch 0; return the number of producers."""
    seen: set[int] = set()
    has_commits = partition_of(result.name)[0] == GROUPS
    rebuilds, first, kept = False, None, 0
    for entry in storage.list_folder(folder):
        name, path = parse_file_name(entry.name), storage.join(folder, entry.name)
        if entry.is_dir or name.suffix not in ("", ".swap"):
            continue
        if name.kind is FileKind.LOG:
            first = name.offset if first is None else first
            ids, left = _rename_in_batches(storage, path, origin, has_commits, on_bytes)
            seen, kept = seen | ids, kept + left
        elif name.kind is FileKind.TXN_INDEX:
            rebuilds |= not _rename_in_index(storage, path, origin)
        elif name.kind is FileKind.PRODUCER_SNAPSHOT:
            seen |= _rename_in_snapshot(storage, path, origin)
    storage.write_synced(
        storage.join(folder, FileKind.LEADER_EPOCHS.value), encode_leader_epochs([EpochEntry(0, first or 0)])
    )
    if kept:
        result.not_done = True
        result.notes.append(
            f"{kept:,} records of compressed batches keep the leader epochs of their committed offsets, for which "
            "Java's consumers wait: carry the offsets over (pylogseg groups SRC --export), and leave this partition out"
        )
    if rebuilds:
        reindex(folder, ("txn",))
    storage.sync_folder(folder)
    return len(seen)


def _rename_in_batches(
    storage: Storage, path: str, origin: str, has_commits: bool, on_bytes: Callable[[int], None]
) -> tuple[set[int], int]:
    """Patch the batches of a file, whose CRCs were checked; return the ids that it had, and what could not be done."""
    file, seen, kept = storage.open_index(path), set[int](), 0
    try:
        for window in walk(file, crc=False):
            if not isinstance(window, Window):
                continue
            rows = window.batches.rows
            ids = np.ascontiguousarray(rows["producer_id"])
            seen.update(np.unique(ids[ids >= 0]).tolist())
            data = bytearray(window.buffer)
            epochs = np.zeros(len(rows), np.int32)
            if has_commits:
                kept += forget_cluster(data, window)
            if _append.set_owners(data, rows, window.file_position, renamed(ids, origin), epochs) or has_commits:
                file.put(window.file_position, data)
            on_bytes(len(data))
        file.sync()
    finally:
        file.close()
    return seen, kept


def _rename_in_index(storage: Storage, path: str, origin: str) -> bool:
    """Rename in a transaction index; whether it could be read."""
    try:
        entries = TxnIndex(storage.read_all(path), path).entries.copy()
    except CorruptionError:
        return False
    entries["producer_id"] = renamed(entries["producer_id"].astype(np.int64), origin)
    storage.write_synced(path, entries.tobytes())
    return True


def _rename_in_snapshot(storage: Storage, path: str, origin: str) -> set[int]:
    """Rename in a producer snapshot; one that cannot be read goes, as at a broker's start. Return the ids it had."""
    try:
        entries = parse_snapshot(storage.read_all(path), path)
    except CorruptionError:
        storage.remove(path)
        return set()
    ids = np.array([entry.producer_id for entry in entries], np.int64)
    new = [entry._replace(producer_id=to) for entry, to in zip(entries, renamed(ids, origin).tolist(), strict=True)]
    storage.write_synced(path, encode_snapshot(new))
    return set(ids.tolist())


# ---- open transactions ----


def open_transactions(folder: str) -> list[ProducerRow]:
    """Return the producers with an open transaction at the end of a log, the oldest transaction first."""
    for log in logs_of(open_dir(folder)):
        found = producers_of(log, log.log_end_offset).values()
        return sorted((p for p in found if p.first_txn_offset >= 0), key=lambda p: p.first_txn_offset)
    return []


def _abort(storage: Storage, folder: str, found: list[ProducerRow], start: Start) -> None:
    """End transactions as a coordinator does that gives them up: by a marker each, which the engine appends."""
    clock = SystemClock()
    log = Log.open(Environment(storage, clock, CollectingScheduler()), folder, LogConfig.of(), start)
    try:
        epoch = max(log.epochs.latest_epoch, 0)
        for producer in found:
            marker = marker_batch(
                "abort",
                base_offset=0,
                timestamp_ms=clock.now_ms(),
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                coordinator_epoch=max(producer.coordinator_epoch, 0),
            )
            log.append_as_leader(marker, epoch, origin=Origin.COORDINATOR, in_place=True)
        log.flush()
    finally:
        log.close()
    storage.sync_folder(folder)


# ---- what clients will see ----


def seen_by_clients(
    results: Iterable[PartitionResult], arrivals: Mapping[str, Arrival], lacking: Sequence[Finding] = ()
) -> Iterator[str]:
    """Yield lines on what clients of restored partitions will see."""
    done = [result for result in results if result.state == "done"]
    by_arrival: dict[tuple[bool, str], list[PartitionResult]] = {}
    for result in done:
        if arrival := arrivals.get(result.name):
            by_arrival.setdefault((arrival.is_foreign, arrival.why), []).append(result)
    for (is_foreign, why), those in by_arrival.items():
        count = sum(result.numbers.get("producersRenamed", 0) for result in those)
        yield (
            f"{_count(len(those), 'partition')}: producers are forgotten, {_count(count, 'id')} ({why}): new ones "
            "with the same ids are not taken for them, and leader epochs begin with 0"
            if is_foreign
            else f"{_count(len(those), 'partition')}: producers go on as they are ({why})"
        )
    rows = [row for result in done for row in result.rows if row["type"] == "abortedTransaction"]
    if rows:
        more = f", and {len(rows) - _FEW:,} more" if len(rows) > _FEW else ""
        places = ", ".join(f"{row['partition']} from offset {row['startOffset']} on" for row in rows[:_FEW])
        yield f"{_count(len(rows), 'open transaction')} aborted: {places}{more}"
    rows = [row for result in done for row in result.rows if row["type"] == "openTransaction"]
    for row in rows[:_FEW]:
        name, offset, arrival = row["partition"], row["startOffset"], arrivals[row["partition"]]
        yield (
            f"{name}: a transaction is open, which no coordinator will end, and consumers with read_committed stop at "
            f"offset {offset}: restore again with --abort-open-transactions, or later: {row['abortCommand']}"
            if arrival.is_foreign
            else f"{name}: a transaction is open, and consumers with read_committed stop at offset {offset} until its "
            f"coordinator ends it; if that does not know of it any more: {row['abortCommand']}"
        )
    if len(rows) > _FEW:
        yield f"{len(rows) - _FEW:,} more transactions are open: --json has them all"
    missing = sorted({finding.path for finding in lacking})
    if missing:
        more = ", ..." if len(missing) > _FEW else ""
        yield f"records are missing, which no consumer gets, in {', '.join(missing[:_FEW])}{more}"
    foreign = [result.name for result in done if result.name in arrivals and arrivals[result.name].is_foreign]
    if any(partition_of(name)[0] == GROUPS for name in foreign):
        yield f"groups go on at the offsets in the restored {GROUPS}"
    elif foreign:
        yield "groups are those of this cluster: pylogseg groups SRC --export carries the offsets of the old one over"
    if any(partition_of(name)[0] == SHARES for name in foreign):
        yield (
            "share groups begin anew, at the end unless share.auto.offset.reset says otherwise: "
            f"{SHARES} names topics by the ids of the old cluster; pylogseg groups SRC --offsets says where they "
            "stood, and kafka-share-groups.sh --reset-offsets sets them before their consumers start"
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
