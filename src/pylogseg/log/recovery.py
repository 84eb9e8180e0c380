"""Loading a log from its folder: cleaning up after a crash, and recovering segments that cannot be trusted.

The passes are those of `docs/durability.md`, "Recovery", in their order.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from pylogseg._native import _append
from pylogseg.env.storage import AppendFile, Storage
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.escape import printable
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.files.index import OffsetIndex, wide_head_bytes
from pylogseg.format.files.txnindex import AbortedTxn
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.log.indexes import InvalidOffsetError
from pylogseg.log.offsets import OffsetMetadata
from pylogseg.log.producer_rebuild import rebuild_producers
from pylogseg.log.producers import Producers
from pylogseg.log.recovery_keep import Keeper
from pylogseg.log.recovery_loss import of_tail
from pylogseg.log.recovery_report import Action, ActionKind, LoadReport
from pylogseg.log.segment import INDEX_KINDS, LogSegment, OffsetOverflowError
from pylogseg.log.segment_removal import DELETED
from pylogseg.log.segment_replace import CLEANED, SWAP, split_segment
from pylogseg.log.state import LogState, Start
from pylogseg.walker.windows import next_offset_of

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_SNAPSHOT = FileKind.PRODUCER_SNAPSHOT.value
_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")


class UnreachedError(CorruptionError):
    """A broker would end the log before batches that are there, because an index leads behind them."""


@dataclass
class LoadHooks:
    """Callbacks for the caller that opens a log."""

    keeper: Keeper | None = None  #: Copies what recovery cuts off or removes, before it does; see `log.recovery_keep`.
    on_bytes: Callable[[int], None] | None = None  #: Called with the bytes recovered since its last call.
    #: Called when swaps are completed or undone, before segments are opened: may replace segments.
    repair: Callable[[], None] | None = None
    #: Filled during the load, so the caller has it even if the log cannot be opened.
    report: LoadReport = field(default_factory=LoadReport)
    #: True if to raise CorruptionError, where a broker would end the log before batches that it does not reach.
    stops_at_unreached: bool = False


class Loader:
    """One load of a log into a new state; `files` has the names and sizes in the folder, if it was listed."""

    def __init__(self, state: LogState, start: Start, hooks: LoadHooks, files: Mapping[str, int] | None = None) -> None:
        self._state, self._keeper = state, hooks.keeper
        self._on_bytes, self._repair = hooks.on_bytes, hooks.repair
        self._stops_at_unreached = hooks.stops_at_unreached
        self._storage, self._folder, self._config, self._clock = state.storage, state.folder, state.config, state.clock
        self._segments, self._producers, self._epochs = state.segments, state.producers, state.epochs
        self._remover = state.remover
        self._clean, self._log_start, self._recovery_point = start[:3]
        self._indexes = _IndexChanges(state.storage)
        self._snapshots_before: list[str] = []
        self._known = files  # names and sizes in the folder, until the first change
        self._snapshots: set[str] | None = None  # as the last recovery of a segment left them
        self.report = state.report
        self._read: dict[LogSegment, int] = {}  # position up to which it was read without finding producers

    def load(self) -> None:
        """Run all passes.

        Raises CorruptionError, before anything is changed, for an offset index of a Kafka that is yet to come.
        """
        self._refuse_wide_indexes()
        epochs = self._epochs.entries
        self._complete_swap(self._remove_temporary_files())
        if self._repair is not None:
            self._known = None
            self._repair()
        self._splitting(self._open_segments)
        if self._folder.endswith("-delete"):
            if not len(self._segments):
                self._segments.add(self._state.new_segment(0))
            next_offset = recovery_point = 0
        else:
            next_offset, recovery_point = self._splitting(self._recover_log)
            active = self._segments.active
            assert active is not None
            active.resize_indexes(self._config.segment_index_bytes)
        self._epochs.truncate_from_end(next_offset)
        first, active = self._segments.first, self._segments.active
        assert first is not None
        assert active is not None
        log_start = max(self._log_start, first.base_offset)
        self._epochs.truncate_from_start(self._log_start)
        if self._known is None:  # the list lacks those that recovery created
            self._producers.snapshots.reload()
        self._producers.snapshots.remove_stray(self._segments.base_offsets)
        self._rebuild(self._producers, log_start, next_offset, self._clean)
        self._report_other_changes(epochs)
        end = OffsetMetadata(next_offset, active.base_offset, active.size)
        self._state.offsets.begin(log_start, max(recovery_point, log_start), end)
        self._state.offsets.note_first_unstable()

    def _report_other_changes(self, epochs: list[EpochEntry]) -> None:
        for path, reason in self._indexes.changes():
            self.report.add(Action(ActionKind.INDEX, path, reason))
        said = {action.path for action in self.report.actions}
        gone = {path.rpartition(".")[0] for path in said if path.endswith(FileKind.LOG.value)}
        for path in sorted(map(self._path, set(self._snapshots_before) - self._producers.snapshots.names)):
            if path not in said and path.rpartition(".")[0] not in gone:
                self.report.add(Action(ActionKind.SNAPSHOT, path, "recovery does not need it"))
        after = self._epochs.entries
        changed = [f"{tuple(e)} removed" for e in epochs if e not in after]
        changed += [f"{tuple(e)} added from the log" for e in after if e not in epochs]
        if changed:
            reason = f"(epoch, first offset): {', '.join(changed)}"
            self.report.add(Action(ActionKind.EPOCHS, self._epochs.path, reason))

    def _files(self) -> list[str]:
        if self._known is not None:
            return list(self._known)
        return [entry.name for entry in self._storage.list_folder(self._folder) if not entry.is_dir]

    def _path(self, name: str) -> str:
        return self._storage.join(self._folder, name)

    def _remove(self, name: str, kind: ActionKind, why: str) -> None:
        self._known = None
        action = Action(kind, self._path(name), why)
        if kind is ActionKind.REPLACED and name.endswith(".log"):
            file = self._storage.open_log(action.path)
            self._add(action, file)
            file.close()
        else:
            self.report.add(action)
        self._storage.remove(action.path)

    def _add(self, action: Action, file: AppendFile | None = None) -> None:
        """Copy the bytes of `file` that an action removes, then report the action before it is done."""
        if self._keeper is not None and file is not None and file.size:
            action = replace(action, kept=self._keeper.keep(action, file))
        self.report.add(action)

    def _add_whole(self, kind: ActionKind, segment: LogSegment, why: str) -> None:
        """Report an action on all bytes of a segment, after copying them."""
        base = segment.base_offset
        end = next_offset_of(segment.log, base)
        offsets = (base, end) if end > base else (None, None)
        self._add(Action(kind, segment.path, why, segment.size > 0, 0, segment.size, *offsets), segment.log)

    def _refuse_wide_indexes(self) -> None:
        """Refuse offset indexes of KIP-1333: to rebuild them would take the log from the Kafka that wrote them."""
        for name in self._files():
            if not name.endswith(FileKind.OFFSET_INDEX.value):
                continue
            path = self._path(name)
            size = (self._known or {}).get(name) or self._storage.stat(path).size
            if head := wide_head_bytes(size):
                file = self._storage.open_index(path)
                try:
                    OffsetIndex(file.read(0, head), _offset_of(name), path).refuse_wide()
                finally:
                    file.close()

    # ---- unfinished operations ----

    def _remove_temporary_files(self) -> list[str]:
        """Pass 1: remove files of unfinished deletions and writes; return the complete `.swap` files."""
        swaps, cleaned = [], []
        for name in self._files():
            if name.endswith(DELETED) and not name.endswith(".checkpoint.deleted"):
                self._remove(name, ActionKind.LEFTOVER, "its deletion was unfinished")
            elif name.endswith(CLEANED):
                cleaned.append(name)
            elif name.endswith(SWAP):
                swaps.append(name)
        lowest = min((_offset_of(name) for name in cleaned), default=2**63)
        for name in [*(s for s in swaps if _offset_of(s) >= lowest), *cleaned]:
            self._remove(name, ActionKind.LEFTOVER, "it was being written when the process stopped")
        return [name for name in swaps if _offset_of(name) < lowest]

    def _complete_swap(self, swaps: list[str]) -> None:
        """Pass 2: remove segments that `.swap` files replace, and rename the `.swap` files."""
        if not swaps:
            return
        self._known = None
        low, high = 2**63, -1
        for name in swaps:
            if name.endswith(".log" + SWAP):
                base = _offset_of(name)
                segment = LogSegment(self._state, base, suffix=SWAP)
                low, high = min(low, base), max(high, segment.next_offset())
                segment.close_handles()
        for name in self._files():
            if not name.endswith(SWAP) and low <= _offset_of(name) < high:
                self._remove(name, ActionKind.REPLACED, "a segment that was swapped in replaces it")
        for name in self._files():
            if name.endswith(SWAP):
                self._add(Action(ActionKind.SWAPPED, self._path(name), "a replacement of segments was completed"))
                self._storage.rename(self._path(name), self._path(name[: -len(SWAP)]))

    def _splitting(self, step: Callable[[], _Result]) -> _Result:
        """Run a step; if offsets of a segment are too large for its indexes, split it and repeat the step."""
        while True:
            try:
                return step()
            except OffsetOverflowError as overflow:
                self._known = self._snapshots = None
                offset, segment, base = overflow.offset, overflow.segment, overflow.segment.base_offset
                if not segment.ends_out_of_reach():  # a broker does not start then
                    reason = f"offset {offset} is below {base}, the base offset of the segment"
                    if offset >= base:
                        reason = (
                            f"offset {offset}, not the last one, is too far from the base offset {base} for the indexes"
                        )
                    raise CorruptionError(segment.path, overflow.position, reason) from None
                reason = f"offset {offset} is too far from the base offset {base} for the indexes"
                self._add(Action(ActionKind.SPLIT, segment.path, reason))
                gone = split_segment(self._state, segment, self._segments, self._remover)
                self._remover.remove_snapshots(gone, self._producers)

    # ---- segments ----

    def _open_segments(self) -> None:
        """Pass 3: open every segment; remove indexes without a log, and recover segments without usable indexes."""
        for segment in self._segments:
            segment.close()
        self._segments.clear()
        names = set(self._files())
        self._snapshots_before = self._snapshots_before or [n for n in names if n.endswith(_SNAPSHOT)]
        for name in sorted(names):
            if name.endswith(_INDEX_SUFFIXES):
                if segment_file_name(_offset_of(name), FileKind.LOG) not in names:
                    self._remove(name, ActionKind.ORPHAN, "an index without its log")
            elif name.endswith(".log"):
                base = _offset_of(name)
                stem = segment_file_name(base, FileKind.LOG)[: -len(FileKind.LOG.value)]
                missing = [kind for kind in INDEX_KINDS if stem + kind.value not in names]
                # Without a size it is opened at once: a folder is reported before indexes are created for it.
                size = (self._known or {}).get(stem + FileKind.LOG.value) or None
                segment = LogSegment(self._state, base, size=size)
                for kind in missing:
                    if kind in _INDEXES:
                        self._indexes.note_missing(self._path(stem + kind.value))
                try:
                    usable = segment.check(missing)
                    why = "its offset index is missing"
                except CorruptionError as error:
                    usable, why = False, str(error)
                if not usable:
                    if self._clean or base < self._recovery_point:
                        _log.error("%s; recovering the segment", printable(f"{segment.path}: {why}"))
                    self._recover_early(segment, why)
                self._segments.add(segment)

    def _recover_early(self, segment: LogSegment, why: str) -> None:
        """Recover a segment although earlier segments are not checked yet, and may hold torn batches."""
        try:
            self._recover(segment, why)
        except (RequestError, CorruptionError) as error:
            if self._clean or segment.base_offset < self._recovery_point:
                raise
            _log.info("%s: %s; left to pass 4, after the segments before it", segment.path, error)

    def _recover(self, segment: LogSegment, why: str) -> int:
        """Recover a segment, with the producers as they were at its beginning; return the bytes cut off.

        After an unclean shutdown, a broker recovers a segment without indexes twice. The second time can only change
        the state of producers, so it is skipped here if the segment has none.
        """
        # The folder is listed for the first segment only: each of very many would list the files of all.
        producers = self._state.new_producers(self._snapshots)
        self._known = self._snapshots = None
        self._rebuild(producers, self._log_start, segment.base_offset, False)
        if segment in self._read:
            producers.map_end_offset = max(self._read[segment], producers.map_end_offset)
            producers.take_snapshot()
            self._snapshots = producers.snapshots.names
            return 0
        self._indexes.before(segment)
        next_offset = segment.base_offset
        batches_of_producers = 0

        def visit(rows: BatchTable, view: Any, start: int) -> None:
            nonlocal next_offset, batches_of_producers
            if len(rows):
                next_offset = int(rows.last_offset[-1]) + 1
                if self._on_bytes is not None:
                    self._on_bytes(int(rows.position[-1] + rows.size[-1] - rows.position[0]))
            current = rows[rows.magic >= 2]
            if not len(current):
                return
            self._assign_epochs(current)
            for batch in _append.batches_of(current.rows, True):
                batches_of_producers += 1
                ended = producers.replay_one(batch, view, start)
                if ended is not None and ended[0].aborted:
                    txn, stable = ended
                    segment.add_aborted(AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, stable))
            producers.map_end_offset = int(current.last_offset[-1]) + 1

        size = segment.size
        try:
            cut = segment.recover(visit, lambda position: self._add_cut(segment, position, next_offset))
        except StorageError as error:
            if error.errno == errno.ENOSPC:  # a partial index at full size: on tmpfs, even reading it takes space
                segment.drop_indexes()
            segment.close_handles()
            raise
        if not batches_of_producers:
            self._read[segment] = producers.map_end_offset
        producers.take_snapshot()
        self._snapshots = producers.snapshots.names
        self.report.recovered_segments += 1
        self.report.recovered_bytes += size
        self._indexes.after(segment)
        _log.info("recovered %s (%s), %d bytes cut off", segment.path, why, cut)
        return cut

    def _add_cut(self, segment: LogSegment, position: int, next_offset: int) -> None:
        higher = segment_file_name(segment.base_offset, FileKind.LOG)
        is_last = not any(name.endswith(".log") and name > higher for name in self._files())
        loss = of_tail(segment.log, position, next_offset, is_last=is_last)
        lost = (None, None) if loss.is_zeros else (next_offset, loss.next_offset)
        action = Action(ActionKind.CUT, segment.path, loss.reason, loss.is_damage, position, segment.size, *lost)
        self._add(action, None if loss.is_zeros else segment.log)

    def _assign_epochs(self, rows: BatchTable) -> None:
        """Note the leader epochs that begin in batches of magic 2."""
        epochs = rows.leader_epoch
        while len(later := (epochs > max(self._epochs.latest_epoch, -1)).nonzero()[0]):
            first = int(later[0])
            self._epochs.assign(int(epochs[first]), int(rows.base_offset[first]))

    def _rebuild(self, producers: Producers, log_start: int, last_offset: int, clean: bool) -> None:
        rebuild_producers(
            producers,
            self._segments.base_offsets,
            self._segments.read_rows,
            log_start_offset=log_start,
            last_offset=last_offset,
            now_ms=self._clock.now_ms(),
            clean=clean,
        )
        for error in producers.snapshots.unreadable:
            self.report.add(Action(ActionKind.SNAPSHOT, error.path, error.reason))
        producers.snapshots.unreadable.clear()

    # ---- recovery ----

    def _recover_log(self) -> tuple[int, int]:
        """Pass 4: recover segments that may not have reached the disk; return log end offset and recovery point."""
        if not self._clean:
            self._recover_unflushed()
        end = self._end_unless_before_start()
        if not len(self._segments):
            segment = self._state.new_segment(self._log_start)
            self._segments.add(segment)
            reason = f"the log has no segment; it continues at offset {self._log_start}"
            self._add(Action(ActionKind.CREATED, segment.path, reason))
        if self._clean and end is not None:
            return end, end
        if end is None:
            active = self._segments.active
            assert active is not None
            end = active.next_offset()
        return end, min(self._recovery_point, end)

    def _recover_unflushed(self) -> None:
        unflushed = self._segments.from_offset(self._recovery_point)
        for i, segment in enumerate(unflushed):
            try:
                cut = self._recover(segment, "it may not have reached the disk")
            except InvalidOffsetError as error:
                self._add_whole(ActionKind.EMPTIED, segment, str(error))
                cut = segment.truncate_to(segment.base_offset)
            if cut > 0:
                gone = unflushed[i + 1 :]
                self._drop(gone, "it lies after a segment that lost bytes")
                if gone:
                    self._remover.remove_snapshots(gone, self._producers)
                return

    def _end_unless_before_start(self) -> int | None:
        active = self._segments.active
        if active is None:
            return None
        end, position = active.end()
        if end >= self._log_start:
            if position < active.size:
                self._tell_overlooked(active, end, position)
            return end
        keeps = "to keep the segments, remove its line from log-start-offset-checkpoint before recovery"
        self._drop(list(self._segments), f"the log ends at {end}, below its start offset {self._log_start}; {keeps}")
        self._epochs.clear()
        self._producers.truncate_fully(self._log_start)
        return None

    def _tell_overlooked(self, active: LogSegment, end: int, position: int) -> None:
        last = active.offset_index.place_of_last() if self._clean and active.offset_index.count else None
        if last is not None and position < last <= active.size and not _has_batches(active, last):
            reason = (
                f"the last entry of its offset index leads to byte {last}, where no whole batch begins, so a broker"
                f" that trusts the clean shutdown ends the log at {end}, before these batches"
            )
            action = Action(ActionKind.UNREACHED, active.path, reason, True, position, active.size)
            if self._stops_at_unreached:
                raise UnreachedError(active.path, last, reason)
            self._add(action)
        elif _has_batches(active, position):
            reason = f"offsets go back there, so a broker ends the log at {end}, before these batches"
            self._add(Action(ActionKind.HIDDEN, active.path, reason, True, position, active.size))
        elif self._clean:
            reason = "no batch begins there; a clean shutdown does not leave such bytes"
            self._add(Action(ActionKind.GARBAGE, active.path, reason, True, position, active.size))

    def _drop(self, segments: Iterable[LogSegment], why: str) -> None:
        gone = list(segments)
        for segment in gone:
            self._add_whole(ActionKind.DROPPED, segment, why)
            self._segments.remove(segment.base_offset)
        self._remover.remove_segments(gone)


def _has_batches(segment: LogSegment, position: int) -> bool:
    return any(len(window.batches) for window in segment.windows(position))


def _offset_of(name: str) -> int:
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else -1


class _IndexChanges:
    """Compares indexes before and after their segment is recovered.

    Zeros after the entries are ignored: an index has them until its segment is closed.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._missing: set[str] = set()
        self._before: dict[str, bytes] = {}
        self._reasons: dict[str, str] = {}

    def note_missing(self, path: str) -> None:
        """Note that an index is missing: recovery will build it, or it begins without entries."""
        self._missing.add(path)
        self._reasons[path] = "it was missing; an empty one was created"

    def before(self, segment: LogSegment) -> None:
        for path in _index_paths(segment):
            if self._storage.exists(path) and path not in self._missing:
                self._before[path] = self._storage.read_all(path)

    def after(self, segment: LogSegment) -> None:
        for path in _index_paths(segment):
            new = self._storage.read_all(path) if self._storage.exists(path) else b""
            old = self._before.pop(path, None)
            if old is None and (new or path in self._missing):
                self._reasons[path] = "it was missing; rebuilt from the log"
            elif old is not None and (old[: len(new)] != new or np.frombuffer(old, np.uint8)[len(new) :].any()):
                self._reasons[path] = f"its entries did not match the log; rebuilt ({len(new)} bytes)"

    def changes(self) -> list[tuple[str, str]]:
        """Return path and reason of every index that was created or changed, by name."""
        return sorted((path, reason) for path, reason in self._reasons.items() if self._storage.exists(path))


def _index_paths(segment: LogSegment) -> list[str]:
    return [index.path for index in (segment.offset_index, segment.time_index, segment.aborted_txns)]
