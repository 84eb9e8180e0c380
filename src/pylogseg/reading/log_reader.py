"""Read the selected records of one log, whole or in parts that can be sent to threads or tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pylogseg.reading.logs import LogFiles, LogSource
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.partition import Chunk
from pylogseg.reading.ranges import Extent, UncutRange, pieces, plan_tasks
from pylogseg.reading.seek import end_offset
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading, ReadState
from pylogseg.walker.gaps import Gap


def losses_of(log: LogSource, selection: Selection, reached: int = 0) -> list[Gap]:
    """Return the known losses of a log in the ranges of a selection; it has reached some offset."""
    if not isinstance(log, LogFiles):
        return []
    if log.noted is not None and reached >= log.noted.offset:
        log = log._replace(noted=None)
    first, end = selection.range_of(log)
    return log.losses(first, end if selection.until is None else min(end, log.offset_of_time(selection.until)))


class ReadScope(NamedTuple):
    """The logs and the selection of a read, and its state: the beginning of each scan."""

    logs: Sequence[LogSource]
    selection: Selection
    state: ReadState

    @classmethod
    def of(
        cls, logs: Sequence[LogSource], selection: Selection | None = None, reading: Reading | None = None
    ) -> ReadScope:
        """Return the scope of a new reading, by default of all records."""
        selection, reading = selection or Selection(), reading or Reading()
        selection.check(reading)
        return cls(logs, selection, reading.start(first_window_bytes=selection.first_window_bytes))

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records in the order of logs and offsets, a part of a segment at a time; no chunk is empty."""
        selection, state = self.selection, self.state
        left = selection.limit
        for log in self.logs if left is None or left > 0 else ():
            (first, end), before, reached = selection.range_of(log), len(state.gaps), 0
            for chunk in selection.chunks(log, first, end, state):
                reached = int(chunk.columns.offset[-1]) + 1
                if left is not None:
                    if len(chunk.columns) > left:
                        chunk = chunk._replace(columns=chunk.columns.take(slice(0, left)))
                    left -= len(chunk.columns)
                yield chunk
                if left == 0:
                    return
            if not state.ends_at_damage or not any(gap.is_damage for gap in state.gaps[before:]):
                for loss in losses_of(log, selection, reached):
                    state.note(loss)


@dataclass(frozen=True)
class LogReader:
    """Reads the selected records of one log, in a range of offsets; its parts can be sent elsewhere."""

    log: LogFiles
    first_offset: int
    end_offset: int
    selection: Selection = field(default_factory=Selection)  #: Its range of offsets has become that of the reader.
    #: For one reading at a time: it has the list of gaps and, with `scratch`, the memory.
    state: ReadState = field(default_factory=ReadState)
    part_bytes: int | None = None  #: Of a part of a segment, about.

    @classmethod
    def of(cls, log: LogFiles, selection: Selection, state: ReadState) -> LogReader:
        """Return a reader for the ranges of a selection.

        The start time becomes an offset by the indexes; the end of the log, if no record has reached that time yet.
        """
        first, end = selection.range_of(log)
        if selection.since is not None and first >= OPEN_END:
            first = max(selection.offsets.within(log)[0], log.log_start_offset, end_offset(log.segments))
        return cls(log, first, end, selection, state)

    @property
    def gaps(self) -> list[Gap]:
        return self.state.gaps

    @property
    def name(self) -> str:
        return self.log.name

    @property
    def size(self) -> int:
        """Bytes of the segments; for a part of one, an estimate."""
        return self.part_bytes if self.part_bytes is not None else sum(segment.size for segment in self.log.segments)

    def apart(self, on_bytes: Callable[[int], None] | None = None) -> LogReader:
        """Return a copy with its own list of gaps, for another thread; the throttle stays shared."""
        return replace(self, state=replace(self.state, gaps=[], on_bytes=on_bytes))

    def parts(self, target_bytes: int | None = None) -> list[LogReader]:
        """Split into readers of segments, or of parts of these of about so many bytes.

        In any order they read the same records and gaps. One reader is returned if segments depend on earlier ones:
        ``read_committed`` ends at an open transaction, and ``on_corrupt="stop"`` at damage.
        """
        state = self.state
        is_one = state.reading.isolation_level == "read_committed" or state.ends_at_damage or self.selection.latest
        if is_one or self.log.error:
            return [self.apart()]
        extent = Extent(self.log, self.first_offset, self.end_offset)
        asked = [piece for piece in pieces(extent) if piece.range.first_offset < piece.range.end_offset]
        return [part for piece in asked for part in self._of(piece, target_bytes)]

    def _of(self, piece: UncutRange, target_bytes: int | None) -> Iterator[LogReader]:
        """Yield readers for the parts of a segment."""
        whole = replace(self.apart(), log=self.log._replace(segments=[piece.segment]))
        if target_bytes is None or piece.segment.size <= target_bytes:
            yield whole
            return
        ranges = [part for task in plan_tasks([piece], target_bytes) for part in task]
        for part in ranges:
            continues, is_last = part is not ranges[0], part is ranges[-1]
            yield replace(
                whole,
                first_offset=part.first_offset if continues else self.first_offset,
                end_offset=self.end_offset if is_last else part.end_offset,
                state=replace(whole.state, gaps=[], continues=continues),
                part_bytes=part.size,
            )

    def losses(self) -> list[Gap]:
        until = self.selection.until
        end = self.end_offset if until is None else min(self.end_offset, self.log.offset_of_time(until))
        return self.log.losses(max(self.first_offset, self.log.log_start_offset), end)

    def read(self) -> Iterator[Chunk]:
        """Yield the chunks of the range of offsets, unfiltered; some may be empty."""
        yield from self.log.chunks(self.first_offset, self.end_offset, self.selection.skip_by_time(self.state))

    def filter_chunk(self, chunk: Chunk) -> Chunk:
        return self.selection.of_chunk(chunk)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the selected records; no chunk is empty."""
        yield from self.selection.chunks(self.log, self.first_offset, self.end_offset, self.state)


def first_chunks(readers: Iterable[LogReader]) -> Iterator[Chunk]:
    """Yield chunks for a look at the beginning of logs: gaps are not noted, and bytes are not counted."""
    for reader in readers:
        yield from reader.apart().chunks()
