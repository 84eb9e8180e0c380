"""The result of checking one segment, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from pylogseg.verify.remarks import Remark
from pylogseg.walker.findings import Gap

#: Missing stretches of offsets of a segment that are listed one by one.
MAX_MISSING = 1000


@dataclass(slots=True)
class SegmentReport:
    """What became of the check of one segment.

    Attributes
    ----------
    path, topic, partition, base_offset, size
        As `pylogseg.catalog.disk.Segment` has them.
    level : int
        The `Level` that was asked for.
    batches, records : int
        Good ones; of compressed legacy wrappers the records are known from level RECORDS on, and not counted below.
    first_offset, next_offset : int
        Of the first batch, and behind the last; both the base offset if there is none. The first is also that where it
        could be told only by decoding.
    max_timestamp : int
        Of all headers, -1 if none.
    missing : list of (int, int)
        Offsets that are missing between two batches, half-open: the first stretches, up to `MAX_MISSING`.
    jumps : int
        How many stretches there are.
    begins_damaged : bool
        Whether what the first batches were cannot be read.
    end_gap : Gap or None
        What lies between the last good batch and the end of the file.
    end_position : int
        Of the file, as far as it was read.
    is_compacted : bool
        Whether batches lack records or have a delete horizon: then offsets may be missing anywhere.
    epochs : list of (int, int)
        Leader epochs in order, each with the first offset of its batches.
    unindexed_aborts : list of (int, int)
        Abort markers without an entry in the transaction index, whose data was not seen here either: producer, offset.
    ended, ongoing : list of int, dict of int to int
        Producers with a marker in the segment; those with transactional data behind their last marker, and the first
        offset of it.
    undecided : list of str
        What was not checked, and why.
    remarks : list of Remark
    """

    path: str
    topic: str
    partition: int
    base_offset: int
    size: int
    level: int
    batches: int = 0
    records: int = 0
    first_offset: int = -1
    next_offset: int = -1
    max_timestamp: int = -1
    missing: list[tuple[int, int]] = field(default_factory=list)
    jumps: int = 0
    begins_damaged: bool = False
    end_gap: Gap | None = None
    end_position: int = -1
    is_compacted: bool = False
    epochs: list[tuple[int, int]] = field(default_factory=list)
    unindexed_aborts: list[tuple[int, int]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    ongoing: dict[int, int] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    @property
    def is_end_known(self) -> bool:
        """Whether `next_offset` is where the segment ends: nothing is known behind damage."""
        return self.end_position >= 0 and (self.end_gap is None or not self.end_gap.is_damage)

    @property
    def is_damaged(self) -> bool:
        """Whether any remark is about damage."""
        return any(remark.is_damage for remark in self.remarks)
