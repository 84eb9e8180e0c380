"""Where the logs of partitions come from, and what becomes of what clients write to them."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, Protocol

from pylogseg.disk.disk import Partition
from pylogseg.server.view import View

if TYPE_CHECKING:
    from pylogseg.log.log import Log
    from pylogseg.server.overlays import Overlays


class LogSource(Protocol):
    """Opens and closes the logs of a catalog; with `is_writable`, clients may change them."""

    #: What becomes of what clients write.
    keeps: str
    is_writable: bool

    @property
    def left_out(self) -> tuple[int, int]: ...  # places with damage, and their bytes, left out of the logs so far
    @property
    def aborted(self) -> int: ...  # open transactions of the logs opened so far that count as aborted
    def open(self, found: Partition) -> Log: ...
    def release(self, log: Log) -> None: ...
    def usage(self, log_dir: str) -> tuple[int, int]: ...
    def close(self) -> None: ...


class ReadOnlyLogs:
    """Logs of files that stay as they are; the engine is loaded with the first."""

    keeps, is_writable = "read-only", False

    def __init__(self, view: View) -> None:
        self._view, self._mutex = view, threading.Lock()
        self._overlays: Overlays | None = None

    def open(self, found: Partition) -> Log:
        """Open a log as a broker does when it starts, but in memory."""
        with self._mutex:
            if self._overlays is None:
                from pylogseg.server.overlays import Overlays

                self._overlays = Overlays(self._view)
        return self._overlays.open(found)

    def release(self, log: Log) -> None:
        """Close the files of a log, without writing."""
        log.close_handles()

    def usage(self, log_dir: str) -> tuple[int, int]:
        """Return how large the disk of a log directory is, and how much of it is free; OSError if it has none."""
        return usage_of_disk(log_dir)

    @property
    def left_out(self) -> tuple[int, int]:
        """See `LogSource`."""
        skipping = None if self._overlays is None else self._overlays.skipping
        return (0, 0) if skipping is None else skipping.left_out

    @property
    def aborted(self) -> int:
        """See `LogSource`."""
        return 0 if self._overlays is None else sum(self._overlays.aborted.values())

    def close(self) -> None:
        """Forget what was read."""
        if self._overlays is not None:
            self._overlays.close()


def usage_of_disk(log_dir: str) -> tuple[int, int]:
    """Return how large the disk of a folder is, and how much of it is free."""
    found = shutil.disk_usage(log_dir)
    return found.total, found.free
