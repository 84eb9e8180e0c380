"""A log with all that goes with owning it: its place in a log directory, work in the background, figures, an end."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pylogseg.config import LogConfig
from pylogseg.embedded.metrics import LogMetrics
from pylogseg.env.positions import Data
from pylogseg.env.scheduler import Handle
from pylogseg.errors import ClosedError, PylogsegError, StorageError
from pylogseg.format.names import FileKind
from pylogseg.log.appended import Appended, AppendedMany
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Isolation, Log
from pylogseg.log.producer_state import Origin
from pylogseg.log.reads import Fetched
from pylogseg.log.segment import LogSegment
from pylogseg.reading import partition as reading

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_FOR_EVER_MS = 2**63 - 1
# Kafka's defaults of what is done every so many milliseconds.
_RECOVERY_POINTS_MS = 60_000
_LOG_STARTS_MS = 60_000
_HIGH_WATERMARKS_MS = 5_000
_EXPIRY_MS = 600_000


class OwnedLog(Log):
    """The only replica of a log, in a log directory of this process.

    Attributes
    ----------
    leader_epoch : int
        Written into the batches that are appended.
    undisturbed : callable
        Gives a ``with`` for the time of which nobody rewrites segments; whoever compacts the log sets it.
    on_failure : callable
        Told of the first failure of the disk, by the thread that met it and maybe with locks held.
    cuts : int
        How often offsets were taken back.
    """

    def __init__(self, *parts: Any) -> None:
        self.leader_epoch = 0
        self.undisturbed: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self.on_failure: Callable[[StorageError], None] = lambda error: None
        self.cuts = 0
        self._metrics = LogMetrics()
        self._directory: LogDirectory | None = None
        self._ending = False
        self._moved = threading.Condition()
        self._waiting = 0
        self._counting = False
        self._tasks: dict[str, Handle] = {}
        self._owns_scheduler = False
        self._has_tasks = False
        super().__init__(*parts)

    def begin(
        self,
        directory: LogDirectory,
        leader_epoch: int | None,
        load_seconds: float,
        *,
        owns_scheduler: bool,
        tasks: bool,
    ) -> None:
        """Become part of a log directory, let all that is there be read, and start what runs in the background."""
        self._directory, self._owns_scheduler = directory, owns_scheduler
        self.leader_epoch = max(self.epochs.latest_epoch, 0) if leader_epoch is None else leader_epoch
        self._metrics.load_seconds = load_seconds
        self.update_high_watermark(self.log_end_offset)
        name = self._name
        directory.attach(name, self)
        directory.step_back(name)
        self._has_tasks = tasks
        if tasks:
            self._start_tasks(directory)
        _log.info(
            "%s: opened in %.3f s, offsets %d to %d, %d repairs",
            self.folder,
            load_seconds,
            self.log_start_offset,
            self.log_end_offset,
            len(self.report.actions),
        )

    def _start_tasks(self, directory: LogDirectory) -> None:
        for name, kind, period_ms in (
            ("recovery-point-checkpoint", FileKind.RECOVERY_POINTS, _RECOVERY_POINTS_MS),
            ("log-start-offset-checkpoint", FileKind.LOG_STARTS, _LOG_STARTS_MS),
            ("highwatermark-checkpoint", FileKind.HIGH_WATERMARKS, _HIGH_WATERMARKS_MS),
        ):
            self._every(name, period_ms, functools.partial(directory.checkpoint, kind))
        self._every("producer-expiration", _EXPIRY_MS, self.expire_producers)
        self._schedule_flushes()

    @property
    def _name(self) -> str:
        return self.storage.split(self.folder)[1]

    # ---- appends ----

    def append_as_leader(
        self,
        data: Any,
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        target_magic: int = 2,
        in_place: bool = False,
    ) -> Appended:
        """Append one batch; see `Log.append_as_leader`."""
        append = super().append_as_leader
        return self._counted(
            lambda: append(
                data,
                leader_epoch,
                origin=origin,
                transaction_version=transaction_version,
                target_magic=target_magic,
                in_place=in_place,
            ),
            self._metrics.note_append,
        )

    def append_many(
        self,
        data: Data | Sequence[Data],
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        in_place: bool = False,
    ) -> AppendedMany:
        """Append many batches; see `Log.append_many`."""
        append = super().append_many
        return self._counted(
            lambda: append(
                data, leader_epoch, origin=origin, transaction_version=transaction_version, in_place=in_place
            ),
            self._metrics.note_many,
        )

    def append_as_follower(self, data: Any, leader_epoch: int) -> Appended:
        """Append batches that have their offsets; see `Log.append_as_follower`."""
        append = super().append_as_follower
        return self._counted(lambda: append(data, leader_epoch), self._metrics.note_append)

    def _counted(self, append: Callable[[], _Result], note: Callable[[_Result], None]) -> _Result:
        """Append, let it be read at once, and count."""
        with self._lock:
            if self._ending:
                raise ClosedError(f"{self.folder}: the log is closed")
            if self._counting:  # a batch that goes alone, of many
                return append()
            self._counting, started = True, time.perf_counter()
            before = self._written()
            try:
                done = append()
            except PylogsegError:
                self._metrics.refusals += 1
                raise
            except BaseException as error:  # Ctrl-C may come between two steps
                if self._written() != before:
                    what = f"{type(error).__name__} came in the middle of an append"
                    self._offline = StorageError(self.folder, "append", what)
                raise
            finally:
                self._counting = False
                self._metrics.append_seconds += time.perf_counter() - started
                self._advance()
            note(done)
            return done

    def _written(self) -> tuple[LogSegment | None, int]:
        active = self.segments.active
        return active, 0 if active is None else active.size

    def _advance(self) -> None:
        """Let the end of the log be read, and wake who waits for it; the lock is held."""
        self.offsets.update_high_watermark(self.offsets.end)
        self._wake()

    def _wake(self) -> None:
        if self._waiting:
            with self._moved:
                self._moved.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or is being closed."""
        return self._ending

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Keep others from changing the log for the time of a ``with``; it can still be read."""
        return self._lock

    def _take_offline(self, error: StorageError) -> None:
        known = self._offline is not None
        super()._take_offline(error)
        if not known:
            self.on_failure(error)

    def check_disk(self) -> None:
        """Raise what took the log offline, if anything did."""
        if self._offline is not None:
            self._guarded(lambda: None)

    def readable_end(self, isolation: reading.Isolation) -> int:
        """Where a reader has to stop."""
        return self.last_stable_offset if isolation == "read_committed" else self.high_watermark

    def wait_beyond(self, offset: int, isolation: reading.Isolation, timeout: float | None) -> bool:
        """Wait until there is something to read at an offset; False if the time is over, or none will come."""

        def done() -> bool:
            return self._ending or self._offline is not None or self.readable_end(isolation) > offset

        with self._moved:
            self._waiting += 1  # a writer that sees none has moved the end before it is looked at here
            try:
                self._moved.wait_for(done, timeout)
            finally:
                self._waiting -= 1
        return not self._ending and self.readable_end(isolation) > offset

    # ---- what is counted ----

    def fetch(
        self, offset: int, max_bytes: int = 1 << 20, isolation: Isolation = "log_end", *, min_one: bool = True
    ) -> Fetched:
        """A slice of a file; see `Log.fetch`."""
        self._metrics.fetches += 1
        return super().fetch(offset, max_bytes, isolation, min_one=min_one)

    def metrics(self) -> LogMetrics:
        """What the log has done since it was opened; a copy."""
        segments = list(self.segments)
        self._metrics.segments, self._metrics.size_bytes = len(segments), sum(segment.size for segment in segments)
        self._metrics.recovered_segments = self.report.recovered_segments
        self._metrics.cut_bytes = self.report.cut_bytes
        with self._lock:
            return LogMetrics(**{name: getattr(self._metrics, name) for name in LogMetrics.__slots__})

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Begin a new segment; see `Log.roll`."""
        with self._lock:
            if self._ending:
                raise ClosedError(f"{self.folder}: the log is closed")
            started = time.perf_counter()
            segment = super().roll(expected_next_offset)
            self._metrics.rolls += 1
            self._metrics.roll_seconds += time.perf_counter() - started
            return segment

    def _flush(self, offset: int, inclusive: bool) -> None:
        before, started = self.recovery_point, time.perf_counter()
        try:
            super()._flush(offset, inclusive)
        except StorageError:
            self._wake()  # nothing more will come
            raise
        if self.recovery_point > before:
            self._metrics.note_flush(time.perf_counter() - started)

    # ---- truncation ----

    def truncate_to(self, offset: int) -> bool:
        """Drop the end of the log; see `Log.truncate_to`. The checkpoints that were above the new end are written."""
        with self._cutting():
            return super().truncate_to(offset)

    def truncate_fully(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; see `Log.truncate_fully`. The checkpoints that were above the new end are written."""
        with self._cutting():
            super().truncate_fully(offset, log_start_offset)

    @contextlib.contextmanager
    def _cutting(self) -> Iterator[None]:
        """Nothing that was read before may be written behind the cut."""
        with self.undisturbed(), self._lock:
            self.cuts += 1
            yield
            self._guarded(self._step_back)

    def _step_back(self) -> None:
        """What is appended next is not flushed and not compacted yet: no checkpoint may say so."""
        if self._directory is not None:
            self._directory.step_back(self._name)
            self._directory.note_cleaned(self._name, self.log_end_offset, lower_only=True)

    # ---- in the background ----

    def increment_log_start(self, offset: int) -> bool:
        """Delete the records below an offset; whether the log's start moved.

        It is in the checkpoint when this returns, so that a crash does not bring them back. (A broker writes it within
        a minute.)
        """
        moved = super().increment_log_start(offset)
        if moved and self._directory is not None:
            self._directory.checkpoint(FileKind.LOG_STARTS)
        return moved

    def update_config(self, config: LogConfig) -> None:
        """Take new settings; they count from the next operation on."""
        super().update_config(config)
        if self._has_tasks:
            self._schedule_flushes()

    def _schedule_flushes(self) -> None:
        """What was appended is forced to the disk at most `flush.ms` later."""
        task = self._tasks.pop("log-flusher", None)
        if task is not None:
            task.cancel()
        if self.config.flush_ms < _FOR_EVER_MS:
            self._every("log-flusher", max(self.config.flush_ms, 1), lambda: self.flush(force_active=False))

    def _every(self, name: str, period_ms: int, work: Callable[[], None]) -> None:
        def task() -> None:
            if not (self._ending or self._closed or self._offline):
                work()

        self._tasks[name] = self.scheduler.schedule(f"{name} {self._name}", task, period_ms, period_ms)

    def expire_producers(self) -> None:
        """Forget the producers that were idle for too long."""
        with self._lock:
            self.producers.expire(self.clock.now_ms())

    # ---- the end ----

    def close(self) -> None:
        """Force everything to the disk and close the log in order; closing again does nothing.

        Raises
        ------
        StorageError
            The disk failed, now or before: what was appended since the last `flush` may be lost when the machine
            crashes, and the next opening recovers the log. It is closed all the same.
        """
        if self._end():
            self._finish(self._close_in_order)

    def _close_in_order(self) -> None:
        self.flush()
        super().close()

    def close_handles(self) -> None:
        """Let go of the files and write nothing more, as a crash would; the next opening recovers the log."""
        if self._end():
            with self.undisturbed():
                super().close_handles()
            self._leave(clean=False)

    def disown(self) -> None:
        """In the child of a fork: the log is the parent's, this object counts as closed."""
        super().disown()
        self._ending = True

    def delete(self) -> None:
        """Remove the log with its folder, and close it."""
        if self._end():
            self._finish(super().delete, gone=True)

    def move_away(self, new_name: str) -> None:
        """Close the log without writing more, and give its folder another name, as for a deletion."""

        def move() -> None:
            super(OwnedLog, self).close_handles()
            self._rename(new_name)

        if self._end():
            self._finish(move, gone=True)

    def rename(self, new_name: str) -> None:
        """Close the log in order, and give its folder the name of another partition or state."""

        def move() -> None:
            self._close_in_order()
            self._rename(new_name)

        if self._end():
            self._finish(move, new_name=new_name)

    def _rename(self, new_name: str) -> None:
        parent = self.storage.split(self.folder)[0]
        self.storage.rename(self.folder, self.storage.join(parent, new_name))
        self.storage.sync_folder(parent)

    def _end(self) -> bool:
        """Let nobody begin anything any more, and wait for what runs in the background; False if that is done."""
        with self._lock:
            if self._ending:
                return False
            self._ending = True
        self._wake()
        for task in self._tasks.values():
            task.cancel()
        if self._owns_scheduler:
            self.scheduler.shutdown()
        return True

    def _finish(self, work: Callable[[], None], *, gone: bool = False, new_name: str | None = None) -> None:
        clean = False
        try:
            with self.undisturbed(), self._lock:
                work()
            clean = True
        finally:
            if not clean:
                super().close_handles()
            self._leave(clean=clean, gone=gone and clean, new_name=new_name if clean else None)

    def _leave(self, *, clean: bool, gone: bool = False, new_name: str | None = None) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            _log.info("%s: %s", self.folder, "closed" if clean else "closed, and not in order")
            try:
                # What looks after many logs writes the checkpoints of all; but nothing of a log that is gone may be
                # taken for a new one's of its name.
                write = self._has_tasks or gone
                directory.release(self._name, clean=clean, gone=gone, write=write, new_name=new_name)
            finally:
                directory.close()
