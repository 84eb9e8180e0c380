"""Keys with most records or bytes, and the largest records, in bounded memory; results can be merged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.disk.disk import Segment
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES, RecordColumns
from pylogseg.inspect.stats.sketch import Heaviest
from pylogseg.reading.partition import PartitionReader
from pylogseg.reading.state import SKIPPING


class TopRecord(NamedTuple):
    """A record that was read again for display."""

    segment: Segment
    offset: int
    key: bytes | None
    key_bytes: int
    value_bytes: int
    timestamp: int


@dataclass
class Tops:
    """Keys with most records and most bytes of keys and values, and the largest records."""

    key_count: int = 0  #: Requested, as `record_count`.
    record_count: int = 0
    by_records: Heaviest = field(default_factory=Heaviest)
    by_bytes: Heaviest = field(default_factory=Heaviest)
    #: Of the largest records, the largest first.
    sizes: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    offsets: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    owners: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  #: Numbers in `segments`.
    segments: list[Segment] = field(default_factory=list)  #: Those that were counted.

    def of(self, segment: Segment) -> Tops:
        """Return an empty object for one segment, with the same numbers requested."""
        return Tops(self.key_count, self.record_count, segments=[segment])

    def add(self, columns: RecordColumns, hashes: npt.NDArray[np.uint64]) -> None:
        """Add records of the last segment; `hashes` are the hashes of their keys, from `_gather.hash_spans`."""
        sizes = np.maximum(columns.key_size, 0).astype(np.int64) + np.maximum(columns.value_size, 0)
        owner = len(self.segments) - 1
        if self.key_count:
            keyed = columns.key_size >= 0
            places = np.column_stack((np.full(len(columns), owner), columns.offset))[keyed]
            self.by_records.add(hashes[keyed], np.ones(len(places), np.int64), places)
            self.by_bytes.add(hashes[keyed], sizes[keyed], places)
        if self.record_count:
            self._add_largest(sizes, columns.offset, np.full(len(columns), owner))

    def _add_largest(
        self, sizes: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], owners: npt.NDArray[np.int64]
    ) -> None:
        if len(self.sizes) >= self.record_count:
            larger = sizes > self.sizes[-1]
            sizes, offsets, owners = sizes[larger], offsets[larger], owners[larger]
        if not len(sizes):
            return
        sizes = np.concatenate([self.sizes, sizes])
        best = np.argsort(-sizes, kind="stable")[: self.record_count]
        self.sizes = sizes[best]
        self.offsets = np.concatenate([self.offsets, offsets])[best]
        self.owners = np.concatenate([self.owners, owners])[best]

    def merge(self, other: Tops) -> None:
        before = len(self.segments)
        self.segments += other.segments
        for mine, others in ((self.by_records, other.by_records), (self.by_bytes, other.by_bytes)):
            mine.merge(others, before)
        if self.record_count:
            self._add_largest(other.sizes, other.offsets, other.owners + before)

    def trim(self) -> Tops:
        """Return only the requested number of items: it takes little memory, and nothing can be merged into it."""
        tops = Tops(self.key_count, self.record_count, segments=self.segments)
        tops.by_records, tops.by_bytes = (part.trim(self.key_count) for part in (self.by_records, self.by_bytes))
        tops.sizes, tops.offsets, tops.owners = self.sizes, self.offsets, self.owners
        return tops

    def keys(self, by: Heaviest, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> list[tuple[TopRecord | None, int]]:
        """Return a record with each of the heaviest keys (None if it was deleted meanwhile), and its weight."""
        return [
            (again(self.segments[owner], offset, limit_bytes), weight)
            for (owner, offset), weight in by.first(self.key_count)
        ]

    def largest(self, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> list[tuple[Segment, int, int, TopRecord | None]]:
        """Return segment, offset, bytes and record (None if it was deleted meanwhile) of the largest records."""
        rows = zip(self.owners.tolist(), self.offsets.tolist(), self.sizes.tolist(), strict=True)
        return [
            (self.segments[owner], offset, size, again(self.segments[owner], offset, limit_bytes))
            for owner, offset, size in rows
        ]


def again(segment: Segment, offset: int, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> TopRecord | None:
    """Read one record; None if it cannot be read any more."""
    state = replace(SKIPPING, max_decompressed_bytes=limit_bytes).start()
    try:
        for columns, _ in PartitionReader([segment], offset, offset + 1, state):
            if len(columns):
                sizes = int(columns.key_size[0]), int(columns.value_size[0])
                return TopRecord(segment, offset, columns.key(0), *sizes, int(columns.timestamp[0]))
    except (StorageError, CorruptionError):  # the broker has removed or replaced the segment
        pass
    return None
