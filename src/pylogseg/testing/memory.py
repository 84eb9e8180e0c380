"""A storage in memory that records its operations, to replay crashes."""

from __future__ import annotations

import socket as sockets
import threading
from collections.abc import Callable, Hashable, Sequence

from pylogseg.env.clock import Clock, SystemClock
from pylogseg.env.file_errors import check_put, check_resize, check_truncate, missing_error
from pylogseg.env.filesystem import Entry
from pylogseg.env.locks import LOCK_NAME, ObjectLock
from pylogseg.env.overlay_files import OpenFile
from pylogseg.env.storage import AppendFile, Data, Lock, MappedFile
from pylogseg.errors import StorageError
from pylogseg.testing.state import ROOT, DiskState, NameChange, Operation, Trace


class MemoryStorage:
    """See `pylogseg.env.storage.Storage`. Paths use ``/``; a leading one has no meaning.

    Parameters
    ----------
    state : DiskState, optional
        Initial content of the disk, all durable; copied. By default empty.
    clock : Clock, optional
        Gives modification times.

    Attributes
    ----------
    state : DiskState
        Content of the disk now.
    trace : Trace
        Every operation since the beginning.
    """

    def __init__(self, state: DiskState | None = None, clock: Clock | None = None) -> None:
        self.state = DiskState() if state is None else state.copy()
        self.trace = Trace(self.state.copy())
        self.clock: Clock = SystemClock() if clock is None else clock
        self._modified: dict[int, int] = {}
        self._next_node = self.state.new_node()
        self._locked: set[Hashable] = set()
        self.mutex = threading.RLock()

    def do(self, operation: Operation) -> None:
        """Record an operation and carry it out."""
        with self.mutex:
            self.trace.operations.append(operation)
            self.state.apply(operation)
            if operation.kind in ("new_file", "write", "size"):
                self._modified[operation.node] = self.clock.now_ms()

    def mark(self, label: object) -> None:
        """Add a note to the trace, such as the acknowledged offsets so far."""
        self.do(Operation("mark", label=label))

    def open_log(
        self, path: str, *, preallocate_bytes: int = 0, create: bool = True, size: int | None = None
    ) -> AppendFile:
        """Open a file to append to."""
        with self.mutex:
            node = self._find(path)
            if node is None:
                if not create:
                    raise missing_error(path, "open")
                return MemoryAppendFile(self, path, self._create(path, preallocate_bytes), 0)
            return MemoryAppendFile(self, path, node, len(self._file(path, "open")))

    def open_index(self, path: str, size: int | None = None) -> MappedFile:
        """Open a file to write in place."""
        with self.mutex:
            node = self._find(path)
            if node is None:
                if size is None:
                    raise missing_error(path, "open")
                return MemoryMappedFile(self, path, self._create(path, size), size, created=True)
            return MemoryMappedFile(self, path, node, len(self._file(path, "open")), created=False)

    def list_folder(self, path: str) -> list[Entry]:
        """Return names in a folder, sorted."""
        with self.mutex:
            names = self.state.folders[self._folder(path, "list")]
            return sorted(self._entry(name, node) for name, node in names.items())

    def stat(self, path: str) -> Entry:
        """Return the entry of a file or folder."""
        with self.mutex:
            node = self._find(path)
            if node is None:
                raise missing_error(path, "stat")
            return self._entry(self.split(path)[1], node)

    def _entry(self, name: str, node: int) -> Entry:
        is_dir = node in self.state.folders
        return Entry(name, is_dir, 0 if is_dir else len(self.state.files[node]), self._modified.get(node, 0))

    def exists(self, path: str) -> bool:
        """Return whether something has this name."""
        with self.mutex:
            return self._find(path) is not None

    def rename(self, path: str, new_path: str) -> None:
        """Give a file or folder another name, replacing a file."""
        operation = f"rename to {new_path}"
        with self.mutex:
            node = self._find(path)
            if node is None:
                raise missing_error(path, operation)
            replaced = self._find(new_path)
            if replaced is not None and (replaced in self.state.folders or node in self.state.folders):
                raise StorageError(path, operation, "a folder is in the way")
            old, new = self._place(path, operation), self._place(new_path, operation)
            if old != new:
                self.do(Operation("names", changes=(NameChange(*old, None), NameChange(*new, node))))

    def remove(self, path: str) -> bool:
        """Remove a file; return False if there is none."""
        with self.mutex:
            node = self._find(path)
            if node is None:
                return False
            if node in self.state.folders:
                raise StorageError(path, "remove", "it is a folder")
            self.do(Operation("names", changes=(NameChange(*self._place(path, "remove"), None),)))
            return True

    def make_folder(self, path: str) -> None:
        """Make a folder and its missing parents."""
        with self.mutex:
            node = self._find(path)
            if node is None:
                self.make_folder(self.split(path)[0])
                place, node = self._place(path, "make folder"), self._new_node()
                self.do(Operation("new_folder", node, changes=(NameChange(*place, node),)))
            elif node not in self.state.folders:
                raise StorageError(path, "make folder", "it is a file")

    def remove_folder(self, path: str) -> None:
        """Remove a folder with everything in it."""
        with self.mutex:
            if self._find(path) is None:
                return
            for entry in self.list_folder(path):
                (self.remove_folder if entry.is_dir else self.remove)(self.join(path, entry.name))
            self.do(Operation("names", changes=(NameChange(*self._place(path, "remove folder"), None),)))

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        self.do(Operation("sync_folder", self._folder(path, "sync")))

    def sync_file(self, path: str) -> None:
        """Make the bytes of a file durable, if there is one."""
        node = self._find(path)
        if node is not None:
            self.do(Operation("sync", node))

    def read_all(self, path: str) -> bytes:
        """Return a small file, whole."""
        with self.mutex:
            return bytes(self._file(path, "read"))

    def write_plain(self, path: str, data: Data) -> None:
        """Write a file in place."""
        with self.mutex:
            node = self._find(path)
            if node is None:
                node = self._create(path, 0)
            elif self._file(path, "write"):
                self.do(Operation("size", node))
            if data:
                self.do(Operation("write", node, 0, bytes(data)))

    def write_synced(self, path: str, data: Data) -> None:
        """Write a file in place and make its bytes durable."""
        self.write_plain(path, data)
        self.sync_file(path)

    def write_whole(self, path: str, data: Data) -> None:
        """Replace a file: after a crash it has the old bytes or the new ones."""
        self.write_synced(f"{path}.tmp", data)
        self.rename(f"{path}.tmp", path)
        self.sync_folder(self.split(path)[0])

    def lock(self, folder: str) -> Lock:
        """Take the lock of a folder of partitions."""
        with self.mutex:
            node = self._folder(folder, "lock")
            return ObjectLock(self.join(folder, LOCK_NAME), self._locked, node)

    def join(self, folder: str, name: str) -> str:
        """Return a path in a folder."""
        return f"{folder.rstrip('/')}/{name}"

    def split(self, path: str) -> tuple[str, str]:
        """Split a path into folder and last name."""
        folder, _, name = path.rstrip("/").rpartition("/")
        return folder, name

    def modified_ms(self, node: int, changed_ms: int | None = None) -> int:
        """Return the modification time of a node, set first if one is given."""
        if changed_ms is not None:
            self._modified[node] = changed_ms
        return self._modified.get(node, 0)

    def node_of(self, path: str) -> int:
        """Return the number of an existing file."""
        node = self._find(path)
        assert node is not None
        return node

    def _new_node(self) -> int:
        self._next_node += 1
        return self._next_node - 1

    def _create(self, path: str, size: int) -> int:
        place, node = self._place(path, "create"), self._new_node()
        self.do(Operation("new_file", node, changes=(NameChange(*place, node),)))
        if size:
            self.do(Operation("size", node, size))
        return node

    def _find(self, path: str) -> int | None:
        node: int | None = ROOT
        for name in filter(None, path.split("/")):
            node = self.state.folders.get(node, {}).get(name) if node is not None else None
        return node

    def _file(self, path: str, operation: str) -> bytearray:
        node = self._find(path)
        if node is None:
            raise missing_error(path, operation)
        if node in self.state.folders:
            raise StorageError(path, operation, "it is a folder")
        return self.state.files[node]

    def _folder(self, path: str, operation: str) -> int:
        node = self._find(path)
        if node is None:
            raise missing_error(path, operation, "folder")
        if node not in self.state.folders:
            raise StorageError(path, operation, "it is a file")
        return node

    def _place(self, path: str, operation: str) -> tuple[int, str]:
        folder, name = self.split(path)
        return self._folder(folder, operation), name


class _InMemory(OpenFile):
    """Base of both kinds of open files."""

    def __init__(self, storage: MemoryStorage, path: str, node: int, size: int) -> None:
        super().__init__(path, size, storage.rename)
        self._storage, self._node = storage, node

    def _content(self) -> bytearray:
        self._check_open()
        return self._storage.state.files[self._node]

    def sync(self) -> None:
        self._content()
        self._storage.do(Operation("sync", self._node))


class MemoryAppendFile(_InMemory):
    """See `pylogseg.env.storage.AppendFile`; views are copies."""

    @property
    def copied_below(self) -> int:
        """Return a copy of the whole file."""
        return self.size

    def append(self, data: Data) -> int:
        """Write at the end; return the position."""
        with self._storage.mutex:
            self._content()
            position = self.size
            if data:
                self._storage.do(Operation("write", self._node, position, bytes(data)))
            self.size = position + len(data)
            return position

    def append_many(self, buffers: Sequence[Data]) -> int:
        return self.append(b"".join(buffers))

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of up to `size` bytes."""
        with self._storage.mutex:
            return bytes(self._content()[position : min(position + size, self.size)])

    def by_descriptor(self, search: Callable[..., object], *more: object) -> None:
        """Return None: there is no descriptor."""

    def view(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes, read-only."""
        return memoryview(self.read(position, size))

    def send_to(self, socket: sockets.socket, position: int, size: int) -> int:
        """Send up to `size` bytes to a socket; return how many were sent."""
        data = self.read(position, size)
        return socket.send(data) if data else 0

    def truncate(self, size: int, *, aside: bool = False) -> None:
        """Cut the file, including preallocated bytes."""
        with self._storage.mutex:
            check_truncate(self.path, size, self.size)
            if len(self._content()) > size:
                if aside and size < self.size:
                    copy = f"{self.path}.cut.deleted"
                    self._storage.remove(copy)
                    self._storage.write_synced(copy, self.read(0, size))
                    self._storage.rename(copy, self.path)
                    self._storage.sync_folder(self._storage.split(self.path)[0])
                    self._node, self.size = self._storage.node_of(self.path), size
                    return
                self.size = size
                self._storage.do(Operation("size", self._node, size))

    def modified_ms(self) -> int:
        """Return the modification time, by the storage's clock."""
        return self._storage.modified_ms(self._node)

    def set_modified_ms(self, ms: int) -> None:
        """Set the modification time."""
        self._storage.modified_ms(self._node, ms)


class MemoryMappedFile(_InMemory):
    """See `pylogseg.env.storage.MappedFile`."""

    def __init__(self, storage: MemoryStorage, path: str, node: int, size: int, *, created: bool) -> None:
        super().__init__(storage, path, node, size)
        self.created = created

    @property
    def buffer(self) -> memoryview:
        """A read-only view of the whole file."""
        return memoryview(self._content()).toreadonly()

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of some bytes."""
        return bytes(self.buffer[position : position + size])

    def put(self, position: int, data: Data) -> None:
        """Write inside the file."""
        with self._storage.mutex:
            self._content()
            check_put(self.path, position, len(data), self.size)
            self._storage.do(Operation("write", self._node, position, bytes(data)))

    def resize(self, size: int) -> None:
        """Make the file longer by zeros, or shorter."""
        check_resize(self.path, size)
        with self._storage.mutex:
            self._content()
            if size != self.size:
                self._storage.do(Operation("size", self._node, size))
                self.size = size
