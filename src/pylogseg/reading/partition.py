"""The records of one partition, segment after segment, as chunks of columns."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.catalog.disk import Segment
from pylogseg.env.filesystem import FileView
from pylogseg.errors import RequestError
from pylogseg.format.batches import BatchTable
from pylogseg.format.escape import printable
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES, BatchDamage, RecordColumns
from pylogseg.format.scratch import Scratch
from pylogseg.reading.offset_order import Order
from pylogseg.reading.one_pass import OnePass
from pylogseg.reading.seek import position_of_offset
from pylogseg.reading.stable_offset import Tail
from pylogseg.reading.transactions import Transactions, TxnIndexView
from pylogseg.reading.vanished import open_or_gap
from pylogseg.walker.findings import Finding, Gap
from pylogseg.walker.windows import MEDIUM_WINDOW_BYTES, SMALL_WINDOW_BYTES, WINDOW_BYTES, Window, walk

OnCorrupt = Literal["raise", "stop", "skip"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
#: Where a range of offsets ends that is open: above every offset there can be.
OPEN_END = 2**63
#: Headers of a chunk; a record that has more is a chunk of its own.
HEADERS = 1 << 20

_log = logging.getLogger("pylogseg.reading")


class Chunk(NamedTuple):
    """Records of one stretch of a segment.

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


class Throttle:
    """Sleeps so that no more than so many bytes a second are read, by all threads that share it."""

    def __init__(self, max_bytes_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        if max_bytes_per_second <= 0:
            raise RequestError(f"max_bytes_per_second must be above 0, not {max_bytes_per_second}")
        self._rate, self._clock = max_bytes_per_second, clock
        self._free_at = clock()
        self._lock = threading.Lock()

    def spend(self, size: int, sleep: Callable[[float], None] = time.sleep) -> None:
        """Account for bytes read, and wait until they are paid for."""
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + size / self._rate
            wait = self._free_at - now
        if wait > 0:
            sleep(wait)


@dataclass
class ReadOptions:
    """How to read; see `pylogseg.read`. Batches that `batches` does not want are not decoded.

    With `skip_unreadable` what the disk refuses is a gap under ``on_corrupt="raise"`` too: for who tells of it later.
    """

    isolation_level: IsolationLevel = "read_uncommitted"
    on_corrupt: OnCorrupt = "raise"
    control: bool = False
    check_crc: bool = True
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
    window_bytes: int = WINDOW_BYTES
    first_window_bytes: int = MEDIUM_WINDOW_BYTES
    throttle: Throttle | None = None
    drop_behind: bool = False
    scratch: Callable[[], Scratch] | None = None
    gaps: list[Gap] = field(default_factory=list)
    on_bytes: Callable[[int], None] | None = None
    batches: Callable[[BatchTable], npt.NDArray[np.bool_]] | None = None
    skip_unreadable: bool = False

    def __post_init__(self) -> None:
        _one_of("on_corrupt", self.on_corrupt, ("raise", "stop", "skip"))
        _one_of("isolation_level", self.isolation_level, ("read_uncommitted", "read_committed"))
        if self.limit_bytes < 1:
            raise RequestError(f"the limit of decompressed bytes must be above 0, not {self.limit_bytes}")
        self.first_window_bytes = min(self.first_window_bytes, self.window_bytes)


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise RequestError(f"{name}={value!r}: must be one of {', '.join(map(repr, allowed))}")


def small_window(limit: int | None) -> int:
    """First window for a reader that may want little."""
    return MEDIUM_WINDOW_BYTES if limit is None or limit > 1000 else SMALL_WINDOW_BYTES


class PartitionReader:
    """Reads the segments of one partition in order, within a range of offsets.

    Parameters
    ----------
    segments : sequence of Segment
        Of one partition, by base offset.
    first_offset, end_offset : int
        The range, half-open.
    options : ReadOptions
        Its `gaps` collect what was passed over.
    snapshots : dict of int to str, optional
        Paths of producer snapshots by offset, for ``read_committed``.
    transactions : TxnIndexView, optional
        What became of the transactions, where more is known of the log than these segments.
    tail : Tail, optional
        For ``read_committed``: what was known of the end of the log when it was read before.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        first_offset: int,
        end_offset: int,
        options: ReadOptions,
        snapshots: dict[int, str] | None = None,
        transactions: TxnIndexView | None = None,
        tail: Tail | None = None,
    ) -> None:
        self._segments = [
            segment
            for i, segment in enumerate(segments)
            if segment.base_offset < end_offset
            and not (i + 1 < len(segments) and segments[i + 1].base_offset <= first_offset)
        ]
        self._first, self._end, self._options = first_offset, end_offset, options
        self._is_from_segment_start = bool(self._segments) and first_offset <= self._segments[0].base_offset
        # The end might not fit the columns it would be compared with.
        self._last = min(end_offset, OPEN_END) - 1
        self._one_pass = OnePass(options.limit_bytes, None if options.scratch is None else options.scratch())
        if transactions is None and options.isolation_level == "read_committed":
            transactions = Transactions(list(segments), snapshots or {}, first_offset, tail=tail)
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
        """Chunks of a segment; None ends the partition."""
        options = self._options
        ends = [end for end in (segment.next_base, self._last + 1) if end is not None and end != OPEN_END]
        opened = open_or_gap(segment, self._first, min(ends, default=None))
        if isinstance(opened, Gap):
            if self._ends_at(opened):
                yield None
            return
        with opened as view:
            start = position_of_offset(segment, view, self._first)
            found = walk(
                view,
                start=start,
                lowest_offset=segment.base_offset,
                is_last=segment.is_last,
                crc=options.check_crc,
                window_bytes=options.window_bytes,
                first_window_bytes=options.first_window_bytes,
                scanner=self._one_pass.scan,
                memory=self._one_pass.memory,
            )
            done = dropped = start
            order = Order(segment, view, starts_inside=start > 0)
            for item in found:
                if isinstance(item, Gap):
                    if self._ends_at_any(order.finish(item.next_offset)) or self._ends_at(item):
                        yield None
                        return
                    continue
                done, dropped = self._account(view, item, done, dropped)
                rows, gaps, is_done = order.check(item.batches, self._last)
                if options.on_corrupt != "skip":
                    gaps = gaps or order.finish()
                breach = next((gap for gap in gaps if self._concerns(gap)), None)
                if breach is not None and options.on_corrupt != "skip":  # what is good before it is given first
                    rows = rows[rows.position < breach.position]
                    rows = self._wanted(rows, segment)[0] if len(rows) else rows
                    yield from self._decode(segment, rows, item) if len(rows) else ()
                if self._ends_at_any(gaps):
                    yield None
                    return
                if not len(rows):
                    continue
                if rows.summary().first_base_offset > self._last and rows.magic[0] == 2:
                    yield None
                    return
                rows, undecided = self._wanted(rows, segment)
                if len(rows):
                    yield from self._decode(segment, rows, item)
                if undecided or is_done:
                    yield None
                    return
            if self._ends_at_any(order.finish()):
                yield None

    def _account(self, view: FileView, window: Window, done: int, dropped: int) -> tuple[int, int]:
        """Count the bytes of a window, wait for them to be paid for, and give back the pages before it."""
        options = self._options
        end = window.batches.summary().end_position
        if options.on_bytes is not None:
            options.on_bytes(end - done)
        if options.throttle is not None:
            options.throttle.spend(end - done)
        if options.drop_behind:
            view.drop(dropped, window.file_position)
        return end, window.file_position

    def _wanted(self, rows: BatchTable, segment: Segment) -> tuple[BatchTable, bool]:
        """The batches that may hold records to give; and whether an open transaction ends the reading there."""
        summary = rows.summary()
        if (
            self._transactions is None
            and self._options.batches is None
            and summary.lowest_last_offset >= self._first
            and summary.highest_base_offset <= self._last
            and (self._options.control or not summary.has_control)
        ):
            return rows, False
        mask = rows.last_offset >= self._first
        # A compressed legacy wrapper does not tell its base offset: it is kept, and its records are looked at.
        mask &= (rows.base_offset <= self._last) | (rows.magic < 2)
        if not self._options.control:
            mask &= ~rows.is_control
        if self._options.batches is not None:
            mask &= self._options.batches(rows)
        undecided = False
        if self._transactions is not None:
            kept, last_stable_offset = self._transactions.committed(rows, segment)
            mask &= kept
            if last_stable_offset is not None and len(rows) and rows.last_offset[-1] >= last_stable_offset:
                mask &= rows.base_offset < last_stable_offset
                undecided = True
        return (rows if mask.all() else rows[mask]), undecided

    def _decode(self, segment: Segment, rows: BatchTable, window: Window) -> Iterator[Chunk | None]:
        options = self._options
        for decoded, damage, *_ in self._one_pass.decode(rows, window.buffer, window.file_position):
            columns, below = of_segment(segment, decoded)
            self._ends_at_any(below)
            for bad in damage:
                ends = options.on_corrupt != "skip"
                if ends:  # what is good in front of the damage is given first
                    yield from self._chunks(columns.take(columns.batch < bad.row), segment)
                self._ends_at(records_gap(segment, columns.batches, bad))
                if ends:
                    yield None
                    return
            yield from self._chunks(columns, segment)

    def _chunks(self, columns: RecordColumns, segment: Segment) -> Iterator[Chunk]:
        """Records as a chunk; as several, where they have more headers than are held at once."""
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
        # Not the first and the last alone: in a damaged batch, and where damage has put one, offsets may go down.
        tally = columns.tally()
        if tally.lowest_offset < self._first or tally.highest_offset > self._last:
            columns = columns.take((columns.offset >= self._first) & (columns.offset <= self._last))
        return Chunk(columns, segment)

    def _concerns(self, gap: Gap) -> bool:
        """Whether a gap may hold what is read; else it lies before that."""
        return self._is_from_segment_start or gap.next_offset is None or gap.next_offset > self._first

    def _ends_at_any(self, gaps: list[Gap]) -> bool:
        return any(self._ends_at(gap) for gap in gaps)

    def _ends_at(self, gap: Gap) -> bool:
        """Report a gap; whether the reading ends at it."""
        if not self._concerns(gap):
            return False
        is_skipped = self._options.skip_unreadable and gap.kind is Finding.UNREADABLE
        if gap.is_damage and self._options.on_corrupt == "raise" and not is_skipped:
            raise gap.as_error()
        self._options.gaps.append(gap)
        _log.log(logging.WARNING if gap.is_damage else logging.INFO, "%s", printable(str(gap)))
        return gap.is_damage and self._options.on_corrupt == "stop"


def of_segment(segment: Segment, columns: RecordColumns) -> tuple[RecordColumns, list[Gap]]:
    """Decoded records without those below their segment's base offset, and news of these.

    A compressed batch of magic 0 or 1 tells its last offset alone, so only its records show it. Such a batch is no
    damage: a follower that begins in the middle of one names its first segment by the offset that it asked for.
    """
    if columns.tally().lowest_offset >= segment.base_offset:
        return columns, []
    is_below = columns.offset < segment.base_offset
    batches, first = np.unique(columns.batch[is_below], return_index=True)
    lowest, gaps = columns.offset[is_below][first].tolist(), []
    for row, offset in zip(batches.tolist(), lowest, strict=True):
        reason = f"a batch begins at offset {offset}, below {segment.base_offset}, the segment's base offset"
        position, size = int(columns.batches.position[row]), int(columns.batches.size[row])
        place = (segment.path, Finding.ORDER, position, position + size)
        gaps.append(Gap(*place, offset, segment.base_offset, reason, False))
    return columns.take(~is_below), gaps


def records_gap(segment: Segment, rows: BatchTable, bad: BatchDamage) -> Gap:
    """What to report of a batch whose records cannot be had."""
    row = rows.rows[bad.row]
    position, size = int(row["position"]), int(row["size"])
    first = int(row["base_offset"])
    return Gap(
        segment.path,
        Finding.RECORDS_BAD,
        position,
        position + size,
        first,
        int(row["last_offset"]) + 1,
        bad.reason,
        True,
    )
