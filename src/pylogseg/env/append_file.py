"""A log file on a local disk: appended to by one writer, read by many, truncated at its end."""

from __future__ import annotations

import contextlib
import errno
import os
import socket as sockets
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pylogseg.env.file_errors import check_truncate, cut_error, storage_error, sync_error
from pylogseg.env.handles import Handles, SharedDescriptor, open_descriptor, open_folder_handle
from pylogseg.env.maps import Mapping
from pylogseg.env.positions import Data, copy_head, read_at, read_over, write_at, write_buffers, write_once
from pylogseg.errors import StorageError

_T = TypeVar("_T")
_HAS_PREAD = hasattr(os, "pread")


def sync_names(folder: str) -> None:
    """Wait until the names in a folder are on the disk; Windows has no such call."""
    if os.name != "nt":
        descriptor = open_folder_handle(folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def send_file(path: str, socket: sockets.socket, descriptor: int, position: int, size: int) -> int:
    """Send bytes of a file to a socket, whose errors pass as they are; return how many went."""
    try:
        return os.sendfile(socket.fileno(), descriptor, position, size)
    except OSError as error:
        if error.errno != errno.EIO:  # the only error of the disk
            raise
        raise storage_error(path, "send", error) from error


class LocalAppendFile(SharedDescriptor):
    """See `pylogseg.env.storage.AppendFile`; made by `LocalStorage.open_log`.

    The lock guards the map too, and is held during an append or the creation of a map; reads, syncs and sends only hold
    a use count.
    """

    __slots__ = ("_maps", "_sync_failed", "_view")
    _flags = os.O_RDWR

    def __init__(self, path: str, size: int, handles: Handles) -> None:
        super().__init__(path, handles)
        self.size = self.copied_below = size
        self._cuts = 0
        self._sync_failed = False
        self._view: memoryview | None = None
        self._maps: list[Mapping] = []

    def append(self, data: Data) -> int:
        with self._lock:  # no `acquire`: an interrupt behind it would leave the lock held
            try:
                descriptor = self._descriptor
                if descriptor < 0:
                    descriptor = self._open()
                self.recently_used = True
                position = self.size
                size = len(data)
                written = write_once(descriptor, data, position)
                if written != size:
                    write_at(descriptor, memoryview(data)[written:], position + written)
                self.size = position + size
                return position
            except OSError as error:
                raise self._append_failed(error) from error

    def append_many(self, buffers: Sequence[Data]) -> int:
        with self._lock:
            descriptor = self._ensure_open()
            self.recently_used = True
            position = self.size
            try:
                self.size = write_buffers(descriptor, buffers, position)
            except OSError as error:
                raise self._append_failed(error) from error
            return position

    def _append_failed(self, error: OSError) -> StorageError:
        """Cut off the bytes of a failed append, if the disk allows it; readers never see them anyway."""
        if isinstance(error, StorageError):  # the file could not be opened
            return error
        reason = error.strerror or str(error)
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError as second:
            reason += f"; and the partly written bytes cannot be cut off: {second.strerror}"
        return StorageError(self.path, "append", reason, error.errno)

    def read(self, position: int, size: int) -> bytes:
        return self._while_uncut(self._read, position, size)

    def _read(self, descriptor: int, end: int, position: int, size: int) -> bytes:
        count = max(0, min(size, end - position))
        data = read_at(descriptor, position, count)
        self._check_whole(descriptor, len(data), count)
        return data

    def read_into(self, position: int, memory: memoryview) -> int:
        """Read as many bytes as there is memory for, into that memory; return how many."""
        return self._while_uncut(self._read_into, position, memory)

    def _read_into(self, descriptor: int, end: int, position: int, memory: memoryview) -> int:
        room = memory[: max(0, end - position)]
        self._check_whole(descriptor, read_over(descriptor, position, room), len(room))
        return len(room)

    def _check_whole(self, descriptor: int, found: int, expected: int) -> None:
        if found < expected:
            raise cut_error(self.path, "read", os.fstat(descriptor).st_size)

    def by_descriptor(self, search: Callable[..., _T], *more: Any) -> _T | None:
        return self._while_uncut(search, *more) if _HAS_PREAD else None

    def _while_uncut(self, search: Callable[..., _T], *more: Any) -> _T:
        """Search again if the file was cut meanwhile: the read bytes may mix old and new content."""
        descriptor = self._join()
        if descriptor < 0:
            descriptor = self._borrow()
        try:
            self.recently_used = True
            while True:
                cuts = self._cuts
                try:
                    result = search(descriptor, self.size, *more)
                except StorageError:  # it met the new end, if the file was cut
                    if cuts == self._cuts:
                        raise
                    continue
                if cuts == self._cuts:
                    return result
        except StorageError:
            raise
        except OSError as error:
            raise storage_error(self.path, "read", error) from error
        finally:
            self._give_back()

    def view(self, position: int, size: int) -> memoryview:
        """Return a read-only view of up to `size` bytes: into a map of this process's writes, otherwise a copy."""
        if position < self.copied_below:
            return memoryview(self.read(position, size))
        view = self._view
        end = position + size
        if end > self.size:
            end = self.size
        self.recently_used = True
        # If the map is still the same, the file was not cut and extended again before its size was read.
        if view is not None and end <= len(view) and view is self._view:
            return view[position:end]  # empty after the end
        with self._lock:
            end = min(position + size, self.size)
            return self._map_up_to(end)[position:end] if end > position else memoryview(b"")

    def _map_up_to(self, end: int) -> memoryview:
        """Return a map that covers the published bytes up to `end`; the caller holds the lock."""
        if self._view is not None and end <= len(self._view):
            return self._view
        descriptor = self._ensure_open()
        try:
            size_on_disk = os.fstat(descriptor).st_size
            if size_on_disk < end:
                raise cut_error(self.path, "map", size_on_disk)
            mapping = Mapping(descriptor, size_on_disk)
        except (OSError, ValueError) as error:
            raise error if isinstance(error, StorageError) else StorageError(self.path, "map", str(error)) from error
        self._forget_maps()
        self._maps.append(mapping)
        self._view = view = mapping.whole()
        return view

    def send_to(self, socket: sockets.socket, position: int, size: int) -> int:
        size = min(size, self.size - position)
        if size <= 0:
            return 0
        if not hasattr(os, "sendfile"):
            return socket.send(self.view(position, size))
        with self as descriptor:
            return send_file(self.path, socket, descriptor, position, size)

    def truncate(self, size: int, *, aside: bool = False) -> None:
        with self._lock:
            end = self.size
            check_truncate(self.path, size, end)
            if self._descriptor < 0 and not self._closed and self._ends_at(size):
                return
            descriptor = self._ensure_open()
            try:
                if os.fstat(descriptor).st_size <= size:
                    return
                if aside and size < end:
                    self._put_copy_in_place(descriptor, size)
                    return
                self.size = size
                self._cuts += 1  # before the cut: who meets the new end has to see it
                # A reader that took the map before this line keeps it alive, so it is found below.
                self._forget_maps()
                if size < end:
                    for mapping in self._maps:
                        mapping.keep(size, end)
                os.ftruncate(descriptor, size)
            except OSError as error:
                self.size = end
                raise storage_error(self.path, "truncate", error) from error

    def _ends_at(self, size: int) -> bool:
        """Return whether the file already ends at `size`, so that a file that was only loaded need not be opened."""
        with contextlib.suppress(OSError):
            return os.stat(self.path).st_size <= size
        return False

    def _put_copy_in_place(self, descriptor: int, size: int) -> None:
        """Replace the file and its descriptor by a copy of the first `size` bytes; the lock is held."""
        copy = f"{self.path}.cut.deleted"  # the next start, a broker's too, removes what a crash leaves of it
        with contextlib.suppress(FileNotFoundError):
            os.unlink(copy)
        new = self._handles.open(lambda: open_descriptor(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        try:
            copy_head(descriptor, new, size)
            os.fsync(new)
            os.replace(copy, self.path)
            # A reader that uses this descriptor finishes with the old file, and checks `_cuts` then.
            self.size = size
            self._cuts += 1
            os.dup2(new, descriptor, inheritable=False)
            self._forget_maps()
            self._maps = []
        finally:
            os.close(new)
        sync_names(os.path.dirname(self.path) or ".")

    def sync(self) -> None:
        if self._sync_failed:
            raise sync_error(self.path)
        descriptor = self._borrow()
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._sync_failed = True
            raise storage_error(self.path, "sync", error) from error
        finally:
            self._give_back()

    def modified_ms(self) -> int:
        with self._lock:  # else a rename might come in between
            try:
                return os.stat(self.path).st_mtime_ns // 1_000_000
            except OSError as error:
                raise storage_error(self.path, "stat", error) from error

    def set_modified_ms(self, ms: int) -> None:
        with self._lock:
            try:
                times = (ms * 1_000_000, ms * 1_000_000)
                os.utime(self.path, ns=times, follow_symlinks=os.utime not in os.supports_follow_symlinks)
            except OSError as error:
                raise storage_error(self.path, "set the time of", error) from error

    def rename(self, path: str) -> None:
        """Rename the file, atomically for readers that open it lazily."""
        with self._lock:
            try:
                os.replace(self.path, path)
            except OSError as error:
                raise storage_error(self.path, f"rename to {path}", error) from error
            self.path = path

    def _close_descriptor(self) -> None:
        self._forget_maps()  # views stay valid
        super()._close_descriptor()

    def _forget_maps(self) -> None:
        """Drop the map; remember one with live views, since `truncate` has to keep their content."""
        self._view = None
        self._maps = [mapping for mapping in self._maps if mapping.drop()]
