"""Reading and writing at a position of a descriptor, on every system."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence

Data = bytes | bytearray | memoryview

_COPIED_BYTES = 8 << 20
_MOST_BUFFERS = 1024  # IOV_MAX of Linux and macOS
_seeking = threading.Lock()


def _seek_and_write(descriptor: int, data: Data, position: int) -> int:
    with _seeking:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.write(descriptor, data)


def _seek_and_read(descriptor: int, size: int, position: int) -> bytes:
    with _seeking:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, size)


# Windows has neither; there all descriptors share one lock.
write_once = os.pwrite if hasattr(os, "pwrite") else _seek_and_write
_read_once = os.pread if hasattr(os, "pread") else _seek_and_read


def read_at(descriptor: int, position: int, size: int) -> bytes:
    """Read up to `size` bytes: fewer only where the file ends."""
    data = _read_once(descriptor, size, position)
    while 0 < len(data) < size:  # one call returns at most 2 GiB, and may be interrupted
        more = _read_once(descriptor, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def read_over(descriptor: int, position: int, memory: memoryview) -> int:
    """Read as many bytes as there is memory for, into that memory; return how many: fewer only where the file ends."""
    if not hasattr(os, "preadv"):
        data = read_at(descriptor, position, len(memory))
        memory[: len(data)] = data
        return len(data)
    done = 0
    while done < len(memory):
        count = os.preadv(descriptor, [memory[done:]], position + done)
        if not count:
            break
        done += count
    return done


def write_at(descriptor: int, data: Data, position: int) -> None:
    """Write all of `data`; after a short write the next call raises the reason."""
    rest = memoryview(data)
    while rest:
        written = write_once(descriptor, rest, position)
        if written == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rest, position = rest[written:], position + written


def copy_head(source: int, target: int, size: int) -> None:
    """Copy the first `size` bytes of a file to an empty one, by shared blocks if possible."""
    _copy_range(source, target, 0, size)


def copy_with_holes(source: int, target: int, size: int) -> None:
    """Copy like `copy_head`, but keep holes."""
    if not hasattr(os, "SEEK_DATA"):
        _copy_range(source, target, 0, size)
        return
    os.ftruncate(target, size)
    end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
            end = min(os.lseek(source, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole follows
                return
            start, end = end, size  # a file system that does not tell
        _copy_range(source, target, start, end)


def _copy_range(source: int, target: int, done: int, size: int) -> None:
    while done < size:
        count = min(size - done, _COPIED_BYTES)
        try:
            copied = os.copy_file_range(source, target, count, done, done) if hasattr(os, "copy_file_range") else 0
        except OSError as error:
            if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
                raise
            copied = 0
        if copied == 0:  # there is no such call, or not for these files
            data = read_at(source, done, count)
            if not data:
                raise OSError(errno.EIO, "the file ends before its size")
            write_at(target, data, done)
            copied = len(data)
        done += copied


def write_buffers(descriptor: int, buffers: Sequence[Data], position: int) -> int:
    """Write `buffers` back to back from `position`, in few calls; return the position after them."""
    if not hasattr(os, "pwritev"):
        whole = b"".join(buffers)
        write_at(descriptor, whole, position)
        return position + len(whole)
    for start in range(0, len(buffers), _MOST_BUFFERS):
        some = buffers[start : start + _MOST_BUFFERS]
        size = sum(map(len, some))
        written = os.pwritev(descriptor, some, position)
        if written != size:
            write_at(descriptor, memoryview(b"".join(some))[written:], position + written)
        position += size
    return position
