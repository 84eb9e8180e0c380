"""What the checkpoints of one log directory say of some partitions, taken to another one."""

from __future__ import annotations

from collections.abc import Mapping

from pylogseg.env.storage import Storage
from pylogseg.files.checkpoint import encode_offset_checkpoint, parse_offset_checkpoint
from pylogseg.format.names import FileKind
from pylogseg.log.directory import partition_of

CHECKPOINTS = (FileKind.RECOVERY_POINTS, FileKind.LOG_STARTS, FileKind.HIGH_WATERMARKS, FileKind.CLEANER_OFFSETS)


def entries_of(storage: Storage, folder: str, name: str) -> dict[str, int]:
    """What the checkpoints of a folder say of a partition, by the names of the checkpoints.

    Raises
    ------
    CorruptionError
        If one of them cannot be read.
    """
    found = {}
    for kind in CHECKPOINTS:
        known, key = _read(storage, storage.join(folder, kind.value)), partition_of(name)
        if key in known:
            found[kind.value] = known[key]
    return found


def note_entries(storage: Storage, folder: str, entries: Mapping[str, Mapping[str, int]]) -> None:
    """Let checkpoints say of partitions what is given, and nothing of what was there before.

    Parameters
    ----------
    storage, folder
        The log directory; nobody else writes to it.
    entries : mapping
        By the name of the partition, what `entries_of` gives: of an empty one nothing is said any more.

    Raises
    ------
    CorruptionError
        If one of them cannot be read: what it says of other partitions would be lost.
    """
    keys = {partition_of(name): said for name, said in entries.items()}
    for kind in CHECKPOINTS:
        path = storage.join(folder, kind.value)
        known = _read(storage, path)
        after = {key: offset for key, offset in known.items() if key not in keys}
        after.update({key: said[kind.value] for key, said in keys.items() if kind.value in said})
        if after != known:
            storage.write_whole(path, encode_offset_checkpoint(after))


def _read(storage: Storage, path: str) -> dict[tuple[str, int], int]:
    return dict(parse_offset_checkpoint(storage.read_all(path), path)) if storage.exists(path) else {}
