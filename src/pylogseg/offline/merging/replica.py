"""One replica of a partition: the offsets that can be read, its leader epochs, the checkpoints of its broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.disk.lineage.authority import Replica
from pylogseg.disk.lineage.chains import Lineage, add_epochs, divergence, epoch_runs
from pylogseg.disk.lineage.parts import LogRange
from pylogseg.disk.small_files import read_leader_epochs
from pylogseg.disk.swaps import Swap
from pylogseg.env.executor import Advance
from pylogseg.env.storage import Storage
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.batches import BatchTable, joined_rows
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.files.cuts import Cut, parse_cuts
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.layout import OFFSET_INDEX_ENTRY
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.log.directory import partition_of
from pylogseg.log.identity import topic_id_of
from pylogseg.log.segment_rewrite import Filtered
from pylogseg.offline.repairing.salvage import ascending
from pylogseg.transfer.checked import batches_of_runs, checked_windows, piece_bytes
from pylogseg.transfer.checkpoints import Entries, read_checkpoints
from pylogseg.transfer.files import swap_in
from pylogseg.walker.gaps import Gap, GapKind

#: Of each replica, so many batches are remembered: those of the lowest hashes, which are the same ones in all replicas.
_MOST = 1 << 16
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Checksums:
    """The checksums of batches by their base offsets, of a sample if there are many."""

    def __init__(self) -> None:
        self._rows = np.empty(0, [("hash", "u8"), ("offset", "i8"), ("crc", "u4")])

    def add(self, batches: BatchTable) -> None:
        rows = np.empty(len(batches), self._rows.dtype)
        rows["offset"], rows["crc"] = batches.base_offset, batches.rows["crc"]
        rows["hash"] = rows["offset"].astype(np.uint64) * _FACTOR
        self._rows = np.concatenate([self._rows, rows])
        if len(self._rows) > 2 * _MOST:
            self._rows = _lowest(self._rows)

    def compare(self, other: Checksums, first: int, end: int) -> tuple[int, int | None]:
        """Count the batches that both have in a range of offsets; return where the first one lies that differs, too."""
        ours, theirs = _lowest(self._rows), _lowest(other._rows)
        _, at, there = np.intersect1d(ours["offset"], theirs["offset"], return_indices=True)
        ours, theirs = ours[at], theirs[there]
        inside = (ours["offset"] >= first) & (ours["offset"] < end)
        differ = inside & (ours["crc"] != theirs["crc"])
        offsets = ours["offset"][differ]
        return int(inside.sum() - differ.sum()), int(offsets.min()) if len(offsets) else None


def _lowest(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return rows if len(rows) <= _MOST else rows[np.argpartition(rows["hash"], _MOST)[:_MOST]]


_CHUNK_BYTES = 1 << 16


class Run(NamedTuple):
    """Good batches back to back in a segment, and the offsets that they stand for."""

    base_offset: int  #: Of the segment.
    position: int
    end_position: int
    first_offset: int
    end_offset: int


class Trust(NamedTuple):
    """True if another replica's records may fill gaps of this one."""

    differs_at: int | None  #: Where both have a batch of the same leader epoch, and not the same one.
    is_shown: bool  #: The topic id, or a batch that both have, shows that they are replicas of one partition.


class Reached(NamedTuple):
    """Up to where a log went, as a file beside it proves."""

    offset: int
    source: str  #: The file, and what it says.


@dataclass
class ReplicaScan:
    """A replica that was read, every batch with its CRC."""

    log_dir: str
    folder: str  #: The partition's.
    topic_id: str | None = None
    node_id: int | None = None
    #: Why its disk does not count as in sync, whatever the newest metadata says of its broker.
    is_older: str | None = None
    log_start: int = 0  #: By the checkpoint, or the first segment.
    #: By its leader epochs, if that is below the first segment: deleting it would have moved them.
    noted_start: int | None = None
    #: Of the segment of another replica that the log starts in, if this one has lost its own.
    given_base: int | None = None
    end: int = 0  #: After the last good batch.
    known_end: int = 0  #: Where it ended, as its leader epochs say.
    epochs: tuple[EpochEntry, ...] = ()
    runs: list[Run] = field(default_factory=list)  #: By offset.
    gaps: list[Gap] = field(default_factory=list)  #: Damage.
    bases: list[int] = field(default_factory=list)  #: Of the segments.
    size: int = 0  #: Bytes of the segments.
    #: What the checkpoints of the log directory say, by their names.
    entries: dict[str, int] = field(default_factory=dict)
    is_compacted: bool = False  #: True if the cleaner has been here: then offsets may be missing between batches.
    #: The highest end that recovery point, producer snapshots, leader epochs or the last index prove.
    reached: Reached = field(default_factory=lambda: Reached(0, ""))
    lost_tail: bool = False  #: True if there was more behind the last good batch.
    #: By the batches, of what lies below the first epoch of the checkpoint: records that were deleted, maybe
    #: long before its history became that of the others.
    below: Lineage = field(default_factory=lambda: Lineage((), 0, 0))
    notes: list[str] = field(default_factory=list)
    checksums: Checksums = field(default_factory=Checksums)  #: Of the good batches.
    cuts: list[Cut] = field(default_factory=list)  #: What commands have cut out on purpose.
    #: How a load would end a replacement of segments that was interrupted.
    swap: Swap = field(default_factory=lambda: Swap({}, frozenset()))

    def file_name(self, base: int, kind: FileKind) -> str:
        """Return the name that a file of a segment has now."""
        final = segment_file_name(base, kind)
        return next((name for name, after in self.swap.renamed.items() if after == final), final)

    @property
    def first_base(self) -> int:
        """Where the segment begins that the log starts in."""
        given = self.log_start if self.given_base is None else self.given_base
        return max((base for base in self.bases if base <= self.log_start), default=given)

    @property
    def lineage(self) -> Lineage:
        """Its history: from the first known epoch to the highest offset that any file shows."""
        start = max(self.log_start, self.below.end if self.below.epochs else 0)
        return Lineage.of(self.epochs, start, self.known_end)

    @property
    def replica(self) -> Replica:
        """The facts that the lineage needs."""
        mark = self.entries.get(FileKind.HIGH_WATERMARKS.value, 0)
        node_id = None if self.is_older else self.node_id
        return Replica(self.lineage, mark, node_id, self.lost_tail, self.reached.offset)

    def parts(self, log: Lineage, rank: int, *, is_own: bool) -> list[LogRange]:
        """Its readable offsets, up to the point where its history leaves a log's; all if it is that log."""
        same, old = divergence(self.lineage, log), divergence(self.below, log)
        limit = self.first_base if same.epoch is None else same.offset
        old_limit = self.first_base if old.epoch is None else old.offset
        parts = []
        for run in self.runs:
            ranges = [(run.first_offset, min(run.end_offset, limit))]
            if not is_own and run.first_offset < self.below.end:
                between = min(run.end_offset, self.below.end)
                ranges = [(run.first_offset, min(between, old_limit)), (between, min(run.end_offset, limit))]
            parts += [LogRange(first, end, log.epochs, rank) for first, end in ranges if first < end]
        return parts

    def batches(self, storage: Storage, first: int, end: int) -> Iterator[Filtered]:
        """Yield its batches of a range of offsets, which were found good."""
        for run in self.runs:
            if run.first_offset >= end or run.end_offset <= first:
                continue
            path = storage.join(self.folder, self.file_name(run.base_offset, FileKind.LOG))
            file = storage.open_log(path, create=False)
            try:
                for kept in batches_of_runs(file, [(run.position, run.end_position)]):
                    rows = kept.batches
                    inside = np.flatnonzero((rows.last_offset >= first) & (rows.last_offset < end))
                    if len(inside):
                        chosen = rows[int(inside[0]) : int(inside[-1]) + 1]
                        yield Filtered(piece_bytes(chosen, kept.data, int(rows.position[0])), chosen)
            finally:
                file.close()

    def trust(self, other: ReplicaScan) -> Trust:
        """Say whether another replica has the same records as this one, as far as leader epochs say so."""
        first = max(self.below.end, other.below.end, self.log_start, other.log_start)
        same, differs_at = self.checksums.compare(
            other.checksums, first, divergence(self.lineage, other.lineage).offset
        )
        differs_at = None if self.is_compacted or other.is_compacted else differs_at
        is_same_topic = self.topic_id is not None and self.topic_id == other.topic_id
        return Trust(differs_at, differs_at is None and (is_same_topic or same > 0))

    def join_runs(self) -> None:
        """Join consecutive runs if the cleaner made the gap between them."""
        damaged = [gap.first_offset for gap in self.gaps]
        runs = self.runs
        for number, (before, after) in enumerate(pairwise(runs)):
            is_whole = not any(before.end_offset <= first <= after.first_offset for first in damaged)
            if before.end_offset < after.first_offset and is_whole:
                runs[number] = before._replace(end_offset=after.first_offset)
        if (
            runs
            and runs[0].first_offset > self.first_base
            and not any(first <= runs[0].first_offset for first in damaged)
        ):
            runs[0] = runs[0]._replace(first_offset=self.first_base)


def noted_offsets(storage: Storage, log_dir: str, notes: list[str]) -> Entries:
    """Read the checkpoints of a log directory; an unreadable one counts as empty, with a note."""
    try:
        return read_checkpoints(storage, log_dir, notes)
    except StorageError as error:
        notes.append(f"{error}: its broker's high watermark does not count")
        return {}


def _noted_cuts(storage: Storage, path: str, notes: list[str]) -> list[Cut]:
    try:
        return parse_cuts(storage.read_all(path), path)
    except (CorruptionError, StorageError) as error:
        notes.append(f"{error}: so its cuts, made on purpose, are unknown")
        return []


def scan_replica(storage: Storage, log_dir: str, name: str, noted: Entries, advance: Advance) -> ReplicaScan:
    """Read a replica; `noted` are its entries in the checkpoints of its log directory.

    Where a replacement of segments was interrupted, its segments are those that a load would leave. Raises
    StorageError if the folder cannot be listed, or a segment that replaces others cannot be read.
    """
    found = ReplicaScan(log_dir, storage.join(log_dir, name))
    key = partition_of(name)
    found.entries = {kind.value: offsets[key] for kind, offsets in noted.items() if key in offsets}
    try:
        found.topic_id = topic_id_of(storage, found.folder)
    except (CorruptionError, StorageError) as error:
        found.notes.append(f"{error}; which topic it is of is not known")
    sizes: dict[int, int] = {}
    ends = [Reached(0, "")]
    last_index = -1
    was_deleting = False
    entries = storage.list_folder(found.folder)
    found.swap = swap_in(storage, found.folder, [entry.name for entry in entries])
    for entry in entries:
        if (parsed := found.swap.name_of(entry.name)) is None:
            continue
        if parsed.kind is FileKind.CUTS and parsed.is_live:
            found.cuts = _noted_cuts(storage, storage.join(found.folder, entry.name), found.notes)
        if parsed.kind is FileKind.LOG and parsed.is_live and parsed.offset is not None:
            sizes[parsed.offset] = entry.size
        if parsed.kind is FileKind.PRODUCER_SNAPSHOT and parsed.is_live and parsed.offset is not None:
            ends.append(Reached(parsed.offset, f"producer snapshot {entry.name}"))
        if parsed.kind is FileKind.OFFSET_INDEX and parsed.is_live and parsed.offset is not None:
            last_index = max(last_index, parsed.offset)
        was_deleting |= parsed.kind is FileKind.LOG and parsed.suffix == ".deleted"
    found.bases, found.size = sorted(sizes), sum(sizes.values())
    start = found.entries.get(FileKind.LOG_STARTS.value, 0)
    found.log_start = max(start, found.bases[0] if found.bases else 0)
    found.end = found.log_start
    found.is_compacted = found.entries.get(FileKind.CLEANER_OFFSETS.value, 0) > found.log_start
    seen: list[EpochEntry] = []
    for number, base in enumerate(found.bases):
        end = found.bases[number + 1] if number + 1 < len(found.bases) else None
        if end is not None and end <= start:
            advance(sizes[base])  # all of it was deleted
            continue
        _scan_segment(storage, found, base, end, seen, advance)
    noted_epochs = _noted_epochs(storage, found)
    if noted_epochs and not found.bases:
        found.log_start = found.end = max(start, noted_epochs[0].start_offset)
    elif noted_epochs and not was_deleting and max(start, noted_epochs[0].start_offset) < found.bases[0]:
        found.noted_start = max(start, noted_epochs[0].start_offset)
    found.known_end = max([found.end, *(entry.start_offset for entry in noted_epochs)])
    first, last = (noted_epochs[0], noted_epochs[-1]) if noted_epochs else (EpochEntry(-1, -1), EpochEntry(-1, -1))
    found.below = Lineage.of(seen, found.first_base, found.end).shorten(first.start_offset)
    behind = [entry for entry in seen if entry.epoch > last.epoch and entry.start_offset >= last.start_offset]
    found.epochs = Lineage.of([*noted_epochs, *behind], found.log_start, found.known_end).epochs
    if found.is_compacted:
        found.join_runs()
    ends += [Reached(last.start_offset, f"{FileKind.LEADER_EPOCHS.value} {last.epoch} {last.start_offset}")]
    for kind in (FileKind.RECOVERY_POINTS, FileKind.CLEANER_OFFSETS):
        if (point := found.entries.get(kind.value, 0)) > 0:
            ends.append(Reached(point, f"entry in {kind.value}, {point},"))
    if last_index >= 0:
        ends.append(_end_by_index(storage, found, last_index, sizes.get(last_index) or None))
    found.reached = max(ends)
    noted_end = max(found.known_end, found.reached.offset, found.entries.get(FileKind.HIGH_WATERMARKS.value, 0))
    found.lost_tail |= noted_end > found.end
    return found


def _end_by_index(storage: Storage, found: ReplicaScan, base: int, size: int | None) -> Reached:
    """Return where a log ended by the offset index of a segment of so many bytes, if its entries can be believed."""
    name = found.file_name(base, FileKind.OFFSET_INDEX)
    path, data = storage.join(found.folder, name), bytearray()
    nothing = Reached(base if size is None else 0, f"index {name}")  # the segment was begun there
    try:
        file = storage.open_log(path, create=False)
        try:
            while chunk := bytes(file.read(len(data), _CHUNK_BYTES)):  # the rest is zeros, up to 10 MB
                data += chunk
                if not any(chunk[-OFFSET_INDEX_ENTRY.size :]):
                    break
        finally:
            file.close()
        index = OffsetIndex(data, base, path)
        index.check_entries()
    except (CorruptionError, StorageError, RequestError):
        return nothing
    positions = index.entries["position"]
    if not len(index) or (size is not None and int(positions[0]) >= size):
        return nothing
    return Reached(int(index.offsets[-1]) + 1, f"index {name}")


def _scan_segment(
    storage: Storage, found: ReplicaScan, base: int, end: int | None, seen: list[EpochEntry], advance: Advance
) -> None:
    path = storage.join(found.folder, found.file_name(base, FileKind.LOG))
    tables: list[npt.NDArray[Any]] = []
    damage: list[Gap] = []

    def note(gap: Gap) -> None:
        advance(gap.end_position - gap.position)
        if gap.is_damage:
            damage.append(gap)

    try:
        file = storage.open_log(path, create=False)
    except StorageError as error:
        reason = f"cannot {error.operation}: {error.reason}"
        found.gaps.append(Gap(path, GapKind.UNREADABLE, 0, 0, base, end, reason, True))
        found.lost_tail |= end is None
        found.end = max(found.end, base)
        return
    try:
        for window in checked_windows(file, base, note, is_last=end is None):
            tables.append(window.batches.rows)
            advance(int(window.batches.size.sum(dtype=np.int64)))
    finally:
        file.close()
    rows = BatchTable(joined_rows(tables))
    chosen = ascending(rows, base, end) if len(rows) else np.arange(0)
    for row in np.setdiff1d(np.arange(len(rows)), chosen).tolist():
        position, size = int(rows.position[row]), int(rows.size[row])
        reason = f"a batch of offsets {rows.base_offset[row]} to {rows.last_offset[row]} does not fit in here"
        damage.append(Gap(path, GapKind.ORDER, position, position + size, base, None, reason, True))
    rows = rows[chosen]
    found.checksums.add(rows)
    found.gaps += [_with_offsets(gap, rows, base, end) for gap in sorted(damage, key=lambda gap: gap.position)]
    if end is None:
        found.lost_tail = any(not len(rows) or gap.position > int(rows.position[-1]) for gap in damage)
    if not len(rows):
        if end is None:
            found.end = max(found.end, base)
        return
    add_epochs(seen, epoch_runs(rows))
    first, after = rows.base_offset, rows.last_offset + 1
    v2 = rows.magic >= 2
    has_count = v2 & (rows.count >= 0)
    found.is_compacted |= bool((has_count & (rows.count < after - first)).any() or rows.has_delete_horizon.any())
    ends = rows.position + rows.size
    leaps = (first[1:] != after[:-1]) & v2[1:] & v2[:-1]
    breaks = np.flatnonzero((rows.position[1:] != ends[:-1]) | leaps) + 1
    starts, stops = np.append(0, breaks), np.append(breaks, len(rows)) - 1
    # The first offset in a wrapper of the old formats shows when it is opened: it follows the one before.
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        low = int(first[start])
        if not v2[start]:
            low = base if start == 0 else int(after[start - 1])
            low = max([low, *(gap.next_offset or 0 for gap in damage if gap.end_position == rows.position[start])])
        found.runs.append(Run(base, int(rows.position[start]), int(ends[stop]), low, int(after[stop])))
    found.end = max(found.end, int(after[-1]))


def _with_offsets(gap: Gap, rows: BatchTable, base: int, end: int | None) -> Gap:
    """The gap with the offsets that the good batches around it leave open."""
    behind = int(np.searchsorted(rows.position, gap.position))
    first = int(rows.last_offset[behind - 1]) + 1 if behind else base
    following = int(rows.base_offset[behind]) if behind < len(rows) else end
    return gap._replace(first_offset=first, next_offset=following)


def _noted_epochs(storage: Storage, found: ReplicaScan) -> list[EpochEntry]:
    """Return the epochs of the checkpoint; none where it cannot be read."""
    file = read_leader_epochs(storage, found.folder)
    if isinstance(file.error, StorageError):
        raise file.error
    if not file.is_read and found.bases:
        found.notes.append(f"{file.problem}; its epochs are taken from the batches")
    return file.value or []
