"""A segment: a file of batches with its indexes; appending, reading, recovering and truncating.

It knows nothing about producers and leader epochs: recovery passes every window of batches to the caller.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from operator import itemgetter
from typing import Protocol

from pylogseg._native import _lookup
from pylogseg._native._run import ALONE, Run
from pylogseg.config import LogConfig
from pylogseg.env.clock import Clock
from pylogseg.env.storage import AppendFile, Data, Storage
from pylogseg.errors import RequestError, Verdict
from pylogseg.format.batches import BatchTable, OffsetArray, scan
from pylogseg.format.files.txnindex import AbortedTxn
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.log.batch_headers import BatchLocation, batch_facts, torn_offsets
from pylogseg.log.indexes import AbortedTxns, MutableOffsetIndex, MutableTimeIndex
from pylogseg.log.segment_lookup import DAMAGED, Located, end_of_segment, find_batch, opening_at, raise_cut
from pylogseg.walker.broker_windows import broker_windows, check_length, recovery_windows
from pylogseg.walker.windows import Memory, Window, no_memory

_LENGTH_BYTES = 18
INDEX_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


class OffsetOverflowError(Exception):
    """An offset of a segment is too far from the base offset for its indexes; the segment has to be split."""

    def __init__(self, segment: LogSegment, offset: int, position: int) -> None:
        super().__init__(f"{segment.path}: offset {offset} is too far from {segment.base_offset}")
        self.segment, self.offset, self.position = segment, offset, position


class SegmentOwner(Protocol):
    """The owner of segments: a log, or the folder of one that is not open."""

    @property
    def storage(self) -> Storage: ...
    @property
    def folder(self) -> str: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def clock(self) -> Clock: ...


class LogSegment:
    """One segment, opened for writing; `suffix` is ``".cleaned"``, ``".swap"`` or nothing.

    `preallocate_bytes` is for a new file (0 none), `size` is the size of an existing one, if known.
    """

    def __init__(
        self,
        owner: SegmentOwner,
        base_offset: int,
        *,
        preallocate_bytes: int = 0,
        suffix: str = "",
        size: int | None = None,
    ) -> None:
        storage, config = owner.storage, owner.config
        self._storage, self._clock = storage, owner.clock
        self.base_offset, self.suffix = base_offset, suffix
        self.index_interval_bytes = config.index_interval_bytes
        most_jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        self.roll_jitter_ms = random.randrange(2**31) % most_jitter_ms if most_jitter_ms else 0
        self._stem = storage.join(
            owner.folder, segment_file_name(base_offset, FileKind.LOG)[: -len(FileKind.LOG.value)]
        )
        self.path = self._path(FileKind.LOG)
        self.log: AppendFile = storage.open_log(self.path, preallocate_bytes=preallocate_bytes, size=size)
        limit = config.segment_index_bytes
        self.offset_index = MutableOffsetIndex(storage, self._path(FileKind.OFFSET_INDEX), base_offset, limit)
        self.time_index = MutableTimeIndex(storage, self._path(FileKind.TIME_INDEX), base_offset, limit)
        self.aborted_txns = AbortedTxns(storage, self._path(FileKind.TXN_INDEX), base_offset)
        self.created_ms = owner.clock.now_ms()
        self._is_preallocated = preallocate_bytes > 0
        self._bytes_since_entry = 0
        self._max_timestamp: tuple[int, int] | None = None
        self._first_timestamp: int | None = None

    def _path(self, kind: FileKind) -> str:
        return f"{self._stem}{kind.value}{self.suffix}"

    def __repr__(self) -> str:
        return f"LogSegment({self.path!r}, {self.size} bytes)"

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return self.log.size

    # ---- timestamps ----

    def max_timestamp_so_far(self) -> tuple[int, int]:
        """Return the greatest timestamp and the last offset of the first batch that has it; -1 without any."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last_entry()
        return self._max_timestamp

    def largest_timestamp(self) -> int:
        """Return the greatest timestamp, or the file's modification time if no record has one."""
        timestamp = self.max_timestamp_so_far()[0]
        return timestamp if timestamp >= 0 else self.modified_ms()

    def modified_ms(self) -> int:
        """Return the modification time of the log file."""
        return self.log.modified_ms()

    def set_modified_ms(self, ms: int) -> None:
        """Set the modification time of the log file."""
        self.log.set_modified_ms(ms)

    def first_timestamp(self) -> int | None:
        """Return the greatest timestamp of the first batch; None for an empty segment."""
        if self._first_timestamp is None and self.size:
            head = scan(self.log.read(0, min(self.size, 1 << 16)), crc=False, max_rows=1, any_magic=True).batches
            if not len(head):  # the first batch is larger than that
                head = next((window.batches for window in self.windows()), head)
            if len(head):
                self._first_timestamp = int(head.max_timestamp[0])
            else:
                check_length(memoryview(self.log.read(0, _LENGTH_BYTES)), self.path, 0)
        return self._first_timestamp

    # ---- growing ----

    def should_roll(self, config: LogConfig, more: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Return whether `more` bytes need a new segment: by size, age, a full index, or a too large offset."""
        size = self.log.size
        return (  # the age first, as in Kafka: nothing is appended to a segment whose first batch is unreadable
            (size > 0 and self._waited_ms(max_timestamp, now_ms) > config.max_segment_ms - self.roll_jitter_ms)
            or size > config.segment_bytes - more
            or self.offset_index.is_full
            or self.time_index.is_full
            or not self.offset_index.can_hold(last_offset)
        )

    def _waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        first = self._first_timestamp if self._first_timestamp is not None else self.first_timestamp()
        return max_timestamp - first if first is not None and first >= 0 else now_ms - self.created_ms

    def append(
        self, last_offset: int, data: memoryview | bytes | bytearray, batches: Iterable[tuple[int, int, int]]
    ) -> None:
        """Write whole batches at the end; of each: greatest timestamp, last offset and size."""
        _ = self.offset_index.file  # the first append creates the index, even without an entry
        if not self.offset_index.can_hold(last_offset):
            raise OffsetOverflowError(self, last_offset, self.size)
        position, since, greatest = self.log.size, self._bytes_since_entry, self.max_timestamp_so_far()
        entries: list[tuple[int, int, tuple[int, int]]] = []
        room, time_room, in_time_index = *self._free_entries(), self.time_index.last_entry()[0]
        for timestamp, offset, size in batches:
            if timestamp > greatest[0]:
                greatest = (timestamp, offset)
            if since > self.index_interval_bytes and min(room - len(entries), time_room) > 0:
                entries.append((offset, position, greatest))
                since = 0
                if greatest[0] > in_time_index:  # else the time index gets no entry
                    time_room, in_time_index = time_room - 1, greatest[0]
            position += size
            since += size
        if entries:  # check the entries before anything is written
            self.offset_index.check_next(entries[0][0])
            self.time_index.check_next(*entries[0][2])
        self.log.append(data)
        for offset, place, latest in entries:
            self.offset_index.append(offset, place)
            self.time_index.maybe_append(*latest)
        self._max_timestamp, self._bytes_since_entry = greatest, since

    def _free_entries(self) -> tuple[int, int]:
        """Return how many more entries each index has room for."""
        offset_index, time_index = self.offset_index, self.time_index
        return offset_index.slot_count - offset_index.count, time_index.slot_count - 1 - time_index.count

    def begin_run(self, run: Run, config: LogConfig) -> bool:
        """Continue a run at the segment's end; return False if the next batch begins this or another segment."""
        offset_index, time_index, size = self.offset_index, self.time_index, self.log.size
        if size == 0 or not offset_index.is_open or not time_index.is_open:
            return False
        if offset_index.count and offset_index.last_offset >= run.next_offset:
            return False  # it is ahead of the log, which the kernel does not handle
        first, greatest, entry = self.first_timestamp(), self.max_timestamp_so_far(), time_index.last_entry()
        if first is None or greatest[0] < entry[0] or greatest[1] < entry[1]:
            return False
        run.begin()
        run.position, run.since_entry = size, self._bytes_since_entry
        run.first_timestamp, run.created_ms, run.roll_bytes = first, self.created_ms, config.segment_bytes
        run.roll_age_ms = config.max_segment_ms - self.roll_jitter_ms
        self._set_indexes(run)
        return True

    def _set_indexes(self, run: Run) -> None:
        offset_index, time_index = self.offset_index, self.time_index
        run.base_offset, run.interval = self.base_offset, self.index_interval_bytes
        run.max_timestamp, run.max_timestamp_offset = self.max_timestamp_so_far()
        run.entry_timestamp, run.entry_timestamp_offset = time_index.last_entry()
        run.entry_offset = offset_index.last_offset if offset_index.count else self.base_offset - 1
        run.entries_left = min(self._free_entries())

    def append_run(self, data: Data, run: Run) -> None:
        """Write the batches of a run at the end."""
        self.log.append(data)
        self._bytes_since_entry = run.since_entry
        self._take_indexes(run)

    def _take_indexes(self, run: Run) -> None:
        self._max_timestamp = (run.max_timestamp, run.max_timestamp_offset)
        if run.has_entries:
            offset_entries, time_entries = run.entries()
            self.offset_index.extend(offset_entries, run.entry_offset)
            if time_entries:
                self.time_index.extend(time_entries, (run.entry_timestamp, run.entry_timestamp_offset))

    def add_aborted(self, txn: AbortedTxn) -> None:
        """Note an aborted transaction."""
        self.aborted_txns.append(txn)

    def become_inactive(self) -> None:
        """Finish the segment: write the last time index entry, trim indexes and file."""
        self.time_index.maybe_append(*self.max_timestamp_so_far(), last=True)
        self.offset_index.trim()
        self.time_index.trim()
        self.log.truncate(self.log.size)

    def resize_indexes(self, size: int) -> None:
        """Resize the indexes, to make room for entries again."""
        self.offset_index.resize(size)
        self.time_index.resize(size)

    # ---- reading ----

    def windows(self, start: int = 0, *, recovering: bool = False, memory: Memory = no_memory) -> Iterator[Window]:
        """Yield whole batches from a position on, a few megabytes at a time; see `pylogseg.walker.broker_windows`."""
        return (recovery_windows if recovering else broker_windows)(self.log, start, memory=memory)

    def place_of(self, offset: int) -> BatchLocation | None:
        """Return the batch that holds an offset, or the next one; None after the end.

        Like a broker, it reads the header after the batch that holds the offset: an impossible length there is an
        error.
        """
        batch = self.find(offset)
        return None if batch is None else BatchLocation(*batch[:3])

    def find(self, offset: int, wanted_bytes: int = 0, *, whole: bool = True) -> Located | None:
        """Find the batch of an offset as `place_of` does, with bytes; see `segment_lookup.find_batch`."""
        offset, index = min(offset, 2**63 - 1), self.offset_index
        batch = find_batch(self.log, self.path, index, self.base_offset, offset, wanted_bytes, whole=whole)
        if batch is None:
            # The end of the file, or only of what is readable?
            for _ in self.windows(self.offset_index.floor(offset)[1]):
                pass
        return batch

    def place_at(self, position: int) -> BatchLocation:
        batch = opening_at(self.log, self.path, position)
        if batch is None:
            raise RequestError(f"{self.path}: no batch begins at position {position}")
        return BatchLocation(*batch[:3])

    def next_offset(self) -> int:
        """Return the offset after the last whole batch; the base offset of an empty segment."""
        return self.end()[0]

    def end(self) -> tuple[int, int]:
        """Return offset and position after the last whole batch."""
        return end_of_segment(self.log, self.path, self.offset_index, self.base_offset, self.place_of)

    def ends_out_of_reach(self) -> bool:
        """Return whether the last offset is too far from the base offset for the indexes."""
        end = self.next_offset()
        return end > self.base_offset and not self.offset_index.can_hold(end - 1)

    def places_of(
        self, offsets: OffsetArray, positions: OffsetArray, base_offsets: OffsetArray, sizes: OffsetArray
    ) -> None:
        """Fill arrays with the results of `place_of` for many offsets; a position of -1 is after the end."""
        size, base, index = self.log.size, self.base_offset, self.offset_index
        if not self.log.copied_below:
            view = self.log.view(0, size)
            _lookup.places(*index.raw(), view, len(view), base, offsets, positions, base_offsets, sizes)
        else:
            columns = positions, base_offsets, sizes
            status = self.log.by_descriptor(_lookup.places_in_file, index, base, offsets, *columns)
            if status:
                raise_cut(self.log)
            if status is None:
                for i, offset in enumerate(offsets.tolist()):
                    place = self.place_of(offset) or BatchLocation(-1, -1, 0)
                    base_offsets[i], positions[i], sizes[i] = place
                return
        for offset in offsets[positions == DAMAGED].tolist():
            self.find(offset)  # raises

    # ---- recovering and cutting ----

    def recover(
        self,
        visit: Callable[[BatchTable, memoryview, int], None],
        before_cut: Callable[[int], None] | None = None,
    ) -> int:
        """Check every batch, rebuild the indexes, and cut the file after the last good batch; return the bytes cut off.

        `visit` gets every window of good batches (table, buffer, position of the buffer in the file), in order;
        `before_cut` the position after the last good batch, if anything follows, before it is cut off.
        """
        self.offset_index.reset()
        self.time_index.reset()
        self.aborted_txns.reset()
        self._max_timestamp = (-1, self.base_offset)
        run = self.begin_index()
        before = (self.base_offset - 1, -1)
        for window in self.windows(recovering=True):
            rows = window.batches
            bad = ((rows.verdict == Verdict.CRC_BAD) | torn_offsets(rows, before)).nonzero()[0]
            good = rows[: int(bad[0])] if len(bad) else rows
            try:
                self.index(good, run)
            finally:  # as in a broker, batches before one that the indexes refuse count
                visit(good[: int((good.position < run.position).sum())], window.buffer, window.file_position)
            if len(bad):
                break
            if len(rows):
                before = (int(rows.last_offset[-1]), int(rows.crc[-1]))
        cut = self.log.size - run.position
        if cut and before_cut is not None:
            before_cut(run.position)
        self.log.truncate(run.position)
        self.offset_index.trim()
        self.time_index.maybe_append(*self._max_timestamp, last=True)
        self.time_index.trim()
        return cut

    def begin_index(self) -> Run:
        """Return the state with which `index` makes the entries of empty indexes."""
        run = Run()
        self._set_indexes(run)
        return run

    def index(self, rows: BatchTable, run: Run) -> None:
        """Add index entries for the next batches of the file."""
        row = 0
        while row < len(rows):
            row = run.add(rows.rows, row)
            self._take_indexes(run)
            run.begin()
            if run.reason == ALONE:  # the indexes raise the error
                ((timestamp, offset, size),) = batch_facts(rows[row : row + 1])
                if not self.offset_index.can_hold(offset):
                    raise OffsetOverflowError(self, offset, run.position)
                self._max_timestamp = max(self.max_timestamp_so_far(), (timestamp, offset), key=itemgetter(0))
                if min(self._free_entries()) > 0:
                    self.offset_index.append(offset, run.position)
                    self.time_index.maybe_append(*self._max_timestamp)
                self._set_indexes(run)
                run.since_entry, run.position, row = size, run.position + size, row + 1

    def truncate_to(self, offset: int) -> int:
        """Drop the batches that hold an offset or come after it; return the bytes cut off."""
        place = self.place_of(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.aborted_txns.truncate_to(offset)
        self.resize_indexes(self.offset_index.max_bytes)
        cut = 0
        if place is not None:
            cut = self.size - place.position
            self.log.truncate(place.position, aside=True)
        if self.size == 0:
            self.created_ms = self._clock.now_ms()
        self._first_timestamp = None if self.size == 0 else self._first_timestamp
        self._bytes_since_entry = 0
        if self.max_timestamp_so_far()[0] >= 0:
            self._max_timestamp = self._read_max_timestamp()
        return cut

    def _read_max_timestamp(self) -> tuple[int, int]:
        best = self.time_index.last_entry()
        for window in self.windows(self.offset_index.floor(best[1])[1]):
            for timestamp, offset, _ in batch_facts(window.batches):
                if timestamp > best[0]:
                    best = (timestamp, offset)
        return best

    def check(self, missing: Collection[FileKind]) -> bool:
        """Return whether the indexes, some of which may be missing, are usable; if not, recover the segment."""
        if FileKind.OFFSET_INDEX in missing:
            return False
        if FileKind.TIME_INDEX in missing:
            self.time_index.resize(0)
        if FileKind.TXN_INDEX not in missing:
            self.aborted_txns.check()
        return True

    # ---- files ----

    def flush(self, *, make_indexes: bool = True) -> None:
        """Flush everything; with `make_indexes`, create indexes that no append has needed yet."""
        if make_indexes:
            _ = self.offset_index.file, self.time_index.file
        for file in (self.log, self.offset_index, self.time_index, self.aborted_txns):
            file.sync()

    def close(self) -> None:
        """Close cleanly: write the last time index entry if timestamps were used, trim and flush all files."""
        if self._max_timestamp is not None:
            with contextlib.suppress(RequestError):  # a full index stays as it is
                self.time_index.maybe_append(*self._max_timestamp, last=True)
        self.offset_index.close()
        self.time_index.close()
        self.log.truncate(self.log.size)
        if self._is_preallocated:
            self.log.sync()
        self.log.close()
        self.aborted_txns.close()

    def close_handles(self) -> None:
        """Close the files without writing anything."""
        self.offset_index.close(trim=False)
        self.time_index.close(trim=False)
        self.log.close()
        self.aborted_txns.close()

    def drop_indexes(self) -> None:
        """Remove the offset and the time index; the next load rebuilds them."""
        for index in (self.offset_index, self.time_index):
            index.close(trim=False)
            self._storage.remove(index.path)

    def change_suffix(self, suffix: str) -> None:
        """Rename all existing files: the log first, then the indexes."""
        self.suffix = suffix
        self.path = self._path(FileKind.LOG)
        self.log.rename(self.path)
        self.offset_index.rename(self._path(FileKind.OFFSET_INDEX))
        self.time_index.rename(self._path(FileKind.TIME_INDEX))
        self.aborted_txns.rename(self._path(FileKind.TXN_INDEX))

    @staticmethod
    def remove_files(storage: Storage, folder: str, base_offset: int) -> None:
        for kind in (FileKind.LOG, *INDEX_KINDS):
            storage.remove(storage.join(folder, segment_file_name(base_offset, kind)))

    def delete(self) -> None:
        """Remove all files that still exist."""
        self.close_handles()
        for path in (self.path, self.offset_index.path, self.time_index.path, self.aborted_txns.path):
            self._storage.remove(path)
