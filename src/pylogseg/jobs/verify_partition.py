"""Checks of what lies between the segments of a partition: offsets, transactions, leftovers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from pylogseg.disk import OtherFile, Partition
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.files.checkpoint import parse_offset_checkpoint
from pylogseg.format.names import FileKind
from pylogseg.jobs.remarks import Level, Remark
from pylogseg.jobs.verify import SegmentReport
from pylogseg.jobs.verify_files import check_partition_files


class Explained(Protocol):
    """Where gaps are counted that compaction explains."""

    explained_gaps: int


def check_partition(
    partition: Partition, reports: Sequence[SegmentReport], summary: Explained, level: Level = Level.INDEXES
) -> Iterator[Remark]:
    """Check what no single segment can tell.

    Parameters
    ----------
    partition : Partition
        The replica.
    reports : sequence of SegmentReport
        Of all its segments, in their order.
    summary : Explained
        Its `explained_gaps` grows by the missing stretches of offsets that compaction explains.
    level : Level
        How much to check.

    Yields
    ------
    Remark
    """
    yield from _continuity(partition, reports, summary)
    yield from _unindexed_aborts(partition, reports)
    yield from _leftovers(partition)
    if level >= Level.INDEXES:
        yield from check_partition_files(partition, reports, level)


# ---- between segments ----

#: Topics that brokers always compact.
_COMPACTED_TOPICS = frozenset(["__consumer_offsets", "__transaction_state", "__share_group_state"])


def is_compacted(partition: Partition, reports: Sequence[SegmentReport]) -> bool:
    """Whether the cleaner went over the partition: batches tell, or the topic's name, or the cleaner's checkpoint."""
    if partition.topic in _COMPACTED_TOPICS or any(report.is_compacted for report in reports):
        return True
    files = partition.files
    beside = files.join(files.split(partition.path)[0], FileKind.CLEANER_OFFSETS.value)
    try:
        cleaned = parse_offset_checkpoint(files.read_all(beside), beside)
    except (CorruptionError, StorageError):
        return False
    return (partition.topic, partition.partition) in cleaned


class Gaps(NamedTuple):
    """Missing stretches of offsets: inside of segments, and in front of them (from, segment)."""

    inside: list[SegmentReport]
    between: list[tuple[int, SegmentReport]]

    @property
    def total(self) -> int:
        """How many stretches are missing."""
        return len(self.between) + sum(report.jumps for report in self.inside)


def gaps_of(reports: Sequence[SegmentReport]) -> Gaps:
    """Where offsets are missing; not behind damage, which has a remark already."""
    between = [
        (before.next_offset, after)
        for before, after in pairwise(reports)
        if after.first_offset > before.next_offset and not _is_torn(before)
    ]
    return Gaps([report for report in reports if report.jumps], between)


def _continuity(partition: Partition, reports: Sequence[SegmentReport], summary: Explained) -> Iterator[Remark]:
    for before, after in pairwise(reports):
        if before.next_offset > after.base_offset:
            last = before.next_offset - 1
            reason = f"offsets up to {last} are in the segment before, this one begins at {after.base_offset}"
            yield Remark(after.path, "overlap", True, reason, None, after.base_offset)
    gaps = gaps_of(reports)
    if not gaps.total:
        return
    if is_compacted(partition, reports):
        summary.explained_gaps += gaps.total
        return
    for report in gaps.inside:
        reason = f"{report.jumps} times offsets are missing between batches, and nothing tells of a compaction"
        yield Remark(report.path, "gap", False, reason, None, report.base_offset)
    for first, after in gaps.between:
        reason = f"offsets {first} to {after.first_offset - 1} are missing in front of this segment's first batch"
        yield Remark(after.path, "gap", False, reason, None, first)


def _is_torn(report: SegmentReport) -> bool:
    """Whether its end is not known: the damage has a remark already."""
    return any(remark.path == report.path and remark.is_damage for remark in report.remarks)


def _unindexed_aborts(partition: Partition, reports: Sequence[SegmentReport]) -> Iterator[Remark]:
    """Abort markers whose data began in an earlier segment, and that no index has."""
    ongoing: dict[int, int] = {}
    for segment, report in zip(partition.segments, reports, strict=True):
        for producer, offset in report.unindexed_aborts:
            if producer in ongoing:
                path = segment.path[: -len(FileKind.LOG.value)] + FileKind.TXN_INDEX.value
                reason = f"no entry for the abort marker of producer {producer} at offset {offset}"
                yield Remark(path, "transaction-index", True, reason, None, offset)
        for producer in report.ended:
            ongoing.pop(producer, None)
        ongoing = {**report.ongoing, **ongoing}


def _leftovers(partition: Partition) -> Iterator[Remark]:
    bases = {segment.base_offset for segment in partition.segments}
    by_suffix: dict[str, list[OtherFile]] = {}
    for other in partition.others:
        name = other.name
        if name.suffix:
            by_suffix.setdefault(name.suffix, []).append(other)
        elif name.kind.is_index and name.offset not in bases:
            yield Remark(other.path, "orphan", False, "an index without its segment", None, name.offset)
    for suffix, found in by_suffix.items():
        more = f", and {len(found) - 1} more with this suffix" if len(found) > 1 else ""
        yield Remark(found[0].path, "leftover", False, f"{_SUFFIXES[suffix]}{more}", None, found[0].name.offset)


_SUFFIXES = {
    ".deleted": "a deleted file that waits for its removal",
    ".cleaned": "the cleaner stopped while it wrote this",
    ".swap": "the cleaner stopped while it put this in place",
    ".part": "a snapshot whose writing stopped",
    ".tmp": "a file whose writing stopped",
}
