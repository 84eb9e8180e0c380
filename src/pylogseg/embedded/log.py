"""The log of a partition as an embedded queue: records in, records out, one writer, many threads."""

from __future__ import annotations

import logging
import socket as sockets
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from pylogseg.embedded.batches import Encoded, as_bytes, encode_batches
from pylogseg.embedded.follow import Follower
from pylogseg.embedded.owned import OwnedLog
from pylogseg.embedded.producer import Producer
from pylogseg.embedded.sending import Sent, send
from pylogseg.embedded.slices import OpenLog
from pylogseg.errors import RequestError, StorageError
from pylogseg.log.log import Appended
from pylogseg.log.retention import apply_retention
from pylogseg.reading import partition as reading
from pylogseg.reading.latest import MEMORY_BYTES, Latest
from pylogseg.reading.stream import Moment, Reader, reader_of
from pylogseg.reading.windows import WINDOW_BYTES

_log = logging.getLogger(__name__)
#: First slice for a reader that may want little; it has one batch at least, and the next are larger and larger.
_FIRST_BYTES = 4096


class EmbeddedLog(OwnedLog):
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
        self._producers: dict[int, Producer] = {}
        super().__init__(*parts)

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
            Nothing was appended, unless records made several batches: each is judged alone, the others are in the log
            then, and the message tells the records of the first that was refused.
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
        encoded = encode_batches(
            data, self.config, self.clock.now_ms(), compression=compression, batch_bytes=batch_bytes
        )
        return self.append_encoded(encoded)

    def append_encoded(self, encoded: Encoded) -> Appended:
        """Append the batches that records became, with nothing between them.

        Returns
        -------
        Appended
            From the first to the last; a duplicate if all are.

        Raises
        ------
        RequestError
            Of the first batch that is refused, with the numbers of its records.
        StorageError
            If the disk fails.
        """
        if not encoded.counts:
            return Appended(-1, -1, -1, -1, 0, self.log_start_offset)
        if len(encoded.counts) == 1:
            return self.append_as_leader(encoded.data, self.leader_epoch, in_place=True)
        return encoded.answer(self.append_many(encoded.data, self.leader_epoch, in_place=True))

    def apply_retention(self) -> int:
        """Delete the segments that `retention.ms`, `retention.bytes` and the log's start let go.

        Nothing does that by itself.

        Returns
        -------
        int
            How many went.
        """
        return apply_retention(self)

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
        latest: bool = False,
        tombstones: bool = False,
        latest_memory_bytes: int = MEMORY_BYTES,
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
        latest, tombstones, latest_memory_bytes
            The last record of each key alone, as of `pylogseg.read`. The log is read twice; `Reader.gaps` tells of
            records that a cleaning removed in between, since newer ones of their keys had come.

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
            first_window_bytes=WINDOW_BYTES if limit is None or latest else _FIRST_BYTES,
        )
        self._guarded(lambda: None)  # a closed log says so here
        source = OpenLog(self, self.readable_end(isolation))
        wish = Latest(tombstones, latest_memory_bytes) if latest else None
        return reader_of([source], offset, timestamp, limit, options, columns, wish)

    def follow(
        self,
        offset: int | None = None,
        *,
        timeout: float | None = None,
        isolation: reading.Isolation = "read_uncommitted",
        columns: Sequence[str] | None = None,
        control: bool = False,
        check_crc: bool = True,
        max_decompressed_bytes: int = 64 << 20,
    ) -> Follower:
        """Read on as records come.

        Parameters
        ----------
        offset : int, optional
            Of the first record wanted, which may be the next that is appended (``log.high_watermark``); where the log
            begins if not given.
        timeout : float, optional
            Seconds without anything new after which the iteration ends; it waits for ever if not given.
        isolation, columns, control, check_crc, max_decompressed_bytes
            As of `read`.

        Returns
        -------
        Follower
            Iterate over it for `Record`s, or over `Follower.chunks` for columns. It ends when the log is closed.

        Raises
        ------
        RequestError
            For arguments that make no sense.
        OffsetOutOfRange
            While iterating: what was to come next has been deleted or truncated.
        CorruptionError, StorageError
            While iterating.
        """
        self._guarded(lambda: None)
        options = reading.ReadOptions(
            isolation, control=control, check_crc=check_crc, limit_bytes=max_decompressed_bytes
        )
        return Follower(self, offset, timeout, options, columns)

    def send_to(
        self,
        socket: sockets.socket,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        isolation: reading.Isolation = "read_uncommitted",
    ) -> Sent:
        """Send batches to a socket as they lie in the file, by ``sendfile``.

        Parameters
        ----------
        socket : socket
            A stream that blocks, with a timeout or without.
        offset : int
            Of the first record wanted: the batch that holds it is the first that is sent.
        max_bytes : int
            Only whole batches are sent, no more than this, but at least one.
        isolation : {"read_uncommitted", "read_committed"}
            ``read_committed`` ends at the first open transaction; who receives the batches leaves out what
            `Sent.aborted` says.

        Returns
        -------
        Sent
            What went, and the offset to go on with.

        Raises
        ------
        OffsetOutOfRange
            For an offset below the log's start or above its end.
        OSError
            Of the socket, as it is; how much went before is not known then.
        """
        return send(self, socket, offset, max_bytes, isolation)

    # ---- producers ----

    def producer(self, producer_id: int) -> Producer:
        """Append as an idempotent producer, which knows after a restart how far it came.

        Parameters
        ----------
        producer_id : int
            Any number from 0 on that no other producer of this log has; in Kafka the cluster gives it.

        Returns
        -------
        Producer
            The same for the same number.
        """
        with self._lock:
            found = self._producers.get(producer_id)
            if found is None:
                found = self._producers[producer_id] = Producer(self, producer_id)
            return found

    def open_transactions(self) -> dict[int, int]:
        """Producers with an open transaction, and its first offset: what holds back read_committed readers."""
        with self._lock:
            return {p: state.first_txn_offset for p, state in self.producers.active.items() if state.has_open_txn}

    # ---- the end ----

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
