"""Appends of many batches: runs of usual ones are judged by one kernel call and written at once, all others alone.

A batch goes alone if it is not as it should be, begins a segment or a leader epoch, is the first of its producer, or
begins or ends a transaction. A run does what as many single appends would do to the files and to the log's state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pylogseg import _codec, _encoder, _run
from pylogseg.env.positions import Data
from pylogseg.errors import CorruptionError, PylogsegError
from pylogseg.format.buffers import byte_view
from pylogseg.log.appended import Appended, AppendedMany
from pylogseg.log.producer_state import Origin
from pylogseg.log.segment import LogSegment
from pylogseg.log.validation import LAST_START

if TYPE_CHECKING:
    from pylogseg.log.append import Appender

#: Bytes that are judged, copied and written at a time: they stay in the processor's cache meanwhile.
_RUN_BYTES = 1 << 20
_PRODUCER_ID_AT = 43

One = Callable[[memoryview], Appended]


def append_many(
    appender: Appender, data: Data | Sequence[Data], leader_epoch: int, origin: Origin, in_place: bool, one: One
) -> AppendedMany:
    """Append all batches of some buffers; see `Log.append_many`.

    Parameters
    ----------
    appender : Appender
        Of a log whose lock is held.
    data : buffer or sequence of buffers
        Any number of batches in each.
    leader_epoch : int
        That the batches get.
    origin : Origin
        Who appends.
    in_place : bool
        Whether writable buffers may be changed.
    one : callable
        Appends one batch by itself.
    """
    log = appender.state
    buffers = data if isinstance(data, list | tuple) else [data]
    views = [byte_view(buffer) for buffer in buffers]
    framed = [_codec.frames(view) for view in views]
    rows = sum(len(starts) - 1 + (int(starts[-1]) < len(view)) for view, (starts, _) in zip(views, framed, strict=True))
    answers = AppendedMany.blank(rows)
    work = _Work(appender, answers, leader_epoch, origin, one)
    row = 0
    for view, (starts, is_cut) in zip(views, framed, strict=True):
        row = work.take(view, starts, row, in_place)
        end = int(starts[-1])
        if end < len(view):
            if is_cut:
                reason = f"a batch is cut off: {len(view) - end} bytes of it are there"
                answers.errors[row] = CorruptionError(log.folder, end, reason)
            else:
                work.alone(row, view[end:])
            row += 1
    answers.log_start_offset = log.offsets.log_start
    return answers


class _Work:
    """One call."""

    def __init__(self, appender: Appender, answers: AppendedMany, leader_epoch: int, origin: Origin, one: One) -> None:
        self.log, self.appender = appender.state, appender
        self.answers, self.leader_epoch, self.one = answers, leader_epoch, one
        self.is_client = origin is Origin.CLIENT
        self.runs = origin is not Origin.RAFT_LEADER
        self.now_ms = self.log.clock.now_ms()
        self.run = _run.Run(appender.rules, leader_epoch, self.is_client, self.now_ms)
        self.scratch = memoryview(b"")

    def take(self, view: memoryview, starts: npt.NDArray[np.int64], row: int, in_place: bool) -> int:
        """Append the batches of one buffer; `row` is the one of the first, and that behind the last is returned."""
        run, answers = self.run, self.answers
        places: list[int] = starts.tolist()
        count = len(places) - 1
        columns = [c[row : row + count] for c in (answers.first_offset, answers.last_offset, answers.max_timestamp)]
        out = None if in_place and not view.readonly else self.room(len(view))
        batch = 0
        while batch < count:
            taken = batch
            if self.runs and (segment := self.begin()) is not None:
                while True:
                    taken = run.judge(view, starts, taken, out, _RUN_BYTES, *columns)
                    if run.reason != _run.PRODUCER or not self.know(view, places[taken]):
                        break
                if taken > batch:
                    records = view[places[batch] : places[taken]] if out is None else out[: run.used]
                    self.write(segment, records, slice(row + batch, row + taken), starts[batch : taken + 1])
            if taken == batch or (taken < count and run.reason in (_run.ALONE, _run.BODY)):
                self.alone(row + taken, view[places[taken] : places[taken + 1]])
                taken += 1
            batch = taken
        return row + count

    def begin(self) -> LogSegment | None:
        """Make a run that goes on where the log ends; None if the next batch has to go alone."""
        log, run, segment = self.log, self.run, self.log.segments.active
        next_offset = log.offsets.end.offset
        if (
            segment is None
            or not log.is_usable
            or next_offset > LAST_START
            or not log.epochs.is_current(self.leader_epoch, next_offset)
        ):
            return None
        run.next_offset = next_offset
        run.flush_offset = min(log.offsets.recovery_point + log.config.flush_messages, 2**63 - 1)
        return segment if segment.begin_run(run, log.config) else None

    def room(self, size: int) -> memoryview:
        """Memory that a run is made ready in."""
        size = min(size, _RUN_BYTES)
        if len(self.scratch) < size:
            self.scratch = memoryview(_encoder.blank(size))
        return self.scratch

    def know(self, view: memoryview, start: int) -> bool:
        """Tell the run of the producer of a batch, if it may write in a run."""
        if not self.is_client:
            return False
        known = self.log.producers.in_order(producer_of(view, start))
        return known is not None and self.run.know(*known)

    def write(self, segment: LogSegment, records: memoryview, rows: slice, starts: npt.NDArray[np.int64]) -> None:
        """Write a run, or note for each batch of it why that is not possible."""
        answers = self.answers
        try:
            self.appender.write_run(segment, records, self.run)
        except PylogsegError as error:
            answers.errors.update(dict.fromkeys(range(rows.start, rows.stop), error))
            for column in (answers.first_offset, answers.last_offset, answers.max_timestamp):
                column[rows] = -1
            return
        answers.valid_bytes[rows] = np.diff(starts)
        if self.appender.rules.append_time:
            answers.append_time_ms[rows] = self.now_ms

    def alone(self, row: int, batch: memoryview) -> None:
        """Append one batch by itself."""
        try:
            self.answers.set(row, self.one(batch))
        except PylogsegError as error:
            self.answers.errors[row] = error


def producer_of(data: Data, start: int = 0) -> int:
    """Id of the producer of a batch of magic 2."""
    at = start + _PRODUCER_ID_AT
    return int.from_bytes(byte_view(data)[at : at + 8], "big", signed=True)
