"""Appends to a log: check a batch, assign its offsets, write it; in Kafka's order of steps.

There are two paths. The fast one is a kernel (`_run`): in one pass over a batch it checks what a leader checks, and
writes offset, leader epoch and timestamps into the header. The batches that it collects, one or many, are a *run*: they
go to the end of the active segment in one write. A batch that needs a step first (a new segment or leader epoch, a
producer or transaction that begins or ends) is checked by the kernel too, and written by `Appender._write`.

The slow path (`log.append_validation`) gets the batches that the kernel does not accept:

- invalid batches: this path finds the record and the rule that it breaks, for the sender;
- batches to be stored with another codec or in another format, so to be rewritten;
- anything but one batch of magic 2: legacy messages, several batches at once, a cut-off batch at the end;
- compressed batches with inner offsets that do not count up from 0, as only old clients send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg._native import _encoder
from pylogseg._native._append import Prepared, Rules, prepare_validated
from pylogseg._native._run import ALL, ALONE, BODY, PRODUCER, STEPS, Run
from pylogseg.config import LogConfig, compression_levels, stored_codec
from pylogseg.env.positions import Data
from pylogseg.errors import (
    CorruptionError,
    InvalidRecordError,
    PylogsegError,
    RequestError,
    StorageError,
    TooLargeError,
)
from pylogseg.format.batches import scan
from pylogseg.format.buffers import byte_view
from pylogseg.format.codec_error import CodecError
from pylogseg.format.codecs import decompress, framing_of
from pylogseg.format.files.txnindex import AbortedTxn
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.log.append_analysis import HIGHEST_OFFSET
from pylogseg.log.append_record_checks import limit_of
from pylogseg.log.append_result import Appended, AppendedMany
from pylogseg.log.append_validation import Terms, follower, leader
from pylogseg.log.batch_headers import first_offset
from pylogseg.log.flushing import Flusher
from pylogseg.log.offsets import OffsetMetadata
from pylogseg.log.producer_state import Checked, CompletedTxn, Origin
from pylogseg.log.rolling import Roller
from pylogseg.log.segment import LogSegment
from pylogseg.log.state import LogState

_MAX_RELATIVE = 2**31 - 1
_NEVER = 2**63 - 1
#: Above it, the offsets of a batch may exceed the highest possible offset.
LAST_START = HIGHEST_OFFSET - 2**31
#: Bytes of a run, which is checked, copied and written in one go; they stay in the processor's cache.
_RUN_BYTES = 1 << 20
#: Makes a tuple with names in half of the time: an append makes two.
_make = tuple.__new__
_PRODUCER_ID_AT = 43


def with_body(
    run: Run, data: Data, rules: Rules, leader_epoch: int, now_ms: int, is_client: bool, in_place: bool
) -> Data | None:
    """Decompress the batch that a run stopped at and check it again; None if it takes the slow path."""
    body = _body_of(byte_view(data), run.codec(), limit_of(rules))
    records: Data | None = run.validate_one(data, leader_epoch, now_ms, is_client, in_place, body) if body else None
    return records


def _body_of(batch: memoryview, codec: int, limit: int) -> bytes | memoryview | None:
    """Return the records of a batch of magic 2; None if they cannot be decompressed, or exceed the limit."""
    payload = batch[BATCH_HEADER_BYTES:]
    try:
        framing = framing_of(codec)
        block = None if framing is None else framing.decompress_block(payload)
        return decompress(codec, payload, limit=limit) if block is None else block
    except CodecError:
        return None


class Appender:
    """Appends to one log, whose lock is held."""

    def __init__(self, state: LogState, roller: Roller, flusher: Flusher) -> None:
        self.state = state
        self._roller, self._flusher = roller, flusher
        self.update_config(state.config)

    def update_config(self, config: LogConfig) -> None:
        self._run: Run | None = None  # of single appends; it knows the old settings
        self._run_of: LogSegment | None = None
        codec = stored_codec(config)
        self.rules = Rules(
            config.max_message_bytes,
            -1 if codec is None else codec.number,
            config.message_timestamp_type == "LogAppendTime",
            config.compact,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
            None if codec is None else compression_levels(config).get(codec.number),
        )

    # ---- one batch ----

    def append_as_leader(
        self, data: Data, leader_epoch: int, origin: Origin, transaction_version: int, in_place: bool
    ) -> Appended:
        """Append one batch; see `Log.append_as_leader`."""
        state = self.state
        if state.is_closed or state.failure is not None:
            state.raise_unusable()
        now_ms, end, rules = state.clock.now_ms(), state.offsets.end.offset, self.rules
        if end > LAST_START:
            raise RequestError(f"{state.folder}: the log ends at {end}: no offsets left for a batch")
        append_time_ms = now_ms if rules.append_time else -1
        is_client = origin is Origin.CLIENT
        run = self._run_at(end, leader_epoch)
        records: Any = run.validate_one(data, leader_epoch, now_ms, is_client, in_place)
        if run.reason == BODY:
            records = with_body(run, data, rules, leader_epoch, now_ms, is_client, in_place)
        if run.reason == PRODUCER and is_client and self.add_producer(run, run.producer_id()):
            run.take_validated()
        if run.reason == ALL and (segment := self._run_of) is not None:
            self.write_run(segment, records, run)
            last, start = run.next_offset - 1, state.offsets.log_start
            return _make(Appended, (end, last, run.timestamp, append_time_ms, run.used, start, False))
        if records is None:
            prepared = leader(data, rules, Terms(end, leader_epoch, now_ms, origin), state.folder)
        else:
            prepared = prepare_validated(records, end, append_time_ms)
        return state.guard(lambda: self._write(prepared, origin, transaction_version, now_ms))

    def _run_at(self, end: int, leader_epoch: int) -> Run:
        """Return the run for single appends; it has no segment if the next batch needs a step first."""
        state, run, segment = self.state, self._run, self.state.segments.active
        if not state.epochs.is_current(leader_epoch, end):
            segment = None
        if run is None:
            run = self._run = Run(self.rules)
        elif (
            segment is not None
            and segment is self._run_of
            and run.next_offset == end
            and run.position == segment.log.size
        ):
            return run
        run.next_offset, run.flush_offset = end, _NEVER
        self._run_of = segment if segment is not None and segment.begin_run(run, state.config) else None
        if self._run_of is None:
            run.begin_nowhere()
        return run

    def add_producer(self, run: Run, producer_id: int) -> bool:
        """Add a producer to a run; return False if its batches cannot be written in one."""
        place = self.state.producers.in_order(producer_id)
        return place is not None and run.add_producer(*place)

    # ---- many batches ----

    def append_many(
        self,
        data: Data | Sequence[Data],
        leader_epoch: int,
        origin: Origin,
        transaction_version: int,
        in_place: bool,
    ) -> AppendedMany:
        """Append many batches; see `Log.append_many`."""
        self._run_of = None
        many = _Many(self, leader_epoch, origin, transaction_version)
        return self.state.guard(lambda: many.append(data, in_place))

    # ---- batches that have their offsets ----

    def append_as_follower(self, data: Data, leader_epoch: int) -> Appended:
        """Append batches that keep their offsets, as a replica does."""
        return self.state.guard(lambda: self._append_given(data, leader_epoch))

    def _append_given(self, data: Data, leader_epoch: int) -> Appended:
        state = self.state
        end = state.offsets.end.offset
        prepared = follower(data, next_offset=end, leader_epoch=leader_epoch, where=state.folder)
        return self._write(prepared, Origin.REPLICATION, -1, state.clock.now_ms())

    # ---- writing ----

    def write_run(self, segment: LogSegment, records: Data, run: Run) -> None:
        """Write a finished run of batches and update the log's state."""
        state = self.state
        try:
            segment.append_run(records, run)
        except StorageError as error:
            state.take_offline(error)
            raise
        offsets, end = state.offsets, run.next_offset
        offsets.end = _make(OffsetMetadata, (end, segment.base_offset, run.position))
        if offsets.high_watermark.offset >= end:
            offsets.follow_end()
        producers = state.producers
        if run.has_producers:
            producers.extend(run.producer_states())
        producers.map_end_offset = end
        offsets.note_first_unstable()  # transactions that the high watermark has passed are decided
        if end - offsets.recovery_point >= state.config.flush_messages:
            self._flusher.flush(end)

    def _write(self, prepared: Prepared, origin: Origin, transaction_version: int, now_ms: int) -> Appended:
        """Run steps c to i of an append in Kafka's order, since a refusal keeps the effects of the steps before it."""
        self._run_of = None
        state = self.state
        start = state.offsets.log_start
        if not prepared.batches:
            return Appended(-1, -1, prepared.max_timestamp, -1, prepared.valid_bytes, start)
        for batch in prepared.batches:
            if batch.magic >= 2:
                state.epochs.assign(batch.leader_epoch, batch.base_offset)
            elif len(state.epochs):
                state.epochs.clear()
        size, limit = len(prepared.records), state.config.segment_bytes
        if size > limit:
            raise TooLargeError(f"{state.folder}: an append of {size} bytes is larger than segment.bytes, {limit}")
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
        offsets, end = state.offsets, prepared.last_offset + 1
        offsets.end = OffsetMetadata(end, segment.base_offset, segment.size)
        offsets.follow_end()
        for append in checked.appends:
            state.producers.update(append)
        for txn in checked.completed:
            self._complete(txn, segment)
        state.producers.map_end_offset = end
        offsets.note_first_unstable()
        if end - offsets.recovery_point >= state.config.flush_messages:
            self._flusher.flush(end)
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
        """Return the segment for some batches, a new one if needed; refuse batches that cannot fit before a roll."""
        segment, end = self.state.active, self.state.offsets.end.offset
        if not segment.should_roll(self.state.config, size, prepared.max_timestamp, prepared.last_offset, now_ms):
            self._check_reach(prepared, segment.base_offset)
            return segment
        first = prepared.first_offset
        base = max(first if first >= 0 else prepared.last_offset - _MAX_RELATIVE, end)
        self._check_reach(prepared, base)
        if base > end:  # refused after the roll, it would leave a segment that cannot be appended to
            self._check_producers(prepared, origin, transaction_version, base, 0)
        return self._roller.roll(base)

    def _check_reach(self, prepared: Prepared, base: int) -> None:
        """Refuse offsets that a segment cannot hold, and legacy messages that could not be loaded."""
        folder = self.state.folder
        for batch in prepared.batches:
            first, last, lowest = batch.base_offset, batch.last_offset, base
            if batch.magic < 2:
                whole = byte_view(prepared.records)[batch.position : batch.position + batch.size]
                rows = scan(whole, crc=False).batches
                if not len(rows):
                    raise InvalidRecordError(f"{folder}: a message of {len(whole)} bytes is too short for its fields")
                first, lowest = (
                    min(first, first_offset(rows, whole, folder)),
                    0,
                )  # the log may start in the middle of it
            if not lowest <= first <= last <= min(base + _MAX_RELATIVE, HIGHEST_OFFSET) or last < base:
                raise InvalidRecordError(
                    f"{folder}: the offsets {first} to {last} of a batch do not fit into a segment from {base} on"
                )


class _Many:
    """One call of `append_many`: a kernel call and a write per run; a batch that stops a run is appended alone."""

    def __init__(self, appender: Appender, leader_epoch: int, origin: Origin, transaction_version: int) -> None:
        self._appender, self._state = appender, appender.state
        self._leader_epoch, self._origin, self._transaction_version = leader_epoch, origin, transaction_version
        self._is_client = origin is Origin.CLIENT
        self._now_ms = self._state.clock.now_ms()
        self._run = Run(appender.rules, leader_epoch, self._is_client, self._now_ms)
        self._scratch = memoryview(b"")

    def append(self, data: Data | Sequence[Data], in_place: bool) -> AppendedMany:
        views = [byte_view(buffer) for buffer in (data if isinstance(data, list | tuple) else [data])]
        framed = [(view, *_codec.frames(view)) for view in views]
        self._answers = AppendedMany.blank(sum(len(s) - 1 + (int(s[-1]) < len(view)) for view, s, _ in framed))
        row = 0
        for view, starts, is_cut in framed:
            row = self._append_buffer(view, starts, row, in_place)
            end = int(starts[-1])
            if end < len(view):
                if is_cut:
                    reason = f"a batch is cut off after {len(view) - end} bytes"
                    self._answers.errors[row] = CorruptionError(self._state.folder, end, reason)
                else:
                    self._alone(row, view[end:], in_place)
                row += 1
        self._answers.log_start_offset = self._state.offsets.log_start
        return self._answers

    def _append_buffer(self, view: memoryview, starts: npt.NDArray[np.int64], row: int, in_place: bool) -> int:
        """Append the batches of one buffer, the first in `row`; return the row after the last."""
        run, answers = self._run, self._answers
        places: list[int] = starts.tolist()
        count = len(places) - 1
        columns = [c[row : row + count] for c in (answers.first_offset, answers.last_offset, answers.max_timestamp)]
        out = None if in_place and not view.readonly else self._room(len(view))
        batch = 0
        while batch < count:
            taken = batch
            if (segment := self._begin()) is not None:
                while True:
                    taken = run.validate(view, starts, taken, out, _RUN_BYTES, *columns)
                    if run.reason != PRODUCER or not self._know(view, places[taken]):
                        break
                if taken > batch:
                    records = view[places[batch] : places[taken]] if out is None else out[: run.used]
                    self._write(segment, records, slice(row + batch, row + taken), starts[batch : taken + 1])
            if taken == batch or (taken < count and run.reason in (ALONE, BODY, STEPS)):
                self._alone(row + taken, view[places[taken] : places[taken + 1]], in_place)
                taken += 1
            batch = taken
        return row + count

    def _begin(self) -> LogSegment | None:
        """Begin a run at the log's end; return None if the next batch has to be appended alone."""
        state, run, segment = self._state, self._run, self._state.segments.active
        next_offset = state.offsets.end.offset
        if (
            segment is None
            or not state.is_usable
            or next_offset > LAST_START
            or not state.epochs.is_current(self._leader_epoch, next_offset)
        ):
            return None
        run.next_offset = next_offset
        run.flush_offset = min(state.offsets.recovery_point + state.config.flush_messages, _NEVER)
        return segment if segment.begin_run(run, state.config) else None

    def _room(self, size: int) -> memoryview:
        size = min(size, _RUN_BYTES)
        if len(self._scratch) < size:
            self._scratch = memoryview(_encoder.blank(size))
        return self._scratch

    def _know(self, view: memoryview, start: int) -> bool:
        at = start + _PRODUCER_ID_AT
        producer_id = int.from_bytes(view[at : at + 8], "big", signed=True)
        return self._is_client and self._appender.add_producer(self._run, producer_id)

    def _write(self, segment: LogSegment, records: memoryview, rows: slice, starts: npt.NDArray[np.int64]) -> None:
        """Write a run, or set the error of each of its batches."""
        answers = self._answers
        try:
            self._appender.write_run(segment, records, self._run)
        except PylogsegError as error:
            answers.errors.update(dict.fromkeys(range(rows.start, rows.stop), error))
            for column in (answers.first_offset, answers.last_offset, answers.max_timestamp):
                column[rows] = -1
            return
        answers.valid_bytes[rows] = np.diff(starts)
        if self._appender.rules.append_time:
            answers.append_time_ms[rows] = self._now_ms

    def _alone(self, row: int, batch: memoryview, in_place: bool) -> None:
        appender = self._appender
        try:
            done = appender.append_as_leader(
                batch, self._leader_epoch, self._origin, self._transaction_version, in_place
            )
        except PylogsegError as error:
            self._answers.errors[row] = error
        else:
            self._answers.set(row, done)
