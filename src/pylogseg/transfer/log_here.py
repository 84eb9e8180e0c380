"""The log of a partition where it lies, in a log directory or a tier: its segments, and the facts beside them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pylogseg.disk.disk import Partition
from pylogseg.disk.lineage.chains import Lineage
from pylogseg.disk.small_files import SmallFile
from pylogseg.errors import PylogsegError
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.names import FileKind
from pylogseg.log.producers import Producers
from pylogseg.reading.producers import producers_at
from pylogseg.transfer.segment_files import snapshot_file


@dataclass(eq=False, kw_only=True)
class LogHere:
    """A log that another one is made of, or that a table is."""

    partition: Partition
    epochs_file: SmallFile[list[EpochEntry]]
    watermark: int | None  #: The high watermark; None if nobody notes one.
    epochs: Sequence[EpochEntry] = ()  #: Those of the file, or those that something else proves.

    def __post_init__(self) -> None:
        self.epochs = self.epochs or self.epochs_file.value or []

    @property
    def name(self) -> str:
        return self.partition.name

    def lineage_to(self, end: int) -> Lineage:
        """Return its history up to an offset."""
        return Lineage.of(self.epochs, self.partition.log_start_offset, end)

    @functools.cached_property
    def snapshots(self) -> dict[int, str]:
        """The snapshots of producers in its folder: paths, by offset."""
        return self.files_by_offset(FileKind.PRODUCER_SNAPSHOT)

    def files_by_offset(self, kind: FileKind) -> dict[int, str]:
        """Return the paths of the files of a kind by the offsets in their names."""
        part = self.partition
        there = {o.name.offset: o.path for o in part.others if o.name.kind is kind and o.name.is_live}
        there |= {s.base_offset: s.companions[kind] for s in part.segments if kind in s.companions}
        return {offset: path for offset, path in there.items() if offset is not None}

    def producers_at(self, end: int) -> Producers:
        return producers_at(self.partition.segments, self.snapshots, self.partition.log_start_offset, end)

    def snapshot_at(self, end: int) -> bytes:
        """Return the snapshot of the producers at an offset: the file there, or one of what the log says."""
        data = self.read_snapshot(end)
        return snapshot_file(self.producers_at(end)) if data is None else data

    def read_snapshot(self, end: int) -> bytes | None:
        """Return the snapshot of an offset, if there is a file of it that can be read."""
        path = self.snapshots.get(end)
        if path is not None:
            with contextlib.suppress(PylogsegError):
                data = bytes(self.partition.files.read_all(path))
                parse_snapshot(data, path)
                return data
        return None
