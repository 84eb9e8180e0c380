"""Where logs start, by the checkpoint of their log directory."""

from __future__ import annotations

from pylogseg.disk.notes import Note
from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import CorruptionError
from pylogseg.format.names import FileKind, parse_partition_folder


def log_starts(files: FileSystem, log_dir: str, notes: list[Note]) -> dict[tuple[str, int], int]:
    """Return the starts by topic and partition in a log directory's checkpoint; with a note if these are not known."""
    from pylogseg.disk.offset_checkpoints import OffsetCheckpoints

    checkpoints, kind = OffsetCheckpoints(files, log_dir), FileKind.LOG_STARTS
    if harm := checkpoints.harm(kind):
        file = checkpoints.file(kind)
        error = file.error or CorruptionError(file.path, 0, harm.removeprefix(f"{file.path}: "))
        fact = f"{error}; it is taken for empty, as by a broker: records that were deleted may show"
        notes.append(Note(log_dir, fact, error=error))
    return checkpoints.offsets(kind)


def log_start(files: FileSystem, folder: str, notes: list[Note]) -> int:
    """Return the log start offset of a partition that was named directly, from its log directory, if there is one."""
    parent, name = files.split(folder)
    parsed = parse_partition_folder(name)
    if parsed is None or parsed.state:
        return 0
    return log_starts(files, parent, notes).get((parsed.topic, parsed.partition), 0)
