"""The log of one partition: its state, and appending, rolling, flushing, truncating and deleting.

Decisions that are not about files (validation, producers, epochs, offsets) are in modules of their own; this one
calls them in Kafka's order.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from pylogseg._native._reads import Reads
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.positions import Data
from pylogseg.env.storage import check_no_link
from pylogseg.errors import ClosedError, OffsetOutOfRangeError, PylogsegError, StorageError
from pylogseg.format.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.files.txnindex import AbortedTxn
from pylogseg.format.names import FileKind
from pylogseg.log.append import Appender
from pylogseg.log.append_result import Appended, AppendedMany
from pylogseg.log.flushing import Flusher
from pylogseg.log.identity import LogIdentity, check_topic_id
from pylogseg.log.offsets import OffsetMetadata
from pylogseg.log.producer_state import Origin, Txn
from pylogseg.log.read_result import FileSlice, FoundOffset
from pylogseg.log.reads import Fetched, Places, fetch_batches, locate_many, offset_for_time
from pylogseg.log.recovery import Loader, LoadHooks
from pylogseg.log.retention import Breached, OldestSegments
from pylogseg.log.rolling import Roller
from pylogseg.log.segment import LogSegment
from pylogseg.log.segment_replace import replace_segments, split_segment
from pylogseg.log.state import LogState, Start
from pylogseg.log.truncation import truncate_fully, truncate_to

__all__ = ["Appended", "AppendedMany", "FetchIsolation", "Log"]

FetchIsolation = Literal["log_end", "high_watermark", "txn_committed"]
_Done = TypeVar("_Done", Appended, AppendedMany)
_Result = TypeVar("_Result")


class Log:
    """A partition's log, opened by `Log.open`."""

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
        self._reads = Reads(state.segments, state.offsets, (Fetched, OffsetMetadata, FileSlice, FoundOffset))

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
        """Open a log, new or existing, and recover it where needed; create the folder if it is missing.

        `topic_id` is written to `partition.metadata` where there is none. Raises StorageError or CorruptionError if the
        folder cannot be read, or a required file is malformed.
        """
        storage = environment.storage
        check_no_link(folder)
        if not storage.exists(folder):
            storage.make_folder(folder)
            storage.sync_folder(storage.split(folder)[0])
        files = {entry.name: entry.size for entry in storage.list_folder(folder) if not entry.is_dir}
        has_id = FileKind.PARTITION_METADATA.value in files
        if has_id:
            check_topic_id(storage, folder, topic_id)  # may refuse the load, so before anything is cut
        hooks = LoadHooks() if hooks is None else hooks
        identity = LogIdentity.of(storage, folder, topic_id)
        state = LogState(environment, identity, config, hooks.report, files, producer_expiration_ms)
        try:
            Loader(state, start, hooks, files).load()
        except BaseException:  # the error must not keep files open: removing them is to free space
            for segment in state.segments:
                with contextlib.suppress(StorageError):
                    segment.close_handles()
            raise
        state.tasks.on_error = state.take_offline
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
        """The offset up to which a consumer may read."""
        return self.offsets.high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which a read_committed consumer may read."""
        return self.offsets.last_stable

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on the disk."""
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
        """True if it is open, and the disk has not failed."""
        return self.state.is_usable

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings, from the next operation on."""
        self.state.config = config
        self.state.remover.delay_ms = config.file_delete_delay_ms
        self._appender.update_config(config)

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark within the log's start and end; return where it is then."""
        with self.state.lock:
            return self.state.guard(lambda: self.offsets.update_high_watermark(OffsetMetadata(offset)))

    # ---- appends ----

    def append_as_leader(
        self,
        data: Any,
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        in_place: bool = False,
    ) -> Appended:
        """Append one batch and assign its offsets.

        `data` is one batch of magic 2, or legacy messages; a partial batch at the end is left out.
        `transaction_version` is that of a marker. With `in_place`, writable data may be changed, which saves a copy.
        After a RequestError or CorruptionError (see `log.append_validation`, `Producers.check`) no record was written.
        """
        append = self._appender.append_as_leader
        return self._append_counted(append, data, leader_epoch, origin, transaction_version, in_place)

    def append_many(
        self,
        data: Data | Sequence[Data],
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        in_place: bool = False,
    ) -> AppendedMany:
        """Append many batches, like as many calls of `append_as_leader` but with one lock and few writes.

        Each batch is checked separately: a refused one does not stop those after it. The result has a row for each, and
        one more for each buffer that does not end with a whole batch. Raises ClosedError, or StorageError if the disk
        had failed before; all other errors are in the rows, also a failure of the disk: then none of the batches of
        that write is in the log, and it accepts no more.
        """
        append = self._appender.append_many
        return self._append_counted(append, data, leader_epoch, origin, transaction_version, in_place)

    def append_as_follower(self, data: Any, leader_epoch: int) -> Appended:
        """Append batches that keep their offsets, as a replica does."""
        return self._append_counted(self._appender.append_as_follower, data, leader_epoch)

    def _append_counted(self, append: Callable[..., _Done], *args: Any) -> _Done:
        state, metrics = self.state, self.state.metrics
        with state.lock:
            if state.is_closing:
                raise ClosedError(f"{self.folder}: the log is closed")
            active = self.segments.active
            before = 0 if active is None else active.log.size
            started = time.perf_counter()
            try:
                done = append(*args)
            except PylogsegError:
                metrics.refusals += 1
                raise
            except BaseException as error:  # Ctrl-C may come between two steps
                if self.segments.active is not active or (active is not None and active.log.size != before):
                    what = f"{type(error).__name__} interrupted an append"
                    state.failure = StorageError(self.folder, "append", what)
                raise
            finally:
                metrics.append_seconds += time.perf_counter() - started
                state.on_append()
            if isinstance(done, Appended):
                metrics.note_append(done)
            else:
                metrics.note_many(done)
            return done

    # ---- reading ----

    def fetch(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        isolation: FetchIsolation = "log_end",
        *,
        min_one: bool = True,
        placed: bool = False,
    ) -> Fetched:
        """Return batches from an offset on, as they lie in the file; `isolation` says how far the reader may see.

        With `min_one`, the first batch is returned whole even if it is larger than `max_bytes`. With `placed` nothing
        is read: the result says where the batches are. Raises OffsetOutOfRangeError below the log's start or above its
        end.
        """
        state = self.state
        state.metrics.fetches += 1
        # `LogState.guard`, inlined: a reader of single batches calls nothing more often.
        if state.is_closed or state.failure is not None:
            state.raise_unusable()
        try:
            if isolation == "log_end":
                fetched: Fetched | None = self._reads.fetch(offset, max_bytes, min_one, placed)
                if fetched is not None:
                    return fetched
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
            return fetch_batches(
                self.segments, offsets, offset, max_bytes, limit, min_one=min_one, aborted=aborted, placed=placed
            )
        except StorageError as error:
            self.state.take_offline(error)
            raise

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"{self.folder}: offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}"
        )

    def locate_many(self, offsets: Any) -> Places:
        """Return the places of the batches of many offsets; see `reads.locate_many`. Ignores the high watermark."""
        return self.state.guard(lambda: locate_many(self.segments, offsets))

    def offset_for_time(self, timestamp: int) -> FoundOffset | None:
        """Return the offset of the first record at or after a timestamp; see `reads.offset_for_time`."""
        self.state.check_usable()
        try:
            answer: FoundOffset | None = self._reads.offset_for_time(timestamp)
            if answer is not None:
                return answer
            return offset_for_time(self.segments, self.offsets, self.epochs, timestamp)
        except StorageError as error:
            self.state.take_offline(error)
            raise

    def abort_open(self) -> list[Txn]:
        """Count the open transactions as aborted, as if their markers came next; for a log that is only read.

        Returns them, the oldest first. No marker is written: `fetch` has them in its lists from now on.
        """
        state = self.state

        def work() -> list[Txn]:
            with state.lock:
                txns = self.producers.give_up_open()
                end = self.offsets.end.offset
                # Of each the last stable offset that its marker would have had: where the next one begins.
                stable = [*(txn.first_offset for txn in txns[1:]), end + len(txns)]
                for i, txn in enumerate(txns):
                    self.active.add_aborted(AbortedTxn(txn.producer_id, txn.first_offset, end + i, stable[i]))
                self.offsets.note_first_unstable()
                return txns

        return state.guard(work)

    # ---- truncation ----

    def truncate_to(self, offset: int) -> bool:
        """Drop all batches that hold an offset or come after it; return whether there were any.

        The log then ends at `offset`, also if that was inside of a batch.
        """
        return self._run_cut(lambda: truncate_to(self.state, offset))

    def truncate_fully(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the log continues at an offset."""
        start = offset if log_start_offset is None else log_start_offset
        self._run_cut(lambda: truncate_fully(self.state, offset, start))

    def _run_cut(self, work: Callable[[], _Result]) -> _Result:
        """Truncate and count it in `LogState.cuts`: a batch read before the cut cannot be appended after it."""
        state = self.state
        with state.undisturbed(), state.lock:
            state.cuts += 1
            done = state.guard(work)
            state.guard(state.on_cut)
            return done

    def increment_log_start(self, offset: int) -> bool:
        """Delete the records below an offset; return whether the log's start moved."""
        return self._oldest.increment_log_start(offset)

    def apply_retention(self) -> int:
        """Delete segments by `retention.ms`, `retention.bytes` and the log's start; return how many.

        Without ``delete`` in ``cleanup.policy`` only those below the log's start are deleted.
        """
        return self._oldest.apply_retention()

    def delete_below_start(self) -> int:
        """Delete the segments all of whose records lie below the log's start; return how many."""
        return self._oldest.delete_below_start()

    def delete_oldest(self, breached: Breached) -> int:
        """Delete segments from the oldest on, while they are replicated and `breached(segment, next)` says so.

        Returns how many. As in Kafka, it counts the last one even if an empty one takes its place.
        """
        return self._oldest.delete(breached)

    # ---- segments ----

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Begin a new segment at the log end offset, or at the higher offset of the next record."""
        return self._roller.roll(expected_next_offset)

    def replace_segments(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """Replace segments by new ones, which have the suffix `.cleaned` and are on the disk."""
        state = self.state

        def work() -> None:
            with state.lock:
                gone = replace_segments(state.storage, state.folder, state.segments, new, old, state.remover)
                state.remover.remove_snapshots(gone, state.producers)

        state.guard(work)

    def split_segment(self, segment: LogSegment) -> None:
        """Split a segment whose offsets do not fit into its indexes."""
        state = self.state

        def work() -> None:
            with state.lock:
                gone = split_segment(state, segment, state.segments, state.remover)
                state.remover.remove_snapshots(gone, state.producers)

        state.guard(work)

    # ---- flushing, and the end ----

    def flush(self, *, force_active: bool = True) -> None:
        """Flush the log to the disk, with `force_active` an empty active segment too."""
        self._flusher.flush(self.offsets.end.offset, inclusive=force_active)

    def flush_to(self, offset: int) -> None:
        """Flush everything below an offset to the disk."""
        self._flusher.flush(offset)

    def take_snapshot(self) -> None:
        """Write a producer snapshot at the end of the log."""
        with self.state.lock:
            self.state.guard(self.producers.take_snapshot)

    def expire_producers(self) -> None:
        """Forget the producers that were idle for too long."""
        with self.state.lock:
            self.producers.expire(self.clock.now_ms())

    def close(self) -> None:
        """Write a producer snapshot, trim the files and close them."""
        state = self.state
        with state.lock:
            state.guard(state.producers.take_snapshot)
            state.guard(state.epochs.flush_scheduled)
            for segment in state.segments:
                state.guard(segment.close)
            state.guard(lambda: state.storage.sync_folder(state.folder))
            state.is_closed = True

    def close_handles(self) -> None:
        """Close the files without writing anything."""
        with self.state.lock:
            self.state.is_closed = True
            for segment in self.segments:
                segment.close_handles()

    def disown(self) -> None:
        """After a fork, in the child: the log is the parent's, count this object as closed."""
        self.state.lock = threading.RLock()  # its holder is not in this process
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

        state.guard(work)
