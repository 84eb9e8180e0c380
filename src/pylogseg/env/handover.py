"""Items that one thread makes and another one takes."""

from __future__ import annotations

import contextlib
import threading
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

_LOOK_SECONDS = 0.05


class Handover(Generic[T]):
    """Passes items from one thread to another, which is at most some behind, until `stop` is set.

    Only `SimpleQueue`, one of two kinds, is not left locked by an interrupt of the thread that takes.
    """

    def __init__(self, ahead: int, stop: threading.Event) -> None:
        self._stop = stop
        self._items: SimpleQueue[T] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(ahead):
            self._room.put(None)

    def put(self, item: T) -> bool:
        """Wait for room and pass an item on; False once nobody takes it any more."""
        while not self._stop.is_set():
            with contextlib.suppress(Empty):
                self._room.get(timeout=_LOOK_SECONDS)
                self._items.put(item)
                return True
        return False

    def get(self, timeout: float | None = None) -> T:
        """Wait for the next item; `queue.Empty` if there is none in time."""
        item = self._items.get(timeout=timeout)
        self._room.put(None)
        return item
