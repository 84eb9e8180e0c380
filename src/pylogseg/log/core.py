"""What every operation on a log stands on: its parts, its state, the first failure of the disk, rolling, flushing.

One lock covers everything that changes the log.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from pylogseg._run import Run
from pylogseg.config import LogConfig
from pylogseg.env.clock import Clock
from pylogseg.env.scheduler import Scheduler
from pylogseg.env.storage import Data, Storage
from pylogseg.errors import ClosedError, OffsetOutOfRange, RequestError, StorageError
from pylogseg.format.batches import CODEC_NAMES
from pylogseg.log.epochs import LeaderEpochs
from pylogseg.log.offsets import LogOffsets, OffsetMetadata
from pylogseg.log.producers import Producers
from pylogseg.log.removal import Remover
from pylogseg.log.replace import replace_segments, split_segment
from pylogseg.log.report import LoadReport
from pylogseg.log.segment import LogSegment
from pylogseg.log.segments import Segments
from pylogseg.log.validation import Rules
from pylogseg.log.watched import WatchedScheduler

_Result = TypeVar("_Result")


class LogCore:
    """The parts of a log and what keeps them whole; `Log` has the operations."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        config: LogConfig,
        clock: Clock,
        scheduler: Scheduler,
        segments: Segments,
        producers: Producers,
        epochs: LeaderEpochs,
        offsets: LogOffsets,
        remover: Remover,
        report: LoadReport,
    ) -> None:
        self.storage, self.folder, self.clock, self.scheduler = storage, folder, clock, scheduler
        self.segments, self.producers, self.epochs, self.offsets = segments, producers, epochs, offsets
        self.report = report
        self._remover = remover
        self._lock = threading.RLock()
        self._offline: StorageError | None = None
        self._watched = WatchedScheduler(scheduler)
        self._watched.tell = self._take_offline
        self._closed = False
        self._last_flush_ms = clock.now_ms()
        self._changes = 0
        self._run_of: LogSegment | None = None
        self.update_config(config)

    # ---- state ----

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.offsets.log_start

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.offsets.end.offset

    @property
    def high_watermark(self) -> int:
        """Up to here a consumer may read."""
        return self.offsets.high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """Up to here a read_committed consumer may read."""
        return self.offsets.last_stable

    @property
    def recovery_point(self) -> int:
        """What lies below is on the disk."""
        return self.offsets.recovery_point

    @property
    def active(self) -> LogSegment:
        """The segment that is appended to."""
        segment = self.segments.active
        if segment is None:
            raise ClosedError(f"{self.folder}: the log has no segment")
        return segment

    @property
    def rules(self) -> Rules:
        """What is asked of appends."""
        return self._rules

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and the disk has not failed."""
        return not self._closed and self._offline is None

    def update_config(self, config: LogConfig) -> None:
        """Take new settings; they count from the next operation on."""
        self.config = config
        self._run: Run | None = None  # what single appends go on with; it knows the old settings
        self._remover.delay_ms = config.file_delete_delay_ms
        codec = config.compression_type
        levels = {
            "gzip": config.compression_gzip_level,
            "lz4": config.compression_lz4_level,
            "zstd": config.compression_zstd_level,
        }
        number = -1 if codec == "producer" else 0 if codec == "uncompressed" else CODEC_NAMES.index(codec)
        self._rules = Rules(
            config.max_message_bytes,
            number,
            config.message_timestamp_type == "LogAppendTime",
            config.compact,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
            levels.get(codec),
        )

    def _refuse(self) -> NoReturn:
        """Raise what says why the log cannot be used."""
        if self._closed:
            raise ClosedError(f"{self.folder}: the log is closed")
        failed = self._offline
        number = None if failed is None else failed.errno
        raise StorageError(self.folder, "use", f"the log is offline since {failed}", number)

    def _guarded(self, work: Callable[[], _Result]) -> _Result:
        """Run work on the disk; its first failure takes the log offline."""
        if not self.is_usable:
            self._refuse()
        try:
            return work()
        except StorageError as error:
            self._take_offline(error)
            raise

    def _take_offline(self, error: StorageError) -> None:
        if self._offline is None:
            self._offline = error

    # ---- offsets ----

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark; where it is then: not below the log's start, not above its end."""
        with self._lock:
            return self._guarded(lambda: self.offsets.update_high_watermark(OffsetMetadata(offset)))

    def increment_log_start(self, offset: int) -> bool:
        """Delete the records below an offset; whether the log's start moved."""

        def work() -> bool:
            with self._lock:
                if offset > self.offsets.high_watermark.offset:
                    raise OffsetOutOfRange(
                        f"{self.folder}: cannot start at {offset}, above the high watermark {self.high_watermark}"
                    )
                if offset <= self.offsets.log_start:
                    return False
                self.offsets.set_log_start(offset)
                self.epochs.truncate_from_start(offset)
                self.producers.on_log_start(offset)
                self.offsets.note_first_unstable()
                return True

        return self._guarded(work)

    def delete_oldest(self, breached: Callable[[LogSegment, LogSegment | None], bool]) -> int:
        """Delete segments from the oldest on, as long as they are replicated and a rule says so.

        Parameters
        ----------
        breached : callable
            Asked for each segment, with the one behind it.

        Returns
        -------
        int
            Segments that went, counted as Kafka does: an empty one that stays in place of the last is counted too.
        """

        def work() -> int:
            with self._lock:
                gone: list[LogSegment] = []
                at = self.segments.first
                while at is not None:
                    behind = self.segments.higher(at.base_offset)
                    end = self.offsets.end.offset if behind is None else behind.base_offset
                    if self.high_watermark < end or not breached(at, behind) or (behind is None and at.size == 0):
                        break
                    gone.append(at)
                    at = behind
                count = len(gone)
                if count and count == len(self.segments) and self.roll().base_offset == gone[-1].base_offset:
                    gone.pop()
                if gone:
                    first_kept = self.segments.higher(gone[-1].base_offset)
                    assert first_kept is not None
                    self.increment_log_start(first_kept.base_offset)
                    for segment in gone:
                        self.segments.remove(segment.base_offset)
                    self._remover.remove_segments(gone)
                    self._remover.remove_snapshots(gone, self.producers)
                return count

        return self._guarded(work)

    # ---- what is written ----

    def write_run(self, segment: LogSegment, records: Data, run: Run) -> None:
        """Write a run of batches that is ready, and let it take effect."""
        try:
            segment.append_run(records, run)
        except StorageError as error:
            self._take_offline(error)
            raise
        offsets, end = self.offsets, run.next_offset
        offsets.end = OffsetMetadata(end, segment.base_offset, segment.log.size)
        if offsets.high_watermark.offset >= end:
            offsets.follow_end()
        producers = self.producers
        if run.has_producers:
            producers.extend(run.known())
        producers.map_end_offset = end
        offsets.note_first_unstable()  # what the high watermark has passed since may be decided
        if end - offsets.recovery_point >= self.config.flush_messages:
            self.flush(force_active=False)

    # ---- rolling and flushing ----

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Begin a new segment at the log end offset, or at a higher one that the next record has."""

        def work() -> LogSegment:
            with self._lock:
                base = max(expected_next_offset, self.offsets.end.offset)
                segment = self._begin_segment(base)
                self.producers.map_end_offset = base
                snapshot = self.producers.take_snapshot(sync=False)
                self.offsets.follow_end()
                self._watched.schedule("flush-log", lambda: self._flush_rolled(snapshot, base))
                return segment

        return self._guarded(work)

    def _flush_rolled(self, snapshot: str | None, base: int) -> None:
        if self._closed:  # and flushed by that, or given up
            return
        if snapshot is not None:
            self.storage.sync_file(snapshot)
        with contextlib.suppress(ClosedError):
            self.flush_to(base)

    def _begin_segment(self, base: int) -> LogSegment:
        active = self.active
        if base in self.segments:
            if active.base_offset != base or active.size:
                raise RequestError(f"{self.folder}: cannot roll to {base}, where a segment with records begins")
            _ = active.offset_index.file, active.time_index.file  # Kafka looks at them here, which makes them
            self._remover.remove_segments([active])
        elif base < active.base_offset:
            raise RequestError(f"{self.folder}: cannot roll to {base}, below the active segment {active.base_offset}")
        else:
            LogSegment.remove_files(self.storage, self.folder, base)
            active.become_inactive()
            if self.offsets.recovery_point >= base:
                # What was just changed in it lies below the recovery point, so no flush and no load looks at it again.
                active.flush()
            self._changes += 1
        segment = self._new_segment(base)
        self.segments.add(segment)
        self.offsets.set_end(OffsetMetadata(self.offsets.end.offset, base, segment.size))
        return segment

    def _new_segment(self, base: int) -> LogSegment:
        preallocate = self.config.preallocate_bytes
        return LogSegment(self.storage, self.folder, base, self.config, self.clock, preallocate_bytes=preallocate)

    def replace_segments(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """Put new segments, with the suffix `.cleaned` and forced to the disk, in the place of old ones."""

        def work() -> None:
            with self._lock:
                gone = replace_segments(self.storage, self.folder, self.segments, new, old, self._remover)
                self._remover.remove_snapshots(gone, self.producers)

        self._guarded(work)

    def split_segment(self, segment: LogSegment) -> None:
        """Split a segment whose offsets do not fit its indexes."""

        def work() -> None:
            with self._lock:
                gone = split_segment(
                    self.storage, self.folder, segment, self.segments, self.config, self.clock, self._remover
                )
                self._remover.remove_snapshots(gone, self.producers)

        self._guarded(work)

    def flush(self, *, force_active: bool = True) -> None:
        """Force the log to the disk, an empty active segment too if `force_active`."""
        self._flush(self.offsets.end.offset, force_active)

    def flush_to(self, offset: int) -> None:
        """Force what lies below an offset to the disk."""
        self._flush(offset, False)

    def _flush(self, offset: int, inclusive: bool) -> None:
        def work() -> None:
            try:
                until_nothing_changes()
            except StorageError:
                if not self._closed:
                    raise
                self._refuse()  # its folder may have another name by now, which is no failure of the disk

        def until_nothing_changes() -> None:
            while True:
                changes = self._changes
                # A cut may have come before: what is appended in its place from now on will not have been flushed.
                point = self.offsets.recovery_point
                reached = min(offset, max(self.offsets.end.offset, self.active.base_offset))
                end = reached + 1 if inclusive else reached
                if end <= point:
                    return
                flushed = self.segments.from_offset(point, end)
                for segment in flushed:
                    self._flush_segment(segment)
                if any(segment.base_offset >= point for segment in flushed):
                    self.storage.sync_folder(self.folder)
                with self._lock:
                    if changes == self._changes:  # else a segment was trimmed by a roll, or the log was cut
                        self._flushed_to(reached)
                        return

        self._guarded(work)

    def _flush_segment(self, segment: LogSegment) -> None:
        with self._lock:
            if self._closed or not self.segments.holds(segment):  # it went meanwhile
                return
            _ = segment.offset_index.file, segment.time_index.file  # which makes them if need be
        try:
            segment.flush(make_indexes=False)
        except ClosedError:  # so did this one
            if self.segments.holds(segment):
                raise

    def _flushed_to(self, offset: int) -> None:
        if offset > self.offsets.recovery_point:
            self.offsets.recovery_point = offset
            self._last_flush_ms = self.clock.now_ms()

    @property
    def last_flush_ms(self) -> int:
        """When the recovery point last moved."""
        return self._last_flush_ms

    def take_snapshot(self) -> None:
        """Write the state of the producers at the end of the log."""
        with self._lock:
            self._guarded(self.producers.take_snapshot)

    # ---- ending ----

    def close(self) -> None:
        """Write the state of the producers, trim the files and let go of them."""
        with self._lock:
            self._guarded(self.producers.take_snapshot)
            for segment in self.segments:
                self._guarded(segment.close)
            self._guarded(lambda: self.storage.sync_folder(self.folder))
            self._closed = True

    def close_handles(self) -> None:
        """Let go of the files and write nothing more."""
        with self._lock:
            self._closed = True
            for segment in self.segments:
                segment.close_handles()

    def disown(self) -> None:
        """In the child of a fork: the log is the parent's, this object counts as closed."""
        self._lock = threading.RLock()  # whoever had it is not here
        self._closed = True

    def delete(self) -> None:
        """Remove the log with its folder."""

        def work() -> None:
            with self._lock:
                self.epochs.clear(flush=False)
                gone = list(self.segments)
                self.segments.clear()
                self._remover.remove_segments(gone, now=True)
                self._remover.remove_snapshots(gone, self.producers, now=True)
                self.storage.remove_folder(self.folder)
                self._closed = True

        self._guarded(work)
