"""Leader epochs of a partition: the offset at which each leader began to write.

The file is written when an epoch is assigned, and in the background after a truncation: the load removes entries that
reappear after a crash, but a lost entry would never return. Rules: `docs/format.md`, "Text
checkpoints", and KIP-101, KIP-279.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Protocol

from pylogseg.errors import RequestError
from pylogseg.format.files.checkpoint import EpochEntry, encode_leader_epochs, parse_leader_epochs

#: An epoch, or the offset of one, that is not known.
UNKNOWN = -1

EpochTask = Callable[[], None]


class EpochFiles(Protocol):
    """The part of a `Storage` that the epochs use."""

    def exists(self, path: str) -> bool: ...
    def read_all(self, path: str) -> bytes: ...
    def write_whole(self, path: str, data: bytes) -> None: ...
    def write_plain(self, path: str, data: bytes) -> None: ...


class LeaderEpochs:
    """The leader epochs of one partition, in memory and in its `leader-epoch-checkpoint`.

    A missing file is created, empty; `is_there` saves the look. A malformed one is a CorruptionError, a negative epoch
    or offset a RequestError. Entries that are not above the ones before them are thinned as by `assign`, in memory
    only. The list of entries is replaced, never changed, so that readers need no lock.
    """

    def __init__(
        self,
        storage: EpochFiles,
        path: str,
        schedule: Callable[[str, EpochTask], Any],
        *,
        is_there: bool = False,
    ) -> None:
        self.path = path
        self._storage = storage
        self._schedule = schedule
        self._lock = threading.RLock()
        self._entries: list[EpochEntry] = []
        self._last = EpochEntry(UNKNOWN, UNKNOWN)
        self._written: bytes | None = None  # content of the file on the disk
        self._is_scheduled = False  # to be written
        if is_there or storage.exists(path):
            self._written = storage.read_all(path)
            for entry in parse_leader_epochs(self._written, path):
                self._insert(entry)
        else:
            storage.write_plain(path, b"")

    @property
    def entries(self) -> list[EpochEntry]:
        """All entries, in the order of their epochs; a copy."""
        return list(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The highest epoch that has records; -1 if there is none."""
        return self._last.epoch

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"LeaderEpochs({[tuple(entry) for entry in self._entries]})"

    def is_current(self, epoch: int, offset: int) -> bool:
        """Return whether assigning an epoch to an offset changes nothing."""
        last = self._last
        return epoch == last.epoch and last.start_offset <= offset and epoch >= 0

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` began at `start_offset`, and write the file if that changed anything; return whether.

        Nothing changes if the latest entry has this epoch and does not begin later. Entries that do not lie below the
        new one, in epoch and offset, are dropped. If the file cannot be written, the entry is in memory all the same.
        """
        last = self._last
        if epoch == last.epoch and last.start_offset <= start_offset and start_offset >= 0 <= epoch:
            return False
        with self._lock:
            changed = self._insert(EpochEntry(epoch, start_offset))
            if changed:
                self.flush()
        return changed

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the highest known epoch that is not above the one asked for, and where the next one begins.

        The latest ends at `log_end_offset`. If all known ones are above, the epoch is the one asked for; both are -1
        for epoch -1, and for one above the latest.
        """
        entries = self._entries
        if epoch == UNKNOWN or not entries or epoch > entries[-1].epoch:
            return UNKNOWN, UNKNOWN
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        higher = bisect_right(entries, epoch, key=_epoch_of)
        floor = entries[higher - 1].epoch if higher else epoch
        return floor, entries[higher].start_offset

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch that an offset was written in; -1 below the first entry."""
        entries = self._entries
        at = bisect_right(entries, offset, key=_start_of)
        return entries[at - 1].epoch if at else UNKNOWN

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or after an offset; the file follows in the background."""
        with self._lock:
            self._replace_later(_cut_end(self._entries, end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that ended at or before an offset; the one it lies in now begins there.

        The file follows in the background, also where the first entry began there already.
        """
        with self._lock:
            self._replace_later(_cut_start(self._entries, start_offset))

    def clear(self, *, flush: bool = True) -> None:
        """Drop all epochs, in the file too unless `flush` is False."""
        with self._lock:
            self._set([])
            if flush:
                self.flush()

    def flush(self) -> None:
        with self._lock:
            data = encode_leader_epochs(self._entries)
            self._written = None
            self._storage.write_whole(self.path, data)
            self._written, self._is_scheduled = data, False

    def flush_scheduled(self) -> None:
        """Write the file if that is still to come: a scheduler that stops may drop the task."""
        with self._lock:
            if self._is_scheduled:
                self.flush()

    def _insert(self, entry: EpochEntry) -> bool:
        if entry.epoch < 0 or entry.start_offset < 0:
            raise RequestError(f"invalid leader epoch entry (epoch={entry.epoch}, start_offset={entry.start_offset})")
        last = self._last
        if last.epoch == entry.epoch and last.start_offset <= entry.start_offset:
            return False
        kept = list(self._entries)
        while kept and (kept[-1].epoch >= entry.epoch or kept[-1].start_offset >= entry.start_offset):
            kept.pop()
        self._set([*kept, entry])
        return True

    def _set(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self._last = entries[-1] if entries else EpochEntry(UNKNOWN, UNKNOWN)

    def _replace_later(self, entries: list[EpochEntry]) -> None:
        # The same list object means that nothing was cut; an equal one may have been re-added. A broker then writes
        # the file with each load of each log; here it stays if it holds these bytes.
        if entries is not self._entries:
            self._set(entries)
            if encode_leader_epochs(entries) != self._written:
                self._is_scheduled = True
                self._schedule(f"leader-epoch-cache-flush-{self.path}", self.flush)


def _epoch_of(entry: EpochEntry) -> int:
    return entry.epoch


def _start_of(entry: EpochEntry) -> int:
    return entry.start_offset


def _cut_end(entries: list[EpochEntry], end_offset: int) -> list[EpochEntry]:
    if end_offset < 0 or not entries or entries[-1].start_offset < end_offset:
        return entries
    return [entry for entry in entries if entry.start_offset < end_offset]


def _cut_start(entries: list[EpochEntry], start_offset: int) -> list[EpochEntry]:
    count = sum(entry.start_offset <= start_offset for entry in entries)
    if not count:
        return entries
    return [EpochEntry(entries[count - 1].epoch, start_offset), *entries[count:]]
