"""Notes of `verify` in an archive: the points that a run read and found good, and the objects with damage.

`verified/ID.json` names points. `verified/damaged/OBJECT.json` stands for an object until a run reads it without a
finding: the file is the verdict, and its text has the reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import NamedTuple

from pylogseg._version import __version__
from pylogseg.disk.stores import ObjectStore
from pylogseg.disk.tier.points import new_id
from pylogseg.errors import PylogsegError
from pylogseg.format import bounded_json
from pylogseg.format.moments import iso_text

#: The folder of all notes.
VERIFIED = "verified"
_DAMAGED = f"{VERIFIED}/damaged/"
_SUFFIX = ".json"
_MOST_LETTERS = 1000


class NotedDamage(NamedTuple):
    """The damage that a run found in an object."""

    time: str
    reason: str


def read_times(store: ObjectStore) -> dict[str, int]:
    """Return when the objects of points were last read, by the ids of the points."""
    times: dict[str, int] = {}
    for key in store.list(VERIFIED):
        if key.startswith(_DAMAGED):
            continue
        try:
            noted = bounded_json.loads(store.read(key) or b"")
            for name in noted["points"]:
                times[name] = max(times.get(name, 0), int(noted["timeMs"]))
        except (ValueError, KeyError, TypeError, RecursionError, PylogsegError):  # then it is read again
            continue
    return times


def note_points_read(store: ObjectStore, read_ms: int, points: Sequence[str]) -> None:
    """Note that all objects of these points were read, at the time of the oldest reading."""
    content = {
        "format": 1,
        "time": iso_text(read_ms),
        "timeMs": read_ms,
        "writer": f"pylogseg {__version__}",
        "points": points,
    }
    store.create(f"{VERIFIED}/{new_id(time.time_ns() // 1_000_000)}{_SUFFIX}", json.dumps(content).encode())


def damaged_objects(store: ObjectStore) -> set[str]:
    """Return the names of the objects in which runs found damage."""
    names = store.list(_DAMAGED.rstrip("/"))
    return {name.removeprefix(_DAMAGED).removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)}


def read_damage(store: ObjectStore, key: str) -> NotedDamage:
    """Return the damage that a run noted of an object; a note that cannot be read stands for damage too."""
    try:
        fields = bounded_json.loads(store.read(_note_of(key)) or b"")
        return NotedDamage(str(fields["time"])[:_MOST_LETTERS], str(fields["reason"])[:_MOST_LETTERS])
    except (ValueError, KeyError, TypeError, RecursionError, PylogsegError):
        return NotedDamage("an unknown time", f"the note about it, {store.name(_note_of(key))}, cannot be read")


def note_damage(store: ObjectStore, key: str, reason: str) -> None:
    content = {"format": 1, "time": iso_text(time.time_ns() // 1_000_000), "reason": reason}
    store.put(_note_of(key), json.dumps(content).encode())


def forget_damage(store: ObjectStore, key: str) -> None:
    """Take the note about an object away: the object is good again, or it is gone and no point needs it."""
    store.delete(_note_of(key))


def _note_of(key: str) -> str:
    return f"{_DAMAGED}{key}{_SUFFIX}"
