"""Compaction: one cleaning of one log, which keeps the last record of each key.

Rules: KIP-58, KIP-98 (markers), KIP-534 (delete horizon). A cleaning reads the dirty section into a map of keys, then
rewrites all segments up to the end of what it read, in groups, and swaps each group in.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pylogseg.errors import RequestError
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.txnindex import AbortedTxn
from pylogseg.format.records import RecordColumns
from pylogseg.format.scratch import Scratch
from pylogseg.log.cleaner_filter import (
    CleanerStats,
    LastRecord,
    Retention,
    decode_each,
    filter_plain,
    filter_window,
    meet_transactions,
)
from pylogseg.log.cleaner_range import Cleanable, dirtiness
from pylogseg.log.cleaner_transactions import CleanedTxns
from pylogseg.log.log import Log
from pylogseg.log.offset_map import OffsetMap, PlainKeys
from pylogseg.log.plain_batches import PlainReader, steps
from pylogseg.log.reads import aborted_between
from pylogseg.log.segment import LogSegment
from pylogseg.log.segment_rewrite import Filtered, SegmentWriter, rewrite
from pylogseg.walker.windows import Window

_log = logging.getLogger(__name__)
_MAX_RELATIVE = 2**31 - 1


class Cleaner:
    """Cleans logs, one at a time, with one map of keys.

    An error of `check` ends the cleaning. `crc=False` is a broker's cleaner: it does not look, and gives what it
    changes of a bad batch a good CRC. A batch that decompresses to more than `limit_bytes` ends the cleaning, and so
    does a record of a compressed batch above ``max.decompressed.message.bytes``, as in Kafka 4.4.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        crc: bool = True,
        throttle: Callable[[int], None] = lambda size: None,
        check: Callable[[], None] = lambda: None,
        limit_bytes: int | None = None,
    ) -> None:
        self._limit = limit_bytes
        self._offsets, self._throttle, self._check, self._crc = offsets, throttle, check, crc
        self._reader = PlainReader()

    def clean(self, log: Log, what: Cleanable, stats: CleanerStats | None = None) -> tuple[int, CleanerStats]:
        """Clean a log; return where the next cleaning begins, for the checkpoint, and the counts.

        Raises CleaningAbortedError if a segment had to be split first (clean again), UncleanableError if a batch of
        magic 0 or 1 would have to stay without records, CorruptionError for a batch that cannot be read (the log stays
        as it was).
        """
        now_ms, config = log.clock.now_ms(), log.config
        start, end = what.first_dirty, dirtiness(log, what).first_uncleanable
        if end < start:
            raise RequestError(f"{log.folder}: nothing to clean from {start} on; the cleanable part ends at {end}")
        clean_part = log.segments.from_offset(0, start)
        legacy_horizon = clean_part[-1].modified_ms() - config.delete_retention_ms if clean_part else 0
        stats = CleanerStats() if stats is None else stats
        self.read_keys(log, start, end, stats)
        next_dirty = self._offsets.latest_offset + 1
        txns = CleanedTxns()
        todo = log.segments.from_offset(0, next_dirty)
        for group in group_segments(todo, config.segment_bytes, config.segment_index_bytes, end):
            self._clean_group(log, group, txns, now_ms, legacy_horizon, end, stats)
        return next_dirty, stats

    # ---- the map ----

    def read_keys(self, log: Log, start: int, end: int, stats: CleanerStats) -> None:
        """Fill the map from the dirty section, as far as it has room: the first half of a cleaning."""
        self._offsets.clear()
        self._offsets.expect(start, end)
        dirty = log.segments.from_offset(start, end)
        txns = CleanedTxns()
        txns.add(_list_aborted(log, start, end))
        scratch = Scratch()
        for i, segment in enumerate(dirty):
            if not self._read_segment_keys(log, segment, start, txns, stats, scratch):
                return
            behind = dirty[i + 1].base_offset if i + 1 < len(dirty) else end
            # Offsets may be missing at the end of a segment; the map covers them all the same.
            self._offsets.latest_offset = behind - 1

    def _read_segment_keys(
        self, log: Log, segment: LogSegment, start: int, txns: CleanedTxns, stats: CleanerStats, scratch: Scratch
    ) -> bool:
        """Put the keys of a segment into the map; return False if the map is full."""
        position = segment.offset_index.floor(start)[1]

        def put_plain(position: int) -> tuple[int, PlainKeys]:
            keys = self._offsets.put_plain(functools.partial(self._reader.call, segment), position, start)
            return keys.size, keys

        for step in steps(segment, position, put_plain, crc=self._crc, scratch=scratch):
            self._check()
            size = step.size if isinstance(step, PlainKeys) else _size_of(step)
            self._throttle(size)
            stats.map_bytes_read += size
            if isinstance(step, PlainKeys):
                stats.map_messages_read += step.records
                continue
            window, rows = step, step.batches
            skipped = meet_transactions(rows, window.buffer, window.file_position, segment.path, txns)
            control = rows.is_control & (rows.magic == 2)
            data = ~skipped & ~control
            how = self._limit, log.config.max_decompressed_message_bytes, scratch
            for part, records in decode_each(rows, data, window.buffer, window.file_position, segment.path, *how):
                count = self._offsets.put(records, start)
                full = count < len(records)
                if full:
                    part = slice(part.start, part.start + int(np.flatnonzero(data[part])[records.batch[count]]))
                self._note_latest(rows[part], start)
                stats.map_messages_read += count + int(control[part].sum())
                stats.map_messages_read += int(rows.count[part][(skipped & ~control)[part]].sum())
                if full:
                    self._note_full(records, count, start)
                    return False
        return True

    def _note_full(self, records: RecordColumns, count: int, start: int) -> None:
        """Set the end of the map where it got full, in the middle of a batch."""
        in_batch = records.batch[:count] == records.batch[count]
        put = in_batch & (records.key_size[:count] >= 0) & (records.offset[:count] >= start)
        if put.any():
            self._offsets.latest_offset = int(records.offset[np.flatnonzero(put)[-1]])

    def _note_latest(self, rows: BatchTable, start: int) -> None:
        covered = rows.last_offset[rows.last_offset >= start]
        if len(covered):
            self._offsets.latest_offset = int(covered[-1])

    # ---- writing ----

    def _clean_group(
        self,
        log: Log,
        group: Sequence[LogSegment],
        txns: CleanedTxns,
        now_ms: int,
        legacy_horizon: int,
        round_end: int,
        stats: CleanerStats,
    ) -> None:
        last_records = {
            number: LastRecord(state.batches[-1].last_offset if state.batches else -1, state.producer_epoch)
            for number, state in log.producers.active.copy().items()
        }
        following, scratch = dict(itertools.pairwise(group)), Scratch()

        def filter_segment(segment: LogSegment, writer: SegmentWriter) -> Iterator[Filtered]:
            behind = following[segment].base_offset if segment in following else segment.next_offset()
            txns.add(_list_aborted(log, segment.base_offset, behind))
            txns.keep_aborted = writer.add_aborted
            rule = Retention(
                self._offsets,
                now_ms,
                log.config.delete_retention_ms,
                segment.modified_ms() > legacy_horizon,
                last_records,
                round_end,
                self._limit,
                log.config.max_decompressed_message_bytes,
                scratch,
            )
            plain = filter_plain(self._reader, segment, rule, stats)
            for step in steps(segment, 0, plain, crc=self._crc, scratch=scratch):
                self._check()
                if isinstance(step, Window):
                    self._throttle(_size_of(step))
                    filtered = filter_window(step, segment.path, txns, rule, stats)
                else:
                    self._throttle(step.size)
                    filtered = step.filtered
                yield filtered
                self._throttle(len(filtered.data))

        rewrite(log, group, filter_segment)


def group_segments(
    segments: Sequence[LogSegment], max_bytes: int, max_index_bytes: int, first_uncleanable: int
) -> list[list[LogSegment]]:
    """Group segments so that each group fits into one segment: by size, index size and range of offsets."""
    groups: list[list[LogSegment]] = []
    sizes = [0, 0, 0]
    limits = [max_bytes, max_index_bytes, max_index_bytes]
    for i, segment in enumerate(segments):
        own = [segment.size, segment.offset_index.count * 8, segment.time_index.count * 12]
        # An exact answer costs a walk through the segment; the next one begins after it in any case.
        last = (segments[i + 1].base_offset if i + 1 < len(segments) else first_uncleanable) - 1
        fits = groups and all(size + more <= limit for size, more, limit in zip(sizes, own, limits, strict=True))
        if fits and (segment.size == 0 or last - groups[-1][0].base_offset <= _MAX_RELATIVE):
            groups[-1].append(segment)
            sizes = [size + more for size, more in zip(sizes, own, strict=True)]
        else:
            groups.append([segment])
            sizes = own
    return groups


def _size_of(window: Window) -> int:
    return int(window.batches.size.sum(dtype=np.int64))


def _list_aborted(log: Log, start: int, end: int) -> Iterator[AbortedTxn]:
    """Yield the aborted transactions from the segment of an offset on; as in Kafka, down to the start of the log."""
    segments = log.segments.from_offset(start)
    if segments and segments[0].base_offset > start:  # as in Kafka, which then finds no segment to begin with
        segments = []
    return aborted_between(segments, log.log_start_offset, end)
