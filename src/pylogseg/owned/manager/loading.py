"""Loading many logs with several threads, and reading ahead, so that disk and interpreter overlap."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Generic, TypeVar

from pylogseg._native import _lookup

_Item = TypeVar("_Item")
_AHEAD_THREADS = 2
_MOST_AHEAD = 256  # folders, so that what was read is still cached when its turn comes
_WAIT_SECONDS = 0.002


class Loading(Generic[_Item]):
    """One pass over the items to load, by several threads: an error ends it.

    Files in the folder of an item are read ahead, by threads that do not hold the interpreter's lock.
    """

    def __init__(
        self, items: Iterable[_Item], load: Callable[[_Item], None], folder_of: Callable[[_Item], str] | None
    ) -> None:
        self._todo = deque(items)
        self._lookup = deque(self._todo if folder_of is not None else ())
        self._load, self._folder_of = load, folder_of

    def run(self, threads: int) -> None:
        """Load all items."""
        with ThreadPoolExecutor(threads + _AHEAD_THREADS, "pylogseg-load") as pool:
            try:
                ahead = [pool.submit(self._read_ahead) for _ in range(_AHEAD_THREADS if self._lookup else 0)]
                for future in as_completed([pool.submit(self._load_some) for _ in range(threads)] + ahead):
                    future.result()
            finally:
                self._todo.clear()

    def _load_some(self) -> None:
        while (item := _next(self._todo)) is not None:
            self._load(item)

    def _read_ahead(self) -> None:
        assert self._folder_of is not None
        while self._todo:
            lead = len(self._todo) - len(self._lookup)
            if lead > _MOST_AHEAD:
                time.sleep(_WAIT_SECONDS)
                continue
            item = _next(self._lookup)
            if item is None:
                return
            if lead >= 0:  # else its turn has already come
                _lookup.read_ahead(os.fsencode(self._folder_of(item)))


def _next(items: deque[_Item]) -> _Item | None:
    try:
        return items.popleft()
    except IndexError:
        return None
