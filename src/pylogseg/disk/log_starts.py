"""Where logs start, by the checkpoint of their log directory."""

from __future__ import annotations

from typing import NamedTuple

from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.names import FileKind, parse_partition_folder


class UnknownStarts(NamedTuple):
    """A note of log starts that are not known."""

    error: CorruptionError | StorageError

    def __str__(self) -> str:
        return f"{self.error}; it is taken for empty, as by a broker: records that were deleted may show"


def log_starts(files: FileSystem, log_dir: str, notes: list[str | UnknownStarts]) -> dict[tuple[str, int], int]:
    """Return the starts by topic and partition in a log directory's checkpoint; with a note if these are not known."""
    from pylogseg.disk.offset_checkpoints import OffsetCheckpoints

    checkpoints, kind = OffsetCheckpoints(files, log_dir), FileKind.LOG_STARTS
    if harm := checkpoints.harm(kind):
        file = checkpoints.file(kind)
        notes.append(UnknownStarts(file.error or CorruptionError(file.path, 0, harm.removeprefix(f"{file.path}: "))))
    return checkpoints.offsets(kind)


def log_start(files: FileSystem, folder: str, notes: list[str | UnknownStarts]) -> int:
    """Return the log start offset of a partition that was named directly, from its log directory, if there is one."""
    parent, name = files.split(folder)
    parsed = parse_partition_folder(name)
    if parsed is None or parsed.state:
        return 0
    return log_starts(files, parent, notes).get((parsed.topic, parsed.partition), 0)
