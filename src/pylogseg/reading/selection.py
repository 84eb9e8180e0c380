"""A selection of logs and their records; its parts are applied here, to logs, batches and records."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pylogseg.disk.choice import whole_number
from pylogseg.disk.disk import Disk
from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.batches import BatchTable
from pylogseg.format.moments import first_ms, warned_of_unit
from pylogseg.format.records import RecordColumns
from pylogseg.reading.latest import LEAST_MEMORY_BYTES, MEMORY_BYTES, latest_chunks
from pylogseg.reading.logs import LogFiles, LogSource, logs_of
from pylogseg.reading.offset_range import OPEN_END, OffsetRange, pair_of
from pylogseg.reading.options import check_options, option
from pylogseg.reading.partition import Chunk
from pylogseg.reading.state import Reading, ReadState
from pylogseg.walker.windows import MEDIUM_WINDOW_BYTES, SMALL_WINDOW_BYTES

Moment = int | datetime.datetime
_FEW_RECORDS = 1000


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
        return 0, OPEN_END

    def rows(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        columns = chunk.columns
        rows = np.flatnonzero(columns.key_size == len(self.key))
        # With equal size, containing the key means being equal to it.
        return rows[text.find(columns.key_place[rows], columns.key_size[rows], columns.sources, self.key)]


@dataclass(frozen=True)
class Selection:
    """Which records are read: all of them by default; see `pylogseg.read`."""

    topics: tuple[str, ...] = ()  #: Names, or patterns; also of partitions.
    partitions: tuple[int, ...] = ()
    offsets: OffsetRange = option(
        OffsetRange(),
        "From offset A up to B, exclusive. A or A: is from A on, :B up to B, A:+1 one record; -N counts from the end "
        "of each partition.",
        flags=("--offset", "-o"),
        metavar="A:B",
        parse="offsets",
    )
    #: A half-open range of timestamps with `until`, in ms.
    since: int | None = option(
        None,
        "{}: now, 2h or 7d (ago), 2026-01-31T12:00:00Z (or with +02:00), or milliseconds.",
        metavar="TIME",
        parse="moment",
    )
    until: int | None = option(
        None, "Up to this time, exclusive; written as for --since.", metavar="TIME", parse="moment"
    )
    filter: Filter | None = None
    latest: bool = option(False, "Only the last of the selected records of each key.")
    tombstones: bool = option(False, "{}nclude keys whose last record has no value.")
    latest_memory_bytes: int = option(
        MEMORY_BYTES,
        "{}emory for the map of keys, 27 bytes each; more keys take more passes.",
        flags=("--map-memory",),
        parse="size",
        shell_default="128Mi",
    )
    limit: int | None = None  #: Most records, over all logs.
    from_log_start: bool = option(
        True, "Include deleted records that are still in the files.", flags=("--below-log-start",)
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.limit is not None and self.limit < 0:
            raise RequestError(f"limit must not be negative, not {self.limit}")
        check_times(self.since, self.until)
        if self.latest and self.latest_memory_bytes < LEAST_MEMORY_BYTES:
            raise RequestError(
                f"a map of {self.latest_memory_bytes} bytes is too small: give it {LEAST_MEMORY_BYTES} or more"
            )

    def check(self, reading: Reading) -> None:
        """Raise RequestError if records cannot be selected so in a reading."""
        if self.latest and reading.control:
            raise RequestError("latest=True (--latest) cannot be combined with control=True (--control)")

    @property
    def times(self) -> tuple[int | None, int | None]:
        """The half-open range of timestamps, in ms."""
        return self.since, self.until

    @property
    def has_times(self) -> bool:
        """True if timestamps matter."""
        return self.since is not None or self.until is not None

    @property
    def has_end(self) -> bool:
        """True if records that are appended later are not selected."""
        return self.offsets.has_end or self.until is not None

    @property
    def first_window_bytes(self) -> int:
        """Size of the first window: smaller if only a few records are requested."""
        return MEDIUM_WINDOW_BYTES if self.limit is None or self.limit > _FEW_RECORDS else SMALL_WINDOW_BYTES

    def logs(self, disk: Disk) -> list[LogFiles]:
        """Return the selected logs of a disk; see `logs_of`."""
        chosen = disk.select(self.topics or None, self.partitions or None)
        return logs_of(chosen, from_log_start=self.from_log_start, with_ends=True)

    def range_of(self, log: LogSource) -> tuple[int, int]:
        """Return the offsets of a log in the ranges of offsets and, by its start, of timestamps; half-open.

        Timestamps need not ascend: after a record that is later than the end of the range, earlier ones may follow.
        """
        first, end = self.offsets.within(log)
        first = max(first, log.log_start_offset)
        return first if self.since is None else max(first, log.offset_of_time(self.since)), end

    def in_time(self, columns: RecordColumns) -> RecordColumns:
        """Return only the records in the range of timestamps."""
        if not self.has_times:
            return columns
        mask = np.ones(len(columns), np.bool_)
        if self.since is not None:
            mask &= columns.timestamp >= self.since
        if self.until is not None:
            mask &= columns.timestamp < self.until
        return columns if mask.all() else columns.take(mask)

    def of_chunk(self, chunk: Chunk) -> Chunk:
        """Return only the records of a chunk that are in the range of timestamps and that the filter lets through."""
        columns = self.in_time(chunk.columns)
        timely = chunk if columns is chunk.columns else chunk._replace(columns=columns)
        if self.filter is None or not len(columns):
            return timely
        return timely._replace(columns=columns.take(self.filter.rows(timely)))

    def skip_by_time(self, state: ReadState) -> ReadState:
        """Return a state that also leaves out batches without a record in the range of timestamps, by their headers."""
        if not self.has_times:
            return state

        def may_be(rows: BatchTable) -> npt.NDArray[np.bool_]:
            mask = np.ones(len(rows), np.bool_) if state.batches is None else state.batches(rows)
            if self.since is not None:
                mask &= rows.max_timestamp >= self.since
            if self.until is not None:  # with LogAppendTime all records have the time of their batch
                mask &= (rows.timestamp_type != 1) | (rows.max_timestamp < self.until)
            return mask

        return replace(state, batches=may_be)

    def chunks(self, log: LogSource, first: int, end: int, state: ReadState) -> Iterator[Chunk]:
        """Yield the selected records of a half-open range of a log; no chunk is empty.

        All that reads records without Arrow comes through here, the scan too where it has no plan.
        """
        if self.filter is not None:
            wanted = self.filter.range_of(log)
            # A log that ends at damage is read from its start: records behind damage do not belong to it.
            first = first if state.ends_at_damage else max(first, wanted[0])
            end = min(end, wanted[1])

        def read(state: ReadState) -> Iterator[Chunk]:
            return (self.of_chunk(chunk) for chunk in log.chunks(first, end, self.skip_by_time(state)))

        chunks = read(state)
        if self.latest:
            chunks = latest_chunks(read, state, tombstones=self.tombstones, memory_bytes=self.latest_memory_bytes)
        return (chunk for chunk in chunks if len(chunk.columns))


def selection_of(
    offset: Any = None, timestamp: Moment | tuple[Moment | None, Moment | None] | None = None, **more: Any
) -> Selection:
    """Return the selection of arguments in the form of `pylogseg.read`."""
    if (limit := more.get("limit")) is not None:
        more["limit"] = whole_number(limit, "limit")
    since, until = (milliseconds(moment) for moment in pair_of(timestamp))
    return Selection(offsets=OffsetRange.of(offset), since=since, until=until, **more)


def check_times(since: int | None, until: int | None) -> None:
    """Refuse a range of timestamps that ends before it begins."""
    if since is not None and until is not None and until < since:
        raise RequestError(f"the range of timestamps {since}:{until} (ms) ends before it begins")


def milliseconds(moment: Moment | None) -> int | None:
    """Return a time of an argument in milliseconds since 1970; RequestError for a datetime without a zone."""
    if isinstance(moment, datetime.datetime):
        return first_ms(moment)
    return None if moment is None else warned_of_unit(whole_number(moment, "timestamp"))
