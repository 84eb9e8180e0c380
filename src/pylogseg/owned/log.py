"""The log of a partition as an embedded queue, for one process and many threads."""

from __future__ import annotations

import contextlib
import logging
import socket as sockets
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from pylogseg.config import LogConfig
from pylogseg.errors import ClosedError, PylogsegError, RequestError, StorageError
from pylogseg.log.append_result import Appended, AppendedMany
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import FetchIsolation, Log
from pylogseg.log.metrics import LogMetrics
from pylogseg.log.read_result import FoundOffset
from pylogseg.log.reads import Fetched
from pylogseg.log.segment import LogSegment
from pylogseg.owned.batches import Encoded, as_bytes, encode_batches
from pylogseg.owned.follow import Follower
from pylogseg.owned.ownership import Ownership
from pylogseg.owned.producer import Producer
from pylogseg.owned.sending import Sent, send
from pylogseg.owned.slices import OpenLog
from pylogseg.owned.waiting import Waiters
from pylogseg.reading import partition as reading
from pylogseg.reading.latest import MEMORY_BYTES, Latest
from pylogseg.reading.stream import Moment, Reader, reader_of
from pylogseg.walker.windows import WINDOW_BYTES

_log = logging.getLogger(__name__)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result", Appended, AppendedMany)
#: Size of the first slice for a reader that may need little; it has at least one batch, and the next are larger.
_FIRST_BYTES = 4096


class EmbeddedLog:
    """A log that this program owns; opened by `pylogseg.open_log`, closed by `close` or at the end of a ``with``.

    It has a `Log`, the engine. It is the only replica, so records can be read as soon as they are appended: the high
    watermark follows the end of the log.

    Attributes
    ----------
    engine : Log
        Its appends are not counted in the metrics, and wake no reader: see `apply`.
    leader_epoch : int
        Written into appended batches.
    undisturbed : callable
        Returns a context manager during which nobody rewrites segments; set by the compactor of the log.
    on_failure : callable
        Called with the first failure of the disk, by the thread that met it and maybe with locks held.
    cuts : int
        Number of truncations so far.
    storage, clock, scheduler, identity, folder, segments, offsets, producers, epochs
        Of the engine; see `Log`.
    report : LoadReport
        What opening found and did.

    Notes
    -----
    Any number of threads may use one object. Appends and other changes are serialized; readers never
    wait. A forked process must not use it.
    """

    def __init__(self, engine: Log, ownership: Ownership, leader_epoch: int | None = None) -> None:
        self.engine, self._state, self._ownership = engine, engine.state, ownership
        self.storage, self.clock, self.scheduler = engine.storage, engine.clock, engine.scheduler
        self.identity, self.folder, self.report = engine.identity, engine.folder, engine.report
        self.segments, self.offsets = engine.segments, engine.offsets
        self.producers, self.epochs = engine.producers, engine.epochs
        self.leader_epoch = max(self.epochs.latest_epoch, 0) if leader_epoch is None else leader_epoch
        self.undisturbed: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self.on_failure: Callable[[StorageError], None] = lambda error: None
        self.cuts = 0
        self._metrics = engine.state.metrics
        self._waiters = Waiters()
        self._producers: dict[int, Producer] = {}
        self._state.on_failure = self._failed
        self._state.on_log_start = ownership.checkpoint_log_start

    def begin(self, directory: LogDirectory, load_seconds: float) -> None:
        """Make all records readable, and let the checkpoints of a directory follow the log."""
        self._metrics.load_seconds = load_seconds
        self.engine.update_high_watermark(self.log_end_offset)
        directory.attach(self.identity.name, self.engine)
        directory.lower_checkpoints(self.identity.name)
        self._ownership.start_tasks()
        _log.info(
            "%s: opened in %.3f s, offsets %d to %d, %d repairs",
            self.folder,
            load_seconds,
            self.log_start_offset,
            self.log_end_offset,
            len(self.report.actions),
        )

    # ---- state ----

    @property
    def config(self) -> LogConfig:
        """The settings."""
        return self._state.config

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.offsets.log_start

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.offsets.end.offset

    @property
    def high_watermark(self) -> int:
        """The offset up to which a consumer may read."""
        return self.offsets.high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which a read_committed consumer may read."""
        return self.offsets.last_stable

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on the disk."""
        return self.offsets.recovery_point

    @property
    def active(self) -> LogSegment:
        """The segment that is appended to."""
        return self._state.active

    @property
    def is_usable(self) -> bool:
        """True if it is open, and the disk has not failed."""
        return self._state.is_usable

    @property
    def is_closed(self) -> bool:
        """True if it was closed, or is being closed."""
        return self._state.is_closing

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings, from the next operation on."""
        self.engine.update_config(config)
        self._ownership.schedule_flushes()

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Keep others from changing the log during a ``with``; it can still be read."""
        return self._state.lock

    def metrics(self) -> LogMetrics:
        """Return a copy of the metrics since the log was opened."""
        segments = list(self.segments)
        self._metrics.segments, self._metrics.size_bytes = len(segments), sum(segment.size for segment in segments)
        self._metrics.recovered_segments = self.report.recovered_segments
        self._metrics.cut_bytes = self.report.cut_bytes
        with self._state.lock:
            return LogMetrics(**{name: getattr(self._metrics, name) for name in LogMetrics.__slots__})

    def check_disk(self) -> None:
        """Raise the failure that took the log offline, if there is one."""
        if self._state.failure is not None:
            self._state.raise_unusable()

    def _failed(self, error: StorageError) -> None:
        self._waiters.wake()  # nothing will be appended any more
        self.on_failure(error)

    # ---- appending ----

    def append(self, records: Any, *, compression: str | None = None, batch_bytes: int | None = None) -> Appended:
        """Append records.

        Parameters
        ----------
        records : iterable of records, RecordColumns, or Arrow data
            As `pylogseg.encode` takes them; those without a timestamp get the current time, and all get new offsets.
            A batch that is encoded already goes to `append_batch`.
        compression : str, optional
            ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"`` for batches encoded here, instead of
            ``compression.type``.
        batch_bytes : int, optional
            Size of these batches before compression; 64 KiB by default, at most ``max.message.bytes``.

        Returns
        -------
        Appended
            Offsets of the first and the last record.

        Raises
        ------
        RequestError
            Nothing was appended, unless the records made several batches: these are checked separately, valid ones are
            appended, and the message names the records of the first one refused.
        StorageError
            The disk failed. After that the log is offline: close it.

        Notes
        -----
        On return the records have reached the page cache of the operating system: they survive a crash of the program,
        and after `flush` (or with ``flush_messages=1``) one of the machine.
        """
        view = as_bytes(records)
        if view is not None:
            raise RequestError(f"{self.folder}: append takes records, not bytes: append_batch takes those of a batch")
        now = self.clock.now_ms()
        return self.append_encoded(
            encode_batches(records, self.config, now, compression=compression, batch_bytes=batch_bytes)
        )

    def append_batch(self, data: Any) -> Appended:
        """Append a batch as a producer sends it, for example of `pylogseg.encode`.

        Parameters
        ----------
        data : buffer
            One batch of magic 2, or legacy messages. It gets new offsets; the buffer itself is not changed.

        Returns
        -------
        Appended
            Offsets of the first and the last record; `is_duplicate` for a batch that an idempotent producer repeats.
        """
        view = as_bytes(data)
        if view is None:
            given = type(data).__name__
            raise RequestError(f"{self.folder}: append_batch takes the bytes of a batch, not {given}: see append")
        done = self.apply(self.engine.append_as_leader, view, self.leader_epoch)
        if not done.valid_bytes:
            raise RequestError(f"{self.folder}: the {view.nbytes} bytes hold no whole batch")
        return done

    def append_encoded(self, encoded: Encoded) -> Appended:
        """Append encoded batches, with nothing between them; the error names the records of a refused batch."""
        if not encoded.counts:
            return Appended(-1, -1, -1, -1, 0, self.log_start_offset)
        if len(encoded.counts) == 1:
            return self.apply(self.engine.append_as_leader, encoded.data, self.leader_epoch, in_place=True)
        epoch = self.leader_epoch
        return encoded.answer(self.apply(self.engine.append_many, encoded.data, epoch, in_place=True))

    def apply(
        self, append: Callable[_Arguments, _Result], *args: _Arguments.args, **more: _Arguments.kwargs
    ) -> _Result:
        """Call an append of the engine; make the records readable, wake those who wait for them, and count."""
        state, metrics = self._state, self._metrics
        with state.lock:
            if state.is_closing:
                raise ClosedError(f"{self.folder}: the log is closed")
            started, before = time.perf_counter(), self._written()
            try:
                done = append(*args, **more)
            except PylogsegError:
                metrics.refusals += 1
                raise
            except BaseException as error:  # Ctrl-C may come between two steps
                if self._written() != before:
                    what = f"{type(error).__name__} interrupted an append"
                    state.failure = StorageError(self.folder, "append", what)
                raise
            finally:
                metrics.append_seconds += time.perf_counter() - started
                self.offsets.update_high_watermark(self.offsets.end)
                self._waiters.wake()
            if isinstance(done, Appended):
                metrics.note_append(done)
            else:
                metrics.note_many(done)
            return done

    def _written(self) -> tuple[LogSegment | None, int]:
        active = self.segments.active
        return active, 0 if active is None else active.size

    # ---- deleting ----

    def apply_retention(self) -> int:
        """Delete segments by `retention.ms`, `retention.bytes` and the log's start; return how many.

        This is never run automatically.
        """
        return self.engine.apply_retention()

    def increment_log_start(self, offset: int) -> bool:
        """Delete the records below an offset; return whether the log's start moved.

        The checkpoint is written before this returns, so a crash does not bring them back. (A broker writes it within a
        minute.)
        """
        return self.engine.increment_log_start(offset)

    def truncate_to(self, offset: int) -> bool:
        """Drop the end of the log; see `Log.truncate_to`. Lowers the checkpoints above the new end."""
        with self._cutting():
            return self.engine.truncate_to(offset)

    def truncate_fully(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; see `Log.truncate_fully`. Lowers the checkpoints above the new end."""
        with self._cutting():
            self.engine.truncate_fully(offset, log_start_offset)

    @contextlib.contextmanager
    def _cutting(self) -> Iterator[None]:
        """Keep what was read before a truncation from being appended after it."""
        with self.undisturbed(), self._state.lock:
            self.cuts += 1
            yield
            self._state.guarded(self._ownership.lower_checkpoints)

    # ---- segments ----

    def flush(self, *, force_active: bool = True) -> None:
        """Flush the log to the disk, with `force_active` an empty active segment too."""
        self.engine.flush(force_active=force_active)

    # ---- reading ----

    def read(
        self,
        offset: int | tuple[int | None, int | None] | None = None,
        timestamp: Moment | tuple[Moment | None, Moment | None] | None = None,
        *,
        isolation_level: reading.IsolationLevel = "read_uncommitted",
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        control: bool = False,
        check_crc: bool = True,
        max_decompressed_bytes: int = 64 << 20,
        latest: bool = False,
        tombstones: bool = False,
        latest_memory_bytes: int = MEMORY_BYTES,
    ) -> Reader:
        """Return a reader of the records that are in the log now.

        Parameters
        ----------
        offset : int or (int, int), optional
            First offset, or a half-open range; either end may be None. Records that were deleted are skipped.
        timestamp : int (ms), datetime, or a pair, optional
            A start or a half-open range, as of `pylogseg.read`.
        isolation_level : {"read_uncommitted", "read_committed"}
            ``read_committed`` skips the records of aborted transactions and ends at the first open one.
        limit : int, optional
            The most records to return.
        columns : sequence of str, optional
            The columns to return, by the names of the Arrow columns.
        control : bool
            Return transaction markers too.
        check_crc : bool
            Check the CRC of each batch before its records are returned.
        max_decompressed_bytes : int
            The limit: a batch that decompresses to more is reported as damaged.
        latest, tombstones, latest_memory_bytes
            Only the last record of each key, as in `pylogseg.read`. The log is read twice; `Reader.gaps` lists records
            that a cleaning removed in between, as newer ones of their keys were appended.

        Returns
        -------
        Reader
            Iterate over it for `Record`s, over `Reader.chunks` for columns, or pass it to a consumer of Arrow streams.
            Records appended after this call are not in it.

        Raises
        ------
        RequestError
            For invalid arguments.
        OffsetOutOfRangeError
            While iterating: the next records were deleted or truncated.
        CorruptionError
            While iterating.
        """
        options = reading.ReadOptions(
            isolation_level,
            control=control,
            check_crc=check_crc,
            limit_bytes=max_decompressed_bytes,
            first_window_bytes=WINDOW_BYTES if limit is None or latest else _FIRST_BYTES,
        )
        self._state.check_usable()
        source = OpenLog(self, self.readable_end(isolation_level))
        last_of_key = Latest(tombstones, latest_memory_bytes) if latest else None
        return reader_of([source], offset, timestamp, limit, options, columns, last_of_key)

    def follow(
        self,
        offset: int | None = None,
        *,
        timeout: float | None = None,
        isolation_level: reading.IsolationLevel = "read_uncommitted",
        columns: Sequence[str] | None = None,
        control: bool = False,
        check_crc: bool = True,
        max_decompressed_bytes: int = 64 << 20,
    ) -> Follower:
        """Return a reader that follows the log as records are appended.

        Parameters
        ----------
        offset : int, optional
            Of the first record to read, which may be the next one appended (``log.high_watermark``). By default where
            the log begins.
        timeout : float, optional
            Seconds without new records after which the iteration ends. By default it waits forever.
        isolation_level, columns, control, check_crc, max_decompressed_bytes
            As of `read`.

        Returns
        -------
        Follower
            Iterate over it for `Record`s, or over `Follower.chunks` for columns. It ends when the log is closed.

        Raises
        ------
        RequestError
            For invalid arguments.
        OffsetOutOfRangeError
            While iterating: the next record was deleted or truncated.
        CorruptionError, StorageError
            While iterating.
        """
        self._state.check_usable()
        options = reading.ReadOptions(
            isolation_level, control=control, check_crc=check_crc, limit_bytes=max_decompressed_bytes
        )
        return Follower(self, offset, timeout, options, columns)

    def fetch(
        self, offset: int, max_bytes: int = 1 << 20, isolation: FetchIsolation = "log_end", *, min_one: bool = True
    ) -> Fetched:
        """Read batches from an offset on; see `Log.fetch`."""
        self._metrics.fetches += 1
        return self.engine.fetch(offset, max_bytes, isolation, min_one=min_one)

    def offset_for_time(self, timestamp: int) -> FoundOffset | None:
        """Return the offset of the first record that is not older than a timestamp; see `Log.offset_for_time`."""
        return self.engine.offset_for_time(timestamp)

    def readable_end(self, isolation_level: reading.IsolationLevel) -> int:
        """Return the offset at which a reader has to stop."""
        return self.last_stable_offset if isolation_level == "read_committed" else self.high_watermark

    def wait_beyond(self, offset: int, isolation_level: reading.IsolationLevel, timeout: float | None) -> bool:
        """Wait for records at an offset; return False after the timeout, or if the log was closed."""
        state = self._state
        self._waiters.wait(
            lambda: state.is_closing or state.failure is not None or self.readable_end(isolation_level) > offset,
            timeout,
        )
        return not state.is_closing and self.readable_end(isolation_level) > offset

    def send_to(
        self,
        socket: sockets.socket,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        isolation_level: reading.IsolationLevel = "read_uncommitted",
    ) -> Sent:
        """Send batches to a socket as they lie in the file, by ``sendfile``.

        Parameters
        ----------
        socket : socket
            A blocking stream socket, with or without a timeout.
        offset : int
            Of the first record to send; its whole batch is sent.
        max_bytes : int
            The most to send: whole batches only, but at least one.
        isolation_level : {"read_uncommitted", "read_committed"}
            ``read_committed`` ends at the first open transaction; the receiver has to skip the transactions in
            `Sent.aborted`.

        Returns
        -------
        Sent
            What was sent, and the offset to continue with.

        Raises
        ------
        OffsetOutOfRangeError
            For an offset below the log's start or above its end.
        OSError
            From the socket; it is not known how much was sent.
        """
        return send(self, socket, offset, max_bytes, isolation_level)

    # ---- producers ----

    def producer(self, producer_id: int) -> Producer:
        """Return an idempotent producer, which knows after a restart what it has appended.

        Parameters
        ----------
        producer_id : int
            Any number from 0 on that no other producer of this log uses; in Kafka the cluster assigns it.

        Returns
        -------
        Producer
            The same object for the same id.
        """
        with self._state.lock:
            found = self._producers.get(producer_id)
            if found is None:
                found = self._producers[producer_id] = Producer(self, producer_id)
            return found

    def open_transactions(self) -> dict[int, int]:
        """Return the producers with an open transaction, and its first offset: read_committed readers stop there."""
        with self._state.lock:
            return {p: state.first_txn_offset for p, state in self.producers.active.items() if state.has_open_txn}

    # ---- the end ----

    def close(self) -> None:
        """Flush everything and close the log cleanly; closing again does nothing.

        Raises
        ------
        StorageError
            The disk failed, now or before: records appended since the last `flush` may be lost if the machine crashes,
            and the next opening recovers the log. It is closed all the same.
        """
        if self._end():
            self._finish(self._close_in_order)

    def _close_in_order(self) -> None:
        self.engine.flush()
        self.engine.close()

    def close_handles(self) -> None:
        """Close the files without writing anything, like a crash; the next opening recovers the log."""
        if self._end():
            with self.undisturbed():
                self.engine.close_handles()
            self._ownership.leave(clean=False)

    def delete(self) -> None:
        """Remove the log with its folder, and close it."""
        if self._end():
            self._finish(self.engine.delete, gone=True)

    def move_away(self, new_name: str) -> None:
        """Close the log without writing anything and rename its folder, as for a deletion."""

        def move() -> None:
            self.engine.close_handles()
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
        parent = self.storage.split(self.folder)[0]
        self.storage.rename(self.folder, self.storage.join(parent, new_name))
        self.storage.sync_folder(parent)

    def _end(self) -> bool:
        """Refuse further work and wait for background tasks; return False if that is already done."""
        with self._state.lock:
            if self._state.is_closing:
                return False
            self._state.is_closing = True
        self._waiters.wake()
        self._ownership.stop_tasks()
        return True

    def _finish(self, work: Callable[[], None], *, gone: bool = False, new_name: str | None = None) -> None:
        clean = False
        try:
            with self.undisturbed(), self._state.lock:
                work()
            clean = True
        finally:
            if not clean:
                self.engine.close_handles()
            self._ownership.leave(clean=clean, gone=gone and clean, new_name=new_name if clean else None)

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
            _log.exception("%s: the log cannot be closed cleanly", self.folder)  # the first error is the one to show

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"offsets {self.log_start_offset} to {self.log_end_offset}"
        return f"EmbeddedLog({self.folder!r}, {state})"
