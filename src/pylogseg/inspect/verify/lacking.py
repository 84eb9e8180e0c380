"""Is something known to be missing? Asked of a disk before its data is carried away, or put back.

The answer is a part of what `verify` says, by the same checks: of segments only headers are read.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pylogseg.disk.choice import ALL, PartitionChoice
from pylogseg.disk.disk import Disk, Partition, Segment, beside
from pylogseg.disk.listing import open_dir
from pylogseg.disk.target import Target
from pylogseg.env.executor import Advance, Threads
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import IncompleteError
from pylogseg.format.names import FileKind
from pylogseg.inspect.verify.findings import PERHAPS_COMPACTED, PERHAPS_REMOTE, Finding, Level, finding_of_gap, uncut
from pylogseg.inspect.verify.missing import Around, Checkpoints, absolute, check_ends, check_orphans, check_partitions
from pylogseg.inspect.verify.partition import Reports, check_continuity, check_swaps
from pylogseg.inspect.verify.segment import header_report, verify_segment
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.inspect.verify.startup import check_replicas
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.seek import end_offset
from pylogseg.reading.transaction_markers import markers_of
from pylogseg.values.internal.cluster import ClusterMetadata, clusters_of
from pylogseg.walker.gaps import GapKind, offsets_text

#: Findings that an error names.
_NAMED = 5


class Look(enum.Enum):
    """How much is looked at."""

    OUTLINE = 0
    """Headers are read only of logs whose segments do not follow one another."""
    HEADERS = 1
    """The headers of all segments on this machine."""
    CARRIED = 2
    """These, for what goes along with files that are copied: damage, and aborted transactions whose index is gone."""


#: The kind of a finding about aborted transactions without their index.
UNINDEXED = "transaction-index"
#: Kinds of findings about what is there, and wrong.
DAMAGED = (*(kind.value for kind in GapKind), "header", UNINDEXED, "swap")

if TYPE_CHECKING:
    from pylogseg.disk.tier.slices import TieredLog, TierSegment


def lacking(
    disk: Disk,
    chosen: Sequence[Partition] | None = None,
    choice: PartitionChoice = ALL,
    *,
    jobs: int = 1,
    how: Look = Look.HEADERS,
    with_unknown: bool = False,
    around: Around | None = None,
) -> list[Finding]:
    """Return the gaps of a disk, or of some partitions (else all live ones), and possible ones: see `filter_damage`.

    Checkpoints, indexes without a segment, leader epochs, snapshots and the metadata of the cluster show it. Whole
    partitions are looked for only in log directories, where `choice` selects them. The only damage that it names is a
    torn end that no broker cuts off, unless more is asked for: see `Look`. `with_unknown`: also first segments that may
    have been deleted in a tier. `around`: what earlier calls have read already.
    """
    around = around or Around(disk, clusters_of(disk)[0])
    parts = [part for part in (disk.partitions if chosen is None else chosen) if not part.state]

    def check(part: Partition, advance: Advance) -> list[Finding]:
        return lacking_of(part, around, how, with_unknown=with_unknown)

    findings = [finding for findings in Threads(jobs).map(check, parts) for finding in findings]
    places = {(p.topic, p.partition): d.path for d in disk.log_dirs for p in d.partitions if not p.state}
    for log_dir in disk.log_dirs:
        checkpoints = around.checkpoints(log_dir.files, absolute(log_dir.files, log_dir.path))
        findings += check_partitions(log_dir, checkpoints, places, choice.takes)
    findings += check_replicas(disk.log_dirs, around, choice.takes, {finding.path for finding in findings})
    return [finding for finding in findings if _is_lack(finding, with_unknown)]


def lacking_in(
    chosen: Sequence[tuple[Target, Sequence[str]]],
    choice: PartitionChoice = ALL,
    *,
    jobs: int = 1,
    whole: bool = True,
    how: Look = Look.HEADERS,
) -> list[Finding]:
    """Return the certain gaps of folders in log directories of this machine, as from `chosen_in`.

    With `whole`, partitions that are not there at all are looked for where a log directory was given.
    """
    paths, wanted = list[str](), set[str]()
    for place, names in chosen:
        folders = [
            os.path.join(place.parent, name) for name in names if os.path.isdir(os.path.join(place.parent, name))
        ]
        wanted.update(map(os.path.abspath, folders))
        paths += folders if place.log_dir is None else [place.log_dir]
    if not paths:
        return []
    disk = open_dir(paths)
    parts = [part for part in disk.partitions if os.path.abspath(part.path) in wanted]
    if not whole or not all(place.is_whole for place, _ in chosen):
        choice = PartitionChoice(tuple(part.name for part in parts))
        if not parts:
            return []
    return lacking(disk, parts, choice, jobs=jobs, how=how)


def lacking_for(
    disk: Disk,
    readers: Sequence[LogReader],
    choice: PartitionChoice,
    *,
    jobs: int = 1,
) -> list[Finding]:
    """Return the certain gaps in the ranges of offsets, and of times, that readers are to read."""
    ranges: dict[str, tuple[int, int]] = {}
    for reader in readers:
        until = reader.selection.until
        end = reader.end_offset if until is None else reader.log.offset_of_time(until)
        first = 0 if reader.first_offset == reader.log.log_start_offset else reader.first_offset
        ranges[reader.log.path] = first, min(end, reader.end_offset)
    parts = [part for part in disk.partitions if part.path in ranges]
    kept = []
    for finding in lacking(disk, parts, choice, jobs=jobs) if parts else []:
        path = finding.path if finding.path in ranges else os.path.split(finding.path)[0]
        first, end = ranges.get(path, (0, OPEN_END))
        if finding.offset is None or finding.is_about(first, end):
            kept.append(finding)
    return kept


def lines_of(found: Sequence[Finding]) -> list[tuple[Finding, str]]:
    """Return findings, each with a line, the last of its kind with a remedy; of several with one reason the first."""
    alike: dict[tuple[str, bool, str], list[Finding]] = {}
    for finding in found:
        alike.setdefault((finding.kind, finding.is_damage, finding.reason), []).append(finding)
    firsts = [some[0] for some in alike.values()]
    last = {finding.kind: number for number, finding in enumerate(firsts)}
    return [
        (some[0], f"{_places(some)}: {some[0].reason}" + f"; {some[0].remedy}" * (last[some[0].kind] == number))
        for number, some in enumerate(alike.values())
    ]


def _places(alike: Sequence[Finding]) -> str:
    more = f" and {len(alike) - _NAMED:,} more, {len(alike):,} in all" if len(alike) > _NAMED else ""
    return ", ".join(finding.path for finding in alike[:_NAMED]) + more


def finding_texts(found: Sequence[Finding]) -> list[str]:
    """Return the lines of findings; findings with the same reason share one."""
    return [line for _, line in lines_of(found)]


def filter_damage(found: Sequence[Finding]) -> list[Finding]:
    """Return only certain gaps: records that a leader's cleaner may have removed are no reason to stop."""
    return [finding for finding in found if finding.is_damage]


def refuse(damage: Sequence[Finding]) -> None:
    """Raise IncompleteError if there are certain gaps."""
    damage = filter_damage(damage)
    if damage:
        lines = finding_texts(damage)
        more = f"; and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
        reason = "; ".join([lines[0].removeprefix(damage[0].path).removeprefix(": "), *lines[1:_NAMED]])
        raise IncompleteError(
            damage[0].path, f"{reason}{more}; to go on with what there is, force it (--force)", damage[0].offset
        )


def lacking_of(part: Partition, around: Around, how: Look, *, with_unknown: bool = False) -> list[Finding]:
    """Return the missing records of one partition, each range once, by paths in its folder."""
    if part.error is not None:
        return []
    uploaded: TieredLog | None = getattr(part.files, "logs", {}).get(part.name)
    if uploaded is not None:  # its manifests say it all
        return [
            Finding(part.path, "tier-hole", True, f"{offsets_text(first, end)} are in no upload", None, first, end - 1)
            for first, end in uploaded.holes
        ]
    checkpoints, cluster = around.of(part)
    reports, seen = _reports(part, how, checkpoints, cluster)
    end = reports[-1].end_gap if reports else None
    if how is not Look.CARRIED:
        seen = [finding_of_gap(end)] if end is not None and not end.is_damage else []
    findings = [
        *uncut(seen, checkpoints.is_stopped),
        *(_find_unindexed(part, reports) if how is Look.CARRIED else ()),
        *check_ends(part, reports, checkpoints, cluster),
        *check_orphans(part, reports),
        *check_continuity(part, reports, _Explained(), checkpoints, cluster),
        *check_swaps(part, reports, checkpoints, cluster),
    ]
    kept: list[Finding] = []
    for finding in findings:
        if (
            _is_lack(finding, with_unknown)
            and finding.kind != "overlap"
            and not any(_has(other, finding) for other in kept)
        ):
            # That of a log start offset is about a checkpoint.
            is_inside = finding.path.startswith(part.files.join(part.path, ""))
            kept.append(finding if is_inside else finding._replace(path=part.path))
    return sorted(kept, key=lambda finding: finding.offset or 0)


def _is_lack(finding: Finding, with_unknown: bool) -> bool:
    """Check whether offsets are missing; also where only a cleaner that never ran here would explain it."""
    return finding.is_damage or finding.kind == PERHAPS_COMPACTED or (with_unknown and finding.kind == PERHAPS_REMOTE)


class _Explained:
    explained_gaps = 0


def _has(finding: Finding, other: Finding) -> bool:
    """Check whether this finding has all offsets of another one."""
    first, last, start, end = finding.offset, finding.last_offset, other.offset, other.last_offset
    if first is None or last is None or start is None or end is None:
        return False
    return first <= start and end <= last


def _find_unindexed(part: Partition, reports: Sequence[SegmentReport]) -> Iterator[Finding]:
    """Yield lost transaction indexes: no broker makes them again, and readers get aborted records."""
    bare = {
        beside(segment.path, FileKind.TXN_INDEX)
        for segment, report in zip(part.segments, reports, strict=True)
        if report.has_markers and _is_local(segment) and not segment.hint(FileKind.TXN_INDEX)
        if any(is_abort for _, _, is_abort in markers_of(segment, 0, unopened={}))
    }
    if not bare:
        return
    taken, lacks = Reports(part.log_start_offset), list[Finding]()
    for segment in part.segments:
        report = verify_segment(segment, Level.INDEXES)
        taken.add(segment, report)
        lacks += report.findings
    for path in sorted(bare):
        offsets = [item.offset for item in (*lacks, *taken.unindexed_aborts) if item.path == path and item.offset]
        if offsets:
            first, last = min(offsets), max(offsets)
            reason = f"it is missing, and {offsets_text(first, last + 1)} {_ABORTS[first == last]}"
            yield Finding(path, UNINDEXED, True, reason, None, first, last)


_ABORTS = ("have the ends of aborted transactions", "is the end of an aborted transaction")


def _reports(
    part: Partition, how: Look, checkpoints: Checkpoints, cluster: ClusterMetadata | None
) -> tuple[list[SegmentReport], list[Finding]]:
    """Return reports from the headers of a partition's segments, and the damage of local ones.

    By an outline, and what does not lie on this machine, it is looked at as a whole only if its outline has gaps that
    no cleaning explains.
    """
    taken, seen = Reports(part.log_start_offset), list[Finding]()
    for segment in part.segments:
        is_read = how is not Look.OUTLINE and _is_local(segment)
        report = header_report(segment) if is_read else _outline(segment)
        seen += report.findings
        taken.add(segment, report)
    sampled = any(report.is_sampled for report in taken.reports)
    if not sampled or not list(check_continuity(part, taken.reports, _Explained(), checkpoints, cluster)):
        return taken.reports, seen
    taken = Reports(part.log_start_offset)
    for segment in part.segments:
        taken.add(segment, header_report(segment))
    return taken.reports, seen


def _slice_of(segment: Segment) -> TierSegment | None:
    find = getattr(segment.files, "slice_of", None)
    return None if find is None else find(segment.path)


def _is_local(segment: Segment) -> bool:
    return isinstance(segment.files, LocalFiles) and _slice_of(segment) is None


def _outline(segment: Segment) -> SegmentReport:
    """Return the start and the end of a segment, without reading all of it."""
    report = SegmentReport(
        segment.path, segment.topic, segment.partition, segment.base_offset, segment.size, int(Level.HEADERS)
    )
    uploaded = _slice_of(segment)
    end = end_offset([segment]) if uploaded is None else uploaded.end_offset
    end = end if end >= 0 else segment.next_base or 0  # of an upload whose manifest is damaged
    report.first_offset, report.next_offset = segment.base_offset, max(end, segment.base_offset)
    report.end_position, report.is_sampled = segment.size, True
    return report
