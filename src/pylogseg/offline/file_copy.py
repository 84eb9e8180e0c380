"""One file, copied whole."""

from __future__ import annotations

import os

from pylogseg.env.handles import open_descriptor
from pylogseg.env.positions import copy_with_holes
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import StorageError

_CHUNK_BYTES = 4 << 20


def copy_file(storage: Storage, source: str, target: str) -> tuple[int, int]:
    """Copy a file with its modification time, and wait until the copy is on the disk; size and time (ms).

    On one file system that can, the copy shares the blocks of the original. What takes no room there takes none here.
    The copy is as long as the original was at the beginning.
    """
    if isinstance(storage, LocalStorage):
        return _copy_local(source, target)
    original, copy = storage.open_log(source, create=False), storage.open_log(target)
    try:
        size, modified_ms = original.size, original.modified_ms()
        for position in range(0, size, _CHUNK_BYTES):
            copy.append(original.read(position, min(_CHUNK_BYTES, size - position)))
        copy.sync()
        copy.set_modified_ms(modified_ms)
        return size, modified_ms
    finally:
        original.close()
        copy.close()


def _copy_local(source: str, target: str) -> tuple[int, int]:
    try:
        original = open_descriptor(source, os.O_RDONLY)
        try:
            status = os.fstat(original)
            with open(target, "xb", buffering=0) as copy:
                copy_with_holes(original, copy.fileno(), status.st_size)
                os.fsync(copy.fileno())
        finally:
            os.close(original)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(error.filename or target, f"copy {source} to it", reason, error.errno) from error
    return status.st_size, status.st_mtime_ns // 1_000_000
