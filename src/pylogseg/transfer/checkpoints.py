"""Read and change the offset checkpoints of a log directory."""

from __future__ import annotations

from collections.abc import Mapping

from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.env.storage import Storage
from pylogseg.errors import StorageError
from pylogseg.format.files.checkpoint import encode_offset_checkpoint, parse_offset_checkpoint
from pylogseg.format.names import FileKind
from pylogseg.log.directory import partition_of, read_offsets

CHECKPOINTS = (FileKind.RECOVERY_POINTS, FileKind.LOG_STARTS, FileKind.HIGH_WATERMARKS, FileKind.CLEANER_OFFSETS)


#: What is not known without a checkpoint.
_UNKNOWN = {
    FileKind.RECOVERY_POINTS: "logs that were not closed in order are recovered whole",
    FileKind.LOG_STARTS: "records that were deleted may show again",
    FileKind.HIGH_WATERMARKS: "which records were committed is not known",
    FileKind.CLEANER_OFFSETS: "the cleaner begins again",
}
Entries = dict[FileKind, dict[tuple[str, int], int]]
#: By partition, and the names of the checkpoints.
AllEntries = dict[tuple[str, int], dict[str, int]]


def read_checkpoints(storage: Storage, log_dir: str, doubts: list[str] | None = None) -> Entries:
    """Read all checkpoints; one that lost its entries is a doubt, and counts as empty, as for a broker."""
    checkpoints, entries = OffsetCheckpoints(storage, log_dir), Entries()
    for kind in CHECKPOINTS:
        file = checkpoints.file(kind)
        if isinstance(file.error, StorageError):
            read_offsets(storage, file.path)  # raises with the remedy
        entries[kind] = checkpoints.offsets(kind)
        if doubts is not None and (harm := checkpoints.harm(kind)):
            doubts.append(f"{harm}; it is taken for empty, as by a broker: {_UNKNOWN[kind]}")
    return entries


def by_partition(entries: Entries) -> AllEntries:
    """Return the entries of every partition, as `entries_of` does."""
    rows: AllEntries = {}
    for kind, offsets in entries.items():
        for key, offset in offsets.items():
            rows.setdefault(key, {})[kind.value] = offset
    return rows


def all_entries(storage: Storage, folder: str) -> AllEntries:
    """Return the entries of every partition, as `entries_of` does; CorruptionError if a checkpoint cannot be read."""
    return by_partition({kind: _read(storage, storage.join(folder, kind.value)) for kind in CHECKPOINTS})


def entries_of(storage: Storage, folder: str, name: str) -> dict[str, int]:
    """Return the entries for one partition, by the names of the checkpoints.

    Raises CorruptionError if a checkpoint cannot be read.
    """
    return all_entries(storage, folder).get(partition_of(name), {})


def note_entries(storage: Storage, folder: str, entries: Mapping[str, Mapping[str, int]]) -> None:
    """Replace the entries of some partitions in all checkpoints.

    Raises CorruptionError if a checkpoint cannot be read: the entries of other partitions would be lost.
    """
    keys = {partition_of(name): said for name, said in entries.items()}
    for kind in CHECKPOINTS:
        path = storage.join(folder, kind.value)
        known = _read(storage, path)
        after = {key: offset for key, offset in known.items() if key not in keys}
        after.update({key: said[kind.value] for key, said in keys.items() if kind.value in said})
        if after != known:
            storage.write_whole(path, encode_offset_checkpoint(after))


def within(checkpoint: str, offset: int, log_end: int) -> int | None:
    """Return a checkpoint's offset, cut to the end of its log.

    None for a log start offset above the end, with which a broker would delete all of the log.
    """
    if checkpoint == FileKind.LOG_STARTS.value and offset > log_end:
        return None
    return min(offset, log_end)


def all_within(entries: Mapping[str, int], log_end: int) -> dict[str, int]:
    """Return entries as from `entries_of`, see `within`."""
    kept = {name: within(name, offset, log_end) for name, offset in entries.items()}
    return {name: offset for name, offset in kept.items() if offset is not None}


def _read(storage: Storage, path: str) -> dict[tuple[str, int], int]:
    entries = parse_offset_checkpoint(storage.read_all(path), path) if storage.exists(path) else {}
    return {key: offset for key, offset in entries.items() if offset >= 0}  # no log has another
