"""Segments as planned, and as they are in their folder when a task reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pylogseg.catalog.disk import Disk, Segment, open_dir
from pylogseg.env.filesystem import FileView, file_system
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.names import FileKind
from pylogseg.reading.log_reader import LogFiles, logs_of
from pylogseg.reading.transactions import Transactions
from pylogseg.spark.options import SourceOptions
from pylogseg.spark.plan import Range

#: A broker renames what retention deletes, and removes it a minute later.
_DELETED = ".deleted"


class Vanished(Exception):
    """A segment of the plan is missing, and is not pending deletion either."""


@dataclass(frozen=True)
class PlannedSegment(Segment):
    """A segment that was there when the plan was made."""

    def open(self) -> FileView:
        """Open the file like `Segment.open`; also if it is pending deletion.

        Raises
        ------
        Vanished
            If it was deleted.
        """
        try:
            return super().open()
        except StorageError as error:
            _only_if_missing(error)
        try:
            return self.files.open(self.path + _DELETED, sealed=True)
        except StorageError as error:
            _only_if_missing(error)
            raise Vanished from error

    def companion(self, kind: FileKind) -> bytes | None:
        """As `Segment.companion`."""
        found = super().companion(kind)
        if found is None and kind in self.companions:
            removed = replace(self, companions={kind: self.companions[kind] + _DELETED})
            return super(PlannedSegment, removed).companion(kind)
        return found


def _only_if_missing(error: StorageError) -> None:
    """Raise an error again that has another reason than a file that is not there."""
    if not isinstance(error.__cause__, FileNotFoundError):
        raise error


class PlannedLogs:
    """The logs of a task's ranges."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._transactions: dict[str, Transactions] = {}

    def segments(self, part: Range) -> list[Segment]:
        """The segment of a range."""
        files, path = file_system(part.path, self._options.storage)
        stem = path.removesuffix(FileKind.LOG.value)
        kinds = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
        companions = {kind: stem + kind.value for kind in kinds}
        next_base = None if part.next_offset < 0 else part.next_offset
        name = (part.topic, part.partition)
        return [
            PlannedSegment(files, path, part.base_offset, part.end, -1, next_base is None, *name, companions, next_base)
        ]

    def transactions(self, part: Range) -> Transactions | None:
        """Return the transactions of a range's log, one object for all its ranges; None if they are not needed."""
        if self._options.isolation_level != "read_committed":
            return None
        found = self._transactions.get(part.folder)
        if found is None:
            log = self.listed(part)
            there = {} if log is None else {segment.base_offset: segment for segment in log.segments}
            # One that vanished has aborts of its own in its index.
            there.setdefault(part.base_offset, self.segments(part)[0])
            segments = [there[base] for base in sorted(there)]
            snapshots = {} if log is None else log.snapshots
            found = Transactions(segments, snapshots, part.first_offset, ends_stable=True)
            self._transactions[part.folder] = found
        return found

    def listed(self, part: Range) -> LogFiles | None:
        """The log as its folder has it now; None without the folder, or with nothing in it."""
        try:
            disk = open_dir(part.folder, storage=self._options.storage)
        except RequestError:
            return None
        except StorageError as error:
            _only_if_missing(error)
            return None
        return logs_of(Disk((), disk.partitions))[0] if disk.partitions else None
