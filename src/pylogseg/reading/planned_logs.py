"""The segments of a plan, as they are in their folders when a range of them is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pylogseg.disk.disk import Disk, Segment, beside, open_folder, uploaded_end
from pylogseg.env.filesystem import FileSystem, FileView
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.layout import OFFSET_INDEX_ENTRY
from pylogseg.format.names import FileKind
from pylogseg.reading.log_reader import LogFiles, logs_of
from pylogseg.reading.partition import IsolationLevel
from pylogseg.reading.ranges import Range
from pylogseg.reading.transactions import Transactions

#: A broker renames what retention deletes, and removes it a minute later.
_DELETED = ".deleted"
_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


class Vanished(Exception):
    """A segment of the plan is missing, and not pending deletion either."""


@dataclass(frozen=True)
class PlannedSegment(Segment):
    """A segment that was there when the plan was made."""

    index: bytes | None = None  #: The entry of its offset index that a range begins at; None: the whole index is read.

    def open(self) -> FileView:
        """Open the file like `Segment.open`, also if it is pending deletion; `Vanished` if it was deleted."""
        try:
            return super().open()
        except StorageError as error:
            only_if_missing(error)
        try:
            return self.files.open(self.path + _DELETED, sealed=True)
        except StorageError as error:
            only_if_missing(error)
            raise Vanished from error

    def companion(self, kind: FileKind) -> bytes | None:
        """Read a companion like `Segment.companion`, also if it is pending deletion."""
        if kind is FileKind.OFFSET_INDEX and self.index is not None:
            return self.index
        found = super().companion(kind)
        if found is None and kind in self.companions:
            removed = replace(self, companions={kind: self.companions[kind] + _DELETED})
            return super(PlannedSegment, removed).companion(kind)
        return found


def only_if_missing(error: StorageError) -> None:
    """Raise an error again unless its cause is a missing file."""
    if not isinstance(error.__cause__, FileNotFoundError):
        raise error


class PlannedLogs:
    """The logs of some ranges; one thread reads each range once.

    With `skips`, segments that cannot be opened are no evidence of transactions, else they are errors.

    `place` returns the file system of a range's segment, and its path there. `known` are logs by folder, as they were
    listed for the plan; others are listed when transactions are asked for.
    """

    def __init__(
        self,
        isolation_level: IsolationLevel,
        place: Callable[[Range], tuple[FileSystem, str]],
        known: Mapping[str, LogFiles] | None = None,
        *,
        skips: bool = False,
    ) -> None:
        self._isolation_level, self._place, self._skips = isolation_level, place, skips
        self._known = {} if known is None else known
        self._transactions: dict[str, Transactions] = {}

    def segments(self, part: Range) -> list[Segment]:
        """Return the segment of a range, in a list."""
        files, path = self._place(part)
        companions = {kind: beside(path, kind) for kind in _KINDS}
        next_base = None if part.next_offset < 0 else part.next_offset
        name = (part.topic, part.partition)
        entry = (part.entry_offset - part.base_offset, part.start)
        index = None if part.entry_offset < 0 else OFFSET_INDEX_ENTRY.struct.pack(*entry)
        is_last = next_base is None and uploaded_end(files, path) is None
        return [
            PlannedSegment(
                files, path, part.base_offset, part.end, -1, is_last, *name, companions, next_base, index=index
            )
        ]

    def transactions(self, part: Range) -> Transactions | None:
        """Return the transactions of a range's log, one object for all its ranges; None if they are not needed."""
        if self._isolation_level != "read_committed":
            return None
        found = self._transactions.get(part.folder)
        if found is None:
            log = self._known.get(part.folder) or self.listed(part)
            there = {} if log is None else {segment.base_offset: segment for segment in log.segments}
            # A segment that vanished still has aborted transactions in its index.
            there.setdefault(part.base_offset, self.segments(part)[0])
            segments = [there[base] for base in sorted(there)]
            snapshots = {} if log is None else log.snapshots
            found = Transactions(segments, snapshots, part.first_offset, ends_stable=True, skips=self._skips)
            self._transactions[part.folder] = found
        return found

    def listed(self, part: Range) -> LogFiles | None:
        """List the log as it is now; None if the folder is missing or empty."""
        files, path = self._place(part)
        try:
            disk = open_folder(files, files.split(path)[0])
        except RequestError:
            return None
        except StorageError as error:
            only_if_missing(error)
            return None
        return logs_of(Disk((), disk.partitions))[0] if disk.partitions else None
