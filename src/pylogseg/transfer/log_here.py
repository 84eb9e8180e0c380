"""The log of a partition where it lies, in a log directory or a tier: its segments, and the facts beside them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pylogseg.disk.disk import Partition
from pylogseg.disk.lineage.chains import Lineage
from pylogseg.disk.small_files import SmallFile
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.names import FileKind


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
