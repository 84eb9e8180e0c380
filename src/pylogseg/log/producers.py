"""The producers of a partition: checks of their appends, open transactions, and snapshots on disk.

Rules: KIP-98, KIP-360, KIP-890; `docs/format.md`, "Producer snapshot".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from pylogseg._native._append import Batch
from pylogseg.errors import FencedError, RequestError, TransactionStateError
from pylogseg.log.producer_snapshots import SnapshotFiles, Snapshots, entry_of, state_of
from pylogseg.log.producer_state import (
    NOTHING,
    UNKNOWN_VERSION,
    CachedBatch,
    Checked,
    CompletedTxn,
    Origin,
    ProducerAppend,
    ProducerState,
    Txn,
    Verification,
)
from pylogseg.log.transaction_markers import marker_of

#: Time beyond its timeout after which a transaction counts as hanging.
LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000

_GUARDS = itertools.count(1)


class Producers:
    """The producers of one partition.

    Parameters
    ----------
    storage : Storage
        Where the snapshots lie.
    folder : str
        Of the partition.
    expiration_ms : int
        ``producer.id.expiration.ms``.
    transaction_timeout_ms : int
        ``transaction.max.timeout.ms``.
    verification : bool
        Whether an append that opens a transaction must present a guard from `start_verification`.
    names : iterable of str, optional
        Of the files in the folder, if they are known.

    Attributes
    ----------
    active : dict of int to ProducerState
        By producer id. To be read, not changed.
    map_end_offset : int
        The state covers the log up to here.
    snapshots : Snapshots

    Notes
    -----
    Nothing here locks: the log's lock covers it, but for `has_late_transaction`.
    """

    def __init__(
        self,
        storage: SnapshotFiles,
        folder: str,
        *,
        expiration_ms: int = 86_400_000,
        transaction_timeout_ms: int = 900_000,
        verification: bool = False,
        names: Iterable[str] | None = None,
    ) -> None:
        self.expiration_ms = expiration_ms
        self.transaction_timeout_ms = transaction_timeout_ms
        self.verification = verification
        self.active: dict[int, ProducerState] = {}
        self.map_end_offset = 0
        self.snapshots = Snapshots(storage, folder, names)
        self._last_snapshot_offset = 0
        self._open: dict[int, Txn] = {}
        self._unreplicated: dict[int, Txn] = {}
        self._verifications: dict[int, Verification] = {}
        self._oldest_txn_timestamp = -1

    # ---- appends ----

    def check(
        self,
        batches: Iterable[Batch],
        records: Any,
        origin: Origin,
        *,
        segment_base: int = -1,
        position: int = -1,
        guard: int = 0,
        transaction_version: int = UNKNOWN_VERSION,
    ) -> Checked:
        """Check the batches of an append, which have their offsets; changes nothing but verifications.

        Parameters
        ----------
        batches : iterable of Batch
            All of the append.
        records : buffer
            The bytes of the batches.
        origin : Origin
            Who appends.
        segment_base, position : int
            Where the first of them will lie.
        guard : int
            From `start_verification`; 0 none.
        transaction_version : int
            Of the markers.

        Raises
        ------
        FencedError, OutOfOrderSequenceError, TransactionStateError, RequestError
            As `ProducerAppend`; TransactionStateError also for a missing guard.
        """
        appends: dict[int, ProducerAppend] = {}
        completed: list[CompletedTxn] = []
        for batch in batches:
            producer_id = batch.producer_id
            if producer_id < 0:
                continue
            state = self.active.get(producer_id)
            if origin is Origin.CLIENT and state is not None:
                found = state.find(batch.producer_epoch, batch.base_sequence, batch.last_sequence)
                if found is not None:
                    return Checked(found, list(appends.values()), completed)
            if batch.is_transactional and (origin is Origin.CLIENT or origin is Origin.COORDINATOR):
                self._check_transaction(batch, state, guard)
            where = position + batch.position if position >= 0 else -1
            done = self._add(batch, records, 0, appends, origin, segment_base, where, transaction_version)
            if done is not None:
                completed.append(done)
        return Checked(None, list(appends.values()), completed) if appends else NOTHING

    def _check_transaction(self, batch: Batch, state: ProducerState | None, guard: int) -> None:
        """Refuse the first batch of a transaction if it has an old epoch or was not verified."""
        if self.has_open_txn(batch.producer_id, batch.producer_epoch):
            return
        self._check_known_epoch(batch.producer_id, batch.producer_epoch, state)
        if self.verification and not batch.is_control:
            entry = self._verifications.get(batch.producer_id)
            if entry is None or guard != entry.guard:
                raise TransactionStateError(
                    f"offset {batch.base_offset}: the transaction of producer {batch.producer_id} was not verified"
                )

    def _check_known_epoch(self, producer_id: int, epoch: int, state: ProducerState | None) -> None:
        if state is not None and epoch < state.producer_epoch:
            raise FencedError(
                f"epoch {epoch} of producer {producer_id} is below {state.producer_epoch}, the last one seen"
            )

    def _add(
        self,
        batch: Batch,
        records: Any,
        records_at: int,
        appends: dict[int, ProducerAppend],
        origin: Origin,
        segment_base: int = -1,
        position: int = -1,
        transaction_version: int = UNKNOWN_VERSION,
    ) -> CompletedTxn | None:
        producer_id = batch.producer_id
        append = appends.get(producer_id)
        if append is None:
            append = appends[producer_id] = self.prepare(producer_id, origin)
        completed = None
        if not batch.is_control:
            append.add_data(batch, segment_base, position)
        else:
            marker = marker_of(records, batch, records_at)
            if marker is not None:
                completed = append.add_marker(batch, marker, transaction_version)
        if self._verifications and batch.is_transactional:
            self._drop_verification(batch)
        return completed

    def prepare(self, producer_id: int, origin: Origin) -> ProducerAppend:
        """Begin to check the batches of one producer."""
        state = self.active.get(producer_id)
        return ProducerAppend(
            ProducerState(producer_id) if state is None else state, origin, self._verifications.get(producer_id)
        )

    def update(self, append: ProducerAppend) -> None:
        """Apply an append, once its bytes are written."""
        updated = append.updated
        state = self.active.get(updated.producer_id)
        if state is None:
            self.active[updated.producer_id] = updated
            self.snapshots.note_count(len(self.active))
        else:
            state.update(updated)
        for txn in append.started:
            self._open[txn.first_offset] = txn
        if self._open:
            self._note_oldest_txn()

    def in_order(self, producer_id: int) -> tuple[int, int, int, bool] | None:
        """Return what its next batch has to match to be in order: id, epoch, last sequence, open transaction."""
        state = self.active.get(producer_id)
        if state is None or not state.batches or self._verifications:
            return None
        return producer_id, state.producer_epoch, state.last_sequence, state.has_open_txn

    def extend(self, written: Iterable[tuple[int, list[tuple[int, int, int, int]]]]) -> None:
        """Remember batches that were in order, by producer id; the numbers are the fields of `CachedBatch`."""
        for producer_id, batches in written:
            state = self.active[producer_id]
            for batch in batches:
                state.add_batch(state.producer_epoch, CachedBatch(*batch))
        if self._open:
            self._note_oldest_txn()

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """Return the last stable offset for the transaction index when a transaction ends.

        It is the first offset of the oldest transaction of another producer, else the offset after the marker.
        """
        others = [offset for offset, txn in self._open.items() if txn.producer_id != completed.producer_id]
        return min(others) if others else completed.last_offset + 1

    def complete(self, completed: CompletedTxn) -> None:
        """End a transaction; it holds back readers until the high watermark has passed its marker."""
        txn = self._open.pop(completed.first_offset, None)
        if txn is None:
            raise RequestError(f"no open transaction begins at offset {completed.first_offset}")
        txn.last_offset = completed.last_offset
        self._unreplicated[completed.first_offset] = txn
        self._note_oldest_txn()

    def _note_oldest_txn(self) -> None:
        state = self.active.get(self._open[min(self._open)].producer_id) if self._open else None
        self._oldest_txn_timestamp = -1 if state is None else state.last_timestamp

    # ---- replay of what is written ----

    def replay_pieces(self, pieces: Iterable[tuple[Iterable[Batch], Any, int]]) -> None:
        """Replay a stretch of one segment as a load does: states and transactions change at its end.

        Parameters
        ----------
        pieces : iterable of (batches, buffer, int)
            The batches of producers, in order; the buffer that holds them; where its byte 0 lies in the file.

        Notes
        -----
        `map_end_offset` stays as it is.
        """
        appends: dict[int, ProducerAppend] = {}
        completed: list[CompletedTxn] = []
        for batches, buffer, file_position in pieces:
            for batch in batches:
                done = self._add(batch, buffer, file_position, appends, Origin.REPLICATION, transaction_version=0)
                if done is not None:
                    completed.append(done)
        for append in appends.values():
            self.update(append)
        for done in completed:
            self.complete(done)

    def replay_one(self, batch: Batch, buffer: Any, file_position: int = 0) -> tuple[CompletedTxn, int] | None:
        """Replay one batch as the recovery of a segment does.

        Parameters
        ----------
        batch : Batch
            Of a segment, in order.
        buffer : buffer
            That holds it.
        file_position : int
            Position of the buffer's first byte in the file that the batch's position refers to.

        Returns
        -------
        tuple of (CompletedTxn, int) or None
            A transaction that ends, and its last stable offset for the transaction index.
        """
        ended = None
        if batch.producer_id >= 0:
            append = self.prepare(batch.producer_id, Origin.REPLICATION)
            completed = None
            if not batch.is_control:
                append.add_data(batch)
            else:
                marker = marker_of(buffer, batch, file_position)
                if marker is not None:
                    completed = append.add_marker(batch, marker)
            self.update(append)
            if completed is not None:
                ended = completed, self.last_stable_offset(completed)
                self.complete(completed)
        self.map_end_offset = batch.last_offset + 1
        return ended

    # ---- what holds back readers ----

    @property
    def is_empty(self) -> bool:
        """True if no producer is known and no ended transaction waits for the high watermark."""
        return not self.active and not self._unreplicated

    @property
    def first_unstable(self) -> Txn | None:
        """The first transaction that is open or whose marker the high watermark has not passed."""
        firsts = [txns[min(txns)] for txns in (self._open, self._unreplicated) if txns]
        # Of two that begin at the same offset, the one that has ended.
        return min(reversed(firsts), key=lambda txn: txn.first_offset) if firsts else None

    @property
    def first_undecided_offset(self) -> int:
        """First offset of the oldest open transaction; -1 if there is none."""
        return min(self._open) if self._open else -1

    def has_open_txn(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a producer has a transaction open in this epoch."""
        state = self.active.get(producer_id)
        return state is not None and state.has_open_txn and state.producer_epoch == producer_epoch

    def has_late_transaction(self, now_ms: int) -> bool:
        """Return whether the oldest transaction has been open for longer than allowed. Any thread may call it."""
        last = self._oldest_txn_timestamp
        return last > 0 and now_ms - last > self.transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def on_high_watermark(self, offset: int) -> None:
        """Forget transactions whose markers lie below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {
                first: txn for first, txn in self._unreplicated.items() if not 0 <= txn.last_offset < offset
            }

    # ---- verification (KIP-890) ----

    def start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, *, bumps_epoch: bool, now_ms: int
    ) -> int:
        """Begin to verify a transaction.

        Returns
        -------
        int
            The guard that the append must present; 0 if the transaction is already open.

        Raises
        ------
        FencedError
            If the epoch is below the one last seen.
        """
        self._check_known_epoch(producer_id, producer_epoch, self.active.get(producer_id))
        if self.has_open_txn(producer_id, producer_epoch):
            return 0
        entry = self._verifications.get(producer_id)
        if entry is None:
            entry = Verification(next(_GUARDS), now_ms, sequence, producer_epoch, bumps_epoch)
            self._verifications[producer_id] = entry
        entry.note(sequence, producer_epoch)
        return entry.guard

    def guard(self, producer_id: int) -> int:
        """Return the guard of a pending verification; 0 if there is none."""
        entry = self._verifications.get(producer_id)
        return 0 if entry is None else entry.guard

    def _drop_verification(self, batch: Batch) -> None:
        entry = self._verifications.get(batch.producer_id)
        # A producer that bumps its epoch may have begun its next transaction before the marker of the last arrived.
        next_began = (
            entry is not None
            and entry.bumps_epoch
            and batch.is_control
            and batch.producer_epoch == entry.producer_epoch
        )
        if not next_began:
            self._verifications.pop(batch.producer_id, None)

    # ---- expiry, snapshots ----

    def expire(self, now_ms: int) -> None:
        """Forget producers and verifications that were idle for too long, but no producer with an open transaction."""
        for producer_id in [p for p, state in self.active.items() if self._is_expired(state, now_ms)]:
            del self.active[producer_id]
        for producer_id in [
            p for p, entry in self._verifications.items() if now_ms - entry.timestamp_ms >= self.expiration_ms
        ]:
            del self._verifications[producer_id]

    def _is_expired(self, state: ProducerState, now_ms: int) -> bool:
        return state.first_txn_offset < 0 and now_ms - state.last_timestamp >= self.expiration_ms

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Write a snapshot at `map_end_offset` if that is above the last one; return its path, or None."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        path = self.snapshots.write(self.map_end_offset, map(entry_of, self.active.values()), sync=sync)
        self._last_snapshot_offset = self.map_end_offset
        return path

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the last good snapshot inside a range of the log; remove those outside.

        If the state ends at the end of the range, it stays as it is.
        """
        for offset in self.snapshots.offsets:
            if not log_start_offset < offset <= log_end_offset:
                self.snapshots.remove(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start(log_start_offset)
            return
        self._clear()
        found, entries = self.snapshots.load_latest()
        for entry in entries:
            state = state_of(entry)
            if not self._is_expired(state, now_ms):
                self.active[state.producer_id] = state
                if state.has_open_txn:
                    self._open[state.first_txn_offset] = Txn(state.producer_id, state.first_txn_offset)
        self.snapshots.note_count(len(self.active))
        self._last_snapshot_offset = self.map_end_offset = log_start_offset if found is None else found
        self._note_oldest_txn()

    def truncate_fully(self, offset: int) -> None:
        """Forget all producers and remove all snapshots; the state ends at `offset`."""
        self._clear()
        for snapshot in self.snapshots.offsets:
            self.snapshots.remove(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def on_log_start(self, log_start_offset: int) -> None:
        """Forget the ended transactions below a new log start offset, but no producer."""
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def _clear(self) -> None:
        self.active.clear()
        self._open.clear()
        self._unreplicated.clear()
        self._oldest_txn_timestamp = -1
