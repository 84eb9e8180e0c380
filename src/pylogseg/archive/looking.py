"""A look at the points of an archive: all of them and the newest by few of the lists, and one in full."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pylogseg.archive.newest import known_points
from pylogseg.archive.read_notes import damaged_objects, read_damage
from pylogseg.disk.notes import joined_lines
from pylogseg.disk.stores import ObjectStore
from pylogseg.disk.tier.at_point import UNSEALED
from pylogseg.disk.tier.point import ArchivedPartition, Point, PointHead, PointName
from pylogseg.disk.tier.point_lists import LISTS, list_key, names_of_lists
from pylogseg.disk.tier.points import OpenedPoint, open_points, read_mark, read_point
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.columns import TableColumn, declare_columns, line_type, to_row
from pylogseg.format.outcome import Headings, Outcome, TextTable
from pylogseg.format.words import FEW, count_text, names_text, size_text

_POINTS: Headings = {
    "POINT": "point",
    "TIME": "time",
    "PARTITIONS": "partitions",
    "SIZE": lambda row: size_text(row["bytes"]),
    "NOT SEEN": lambda row: "unknown" if row["notSeen"] is None else row["notSeen"],
    "FAULTS": "faults",
}


@dataclass
class PointsLook(Outcome):
    """The points of an archive by their own objects, and their faults."""

    names: list[PointName]  #: The oldest first.
    heads: list[PointHead] = field(default_factory=list)  #: Of those that can be read.
    damage: list[CorruptionError] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """For a shell: 1 if there is damage."""
        return int(bool(self.damage))

    def parts(self) -> list[PointHead]:
        """Return the heads of the points."""
        return self.heads

    def warnings(self) -> Iterator[str]:
        """Yield the damage."""
        return map(str, self.damage)

    def lines(self) -> Iterator[TextTable]:
        """Yield a table of the points."""
        yield TextTable.of([to_row(head) for head in self.heads], _POINTS, [*_POINTS][2:])

    @property
    def newest(self) -> PointHead | None:
        """The head of the newest point; None if there is none, or it cannot be read."""
        return self.heads[-1] if self.heads and self.heads[-1].name == self.names[-1] else None

    @contextlib.contextmanager
    def take_damage(self) -> Iterator[None]:
        """Take damage that is found inside for damage of the archive."""
        try:
            yield
        except CorruptionError as error:
            self.damage.append(error)


@declare_columns(
    line_type("status"),
    TableColumn("points", "int64", "their number"),
    TableColumn("point", "string", "the newest", source="head.id"),
    TableColumn("ageSeconds", "float64", "of the newest point, by the clock here"),
    TableColumn("partitions", "int64", "in it", source="head.partitions"),
    TableColumn("bytes", "int64", "of its objects", "bytes", source="head.size"),
    TableColumn("notSeen", "int64", "partitions on no disk; null without the metadata", source="head.not_seen"),
    TableColumn("faults", "int64", "of the point", source="head.faults"),
    TableColumn("damage", "int64", "objects with damage"),
    TableColumn("isLate", "bool", "the newest point is older than it may be"),
)
class NewestPoint(NamedTuple):
    """The newest point of an archive, and its age."""

    head: PointHead
    points: int
    age_seconds: float
    damage: int
    is_late: bool

    def lines(self) -> Iterator[str]:
        """Yield the line for people."""
        not_seen = self.head.not_seen
        unseen = "unknown partitions" if not_seen is None else count_text(not_seen, "partition")
        numbers = f"{count_text(self.head.partitions, 'partition')}, {size_text(self.head.size)}"
        lacks = f"{count_text(self.head.faults, 'fault')}, {unseen} on no disk"
        age = f"the newest {span_text(self.age_seconds)} old"
        yield f"{count_text(self.points, 'point')}, {age}: {numbers}, {lacks}"


@dataclass
class ArchiveStatus(Outcome):
    """The newest point, if it can be read, and the damage of the archive."""

    place: str
    newest: NewestPoint | None
    damage: list[CorruptionError]

    @property
    def exit_code(self) -> int:
        """For a shell: 1 if the newest point cannot be read, has a fault or is late, or an object is damaged."""
        newest = self.newest
        return int(newest is None or bool(newest.head.faults or self.damage) or newest.is_late)

    def parts(self) -> list[NewestPoint]:
        """Return the newest point."""
        return [] if self.newest is None else [self.newest]

    def warnings(self) -> Iterator[str]:
        """Yield the age of a point that is late, then the damage."""
        if self.newest is not None and self.newest.is_late:
            yield f"{self.place}: the newest point is {span_text(self.newest.age_seconds)} old"
        yield from map(str, self.damage)

    def lines(self) -> Iterator[str]:
        """Yield the line for people."""
        for newest in self.parts():
            yield from newest.lines()


def archive_status(store: ObjectStore, max_age_seconds: float | None = None) -> ArchiveStatus:
    """Look at the newest point; RequestError without any point, StorageError if the store fails."""
    look = look_at_newest(store)
    if not look.names and not look.damage:
        raise RequestError(f"{store.url}: the archive has no point yet")
    head, newest = look.newest, None
    if head is not None:
        age = max(0, time.time_ns() // 1_000_000 - head.time_ms) / 1000
        is_late = max_age_seconds is not None and age > max_age_seconds
        newest = NewestPoint(head, len(look.names), age, len(look.damage), is_late)
    return ArchiveStatus(store.name(look.names[-1].key) if look.names else store.url, newest, look.damage)


def span_text(seconds: float) -> str:
    """Return a time span as text for people, in its largest unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@dataclass
class PointReport(Outcome):
    """All that a point says, for people; `is_verbose` names everything."""

    point: Point
    is_verbose: bool = False

    def lines(self) -> Iterator[str | TextTable]:
        """Yield the lines for people."""
        point = self.point
        yield f"{point.id} of cluster {point.cluster_id or 'unknown'}, by {point.writer}"
        yield from (f"disk {disk.path}: node {disk.node_id}, {disk.state}" for disk in point.disks)
        if point.not_seen is None:
            yield "no disk has the metadata of the cluster: missing partitions are unknown"
        if unseen := [f"{part.topic}-{part.partition}" for part in point.not_seen or ()]:
            more = " (--verbose prints all)" if len(unseen) > FEW and not self.is_verbose else ""
            names = ", ".join(unseen) if self.is_verbose else names_text(unseen)
            yield f"on no disk: {count_text(len(unseen), 'partition')}: {names}{more}"
        for label, texts in self._lists():
            shown = texts if self.is_verbose else texts[:FEW]
            yield from (f"{label}: {text}" for text in shown)
            if len(texts) > len(shown):
                yield f"{label}: {len(texts) - len(shown):,} more, {len(texts):,} in all (--verbose prints them)"
        headings = ["PARTITION", "TOPIC ID", "START", "END", "STABLE", "SEGMENTS", "BYTES", "FAULT"]
        yield TextTable(headings, [_cells(part) for part in point.partitions], headings[2:7])

    def _lists(self) -> Iterator[tuple[str, Sequence[str]]]:
        point, topics = self.point, {part.topic for part in self.point.partitions}

        def condense(texts: Sequence[str]) -> Sequence[str]:
            return texts if self.is_verbose else joined_lines(texts, topics)

        commits = point.above_end
        yield "above the end", [f"{each.group}: {each.topic}-{each.partition}, {each.offset}" for each in commits]
        yield "fault", condense(point.faults)
        notes = condense([note for note in point.notes if note not in point.faults])
        yield "note", [*notes, *(() if point.is_sealed else (UNSEALED,))]


def _cells(partition: ArchivedPartition) -> tuple[Any, ...]:
    size = sum(stored.size for stored in partition.objects.values())
    ends = partition.start_offset, partition.end_offset, partition.last_stable_offset
    return partition.name, partition.topic_id, *ends, len(partition.segments), size, partition.fault


def look_at_points(store: ObjectStore) -> PointsLook:
    """Open all points, and look whether the lists that they name are there; of the newest one, also deeper lists.

    RequestError if no archive is there, StorageError if the store fails.
    """
    look = _open_points(store, is_all=True)
    needed = {name for head in look.heads for name in head.lists}
    if look.newest is not None:
        with look.take_damage():
            needed |= names_of_lists(store, look.newest, store.name(look.newest.name.key))[1]
    listed = store.list(LISTS)
    gone = [key for key in map(list_key, sorted(needed)) if key not in listed and store.size(key) is None]
    if gone:
        points = [head.id for head in look.heads if any(list_key(name) in gone for name in head.lists)]
        text = f"the list is not there, and {len(gone) - 1:,} more are missing" if gone[1:] else "the list is not there"
        last = points[-1] if points else look.names[-1].id
        reason = f"{text}, and points need them: {max(len(points), 1):,}, the last is {last} (pylogseg verify)"
        look.damage.append(CorruptionError(store.name(gone[0]), 0, reason))
    return look


def look_at_newest(store: ObjectStore) -> PointsLook:
    """Read the newest point, its lists too, and the notes of `verify` about damaged objects; raises likewise."""
    look = _open_points(store, is_all=False)
    if look.newest is not None:
        with look.take_damage():
            read_point(store, look.newest.name)
    damaged = sorted(key for key in damaged_objects(store) if store.size(key) is not None)
    if damaged:
        noted = read_damage(store, damaged[0])
        more = f"; and of {len(damaged) - 1:,} more objects (pylogseg verify)" if damaged[1:] else ""
        reason = f"a run of verify that read it at {noted.time} found damage: {noted.reason}{more}"
        look.damage.append(CorruptionError(store.name(damaged[0]), 0, reason))
    return look


def _open_points(store: ObjectStore, *, is_all: bool) -> PointsLook:
    points = known_points(store)
    look = PointsLook(points.names, damage=points.damage(store))
    if not points.names and not look.damage and read_mark(store) is None:
        raise RequestError(f"{store.url}: no archive is here")
    for opened in open_points(store, points.names if is_all else points.names[-1:]):
        if isinstance(opened, OpenedPoint):
            look.heads.append(opened.head)
        elif isinstance(opened, StorageError):
            raise opened
        else:
            look.damage.append(opened)
    return look
