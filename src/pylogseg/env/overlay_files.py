"""Files of an `OverlayStorage`: the kept beginning of one on the disk, then written bytes in memory."""

from __future__ import annotations

import mmap
import os
import socket as sockets
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pylogseg.env.append_file import send_file
from pylogseg.env.file_errors import (
    check_put,
    check_resize,
    check_truncate,
    closed_error,
    cut_error,
    storage_error,
)
from pylogseg.env.filesystem import MappedReader as DiskFile
from pylogseg.env.filesystem import PositionedFile
from pylogseg.env.handles import Handles, SharedDescriptor
from pylogseg.env.positions import Data, read_at
from pylogseg.errors import StorageError

_T = TypeVar("_T")
_CHUNK_BYTES = 4 << 20
#: Up to so many bytes are read, so that what the disk has lost is an error; more at a time are mapped.
COPIED_BYTES = 64 << 20
#: Of what has to be read before it is sent, at a time.
_SENT_BYTES = 1 << 20
Rename = Callable[[str, str], None]
Read = Callable[[str, int, int], memoryview]


def read_disk(path: str, position: int, size: int) -> memoryview:
    """Return bytes of a file on a disk of this machine; more than are read at a time are mapped."""
    if size <= COPIED_BYTES:
        with PositionedFile(path) as file:
            data = file.read(position, size)
        if len(data) < size:
            raise cut_error(path, "read", position + len(data))
        return memoryview(data)
    with DiskFile(path) as disk:
        mapped: memoryview = disk.read(position, size)
    return mapped


class File:
    """Content of a file: the first `kept` bytes of the one at `base` on the disk, which `read` gives, then `tail`."""

    __slots__ = ("_kept", "_read", "base", "modified_ms", "tail")

    def __init__(self, base: str | None, kept: int, modified_ms: int = 0, read: Read = read_disk) -> None:
        self.base, self._kept, self.modified_ms, self._read = base, kept, modified_ms, read
        self.tail: bytearray | memoryview = bytearray()

    @property
    def size(self) -> int:
        return self._kept + len(self.tail)

    def on_disk(self, end: int) -> str | None:
        """Return the path of the file on a disk of this machine that has the bytes up to a position; None if none."""
        return self.base if end <= self._kept and self._read is read_disk else None

    def view(self, start: int, end: int) -> memoryview:
        """Return bytes of the file, which stay as they are: into a map of the disk's, or a copy."""
        end = max(start, min(end, self.size))
        if start >= end:
            return memoryview(b"")
        if start >= self._kept:
            return memoryview(bytes(memoryview(self.tail)[start - self._kept : end - self._kept]))
        assert self.base is not None
        head = self._read(self.base, start, min(end, self._kept) - start)
        return head if end <= self._kept else memoryview(bytes(head) + bytes(self.tail[: end - self._kept]))

    def write(self, position: int, data: Data) -> None:
        """Write after the kept bytes of the disk; the file grows if needed."""
        at = position - self._kept
        if at + len(data) > len(self.tail):
            self.tail = bytearray(b"".join((memoryview(self.tail)[:at], data)))
        else:
            self.tail[at : at + len(data)] = data
        self._touch()

    def append(self, data: Data) -> None:
        try:
            if not isinstance(self.tail, bytearray):
                self.tail = bytearray(self.tail)
            self.tail += data
        except BufferError:  # somebody views it
            self.tail = bytearray(b"".join((self.tail, data)))
        self._touch()

    def truncate(self, size: int) -> None:
        """Keep the first bytes."""
        self._kept = min(self._kept, size)
        self.tail = bytearray(self.tail[: size - self._kept])
        self._touch()

    def replace(self, data: Data) -> None:
        self._kept, self.tail = 0, bytearray(data)
        self._touch()

    def resize(self, size: int) -> None:
        """Extend by zeros, or cut. The content is in memory from now on, except zeros that are not written to."""
        whole = self.take_in()
        if size < len(whole):
            self.tail = bytearray(whole[:size])
        elif size > len(whole):
            # A map, whose pages come into being with their first use; an allocator may clear each of its own.
            longer = memoryview(mmap.mmap(-1, size))
            longer[: len(whole)] = whole
            self.tail = longer
        self._touch()

    def take_in(self) -> bytearray | memoryview:
        """Load all bytes into memory, to write them in place."""
        if self._kept:
            self._kept, self.tail = 0, bytearray(self.view(0, self.size))
        return self.tail

    def first_difference(self, other: File) -> int | None:
        """Return the position of the first byte that differs from another file; None if they are equal."""
        start = min(self._kept, other._kept) if self.base == other.base else 0
        end = min(self.size, other.size)
        for at in range(start, end, _CHUNK_BYTES):
            stop = min(at + _CHUNK_BYTES, end)
            mine, its = bytes(self.view(at, stop)), bytes(other.view(at, stop))
            if mine != its:
                return at + next(i for i, (a, b) in enumerate(zip(mine, its, strict=True)) if a != b)
        return None if self.size == other.size else end

    def _touch(self) -> None:
        self.modified_ms = time.time_ns() // 1_000_000


class OpenFile:
    """Base of open files that are kept in memory; `rename` is the storage's."""

    def __init__(self, path: str, size: int, rename: Rename) -> None:
        self.path, self.size = path, size
        self._rename = rename
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error(self.path)

    def rename(self, path: str) -> None:
        self._rename(self.path, path)
        self.path = path

    def close(self) -> None:
        self._closed = True


class _Overlaid(OpenFile):
    """Base of both kinds of open files."""

    def __init__(self, path: str, file: File, size: int, rename: Rename) -> None:
        super().__init__(path, size, rename)
        self._file = file

    def _content(self) -> File:
        self._check_open()
        return self._file

    def sync(self) -> None:
        """Do nothing: there is no disk below it."""
        self._check_open()


class OverlayAppendFile(_Overlaid):
    """See `pylogseg.env.storage.AppendFile`; bytes of the disk are read, and sent, by one descriptor that is kept."""

    def __init__(self, path: str, file: File, size: int, rename: Rename, handles: Handles) -> None:
        super().__init__(path, file, size, rename)
        base = file.on_disk(0)
        self._descriptor = None if base is None else SharedDescriptor(base, handles)

    @property
    def copied_below(self) -> int:
        """The whole file."""
        return self.size

    def append(self, data: Data) -> int:
        file, position = self._content(), self.size
        if position == file.size:
            file.append(data)
        else:  # into what was preallocated
            file.write(position, data)
        self.size = position + len(data)
        return position

    def append_many(self, buffers: Sequence[Data]) -> int:
        return self.append(b"".join(buffers))

    def read(self, position: int, size: int) -> bytes:
        return bytes(self.view(position, size))

    def _on_disk(self, end: int) -> SharedDescriptor | None:
        """Return the descriptor of the file that has the bytes up to a position; None if they are not on a disk."""
        return None if self._content().on_disk(end) is None else self._descriptor

    def by_descriptor(self, search: Callable[..., _T], *more: Any) -> _T | None:
        """Return the result of a function of a descriptor (for `pread`) and the size; None without a descriptor."""
        size = self.size
        opened = self._on_disk(size) if hasattr(os, "pread") else None
        if opened is None:
            return None
        try:
            with opened as number:
                return search(number, size, *more)
        except StorageError:  # of another file
            raise
        except OSError as error:
            raise storage_error(self.path, "read", error) from error

    def view(self, position: int, size: int) -> memoryview:
        end = min(position + size, self.size)
        opened = self._on_disk(end) if position < end <= position + COPIED_BYTES else None
        if opened is None:
            return self._content().view(position, end)
        try:
            with opened as number:
                data = read_at(number, position, end - position)
        except StorageError:
            raise
        except OSError as error:
            raise storage_error(self.path, "read", error) from error
        if len(data) < end - position:
            raise cut_error(self.path, "read", position + len(data))
        return memoryview(data)

    def send_to(self, socket: sockets.socket, position: int, size: int) -> int:
        size = min(size, self.size - position)
        if size <= 0:
            return 0
        opened = self._on_disk(position + size) if hasattr(os, "sendfile") else None
        if opened is None:
            return socket.send(self.view(position, min(size, _SENT_BYTES)))
        with opened as descriptor:
            return send_file(self.path, socket, descriptor, position, size)

    def truncate(self, size: int, *, aside: bool = False) -> None:
        check_truncate(self.path, size, self.size)
        if self._content().size > size:
            self.size = size
            self._file.truncate(size)

    def modified_ms(self) -> int:
        """Return the modification time, here or on the disk."""
        return self._file.modified_ms

    def set_modified_ms(self, ms: int) -> None:
        self._file.modified_ms = ms

    def close(self) -> None:
        super().close()
        if self._descriptor is not None:
            self._descriptor.close()


class OverlayMappedFile(_Overlaid):
    """See `pylogseg.env.storage.MappedReader`."""

    def __init__(self, path: str, file: File, rename: Rename, *, created: bool) -> None:
        super().__init__(path, file, file.size, rename)
        self.created = created

    @property
    def buffer(self) -> memoryview:
        return memoryview(self._content().take_in()).toreadonly()

    def read(self, position: int, size: int) -> bytes:
        return bytes(self.buffer[position : position + size])

    def put(self, position: int, data: Data) -> None:
        tail = self._content().take_in()
        check_put(self.path, position, len(data), self.size)
        tail[position : position + len(data)] = data
        self._file.modified_ms = time.time_ns() // 1_000_000

    def resize(self, size: int) -> None:
        check_resize(self.path, size)
        if size != self.size:
            self._content().resize(size)
            self.size = size
