"""One writer at a time: the lock that a broker takes on each of its log directories."""

from __future__ import annotations

import io
import os
import struct
import sys
import threading
import weakref
from collections.abc import Hashable

from pylogseg.env.file_errors import storage_error
from pylogseg.env.handles import open_descriptor
from pylogseg.env.interrupts import held_back
from pylogseg.errors import DirectoryLockedError, StorageError

LOCK_NAME = ".lock"
# The system does not refuse a second lock to the process that has the first.
_taken: dict[tuple[int, int], weakref.ref[FolderLock]] = {}
_taken_lock = threading.Lock()


def _forget() -> None:
    """After a fork, in the child: locks stay with the parent."""
    global _taken_lock
    _taken_lock = threading.Lock()
    _taken.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class FolderLock:
    """The lock of a log directory, held from the call until `release`, or until nobody has this object any more.

    It is the POSIX record lock of the whole file ``.lock`` that Java's ``FileChannel.tryLock`` takes, so a broker and
    this program exclude each other. As a broker does, `release` removes the file. Such a lock is lost when this process
    closes any descriptor of the file: nothing else here may open it. If another process has it, `DirectoryLockedError`.
    """

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, LOCK_NAME)
        status = self._folder_status(folder)
        self._key = (status.st_dev, status.st_ino)
        self._process = os.getpid()
        with held_back(), _taken_lock:
            _check_free(self._key, self.path)
            # A file of Python's, which closes itself: an interrupt may come before the owner has this object, or at the
            # first step of `release`.
            self._file: io.FileIO | None = io.FileIO(self._take(), "r+")
            _taken[self._key] = weakref.ref(self)

    def _folder_status(self, folder: str) -> os.stat_result:
        try:
            return os.stat(folder)
        except OSError as error:
            raise storage_error(self.path, "lock", error) from error

    def _take(self) -> int:
        while True:
            try:
                descriptor = open_descriptor(self.path, os.O_RDWR | os.O_CREAT)
            except OSError as error:
                raise storage_error(self.path, "lock", error) from error
            try:
                _lock_file(descriptor)
                # Its last owner may have removed the file between the two calls: then it locks nobody out.
                if _is_named(self.path, descriptor):
                    return descriptor
            except OSError as error:
                owner = _owner(descriptor)
                os.close(descriptor)
                raise _refusal(self.path, owner, error) from error
            os.close(descriptor)

    def release(self) -> None:
        """Release the lock; a second call does nothing, nor one in a child, since the lock is the parent's."""
        with held_back(), _taken_lock:
            if self._file is None or self._process != os.getpid():
                return
            file, self._file = self._file, None
            try:
                if os.name != "nt":  # there an open file cannot be removed
                    os.unlink(self.path)
            except OSError:
                pass  # an empty file is left, as a killed broker leaves one
            finally:
                file.close()
                _taken.pop(self._key, None)


def _check_free(key: tuple[int, int], path: str) -> None:
    """Raise if an object of this process has the lock of a folder."""
    taken = _taken.get(key)
    if taken is not None and taken() is not None:
        raise DirectoryLockedError(path, "this process has the lock already, by another object")


class ObjectLock:
    """The lock of a folder among the users of one storage object in this process; nothing is on a disk."""

    def __init__(self, path: str, locked: set[Hashable], key: Hashable) -> None:
        if key in locked:
            raise DirectoryLockedError(path, "this process has the lock already")
        locked.add(key)
        self.path, self._locked, self._key = path, locked, key

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._key is not None:
            self._locked.discard(self._key)
            self._key = None


def check_unlocked(folder: str) -> None:
    """Raise as `FolderLock` if somebody has the lock of a folder, without changing the disk."""
    path = os.path.join(folder, LOCK_NAME)
    try:
        status = os.stat(folder)
        with _taken_lock:
            # To close a file gives up the locks that this process has on it.
            _check_free((status.st_dev, status.st_ino), path)
            descriptor = open_descriptor(path, os.O_RDONLY)
            try:
                if _is_locked(descriptor):
                    raise _refusal(path, _owner(descriptor))
            finally:
                os.close(descriptor)
    except FileNotFoundError as error:
        if not os.path.isdir(folder):
            raise storage_error(path, "lock", error) from error
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(path, "lock", error) from error


def _refusal(path: str, owner: str, error: OSError | None = None) -> StorageError:
    said = f" ({error.strerror})" if error is not None else ""
    reason = f"{owner} has the lock. A Kafka broker or another program writes the logs of this folder: stop it first"
    return DirectoryLockedError(path, reason + said)


def _is_named(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _lock_file(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _is_locked(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return True
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        return False

    def _owner(descriptor: int) -> str:
        return "another process"

else:
    import fcntl

    def _lock_file(descriptor: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    # struct flock of 64-bit Linux: type, whence, start, length, process
    _FLOCK = struct.Struct("@hhqqi4x") if sys.platform == "linux" and sys.maxsize > 1 << 40 else None

    def _query_lock(descriptor: int) -> tuple[int, ...] | None:
        """Return the conflicting lock, on systems whose `struct flock` we can read."""
        if _FLOCK is None:
            return None
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))

    def _is_locked(descriptor: int) -> bool:
        answer = _query_lock(descriptor)
        if answer is not None:
            return answer[0] != fcntl.F_UNLCK
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # given back when the file is closed
        except OSError:
            return True
        return False

    def _owner(descriptor: int) -> str:
        """Return who has the lock, as far as the system says."""
        try:
            answer = _query_lock(descriptor)
        except OSError:
            answer = None
        return f"process {answer[4]}" if answer is not None and answer[4] > 0 else "another process"
