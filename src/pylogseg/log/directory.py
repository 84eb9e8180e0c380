"""A log directory opened for writing: its lock, its checkpoints, and the marker of a clean shutdown."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Iterable, Set
from typing import Protocol

from pylogseg.env.storage import Storage, make_folder
from pylogseg.errors import CorruptionError, RequestError, StorageError, is_missing
from pylogseg.format.escape import printable
from pylogseg.format.files.checkpoint import encode_offset_checkpoint, parse_offset_checkpoint
from pylogseg.format.files.status import encode_clean_shutdown
from pylogseg.format.names import (
    METADATA_TOPIC,
    FileKind,
    TopicPartition,
    check_topic,
    parse_partition_folder,
    parse_topic_folder,
    partition_folder_name,
)
from pylogseg.log.offsets import LogOffsets
from pylogseg.log.segments import Segments
from pylogseg.log.state import Start

_log = logging.getLogger(__name__)

_KINDS = (FileKind.RECOVERY_POINTS, FileKind.LOG_STARTS, FileKind.HIGH_WATERMARKS)

_shared: dict[tuple[int, str], LogDirectory] = {}
_shared_lock = threading.Lock()


def read_offsets(storage: Storage, path: str) -> dict[TopicPartition, int]:
    """Read a checkpoint before it is overwritten; one that cannot be read is an error, as its entries would be lost."""
    try:
        data = storage.read_all(path)
    except StorageError as error:
        if is_missing(error):
            raise
        remedy = (
            "nothing is changed here while it cannot be read; if it stays so, remove the file: then logs are recovered "
            "whole, and deleted records may be back"
        )
        raise StorageError(path, "read", f"{error.reason}; {remedy}", error.errno) from error
    return parse_offset_checkpoint(data, path)


def _forget() -> None:
    """After a fork, in the child: directories and logs stay with the parent."""
    global _shared_lock
    _shared_lock = threading.Lock()
    for directory in _shared.values():
        directory.disown()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class AttachedLog(Protocol):
    """An open log, as its log directory sees it."""

    @property
    def segments(self) -> Segments: ...
    @property
    def offsets(self) -> LogOffsets: ...
    def disown(self) -> None: ...


class LogDirectory:
    """One log directory of which this process is the only writer; several threads may use it.

    Opening takes the lock, which a running broker holds as well, then notes and removes the marker
    `.kafka_cleanshutdown`, so that a later crash is noticed. The last `close` writes the marker again if all partitions
    here were shut down cleanly: the opened ones, and the rest if the marker was there. Checkpoints keep the entries of
    partitions that are not opened, until `keep_only` names those that exist. No other file is written. Raises
    StorageError if another process has the lock, or the folder cannot be used.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self.storage, self.path = storage, path
        self._mutex = threading.RLock()
        self._users = 1
        make_folder(storage, path)
        self._lock = storage.lock(path)
        try:
            self._offsets = {kind: self._read(kind) for kind in _KINDS}
            self._tables = tuple(self._offsets.values())
            self._cleaned = self._read(FileKind.CLEANER_OFFSETS)
            self._written = {kind: dict(offsets) for kind, offsets in self._offsets.items()}
            marker = storage.join(path, FileKind.CLEAN_SHUTDOWN.value)
            self.was_clean = storage.remove(marker)
            if self.was_clean:
                storage.sync_folder(path)
        except BaseException:
            self._lock.release()
            raise
        self.broker_epoch: int | None = None
        self._logs: dict[str, AttachedLog | None] = {}  # claimed; None until it is opened
        self._closed_clean: dict[str, bool] = {}  # released, whether cleanly

    @classmethod
    def open_shared(cls, storage: Storage, path: str) -> LogDirectory:
        """Return the directory for all users in this process, each of whom closes it; the first caller opens it.

        All spell the path alike. Another storage object counts as another user, whom the lock keeps out.
        """
        with _shared_lock:
            key = (id(storage), path)
            directory = _shared.get(key)
            if directory is None:
                directory = _shared[key] = cls(storage, path)
            else:
                directory._users += 1
            return directory

    def _file(self, kind: FileKind) -> str:
        return self.storage.join(self.path, kind.value)

    def _read(self, kind: FileKind) -> dict[TopicPartition, int]:
        path = self._file(kind)
        if not self.storage.exists(path):
            return {}
        try:
            return read_offsets(self.storage, path)
        except CorruptionError as error:  # as for a broker
            shown = printable(str(error))
            _log.error("%s; taken as empty: logs are recovered whole, deleted records may reappear", shown)
            return {}

    # ---- partitions ----

    def claim(self, name: str) -> Start:
        """Reserve a partition, by its folder's name, for one log; RequestError for no partition or a claimed one."""
        key = _key_of(name)
        with self._mutex:
            if name in self._logs:
                raise RequestError(
                    f"{self.storage.join(self.path, name)}: this process has the log open already: "
                    "use that object from all threads, or close it first"
                )
            self._logs[name] = None
            is_new = not self.storage.exists(self.storage.join(self.path, name))
            tables = (*self._tables, *self._written.values(), self._cleaned)
            # The entries are of a deleted partition of this name; a crash must not bring them back.
            if is_new and key and any(key in offsets for offsets in tables):
                self._drop({key})
            clean = self._closed_clean.get(name, self.was_clean or is_new)
            points, starts, marks = (offsets.get(key, 0) if key else 0 for offsets in self._tables)
            return Start(clean, starts, points, marks)

    def attach(self, name: str, log: AttachedLog) -> None:
        """Let the checkpoints follow the log of a claimed partition from now on."""
        with self._mutex:
            self._logs[name] = log

    def release(
        self, name: str, *, clean: bool, gone: bool = False, write: bool = True, new_name: str | None = None
    ) -> None:
        """Release a partition.

        `clean` means flushed and without a disk failure; `gone` that the folder was removed or renamed, so that no
        checkpoint may keep an entry for it. With `write=False` and not `gone`, `close` writes the checkpoints.
        """
        with self._mutex:
            if clean and not gone:
                self._note(name)
            self._logs.pop(name, None)
            self._closed_clean.pop(name, None)
            key = _key_of(name) if gone else None
            if not gone:
                self._closed_clean[name if new_name is None else new_name] = clean
            if key is not None:
                self._drop({key})
            elif write:
                self.checkpoint()

    def keep_only(self, names: Iterable[str]) -> None:
        """Drop the checkpoint entries of all but these folders of partitions, as a broker does with deleted ones."""
        with self._mutex:
            here = {_key_of(name) for name in names}
            self._drop({key for offsets in (*self._tables, self._cleaned) for key in offsets if key not in here})

    def _drop(self, keys: Set[TopicPartition]) -> None:
        """Take partitions out of the checkpoints, and write the checkpoints that change."""
        for offsets in self._tables:
            for key in keys:
                offsets.pop(key, None)
        if keys:
            self.checkpoint()
        if not keys.isdisjoint(self._cleaned):
            self._write_cleaned({key: at for key, at in self._cleaned.items() if key not in keys})

    # ---- checkpoints ----

    def checkpoint(self, *kinds: FileKind) -> None:
        """Write changed offset checkpoints, all three kinds by default; on a StorageError the old file stays."""
        with self._mutex:
            for name in self._logs:
                self._note(name)
            for kind in kinds or _KINDS:
                offsets = self._offsets[kind]
                if offsets != self._written[kind]:
                    self.storage.write_whole(self._file(kind), encode_offset_checkpoint(offsets))
                    self._written[kind] = dict(offsets)

    def lower_checkpoints(self, name: str) -> None:
        """Lower the checkpoints of a log that are above its offsets, after a truncation or a recovery.

        Call it before the next append: a recovery begins at the offsets in the checkpoints.
        """
        key = _key_of(name)
        with self._mutex:
            log = self._logs.get(name)
            if log is None or key is None:
                return
            if log.offsets.recovery_point < self._written[FileKind.RECOVERY_POINTS].get(key, 0):
                self.checkpoint(FileKind.RECOVERY_POINTS)
            if log.offsets.log_start < self._written[FileKind.LOG_STARTS].get(key, 0):
                self.checkpoint(FileKind.LOG_STARTS)

    def _note(self, name: str) -> None:
        log, key = self._logs.get(name), _key_of(name)
        if log is None or key is None:
            return
        points, starts, marks = self._tables
        offsets, first = log.offsets, log.segments.first
        points[key], marks[key] = offsets.recovery_point, offsets.high_watermark.offset
        if first is not None and offsets.log_start > first.base_offset:
            starts[key] = offsets.log_start
        else:
            starts.pop(key, None)

    def note_start(self, name: str, offset: int) -> None:
        """Raise the log start offset of a partition that is not open, in its checkpoint."""
        key = _key_of(name)
        if key is None:
            return
        with self._mutex:
            starts = self._offsets[FileKind.LOG_STARTS]
            before = starts.get(key)
            if before is None or before < offset:
                starts[key] = offset
                try:
                    self.checkpoint(FileKind.LOG_STARTS)
                except BaseException:
                    starts.update({} if before is None else {key: before})
                    if before is None:
                        del starts[key]
                    raise

    def offsets_of(self, name: str) -> dict[FileKind, int]:
        """Return the offsets of a partition in the checkpoints on the disk; unreadable ones have none."""
        key = _key_of(name)
        with self._mutex:
            every = {**self._written, FileKind.CLEANER_OFFSETS: self._cleaned}
            return {kind: offsets[key] for kind, offsets in every.items() if key in offsets} if key else {}

    def cleaned_to(self, name: str) -> int | None:
        """Return the offset at which the last cleaning of a partition ended; None if there was none."""
        with self._mutex:
            key = _key_of(name)
            return None if key is None else self._cleaned.get(key)

    def note_cleaned(self, name: str, offset: int | None, *, lower_only: bool = False) -> None:
        """Write where the last cleaning of a partition ended (None forgets it), and drop deleted partitions.

        With `lower_only`, after a truncation, do nothing unless more was cleaned than that.
        """
        key = _key_of(name)
        if key is None:
            return
        with self._mutex:
            old = self._cleaned.get(key)
            if old == offset or (lower_only and (old is None or offset is None or old <= offset)):
                return
            here = {_key_of(folder) for folder in self._partitions() if parse_topic_folder(folder)} - {key}
            new = {key_here: at for key_here, at in self._cleaned.items() if key_here in here}
            if offset is not None:
                new[key] = offset
            self._write_cleaned(new)

    def _write_cleaned(self, offsets: dict[TopicPartition, int]) -> None:
        self.storage.write_whole(self._file(FileKind.CLEANER_OFFSETS), encode_offset_checkpoint(offsets))
        self._cleaned = offsets

    # ---- the end ----

    def disown(self) -> None:
        """After a fork, in the child: count its logs as closed."""
        for log in self._logs.values():
            if log is not None:
                log.disown()

    def close(self) -> None:
        """Release the directory; the last user writes the checkpoints and the marker, and releases the lock.

        The lock is released also when a file cannot be written, which is a StorageError.
        """
        with _shared_lock:
            self._users -= 1
            if self._users != 0:
                return
            if _shared.get((id(self.storage), self.path)) is self:
                del _shared[id(self.storage), self.path]
            try:
                self.checkpoint()
                if self._is_clean():
                    self.storage.write_synced(
                        self._file(FileKind.CLEAN_SHUTDOWN), encode_clean_shutdown(self.broker_epoch)
                    )
            finally:
                self._lock.release()

    def _is_clean(self) -> bool:
        if self._logs or not all(self._closed_clean.values()):
            return False
        return self.was_clean or all(name in self._closed_clean for name in self._partitions())

    def _partitions(self) -> list[str]:
        """Return folders whose logs a broker would recover without the marker."""
        folders = []
        for entry in self.storage.list_folder(self.path):
            folder = parse_partition_folder(entry.name) if entry.is_dir else None
            if folder is not None and folder.state != "delete" and folder.topic != METADATA_TOPIC:
                folders.append(entry.name)
        return folders


@functools.lru_cache(maxsize=1 << 16)
def _key_of(name: str) -> TopicPartition | None:
    """Return a folder's key in the checkpoints: a future replica has its partition's, a stray has none."""
    folder = parse_partition_folder(name)
    if folder is not None and folder.state in ("future", "stray"):
        return (folder.topic, folder.partition) if folder.state == "future" else None
    return partition_of(name)


def partition_of(name: str) -> TopicPartition:
    """Return topic and partition of a folder that a log may be written to; RequestError for all others."""
    folder = parse_partition_folder(name)
    try:
        if folder is None or folder.state or partition_folder_name(folder.topic, folder.partition) != name:
            raise RequestError("expected a topic, a hyphen and a number, as in orders-0")
        check_topic(folder.topic)
    except RequestError as error:
        raise RequestError(f"{name!r} is not a valid partition folder: {error}") from None
    return folder.topic, folder.partition
