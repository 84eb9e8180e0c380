"""Copies of bytes and files that recovery is about to remove, in a separate folder.

Kafka throws these bytes away. A copy is on the disk, and its name too, before the original is touched.

Copied are: ends of segments that are cut off (unless they are only zeros) and whole segments that are removed or
replaced. Not copied are: indexes and snapshots, which are rebuilt from the log; `.deleted` and `.cleaned` files and
the `.swap` files of a replacement that was undone, whose content is elsewhere or was to be deleted; a segment that is
split, since the new ones have its batches.
"""

from __future__ import annotations

import json
import os
from typing import Protocol

from pylogseg.disk.outside import check_outside
from pylogseg.env.beside import open_synced
from pylogseg.env.filesystem import Readable
from pylogseg.env.storage import Storage, make_folder
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.columns import to_row
from pylogseg.log.recovery_report import Action

_CHUNK_BYTES = 4 << 20
#: One JSON line for each copy of a partition: its source, and why that was removed.
LIST_NAME = "kept.jsonl"


def check_keep_folder(keep: str, parent: str, alone: str | None = None) -> None:
    """Refuse a folder for copies that a broker would read.

    `parent` is the log directory; `alone` names a partition's folder in it, if it is none.
    """
    real, top = os.path.realpath(keep), os.path.realpath(parent)
    place = top if alone is None else os.path.join(top, alone)
    if real == top or f"{real}{os.sep}".startswith(f"{place}{os.sep}"):
        raise RequestError(f"{keep}: copies cannot be kept in {place}, which a broker reads: choose another folder")
    check_outside(keep)


class KeepError(StorageError):
    """A copy could not be made, so the original stays as it is."""


class Keeper(Protocol):
    """Copies durably the bytes of a file that an action is about; returns the copy's path or raises `KeepError`."""

    def keep(self, action: Action, file: Readable) -> str | None: ...


class FolderKeeper:
    """Keeps copies below one folder, created with the first copy, in a folder for each partition.

    A cut end is named by its segment and bytes, ``00000000000000000180.log.1024-1061``; a whole file keeps its name.
    The folder is no log directory: a broker refuses to start on a folder that it does not know.
    """

    def __init__(self, storage: Storage, root: str) -> None:
        self.root = root
        self._storage = storage
        self._taken: set[str] = set()

    def keep(self, action: Action, file: Readable) -> str | None:
        """Copy the bytes or the file that an action removes."""
        folder, name = self._storage.split(file.path)
        start, end = action.position or 0, file.size if action.end_position is None else action.end_position
        target_folder = self._storage.join(self.root, self._storage.split(folder)[1])
        whole = start == 0 and end == file.size
        try:
            target = self._free(self._storage.join(target_folder, name if whole else f"{name}.{start}-{end}"))
            self._copy(file, start, end, target_folder, target)
            row = {"copy": self._storage.split(target)[1], **to_row(action)}
            row["path"] = self._storage.join(*self._storage.split(file.path))  # absolute, wherever this is read
            del row["kept"]
            self._list(target_folder, json.dumps(row))
        except StorageError as error:
            raise KeepError(error.path, error.operation, error.reason) from error
        return target

    def _free(self, target: str) -> str:
        name, number = target, 1
        while name in self._taken or self._storage.exists(name):
            number += 1
            name = f"{target}.{number}"
        self._taken.add(name)
        return name

    def _copy(self, file: Readable, start: int, end: int, folder: str, target: str) -> None:
        make_folder(self._storage, folder)
        with open_synced(self._storage, f"{target}.part", target) as copy:
            for at in range(start, end, _CHUNK_BYTES):
                copy.append(file.read(at, min(_CHUNK_BYTES, end - at)))
        self._storage.sync_folder(folder)

    def _list(self, folder: str, line: str) -> None:
        path = self._storage.join(folder, LIST_NAME)
        before = self._storage.read_all(path) if self._storage.exists(path) else b""
        self._storage.write_whole(path, before + f"{line}\n".encode())


class PlannedKeeper(FolderKeeper):
    """Reports where copies would lie, for a dry run."""

    def _copy(self, file: Readable, start: int, end: int, folder: str, target: str) -> None:
        pass

    def _list(self, folder: str, line: str) -> None:
        pass
