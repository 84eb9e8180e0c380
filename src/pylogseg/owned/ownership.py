"""Ownership of an open log: its checkpoints and background tasks, who waits for it, and its end."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable

from pylogseg.config import LogConfig
from pylogseg.env.scheduler import Handle
from pylogseg.errors import StorageError
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
    """An open log that is this program's, with its one use of its log directory, in which its folder is claimed.

    The log is the only replica, so records can be read as soon as they are appended: the high watermark follows its
    end. Appended batches get `leader_epoch`; the default is the last batch's epoch. `on_failure` is called with the
    first failure of the disk, by the thread that met it and maybe with locks held.
    """

    def __init__(
        self, log: Log, directory: LogDirectory, leader_epoch: int | None, *, has_tasks: bool, owns_scheduler: bool
    ) -> None:
        self.log, self._name = log, log.identity.name
        self.leader_epoch = max(log.epochs.latest_epoch, 0) if leader_epoch is None else leader_epoch
        self.on_failure: Callable[[StorageError], None] = lambda error: None
        self._directory: LogDirectory | None = directory
        self._has_tasks, self._owns_scheduler = has_tasks, owns_scheduler
        self._tasks: dict[str, Handle] = {}
        self._waiters = Waiters()

    def begin(self, load_seconds: float) -> None:
        """Make all records readable, and let the checkpoints of the directory follow the log."""
        log, state, directory = self.log, self.log.state, self._directory
        assert directory is not None
        state.metrics.load_seconds = load_seconds
        state.on_failure, state.on_append = self._handle_failure, self._handle_append
        state.on_log_start, state.on_cut = self._log_start_moved, self._handle_cut
        log.update_high_watermark(log.log_end_offset)
        directory.attach(self._name, log)
        directory.lower_checkpoints(self._name)
        self._start_tasks(directory)
        _log.info(
            "%s: opened in %.3f s, offsets %d to %d, %d repairs",
            log.folder,
            load_seconds,
            log.log_start_offset,
            log.log_end_offset,
            len(log.report.actions),
        )

    # ---- changes ----

    def _handle_append(self) -> None:
        offsets = self.log.offsets
        offsets.update_high_watermark(offsets.end)
        self._waiters.wake()

    def _handle_failure(self, error: StorageError) -> None:
        self._waiters.wake()  # nothing will be appended any more
        self.on_failure(error)

    def _log_start_moved(self) -> None:
        if self._directory is not None:
            self._directory.checkpoint(FileKind.LOG_STARTS)

    def _handle_cut(self) -> None:
        """Lower the checkpoints: records appended from now on are neither flushed nor compacted yet."""
        if self._directory is not None:
            self._directory.lower_checkpoints(self._name)
            self._directory.note_cleaned(self._name, self.log.log_end_offset, lower_only=True)

    def wait_until(self, grown: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until the log has grown; return False after the timeout, or if the log was closed."""
        state = self.log.state
        self._waiters.wait(lambda: state.is_closing or state.failure is not None or grown(), timeout)
        return not state.is_closing and grown()

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings, from the next operation on."""
        self.log.update_config(config)
        self._schedule_flushes()

    # ---- in the background ----

    def _start_tasks(self, directory: LogDirectory) -> None:
        """Start the tasks for checkpoints, flushes and producers, if they run here."""
        if not self._has_tasks:
            return
        for name, kind, period_ms in (
            ("recovery-point-checkpoint", FileKind.RECOVERY_POINTS, _RECOVERY_POINTS_MS),
            ("log-start-offset-checkpoint", FileKind.LOG_STARTS, _LOG_STARTS_MS),
            ("highwatermark-checkpoint", FileKind.HIGH_WATERMARKS, _HIGH_WATERMARKS_MS),
        ):
            self._every(name, period_ms, functools.partial(directory.checkpoint, kind))
        self._every("producer-expiration", _EXPIRY_MS, self.log.expire_producers)
        self._schedule_flushes()

    def _schedule_flushes(self) -> None:
        """Schedule flushes, so that records are on the disk within `flush.ms`."""
        if not self._has_tasks:
            return
        task = self._tasks.pop("log-flusher", None)
        if task is not None:
            task.cancel()
        flush_ms = self.log.config.flush_ms
        if flush_ms < _FOR_EVER_MS:
            self._every("log-flusher", max(flush_ms, 1), lambda: self.log.flush(force_active=False))

    def _every(self, name: str, period_ms: int, work: Callable[[], None]) -> None:
        state = self.log.state

        def task() -> None:
            if state.is_usable and not state.is_closing:
                work()

        self._tasks[name] = self.log.scheduler.schedule(f"{name} {self._name}", task, period_ms, period_ms)

    # ---- the end ----

    def close(self) -> None:
        """Flush everything and close the log cleanly; closing again does nothing."""
        if self._end():
            self._finish(self._close_in_order)

    def _close_in_order(self) -> None:
        self.log.flush()
        self.log.close()

    def close_handles(self) -> None:
        """Close the files without writing anything, like a crash."""
        if self._end():
            with self.log.state.undisturbed():
                self.log.close_handles()
            self._leave(clean=False)

    def delete(self) -> None:
        """Remove the log with its folder, and close it."""
        if self._end():
            self._finish(self.log.delete, gone=True)

    def move_away(self, new_name: str) -> None:
        """Close the log without writing anything and rename its folder, as for a deletion."""

        def move() -> None:
            self.log.close_handles()
            self._rename(new_name)

        if self._end():
            self._finish(move, gone=True)

    def rename(self, new_name: str) -> None:
        """Close the log cleanly, and rename its folder to another partition or state."""

        def move() -> None:
            self._close_in_order()
            self._rename(new_name)

        if self._end():
            self._finish(move, new_name=new_name)

    def _rename(self, new_name: str) -> None:
        storage, folder = self.log.storage, self.log.folder
        parent = storage.split(folder)[0]
        storage.rename(folder, storage.join(parent, new_name))
        storage.sync_folder(parent)

    def _end(self) -> bool:
        """Refuse further work and wait for background tasks; return False if that is already done."""
        state = self.log.state
        with state.lock:
            if state.is_closing:
                return False
            state.is_closing = True
        self._waiters.wake()
        for task in self._tasks.values():
            task.cancel()
        if self._owns_scheduler:
            self.log.scheduler.shutdown()
        return True

    def _finish(self, work: Callable[[], None], *, gone: bool = False, new_name: str | None = None) -> None:
        state, clean = self.log.state, False
        try:
            with state.undisturbed(), state.lock:
                work()
            clean = True
        finally:
            if not clean:
                self.log.close_handles()
            self._leave(clean=clean, gone=gone and clean, new_name=new_name if clean else None)

    def _leave(self, *, clean: bool, gone: bool = False, new_name: str | None = None) -> None:
        """Release the folder and the directory; see `LogDirectory.release`."""
        directory, self._directory = self._directory, None
        if directory is not None:
            _log.info("%s: %s", self.log.folder, "closed" if clean else "closed, but not cleanly")
            try:
                # The manager writes the checkpoints of all logs; but a deleted log must not leave entries for a new
                # one of its name.
                write = self._has_tasks or gone
                directory.release(self._name, clean=clean, gone=gone, write=write, new_name=new_name)
            finally:
                directory.close()


class Waiters:
    """Threads that wait for writers; a writer takes no lock if none waits."""

    def __init__(self) -> None:
        self.count = 0
        self._moved = threading.Condition()

    def wake(self) -> None:
        if self.count:
            with self._moved:
                self._moved.notify_all()

    def wait(self, done: Callable[[], bool], timeout: float | None) -> None:
        """Wait until `done` returns True, or for the timeout."""
        with self._moved:
            self.count += 1  # a writer that sees 0 has moved the end before `done` is called here
            try:
                self._moved.wait_for(done, timeout)
            finally:
                self.count -= 1
