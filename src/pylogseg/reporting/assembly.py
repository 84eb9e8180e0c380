"""Puts scans and findings together, partition by partition, and makes the facts of topics and disks of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pylogseg._version import __version__
from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.disk.small_files import read_leader_epochs
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import PylogsegError
from pylogseg.format.columns import to_row
from pylogseg.format.escape import printable
from pylogseg.format.names import FileKind
from pylogseg.inspect.stats.groups import Unit
from pylogseg.inspect.stats.listing import PartitionRow, shown_path
from pylogseg.inspect.verify.disk import VerifySummary
from pylogseg.inspect.verify.findings import URGENCIES, Finding
from pylogseg.inspect.verify.missing import Checkpoints
from pylogseg.offline.options import Options
from pylogseg.reporting import commands
from pylogseg.reporting.cleaning import LogShape, RetainedPiece, SettingsOf, cleaning_fact
from pylogseg.reporting.cluster import ClusterFacts, cluster_ids
from pylogseg.reporting.facts import (
    IN_BRIEF,
    MOST_PARTITIONS,
    VERSION,
    CleaningFact,
    Command,
    Facts,
    FindingFact,
    PartitionFact,
    TransactionsFact,
)
from pylogseg.reporting.options import ReportOptions
from pylogseg.reporting.partitions import (
    MOST_ABORTED,
    MOST_PRODUCERS,
    MOST_SEGMENTS,
    Fold,
    blank_fact,
    left_over,
    merged_segments,
    partition_row_of,
    producer_rows,
    producers_at_end,
    unscanned_fact,
    with_times,
)
from pylogseg.reporting.payloads import Samples
from pylogseg.reporting.scanning import SegmentScan
from pylogseg.reporting.scope import ReportScope, verdict_of
from pylogseg.reporting.totals import Totals
from pylogseg.values.internal.producers import ProducerRow

#: Findings that are listed; in the page, damage first.
MOST_FINDINGS = 2000


class _Draft(NamedTuple):
    """A partition whose facts are made only if it is shown."""

    fact: PartitionFact  #: What topics and disks add up.
    fold: Fold | None  #: None if its segments were not looked at.
    finish: Callable[[PartitionFact], PartitionFact] = lambda fact: fact  #: Adds what other files say.


class ReportAssembly:
    """Collects the facts of a report, in the order of the disk."""

    def __init__(self, disk: Disk, options: ReportOptions) -> None:
        self._disk, self._options = disk, options
        self._log_dirs = {
            log_dir.files.split(log_dir.files.join(log_dir.path, "x"))[0]: log_dir.path for log_dir in disk.log_dirs
        }
        self._checkpoints: dict[str, Checkpoints] = {}
        self._cleaned: dict[str, set[str]] = {}
        self._settings = SettingsOf(
            disk.log_dirs, Options(config=options.config, server_properties=options.server_properties)
        )
        self._samples = Samples(disk, options)
        self._cluster = ClusterFacts(disk, options.now_ms)
        self._totals = Totals(options.now_ms)
        self.scope = ReportScope(options)
        self._findings: list[FindingFact] = []
        self._unlisted = 0
        self._levels = {"damage": 0, "notice": 0, "advice": 0}
        self._partitions: list[_Draft] = []
        self._brief: dict[str, dict[str, Any]] = {}  # by path
        self._now_in = ("", "")  # the path of a partition, and the folder that it lies in
        self._folders = {name: p for p in disk.partitions for name in (p.path, _folder(p))}
        self._files = {segment.path for segment in disk.loose}
        self._split = disk.partitions[0].files.split if disk.partitions else None
        self._now: tuple[Partition | None, Unit | None, Fold] | None = None

    # ---- in the order of the disk ----

    def begin(self, partition: Partition | None, unit: Unit | None) -> None:
        """Begin with a partition, or a file that was named by itself."""
        self.finish_partition()
        name = partition.name if partition is not None else unit.name if unit else ""
        fold = Fold(unit or Unit(name, (), 0, None), self._options.now_ms, self._options.is_whole)
        self._now = partition, unit, fold
        self.scope.fact.partitions += partition is not None and partition.error is None

    def add(self, segment: Segment, scan: SegmentScan) -> None:
        assert self._now is not None
        self._now[2].add(segment, scan)
        self.scope.add(segment, scan)

    def finish_partition(self) -> None:
        """Make facts of the scans that were added since `begin`."""
        if self._now is None:
            return
        (partition, unit, fold), self._now = self._now, None
        self.scope.logs += fold.has_batches
        self.scope.fact.partitions_sampled += fold.is_sampled
        if partition is None:
            assert unit is not None
            draft = self._of_file(unit, fold)
        else:
            draft = self._of_partition(partition, fold)
        self._keep(draft)

    def add_unscanned(self, partition: Partition) -> None:
        fact = unscanned_fact(partition, self._disk_of(partition), self._options.now_ms)
        self._keep(_Draft(fact, None))

    def add_finding(self, finding: Finding) -> None:
        partition, path = self._owner(finding.path), finding.path
        folder = log_dir = None
        if partition is not None:
            folder, path = shown_path(partition.files, partition.path), shown_path(partition.files, path)
        elif path not in self._files:
            log_dir = self._log_dir_at(path)
        self._note(
            FindingFact(
                level="damage" if finding.is_damage else "notice",
                kind=finding.kind,
                reason=printable(finding.reason),
                remedy=finding.remedy,
                path=printable(path),
                topic=None if partition is None else printable(partition.topic),
                partition=None if partition is None else partition.partition,
                position=finding.position,
                end_position=finding.end_position,
                offset=finding.offset,
                last_offset=finding.last_offset,
                commands=commands.of_finding(finding.kind, path, folder, log_dir),
                urgency=finding.urgency,
            ),
            printable(folder or path),
        )

    def _owner(self, path: str) -> Partition | None:
        """Return the partition whose folder a path is, or lies in."""
        return self._folders.get(path) or (self._folders.get(self._split(path)[0]) if self._split else None)

    def _note(self, fact: FindingFact, folder: str = "") -> None:
        self._levels[fact.level] += 1
        self._totals.note(folder, fact)
        if self._levels[fact.level] <= MOST_FINDINGS:
            self._findings.append(fact)
        else:
            self._unlisted += 1

    # ---- one partition ----

    def _of_partition(self, partition: Partition, fold: Fold) -> _Draft:
        row = partition_row_of(partition, fold if self._options.is_whole else None)
        segments, left = merged_segments([*fold.segments, *left_over(partition.others)], MOST_SEGMENTS)
        fact = blank_fact(partition, self._disk_of(partition), row, fold, segments, left)
        if partition.error is not None:
            return _Draft(fact, fold)
        try:
            producers, late = producers_at_end(partition, row.log_end_offset, fold.stats, self._options.full)
        except PylogsegError as error:
            self._note_failure(partition, error)
            return _Draft(fact, fold)
        if late:
            self.scope.late.append(late)
        opened = self._cluster.open_of(partition, producers)
        fact = replace(fact, cleaning=self._cleaning(partition, fold, row, producers))
        return _Draft(fact, fold, partial(self._with_files, partition, fold, row, producers, opened))

    def _with_files(
        self,
        partition: Partition,
        fold: Fold,
        row: PartitionRow,
        producers: Sequence[ProducerRow],
        opened: tuple[dict[str, Any], ...],
        fact: PartitionFact,
    ) -> PartitionFact:
        """Add facts of a partition's other files, and of its sampled records."""
        options = self._options
        try:
            payloads = self._samples.newest(partition, row) if options.payloads else ()
            sample = fold.sample_fact(payloads, options.payloads > 0, options.limit_bytes)
        except PylogsegError as error:
            self._note_failure(partition, error)
            return fact
        markers = fold.sample.markers if fold.is_all_decoded else None
        return replace(
            fact,
            sample=sample,
            producers=producer_rows(producers, self._cluster.names),
            producers_not_listed=max(0, len(producers) - MOST_PRODUCERS),
            transactions=TransactionsFact(
                fold.stats.transactional_batches if fold.read else None,
                None if markers is None else markers["commit"],
                None if markers is None else markers["abort"],
                tuple(fold.aborted),
                max(0, fold.aborted_count - MOST_ABORTED),
                opened,
            ),
            leader_epochs=tuple(read_leader_epochs(partition.files, partition.path).value or ()),
        )

    def _note_failure(self, partition: Partition, error: PylogsegError) -> None:
        self.scope.add_notes(f"{partition.name}: {error}")

    def _cleaning(
        self, partition: Partition, fold: Fold, row: PartitionRow, producers: Sequence[ProducerRow]
    ) -> CleaningFact | None:
        if not partition.topic or not self._options.is_whole or row.log_end_offset is None:
            return None
        log_dir = self._disk_of(partition)
        settings = self._settings.of(log_dir, partition.topic, partition.name, self._is_cleaned(partition))
        end = row.log_end_offset
        opened = [p.first_txn_offset for p in producers if p.first_txn_offset >= 0]
        shape = LogShape(
            [
                RetainedPiece(part.base_offset, part.size, _time_of(part.largest_timestamp, part.modified_ms))
                for part in fold.segments
            ],
            row.log_start_offset,
            end,
            self._checkpoint(partition, FileKind.HIGH_WATERMARKS),
            min([end, *opened]),
            self._checkpoint(partition, FileKind.CLEANER_OFFSETS),
            fold.grown.per_day,
        )
        sample = fold.sample
        keys = (sample.records, sample.keys.count, fold.is_all_decoded) if sample.records else None
        path = shown_path(partition.files, partition.path)
        return cleaning_fact(
            shape,
            settings,
            self._options.now_ms,
            keys,
            commands.of_cleaning(
                path,
                settings.config.cleanup_policy,
                settings.retention_options(),
                ("-c", "cleanup.policy=compact") if settings.is_cleaned else (),
            ),
        )

    def _checkpoint(self, partition: Partition, kind: FileKind) -> int | None:
        return self._checkpoints_of(partition).of(kind, (partition.topic, partition.partition))

    def _checkpoints_of(self, partition: Partition) -> Checkpoints:
        folder = self._parent(partition)
        if folder not in self._checkpoints:
            self._checkpoints[folder] = checkpoints = Checkpoints(partition.files, folder)
            self._cleaned[folder] = {topic for topic, _ in checkpoints.keys(FileKind.CLEANER_OFFSETS)}
        return self._checkpoints[folder]

    def _is_cleaned(self, partition: Partition) -> bool:
        """Check whether the cleaner's checkpoint names a partition of the topic: cleanup.policy is the topic's."""
        return partition.topic in self._cleaned[self._checkpoints_of(partition).folder]

    def _of_file(self, unit: Unit, fold: Fold) -> _Draft:
        segment = unit.segments[0] if unit.segments else None
        topic, number = ("", -1) if segment is None else (segment.topic, segment.partition)
        files = LocalFiles() if segment is None else segment.files
        stand_in = Partition(files, topic, number, unit.name, "", tuple(unit.segments), (), 0)
        row = partition_row_of(stand_in, fold)
        fact = blank_fact(stand_in, files.split(unit.name)[0], row, fold, tuple(fold.segments), 0)
        path = unit.name if segment is None else shown_path(files, segment.path)
        fact = replace(
            fact,
            name=printable(unit.name),
            sample=fold.sample_fact((), False, self._options.limit_bytes),
            commands=(
                Command("show", commands.line("pylogseg", "dump", path)),
                Command("show", commands.line("pylogseg", "verify", path)),
            ),
        )
        return _Draft(fact, fold)

    def _disk_of(self, partition: Partition) -> str:
        folder = self._parent(partition)
        return self._log_dirs.get(folder, folder)

    def _parent(self, partition: Partition) -> str:
        if self._now_in[0] != partition.path:
            self._now_in = partition.path, partition.files.split(partition.path)[0]
        return self._now_in[1]

    def _log_dir_at(self, path: str) -> str | None:
        for log_dir in self._disk.log_dirs:
            if path == log_dir.path or path.startswith(log_dir.files.join(log_dir.path, "")):
                return shown_path(log_dir.files, log_dir.path)
        return None

    # ---- all ----

    def facts(self, summary: VerifySummary, took_ms: int) -> Facts:
        options = self._options
        partitions = [self._finish(draft) for draft in self._best()]
        self.scope.add_notes(*self._disk.notes, *self._settings.notes, *self._samples.notes)
        tables = self._cluster.tables()
        disks = self._totals.disks(self._disk)
        for advice in (*self._cluster.advice(), *self._totals.advice(disks)):
            self._note(advice)
        self.scope.add_notes(*self._cluster.notes)
        damage, notices, advice_count = (self._levels[level] for level in ("damage", "notice", "advice"))
        *urgent, heals = URGENCIES
        order = [*urgent, "advice", heals]
        findings = sorted(self._findings, key=lambda fact: (order.index(fact.urgency), fact.level))
        kept = findings[:MOST_FINDINGS]
        series, grown = self._totals.by_time()
        scope = self.scope.finish(summary, self._why_not_all())
        return Facts(
            version=VERSION,
            pylogseg=__version__,
            made_ms=options.now_ms,
            took_ms=took_ms,
            paths=tuple(printable(path) for path in options.paths),
            command=options.command,
            verdict=verdict_of(scope, summary),
            damage=damage,
            notices=notices,
            advice=advice_count,
            scope=scope,
            unread=summary.unread,
            unknown=summary.unknown,
            findings=tuple(kept),
            findings_not_listed=self._unlisted + len(findings) - len(kept),
            disks=disks,
            topics=self._totals.topics(),
            partitions=tuple(partitions),
            partitions_not_listed=len(self._brief) - len(partitions),
            partitions_in_brief=self._not_shown(partitions),
            cluster_ids=cluster_ids(self._disk),
            names_not_listed=self._others(partitions),
            command_of_others=commands.line("pylogseg", "report", *options.paths, "NAME", "-o", "report.html"),
            series=series,
            growth=grown,
            **tables,
        )

    def _keep(self, draft: _Draft) -> None:
        """Keep a partition; of very many, only the ones that the page may show."""
        self._totals.add(draft.fact, draft.fold)
        self._brief[draft.fact.path] = to_row(draft.fact, IN_BRIEF)
        self._partitions.append(draft)
        if len(self._partitions) >= 2 * MOST_PARTITIONS:
            self._partitions = self._best()

    def _best(self) -> list[_Draft]:
        """Return the partitions with most findings, then the largest, in the order of the disk."""
        count = self._totals.count

        def rank(at: int) -> tuple[int, int, int]:
            fact = self._partitions[at].fact
            return -count(fact.path, "damage"), -count(fact.path, "notice"), -fact.size

        kept = sorted(range(len(self._partitions)), key=rank)[:MOST_PARTITIONS]
        return [self._partitions[at] for at in sorted(kept)]

    def _finish(self, draft: _Draft) -> PartitionFact:
        count, path = self._totals.count, draft.fact.path
        fact = replace(draft.fact, damage=count(path, "damage"), notices=count(path, "notice"))
        return draft.finish(fact if draft.fold is None else with_times(fact, draft.fold))

    def _why_not_all(self) -> str:
        """Return why not all partitions are shown one by one; empty if they are."""
        if len(self._brief) <= MOST_PARTITIONS:
            return ""
        return (
            f"{len(self._brief):,} partitions: the {MOST_PARTITIONS:,} with most findings, then the largest, are shown "
            "one by one; the others count in their topics and disks, and are found by their names"
        )

    def _others(self, partitions: Sequence[PartitionFact]) -> tuple[str, ...]:
        shown = {fact.name for fact in partitions}
        there = {printable(partition.name) for log_dir in self._disk.log_dirs for partition in log_dir.partitions}
        return tuple(sorted((there | {row["name"] for row in self._brief.values()}) - shown))

    def _not_shown(self, partitions: Sequence[PartitionFact]) -> tuple[dict[str, Any], ...]:
        shown = {fact.path for fact in partitions}
        return tuple(row for path, row in self._brief.items() if path not in shown)


def _folder(partition: Partition) -> str:
    return partition.files.split(partition.files.join(partition.path, "x"))[0]


def _time_of(largest: int | None, modified_ms: int) -> int:
    return modified_ms if largest is None else largest
