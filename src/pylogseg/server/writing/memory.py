"""Records that clients write stay in memory, above files that stay as they are, or above nothing."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.disk.disk import Disk, Partition
from pylogseg.errors import RequestError
from pylogseg.log.append_result import Appended
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import cleanable, dirtiness
from pylogseg.log.log import Log
from pylogseg.log.offset_map import OffsetMap
from pylogseg.log.producer_state import Origin
from pylogseg.server.catalog import Catalog, ServedPartition, Topic, TopicDefaults, usage_of_disk
from pylogseg.server.overlays import Overlays
from pylogseg.server.view import View
from pylogseg.server.writing.clock import MovableClock
from pylogseg.server.writing.topics import Topics, config


class MemoryLogs:
    """Logs over overlays that keep all writes in memory; see `TopicStore`."""

    keeps, is_writable = "what is written is kept in memory", True
    left_out, aborted = (0, 0), 0
    internal_settings: Mapping[str, str] = {"segment.bytes": str(1 << 20), "file.delete.delay.ms": "0"}
    config_of: Callable[[str], LogConfig]

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.home = os.path.join(os.path.abspath(os.sep), f"pylogseg-memory-{uuid.uuid4().hex}")
        self._overlays = Overlays(View())
        self._cleaned: dict[ServedPartition, int | None] = {}  # up to which offset

    # ---- logs ----

    def open(self, found: Partition) -> Log:
        """Open a log as a broker does when it starts, or make it."""
        return self._overlays.open_or_make(found, self.config_of(found.topic), self.clock)

    def release(self, log: Log) -> None:
        log.close_handles()

    def usage(self, log_dir: str) -> tuple[int, int]:
        """Return how large a disk is, and how much of it is free; -1 for topics in memory."""
        return (-1, -1) if log_dir == self.home else usage_of_disk(log_dir)

    def close(self) -> None:
        """Close the overlays, and lose all topics."""
        self._overlays.close()

    # ---- changes ----

    def check_changeable(self) -> None:
        """Do nothing: all may be changed."""

    def note(self, topics: Topics, shown: Mapping[str, Topic]) -> None:
        """Do nothing: it does not outlast the process."""

    def configure(self, topic: Topic, settings: Mapping[str, str]) -> None:
        """Apply new settings to the open logs; logs that open later get them, too."""
        logs = [log for served in topic.partitions.values() if (log := served.open_log) is not None]
        for log in logs:
            try:
                log.update_config(config(topic.name, settings))
            except RequestError:  # of a copy: it was somebody else's
                log.update_config(LogConfig())

    def make(self, topic: Topic, number: int) -> None:
        """Do nothing: the log is made when it is opened."""

    def append(self, served: ServedPartition, data: Any, origin: Origin, transaction_version: int) -> Appended:
        """Append one batch, which can be read at once."""
        log, version = served.log(), transaction_version
        with log.state.lock:
            try:
                return log.append_as_leader(data, served.leader_epoch, origin=origin, transaction_version=version)
            finally:
                log.offsets.update_high_watermark(log.offsets.end)

    def compact(self, served: ServedPartition) -> None:
        """Compact a log if its dirty ratio is high enough for a cleaner; in memory, no other thread cleans."""
        log = served.log()
        if len(log.segments) == 1:
            return
        what = cleanable(log, self._cleaned.get(served), log.clock.now_ms())
        if dirtiness(log, what).ratio >= log.config.min_cleanable_dirty_ratio:
            self._cleaned[served], _ = Cleaner(OffsetMap()).clean(log, what)

    def delete(self, served: ServedPartition) -> None:
        self._cleaned.pop(served, None)


def memory_topics(defaults: TopicDefaults, above: Sequence[str | os.PathLike[str]] = ()) -> Topics:
    """Return topics in memory, above the topics of directories that no broker is writing to.

    Raises StorageError if a running broker has the lock of one, or a directory cannot be listed.
    """
    store = MemoryLogs()
    defaults = defaults._replace(internal_partitions=50)
    if above:
        return Topics(Catalog.open(above, logs=store, defaults=defaults), store)
    return Topics(Catalog(Disk((), ()), logs=store, defaults=defaults), store)
