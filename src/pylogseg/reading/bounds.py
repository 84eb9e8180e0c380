"""Logs under a filter: bounds of the offsets and times of each, and the ranges that may have matching records.

A filter is an Arrow expression and is never parsed: Arrow itself is asked whether it can be true where something is
guaranteed, such as ``offset <= 7``. An answer of no is sure; so bounds found by a search are sure, and what a filter
has besides costs reading, never rows. An index knows the largest time of a range of a log; its smallest only shows
where a broker gave the times: in the headers of its batches.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow import fs

from pylogseg.format.escape import readable
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.column_names import BATCH_COLUMNS, DEFAULT_COLUMNS
from pylogseg.reading.filters import check_filter, fields_of, filter_table
from pylogseg.reading.logs import LogFiles, LogSource
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.partition import Chunk
from pylogseg.reading.ranges import Range, UncutRange, cut_up, offset_index

#: With fewer logs, bounds are looked for in each: a filter may say something else of each partition.
_MOST_SEARCHED = 16
#: Ranges are compared with a filter so many at a time: each costs some 20 us.
_COMPARED = 256
#: What lies between the offsets of a list need not be read: ranges are cut into so many, as long as a filter leaves
#: some of them out, and to no less than that size.
_PARTS, _FINE_BYTES = 64, 64 << 10
_MICROSECONDS = pa.timestamp("us", tz="UTC")
_LAST_OFFSET = 2**63 - 1
#: Times that are searched, in ms: from before "none" to the year 10895.
_FIRST_MS, _LAST_MS = -2, 2**48
#: What the text of a filter has of numbers and times. A bound is mostly beside one of them: it is looked for there
#: first, and wherever the text leads, the answer is Arrow's.
_NUMBERS, _TIMES = re.compile(r"\d{1,19}"), re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?")
_MOST_HINTS = 32
#: What the filter of a reader may be about.
_RECORDS = arrow.schema((*DEFAULT_COLUMNS, *BATCH_COLUMNS))
_ROW = "row"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Bounds(NamedTuple):
    """Ranges of offsets and times that matching records of a log lie in."""

    first_offset: int = 0  #: Half-open.
    end_offset: int = OPEN_END
    since_ms: int | None = None  #: A timestamp at or above it, and at or below `until_ms`.
    until_ms: int | None = None


def bound_logs(logs: Sequence[LogFiles], filter: Any, schema: pa.Schema) -> Iterator[tuple[LogFiles, Bounds]]:
    """Yield the logs that a filter leaves, with the bounds of matching records."""
    if filter is None:
        yield from ((log, Bounds()) for log in logs)
        return
    if fields_of([filter], ("topic", "partition")):
        logs = [logs[i] for i in matching(filter, [known_of(log) for log in logs], schema)]
        if len(logs) <= _MOST_SEARCHED:
            for log in logs:
                bounds = bounds_of(filter, schema, known_of(log))
                if bounds is not None:
                    yield log, bounds
            return
    bounds = bounds_of(filter, schema)
    yield from () if bounds is None else ((log, bounds) for log in logs)


def bounds_of(filter: Any, schema: pa.Schema, known: Any = None) -> Bounds | None:
    """Find the bounds of the records that a filter may let through; None if there are none.

    `known` is true of the records, as `of_log` is; the schema has ``offset`` and ``timestamp``.
    """

    def may_match(guarantees: Sequence[Any]) -> list[bool]:
        left = matching(filter, [guarantee if known is None else known & guarantee for guarantee in guarantees], schema)
        return [i in left for i in range(len(guarantees))]

    def lowest(field: Any, values: Sequence[int]) -> list[bool]:
        return may_match([field <= value for value in values])

    if known is not None and not matching(filter, [known], schema):
        return None
    bounds, used = Bounds(), fields_of([filter], ("offset", "timestamp"))
    offset, time = pc.field("offset"), pc.field("timestamp")
    if "offset" in used:
        if not may_match([offset >= 0])[0]:
            return None
        hints = [int(number) for number in _NUMBERS.findall(str(filter))]
        first = _first_true(0, _LAST_OFFSET, functools.partial(lowest, offset), hints)
        bounds = Bounds(first)
        if not may_match([offset >= _LAST_OFFSET])[0]:
            end = _first_true(
                first,
                _LAST_OFFSET,
                lambda values: [not holds for holds in may_match([offset >= value for value in values])],
                hints,
            )
            bounds = Bounds(first, end)
    if "timestamp" not in used or may_match([time.is_null()])[0]:  # of a time that no column holds nothing is known
        return bounds
    times = list(_times_in(str(filter)))
    if not may_match([time <= time_scalar(_FIRST_MS)])[0]:
        since = _first_true(
            _FIRST_MS, _LAST_MS, lambda values: may_match([time < time_scalar(value + 1) for value in values]), times
        )
        bounds = bounds._replace(since_ms=since)
    if not may_match([time >= time_scalar(_LAST_MS)])[0]:
        behind = _first_true(
            _FIRST_MS,
            _LAST_MS,
            lambda values: [not holds for holds in may_match([time >= time_scalar(value) for value in values])],
            times,
        )
        bounds = bounds._replace(until_ms=behind - 1)
    return bounds


def _times_in(text: str) -> Iterator[int]:
    for text_of_time in _TIMES.findall(text):
        with contextlib.suppress(ValueError):  # it stands in a string, and is no time
            time = datetime.datetime.fromisoformat(text_of_time).replace(tzinfo=datetime.timezone.utc)
            yield (time - _EPOCH) // datetime.timedelta(milliseconds=1)


def time_scalar(timestamp_ms: int) -> pa.Scalar:
    """Return a time as a value of the columns of timestamps."""
    return pa.scalar(timestamp_ms * 1000, _MICROSECONDS)


def _first_true(low: int, high: int, holds: Callable[[Sequence[int]], list[bool]], hints: Sequence[int]) -> int:
    """Bisect: return the first number of a range for which a monotone test is true, the last one if it never is.

    It is looked for beside the numbers that the filter's text has, then in steps that double, since most numbers are
    small for their type. `holds` is asked of several numbers at a time.
    """
    near = sorted({value + more for value in hints for more in (-1, 0, 1) if low <= value + more < high})
    if len(near) > _MOST_HINTS:  # of a long list
        near = near[: _MOST_HINTS // 2] + near[-_MOST_HINTS // 2 :]
    if near:
        answers = holds(near)
        place = answers.index(True) if True in answers else len(near)
        low, high = near[place - 1] + 1 if place else low, near[place] if place < len(near) else high
    step = 1
    while low + step <= high and not holds([low + step - 1])[0]:
        low += step
        step *= 2
    high = min(high, low + step - 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds([middle])[0] else (middle + 1, high)
    return low


def matching(filter: Any, guarantees: Sequence[Any], schema: pa.Schema) -> list[int]:
    """Return which guarantees, by their number, leave it open that a filter is true; all, where Arrow cannot tell."""
    format, files = _dummies()
    fragments = [format.make_fragment(str(i), files, guarantee) for i, guarantee in enumerate(guarantees)]
    dataset = pads.FileSystemDataset(fragments, schema, format, files)
    try:
        return [int(fragment.path) for fragment in dataset.get_fragments(filter=filter)]
    except pa.ArrowInvalid:  # a number of a guarantee has no equal in the type that the filter compares in
        return list(range(len(guarantees)))


@functools.cache
def _dummies() -> tuple[Any, Any]:
    """Format and file system of fragments that nobody opens."""
    return pads.IpcFileFormat(), fs.LocalFileSystem()


def of_log(topic: str, partition: int) -> Any:
    return (pc.field("topic") == readable(topic)) & (pc.field("partition") == partition)


def of_range(part: Range) -> Any:
    offset = pc.field("offset")
    return of_log(part.topic, part.partition) & (offset >= part.first_offset) & (offset <= part.end_offset - 1)


def guarantee_of(parts: Sequence[Range]) -> Any:
    """Return an expression that holds for all records of consecutive ranges of a log."""
    return of_range(parts[0]._replace(end_offset=max(parts[0].first_offset + 1, parts[-1].end_offset)))


def up_to(timestamp_ms: int, column: str = "timestamp") -> Any:
    """Return the expression for times up to a latest one; a time that the column cannot hold is null."""
    if timestamp_ms > arrow.MOST_MS:
        return pc.scalar(True)
    time = pc.field(column)
    return (time <= time_scalar(max(timestamp_ms, -arrow.MOST_MS))) | time.is_null()


def known_of(log: LogFiles) -> Any:
    """Return an expression that holds for all records of a log; just True without a segment."""
    return of_log(log.segments[0].topic, log.segments[0].partition) if log.segments else pc.scalar(True)


@dataclass(frozen=True)
class Narrowing:
    """A filter that leaves out ranges of offsets, for `pylogseg.reading.ranges.plan_tasks`."""

    filter: Any
    schema: pa.Schema
    fields: Sequence[str] = ("offset",)  #: The columns that ranges of offsets tell something of.
    guarantee: Callable[[Sequence[Range]], Any] = guarantee_of  #: What is true of all rows of ranges in a row.

    def __call__(self, pieces: Sequence[UncutRange], target_bytes: int) -> list[Range]:
        """Return the ranges of pieces of a log that may have matching rows, of about so many bytes."""
        ranges = [piece.range for piece in pieces]
        is_cut = self.filter is not None and bool(ranges) and bool(fields_of([self.filter], self.fields))
        if not is_cut or not matching(~self.filter, [self.guarantee(ranges)], self.schema):  # all of it matches
            return [part for piece in pieces for part in cut_up(piece, target_bytes)]
        return list(_join_ranges(self._matching(pieces), target_bytes))

    def _matching(self, pieces: Sequence[UncutRange]) -> list[Range]:
        """The ranges of pieces that a filter leaves, cut as finely as that leaves something out."""
        pieces = [piece._replace(offset_index=piece.offset_index or offset_index(piece.segment)) for piece in pieces]
        by_path = {piece.range.path: piece for piece in pieces}
        ranges = [piece.range for piece in pieces]
        while True:
            size = sum(part.size for part in ranges)
            fine = max(_FINE_BYTES, size // _PARTS)
            finer = [less for part in ranges for less in cut_up(by_path[part.path]._replace(range=part), fine)]
            ranges = self._filter_ranges(finer)
            if len(ranges) == len(finer) or fine == _FINE_BYTES:
                return ranges

    def _filter_ranges(self, ranges: list[Range]) -> list[Range]:
        """The ranges that a filter leaves, found by comparing groups of them that become smaller."""
        while True:
            size = -(-len(ranges) // _COMPARED)
            groups = [ranges[i : i + size] for i in range(0, len(ranges), max(size, 1))]
            kept = matching(self.filter, [self.guarantee(group) for group in groups], self.schema)
            ranges = [part for i in kept for part in groups[i]]
            if size <= 1 or len(kept) == len(groups):
                return ranges


def _join_ranges(parts: Sequence[Range], target_bytes: int) -> Iterator[Range]:
    """Ranges that follow one another in a segment as one, up to about so many bytes."""
    whole: Range | None = None
    for part in parts:
        follows = whole is not None and whole.path == part.path and whole.end_offset == part.first_offset
        if whole is not None and follows and part.end - whole.start <= target_bytes:
            whole = whole._replace(end_offset=part.end_offset, end=part.end)
            continue
        if whole is not None:
            yield whole
        whole = part
    if whole is not None:
        yield whole


class ArrowFilter:
    """The filter of a reader: an expression of Arrow on columns of records and columns about batches."""

    def __init__(self, filter: Any) -> None:
        check_filter(filter, _RECORDS)
        #: As it was given.
        self.expression = filter
        self._wanted = arrow.schema(fields_of([filter], _RECORDS.names) or ["partition"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrowFilter) and bool(self.expression.equals(other.expression))

    def __hash__(self) -> int:
        return hash(str(self.expression))

    def range_of(self, log: LogSource) -> tuple[int, int]:
        """Return the offsets of a log that matching records have; half-open, and empty if it has none."""
        bounds = bounds_of(self.expression, _RECORDS, known_of(log) if isinstance(log, LogFiles) else None)
        if bounds is None:
            return 0, 0
        since = 0 if bounds.since_ms is None else log.offset_of_time(bounds.since_ms)
        return max(bounds.first_offset, since), bounds.end_offset

    def rows(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """Return the numbers of the matching records of a chunk."""
        table = pa.Table.from_batches([arrow.record_batch(chunk, self._wanted)])
        numbered = table.append_column(_ROW, pa.array(np.arange(len(chunk.columns))))
        rows: npt.NDArray[np.int64] = filter_table(numbered, self.expression).column(_ROW).to_numpy()
        return rows
