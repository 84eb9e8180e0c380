"""Lists of topics, partitions or segments of a disk, as `ls` shows them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pylogseg.disk.disk import Partition, Segment
from pylogseg.format.moments import time_text
from pylogseg.format.outcome import Headings, Outcome, TextTable
from pylogseg.format.words import size_text
from pylogseg.inspect.stats.listing import (
    PartitionRow,
    SegmentRow,
    bytes_on_disk,
    companions_of,
    gaps_between,
    partition_fields,
    segment_fields,
    shown_path,
    state_of,
)
from pylogseg.walker.gaps import offsets_text

#: Name at most this many missing segments.
_NAMED = 5
#: Fields that few rows have.
_RARE = ("missingSegments", "error")
_TOPICS: Headings = {
    "TOPIC": "topic",
    "PARTITIONS": "partitions",
    "SEGMENTS": "segments",
    "SIZE": lambda row: size_text(row["size"]),
    "ON DISK": lambda row: size_text(row["diskBytes"]),
}


class DiskList(Outcome):
    """A list of `ls`."""

    @property
    def notices(self) -> Iterator[str]:
        """Lines for people about segments or offsets that are not there; rows have them too."""
        yield from ()


@dataclass
class TopicList(DiskList):
    """The topics of some partitions, the largest first if it is `by_size`; with leftovers if it `has_leftovers`."""

    partitions: Sequence[Partition]
    by_size: bool = False
    has_leftovers: bool = False

    def parts(self) -> list[dict[str, Any]]:
        """Return a row for each topic."""
        topics: dict[str, list[Partition]] = {}
        for partition in self.partitions:
            topics.setdefault(partition.topic or partition.name, []).append(partition)
        rows = [_topic_row(name, partitions) for name, partitions in topics.items()]
        return sorted(rows, key=lambda row: (-row["diskBytes"] if self.by_size else 0, row["topic"]))

    def lines(self) -> Iterator[str | TextTable]:
        """Yield a table, with a total, and one of leftovers."""
        yield TextTable.of([*self.parts(), _topic_row("TOTAL", self.partitions)], _TOPICS, [*_TOPICS][1:])
        if self.has_leftovers:
            yield from leftover_lines(self.partitions)


def _topic_row(name: str, partitions: Sequence[Partition]) -> dict[str, Any]:
    return {
        "topic": name,
        "partitions": len(partitions),
        "segments": sum(len(p.segments) for p in partitions),
        "size": sum(p.size for p in partitions),
        "diskBytes": sum(map(bytes_on_disk, partitions)),
    }


@dataclass
class PartitionList(DiskList):
    """Partitions, each with facts from a few headers; with their leftovers if it `has_leftovers`."""

    rows: Sequence[tuple[Partition, PartitionRow]]
    has_leftovers: bool = False

    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each partition."""
        for partition, row in self.rows:
            fields = _drop_rare(partition_fields(partition, row))
            if self.has_leftovers:
                fields["leftovers"] = [
                    {"path": shown_path(partition.files, other.path), "suffix": other.name.suffix, "size": other.size}
                    for other in partition.others
                    if not other.name.is_live
                ]
            yield fields

    def lines(self) -> Iterator[str | TextTable]:
        """Yield a table, with a total, and one of leftovers."""
        headings = ["TOPIC", "PARTITION", "STATE", "SEGMENTS", "START", "END", "SIZE", "FIRST TIME", "NEWEST TIME"]
        table = [_partition_cells(partition, row) for partition, row in self.rows]
        if len(self.rows) > 1:
            table.append(self._total())
        folders = [p.files.split(shown_path(p.files, p.path))[0] for p, _ in self.rows]
        if len(set(folders)) > 1:
            headings.append("LOG DIR")
            table = [(*line, folder) for line, folder in itertools.zip_longest(table, folders)]
        yield TextTable(headings, table, ["PARTITION", "SEGMENTS", "START", "END", "SIZE"])
        if self.has_leftovers:
            yield from leftover_lines(partition for partition, _ in self.rows)

    @property
    def notices(self) -> Iterator[str]:
        """Lines about segments of which only indexes are left."""
        for partition, row in self.rows:
            if row.missing:
                names = [f"{base:020d}.log" for base in row.missing[:_NAMED]] + ["..."] * (len(row.missing) > _NAMED)
                missing = f"indexes without their segment: {', '.join(names)}"
                yield f"{partition.name}: {missing} (pylogseg verify reports what is missing)"

    def _total(self) -> tuple[Any, ...]:
        first = [row.first_timestamp for _, row in self.rows if row.first_timestamp is not None]
        newest = [row.newest_timestamp for _, row in self.rows if row.newest_timestamp is not None]
        times = time_text(min(first, default=None)), time_text(max(newest, default=None))
        size = size_text(sum(p.size for p, _ in self.rows))
        segments = sum(len(p.segments) for p, _ in self.rows)
        return "TOTAL", f"of {len(self.rows):,}", None, segments, None, None, size, *times


def _partition_cells(partition: Partition, row: PartitionRow) -> tuple[Any, ...]:
    counts: tuple[Any, ...] = (None, None, None, None)
    if partition.error is None:
        counts = len(partition.segments), row.log_start_offset, row.log_end_offset, size_text(partition.size)
    number = None if partition.partition < 0 else partition.partition
    times = time_text(row.first_timestamp), time_text(row.newest_timestamp)
    return partition.topic or partition.name, number, state_of(partition), *counts, *times


@dataclass
class SegmentList(DiskList):
    """Segments, each with its headers; `leftovers` are partitions whose other files are shown, too."""

    rows: Sequence[tuple[Segment, SegmentRow]]
    leftovers: Sequence[Partition] = ()

    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each segment."""
        return (_drop_rare(segment_fields(segment, row)) for segment, row in self.rows)

    def lines(self) -> Iterator[str | TextTable]:
        """Yield a table, with a total, and one of leftovers."""
        headings = ["PARTITION", "SEGMENT", "STATE", "BASE", "END", "SIZE", "INDEXES", "FIRST TIME", "LARGEST TIME"]
        table: list[tuple[Any, ...]] = [
            (
                f"{s.topic}-{s.partition}" if s.topic else None,
                s.name,
                "active" if s.is_last else "sealed",
                row.base_offset,
                row.next_offset,
                size_text(row.size),
                ",".join(companions_of(s)) or None,
                time_text(row.first_timestamp),
                time_text(row.largest_timestamp),
            )
            for s, row in self.rows
        ]
        if len(self.rows) > 1:
            size = size_text(sum(row.size for _, row in self.rows))
            table.append(("TOTAL", f"of {len(self.rows):,}", *[None] * 3, size, *[None] * 3))
        yield TextTable(headings, table, ["BASE", "END", "SIZE"])
        yield from leftover_lines(self.leftovers)

    @property
    def notices(self) -> Iterator[str]:
        """Lines about offsets between segments."""
        for folder, rows in itertools.groupby(self.rows, key=lambda each: each[0].files.split(each[0].path)[0]):
            for first, end in gaps_between(sorted((row for _, row in rows), key=lambda row: row.base_offset)):
                offsets = offsets_text(first, end)
                yield f"{folder}: {offsets} are in no segment (pylogseg stats --gaps shows the reason)"


def _drop_rare(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields as JSON has them: null for a name without a topic; fields that are often null are left out."""
    fields["topic"] = fields["topic"] or None
    fields["partition"] = fields["partition"] if fields["partition"] >= 0 else None
    return {name: value for name, value in fields.items() if name not in _RARE or value is not None}


def leftover_lines(partitions: Iterable[Partition]) -> Iterator[str | TextTable]:
    """Yield a table of the files of partitions that a broker does not use any more."""
    files = [(p.name, other) for p in partitions for other in p.others if not other.name.is_live]
    if files:
        yield ""
        cells = [(name, o.path.rsplit("/", 1)[-1], o.name.suffix or None, size_text(o.size)) for name, o in files]
        yield TextTable(["PARTITION", "LEFTOVER", "SUFFIX", "SIZE"], cells, ["SIZE"])
