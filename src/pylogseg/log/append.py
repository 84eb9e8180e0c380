"""Appends to a log: a batch is judged, gets its offsets, and is written; in Kafka's order of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pylogseg.env.positions import Data
from pylogseg.errors import TooLarge
from pylogseg.files.txnindex import AbortedTxn
from pylogseg.log.appended import Appended, AppendedMany
from pylogseg.log.core import LogCore
from pylogseg.log.many import append_many
from pylogseg.log.producer_state import CompletedTxn, Origin
from pylogseg.log.segment import LogSegment
from pylogseg.log.validation import Prepared, follower, leader

_MAX_RELATIVE = 2**31 - 1


class AppendingLog(LogCore):
    """What a log does with what is appended to it."""

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
        """Append one batch, which gets its offsets here; see `Log.append`."""
        if origin is Origin.RAFT_LEADER:
            return self._append_given(data, leader_epoch, origin, self.config.max_message_bytes)

        def work() -> Appended:
            with self._lock:
                now = self.clock.now_ms()
                prepared = leader(
                    data,
                    self._rules,
                    next_offset=self.offsets.end.offset,
                    leader_epoch=leader_epoch,
                    now_ms=now,
                    origin=origin,
                    target_magic=target_magic,
                    in_place=in_place,
                    where=self.folder,
                )
                return self._write(prepared, origin, transaction_version, now)

        return self._guarded(work)

    def append_many(
        self,
        data: Data | Sequence[Data],
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        in_place: bool = False,
    ) -> AppendedMany:
        """Append many batches: what as many calls of `append_as_leader` would do, with one lock and few writes.

        Parameters
        ----------
        data : buffer or sequence of buffers
            Any number of batches in each. Every batch is judged alone: one that is refused does not keep those behind
            it from being written.
        leader_epoch : int
            That the batches get.
        origin : Origin
            Who appends.
        transaction_version : int
            Of markers of transactions.
        in_place : bool
            Whether writable buffers may be changed; it saves a copy.

        Returns
        -------
        AppendedMany
            A row for each batch, with the error of those that were refused; one more row for each buffer that does not
            end with a whole batch.

        Raises
        ------
        ClosedError, StorageError
            If the log is closed, or the disk had failed before. Whatever else goes wrong is told in the rows, a failure
            of the disk too: then none of the batches that were to be written at once is in the log, and it takes no
            more.
        """

        def one(batch: memoryview) -> Appended:
            return self.append_as_leader(
                batch, leader_epoch, origin=origin, transaction_version=transaction_version, in_place=in_place
            )

        with self._lock:
            return self._guarded(lambda: append_many(self, data, leader_epoch, origin, in_place, one))

    def append_as_follower(self, data: Any, leader_epoch: int) -> Appended:
        """Append batches that have their offsets, as a replica does."""
        return self._append_given(data, leader_epoch, Origin.REPLICATION, None)

    def _append_given(self, data: Any, leader_epoch: int, origin: Origin, size_limit: int | None) -> Appended:
        def work() -> Appended:
            with self._lock:
                prepared = follower(
                    data,
                    next_offset=self.offsets.end.offset,
                    leader_epoch=leader_epoch,
                    origin=origin,
                    size_limit=size_limit,
                    where=self.folder,
                )
                return self._write(prepared, origin, -1, self.clock.now_ms())

        return self._guarded(work)

    def _write(self, prepared: Prepared, origin: Origin, transaction_version: int, now_ms: int) -> Appended:
        """Steps c to i of an append, in Kafka's order: what a refusal leaves behind depends on it."""
        start = self.offsets.log_start
        if not prepared.batches:
            return Appended(-1, -1, prepared.max_timestamp, -1, prepared.valid_bytes, start)
        for batch in prepared.batches:
            if batch.magic >= 2:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
            elif len(self.epochs):
                self.epochs.clear()
        size = len(prepared.records)
        if size > self.config.segment_bytes:
            raise TooLarge(
                f"{self.folder}: {size} bytes at once are more than segment.bytes, {self.config.segment_bytes}"
            )
        segment = self._segment_for(prepared, size, now_ms)
        checked = self.producers.check(
            prepared.batches,
            prepared.records,
            origin,
            segment_base=segment.base_offset,
            position=segment.size,
            transaction_version=transaction_version,
        )
        if checked.duplicate is not None:
            old = checked.duplicate
            return Appended(
                old.first_offset,
                old.last_offset,
                prepared.max_timestamp,
                old.timestamp,
                prepared.valid_bytes,
                start,
                True,
            )
        segment.append(
            prepared.last_offset, prepared.records, [(b.max_timestamp, b.last_offset, b.size) for b in prepared.batches]
        )
        self._note_end(prepared.last_offset + 1, segment)
        for append in checked.appends:
            self.producers.update(append)
        for txn in checked.completed:
            self._complete(txn, segment)
        self._note_written()
        first = prepared.first_offset
        return Appended(
            first, prepared.last_offset, prepared.max_timestamp, prepared.append_time_ms, prepared.valid_bytes, start
        )

    def _complete(self, txn: CompletedTxn, segment: LogSegment) -> None:
        stable = self.producers.last_stable_offset(txn)
        if txn.aborted:
            segment.add_aborted(AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, stable))
        self.producers.complete(txn)

    def _segment_for(self, prepared: Prepared, size: int, now_ms: int) -> LogSegment:
        segment = self.active
        if not segment.should_roll(self.config, size, prepared.max_timestamp, prepared.last_offset, now_ms):
            return segment
        first = prepared.first_offset
        return self.roll(first if first >= 0 else prepared.last_offset - _MAX_RELATIVE)
