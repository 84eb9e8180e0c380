"""Logs of one cluster made fit for another: the new cluster must not mistake old producers and leaders for its own.

A cluster hands out producer ids from 0 on, and a log remembers its producers by their batches, so a new producer with
an id that the log knows would be taken for the old one: its first batch would count as written already, or as out of
order. So the old producers get ids that no cluster hands out, the same in batches, markers, indexes and snapshots:
offsets, sequences and what was aborted stay as they are. Leader epochs begin again with 0: followers and consumers ask
a leader where the epoch of what they have ended, and a leader forgets the epochs above its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg._native import _append
from pylogseg.env.storage import Storage
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.names import FileKind, parse_file_name
from pylogseg.format.records import SOURCE_SHIFT, decode_parts
from pylogseg.inspect.verify.findings import Finding
from pylogseg.log.directory import partition_of
from pylogseg.offline.reindexing import reindex
from pylogseg.offline.result import PartitionResult
from pylogseg.transfer.checked import checked_windows
from pylogseg.transfer.segment_files import rename_in_snapshot, rename_in_transactions, write_epochs
from pylogseg.values.internal.groups import TOPIC as GROUPS
from pylogseg.values.internal.producers import ProducerRow
from pylogseg.values.internal.shares import TOPIC as SHARES
from pylogseg.values.internal.transaction_ends import HELD
from pylogseg.values.internal.transactions import TOPIC as TRANSACTIONS
from pylogseg.walker.windows import Window

#: A cluster hands out ids from 0 on, and none gets as far as this.
HANDED_OUT = 1 << 40
#: `pylogseg broker` draws its ids at random below this.
_DRAWN = 1 << 61
#: Transactions that are named.
_FEW = 20
_ENDED = {"abortedTransaction": "aborted", "committedTransaction": "committed"}


class Arrival(NamedTuple):
    """How a log comes into a cluster."""

    #: True if its producers and leaders are those of another cluster, or of another topic of its name.
    is_foreign: bool = False
    why: str = ""  #: What shows it.
    origin: str = ""  #: What is known of where it comes from: logs of one origin get the same ids.
    aborts: bool = False  #: True if transactions that are open at its end are aborted.

    def ids(self, found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return rename_ids(found, self.origin) if self.is_foreign else found

    def changes(self, name: str) -> Callable[[Window], Any] | None:
        """Return the function that changes a partition's records, a window at a time; None without changes."""
        if not self.is_foreign or partition_of(name)[0] != GROUPS:
            return None

        def change_window(window: Window) -> bytearray:
            data = bytearray(window.buffer)
            forget_cluster(data, window)
            return data

        return change_window


def renamed_back(row: ProducerRow) -> ProducerRow:
    """Return a producer with the id that it had in the cluster that it comes from."""
    number = row.producer_id
    return replace(row, producer_id=number & (HANDED_OUT - 1)) if number >= _DRAWN else row


def rename_ids(ids: npt.NDArray[np.int64], origin: str) -> npt.NDArray[np.int64]:
    """Return producer ids that no cluster hands out: the low 40 bits are the old id. Others stay."""
    base = _DRAWN | (_codec.crc32c(origin.encode()) & 0xFFFFF) << 40
    return np.where((ids >= 0) & (ids < HANDED_OUT), ids + base, ids)


def adopt(
    storage: Storage,
    folder: str,
    arrival: Arrival,
    result: PartitionResult,
    on_bytes: Callable[[int], None] = lambda size: None,
) -> None:
    """Make a log that was just written fit for the cluster that it comes to.

    The numbers of the result get ``producersRenamed``. Open transactions are ended when all logs are written.
    """
    if arrival.is_foreign:
        result.numbers["producersRenamed"] = _rename(storage, folder, arrival.origin, result, on_bytes)


# ---- producers and leaders ----


def _rename(
    storage: Storage, folder: str, origin: str, result: PartitionResult, on_bytes: Callable[[int], None]
) -> int:
    """Give all producers other ids, and all batches leader epoch 0; return the number of producers."""
    seen: set[int] = set()
    new_ids = partial(rename_ids, origin=origin)
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
            rebuilds |= not rename_in_transactions(storage, path, new_ids)
        elif name.kind is FileKind.PRODUCER_SNAPSHOT:
            seen |= rename_in_snapshot(storage, path, new_ids)
    write_epochs(storage, folder, [EpochEntry(0, first or 0)])
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
    """Patch the batches of a file with checked CRCs; return its old producer ids, and the batches that stay."""
    file, seen, kept = storage.open_index(path), set[int](), 0
    try:
        for window in checked_windows(file, 0, lambda gap: None, crc=False):
            rows = window.batches.rows
            ids = np.ascontiguousarray(rows["producer_id"])
            seen.update(np.unique(ids[ids >= 0]).tolist())
            data = bytearray(window.buffer)
            epochs = np.zeros(len(rows), np.int32)
            if has_commits:
                kept += forget_cluster(data, window)
            if _append.set_owners(data, rows, window.file_position, rename_ids(ids, origin), epochs) or has_commits:
                file.put(window.file_position, data)
            on_bytes(len(data))
        file.sync()
    finally:
        file.close()
    return seen, kept


# ---- what clients will see ----


def seen_by_clients(
    results: Iterable[PartitionResult], arrivals: Mapping[str, Arrival], lacking: Sequence[Finding] = ()
) -> Iterator[str]:
    """Yield lines about effects on clients of restored partitions."""
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
    rows = [row for result in done for row in result.rows]
    yield from _describe_ends(rows)
    rows = [row for row in rows if row["type"] == "openTransaction"]
    for row in rows[:_FEW]:
        place = f"{row['partition']}: {_label(row)} is open"
        stop = f"consumers with read_committed stop at offset {row['startOffset']}"
        if row["why"] == HELD and not arrivals[row["partition"]].is_foreign:
            yield f"{place}, and {stop} until its coordinator ends it, which has it in the restored {TRANSACTIONS}"
        elif row["why"] == HELD:
            yield (
                f"{place}, as it was, and no coordinator of this cluster will end it: {stop}: "
                f"restore again with --abort-open-transactions, or later: {row['abortCommand']}"
            )
        elif arrivals[row["partition"]].is_foreign:
            yield (
                f"{place}, which no coordinator will end, and {stop}: "
                f"restore again with --abort-open-transactions, or later: {row['abortCommand']}"
            )
        else:
            yield (
                f"{place}, and {stop} until its coordinator ends it ({row['why']}); "
                f"if that does not know of it any more: {row['abortCommand']}"
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


def _describe_ends(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each transaction that was ended, and each record that the coordinator's log got."""
    lines = [
        f"{row['partition']} from offset {row['startOffset']} on: {_label(row)} is {_ENDED[row['type']]}: {row['why']}"
        for row in rows
        if row["type"] in _ENDED
    ]
    lines += [
        f"{TRANSACTIONS}: {row['transactionalId']} gets a record of state {row['why']}"
        for row in rows
        if row["type"] == "transactionState"
    ]
    yield from lines[:_FEW]
    if len(lines) > _FEW:
        yield f"and {len(lines) - _FEW:,} more ends of transactions: --json has them all"


def _label(row: Mapping[str, Any]) -> str:
    name = "" if row["transactionalId"] is None else f"of {row['transactionalId']}, "
    return f"a transaction ({name}producer {row['producerId']}, epoch {row['producerEpoch']})"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


# ---- committed offsets, each of which names a leader epoch and a topic id of the old cluster ----

# A client that gets such an epoch waits for a leader that has it, and a broker does not give an offset of a topic with
# another id. Both become "not known", in place: the batches keep their sizes.

#: Keys of these versions are those of committed offsets.
_COMMITS = (0, 1)
_WITH_EPOCH, _WITH_TOPIC_ID = 3, 4
_EPOCH_AT = 10  #: In a value, after its version and the offset.
_METADATA_AT = 14
_TIME = 8
#: One tagged field, with tag 0, of 16 bytes.
_TOPIC_ID_TAG = (1, 0, 16)

_Places = npt.NDArray[np.int64]


def forget_cluster(data: bytearray, window: Window) -> int:
    """Change the committed offsets in a copy of a window's bytes; return how many could not be: they are compressed."""
    rows = window.batches[~window.batches.is_control & (window.batches.magic == 2)]
    buffer = np.frombuffer(data, np.uint8)
    kept = 0
    for columns, _ in decode_parts(rows, window.buffer, window.file_position):
        mask = (columns.key_size >= 2) & (columns.value_size >= _METADATA_AT)
        plain = mask & (columns.key_place >> SOURCE_SHIFT == 0) & (columns.value_place >> SOURCE_SHIFT == 0)
        kept += int((mask & ~plain).sum())
        keys, values = columns.key_place[plain], columns.value_place[plain]
        versions = _short(buffer, values)
        chosen = np.isin(_short(buffer, keys), _COMMITS) & (versions >= _WITH_EPOCH)
        _clear(buffer, values[chosen] + _EPOCH_AT, 4, 0xFF)
        flexible = chosen & (versions >= _WITH_TOPIC_ID)
        ends = values + columns.value_size[plain]
        ids = _topic_ids(buffer, values[flexible], ends[flexible])
        _clear(buffer, ids, 16, 0)
        touched = columns.batches[np.unique(columns.batch[plain][chosen])]
        for position, size in zip(touched.position.tolist(), touched.size.tolist(), strict=True):
            at = position - window.file_position
            crc = _codec.crc32c(memoryview(data)[at + 21 : at + size])
            data[at + 17 : at + 21] = crc.to_bytes(4, "big")
    return kept


def _short(buffer: npt.NDArray[np.uint8], places: _Places) -> npt.NDArray[np.int16]:
    pair = buffer[places].astype(np.uint16) << 8 | buffer[places + 1]
    return pair.view(np.int16)


def _clear(buffer: npt.NDArray[Any], places: _Places, count: int, byte: int) -> None:
    buffer[(places[:, None] + np.arange(count)).reshape(-1)] = byte


def _topic_ids(buffer: npt.NDArray[np.uint8], values: _Places, ends: _Places) -> _Places:
    """Return the places of the topic ids in values of version 4; values without one are left out."""
    first = buffer[values + _METADATA_AT].astype(np.int64)
    second = buffer[np.minimum(values + _METADATA_AT + 1, ends - 1)].astype(np.int64)
    is_long = first >= 0x80  # an unsigned varint of two bytes, of the length and 1; metadata is below 4 KiB in Kafka
    length = np.where(is_long, (first & 0x7F) | (second & 0x7F) << 7, first)
    tags = values + _METADATA_AT + np.where(is_long, 2, 1) + length - 1 + _TIME
    fits = tags + len(_TOPIC_ID_TAG) + 16 == ends
    tags = tags[fits]
    is_id = np.ones(len(tags), np.bool_)
    for i, byte in enumerate(_TOPIC_ID_TAG):
        is_id &= buffer[tags + i] == byte
    found: _Places = tags[is_id] + len(_TOPIC_ID_TAG)
    return found
