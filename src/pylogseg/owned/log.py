"""The log of a partition as an embedded queue, for one process and many threads."""

from __future__ import annotations

import dataclasses
import logging
import selectors
import socket as sockets
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from pylogseg.config import LogConfig
from pylogseg.env.storage import AppendFile
from pylogseg.errors import ClosedError, OffsetOutOfRangeError, RequestError, StorageError
from pylogseg.format.batches import scan
from pylogseg.log.append_result import Appended
from pylogseg.log.log import Log
from pylogseg.log.metrics import LogMetrics
from pylogseg.owned.batches import as_bytes, encode_for_append
from pylogseg.owned.ownership import Ownership
from pylogseg.owned.producer import Producer
from pylogseg.owned.slices import OpenLog, SliceReader, readable_end
from pylogseg.reading.column_names import check_columns
from pylogseg.reading.latest import MEMORY_BYTES
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.partition import Chunk
from pylogseg.reading.record import Record, records_of
from pylogseg.reading.selection import Moment, selection_of
from pylogseg.reading.state import IsolationLevel, Reading, ReadState
from pylogseg.tables.reader import Reader
from pylogseg.walker.windows import WINDOW_BYTES


class Sent(NamedTuple):
    """Result of sending to a socket.

    Attributes
    ----------
    bytes : int
        Size of the whole batches that were sent; 0 at the end of the log.
    next_offset : int
        The offset to continue with.
    aborted : list of (int, int) or None
        Producer id and first offset of the aborted transactions in what was sent; None unless read_committed was
        asked for.
    """

    bytes: int
    next_offset: int
    aborted: list[tuple[int, int]] | None


def send(log: Log, socket: sockets.socket, offset: int, max_bytes: int, isolation_level: IsolationLevel) -> Sent:
    """Send whole batches; see `EmbeddedLog.send_to`."""
    if socket.gettimeout() == 0:
        raise RequestError("non-blocking sockets are not supported; use a blocking socket or set a timeout")
    fetched = log.fetch(offset, max_bytes, "txn_committed" if isolation_level == "read_committed" else "high_watermark")
    batches = scan(fetched.data, crc=False).batches
    if not len(batches):
        return Sent(0, offset, fetched.aborted)
    size = int(batches.position[-1] + batches.size[-1])
    segment = log.segments.floor(fetched.start.segment)
    ssl = sys.modules.get("ssl")
    if ssl is not None and isinstance(socket, ssl.SSLSocket):  # this process has to encrypt the data
        socket.sendall(fetched.data[:size])
    elif segment is None or segment.base_offset != fetched.start.segment:
        socket.sendall(fetched.data[:size])  # deleted meanwhile, but the slice is still valid
    else:
        _send_file(segment.log, socket, fetched.start.position, size)
    return Sent(size, int(batches.last_offset[-1]) + 1, fetched.aborted)


def _send_file(file: AppendFile, socket: sockets.socket, position: int, size: int) -> None:
    end = position + size
    while position < end:
        try:
            count = file.send_to(socket, position, end - position)
        except BlockingIOError:  # a socket with a timeout is non-blocking underneath
            _wait(socket)
            continue
        if not count:
            raise StorageError(file.path, "send", f"it was truncated to {file.size} bytes while it was sent")
        position += count


def _wait(socket: sockets.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(socket, selectors.EVENT_WRITE)
        if not selector.select(socket.gettimeout()):
            raise TimeoutError("timed out")


class Follower:
    """Follows a log that is being written; iterate over it for `Record`s, over `chunks` for columns.

    Each iteration starts at the first offset again, and waits at the end of the log.
    """

    def __init__(
        self,
        owned: Ownership,
        offset: int | None,
        timeout: float | None,
        state: ReadState,
        columns: Sequence[str] | None,
    ) -> None:
        if columns is not None:
            check_columns(columns)
        if timeout is not None and timeout < 0:
            raise RequestError(f"timeout must be at least 0, got {timeout}")
        self._owned, self._offset, self._timeout = owned, offset, timeout
        self._state, self._columns = state, columns

    def chunks(self) -> Iterator[Chunk]:
        """Yield columns of the records as they are appended; none are empty.

        Raises
        ------
        OffsetOutOfRangeError
            The next record was deleted, or the log was truncated below it.
        CorruptionError, StorageError
            As of `EmbeddedLog.read`.
        """
        log, isolation_level = self._owned.log, self._state.reading.isolation_level
        position = log.log_start_offset if self._offset is None else self._offset
        while True:
            if not log.log_start_offset <= position <= log.log_end_offset:
                raise OffsetOutOfRangeError(
                    f"{log.folder}: cannot continue at offset {position}: "
                    f"the log has {log.log_start_offset} to {log.log_end_offset}"
                )
            end = readable_end(log, isolation_level)
            if position < end:
                reader = SliceReader(log, position, end, self._state)
                try:
                    for chunk in reader:
                        if len(chunk.columns):
                            yield chunk
                except ClosedError:  # closed between two reads: this is the end, unless the disk failed
                    log.state.check_disk()
                    return
                position = reader.position
            elif not self._wait_beyond(position):
                log.state.check_disk()
                return

    def _wait_beyond(self, position: int) -> bool:
        log, isolation_level = self._owned.log, self._state.reading.isolation_level
        return self._owned.wait_until(lambda: readable_end(log, isolation_level) > position, self._timeout)

    def __iter__(self) -> Iterator[Record]:
        for chunk in self.chunks():
            yield from records_of(chunk, self._columns)


_log = logging.getLogger(__name__)
#: Size of the first slice for a reader that may need little; it has at least one batch, and the next are larger.
_FIRST_BYTES = 4096


class EmbeddedLog:
    """A log that this program owns; opened by `pylogseg.open_log`, closed by `close` or at the end of a ``with``.

    Attributes
    ----------
    folder : str
        Of the partition.
    report : LoadReport
        The report of the opening.
    engine, ownership
        The `Log` itself and its owner: for the `LogManager` and the server.

    Notes
    -----
    Any number of threads may use one object. Appends and other changes are serialized; readers never
    wait. A forked process must not use it.
    """

    def __init__(self, ownership: Ownership) -> None:
        self.ownership, self.engine = ownership, ownership.log
        self.folder, self.report = self.engine.folder, self.engine.report
        self._state = self.engine.state
        self._producers: dict[int, Producer] = {}

    # ---- state ----

    @property
    def config(self) -> LogConfig:
        """The settings."""
        return self._state.config

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.engine.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.engine.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset up to which a consumer may read."""
        return self.engine.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which a read_committed consumer may read."""
        return self.engine.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on the disk."""
        return self.engine.recovery_point

    @property
    def leader_epoch(self) -> int:
        """The form of appended batches."""
        return self.ownership.leader_epoch

    @property
    def is_closed(self) -> bool:
        """True if it was closed, or is being closed."""
        return self._state.is_closing

    def metrics(self) -> LogMetrics:
        """Return a copy of the metrics since the log was opened."""
        metrics, segments = self._state.metrics, list(self.engine.segments)
        metrics.segments, metrics.size_bytes = len(segments), sum(segment.size for segment in segments)
        metrics.recovered_segments, metrics.cut_bytes = self.report.recovered_segments, self.report.cut_bytes
        with self._state.lock:
            return dataclasses.replace(metrics)

    # ---- appending ----

    def append(self, records: Any, *, compression: str | None = None, batch_bytes: int | None = None) -> Appended:
        """Append records.

        Parameters
        ----------
        records : iterable of records, RecordColumns, or Arrow data
            As `pylogseg.encode` takes them; those without a timestamp get the current time, and all get new offsets.
            A batch that is encoded already goes to `append_batch`.
        compression : str, optional
            The codec of batches encoded here, as `pylogseg.encode` takes it, instead of ``compression.type``.
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
            raise RequestError(f"{self.folder}: append takes records, not bytes: append_batch takes an encoded batch")
        now_ms = self.engine.clock.now_ms()
        encoded = encode_for_append(records, self.config, now_ms, compression=compression, batch_bytes=batch_bytes)
        return encoded.append_to(self.engine, self.leader_epoch)

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
            kind = type(data).__name__
            raise RequestError(f"{self.folder}: append_batch takes the bytes of a batch, not {kind}: see append")
        done = self.engine.append_as_leader(view, self.leader_epoch)
        if not done.valid_bytes:
            raise RequestError(f"{self.folder}: the {view.nbytes} bytes hold no whole batch")
        return done

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
        """Drop all batches that hold an offset or come after it; return whether there were any.

        The log then ends at `offset`. The checkpoints are lowered with it.
        """
        return self.engine.truncate_to(offset)

    def flush(self, *, force_active: bool = True) -> None:
        """Flush the log to the disk, with `force_active` an empty active segment too."""
        self.engine.flush(force_active=force_active)

    # ---- reading ----

    def read(
        self,
        offset: int | tuple[int | None, int | None] | None = None,
        timestamp: Moment | tuple[Moment | None, Moment | None] | None = None,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
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
        reading = Reading(
            isolation_level, control=control, check_crc=check_crc, max_decompressed_bytes=max_decompressed_bytes
        )
        selection = selection_of(
            offset,
            timestamp,
            limit=limit,
            latest=latest,
            tombstones=tombstones,
            latest_memory_bytes=latest_memory_bytes,
        )
        self._state.check_usable()
        scope = ReadScope.of([OpenLog(self.engine, readable_end(self.engine, isolation_level))], selection, reading)
        scope.state.first_window_bytes = WINDOW_BYTES if limit is None or latest else _FIRST_BYTES
        return Reader(scope, columns)

    def follow(
        self,
        offset: int | None = None,
        *,
        timeout: float | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
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
        reading = Reading(
            isolation_level, control=control, check_crc=check_crc, max_decompressed_bytes=max_decompressed_bytes
        )
        return Follower(self.ownership, offset, timeout, reading.start(), columns)

    def send_to(
        self,
        socket: sockets.socket,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
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
            From the socket; nobody knows how many bytes went out.
        """
        return send(self.engine, socket, offset, max_bytes, isolation_level)

    # ---- producers ----

    def producer(self, producer_id: int) -> Producer:
        """Return an idempotent producer; after a restart it continues from the records that it has appended.

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
            producer = self._producers.get(producer_id)
            if producer is None:
                producer = self._producers[producer_id] = Producer(self.ownership, producer_id)
            return producer

    def open_transactions(self) -> dict[int, int]:
        """Return the producers with an open transaction, and its first offset: read_committed readers stop there."""
        with self._state.lock:
            active = self.engine.producers.active
            return {number: state.first_txn_offset for number, state in active.items() if state.has_open_txn}

    # ---- the end ----

    def close(self) -> None:
        """Flush everything and close the log cleanly; closing again does nothing.

        Raises
        ------
        StorageError
            The disk failed, now or before: records appended since the last `flush` may be lost if the machine crashes,
            and the next opening recovers the log. It is closed all the same.
        """
        self.ownership.close()

    def close_handles(self) -> None:
        """Close the files without writing anything, like a crash; the next opening recovers the log."""
        self.ownership.close_handles()

    def delete(self) -> None:
        """Remove the log with its folder, and close it."""
        self.ownership.delete()

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
