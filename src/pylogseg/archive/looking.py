"""A look at the points of an archive for `archive points` and `archive status`, which read few of the lists."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from pylogseg.archive.newest import known_points
from pylogseg.archive.read_notes import damaged_objects, read_damage
from pylogseg.disk.stores import ObjectStore
from pylogseg.disk.tier.point import PointHead, PointName
from pylogseg.disk.tier.point_lists import LISTS, list_key, names_of_lists
from pylogseg.disk.tier.points import OpenedPoint, open_points, read_mark, read_point
from pylogseg.errors import CorruptionError, RequestError, StorageError


@dataclass
class PointsLook:
    """The points of an archive as their own objects tell them, and what is wrong."""

    names: list[PointName]  #: The oldest first.
    heads: list[PointHead] = field(default_factory=list)  #: Of those that can be read.
    damage: list[CorruptionError] = field(default_factory=list)

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
        text = f"the list is not there, nor are {len(gone) - 1:,} others" if gone[1:] else "the list is not there"
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
