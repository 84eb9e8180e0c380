"""`audit --quick`: the row groups of a table by their statistics, beside counts of the log's records; no row is read.

Row groups whose ranges of offsets overlap are one stretch. The verdict on a stretch is certain as far as it goes: with
more rows than records some are double or foreign, with fewer some are lost. A row that is lost and another that is
double in the same stretch are not seen, nor is what a row holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from pylogseg.env.executor import Advance
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.batches import OffsetArray
from pylogseg.lakehouse.audit_columns import TableColumns
from pylogseg.lakehouse.audit_partition import LogPart, audit_of
from pylogseg.lakehouse.audit_result import AuditRange, PartitionAudit
from pylogseg.lakehouse.audit_runs import NONE, RUN, PieceRows, Runs
from pylogseg.lakehouse.contents import contents_of
from pylogseg.lakehouse.foreign import DataFile, TableFinding, columns_in_file
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.offset_range import OffsetRange
from pylogseg.reading.scan import record_stream
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import IsolationLevel, Reading

#: Longer names may be cut in statistics.
_WHOLE_NAME = 60


def row_groups(
    item: tuple[int, DataFile], advance: Advance, columns: TableColumns
) -> tuple[PieceRows, list[TableFinding], int]:
    """Return the row groups of a file as runs, by their statistics; findings; and rows that have too few statistics."""
    number, file = item
    if file.batches is not None:
        raise RequestError("quick is for files of Parquet, which have statistics: audit without it")
    try:
        metadata, schema, findings = file.footer()
    except StorageError as error:
        return PieceRows(np.empty(0, RUN), []), [TableFinding("unread", str(error), file.path)], 0
    names, constants = columns_in_file(file, columns.only(()), schema)
    paths = {".".join(path): role for role, path in names.items()}
    runs: list[tuple[int, ...]] = []
    topics: dict[str, int] = {}
    untold = at = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        rows, at = _count_left(file, at, group.num_rows), at + group.num_rows
        bounds = _read_bounds(group, paths, constants, columns) if rows else None
        if bounds is not None:
            topic, partition, first, last = bounds
            runs.append((topics.setdefault(topic, len(topics)), partition, number, 0, 0, rows, first, last))
        untold += rows if bounds is None else 0
    are_ours = file.deleted is None and all(names.get(role) == (role,) for role in ("topic", "partition", "offset"))
    said = contents_of(metadata.metadata, metadata.num_rows) if untold and are_ours else None
    if said is not None:
        runs = [(topics.setdefault(entry[0], len(topics)), entry[1], number, 0, 0, *entry[2:]) for entry in said]
        untold = 0
    if untold:
        text = "row groups without statistics of the offset, or of several partitions: audit without quick"
        findings.append(TableFinding("unread", text, file.path, untold))
    return PieceRows(np.array(runs, RUN), list(topics)), findings, untold


def _count_left(file: DataFile, first: int, rows: int) -> int:
    if file.deleted is None:
        return rows
    return rows - int(np.diff(np.searchsorted(file.deleted, [first, first + rows]))[0])


def _read_bounds(
    group: pq.RowGroupMetaData, paths: dict[str, str], constants: dict[str, Any], columns: TableColumns
) -> tuple[str, int, int, int] | None:
    """Topic, partition, first and last offset of a row group; None if its statistics do not tell them."""
    bounds = {role: (value, value) for role, value in constants.items() if value is not None}
    for i in range(group.num_columns):
        column = group.column(i)
        role = paths.get(column.path_in_schema)
        if role is None or role in bounds:
            continue
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max or not statistics.has_null_count or statistics.null_count:
            return None
        bounds[role] = (_plain(statistics.min), _plain(statistics.max))
    for role in ("topic", "partition"):
        if columns.get(role) is None:
            bounds[role] = ("", "") if role == "topic" else (NONE, NONE)
        first, last = bounds.get(role, (0, 1))
        if first != last or (isinstance(first, str) and len(first) > _WHOLE_NAME):
            return None
    if "offset" not in bounds or not all(_are_exact(*bounds[role]) for role in ("partition", "offset")):
        return None
    return (str(bounds["topic"][0]), int(bounds["partition"][0]), int(bounds["offset"][0]), int(bounds["offset"][1]))


def _are_exact(least: Any, most: Any) -> bool:
    """Check whether bounds are whole numbers: text is ordered by its letters, and tells no range but of one value."""
    if isinstance(least, str):
        return least == most and least.isdecimal() and len(least) < _WHOLE_NAME
    return all(_is_exact(bound) for bound in (least, most))


def _is_exact(value: Any) -> bool:
    is_fraction = isinstance(value, float | Decimal)
    return isinstance(value, int) or bool(is_fraction and value == value // 1 and abs(value) < 2**53)


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class _Stretch(NamedTuple):
    first_offset: int
    end_offset: int
    rows: int


def count_partition(part: LogPart, advance: Advance, is_told: bool) -> PartitionAudit:
    """Compare the counts of one partition; runs in a thread, or in a task of Spark.

    Without `is_told`, some row groups have no statistics, and may have the missing records.
    """
    return _PartitionCount(part, "lost" if is_told else "notLookedAt").compare_stretches()


class _PartitionCount:
    def __init__(self, part: LogPart, lost: str) -> None:
        self._part, self._lost = part, lost
        self._whole = whole = part.whole
        self._found = audit_of(
            part.name, whole, rows=int(part.runs["count"].sum()), gaps=list(whole.tail), is_quick=True
        )

    def compare_stretches(self) -> PartitionAudit:
        result, whole = self._found, self._whole
        stretches = list(_stretches(self._part.runs))
        if self._part.reader is None:
            self._foreign("noPartition", stretches)
            return result
        self._count(stretches)
        at = whole.log_start_offset
        for stretch in stretches:
            first, end = max(stretch.first_offset, whole.log_start_offset), min(stretch.end_offset, whole.end_offset)
            if stretch.end_offset <= whole.log_start_offset:
                result.unchecked["belowLogStart"] += stretch.rows
            elif stretch.first_offset >= whole.end_offset:
                self._beyond_end(stretch)
            else:
                self._missing(at, first)
                self._compare(stretch, first, end)
            at = max(at, end)
        self._missing(at, whole.end_offset)
        return result

    def _compare(self, stretch: _Stretch, first: int, end: int) -> None:
        """Compare the rows of a stretch with the records that the log has in it, from an offset to another."""
        rows, records = stretch.rows, self._records(first, end)
        if records is None:
            return
        result, stable = self._found, self._whole.stable_offset
        if rows > records and end > stable:  # what is not decided yet may be there
            records = min(rows, records + self._count_undecided(max(first, stable), end))
        if stretch.end_offset > end:  # the row of its last offset is there
            over = max(1, rows - records)
            self._beyond_end(_Stretch(end, stretch.end_offset, over))
            rows -= over
        result.present += min(rows, records)
        more, whole = rows - records, AuditRange("", "", first, end - 1, abs(rows - records))
        if more < 0:
            behind = max(self._part.behind_offset, first)
            not_yet = min(-more, (self._records(behind, end) or 0) if behind < end else 0)
            result.missing["notYet"] += not_yet
            if lost := -more - not_yet:
                result.missing[self._lost] += lost
                result.ranges.append(whole._replace(kind=self._lost, records=lost))
        elif more and stretch.first_offset < first:
            result.unchecked["belowLogStart"] += more
        elif more and self._whole.is_cleaned:
            result.unchecked["compacted"] += more
        elif more and rows <= self._count_undecided(first, end):
            result.foreign["aborted"] += more
            result.ranges.append(whole._replace(kind="foreign", reason="aborted"))
        elif more:
            result.double += more
            result.ranges.append(whole._replace(kind="double"))

    def _missing(self, first: int, end: int) -> None:
        """Note the records between stretches as lost, and from some offset on as not there yet."""
        behind = min(max(self._part.behind_offset, first), end)
        if first < behind and (records := self._records(first, behind)):
            self._found.missing[self._lost] += records
            self._found.ranges.append(AuditRange(self._lost, "", first, behind - 1, records))
        if behind < end:
            self._found.missing["notYet"] += self._records(behind, end) or 0

    def _beyond_end(self, stretch: _Stretch) -> None:
        if self._whole.is_end_known:
            self._foreign("beyondEnd", [stretch])
        else:
            self._found.unchecked["notLookedAt"] += stretch.rows

    def _foreign(self, reason: str, stretches: Iterable[_Stretch]) -> None:
        for first, end, rows in stretches:
            self._found.foreign[reason] += rows
            self._found.ranges.append(AuditRange("foreign", reason, first, end - 1, rows))

    def _count(self, stretches: Iterable[_Stretch]) -> None:
        """Count the records below each end of a stretch, in one pass over the headers of batches; up to damage."""
        first, end = self._whole[:2]
        ends = np.array([self._part.behind_offset, *(of for stretch in stretches for of in stretch[:2])], np.int64)
        self._ends = np.unique(np.concatenate([[first, end], np.clip(ends, first, end)]))
        self._below = np.zeros(len(self._ends), np.int64)
        self._known_to = end
        try:
            for batch in self._offsets(first, end, "read_committed"):
                if len(batch):
                    self._known_to = int(batch[-1]) + 1
                    self._below += np.searchsorted(batch, self._ends)
        except CorruptionError:
            return
        self._known_to = end

    def _records(self, first: int, end: int) -> int | None:
        """Return how many records lie between two ends; None if damage does."""
        if end > self._known_to:
            self._found.missing["notLookedAt"] += end - first
            self._found.ranges.append(AuditRange("notLookedAt", "", first, end - 1, end - first))
            return None
        below = self._below[np.searchsorted(self._ends, [first, end])]
        return int(below[1] - below[0])

    def _count_undecided(self, first: int, end: int) -> int:
        """Count records, aborted ones among them."""
        return sum(map(len, self._offsets(first, end, "read_uncommitted")))

    def _offsets(self, first: int, end: int, level: IsolationLevel) -> Iterator[OffsetArray]:
        selection = Selection(offsets=OffsetRange(first, end))
        scope = ReadScope.of([self._part.log], selection, Reading(level, check_crc=False))
        for batch in record_stream(scope, ["offset"]):
            yield batch.column(0).to_numpy()


def _stretches(groups: Runs) -> Iterator[_Stretch]:
    """Yield ranges of offsets that do not overlap, with the rows of all row groups in each."""
    if not len(groups):
        return
    groups = groups[np.argsort(groups["first"], kind="stable")]
    ends = np.maximum.accumulate(groups["last"]) + 1
    starts = np.append(0, np.flatnonzero(groups["first"][1:] >= ends[:-1]) + 1)
    rows = np.add.reduceat(groups["count"], starts)
    last = np.append(starts[1:], len(groups)) - 1
    for stretch in zip(groups["first"][starts].tolist(), ends[last].tolist(), rows.tolist(), strict=True):
        yield _Stretch(*stretch)
