"""Reading a log that this process has open: fetch slices like a consumer, and decode them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import CorruptionError, Verdict
from pylogseg.format.batches import BatchTable, scan
from pylogseg.format.files.txnindex import AbortedRanges
from pylogseg.log.log import Log
from pylogseg.log.reads import Fetched, aborted_between
from pylogseg.log.segment import LogSegment
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.partition import Chunk, PartitionReader
from pylogseg.reading.state import IsolationLevel, ReadState
from pylogseg.walker.windows import Window


def readable_end(log: Log, isolation_level: IsolationLevel) -> int:
    """Return the offset at which a reader has to stop."""
    return log.last_stable_offset if isolation_level == "read_committed" else log.high_watermark


class OpenLog:
    """An open log as a source of a `Reader`: see `pylogseg.reading.logs.LogSource`."""

    def __init__(self, log: Log, end_offset: int) -> None:
        self._log, self._end = log, end_offset

    @property
    def log_start_offset(self) -> int:
        """The log start offset now."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset at which the readable records end."""
        return min(self._log.log_end_offset, self._end)

    def offset_of_time(self, timestamp_ms: int) -> int:
        """Return the offset of the first record that is not older; the highest possible offset without one."""
        if timestamp_ms < 0:  # the log treats negative values specially
            return self.log_start_offset
        record = self._log.offset_for_time(timestamp_ms)
        return OPEN_END if record is None else record.offset

    def chunks(self, first_offset: int, end_offset: int, state: ReadState) -> Iterator[Chunk]:
        """Yield the records of a half-open range, up to `end_offset` of this object."""
        return iter(SliceReader(self._log, first_offset, min(end_offset, self._end), state))


class SliceReader(PartitionReader):
    """Fetches and decodes the records of a range of offsets, slice by slice.

    Between slices it remembers offsets, not positions, so truncation, cleaning and deletion do not matter; if the
    next records were deleted it raises `OffsetOutOfRangeError`.
    """

    def __init__(self, log: Log, first_offset: int, end_offset: int, state: ReadState) -> None:
        super().__init__([], first_offset, end_offset, state)
        self.position = first_offset
        self._log = log
        self._segment: Segment | None = None
        self._aborted = _IndexedAborts() if state.reading.isolation_level == "read_committed" else None
        if self._aborted is not None:
            self._transactions = self._aborted

    def __iter__(self) -> Iterator[Chunk]:
        size = self._state.first_window_bytes
        while self.position < self._end:
            if self._aborted is not None:  # before the slice: a cleaning drops aborts whose records it removed
                self._aborted.segments = self._log.segments.from_offset(self.position)
            fetched = self._log.fetch(self.position, size, "high_watermark")
            self._check_skipped(fetched)
            if not len(fetched.data):
                self.position = self._end
                return
            size = min(size * 2, self._state.window_bytes)
            segment = self._segment_at(fetched.start.segment)
            batches = self._scan_slice(fetched.data, fetched.start.position, segment)
            rows, _ = self._select_batches(batches, segment)
            if len(rows):
                for chunk in self._decode(segment, rows, Window(rows, fetched.data, fetched.start.position)):
                    assert chunk is not None  # damage raises
                    yield chunk
            # The log may have grown since `end_offset` was taken: batches from it on were fetched but not returned.
            self.position = min(int(batches.last_offset[-1]) + 1, self._end)

    def _check_skipped(self, fetched: Fetched) -> None:
        """Check that segments that a search for an offset skipped end below it."""
        segment = self._log.segments.floor(self.position)
        if segment is None or self.position >= self._log.high_watermark:
            return
        if len(fetched.data) and segment.base_offset == fetched.start.segment:
            return
        end = segment.offset_index.floor(self.position)[1]
        for window in segment.windows(end):
            if len(window.batches):
                end = int(window.batches.position[-1] + window.batches.size[-1])
        if end < segment.size:
            raise self._damage(segment.path, end, "no batch is readable")

    def _damage(self, path: str, position: int, reason: str) -> CorruptionError:
        remedy = "run `pylogseg verify` for details; read the rest with `pylogseg.read` and on_corrupt"
        return CorruptionError(path, position, f"{reason}; {remedy}", self.position)

    def _scan_slice(self, data: memoryview, position: int, segment: Segment) -> BatchTable:
        """Return the whole batches of a slice; its end may cut off the last."""
        batches = scan(data, file_position=position, crc=self._state.reading.check_crc).batches
        bad = np.flatnonzero(batches.verdict == Verdict.CRC_BAD)
        if len(bad) or not len(batches):
            at = int(batches.position[bad[0]]) if len(bad) else position
            raise self._damage(segment.path, at, "the checksum does not match" if len(bad) else "no batch is readable")
        return batches

    def _segment_at(self, base_offset: int) -> Segment:
        if self._segment is None or self._segment.base_offset != base_offset:
            log = self._log
            segment = log.segments.floor(base_offset)
            path = log.folder if segment is None else segment.path
            size, modified_ms = (0, 0) if segment is None else (segment.size, segment.modified_ms())
            is_last = segment is log.segments.active
            topic, partition = log.identity.topic, log.identity.partition
            self._segment = Segment(LocalFiles(), path, base_offset, size, modified_ms, is_last, topic, partition)
        return self._segment


class _IndexedAborts:
    """Aborted transactions below the last stable offset, from the transaction indexes of the log."""

    def __init__(self) -> None:
        self.segments: list[LogSegment] = []  #: From the first one on that can hold such a batch.

    def mask_committed(self, rows: BatchTable, segment: Segment) -> tuple[npt.NDArray[np.bool_], None]:
        kept = np.ones(len(rows), np.bool_)
        data = np.flatnonzero(rows.is_transactional & ~rows.is_control)
        if len(data):
            first, last = int(rows.base_offset[data[0]]), int(rows.last_offset[data[-1]])
            if len(aborted := AbortedRanges(aborted_between(self.segments, first, last + 1))):
                batches = zip(rows.producer_id[data].tolist(), rows.base_offset[data].tolist(), strict=True)
                kept[data] = [not aborted.covers(producer_id, offset) for producer_id, offset in batches]
        return kept, None
