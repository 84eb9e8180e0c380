"""Counts of segments, grouped by partition, topic or disk, and as rows of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from pylogseg.disk.columns import STATS, STATS_OF_RANGE
from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.format.columns import TableColumn
from pylogseg.format.files.checkpoint import parse_offset_checkpoint
from pylogseg.format.names import FileKind
from pylogseg.inspect.stats.missing import MAX_LISTED, MissingCounts, MissingOffsets, MissingRange
from pylogseg.inspect.stats.segment import CodecStats, Stats
from pylogseg.reading.offset_range import OPEN_END
from pylogseg.reading.seek import offset_of_time
from pylogseg.values.internal.cluster import INTERNAL_TOPICS, clusters_of, fallbacks_of

#: Names of timestamp types.
TIME_TYPES = {0: "CreateTime", 1: "LogAppendTime", -1: "none"}


@dataclass
class StatsGroup:
    """Counts of several partitions; with `is_whole` also the missing offsets."""

    name: str
    partitions: int = 0
    stats: Stats = field(default_factory=Stats)
    missing: MissingCounts = field(default_factory=lambda: MissingCounts(0, 0, 0, 0, 0, 0))
    ranges: list[MissingRange] = field(default_factory=list)
    unlisted: int = 0
    is_whole: bool = True
    dirty_bytes: int = 0  #: Not cleaned, of `sealed_bytes`: those of logs that the cleaner's checkpoint names.
    sealed_bytes: int = 0

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        return STATS if self.is_whole else STATS_OF_RANGE

    @property
    def markers(self) -> dict[str, int]:
        """Control records by type."""
        return dict(sorted(self.stats.markers.items()))

    @property
    def codecs(self) -> dict[str, CodecStats]:
        return {codec_name(number): codec for number, codec in sorted(self.stats.codecs.items())}

    @property
    def magics(self) -> dict[str, int]:
        """Batches by version of the format."""
        return {str(magic): count for magic, count in sorted(self.stats.magics.items())}

    @property
    def time_types(self) -> dict[str, int]:
        return {TIME_TYPES[kind]: count for kind, count in sorted(self.stats.time_types.items())}

    @property
    def producers(self) -> int:
        return len(self.stats.producers)

    @property
    def dirty_ratio(self) -> float | None:
        """Share of the bytes of sealed segments that is not cleaned; None without a cleaner."""
        return round(self.dirty_bytes / self.sealed_bytes, 3) if self.sealed_bytes else None

    @property
    def gaps(self) -> list[str]:
        """Damage, and ranges without a trace of the reason."""
        unexplained = (str(missing) for missing in self.ranges if missing.reason == "unexplained")
        return [*map(str, self.stats.gaps), *unexplained]

    def add(self, name: str, rows: Iterable[Stats], log_start_offset: int, is_cleaned: bool) -> None:
        """Add a partition: the counts of its segments, in order, consumed one at a time."""
        self.partitions += 1
        if not self.is_whole:  # in a part of a log, missing offsets mean nothing
            for row in rows:
                self.stats.merge(row)
            return
        offsets = MissingOffsets(name, log_start_offset, is_cleaned, MAX_LISTED - len(self.ranges))
        for row in rows:
            offsets.add(row)
            self.stats.merge(row)
        missing, ranges, unlisted = offsets.finish()
        self.ranges += ranges
        self.unlisted += unlisted
        self.missing = _sum(self.missing, missing)


def total(groups: Iterable[StatsGroup]) -> StatsGroup:
    """Return the sum of groups, without their missing ranges."""
    whole = StatsGroup("TOTAL")
    for group in groups:
        whole.is_whole = group.is_whole
        whole.partitions += group.partitions
        whole.stats.merge(group.stats)
        whole.missing = _sum(whole.missing, group.missing)
        whole.dirty_bytes += group.dirty_bytes
        whole.sealed_bytes += group.sealed_bytes
    return whole


def _sum(a: MissingCounts, b: MissingCounts) -> MissingCounts:
    return MissingCounts(*(x + y for x, y in zip(a, b, strict=True)))


class Unit(NamedTuple):
    """A log to count: a partition, or a single file."""

    name: str  #: As `orders-3`, or the path of the file.
    segments: Sequence[Segment]
    log_start_offset: int
    cleaned_to: int | None  #: The offset in the cleaner's checkpoint; None without an entry.
    is_compacted: bool = False  #: By all brokers, or by the topic's settings in the cluster's metadata.

    @property
    def is_cleaned(self) -> bool:
        """True if the cleaner removes records of this log."""
        return self.is_compacted or self.cleaned_to is not None

    def dirty_and_sealed_bytes(self) -> tuple[int, int]:
        """Return the bytes of sealed segments that are not cleaned, and of all of them; 0 without an entry."""
        if self.cleaned_to is None:
            return 0, 0
        pairs = [(segment.size, behind.base_offset) for segment, behind in pairwise(self.segments)]
        return sum(size for size, end in pairs if end > self.cleaned_to), sum(size for size, _ in pairs)


def units_of(disk: Disk, partitions: Iterable[Partition], notes: list[str] | None = None) -> list[Unit]:
    """Return the readable partitions and the single files of a disk.

    `notes` gets the errors of unreadable checkpoints; without `notes` they are raised.
    """
    cleaned, compacted = _read_cleaned(disk, notes), _list_compacted(disk, notes)
    units = [
        Unit(p.name, p.segments, p.log_start_offset, cleaned.get((p.topic, p.partition)), p.topic in compacted)
        for p in partitions
        if p.error is None
    ]
    return units + [Unit(segment.path, (segment,), 0, None) for segment in disk.loose]


def units_since(units: Iterable[Unit], since: int | None) -> list[tuple[Unit, int]]:
    """Return units with only the segments that may have records since a time, and the first such offset."""
    wanted = []
    for unit in units:
        first = 0 if since is None else offset_of_time(unit.segments, since, OPEN_END, 0)
        kept = [segment for segment in unit.segments if segment.next_base is None or segment.next_base > first]
        wanted.append((unit._replace(segments=kept), first))
    return wanted


def group_key(name: str, by: str | None) -> str:
    """Return the group of a unit: its topic, its partition, or all together."""
    return {"topic": name.rpartition("-")[0] or name, "partition": name}.get(by or "", "all")


def _read_cleaned(disk: Disk, notes: list[str] | None) -> dict[tuple[str, int], int]:
    offsets: dict[tuple[str, int], int] = {}
    for log_dir in disk.log_dirs:
        path = log_dir.checkpoints.get(FileKind.CLEANER_OFFSETS)
        if path is None:
            continue
        try:
            offsets.update(parse_offset_checkpoint(log_dir.files.read_all(path), path))
        except (CorruptionError, StorageError) as error:
            if notes is None:
                raise
            notes.append(f"what the cleaner has cleaned: {error}")
    return offsets


def _list_compacted(disk: Disk, notes: list[str] | None) -> set[str]:
    """Return the internal topics that every broker compacts, and topics that the cluster's metadata compacts."""
    clusters, unread = clusters_of(disk)
    if notes is not None:
        notes += [*unread, *fallbacks_of(clusters)]
    ids = {id(cluster): cluster for cluster in clusters.values()}.values()
    named = {t for c in ids for t in c.topic_ids if "compact" in c.of_topic(t).get("cleanup.policy", "")}
    return named | {t for t, settings in INTERNAL_TOPICS.items() if settings.get("cleanup_policy") == "compact"}


def codec_name(number: int) -> str:
    """Return the name of a codec, or its number if it is unknown."""
    return CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"codec {number}"
