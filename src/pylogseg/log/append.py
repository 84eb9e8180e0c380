"""Appends to a log: a batch is judged, gets its offsets, and is written; in Kafka's order of steps."""

from __future__ import annotations

from typing import Any, NamedTuple

from pylogseg.errors import TooLarge
from pylogseg.files.txnindex import AbortedTxn
from pylogseg.log.core import LogCore
from pylogseg.log.offsets import OffsetMetadata
from pylogseg.log.producer_state import CompletedTxn, Origin
from pylogseg.log.segment import LogSegment, RollParams
from pylogseg.log.validation import Prepared, follower, leader

_MAX_RELATIVE = 2**31 - 1


class Appended(NamedTuple):
    """What became of an append.

    Attributes
    ----------
    first_offset, last_offset : int
        Of the records; a duplicate's are those of the batch that was written before; -1 if nothing was.
    max_timestamp : int
        Milliseconds; -1 none.
    append_time_ms : int
        The broker's clock for LogAppendTime logs, the timestamp of the earlier batch for a duplicate; -1 else.
    valid_bytes : int
        Bytes of the whole batches that were given.
    log_start_offset : int
    is_duplicate : bool
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    append_time_ms: int
    valid_bytes: int
    log_start_offset: int
    is_duplicate: bool = False


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
        offsets = self.offsets
        offsets.end = OffsetMetadata(prepared.last_offset + 1, segment.base_offset, segment.size)
        offsets.follow_end()
        for append in checked.appends:
            self.producers.update(append)
        for txn in checked.completed:
            self._complete(txn, segment)
        self.producers.map_end_offset = prepared.last_offset + 1
        offsets.note_first_unstable()
        if offsets.end.offset - offsets.recovery_point >= self.config.flush_messages:
            self.flush(force_active=False)
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
        config = self.config
        params = RollParams(
            config.max_segment_ms, config.segment_bytes, prepared.max_timestamp, prepared.last_offset, size, now_ms
        )
        if not segment.should_roll(params):
            return segment
        first = prepared.first_offset
        return self.roll(first if first >= 0 else prepared.last_offset - _MAX_RELATIVE)
