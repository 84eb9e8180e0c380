"""The offset checkpoints of a log directory together: an entry in one shows that another has lost its entry."""

from __future__ import annotations

from typing import Any

from pylogseg.disk.folders import Folders
from pylogseg.disk.small_files import FileState, SmallFile, read_offset_checkpoint
from pylogseg.format.names import FileKind

CheckpointFile = SmallFile[dict[tuple[str, int], int]]
#: Of a checkpoint, another one that a broker writes no earlier, and which has entries of all partitions: high
#: watermarks come every five seconds, the others once a minute. The cleaner's stays at 0 bytes where it cleans nothing.
_BESIDE = {
    FileKind.HIGH_WATERMARKS: FileKind.RECOVERY_POINTS,
    FileKind.LOG_STARTS: FileKind.RECOVERY_POINTS,
    FileKind.RECOVERY_POINTS: FileKind.HIGH_WATERMARKS,
}
#: Recovery points come a minute after the first high watermark.
_IN_ORDER = {(FileKind.RECOVERY_POINTS, FileState.EMPTY), (FileKind.LOG_STARTS, FileState.ABSENT)}


class OffsetCheckpoints:
    """The checkpoints of a log directory, each read when it is first asked for."""

    def __init__(self, files: Folders, log_dir: str) -> None:
        self.log_dir = log_dir
        self._files, self._read = files, dict[FileKind, CheckpointFile]()
        self._offsets = dict[FileKind, dict[tuple[str, int], int]]()

    def __reduce__(self) -> Any:
        """Travel without the entries of all partitions: who asks there reads them there."""
        return OffsetCheckpoints, (self._files, self.log_dir)

    def file(self, kind: FileKind) -> CheckpointFile:
        """Return a checkpoint with its state: read, absent, empty, unreadable."""
        if kind not in self._read:
            self._read[kind] = read_offset_checkpoint(self._files, self.log_dir, kind)
        return self._read[kind]

    def offsets(self, kind: FileKind) -> dict[tuple[str, int], int]:
        """Return the offsets of a checkpoint; none if it is not read, and no entry below 0, which no log has."""
        if kind not in self._offsets:
            entries = (self.file(kind).value or {}).items()
            self._offsets[kind] = {key: offset for key, offset in entries if offset >= 0}
        return self._offsets[kind]

    def entry(self, kind: FileKind, topic: str, partition: int) -> SmallFile[int]:
        """Return the entry of a partition, None without one, with the state of the checkpoint."""
        file = self.file(kind)
        return SmallFile(file.path, file.state, self.offsets(kind).get((topic, partition)), file.problem, file.error)

    def harm(self, kind: FileKind) -> str:
        """Return why a checkpoint says less than its broker wrote; empty if it may be whole, or nobody wrote one."""
        entries = self.file(kind).value or {}
        if len(entries) == len(self.offsets(kind)):
            return self._loss(kind)
        return next(filter(None, (self._below_0(kind, key) for key in entries)))

    def _below_0(self, kind: FileKind, key: tuple[str, int]) -> str:
        file = self.file(kind)
        offset = (file.value or {}).get(key, 0)
        return f"{file.path}: the entry of {key[0]}-{key[1]} is {offset}, below 0" if offset < 0 else ""

    def _loss(self, kind: FileKind) -> str:
        """Return why a checkpoint as a whole says nothing.

        One of 0 bytes, or one that is absent, lost its entries if another checkpoint has some. A log start is noted
        only where records were deleted, and not everybody makes the file: one that is absent says nothing.
        """
        file = self.file(kind)
        if file.is_read:
            return ""
        if file.is_damaged:
            return file.problem
        if (kind, file.state) in _IN_ORDER:
            return ""
        beside = _BESIDE.get(kind)
        return f"{file.problem}, and {beside.value} beside it has entries" if beside and self.offsets(beside) else ""

    def why_no_high_watermark(self, topic: str, partition: int) -> str:
        """Return why a partition has no high watermark; empty if it has one, or if the directory keeps none.

        A directory without checkpoints is a copy of folders: there, a log's end is all that there is.
        """
        kind = FileKind.HIGH_WATERMARKS
        file, key = self.file(kind), (topic, partition)
        if loss := self._loss(kind) or self._below_0(kind, key):
            return loss
        if file.is_read and key not in self.offsets(kind) and key in self.offsets(FileKind.RECOVERY_POINTS):
            return f"{file.path}: the file has no entry of {topic}-{partition}"
        if file.state is FileState.EMPTY:
            return file.problem
        return ""
