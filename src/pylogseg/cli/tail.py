"""The end of a log: find its last records, and follow new ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import LogDir, Partition
from pylogseg.disk.listing import open_dir
from pylogseg.errors import RequestError, StorageError, is_missing
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import log_of
from pylogseg.reading.partition import Chunk
from pylogseg.reading.seek import end_offset
from pylogseg.reading.stable_offset import Tail
from pylogseg.walker.gaps import GapKind

_POLL_SECONDS = 0.2
#: Between two searches for new partitions.
_LIST_SECONDS = 1.0


def last_records(reader: LogReader, count: int) -> LogReader:
    """Return a reader of the last `count` of the selected records.

    Starts near the end and goes further back each time, so that only the end is read.
    """
    if reader.log.error is not None:
        return reader
    end = min(reader.end_offset, end_offset(reader.log.segments))
    back = max(count, 64)
    while True:
        start = max(reader.first_offset, end - back)
        offsets = _last_offsets(replace(reader.apart(), first_offset=start), count)
        if len(offsets) >= count or start <= reader.first_offset:
            break
        back *= 8
    return replace(reader, first_offset=int(offsets[0]) if len(offsets) else max(end, reader.first_offset))


def _last_offsets(reader: LogReader, count: int) -> npt.NDArray[np.int64]:
    offsets = np.empty(0, np.int64)
    for chunk in reader.chunks():
        offsets = np.concatenate([offsets, chunk.columns.offset])
        offsets = offsets[max(0, len(offsets) - count) :]
    return offsets


class FollowedReader:
    """A partition that is polled for new records, by a reader without an end; each poll lists its folder again."""

    def __init__(self, reader: LogReader, partition: Partition) -> None:
        self.reader = replace(reader, log=reader.log._replace(tail=Tail()))
        self.path, self.is_gone = partition.path, False
        self._seen: tuple[int, int] | None = None

    def new(self) -> Iterator[Chunk]:
        """Yield the chunks after the last poll; none if the files have not changed."""
        last = self.reader.log.segments[-1] if self.reader.log.segments else None
        state = (last.base_offset, last.size) if last else (-1, 0)
        if state == self._seen:
            return
        self.reader.gaps.clear()
        try:
            for chunk in self.reader.read():
                if len(chunk.columns):
                    self.reader = replace(self.reader, first_offset=int(chunk.columns.offset[-1]) + 1)
                filtered = self.reader.filter_chunk(chunk)
                if len(filtered.columns):
                    yield filtered
        except StorageError as error:
            if not is_missing(error):
                raise
            return  # the cleaner replaced the segment: the next poll finds the new one
        # In a preallocated file an incomplete batch may become complete without a change of size.
        if not any(gap.kind in (GapKind.TORN, GapKind.ZEROS) for gap in self.reader.gaps):
            self._seen = state

    def list_again(self) -> None:
        """List the folder again: rolled and removed segments, and the size of the active one."""
        if self.reader.log.error is not None:
            return
        try:
            disk = open_dir(self.path)
        except RequestError:  # an empty folder: all files were moved or deleted
            return
        except StorageError as error:
            if is_missing(error):
                self.is_gone = True
                return
            raise
        log = log_of(disk.partitions[0])
        log_again = self.reader.log._replace(segments=log.segments, snapshots=log.snapshots)
        self.reader = replace(self.reader, log=log_again)


class Following:
    """Partitions that are followed together; some may appear in the log directories, others may be removed.

    `appeared` returns the partitions to follow when folders have appeared; `report` gets a line for each removed one.
    """

    def __init__(
        self,
        parts: list[FollowedReader],
        log_dirs: Sequence[LogDir],
        appeared: Callable[[], list[FollowedReader]],
        report: Callable[[str], None],
    ) -> None:
        self.parts, self._log_dirs, self._appeared, self._report = parts, log_dirs, appeared, report
        self._folders = self._list_folders()

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks of all partitions as they are appended, until no partition is left."""
        looked = time.monotonic()
        while True:
            for part in self.parts:
                yield from part.new()
            if not self.parts:
                return
            time.sleep(_POLL_SECONDS)
            for part in self.parts:
                part.list_again()
            if any(part.is_gone for part in self.parts) or time.monotonic() - looked > _LIST_SECONDS:
                looked = time.monotonic()
                self._look()

    def _look(self) -> None:
        gone = {part.reader.name: part for part in self.parts if part.is_gone}
        self.parts = [part for part in self.parts if not part.is_gone]
        folders = self._list_folders()
        if folders != self._folders:
            self._folders = folders
            paths = {part.path for part in self.parts}
            for part in self._appeared():
                if part.path in paths:
                    continue
                moved = gone.pop(part.reader.name, None)  # to another log directory: continue at the same offset
                if moved is not None:
                    part.reader = replace(part.reader, first_offset=moved.reader.first_offset)
                self.parts.append(part)
        for part in gone.values():
            self._report(f"{part.path}: removed, and no longer followed")

    def _list_folders(self) -> set[str]:
        """Return the paths of all folders in the log directories."""
        folders: set[str] = set()
        for log_dir in self._log_dirs:
            with contextlib.suppress(StorageError):
                entries = log_dir.files.list_folder(log_dir.path)
                folders.update(log_dir.files.join(log_dir.path, entry.name) for entry in entries if entry.is_dir)
        return folders
