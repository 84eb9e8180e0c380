"""Errors of open files, in the same words for every storage."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from pylogseg.errors import ClosedError, RequestError, StorageError

#: Error numbers of a disk, or of a user's share of one, without room.
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def missing_error(path: str, operation: str, kind: str = "file") -> StorageError:
    """Return the error of a file or folder that is not there, for which `is_missing` is true."""
    error = StorageError(path, operation, f"there is no such {kind}")
    error.__cause__ = FileNotFoundError(path)
    return error


def storage_error(path: str | os.PathLike[str], operation: str, error: OSError) -> StorageError:
    """Turn the system's error into a `StorageError` with the file and the operation."""
    return StorageError(path, operation, error.strerror or str(error), error.errno)


def walk_folders(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk as `os.walk` does; StorageError for a folder that cannot be listed, which it would take for an empty one.

    A folder that is not there, or goes meanwhile, has nothing.
    """

    def stop(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise storage_error(error.filename or top, "list", error) from error

    return os.walk(top, onerror=stop)


def cut_error(path: str, operation: str, size: int) -> StorageError:
    """Return the error of a file that is shorter than it was."""
    return StorageError(path, operation, f"it was cut to {size} bytes by another program")


def sync_error(path: str) -> StorageError:
    """Return the error of every sync after one that failed."""
    return StorageError(path, "sync", "an earlier sync failed, so the content of the disk is unknown")


def closed_error(path: str) -> ClosedError:
    """Return the error of a file that is used after `close`."""
    return ClosedError(f"{path}: the file is closed")


def check_truncate(path: str, size: int, end: int) -> None:
    """Refuse to cut a file behind its end."""
    if not 0 <= size <= end:
        raise RequestError(f"{path}: cannot truncate to {size} bytes: it has {end}")


def check_put(path: str, position: int, count: int, end: int) -> None:
    """Refuse to write outside of a file of fixed size."""
    if position < 0 or position + count > end:
        raise RequestError(f"{path}: cannot write {count} bytes at {position}: it has {end}")


def check_resize(path: str, size: int) -> None:
    """Refuse a negative size."""
    if size < 0:
        raise RequestError(f"{path}: cannot resize to {size} bytes")
