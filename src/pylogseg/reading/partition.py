"""Read the records of one partition, segment by segment, as chunks of columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from pylogseg.disk.disk import Segment, fetched_from, is_cluster
from pylogseg.env.filesystem import FileView
from pylogseg.errors import Ending, Verdict
from pylogseg.format.batches import BatchTable, Scan, scan
from pylogseg.format.records import (
    BatchDamage,
    RecordColumns,
    Slice,
    check_and_decode,
    decode_slices,
    read_and_decode,
    without_outside,
)
from pylogseg.format.scratch import Scratch
from pylogseg.reading.copies import told_of_copies
from pylogseg.reading.offset_order import Order
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.positions import position_of_offset
from pylogseg.reading.removed_segments import open_or_gap, removed_gap, unreadable_gap
from pylogseg.reading.stable_offset import Tail
from pylogseg.reading.state import ReadState
from pylogseg.reading.transaction_markers import Unopened
from pylogseg.reading.transactions import Transactions, TxnIndexView
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import (
    Window,
    nothing_through,
    walk,
)

if TYPE_CHECKING:
    from pylogseg.live.fetching import FetchedView

#: Most headers in a chunk; a record with more is a chunk of its own.
HEADERS = 1 << 20


class Chunk(NamedTuple):
    """Records of one part of a segment.

    Attributes
    ----------
    columns : RecordColumns
    segment : Segment
    """

    columns: RecordColumns
    segment: Segment

    @property
    def topic(self) -> str:
        """Topic, from the folder's name."""
        return self.segment.topic

    @property
    def partition(self) -> int:
        """Partition, from the folder's name."""
        return self.segment.partition


Decoded = tuple[RecordColumns, list[BatchDamage]]


class OnePass:
    """Scans and decodes windows in one pass: the bytes of a batch are decoded while they are in the cache for the CRC.

    The batches of a window that have offsets between two inclusive ones are decoded ahead, in the scanner of the walk.
    If a batch is compressed, a CRC is bad or not all of these batches are selected, it is scanned and decoded in two
    steps.
    """

    def __init__(self, limit_bytes: int, scratch: Scratch | None, first: int = 0, last: int = OPEN_END - 1) -> None:
        self._limit_bytes, self._scratch = limit_bytes, scratch
        self._first, self._last = first, last
        self._buffer: Any = None
        self._ahead = 0
        self._decoded: Decoded | None = None
        self._is_worth_it, self._is_through = True, False
        self._codec: int | None = 0  # of the window that was scanned last, None of several

    def memory(self, size: int) -> memoryview | None:
        """Return memory for a window; None if its bytes must outlive the window."""
        return None if self._scratch is None else self._scratch.window(size)

    def through(self, view: Any, position: int, size: int) -> tuple[Scan, Any] | None:
        """Read, scan and decode a window in one pass; None where `scan` has to look at it."""
        is_read = hasattr(view, "whole") or (hasattr(view, "fileno") and hasattr(os, "pread"))
        if not is_read or self._scratch is None or self._codec is None or not self._is_worth_it:
            return None
        limit, scratch = self._limit_bytes, self._scratch
        window = read_and_decode(view, position, size, self._first, self._last, self._codec, limit, scratch)
        if window is None:
            return None
        self._buffer, self._ahead = window.memory, len(window.batches) - window.before
        self._decoded, self._is_through = (window.columns, []), True
        ending = Ending.COMPLETE if window.size == size else Ending.MORE
        return Scan(window.batches, position + window.size, ending), window.memory

    def scan(self, buffer: Any, *, file_position: int, crc: bool) -> Scan:
        """Scan a window; perhaps decode it too."""
        self._buffer, self._decoded, self._is_through = buffer, None, False
        ahead = crc and self._is_worth_it and self._codec == 0
        window = self._up_to_last(scan(buffer, file_position=file_position, crc=crc and not ahead))
        batches = window.batches
        # Assume that a window is like the one before it; otherwise its headers are read twice.
        self._codec = _codec_of(batches) if len(batches) else 0
        if not ahead or not len(batches):
            self._ahead = len(batches)
            return window
        before = self._before_first(batches)
        wanted = batches[before:] if before else batches
        self._ahead = len(wanted)
        if self._codec == 0 and (not before or _are_good(buffer, batches[:before], file_position)):
            batches.rows["verdict"][:before] = Verdict.GOOD
            if not len(wanted):
                return window
            self._decoded = check_and_decode(wanted, buffer, file_position, self._scratch)
        if self._decoded is not None:
            return window
        again = scan(buffer, end=window.position - file_position, file_position=file_position, crc=True)
        return again._replace(ending=window.ending) if again.position == window.position else again

    def _up_to_last(self, found: Scan) -> Scan:
        """Drop batches behind the batch with the last offset: the reading ends with it."""
        rows = found.batches
        if not len(rows) or rows.summary().highest_base_offset <= self._last:
            return found
        behind = int((rows.last_offset >= self._last).argmax()) + 1
        if behind == len(rows) or (rows.magic[:behind] < 2).any() or rows.last_offset[behind - 1] < self._last:
            return found
        return Scan(rows[:behind], int(rows.position[behind]), Ending.MORE)

    def _before_first(self, batches: BatchTable) -> int:
        """Return how many batches at the beginning end before the first offset."""
        if batches.summary().lowest_last_offset >= self._first:
            return 0
        is_wanted = batches.last_offset >= self._first
        return int(is_wanted.argmax()) if is_wanted.any() else len(batches)

    def decode(self, batches: BatchTable, buffer: Any, file_position: int) -> Iterator[Slice]:
        """Decode batches of the window that was scanned last, as `decode_slices`."""
        decoded, self._decoded = self._decoded, None
        is_whole = self._buffer is buffer and len(batches) == self._ahead
        # If batches of this window are left out (aborted ones, markers), some of the next will be, too.
        self._is_worth_it = is_whole
        if decoded is not None and not is_whole and self._is_through:  # bytes of the window may be gone
            yield Slice(decoded[0].of_batches(batches), [])
            return
        if decoded is None or not is_whole:
            yield from decode_slices(
                batches, buffer, file_position, limit_bytes=self._limit_bytes, scratch=self._scratch
            )
            return
        for bad in decoded[1]:
            batches.rows["verdict"][bad.row] = Verdict.RECORDS_BAD
        yield Slice(*decoded)


def _codec_of(batches: BatchTable) -> int | None:
    """Return the codec of all batches, None if they differ or are compressed in the old way."""
    summary = batches.summary()
    return None if summary.codec and summary.lowest_magic < 2 else summary.codec


def _are_good(buffer: Any, batches: BatchTable, file_position: int) -> bool:
    """Check the CRCs of the first batches of a buffer."""
    end = batches.summary().end_position - file_position
    return bool((scan(buffer, end=end, file_position=file_position).batches.verdict == Verdict.GOOD).all())


class PartitionReader:
    """Reads the segments of one partition in order, within a half-open range of offsets.

    The state's `gaps` get the gaps. For ``read_committed``: `snapshots` are paths by offset, `transactions` is given if
    the caller has read more of the log than these segments, and `tail` is the end of the log in an earlier reading.
    With `to_end`, a segment is looked at to the end of its bytes, for damage behind the last offset.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        first_offset: int,
        end_offset: int,
        state: ReadState,
        snapshots: Mapping[int, str] | None = None,
        transactions: TxnIndexView | None = None,
        tail: Tail | None = None,
        *,
        to_end: bool = False,
    ) -> None:
        self._to_end = to_end
        self._segments = [
            segment
            for i, segment in enumerate(segments)
            if segment.base_offset < end_offset
            and not (i + 1 < len(segments) and segments[i + 1].base_offset <= first_offset)
        ]
        self._first, self._end, self._state = first_offset, end_offset, state
        self._is_from_segment_start = bool(self._segments) and first_offset <= self._segments[0].base_offset
        # The end may not fit into the type of the columns that it is compared with.
        self._last = min(end_offset, OPEN_END) - 1
        self._unopened: Unopened | None = None
        self._damage_behind: list[Gap] = []
        memory = None if state.scratch is None else state.scratch()
        self._one_pass = OnePass(state.reading.max_decompressed_bytes, memory, first_offset, self._last)
        self._is_committed = transactions is None and state.reading.isolation_level == "read_committed"
        if self._is_committed and not (segments and fetched_from(segments[0])):
            skips = state.reading.on_corrupt == "skip"
            txns = Transactions(list(segments), snapshots or {}, first_offset, tail=tail, skips=skips)
            transactions, self._unopened, self._damage_behind = txns, txns.unopened, txns.damage
        self._transactions = transactions

    def __iter__(self) -> Iterator[Chunk]:
        if self._first > self._last:
            return
        for segment in self._segments:
            for chunk in self._read(segment):
                if chunk is None:
                    return
                yield chunk

    def _read(self, segment: Segment) -> Iterator[Chunk | None]:
        """Yield the chunks of a segment; None ends the partition."""
        state = self._state
        ends = [end for end in (segment.next_base, self._last + 1) if end is not None and end != OPEN_END]
        self._at = segment  # for messages
        or_log = state.on_removed is not None
        opened = open_or_gap(segment, self._first, min(ends, default=None), or_log=or_log)
        if isinstance(opened, Gap):
            if self._ends_at(opened):
                yield None
            return
        with opened as view:
            start = self._begin(segment, view)
            items = walk(
                view,
                start=start,
                lowest_offset=segment.base_offset,
                is_last=segment.is_last,
                crc=state.reading.check_crc,
                window_bytes=state.window_bytes,
                first_window_bytes=state.first_window_bytes,
                scanner=self._one_pass.scan,
                memory=self._one_pass.memory,
                through=self._one_pass.through if state.reading.check_crc else nothing_through,
            )
            done = dropped = start
            order = Order(segment, view, starts_inside=start > 0)
            for item in items:
                if isinstance(item, Gap):
                    if self._ends_at_any(order.finish(item.next_offset)) or self._ends_at(item):
                        yield None
                        return
                    continue
                done, dropped = self._account(view, item, done, dropped)
                if self._ends_at_any(self._take_removed(segment, view)):
                    yield None
                    return
                rows, gaps, is_done = order.check(item.batches, OPEN_END - 1 if self._to_end else self._last)
                if state.reading.on_corrupt != "skip":
                    gaps = gaps or order.finish_above(self._first)
                breach = next((gap for gap in gaps if self._concerns(gap)), None)
                if breach is not None and state.reading.on_corrupt != "skip":  # records before it are returned first
                    rows = rows[rows.position < breach.position]
                    rows = self._select_batches(rows, segment)[0] if len(rows) else rows
                    yield from self._decode(segment, rows, item) if len(rows) else ()
                if self._ends_at_any(gaps):
                    yield None
                    return
                if not len(rows):
                    continue
                if rows.summary().first_base_offset > self._last and rows.magic[0] == 2:
                    if self._to_end:
                        continue
                    yield None
                    return
                rows, undecided = self._select_batches(rows, segment)
                if len(rows):
                    yield from self._decode(segment, rows, item)
                if undecided:
                    self._note_what_hides_an_end(segment)
                if undecided or is_done:
                    yield None
                    return
            if self._ends_at_any(order.finish() + self._take_removed(segment, view)):
                yield None

    def _begin(self, segment: Segment, view: FileView) -> int:
        """Return the position to read from. Answers of a cluster begin at an offset, and name aborted transactions."""
        if not is_cluster(segment.files):
            return position_of_offset(segment, view, self._first)
        fetched = cast("FetchedView", view)
        if self._is_committed:
            self._transactions = fetched
        return fetched.begin(self._first, self._last + 1, is_committed=self._is_committed)

    def _take_removed(self, segment: Segment, view: FileView) -> list[Gap]:
        """Return, each once, the offsets that a cluster removed while it was read."""
        if not is_cluster(segment.files):
            return []
        removed = cast("FetchedView", view).removed
        gaps = [removed_gap(segment, *offsets) for offsets in removed]
        removed.clear()
        return gaps

    def _note_what_hides_an_end(self, segment: Segment) -> None:
        """Report unreadable ranges behind an open transaction: its end may lie there."""
        for later in self._segments:
            error = (self._unopened or {}).get(later.base_offset)
            if later.base_offset > segment.base_offset and error is not None:
                self._ends_at(unreadable_gap(later, error, later.base_offset, later.next_base))
        self._ends_at_any(self._damage_behind)

    def _account(self, view: FileView, window: Window, done: int, dropped: int) -> tuple[int, int]:
        """Count the bytes of a window, wait for the throttle, and drop the pages before it from the cache."""
        state = self._state
        end = window.batches.summary().end_position
        if state.on_bytes is not None:
            state.on_bytes(end - done)
        if state.throttle is not None:
            state.throttle.spend(end - done)
        if state.reading.drop_behind:
            view.drop(dropped, window.file_position)
        return end, window.file_position

    def _select_batches(self, rows: BatchTable, segment: Segment) -> tuple[BatchTable, bool]:
        """Return the batches that may have selected records, and whether an open transaction ends the reading."""
        summary = rows.summary()
        begins_before = summary.lowest_last_offset < self._first
        ends_behind = summary.highest_base_offset > self._last
        leaves_control = summary.has_control and not self._state.reading.control
        is_masked = self._transactions is not None or self._state.batches is not None
        if not (begins_before or ends_behind or leaves_control or is_masked):
            return rows, False
        mask = rows.last_offset >= self._first
        if ends_behind:
            # The header of a compressed legacy wrapper has no base offset: it is kept, and its records are checked.
            mask &= (rows.base_offset <= self._last) | (rows.magic < 2)
        if leaves_control:
            mask &= ~rows.is_control
        if self._state.batches is not None:
            mask &= self._state.batches(rows)
        undecided = False
        if self._transactions is not None:
            kept, last_stable_offset = self._transactions.mask_committed(rows, segment)
            mask &= kept
            if last_stable_offset is not None and len(rows) and rows.last_offset[-1] >= last_stable_offset:
                mask &= rows.base_offset < last_stable_offset
                undecided = True
        return (rows if mask.all() else rows[mask]), undecided

    def _decode(self, segment: Segment, rows: BatchTable, window: Window) -> Iterator[Chunk | None]:
        state = self._state
        for part in self._one_pass.decode(rows, window.buffer, window.file_position):
            decoded, damage, *_ = without_outside(part)
            columns, below = of_segment(segment, decoded)
            self._ends_at_any(below)
            for bad in damage:
                ends = state.reading.on_corrupt != "skip"
                if ends:  # records before the damage are returned first
                    yield from self._chunks(columns.take(columns.batch < bad.row), segment)
                self._ends_at(records_gap(segment, columns.batches, bad))
                if ends:
                    yield None
                    return
            yield from self._chunks(columns, segment)

    def _chunks(self, columns: RecordColumns, segment: Segment) -> Iterator[Chunk]:
        """Yield records as one chunk; as several if they have too many headers."""
        if columns.tally().headers <= HEADERS:
            yield self._chunk(columns, segment)
            return
        ends, begin = np.cumsum(columns.header_count, dtype=np.int64), 0
        while begin < len(columns):
            done = int(ends[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(ends, done + HEADERS, "right")), begin + 1)
            yield self._chunk(columns.take(slice(begin, end)), segment)
            begin = end

    def _chunk(self, columns: RecordColumns, segment: Segment) -> Chunk:
        # Check all offsets, not only the first and the last: in damaged batches they may descend.
        tally = columns.tally()
        if tally.lowest_offset < self._first or tally.highest_offset > self._last:
            columns = columns.take((columns.offset >= self._first) & (columns.offset <= self._last))
        return Chunk(columns, segment)

    def _concerns(self, gap: Gap) -> bool:
        """Check whether a gap may have selected offsets; otherwise it is before them.

        If several readers share a segment, the one with the gap's first offset in its range reports it. That reader
        meets the gap, since a reading ends only at a good batch with the last of its offsets, or behind them.
        """
        if self._state.continues:
            return gap.first_offset >= self._first
        is_within = gap.next_offset is None or max(gap.first_offset + 1, gap.next_offset) > self._first
        return self._is_from_segment_start or is_within

    def _ends_at_any(self, gaps: list[Gap]) -> bool:
        return any(self._ends_at(gap) for gap in gaps)

    def _ends_at(self, gap: Gap) -> bool:
        """Report a gap; return True if the reading ends at it."""
        if not self._concerns(gap):
            return False
        if self._state.is_raised(gap):
            raise told_of_copies(gap, self._at).as_error()
        self._state.note(gap)
        return gap.is_damage and self._state.ends_at_damage


def of_segment(segment: Segment, columns: RecordColumns) -> tuple[RecordColumns, list[Gap]]:
    """Return decoded records without records below the segment's base offset, and notices about these.

    The header of a compressed batch of magic 0 or 1 has only the last offset, so this shows only in the records. It is
    not damage: a follower that begins in the middle of such a batch names its segment after the offset it fetched.
    """
    if columns.tally().lowest_offset >= segment.base_offset:
        return columns, []
    is_below = columns.offset < segment.base_offset
    batches, first = np.unique(columns.batch[is_below], return_index=True)
    lowest, gaps = columns.offset[is_below][first].tolist(), []
    for row, offset in zip(batches.tolist(), lowest, strict=True):
        reason = f"a batch begins at offset {offset}, below {segment.base_offset}, the segment's base offset"
        position, size = int(columns.batches.position[row]), int(columns.batches.size[row])
        place = (segment.path, GapKind.ORDER, position, position + size)
        gaps.append(Gap(*place, offset, segment.base_offset, reason, False))
    return columns.take(~is_below), gaps


def records_gap(segment: Segment, rows: BatchTable, bad: BatchDamage) -> Gap:
    """Return the gap for a batch whose records cannot be read."""
    row = rows.rows[bad.row]
    position, size = int(row["position"]), int(row["size"])
    first = int(row["base_offset"])
    return Gap(
        segment.path,
        GapKind.RECORDS_BAD,
        position,
        position + size,
        first,
        int(row["last_offset"]) + 1,
        bad.reason,
        True,
    )
