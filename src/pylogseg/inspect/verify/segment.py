"""Checks of one segment: its batches, records and indexes. The result is one row of plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import FileView
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.codecs import CODECS
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES, Slice
from pylogseg.inspect.segment_pass import Visitor, visit
from pylogseg.inspect.verify.findings import Finding, Level, finding_of_gap, of_failure
from pylogseg.inspect.verify.indexes import OffsetIndexCheck, TimeIndexCheck, TransactionCheck
from pylogseg.inspect.verify.records import RecordsCheck
from pylogseg.inspect.verify.segment_report import MAX_MISSING, EpochRun, SegmentReport
from pylogseg.reading.header_reader import plain_batches
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.removed_segments import Replaced, open_unless_removed, removed_gap
from pylogseg.walker.base_offsets import Judged, judge_base_offsets
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import Window


class ProducersCheck:
    """Checks the snapshot at the end of a segment against its batches, window by window.

    A broker drops producers that were silent for a day, and forgets a producer's last batch at a marker of a new epoch.
    So it is damage only if the snapshot has an offset from its own on, or a last batch before one in the segment.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._last: dict[int, int] = {}

    def window(self, rows: BatchTable) -> None:
        """Note the last batches of producers."""
        chosen = (rows.producer_id >= 0) & ~rows.is_control
        if chosen.any():
            producers, last = rows.producer_id[chosen][::-1], rows.last_offset[chosen][::-1]
            names, at = np.unique(producers, return_index=True)
            self._last |= dict(zip(names.tolist(), last[at].tolist(), strict=True))

    def finish(self, next_offset: int) -> Iterator[Finding]:
        """Read the snapshot, if there is one, and yield a finding if it does not fit its offset."""
        files, segment = self._segment.files, self._segment
        offset = next_offset if segment.next_base is None else segment.next_base
        path = files.join(files.split(segment.path)[0], segment_file_name(offset, FileKind.PRODUCER_SNAPSHOT))
        try:
            entries = parse_snapshot(files.read_all(path), path)
        except (CorruptionError, StorageError):  # the partition's check says it
            return
        for entry in entries:
            highest = max(entry.last_offset, entry.first_txn_offset)
            if highest >= offset:
                reason = f"producer {entry.producer_id} has offset {highest}: this is the snapshot of a later offset"
            elif entry.has_batch and entry.last_offset < self._last.get(entry.producer_id, -1):
                logged = self._last[entry.producer_id]
                reason = (
                    f"producer {entry.producer_id} has offset {entry.last_offset} as its last, and {logged} in the log:"
                    " this is the snapshot of an earlier offset"
                )
            else:
                continue
            yield Finding(path, "snapshot", True, reason, None, offset)
            return


#: Findings of one kind for one file that are listed; the others are only counted.
MAX_REMARKS = 20


def verify_segment(
    segment: Segment,
    level: Level = Level.INDEXES,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    advance: Callable[[int], None] | None = None,
) -> SegmentReport:
    """Check a segment; a disk error is a finding in the report, too.

    Batches that decompress to more than `limit_bytes` are not checked, and the report says so. `advance` gets the bytes
    done since its last call.
    """
    check = SegmentCheck(segment, level)
    try:
        visit(segment, [check], limit_bytes=limit_bytes, crc=level >= Level.CRC, advance=advance)
    except StorageError as error:
        check.miss_segment(error)
    return check.report()


def header_report(segment: Segment) -> SegmentReport:
    """Return the report from a segment's headers; in a local file without faults, only headers are read."""
    try:
        opened = open_unless_removed(segment)
        if opened is not None:
            with opened as view:
                rows, end_position = plain_batches(segment, view, 0, OPEN_END), view.size
            if rows is not None:
                check = SegmentCheck(segment, Level.HEADERS)
                check.take_headers(rows, end_position)
                return check.report()
    except StorageError:  # which is then a finding
        pass
    return verify_segment(segment, Level.HEADERS)


def _shorten(findings: list[Finding], unlisted: Counter[tuple[str, str, bool]]) -> list[Finding]:
    """Return the first findings of each kind and file, then one with the number of the others."""
    kept: list[Finding] = []
    counts = Counter(unlisted)
    for finding in findings:
        key = (finding.path, finding.kind, finding.is_damage)
        counts[key] += 1
        if counts[key] - unlisted[key] <= MAX_REMARKS:
            kept.append(finding)
    for (path, kind, is_damage), count in counts.items():
        if count > MAX_REMARKS:
            kept.append(Finding(path, kind, is_damage, f"and {count - MAX_REMARKS} more of this kind"))
    return kept


class SegmentCheck(Visitor):
    """Checks a segment window by window; `with_entries` also the offset and the time index.

    The indexes are read when it is made: before the log, so that they are not ahead of it while a broker appends.
    """

    def __init__(self, segment: Segment, level: Level, *, with_entries: bool | None = None) -> None:
        self._segment, self._level = segment, level
        self._report = SegmentReport(
            segment.path, segment.topic, segment.partition, segment.base_offset, segment.size, int(level)
        )
        self._next = segment.base_offset
        self._epoch = -1  # of the last batch
        self._begun = False
        self._after_gap = False
        self._check_records = RecordsCheck()
        self._firsts: list[tuple[int, int]] = []  # position and first offset of what may be the first batch
        #: Numbers of findings beyond the first ones of their kind: there could be one for each batch.
        self._unlisted: Counter[tuple[str, str, bool]] = Counter()
        self._counts: Counter[tuple[str, str, bool]] = Counter()
        self._indexes: list[OffsetIndexCheck | TimeIndexCheck] = []
        self._transactions: TransactionCheck | None = None
        self._producers: ProducersCheck | None = None
        if level >= Level.INDEXES if with_entries is None else with_entries:
            findings = self._report.findings
            indexes = OffsetIndexCheck.open(segment, findings), TimeIndexCheck.open(segment, findings)
            self._indexes = [index for index in indexes if index is not None]
        if level >= Level.INDEXES:
            self._transactions = TransactionCheck(segment, self._report.findings)
            self._producers = ProducersCheck(segment)

    def report(self) -> SegmentReport:
        self._report.findings = _shorten(self._report.findings, self._unlisted)
        return self._report

    def miss_segment(self, error: StorageError | None) -> None:
        """Report an unreadable segment, or one that was removed meanwhile."""
        report = self._report
        if error is not None:
            report.findings.append(of_failure(error))
            return
        report.first_offset = report.next_offset = self._segment.base_offset
        report.end_gap = removed_gap(self._segment, 0, self._segment.next_base)
        report.findings = [finding_of_gap(report.end_gap)]

    def start(self, view: FileView) -> int:
        """Begin with the first batch; without indexes, where they are not of these bytes alone."""
        if isinstance(view, Replaced):
            self._indexes, self._transactions, self._producers = [], None, None
            self._report.findings.clear()
        return 0

    def finish(self, end_position: int) -> None:
        """Conclude with the checks that need the end of the segment."""
        report = self._report
        report.next_offset, report.end_position = self._next, end_position
        if report.first_offset < 0:
            report.first_offset = self._segment.base_offset
        for index in self._indexes:
            report.findings += index.finish(self._next)
        if self._transactions is not None:
            self._transactions.finish(report)
        if self._producers is not None and not report.is_damaged:
            report.findings += self._producers.finish(self._next)

    def take_headers(self, rows: BatchTable, end_position: int) -> None:
        """Check batches of magic 2 up to the end of the file, whose records are not at hand; then there is no gap."""
        if len(rows):
            self._headers(rows)
            self._report.records += int(rows.count.sum())
            self._compare(rows)
        self.finish(end_position)

    def gap(self, gap: Gap) -> None:
        self._report.findings.append(finding_of_gap(gap))
        self._report.end_gap = gap
        self._after_gap = True
        for index in self._indexes:
            index.gap(gap)
        if self._transactions is not None:
            self._transactions.gap(gap)

    def window(self, window: Window) -> BatchTable | None:
        """Check headers; the records of all batches are wanted, by the level."""
        rows = window.batches
        self._report.end_gap = None
        self._headers(rows)
        if self._level >= Level.RECORDS:
            return rows
        self._report.records += int(rows.count[rows.count > 0].sum())
        return None

    def after(self, window: Window) -> None:
        """Make the checks that need all batches of a window."""
        rows = window.batches
        if self._firsts:
            self._report.first_offset, self._firsts = min(self._firsts)[1], []
        self._compare(rows)
        if self._transactions is not None:
            self._transactions.window(rows, window)
        if self._producers is not None:
            self._producers.window(rows)

    def _compare(self, rows: BatchTable) -> None:
        """Compare the indexes with batches. An entry for a batch with a wrong base offset has the true one."""
        wrong = self._judged.is_wrong
        for index in self._indexes:
            index.window(rows, rows[~wrong] if wrong.any() else rows)

    # ---- headers ----

    def _headers(self, rows: BatchTable) -> None:
        report = self._report
        report.batches += len(rows)
        judged = self._judged = judge_base_offsets(rows, self._next)
        before, wrong = judged.before, judged.is_wrong
        self._order(rows, judged)
        self._fields(rows)
        jumps = (rows.base_offset > before) & ~wrong
        jumps[1:] &= ~wrong[:-1]  # the offsets there are those of the wrong one
        if not self._begun:
            # The cleaner and the deletion of records move the first batch; the partition's check looks at that.
            # The first offset of a wrapper is known only when it is decoded.
            first = int(before[0] if judged.too_high[0] else rows.base_offset[0])
            report.first_offset = -1 if _wrappers(rows[:1])[0] else first
            report.begins_damaged = self._after_gap
            jumps[0] = False
        elif self._after_gap:
            jumps[0] = False
        # The header of a wrapper has no base offset.
        jumped = np.flatnonzero(jumps & ~_wrappers(rows))
        report.jumps += len(jumped)
        jumped = jumped[: MAX_MISSING - len(report.missing)]
        report.missing += zip(before[jumped].tolist(), rows.base_offset[jumped].tolist(), strict=True)
        self._begun, self._after_gap = True, bool(wrong[-1])
        self._next = max(self._next, int(rows.last_offset[~wrong].max(initial=-1)) + 1)
        report.max_timestamp = max(report.max_timestamp, int(rows.max_timestamp.max()))
        report.has_markers |= bool((rows.is_control & rows.is_transactional).any())
        self._epochs(rows)

    def _order(self, rows: BatchTable, judged: Judged) -> None:
        before = judged.before
        for row in np.flatnonzero(judged.is_wrong).tolist():
            base = int(rows.base_offset[row])
            if judged.too_high[row]:
                after = rows.base_offset[row + 1]
                reason = f"base offset {base} is above the next batch's, {after}; {before[row]} would fit between"
                if base == before[row]:
                    reason = f"last offset {rows.last_offset[row]} is too high: {after} follows"
                self._finding("order", rows, row, reason)
                continue
            first = row == 0 and not self._begun
            limit = "the segment's base offset" if first else "the offset after the batch before it"
            self._finding("order", rows, row, f"base offset {base} is below {before[row]}, {limit}")

    def _fields(self, rows: BatchTable) -> None:
        wrong = rows.last_offset < rows.base_offset
        for row in np.flatnonzero(wrong).tolist():
            reason = f"last offset {rows.last_offset[row]} is below base offset {rows.base_offset[row]}"
            self._finding("header", rows, row, reason)
        width = rows.last_offset - rows.base_offset + 1
        has_width = ~_wrappers(rows) & ~wrong
        for row in np.flatnonzero(has_width & ((rows.count < 0) | (rows.count > width))).tolist():
            self._finding("header", rows, row, f"{rows.count[row]} records declared for {width[row]} offsets")
        for row in np.flatnonzero((rows.count == 0) & (rows.magic == 2) & (rows.size > BATCH_HEADER_BYTES)).tolist():
            more = rows.size[row] - BATCH_HEADER_BYTES
            self._finding("header", rows, row, f"no records declared, and {more} bytes of them are there")
        for row in np.flatnonzero(rows.codec >= len(CODECS)).tolist():
            self._finding("header", rows, row, f"codec {rows.codec[row]} is unknown; expected 0 to 4")
        self._producer_fields(rows)
        self._report.is_compacted |= bool((has_width & (rows.count < width)).any() or rows.has_delete_horizon.any())

    def _producer_fields(self, rows: BatchTable) -> None:
        """Check fields that no producer writes; Kafka's leaders and followers take them, its cleaner does not."""
        modern, nobody = rows.magic == 2, rows.producer_id == -1
        for row in np.flatnonzero(modern & nobody & rows.is_transactional).tolist():
            self._finding("uncleanable", rows, row, "a transactional batch without a producer id")
        is_low = (rows.producer_epoch < 0) | ((rows.base_sequence < 0) & ~rows.is_control)
        for row in np.flatnonzero(modern & ~nobody & is_low).tolist():
            fields = f"epoch {rows.producer_epoch[row]} and base sequence {rows.base_sequence[row]}"
            self._finding("uncleanable", rows, row, f"a batch of producer {rows.producer_id[row]} with {fields}")

    def _epochs(self, rows: BatchTable) -> None:
        for row in np.flatnonzero((rows.leader_epoch < -1) & (rows.magic == 2)).tolist():
            self._finding(
                "header", rows, row, f"leader epoch {rows.leader_epoch[row]} is below -1, which stands for none"
            )
        rows = rows[~self._judged.is_wrong]  # the offsets of the others are not known
        if not len(rows):
            return
        runs, epochs = self._report.epochs, rows.leader_epoch
        self._report.has_legacy |= bool((rows.magic < 2).any())
        starts = np.flatnonzero(np.concatenate(([True], epochs[1:] != epochs[:-1]))).tolist()
        for first, end in pairwise([*starts, len(rows)]):
            epoch, last = int(epochs[first]), int(rows.last_offset[end - 1])
            if epoch >= 0 and epoch == self._epoch:
                runs[-1] = runs[-1]._replace(last_offset=last)
            elif epoch >= 0:
                runs.append(EpochRun(epoch, int(rows.base_offset[first]), last))
            self._epoch = epoch

    def _finding(self, kind: str, rows: BatchTable, row: int, reason: str, is_damage: bool = True) -> None:
        kinds = (self._segment.path, kind, is_damage)
        self._counts[kinds] += 1
        if self._counts[kinds] > MAX_REMARKS:
            self._unlisted[kinds] += 1
            return
        place, offset = int(rows.position[row]), int(rows.base_offset[row])
        self._report.findings.append(Finding(self._segment.path, kind, is_damage, reason, place, offset))

    # ---- records ----

    def records(self, part: Slice) -> None:
        """Check records against their batches."""
        columns, damage, continues, ends = part
        rows, report = columns.batches, self._report
        for bad in damage:
            if bad.is_limit:
                place = f"{self._segment.path}: the batch at position {rows.position[bad.row]}"
                report.undecided.append(f"{place}: {bad.reason}")
            else:
                self._finding(GapKind.RECORDS_BAD.value, rows, bad.row, bad.reason)
        report.records += len(columns)
        if report.first_offset < 0 and len(columns):
            self._firsts.append((int(rows.position[columns.batch[0]]), int(columns.offset[0])))
        for kind, row, reason, is_damage in self._check_records(columns, continues, ends):
            self._finding(kind, rows, row, reason, is_damage)


def _wrappers(rows: BatchTable) -> npt.NDArray[Any]:
    """Return a mask of compressed legacy batches, whose headers have neither base offset nor count."""
    return np.asarray((rows.magic < 2) & (rows.codec != 0))
