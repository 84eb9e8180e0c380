"""Ranges of segments, which tasks read: their records."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Disk, Partition, Segment, beside, open_folder, uploaded_end
from pylogseg.env.filesystem import FileSystem, LocalFiles
from pylogseg.errors import RequestError, StorageError, is_missing
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.layout import OFFSET_INDEX_ENTRY
from pylogseg.format.names import FileKind
from pylogseg.reading.logs import LogFiles, logs_of
from pylogseg.reading.partition import OPEN_END, Chunk, IsolationLevel, PartitionReader, ReadOptions, note
from pylogseg.reading.removed_segments import removed_gap
from pylogseg.reading.seek import end_offset
from pylogseg.reading.transactions import Transactions
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import COPIED_WINDOW_BYTES, SMALL_WINDOW_BYTES, WINDOW_BYTES

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


@dataclass(frozen=True)
class PlannedSegment(Segment):
    """A segment that was there when the plan was made."""

    index: bytes | None = None  #: The entry of its offset index that a range begins at; None: the whole index is read.

    def companion(self, kind: FileKind) -> bytes | None:
        """Read a companion like `Segment.companion`, but the offset index only where no entry is known."""
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
        """Return the segment of a range, in a list."""
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
        if self._isolation_level != "read_committed":
            return None
        found = self._transactions.get(part.folder)
        if found is None:
            log = self._known.get(part.folder) or self.listed(part)
            there = {} if log is None else {segment.base_offset: segment for segment in log.segments}
            # A segment that is gone still has aborted transactions in its index.
            there.setdefault(part.base_offset, self.segments(part)[0])
            segments = [there[base] for base in sorted(there)]
            snapshots = {} if log is None else log.snapshots
            found = Transactions(segments, snapshots, part.first_offset, ends_stable=True, skips=self._skips)
            self._transactions[part.folder] = found
        return found

    def listed(self, part: Range) -> LogFiles | None:
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

    The options' `gaps` get the gaps. What a broker removed since the plan was made is one, as for who reads a log
    without a plan. `lost` gets the range and each of these gaps, and may raise; then a log without any file has lost
    them too, and is no error.
    """

    def __init__(
        self, part: Range, how: ReadOptions, logs: PlannedLogs, lost: Callable[[Range, Gap], None] | None = None
    ) -> None:
        # A short range is one short window, so that bytes after it are not read in vain. And no more than one: between
        # windows, threads wait for Python's lock, which costs more than what a larger one loses in the caches.
        window = min(WINDOW_BYTES, part.size + SMALL_WINDOW_BYTES)
        first = window if window < WINDOW_BYTES else COPIED_WINDOW_BYTES
        on_removed = None if lost is None else functools.partial(lost, part)
        self._how = replace(how, window_bytes=window, first_window_bytes=first, on_removed=on_removed)
        self._part, self._logs = part, logs

    def __iter__(self) -> Iterator[Chunk]:
        part, how, logs = self._part, self._how, self._logs
        seen, transactions, before = part.first_offset, logs.transactions(part), len(how.gaps)
        for chunk in PartitionReader(
            logs.segments(part), part.first_offset, part.end_offset, how, transactions=transactions
        ):
            if len(chunk.columns):
                seen = int(chunk.columns.offset[-1]) + 1
            yield chunk
        if any(gap.kind is GapKind.REMOVED for gap in how.gaps[before:]):
            return
        is_last_of_segment = part.end_offset == part.next_offset or part.first_offset >= part.end_offset
        if is_last_of_segment and how.on_corrupt != "skip":
            self._check_tail()
        if seen < part.end_offset and not any(gap.is_damage for gap in how.gaps):
            self._check_end()

    def _check_tail(self) -> None:
        """Check for damage between the last offset of a segment and the end of its file, like a reader of the log."""
        how = replace(
            self._how, isolation_level="read_uncommitted", on_corrupt="skip", gaps=[], scratch=None, batches=_no_batch
        )
        # From the last offset on: a batch with a wrong offset counts as before the next segment's first one.
        segments = self._logs.segments(self._part._replace(entry_offset=-1))
        for _ in PartitionReader(segments, self._part.end_offset - 1, OPEN_END, how):
            pass
        for gap in how.gaps:
            if gap.is_damage and self._how.on_corrupt == "raise":
                raise gap.as_error()
        self._how.gaps += how.gaps

    def _check_end(self) -> None:
        """Check for a truncation by a follower, if a log had fewer records than planned."""
        part = self._part
        (segment,) = self._logs.segments(part)
        if part.next_offset >= 0 and _is_there(segment):
            return
        log = self._logs.listed(part)
        end = 0 if log is None else end_offset(log.segments)
        if end < part.end_offset:
            note(removed_gap(segment, max(end, part.first_offset), part.end_offset), self._how)


def _is_there(segment: Segment) -> bool:
    """Check whether a segment's file still has its name."""
    try:
        segment.files.stat(segment.path)
    except StorageError as error:
        return not is_missing(error)
    return True
