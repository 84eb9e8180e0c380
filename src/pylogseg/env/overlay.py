"""A storage for dry runs: it reads from the disk, and keeps all writes in memory.

Nothing here can write to a disk: files are opened for reading only. Bytes that a file has in common with the disk are
read from there; appended bytes, and files that are written in place, lie in memory.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple, Protocol

from pylogseg.env.file_errors import missing_error
from pylogseg.env.filesystem import Entry, LocalFiles, check_small
from pylogseg.env.handles import DEFAULT_LIMIT, LINKED, NO_FILE, Handles
from pylogseg.env.locks import LOCK_NAME, ObjectLock
from pylogseg.env.overlay_files import COPIED_BYTES, File, OverlayAppendFile, OverlayMappedFile, Read, read_disk
from pylogseg.env.storage import AppendFile, Data, Lock, MappedFile
from pylogseg.errors import StorageError


class FileChange(NamedTuple):
    """A change to a file.

    Attributes
    ----------
    path : str
    before, after : int or None
        Sizes; None for no such file.
    position : int or None
        Of the first byte that differs, where both are there.
    """

    path: str
    before: int | None
    after: int | None
    position: int | None


class _Folder:
    """A folder: names that were changed here, and below them the disk's."""

    def __init__(self, base: str | None) -> None:
        self.base = base
        self.names: dict[str, File | _Folder | None] = {}


class Under(Protocol):
    """The storage below an overlay: the reading methods of `pylogseg.env.storage.Storage`."""

    def open_log(self, path: str, *, create: bool = True) -> Kept: ...
    def list_folder(self, path: str) -> list[Entry]: ...
    def stat(self, path: str) -> Entry: ...
    def exists(self, path: str) -> bool: ...
    def join(self, folder: str, name: str) -> str: ...
    def split(self, path: str) -> tuple[str, str]: ...


class Kept(Protocol):
    """A file of a storage that lies below."""

    def read(self, position: int, size: int) -> bytes | memoryview: ...
    def view(self, position: int, size: int) -> memoryview: ...
    def close(self) -> None: ...


class OverlayStorage:
    """See `pylogseg.env.storage.Storage`: the disks of this machine, or another storage, which stay as they are.

    `sync_file`, `sync_folder` and locks do nothing: a folder that somebody writes may change meanwhile.
    """

    def __init__(self, under: Under | None = None, handles: Handles | None = None) -> None:
        self._handles = Handles(DEFAULT_LIMIT) if handles is None else handles
        self._disk: LocalFiles | Under = LocalFiles() if under is None else under
        self._read = read_disk if under is None else functools.partial(_read_under, under)
        self._exists = os.path.lexists if under is None else under.exists
        self._is_local = under is None
        self._root = _Folder(os.path.abspath(os.sep))
        self._locked: set[Hashable] = set()
        self.join = self._disk.join
        self.split = self._disk.split

    # ---- files ----

    def open_log(
        self, path: str, *, preallocate_bytes: int = 0, create: bool = True, size: int | None = None
    ) -> AppendFile:
        node = self._writable(path, "open")
        if node is None:
            if not create:
                raise missing_error(path, "open")
            node = self._create(path)
            node.resize(preallocate_bytes)
            return OverlayAppendFile(path, node, 0, self.rename, self._handles)
        file = self._as_file(node, path, "open")
        return OverlayAppendFile(path, file, file.size, self.rename, self._handles)

    def open_index(self, path: str, size: int | None = None) -> MappedFile:
        node = self._writable(path, "open")
        if node is None:
            if size is None:
                raise missing_error(path, "open")
            file = self._create(path)
            file.resize(size)
            return OverlayMappedFile(path, file, self.rename, created=True)
        return OverlayMappedFile(path, self._as_file(node, path, "open"), self.rename, created=False)

    def read_all(self, path: str) -> bytes:
        file = self._as_file(self._find(path), path, "read")
        check_small(path, file.size)
        return bytes(file.view(0, file.size))

    def write_plain(self, path: str, data: Data) -> None:
        node = self._writable(path, "write")
        if node is None:
            self._create(path, data, "write")
        else:
            self._as_file(node, path, "write").replace(data)

    write_synced = write_plain

    def write_whole(self, path: str, data: Data) -> None:
        self.remove(f"{path}.tmp")
        self.write_plain(f"{path}.tmp", data)
        self.rename(f"{path}.tmp", path)

    def sync_file(self, path: str) -> None:
        """Do nothing: there is no disk below it."""

    def sync_folder(self, path: str) -> None:
        """Do nothing, but raise for a missing folder."""
        self._folder(path, "sync")

    # ---- names ----

    def list_folder(self, path: str) -> list[Entry]:
        folder = self._folder(path, "list")
        there = {} if folder.base is None else {entry.name: entry for entry in self._disk.list_folder(folder.base)}
        for name, node in folder.names.items():
            there.pop(name, None)
            if node is not None:
                there[name] = _entry(name, node)
        return sorted(there.values())

    def stat(self, path: str) -> Entry:
        node = self._find(path)
        if node is None:
            raise missing_error(path, "stat")
        return _entry(self.split(path)[1], node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def rename(self, path: str, new_path: str) -> None:
        operation = f"rename to {new_path}"
        node = self._find(path)
        if node is None:
            raise missing_error(path, operation)
        replaced = self._find(new_path)
        if replaced is not None and (isinstance(replaced, _Folder) or isinstance(node, _Folder)):
            raise StorageError(path, operation, "a folder is in the way")
        new_folder, new_name = self._place(new_path, operation)
        folder, name = self._place(path, operation)
        folder.names[name] = None
        new_folder.names[new_name] = node

    def remove(self, path: str) -> bool:
        node = self._find(path)
        if isinstance(node, _Folder):
            raise StorageError(path, "remove", "it is a folder")
        if node is None:
            return False
        folder, name = self._place(path, "remove")
        folder.names[name] = None
        return True

    def make_folder(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, File):
            raise StorageError(path, "make folder", "it is a file")
        if node is None:
            self.make_folder(self.split(path)[0])
            folder, name = self._place(path, "make folder")
            folder.names[name] = _Folder(None)

    def remove_folder(self, path: str) -> None:
        if self._find(path) is not None:
            folder, name = self._place(path, "remove folder")
            folder.names[name] = None

    def lock(self, folder: str) -> Lock:
        """Keep other users of this object out; nothing is taken on the disk, since nothing is written there."""
        path = self.join(folder, LOCK_NAME)
        key = os.path.abspath(folder)
        self._folder(folder, "lock")
        return ObjectLock(path, self._locked, key)

    def show(self, path: str, size: int, shown: Callable[[Read], Read]) -> None:
        """Give a file another content, which is read when it is needed.

        `shown` gets the function that reads what lies below, and returns one of the same kind.
        """
        file = self._as_file(self._find(path), path, "show")
        folder, name = self._place(path, "show")
        folder.names[name] = File(path, size, file.modified_ms, shown(self._read))

    # ---- changes ----

    def changes(self) -> list[FileChange]:
        """Return the files that differ from the disk, by path; times are not compared."""
        return sorted(self._changes(self._root, self._root.base or ""))

    def _changes(self, folder: _Folder, path: str) -> Iterator[FileChange]:
        for name, node in folder.names.items():
            place = self.join(path, name)
            if isinstance(node, _Folder):
                if node.base != place:
                    yield from self._deletions(place)
                    yield from self._new(node, place)
                yield from self._changes(node, place)
            elif node is None:
                yield from self._deletions(place)
            else:
                below = self._under(place)
                before = below if isinstance(below, File) else None
                if before is None:
                    yield FileChange(place, None, node.size, None)
                elif (position := node.first_difference(before)) is not None:
                    yield FileChange(place, before.size, node.size, position)

    def _deletions(self, path: str) -> Iterator[FileChange]:
        if not self._exists(path):
            return
        entry = self._disk.stat(path)
        if not entry.is_dir:
            yield FileChange(path, entry.size, None, None)
        else:
            for entry in self._disk.list_folder(path):
                yield from self._deletions(self.join(path, entry.name))

    def _new(self, folder: _Folder, path: str) -> Iterator[FileChange]:
        """Yield the files of a renamed folder that were not touched since."""
        if folder.base is not None:
            for change in self._deletions(folder.base):
                name = os.path.relpath(change.path, folder.base)
                if name.split(os.sep)[0] not in folder.names:
                    yield FileChange(self.join(path, name), None, change.before, None)

    # ---- finding ----

    def _find(self, path: str) -> File | _Folder | None:
        node: File | _Folder | None = self._root
        for name in filter(None, os.path.splitdrive(os.path.abspath(path))[1].split(os.sep)):
            if not isinstance(node, _Folder):
                return None
            if name not in node.names:
                node_on_disk = self._on_disk(node, name)
                if node_on_disk is None:
                    return None
                node.names[name] = node_on_disk  # one object for one file, whoever opens it
            node = node.names[name]
        return node

    def _on_disk(self, folder: _Folder, name: str) -> File | _Folder | None:
        if folder.base is None:
            return None
        return self._under(self.join(folder.base, name))

    def _under(self, path: str) -> File | _Folder | None:
        if not self._exists(path):
            return None
        entry = self._disk.stat(path)
        return _Folder(path) if entry.is_dir else File(path, entry.size, entry.modified_ms, self._read)

    def _writable(self, path: str, operation: str) -> File | _Folder | None:
        """Return the file of a path; refuse a link on the disk, as a real run would."""
        node = self._find(path)
        if self._is_local and isinstance(node, File) and node.base is not None and os.path.islink(node.base):
            raise StorageError(path, operation, LINKED)
        return node

    def _folder(self, path: str, operation: str) -> _Folder:
        node = self._find(path)
        if node is None:
            raise missing_error(path, operation, "folder")
        if not isinstance(node, _Folder):
            raise StorageError(path, operation, "it is a file")
        return node

    def _as_file(self, node: File | _Folder | None, path: str, operation: str) -> File:
        if node is None:
            raise missing_error(path, operation)
        if isinstance(node, _Folder) or (self._is_local and node.base is not None and _is_no_file(node.base)):
            raise StorageError(path, operation, NO_FILE)
        return node

    def _place(self, path: str, operation: str) -> tuple[_Folder, str]:
        folder, name = self.split(path)
        node = self._find(folder)
        if not isinstance(node, _Folder):
            raise missing_error(path, operation, "folder")
        return node, name

    def _create(self, path: str, data: Data = b"", operation: str = "create") -> File:
        folder, name = self._place(path, operation)
        file = File(None, 0, time.time_ns() // 1_000_000)
        file.replace(data)
        folder.names[name] = file
        return file


def _is_no_file(path: str) -> bool:
    """Return whether it is a pipe, a socket or a device, which a real run would refuse."""
    return os.path.exists(path) and not os.path.isfile(path)


def _entry(name: str, node: File | _Folder) -> Entry:
    return Entry(name, False, node.size, node.modified_ms) if isinstance(node, File) else Entry(name, True, 0, 0)


def _read_under(under: Under, path: str, position: int, size: int) -> memoryview:
    file = under.open_log(path, create=False)
    try:
        return memoryview(file.read(position, size)) if size <= COPIED_BYTES else file.view(position, size)
    finally:
        file.close()
