"""Periodic tasks for all logs: retention, flushes, checkpoints, the expiry of producers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from pylogseg.env.clock import Clock
from pylogseg.env.scheduler import Handle, Scheduler
from pylogseg.errors import ClosedError, StorageError
from pylogseg.format.names import FileKind
from pylogseg.log.directory import LogDirectory
from pylogseg.owned.log import EmbeddedLog
from pylogseg.owned.manager.cleaning import CleaningPlace
from pylogseg.owned.manager.settings import BrokerSettings

_FOR_EVER_MS = 2**63 - 1


class Background:
    """The periodic tasks of a manager."""

    def __init__(
        self,
        settings: BrokerSettings,
        scheduler: Scheduler,
        clock: Clock,
        places: Callable[[], Iterable[CleaningPlace]],
        directories: Callable[[], Iterable[LogDirectory]],
        failed: Callable[[LogDirectory, StorageError], None],
    ) -> None:
        self._settings, self._scheduler, self._clock = settings, scheduler, clock
        self._places, self._directories, self._failed = places, directories, failed
        self._tasks: dict[str, Handle] = {}
        self._stopped = False

    def start(self, flush_ms: int) -> None:
        """Start the tasks; `flush_ms` as in `flush_every`."""
        settings, first = self._settings, self._settings.log_initial_task_delay_ms
        self._every("log-retention", self.retain, settings.log_retention_check_interval_ms, first)
        for name, kind, period_ms, delay_ms in (
            (
                "recovery-point-checkpoint",
                FileKind.RECOVERY_POINTS,
                settings.log_flush_offset_checkpoint_interval_ms,
                first,
            ),
            (
                "log-start-offset-checkpoint",
                FileKind.LOG_STARTS,
                settings.log_flush_start_offset_checkpoint_interval_ms,
                first,
            ),
            (
                "highwatermark-checkpoint",
                FileKind.HIGH_WATERMARKS,
                settings.replica_high_watermark_checkpoint_interval_ms,
                None,
            ),
        ):
            self._every(name, functools.partial(self.checkpoint, kind), period_ms, delay_ms)
        self._every("producer-expiration", self._expire, settings.producer_id_expiration_check_interval_ms)
        self.flush_every(flush_ms)

    def stop(self) -> None:
        self._stopped = True
        for task in self._tasks.values():
            task.cancel()

    def flush_every(self, period_ms: int) -> None:
        """Set how often to look for logs to flush."""
        task = self._tasks.pop("log-flusher", None)
        if task is not None:
            task.cancel()
        self._every("log-flusher", self._flush_old, max(period_ms, 1))

    def _every(self, name: str, work: Callable[[], object], period_ms: int, delay_ms: int | None = None) -> None:
        def task() -> None:
            if not self._stopped:
                work()

        if 0 < period_ms < _FOR_EVER_MS:
            first = period_ms if delay_ms is None else delay_ms
            self._tasks[name] = self._scheduler.schedule(name, task, first, period_ms)

    def _each(self, work: Callable[[EmbeddedLog], object]) -> None:
        for directory, _, log in self._places():
            try:
                work(log)
            except ClosedError:
                continue
            except StorageError as error:
                self._failed(directory, error)

    def retain(self) -> int:
        """Apply retention, except to compacted logs, which the cleaner does; return the number of deleted segments."""
        gone = 0

        def work(log: EmbeddedLog) -> None:
            nonlocal gone
            if not log.config.compact:
                gone += log.apply_retention()

        self._each(work)
        return gone

    def checkpoint(self, *kinds: FileKind) -> None:
        """Write the checkpoints of these kinds; by default all."""
        for directory in list(self._directories()):
            try:
                directory.checkpoint(*kinds)
            except StorageError as error:
                self._failed(directory, error)

    def _expire(self) -> None:
        self._each(lambda log: log.engine.expire_producers())

    def _flush_old(self) -> None:
        now_ms = self._clock.now_ms()
        self._each(
            lambda log: (
                log.flush(force_active=False) if now_ms - log.engine.last_flush_ms >= log.config.flush_ms else None
            )
        )
