"""The records of one log that somebody wants, as a value: ranges, filters, and how they are read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pylogseg.format import text
from pylogseg.format.records import RecordColumns
from pylogseg.reading.findings import Gap
from pylogseg.reading.partition import Chunk, PartitionReader, ReadOptions
from pylogseg.reading.stream import LogFiles


@dataclass(frozen=True)
class Wanted:
    """A part of one log.

    Attributes
    ----------
    log : LogFiles
    first_offset, end_offset : int
        Half-open.
    since, until : int or None
        Records outside of these timestamps (half-open, ms) are left out; the offsets do the seeking.
    key : bytes or None
        Only records with this key.
    options : ReadOptions
        Of one reading at a time: it has its report and, with ``reuse``, its memory.
    """

    log: LogFiles
    first_offset: int
    end_offset: int
    since: int | None = None
    until: int | None = None
    key: bytes | None = None
    options: ReadOptions = field(default_factory=ReadOptions)

    @property
    def gaps(self) -> list[Gap]:
        """What the last reading passed over."""
        return self.options.gaps

    @property
    def name(self) -> str:
        """Of the partition, or of the file where the folder tells none."""
        first = self.log.segments[0]
        return f"{first.topic}-{first.partition}" if first.topic else first.path

    def apart(self, on_bytes: Callable[[int], None] | None = None) -> Wanted:
        """The same with a report of its own, for another thread; the throttle stays shared."""
        return replace(self, options=replace(self.options, gaps=[], on_bytes=on_bytes))

    def by_segment(self) -> list[Wanted]:
        """One part for each segment, to be read on their own in any order.

        Not where the outcome of one depends on those before it: read_committed ends at an open transaction, and
        ``on_corrupt="stop"`` at damage.
        """
        if self.options.isolation == "read_committed" or self.options.on_corrupt == "stop":
            return [self.apart()]
        bases = [segment.base_offset for segment in self.log.segments]
        parts = []
        for i in range(max(0, bisect_right(bases, self.first_offset) - 1), len(bases)):
            end = min(self.end_offset, bases[i + 1]) if i + 1 < len(bases) else self.end_offset
            first = max(self.first_offset, bases[i])
            if first < end:
                parts.append(replace(self.apart(), log=self.log._replace(segments=self.log.segments[i : i + 1]),
                                     first_offset=first, end_offset=end))  # fmt: skip
        return parts

    def read(self) -> Iterator[Chunk]:
        """Chunks of the range of offsets, unfiltered; some may be empty."""
        self.options.gaps.clear()
        yield from PartitionReader(
            self.log.segments, self.first_offset, self.end_offset, self.options, self.log.snapshots
        )

    def filtered(self, chunk: Chunk) -> Chunk:
        """The records of a chunk that are wanted."""
        columns = chunk.columns
        if self.since is not None or self.until is not None:
            mask = np.ones(len(columns), np.bool_)
            if self.since is not None:
                mask &= columns.timestamp >= self.since
            if self.until is not None:
                mask &= columns.timestamp < self.until
            columns = columns if mask.all() else columns.take(mask)
        if self.key is not None:
            columns = columns.take(has_key(columns, self.key))
        return chunk if columns is chunk.columns else Chunk(columns, chunk.segment)

    def chunks(self) -> Iterator[Chunk]:
        """The wanted records; no chunk is empty."""
        for chunk in map(self.filtered, self.read()):
            if len(chunk.columns):
                yield chunk


def has_key(columns: RecordColumns, key: bytes) -> npt.NDArray[np.intp]:
    """Numbers of the records that have a key."""
    rows = np.flatnonzero(columns.key_size == len(key))
    # Of equal size: what holds it is it.
    return rows[text.find(columns.key_place[rows], columns.key_size[rows], columns.sources, key)]
