"""A bound on open descriptors and maps, so that a thousand segments work with a limit of 256 open files."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from pylogseg._native._reads import Shared
from pylogseg.env.file_errors import closed_error, storage_error
from pylogseg.env.interrupts import held_back

#: The most files with a descriptor or a map at one time; a file needs at most one descriptor.
DEFAULT_LIMIT = 128
#: Why something is not opened.
LINKED = "it is a symbolic link, and nothing is written through one: put the file or folder itself there"
DANGLING = "it is a symbolic link to a file that does not exist: put the file in its place, or remove the link"
NO_FILE = "it is not a file: folders, pipes, sockets and devices are not read"


class Idle(Protocol):
    """Something that opens on use and can be closed while unused."""

    recently_used: bool

    def release_idle(self) -> bool:
        """Close descriptor and map unless somebody is using them now; never waits. True if they are closed."""


class Handles:
    """The open files, at most `limit`; the least recently used are closed for others. Safe for several threads.

    A use only sets `recently_used` (an append has no time for more); a file that is looked at for closing and has it
    set gets a second chance. A file in use is never closed, so there can be more than `limit` while that many are used
    at once.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = max(1, limit)
        self._lock = threading.Lock()
        self._open: OrderedDict[int, Idle] = OrderedDict()  # by identity, the least recently used first

    def __len__(self) -> int:
        return len(self._open)

    def add(self, file: Idle) -> None:
        """Count a file that has just been opened; close others if there are too many."""
        with self._lock:
            self._open[id(file)] = file
            self._shrink(self.limit)

    def remove(self, file: Idle) -> None:
        """Forget a file that its owner closed."""
        with self._lock:
            self._open.pop(id(file), None)

    def open(self, opener: Callable[[], int]) -> int:
        """Call `opener`; if the process has no descriptor left, close half of the open handles and call it again."""
        try:
            return opener()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        with self._lock:
            self._shrink(len(self._open) // 2)
        return opener()

    def _shrink(self, limit: int) -> None:
        # Two rounds: the first takes the second chances away.
        for _ in range(2 * len(self._open)):
            if len(self._open) <= limit:
                return
            key, file = next(iter(self._open.items()))
            if not file.recently_used and file.release_idle():
                del self._open[key]
            else:
                file.recently_used = False
                self._open.move_to_end(key)


class SharedDescriptor(Shared):
    """A file's descriptor: opened when it is needed, used by several threads at once, closed while idle.

    The lock is held to open and to close it; who uses it holds only a use count.
    """

    __slots__ = ("_handles", "_lock", "path")
    _flags = os.O_RDONLY

    def __init__(self, path: str, handles: Handles) -> None:
        self.path, self._handles = path, handles
        self._lock = threading.Lock()
        self._descriptor, self._users = -1, 0
        self._closed = self.recently_used = False

    def _ensure_open(self) -> int:
        return self._descriptor if self._descriptor >= 0 else self._open()

    def _open(self) -> int:
        """Open it; the lock is held."""
        if self._closed:
            raise closed_error(self.path)
        try:
            self._descriptor = self._handles.open(lambda: open_descriptor(self.path, self._flags))
        except OSError as error:
            raise storage_error(self.path, "open", error) from error
        self._handles.add(self)
        return self._descriptor

    def _borrow(self) -> int:
        """Return the descriptor, which stays open until `_give_back`, without holding the lock."""
        with self._lock:
            descriptor = self._ensure_open()
            self._enter()
            self.recently_used = True
            return descriptor

    def _give_back(self) -> None:
        if self._leave():
            self._close_idle()

    def _close_idle(self) -> None:
        with self._lock:
            self._close_descriptor()

    def __enter__(self) -> int:
        return self._borrow()

    def __exit__(self, *_: object) -> None:
        self._give_back()

    def close(self) -> None:
        """Close it, as soon as no thread is using it."""
        with self._lock:
            self._closed = True
            if self._users == 0:
                self._close_descriptor()
        self._handles.remove(self)

    def release_idle(self) -> bool:
        """Close it if nobody uses it now; see `Handles`."""
        with held_back():  # an interrupt behind `acquire` would leave the lock held
            if not self._lock.acquire(blocking=False):
                return False
            try:
                if self._users:
                    return False
                self._close_descriptor()
                return self._descriptor < 0  # who reads by `Reads` needs no lock
            finally:
                self._lock.release()

    def _close_descriptor(self) -> None:
        descriptor = self._take()
        if descriptor >= 0:
            os.close(descriptor)


def open_descriptor(path: str, flags: int) -> int:
    """Open a file by a descriptor that child processes do not inherit, without translation of line ends.

    A path that is no file is refused at once: to open a pipe would wait for its other end. A file that is written is
    never opened by a symbolic link: who may write into a log directory could let it lead anywhere.
    """
    if flags & (os.O_WRONLY | os.O_RDWR):
        flags |= getattr(os, "O_NOFOLLOW", 0)
    for name in ("O_BINARY", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY"):
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and os.path.islink(path):
            raise OSError(errno.ELOOP, LINKED, path) from error
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, a socket, a device that is not there
            raise OSError(errno.ENXIO, NO_FILE, path) from error
        if error.errno == errno.ENOENT and os.path.islink(path):  # not as what was removed since it was listed
            raise OSError(errno.EINVAL, DANGLING, path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, NO_FILE, path)
    return descriptor


def open_folder_handle(path: str) -> int:
    """Open a folder, to flush its names to the disk."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
