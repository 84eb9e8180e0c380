"""The offset checkpoints of a log directory, before and after."""

from __future__ import annotations

from pylogseg.env.storage import Storage
from pylogseg.errors import CorruptionError
from pylogseg.format.names import FileKind
from pylogseg.log.directory import read_offsets
from pylogseg.offline.result import CheckpointChange

CHECKPOINTS = (FileKind.RECOVERY_POINTS, FileKind.LOG_STARTS, FileKind.HIGH_WATERMARKS, FileKind.CLEANER_OFFSETS)

Entries = dict[FileKind, dict[tuple[str, int], int]]


def read_checkpoints(storage: Storage, log_dir: str, notes: list[str] | None = None) -> Entries:
    """The entries of all checkpoints.

    Parameters
    ----------
    storage, log_dir
        Where they lie.
    notes : list of str, optional
        Gets a line for each checkpoint that cannot be read: it is taken for empty, as by a broker.
    """
    found: Entries = {}
    for kind in CHECKPOINTS:
        path = storage.join(log_dir, kind.value)
        found[kind] = {}
        try:
            if storage.exists(path):
                found[kind] = read_offsets(storage, path)
        except CorruptionError as error:
            if notes is not None:
                notes.append(f"{error}; it is taken for empty, as by a broker")
    return found


def differences(before: Entries, after: Entries) -> list[CheckpointChange]:
    """Entries that are not the same, by checkpoint and partition."""
    return [
        CheckpointChange(kind.value, *key, before[kind].get(key), after[kind].get(key))
        for kind in CHECKPOINTS
        for key in sorted({*before[kind], *after[kind]})
        if before[kind].get(key) != after[kind].get(key)
    ]
