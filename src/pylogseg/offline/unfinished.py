"""The folder in which a result is made beside its later place, until it gets its name."""

from __future__ import annotations

import os
import stat

from pylogseg.env.storage import LocalStorage, Lock, Storage
from pylogseg.errors import StorageError
from pylogseg.format.names import FileKind
from pylogseg.log.directory import make_folder


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
