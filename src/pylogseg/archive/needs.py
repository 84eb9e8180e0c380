"""Which objects the points of an archive need. Points share lists, and each list is read once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pylogseg.disk.choice import ALL, PartitionChoice
from pylogseg.disk.stores import ObjectStore, read_many
from pylogseg.disk.tier.point import ArchivedFile, ArchivedPartition, PointHead, PointName
from pylogseg.disk.tier.point_lists import check_list, list_key, names_in, partitions_in
from pylogseg.disk.tier.points import open_points
from pylogseg.errors import CorruptionError, PylogsegError, StorageError

_NO_TIMES: Mapping[str, int] = {}


class Use(NamedTuple):
    """The points that need something."""

    newest: PointName
    points: int = 1
    read_ms: int = -1  #: When a run last read what one of them needs; -1 if none did.

    def join(self, other: Use) -> Use:
        """Return the points of both."""
        newest = max(self.newest, other.newest, key=lambda name: (name.time_ms, name.id))
        return Use(newest, self.points + other.points, max(self.read_ms, other.read_ms))


class NeededObject(NamedTuple):
    """An object that points need."""

    archived: ArchivedFile
    use: Use


@dataclass
class Needs:
    """The objects and lists that the points of an archive need."""

    heads: list[PointHead] = field(default_factory=list)  #: Of the points that can be read, the oldest first.
    objects: dict[str, NeededObject] = field(default_factory=dict)  #: By their names, of chosen partitions.
    lists: set[str] = field(default_factory=set)  #: The names of the objects with lists.
    places: set[tuple[str, int]] = field(default_factory=set)  #: Topics and partitions of all points.
    errors: list[PylogsegError] = field(default_factory=list)  #: Why points, or lists, cannot be read.
    conflicts: list[CorruptionError] = field(default_factory=list)  #: Objects on which points do not agree.

    def add(
        self, store: ObjectStore, partitions: Iterable[ArchivedPartition], use: Use, choice: PartitionChoice
    ) -> None:
        for partition in partitions:
            self.places.add((partition.topic, partition.partition))
            if choice.takes(partition.topic, partition.partition):
                for key, archived in partition.objects.items():
                    self._add_object(store, key, archived, use)

    def _add_object(self, store: ObjectStore, key: str, archived: ArchivedFile, use: Use) -> None:
        before = self.objects.get(key)
        if before is None:
            self.objects[key] = NeededObject(archived, use)
            return
        first = before.archived
        if not (archived.is_of(*first) or first.is_of(*archived)):
            texts = " and ".join(f"{each.size:,} bytes, {each.sha256}" for each in (first, archived))
            reason = f"points {before.use.newest.id} and {use.newest.id} say different things of {key}: {texts}"
            self.conflicts.append(CorruptionError(store.name(use.newest.key), 0, reason))
        whole = first if len(first.sha256) > len(archived.sha256) else archived  # one may know only the first digits
        self.objects[key] = NeededObject(whole, before.use.join(use))


def read_needs(
    store: ObjectStore,
    names: Sequence[PointName],
    choice: PartitionChoice = ALL,
    read_times: Mapping[str, int] = _NO_TIMES,
) -> Needs:
    """Read the points of these names one by one, and their lists.

    `read_times` tells when a run has read the objects of a point, by its id.
    """
    needs, uses = Needs(), dict[int, dict[str, Use]]()
    for name, opened in zip(names, open_points(store, names), strict=True):
        if not isinstance(opened, tuple):
            needs.errors.append(opened)
            continue
        needs.heads.append(opened.head)
        use = Use(name, 1, read_times.get(name.id, -1))
        if opened.point is not None:
            needs.add(store, opened.point.partitions, use, choice)
        _note(uses, opened.head.depth, opened.head.lists, use)
    for depth in range(max(uses, default=0), -1, -1):
        _read_level(store, needs, uses, depth, choice)
    return needs


def _note(uses: dict[int, dict[str, Use]], depth: int, names: Iterable[str], use: Use) -> None:
    level = uses.setdefault(depth, {})
    for name in names:
        level[name] = level[name].join(use) if name in level else use


def _read_level(
    store: ObjectStore, needs: Needs, uses: dict[int, dict[str, Use]], depth: int, choice: PartitionChoice
) -> None:
    """Read the lists of one level, counted from the lists of partitions."""
    level = uses.pop(depth, {})
    needs.lists.update(map(list_key, level))
    for name, data in zip(level, read_many(store, list(level), list_key), strict=True):
        at = f"point {level[name].newest.id}"
        try:
            content = check_list(store, name, data, at)
            if depth:
                _note(uses, depth - 1, names_in(content, at), level[name])
            else:
                needs.add(store, partitions_in(content, at), level[name], choice)
        except (CorruptionError, StorageError) as error:
            needs.errors.append(error)
