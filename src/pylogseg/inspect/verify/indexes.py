"""Checks of a segment's indexes against its batches, entry by entry."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from pylogseg.disk.disk import Segment, beside
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.control import ControlKind
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.format.files.txnindex import AbortedTxn, TxnIndex
from pylogseg.format.names import FileKind, parse_file_name
from pylogseg.inspect.verify.findings import Finding, of_error, of_failure
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.reading.transaction_markers import marker_rows
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window

_Index = TypeVar("_Index", OffsetIndex, TimeIndex)


def _missing(segment: Segment, kind: FileKind) -> Finding | None:
    """Return the finding for a missing index, if the segment needs one."""
    if not segment.size or parse_file_name(segment.name).kind is not FileKind.LOG:
        return None
    return Finding(beside(segment.path, kind), "missing-index", False, "a segment without this file")


def _index_bytes(segment: Segment, kind: FileKind, name: str, findings: list[Finding]) -> bytes | None:
    """Return the bytes of an index; None if it is missing or unreadable, with a finding if that is wrong."""
    try:
        data = segment.companion(kind)
    except CorruptionError as error:
        findings.append(of_error(name, error))
        return None
    except StorageError as error:
        findings.append(of_failure(error))
        return None
    if data is None and kind is not FileKind.TXN_INDEX:
        missing = _missing(segment, kind)
        findings += [missing] if missing else []
    return data


def _check_trimmed(index: OffsetIndex | TimeIndex, segment: Segment) -> list[Finding]:
    """Return the finding for zeros at the end of a sealed index, where a broker takes them for entries.

    With such an offset index lookups are only slower. With such a time index the segment's greatest timestamp counts as
    0: retention deletes it at once, and lookups by time skip it.
    """
    if segment.is_last or not index.zero_count:
        return []
    is_time = isinstance(index, TimeIndex)
    kind, size = ("time-index-end", 12) if is_time else ("offset-index", 8)
    reason = f"{index.zero_count} entries of zeros at the end: only the last segment of a log may have them"
    return [Finding(index.path, kind, is_time, reason, index.count * size)]


def _open(of: type[_Index], segment: Segment, kind: FileKind, name: str, findings: list[Finding]) -> _Index | None:
    """Return a segment's index; None if it is missing or malformed, with a finding if that is wrong."""
    data = _index_bytes(segment, kind, name, findings)
    if data is None:
        return None
    index = of(data, segment.base_offset, segment.companions[kind])
    try:
        index.check_entries()
    except CorruptionError as error:
        is_believed = kind is FileKind.TIME_INDEX and not segment.is_last  # by retention, whatever it says
        findings.append(of_error("time-index-end" if is_believed else name, error))
        return None
    findings += _check_trimmed(index, segment)
    return index


class OffsetIndexCheck:
    """Checks that each entry of an offset index leads to a batch behind which all offsets from the entry's on lie.

    Brokers before 3.9.1, and 4.0.0, write one entry for each append: its last offset (its first one before 1.1), and
    the position of its first batch. Look-ups are right with all of these. No broker names an offset inside a batch.
    """

    def __init__(self, index: OffsetIndex, findings: list[Finding]) -> None:
        self._index, self._findings = index, findings
        self._positions = index.positions.astype(np.int64)
        self._offsets = index.offsets
        self._passed = 0  # entries below this one are checked
        self._named = 0  # entries below this one have offsets in the batches so far
        self._reached = index.base_offset  # the offset after the batches so far
        self._end = 0
        self._unreadable: list[tuple[int, int]] = []

    @classmethod
    def open(cls, segment: Segment, findings: list[Finding]) -> OffsetIndexCheck | None:
        """Return the check of a segment's index; None if the index is missing or malformed."""
        index = _open(OffsetIndex, segment, FileKind.OFFSET_INDEX, "offset-index", findings)
        return None if index is None else cls(index, findings)

    def window(self, rows: BatchTable, trusted: BatchTable | None = None) -> None:
        """Check the entries inside some batches; `trusted` are the batches whose base offset is right."""
        trusted = rows if trusted is None else trusted
        self._end = int(rows.position[-1] + rows.size[-1])
        stop = int(np.searchsorted(self._positions, self._end))
        positions, offsets = self._positions[self._passed : stop], self._offsets[self._passed : stop]
        at = np.minimum(np.searchsorted(rows.position, positions), len(rows) - 1)
        before = np.searchsorted(trusted.position, positions)
        reached = np.maximum.accumulate(np.concatenate(([self._reached], trusted.next_offset)))
        for i in np.flatnonzero((rows.position[at] != positions) | (offsets < reached[before])).tolist():
            self._wrong(self._passed + i, rows, int(at[i]), int(reached[before[i]]))
        self._passed, self._reached = stop, int(reached[-1])
        self._inside(trusted)

    def _inside(self, rows: BatchTable) -> None:
        """Find entries with an offset inside a batch: it has to be the batch's last one, or its first at its place."""
        stop = min(int(np.searchsorted(self._offsets, self._reached)), self._passed)
        if not len(rows):  # all of them have wrong offsets
            self._named = max(self._named, stop)
            return
        offsets, positions = self._offsets[self._named : stop], self._positions[self._named : stop]
        lasts = np.maximum.accumulate(rows.last_offset)
        at = np.minimum(np.searchsorted(lasts, offsets), len(rows) - 1)
        for i in np.flatnonzero((rows.base_offset[at] <= offsets) & (offsets < rows.last_offset[at])).tolist():
            row = int(at[i])
            base, last, position = (int(c[row]) for c in (rows.base_offset, rows.last_offset, rows.position))
            if offsets[i] != base or positions[i] != position:
                reason = f"entry {self._named + i}: {offsets[i]} is inside the batch of offsets {base} to {last}"
                self._find(self._named + i, f"{reason}; brokers write where one ends")
        self._named = max(self._named, stop)

    def _wrong(self, slot: int, rows: BatchTable, row: int, reached: int) -> None:
        position, offset = int(self._positions[slot]), int(self._offsets[slot])
        if any(start <= position < end for start, end in self._unreadable):
            return
        if rows.position[row] == position:
            reason = f"entry {slot}: offsets up to {reached - 1} lie before position {position}, and it says {offset}"
        else:
            reason = f"entry {slot} (offset {offset}): no batch begins at position {position}"
        self._find(slot, reason)

    def _find(self, slot: int, reason: str) -> None:
        place = slot * 8, int(self._offsets[slot])
        self._findings.append(Finding(self._index.path, "offset-index", True, reason, *place))

    def gap(self, gap: Gap) -> None:
        """Note a gap: entries inside it are not checked."""
        self._unreadable.append((gap.position, gap.end_position))
        self._end = gap.end_position

    def finish(self, next_offset: int) -> list[Finding]:
        """Return findings for entries after the end of the log; none if a gap at the end was reported already."""
        if self._unreadable and self._unreadable[-1][1] == self._end:
            return []
        path, findings = self._index.path, []
        for slot in np.flatnonzero((self._positions >= self._end) | (self._offsets >= next_offset)).tolist():
            offset = int(self._offsets[slot])
            reason = f"entry {slot}: offset {offset} is after the last one of the log, {next_offset - 1}"
            if self._positions[slot] >= self._end:
                reason = f"entry {slot}: position {self._positions[slot]} is after the end of the log, {self._end}"
            findings.append(Finding(path, "offset-index", True, reason, slot * 8, offset))
        return findings


class TimeIndexCheck:
    """Checks that each entry of a time index has the greatest timestamp so far, and the offset of its batch.

    No record before that batch may be as late, since lookups by time begin there. The log does not show the time of a
    batch that compaction removed or emptied, or of magic 0: 0.10 brokers index the times that its conversion drops.
    """

    def __init__(self, index: TimeIndex, findings: list[Finding], *, is_ended: bool) -> None:
        self._index, self._findings = index, findings
        self._is_ended = is_ended
        self._timestamps = index.timestamps.astype(np.int64)
        self._offsets = index.offsets
        self._passed = 0
        self._greatest = -1
        self._unreadable = False

    @classmethod
    def open(cls, segment: Segment, findings: list[Finding]) -> TimeIndexCheck | None:
        """Return the check of a segment's index; None if the index is missing or malformed."""
        index = _open(TimeIndex, segment, FileKind.TIME_INDEX, "time-index", findings)
        if index is None:
            return None
        # The last segment gets the entry of its greatest timestamp when it is closed. Without any entry a broker uses
        # the file's time; it creates an empty index itself if one was missing at its start.
        return cls(index, findings, is_ended=bool(len(index)) and not segment.is_last and not index.zero_count)

    def window(self, rows: BatchTable, trusted: BatchTable | None = None) -> None:
        """Check the entries up to the last offset of some batches; `trusted` as of an offset index."""
        rows = rows if trusted is None else trusted
        if not len(rows):
            return
        last_offsets = np.maximum.accumulate(rows.last_offset)
        has_records = rows.count != 0  # an empty batch has the time of the cleaning
        times = np.where(has_records, rows.max_timestamp, -1)
        greatest = np.maximum.accumulate(np.concatenate(([self._greatest], times)))
        stop = int(np.searchsorted(self._offsets, last_offsets[-1], side="right"))
        offsets, timestamps = self._offsets[self._passed : stop], self._timestamps[self._passed : stop]
        at = np.searchsorted(last_offsets, offsets)
        has_time = has_records & (rows.magic > 0)
        inside = has_time[at] & ((rows.base_offset[at] <= offsets) | (rows.magic[at] < 2))
        wrong = (greatest[at] >= timestamps) | (inside & (times[at] != timestamps))
        for i in np.flatnonzero(wrong).tolist():
            self._wrong(self._passed + i, int(greatest[at[i] + inside[i]]))
        self._passed = stop
        self._greatest = int(greatest[-1])

    def _wrong(self, slot: int, so_far: int) -> None:
        timestamp, offset = int(self._timestamps[slot]), int(self._offsets[slot])
        if self._unreadable and so_far <= timestamp:
            return
        reason = f"entry {slot} says {timestamp} at offset {offset}; the greatest timestamp up to there is {so_far}"
        self._findings.append(Finding(self._index.path, "time-index", True, reason, slot * 12, offset))

    def gap(self, gap: Gap) -> None:
        """Note a gap: no one can read its timestamps."""
        self._unreadable = True

    def finish(self, next_offset: int) -> list[Finding]:
        """Return findings for entries after the end of the log, and for a missing entry of the greatest timestamp.

        Retention and lookups by time use that entry.
        """
        if self._unreadable:
            return []
        last = len(self._timestamps) - 1
        if self._is_ended and self._passed > last and self._timestamps[last] < self._greatest:
            greatest = self._greatest
            reason = (
                f"the last entry says {self._timestamps[last]}; the greatest timestamp of the segment is {greatest}: "
                "retention and lookups by time use the entry"
            )
            place = last * 12, int(self._offsets[last])
            # No damage by itself: brokers leave cleaned segments like this.
            self._findings.append(Finding(self._index.path, "time-index-end", False, reason, *place))
        return [
            Finding(
                self._index.path,
                "time-index",
                True,
                f"entry {slot}: offset {self._offsets[slot]} is after the last one of the log, {next_offset - 1}",
                slot * 12,
                int(self._offsets[slot]),
            )
            for slot in range(self._passed, len(self._offsets))
        ]


class _Abort(NamedTuple):
    """An abort marker, by the log."""

    producer: int
    first: int | None  #: Where its transaction begins; None: below the segment, or it has no data.
    ended: int | None  #: The marker of the producer before it, in this segment.
    stable: int  #: The last stable offset behind it; less, if a transaction is open since an earlier segment.


class TransactionCheck:
    """Checks that the transaction index of a segment has exactly its abort markers."""

    def __init__(self, segment: Segment, findings: list[Finding]) -> None:
        self._segment, self._findings = segment, findings
        self._ongoing: dict[int, int] = {}
        self._ended: dict[int, int] = {}  # producer to its last marker
        self._aborts: dict[int, _Abort] = {}
        self._gap = False

    def window(self, rows: BatchTable, window: Window) -> None:
        chosen = rows[rows.is_transactional]
        if not len(chosen):
            return
        markers = {marker.offset: marker.kind for marker in marker_rows(chosen[chosen.is_control], window)}
        columns = zip(chosen.base_offset.tolist(), chosen.producer_id.tolist(), chosen.is_control.tolist(), strict=True)
        for offset, producer, is_control in columns:
            if not is_control:
                self._ongoing.setdefault(producer, offset)
                continue
            if offset not in markers:  # emptied by the cleaner: for a broker it ends nothing
                continue
            first = self._ongoing.pop(producer, None)
            if markers.get(offset) is ControlKind.ABORT:
                stable = min([offset + 1, *self._ongoing.values()])
                self._aborts[offset] = _Abort(producer, first, self._ended.get(producer), stable)
            self._ended[producer] = offset

    def gap(self, gap: Gap) -> None:
        """Note a gap: no one can read its markers."""
        self._gap = True

    def finish(self, report: SegmentReport) -> None:
        """Compare with the index; store facts that depend on other segments in the report."""
        entries = self._entries()
        report.ongoing, report.ended = self._ongoing, sorted(self._ended)
        if entries is None:
            return
        for offset, abort in self._aborts.items():
            producer = abort.producer
            if offset in entries:
                reason = self._against(entries.pop(offset), abort)
                if reason:
                    self._finding(reason, offset)
            elif abort.first is not None:
                self._finding(f"no entry for the abort marker of producer {producer} at offset {offset}", offset)
            elif abort.ended is None:  # its data may be in an earlier segment; else compaction has removed all of it
                report.unindexed_aborts.append((producer, offset))
        if not self._gap:
            for offset, txn in entries.items():
                reason = f"an entry for producer {txn.producer_id}, but no abort marker at offset {offset}"
                self._finding(reason, offset)

    def _against(self, txn: AbortedTxn, abort: _Abort) -> str:
        """Return the fault of an entry that makes readers hide or show wrong records."""
        at = f"the entry for offset {txn.last_offset}"
        if txn.producer_id != abort.producer:
            return f"{at} names producer {txn.producer_id}, the marker {abort.producer}"
        if self._gap:
            return ""
        first = txn.last_offset if abort.first is None else abort.first
        if txn.first_offset > first:
            return f"{at} begins at offset {txn.first_offset}, and the transaction at {first} or before"
        if abort.ended is not None and txn.first_offset <= abort.ended:
            return f"{at} begins at offset {txn.first_offset}, and the producer ended one before it at {abort.ended}"
        if txn.last_stable_offset > abort.stable:
            return f"{at} has the last stable offset {txn.last_stable_offset}, and by the log it was {abort.stable}"
        return ""

    def _entries(self) -> dict[int, AbortedTxn] | None:
        before = len(self._findings)
        data = _index_bytes(self._segment, FileKind.TXN_INDEX, "transaction-index", self._findings)
        if data is None:
            return {} if len(self._findings) == before else None
        try:
            index = TxnIndex(data, self._segment.companions[FileKind.TXN_INDEX])
            index.check(self._segment.base_offset)
        except CorruptionError as error:
            self._findings.append(of_error("transaction-index", error))
            return None
        if index.odd_bytes:
            reason = f"{index.odd_bytes} bytes after the last entry: an entry is cut off"
            self._findings.append(Finding(index.path, "transaction-index", True, reason, len(data) - index.odd_bytes))
        return {txn.last_offset: txn for txn in index}

    def _finding(self, reason: str, offset: int) -> None:
        path = beside(self._segment.path, FileKind.TXN_INDEX)
        self._findings.append(Finding(path, "transaction-index", True, reason, None, offset))
