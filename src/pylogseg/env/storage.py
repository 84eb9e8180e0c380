"""The file system of the engine: files that grow, indexes that are written in place, names, syncs.

`Storage` is the only way from the engine to a disk; `LocalStorage` is the real one. Paths are strings with the
system's separator. Every failure is a `StorageError` with the path and what was tried.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket as sockets
import stat
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from pylogseg.env.append_file import LocalAppendFile
from pylogseg.env.file_errors import missing_error, storage_error
from pylogseg.env.filesystem import Entry, LocalFiles
from pylogseg.env.handles import DEFAULT_LIMIT, LINKED, NO_FILE, Handles, open_descriptor, open_folder_handle
from pylogseg.env.locks import FolderLock
from pylogseg.env.mapped_file import LocalMappedFile
from pylogseg.env.positions import Data, write_at
from pylogseg.errors import StorageError

__all__ = [
    "AppendFile",
    "Data",
    "Entry",
    "LocalStorage",
    "Lock",
    "MappedFile",
    "Storage",
    "check_no_link",
    "make_folder",
]

_Result = TypeVar("_Result")


class AppendFile(Protocol):
    """A file that one writer appends to and any number of threads read.

    ``path``
        Its name; follows `rename`.
    ``size``
        Bytes that were appended whole: all that readers get. Preallocated bytes after them do not count.
    ``append(data) -> position``
        Writes bytes at the end and publishes the new size. `data` is `bytes`, `bytearray` or a memoryview of bytes.
        After a failure the size is as before; written bytes of `data` are cut off if the disk lets us.
    ``append_many(buffers) -> position``
        The same for several buffers, all or none.
    ``read(position, size) -> bytes``
        A copy of up to `size` bytes, fewer only where the published size ends.
    ``copied_below``
        What was there when the file was opened, up to this position, is always copied: a disk that has lost some of it
        fails a read, and would end a process that touches it in a map.
    ``by_descriptor(search, *more)``
        Returns ``search(descriptor, size, *more)``, which reads the file by `pread`, and does it again if the file was
        cut meanwhile; None if there is no descriptor: `view` then.
    ``view(position, size) -> memoryview``
        The same, read-only, and without a copy from `copied_below` on. The bytes stay valid and unchanged whatever
        happens to the file or to this object: after `truncate`, a view still shows the bytes that were cut off. (On
        Windows the file cannot be cut while a view of it lives: a `StorageError`.)
    ``send_to(socket, position, size) -> count``
        Sends up to `size` bytes by one `sendfile`; returns how many went. Errors of the socket pass as they are.
    ``truncate(size, *, aside=False)``
        Cuts the file, with all that was preallocated; ``truncate(file.size)`` trims. Does nothing to a file that is
        not longer. Beyond the size: `RequestError`. With `aside` a copy of what is kept takes the place of the file,
        durably: other processes that read the old one go on to see it as it was.
    ``sync()``
        Returns when everything appended so far is on the disk. After one failure it always fails: the content of
        the disk is unknown, and a second `fsync` would not reveal it.
    ``modified_ms()``, ``set_modified_ms(ms)``
        The modification time, milliseconds since 1970.
    ``rename(path)``
        Gives the file another name, replacing what has it. Use this for a file that is open, `Storage.rename` else.
    ``close()``
        Views stay valid; everything else raises `ClosedError` afterwards. Closing again does nothing.
    """

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def copied_below(self) -> int: ...
    def append(self, data: Data) -> int: ...
    def append_many(self, buffers: Sequence[Data]) -> int: ...
    def read(self, position: int, size: int) -> bytes: ...
    def view(self, position: int, size: int) -> memoryview: ...
    def by_descriptor(self, search: Callable[..., _Result], *more: Any) -> _Result | None: ...
    def send_to(self, socket: sockets.socket, position: int, size: int) -> int: ...
    def truncate(self, size: int, *, aside: bool = False) -> None: ...
    def sync(self) -> None: ...
    def modified_ms(self) -> int: ...
    def set_modified_ms(self, ms: int) -> None: ...
    def rename(self, path: str) -> None: ...
    def close(self) -> None: ...


class MappedFile(Protocol):
    """A file of fixed size that is written in place by one writer and read by any number of threads.

    ``path``, ``rename(path)``, ``sync()``, ``close()``
        As for `AppendFile`; `sync` covers the size too.
    ``size``
        Bytes of the file, those without an entry too.
    ``created``
        True if `Storage.open_index` made the file.
    ``buffer``
        A read-only view of the whole file; it shows later `put` calls, too. Take it again for each use: after `resize`
        an old one shows the file as it was, and one that is still held then costs a copy of the bytes that are cut off.
    ``read(position, size) -> bytes``
        A copy of some bytes inside the file; for a single look at a file that is not in use yet.
    ``put(position, data)``
        Writes inside the file; beyond its end: `RequestError`. A full disk is a `StorageError`.
    ``resize(size)``
        Makes the file longer by zeros, or shorter.
    """

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def created(self) -> bool: ...
    @property
    def buffer(self) -> memoryview: ...
    def read(self, position: int, size: int) -> bytes: ...
    def put(self, position: int, data: Data) -> None: ...
    def resize(self, size: int) -> None: ...
    def sync(self) -> None: ...
    def rename(self, path: str) -> None: ...
    def close(self) -> None: ...


class Lock(Protocol):
    """The exclusive lock of a folder, until `release`."""

    path: str

    def release(self) -> None: ...


class Storage(Protocol):
    """A file system that can be written.

    ``open_log(path, *, preallocate_bytes=0, create=True, size=None) -> AppendFile``
        Opens a file at its full length; makes a missing one if `create`. Only a file that is made here is preallocated:
        it gets `preallocate_bytes` zeros, and its `size` starts at 0. A caller that has just listed the folder can give
        the `size` of a file, which spares another look.
    ``open_index(path, size=None) -> MappedFile``
        Opens a file at its length, whatever `size` says; makes a missing one of `size` zeros, or refuses if None.
    ``list_folder(path) -> list of Entry``
        Sorted by name.
    ``stat(path) -> Entry``, ``exists(path) -> bool``
    ``rename(path, new_path)``
        Of files and folders, atomic, replaces a file. Durable after `sync_folder` of the folder (of both folders).
    ``remove(path) -> bool``
        Removes a file; False if there is none.
    ``make_folder(path)``
        With the folders above it; one that exists is fine.
    ``remove_folder(path)``
        With everything in it; one that is missing is fine.
    ``sync_folder(path)``
        Returns when the names in the folder (created, renamed, removed) are on the disk.
    ``sync_file(path)``
        The same for the bytes of a file, whoever wrote them; does nothing if there is none.
    ``read_all(path) -> bytes``
    ``write_plain(path, data)``
        Writes a file in place, durable at some time later.
    ``write_synced(path, data)``
        The same and syncs the file, not its name.
    ``write_whole(path, data)``
        Replaces a file so that after a crash it has the old bytes or the new ones: writes ``path.tmp``, syncs it,
        renames it, syncs the folder.
    ``lock(folder) -> Lock``
        Takes ``folder/.lock`` as a broker does; `DirectoryLockedError` if somebody has it.
    ``join(folder, name) -> path``, ``split(path) -> (folder, name)``
    """

    def open_log(
        self, path: str, *, preallocate_bytes: int = 0, create: bool = True, size: int | None = None
    ) -> AppendFile: ...
    def open_index(self, path: str, size: int | None = None) -> MappedFile: ...
    def list_folder(self, path: str) -> list[Entry]: ...
    def stat(self, path: str) -> Entry: ...
    def exists(self, path: str) -> bool: ...
    def rename(self, path: str, new_path: str) -> None: ...
    def remove(self, path: str) -> bool: ...
    def make_folder(self, path: str) -> None: ...
    def remove_folder(self, path: str) -> None: ...
    def sync_folder(self, path: str) -> None: ...
    def sync_file(self, path: str) -> None: ...
    def read_all(self, path: str) -> bytes: ...
    def write_plain(self, path: str, data: Data) -> None: ...
    def write_synced(self, path: str, data: Data) -> None: ...
    def write_whole(self, path: str, data: Data) -> None: ...
    def lock(self, folder: str) -> Lock: ...
    def join(self, folder: str, name: str) -> str: ...
    def split(self, path: str) -> tuple[str, str]: ...


class LocalStorage:
    """The disks of this machine; `handles` bounds how many files are open: share one between the logs of a process."""

    def __init__(self, handles: Handles | None = None) -> None:
        self.handles = Handles(DEFAULT_LIMIT) if handles is None else handles
        self._files = LocalFiles()
        self.list_folder = self._files.list_folder
        self.stat = self._files.stat
        self.read_all = self._files.read_all
        self.join = self._files.join
        self.split = self._files.split

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStorage, ()  # another process has files of its own

    def open_log(
        self, path: str, *, preallocate_bytes: int = 0, create: bool = True, size: int | None = None
    ) -> AppendFile:
        if size is None and (size := _size_of(path)) is None:
            if not create:
                raise missing_error(path, "open")
            self._create(path, preallocate_bytes)
            size = 0
        return LocalAppendFile(path, size, self.handles)

    def open_index(self, path: str, size: int | None = None) -> MappedFile:
        present = _size_of(path)
        if present is None:
            if size is None:
                raise missing_error(path, "open")
            self._create(path, size)
            return LocalMappedFile(path, size, self.handles, created=True)
        return LocalMappedFile(path, present, self.handles, created=False)

    def _create(self, path: str, size: int) -> None:
        def create() -> None:
            descriptor = self.handles.open(lambda: open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
            try:
                if size:
                    os.ftruncate(descriptor, size)
            finally:
                os.close(descriptor)

        _attempt(path, "create", create)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def rename(self, path: str, new_path: str) -> None:
        _attempt(path, f"rename to {new_path}", lambda: os.replace(path, new_path))

    def remove(self, path: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            _attempt(path, "remove", lambda: os.unlink(path), passing=FileNotFoundError)
            return True
        return False

    def make_folder(self, path: str) -> None:
        _attempt(path, "make folder", lambda: os.makedirs(path, exist_ok=True))

    def remove_folder(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            _attempt(path, "remove folder", lambda: shutil.rmtree(path), passing=FileNotFoundError)

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder are on the disk; Windows has no such call."""
        if os.name != "nt":
            _attempt(path, "sync", lambda: _sync_and_close(self.handles.open(lambda: open_folder_handle(path))))

    def sync_file(self, path: str) -> None:
        """Wait until the bytes of a file are on the disk, if there is one; it may be removed at the same moment."""
        with contextlib.suppress(FileNotFoundError):
            _attempt(
                path,
                "sync",
                lambda: _sync_and_close(self.handles.open(lambda: open_descriptor(path, os.O_RDWR))),
                FileNotFoundError,
            )

    def write_plain(self, path: str, data: Data) -> None:
        self._write(path, data, synced=False)

    def write_synced(self, path: str, data: Data) -> None:
        self._write(path, data, synced=True)

    def write_whole(self, path: str, data: Data) -> None:
        self.remove(f"{path}.tmp")  # left by a crash, or a link that somebody put there
        self._write(f"{path}.tmp", data, os.O_EXCL, synced=True)
        self.rename(f"{path}.tmp", path)
        self.sync_folder(os.path.dirname(path) or ".")

    def _write(self, path: str, data: Data, how: int = os.O_TRUNC, *, synced: bool) -> None:
        def write() -> None:
            descriptor = self.handles.open(lambda: open_descriptor(path, os.O_RDWR | os.O_CREAT | how))
            try:
                write_at(descriptor, data, 0)
                if synced:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

        _attempt(path, "write", write)

    def lock(self, folder: str) -> Lock:
        return FolderLock(folder)


def make_folder(storage: Storage, path: str) -> None:
    """Create a folder with its parents, durably."""
    if storage.exists(path):
        return
    above, name = storage.split(path)
    if name:
        make_folder(storage, above)
    storage.make_folder(path)
    storage.sync_folder(above)


def check_no_link(folder: str) -> None:
    """Refuse to write into a folder whose name is a symbolic link."""
    if os.path.islink(folder):
        raise StorageError(folder, "write into", LINKED)


def _size_of(path: str) -> int | None:
    """Return the length of a file that may be written; None if there is none."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error(path, "open", error) from error
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(path, "open", LINKED if stat.S_ISLNK(status.st_mode) else NO_FILE)
    return status.st_size


def _sync_and_close(descriptor: int) -> None:
    """Flush a descriptor to the disk, and close it."""
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _attempt(
    path: str, operation: str, action: Callable[[], _Result], passing: type[OSError] | tuple[()] = ()
) -> _Result:
    """Call `action`; turn the system's error into a StorageError."""
    try:
        return action()
    except passing:
        raise
    except OSError as error:
        raise storage_error(path, operation, error) from error
