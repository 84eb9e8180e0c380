"""The producers of a partition: checks of their appends, open transactions, and snapshots on disk.

Rules: KIP-98, KIP-360, KIP-890; `docs/format.md`, "Producer snapshot".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pylogseg._native._append import Batch
from pylogseg.errors import FencedError, RequestError
from pylogseg.format.files.snapshot import ProducerEntry
from pylogseg.log.producer_snapshots import SnapshotFiles, Snapshots, entry_of, state_of_producer
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
)
from pylogseg.log.transaction_markers import marker_of


def _in_order(appends: dict[int, ProducerAppend]) -> list[ProducerAppend]:
    """Return producers' appends in the order in which Kafka lists them: a snapshot on disk keeps the order.

    Kafka collects them by ``HashMap.computeIfAbsent``, which puts a new key at the head of its bucket.
    """
    return list(reversed(appends.values()))


class Producers:
    """The producers of one partition; the log's lock covers everything here."""

    def __init__(
        self,
        storage: SnapshotFiles,
        folder: str,
        *,
        expiration_ms: int = 86_400_000,
        names: Iterable[str] | None = None,
    ) -> None:
        self.expiration_ms = expiration_ms
        self.active: dict[int, ProducerState] = {}  #: By producer id. To be read, not changed.
        self.map_end_offset = 0  #: The state covers the log up to here.
        self.snapshots = Snapshots(storage, folder, names)
        self._last_snapshot_offset = 0
        self._open: dict[int, Txn] = {}
        self._unreplicated: dict[int, Txn] = {}

    # ---- appends ----

    def check(
        self,
        batches: Iterable[Batch],
        records: Any,
        origin: Origin,
        *,
        segment_base: int = -1,
        position: int = -1,
        transaction_version: int = UNKNOWN_VERSION,
    ) -> Checked:
        """Check the batches of an append, which have their offsets, the place of the first too; changes nothing.

        Errors are those of `ProducerAppend`.
        """
        appends: dict[int, ProducerAppend] = {}
        completed: list[CompletedTxn] = []
        for batch in batches:
            producer_id = batch.producer_id
            if producer_id < 0:
                continue
            state = self.active.get(producer_id)
            if origin is Origin.CLIENT and state is not None:
                again = state.find(batch.producer_epoch, batch.base_sequence, batch.last_sequence)
                if again is not None:
                    return Checked(again, _in_order(appends), completed)
            if batch.is_transactional and (origin is Origin.CLIENT or origin is Origin.COORDINATOR):
                self._check_transaction(batch, state)
            where = position + batch.position if position >= 0 else -1
            done = self._add(batch, records, 0, appends, origin, segment_base, where, transaction_version)
            if done is not None:
                completed.append(done)
        return Checked(None, _in_order(appends), completed) if appends else NOTHING

    def _check_transaction(self, batch: Batch, state: ProducerState | None) -> None:
        """Refuse the first batch of a transaction if it has an old epoch."""
        if state is not None and batch.producer_epoch < state.producer_epoch:
            raise FencedError(
                f"epoch {batch.producer_epoch} of producer {batch.producer_id} is below {state.producer_epoch}, "
                "the last one seen"
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
        return completed

    def prepare(self, producer_id: int, origin: Origin) -> ProducerAppend:
        """Begin to check the batches of one producer."""
        state = self.active.get(producer_id)
        return ProducerAppend(ProducerState(producer_id) if state is None else state, origin)

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

    def in_order(self, producer_id: int) -> tuple[int, int, int, bool] | None:
        """Return id, epoch, last sequence and open transaction: the next batch of the producer has to match these."""
        state = self.active.get(producer_id)
        if state is None or not state.batches:
            return None
        return producer_id, state.producer_epoch, state.last_sequence, state.has_open_txn

    def extend(self, written: Iterable[tuple[int, list[tuple[int, int, int, int]]]]) -> None:
        """Remember batches that were in order, by producer id; the numbers are the fields of `CachedBatch`."""
        for producer_id, batches in written:
            state = self.active[producer_id]
            for batch in batches:
                state.add_batch(state.producer_epoch, CachedBatch(*batch))

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

    def give_up_open(self) -> list[Txn]:
        """Forget the open transactions, and return them, the oldest first: nobody will end them."""
        txns = [self._open[first] for first in sorted(self._open)]
        self._open.clear()
        for txn in txns:
            state = self.active.get(txn.producer_id)
            if state is not None:
                state.first_txn_offset = -1
        return txns

    # ---- replay of what is written ----

    def replay_pieces(self, pieces: Iterable[tuple[Iterable[Batch], Any, int]]) -> None:
        """Replay parts of one segment as a load does: states and transactions change at the end of all.

        A piece is the batches of producers, the buffer that holds them, and where its byte 0 lies in the file.
        `map_end_offset` stays as it is.
        """
        appends: dict[int, ProducerAppend] = {}
        completed: list[CompletedTxn] = []
        for batches, buffer, file_position in pieces:
            for batch in batches:
                done = self._add(batch, buffer, file_position, appends, Origin.REPLICATION, transaction_version=0)
                if done is not None:
                    completed.append(done)
        for append in _in_order(appends):
            self.update(append)
        for done in completed:
            self.complete(done)

    def replay_one(self, batch: Batch, buffer: Any, file_position: int = 0) -> tuple[CompletedTxn, int] | None:
        """Replay one batch as the recovery of a segment does; the buffer begins at `file_position` of its file.

        Returns a transaction that ends, and its last stable offset for the transaction index.
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
        """True without producers, and without an ended transaction that waits for the high watermark."""
        return not self.active and not self._unreplicated

    @property
    def first_unstable(self) -> Txn | None:
        """The first transaction that is open or whose marker the high watermark has not passed."""
        if not self._open and not self._unreplicated:  # as nearly always: asked for with each append
            return None
        firsts = [txns[min(txns)] for txns in (self._open, self._unreplicated) if txns]
        # Of two that begin at the same offset, the one that has ended.
        return min(reversed(firsts), key=lambda txn: txn.first_offset) if firsts else None

    def on_high_watermark(self, offset: int) -> None:
        """Forget transactions whose markers lie below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {
                first: txn for first, txn in self._unreplicated.items() if not 0 <= txn.last_offset < offset
            }

    # ---- expiry, snapshots ----

    def expire(self, now_ms: int) -> None:
        """Forget producers that were idle for too long, but none with an open transaction."""
        for producer_id in [p for p, state in self.active.items() if self._is_expired(state, now_ms)]:
            del self.active[producer_id]

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
        """Go back to the last good snapshot inside a range of the log; remove snapshots outside of it.

        If the state ends at the end of the range, it stays as it is.
        """
        for offset in self.snapshots.offsets:
            if not log_start_offset < offset <= log_end_offset:
                self.snapshots.remove(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start(log_start_offset)
            return
        at, entries = self.snapshots.load_latest()
        self.load(entries, log_start_offset if at is None else at, now_ms)

    def load(self, entries: Iterable[ProducerEntry], offset: int, now_ms: int = 0) -> None:
        """Begin with the entries of the snapshot at an offset, without producers that were idle for too long."""
        self._clear()
        for entry in entries:
            state = state_of_producer(entry)
            if not self._is_expired(state, now_ms):
                self.active[state.producer_id] = state
                if state.has_open_txn:
                    self._open[state.first_txn_offset] = Txn(state.producer_id, state.first_txn_offset)
        self.snapshots.note_count(len(self.active))
        self._last_snapshot_offset = self.map_end_offset = offset

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
