"""The newest points of an archive as the last run noted them: a listing may lag, and a point may be lost.

An object of `_pylogseg` has the names of the points that the run knew, the newest one last. The run writes it before
and after the point, so it tells a point that was lost from one that was never written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pylogseg.disk.stores import ObjectStore
from pylogseg.disk.tier.json_fields import JsonFields
from pylogseg.disk.tier.point import PointName
from pylogseg.disk.tier.points import list_points, point_name
from pylogseg.errors import CorruptionError
from pylogseg.tables.export.notes import NOTES

_NAME = f"{NOTES}/points.json"
_FORMAT = 1
#: A listing that lags is not so far behind.
_MOST = 100


@dataclass(frozen=True)
class KnownPoints:
    """The points of an archive."""

    names: list[PointName]  #: The oldest first: those that are listed, and those that were noted and are there.
    lost: PointName | None = None  #: The newest one, if it was written and is not there any more.
    fault: CorruptionError | None = None  #: The note cannot be read.

    def damage(self, store: ObjectStore) -> list[CorruptionError]:
        """Return the damage that the last run's note shows, or the damage of the note."""
        if self.fault is not None:
            return [self.fault]
        if self.lost is None:
            return []
        reason = f"the newest point is gone from the store: the last run noted it in {store.name(_NAME)}"
        return [CorruptionError(store.name(self.lost.key), 0, reason)]


def known_points(store: ObjectStore) -> KnownPoints:
    """Find the points of an archive by a listing and by the note of the last run."""
    names = list_points(store)
    try:
        noted, is_written = _read(store)
    except CorruptionError as error:
        return KnownPoints(names, fault=error)
    unlisted = [each for each in noted if each not in names]
    there = [each for each in unlisted if store.size(each.key) is not None]
    lost = noted[-1] if is_written and noted[-1] in unlisted and noted[-1] not in there else None
    return KnownPoints(sorted([*names, *there], key=lambda each: (each.time_ms, each.id)), lost)


def note_points(store: ObjectStore, names: Sequence[PointName], *, is_written: bool = True) -> None:
    """Note the points that there are; `is_written` is False while the last one is not written yet."""
    fields = {"format": _FORMAT, "isWritten": is_written, "points": [each.id for each in names[-_MOST:]]}
    store.put(_NAME, json.dumps(fields).encode())


def _read(store: ObjectStore) -> tuple[list[PointName], bool]:
    data, at = store.read(_NAME), store.name(_NAME)
    if data is None:  # a version before this note wrote the last point
        return [], False
    try:
        fields = JsonFields(json.loads(data), at, "")
    except (ValueError, RecursionError) as error:
        raise CorruptionError(at, 0, f"not the note of the points: {error}") from None
    fields.number("format", _FORMAT, _FORMAT)
    names = [point_name(text) for text in fields.texts("points")]
    known = [each for each in names if each is not None]
    if not known or len(known) < len(names) or not isinstance(fields.value.get("isWritten"), bool):
        raise CorruptionError(at, 0, "not the note of the points: expected their ids, and whether the last is written")
    return known, fields.value["isWritten"]
