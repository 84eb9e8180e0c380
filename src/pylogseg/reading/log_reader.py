"""Select what to read of a log: partitions, ranges of offsets and timestamps, filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.batches import BatchTable
from pylogseg.format.records import RecordColumns
from pylogseg.reading.latest import Latest
from pylogseg.reading.logs import LogFiles, LogSource
from pylogseg.reading.partition import OPEN_END, Chunk, ReadOptions, note
from pylogseg.reading.ranges import Extent, Share, cut, placed, shares
from pylogseg.reading.seek import end_offset
from pylogseg.walker.gaps import Gap


def check_order(first: int | None, end: int | None) -> None:
    """Refuse a range of offsets that ends before it begins; negative ones count from the end."""
    if first is not None and end is not None and (first < 0) == (end < 0) and end < first:
        raise RequestError(f"the range of offsets {first}:{end} ends before it begins")


def check_times(since: int | None, until: int | None) -> None:
    """Refuse a range of timestamps that ends before it begins."""
    if since is not None and until is not None and until < since:
        raise RequestError(f"the range of timestamps {since}:{until} (ms) ends before it begins")


def range_of(log: LogSource, offsets: tuple[int, int], times: tuple[int | None, int | None]) -> tuple[int, int]:
    """Return the offsets of a log in a range of offsets and, by its start, a range of timestamps; both half-open.

    A negative offset counts from the end of the log. Timestamps need not ascend: after a record that is later than the
    end of the range, earlier ones may follow.
    """
    first, end = offsets
    if first < 0 or end < 0:
        log_end = log.log_end_offset
        first, end = (max(0, log_end + offset) if offset < 0 else offset for offset in (first, end))
    first = max(first, log.log_start_offset)
    if times[0] is not None:
        first = max(first, log.offset_of_time(times[0]))
    return first, end


def timed(options: ReadOptions, since: int | None, until: int | None) -> ReadOptions:
    """Return options that also leave out batches without a record in a range of timestamps, by their headers."""
    if since is None and until is None:
        return options

    def may_be(rows: BatchTable) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(rows), np.bool_) if options.batches is None else options.batches(rows)
        if since is not None:
            mask &= rows.max_timestamp >= since
        if until is not None:  # with LogAppendTime all records have the time of their batch
            mask &= (rows.timestamp_type != 1) | (rows.max_timestamp < until)
        return mask

    return replace(options, batches=may_be)


def in_time(columns: RecordColumns, since: int | None, until: int | None) -> RecordColumns:
    """Return only the records in a range of timestamps."""
    if since is None and until is None:
        return columns
    mask = np.ones(len(columns), np.bool_)
    if since is not None:
        mask &= columns.timestamp >= since
    if until is not None:
        mask &= columns.timestamp < until
    return columns if mask.all() else columns.take(mask)


class Filter(Protocol):
    """Which records of a read are wanted: `KeyFilter`, or `pylogseg.reading.bounds.ArrowFilter`.

    ``range_of`` gives the offsets of a log outside of which none is; ``rows`` the numbers of those of a chunk.
    """

    def range_of(self, log: LogSource) -> tuple[int, int]: ...
    def rows(self, chunk: Chunk) -> npt.NDArray[np.int64]: ...


class KeyFilter(NamedTuple):
    """Records with a key."""

    key: bytes

    def range_of(self, log: LogSource) -> tuple[int, int]:
        """See `Filter`."""
        return 0, OPEN_END

    def rows(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """See `Filter`."""
        columns = chunk.columns
        rows = np.flatnonzero(columns.key_size == len(self.key))
        # With equal size, containing the key means being equal to it.
        return rows[text.find(columns.key_place[rows], columns.key_size[rows], columns.sources, self.key)]


def wanted_of(chunk: Chunk, times: tuple[int | None, int | None], filter: Filter | None) -> Chunk:
    """Return only the records of a chunk that are in a range of timestamps and that a filter lets through."""
    columns = in_time(chunk.columns, *times)
    found = chunk if columns is chunk.columns else chunk._replace(columns=columns)
    if filter is None or not len(columns):
        return found
    return found._replace(columns=columns.take(filter.rows(found)))


def chunks_of(
    log: LogSource,
    offsets: tuple[int, int],
    times: tuple[int | None, int | None],
    options: ReadOptions,
    filter: Filter | None = None,
    latest: Latest | None = None,
) -> Iterator[Chunk]:
    """Yield the records of a log in half-open ranges that a filter lets through, or the last of each key; none empty.

    All that reads records without Arrow comes through here, the scan too where it has no plan.
    """
    first, end = offsets
    if filter is not None:
        wanted = filter.range_of(log)
        # What ends at damage is read from its start: records behind damage do not belong to it.
        first = first if options.on_corrupt == "stop" else max(first, wanted[0])
        end = min(end, wanted[1])

    def read(options: ReadOptions) -> Iterator[Chunk]:
        return (wanted_of(chunk, times, filter) for chunk in log.chunks(first, end, timed(options, *times)))

    found = read(options) if latest is None else latest.chunks(read, options)
    return (chunk for chunk in found if len(chunk.columns))


def losses_of(
    log: LogSource, offsets: tuple[int, int], times: tuple[int | None, int | None], reached: int = 0
) -> list[Gap]:
    """Return the known losses of a log in half-open ranges; it has reached some offset."""
    if not isinstance(log, LogFiles):
        return []
    if log.noted is not None and reached >= log.noted.offset:
        log = log._replace(noted=None)
    first, end = range_of(log, offsets, times)
    return log.losses(first, end if times[1] is None else min(end, log.offset_of_time(times[1])))


class ReadScope(NamedTuple):
    """The logs, ranges and options of a read: the beginning of each scan."""

    logs: Sequence[LogSource]
    offsets: tuple[int, int]  #: Half-open, as `times`; negative ones count from the end of a log.
    times: tuple[int | None, int | None]
    limit: int | None  #: Most records.
    options: ReadOptions
    latest: Latest | None = None
    filter: Filter | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records in the order of logs and offsets, a part of a segment at a time; no chunk is empty."""
        left = self.limit
        for log in self.logs if left is None or left > 0 else ():
            offsets, before, reached = range_of(log, self.offsets, self.times), len(self.options.gaps), 0
            for chunk in chunks_of(log, offsets, self.times, self.options, self.filter, self.latest):
                reached = int(chunk.columns.offset[-1]) + 1
                if left is not None:
                    if len(chunk.columns) > left:
                        chunk = chunk._replace(columns=chunk.columns.take(slice(0, left)))
                    left -= len(chunk.columns)
                yield chunk
                if left == 0:
                    return
            if self.options.on_corrupt != "stop" or not any(gap.is_damage for gap in self.options.gaps[before:]):
                for loss in losses_of(log, self.offsets, self.times, reached):
                    note(loss, self.options)


@dataclass(frozen=True)
class LogReader:
    """What is read of one log; its parts can be sent to threads or tasks of Spark."""

    log: LogFiles
    first_offset: int
    end_offset: int
    since: int | None = None  #: Half-open range of timestamps with `until`, in ms; offsets are used for seeking.
    until: int | None = None
    filter: Filter | None = None
    #: For one reading at a time: it has the list of gaps and, with `scratch`, the memory.
    options: ReadOptions = field(default_factory=ReadOptions)
    latest: Latest | None = None  #: Only the last record of each key among the selected records.
    part_bytes: int | None = None  #: Of a part of a segment, about.

    @classmethod
    def of(
        cls,
        log: LogFiles,
        offsets: tuple[int, int],
        times: tuple[int | None, int | None],
        options: ReadOptions,
        filter: Filter | None = None,
    ) -> LogReader:
        """Return a reader for a range of offsets and one of timestamps, both half-open.

        The start time becomes an offset by the indexes; the end of the log, if no record has reached that time yet.
        """
        first, end = range_of(log, offsets, times)
        if times[0] is not None and first >= OPEN_END:
            first = max(offsets[0], log.log_start_offset, end_offset(log.segments))
        return cls(log, first, end, *times, filter, options)

    @property
    def gaps(self) -> list[Gap]:
        return self.options.gaps

    @property
    def name(self) -> str:
        """See `LogFiles`."""
        return self.log.name

    @property
    def size(self) -> int:
        """Bytes of the segments, or about those of the part of one."""
        return self.part_bytes if self.part_bytes is not None else sum(segment.size for segment in self.log.segments)

    def apart(self, on_bytes: Callable[[int], None] | None = None) -> LogReader:
        """Return a copy with its own list of gaps, for another thread; the throttle stays shared."""
        return replace(self, options=replace(self.options, gaps=[], on_bytes=on_bytes))

    def parts(self, target_bytes: int | None = None) -> list[LogReader]:
        """Split into readers of segments, or of parts of these of about so many bytes.

        In any order they read the same records and gaps. One reader is returned if segments depend on earlier ones:
        ``read_committed`` ends at an open transaction, and ``on_corrupt="stop"`` at damage.
        """
        options = self.options
        if options.isolation_level == "read_committed" or options.on_corrupt == "stop" or self.log.error or self.latest:
            return [self.apart()]
        extent = Extent(self.log, self.first_offset, self.end_offset)
        found = [share for share in shares(extent) if share.first_offset < share.end_offset]
        return [part for share in found for part in self._of(share, target_bytes)]

    def _of(self, share: Share, target_bytes: int | None) -> Iterator[LogReader]:
        """Yield the readers of a share of a segment."""
        whole = replace(self.apart(), log=self.log._replace(segments=[share.segment]))
        if target_bytes is None or share.segment.size <= target_bytes:
            yield whole
            return
        ranges = list(cut(placed(share), target_bytes))
        for part in ranges:
            continues, is_last = part is not ranges[0], part is ranges[-1]
            yield replace(
                whole,
                first_offset=part.first_offset if continues else self.first_offset,
                end_offset=self.end_offset if is_last else part.end_offset,
                options=replace(whole.options, gaps=[], continues=continues),
                part_bytes=part.size,
            )

    def losses(self) -> list[Gap]:
        """Return the known losses in the range."""
        return losses_of(self.log, (self.first_offset, self.end_offset), (None, self.until))

    def read(self) -> Iterator[Chunk]:
        """Yield the chunks of the range of offsets, unfiltered; some may be empty."""
        yield from self.log.chunks(self.first_offset, self.end_offset, timed(self.options, self.since, self.until))

    def filtered(self, chunk: Chunk) -> Chunk:
        """Return only the selected records of a chunk."""
        return wanted_of(chunk, (self.since, self.until), self.filter)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the selected records; no chunk is empty."""
        offsets, times = (self.first_offset, self.end_offset), (self.since, self.until)
        yield from chunks_of(self.log, offsets, times, self.options, self.filter, self.latest)


def first_chunks(readers: Iterable[LogReader]) -> Iterator[Chunk]:
    """Yield what readers read, for one that looks at the beginning: gaps are not noted, nor the bytes counted."""
    for reader in readers:
        yield from reader.apart().chunks()
