"""The files beside the segments of a log that is made of another one: epochs, snapshots, indexes, aborted transactions.

An append makes its own in `log`; all others are made here.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from pylogseg.config import LogConfig
from pylogseg.env.clock import Clock, SystemClock
from pylogseg.env.overlay import OverlayStorage
from pylogseg.env.storage import Storage
from pylogseg.errors import CorruptionError
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.checkpoint import EpochEntry, encode_leader_epochs
from pylogseg.format.files.snapshot import encode_snapshot, parse_snapshot
from pylogseg.format.files.txnindex import TxnIndex, encode_txn_index
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.log.producer_snapshots import entry_of
from pylogseg.log.producers import Producers
from pylogseg.log.segment import LogSegment

Ids = npt.NDArray[np.int64]
_BUILD = LogConfig()


def epochs_file(epochs: Iterable[EpochEntry], below: int | None = None) -> bytes:
    """Return a leader epoch checkpoint with the epochs that begin below an offset."""
    return encode_leader_epochs(entry for entry in epochs if below is None or entry.start_offset < below)


def write_epochs(storage: Storage, folder: str, epochs: Iterable[EpochEntry], below: int | None = None) -> None:
    storage.write_synced(storage.join(folder, FileKind.LEADER_EPOCHS.value), epochs_file(epochs, below))


def snapshot_file(producers: Producers) -> bytes:
    return encode_snapshot(map(entry_of, producers.active.values()))


def last_stable(snapshot: bytes, end: int) -> int:
    """Return where the first open transaction of a snapshot begins; else the end."""
    firsts = [entry.first_txn_offset for entry in parse_snapshot(snapshot, "snapshot") if entry.has_open_txn]
    return min([end, *firsts])


def copy_snapshot(data: bytes, source: str, storage: Storage, target: str) -> CorruptionError | None:
    """Write a snapshot of producers that was read; return why it is left out, if no broker could read it."""
    try:
        parse_snapshot(data, source)
    except CorruptionError as error:
        return error
    storage.write_synced(target, data)
    return None


def rename_in_snapshot(storage: Storage, path: str, new_ids: Callable[[Ids], Ids]) -> set[int]:
    """Give the producers of a snapshot other ids; return the old ones.

    A snapshot that cannot be read is removed, as at a broker's start.
    """
    try:
        entries = parse_snapshot(storage.read_all(path), path)
    except CorruptionError:
        storage.remove(path)
        return set()
    ids = np.array([entry.producer_id for entry in entries], np.int64)
    new = [entry._replace(producer_id=to) for entry, to in zip(entries, new_ids(ids).tolist(), strict=True)]
    storage.write_synced(path, encode_snapshot(new))
    return set(ids.tolist())


def rename_in_transactions(storage: Storage, path: str, new_ids: Callable[[Ids], Ids]) -> bool:
    """Give the producers of a transaction index other ids; return whether it could be read."""
    try:
        entries = TxnIndex(storage.read_all(path), path).entries.copy()
    except CorruptionError:
        return False
    entries["producer_id"] = new_ids(entries["producer_id"].astype(np.int64))
    storage.write_synced(path, entries.tobytes())
    return True


def cut_transactions(data: bytes, path: str, first: int, end: int) -> bytes:
    """Return a transaction index with the transactions that were aborted in a range of offsets."""
    return encode_txn_index(each for each in TxnIndex(data, path) if first <= each.last_offset < end)


class MadeIndexes:
    """The offset index and the time index of batches that come in their order."""

    def __init__(self, base_offset: int) -> None:
        self._owner = _IndexOwner()
        self._base = base_offset
        self._segment = LogSegment(self._owner, base_offset)
        self._run = self._segment.begin_index()

    def add(self, rows: BatchTable) -> None:
        self._segment.index(rows, self._run)

    def finish(self) -> dict[FileKind, bytes]:
        self._segment.become_inactive()
        storage, folder = self._owner.storage, self._owner.folder
        names = {
            kind: storage.join(folder, segment_file_name(self._base, kind))
            for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
        }
        return {kind: bytes(storage.read_all(name)) for kind, name in names.items()}


class _IndexOwner:
    """An owner of segments whose files lie in memory."""

    def __init__(self) -> None:
        self.storage: Storage = OverlayStorage()
        self.folder = os.path.join(os.sep, f"pylogseg-{uuid.uuid4().hex}")
        self.storage.make_folder(self.folder)
        self.config: LogConfig = _BUILD
        self.clock: Clock = SystemClock()
