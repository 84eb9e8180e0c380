"""Reading files and folders: on local disks by `pread` or, if asked for, by maps; elsewhere through fsspec.

Files that others write are not to be mapped: touching a mapped page that the disk cannot read, or that was cut off,
kills the process, while `pread` reports the error. Followers truncate sealed segments too. A kernel with a guard may
map pages of a sealed file (`PositionedFile.file_map`): it ends where a page is gone, and its caller reads. A map has
the bytes of now at each look, so a CRC that held says nothing about a later copy: `PositionedFile.is_unchanged` does.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import time
from collections.abc import Iterator, Sequence
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pylogseg.env.file_errors import storage_error
from pylogseg.env.handles import open_descriptor
from pylogseg.env.positions import read_over
from pylogseg.errors import CorruptionError, ExhaustedError, PylogsegError, RequestError, StorageError

if TYPE_CHECKING:
    from pylogseg._native._records import FileMap

Path = str | os.PathLike[str]

#: The most that is read of an index, a snapshot, a checkpoint or another small file: an index has 10 MiB unless a
#: broker is told otherwise, a checkpoint of 100,000 partitions 3 MB.
_chosen = os.environ.get("PYLOGSEG_SMALL_FILE_BYTES", "")
SMALL_FILE_BYTES = int(_chosen) if _chosen.isdecimal() else 64 << 20


#: Files that were written to later than this before they were opened are not mapped: a write may still be under way, of
#: which the time of modification would say no more.
SETTLED_NS = 2_000_000_000
#: A read of a file that may grow asks the system how long it is, if it is longer than this.
_UNASKED_BYTES = 1 << 20


#: A process, or the machine, has no more descriptors or memory: the file may be in order.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Entry(NamedTuple):
    """One name in a folder."""

    name: str
    is_dir: bool
    size: int
    """Bytes; 0 for a folder."""
    modified_ms: int
    largest_ms: int | None = None
    """Of a segment, its greatest timestamp if the listing knows it, as that of a tier does."""


class Readable(Protocol):
    """Bytes that are read by position; see `FileView`."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    def read(self, position: int, size: int) -> Any: ...


class FileView(Protocol):
    """An open file that is read by position.

    `read` returns up to `size` bytes from `position`: fewer only where the file ends. Its buffers stay valid after
    `close`; a mapped file stays mapped as long as a view of it lives.
    """

    path: str

    @property
    def size(self) -> int: ...
    def read(self, position: int, size: int) -> Any: ...
    def drop(self, start: int, end: int) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> FileView: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def check_small(path: str, size: int) -> None:
    """Refuse to read a large file into memory, such as a hole of gigabytes in place of an index."""
    if size > SMALL_FILE_BYTES:
        reason = (
            f"the file has {size} bytes, and no checkpoint, snapshot or index has more than {SMALL_FILE_BYTES}"
            " (PYLOGSEG_SMALL_FILE_BYTES in the environment allows more)"
        )
        raise CorruptionError(path, SMALL_FILE_BYTES, reason)


def next_data(view: Any, position: int) -> int:
    """Return the next position at which a file may have bytes other than 0, skipping holes if the view knows them.

    Such a view has a method `next_data`, which may return the size if only holes follow.
    """
    find = getattr(view, "next_data", None)
    return position if find is None else max(position, find(position))


def read_into(view: Readable, position: int, memory: memoryview) -> Any:
    """Read as many bytes as there is memory for, into that memory if the view supports it.

    Reused memory stays in the processor's caches, and has no page faults as a map has. That is worth a copy for bytes
    that are decoded at once. If `read` copies anyway (a view then has `is_copied`), reading into memory saves an
    allocation. A view that supports it has a method `read_into`. It returns the number of bytes, fewer only at the end
    of the file.
    """
    into = getattr(view, "read_into", None)
    return view.read(position, len(memory)) if into is None else memory[: into(position, memory)]


def _behind_hole(descriptor: int, position: int, size: int) -> int:
    if not hasattr(os, "SEEK_DATA"):
        return position
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:  # there is no data from there on; else the file system cannot tell
        return size if error.errno == errno.ENXIO else position


class FileSystem(Protocol):
    """A file system, as the readers use it; paths are strings of its own."""

    def list_folder(self, path: str) -> list[Entry]: ...
    def stat(self, path: str) -> Entry: ...
    def read_all(self, path: str) -> bytes: ...
    def open(self, path: str, *, sealed: bool) -> FileView: ...
    def join(self, path: str, name: str) -> str: ...
    def split(self, path: str) -> tuple[str, str]: ...
    def glob(self, pattern: str) -> list[str]: ...
    def real(self, path: str) -> str: ...


class _Closing:
    def __enter__(self: Any) -> Any:
        return self

    def __exit__(
        self: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MappedReader(_Closing):
    """A local file, mapped; `read` returns slices of the map, so nothing is copied. For files that nobody changes."""

    def __init__(self, path: str) -> None:
        self.path = path
        with _named(path, "open"):
            self._descriptor = open_descriptor(path, os.O_RDONLY)
        try:
            with _named(path, "map"):
                self._size = os.fstat(self._descriptor).st_size
                # An empty file cannot be mapped.
                self._map = mmap.mmap(self._descriptor, self._size, access=mmap.ACCESS_READ) if self._size else None
        except BaseException:
            os.close(self._descriptor)
            raise
        self._view = memoryview(self._map) if self._map is not None else memoryview(b"")
        self._closed = False

    @property
    def size(self) -> int:
        """Bytes of the file when it was opened."""
        return self._size

    def read(self, position: int, size: int) -> memoryview:
        return self._view[position : position + size]

    def read_into(self, position: int, memory: memoryview) -> int:
        with _named(self.path, "read"):
            return read_over(self._descriptor, position, memory[: max(0, self._size - position)])

    def whole(self) -> memoryview:
        """Return the map, for kernels that find their way by themselves; only mapped files have one."""
        return self._view

    def next_data(self, position: int) -> int:
        return position if self._closed else _behind_hole(self._descriptor, position, self._size)

    def drop(self, start: int, end: int) -> None:
        """Release the pages of a range in the map and, if the system can, in the page cache."""
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        end = end // mmap.PAGESIZE * mmap.PAGESIZE
        if end <= start or self._map is None or self._closed:
            return
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start, end - start)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, start, end - start, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close the descriptor; the map lives as long as its last view."""
        if not self._closed:
            self._closed = True
            os.close(self._descriptor)
            self._view = memoryview(b"")
            self._map = None


class PositionedFile(_Closing):
    """A local file that may change or shrink while it is read; `read` copies. If `sealed`, it must not be shorter."""

    is_copied = True

    def __init__(self, path: str, *, sealed: bool = False) -> None:
        self.path = path
        with _named(path, "open"):
            self._descriptor = open_descriptor(path, os.O_RDONLY)
        self._closed, self._sealed_size, self._modified_ns = False, -1, -1
        self._file_map: FileMap | None = None
        self._is_mappable = sealed
        if sealed:
            with _named(path, "stat"):
                status = os.fstat(self._descriptor)
            self._sealed_size, self._modified_ns = status.st_size, status.st_mtime_ns
            self._is_mappable = stat.S_ISREG(status.st_mode) and time.time_ns() - self._modified_ns >= SETTLED_NS

    @property
    def size(self) -> int:
        """Bytes of the file now; of a sealed file, when it was opened."""
        if self._sealed_size >= 0:
            return self._sealed_size
        with _named(self.path, "stat"):
            return os.fstat(self._descriptor).st_size

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of the bytes that are there now."""
        is_bound = self._sealed_size < 0 <= size <= _UNASKED_BYTES
        count = size if is_bound else max(0, min(size, self.size - position))
        with _named(self.path, "read"):
            data = _read_at(self._descriptor, position, count)
        self._check(position, len(data), count)
        return data

    def read_into(self, position: int, memory: memoryview) -> int:
        memory = memory[: max(0, self.size - position)]
        with _named(self.path, "read"):
            done = read_over(self._descriptor, position, memory)
        self._check(position, done, len(memory))
        return done

    def file_map(self) -> FileMap | None:
        """Return the mapper of a sealed file's pages, for kernels that survive a vanished page; None without one.

        A caller that copied bytes out of the pages asks `is_unchanged` afterwards, before it trusts the copies.
        """
        if self._file_map is None and self._is_mappable:
            from pylogseg._native._records import FileMap

            self._file_map = FileMap()
        return self._file_map

    def is_unchanged(self) -> bool:
        """Check whether nobody wrote to a sealed file, or cut it, since it was opened; else it is mapped no more."""
        with _named(self.path, "stat"):
            status = os.fstat(self._descriptor)
        if (status.st_size, status.st_mtime_ns) != (self._sealed_size, self._modified_ns):
            self._file_map, self._is_mappable = None, False
        return self._is_mappable

    def fileno(self) -> int:
        """Return the descriptor, for kernels that read by themselves; only local files have one."""
        return self._descriptor

    def _check(self, position: int, done: int, expected: int) -> None:
        if done < expected and self._sealed_size >= 0:
            reason = (
                f"it had {self._sealed_size} bytes when it was opened, and was cut to {position + done} while it was"
                " read: run the command again, to read its present content"
            )
            raise StorageError(self.path, "read", reason)

    def next_data(self, position: int) -> int:
        return _behind_hole(self._descriptor, position, self.size)

    def drop(self, start: int, end: int) -> None:
        """Release the pages of a range in the page cache."""
        self._file_map = None  # the system keeps pages that are mapped
        if hasattr(os, "posix_fadvise") and end > start and not self._closed:
            os.posix_fadvise(self._descriptor, start, end - start, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        self._file_map = None
        if not self._closed:
            self._closed = True
            os.close(self._descriptor)


class PartsOfFiles(_Closing):
    """Ranges of bytes of open files as one file, under the path of the first; it closes them."""

    is_copied = True

    def __init__(self, parts: Sequence[tuple[FileView, int, int]]) -> None:
        self._parts, self.path = parts, parts[0][0].path

    @property
    def size(self) -> int:
        return sum(end - start for _, start, end in self._parts)

    def read(self, position: int, size: int) -> bytes:
        pieces = [bytes(view.read(start, end - start)) for view, start, end in self._within(position, position + size)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def drop(self, start: int, end: int) -> None:
        for view, first, last in self._within(start, end):
            view.drop(first, last)

    def close(self) -> None:
        for view, _, _ in self._parts:
            view.close()

    def _within(self, first: int, last: int) -> Iterator[tuple[FileView, int, int]]:
        for view, start, end in self._parts:
            if first < end - start and last > 0:
                yield view, start + max(first, 0), min(end, start + last)
            first, last = first - (end - start), last - (end - start)


def _read_at(descriptor: int, position: int, size: int) -> bytes:
    if not hasattr(os, "pread"):  # Windows: nobody else uses this descriptor
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, size)
    data = os.pread(descriptor, size, position)
    while 0 < len(data) < size:  # one call returns at most 2 GiB, and may be interrupted
        more = os.pread(descriptor, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


class _named:
    """Turns an OSError into a StorageError that names the file, or into an ExhaustedError."""

    def __init__(self, path: str, operation: str) -> None:
        self.path, self.operation = path, operation

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and not isinstance(error, PylogsegError):
            if error.errno in _EXHAUSTED:
                raise ExhaustedError(self.path, self.operation, error.strerror or str(error), error.errno) from error
            raise storage_error(self.path, self.operation, error) from error


class LocalFiles:
    """The file system of this machine; files are mapped with `memory_map`, else read by `pread`."""

    memory_map = False

    def __init__(self, *, memory_map: bool = False) -> None:
        if memory_map:
            self.memory_map = True

    def list_folder(self, path: str) -> list[Entry]:
        """Return names in a folder, sorted. A name that vanishes meanwhile is left out."""
        entries = []
        with _named(path, "list"), os.scandir(path) as items:
            for item in items:
                try:
                    entries.append(_entry(item.name, item.stat()))
                except OSError as error:
                    if item.is_symlink():  # to nowhere, or in a circle
                        entries.append(_entry(item.name, item.stat(follow_symlinks=False)))
                    elif not isinstance(error, FileNotFoundError):
                        raise
        entries.sort()
        return entries

    def list_names(self, path: str) -> list[Entry]:
        """Return names in a folder, sorted, without sizes and times, which take most of the time of `list_folder`."""
        with _named(path, "list"), os.scandir(path) as items:
            names = sorted([(item.name, item.is_dir(), 0, 0, None) for item in items], key=itemgetter(0))
        make = tuple.__new__  # there may be very many
        return [make(Entry, name) for name in names]

    def stat(self, path: str) -> Entry:
        with _named(path, "stat"):
            return _entry(os.path.basename(path.rstrip("/\\")), os.stat(path))

    def read_all(self, path: str) -> bytes:
        """Return the whole content of a small file; a too large one counts as damaged."""
        with _named(path, "read"):
            descriptor = open_descriptor(path, os.O_RDONLY)
            try:
                size, parts = os.fstat(descriptor).st_size, []
                check_small(path, size)
                while part := os.read(descriptor, size + 1):
                    parts.append(part)
                return b"".join(parts)
            finally:
                os.close(descriptor)

    def open(self, path: str, *, sealed: bool) -> FileView:
        return MappedReader(path) if self.memory_map else PositionedFile(path, sealed=sealed)

    def join(self, path: str, name: str) -> str:
        return f"{path}/{name}" if os.sep == "/" and path and path[-1] != "/" != name[:1] else os.path.join(path, name)

    def split(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rpartition("/")
        if os.sep == "/" == folder[:1] and name and "//" not in path and "/." not in path:  # as nearly all are
            return folder, name
        return os.path.split(os.path.abspath(path))

    def real(self, path: str) -> str:
        return os.path.realpath(path)

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that match; the pattern itself if it exists."""
        from glob import glob

        return [pattern] if os.path.lexists(pattern) else sorted(glob(pattern))


def _entry(name: str, status: os.stat_result) -> Entry:
    """Make the entry of a file or folder; anything else is a file that cannot be opened."""
    kind = stat.S_IFMT(status.st_mode)
    size = status.st_size if kind == stat.S_IFREG else 0
    return Entry(name, kind == stat.S_IFDIR, size, status.st_mtime_ns // 1_000_000)


def is_within(path: str, folder: str) -> bool:
    """Check whether a path lies in a folder, or is it, by their real paths."""
    real, above = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([real, above]) == above


def refuse_inside(path: str, folder: str, what: str, place: str = "a folder") -> None:
    """Raise RequestError if `path` is inside a folder that is being copied, merged or read, as `what` says."""
    if is_within(path, folder):
        raise RequestError(f"{path} lies in {folder}, which is {what}: name {place} outside of it")


def is_same_folder(path: str, other: str) -> bool:
    """Check whether two paths are one folder, also by a link or a mount."""
    if os.path.exists(path) and os.path.exists(other):
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)
