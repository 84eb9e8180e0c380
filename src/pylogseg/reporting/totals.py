"""Sums of partitions: by topic, by log directory, and of all."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pylogseg.disk.disk import Disk, LogDir
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.locks import check_unlocked
from pylogseg.errors import StorageError
from pylogseg.format.escape import printable
from pylogseg.format.names import FileKind
from pylogseg.inspect.stats.listing import shown_path
from pylogseg.reporting.commands import line
from pylogseg.reporting.facts import Command, DiskFact, FindingFact, PartitionFact, TopicFact
from pylogseg.reporting.partitions import Fold
from pylogseg.reporting.series import Growth, Series
from pylogseg.values.internal.cluster import INTERNAL_TOPICS

#: Topics that are listed; the others count in the totals.
MOST_TOPICS = 2000
_SOON_DAYS = 14
_INTERNAL = {*INTERNAL_TOPICS, "__cluster_metadata", "__remote_log_metadata", "_schemas"}


@dataclass
class _Sum:
    """Sums of some partitions."""

    grown: Growth
    series: Series = field(default_factory=Series)
    partitions: int = 0
    segments: int = 0
    size: int = 0
    disk_bytes: int = 0
    batches: int = 0
    records: int = 0
    is_counted: bool = True
    first: int | None = None
    newest: int | None = None
    codecs: set[str] = field(default_factory=set)
    body: int = 0
    raw: int = 0
    policies: set[str | None] = field(default_factory=set)
    clean: int = 0
    dirty: int = 0
    is_cleaned: bool = False
    freed_now: int = 0
    freed_later: int = 0
    is_freed_known: bool = True
    paths: list[str] = field(default_factory=list)

    def add(self, fact: PartitionFact, fold: Fold | None) -> None:
        self.partitions += 1
        self.segments += sum(part.merged for part in fact.segments if part.state in ("sealed", "active", "merged"))
        self.size += fact.size
        self.disk_bytes += fact.disk_bytes
        self.paths.append(fact.path)
        if fact.batches is None or fact.records is None:
            self.is_counted = False
        else:
            self.batches += fact.batches
            self.records += fact.records
        for name, choose in (("first", min), ("newest", max)):
            new = fact.first_timestamp if name == "first" else fact.newest_timestamp
            old = getattr(self, name)
            setattr(self, name, new if old is None else old if new is None else choose(old, new))
        self.codecs.update(fact.codecs)
        if fold is not None:
            self.grown.merge(fold.grown)
            self.series.merge(fold.series)
            self.body += sum(codec.body_bytes for codec in fold.sample.codecs.values())
            self.raw += sum(codec.raw_bytes for codec in fold.sample.codecs.values())
        cleaning = fact.cleaning
        if cleaning is None:
            self.is_freed_known = False
            return
        self.policies.add(cleaning.policy)
        if cleaning.clean_bytes is not None and cleaning.dirty_bytes is not None:
            self.is_cleaned = True
            self.clean += cleaning.clean_bytes
            self.dirty += cleaning.dirty_bytes
        self.freed_now += (cleaning.retention_now.bytes or 0) + (cleaning.compaction_now.bytes or 0)
        self.freed_later += (cleaning.retention_in_a_week.bytes or 0) + (cleaning.compaction_in_a_week.bytes or 0)
        now = cleaning.retention_now, cleaning.compaction_now
        self.is_freed_known &= not any(freed.bytes is None or freed.is_assumed for freed in now)


class Totals:
    """Adds up partitions."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._topics: dict[str, _Sum] = {}
        self._disks: dict[str, _Sum] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, fact: PartitionFact, fold: Fold | None) -> None:
        """Add a partition; `fold` is None if its segments were not looked at."""
        self._disks.setdefault(fact.disk, _Sum(Growth(self._now_ms))).add(fact, fold)
        if fact.topic is not None and fact.state in ("live", "unreadable"):
            self._topics.setdefault(fact.topic, _Sum(Growth(self._now_ms))).add(fact, fold)

    def by_time(self) -> tuple[Series, Growth]:
        series, grown = Series(), Growth(self._now_ms)
        for totals in self._disks.values():
            series.merge(totals.series)
            grown.merge(totals.grown)
        return series, grown

    def note(self, path: str, finding: FindingFact) -> None:
        """Count a finding in a partition's folder."""
        self._counts[path, finding.level] += 1

    def count(self, path: str, level: str) -> int:
        """Return the number of findings of a level in a partition's folder."""
        return self._counts[path, level]

    def topics(self) -> tuple[TopicFact, ...]:
        """Return the facts of topics, by name; of too many, the largest."""
        names = sorted(self._topics, key=lambda name: -self._topics[name].disk_bytes)[:MOST_TOPICS]
        return tuple(self._topic(name, self._topics[name]) for name in sorted(names))

    def _topic(self, name: str, found: _Sum) -> TopicFact:
        total = found.clean + found.dirty
        return TopicFact(
            name=name,
            partitions=found.partitions,
            segments=found.segments,
            size=found.size,
            disk_bytes=found.disk_bytes,
            batches=found.batches if found.is_counted else None,
            records=found.records if found.is_counted else None,
            first_timestamp=found.first,
            newest_timestamp=found.newest,
            codecs=tuple(sorted(found.codecs)),
            ratio=round(found.raw / found.body, 3) if found.body else None,
            policy=None if None in found.policies else "; ".join(sorted(filter(None, found.policies))) or None,
            dirty_ratio=round(found.dirty / total, 4) if found.is_cleaned and total else None,
            freed_now=found.freed_now if found.is_freed_known else None,
            freed_in_a_week=found.freed_later if found.is_freed_known else None,
            growth=found.grown,
            series=found.series,
            damage=sum(self.count(path, "damage") for path in found.paths),
            notices=sum(self.count(path, "notice") for path in found.paths),
            is_internal=name in _INTERNAL,
        )

    def disks(self, disk: Disk) -> tuple[DiskFact, ...]:
        """Return the facts of log directories, and of folders of partitions that were named by themselves."""
        log_dirs = {log_dir.path: log_dir for log_dir in disk.log_dirs}
        names = [*log_dirs, *(path for path in self._disks if path not in log_dirs)]
        return tuple(
            self._disk(path, log_dirs.get(path), self._disks.get(path, _Sum(Growth(self._now_ms)))) for path in names
        )

    def _disk(self, path: str, log_dir: LogDir | None, found: _Sum) -> DiskFact:
        is_local = log_dir is not None and isinstance(log_dir.files, LocalFiles)
        usage = _usage(path) if is_local else None
        per_day = found.grown.per_day
        return DiskFact(
            path=printable(path if log_dir is None else shown_path(log_dir.files, path)),
            partitions=found.partitions,
            segments=found.segments,
            size=found.size,
            disk_bytes=found.disk_bytes,
            free_bytes=None if usage is None else usage[0],
            total_bytes=None if usage is None else usage[1],
            growth=found.grown,
            full_in_days=round(usage[0] / per_day, 1) if usage is not None and per_day > 0 else None,
            locked_by=_owner(path) if is_local else None,
            is_stopped_cleanly=_is_clean(log_dir),
        )

    def advice(self, disks: Sequence[DiskFact]) -> Iterator[FindingFact]:
        """Yield disks that are full soon."""
        for disk in disks:
            if disk.full_in_days is not None and disk.full_in_days < _SOON_DAYS:
                reason = (
                    f"at {round(disk.growth.bytes_per_day):,} bytes a day the {disk.free_bytes:,} free bytes last "
                    f"{disk.full_in_days} days, if nothing is deleted"
                )
                commands = (
                    Command("show", line("pylogseg", "ls", disk.path, "--by", "topic", "--sort", "size")),
                    Command("try", line("pylogseg", "retain", disk.path, "--dry-run")),
                )
                yield FindingFact(
                    level="advice",
                    kind="disk-full-soon",
                    reason=reason,
                    remedy="lower the retention of growing topics, or move partitions to another disk",
                    path=disk.path,
                    commands=commands,
                )


def _usage(path: str) -> tuple[int, int] | None:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return usage.free, usage.total


def _owner(path: str) -> str | None:
    """Return who has the lock of a log directory."""
    try:
        check_unlocked(path)
    except StorageError as error:
        return printable(error.reason.partition(" has the lock")[0]) if error.__cause__ is None else None
    return None


def _is_clean(log_dir: LogDir | None) -> bool | None:
    if log_dir is None:
        return None
    try:
        return any(entry.name == FileKind.CLEAN_SHUTDOWN.value for entry in log_dir.files.list_folder(log_dir.path))
    except StorageError:
        return None
