"""Maps of files that grow, shrink and are renamed while they are mapped.

The `mmap` module refuses to map beyond the end of a file (so each append would ask for a new map), and each of its
maps holds a descriptor open. Where the C library's own `mmap` can be called it is: the module reserves addresses, and
the file is mapped over them. Such a map is longer than the file, shows what is appended later, and needs no descriptor.
The module unmaps it in C when the last view is gone: a Ctrl-C in a finalizer in Python would be lost. Elsewhere
(Windows) a map ends where the file ended, and a file does not shrink while a view of it lives.

Touching a page that lies wholly beyond the end of the file kills the process. Therefore nobody gets a view beyond the
size that was published, and before a file is made shorter `Mapping.keep` puts a copy under the views that still live.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import tempfile
import weakref
from typing import IO

_SMALLEST_BYTES = 1 << 20


def _mapped_length(size: int) -> int:
    """Return the map's length for a file of `size` bytes: a power of two, so that growing files are rarely remapped."""
    return max(_SMALLEST_BYTES, 1 << size.bit_length())


class _LibraryMaps:
    """`mmap` of the C library, over addresses that are reserved."""

    def __init__(self) -> None:
        self._map = ctypes.CDLL(None, use_errno=True).mmap
        self._map.restype = ctypes.c_void_p
        self._map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]

    def map(self, descriptor: int, length: int, *, writable: bool, over: int) -> None:
        """Map a file, shared, over the pages from address `over` on, in one step."""
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = self._map(over, length, protection, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
        if address != over:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _reserve(length: int, *, writable: bool) -> mmap.mmap:
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=protection)


_MAP_FIXED = 0x10  # the same on Linux, macOS and the BSDs; the mmap module does not name it


def _library() -> _LibraryMaps | None:
    if sys.platform not in ("linux", "darwin") or sys.maxsize < 1 << 40:
        return None
    with contextlib.suppress(AttributeError, OSError):
        return _LibraryMaps()
    return None


_LIBRARY = _library()


class Mapping:
    """The pages of one file in memory, longer than the file (of at least one byte) if the system allows.

    The descriptor may be closed afterwards. The pages stay mapped as long as `whole` or a slice of it lives, whatever
    becomes of this object.
    """

    __slots__ = ("_address", "_length", "_pages", "_view")

    def __init__(self, descriptor: int, size: int, *, writable: bool = False) -> None:
        self._address = 0
        if _LIBRARY is None:
            self._length = size
            pages = mmap.mmap(descriptor, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        else:
            self._length = _mapped_length(size)
            pages = _reserve(self._length, writable=writable)
            import numpy as np  # who only lists files does without it

            self._address = np.frombuffer(pages, np.uint8).ctypes.data
            _LIBRARY.map(descriptor, self._length, writable=writable, over=self._address)
        self._pages: weakref.ref[mmap.mmap] = weakref.ref(pages)
        view = memoryview(pages)
        self._view: memoryview | None = view if writable else view.toreadonly()

    def whole(self) -> memoryview:
        """Return all mapped bytes, also beyond the end of the file: the caller knows where the file ends."""
        assert self._view is not None, "the map was dropped"
        return self._view

    def drop(self) -> bool:
        """Drop the pages; return whether views of them are still alive."""
        self._view = None
        return self._pages() is not None

    def keep(self, start: int, end: int) -> None:
        """Replace the pages ``[start, end)`` by a copy, under live views; OSError if there was no room for it.

        Called before the file is cut at `start`: the cut would take whole pages away and zero the rest of the page at
        `start`, which later appends fill with other bytes. The copy replaces the pages in one step, so a reader in
        another thread sees the old bytes throughout.
        """
        pages = self._pages()
        page = mmap.PAGESIZE
        start = start // page * page
        # Whole pages: after `end` may lie what was kept for an older view.
        end = min(-(-end // page) * page, self._length)
        if pages is None or end <= start or _LIBRARY is None:
            return
        with _nameless_file() as copy:
            copy.write(memoryview(pages)[start:end])
            copy.flush()
            _LIBRARY.map(copy.fileno(), end - start, writable=False, over=self._address + start)

    def sync(self, size: int) -> None:
        """Write the first `size` bytes of a writable map to the disk and wait for it."""
        pages = self._pages()
        if size > 0 and pages is not None:
            pages.flush(0, min(size, self._length))


def _nameless_file() -> IO[bytes]:
    """Return a temporary file, in memory if possible: truncating has to work when the disk is full."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("pylogseg"), "w+b")
    return tempfile.TemporaryFile()
