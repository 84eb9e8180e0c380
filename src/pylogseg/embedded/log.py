"""The log of a partition as an embedded queue: records in, records out, one writer, many threads."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from pylogseg.config import LogConfig
from pylogseg.embedded.batches import as_bytes, encode_batches
from pylogseg.embedded.metrics import LogMetrics
from pylogseg.embedded.slices import OpenLog
from pylogseg.env.scheduler import Handle
from pylogseg.errors import ClosedError, PylogsegError, RequestError, StorageError
from pylogseg.format.names import FileKind
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Appended, Isolation, Log
from pylogseg.log.producer_state import Origin
from pylogseg.log.reads import Fetched
from pylogseg.log.segment import LogSegment
from pylogseg.reading import partition as reading
from pylogseg.reading.stream import Moment, Reader, reader_of

_log = logging.getLogger(__name__)
_FOR_EVER_MS = 2**63 - 1
# Kafka's defaults of what is done every so many milliseconds.
_RECOVERY_POINTS_MS = 60_000
_LOG_STARTS_MS = 60_000
_HIGH_WATERMARKS_MS = 5_000
_EXPIRY_MS = 600_000


class EmbeddedLog(Log):
    """A log that this program owns; made by `pylogseg.open_log`, closed by `close` or at the end of a ``with``.

    It has all that `Log` has. As the only replica, what it appends may be read at once: the high watermark follows the
    end of the log.

    Attributes
    ----------
    leader_epoch : int
        Written into the batches that are appended.
    report : LoadReport
        What opening found and did.

    Notes
    -----
    Any number of threads may use one object. Appends and what else changes the log come one after the other; readers
    wait for nobody. A forked process must not use it.
    """

    def __init__(self, *parts: Any) -> None:
        self.leader_epoch = 0
        self._metrics = LogMetrics()
        self._directory: LogDirectory | None = None
        self._ending = False
        self._tasks: dict[str, Handle] = {}
        self._owns_scheduler = False
        super().__init__(*parts)

    def begin(
        self, directory: LogDirectory, leader_epoch: int | None, load_seconds: float, *, owns_scheduler: bool
    ) -> None:
        """Become part of a log directory, let all that is there be read, and start what runs in the background."""
        self._directory, self._owns_scheduler = directory, owns_scheduler
        self.leader_epoch = max(self.epochs.latest_epoch, 0) if leader_epoch is None else leader_epoch
        self._metrics.load_seconds = load_seconds
        self.update_high_watermark(self.log_end_offset)
        directory.attach(self._name, self)
        for name, kind, period_ms in (
            ("recovery-point-checkpoint", FileKind.RECOVERY_POINTS, _RECOVERY_POINTS_MS),
            ("log-start-offset-checkpoint", FileKind.LOG_STARTS, _LOG_STARTS_MS),
            ("highwatermark-checkpoint", FileKind.HIGH_WATERMARKS, _HIGH_WATERMARKS_MS),
        ):
            self._every(name, period_ms, functools.partial(directory.checkpoint, kind))
        self._every("producer-expiration", _EXPIRY_MS, self._expire_producers)
        self._schedule_flushes()

    @property
    def _name(self) -> str:
        return self.storage.split(self.folder)[1]

    # ---- records in ----

    def append(self, data: Any, *, compression: str | None = None, batch_bytes: int | None = None) -> Appended:
        """Append records, or a batch as a producer sends it.

        Parameters
        ----------
        data : iterable of records, RecordColumns, Arrow data, or buffer
            Records as `pylogseg.encode` takes them; those without a timestamp get the time of now, and all get new
            offsets. A buffer is one batch of magic 2 (or legacy messages), as Kafka takes it.
        compression : str, optional
            ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"`` for the batches that are made of records, in
            place of ``compression.type``.
        batch_bytes : int, optional
            Size of these batches before compression; 64 KiB unless given, at most ``max.message.bytes``.

        Returns
        -------
        Appended
            Offsets of the first and the last record.

        Raises
        ------
        RequestError
            Nothing was appended, unless records made several batches: those before the one that was refused are in the
            log then, which the message says.
        StorageError
            The disk failed. After that the log is offline: close it.

        Notes
        -----
        That it returns means that the operating system has the records: they survive a crash of the program, and one
        of the machine after `flush` (or with ``flush_messages=1``).
        """
        view = as_bytes(data)
        if view is not None:
            done = self.append_as_leader(view, self.leader_epoch)
            if not done.valid_bytes:
                raise RequestError(f"{self.folder}: there is no whole batch in the {view.nbytes} bytes")
            return done
        batches = encode_batches(
            data, self.config, self.clock.now_ms(), compression=compression, batch_bytes=batch_bytes
        )
        return self._append_batches(batches)

    def _append_batches(self, batches: Sequence[memoryview]) -> Appended:
        if not batches:
            return Appended(-1, -1, -1, -1, 0, self.log_start_offset)
        done: list[Appended] = []
        with self._lock:
            for batch in batches:
                try:
                    done.append(self.append_as_leader(batch, self.leader_epoch, in_place=True))
                except RequestError as error:
                    if done:
                        first, last = done[0].first_offset, done[-1].last_offset
                        note = f"the batches before it are in the log, at offsets {first} to {last}"
                        error.args = (f"batch {len(done)} of {len(batches)}: {error}; {note}", *error.args[1:])
                    raise
        return Appended(
            done[0].first_offset,
            done[-1].last_offset,
            max(one.max_timestamp for one in done),
            done[-1].append_time_ms,
            sum(one.valid_bytes for one in done),
            done[-1].log_start_offset,
            all(one.is_duplicate for one in done),
        )

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
            )
        )

    def append_as_follower(self, data: Any, leader_epoch: int) -> Appended:
        """Append batches that have their offsets; see `Log.append_as_follower`."""
        append = super().append_as_follower
        return self._counted(lambda: append(data, leader_epoch))

    def _counted(self, append: Callable[[], Appended]) -> Appended:
        """Append, let it be read at once, and count."""
        metrics = self._metrics
        with self._lock:
            if self._ending:
                raise ClosedError(f"{self.folder}: the log is closed")
            started = time.perf_counter()
            try:
                done = append()
            except PylogsegError:
                metrics.refusals += 1
                raise
            finally:
                self.offsets.update_high_watermark(self.offsets.end)
            metrics.append_seconds += time.perf_counter() - started
            if done.is_duplicate:
                metrics.duplicates += 1
            elif done.first_offset >= 0:
                metrics.appends += 1
                metrics.records += done.last_offset - done.first_offset + 1
                metrics.bytes += done.valid_bytes
        return done

    # ---- records out ----

    def read(
        self,
        offset: int | tuple[int | None, int | None] | None = None,
        timestamp: Moment | tuple[Moment | None, Moment | None] | None = None,
        *,
        isolation: reading.Isolation = "read_uncommitted",
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        control: bool = False,
        check_crc: bool = True,
        max_decompressed_bytes: int = 64 << 20,
    ) -> Reader:
        """Read the records that are in the log now.

        Parameters
        ----------
        offset : int or (int, int), optional
            First offset, or a half-open range; either end may be None. Records that were deleted are passed by.
        timestamp : int (ms), datetime, or a pair, optional
            A start or a half-open range, as of `pylogseg.read`.
        isolation : {"read_uncommitted", "read_committed"}
            ``read_committed`` leaves out the records of aborted transactions and ends at the first that is still open.
        limit : int, optional
            Give at most so many records.
        columns : sequence of str, optional
            What to give, by the names of the Arrow columns.
        control : bool
            Give transaction markers too.
        check_crc : bool
            Check the CRC of each batch before its records are given.
        max_decompressed_bytes : int
            A batch that decompresses to more counts as damaged.

        Returns
        -------
        Reader
            Iterate over it for `Record`s, over `Reader.chunks` for columns, or hand it to what reads Arrow streams.
            What is appended after this call is not in it.

        Raises
        ------
        RequestError
            For arguments that make no sense.
        OffsetOutOfRange
            While iterating: records that were to come have been deleted or truncated.
        CorruptionError
            While iterating.
        """
        options = reading.ReadOptions(
            isolation,
            control=control,
            check_crc=check_crc,
            limit_bytes=max_decompressed_bytes,
            first_window_bytes=reading.small_window(limit),
        )
        self._guarded(lambda: None)  # a closed log says so here
        return reader_of([OpenLog(self, self._readable_end(isolation))], offset, timestamp, limit, options, columns)

    def _readable_end(self, isolation: reading.Isolation) -> int:
        return self.last_stable_offset if isolation == "read_committed" else self.high_watermark

    def fetch(
        self, offset: int, max_bytes: int = 1 << 20, isolation: Isolation = "log_end", *, min_one: bool = True
    ) -> Fetched:
        """A slice of a file; see `Log.fetch`."""
        self._metrics.fetches += 1
        return super().fetch(offset, max_bytes, isolation, min_one=min_one)

    # ---- figures ----

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
            segment = super().roll(expected_next_offset)
            self._metrics.rolls += 1
            return segment

    def _flush(self, offset: int, inclusive: bool) -> None:
        before, started = self.recovery_point, time.perf_counter()
        super()._flush(offset, inclusive)
        if self.recovery_point > before:
            self._metrics.note_flush(time.perf_counter() - started)

    # ---- in the background ----

    def update_config(self, config: LogConfig) -> None:
        """Take new settings; they count from the next operation on."""
        super().update_config(config)
        if self._directory is not None:
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

    def _expire_producers(self) -> None:
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
            super().close_handles()
            self._leave(clean=False)

    def delete(self) -> None:
        """Remove the log with its folder, and close it."""
        if self._end():
            self._finish(super().delete, gone=True)

    def _end(self) -> bool:
        """Let nobody begin anything any more, and wait for what runs in the background; False if that is done."""
        with self._lock:
            if self._ending:
                return False
            self._ending = True
        for task in self._tasks.values():
            task.cancel()
        if self._owns_scheduler:
            self.scheduler.shutdown()
        return True

    def _finish(self, work: Callable[[], None], *, gone: bool = False) -> None:
        clean = False
        try:
            with self._lock:
                work()
            clean = True
        finally:
            if not clean:
                super().close_handles()
            self._leave(clean=clean, gone=gone and clean)

    def _leave(self, *, clean: bool, gone: bool = False) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            try:
                directory.release(self._name, clean=clean, gone=gone)
            finally:
                directory.close()

    def __enter__(self) -> EmbeddedLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except StorageError:
            if error is None:
                raise
            _log.exception("%s: the log cannot be closed in order", self.folder)  # the first error is the one to show

    def __repr__(self) -> str:
        state = "closed" if self._ending else f"offsets {self.log_start_offset} to {self.log_end_offset}"
        return f"EmbeddedLog({self.folder!r}, {state})"
