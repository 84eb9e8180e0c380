"""The log directories of one manager: which are in use, what lies in them, and those that failed."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import PylogsegError, RequestError, StorageError
from pylogseg.format.names import METADATA_TOPIC, parse_partition_folder
from pylogseg.log.directory import LogDirectory

_log = logging.getLogger(__name__)


class Contents(NamedTuple):
    """The folders of partitions in a log directory, by what has become of them.

    Attributes
    ----------
    live : list of str
    deleted : list of str
        They wait for their removal.
    aside : list of str
        Strays, and replicas that are being moved: left alone.
    """

    live: list[str]
    deleted: list[str]
    aside: list[str]


class Directories:
    """Log directories that are locked by this process.

    Parameters
    ----------
    storage : Storage
        That they lie on.
    paths : sequence of str
        In the order of the setting.

    Attributes
    ----------
    online : list of LogDirectory
    failed : dict of str to str
        Path and reason of those that cannot be used.

    Raises
    ------
    RequestError
        If two paths are one folder.
    StorageError
        If none can be used, or another process has the lock of one.
    """

    def __init__(self, storage: Storage, paths: Sequence[str]) -> None:
        self._storage = storage
        self.online: list[LogDirectory] = []
        self.failed: dict[str, str] = {}
        real = [os.path.realpath(path) if isinstance(storage, LocalStorage) else path for path in paths]
        for path in real:
            if real.count(path) > 1:
                raise RequestError(f"{path}: the same log directory twice")
        try:
            for path in real:
                self._open(path)
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
                self._storage.list_folder(path)  # what is no folder has no lock that somebody could have
            self.online.append(LogDirectory.shared(self._storage, path))
        except StorageError as error:
            if error.operation == "lock":
                raise
            _log.error("%s: the log directory is offline: %s", path, error)
            self.failed[path] = str(error)

    def contents(self, directory: LogDirectory) -> Contents:
        """The folders of partitions in a log directory."""
        found = Contents([], [], [])
        for entry in self._storage.list_folder(directory.path):
            folder = parse_partition_folder(entry.name) if entry.is_dir else None
            if folder is None or folder.topic == METADATA_TOPIC:
                continue
            kind = found.deleted if folder.state == "delete" else found.aside if folder.state else found.live
            kind.append(entry.name)
        return found

    def take_offline(self, directory: LogDirectory, error: StorageError) -> bool:
        """A log directory failed; False if that was known."""
        if directory not in self.online:
            return False
        _log.error("%s: the log directory is offline: %s", directory.path, error)
        self.online.remove(directory)
        self.failed[directory.path] = str(error)
        return True

    def close(self) -> list[PylogsegError]:
        """Give all back; the errors that came of it."""
        errors: list[PylogsegError] = []
        while self.online:
            try:
                self.online.pop().close()
            except PylogsegError as error:
                errors.append(error)
        return errors
