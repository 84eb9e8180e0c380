"""Logs of mounted directories, each opened over an overlay of its own: a broker's writes stay in memory."""

from __future__ import annotations

import logging
import threading

from pylogseg.config import LogConfig
from pylogseg.disk.disk import Partition
from pylogseg.disk.tier.files import TierFiles
from pylogseg.env.clock import Clock, SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.errors import StorageError
from pylogseg.format.names import FileKind
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Log
from pylogseg.log.state import Start
from pylogseg.server.sources import Sources, place
from pylogseg.server.view import View

_log = logging.getLogger(__name__)

#: Producers of a backup are shown however long they were idle.
_NEVER_MS = 2**62


class Overlays:
    """Opens logs; they share the bound on open files."""

    def __init__(self, view: View) -> None:
        self._view, self._sources = view, Sources()
        self._directories: dict[str, LogDirectory] = {}
        self._mutex = threading.Lock()
        #: Open transactions of the logs that were opened so far, which count as aborted.
        self.aborted: dict[str, int] = {}
        self.skipping = None
        if view.skips:
            from pylogseg.server.skipping import Skipping

            self.skipping = Skipping()

    def open(self, found: Partition) -> Log:
        """Open the log of a partition that is there, as a broker does when it starts, but in memory.

        Raises StorageError if the folder is not there any more, or has lost the segments that it had: a log made anew
        would look to clients as if all had been deleted.
        """
        _check_there(found)
        return self.open_or_make(found)

    def open_or_make(self, found: Partition, config: LogConfig | None = None, clock: Clock | None = None) -> Log:
        """Open the log of a partition, or make it, as a broker does, but in memory.

        By default with Kafka's settings, and the time of the system.
        """
        start = self._start_of(found)
        # One overlay for each log: their threads change the names that are in it.
        storage = self._sources.of_partition(found)

        def open_log() -> Log:
            return Log.open(
                Environment(storage, clock or SystemClock(), CollectingScheduler()),
                place(found.files, found.path),
                config or LogConfig(),
                start,
                producer_expiration_ms=_NEVER_MS,
            )

        log = open_log() if self.skipping is None else self.skipping.open_log(storage, found.segments, open_log)
        log.update_high_watermark(start.high_watermark if self._view.until_checkpoint else log.log_end_offset)
        if self._view.end_open_transactions:
            self._abort_open(found.name, log)
        return log

    def close(self) -> None:
        """Close the sources, with the bytes that they hold."""
        self._sources.close()

    def _start_of(self, found: Partition) -> Start:
        if isinstance(found.files, TierFiles):
            return Start(True, found.log_start_offset)  # whole segments: there is no tail to recover
        parent, name = found.files.split(found.path)
        with self._mutex:
            directory = self._directories.get(parent)
            if directory is None:
                storage = self._sources.of_log_dir(found.files, parent)
                directory = self._directories[parent] = LogDirectory(storage, place(found.files, parent))
            start = directory.claim(name)
            directory.release(name, clean=start.clean, write=False)
            return start

    def _abort_open(self, name: str, log: Log) -> None:
        aborted = log.abort_open()
        if aborted and name not in self.aborted:
            first = aborted[0]
            count = "1 open transaction counts" if len(aborted) == 1 else f"{len(aborted)} open transactions count"
            where = f"from offset {first.first_offset} on (producer {first.producer_id})"
            _log.warning("%s: %s as aborted, %s%s", name, count, "the first " if len(aborted) > 1 else "", where)
        if aborted:
            self.aborted[name] = len(aborted)


def _check_there(found: Partition) -> None:
    if not isinstance(found.files, LocalFiles):
        return
    names = [entry.name for entry in found.files.list_folder(found.path)]
    if found.size and not any(name.endswith(FileKind.LOG.value) for name in names):
        raise StorageError(found.path, "open", "its segments are not there any more")
