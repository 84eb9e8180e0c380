"""Files and folders that are written beside the names that they get when they are whole.

A file of this machine: `whole`, with `sweep` for what a killed process left; an object of a store appears whole anyway.
A folder: `NewFolder`. A file that has to survive a crash of the machine: `open_synced`, or `Storage.write_whole`.

Ctrl-C may come between any two steps, also of a clean-up. So a temporary file is noted before it is created, and all
files that are still noted are deleted when the process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import os
import platform
import re
import shutil
import stat
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from pylogseg.env.file_errors import storage_error
from pylogseg.env.handles import open_descriptor, open_folder_handle
from pylogseg.env.interrupts import held_back
from pylogseg.env.locks import LOCK_NAME
from pylogseg.env.storage import AppendFile, LocalStorage, Storage, make_folder
from pylogseg.env.urls import refuse_cluster
from pylogseg.errors import RequestError, StorageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Readers of datasets skip names that begin with a dot.
_NAME = re.compile(r"\.(?:.+\.)?(?P<process>\d+)@(?P<host>[^/]+)\.tmp")
#: Letters of a name on a disk, and of the part of a long name that a temporary name has.
_MOST_BYTES, _SHORT = 255, 40
#: A temporary folder is held much sooner than that.
_YOUNG_S = 3600.0
#: What is temporary, and the process that made it: one that was forked from it leaves it alone.
_temporary: dict[Path, int] = {}


# ---- files of this machine ----


def make_temporary_name(name: str = "") -> str:
    """Return a temporary name for a file or folder while this process writes it; `name` is the final name, if any."""
    end = f"{'.' if name else ''}{os.getpid()}@{_host()}.tmp"
    if len(os.fsencode(name)) + len(end) >= _MOST_BYTES:  # no file system takes it
        name = f"{name[:_SHORT]}~{zlib.crc32(os.fsencode(name)):08x}"
    return f".{name}{end}"


def is_unfinished(name: str) -> bool:
    """Check whether a name is a temporary one of `make_temporary_name`, of any process and machine."""
    return _NAME.fullmatch(name) is not None


def was_left(path: Path) -> bool:
    """Check whether something has a temporary name of a process of this machine that ended, or that had its number."""
    match = _NAME.fullmatch(path.name)
    if match is None or match["host"] != _host():
        return False
    process = int(match["process"])
    return path not in _temporary if process == os.getpid() else not is_alive(process)


def create(path: Path) -> IO[bytes]:
    """Open a new file; an existing file or link of this name is removed first, and a link is never followed."""
    name, flags = str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = open_descriptor(name, flags)
    except FileExistsError:
        path.unlink(missing_ok=True)
        descriptor = open_descriptor(name, flags)
    return os.fdopen(descriptor, "wb")


@contextlib.contextmanager
def whole(target: Path, *, is_new: bool = False) -> Iterator[IO[bytes]]:
    """Yield a file that gets its name when all of it is written; nothing is left of it after a failure.

    With `is_new`, its bytes are on the disk then, and StorageError is raised if something has the name.
    """
    beside = target.with_name(make_temporary_name(target.name))
    _temporary[beside] = os.getpid()
    try:
        with create(beside) as file:
            yield file
            if is_new:
                file.flush()
                os.fsync(file.fileno())
        if is_new:
            _name_new(beside, target)
        else:
            os.replace(beside, target)
        _temporary.pop(beside, None)
    except BaseException as error:
        _drop(beside)
        # What a write says names no file (a disk that is full), or one that nobody asked for.
        named = error.filename if isinstance(error, OSError) else ""
        if isinstance(error, OSError) and not isinstance(error, StorageError) and named in (None, str(beside)):
            reason = "there is no such folder: make it first" if error.errno == errno.ENOENT else error.strerror
            raise StorageError(target, "write", reason or str(error), error.errno) from error
        raise


def _name_new(beside: Path, target: Path) -> None:
    """Give a file a name that nothing has: by a link to it, where the file system has these."""
    try:
        os.link(beside, target)
    except OSError as error:
        if error.errno == errno.EEXIST or os.path.lexists(target):
            raise StorageError(target, "create", "there is one already", errno.EEXIST) from error
        os.rename(beside, target)
    else:
        beside.unlink()


def flush(folder: Path) -> None:
    """Sync all writes below a folder to its disk, on Linux only for its file system.

    Files that a broker has not flushed yet on its own disks stay as they are.
    """
    if not hasattr(os, "sync"):
        return
    try:
        descriptor = open_folder_handle(str(folder))
        try:
            is_done = ctypes.CDLL(None, use_errno=True).syncfs(descriptor) == 0
        finally:
            os.close(descriptor)
    except (OSError, AttributeError):  # macOS has no such call
        is_done = False
    if not is_done:
        os.sync()


@contextlib.contextmanager
def scratch_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a new folder, and remove it with its content at the end; a killed run's folder is removed first."""
    try:
        remove(path)
        _temporary[path] = os.getpid()
        path.mkdir(mode, parents=True)
    except OSError as error:
        raise storage_error(path, "make", error) from error
    try:
        yield path
    finally:
        _drop(path)


@contextlib.contextmanager
def temporary_folder(prefix: str, above: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Yield a new folder of this user; it goes as a `scratch_folder` does.

    By default it lies where the system has temporary files. Leftovers of killed processes with this prefix are deleted
    first: files for an upload may be large, and a run that is killed again and again would fill the disk.
    """
    root = Path(above or tempfile.gettempdir())
    _sweep_temporary(root, prefix)
    with scratch_folder(root / f"{prefix}{uuid.uuid4().hex}.tmp", 0o700) as folder, _Held(folder):
        yield folder


class _Held:
    """The operating system's lock of a folder: it ends with its process in any case.

    No file in the folder marks it, since the caller owns the folder's content.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor, self.is_locked = -1, False
        if fcntl is not None:
            with held_back(), contextlib.suppress(OSError):
                self._descriptor = open_folder_handle(str(folder))
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.is_locked = True

    def __enter__(self) -> _Held:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _sweep_temporary(root: Path, prefix: str) -> None:
    """Remove temporary folders of this user that nobody holds; a young one may not be held yet."""
    name = re.compile(re.escape(prefix) + r"[0-9a-f]{32}\.tmp")
    for path in root.glob(f"{prefix}*.tmp"):
        with contextlib.suppress(OSError):  # another one removes it
            status = path.lstat()
            is_ours = stat.S_ISDIR(status.st_mode) and hasattr(os, "geteuid") and status.st_uid == os.geteuid()
            if name.fullmatch(path.name) and is_ours and time.time() - status.st_mtime > _YOUNG_S:
                with _Held(path) as folder:
                    if folder.is_locked:
                        remove(path)


def _drop(path: Path) -> None:
    """Remove temporary files; ignore the ones that cannot be removed."""
    with held_back(), contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        _temporary.pop(path, None)


@atexit.register
def _drop_all() -> None:
    for path, process in list(_temporary.items()):
        if process == os.getpid():
            _drop(path)


def sweep(folder: Path, patterns: Iterable[str], *, is_locked: bool = False) -> list[Path]:
    """Remove leftovers of ended processes of this machine; return the leftovers of other machines, and files in use.

    `is_locked`: nobody else writes there, so all of it was left.
    """
    left = []
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        match = _NAME.fullmatch(path.name)
        if is_locked or (match and match["host"] == _host() and not is_alive(int(match["process"]))):
            remove(path)
        elif match and int(match["process"]) != os.getpid():
            left.append(path)
    return left


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _host() -> str:
    return re.sub(r"[^\w.-]", "_", platform.node()) or "localhost"


def is_alive(process: int) -> bool:
    """Check whether a process runs; True on systems that cannot tell."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


# ---- files and folders of a storage ----


@contextlib.contextmanager
def open_synced(storage: Storage, beside: str, target: str) -> Iterator[AppendFile]:
    """Yield a file at `beside`, which gets the name `target` when its bytes are on the disk; a failure removes it.

    The name is on the disk after `sync_folder`.
    """
    file: AppendFile | None = None
    try:
        file = storage.open_log(beside)
        file.truncate(0)
        yield file
        file.sync()
        file.close()
        storage.rename(beside, target)
    except BaseException as error:  # for example a full disk: free the space
        if file is None and isinstance(error, StorageError):
            raise  # what has the name is not ours
        if file is not None:
            file.close()
        with contextlib.suppress(StorageError):
            storage.remove(beside)
        raise


def check_free(storage: Storage, path: str) -> None:
    """Check that a result can get a name; raises RequestError if there is something that it would replace."""
    if _is_taken(storage, path):
        raise RequestError(f"{path}: expected an empty folder, or a path that does not exist yet")


def _is_taken(storage: Storage, path: str) -> bool:
    return storage.exists(path) and (not storage.stat(path).is_dir or bool(storage.list_folder(path)))


class NewFolder:
    """A folder that is made at `beside` until `finish` gives it its name, which must be free."""

    def __init__(self, storage: Storage, path: str) -> None:
        refuse_cluster(path, is_written=True)
        self._storage = storage
        self.path = os.path.abspath(path) if isinstance(storage, LocalStorage) else path
        above, name = storage.split(self.path)
        self.beside = storage.join(above, f".{name}.pylogseg-unfinished")
        self._is_ours = False
        if isinstance(storage, LocalStorage) and (os.path.islink(self.path) or os.path.ismount(self.path)):
            is_link = os.path.islink(self.path)
            what = "a symbolic link" if is_link else "a mount point, which no folder can take the place of"
            raise RequestError(f"{self.path}: {what}: name a folder in it, such as {os.path.join(self.path, 'log')}")
        check_free(storage, self.path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Make the file, or empty a killed run's file, and lock it against other runs.

        Raises StorageError if another run is making the same result, or the name belongs to something else: its name
        can be foretold, and in a folder that several users write to somebody may have put a link there.
        """
        storage, lock = self._storage, None
        try:
            with held_back():  # an interrupt comes at its end
                make_folder(storage, self.beside)
                if isinstance(storage, LocalStorage):
                    _check_ours(self.beside)
                lock = storage.lock(self.beside)
                self._is_ours = True
                if isinstance(storage, LocalStorage):
                    _temporary[Path(self.beside)] = os.getpid()
            for entry in storage.list_folder(self.beside):
                inside = storage.join(self.beside, entry.name)
                if entry.is_dir:
                    storage.remove_folder(inside)
                elif entry.name != LOCK_NAME:
                    storage.remove(inside)
            yield
        finally:
            if lock is not None:
                lock.release()

    def finish(self, made: str | None = None) -> None:
        """Rename the finished file or folder (or a folder in it) to its name; StorageError if the name is taken."""
        storage = self._storage
        if _is_taken(storage, self.path):
            reason = "it was empty or missing before, and now somebody has put files here"
            raise StorageError(self.path, "replace", reason)
        if storage.exists(self.path):
            storage.remove_folder(self.path)  # not every system renames over a folder
        storage.rename(made or self.beside, self.path)
        if made is None:
            self._forget()
        storage.sync_folder(storage.split(self.path)[0])

    def discard(self) -> None:
        """Remove the temporary file, unless another run is writing it."""
        if self._is_ours:
            with held_back():
                self._storage.remove_folder(self.beside)
                self._forget()

    def _forget(self) -> None:
        """Release the temporary name: from now on another run may use it."""
        self._is_ours = False
        _temporary.pop(Path(self.beside), None)


def _check_ours(path: str) -> None:
    status = os.lstat(path)
    reason = ""
    if not stat.S_ISDIR(status.st_mode):
        reason = "a symbolic link or a file has this name"
    elif hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        reason = f"the folder belongs to another user, with the number {status.st_uid}"
    if reason:
        raise StorageError(path, "write to", f"{reason}: it was not left by an earlier run; check and remove it")
