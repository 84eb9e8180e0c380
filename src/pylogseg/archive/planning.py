"""The plan of a partition: the offsets that the archive lacks, and the replica that gives each range. No segment is
read for it, but where copies differ, or no file says where the log ends.

An archived segment equals the disk's records if the leader epochs continue from it: epoch and offset identify a batch.
So it rests on these, and on what a cleaner does: it only removes. Where a topic is compacted, the bytes between two
offsets have to be as many as before.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pylogseg.archive.seen import Lack, LogKey, SeenCluster, SeenCopy
from pylogseg.disk.disk import Segment
from pylogseg.disk.lineage.authority import Choice, Known, Rule, choose, judge
from pylogseg.disk.lineage.chains import Lineage, divergence
from pylogseg.disk.small_files import FileState
from pylogseg.disk.tier.point import ArchivedPartition, ArchivedSegment
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.inspect.verify.lacking import Look
from pylogseg.reading.seek import end_of
from pylogseg.values.internal.cluster import INTERNAL_TOPICS
from pylogseg.walker.gaps import offsets_text

#: A segment that was archived in more pieces, while it was the active one, goes up whole once it is sealed.
MOST_PIECES = 4


@dataclass
class PartitionPlan:
    """The work that a partition needs."""

    key: LogKey
    copies: list[SeenCopy]  #: In the order in which they are asked.
    limits: list[int]  #: Up to which offset each has the same log.
    lineage: Lineage
    start: int
    end: int
    ended_by: str
    is_compacted: bool
    agreed: list[ArchivedSegment] = field(default_factory=list)  #: What was archived, as far as it is of this log.
    kept: list[ArchivedSegment] = field(default_factory=list)
    lost: Mapping[str, ArchivedSegment] = field(default_factory=dict)  #: Archived, but the store lost objects of them.
    lacking: list[tuple[int, int]] = field(default_factory=list)  #: Half-open ranges of offsets to upload.
    joined: set[int] = field(default_factory=set)  #: Where those of them begin that are archived in many pieces.
    notes: list[str] = field(default_factory=list)
    saved: list[Lack] = field(default_factory=list)  #: Lacks of the first copy that what was archived fills.
    doubts: list[str] = field(default_factory=list)  #: Faults of a disk, of which the archive lacks nothing.
    fault: str = ""
    known_ids: frozenset[str] = frozenset()  #: Of the segments that the newest point has.
    is_changed: bool = False  #: True if a sealed segment has other bytes than what was archived of it.
    is_unmarked: bool = False  #: True if a running broker has not noted a high watermark of it yet.

    @property
    def name(self) -> str:
        return f"{self.key[0]}-{self.key[2]}"

    @property
    def folder(self) -> str:
        """Where its segments lie in the archive."""
        return f"{self.key[0]}-{self.key[1]}/{self.key[2]}"

    def needs_look(self, past: ArchivedPartition | None) -> Look | None:
        """Return how the headers have to be looked at, since something about the log is new; None if nothing is."""
        if past is None or self.is_compacted:
            is_new = past is None or self.is_changed or bool(past.fault)
            return Look.OUTLINE if is_new else None
        if self.is_changed or past.fault:
            return Look.HEADERS
        return Look.OUTLINE if self.start > past.start_offset else None

    @property
    def size(self) -> int:
        """About the bytes that have to be read."""
        segments = self.copies[0].partition.segments
        return sum(s.size for s in segments if any(s.base_offset < e and _end(s) > b for b, e in self.lacking))


def _end(segment: Segment) -> int:
    return 2**63 - 1 if segment.next_base is None else segment.next_base


@dataclass(frozen=True)
class Past:
    """A partition as the newest point has it, if it does."""

    partition: ArchivedPartition | None = None
    path: str = ""  #: Of the disk that it came from, which is asked first while it has all.
    #: Segments of which the store lost objects, by ids.
    lost: Mapping[str, ArchivedSegment] = field(default_factory=dict)
    time_ms: int = -1  #: Of the look at the disks.


def plan_partition(
    key: LogKey, copies: Sequence[SeenCopy], seen: SeenCluster, before: Past, *, to_end: bool = False
) -> PartitionPlan:
    """Plan a partition: the ranges that the newest point has, and for each missing range its source.

    With `to_end`, a log without a high watermark counts as committed up to its end.
    """
    past = before.partition
    _find_ends(key, copies, past, seen)
    known = None if seen.metadata is None else seen.metadata.leaders.get(key[1:])
    choice = choose([copy.replica for copy in copies], known)
    verdict = judge([copy.replica for copy in copies], choice)
    lineage, chosen = verdict.lineage, copies[choice.replica]
    same = [divergence(lineage, copy.lineage) for copy in copies]
    limits = [0 if each.epoch is None else each.offset for each in same]
    limits[choice.replica] = max(limits[choice.replica], chosen.end)
    start = chosen.partition.log_start_offset
    # A record that a point has, in the same epoch, was committed before it.
    agreed, marked = _find_agreed_end(past, lineage), max(start, min(verdict.committed, lineage.end))
    ended_by = past.ended_by if past is not None and marked < agreed == past.end_offset else "watermark"
    committed = max(marked, agreed)
    plan = PartitionPlan(key, [], [], lineage, start, committed, ended_by, _is_compacted(key, copies, seen))
    is_unset = verdict.committed <= start < lineage.end and not _is_running(copies, seen)
    if key[0] == METADATA_TOPIC:
        plan.end, plan.ended_by = lineage.end, "log end"
    elif is_unset or all(copy.watermark is None for copy in copies):
        _end_without_mark(plan, copies, choice, known, seen, to_end)
    elif (lost := max((each.end_offset for each in verdict.lost if each.is_committed), default=0)) > plan.end:
        plan.fault = f"offsets {plan.end} to {lost - 1} were committed, and no disk that was seen has them"
    if choice.absent and choice.rule not in (Rule.ISR, Rule.ELR) and all(copy.node_id is not None for copy in copies):
        plan.fault = plan.fault or (
            f"brokers {', '.join(map(str, choice.absent))} were in sync, and none of their disks was given: "
            f"committed records may lie behind offset {plan.end}"
        )
    plan.notes += [
        f"{plan.name}: {seen.disks[copies[alarm.replica].disk].path} has records from offset {alarm.first_offset} on,"
        f" of leader epoch {alarm.epoch}, that were committed up to {alarm.high_watermark}; the log has epoch"
        f" {alarm.log_epoch} there, by {seen.disks[chosen.disk].path}"
        for alarm in verdict.alarms
    ]

    def order(number: int) -> tuple[bool, bool, bool, bool, int]:
        is_used = seen.disks[copies[number].disk].path == before.path and limits[number] >= plan.end
        return (
            any(lack.is_known for lack in copies[number].lacks),
            not is_used,
            number != choice.replica,
            number != verdict.extended_by,
            number,
        )

    numbers = sorted(range(len(copies)), key=order)
    plan.copies, plan.limits = [copies[each] for each in numbers], [limits[each] for each in numbers]
    plan.lost = before.lost
    plan.known_ids = frozenset(each.segment_id for each in past.segments) if past is not None else frozenset()
    _go_below(plan, past)
    _find_lacking(plan, past)
    _name_lacks(plan)
    return plan


def _name_lacks(plan: PartitionPlan) -> None:
    """Name the offsets that disks lack: a fault of the partition if neither another copy nor a point has them."""
    lacks = [lack.text for lack in plan.copies[0].lacks if lack.is_known and lack not in plan.saved]
    plan.fault = plan.fault or "; ".join(lacks)
    others = [lack.text for copy in plan.copies[1:] for lack in copy.lacks if lack.is_known]
    others += [doubt for copy in plan.copies for doubt in copy.doubts]
    plan.doubts += [f"{plan.name}: {text}" for text in others]


def _go_below(plan: PartitionPlan, past: ArchivedPartition | None) -> None:
    """Begin where the newest point does if the disk has lost first segments: nobody deleted these."""
    for lack in plan.copies[0].lacks:
        if past is not None and lack.is_known and lack.end == plan.start:
            plan.start = min(plan.start, max(lack.first, past.start_offset))


def _is_running(copies: Sequence[SeenCopy], seen: SeenCluster) -> bool:
    return any(seen.disks[copy.disk].state == "running" for copy in copies)


def _find_agreed_end(past: ArchivedPartition | None, lineage: Lineage) -> int:
    """Return the offset up to which a log and the point's log agree."""
    if past is None:
        return 0
    same = divergence(Lineage.of(past.epochs, past.start_offset, past.end_offset), lineage)
    is_same = same.epoch is not None or not (past.epochs or lineage.epochs)
    return min(same.offset, lineage.end) if is_same else 0


def _find_ends(key: LogKey, copies: Sequence[SeenCopy], past: ArchivedPartition | None, seen: SeenCluster) -> None:
    """Look up where each copy ends; its high watermark will do where all have the same, and the same leader epoch.

    It will not do below what a point has, nor at the start of a log of a stopped broker.
    """
    alike = {(copy.watermark, copy.lineage.last_epoch) for copy in copies}
    least = 0 if past is None else past.end_offset
    if not _is_running(copies, seen):
        least = max([least, *(copy.partition.log_start_offset + 1 for copy in copies if copy.partition.size)])
    if (
        len(alike) == 1
        and key[0] != METADATA_TOPIC
        and copies[0].watermark is not None
        and copies[0].watermark >= least
    ):
        for copy in copies:
            copy.end = max(copy.watermark or 0, copy.partition.log_start_offset)
        return
    for copy in copies:
        segments = copy.partition.segments
        if past is not None and segments and _sum_archived_bytes(past.segments, segments[-1]) == segments[-1].size:
            copy.end = past.end_offset
        else:
            copy.end = max(end_of(segments).offset, copy.partition.log_start_offset)
        if copy.noted_end > copy.end:  # the upload finds that the log ends before
            copy.end = max(copy.noted_end, least)


def _sum_archived_bytes(archived: Sequence[ArchivedSegment], segment: Segment) -> int:
    """Return the archived bytes of the active segment."""
    return sum(each.size for each in archived if each.base_offset >= segment.base_offset)


def _end_without_mark(
    plan: PartitionPlan,
    copies: Sequence[SeenCopy],
    choice: Choice,
    known: Known | None,
    seen: SeenCluster,
    to_end: bool,
) -> None:
    """Find the end of a log of which no file says a high watermark that counts, or say that nobody knows it."""
    end, ends = plan.lineage.end, {copy.node_id: copy.end for copy in copies}
    in_sync = () if known is None or choice.is_outdated else known.isr or known.elr
    is_closed = all(seen.disks[copy.disk].state == "stopped" for copy in copies)
    if to_end or (is_closed and all(copy.watermark is None for copy in copies)):
        committed = end
        if not to_end and any(copy.mark_file.state is FileState.EMPTY for copy in copies):
            plan.fault = f"nobody knows whether all of it was committed: {copies[0].unmarked}"
    elif in_sync and set(in_sync) <= set(ends):  # also of the only replica
        committed = min(end, *(ends[node] for node in in_sync))
    else:
        committed = 0
    if committed > plan.end:
        plan.end, plan.ended_by = committed, "log end"
    if committed == 0 and end > plan.end:
        plan.is_unmarked = _is_running(copies, seen)
        remedy = "wait for the broker to note it" if plan.is_unmarked else "`pylogseg archive --to-end` archives them"
        plan.fault = (
            f"{end - plan.end:,} offsets, {offsets_text(plan.end, end)}, lie above the last offset "
            "that is proved to be committed:"
            f" {copies[0].unmarked}: {remedy}"
        )


def _is_compacted(key: LogKey, copies: Sequence[SeenCopy], seen: SeenCluster) -> bool:
    policy = seen.metadata.of_topic(key[0]).get("cleanup.policy", "") if seen.metadata is not None else ""
    internal = INTERNAL_TOPICS.get(key[0], {}).get("cleanup_policy", "")
    return "compact" in policy + internal or any(copy.is_cleaned for copy in copies)


def _find_lacking(plan: PartitionPlan, past: ArchivedPartition | None) -> None:
    agreed: list[ArchivedSegment] = []
    if past is not None:
        limit = min(_find_agreed_end(past, plan.lineage), plan.end)
        agreed = [each for each in past.segments if plan.start < each.end_offset <= limit]
    plan.agreed = agreed = [each for each in agreed if each.segment_id not in plan.lost]
    first = next(
        (each.base_offset for each in plan.copies[0].partition.segments if _end(each) > plan.start), plan.start
    )
    bases, chain = [each.base_offset for each in agreed], list[ArchivedSegment]()
    for each in agreed:  # what follows without a hole
        if (chain[-1].end_offset == each.base_offset) if chain else (each.base_offset <= max(first, plan.start)):
            chain.append(each)
    chained = [each.base_offset for each in chain]
    for segment in plan.copies[0].partition.segments:
        begin, end = segment.base_offset, min(_end(segment), plan.end)
        if _end(segment) <= plan.start or begin >= end:
            continue
        beginning = agreed[bisect_left(bases, begin) : bisect_left(bases, end)]
        inside = [each for each in beginning if each.end_offset <= end]
        bytes_, covered = 0, begin
        for each in inside:
            if each.base_offset == covered:
                bytes_, covered = bytes_ + each.size, each.end_offset
        is_active = segment.next_base is None
        overlapping = chain[max(0, bisect_right(chained, begin) - 1) : bisect_left(chained, end)]
        over = [each for each in overlapping if each.end_offset > begin]
        if len(over) > MOST_PIECES and end == segment.next_base and all(each in inside for each in over):
            plan.joined.add(begin)
            plan.lacking.append((begin, end))
        elif covered == end:
            is_less = bytes_ > segment.size
            is_same = bytes_ == segment.size or (is_active and not is_less)
            if is_same and not (is_active and os.path.isdir(segment.path)):
                plan.kept += inside
            elif is_less and (lost := [lack for lack in plan.copies[0].lacks if lack.first < end and begin < lack.end]):
                plan.kept += inside
                _note_saved(plan, lost, begin, end)
            else:
                plan.is_changed = plan.is_changed or not is_active
                plan.lacking.append((begin, end))  # cleaned, or cut
        elif plan.is_compacted:
            if is_active:
                plan.kept += [each for each in inside if each.end_offset <= covered]
            plan.lacking.append((covered if is_active else begin, end))
        else:
            plan.kept += [each for each in over if each not in plan.kept[-1:]]
            covered = max([begin, *(each.end_offset for each in over)])
            if covered < end:
                plan.lacking.append((covered, end))
    if not plan.copies[0].partition.segments and plan.end > plan.start:
        plan.lacking.append((plan.start, plan.end))
    if below := [each for each in agreed if each.end_offset <= first]:  # first segments that the disk has lost
        plan.kept += below
        begin, end = below[0].base_offset, below[-1].end_offset
        _note_saved(plan, [lack for lack in plan.copies[0].lacks if lack.first < end and begin < lack.end], begin, end)


def _note_saved(plan: PartitionPlan, lacks: Sequence[Lack], begin: int, end: int) -> None:
    """Note a range of offsets that the disk has lost and the archive has."""
    for lack in lacks:
        plan.saved.append(lack)
        offsets = offsets_text(max(begin, lack.first), min(end, lack.end))
        unknown = "" if lack.is_known else ", and it is not known whether a cleaner removed them"
        remedy = "`pylogseg restore` brings them back"
        plan.doubts.append(f"{plan.name}: the archive alone has {offsets} now{unknown}; {remedy}: {lack.text}")
