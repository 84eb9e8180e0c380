"""What was counted of segments, put together by partition, topic or disk, and as rows of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pylogseg.disk import Disk, Partition, Segment
from pylogseg.files.checkpoint import parse_offset_checkpoint
from pylogseg.format.batches import CODEC_NAMES
from pylogseg.format.names import FileKind
from pylogseg.jobs.sketch import Histogram
from pylogseg.jobs.stats import Missing, Stats

#: What timestamps are, by their type.
TIME_TYPES = {0: "CreateTime", 1: "LogAppendTime", -1: "none"}


@dataclass
class Group:
    """What is counted together, and how far it is."""

    name: str
    partitions: int = 0
    stats: Stats = field(default_factory=Stats)
    missing: Missing = field(default_factory=lambda: Missing(0, 0, 0, 0, 0, 0))

    def add(self, rows: list[Stats], missing: Missing) -> None:
        """Count a partition."""
        self.partitions += 1
        for row in rows:
            self.stats.merge(row)
        self.missing = Missing(*(a + b for a, b in zip(self.missing, missing, strict=True)))


class Unit(NamedTuple):
    """What is counted as one log: a partition, or a file named by itself.

    Attributes
    ----------
    name : str
        ``orders-3``, or the path of the file.
    segments : sequence of Segment
        By base offset.
    log_start_offset : int
        Of the partition.
    cleaned_to : int or None
        Up to where the cleaner's checkpoint says that it was compacted; None if it does not name it.
    """

    name: str
    segments: Sequence[Segment]
    log_start_offset: int
    cleaned_to: int | None


def units_of(disk: Disk, partitions: Iterable[Partition]) -> list[Unit]:
    """The partitions that can be listed, and the files of a disk that were named by themselves."""
    cleaned = _cleaned(disk)
    units = [
        Unit(p.name, p.segments, p.log_start_offset, cleaned.get((p.topic, p.partition)))
        for p in partitions
        if p.error is None
    ]
    return units + [Unit(segment.path, (segment,), 0, None) for segment in disk.loose]


def group_key(name: str, by: str | None) -> str:
    """What a unit is counted under: its topic, itself, or all together."""
    return {"topic": name.rpartition("-")[0] or name, "partition": name}.get(by or "", "all")


def _cleaned(disk: Disk) -> dict[tuple[str, int], int]:
    """Partitions that the cleaners' checkpoints name."""
    found: dict[tuple[str, int], int] = {}
    for log_dir in disk.log_dirs:
        path = log_dir.checkpoints.get(FileKind.CLEANER_OFFSETS)
        if path is not None:
            found.update(parse_offset_checkpoint(log_dir.files.read_all(path), path))
    return found


def _sizes(histogram: Histogram) -> dict[str, Any]:
    known = histogram.count > 0
    return {
        "count": histogram.count,
        "total": histogram.total,
        "min": histogram.least if known else None,
        "mean": None if histogram.mean is None else round(histogram.mean, 2),
        **{f"p{percent}": histogram.percentile(percent) for percent in (50, 90, 99)},
        "max": histogram.largest if known else None,
    }


def codec_name(number: int) -> str:
    """Name of a codec, or its number where it is none."""
    return CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"codec {number}"


def stats_row(group: Group) -> dict[str, Any]:
    """What was counted, as plain values by the names that users see."""
    stats, missing = group.stats, group.missing
    return {
        "name": group.name,
        "partitions": group.partitions,
        "segments": stats.segments,
        "sizeBytes": stats.size_bytes,
        "batches": stats.batches,
        "emptyBatches": stats.empty_batches,
        "controlBatches": stats.control_batches,
        "transactionalBatches": stats.transactional_batches,
        "records": stats.records,
        "controlRecords": dict(sorted(stats.markers.items())),
        "codecs": {
            codec_name(number): {
                "batches": codec.batches,
                "records": codec.records,
                "storedBytes": codec.stored_bytes,
                "bodyBytes": codec.body_bytes,
                "rawBytes": codec.raw_bytes,
                "ratio": None if codec.ratio is None else round(codec.ratio, 3),
            }
            for number, codec in sorted(stats.codecs.items())
        },
        "magic": {str(magic): count for magic, count in sorted(stats.magics.items())},
        "timestampTypes": {TIME_TYPES[kind]: count for kind, count in sorted(stats.time_types.items())},
        "timestamps": [stats.least_timestamp, stats.largest_timestamp],
        "recordBytes": _sizes(stats.record_sizes),
        "keyBytes": _sizes(stats.key_sizes),
        "valueBytes": _sizes(stats.value_sizes),
        "nullKeys": stats.null_keys,
        "distinctKeys": stats.keys.count,
        "distinctKeysExact": stats.keys.is_exact,
        "tombstones": stats.tombstones,
        "headers": stats.headers,
        "producers": len(stats.producers),
        "missingOffsets": {
            "markers": missing.markers,
            "belowLogStart": missing.below_start,
            "belowLogStartStillInFiles": missing.still_there,
            "compaction": missing.compaction,
            "damage": missing.damage,
            "unexplained": missing.unexplained,
        },
        "gaps": [str(gap) for gap in stats.gaps],
    }
