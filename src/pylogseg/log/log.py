"""The log of one partition, composed: a state, and what appends to it, rolls, flushes, cuts and deletes.

Decisions that are not about files (validation, producers, epochs, offsets) are in modules of their own; these put
them in Kafka's order.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any, Literal

from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.positions import Data
from pylogseg.env.storage import check_no_link
from pylogseg.errors import OffsetOutOfRangeError, StorageError
from pylogseg.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.names import FileKind
from pylogseg.log.append import Appender
from pylogseg.log.append_result import Appended, AppendedMany
from pylogseg.log.flushing import Flusher
from pylogseg.log.identity import LogIdentity, check_topic_id
from pylogseg.log.offsets import OffsetMetadata
from pylogseg.log.producer_state import Origin
from pylogseg.log.reads import Fetched, Found, Places, locate_many, offset_for_time, read
from pylogseg.log.recovery import Loader, LoadHooks
from pylogseg.log.retention import Breached, OldestSegments
from pylogseg.log.rolling import Roller
from pylogseg.log.segment import LogSegment
from pylogseg.log.segment_replace import replace_segments, split_segment
from pylogseg.log.state import LogState, Start
from pylogseg.log.truncation import truncate_fully, truncate_to

__all__ = ["Appended", "AppendedMany", "FetchIsolation", "Log"]

FetchIsolation = Literal["log_end", "high_watermark", "txn_committed"]


class Log:
    """A partition's log, opened by `Log.open`.

    Attributes
    ----------
    state : LogState
        What the log consists of.
    storage, clock, scheduler
        Its environment.
    identity : LogIdentity
    folder : str
    segments : Segments
    offsets : LogOffsets
    producers : Producers
    epochs : LeaderEpochs
    report : LoadReport
        What opening found and did.
    """

    def __init__(self, state: LogState) -> None:
        self.state = state
        self.storage, self.clock, self.scheduler = state.environment
        self.identity, self.folder = state.identity, state.folder
        self.segments, self.offsets = state.segments, state.offsets
        self.producers, self.epochs = state.producers, state.epochs
        self.report = state.report
        self._flusher = Flusher(state)
        self._roller = Roller(state, self._flusher)
        self._appender = Appender(state, self._roller, self._flusher)
        self._oldest = OldestSegments(state, self._roller)

    @classmethod
    def open(
        cls,
        environment: Environment,
        folder: str,
        config: LogConfig,
        start: Start = Start(),  # noqa: B008  (it cannot be changed)
        *,
        topic_id: str | None = None,
        producer_expiration_ms: int = 86_400_000,
        hooks: LoadHooks | None = None,
    ) -> Log:
        """Open a log, a new one or one that is there, and recover what needs it.

        Parameters
        ----------
        environment : Environment
            Storage, clock and scheduler to use.
        folder : str
            The partition's; made if it is missing.
        config : LogConfig
            Its settings.
        start : Start
            Whether it was closed in order, and where it is by the log directory's checkpoints.
        topic_id : str, optional
            Written to `partition.metadata` where there is none.
        producer_expiration_ms : int
            Idle producers are forgotten after that.
        hooks : LoadHooks, optional
            Who is told of the load, and when.

        Raises
        ------
        StorageError, CorruptionError
            If the folder cannot be read, or a file without which the log cannot be is malformed.
        """
        storage = environment.storage
        check_no_link(folder)
        if not storage.exists(folder):
            storage.make_folder(folder)
            storage.sync_folder(storage.split(folder)[0])
        files = {entry.name: entry.size for entry in storage.list_folder(folder) if not entry.is_dir}
        has_id = FileKind.PARTITION_METADATA.value in files
        if has_id:
            check_topic_id(storage, folder, topic_id)  # which may refuse the load, so before anything is cut
        hooks = LoadHooks() if hooks is None else hooks
        identity = LogIdentity.of(storage, folder, topic_id)
        state = LogState(environment, identity, config, hooks.report, files, producer_expiration_ms)
        try:
            Loader(state, start, hooks, files).load()
        except BaseException:  # whoever keeps the error keeps no files with it: what is removed next is to give room
            for segment in state.segments:
                with contextlib.suppress(StorageError):
                    segment.close_handles()
            raise
        state.tasks.tell = state.take_offline
        log = cls(state)
        if not has_id:
            log._note_topic_id(topic_id)
        return log

    def _note_topic_id(self, topic_id: str | None) -> None:
        if topic_id is not None and not check_topic_id(self.storage, self.folder, topic_id):
            path = self.storage.join(self.folder, FileKind.PARTITION_METADATA.value)
            self.storage.write_whole(path, encode_partition_metadata(PartitionMetadata(topic_id)))

    # ---- state ----

    @property
    def config(self) -> LogConfig:
        """The settings."""
        return self.state.config

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
    def last_flush_ms(self) -> int:
        """When the recovery point last moved."""
        return self._flusher.last_flush_ms

    @property
    def active(self) -> LogSegment:
        """The segment that is appended to."""
        return self.state.active

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and the disk has not failed."""
        return self.state.is_usable

    def update_config(self, config: LogConfig) -> None:
        """Take new settings; they count from the next operation on."""
        self.state.config = config
        self.state.remover.delay_ms = config.file_delete_delay_ms
        self._appender.update_config(config)

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark; where it is then: not below the log's start, not above its end."""
        with self.state.lock:
            return self.state.guarded(lambda: self.offsets.update_high_watermark(OffsetMetadata(offset)))

    # ---- appends ----

    def append_as_leader(
        self,
        data: Any,
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        target_magic: int = 2,
        in_place: bool = False,
    ) -> Appended:
        """Append one batch, which gets its offsets here.

        Parameters
        ----------
        data : buffer
            One batch of magic 2, or legacy messages. A partial batch at the end is left out.
        leader_epoch : int
            That the batch gets.
        origin : Origin
            Who appends.
        transaction_version : int
            Of a marker.
        target_magic : int
            Format to store; brokers since Kafka 4 store 2 only.
        in_place : bool
            Whether `data` may be changed, if it can be; it saves a copy.

        Raises
        ------
        RequestError, CorruptionError
            As `log.append_validation` and `Producers.check` judge; no record was written.
        ClosedError, StorageError
            The log is closed; the disk failed.
        """
        return self._appender.append_as_leader(data, leader_epoch, origin, transaction_version, target_magic, in_place)

    def append_many(
        self,
        data: Data | Sequence[Data],
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        in_place: bool = False,
    ) -> AppendedMany:
        """Append many batches: what as many calls of `append_as_leader` would do, with one lock and few writes.

        Parameters
        ----------
        data : buffer or sequence of buffers
            Any number of batches in each. Every batch is judged alone: one that is refused does not keep those behind
            it from being written.
        leader_epoch : int
            That the batches get.
        origin : Origin
            Who appends.
        transaction_version : int
            Of markers of transactions.
        in_place : bool
            Whether writable buffers may be changed; it saves a copy.

        Returns
        -------
        AppendedMany
            A row for each batch, with the error of those that were refused; one more row for each buffer that does not
            end with a whole batch.

        Raises
        ------
        ClosedError, StorageError
            If the log is closed, or the disk had failed before. Whatever else goes wrong is told in the rows, a failure
            of the disk too: then none of the batches that were to be written at once is in the log, and it takes no
            more.
        """
        return self._appender.append_many(data, leader_epoch, origin, transaction_version, in_place)

    def append_as_follower(self, data: Any, leader_epoch: int) -> Appended:
        """Append batches that have their offsets, as a replica does."""
        return self._appender.append_as_follower(data, leader_epoch)

    # ---- reading ----

    def fetch(
        self, offset: int, max_bytes: int = 1 << 20, isolation: FetchIsolation = "log_end", *, min_one: bool = True
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
        OffsetOutOfRangeError
            For an offset below the log's start or above its end.
        """
        # What `LogState.guarded` does, by hand: a reader of single batches calls nothing more often.
        self.state.check_usable()
        try:
            offsets = self.offsets
            if offset < offsets.log_start:
                raise self._out_of_range(offset)
            if isolation == "log_end":
                limit = offsets.end
            else:
                # As in Kafka before the end is looked at: finding its place may move the high watermark.
                with self.state.lock:
                    high = isolation == "high_watermark"
                    limit = offsets.located_high_watermark() if high else offsets.located_last_stable()
            if offset > offsets.end.offset:
                raise self._out_of_range(offset)
            aborted = isolation == "txn_committed"
            return read(self.segments, offsets, offset, max_bytes, limit, min_one=min_one, aborted=aborted)
        except StorageError as error:
            self.state.take_offline(error)
            raise

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"{self.folder}: offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}"
        )

    def locate_many(self, offsets: Any) -> Places:
        """Where the batches of many offsets lie, in columns: see `reads.locate_many`. High watermarks do not count."""
        return self.state.guarded(lambda: locate_many(self.segments, offsets))

    def offset_for_time(self, timestamp: int) -> Found | None:
        """Offset of the first record that is not older than a timestamp; specials as in `reads.offset_for_time`."""
        return self.state.guarded(lambda: offset_for_time(self.segments, self.offsets, self.epochs, timestamp))

    # ---- truncation ----

    def truncate_to(self, offset: int) -> bool:
        """Drop all batches that hold an offset or come behind it; whether there were any.

        The log then ends at `offset`, also if that was inside of a batch.
        """
        return self.state.guarded(lambda: truncate_to(self.state, offset))

    def truncate_fully(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the log goes on at an offset."""
        start = offset if log_start_offset is None else log_start_offset
        self.state.guarded(lambda: truncate_fully(self.state, offset, start))

    def increment_log_start(self, offset: int) -> bool:
        """Delete the records below an offset; whether the log's start moved."""
        return self._oldest.increment_log_start(offset)

    def apply_retention(self) -> int:
        """Delete the segments that `retention.ms`, `retention.bytes` and the log's start let go; how many.

        Without ``delete`` in ``cleanup.policy`` only those go that lie below the log's start.
        """
        return self._oldest.apply_retention()

    def delete_below_start(self) -> int:
        """Delete the segments all of whose records lie below the log's start; how many."""
        return self._oldest.delete_below_start()

    def delete_oldest(self, breached: Breached) -> int:
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
        return self._oldest.delete(breached)

    # ---- segments ----

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Begin a new segment at the log end offset, or at a higher one that the next record has."""
        return self._roller.roll(expected_next_offset)

    def replace_segments(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """Put new segments, with the suffix `.cleaned` and forced to the disk, in the place of old ones."""
        state = self.state

        def work() -> None:
            with state.lock:
                gone = replace_segments(state.storage, state.folder, state.segments, new, old, state.remover)
                state.remover.remove_snapshots(gone, state.producers)

        state.guarded(work)

    def split_segment(self, segment: LogSegment) -> None:
        """Split a segment whose offsets do not fit its indexes."""
        state = self.state

        def work() -> None:
            with state.lock:
                gone = split_segment(
                    state.storage, state.folder, segment, state.segments, state.config, state.clock, state.remover
                )
                state.remover.remove_snapshots(gone, state.producers)

        state.guarded(work)

    # ---- flushing, and the end ----

    def flush(self, *, force_active: bool = True) -> None:
        """Force the log to the disk, an empty active segment too if `force_active`."""
        self._flusher.flush(self.offsets.end.offset, inclusive=force_active)

    def flush_to(self, offset: int) -> None:
        """Force what lies below an offset to the disk."""
        self._flusher.flush(offset)

    def take_snapshot(self) -> None:
        """Write the state of the producers at the end of the log."""
        with self.state.lock:
            self.state.guarded(self.producers.take_snapshot)

    def expire_producers(self) -> None:
        """Forget the producers that were idle for too long."""
        with self.state.lock:
            self.producers.expire(self.clock.now_ms())

    def close(self) -> None:
        """Write the state of the producers, trim the files and let go of them."""
        state = self.state
        with state.lock:
            state.guarded(state.producers.take_snapshot)
            for segment in state.segments:
                state.guarded(segment.close)
            state.guarded(lambda: state.storage.sync_folder(state.folder))
            state.is_closed = True

    def close_handles(self) -> None:
        """Let go of the files and write nothing more."""
        with self.state.lock:
            self.state.is_closed = True
            for segment in self.segments:
                segment.close_handles()

    def disown(self) -> None:
        """In the child of a fork: the log is the parent's, this object counts as closed."""
        self.state.lock = threading.RLock()  # whoever had it is not here
        self.state.is_closing = self.state.is_closed = True

    def delete(self) -> None:
        """Remove the log with its folder."""
        state = self.state

        def work() -> None:
            with state.lock:
                state.epochs.clear(flush=False)
                gone = list(state.segments)
                state.segments.clear()
                state.remover.remove_segments(gone, now=True)
                state.remover.remove_snapshots(gone, state.producers, now=True)
                state.storage.remove_folder(state.folder)
                state.is_closed = True

        state.guarded(work)
