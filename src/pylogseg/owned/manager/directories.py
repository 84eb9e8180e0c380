"""The log directories of a manager: online and failed ones, and their partition folders."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties, parse_meta_properties
from pylogseg.format.names import METADATA_TOPIC, FileKind, parse_partition_folder
from pylogseg.format.uuids import format_uuid
from pylogseg.log.directory import LogDirectory

_log = logging.getLogger(__name__)


class LogsFound(NamedTuple):
    """The partition folders in a log directory, by state."""

    live: list[str]  #: In use; being moved here from another log directory; pending deletion; moved to stray.
    future: list[str]
    deleted: list[str]
    stray: list[str]


class Directories:
    """Log directories locked by this process.

    Raises RequestError if two paths are one folder, belong to different clusters or nodes, or are copies of one
    another; StorageError if none can be used, or another process has the lock of one.
    """

    def __init__(self, storage: Storage, paths: Sequence[str]) -> None:
        self._storage = storage
        self.online: list[LogDirectory] = []
        self.failed: dict[str, str] = {}
        self.meta: dict[str, MetaProperties] = {}
        real = [os.path.realpath(path) if isinstance(storage, LocalStorage) else path for path in paths]
        for path in real:
            if real.count(path) > 1:
                raise RequestError(f"{path}: duplicate log directory")
        try:
            for path in real:
                self._open(path)
            self._compare()
            self._label_new()
        except BaseException:
            self.close()
            raise
        if not self.online:
            raise StorageError(
                ", ".join(paths), "open", "no log directory can be used: " + "; ".join(self.failed.values())
            )

    def _open(self, path: str) -> None:
        try:
            if self._storage.exists(path):
                self._storage.list_folder(path)  # fails if it is not a folder, before the lock is taken
            directory = LogDirectory.open_shared(self._storage, path)
        except StorageError as error:
            if error.operation == "lock":
                raise
            self._note_failure(path, error)
            return
        self.online.append(directory)
        try:
            meta = self._storage.join(path, FileKind.META_PROPERTIES.value)
            if self._storage.exists(meta):
                self.meta[path] = parse_meta_properties(self._storage.read_all(meta), meta)
        except (CorruptionError, StorageError) as error:
            self.take_offline(directory, error)
            directory.close()

    def _note_failure(self, path: str, error: PylogsegError) -> None:
        _log.error("%s: the log directory is offline: %s", path, error)
        self.failed[path] = str(error)

    def _compare(self) -> None:
        """Refuse directories of different brokers, as a broker does."""
        seen: dict[str, MetaProperties] = {}
        for path, meta in self.meta.items():
            for other, label in seen.items():
                for name in ("cluster_id", "node_id"):
                    here, there = getattr(meta, name), getattr(label, name)
                    if here is not None and there is not None and here != there:
                        raise RequestError(
                            f"{path} has {name.replace('_', '.')} {here} in its meta.properties, and {other} has "
                            f"{there}: they belong to different brokers"
                        )
                if meta.directory_id is not None and meta.directory_id == label.directory_id:
                    raise RequestError(f"{path} and {other} have the same directory.id: one is a copy of the other")
            seen[path] = meta

    def _label_new(self) -> None:
        """Write a missing `meta.properties` if other directories have one: a broker needs it to start."""
        label = next((self.meta[online.path] for online in self.online if online.path in self.meta), None)
        if label is None:
            return
        for directory in [online for online in self.online if online.path not in self.meta]:
            own = label._replace(directory_id=_new_directory_id()) if label.directory_id is not None else label
            path = self._storage.join(directory.path, FileKind.META_PROPERTIES.value)
            date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
            try:
                self._storage.write_whole(path, encode_meta_properties(own, date))
            except StorageError as error:
                self.take_offline(directory, error)
                directory.close()
            else:
                self.meta[directory.path] = own

    def find(self, log_dir: str) -> LogDirectory:
        """Return the log directory with a path or a ``directory.id``.

        Raises RequestError if there is none, or it is offline.
        """
        for place in self.online:
            meta = self.meta.get(place.path)
            if place.path in (log_dir, os.path.abspath(log_dir)) or (meta is not None and meta.directory_id == log_dir):
                return place
        paths = ", ".join(online.path for online in self.online)
        raise RequestError(f"{log_dir}: not one of the log directories: {paths}")

    def contents(self, directory: LogDirectory) -> LogsFound:
        logs = LogsFound([], [], [], [])
        by_state = {"": logs.live, "future": logs.future, "delete": logs.deleted, "stray": logs.stray}
        for entry in self._storage.list_folder(directory.path):
            folder = parse_partition_folder(entry.name) if entry.is_dir else None
            if folder is not None and folder.topic != METADATA_TOPIC:
                by_state[folder.state].append(entry.name)
        return logs

    def take_offline(self, directory: LogDirectory, error: PylogsegError) -> bool:
        """Note that a log directory failed; return False if it had failed before."""
        if directory not in self.online:
            return False
        self.online.remove(directory)
        self._note_failure(directory.path, error)
        return True

    def close(self) -> list[PylogsegError]:
        """Release all directories; return the errors."""
        errors: list[PylogsegError] = []
        while self.online:
            try:
                self.online.pop().close()
            except PylogsegError as error:
                errors.append(error)
        return errors


def _new_directory_id() -> str:
    """Return a random id; like Kafka's, it does not begin with ``-``, which is a nuisance in a shell."""
    while (text := format_uuid(uuid.uuid4().bytes)).startswith("-"):
        pass
    return text
