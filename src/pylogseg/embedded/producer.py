"""An idempotent producer of one log, and its transactions."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pylogseg.embedded.batches import Stamp, as_bytes, encode_batches
from pylogseg.errors import PylogsegError, RequestError, TransactionStateError
from pylogseg.format.control_batches import marker_batch
from pylogseg.log.log import Appended
from pylogseg.log.producer_state import Origin, ProducerState

if TYPE_CHECKING:
    from pylogseg.embedded.log import EmbeddedLog

_log = logging.getLogger(__name__)
_MOST_SEQUENCES = 2**31


class Producer:
    """Appends whose records are numbered, so that what is sent again is found; made by `EmbeddedLog.producer`.

    The log remembers of each producer the number of its last record, the *sequence*, and its last five batches (its
    last one after a restart). It does so for `producer_id_expiration_ms` beyond the timestamp of its last record.

    Attributes
    ----------
    producer_id : int

    Notes
    -----
    Threads may share it; their appends come one after the other.
    """

    def __init__(self, log: EmbeddedLog, producer_id: int) -> None:
        if not 0 <= producer_id < 2**63:
            raise RequestError(f"a producer id is a number from 0 to 2^63 - 1, not {producer_id}")
        self.producer_id = producer_id
        self._log = log
        self._mutex = threading.RLock()
        self._epoch, self._next = 0, 0
        self._in_transaction = False

    @property
    def _state(self) -> ProducerState | None:
        state = self._log.producers.active.get(self.producer_id)
        if state is not None:  # what the log says counts, and is kept for when it has forgotten the producer
            self._epoch = max(state.producer_epoch, 0)
            self._next = (state.last_sequence + 1) % _MOST_SEQUENCES
        return state

    @property
    def epoch(self) -> int:
        """The producer's epoch."""
        _ = self._state
        return self._epoch

    @property
    def next_sequence(self) -> int:
        """How many of its records are in the log, modulo 2^31: the number of the next one."""
        _ = self._state
        return self._next

    @property
    def has_open_transaction(self) -> bool:
        """Whether records of its are in the log that are neither committed nor aborted; a crash leaves such."""
        state = self._state
        return state is not None and state.has_open_txn

    def append(
        self,
        records: Any,
        *,
        sequence: int | None = None,
        compression: str | None = None,
        batch_bytes: int | None = None,
    ) -> Appended:
        """Append records, in the transaction that was begun or without one.

        Parameters
        ----------
        records : iterable of records, RecordColumns, or Arrow data
            As of `EmbeddedLog.append`.
        sequence : int, optional
            Of the first record: give that of an append whose answer was lost, and the same records, to send it again.
            The next one if not given.
        compression, batch_bytes
            As of `EmbeddedLog.append`; for a repeated append the same as at first.

        Returns
        -------
        Appended
            `is_duplicate` if all was in the log already.

        Raises
        ------
        OutOfOrderSequenceError
            If `sequence` is neither the next one nor that of a batch that is remembered.
        RequestError, StorageError
            As of `EmbeddedLog.append`.
        """
        if as_bytes(records) is not None:
            raise RequestError("a batch has its producer in it already: use the append of the log")
        with self._mutex:
            following = self.next_sequence
            first = following if sequence is None else sequence
            if not 0 <= first < _MOST_SEQUENCES:
                raise RequestError(f"a sequence is a number from 0 to 2^31 - 1, not {first}")
            log = self._log
            stamp = Stamp(self.producer_id, self._epoch, first, self._in_transaction)
            encoded = encode_batches(
                records,
                log.config,
                log.clock.now_ms(),
                compression=compression,
                batch_bytes=batch_bytes,
                stamp=stamp,
            )
            return log.append_encoded(encoded)

    # ---- transactions ----

    def begin(self) -> None:
        """Begin a transaction: what is appended from now on counts when it is committed.

        Raises
        ------
        TransactionStateError
            If one is open, by this object or since before a restart.
        """
        with self._mutex:
            state = self._state
            if self._in_transaction or (state is not None and state.has_open_txn):
                since = f", since offset {state.first_txn_offset}" if state is not None and state.has_open_txn else ""
                raise TransactionStateError(
                    f"{self._log.folder}: producer {self.producer_id} has a transaction open{since}: "
                    "commit() or abort() it first"
                )
            self._in_transaction = True

    def commit(self) -> None:
        """End the transaction: readers of committed records see it from now on.

        Raises
        ------
        TransactionStateError
            If none is open.
        """
        self._end("commit")

    def abort(self) -> None:
        """End the transaction, also one that a crash left: readers of committed records never see it.

        Raises
        ------
        TransactionStateError
            If none is open.
        """
        self._end("abort")

    def _end(self, kind: str) -> None:
        with self._mutex:
            state = self._state
            log = self._log
            if state is not None and state.has_open_txn:
                marker = marker_batch(
                    "commit" if kind == "commit" else "abort",
                    base_offset=0,
                    timestamp_ms=log.clock.now_ms(),
                    producer_id=self.producer_id,
                    producer_epoch=state.producer_epoch,
                    coordinator_epoch=max(state.coordinator_epoch, 0),
                )
                log.append_as_leader(marker, log.leader_epoch, origin=Origin.COORDINATOR, in_place=True)
            elif not self._in_transaction:
                raise TransactionStateError(f"{log.folder}: producer {self.producer_id} has no transaction to {kind}")
            self._in_transaction = False

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Producer]:
        """A transaction for a ``with`` statement: committed at its end, aborted by an error."""
        self.begin()
        try:
            yield self
        except BaseException:
            try:
                self.abort()
            except PylogsegError:
                _log.exception("%s: the transaction of producer %d stays open", self._log.folder, self.producer_id)
            raise
        self.commit()

    def __repr__(self) -> str:
        return f"Producer({self.producer_id}, epoch {self.epoch}, next sequence {self.next_sequence})"
