"""Indexes that a load created or changed."""

from __future__ import annotations

import numpy as np

from pylogseg.env.storage import Storage
from pylogseg.log.segment import LogSegment


class IndexChanges:
    """Compares indexes before and after their segment is recovered.

    Zeros after the entries are ignored: an index has them until its segment is closed.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._missing: set[str] = set()
        self._before: dict[str, bytes] = {}
        self._reasons: dict[str, str] = {}

    def note_missing(self, path: str) -> None:
        """Note that an index is missing: recovery will build it, or it begins without entries."""
        self._missing.add(path)
        self._reasons[path] = "it was missing; an empty one was created"

    def before(self, segment: LogSegment) -> None:
        """Remember the indexes of a segment before its recovery."""
        for path in _paths(segment):
            if self._storage.exists(path) and path not in self._missing:
                self._before[path] = self._storage.read_all(path)

    def after(self, segment: LogSegment) -> None:
        """Compare the indexes of a segment after its recovery."""
        for path in _paths(segment):
            new = self._storage.read_all(path) if self._storage.exists(path) else b""
            old = self._before.pop(path, None)
            if old is None and (new or path in self._missing):
                self._reasons[path] = "it was missing; rebuilt from the log"
            elif old is not None and (old[: len(new)] != new or np.frombuffer(old, np.uint8)[len(new) :].any()):
                self._reasons[path] = f"its entries differed from those of the log; rebuilt ({len(new)} bytes)"

    def changes(self) -> list[tuple[str, str]]:
        """Return path and reason of every index that was created or changed, by name."""
        return sorted((path, reason) for path, reason in self._reasons.items() if self._storage.exists(path))


def _paths(segment: LogSegment) -> list[str]:
    return [index.path for index in (segment.offset_index, segment.time_index, segment.aborted_txns)]
