"""Check a whole disk: segments by an executor, then partitions and log directories."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pylogseg.disk.choice import ALL, PartitionChoice
from pylogseg.disk.disk import Disk, Partition, Segment, is_cluster
from pylogseg.env.executor import INLINE, Advance, Executor, Workload
from pylogseg.errors import RequestError
from pylogseg.format.columns import TableColumn, declare_columns, line_type
from pylogseg.format.outcome import Outcome
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.format.words import count_text, size_text
from pylogseg.inspect.verify.files import check_log_dir, check_watermarks
from pylogseg.inspect.verify.findings import DENIED, Finding, Level, of_failure, proved_early, uncut
from pylogseg.inspect.verify.missing import Around, absolute, check_partitions
from pylogseg.inspect.verify.partition import Reports, check_partition
from pylogseg.inspect.verify.segment import verify_segment
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.inspect.verify.startup import check_replicas, check_start
from pylogseg.inspect.verify.tiers import as_uploaded, check_metadata, check_tier, check_uploads, tiers_of
from pylogseg.inspect.verify.unsent import check_unsent
from pylogseg.values.internal.cluster import ClusterMetadata, clusters_of
from pylogseg.walker.gaps import GapKind

#: Kinds of findings that several checks of one file have if they are about all of it.
_WHOLE_FILE = (GapKind.LOCKED.value, GapKind.UNREADABLE.value, DENIED)


@declare_columns(
    line_type("summary"),
    TableColumn("level", "string", "of checking", source=lambda summary: summary.level.name.lower()),
    with_fields=True,
)
@dataclass
class VerifySummary(Outcome):
    """Counts of the checks, and a list of the skipped ones."""

    level: Level
    log_dirs: int = 0
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    damaged: int = 0  #: Findings that are damage.
    unread: int = 0  #: What was not looked at, for want of a key or of permission.
    unknown: int = 0  #: Of what it is not known whether it is damage.
    notices: int = 0
    explained_gaps: int = 0  #: Missing ranges of offsets that are explained by compaction.
    not_checked: list[str] = field(default_factory=list)  #: Phrases for the report.

    def __post_init__(self) -> None:
        self._unopened: set[tuple[str, str]] = set()

    def add_segment(self, report: SegmentReport) -> None:
        self.segments += 1
        self.batches += report.batches
        self.records += report.records
        self.bytes += report.size
        self.not_checked += report.undecided

    @property
    def exit_code(self) -> int:
        """Exit code of `verify_disk`; see `exit_code_of`."""
        return exit_code_of(self.damaged, self.unread, self.unknown)

    @property
    def words(self) -> str:
        """The findings, as a part of a sentence."""
        damage = f"{count_text(self.damaged, 'finding')} of damage" if self.damaged else "no damage"
        more = [count_text(self.notices, "notice")] if self.notices else []
        unread = "not looked at, for want of a key or of permission, or behind a link"
        more += [f"{count_text(self.unread, 'object')} {unread}"] if self.unread else []
        unknown = "of which it is not known whether it is damage"
        more += [f"{count_text(self.unknown, 'finding')} {unknown}"] if self.unknown else []
        return ", ".join([damage, *more])

    def lines(self) -> Iterator[str]:
        """Yield the checks, the skipped ones, then the sums."""
        yield f"checked: {CHECKED[self.level]}"
        if self.explained_gaps:
            yield f"explained: {count_text(self.explained_gaps, 'gap')} between offsets, by compaction"
        yield from (f"not checked: {text}" for text in self.not_checked)
        counts = (
            (self.log_dirs, "log directory", "log directories"),
            (self.partitions, "partition", ""),
            (self.segments, "segment", ""),
            (self.batches, "batch", "batches"),
            (self.records, "record", ""),
        )
        texts = [count_text(*count) for count in counts if count[0]] + ([size_text(self.bytes)] if self.bytes else [])
        yield f"{self.words}: {', '.join(texts)}"

    def count_all(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Count findings, and yield them: that a file cannot be opened only once."""
        for finding in findings:
            if finding.position is None and finding.kind in _WHOLE_FILE:
                key = finding.path, finding.reason
                if key in self._unopened:
                    continue
                self._unopened.add(key)
            self.damaged += finding.is_damage
            self.unread += finding.level == "unread"
            self.unknown += finding.level == "unknown"
            self.notices += finding.level == "notice"
            yield finding


def exit_code_of(damaged: int, unread: int, unknown: int) -> int:
    """Return 1 if there is damage, else 2 if something was not looked at, or may be damage."""
    return 1 if damaged else 2 if unread or unknown else 0


CHECKED = {
    Level.HEADERS: "batch headers",
    Level.CRC: "batch headers and checksums",
    Level.RECORDS: "batch headers, checksums and records",
    Level.INDEXES: "batch headers, checksums, records, indexes and small files; missing records and obstacles to "
    "a broker's start, as far as these files show",
}
_BY_LEVEL = {
    Level.CRC: "checksums (--level crc)",
    Level.RECORDS: "records, and the contents of compressed batches (--level records)",
    Level.INDEXES: "indexes, snapshots, checkpoints and other small files; missing data and obstacles to a broker's "
    "start that these files show (--level indexes)",
}
_NEVER = (
    "whether producer snapshots and checkpoints agree with the log, beyond their format and their end offsets",
    "whether whole segments are missing that no checkpoint, leader epoch or snapshot mentions, as in compacted logs",
    "whether other replicas hold the same records",
)


def verify_disk(
    disk: Disk,
    summary: VerifySummary,
    *,
    partitions: Sequence[Partition] | None = None,
    executor: Executor = INLINE,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    on_bytes: Callable[[int], None] | None = None,
    choice: PartitionChoice = ALL,
    remote_metadata: Disk | None = None,
) -> Iterator[Finding]:
    """Check a disk, or some of its partitions (else all live ones).

    Findings come segment by segment in the order of the disk, then the findings of its partition; log directories come
    at the end. `summary`, which has the level, is complete after the last one. Batches that decompress to more than
    `limit_bytes` are not checked; for `choice` see `findings_of`. A tier is compared with `__remote_log_metadata` where
    `remote_metadata` has it; RequestError if there is nothing to compare.
    """
    chosen = [p for p in disk.partitions if not p.state] if partitions is None else list(partitions)

    tiers = tiers_of(chosen)
    if remote_metadata is not None and not tiers:
        raise RequestError(
            "there is no tier to compare with __remote_log_metadata: name its URL, as the path or as tier (--tier)"
        )
    segments = segments_of(disk, chosen)
    check = functools.partial(_check, level=summary.level, limit_bytes=limit_bytes)
    load = Workload("pylogseg verify", [segment.size for segment in segments], on_bytes)
    results = executor.map(check, segments, load)
    yield from findings_of(disk, chosen, results, summary, choice)
    if tiers and remote_metadata is None:
        summary.not_checked.append("what the brokers uploaded by their own account (--remote-metadata)")
    elif remote_metadata is not None:
        for tier in tiers:
            compared = check_metadata(tier, remote_metadata, _live(chosen), choice.takes, summary.not_checked)
            yield from summary.count_all(compared)


def _check(segment: Segment, advance: Advance, level: Level, limit_bytes: int) -> SegmentReport:
    return verify_segment(segment, level, limit_bytes=limit_bytes, advance=advance)


def segments_of(disk: Disk, chosen: Sequence[Partition]) -> list[Segment]:
    """Return the segments to check, in the order in which `findings_of` takes their reports."""
    return [segment for p in chosen for segment in p.segments] + list(disk.loose)


def findings_of(
    disk: Disk,
    chosen: Sequence[Partition],
    results: Iterator[SegmentReport],
    summary: VerifySummary,
    choice: PartitionChoice = ALL,
) -> Iterator[Finding]:
    """Yield the findings in the reports of segments, then findings about partitions, log directories and tiers.

    The reports come from `segments_of`, in its order, and are consumed one at a time. `choice` selected the
    chosen partitions: missing ones are reported only if it selects them.
    """
    clusters, unread = clusters_of(disk)
    summary.not_checked += unread
    around = Around(disk, clusters)
    for part in chosen:
        if part.error is not None:
            yield from summary.count_all(as_uploaded(part, [of_failure(part.error)]))
            continue
        yield from summary.count_all(_partition_findings(part, results, summary, around))
    for report in results:  # files named by themselves
        summary.add_segment(report)
        yield from summary.count_all(report.findings)
    yield from summary.count_all(_log_dirs(disk, summary, around, choice.takes))
    for tier in tiers_of(chosen):
        yield from summary.count_all(check_tier(tier, _live(chosen), summary.not_checked))
    _note_unchecked(disk, chosen, summary)


def _live(chosen: Iterable[Partition]) -> dict[str, Partition]:
    return {part.name: part for part in chosen if not part.state}


def _log_dirs(
    disk: Disk, summary: VerifySummary, around: Around, asked: Callable[[str, int], bool]
) -> Iterator[Finding]:
    summary.log_dirs += len(disk.log_dirs)
    if summary.level < Level.INDEXES:
        return
    places = {(p.topic, p.partition): d.path for d in disk.log_dirs for p in d.partitions if not p.state}
    missing = set()
    for log_dir in disk.log_dirs:
        yield from check_log_dir(log_dir)
        checkpoints = around.checkpoints(log_dir.files, absolute(log_dir.files, log_dir.path))
        yield from check_watermarks(log_dir, checkpoints, asked)
        for finding in check_partitions(log_dir, checkpoints, places, asked):
            missing.add(finding.path)
            yield finding
    yield from check_replicas(disk.log_dirs, around, asked, missing)
    yield from check_start(disk.log_dirs, around.clusters, asked)


def _partition_findings(
    part: Partition, results: Iterator[SegmentReport], summary: VerifySummary, around: Around
) -> Iterator[Finding]:
    summary.partitions += 1
    reports = Reports(part.log_start_offset)
    checkpoints, cluster = around.of(part)
    is_deleted_by_time = cluster is not None and _is_deleted_by_time(part, cluster)
    for segment in part.segments:
        report = next(results)
        summary.add_segment(report)
        if not segment.is_swapped_in:  # which has a check of its own
            findings = proved_early(report.findings, is_deleted_by_time)
            yield from as_uploaded(part, uncut(findings, checkpoints.is_stopped), segment)
        reports.add(segment, report)
    of_part = check_partition(part, reports, summary, summary.level, checkpoints=checkpoints, cluster=cluster)
    yield from as_uploaded(part, of_part)
    yield from as_uploaded(part, check_uploads(part, reports.reports, summary.level))
    yield from check_unsent(part, reports, summary.level, checkpoints, cluster, summary.not_checked)


def _is_deleted_by_time(part: Partition, cluster: ClusterMetadata) -> bool:
    """Check whether settings show that retention deletes records of a topic by their time, and no cleaner was there."""
    fields = cluster.fields_of_topic(part.topic)
    if fields is None:
        return False
    return fields.get("cleanup_policy", "delete") == "delete" and fields.get("retention_ms") != "-1"


def _note_unchecked(disk: Disk, chosen: Sequence[Partition], summary: VerifySummary) -> None:
    summary.not_checked += [text for level, text in _BY_LEVEL.items() if level > summary.level]
    checked = {part.path for part in chosen}
    left_out = [part for part in disk.partitions if part.path not in checked]
    for state, what in (
        ("delete", "pending deletion"),
        ("future", "being moved here"),
        ("stray", "of stray replicas"),
        ("", "not asked for"),
    ):
        count = sum(part.state == state for part in left_out)
        if count:
            summary.not_checked.append(f"{count} partition folder{'s' * (count > 1)} {what}")
    if count := sum(len(log_dir.not_topics) for log_dir in disk.log_dirs):
        summary.not_checked.append(f"{count} folder{'s' * (count > 1)} with a name that no topic can have")
    if disk.loose:
        summary.not_checked.append("files beside segments that were named individually, except for their indexes")
    if any(is_cluster(part.files) for part in chosen):
        summary.not_checked.append("indexes, snapshots and leader epochs, which a running cluster does not send")
    if summary.level >= Level.INDEXES:
        summary.not_checked += _NEVER
