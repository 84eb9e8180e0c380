"""The producer snapshots of a partition: listing, reading, writing, removing."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from typing import Protocol

from pylogseg.env.filesystem import Entry
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.files.snapshot import ProducerEntry, encode_snapshot, parse_snapshot
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.log.producer_state import CachedBatch, ProducerState

_LOG = logging.getLogger(__name__)

_SUFFIX = ".snapshot"


class SnapshotFiles(Protocol):
    """The part of a `Storage` that the snapshots use."""

    def list_folder(self, path: str) -> list[Entry]: ...
    def exists(self, path: str) -> bool: ...
    def read_all(self, path: str) -> bytes: ...
    def write_plain(self, path: str, data: bytes) -> None: ...
    def write_synced(self, path: str, data: bytes) -> None: ...
    def rename(self, path: str, new_path: str) -> None: ...
    def remove(self, path: str) -> bool: ...
    def join(self, folder: str, name: str) -> str: ...


class Snapshots:
    """The snapshot files of one partition; `names` are the files in its folder, if the caller has listed them."""

    def __init__(self, storage: SnapshotFiles, folder: str, names: Iterable[str] | None = None) -> None:
        self.folder = folder
        self._storage = storage
        self._names: dict[int, str] = {}
        self._most = 0
        self.unreadable: list[CorruptionError] = []  #: Why `load_latest` removed snapshots, in order.
        self.reload(names)

    def reload(self, names: Iterable[str] | None = None) -> None:
        """List the files again, unless their names are given."""
        if names is None:
            names = [entry.name for entry in self._storage.list_folder(self.folder) if not entry.is_dir]
        self._names = {}
        for name in names:
            if name.endswith(_SUFFIX):
                offset = name.partition(".")[0]
                if offset.isascii() and offset.isdigit():
                    self._names[int(offset)] = name

    @property
    def offsets(self) -> list[int]:
        return sorted(self._names)

    @property
    def names(self) -> set[str]:
        return set(self._names.values())

    @property
    def latest(self) -> int | None:
        """The highest offset; None if there is no snapshot."""
        return max(self._names, default=None)

    def path(self, offset: int) -> str | None:
        name = self._names.get(offset)
        return None if name is None else self._storage.join(self.folder, name)

    def note_count(self, count: int) -> None:
        """Note the number of producers: the order in Kafka's map depends on its largest size."""
        self._most = max(self._most, count)

    def write(self, offset: int, entries: Iterable[ProducerEntry], *, sync: bool) -> str:
        """Write a snapshot; return its path."""
        name = segment_file_name(offset, FileKind.PRODUCER_SNAPSHOT)
        path = self._storage.join(self.folder, name)
        data = encode_snapshot(entries, most_entries=self._most)
        try:
            if sync:
                self._storage.write_synced(path, data)
            else:
                self._storage.write_plain(path, data)
        except StorageError as error:
            if error.errno == errno.ENOSPC:  # a partial snapshot is useless
                self._names.pop(offset, None)
                self._storage.remove(path)
            raise
        self._names[offset] = name
        return path

    def load_latest(self) -> tuple[int | None, list[ProducerEntry]]:
        """Return offset and entries of the highest readable snapshot; remove the unreadable ones above it."""
        while (offset := self.latest) is not None:
            path = self._storage.join(self.folder, self._names[offset])
            try:
                return offset, parse_snapshot(self._storage.read_all(path), path)
            except CorruptionError as error:
                _LOG.warning("%s; removed: an older one or the log itself is used instead", error)
                self.unreadable.append(error)
                self.remove(offset)
        return None, []

    def remove(self, offset: int) -> None:
        path = self.path(offset)
        if path is not None:
            del self._names[offset]
            self._storage.remove(path)

    def mark_deleted(self, offset: int) -> str | None:
        """Rename the snapshot at an offset to ``.deleted``; return the new path, None if there was none."""
        path = self.path(offset)
        if path is None:
            return None
        del self._names[offset]
        if not self._storage.exists(path):
            return None
        self._storage.rename(path, path + ".deleted")
        return path + ".deleted"

    def remove_stray(self, segment_bases: Iterable[int]) -> None:
        """Remove snapshots that belong to no segment, except one at or above the last segment.

        A clean shutdown writes that one.
        """
        bases = set(segment_bases)
        stray = [offset for offset in self.offsets if offset not in bases]
        last = max(bases, default=None)
        if stray and (last is None or stray[-1] >= last):
            stray.pop()
        for offset in stray:
            self.remove(offset)


def entry_of(state: ProducerState) -> ProducerEntry:
    """Return the snapshot entry of a producer, which has its last batch only."""
    last = state.batches[-1] if state.batches else CachedBatch(-1, -1, 0, -1)
    return ProducerEntry(
        state.producer_id,
        state.producer_epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        state.last_timestamp,
        state.coordinator_epoch,
        state.first_txn_offset,
    )


def state_of_producer(entry: ProducerEntry) -> ProducerState:
    state = ProducerState(
        entry.producer_id,
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.timestamp,
        entry.first_txn_offset if entry.has_open_txn else -1,
    )
    if entry.has_batch:
        batch = CachedBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
        state.add_batch(entry.producer_epoch, batch)
    return state
