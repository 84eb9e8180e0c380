"""The result of checking one segment, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pylogseg.inspect.verify.findings import Finding
from pylogseg.walker.gaps import Gap

#: Missing ranges of offsets of a segment that are listed one by one.
MAX_MISSING = 1000


class EpochRun(NamedTuple):
    """Batches of one leader epoch that follow each other."""

    epoch: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class SegmentReport:
    """The result of checking one segment."""

    path: str
    topic: str
    partition: int
    base_offset: int
    size: int
    level: int  #: The `Level` of the check.
    batches: int = 0  #: Good ones.
    records: int = 0  #: Those in compressed legacy wrappers are counted from level RECORDS on.
    first_offset: int = -1  #: Also the base offset if the first batch is a wrapper that was not decoded.
    next_offset: int = -1  #: After the last batch; the base offset if there is none.
    max_timestamp: int = -1  #: Of all headers, -1 if none.
    #: Half-open ranges between two batches: the first ones, up to `MAX_MISSING`.
    missing: list[tuple[int, int]] = field(default_factory=list)
    jumps: int = 0  #: The number of such ranges.
    begins_damaged: bool = False  #: True if the beginning of the segment cannot be read.
    end_gap: Gap | None = None  #: Between the last good batch and the end of the file.
    end_position: int = -1  #: The end of the file, as far as it was read.
    is_sampled: bool = False  #: Only some batches were looked at: counts, times and epochs are of these.
    is_compacted: bool = False  #: Batches lack records or have a delete horizon: offsets may be missing anywhere.
    has_markers: bool = False  #: Ends of transactions are among the batches.
    epochs: list[EpochRun] = field(default_factory=list)  #: Leader epochs in order; none of batches of magic 0 and 1.
    has_legacy: bool = False  #: Batches of magic 0 or 1, which have no leader epoch.
    #: Producer and offset of abort markers without an index entry and data here.
    unindexed_aborts: list[tuple[int, int]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)  #: Producers with a marker in the segment.
    #: Producers with data after their last marker, and its first offset.
    ongoing: dict[int, int] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)  #: What was not checked, and why.
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_end_known(self) -> bool:
        """True if the segment ends at `next_offset`: after damage, nobody knows."""
        return self.end_position >= 0 and (self.end_gap is None or not self.end_gap.is_damage)

    @property
    def is_damaged(self) -> bool:
        """True if something is damaged, or was not looked at."""
        return any(finding.is_damage or finding.is_unread for finding in self.findings)
