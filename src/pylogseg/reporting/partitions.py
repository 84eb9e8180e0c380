"""The facts of one partition, out of the scans of its segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pylogseg.disk.columns import CODEC
from pylogseg.disk.disk import OtherFile, Partition, Segment
from pylogseg.disk.folders import readable_topic_id
from pylogseg.errors import PylogsegError
from pylogseg.format.columns import TableColumn, to_row
from pylogseg.format.escape import printable
from pylogseg.format.files.txnindex import AbortedTxn
from pylogseg.format.names import FileKind
from pylogseg.inspect.stats.few_headers import partition_row
from pylogseg.inspect.stats.groups import TIME_TYPES, Unit, codec_name
from pylogseg.inspect.stats.listing import (
    PartitionRow,
    bytes_on_disk,
    companions_of,
    shown_path,
    state_of,
)
from pylogseg.inspect.stats.missing import MissingOffsets
from pylogseg.inspect.stats.segment import Stats
from pylogseg.inspect.stats.sketch import Heaviest
from pylogseg.inspect.stats.tops import Tops
from pylogseg.reading.logs import log_of
from pylogseg.reporting import commands
from pylogseg.reporting.facts import (
    HotKey,
    MissingFact,
    PartitionFact,
    Payload,
    SampleFact,
    SegmentFact,
    TransactionsFact,
)
from pylogseg.reporting.scanning import SegmentScan
from pylogseg.reporting.series import Growth, Series
from pylogseg.values.internal.producers import ProducerRow, producers_of

#: Rows of a partition in the facts.
MOST_RANGES, MOST_PRODUCERS, MOST_ABORTED, MOST_SEGMENTS = 100, 50, 50, 200
#: How many names of keys are shown of those that have most.
TOP = 10
#: Bytes behind the newest snapshot that are read for its producers without ``--full``.
_MOST_BEHIND = 16 << 20
_READ = ("names", "some", "headers", "all")


class Fold:
    """Takes the scans of a partition's segments in order; its sums do not grow with their number."""

    def __init__(self, unit: Unit, now_ms: int, is_whole: bool) -> None:
        self.unit, self._is_whole = unit, is_whole
        self.stats, self.sample = Stats(), Stats()
        self.series, self.grown = Series(), Growth(now_ms)
        self.segments: list[SegmentFact] = []
        self.read: list[str] = []
        self.aborted: list[AbortedTxn] = []
        self.aborted_count = 0
        self.is_sampled = self.has_batches = False
        self._offsets = MissingOffsets(unit.name, unit.log_start_offset, unit.is_cleaned, MOST_RANGES)

    def add(self, segment: Segment, scan: SegmentScan) -> None:
        self._offsets.add(scan.stats if not scan.is_estimate else _without_holes(scan.stats))
        self.has_batches |= scan.row.size > 0
        if scan.sample is not None:
            self.is_sampled |= scan.row.size > 0
            self.sample.merge(scan.sample)
        self.stats.merge(scan.stats)
        self.series.merge(scan.series)
        self.grown.merge(scan.grown)
        self.read.append(scan.read)
        self.segments.append(_segment_fact(segment, scan))
        room = MOST_ABORTED - len(self.aborted)
        self.aborted += scan.aborted[:room]
        self.aborted_count += scan.aborted_count

    @property
    def worst_read(self) -> str:
        """How little was read of a segment."""
        return min(self.read, key=_READ.index, default="names")

    @property
    def is_all_decoded(self) -> bool:
        """True if the sample has every record."""
        is_damaged = any(gap.is_damage for gap in self.stats.gaps)
        return not is_damaged and self.sample.records == self.stats.records and "names" not in self.read

    def missing(self) -> MissingFact | None:
        """Return the missing offsets; None for a part of a log, where they mean nothing."""
        if not self._is_whole:
            return None
        counts, ranges, unlisted = self._offsets.finish()
        named = [part._replace(reason=_NOT_EXPLAINED) if part.reason == "unexplained" else part for part in ranges]
        shown = [part for part in named if part.reason != "markers"]
        listed = tuple(shown[:MOST_RANGES])
        is_all = all(extent in ("all", "headers") for extent in self.read)
        return MissingFact(
            counts.markers if is_all else None,
            counts.below_start,
            counts.compaction,
            counts.damage,
            counts.unexplained,
            listed,
            unlisted + len(shown) - len(listed),
            is_all,
        )

    def sample_fact(self, payloads: Sequence[Payload], shows_keys: bool, limit_bytes: int) -> SampleFact | None:
        """Return the facts of the decoded records; None if there are none."""
        stats = self.sample
        if not stats.records and not stats.gaps:
            return None
        tops = stats.tops or Tops()
        return SampleFact(
            is_all=self.is_all_decoded,
            records=stats.records,
            record_bytes=stats.record_sizes,
            key_bytes=stats.key_sizes,
            value_bytes=stats.value_sizes,
            codecs=_codec_rows(stats),
            null_keys=stats.null_keys,
            tombstones=stats.tombstones,
            headers=stats.headers,
            distinct_keys=stats.keys.count,
            distinct_keys_exact=stats.keys.is_exact,
            keys_by_records=_hot(tops, tops.by_records, True, shows_keys, limit_bytes),
            keys_by_bytes=_hot(tops, tops.by_bytes, False, shows_keys, limit_bytes),
            largest=_largest(tops, shows_keys, limit_bytes),
            weights_missed=max(tops.by_records.missed, tops.by_bytes.missed),
            payloads=tuple(payloads),
        )


_NOT_EXPLAINED = "not explained"


def _without_holes(stats: Stats) -> Stats:
    """Return estimated counts as if a segment had no missing offset: only gaps between segments count."""
    held = max(0, stats.end_offset - stats.first_offset) if stats.first_offset >= 0 else 0
    return replace(stats, records=held, control_records=0, empty=[], control=[], left_out=0, unlisted=0)


def _segment_fact(segment: Segment, scan: SegmentScan) -> SegmentFact:
    row, stats = scan.row, scan.stats
    return SegmentFact(
        name=printable(segment.name),
        state="active" if segment.is_last else "sealed",
        base_offset=row.base_offset,
        next_offset=row.next_offset,
        size=row.size,
        modified_ms=row.modified_ms,
        first_timestamp=row.first_timestamp,
        largest_timestamp=row.largest_timestamp,
        companions=tuple(companions_of(segment)),
        read=scan.read,
        batches=None if scan.read == "names" else stats.batches,
        records=None if scan.read == "names" else stats.records,
        codecs=tuple(codec_name(number) for number in sorted(stats.codecs)),
        damage=sum(finding.is_damage for finding in scan.report.findings),
        is_gone=scan.is_gone,
        error=None if row.error is None else printable(str(row.error)),
    )


def left_over(others: Iterable[OtherFile]) -> list[SegmentFact]:
    """Return the files of batches in a folder that have a suffix."""
    return [
        SegmentFact(
            name=printable(other.path.rsplit("/", 1)[-1]),
            state=other.name.suffix[1:],
            base_offset=other.name.offset or 0,
            size=other.size,
        )
        for other in others
        if other.name.kind is FileKind.LOG and other.name.suffix
    ]


def merged_segments(found: Sequence[SegmentFact], most: int) -> tuple[tuple[SegmentFact, ...], int]:
    """Return at most so many segments: neighbours among the oldest become one; and how many these were."""
    live = [fact for fact in found if fact.state in ("sealed", "active")]
    others = [fact for fact in found if fact.state not in ("sealed", "active")]
    if len(live) <= most:
        return (*live, *others[: max(0, most - len(live))]), max(0, len(others) - max(0, most - len(live)))
    kept = most // 2
    old, new = live[: len(live) - kept], live[len(live) - kept :]
    size = -(-len(old) // (most - kept))
    groups = [old[first : first + size] for first in range(0, len(old), size)]
    return (*(_merge_segments(group) for group in groups), *new), len(old) + len(others)


def _merge_segments(group: Sequence[SegmentFact]) -> SegmentFact:
    first, last = group[0], group[-1]
    starts = [fact.first_timestamp for fact in group if fact.first_timestamp is not None]
    largest = [fact.largest_timestamp for fact in group if fact.largest_timestamp is not None]
    return replace(
        first,
        name=f"{len(group)} segments",
        state="merged",
        next_offset=last.next_offset,
        size=sum(fact.size for fact in group),
        modified_ms=max(fact.modified_ms for fact in group),
        first_timestamp=min(starts, default=None),
        largest_timestamp=max(largest, default=None),
        companions=(),
        read=min((fact.read for fact in group), key=_READ.index),
        batches=_sum([fact.batches for fact in group]),
        records=_sum([fact.records for fact in group]),
        codecs=tuple(sorted({codec for fact in group for codec in fact.codecs})),
        damage=sum(fact.damage for fact in group),
        merged=len(group),
        is_gone=any(fact.is_gone for fact in group),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value for value in values if value is not None)


# ---- what records say ----


def _codec_rows(stats: Stats) -> tuple[dict[str, Any], ...]:
    return tuple({"name": codec_name(number), **to_row(stats.codecs[number], CODEC)} for number in sorted(stats.codecs))


def _hot(tops: Tops, heaviest: Heaviest, by_records: bool, shows: bool, limit_bytes: int) -> tuple[HotKey, ...]:
    rows: list[tuple[Segment, int, str | None, int | None, int]]
    if shows:
        rows = [
            (key.segment, key.offset, printable(readable_text(key.key)), key.key_bytes, weight)
            for key, weight in tops.keys(heaviest, limit_bytes)
            if key is not None
        ]
    else:
        rows = [
            (tops.segments[owner], offset, None, None, weight) for (owner, offset), weight in heaviest.first(TOP)
        ]  # fmt: skip
    return tuple(
        HotKey(key, size, offset, _path(segment), weight if by_records else None, None if by_records else weight)
        for segment, offset, key, size, weight in rows
    )


def _largest(tops: Tops, shows: bool, limit_bytes: int) -> tuple[HotKey, ...]:
    if shows:
        return tuple(
            HotKey(
                None if key is None or key.key is None else printable(readable_text(key.key)),
                None if key is None else key.key_bytes,
                offset,
                _path(segment),
                None,
                size,
            )
            for segment, offset, size, key in tops.largest(limit_bytes)
        )
    rows = zip(tops.owners.tolist(), tops.offsets.tolist(), tops.sizes.tolist(), strict=True)
    return tuple(HotKey(None, None, offset, _path(tops.segments[owner]), None, size) for owner, offset, size in rows)


def _path(segment: Segment) -> str:
    return printable(shown_path(segment.files, segment.path))


#: Of a key or a value that is shown.
SHOWN_BYTES = 200


def readable_text(data: bytes | None, most: int = SHOWN_BYTES) -> str:
    """Return bytes as text, cut to so many; bytes that are no UTF-8 become escapes."""
    if data is None:
        return ""
    return data[:most].decode("utf-8", "backslashreplace") + ("…" if len(data) > most else "")


# ---- small files of a partition ----


def producers_at_end(
    partition: Partition, end: int | None, stats: Stats, is_full: bool
) -> tuple[list[ProducerRow], str]:
    """Return the producers of a partition, and the reason (or "") why these may be the ones of an earlier moment."""
    log = log_of(partition)
    if not log.segments or end is None:
        return [], ""
    newest = max((offset for offset in log.snapshots if offset <= end), default=0)
    if not is_full and not newest and stats.segments and not stats.producers:
        return [], ""
    behind = sum(s.size for s in log.segments if s.next_base is None or s.next_base > newest)
    late = ""
    if not is_full and stats.segments and not stats.producers:
        end = newest  # no batch has a producer: what the snapshot holds is all
    elif not is_full and behind > _MOST_BEHIND:
        late = f"{partition.name}: producers and open transactions are as in the snapshot at offset {newest:,}"
        end = newest
    refused = list[PylogsegError]()
    rows = producers_of(log, end, refused.append).values()
    if refused:
        late += "; " if late else f"{partition.name}: "
        late += f"producers and open transactions may be older ones: {refused[0]}"
    return sorted(rows, key=lambda p: p.producer_id), late


_PRODUCER = (
    TableColumn("producerId", "int64", "its id"),
    TableColumn("producerEpoch", "int16", "of its last batch", source="epoch"),
    TableColumn("lastSequence", "int32", "of its last record"),
    TableColumn("lastTimestamp", "int64", "of its last batch", "ms"),
    TableColumn(
        "openSinceOffset",
        "int64",
        "where its open transaction begins",
        source=lambda producer: None if producer.first_txn_offset < 0 else producer.first_txn_offset,
    ),
)


def producer_rows(producers: Sequence[ProducerRow], names: dict[int, str]) -> tuple[dict[str, Any], ...]:
    """Return producers with their transactional ids; the last writers come first."""
    newest = sorted(producers, key=lambda producer: -producer.last_timestamp)
    return tuple(
        {**to_row(producer, _PRODUCER), "transactionalId": names.get(producer.producer_id)}
        for producer in newest[:MOST_PRODUCERS]
    )


def partition_row_of(partition: Partition, scans: Fold | None) -> PartitionRow:
    """Return the row of `ls`, without opening a segment again if all were."""
    if scans is None or not scans.segments:
        return partition_row(partition)
    first = next((row.first_timestamp for row in scans.segments if row.first_timestamp is not None), None)
    newest = next((row.largest_timestamp for row in scans.segments[::-1] if row.largest_timestamp is not None), None)
    ends = [row.next_offset for row in scans.segments if not row.is_gone]
    if not ends or None in ends or any(row.error for row in scans.segments):
        return partition_row(partition)
    start = partition.log_start_offset
    return PartitionRow(start, max(start, ends[-1] or 0), first, newest)


def unscanned_fact(partition: Partition, disk: str, now_ms: int) -> PartitionFact:
    """Return the facts of a partition whose segments were not looked at: by its names, first and last headers."""
    row = partition_row(partition)
    segments = [
        SegmentFact(
            name=printable(s.name),
            state="active" if s.is_last else "sealed",
            base_offset=s.base_offset,
            next_offset=s.next_base,
            size=s.size,
            modified_ms=s.modified_ms,
            companions=tuple(companions_of(s)),
        )
        for s in partition.segments
    ]
    shown, left = merged_segments([*segments, *left_over(partition.others)], MOST_SEGMENTS)
    return blank_fact(partition, disk, row, Fold(Unit(partition.name, (), 0, None), now_ms, False), shown, left)


_NO_SERIES, _NO_GROWTH = Series(), Growth(0)


def blank_fact(
    partition: Partition,
    disk: str,
    row: PartitionRow,
    fold: Fold,
    segments: tuple[SegmentFact, ...],
    left: int,
) -> PartitionFact:
    """Return the facts that cost little: of names, headers and records."""
    stats, path = fold.stats, shown_path(partition.files, partition.path)
    is_known = bool(fold.read) and fold.worst_read != "names"
    error = partition.error or row.error
    return PartitionFact(
        name=printable(partition.name),
        topic=printable(partition.topic) or None,
        partition=None if partition.partition < 0 else partition.partition,
        state=state_of(partition),
        path=printable(path),
        disk=disk,
        log_start_offset=None if partition.error else row.log_start_offset,
        log_end_offset=None if partition.error else row.log_end_offset,
        size=partition.size,
        disk_bytes=bytes_on_disk(partition),
        first_timestamp=row.first_timestamp,
        newest_timestamp=row.newest_timestamp,
        read=fold.worst_read,
        batches=stats.batches if is_known else None,
        records=stats.records if is_known else None,
        control_batches=stats.control_batches if is_known else None,
        empty_batches=stats.empty_batches if is_known and "some" not in fold.read else None,
        codecs=tuple(codec_name(number) for number in sorted(stats.codecs)),
        timestamp_types=tuple(TIME_TYPES[kind] for kind in sorted(stats.time_types)),
        magics=tuple(sorted(stats.magics)),
        segments=segments,
        series=_NO_SERIES,
        growth=_NO_GROWTH,
        sample=None,
        missing=None,
        producers=(),
        producers_not_listed=0,
        transactions=TransactionsFact(None, None, None, (), 0, ()),
        leader_epochs=(),
        cleaning=None,
        damage=0,
        notices=0,
        commands=commands.of_partition(path),
        segments_not_listed=left,
        error=None if error is None else printable(str(error)),
        topic_id=readable_topic_id(partition.files, partition.path) if partition.topic else None,
    )


def with_times(fact: PartitionFact, fold: Fold) -> PartitionFact:
    """Return facts with the facts by time, and the missing offsets."""
    return replace(fact, series=fold.series, growth=fold.grown, missing=fold.missing())
