"""Compare a part of a log with the rows of its offsets in a table, chunk by chunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg._native import _keymap
from pylogseg.env.executor import Advance
from pylogseg.format.batches import Mask, OffsetArray
from pylogseg.format.records import RecordColumns
from pylogseg.lakehouse.audit_columns import TableColumns
from pylogseg.lakehouse.audit_result import AuditRange, PartitionAudit
from pylogseg.lakehouse.audit_runs import RunReader, Runs, TableRows, slots_of
from pylogseg.lakehouse.audit_values import Hashes, hash_values, in_type, row_hashes
from pylogseg.reading.arrow.columns import record_batch, schema
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.offset_range import OPEN_END, subtract_ranges
from pylogseg.reading.partition import Chunk
from pylogseg.reading.scan import check_tail
from pylogseg.reading.seek import end_of
from pylogseg.reading.stable_offset import end_of_log
from pylogseg.reading.state import LENIENT
from pylogseg.reading.transactions import Transactions
from pylogseg.values.decoding import TypedBatches
from pylogseg.walker.gaps import Gap, GapKind

#: What a record of the log is to a table: one of its rows, a marker, aborted, or not decided yet.
_DATA, _CONTROL, _ABORTED, _UNSTABLE = range(4)
#: Offsets without a record that are noted for each part of a log, until it is known whether that is to be expected.
_MAX_ABSENT = 1000

#: Which files are of dead letters, by their numbers.
IsDead = npt.NDArray[np.bool_]


class LogExtent(NamedTuple):
    """The facts of a partition before its records are read."""

    log_start_offset: int = 0
    end_offset: int = 0
    stable_offset: int = 0  #: From here on, it is not decided what is committed.
    is_cleaned: bool = False
    tail: tuple[Gap, ...] = ()  #: What lies behind the end.

    @property
    def is_end_known(self) -> bool:
        """True if no damaged, cut-off or zeroed batch can explain rows behind the end."""
        return all(gap.next_offset is not None or gap.kind is GapKind.REMOVED for gap in self.tail)

    def join(self, other: LogExtent | None) -> LogExtent:
        """Return the extent of both, as partitions of a topic."""
        if other is None:
            return self
        start, end, stable = map(max, self[:3], other[:3])
        return LogExtent(start, end, stable, self.is_cleaned or other.is_cleaned, (*self.tail, *other.tail))


def extent_of(log: LogFiles, is_cleaned: bool) -> LogExtent:
    """Find the start and the end of a log, and the headers after the newest producer snapshot."""
    damage: list[Gap] = []
    state = end_of_log(list(log.segments), log.snapshots, unopened={}, damage=damage)
    base = log.segments[0].base_offset if log.segments else 0
    start = max(log.log_start_offset, base)
    end = max(state.offset, start)
    tail = [gap for gap in damage if gap.next_offset is None and gap.first_offset >= state.offset]
    check_tail(log, end_of(log.segments), LENIENT.start(gaps=tail))
    return LogExtent(start, end, min([end, *state.open_first.values()]), is_cleaned, tuple(tail))


def behind_table(runs: Runs, dead: IsDead) -> int:
    """Return the offset after the last row of a partition; the end of all if it has none, since all are lost then.

    Dead letters are committed first, and may be ahead of the other rows.
    """
    own = runs[~dead[runs["file"]]] if dead.any() else runs
    rows = own if len(own) else runs
    return int(rows["last"].max()) + 1 if len(rows) else OPEN_END - 1


def audit_of(name: str, extent: LogExtent, **found: Any) -> PartitionAudit:
    return PartitionAudit(
        name,
        log_start_offset=extent.log_start_offset,
        end_offset=extent.end_offset,
        last_stable_offset=extent.stable_offset,
        **found,
    )


class LogPart(NamedTuple):
    """A range of offsets of one log, and the extent of the whole log."""

    name: str
    log: LogFiles  #: All segments, for transactions.
    reader: LogReader | None  #: Of the part; None if the source has no such log.
    runs: Runs  #: Of the rows of its offsets.
    first_offset: int  #: Half-open: rows of these offsets belong to the part.
    end_offset: int
    behind_offset: int  #: From here on, what is missing is not in the table yet.
    whole: LogExtent
    is_last: bool = True


@dataclass
class PartFound(PartitionAudit):
    """The audit of a part. Its offsets without records wait for all parts, which show if the cleaner was in the log.

    `absent` offsets have neither record nor row, `extra` ones a row and no record.
    """

    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    absent: int = 0
    absent_ranges: list[AuditRange] = field(default_factory=list)
    extra: int = 0
    extra_ranges: list[AuditRange] = field(default_factory=list)
    extra_unlisted: int = 0
    is_cleaned: bool = False


@dataclass(frozen=True)
class Comparison:
    """How parts of logs are compared with runs in a folder."""

    folder: str
    columns: TableColumns
    secret: tuple[int, int]
    dead: IsDead
    max_ranges: int
    typed: TypedBatches | None = None  #: What decodes keys and values, if the table has them decoded.
    #: Half-open: the table has rows of some of these offsets in files that could not be read.
    unread: tuple[int, int] = (0, 0)

    def run(self, part: LogPart, advance: Advance) -> PartFound:
        """Compare one part; runs in a thread."""
        return _PartAudit(self, part).compare(advance)


class _PartAudit:
    """One part while it is compared."""

    def __init__(self, how: Comparison, part: LogPart) -> None:
        self._how, self._part = how, part
        self._found = PartFound(part.name)
        self._slots = slots_of(how.columns)
        self._rows = RunReader(how.folder, part.runs, part.first_offset, self._slots is not None)
        self._transactions: Transactions | None = None
        self._extra: list[OffsetArray] = []
        self._absent: list[tuple[int, int]] = []  # half-open

    def compare(self, advance: Advance) -> PartFound:
        result, part = self._found, self._part
        self._below_start()
        if part.reader is None:
            self._strange("noPartition", self._rows.take(part.end_offset))
            return result
        reader = part.reader.apart(advance)
        next_offset = max(part.first_offset, part.whole.log_start_offset)
        for chunk in reader.chunks():
            columns = _in_order(chunk.columns, next_offset)
            if len(columns):
                next_offset = self._add(chunk._replace(columns=columns), next_offset)
        end = min(part.end_offset, part.whole.end_offset)
        if next_offset < end:
            self._without_records(next_offset, end, self._rows.take(end))
            next_offset = end
        result.gaps = reader.gaps
        if part.end_offset > next_offset:
            result.gaps += [gap for gap in part.whole.tail if part.is_last and gap not in result.gaps]
            rows = self._rows.take(part.end_offset)
            if part.whole.is_end_known:
                self._strange("beyondEnd", rows)
            else:
                result.unchecked["notLookedAt"] += len(self._firsts(rows))
        self._settle(result.gaps)
        return result

    def _below_start(self) -> None:
        """Records that retention has deleted from the log can only be double."""
        part, result = self._part, self._found
        end = min(part.whole.log_start_offset, part.end_offset)
        if part.first_offset >= end:
            return
        rows = self._rows.take(end)
        offsets = rows.offset[self._firsts(rows)]
        result.unchecked["belowLogStart"] += len(offsets)
        result.missing["belowLogStart"] += end - part.first_offset - len(offsets)

    def _add(self, chunk: Chunk, next_offset: int) -> int:
        """Compare a chunk of the log with the rows up to its last offset; return the offset after that."""
        columns, result = chunk.columns, self._found
        limit = int(columns.offset[-1]) + 1
        rows = self._rows.take(limit)
        codes = self._codes(chunk)
        hashes, names = self._hashes(chunk)
        self._note_absent(columns, next_offset, limit)
        if (
            codes is None
            and len(rows.offset) == len(columns)
            and np.array_equal(rows.offset, columns.offset)
            and np.array_equal(rows.hash, hashes)
            and not self._how.dead.any()
        ):
            result.rows += len(columns)
            result.present += len(columns)
            return limit
        codes = np.zeros(len(columns), np.uint8) if codes is None else codes
        self._compare(columns, codes, (hashes, names), rows)
        return limit

    def _hashes(self, chunk: Chunk) -> tuple[Hashes, Hashes | None]:
        """The hash of each record, and the slots that distinguish its columns."""
        columns, how = chunk.columns, self._how
        decoded = {} if how.typed is None else _decode_chunk(chunk, how.typed)

        def hash_role(role: str, out: Hashes) -> None:
            which, dot, name = role.partition(".")
            if dot:
                array = pc.struct_field(decoded[which], name) if name else decoded[which]
                hash_values(how.secret, in_type(array, types[role]), out)
                return
            place, size = (np.ascontiguousarray(getattr(columns, f"{role}_{what}")) for what in ("place", "size"))
            _keymap.hash_spans(how.secret, place, size, columns.sources, out)

        types = {column.role: column.type for column in how.columns.decoded}
        return row_hashes(how.columns.compared, self._slots, len(columns), hash_role)

    def _codes(self, chunk: Chunk) -> npt.NDArray[np.uint8] | None:
        """The relation of each record to a table; None if they are all ordinary."""
        columns, part = chunk.columns, self._part
        batches, summary = columns.batches, columns.batches.summary()
        stable = part.whole.stable_offset
        is_decided = columns.offset[-1] < stable
        if is_decided and not summary.has_control and not batches.is_transactional.any():
            return None
        codes = np.full(len(columns), _DATA, np.uint8)
        if batches.is_transactional.any():
            if self._transactions is None:
                log = part.log
                self._transactions = Transactions(
                    list(log.segments), log.snapshots, int(columns.offset[0]), ends_stable=True, skips=True
                )
            kept, _ = self._transactions.mask_committed(batches, chunk.segment)
            codes[~kept[columns.batch]] = _ABORTED
        codes[columns.offset >= stable] = _UNSTABLE
        codes[batches.is_control[columns.batch]] = _CONTROL
        return codes

    def _compare(
        self,
        columns: RecordColumns,
        codes: npt.NDArray[np.uint8],
        of_log: tuple[Hashes, Hashes | None],
        rows: TableRows,
    ) -> None:
        result, dead, offsets = self._found, self._how.dead, columns.offset
        firsts = self._firsts(rows)
        distinct = rows.offset[firsts]
        place = np.minimum(np.searchsorted(offsets, distinct), len(offsets) - 1)
        hit = offsets[place] == distinct if len(distinct) else np.zeros(0, np.bool_)
        self._extra.append(distinct[~hit])

        at = place[hit]
        is_here = np.zeros(len(offsets), np.bool_)
        is_here[at] = True
        is_record = (codes == _DATA) | (codes == _UNSTABLE)
        # Of dead letters there is no other row.
        only_dead = np.zeros(len(offsets), np.bool_)
        if dead.any() and len(firsts):
            groups = np.logical_and.reduceat(dead[rows.file], firsts)
            only_dead[at] = groups[hit]
        if len(firsts):
            self._note_changed(offsets, is_record, of_log, rows, (firsts, place, hit))
        result.present += int(np.count_nonzero(is_here & is_record & ~only_dead))
        result.missing["deadLetters"] += int(np.count_nonzero(is_here & is_record & only_dead))
        for code, name in ((_ABORTED, "aborted"), (_CONTROL, "control")):
            of_code = codes == code
            result.missing[name] += int(np.count_nonzero(of_code & ~is_here))
            strange = offsets[of_code & is_here]
            result.foreign[name] += len(strange)
            self._list("foreign", name, strange)
        is_behind = (codes == _UNSTABLE) | (offsets >= self._part.behind_offset)
        result.missing["notYet"] += int(np.count_nonzero(is_record & ~is_here & is_behind))
        is_lost = is_record & ~is_here & ~is_behind
        if not self._how.columns.has_tombstones:
            is_null = columns.value_size < 0
            result.missing["tombstone"] += int(np.count_nonzero(is_lost & is_null))
            is_lost &= ~is_null
        is_unread = is_lost & (offsets >= self._how.unread[0]) & (offsets < self._how.unread[1])
        for kind, which in (("notLookedAt", is_unread), ("lost", is_lost & ~is_unread)):
            result.missing[kind] += int(np.count_nonzero(which))
            self._list(kind, "", offsets[which])

    def _note_changed(
        self,
        offsets: OffsetArray,
        is_record: Mask,
        of_log: tuple[Hashes, Hashes | None],
        rows: TableRows,
        where: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Mask],
    ) -> None:
        """Note records whose row has another hash; with decoded values, also the columns that differ."""
        (firsts, place, hit), (hashes, names), slots = where, of_log, self._slots
        numbers = np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(rows.offset))))
        differs = np.zeros(len(rows.offset), np.bool_)
        in_table = hit[numbers]
        differs[in_table] = rows.hash[in_table] != hashes[place[numbers[in_table]]]
        if slots is not None:
            differs &= ~self._how.dead[rows.file]  # which have bytes
        changed = np.logical_or.reduceat(differs, firsts)[hit] & is_record[place[hit]]
        changed_offsets = offsets[place[hit][changed]]
        self._found.changed += len(changed_offsets)
        if slots is None or names is None or rows.names is None:
            self._list("changed", "", changed_offsets)
            return
        apart = np.zeros(len(rows.offset), np.uint64)
        apart[differs] = rows.names[differs] ^ names[place[numbers[differs]]]
        which = slots.which(np.bitwise_or.reduceat(apart, firsts)[hit][changed])
        for columns in np.unique(which).tolist():
            self._list("changed", slots.name_columns(columns), changed_offsets[which == np.uint64(columns)])

    def _firsts(self, rows: TableRows) -> npt.NDArray[np.intp]:
        """Count rows and doubles; return the numbers of the first row of each offset."""
        result, offset = self._found, rows.offset
        result.rows += len(offset)
        if not len(offset):
            return np.zeros(0, np.intp)
        again = np.flatnonzero(offset[1:] == offset[:-1]) + 1
        firsts: npt.NDArray[np.intp] = np.flatnonzero(np.append(True, offset[1:] != offset[:-1]))
        if len(again):
            result.double += len(again)
            self._list("double", "", np.unique(offset[again]))
            # The file that has the offset first, and the one that has it again.
            first = firsts[np.searchsorted(firsts, again, "right") - 1]
            pairs, counts = np.unique(np.stack([rows.file[first], rows.file[again]]), axis=1, return_counts=True)
            for one, other, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
                result.pairs[one, other] += count
        return firsts

    def _note_absent(self, columns: RecordColumns, next_offset: int, limit: int) -> None:
        """Note the offsets before and between records at which the log has none."""
        offsets, result = columns.offset, self._found
        if limit - next_offset == len(offsets):
            return
        before = np.concatenate([[next_offset - 1], offsets])
        holes = np.flatnonzero(np.diff(before) > 1)
        result.absent += limit - next_offset - len(offsets)
        for hole in holes[: max(0, _MAX_ABSENT - len(self._absent))].tolist():
            self._absent.append((int(before[hole]) + 1, int(before[hole + 1])))
        batches = columns.batches
        # The cleaner leaves batches with fewer records than offsets, and sets their delete horizons.
        counted = (batches.count >= 0) & (batches.last_offset - batches.base_offset + 1 > batches.count)
        result.is_cleaned |= bool(counted.any() or batches.has_delete_horizon.any())

    def _without_records(self, first: int, end: int, rows: TableRows) -> None:
        self._found.absent += end - first
        self._absent.append((first, end))
        self._extra.append(rows.offset[self._firsts(rows)])

    def _strange(self, reason: str, rows: TableRows) -> None:
        offsets = rows.offset[self._firsts(rows)]
        self._found.foreign[reason] += len(offsets)
        self._list("foreign", reason, offsets)

    def _list(self, kind: str, reason: str, offsets: OffsetArray) -> None:
        result = self._found
        listed, rest = ranges_of(kind, reason, offsets, max(0, self._how.max_ranges - len(result.ranges)))
        result.ranges += listed
        result.unlisted += rest

    def _settle(self, gaps: Sequence[Gap]) -> None:
        """Divide the offsets without a record: in damage, removed by the cleaner, or lost."""
        result, part = self._found, self._part
        extra = np.concatenate([np.empty(0, np.int64), *self._extra])
        absent = self._absent
        end_of_part = min(part.end_offset, part.whole.end_offset)
        ends = {one.path: other.base_offset for one, other in pairwise(part.log.segments)}
        for gap in gaps:
            # Where a snapshot says that the log went on, a batch that is cut off is none that was never written.
            if not (gap.is_loss or gap.next_offset is None):
                continue
            first = max(gap.first_offset, part.first_offset, part.whole.log_start_offset)
            behind = ends.get(gap.path, end_of_part) if gap.next_offset is None else gap.next_offset
            end = min(behind, end_of_part)
            if first >= end:
                continue
            within = (extra >= first) & (extra < end)
            count = int(np.count_nonzero(within))
            result.unchecked["notLookedAt"] += count
            hidden = min(end - first, result.absent)
            result.missing["notLookedAt"] += max(0, hidden - count)
            result.absent -= hidden
            result.ranges.append(AuditRange("notLookedAt", "", first, end - 1, end - first))
            extra = extra[~within]
            absent = [rest for hole in absent for rest in subtract_ranges(*hole, [(first, end)])]
        result.absent = max(0, result.absent - len(extra))
        result.absent_ranges = [AuditRange("notLookedAt", "", first, end - 1, end - first) for first, end in absent]
        result.extra = len(extra)
        result.extra_ranges, result.extra_unlisted = ranges_of("foreign", "absent", extra, self._how.max_ranges)


def _decode_chunk(chunk: Chunk, typed: TypedBatches) -> dict[str, pa.Array]:
    """Decode keys and values of a chunk; null where they do not decode."""
    rows = record_batch(chunk, schema(typed.list_needed_columns()))
    batches = list(typed.batches([rows]))
    return {name: pa.concat_arrays([batch.column(name) for batch in batches]) for name in typed.decoders}


def ranges_of(kind: str, reason: str, offsets: OffsetArray, limit: int) -> tuple[list[AuditRange], int]:
    """Return ascending offsets as ranges, at most so many, and how many more there are."""
    if not len(offsets):
        return [], 0
    ends = np.append(np.flatnonzero(np.diff(offsets) > 1) + 1, len(offsets))
    starts = np.append(0, ends[:-1])
    bounds = zip(starts[:limit].tolist(), ends[:limit].tolist(), strict=True)
    listed = [AuditRange(kind, reason, int(offsets[a]), int(offsets[b - 1]), b - a) for a, b in bounds]
    return listed, len(ends) - len(listed)


def _in_order(columns: RecordColumns, least: int) -> RecordColumns:
    """Return records with ascending offsets; if damage made them descend (a gap), the first of each offset counts."""
    if len(columns) and columns.offset[0] >= least and (columns.offset[1:] > columns.offset[:-1]).all():
        return columns
    first = np.unique(columns.offset, return_index=True)[1]
    return columns.take(first[columns.offset[first] >= least])


def parts_of(
    name: str,
    log: LogFiles,
    readers: Sequence[LogReader],
    runs: Runs,
    behind_offset: int,
    whole: LogExtent,
    offsets: tuple[int, int],
) -> list[LogPart]:
    """Return the parts of a log."""
    first, end = offsets
    firsts = [max([reader.first_offset, *(of.base_offset for of in reader.log.segments[:1])]) for reader in readers]
    # What lies before the first part and after the last one belongs to these.
    bounds: list[Any] = [first, *firsts[1:], end]
    parts = []
    for reader, begin, until in zip(readers, bounds[:-1], bounds[1:], strict=True):
        of_part = runs[(runs["last"] >= begin) & (runs["first"] < until)]
        parts.append(LogPart(name, log, reader, of_part, begin, until, behind_offset, whole, until == end))
    return parts


def part_without_log(name: str, runs: Runs) -> LogPart:
    """Return the part of a partition that the source does not have."""
    return LogPart(name, LogFiles([], 0, {}), None, runs, 0, OPEN_END - 1, 0, LogExtent())
