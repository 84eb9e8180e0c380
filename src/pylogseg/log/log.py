"""The log of one partition: open, read, move offsets, truncate; appends are in `append`.

Decisions that are not about files (validation, producers, epochs, offsets) are in modules of their own; this one puts
them in Kafka's order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from pylogseg.config import LogConfig
from pylogseg.env.clock import Clock
from pylogseg.env.scheduler import Scheduler
from pylogseg.env.storage import Storage, check_no_link
from pylogseg.errors import OffsetOutOfRange, RequestError, StorageError
from pylogseg.files.status import PartitionMetadata, encode_partition_metadata, parse_partition_metadata
from pylogseg.format.names import FileKind
from pylogseg.log.append import AppendingLog
from pylogseg.log.appended import Appended, AppendedMany
from pylogseg.log.epochs import LeaderEpochs
from pylogseg.log.keep import Keeper
from pylogseg.log.loader import Loader
from pylogseg.log.offsets import LogOffsets, OffsetMetadata
from pylogseg.log.producer_rebuild import rebuild
from pylogseg.log.producers import Producers
from pylogseg.log.reads import Fetched, Found, Places, locate, locate_many, offset_for_time, read
from pylogseg.log.removal import DELETED, Remover
from pylogseg.log.report import LoadReport
from pylogseg.log.segment import LogSegment
from pylogseg.log.segments import Segments
from pylogseg.log.watched import WatchedScheduler

__all__ = ["Appended", "AppendedMany", "Isolation", "Log"]

Isolation = Literal["log_end", "high_watermark", "txn_committed"]
_Log = TypeVar("_Log", bound="Log")


class Log(AppendingLog):
    """A partition's log, opened by `Log.open`."""

    @classmethod
    def open(
        cls: type[_Log],
        storage: Storage,
        folder: str,
        config: LogConfig,
        clock: Clock,
        scheduler: Scheduler,
        *,
        clean: bool = False,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        producer_expiration_ms: int = 86_400_000,
        topic_id: str | None = None,
        keeper: Keeper | None = None,
        on_bytes: Callable[[int], None] | None = None,
        report: LoadReport | None = None,
        mend: Callable[[], None] | None = None,
    ) -> _Log:
        """Open a log, a new one or one that is there, and recover what needs it.

        Parameters
        ----------
        storage, clock, scheduler
            The world that the log lives in.
        folder : str
            The partition's; made if it is missing.
        config : LogConfig
            Its settings.
        clean : bool
            Whether the log was closed in order, so that nothing has to be recovered.
        log_start_offset, recovery_point : int
            From the log directory's checkpoints.
        producer_expiration_ms : int
            Idle producers are forgotten after that.
        topic_id : str, optional
            Written to `partition.metadata` where there is none.
        keeper : Keeper, optional
            Gets what a recovery cuts off or removes, before it does; see `log.keep`.
        on_bytes : callable, optional
            Gets the bytes that were recovered since its last call.
        report : LoadReport, optional
            Filled, so that it is there too if the log cannot be opened.
        mend : callable, optional
            Called when replacements of segments that were under way are finished or undone, before segments are opened:
            it may put others in their place.

        Raises
        ------
        StorageError, CorruptionError
            If the folder cannot be read, or a file without which the log cannot be is malformed.
        """
        check_no_link(folder)
        if not storage.exists(folder):
            storage.make_folder(folder)
            storage.sync_folder(storage.split(folder)[0])
        files = {entry.name: entry.size for entry in storage.list_folder(folder) if not entry.is_dir}
        if FileKind.PARTITION_METADATA.value in files:
            check_topic_id(storage, folder, topic_id)  # which may refuse the load, so before anything is cut
        segments = Segments()
        watched = WatchedScheduler(scheduler)
        epochs_path = storage.join(folder, FileKind.LEADER_EPOCHS.value)
        has_epochs = FileKind.LEADER_EPOCHS.value in files
        epochs = LeaderEpochs(storage, epochs_path, watched.schedule, is_there=has_epochs)

        def make_producers(names: Iterable[str] | None = None) -> Producers:
            return Producers(storage, folder, expiration_ms=producer_expiration_ms, names=names)

        producers = make_producers(files)
        remover = Remover(storage, watched, config.file_delete_delay_ms)
        loader = Loader(
            storage,
            folder,
            config,
            clock,
            segments,
            producers,
            epochs,
            remover,
            files=files,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            make_producers=make_producers,
            keeper=keeper,
            on_bytes=on_bytes,
            report=report,
            mend=mend,
        )
        try:
            loaded = loader.load()
        except BaseException:  # whoever keeps the error keeps no files with it: what is removed next is to give room
            for segment in segments:
                with contextlib.suppress(StorageError):
                    segment.close_handles()
            raise
        active = segments.active
        assert active is not None
        end = OffsetMetadata(loaded.next_offset, active.base_offset, active.size)
        offsets = LogOffsets(
            loaded.log_start_offset,
            loaded.recovery_point,
            end,
            producers,
            lambda offset: locate(segments, offsets, offset),
        )
        log = cls(
            storage, folder, config, clock, scheduler, segments, producers, epochs, offsets, remover, loader.report
        )
        watched.tell = log._take_offline
        log._note_topic_id(topic_id, FileKind.PARTITION_METADATA.value in files)
        offsets.set_log_start(loaded.log_start_offset)
        offsets.note_first_unstable()
        return log

    def _note_topic_id(self, topic_id: str | None, is_there: bool) -> None:
        path = self.storage.join(self.folder, FileKind.PARTITION_METADATA.value)
        if topic_id is not None and not is_there and not check_topic_id(self.storage, self.folder, topic_id):
            self.storage.write_whole(path, encode_partition_metadata(PartitionMetadata(topic_id)))

    # ---- reading ----

    def fetch(
        self, offset: int, max_bytes: int = 1 << 20, isolation: Isolation = "log_end", *, min_one: bool = True
    ) -> Fetched:
        """Batches from an offset on, as they lie in the file.

        Parameters
        ----------
        offset : int
            Of the first record wanted.
        max_bytes : int
            No more than this.
        isolation : {"log_end", "high_watermark", "txn_committed"}
            How far the reader may see.
        min_one : bool
            Whether the first batch is given whole, though it is larger than `max_bytes`.

        Raises
        ------
        OffsetOutOfRange
            For an offset below the log's start or above its end.
        """
        # What `_guarded` does, by hand: a reader of single batches calls nothing more often.
        if not self.is_usable:
            self._refuse()
        try:
            offsets = self.offsets
            if offset < offsets.log_start:
                raise self._out_of_range(offset)
            if isolation == "log_end":
                limit = offsets.end
            else:
                # As in Kafka before the end is looked at: finding its place may move the high watermark.
                with self._lock:
                    high = isolation == "high_watermark"
                    limit = offsets.located_high_watermark() if high else offsets.located_last_stable()
            if offset > offsets.end.offset:
                raise self._out_of_range(offset)
            aborted = isolation == "txn_committed"
            return read(self.segments, offsets, offset, max_bytes, limit, min_one=min_one, aborted=aborted)
        except StorageError as error:
            self._take_offline(error)
            raise

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            f"{self.folder}: offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}"
        )

    def locate_many(self, offsets: Any) -> Places:
        """Where the batches of many offsets lie, in columns: see `reads.locate_many`. High watermarks do not count."""
        return self._guarded(lambda: locate_many(self.segments, offsets))

    def offset_for_time(self, timestamp: int) -> Found | None:
        """Offset of the first record that is not older than a timestamp; specials as in `reads.offset_for_time`."""
        return self._guarded(lambda: offset_for_time(self.segments, self.offsets, self.epochs, timestamp))

    # ---- truncation ----

    def truncate_to(self, offset: int) -> bool:
        """Drop all batches that hold an offset or come behind it; whether there were any.

        The log then ends at `offset`, also if that was inside of a batch.
        """

        def work() -> bool:
            if offset < 0:
                raise RequestError(f"{self.folder}: cannot truncate to {offset}, a negative offset")
            with self._lock:
                if offset >= self.offsets.end.offset:
                    self.epochs.truncate_from_end(self.offsets.end.offset)
                    return False
                first = self.segments.first
                assert first is not None
                if first.base_offset > offset:
                    self.truncate_fully(offset)
                    return True
                # Before anything is cut, since what comes back must not lie behind what is appended next.
                gone = [segment for segment in self.segments if segment.base_offset > offset][::-1]
                for segment in gone:
                    self._remove_last(segment)
                if self.active.truncate_to(offset):
                    self.active.log.sync()
                self._set_end(offset)
                self._remover.remove_snapshots(gone, self.producers)
                self.epochs.truncate_from_end(offset)
                self.offsets.log_start = min(offset, self.offsets.log_start)
                self._rebuild_producers(offset)
                if self.offsets.high_watermark.offset >= offset:
                    self.offsets.update_high_watermark(self.offsets.end)
                return True

        return self._guarded(work)

    def truncate_fully(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the log goes on at an offset."""

        def work() -> None:
            with self._lock:
                *others, last = self.segments
                last.change_suffix(DELETED)  # it stays in its place until there is another one, for readers
                self.storage.sync_folder(self.folder)
                for segment in reversed(others):
                    self._remove_last(segment)
                self.segments.add(self._new_segment(offset))
                if last.base_offset != offset:
                    self.segments.remove(last.base_offset)
                self._remover.remove_segments([last])
                self.storage.sync_folder(self.folder)
                self._set_end(offset)
                self.epochs.clear()
                self.producers.truncate_fully(offset)
                self.offsets.log_start = offset if log_start_offset is None else log_start_offset
                self._rebuild_producers(offset)
                self.offsets.update_high_watermark(self.offsets.end)

        self._guarded(work)

    def _remove_last(self, segment: LogSegment) -> None:
        """Remove a segment behind which all are gone, on the disk too.

        So a crash in between leaves a beginning of the log, which is what the snapshots of the producers tell of.
        """
        self.segments.remove(segment.base_offset)
        self._remover.remove_segments([segment])
        self.storage.sync_folder(self.folder)

    def _set_end(self, offset: int) -> None:
        self.offsets.set_end(OffsetMetadata(offset, self.active.base_offset, self.active.size))
        self._changes += 1

    def _rebuild_producers(self, offset: int) -> None:
        rebuild(
            self.producers,
            self.segments.base_offsets,
            self.segments.read_rows,
            log_start_offset=self.offsets.log_start,
            last_offset=offset,
            now_ms=self.clock.now_ms(),
            clean=False,
        )


def check_topic_id(storage: Storage, folder: str, topic_id: str | None = None) -> bool:
    """Whether a partition's folder has a `partition.metadata`; raises if no load takes it, or it has another id."""
    path = storage.join(folder, FileKind.PARTITION_METADATA.value)
    if not storage.exists(path):
        return False
    found = parse_partition_metadata(storage.read_all(path), path).topic_id
    if topic_id is not None and found != topic_id:
        raise RequestError(f"{path}: topic id is {found}, not {topic_id}")
    return True
