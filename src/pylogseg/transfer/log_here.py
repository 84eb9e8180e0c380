"""The log of a partition where it lies, in a log directory or a tier: its segments, and the facts beside them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pylogseg.disk.disk import Partition
from pylogseg.disk.lineage.chains import Lineage
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.small_files import SmallFile, read_leader_epochs, read_partition_metadata
from pylogseg.errors import PylogsegError
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.names import FileKind
from pylogseg.log.producers import Producers
from pylogseg.reading.logs import LogFiles, log_of
from pylogseg.reading.producers import producers_at
from pylogseg.transfer.segment_files import snapshot_file


@dataclass(eq=False, kw_only=True)
class LogHere:
    """A log that another one is made of, or that a table is; each small file is read when it is first asked for."""

    partition: Partition
    checkpoints: OffsetCheckpoints  #: Of its log directory.
    watermark: int | None  #: The high watermark; None if nobody notes one.
    doubt: str = ""  #: Why the high watermark is not known, and what counts instead; else empty.

    @functools.cached_property
    def log(self) -> LogFiles:
        """The log as readers take it."""
        return log_of(self.partition)

    @property
    def name(self) -> str:
        return self.log.name

    @functools.cached_property
    def epochs_file(self) -> SmallFile[list[EpochEntry]]:
        return read_leader_epochs(self.partition.files, self.partition.path)

    @functools.cached_property
    def epochs(self) -> Sequence[EpochEntry]:
        """The leader epochs of the file, until an archive run sets the proved ones."""
        return self.epochs_file.value or []

    @functools.cached_property
    def id_file(self) -> SmallFile[str]:
        return read_partition_metadata(self.partition.files, self.partition.path)

    @functools.cached_property
    def cleaned_to(self) -> SmallFile[int]:
        """The offset up to which the cleaner was here, with the state of its checkpoint."""
        return self.checkpoints.entry(FileKind.CLEANER_OFFSETS, self.partition.topic, self.partition.partition)

    @property
    def is_cleaned(self) -> bool:
        """True if the cleaner was here, as far as its checkpoint says."""
        return (self.cleaned_to.value or 0) > self.partition.log_start_offset

    def read_files(self) -> None:
        """Read all of these files now: a broker may write them anew, or remove the folder."""
        _ = self.epochs_file, self.id_file, self.cleaned_to

    def lineage_to(self, end: int) -> Lineage:
        """Return its history up to an offset."""
        return Lineage.of(self.epochs, self.partition.log_start_offset, end)

    def files_by_offset(self, kind: FileKind) -> dict[int, str]:
        """Return the paths of the files of a kind by the offsets in their names."""
        others = [other for other in self.partition.others if other.name.kind is kind and other.name.is_live]
        return {other.name.offset: other.path for other in others if other.name.offset is not None}

    def producers_at(self, end: int) -> Producers:
        return producers_at(self.log.segments, self.log.snapshots, self.partition.log_start_offset, end)

    def snapshot_at(self, end: int) -> bytes:
        """Return the producer snapshot at an offset: the file there, or one made from the log's batches."""
        data = self.read_snapshot(end)
        return snapshot_file(self.producers_at(end)) if data is None else data

    def read_snapshot(self, end: int) -> bytes | None:
        """Return the snapshot of an offset, if there is a file of it that can be read."""
        path = self.log.snapshots.get(end)
        if path is not None:
            with contextlib.suppress(PylogsegError):
                data = bytes(self.partition.files.read_all(path))
                parse_snapshot(data, path)
                return data
        return None
