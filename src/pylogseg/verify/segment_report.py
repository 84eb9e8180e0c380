"""The result of checking one segment, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from pylogseg.verify.remarks import Remark
from pylogseg.walker.findings import Gap

#: Missing ranges of offsets of a segment that are listed one by one.
MAX_MISSING = 1000


@dataclass(slots=True)
class SegmentReport:
    """The result of checking one segment.

    Attributes
    ----------
    path, topic, partition, base_offset, size
        As `pylogseg.catalog.disk.Segment` has them.
    level : int
        The `Level` of the check.
    batches, records : int
        Good ones. Records in compressed legacy wrappers are counted from level RECORDS on.
    first_offset, next_offset : int
        Of the first batch, and after the last; the base offset if there is none. `first_offset` is also the base offset
        if the first batch is a wrapper that was not decoded.
    max_timestamp : int
        Of all headers, -1 if none.
    missing : list of (int, int)
        Half-open ranges of offsets that are missing between two batches: the first ones, up to `MAX_MISSING`.
    jumps : int
        The number of such ranges.
    begins_damaged : bool
        Whether the beginning of the segment cannot be read.
    end_gap : Gap or None
        The gap between the last good batch and the end of the file.
    end_position : int
        The end of the file, as far as it was read.
    is_compacted : bool
        Whether batches lack records or have a delete horizon: then offsets may be missing anywhere.
    epochs : list of (int, int)
        Leader epochs in order, each with its first offset.
    unindexed_aborts : list of (int, int)
        Abort markers without an index entry and without data in this segment: producer, offset.
    ended, ongoing : list of int, dict of int to int
        Producers with a marker in the segment; those with transactional data after their last marker, and its first
        offset.
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
        """True if the segment ends at `next_offset`: after damage, nothing is known."""
        return self.end_position >= 0 and (self.end_gap is None or not self.end_gap.is_damage)

    @property
    def is_damaged(self) -> bool:
        """True if a remark is damage."""
        return any(remark.is_damage for remark in self.remarks)
