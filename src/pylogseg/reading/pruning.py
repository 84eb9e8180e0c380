"""What a filter leaves of a log: partitions, a range of offsets, the earliest time.

A filter is an Arrow expression and is never parsed: Arrow itself is asked whether it can be true where something is
guaranteed, such as ``offset <= 7``. An answer of no is sure; so bounds found by a search are sure, and what a filter
has besides costs reading, never rows. Of a range of a log its largest time is known by an index; its smallest
only where a broker gave the times, by the headers of its batches.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow import acero, fs

from pylogseg.errors import RequestError
from pylogseg.format.escape import readable
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.column_names import BATCH_COLUMNS, DEFAULT_COLUMNS
from pylogseg.reading.log_reader import LogFiles, Source
from pylogseg.reading.partition import OPEN_END, Chunk
from pylogseg.reading.ranges import Range

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
    """Where the matching records of a log lie.

    Attributes
    ----------
    first_offset, end_offset : int
        Half-open.
    since_ms, until_ms : int or None
        A timestamp at or above the one, and at or below the other.
    """

    first_offset: int = 0
    end_offset: int = OPEN_END
    since_ms: int | None = None
    until_ms: int | None = None


def check_filter(filter: Any, schema: pa.Schema) -> None:
    """Raise RequestError for what is no boolean expression on the columns of a schema."""
    if not isinstance(filter, pc.Expression):
        raise RequestError(f"a filter is an expression like pyarrow.compute.field('offset') >= 5, not {filter!r}")
    try:
        filtered(schema.empty_table(), filter)
    except (pa.ArrowException, TypeError) as error:
        raise explained(error, f"the filter {filter}", schema) from None


def filtered(table: pa.Table, filter: Any) -> pa.Table:
    """Return the rows for which a filter is true; this thread does the work."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    steps = [source, acero.Declaration("filter", acero.FilterNodeOptions(filter))]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def explained(error: Exception, what: str, schema: pa.Schema) -> RequestError:
    """Return the error for an expression that Arrow refuses."""
    reason = str(error).splitlines()[0]
    missing = re.search(r"No match for FieldRef\.Name\((.*?)\) in ", reason)
    return RequestError(f"{what}: {reason}") if missing is None else no_column(missing[1], schema.names)


def no_column(name: str, names: Sequence[str]) -> RequestError:
    """Return the error for a column that there is not."""
    close = difflib.get_close_matches(name, names, 1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    return RequestError(f"no column {name!r}{meant} The columns are {', '.join(names)}")


def fields_of(expressions: Iterable[Any], names: Sequence[str]) -> list[str]:
    """Return the columns that expressions may use: those whose names are in their text, in order."""
    text = " ".join(map(str, expressions))
    # A field that is asked for by its number: only with all columns is it the one that is meant.
    return [name for name in names if name in text] if "FieldPath(" not in text else list(names)


def matching(filter: Any, guarantees: Sequence[Any], schema: pa.Schema) -> list[int]:
    """Return which guarantees, by their number, leave it open that a filter is true; all, where Arrow cannot tell."""
    format, files = _dummies()
    fragments = [format.make_fragment(str(i), files, guarantee) for i, guarantee in enumerate(guarantees)]
    found = pads.FileSystemDataset(fragments, schema, format, files)
    try:
        return [int(fragment.path) for fragment in found.get_fragments(filter=filter)]
    except pa.ArrowInvalid:  # a number of a guarantee has no equal in the type that the filter compares in
        return list(range(len(guarantees)))


@functools.cache
def _dummies() -> tuple[Any, Any]:
    """Format and file system of fragments that nobody opens."""
    return pads.IpcFileFormat(), fs.LocalFileSystem()


def of_log(topic: str, partition: int) -> Any:
    """Return what is true of all records of a log."""
    return (pc.field("topic") == readable(topic)) & (pc.field("partition") == partition)


def of_range(part: Range) -> Any:
    """Return what is true of all records of a range."""
    offset = pc.field("offset")
    return of_log(part.topic, part.partition) & (offset >= part.first_offset) & (offset <= part.end_offset - 1)


def up_to(timestamp_ms: int) -> Any:
    """Return what is true of records that are no later than a time."""
    return pc.field("timestamp") <= moment(timestamp_ms)


def known_of(log: LogFiles) -> Any:
    """Return what is true of all records of a log; nothing, of one without a segment."""
    return of_log(log.segments[0].topic, log.segments[0].partition) if log.segments else pc.scalar(True)


def bounds_of(filter: Any, schema: pa.Schema, known: Any = None) -> Bounds | None:
    """Find the bounds of the records that a filter may let through; None if there are none.

    Parameters
    ----------
    filter : pyarrow.compute.Expression
        Bound to `schema` without an error.
    schema : pyarrow.Schema
        With ``offset`` and ``timestamp``.
    known : pyarrow.compute.Expression, optional
        What is true of the records, such as `of_log`.
    """

    def may_match(guarantees: Sequence[Any]) -> list[bool]:
        left = matching(filter, [each if known is None else known & each for each in guarantees], schema)
        return [i in left for i in range(len(guarantees))]

    def lowest(field: Any, values: Sequence[int]) -> list[bool]:
        return may_match([field <= value for value in values])

    if known is not None and not matching(filter, [known], schema):
        return None
    found, used = Bounds(), fields_of([filter], ("offset", "timestamp"))
    offset, time = pc.field("offset"), pc.field("timestamp")
    if "offset" in used:
        if not may_match([offset >= 0])[0]:
            return None
        hints = [int(number) for number in _NUMBERS.findall(str(filter))]
        first = _first_true(0, _LAST_OFFSET, functools.partial(lowest, offset), hints)
        found = Bounds(first)
        if not may_match([offset >= _LAST_OFFSET])[0]:
            end = _first_true(
                first,
                _LAST_OFFSET,
                lambda values: [not each for each in may_match([offset >= value for value in values])],
                hints,
            )
            found = Bounds(first, end)
    times = list(_times_in(str(filter))) if "timestamp" in used else []
    if "timestamp" in used and not may_match([time <= moment(_FIRST_MS)])[0]:
        since = _first_true(
            _FIRST_MS, _LAST_MS, lambda values: may_match([time < moment(value + 1) for value in values]), times
        )
        found = found._replace(since_ms=since)
    if "timestamp" in used and not may_match([time >= moment(_LAST_MS)])[0]:
        behind = _first_true(
            _FIRST_MS,
            _LAST_MS,
            lambda values: [not each for each in may_match([time >= moment(value) for value in values])],
            times,
        )
        found = found._replace(until_ms=behind - 1)
    return found


class Where:
    """An expression of Arrow, on the columns of records and those about batches, as the filter of a reader."""

    def __init__(self, filter: Any) -> None:
        check_filter(filter, _RECORDS)
        #: As it was given.
        self.expression = filter
        self._wanted = arrow.schema(fields_of([filter], _RECORDS.names) or ["partition"])

    def range_of(self, log: Source) -> tuple[int, int]:
        """Return the offsets of a log that matching records have; half-open, and empty if it has none."""
        found = bounds_of(self.expression, _RECORDS, known_of(log) if isinstance(log, LogFiles) else None)
        if found is None:
            return 0, 0
        since = 0 if found.since_ms is None else log.offset_of_time(found.since_ms)
        return max(found.first_offset, since), found.end_offset

    def rows(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """Return the numbers of the matching records of a chunk."""
        table = pa.Table.from_batches([arrow.record_batch(chunk, self._wanted)])
        numbered = table.append_column(_ROW, pa.array(np.arange(len(chunk.columns))))
        found: npt.NDArray[np.int64] = filtered(numbered, self.expression).column(_ROW).to_numpy()
        return found


def _times_in(text: str) -> Iterator[int]:
    for found in _TIMES.findall(text):
        with contextlib.suppress(ValueError):  # it stands in a string, and is no time
            time = datetime.datetime.fromisoformat(found).replace(tzinfo=datetime.timezone.utc)
            yield (time - _EPOCH) // datetime.timedelta(milliseconds=1)


def moment(timestamp_ms: int) -> pa.Scalar:
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
        known = holds(near)
        place = known.index(True) if True in known else len(near)
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
