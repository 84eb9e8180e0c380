"""`diff`: compare two partitions or directories by their records: missing, changed and extra ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk
from pylogseg.disk.folders import not_here
from pylogseg.env.executor import Advance, WorkKeywords, Workload, choose_executor
from pylogseg.errors import RequestError
from pylogseg.format.columns import TableColumn, declare_columns, get_columns, line_type
from pylogseg.format.keywords import split_keywords
from pylogseg.format.outcome import Outcome
from pylogseg.format.records import RecordColumns
from pylogseg.format.scratch import Scratch
from pylogseg.format.words import check_word, count_text, names_text
from pylogseg.offline.comparing_columns import FIELD_NAMES, changes
from pylogseg.reading.latest import MEMORY_BYTES
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import LogFiles, logs_of
from pylogseg.reading.offset_range import OPEN_END, OffsetRange, Offsets
from pylogseg.reading.seek import end_offset
from pylogseg.reading.selection import Moment, Selection
from pylogseg.reading.state import IsolationLevel, LimitKeywords, OnCorrupt, ReadState
from pylogseg.tables.question import Question
from pylogseg.tables.reader import Reader, Source
from pylogseg.walker.gaps import Gap, offsets_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

Mode = Literal["records", "offsets", "latest"]
Kind = Literal["missing", "extra", "changed"]

FROM_THE_END = "diff does not accept offsets from the end, which differ between the sides: give absolute offsets"

#: Codes of a record beside the fields that changed (bits 0 to 3).
_MISSING, _EXTRA = 16, 32


@declare_columns(
    TableColumn("kind", "string", "missing (not in B), extra (not in A) or changed"),
    TableColumn("first", "int64", "offset", source="first_offset"),
    TableColumn("last", "int64", "offset, inclusive", source="last_offset"),
    TableColumn("records", "int64", "their number"),
    TableColumn("fields", "list<string>", "parts of a record that changed", is_optional=True),
)
class DifferentRange(NamedTuple):
    """Records next to each other that differ in the same way.

    Attributes
    ----------
    kind : {"missing", "extra", "changed"}
        Not in B, not in A, or different in the two.
    first_offset, last_offset : int
        Inclusive; between them lies no other record of A or B.
    records : int
    fields : tuple of str
        What changed in each of them: ``"key"``, ``"value"``, ``"timestamp"``, ``"headers"``.
    """

    kind: Kind
    first_offset: int
    last_offset: int
    records: int
    fields: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The range as a line for people."""
        offsets = str(self.first_offset) + (f"-{self.last_offset}" if self.last_offset > self.first_offset else "")
        count = f"{self.records} record{'s' if self.records > 1 else ''}"
        return f"{self.kind:<8}{offsets:<24}{', '.join(self.fields) or count}"


@declare_columns(
    line_type("partition"),
    TableColumn("partition", "string", "its name", source="name"),
    TableColumn("same", "bool", "there is no difference and no damage", source="is_same"),
    TableColumn("a", "string", "path in A; null if it is not there", source="path_a"),
    TableColumn("b", "string", "path in B; null if it is not there", source="path_b"),
    TableColumn("recordsA", "int64", "records of A that were compared"),
    TableColumn("recordsB", "int64", "records of B that were compared"),
    TableColumn("missing", "int64", "records that only A has"),
    TableColumn("extra", "int64", "records that only B has"),
    TableColumn("changed", "int64", "records that differ"),
    TableColumn("firstOffset", "int64", "that was looked at", source=lambda row: row.compared[0]),
    TableColumn("nextOffset", "int64", "after the last one", source=lambda row: row.compared[1]),
    TableColumn("logStartA", "int64", "log start offset of A", source=lambda row: row.log_starts[0]),
    TableColumn("logStartB", "int64", "log start offset of B", source=lambda row: row.log_starts[1]),
    TableColumn("ranges", "list<struct>", "the first ones", fields=get_columns(DifferentRange)),
    TableColumn("rangesNotListed", "int64", "ranges beyond these", source="unlisted"),
    TableColumn("damaged", "bool", "a part of A or B could not be read", source="is_damaged"),
)
@dataclass
class Difference:
    """The differences between two logs of a partition.

    Attributes
    ----------
    name : str
        Of the partition.
    path_a, path_b : str or None
        Path on each side; None if the partition is missing there, and then the other fields are empty.
    records_a, records_b : int
        Records compared.
    missing, extra, changed : int
        Records that only A has, that only B has, and that differ.
    ranges : list of DifferentRange
        In the order of offsets; the first ones, up to ``max_ranges``.
    unlisted : int
        Ranges beyond these.
    compared : tuple of (int, int)
        The offsets that were looked at, half-open.
    log_starts : tuple of (int, int)
        Log start offsets of A and B: below them lie no records.
    gaps : list of Gap
        Unreadable parts: with damage among them, the comparison is incomplete.
    """

    name: str
    path_a: str | None
    path_b: str | None
    records_a: int = 0
    records_b: int = 0
    missing: int = 0
    extra: int = 0
    changed: int = 0
    ranges: list[DifferentRange] = field(default_factory=list)
    unlisted: int = 0
    compared: tuple[int, int] = (0, 0)
    log_starts: tuple[int, int] = (0, 0)
    gaps: list[Gap] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """True if there is no difference and no damage; duplicate batches are damage too."""
        differs = self.missing or self.extra or self.changed
        return None not in (self.path_a, self.path_b) and not (differs or self.is_damaged)

    @property
    def is_damaged(self) -> bool:
        """True if a part of one of the two could not be read."""
        return any(gap.is_damage for gap in self.gaps)

    def lines(self) -> Iterator[str]:
        """Yield the lines for people."""
        if self.path_a is None or self.path_b is None:
            yield f"{self.name}: only in {self.path_b if self.path_a is None else self.path_a}"
        elif self.is_same:
            first, end = self.compared
            offsets = offsets_text(first, end) if first < end else "no offsets to compare"
            yield f"{self.name}: the same, {count_text(self.records_a, 'record')}, {offsets}"
        elif not (self.missing or self.changed or self.extra):
            yield f"{self.name}: damaged; no difference in readable records ({self.records_a} records)"
        else:
            yield (
                f"{self.name}: {self.missing} missing, {self.changed} changed, {self.extra} extra"
                f" ({self.records_a} records in A, {self.records_b} in B)"
            )
            if self.log_starts[0] != self.log_starts[1]:
                a, b = self.log_starts
                yield f"  log start offsets: {a} in A, {b} in B (--common skips this)"
            yield from (f"  {part.text}" for part in self.ranges)
            if self.unlisted:
                yield f"  and {self.unlisted} more ranges (--max-ranges lists more)"


@declare_columns(
    line_type("summary"),
    TableColumn("partitions", "int64", "of either side"),
    TableColumn("differ", "int64", "partitions that are not the same"),
    TableColumn("missing", "int64", "records that only A has"),
    TableColumn("changed", "int64", "records that differ"),
    TableColumn("extra", "int64", "records that only B has"),
    TableColumn("recordsA", "int64", "records of A that were compared"),
    TableColumn("recordsB", "int64", "records of B that were compared"),
    TableColumn("damaged", "bool", "not all could be read", source="is_damaged"),
)
@dataclass
class Differences(Outcome):
    """The result of `diff`: iterate over it once, for the partitions as they are compared; then it has their sums.

    Attributes
    ----------
    rows : iterator of Difference
        The partitions that are still to be compared.
    partitions, differ : int
        Partitions that were compared, and those that are not the same.
    missing, changed, extra, records_a, records_b : int
        Sums of `Difference`.
    is_damaged : bool
        True if records are lost to damage, so that not all could be compared.
    same : list of Difference
        Partitions without a difference; `lines` has them in one line.
    """

    rows: Iterator[Difference] = field(repr=False)
    partitions: int = 0
    differ: int = 0
    missing: int = 0
    changed: int = 0
    extra: int = 0
    records_a: int = 0
    records_b: int = 0
    is_damaged: bool = False
    same: list[Difference] = field(default_factory=list)

    def __iter__(self) -> Iterator[Difference]:
        for row in self.rows:
            self.partitions += 1
            self.differ += not row.is_same
            for name in ("missing", "changed", "extra", "records_a", "records_b"):
                setattr(self, name, getattr(self, name) + getattr(row, name))
            self.is_damaged |= any(gap.is_loss for gap in row.gaps)
            if row.is_same:
                self.same.append(row)
            yield row

    parts = __iter__

    def lines(self) -> Iterator[str]:
        """Yield one line for all partitions that are the same."""
        if len(self.same) == 1:
            yield from self.same[0].lines()
        elif self.same:
            count = count_text(sum(row.records_a for row in self.same), "record")
            yield f"{len(self.same):,} partitions: the same, {count}: {names_text([row.name for row in self.same])}"

    @property
    def exit_code(self) -> int:
        """For a shell, as by diff(1): 1 if there is a difference, 2 if not all could be compared."""
        return 2 if self.is_damaged else int(self.differ > 0)


class DiffQuestion(LimitKeywords, total=False):
    """Keywords of `diff` about records; a reader may have the same."""

    offset: Offsets
    timestamp: Moment | tuple[Moment | None, Moment | None] | None
    filter: Any
    isolation_level: IsolationLevel
    on_corrupt: OnCorrupt
    from_log_start: bool


class DiffKeywords(WorkKeywords, DiffQuestion, total=False):
    """Keywords of `diff` that other functions have, too."""


def diff(
    a: Reader | Source,
    b: Reader | Source,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    mode: Mode = "records",
    common: bool = False,
    max_ranges: int = 1000,
    memory_bytes: int = MEMORY_BYTES,
    **how: Unpack[DiffKeywords],
) -> Differences:
    """Compare two partitions, or two directories partition by partition: the records, and not how they are batched.

    Key, value, timestamp and headers of each record are compared, those of control records too. Codecs, batches,
    segments, indexes, producers and leader epochs are not. Both sides are read once, in bounded memory.

    Parameters
    ----------
    a, b : path, URL, Disk, Partition or Reader
        Log directories, partitions' folders or files. Partitions are compared with those of the same name; where each
        side is one log, these two. A reader's options count for both sides: those that have a name below. Two readers
        must have the same ones, but for topics and partitions.
    topic : str or list of str, optional
        Topics, partitions or patterns; all live partitions by default.
    partition : int or list of int, optional
        Only partitions with these numbers.
    mode : {"records", "offsets", "latest"}
        Compare records; only which offsets there are; or the last record of each key, so that a log and its
        compaction are the same.
    offset : (int or None, int or None)
        Only this half-open range.
    timestamp, filter
        Only these records, as for `pylogseg.read`.
    common : bool
        Only the offsets between the higher start and the lower end of the two: replicas of which one has deleted more,
        or lags after.
    isolation_level : {"read_uncommitted", "read_committed"}
        ``read_committed`` does not look at aborted transactions.
    on_corrupt : {"raise", "stop", "skip"}
        At damage; with the last two, `Difference.gaps` tells. Bytes that the disk refuses to read are a gap in any
        case.
    from_log_start : bool
        Leave out records below the log start offset.
    max_ranges : int
        Ranges listed for each partition; all are counted.
    memory_bytes : int
        In mode ``"latest"``: of the map of keys of each side.
    max_decompressed_bytes : int
        A batch that decompresses to more counts as damaged.
    max_bytes_per_second : float, optional
        Read no faster.
    jobs : int or None
        Threads, each with a partition: 1 is the caller's own, None one per processor.
    executor : Executor, optional
        In place of threads: `pylogseg.spark.executor.SparkExecutor`.
    on_bytes : callable, optional
        Gets the bytes of segments that were read, from several threads.

    Returns
    -------
    Differences
        An iterable with a `Difference` for each partition of either side, by name.

    Raises
    ------
    RequestError
        If a name is on neither side.
    StorageError
        If the disk fails.
    CorruptionError
        While iterating, with ``on_corrupt="raise"``.
    """
    check_word("mode", mode, ("records", "offsets", "latest"))
    workers, asked = split_keywords(how, WorkKeywords, DiffQuestion)
    sides = [Question.of("diff", side, topic, partition, DiffQuestion, asked) for side in (a, b)]
    readers = [side for of, side in zip((a, b), sides, strict=True) if isinstance(of, Reader)]
    selections = [replace(side.selection, topics=(), partitions=()) for side in readers]
    if len({*selections}) > 1 or len({side.reading for side in readers}) > 1:
        raise RequestError("diff got two readers of other records: make both with the same options")
    _, choice, selection, reading, _ = (readers or sides)[0]
    pairs = pair_logs(*_logs_of_sides(sides, choice, selection.from_log_start, has_two=len(readers) > 1))
    offset = selection.offsets.absolute(FROM_THE_END)
    selection = replace(selection, topics=(), partitions=(), offsets=OffsetRange())
    selection = replace(selection, latest=mode == "latest", latest_memory_bytes=memory_bytes)
    state = replace(reading, control=mode != "latest", skip_unreadable=True).start(scratch=Scratch)
    comparison = _Comparison(mode, offset, common, selection, state, max_ranges)
    sizes = [sum(segment.size for log in sides if log for segment in log.segments) for _, *sides in pairs]
    load = Workload("pylogseg diff", sizes, workers.pop("on_bytes", None))
    return Differences(iter(choose_executor(**workers).map(comparison.run, pairs, load)))


_Pair = tuple[str, LogFiles | None, LogFiles | None]


def named_on_either(a: Disk, b: Disk, names: Sequence[str]) -> tuple[Disk, Disk]:
    """Select names on two sides, everything without any; RequestError for a name that is on neither."""
    if not names:
        return a, b
    for name in names:
        if not a.has(name) and not b.has(name):
            raise not_here(name, (p.name for side in (a, b) for p in side.partitions), "on either side")
    here = [[name for name in names if side.has(name)] for side in (a, b)]
    one, other = (side.select(some) if some else Disk((), ()) for side, some in zip((a, b), here, strict=True))
    return one, other


def _logs_of_sides(
    sides: Sequence[Question], choice: PartitionChoice, from_log_start: bool, *, has_two: bool
) -> list[list[LogFiles]]:
    """Return the logs of both sides; `has_two` if each is chosen by itself."""
    if has_two:
        chosen = [side.open().select(*side.choice.arguments) for side in sides]
        return [logs_of(disk, from_log_start=from_log_start) for disk in chosen]
    disks = named_on_either(sides[0].open(), sides[1].open(), choice.names)
    there = [p.partition for disk in disks for p in disk.partitions]
    choice.check_numbers(there + [segment.partition for disk in disks for segment in disk.loose])
    return [_logs(disk, choice, from_log_start) for disk in disks]


def _logs(disk: Disk, choice: PartitionChoice, from_log_start: bool) -> list[LogFiles]:
    """Return the logs of one side; numbers that only the other side has are missing here."""
    if choice.numbers:
        there = {p.partition for p in disk.partitions if disk.is_named or not p.state}
        there |= {segment.partition for segment in disk.loose}
        some = [number for number in choice.numbers if number in there]
        disk = disk.select(partition=some) if some else Disk((), ())
    return logs_of(disk, from_log_start=from_log_start)


def pair_logs(left: Sequence[LogFiles], right: Sequence[LogFiles]) -> list[_Pair]:
    """Return the logs of both sides by names; RequestError for a name that one side has twice."""
    if len(left) == len(right) == 1:
        return [(left[0].name, left[0], right[0])]
    a, b = ({log.name: log for log in logs} for logs in (left, right))
    for logs, by_name in ((left, a), (right, b)):
        if len(logs) != len(by_name):
            names = [log.name for log in logs]
            twice = next(name for name in names if names.count(name) > 1)
            raise RequestError(f"partition {twice} exists twice on one side: compare one log directory with one")
    return [(name, a.get(name), b.get(name)) for name in sorted({*a, *b})]


class _Comparison(NamedTuple):
    mode: Mode
    offset: tuple[int | None, int | None]
    common: bool
    selection: Selection
    state: ReadState
    max_ranges: int

    def run(self, pair: _Pair, advance: Advance) -> Difference:
        """Compare the two logs of a partition."""
        name, a, b = pair
        found = Difference(name, a.path if a else None, b.path if b else None)
        if a is None or b is None:
            one = a or b
            if one is not None and one.error is not None:  # nobody knows what is in it
                list(one.chunks(0, OPEN_END, replace(self.state, gaps=found.gaps)))
            return found
        present = [a, b]
        found.log_starts = a.log_start_offset, b.log_start_offset
        first, end = found.compared = self._range(present)
        readers = [
            # Each side from its own log start offset on: what a consumer of it sees.
            LogReader(
                log,
                max(first, log.log_start_offset),
                end,
                self.selection,
                replace(self.state, gaps=[], on_bytes=advance),
            )
            for log in present
        ]
        sides = [Side(chunk.columns for chunk in part.chunks()) for part in readers]
        ranges = _Ranges(found, self.max_ranges)
        while (limit := min((side.last_offset for side in sides if side.fill()), default=None)) is not None:
            ranges.add(*self._codes(*(side.take(limit) for side in sides)))
        found.records_a, found.records_b = (side.records for side in sides)
        found.gaps = [gap for part in readers for gap in part.gaps]
        found.compared = (first, end if end < OPEN_END else max(first, *(side.end_offset for side in sides)))
        return found

    def _range(self, logs: Sequence[LogFiles]) -> tuple[int, int]:
        starts = [log.log_start_offset for log in logs]
        first, end = self.offset[0] or 0, OPEN_END if self.offset[1] is None else self.offset[1]
        if self.common:
            first, end = max(first, *starts), min(end, *(end_offset(log.segments) for log in logs))
        return max(first, min(starts)), end

    def _codes(self, a: RecordColumns | None, b: RecordColumns | None) -> tuple[_Offsets, _Codes]:
        """The offsets of a range, and how each differs."""
        if a is None or b is None:
            only = a if b is None else b
            assert only is not None
            return only.offset, np.full(len(only), _MISSING if b is None else _EXTRA, np.uint8)
        if len(a) == len(b) and np.array_equal(a.offset, b.offset):
            return a.offset, self._changes(a, b)
        _, in_a, in_b = np.intersect1d(a.offset, b.offset, assume_unique=True, return_indices=True)
        offsets = np.union1d(a.offset, b.offset)
        codes = np.zeros(len(offsets), np.uint8)
        only_a, only_b = np.ones(len(a), np.bool_), np.ones(len(b), np.bool_)
        only_a[in_a], only_b[in_b] = False, False
        codes[np.searchsorted(offsets, a.offset[only_a])] = _MISSING
        codes[np.searchsorted(offsets, b.offset[only_b])] = _EXTRA
        codes[np.searchsorted(offsets, a.offset[in_a])] = self._changes(a.take(in_a), b.take(in_b))
        return offsets, codes

    def _changes(self, a: RecordColumns, b: RecordColumns) -> _Codes:
        return np.zeros(len(a), np.uint8) if self.mode == "offsets" else changes(a, b)


_Offsets = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.uint8]


class Side:
    """The records of one log, taken up to an offset at a time."""

    def __init__(self, columns: Iterator[RecordColumns]) -> None:
        self._given = columns
        self._columns: RecordColumns | None = None
        self.records, self.end_offset = 0, 0

    def fill(self) -> bool:
        """Read the next records if none are left in memory."""
        while self._columns is None and (given := next(self._given, None)) is not None:
            columns = in_ascending_order(given, self.end_offset)
            if len(columns):
                self._columns = columns
                self.records += len(columns)
                self.end_offset = int(columns.offset[-1]) + 1
        return self._columns is not None

    @property
    def last_offset(self) -> int:
        return self.end_offset - 1

    def take(self, limit: int) -> RecordColumns | None:
        """Take the records up to an offset; None without any."""
        columns = self._columns
        if columns is None:
            return None
        count = int(np.searchsorted(columns.offset, limit, "right"))
        self._columns = columns.take(slice(count, None)) if count < len(columns) else None
        return columns.take(slice(0, count)) if count else None


def in_ascending_order(columns: RecordColumns, least: int) -> RecordColumns:
    """Return records with ascending offsets; if damage made them descend (a gap), the first of each offset counts."""
    if len(columns) and columns.offset[0] >= least and (columns.offset[1:] > columns.offset[:-1]).all():
        return columns
    first = np.unique(columns.offset, return_index=True)[1]
    return columns.take(first[columns.offset[first] >= least])


class _Ranges:
    """Collects differences into a `Difference`."""

    def __init__(self, found: Difference, most: int) -> None:
        self._found, self._most = found, most
        self._open = 0  # code of the last record so far

    def add(self, offsets: _Offsets, codes: _Codes) -> None:
        found = self._found
        found.missing += int(np.count_nonzero(codes == _MISSING))
        found.extra += int(np.count_nonzero(codes == _EXTRA))
        found.changed += int(np.count_nonzero(codes & 15))
        if not codes.any():
            self._open = 0
            return
        begins = np.concatenate([[0], np.flatnonzero(codes[1:] != codes[:-1]) + 1])
        ends = np.append(begins[1:], len(codes))
        goes_on = int(codes[0] == self._open != 0)
        if goes_on and not found.unlisted:
            last = found.ranges[-1]
            count = int(ends[0])
            found.ranges[-1] = last._replace(last_offset=int(offsets[count - 1]), records=last.records + count)
        runs = np.flatnonzero(codes[begins] != 0)[goes_on:]
        room = max(0, self._most - len(found.ranges))
        for run in runs[:room].tolist():
            begin, end = int(begins[run]), int(ends[run])
            found.ranges.append(_range_of(int(codes[begin]), int(offsets[begin]), int(offsets[end - 1]), end - begin))
        found.unlisted += len(runs[room:])
        self._open = int(codes[-1])


def _range_of(code: int, first: int, last: int, records: int) -> DifferentRange:
    kind: Kind = "missing" if code == _MISSING else "extra" if code == _EXTRA else "changed"
    return DifferentRange(kind, first, last, records, tuple(name for bit, name in FIELD_NAMES.items() if code & bit))
