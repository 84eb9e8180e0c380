"""Ownership of an open log: its background tasks, and its release to the log directory."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable

from pylogseg.env.scheduler import Handle
from pylogseg.format.names import FileKind
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Log

_log = logging.getLogger(__name__)
_FOR_EVER_MS = 2**63 - 1
# Kafka's default intervals, in milliseconds.
_RECOVERY_POINTS_MS = 60_000
_LOG_STARTS_MS = 60_000
_HIGH_WATERMARKS_MS = 5_000
_EXPIRY_MS = 600_000


class Ownership:
    """Background tasks of an open log, and its one use of its log directory, in which its folder is claimed."""

    def __init__(self, log: Log, directory: LogDirectory, *, has_tasks: bool, owns_scheduler: bool) -> None:
        self._log, self._name = log, log.identity.name
        self._directory: LogDirectory | None = directory
        self._has_tasks, self._owns_scheduler = has_tasks, owns_scheduler
        self._tasks: dict[str, Handle] = {}

    # ---- checkpoints ----

    def lower_checkpoints(self) -> None:
        """Lower the checkpoints: what is appended next is neither flushed nor compacted yet."""
        if self._directory is not None:
            self._directory.lower_checkpoints(self._name)
            self._directory.note_cleaned(self._name, self._log.log_end_offset, lower_only=True)

    def checkpoint_log_start(self) -> None:
        """Write the log start offset."""
        if self._directory is not None:
            self._directory.checkpoint(FileKind.LOG_STARTS)

    # ---- in the background ----

    def start_tasks(self) -> None:
        """Start the tasks for checkpoints, flushes and producers, if they run here."""
        directory = self._directory
        if not self._has_tasks or directory is None:
            return
        for name, kind, period_ms in (
            ("recovery-point-checkpoint", FileKind.RECOVERY_POINTS, _RECOVERY_POINTS_MS),
            ("log-start-offset-checkpoint", FileKind.LOG_STARTS, _LOG_STARTS_MS),
            ("highwatermark-checkpoint", FileKind.HIGH_WATERMARKS, _HIGH_WATERMARKS_MS),
        ):
            self._every(name, period_ms, functools.partial(directory.checkpoint, kind))
        self._every("producer-expiration", _EXPIRY_MS, self._log.expire_producers)
        self.schedule_flushes()

    def schedule_flushes(self) -> None:
        """Schedule flushes, so that records are on the disk within `flush.ms`."""
        if not self._has_tasks:
            return
        task = self._tasks.pop("log-flusher", None)
        if task is not None:
            task.cancel()
        flush_ms = self._log.config.flush_ms
        if flush_ms < _FOR_EVER_MS:
            self._every("log-flusher", max(flush_ms, 1), lambda: self._log.flush(force_active=False))

    def _every(self, name: str, period_ms: int, work: Callable[[], None]) -> None:
        state = self._log.state

        def task() -> None:
            if state.is_usable and not state.is_closing:
                work()

        self._tasks[name] = self._log.scheduler.schedule(f"{name} {self._name}", task, period_ms, period_ms)

    def stop_tasks(self) -> None:
        """Stop the tasks, and wait for those that run."""
        for task in self._tasks.values():
            task.cancel()
        if self._owns_scheduler:
            self._log.scheduler.shutdown()

    # ---- the end ----

    def leave(self, *, clean: bool, gone: bool = False, new_name: str | None = None) -> None:
        """Release the folder and the directory; see `LogDirectory.release`."""
        directory, self._directory = self._directory, None
        if directory is not None:
            _log.info("%s: %s", self._log.folder, "closed" if clean else "closed, but not cleanly")
            try:
                # The manager writes the checkpoints of all logs; but a deleted log must not leave entries for a new
                # one of its name.
                write = self._has_tasks or gone
                directory.release(self._name, clean=clean, gone=gone, write=write, new_name=new_name)
            finally:
                directory.close()
