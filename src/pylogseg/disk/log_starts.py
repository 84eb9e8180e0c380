"""Where logs start, by the checkpoint of their log directory."""

from __future__ import annotations

from typing import NamedTuple

from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import CorruptionError, StorageError, is_missing
from pylogseg.format.names import FileKind, parse_partition_folder


class UnknownStarts(NamedTuple):
    """A note of log starts that cannot be read."""

    error: CorruptionError | StorageError

    def __str__(self) -> str:
        return f"{self.error}; it is taken for empty, as by a broker: records that were deleted may show"


def log_starts(files: FileSystem, path: str | None, notes: list[str | UnknownStarts]) -> dict[tuple[str, int], int]:
    """Return the starts by topic and partition in a checkpoint; none, with a note, of one that cannot be read."""
    if path is None:
        return {}
    from pylogseg.format.files.checkpoint import parse_offset_checkpoint

    try:
        return dict(parse_offset_checkpoint(files.read_all(path), path))
    except (CorruptionError, StorageError) as error:
        if not is_missing(error):
            notes.append(UnknownStarts(error))
        return {}


def log_start(files: FileSystem, folder: str, notes: list[str | UnknownStarts]) -> int:
    """Return the log start offset of a partition that was named directly, from its log directory, if there is one."""
    parent, name = files.split(folder)
    parsed = parse_partition_folder(name)
    if parsed is None or parsed.state:
        return 0
    path = files.join(parent, FileKind.LOG_STARTS.value)
    return log_starts(files, path, notes).get((parsed.topic, parsed.partition), 0)
