"""A consistent copy of one partition while a broker may write to it.

Nothing is locked. Sealed segments do not change under their name, unless the cleaner or a truncation replaces them. So
the folder is listed, copied and listed again, until the copy equals the folder at one moment. The copy takes the whole
batches with good CRCs of the active segment, and cuts its indexes to them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.env.executor import Advance
from pylogseg.env.filesystem import Entry
from pylogseg.env.storage import Storage
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.columns import TableColumn, declare_columns, line_type
from pylogseg.format.files.checkpoint import EpochEntry, parse_leader_epochs
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.format.files.txnindex import TxnIndex
from pylogseg.format.names import FileKind, FileName, parse_file_name, segment_file_name
from pylogseg.format.words import count_text, size_text
from pylogseg.transfer.checked import good_end
from pylogseg.transfer.files import check_is_file, copy_file, is_copied, swap_in
from pylogseg.transfer.segment_files import copy_snapshot, write_epochs
from pylogseg.walker.gaps import Gap, offsets_text

#: How often, and after how many seconds, to look again where a broker was replacing segments.
_LOOKS, _PAUSE_SECONDS = 50, 0.1

#: Size and modification time: what tells whether a sealed file is still the same.
_Identity = tuple[int, int]


@declare_columns(
    line_type("partition"),
    TableColumn("partition", "string", "its name", source="name"),
    TableColumn("source", "string", "its folder"),
    TableColumn("target", "string", "the new folder"),
    TableColumn("state", "string", "copied, unchanged, gone, skipped, stopped or failed"),
    TableColumn("reason", "string", "why it is not there, or does not go on", source=lambda row: row.reason or None),
    TableColumn("firstOffset", "int64", "of a cluster: where this run began", source=lambda row: row.first_offset),
    TableColumn("logEnd", "int64", "offset after the last record of the copy"),
    TableColumn("bytes", "int64", "of all its segments; of a cluster, those that this run fetched", "bytes"),
    TableColumn("segments", "int64", "their number"),
    TableColumn("cutBytes", "int64", "left out after the last whole batch", "bytes"),
    TableColumn("damaged", "bool", "its last segment has damage before good batches", source="is_damaged"),
    TableColumn("removed", "list<string>", "offsets that retention removed before they were copied",
                source=lambda row: [offsets_text(*each) for each in row.removed]),
    TableColumn("notes", "list<string>", "for people"),
)  # fmt: skip
@dataclass
class PartitionCopy:
    """The result of copying a partition.

    Attributes
    ----------
    name : str
        Of its folder.
    source, target : str
    state : {"copied", "unchanged", "gone", "skipped", "stopped", "failed"}
        Gone: the broker deleted the partition meanwhile. Unchanged: the copy of a cluster had all of it. Stopped: the
        copy of a cluster does not go on, because its log or topic is another one now. Skipped, and failed because a
        part of it cannot be read: see `reason`.
    reason : str
    first_offset : int or None
        For a copy of a cluster, the offset at which this run began.
    log_end : int
        Offset after the last record of the copy.
    bytes : int
        The size of all its segments, or, from a cluster, the bytes that this run fetched.
    segments : int
    cut_bytes : int
        Bytes left out after the last whole batch.
    is_damaged : bool
        True if the last segment, and so the copy, has damage before good batches. The copy looks at headers of other
        segments; see `Copied.lacking`.
    looks : int
        Listings of the folder that were needed.
    removed : list of (int, int)
        Half-open ranges that retention of a cluster removed before they were copied.
    notes : list of str
    """

    name: str
    source: str
    target: str
    state: str = "copied"
    reason: str = ""
    first_offset: int | None = None
    log_end: int = 0
    bytes: int = 0
    segments: int = 0
    cut_bytes: int = 0
    is_damaged: bool = False
    looks: int = 0
    removed: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the lines for people."""
        if self.state == "unchanged":
            return
        if self.state != "copied":
            yield f"{self.name}: {self.state}: {self.reason}"
            return
        end = f", up to offset {self.log_end}" if self.looks else ""  # else the copy is only planned
        yield f"{self.name}: {count_text(self.segments, 'segment')}, {size_text(self.bytes)}{end}"
        yield from (f"  missing: {offsets_text(*range_)}: retention removed them first" for range_ in self.removed)
        if self.cut_bytes:
            yield f"  left out: {self.cut_bytes} bytes after the last whole batch"
        yield from (f"  note: {note}" for note in self.notes)


class Changed(Exception):
    """A file has changed since the listing."""


class PartitionCopier:
    """Copies the folder of a partition into a new folder, or in place of a folder of the same name."""

    def __init__(self, storage: Storage, source: str, target: str, advance: Advance) -> None:
        self._storage, self._source, self._target, self._advance = storage, source, target, advance
        self._copied: dict[str, _Identity] = {}
        self._result = PartitionCopy(storage.split(source)[1], source, target)

    def run(self) -> PartitionCopy:
        """Copy; StorageError if the disk fails, or because of `Changed` if the folder changes faster than that."""
        result = self._result
        self._storage.make_folder(self._target)
        for look in range(_LOOKS):
            result.looks = look + 1
            try:
                self._try()
                self._storage.sync_folder(self._target)
                return result
            except Changed as change:
                result.reason = str(change)
            except StorageError as error:
                if self._storage.exists(self._source):
                    raise
                result.state, result.reason = "gone", f"the broker deleted it meanwhile: {error.reason}"
                return result
            time.sleep(_PAUSE_SECONDS)
        reason = f"it changed at each of {_LOOKS} tries, at last: {result.reason}"
        raise StorageError(self._source, "copy", reason) from Changed(result.reason)

    # ---- one try ----

    def _try(self) -> None:
        files = self._list_files()
        self._result.notes, self._result.is_damaged = [], False
        epochs = self._epochs()
        bases = sorted(base for base, kind in files if kind is FileKind.LOG)
        active = bases[-1] if bases else 0
        self._result.reason = ""
        kept = {segment_file_name(*key) for key in files if key[0] != active}
        for name in set(self._copied) - kept:
            self._storage.remove(self._storage.join(self._target, name))
            del self._copied[name]
        for (base, kind), entry in sorted(files.items(), key=lambda item: item[1].name):
            if base < active and base in bases:
                self._copy_sealed(segment_file_name(base, kind), entry)
        names = {segment_file_name(*key): entry.name for key, entry in files.items() if key[0] == active}
        size = self._copy_active(active, names) if bases else 0
        self._check(files, active, size, epochs)
        self._copy_others(epochs)
        self._result.segments = len(bases)
        self._result.bytes = sum(
            entry.size for (base, kind), entry in files.items() if kind is FileKind.LOG and base < active
        )
        self._result.bytes += size

    def _list_files(self) -> dict[tuple[int, FileKind], Entry]:
        """Live segment files by base offset and kind; during a replacement, the files that a load would keep."""
        files: dict[tuple[int, FileKind], Entry] = {}
        entries = self._storage.list_folder(self._source)
        for entry in entries:
            if entry.name.endswith(".swap"):
                check_is_file(self._storage, self._storage.join(self._source, entry.name))
        try:
            swap = swap_in(self._storage, self._source, [entry.name for entry in entries])
        except StorageError as error:
            raise Changed("segments are being replaced") from error
        for entry in entries:
            name = swap.name_of(entry.name)
            if name is None or not name.is_live or name.kind is FileKind.PRODUCER_SNAPSHOT:
                continue
            if name.kind.is_segment_file:
                assert name.offset is not None
                files[name.offset, name.kind] = entry
        return files

    def _check(
        self, files: dict[tuple[int, FileKind], Entry], active: int, size: int, epochs: list[EpochEntry]
    ) -> None:
        """Raise if listed segments have changed; deletion by retention and new segments are fine."""
        now = {base: entry for (base, kind), entry in self._list_files().items() if kind is FileKind.LOG}
        before = {base: entry for (base, kind), entry in files.items() if kind is FileKind.LOG}
        first = min(now, default=active + 1)
        for base in sorted({*now, *before}):
            if base < first or base > active:
                continue
            if base not in now or base not in before:
                raise Changed(f"segment {base} {'went' if base in before else 'came'} meanwhile")
            if base < active and _identity(now[base]) != _identity(before[base]):
                raise Changed(f"segment {base} was replaced meanwhile")
            if base == active and now[base].size < size:
                raise Changed("the log was truncated meanwhile")
        if epochs and all(entry.epoch != epochs[-1].epoch for entry in self._epochs()):
            raise Changed("the log was truncated meanwhile")

    # ---- files ----

    def _copy_sealed(self, name: str, entry: Entry) -> None:
        identity = _identity(entry)
        if self._copied.get(name) == identity:
            return
        self._copy_file(entry.name, identity, name)
        self._copied[name] = identity

    def _copy_active(self, base: int, names: dict[str, str]) -> int:
        """Copy the active segment with its indexes, by their names in the source; the bytes of its log."""
        log = segment_file_name(base, FileKind.LOG)
        self._copy_file(names[log], None, log)
        path = self._storage.join(self._target, log)
        copy = self._storage.open_log(path, create=False)
        try:
            modified_ms = copy.modified_ms()
            size, self._result.log_end = good_end(copy, base, self._note_damage)
            self._result.cut_bytes = copy.size - size
            if size < copy.size:
                copy.truncate(size)
                copy.sync()
                copy.set_modified_ms(modified_ms)
        finally:
            copy.close()
        for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX):
            name = segment_file_name(base, kind)
            self._copy_active_index(names.get(name, name), base, kind, size)
        return size

    def _note_damage(self, gap: Gap) -> None:
        self._result.notes.append(f"the source is damaged, and so is the copy: {gap}")
        self._result.is_damaged = True

    def _copy_active_index(self, name: str, base: int, kind: FileKind, size: int) -> None:
        data = self._read(name)
        if data is None:
            return
        try:
            count = _entries_within(data, kind, base, size, self._result.log_end)
        except CorruptionError as error:
            self._result.notes.append(f"{error}; a broker rebuilds it")
            return
        self._storage.write_synced(self._storage.join(self._target, segment_file_name(base, kind)), data[:count])

    def _copy_others(self, epochs: list[EpochEntry]) -> None:
        """Snapshots up to the end, leader epochs, and the partition's remaining files."""
        end, storage = self._result.log_end, self._storage
        for entry in storage.list_folder(self._source):
            name = parse_file_name(entry.name)
            if not is_copied(entry) or not name.is_live or (name.kind.is_segment_file and not _is_snapshot(name, end)):
                continue
            if name.kind is FileKind.LEADER_EPOCHS and epochs:
                write_epochs(storage, self._target, epochs, end + 1)
            elif name.kind is FileKind.PRODUCER_SNAPSHOT:
                self._copy_snapshot(entry.name)
            else:
                self._copy_file(entry.name, None)

    def _copy_snapshot(self, name: str) -> None:
        data, join = self._read(name), self._storage.join
        if data is None:
            return
        error = copy_snapshot(data, join(self._source, name), self._storage, join(self._target, name))
        if error is not None:
            self._result.notes.append(f"{error}; a broker does without it")

    def _epochs(self) -> list[EpochEntry]:
        name = FileKind.LEADER_EPOCHS.value
        data = self._read(name)
        try:
            return [] if data is None else parse_leader_epochs(data, self._storage.join(self._source, name))
        except CorruptionError as error:
            self._result.notes.append(f"{error}; it is copied as it is")
            return []

    def _read(self, name: str) -> bytes | None:
        """A small file, whole; None if there is none (any more)."""
        path = self._storage.join(self._source, name)
        try:
            return self._storage.read_all(path)
        except StorageError:
            if self._storage.exists(path):
                raise
            return None

    def _copy_file(self, name: str, identity: _Identity | None, final: str = "") -> None:
        """Copy a file as long as it is now, with its final name; as the listing had it, if an identity is given."""
        source, target = self._storage.join(self._source, name), self._storage.join(self._target, final or name)
        self._storage.remove(target)
        try:
            found = copy_file(self._storage, source, target)
        except StorageError as error:
            if self._storage.exists(source):
                raise
            raise Changed(f"{name} went meanwhile") from error
        if identity is not None and found != identity:
            raise Changed(f"{name} was replaced meanwhile")
        self._advance(found[0])


def _identity(entry: Entry) -> _Identity:
    return entry.size, entry.modified_ms


def _is_snapshot(name: FileName, end: int) -> bool:
    return name.kind is FileKind.PRODUCER_SNAPSHOT and name.offset is not None and name.offset <= end


def _entries_within(data: bytes, kind: FileKind, base: int, size: int, end: int) -> int:
    """Return the bytes of the active segment's index with entries for copied batches.

    The broker may be writing it: at the first entry that breaks the order it ends.
    """
    if kind is FileKind.TXN_INDEX:
        entries = TxnIndex(data[: len(data) // 34 * 34]).entries
        return 34 * _leading(entries["last_offset"] < end)
    index = OffsetIndex(data, base) if kind is FileKind.OFFSET_INDEX else TimeIndex(data, base)
    offsets = index.offsets
    good = (offsets >= base) & (offsets < end)
    rising: npt.NDArray[Any] = index.positions if isinstance(index, OffsetIndex) else index.timestamps
    good[1:] &= rising[1:] > rising[:-1]
    if isinstance(index, OffsetIndex):
        good &= (rising >= 0) & (rising < size)
    return (8 if isinstance(index, OffsetIndex) else 12) * _leading(good)


def _leading(good: Any) -> int:
    return len(good) if good.all() else int(np.argmin(good))
