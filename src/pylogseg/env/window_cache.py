"""Windows of remote files in memory: one bounded cache for all readers, and the next window is fetched ahead."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from pylogseg.env.filesystem import Readable
from pylogseg.errors import StorageError

WINDOW_BYTES = 8 << 20
LIMIT_BYTES = 256 << 20
_THREADS, _MOST_AHEAD = 4, 8


class Remote(NamedTuple):
    """A file as it was listed; its name, with the scheme, is unique."""

    name: str
    size: int
    open: Callable[[], Readable]


class WindowCache:
    """Reads files by windows, and keeps the last used ones; a window that several threads want is fetched once."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES, window_bytes: int = WINDOW_BYTES) -> None:
        self._limit, self._window = limit_bytes, window_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], Future[bytes]] = OrderedDict()
        self._held = 0
        self._pool: ThreadPoolExecutor | None = None
        self._ahead = 0

    @property
    def held_bytes(self) -> int:
        return self._held

    def read(self, file: Remote, position: int, size: int) -> memoryview:
        """Return bytes of a file, fewer only where it ends.

        Raises StorageError if it cannot be read, or is shorter than it was listed.
        """
        end = min(position + size, file.size)
        if end <= position:
            return memoryview(b"")
        pieces = []
        for number in range(position // self._window, (end - 1) // self._window + 1):
            start = number * self._window
            data = self._get(file, number)
            pieces.append(memoryview(data)[max(0, position - start) : end - start])
        self._look_ahead(file, number, end)
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
            self._kept.clear()
            self._held = 0
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _get(self, file: Remote, number: int) -> bytes:
        key = (file.name, number)
        with self._lock:
            window = self._kept.get(key)
            is_mine = window is None
            if window is None:
                window = self._kept[key] = Future()
            else:
                self._kept.move_to_end(key)
        if not is_mine:
            return window.result()
        try:
            data = self._fetch(file, number)
        except BaseException as error:
            with self._lock:
                self._kept.pop(key, None)
            window.set_exception(error)
            raise
        window.set_result(data)
        with self._lock:
            if self._kept.get(key) is window:
                self._held += len(data)
            self._shrink()
        return data

    def _fetch(self, file: Remote, number: int) -> bytes:
        start = number * self._window
        size = min(self._window, file.size - start)
        data = bytes(file.open().read(start, size))
        if len(data) < size:
            raise StorageError(file.name, "read", f"it had {file.size} bytes when it was listed, and is shorter now")
        return data

    def _shrink(self) -> None:
        """Forget the windows that were used least lately; the lock is held."""
        for key, window in list(self._kept.items()):
            if self._held <= self._limit:
                return
            if window.done():
                del self._kept[key]
                self._held -= len(window.result())

    def _look_ahead(self, file: Remote, number: int, end: int) -> None:
        """Fetch the next window by another thread, if somebody reads on: it has the one before, or much of this one."""
        following = number + 1
        is_late = end - number * self._window > self._window // 2
        with self._lock:
            if (
                following * self._window >= file.size
                or (file.name, following) in self._kept
                or not (is_late or (file.name, number - 1) in self._kept)
                or self._ahead >= _MOST_AHEAD
            ):
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "pylogseg-ahead")
            self._ahead += 1
            self._pool.submit(self._fetch_ahead, file, following)

    def _fetch_ahead(self, file: Remote, number: int) -> None:
        try:
            self._get(file, number)
        except StorageError:  # whoever needs it will meet it
            pass
        finally:
            with self._lock:
                self._ahead -= 1
