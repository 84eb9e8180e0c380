"""Checks across the segments of a partition: offsets, transactions, leftovers."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from typing import Protocol

from pylogseg.disk.disk import Partition, Segment, beside
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.escape import printable
from pylogseg.format.files.cuts import Cut, parse_cuts, without
from pylogseg.format.names import FileKind, parse_file_name
from pylogseg.inspect.verify.epochs import check_leader_epochs
from pylogseg.inspect.verify.files import check_partition_files
from pylogseg.inspect.verify.findings import PERHAPS_COMPACTED, REMEDIES, Finding, Level, of_error, of_failure
from pylogseg.inspect.verify.missing import Checkpoints, Missing, check_ends, check_orphans, gaps_of
from pylogseg.inspect.verify.segment import header_report, verify_segment
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.partition import PartitionReader
from pylogseg.reading.state import SKIPPING
from pylogseg.values.internal.cluster import ClusterMetadata
from pylogseg.walker.gaps import offsets_text
from pylogseg.walker.windows import SMALL_WINDOW_BYTES

#: Missing ranges of offsets of a partition that are listed one by one.
MAX_LISTED = 10_000


class Reports:
    """The reports of a partition's segments, in order, reduced to the facts for checks across segments."""

    def __init__(self, log_start_offset: int) -> None:
        self._start = log_start_offset
        #: Without findings and transactions; with at most `MAX_LISTED` missing ranges in total.
        self.reports: list[SegmentReport] = []
        #: Abort markers without an index entry whose data began in an earlier segment.
        self.unindexed_aborts: list[Finding] = []
        #: Producers with an open transaction at the end, and its first offset.
        self.ongoing: dict[int, int] = {}
        self._room = MAX_LISTED

    def add(self, segment: Segment, report: SegmentReport) -> None:
        for producer, offset in report.unindexed_aborts:
            # A replica that began at the log start does not know of data below it, which a tier may still have.
            if self.ongoing.get(producer, -1) >= self._start:
                path = beside(segment.path, FileKind.TXN_INDEX)
                reason = f"no entry for the abort marker of producer {producer} at offset {offset}"
                self.unindexed_aborts.append(Finding(path, "transaction-index", True, reason, None, offset))
        for producer in report.ended:
            self.ongoing.pop(producer, None)
        self.ongoing = {**report.ongoing, **self.ongoing} if report.ongoing else self.ongoing
        missing = report.missing[: self._room]
        self._room -= len(missing)
        self.reports.append(replace(report, missing=missing, findings=[], unindexed_aborts=[], ended=[], ongoing={}))


class Explained(Protocol):
    """An object that counts the gaps explained by compaction."""

    explained_gaps: int


def check_partition(
    partition: Partition,
    taken: Reports,
    summary: Explained,
    level: Level = Level.INDEXES,
    *,
    checkpoints: Checkpoints | None = None,
    cluster: ClusterMetadata | None = None,
) -> Iterator[Finding]:
    """Run the checks that need all segments of a partition; the summary counts the gaps that compaction explains."""
    reports = taken.reports
    swaps = list(check_swaps(partition, reports, checkpoints, cluster, level))
    spans = {(finding.offset, finding.last_offset) for finding in swaps}
    for finding in check_continuity(partition, reports, summary, checkpoints, cluster):
        if (finding.offset, finding.last_offset) not in spans:
            yield finding
    yield from taken.unindexed_aborts
    yield from _leftovers(partition, {".swap"} if swaps else set())
    yield from swaps
    if level >= Level.INDEXES:
        yield from check_orphans(partition, reports)
        yield from check_ends(partition, reports, checkpoints, cluster)
        yield from check_partition_files(partition, level)
        if not partition.state:
            yield from check_leader_epochs(partition, reports, checkpoints)


# ---- between segments ----

#: Topics that brokers always compact.
_COMPACTED_TOPICS = frozenset(["__consumer_offsets", "__transaction_state", "__share_group_state"])


def is_compacted(
    partition: Partition,
    reports: Sequence[SegmentReport],
    checkpoints: Checkpoints | None = None,
    cluster: ClusterMetadata | None = None,
) -> bool:
    """Check whether the log is compacted, by its batches, topic name, settings or the cleaner's checkpoint."""
    if partition.topic in _COMPACTED_TOPICS or any(report.is_compacted for report in reports):
        return True
    if cluster is not None and "compact" in cluster.of_topic(partition.topic).get("cleanup.policy", ""):
        return True
    key = partition.topic, partition.partition
    return checkpoints is not None and checkpoints.of(FileKind.CLEANER_OFFSETS, key) is not None


def check_continuity(
    partition: Partition,
    reports: Sequence[SegmentReport],
    summary: Explained,
    checkpoints: Checkpoints | None,
    cluster: ClusterMetadata | None,
) -> Iterator[Finding]:
    """Check for offsets that two segments have or none; the summary counts the gaps that compaction explains."""
    for before, after in pairwise(reports):
        if before.next_offset > after.base_offset:
            last = before.next_offset - 1
            reason = f"offsets up to {last} are in the segment before, this one begins at {after.base_offset}"
            yield Finding(after.path, "overlap", True, reason, None, after.base_offset, last)
    gaps = gaps_of(reports, partition.log_start_offset)
    unlisted = sum(report.jumps - len(report.missing) for report in reports)
    if not gaps and not unlisted:
        return
    if is_compacted(partition, reports, checkpoints, cluster):
        summary.explained_gaps += len(gaps) + unlisted
        return
    cuts = yield from _cuts(partition)
    left = []
    for gap in gaps:
        ranges, taken = without(gap.first, gap.end, cuts)
        left += [gap._replace(first=first, end=end) for first, end in ranges]
        yield from (_cut_out(gap, cut) for cut in taken)
    if not left and not unlisted:
        return
    is_lost = _never_compacted(partition, checkpoints, cluster)
    kind, why = "gap", "with no sign of compaction"
    if not is_lost and checkpoints is not None and checkpoints.partitions:
        kind, why = PERHAPS_COMPACTED, "not known why: a lost segment, or a range that the leader compacted"
    for gap in left:
        missing = f"{offsets_text(gap.first, gap.end)} {'is' if gap.end == gap.first + 1 else 'are'} missing"
        yield Finding(gap.path, kind, is_lost, f"{missing} {gap.where}, {why}", None, gap.first, gap.end - 1)
    if unlisted:
        yield Finding(partition.path, kind, is_lost, f"and {unlisted} more ranges of offsets are missing")


def _cuts(partition: Partition) -> Generator[Finding, None, list[Cut]]:
    """Return the ranges that commands have cut out on purpose; yield a finding if their note cannot be read."""
    for other in partition.others:
        if other.name.kind is FileKind.CUTS and other.name.is_live:
            try:
                return parse_cuts(partition.files.read_all(other.path), other.path)
            except CorruptionError as error:
                yield of_error("cut", error)
            except StorageError as error:
                yield of_failure(error)
    return []


def _cut_out(gap: Missing, cut: Cut) -> Finding:
    day = datetime.fromtimestamp(cut.at_ms / 1000, timezone.utc).date()
    first, end = max(gap.first, cut.first_offset), min(gap.end, cut.next_offset)
    was = "was" if end == first + 1 else "were"
    reason = f"{offsets_text(first, end)} {was} cut out on purpose by `{cut.command}`, on {day}: {cut.reason}"
    return Finding(gap.path, "cut", False, printable(reason), None, first, end - 1)


def _never_compacted(partition: Partition, checkpoints: Checkpoints | None, cluster: ClusterMetadata | None) -> bool:
    """Check whether the settings show that a log without a sign of compaction never was compacted.

    Checkpoints that name no cleaner do not tell alone: a follower of ZooKeeper's time may have copied a compacted log.
    """
    has_checkpoints = checkpoints is not None and bool(checkpoints.partitions)
    return _is_policy_known(partition, cluster) or (has_checkpoints and _is_keyless(partition))


def _is_keyless(partition: Partition) -> bool:
    """Check whether a record near the beginning of some segment has no key, which no compacted topic takes."""
    for segment in partition.segments:
        state = replace(SKIPPING, on_corrupt="stop").start(
            window_bytes=SMALL_WINDOW_BYTES, first_window_bytes=SMALL_WINDOW_BYTES
        )
        for chunk in PartitionReader([segment], 0, OPEN_END, state):
            if len(chunk.columns):
                if (chunk.columns.key_size < 0).any():
                    return True
                break
    return False


def _is_policy_known(partition: Partition, cluster: ClusterMetadata | None) -> bool:
    """Check whether there is a cleanup policy; a partition's own files do not show it."""
    return cluster is not None and partition.topic in cluster.topic_ids


def _leftovers(partition: Partition, reported: Collection[str] = ()) -> Iterator[Finding]:
    """Yield leftovers of an interrupted operation by suffix, except suffixes that are reported already."""
    by_suffix: dict[str, list[tuple[str, int | None]]] = {}
    segments = [(segment.path, parse_file_name(segment.name)) for segment in partition.segments]
    for path, name in [*segments, *((other.path, other.name) for other in partition.others)]:
        if name.suffix and name.suffix not in reported:
            by_suffix.setdefault(name.suffix, []).append((path, name.offset))
    for suffix, files in by_suffix.items():
        more = f", and {len(files) - 1} more with this suffix" if len(files) > 1 else ""
        yield Finding(files[0][0], "leftover", False, f"{_SUFFIXES[suffix]}{more}", None, files[0][1])


def check_swaps(
    partition: Partition,
    reports: Sequence[SegmentReport],
    checkpoints: Checkpoints | None,
    cluster: ClusterMetadata | None,
    level: Level = Level.HEADERS,
) -> Iterator[Finding]:
    """Check the `.swap` segments that replace segments at a load."""
    swaps = []
    for segment in partition.segments:
        if segment.is_swapped_in:
            swaps.append(verify_segment(replace(segment, is_last=False), min(level, Level.RECORDS)))
            bad = next((finding for finding in swaps[-1].findings if finding.is_damage), None)
            if bad is not None:
                reason = f"a load would replace other segments by this file, and it is damaged: {bad.reason}"
                yield Finding(segment.path, "swap", True, reason, bad.position, bad.offset, bad.last_offset)
    if swaps and not any(swap.is_damaged for swap in swaps):
        replaced = [
            header_report(Segment(partition.files, other.path, other.name.offset, other.size, 0, False))
            for other in partition.others
            if other.name.kind is FileKind.LOG and not other.name.suffix and other.name.offset is not None
        ]
        is_cleaned = is_compacted(partition, [*reports, *replaced], checkpoints, cluster)
        is_lost = not is_cleaned and _never_compacted(partition, checkpoints, cluster)
        yield from _check_replaced(swaps, replaced, is_cleaned, is_lost)


def _check_replaced(
    swaps: Sequence[SegmentReport], replaced: Sequence[SegmentReport], is_cleaned: bool, is_lost: bool
) -> Iterator[Finding]:
    """Check for offsets and records that are in the replaced segments, and not in the `.swap` files."""
    first, last = min(swap.base_offset for swap in swaps), max(swaps, key=lambda swap: swap.next_offset)
    end = last.next_offset
    old_end = max((report.next_offset for report in replaced), default=end)
    if old_end > end:
        reason = (
            f"a load would replace segments that end with offset {old_end - 1} by this file, which ends with "
            f"{end - 1}: {offsets_text(end, old_end)} would be deleted"
        )
        if is_cleaned or is_lost:
            reason += "; the cleaner may have removed them" if is_cleaned else ", with no sign of compaction"
            yield Finding(last.path, "swap", is_lost, reason, None, end, old_end - 1)
            return
        reason += ", and it is not known whether the topic is compacted"
        where = (last.path, PERHAPS_COMPACTED, False, reason, None, end, old_end - 1)
        yield Finding(*where, other_remedy=REMEDIES["swap"])
        return
    before, after = sum(report.records for report in replaced), sum(swap.records for swap in swaps)
    if before > after:
        reason = (
            f"a load would replace segments with {before:,} records by .swap files with {after:,}: normal after a "
            "cleaning, unless these files were copied at different times"
        )
        yield Finding(last.path, "swap", False, reason, None, first, end - 1)


_SUFFIXES = {
    ".deleted": "a deleted file that waits for its removal",
    ".cleaned": "the cleaner stopped while it wrote this",
    ".swap": "the cleaner stopped while it put this in place",
    ".part": "a snapshot whose writing stopped",
    ".tmp": "a file whose writing stopped",
}
