"""An index file on a local disk: a map with room for entries, written in place."""

from __future__ import annotations

import errno
import mmap
import os
import threading

from pylogseg.env.file_errors import FULL, check_put, check_resize, closed_error, cut_error, storage_error, sync_error
from pylogseg.env.handles import Handles, open_descriptor
from pylogseg.env.interrupts import held_back
from pylogseg.env.maps import Mapping
from pylogseg.env.positions import Data, read_at, write_at
from pylogseg.errors import StorageError

_NOT_SUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
#: Disk space is reserved in steps of this before a map is written: a map on a full disk kills the process.
_RESERVED_BYTES = 1 << 16
#: On a full disk, no more than a map takes.
_PAGE_BYTES = mmap.PAGESIZE
_CHECKED_BYTES = 1 << 20


class LocalMappedFile:
    """See `pylogseg.env.storage.MappedFile`; made by `LocalStorage.open_index`.

    Mapped by the first use; the map may be given up while it is idle: written bytes stay in the system's page cache. A
    descriptor is open only while the file is mapped, resized or synced.
    """

    __slots__ = (
        "_checked",
        "_closed",
        "_handles",
        "_lock",
        "_maps",
        "_reader",
        "_reserved",
        "_sync_failed",
        "_view",
        "created",
        "path",
        "recently_used",
        "size",
    )

    def __init__(self, path: str, size: int, handles: Handles, *, created: bool) -> None:
        self.path = path
        self.size = size
        self.created = created
        self.recently_used = False
        self._handles = handles
        self._lock = threading.Lock()
        self._view: memoryview | None = None
        self._reader: memoryview | None = None  # of what the file holds, read-only
        self._maps: list[Mapping] = []
        self._reserved = 0
        self._checked = created
        self._closed = False
        self._sync_failed = False

    @property
    def buffer(self) -> memoryview:
        reader = self._reader
        if reader is None:
            with self._lock:
                reader = self._reader = self._map()[: self.size].toreadonly()
        self.recently_used = True
        return reader

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of some bytes; the file is not mapped for it."""
        with self._lock:
            if self._view is not None:
                return bytes(self._view[position : position + size])
            descriptor = self._open()
        try:
            data = read_at(descriptor, position, size)
        except OSError as error:
            raise storage_error(self.path, "read", error) from error
        finally:
            os.close(descriptor)
        if len(data) < size:
            raise cut_error(self.path, "read", position + len(data))
        return data

    def put(self, position: int, data: Data) -> None:
        """Write into the map; by one thread at a time."""
        end = position + len(data)
        if end > self._reserved or position < 0:
            self._reserve(position, end)
        view = self._view
        if view is None:
            with self._lock:
                view = self._map()
        self.recently_used = True
        view[position:end] = data

    def _map(self) -> memoryview:
        """Return the map; the lock is held."""
        if self._view is not None:
            return self._view
        if self.size == 0:
            return memoryview(b"")
        descriptor = self._open()
        try:
            size_on_disk = os.fstat(descriptor).st_size
            if size_on_disk < self.size:
                raise cut_error(self.path, "map", size_on_disk)
            self._check(descriptor)
            mapping = Mapping(descriptor, self.size, writable=True)
        except (OSError, ValueError) as error:
            raise error if isinstance(error, StorageError) else StorageError(self.path, "map", str(error)) from error
        finally:
            os.close(descriptor)
        self._maps.append(mapping)
        self._view = view = mapping.whole()
        self._handles.add(self)
        return view

    def _check(self, descriptor: int) -> None:
        """Read the existing bytes once before they are mapped, so that lost ones are an error."""
        if self._checked:
            return
        for position in range(0, self.size, _CHECKED_BYTES):
            read_at(descriptor, position, min(_CHECKED_BYTES, self.size - position))
        self._checked = True

    def _reserve(self, position: int, end: int) -> None:
        """Reserve disk space for ``[0, end)`` and some more."""
        check_put(self.path, position, end - position, self.size)
        with self._lock:
            descriptor = self._open()
            try:
                self._reserved = self._allocate_blocks(descriptor, end)
            except OSError as error:
                raise storage_error(self.path, "append", error) from error
            finally:
                os.close(descriptor)

    def _allocate_blocks(self, descriptor: int, end: int) -> int:
        """Allocate blocks up to a position, and beyond as far as there is room; return how far."""
        steps = [min(self.size, -(-end // step) * step) for step in (_RESERVED_BYTES, _PAGE_BYTES)]
        try:
            _allocate(descriptor, self._reserved, steps[0])
            return steps[0]
        except OSError as error:
            if error.errno not in FULL or steps[1] == steps[0]:
                raise
        _allocate(descriptor, self._reserved, steps[1])
        return steps[1]

    def resize(self, size: int) -> None:
        check_resize(self.path, size)
        with self._lock:
            if size == self.size:
                return
            self._check_open()
            end, was_mapped = self.size, self._view is not None
            try:
                self.size = min(size, end)
                self._forget_maps()
                for mapping in self._maps:
                    mapping.keep(size, end)
                descriptor = self._open()
                try:
                    os.ftruncate(descriptor, size)
                finally:
                    os.close(descriptor)
                self.size = size
                self._reserved = min(self._reserved, size)
            except OSError as error:
                self.size = end
                raise storage_error(self.path, "resize", error) from error
        if was_mapped:
            self._handles.remove(self)

    def sync(self) -> None:
        if self._sync_failed:
            raise sync_error(self.path)
        with self._lock:
            mappings, size = list(self._maps), self.size
            descriptor = self._open()
        try:
            for mapping in mappings:
                mapping.sync(size)
            os.fsync(descriptor)
        except OSError as error:
            self._sync_failed = True
            raise storage_error(self.path, "sync", error) from error
        finally:
            os.close(descriptor)

    def rename(self, path: str) -> None:
        """Rename the file, atomically for readers that map it lazily."""
        with self._lock:
            try:
                os.replace(self.path, path)
            except OSError as error:
                raise storage_error(self.path, f"rename to {path}", error) from error
            self.path = path

    def close(self) -> None:
        """Drop the map; views stay valid."""
        with self._lock:
            self._closed = True
            self._forget_maps()
        self._handles.remove(self)

    def release_idle(self) -> bool:
        """Drop the map if nobody is about to use it."""
        with held_back():  # an interrupt behind `acquire` would leave the lock held
            if not self._lock.acquire(blocking=False):
                return False
            try:
                self._forget_maps()
                return True
            finally:
                self._lock.release()

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error(self.path)

    def _open(self) -> int:
        self._check_open()
        try:
            return self._handles.open(lambda: open_descriptor(self.path, os.O_RDWR))
        except OSError as error:
            raise storage_error(self.path, "open", error) from error

    def _forget_maps(self) -> None:
        """Drop the map; remember one with live views, since `resize` has to keep their content."""
        self._view = self._reader = None
        self._maps = [mapping for mapping in self._maps if mapping.drop()]


def _allocate(descriptor: int, start: int, end: int) -> None:
    """Allocate disk blocks for a range, and keep its content."""
    if end <= start:
        return
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, start, end - start)
            return
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
    write_at(descriptor, read_at(descriptor, start, end - start), start)
