"""The place of an archive: a check that it may hold one, its objects, and the missing objects of a point."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pylogseg.disk.outside import check_outside
from pylogseg.disk.stores import FolderStore, ObjectStore
from pylogseg.disk.tier.point import FILES, MARK, SUFFIXES, ArchivedPartition, ArchivedSegment
from pylogseg.disk.tier.points import OpenedPoint, list_points, mark_text, open_points, read_mark
from pylogseg.env.beside import is_unfinished, remove, was_left
from pylogseg.env.file_errors import storage_error
from pylogseg.errors import RequestError
from pylogseg.tables.export.notes import NOTES


def check_place(store: ObjectStore) -> None:
    """Refuse a place that is neither an archive nor empty, or that lies in a log directory."""
    if isinstance(store, FolderStore):
        check_outside(store.root)
    if read_mark(store) is not None:
        return
    other = next((name for name in store.list() if not name.startswith(f"{NOTES}/") and not _temporary(name)), None)
    if other is not None and (names := list_points(store)):
        head = next((each.head for each in open_points(store, names[::-1]) if isinstance(each, OpenedPoint)), None)
        text = mark_text("" if head is None else head.cluster_id)
        raise RequestError(
            f"{store.name(MARK)}: the object is not there, and points are: write it again, {text}, or take it from a "
            "copy of the archive"
        )
    if other is not None:
        raise RequestError(f"{store.url}: this is not an archive, and not empty, it has {other!r}: name an empty place")


def _temporary(name: str) -> str | None:
    """Return the name of a temporary object without the run's own part; None if it is no temporary one."""
    if not (name.startswith(".") or "/." in name):
        return None
    parts = name.split("/")
    number = next((number for number, part in enumerate(parts) if is_unfinished(part)), None)
    return None if number is None else "/".join(parts[: number + 1])


@dataclass
class Listing:
    """The objects of an archive, with their sizes."""

    sizes: dict[str, int] = field(default_factory=dict)
    #: By the folder of a partition, the last part of each name.
    segments: dict[str, dict[str, int]] = field(default_factory=dict)
    #: By the folder of a partition, the whole names of what is no segment.
    files: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, name: str, size: int) -> None:
        self.sizes[name] = size
        folder, _, last = name.rpartition("/")
        if name.startswith(f"{FILES}/"):
            self.files.setdefault("/".join(name.split("/")[1:3]), {})[name] = size
        else:
            self.segments.setdefault(folder, {})[last] = size

    def remove(self, name: str) -> None:
        """Let go of an object, as if it were not there."""
        folder, _, last = name.rpartition("/")
        self.sizes.pop(name, None)
        self.files.get("/".join(name.split("/")[1:3]), {}).pop(name, None)
        self.segments.get(folder, {}).pop(last, None)


def list_objects(store: ObjectStore) -> Listing:
    """List the objects of an archive, and remove unfinished ones of ended runs of this machine."""
    listing, unfinished = Listing(), set[str]()
    for name, stored in store.list().items():
        if (temporary := _temporary(name)) is not None:
            unfinished.add(temporary)
        else:
            listing.add(name, stored.size)
    if isinstance(store, FolderStore):
        for path in map(store.root.joinpath, sorted(unfinished)):
            if was_left(path):
                try:
                    remove(path)
                except OSError as error:
                    raise storage_error(path, "remove", error) from error
    return listing


def lost_objects(store: ObjectStore, listing: Listing, partitions: Iterable[ArchivedPartition]) -> set[str]:
    """Return the objects of partitions that the store does not have, or with another size.

    A listing may lag, so each of these is looked up by its name.
    """
    lost: set[str] = set()
    for partition in partitions:
        for name, stored in partition.objects.items():
            if listing.sizes.get(name) != stored.size:
                size = store.size(name)
                if size is not None:
                    listing.add(name, size)
                if size != stored.size:
                    lost.add(name)
    return lost


def lost_segments(partition: ArchivedPartition, lost: Collection[str]) -> dict[str, ArchivedSegment]:
    """Return the segments of a partition of which objects are lost, by their ids."""
    return {
        each.segment_id: each
        for each in (partition.segments if lost else ())
        if any(partition.stem(each) + suffix in lost for suffix in SUFFIXES)
    }
