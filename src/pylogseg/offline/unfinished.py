"""The folder in which a result is made beside its later place, until it gets its name."""

from __future__ import annotations

import os
import stat

from pylogseg.env.storage import LocalStorage, Lock, Storage
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.names import FileKind
from pylogseg.log.directory import make_folder


def check_free(storage: Storage, path: str) -> None:
    """Check that a result can get a name; raises RequestError if there is something that it would replace."""
    if storage.exists(path) and (not storage.stat(path).is_dir or storage.list_folder(path)):
        raise RequestError(f"{path}: expected an empty folder, or a path that does not exist yet")


def check_replaceable(storage: Storage, path: str) -> None:
    """Check that a folder that is made beside a path can get its name; raises RequestError if not."""
    if isinstance(storage, LocalStorage) and (os.path.islink(path) or os.path.ismount(path)):
        what = "a symbolic link" if os.path.islink(path) else "a mount point, which no folder can take the place of"
        raise RequestError(f"{path}: {what}: name a folder in it, such as {os.path.join(path, 'log')}")
    check_free(storage, path)


def is_within(path: str, folder: str) -> bool:
    """Check whether a path lies in a folder, or is it, by their real paths."""
    real, above = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([real, above]) == above


def is_same(path: str, other: str) -> bool:
    """Check whether two paths are one folder, also by a link or a mount."""
    if os.path.exists(path) and os.path.exists(other):
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def put_in_place(storage: Storage, made: str, path: str) -> None:
    """Give what was made its name, in place of an empty folder; StorageError if that is not empty any more."""
    if storage.exists(path):
        if not storage.stat(path).is_dir or storage.list_folder(path):
            raise StorageError(path, "replace", "it was empty or missing before, and now somebody has put files here")
        storage.remove_folder(path)  # not every system renames over a folder
    storage.rename(made, path)
    storage.sync_folder(storage.split(path)[0])


def begin(storage: Storage, path: str) -> Lock:
    """Make the folder, or empty the one that a killed run left; return its lock.

    Raises StorageError if another run is making the same result, or the name belongs to something else: its name can be
    foretold, and in a folder that several users write to somebody may have put a link there.
    """
    make_folder(storage, path)
    if isinstance(storage, LocalStorage):
        _check_ours(path)
    lock = storage.lock(path)
    try:
        for entry in storage.list_folder(path):
            inside = storage.join(path, entry.name)
            if entry.is_dir:
                storage.remove_folder(inside)
            elif entry.name != FileKind.LOCK.value:
                storage.remove(inside)
    except BaseException:
        lock.release()
        raise
    return lock


def _check_ours(path: str) -> None:
    status = os.lstat(path)
    reason = ""
    if not stat.S_ISDIR(status.st_mode):
        reason = "a symbolic link or a file has this name"
    elif hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        reason = f"the folder belongs to another user, with the number {status.st_uid}"
    if reason:
        raise StorageError(path, "write to", f"{reason}: it was not left by an earlier run; check and remove it")
