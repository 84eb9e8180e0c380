"""An idempotent producer of one log, and its transactions."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from pylogseg.errors import PylogsegError, RequestError, TransactionStateError
from pylogseg.format.control_batches import marker_batch
from pylogseg.log.append_result import Appended
from pylogseg.log.producer_state import Origin, ProducerState
from pylogseg.owned.batches import Stamp, as_bytes, encode_for_append
from pylogseg.owned.ownership import Ownership

_log = logging.getLogger(__name__)
_MOST_SEQUENCES = 2**31


class Producer:
    """Appends numbered records, so that repeated ones are detected; returned by `EmbeddedLog.producer`.

    The log remembers the *sequence* of each producer, which is the number of its last record, and its last five batches
    (after a restart the last one), until `producer_id_expiration_ms` after the timestamp of its last record.

    Attributes
    ----------
    producer_id : int

    Notes
    -----
    Threads may share it; their appends are serialized.
    """

    def __init__(self, owned: Ownership, producer_id: int) -> None:
        if not 0 <= producer_id < 2**63:
            raise RequestError(f"expected a producer id between 0 and 2^63 - 1, got {producer_id}")
        self.producer_id = producer_id
        self._owned, self._log = owned, owned.log
        self._mutex = threading.RLock()
        self._epoch, self._next = 0, 0
        self._in_transaction = False

    @property
    def _state(self) -> ProducerState | None:
        state = self._log.producers.active.get(self.producer_id)
        if state is not None:  # the log's state wins, and is kept in case the log forgets the producer
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
        """The number of the next record: how many are in the log, modulo 2^31."""
        _ = self._state
        return self._next

    @property
    def has_open_transaction(self) -> bool:
        """True if the log has records of it that are neither committed nor aborted, as after a crash."""
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
        """Append records, in the open transaction if there is one.

        Parameters
        ----------
        records : iterable of records, RecordColumns, or Arrow data
            As in `EmbeddedLog.append`.
        sequence : int, optional
            Of the first record. To repeat an append whose result was lost, pass its sequence and the same records. By
            default the next one.
        compression, batch_bytes
            As in `EmbeddedLog.append`; for a repeated append the same as at first.

        Returns
        -------
        Appended
            `is_duplicate` if all records were already in the log.

        Raises
        ------
        OutOfOrderSequenceError
            If `sequence` is neither the next one nor that of a remembered batch.
        RequestError, StorageError
            As in `EmbeddedLog.append`.
        """
        if as_bytes(records) is not None:
            raise RequestError("an encoded batch already names its producer: append it with EmbeddedLog.append_batch")
        with self._mutex:
            following = self.next_sequence
            first = following if sequence is None else sequence
            if not 0 <= first < _MOST_SEQUENCES:
                raise RequestError(f"expected a sequence between 0 and 2^31 - 1, got {first}")
            log = self._log
            stamp = Stamp(self.producer_id, self._epoch, first, self._in_transaction)
            encoded = encode_for_append(
                records,
                log.config,
                log.clock.now_ms(),
                compression=compression,
                batch_bytes=batch_bytes,
                stamp=stamp,
            )
            return encoded.append_to(log, self._owned.leader_epoch)

    # ---- transactions ----

    def begin(self) -> None:
        """Begin a transaction: records appended from now on take effect when it is committed.

        Raises
        ------
        TransactionStateError
            If one is already open, from this object or from before a restart.
        """
        with self._mutex:
            state = self._state
            if self._in_transaction or (state is not None and state.has_open_txn):
                since = f", since offset {state.first_txn_offset}" if state is not None and state.has_open_txn else ""
                raise TransactionStateError(
                    f"{self._log.folder}: producer {self.producer_id} has an open transaction{since}: "
                    "commit() or abort() it first"
                )
            self._in_transaction = True

    def commit(self) -> None:
        """Commit the transaction: read_committed readers see it from now on.

        Raises
        ------
        TransactionStateError
            If none is open.
        """
        self._end("commit")

    def abort(self) -> None:
        """Abort the transaction, or one that a crash left open: read_committed readers never see it.

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
                epoch = self._owned.leader_epoch
                log.append_as_leader(marker, epoch, origin=Origin.COORDINATOR, in_place=True)
            elif not self._in_transaction:
                raise TransactionStateError(f"{log.folder}: producer {self.producer_id} has no transaction to {kind}")
            self._in_transaction = False

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Producer]:
        """Run a ``with`` block in a transaction, which its end commits and an error aborts."""
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
