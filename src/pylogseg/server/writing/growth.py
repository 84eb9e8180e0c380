"""Waiting until one of several partitions grows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol


class Watched(Protocol):
    """What can grow."""

    watchers: set[Watch]


class Watch:
    """One that waits, during a ``with``, for some partitions to grow."""

    def __init__(self, partitions: Sequence[Watched]) -> None:
        self._partitions = partitions
        self._grown = threading.Event()

    def __enter__(self) -> Watch:
        for each in self._partitions:
            each.watchers.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._partitions:
            each.watchers.discard(self)

    def wake(self) -> None:
        """Say that one has grown."""
        self._grown.set()

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; return whether one has grown since the last call."""
        if not self._grown.wait(max(0.0, seconds)):
            return False
        self._grown.clear()
        return True


def wake(watched: Watched) -> None:
    """Wake all that wait for a partition."""
    if watched.watchers:
        for each in tuple(watched.watchers):
            each.wake()
