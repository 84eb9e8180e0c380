"""The ranges of a read: which segments have its offsets, where these lie, how tasks share them and read them.

For a plan, names, indexes and, at the end of a log, headers of batches are read, never a payload. A range is cut where
an entry of the offset index says that a batch ends. That is only a hint: the offsets of a range are exact, and a reader
checks a position before it starts there, so a wrong index costs time, never rows. A log under a filter:
`pylogseg.reading.bounds`.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Disk, Partition, Segment, beside, fetched_from, is_cluster, uploaded_end
from pylogseg.disk.listing import open_folder
from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.errors import RequestError, StorageError, is_missing
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.layout import OFFSET_INDEX_ENTRY
from pylogseg.format.names import FileKind
from pylogseg.reading.header_reader import end_before
from pylogseg.reading.logs import LogFiles, logs_of
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.partition import Chunk, PartitionReader
from pylogseg.reading.removed_segments import open_unless_removed, removed_gap
from pylogseg.reading.seek import end_offset, first_offset_since
from pylogseg.reading.state import IsolationLevel, ReadState
from pylogseg.reading.transactions import Transactions
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import COPIED_WINDOW_BYTES, SMALL_WINDOW_BYTES, WINDOW_BYTES

#: The cost of opening a segment, in bytes that could be read in that time.
OPEN_COST_BYTES = 64 << 10
#: Of a part of a segment that one of several threads reads.
PART_BYTES = 32 << 20
_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


class Extent(NamedTuple):
    """A partition's log, and the half-open range of offsets of it that is read."""

    log: Partition | LogFiles
    first_offset: int
    end_offset: int


class Range(NamedTuple):
    """Offsets of one segment, and where they lie."""

    topic: str
    partition: int
    path: str  #: Of the segment, absolute or a URL.
    base_offset: int
    next_offset: int  #: Base offset of the next segment; -1: the active one, which a broker may be writing.
    first_offset: int  #: Half-open. Exact: together, the ranges of a plan have each offset once.
    end_offset: int
    start: int  #: Bytes, about: where the offsets lie as far as the index tells.
    end: int
    entry_offset: int = -1  #: The last offset of the batch at `start`, as the index says; -1 without an entry.

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start

    @property
    def folder(self) -> str:
        """Path or URL of the partition's folder."""
        return self.path.replace(os.sep, "/").rpartition("/")[0]


#: The ranges that one task reads, by partition and offset.
Task = tuple[Range, ...]


class UncutRange(NamedTuple):
    """A range that may still be cut, and its segment, with the index if it was already read."""

    range: Range
    segment: Segment
    offset_index: OffsetIndex | None


def url_of(files: FileSystem, path: str) -> str:
    """Return a path that means the same in another process."""
    return os.path.abspath(path) if isinstance(files, LocalFiles) else files.real(path)


def is_empty(segment: Segment) -> bool:
    """Check whether a segment has no byte. One that cannot be opened is listed with none, too, but may have some."""
    if segment.size:
        return False
    try:
        opened = open_unless_removed(segment)
    except StorageError:
        return False
    if opened is not None:
        opened.close()
    return True


def is_all_damage(segments: Sequence[Segment], end: int) -> bool:
    """Check whether a log's last segment begins at its end but has bytes, all of them damage, or cannot be opened."""
    last = segments[-1] if segments else None
    return last is not None and last.base_offset == end and not is_empty(last) and end >= end_offset([last])


class Share(NamedTuple):
    """The part of an extent in one segment."""

    segment: Segment
    following: Segment | None
    first_offset: int  #: Half-open.
    end_offset: int


def shares(extent: Extent) -> Iterator[Share]:
    """Yield the segments of a log that have offsets of an extent; nothing is read, but a last one that may be empty.

    The part of an extent in such a segment is empty if it is all damage, or cannot be opened: its reader has to see
    that.
    """
    segments = extent.log.segments
    for segment, following in itertools.zip_longest(segments, segments[1:]):
        first, end = max(extent.first_offset, segment.base_offset), extent.end_offset
        end = end if following is None else min(end, following.base_offset)
        is_asked = first < end or (following is None and is_all_damage(segments, extent.end_offset))
        if is_asked and not is_empty(segment):
            yield Share(segment, following, first, end)


def pieces(extent: Extent, since_ms: int | None = None, until_ms: int | None = None) -> Iterator[UncutRange]:
    """Yield the ranges of segments that may have offsets of an extent, and times in a range; both its ends included.

    Indexes tell the times, and the headers at the end of a segment do.
    """
    for share in shares(extent):
        if since_ms is not None:
            begin = first_offset_since(share.segment, share.following, since_ms)
            if begin is None or begin >= share.end_offset:
                continue
            share = share._replace(first_offset=max(share.first_offset, begin))
        piece = place_share(share)
        last = None if until_ms is None else end_before(share.segment, share.first_offset, until_ms)
        if until_ms is None:
            yield piece
        elif last is not None:
            part = piece.range
            end, stop = min(part.end_offset, last[0]), min(part.end, last[1])
            yield piece._replace(range=part._replace(end_offset=end, end=stop))


def place_share(share: Share) -> UncutRange:
    """Return the range of a share of a segment, with its place in the file as far as an index tells."""
    segment, _, first, end = share
    following = -1 if share.following is None else share.following.base_offset
    whole = first == segment.base_offset and (end == following or following < 0)
    index = None if whole else offset_index(segment)
    start, stop, entry = _bytes_of(segment, index, first, end)
    name = (segment.topic, segment.partition, url_of(segment.files, segment.path))
    part = Range(*name, segment.base_offset, following, first, end, start, stop, entry)
    return UncutRange(part, segment, index)


def offset_index(segment: Segment) -> OffsetIndex | None:
    """Return the offset index of a segment; None if it is missing, cannot be read or contradicts itself."""
    data = segment.hint(FileKind.OFFSET_INDEX)
    if not data:
        return None
    index = OffsetIndex(data, segment.base_offset)
    positions = index.positions.astype(np.int64)
    offsets = index.offsets
    is_sound = len(index) > 0 and (np.diff(positions) > 0).all() and (np.diff(offsets) > 0).all()
    return index if is_sound and positions[0] >= 0 and positions[-1] < segment.size else None


def _bytes_of(segment: Segment, index: OffsetIndex | None, first: int, end: int) -> tuple[int, int, int]:
    if index is None:
        return 0, segment.size, -1
    entry = index.floor(first)
    behind = int(np.searchsorted(index.offsets, end - 1))  # the first entry at or after the last offset
    behind += behind < len(index) and int(index.offsets[behind]) < end  # its batch still belongs to the range
    stop = int(index.positions[behind]) if behind < len(index) else segment.size
    return entry.position, max(entry.position, stop), entry.offset if entry.position else -1


def cut_up(piece: UncutRange, target: int, extra: int = 0) -> Iterator[Range]:
    """Cut a piece into parts of about the same size, no larger than the target if the index allows."""
    whole = piece.range
    count = -(-(whole.size + extra) // target)
    index = piece.offset_index or (offset_index(piece.segment) if count > 1 else None)
    first, start, entry = whole.first_offset, whole.start, whole.entry_offset
    if count > 1 and fetched_from(piece.segment) is not None:  # it is read from any offset on
        yield from _cap_offsets(whole, max(1, -(-(whole.end_offset - first) // count)))
        return
    if count > 1 and index is not None:
        goals = whole.start + whole.size * np.arange(1, count) // count
        slots = np.unique(np.searchsorted(index.positions.astype(np.int64), goals))
        for slot in slots[slots < len(index)].tolist():
            last, position = index[slot]
            behind = last + 1
            if first < behind < whole.end_offset:
                yield whole._replace(
                    first_offset=first, end_offset=behind, start=start, end=position, entry_offset=entry
                )
                first, start, entry = behind, position, behind - 1
    yield whole._replace(first_offset=first, start=start, entry_offset=entry)


def plan_tasks(
    pieces: Sequence[UncutRange],
    target: int,
    *,
    extra: int = 0,
    max_records: int = 0,
    narrow: Callable[[Sequence[UncutRange], int], Iterable[Range]] | None = None,
) -> Iterator[Task]:
    """Cut pieces into parts of about the same size, and pack as many of them into each task as fit.

    Threads, datasets, SQL, Spark and commits of `lake` plan by this. `extra` bytes count besides those of a piece;
    `max_records` are the most offsets of a task, 0 any number. `narrow` cuts in place of `cut_up`, by a filter.
    """
    ranges = narrow(pieces, target) if narrow else (part for piece in pieces for part in cut_up(piece, target, extra))
    task: list[Range] = []
    size = offsets = 0
    for part in (part_of_range for whole in ranges for part_of_range in _cap_offsets(whole, max_records)):
        more, count = part.size + OPEN_COST_BYTES, part.end_offset - part.first_offset
        if task and (size + more > target or (max_records and offsets + count > max_records)):
            yield tuple(task)
            task, size, offsets = [], 0, 0
        task.append(part)
        size += more
        offsets += count
    if task:
        yield tuple(task)


def _cap_offsets(part: Range, max_records: int) -> Iterator[Range]:
    """Cut a range into parts of at most this many offsets; any offset will do."""
    count = max(1, -(-(part.end_offset - part.first_offset) // max_records)) if max_records else 1
    for i in range(count):
        first = part.first_offset + i * max_records
        yield part._replace(
            first_offset=first,
            end_offset=min(part.end_offset, first + max_records) if max_records else part.end_offset,
            start=part.start + part.size * i // count,
            end=part.start + part.size * (i + 1) // count,
            entry_offset=part.entry_offset if i == 0 else -1,
        )


@dataclass(frozen=True)
class PlannedSegment(Segment):
    """A segment that was there when the plan was made."""

    index: bytes | None = None  #: The entry of its offset index that a range begins at; None: the whole index is read.

    def companion(self, kind: FileKind) -> bytes | None:
        """Read a companion like `Segment.companion`; the offset index only if the plan has no entry of it."""
        return self.index if kind is FileKind.OFFSET_INDEX and self.index is not None else super().companion(kind)


class PlannedLogs:
    """The logs of some ranges; one thread reads each range once.

    With `skips`, segments that cannot be opened are no evidence of transactions, else they are errors.

    `place` returns the file system of a range's segment, and its path there. `known` are logs by folder, as they were
    listed for the plan; others are listed when transactions are asked for.
    """

    def __init__(
        self,
        isolation_level: IsolationLevel,
        place: Callable[[Range], tuple[FileSystem, str]],
        known: Mapping[str, LogFiles] | None = None,
        *,
        skips: bool = False,
    ) -> None:
        self._isolation_level, self._place, self._skips = isolation_level, place, skips
        self._known = {} if known is None else known
        self._transactions: dict[str, Transactions] = {}

    def segments(self, part: Range) -> list[Segment]:
        files, path = self._place(part)
        companions = {kind: beside(path, kind) for kind in _KINDS}
        next_base = None if part.next_offset < 0 else part.next_offset
        name = (part.topic, part.partition)
        entry = (part.entry_offset - part.base_offset, part.start)
        index = None if part.entry_offset < 0 else OFFSET_INDEX_ENTRY.struct.pack(*entry)
        is_last = next_base is None and uploaded_end(files, path) is None
        return [
            PlannedSegment(
                files, path, part.base_offset, part.end, -1, is_last, *name, companions, next_base, index=index
            )
        ]

    def transactions(self, part: Range) -> Transactions | None:
        """Return the transactions of a range's log, one object for all its ranges; None if they are not needed."""
        if self._isolation_level != "read_committed" or is_cluster(self._place(part)[0]):
            return None
        transactions = self._transactions.get(part.folder)
        if transactions is None:
            log = self._known.get(part.folder) or self.list_log(part)
            there = {} if log is None else {segment.base_offset: segment for segment in log.segments}
            # A segment that is gone still has aborted transactions in its index.
            there.setdefault(part.base_offset, self.segments(part)[0])
            segments = [there[base] for base in sorted(there)]
            snapshots = {} if log is None else log.snapshots
            transactions = Transactions(segments, snapshots, part.first_offset, ends_stable=True, skips=self._skips)
            self._transactions[part.folder] = transactions
        return transactions

    def list_log(self, part: Range) -> LogFiles | None:
        """List the log as it is now; None if the folder is missing or empty."""
        files, path = self._place(part)
        try:
            disk = open_folder(files, files.split(path)[0])
        except RequestError:
            return None
        except StorageError as error:
            if not is_missing(error):
                raise
            return None
        return logs_of(Disk((), disk.partitions))[0] if disk.partitions else None


def _no_batch(rows: BatchTable) -> npt.NDArray[np.bool_]:
    return np.zeros(len(rows), np.bool_)


class RangeReader:
    """Reads the records of one range, in windows as large as it; some chunks may be empty.

    The state's `gaps` get the gaps. Records that a broker removed since the plan was made are one, as for who reads a
    log without a plan. `lost` gets the range and each of these gaps, and may raise; then a log without any file has
    lost them too, and is no error.
    """

    def __init__(
        self, part: Range, state: ReadState, logs: PlannedLogs, lost: Callable[[Range, Gap], None] | None = None
    ) -> None:
        # A short range is one short window, so that bytes after it are not read in vain. And no more than one: between
        # windows, threads wait for Python's lock, which costs more than what a larger one loses in the caches.
        window = min(WINDOW_BYTES, part.size + SMALL_WINDOW_BYTES)
        first = window if window < WINDOW_BYTES else COPIED_WINDOW_BYTES
        on_removed = None if lost is None else functools.partial(lost, part)
        self._state = replace(state, window_bytes=window, first_window_bytes=first, on_removed=on_removed)
        self._part, self._logs = part, logs

    def __iter__(self) -> Iterator[Chunk]:
        part, state, logs = self._part, self._state, self._logs
        if part.first_offset >= part.end_offset:
            self._check_damage()
            return
        seen, transactions, before = part.first_offset, logs.transactions(part), len(state.gaps)
        reader = PartitionReader(
            logs.segments(part), part.first_offset, part.end_offset, state, transactions=transactions,
            to_end=part.end_offset == part.next_offset,
        )  # fmt: skip
        for chunk in reader:
            if len(chunk.columns):
                seen = int(chunk.columns.offset[-1]) + 1
            yield chunk
        if any(gap.kind is GapKind.REMOVED for gap in state.gaps[before:]):
            return
        if seen < part.end_offset and not any(gap.is_damage for gap in state.gaps):
            self._check_end()

    def _check_damage(self) -> None:
        """Report the damage of a log's last segment that begins at its end, like a reader of the log."""
        reading = replace(self._state.reading, isolation_level="read_uncommitted")
        state = replace(self._state, reading=reading, scratch=None, batches=_no_batch)
        segments = self._logs.segments(self._part._replace(entry_offset=-1))
        for _ in PartitionReader(segments, self._part.end_offset - 1, OPEN_END, state):
            pass

    def _check_end(self) -> None:
        """Check for a truncation by a follower, if a log had fewer records than planned."""
        part = self._part
        (segment,) = self._logs.segments(part)
        if part.next_offset >= 0 and _is_there(segment):
            return
        log = self._logs.list_log(part)
        end = 0 if log is None else end_offset(log.segments)
        if end < part.end_offset:
            self._state.note(removed_gap(segment, max(end, part.first_offset), part.end_offset))


def _is_there(segment: Segment) -> bool:
    """Check whether a segment's file still has its name."""
    try:
        segment.files.stat(segment.path)
    except StorageError as error:
        return not is_missing(error)
    return True
