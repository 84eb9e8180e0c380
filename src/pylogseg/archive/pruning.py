"""`prune`: remove the points of an archive that are not kept, and the objects that no kept one needs; and `diff`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pylogseg.archive.needs import read_needs
from pylogseg.archive.newest import known_points, note_points
from pylogseg.archive.read_notes import damaged_objects, forget_damage
from pylogseg.disk.stores import Fingerprint
from pylogseg.disk.tier.point import FILES, POINTS, Point, PointName
from pylogseg.disk.tier.point_lists import LISTS
from pylogseg.disk.tier.points import archive_store, find_point
from pylogseg.errors import CorruptionError, RequestError, StorageError, is_denied
from pylogseg.format.columns import TableColumn, declare_columns, line_type
from pylogseg.format.moments import iso_text
from pylogseg.format.outcome import Headings, Outcome, TextTable
from pylogseg.format.words import count_text, size_text
from pylogseg.tables.export.notes import lock_place

#: What an archive writes, but for points: nothing else is ever removed.
_OURS = re.compile(
    rf"{FILES}/.+|{LISTS}/[0-9a-f]{{64}}\.jsonl|[^/]+-[A-Za-z0-9_-]{{22}}/[0-9]{{1,10}}/[0-9]{{20}}-[A-Za-z0-9_-]{{22}}\.(log|indexes|rsm-manifest)"
)


@declare_columns(
    line_type("prune"),
    TableColumn("dryRun", "bool", "nothing was removed"),
    TableColumn("kept", "list<string>", "ids of points", source=lambda pruned: [name.id for name in pruned.kept]),
    TableColumn("removed", "list<string>", "ids of points", source=lambda pruned: [name.id for name in pruned.removed]),
    TableColumn("objects", "int64", "that were removed"),
    TableColumn("bytes", "int64", "of these objects", "bytes", source="size"),
    TableColumn("notYet", "list<string>", "objects that the store does not let go"),
)
@dataclass
class Pruned(Outcome):
    """The result of a pruning.

    Attributes
    ----------
    kept, removed : list of PointName
    objects, size : int
        Objects that were removed, or would be, and their bytes.
    not_yet : list of str
        What the store does not let go, such as objects that are locked for a time.
    dry_run : bool
        True if nothing was removed.
    """

    kept: list[PointName]
    removed: list[PointName]
    objects: int = 0
    size: int = 0
    not_yet: list[str] = field(default_factory=list)
    dry_run: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the points that were removed, then the sums."""
        yield from (name.id for name in self.removed)
        counts = f"{count_text(len(self.removed), 'point')} and {count_text(self.objects, 'object')}"
        verb = "would be removed" if self.dry_run else "removed"
        yield f"{counts}, {size_text(self.size)}, {verb}; {count_text(len(self.kept), 'point')} kept"

    def warnings(self) -> Iterator[str]:
        """Yield objects that stay."""
        yield from (f"note: not yet: {locked} is locked, or may not be removed" for locked in self.not_yet)


def prune(
    archive: str | os.PathLike[str],
    *,
    keep_last: int = 0,
    keep_hourly: int = 0,
    keep_daily: int = 0,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Pruned:
    """Remove points, and objects that no kept point needs; the newest point is always kept.

    Parameters
    ----------
    archive : path or URL
        Of the archive.
    keep_last : int
        Keep so many of the newest points.
    keep_hourly, keep_daily : int
        Keep the last point of each of so many hours, or days (of UTC), that have one.
    dry_run : bool
        List the objects to remove, and remove nothing.
    storage_options : mapping, optional
        Options of fsspec.

    Returns
    -------
    Pruned

    Raises
    ------
    RequestError
        If nothing says what is kept, or nothing is there.
    CorruptionError
        If a kept point cannot be read, or the newest one is gone: nobody knows which objects it needs.
    StorageError
        If the store fails, or an archive is being written.
    """
    counts = keep_last, keep_hourly, keep_daily
    if min(counts) < 0 or not any(counts):
        raise RequestError("nothing says which points are kept: give a number of the last, of hours or of days")
    store = archive_store(archive, storage_options)
    find_point(store)  # before there is a lock in the place
    with lock_place(store, "archive prune"):
        known = known_points(store)
        if known.fault is not None:
            raise known.fault
        if known.lost is not None:
            reason = "the newest point is gone from the store, so its objects are unknown: run `archive` again first"
            raise CorruptionError(store.name(known.lost.key), 0, reason)
        names = known.names
        if not names:
            raise RequestError(f"{store.url}: no point of an archive is here")
        chosen = {names[-1], *names[len(names) - keep_last :]} if keep_last else {names[-1]}
        chosen |= _last_of_each(names, keep_hourly, 13) | _last_of_each(names, keep_daily, 10)
        kept, removed = ([name for name in names if (name in chosen) is is_kept] for is_kept in (True, False))
        found = Pruned(kept, removed, dry_run=dry_run)
        needs = read_needs(store, found.kept)
        for error in (*needs.errors, *needs.conflicts):
            raise error
        needed = needs.objects.keys() | needs.lists
        # Where `points` is a link, only its own list has what is in it.
        listed: dict[str, Fingerprint] = store.list() | store.list(POINTS)
        gone = [name.key for name in found.removed]
        gone += sorted((each for each in listed if _OURS.fullmatch(each) and each not in needed), key=_manifests_first)
        for name in gone:
            try:
                if not dry_run:
                    store.delete(name)
            except StorageError as error:
                if not is_denied(error):
                    raise
                found.not_yet.append(store.name(name))
                continue
            size = listed[name].size if name in listed else 0  # a point that no listing has yet
            found.objects, found.size = found.objects + 1, found.size + size
        if not dry_run:
            for name in damaged_objects(store) - needed:
                forget_damage(store, name)
        if found.removed and not dry_run:
            note_points(store, found.kept)
    return found


def _manifests_first(name: str) -> tuple[bool, str]:
    """Readers ignore a segment without a manifest."""
    return not name.endswith(".rsm-manifest"), name


def _last_of_each(names: Sequence[PointName], count: int, letters: int) -> set[PointName]:
    """Return the last point of each of the newest spans of time, by so many letters of the time."""
    last = {iso_text(name.time_ms)[:letters]: name for name in names}
    return {last[span] for span in sorted(last)[-count:]} if count else set()


class PointExtent(NamedTuple):
    """The offsets of a partition in a point, half-open."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start}:{self.end}"


class PointChange(NamedTuple):
    """A partition that differs between two points."""

    topic: str
    topic_id: str
    partition: int
    change: str  #: ``added``, ``removed`` or ``changed``.
    before: PointExtent | None
    after: PointExtent | None
    objects_added: int
    objects_removed: int
    bytes_added: int


_CHANGES: Headings = {
    "PARTITION": lambda row: f"{row.topic}-{row.partition}",
    "CHANGE": lambda row: row.change,
    "BEFORE": lambda row: row.before or "",
    "AFTER": lambda row: row.after or "",
    "ADDED": lambda row: row.objects_added,
    "REMOVED": lambda row: row.objects_removed,
    "BYTES": lambda row: row.bytes_added,
}


@dataclass
class PointChanges(Outcome):
    """The difference between two points, partition by partition."""

    before: Point
    after: Point

    def parts(self) -> list[PointChange]:
        """Return the partitions that differ."""
        return list(differences(self.before, self.after))

    def lines(self) -> Iterator[TextTable]:
        """Yield a table of them."""
        yield TextTable.of(self.parts(), _CHANGES, [*_CHANGES][4:])


def differences(before: Point, after: Point) -> Iterator[PointChange]:
    """Yield the partitions that differ between two points."""
    sides = [{(p.topic, p.topic_id, p.partition): p for p in point.partitions} for point in (before, after)]
    for key in sorted(sides[0].keys() | sides[1].keys()):
        old, new = sides[0].get(key), sides[1].get(key)
        if old is not None and new is not None and old.objects == new.objects and old.start_offset == new.start_offset:
            continue
        change = "removed" if new is None else "added" if old is None else "changed"
        first, last = (None if of is None else PointExtent(of.start_offset, of.end_offset) for of in (old, new))
        earlier, later = (set() if part is None else set(part.objects.items()) for part in (old, new))
        size = sum(stored.size for _, stored in later - earlier)
        yield PointChange(*key, change, first, last, len(later - earlier), len(earlier - later), size)
