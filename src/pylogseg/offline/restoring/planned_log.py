"""A log of the source of a restore into a cluster: its batches, the steps of its plan, its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pylogseg.env.executor import Advance
from pylogseg.errors import CorruptionError
from pylogseg.format.batches import BatchTable
from pylogseg.format.builder import build, columns_to_encode, shared_row
from pylogseg.format.records import RecordColumns, decode
from pylogseg.offline.restoring.offset_plan import OffsetPlan, OffsetRuns, OffsetStep, Outcomes, consecutive
from pylogseg.offline.restoring.produced import ProducedLog
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import IsolationLevel, Reading
from pylogseg.reading.transaction_markers import windows
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window


@dataclass
class PlannedLog:
    """A log of the source, with its plan."""

    row: ProducedLog
    log: LogFiles
    outcomes: Outcomes = field(default_factory=Outcomes)
    first_offset: int = 0  #: Of the first record; the log's end without one.
    end: int = 0
    slots: int = 0
    has_open: bool = False  #: Transactions that are aborted, and were open in the source.

    @property
    def plan(self) -> OffsetPlan:
        """The plan from the beginning."""
        return OffsetPlan(self.outcomes, self.log.log_start_offset, self.end)

    def batches(self, advance: Advance) -> Iterator[Window]:
        """Yield the batches; damage is an error."""
        damage: list[Gap] = []
        for i, segment in enumerate(self.log.segments):
            if i + 1 < len(self.log.segments) and self.log.segments[i + 1].base_offset <= self.log.log_start_offset:
                continue
            for window in windows(segment, self.log.log_start_offset, crc=True, damage=damage):
                if damage:
                    break
                yield window
                advance(int(window.batches.size.sum(dtype=np.int64)))
            if damage:
                raise damage[0].as_error()

    def steps(self, plan: OffsetPlan, advance: Advance) -> Iterator[tuple[OffsetStep, Window | None]]:
        """Yield the steps of the plan, and the batches of their records."""
        for window in self.batches(advance):

            def runs_of(row: int, window: Window = window) -> OffsetRuns:
                batch = window.batches.rows[row]
                first, last = int(batch["base_offset"]), int(batch["last_offset"])
                if batch["magic"] == 2 and batch["count"] == last - first + 1:
                    return [(first, last + 1)]
                return consecutive(_decode_row(window, row).offset)

            for step in plan.steps(window.batches, runs_of):
                yield step, window
        for step in plan.last_steps():
            yield step, None

    def records(self, first: int, end: int, level: IsolationLevel, advance: Advance) -> Iterator[RecordColumns]:
        """Yield the records of a range of the source; transactions that were open there are aborted ones."""
        if level == "read_committed" and self.has_open:
            return chunks_between(self.log, first, end, "read_uncommitted", advance, self.outcomes.mask_committed)
        return chunks_between(self.log, first, end, level, advance)


def chunks_between(
    log: LogFiles,
    first: int,
    end: int,
    level: IsolationLevel,
    advance: Advance,
    batches: Callable[[BatchTable], npt.NDArray[np.bool_]] | None = None,
) -> Iterator[RecordColumns]:
    state = replace(Reading(isolation_level=level).start(), on_bytes=advance, batches=batches)
    reader = LogReader(log, max(first, log.log_start_offset), end, Selection(), state)
    for chunk in reader.chunks():
        yield chunk.columns


def move_back(fetched: Iterator[RecordColumns], row: ProducedLog) -> Iterator[RecordColumns]:
    """Yield the records that a map names, with their offsets in the source."""
    targets = np.array([moved.target_offset for moved in row.map], np.int64)
    firsts = np.array([moved.first_offset for moved in row.map], np.int64)
    lengths = np.array([moved.next_offset - moved.first_offset for moved in row.map], np.int64)
    for columns in fetched:
        place = np.searchsorted(targets, columns.offset, "right") - 1
        distance = columns.offset - targets[place]
        kept = (place >= 0) & (distance < lengths[place])
        yield replace(columns.take(kept), offset=(firsts[place] + distance)[kept])


def is_whole(step: OffsetStep, window: Window) -> bool:
    """Check whether a step covers a whole batch that can be produced unchanged."""
    batch = window.batches.rows[step.row]
    return (
        batch["magic"] == 2
        and (step.first_offset, step.next_offset) == (batch["base_offset"], batch["last_offset"] + 1)
        and batch["count"] == step.next_offset - step.first_offset
        and not window.batches[step.row : step.row + 1].is_log_append_time[0]
    )


def make_batch(step: OffsetStep, window: Window) -> bytearray:
    """Return the records of a step as a batch: the log's own, or a new one with the same codec."""
    batch = window.batches.rows[step.row]
    if is_whole(step, window):
        start = int(batch["position"]) - window.file_position
        return bytearray(memoryview(window.buffer)[start : start + int(batch["size"])])
    columns = _decode_row(window, step.row)
    first, end = np.searchsorted(columns.offset, (step.first_offset, step.next_offset))
    records = columns_to_encode(columns.take(slice(int(first), int(end))), base_offset=0)
    shared = shared_row(compression=int(batch["attributes"]) & 7)
    return build(records, shared, batch_bytes=0x7FFFFFFF)[0]


def _decode_row(window: Window, row: int) -> RecordColumns:
    columns, damage = decode(window.batches[row : row + 1], window.buffer, window.file_position)
    if damage:
        batch = window.batches.rows[row]
        raise CorruptionError("batch", int(batch["position"]), damage[0].reason, int(batch["base_offset"]))
    return columns
