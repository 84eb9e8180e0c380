"""Appends to a log: a batch is judged, gets its offsets, and is written; in Kafka's order of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pylogseg._run import BODY, PRODUCER, Run
from pylogseg.config import LogConfig
from pylogseg.env.positions import Data
from pylogseg.errors import InvalidRecord, StorageError, TooLarge
from pylogseg.files.txnindex import AbortedTxn
from pylogseg.format.batches import CODEC_NAMES, scan
from pylogseg.format.buffers import byte_view
from pylogseg.log.analysis import HIGHEST_OFFSET
from pylogseg.log.appended import Appended, AppendedMany
from pylogseg.log.facts import first_offset
from pylogseg.log.flushing import Flusher
from pylogseg.log.many import append_many, producer_of
from pylogseg.log.offsets import OffsetMetadata
from pylogseg.log.producer_state import Checked, CompletedTxn, Origin
from pylogseg.log.rolling import Roller
from pylogseg.log.segment import LogSegment
from pylogseg.log.state import LogState
from pylogseg.log.validation import LAST_START, Prepared, Rules, follower, leader

_MAX_RELATIVE = 2**31 - 1
_ATTRIBUTES_AT, _CODEC_MASK = 22, 7


class Appender:
    """Appends to one log.

    Attributes
    ----------
    state : LogState
    rules : Rules
        What is asked of appends.
    """

    def __init__(self, state: LogState, roller: Roller, flusher: Flusher) -> None:
        self.state = state
        self._roller, self._flusher = roller, flusher
        self.update_config(state.config)

    def update_config(self, config: LogConfig) -> None:
        """Take new settings."""
        self._run: Run | None = None  # what single appends go on with; it knows the old settings
        self._run_of: LogSegment | None = None
        codec = config.compression_type
        levels = {
            "gzip": config.compression_gzip_level,
            "lz4": config.compression_lz4_level,
            "zstd": config.compression_zstd_level,
        }
        number = -1 if codec == "producer" else 0 if codec == "uncompressed" else CODEC_NAMES.index(codec)
        self.rules = Rules(
            config.max_message_bytes,
            number,
            config.message_timestamp_type == "LogAppendTime",
            config.compact,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
            levels.get(codec),
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
        if origin is Origin.RAFT_LEADER:
            return self._append_given(data, leader_epoch, origin, self.state.config.max_message_bytes)
        with self.state.lock:
            self.state.check_usable()
            now_ms = self.state.clock.now_ms()
            if target_magic == 2:
                done = self._append_usual(data, leader_epoch, now_ms, origin is Origin.CLIENT, in_place)
                if done is not None:
                    return done
            self._run = None
            prepared = leader(
                data,
                self.rules,
                next_offset=self.state.offsets.end.offset,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
                origin=origin,
                target_magic=target_magic,
                in_place=in_place,
                where=self.state.folder,
            )
            return self.state.guarded(lambda: self._write(prepared, origin, transaction_version, now_ms))

    def _append_usual(
        self, data: Data, leader_epoch: int, now_ms: int, is_client: bool, in_place: bool
    ) -> Appended | None:
        """The short way of a batch for which nothing has to be done first: a run of its own. None for any other."""
        segment, run, end = self.state.segments.active, self._run, self.state.offsets.end.offset
        if segment is None or end > LAST_START or not self.state.epochs.is_current(leader_epoch, end):
            return None
        if run is None or run.next_offset != end or run.position != segment.log.size or self._run_of is not segment:
            run = self._begin_run(segment, end)
            if run is None:
                return None
        records = run.one(data, leader_epoch, now_ms, is_client, in_place)
        if records is None:
            records = self._once_more(run, data, leader_epoch, now_ms, is_client, in_place)
            if records is None:
                return None
        self.write_run(segment, records, run)
        stamp = now_ms if self.rules.append_time else -1
        return Appended(end, run.next_offset - 1, run.timestamp, stamp, run.used, self.state.offsets.log_start)

    def _begin_run(self, segment: LogSegment, next_offset: int) -> Run | None:
        """A run that goes on where the log ends; it may be used until something else than a run was written."""
        run = Run(self.rules, -1, True, 0)
        run.next_offset, run.flush_offset = next_offset, 2**63 - 1
        self._run, self._run_of = (run if segment.begin_run(run, self.state.config) else None), segment
        return self._run

    def _once_more(
        self, run: Run, data: Data, leader_epoch: int, now_ms: int, is_client: bool, in_place: bool
    ) -> Data | None:
        """Take a batch whose producer, or whose records, the run has to be told of first."""
        body = None
        for _ in range(2):
            if run.reason == PRODUCER and is_client:
                known = self.state.producers.in_order(producer_of(data))
                if known is None or not run.know(*known):
                    return None
            elif run.reason == BODY and body is None:
                from pylogseg.log.bodies import body_of, limit_of  # codecs are loaded when they are needed

                view = byte_view(data)
                body = body_of(view, view[_ATTRIBUTES_AT] & _CODEC_MASK, limit_of(self.rules))
                if not body:
                    return None
            else:
                return None
            records: Data | None = run.one(data, leader_epoch, now_ms, is_client, in_place, True, body)
            if records is not None:
                return records
        return None

    def write_run(self, segment: LogSegment, records: Data, run: Run) -> None:
        """Write a run of batches that is ready, and let it take effect."""
        state = self.state
        try:
            segment.append_run(records, run)
        except StorageError as error:
            state.take_offline(error)
            raise
        offsets, end = state.offsets, run.next_offset
        offsets.end = OffsetMetadata(end, segment.base_offset, segment.log.size)
        if offsets.high_watermark.offset >= end:
            offsets.follow_end()
        producers = state.producers
        if run.has_producers:
            producers.extend(run.known())
        producers.map_end_offset = end
        offsets.note_first_unstable()  # what the high watermark has passed since may be decided
        if end - offsets.recovery_point >= state.config.flush_messages:
            self._flusher.flush(end)

    def append_many(
        self,
        data: Data | Sequence[Data],
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        in_place: bool = False,
    ) -> AppendedMany:
        """Append many batches; see `Log.append_many`."""

        def one(batch: memoryview) -> Appended:
            return self.append_as_leader(
                batch, leader_epoch, origin=origin, transaction_version=transaction_version, in_place=in_place
            )

        with self.state.lock:
            self._run = None
            return self.state.guarded(lambda: append_many(self, data, leader_epoch, origin, in_place, one))

    def append_as_follower(self, data: Any, leader_epoch: int) -> Appended:
        """Append batches that have their offsets, as a replica does."""
        return self._append_given(data, leader_epoch, Origin.REPLICATION, None)

    def _append_given(self, data: Any, leader_epoch: int, origin: Origin, size_limit: int | None) -> Appended:
        def work() -> Appended:
            with self.state.lock:
                self._run = None
                prepared = follower(
                    data,
                    next_offset=self.state.offsets.end.offset,
                    leader_epoch=leader_epoch,
                    origin=origin,
                    size_limit=size_limit,
                    where=self.state.folder,
                )
                return self._write(prepared, origin, -1, self.state.clock.now_ms())

        return self.state.guarded(work)

    def _write(self, prepared: Prepared, origin: Origin, transaction_version: int, now_ms: int) -> Appended:
        """Steps c to i of an append, in Kafka's order: what a refusal leaves behind depends on it."""
        start = self.state.offsets.log_start
        if not prepared.batches:
            return Appended(-1, -1, prepared.max_timestamp, -1, prepared.valid_bytes, start)
        for batch in prepared.batches:
            if batch.magic >= 2:
                self.state.epochs.assign(batch.leader_epoch, batch.base_offset)
            elif len(self.state.epochs):
                self.state.epochs.clear()
        size, limit = len(prepared.records), self.state.config.segment_bytes
        if size > limit:
            raise TooLarge(f"{self.state.folder}: {size} bytes at once are more than segment.bytes, {limit}")
        segment = self._segment_for(prepared, size, origin, transaction_version, now_ms)
        checked = self._check_producers(prepared, origin, transaction_version, segment.base_offset, segment.size)
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
        offsets, end = self.state.offsets, prepared.last_offset + 1
        offsets.end = OffsetMetadata(end, segment.base_offset, segment.size)
        offsets.follow_end()
        for append in checked.appends:
            self.state.producers.update(append)
        for txn in checked.completed:
            self._complete(txn, segment)
        self.state.producers.map_end_offset = end
        offsets.note_first_unstable()
        if end - offsets.recovery_point >= self.state.config.flush_messages:
            self._flusher.flush(self.state.offsets.end.offset)
        first = prepared.first_offset
        return Appended(
            first, prepared.last_offset, prepared.max_timestamp, prepared.append_time_ms, prepared.valid_bytes, start
        )

    def _complete(self, txn: CompletedTxn, segment: LogSegment) -> None:
        stable = self.state.producers.last_stable_offset(txn)
        if txn.aborted:
            segment.add_aborted(AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, stable))
        self.state.producers.complete(txn)

    def _check_producers(
        self, prepared: Prepared, origin: Origin, transaction_version: int, base: int, position: int
    ) -> Checked:
        return self.state.producers.check(
            prepared.batches,
            prepared.records,
            origin,
            segment_base=base,
            position=position,
            transaction_version=transaction_version,
        )

    def _segment_for(
        self, prepared: Prepared, size: int, origin: Origin, transaction_version: int, now_ms: int
    ) -> LogSegment:
        """The segment that batches go to, a new one if need be; what it could not hold is refused before that."""
        segment, end = self.state.active, self.state.offsets.end.offset
        if not segment.should_roll(self.state.config, size, prepared.max_timestamp, prepared.last_offset, now_ms):
            self._check_reach(prepared, segment.base_offset)
            return segment
        first = prepared.first_offset
        base = max(first if first >= 0 else prepared.last_offset - _MAX_RELATIVE, end)
        self._check_reach(prepared, base)
        if base > end:  # a refusal after the roll would leave a segment that takes nothing that goes on at the end
            self._check_producers(prepared, origin, transaction_version, base, 0)
        return self._roller.roll(base)

    def _check_reach(self, prepared: Prepared, base: int) -> None:
        """Refuse offsets that a segment cannot hold, and legacy messages that no load could open."""
        folder = self.state.folder
        for batch in prepared.batches:
            first, last = batch.base_offset, batch.last_offset
            if batch.magic < 2:
                whole = byte_view(prepared.records)[batch.position : batch.position + batch.size]
                rows = scan(whole, crc=False).batches
                if not len(rows):
                    raise InvalidRecord(f"{folder}: a message of {len(whole)} bytes is too short for its fields")
                first = min(first, first_offset(rows, whole, folder))
            if not base <= first <= last <= min(base + _MAX_RELATIVE, HIGHEST_OFFSET):
                raise InvalidRecord(
                    f"{folder}: the offsets {first} to {last} of a batch do not fit into a segment from {base} on"
                )
