"""A storage whose k-th operation fails, to test every k of a workload."""

from __future__ import annotations

import errno
import os
import socket as sockets
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from pylogseg.env.file_errors import sync_error
from pylogseg.env.storage import AppendFile, Data, Lock, MappedFile, Storage
from pylogseg.errors import StorageError

Fault = Literal["short", "sync"]

_Found = TypeVar("_Found")


class FaultyStorage:
    """Passes all operations on to another storage, except for one, which fails with a `StorageError`.

    Parameters
    ----------
    inner : Storage
        The storage that does the work.
    fail_at : int, optional
        The number of the operation that fails, from 1 on. By default none fails, to count those of a workload.
    error : int or str
        ``errno.EIO`` or ``errno.ENOSPC``: the operation does nothing and fails. ``"short"``: only appends and writes
        are counted; half of the bytes reach the disk, and cannot be cut off either. ``"sync"``: only syncs are
        counted; a file whose sync failed fails all later ones.

    Attributes
    ----------
    count : int
        Operations so far, of the kind that is counted. Reading, listing and closing do not count.
    failed : str or None
        The operation that failed, and its path.
    """

    def __init__(self, inner: Storage, fail_at: int | None = None, error: int | Fault = errno.EIO) -> None:
        self.inner, self.fail_at, self.error = inner, fail_at, error
        self.count = 0
        self.failed: str | None = None
        self.list_folder = inner.list_folder
        self.stat = inner.stat
        self.exists = inner.exists
        self.read_all = inner.read_all
        self.join = inner.join
        self.split = inner.split

    def meets(self, operation: str, path: str, kind: Literal["write", "sync", "other"] = "other") -> bool:
        """Count an operation; return True if its write should be short, and raise if it should fail."""
        if kind != {"short": "write", "sync": "sync"}.get(str(self.error), kind):
            return False
        self.count += 1
        if self.count != self.fail_at:
            return False
        self.failed = f"{operation} {path}"
        if self.error == "short":
            return True
        raise self.failure(path, operation)

    def failure(self, path: str, operation: str) -> StorageError:
        """Return the error that the failing operation raises."""
        number = {"short": errno.ENOSPC, "sync": errno.EIO}.get(str(self.error), self.error)
        assert isinstance(number, int)
        return StorageError(path, operation, os.strerror(number), number)

    def open_log(
        self, path: str, *, preallocate_bytes: int = 0, create: bool = True, size: int | None = None
    ) -> AppendFile:
        """Open a file to append to."""
        self.meets("open", path)
        file = self.inner.open_log(path, preallocate_bytes=preallocate_bytes, create=create, size=size)
        return _FaultyAppendFile(self, file)

    def open_index(self, path: str, size: int | None = None) -> MappedFile:
        """Open a file to write in place."""
        self.meets("open", path)
        return _FaultyMappedFile(self, self.inner.open_index(path, size))

    def rename(self, path: str, new_path: str) -> None:
        """Give a file or folder another name."""
        self.meets("rename", path)
        self.inner.rename(path, new_path)

    def remove(self, path: str) -> bool:
        """Remove a file."""
        self.meets("remove", path)
        return self.inner.remove(path)

    def make_folder(self, path: str) -> None:
        """Make a folder."""
        self.meets("make folder", path)
        self.inner.make_folder(path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder with everything in it."""
        self.meets("remove folder", path)
        self.inner.remove_folder(path)

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        self.meets("sync", path, "sync")
        self.inner.sync_folder(path)

    def sync_file(self, path: str) -> None:
        """Make the bytes of a file durable."""
        self.meets("sync", path, "sync")
        self.inner.sync_file(path)

    def write_plain(self, path: str, data: Data) -> None:
        """Write a file in place."""
        if self.meets("write", path, "write"):
            self.inner.write_plain(path, data[: len(data) // 2])
            raise self.failure(path, "write")
        self.inner.write_plain(path, data)

    def write_synced(self, path: str, data: Data) -> None:
        """Write a file in place and make its bytes durable: two operations."""
        self.write_plain(path, data)
        self.sync_file(path)

    def write_whole(self, path: str, data: Data) -> None:
        """Replace a file: four operations."""
        self.write_synced(f"{path}.tmp", data)
        self.rename(f"{path}.tmp", path)
        self.sync_folder(self.split(path)[0])

    def lock(self, folder: str) -> Lock:
        """Take the lock of a folder of partitions."""
        self.meets("lock", folder)
        return self.inner.lock(folder)


class _FaultyFile:
    def __init__(self, storage: FaultyStorage, inner: AppendFile | MappedFile) -> None:
        self._storage = storage
        self._file = inner
        self._sync_failed = False

    @property
    def path(self) -> str:
        return self._file.path

    def sync(self) -> None:
        if self._sync_failed:
            raise sync_error(self.path)
        try:
            self._storage.meets("sync", self.path, "sync")
            self._file.sync()
        except StorageError:
            self._sync_failed = True
            raise

    def rename(self, path: str) -> None:
        self._storage.meets("rename", self.path)
        self._file.rename(path)

    def close(self) -> None:
        self._file.close()


class _FaultyAppendFile(_FaultyFile):
    def __init__(self, storage: FaultyStorage, inner: AppendFile) -> None:
        super().__init__(storage, inner)
        self._inner = inner
        self.size = inner.size
        self.copied_below = inner.copied_below
        self.modified_ms, self.set_modified_ms = inner.modified_ms, inner.set_modified_ms

    def append(self, data: Data) -> int:
        return self._append("append", data)

    def append_many(self, buffers: Sequence[Data]) -> int:
        return self._append("append", b"".join(buffers))

    def _append(self, operation: str, data: Data) -> int:
        short = self._storage.meets(operation, self.path, "write")
        if self._inner.size > self.size:  # what a short write left: the next append overwrites it
            self._inner.truncate(self.size)
        if short:
            self._inner.append(data[: len(data) // 2])
            raise self._storage.failure(self.path, operation)
        position = self._inner.append(data)
        self.size = self._inner.size
        return position

    def read(self, position: int, size: int) -> bytes:
        return self._inner.read(position, min(size, self.size - position))

    def by_descriptor(self, search: Callable[..., _Found], *more: Any) -> _Found | None:
        return self._inner.by_descriptor(lambda descriptor, size: search(descriptor, min(size, self.size), *more))

    def view(self, position: int, size: int) -> memoryview:
        return self._inner.view(position, min(size, self.size - position))

    def send_to(self, socket: sockets.socket, position: int, size: int) -> int:
        return self._inner.send_to(socket, position, min(size, self.size - position))

    def truncate(self, size: int, *, aside: bool = False) -> None:
        self._storage.meets("truncate", self.path)
        self._inner.truncate(size, aside=aside)
        self.size = self._inner.size


class _FaultyMappedFile(_FaultyFile):
    def __init__(self, storage: FaultyStorage, inner: MappedFile) -> None:
        super().__init__(storage, inner)
        self._inner = inner
        self.created = inner.created

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def buffer(self) -> memoryview:
        return self._inner.buffer

    def read(self, position: int, size: int) -> bytes:
        return self._inner.read(position, size)

    def put(self, position: int, data: Data) -> None:
        self._storage.meets("append", self.path)
        self._inner.put(position, data)

    def resize(self, size: int) -> None:
        self._storage.meets("resize", self.path)
        self._inner.resize(size)
