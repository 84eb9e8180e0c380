"""Waiting until one of several partitions grows."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pylogseg.server.catalog import ServedPartition


class PartitionGrowth:
    """One that waits, during a ``with``, for some partitions to grow."""

    def __init__(self, partitions: Sequence[ServedPartition]) -> None:
        self._partitions = partitions
        self._grown = threading.Event()

    def __enter__(self) -> PartitionGrowth:
        for each in self._partitions:
            each.watchers.add(self._grown)
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._partitions:
            each.watchers.discard(self._grown)

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; return whether one has grown since the last call."""
        if not self._grown.wait(max(0.0, seconds)):
            return False
        self._grown.clear()
        return True
