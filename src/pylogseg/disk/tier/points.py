"""The points of an archive in its store: their list, the look-up by name or time, and their content.

A point is one JSON object, ``points/ID.json``, which is written last, and never over another one. Its id begins with
the time, so that a listing is in order. Its last member is the SHA-256 of all bytes before it. A large point names
lists by their SHA-256, which have its partitions. `docs/backup.md` describes the format for programs that read it.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pylogseg.disk.stores import FolderStore, ObjectStore, read_many, store_of
from pylogseg.disk.tier.json_fields import JsonFields
from pylogseg.disk.tier.point import (
    LISTED_FORMAT,
    MARK,
    POINTS,
    SEALED_FORMAT,
    UNSEALED_FORMAT,
    Point,
    PointHead,
    PointName,
)
from pylogseg.disk.tier.point_json import POINT_ID, load_as, parse_point
from pylogseg.disk.tier.point_lists import head_of, read_listed, write_lists
from pylogseg.env.beside import flush
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.moments import iso_text, ms_of

_MARK_FORMAT = 1
_BEGINNING = re.compile(r"[0-9]{4,8}|[0-9]{8}T([0-9]{0,9}|[0-9]{9}Z(-[0-9a-f]{0,8})?)")
_MS = re.compile(r"[0-9]{11,18}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})")
#: Names the newest point.
LATEST = "latest"
#: In the URL of an archive, before what says which point of it.
POINT_MARK = "#"
_MOST_BYTES = 256 << 20
_MOST_MARK_BYTES = 64 << 10


def archive_store(
    archive: str | os.PathLike[str] | ObjectStore, storage_options: Mapping[str, Any] | None = None
) -> ObjectStore:
    """Return the store of an archive by its path or URL, which may have the layout before it (``aiven+``)."""
    if not isinstance(archive, (str, os.PathLike)):
        return archive
    place, mark, wanted = os.fspath(archive).rpartition(POINT_MARK)
    if mark and is_point_text(wanted):
        raise RequestError(f"{os.fspath(archive)}: this is the URL of a point: name the archive, {place}")
    return store_of(os.fspath(archive).removeprefix("aiven+"), storage_options)


def new_id(time_ms: int) -> str:
    return re.sub(r"[-:.]", "", iso_text(time_ms)) + f"-{uuid.uuid4().hex[:8]}"


def list_points(
    archive: str | os.PathLike[str] | ObjectStore, storage_options: Mapping[str, Any] | None = None
) -> list[PointName]:
    """List the points of an archive by their names, the oldest first; objects of other names are left out.

    Parameters
    ----------
    archive : path or URL
        Of the archive, with or without ``aiven+`` before it.
    storage_options : mapping, optional
        Options of fsspec.

    Returns
    -------
    list of PointName

    Raises
    ------
    StorageError
        If the store fails.
    """
    keys = archive_store(archive, storage_options).list(POINTS)
    names = (key.removeprefix(f"{POINTS}/").removesuffix(".json") for key in keys if key.endswith(".json"))
    points = [point for name in names if (point := point_name(name)) is not None]
    return sorted(points, key=lambda name: (name.time_ms, name.id))


def point_name(text: str) -> PointName | None:
    """Return the name of the point that has an id; None if a text is no such id."""
    time_ms = _time_of(text)
    return None if time_ms is None else PointName(text, time_ms)


def _time_of(name: str) -> int | None:
    """Return the time in the id of a point; None if it is none."""
    if not POINT_ID.fullmatch(name):
        return None
    try:
        return ms_of(datetime.datetime.strptime(name[:18] + "+0000", "%Y%m%dT%H%M%S%f%z"))
    except ValueError:
        return None


def read_point(
    archive: str | os.PathLike[str] | ObjectStore,
    point: str | PointName,
    storage_options: Mapping[str, Any] | None = None,
) -> Point:
    """Read a point.

    Parameters
    ----------
    archive, storage_options
        As in `list_points`.
    point : str or PointName
        As in `find_point`.

    Returns
    -------
    Point

    Raises
    ------
    RequestError
        If there is no such point.
    CorruptionError
        If it is not what a point can be.
    """
    store = archive_store(archive, storage_options)
    return _read(store, point if isinstance(point, PointName) else find_point(store, point=point))


def is_point_text(text: str) -> bool:
    """Check whether a text may say which point is meant, as `find_point` takes it."""
    return text == LATEST or any(form.fullmatch(text) for form in (_BEGINNING, _MS, _TIME))


def check_point_text(text: str) -> None:
    """Raise RequestError for a text that `is_point_text` refuses."""
    if not is_point_text(text):
        expected = "an id such as 20260131T120000000Z-0f3a9c21, a prefix of one (at least the year), or a time"
        raise RequestError(f"invalid point {text!r}: expected {expected}")


def is_point_id(text: str) -> bool:
    """Check whether a text is the id of a point, or a beginning of one, from the year on."""
    return _BEGINNING.fullmatch(text) is not None


def find_point(
    archive: str | os.PathLike[str] | ObjectStore,
    *,
    point: str | None = None,
    at_ms: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> PointName:
    """Find a point by its name or by a time; the newest, without either.

    Parameters
    ----------
    archive, storage_options
        As in `list_points`.
    point : str, optional
        Its id; a beginning of it, the year at least, that no other point has; a time in ISO 8601 with its zone or in
        milliseconds since 1970, for the last point up to it; or ``"latest"``.
    at_ms : int, optional
        The last point up to this time is found, in milliseconds since 1970.

    Returns
    -------
    PointName

    Raises
    ------
    RequestError
        If there is none, or `point` is nothing of these.
    """
    if point is not None:
        check_point_text(point)
    if point is not None and not is_point_id(point):
        at_ms, point = _ms_said(point), None
    store = archive_store(archive, storage_options)
    names = list_points(store)
    if not names:
        raise RequestError(f"{store.name(POINTS)}: no point of an archive is here")
    if point is not None:
        fits = [name for name in names if name.id.startswith(point)]
        if len(fits) != 1:
            what = f"{len(fits)} points begin" if fits else "no point begins"
            last = f"; the newest is {names[-1].id}" if not fits else f", such as {fits[0].id} and {fits[1].id}"
            raise RequestError(f"{store.name(POINTS)}: {what} with {point!r}{last}")
        return fits[0]
    fits = [name for name in names if at_ms is None or name.time_ms <= at_ms]
    if not fits:
        raise RequestError(
            f"{store.name(POINTS)}: no point is as old as {iso_text(at_ms or 0)}; the oldest is {names[0].id}"
        )
    return fits[-1]


def _ms_said(text: str) -> int | None:
    """Return the time that a text says; None if it names the newest point."""
    if text == LATEST:
        return None
    if _MS.fullmatch(text):
        return int(text)
    try:  # Python 3.10 does not accept Z
        return ms_of(datetime.datetime.fromisoformat(re.sub("Z$", "+00:00", text)))
    except ValueError:
        raise RequestError(f"invalid time {text!r} of a point: expected 2026-01-31T12:00:00Z") from None


def _read(store: ObjectStore, name: PointName) -> Point:
    at, size = store.name(name.key), store.size(name.key)
    if size is None:
        raise RequestError(f"{at}: there is no such point")
    _check_size(at, size)
    fields, opened = _open_point(at, name, store.read(name.key) or b"")
    return read_listed(store, fields, opened.head) if opened.point is None else opened.point


class OpenedPoint(NamedTuple):
    """A point as far as its own object says it; all of it if it has no lists."""

    head: PointHead
    point: Point | None


def open_points(
    store: ObjectStore, names: Sequence[PointName]
) -> Iterator[OpenedPoint | CorruptionError | StorageError]:
    """Yield points one by one, without their lists; for an unreadable one, yield the error."""
    sizes = store.list(POINTS)
    large = {name.key for name in names if name.key in sizes and sizes[name.key].size > _MOST_BYTES}
    contents = read_many(store, [name.key for name in names if name.key not in large])
    for name in names:
        at = store.name(name.key)
        try:
            if name.key in large:
                _check_size(at, sizes[name.key].size)
            data = next(contents)
            yield data if isinstance(data, StorageError) else _open_point(at, name, data or b"")[1]
        except CorruptionError as error:
            yield error


def _check_size(at: str, size: int) -> None:
    if size > _MOST_BYTES:
        raise CorruptionError(at, _MOST_BYTES, f"a point of {size} bytes is not read")


def _open_point(at: str, name: PointName, data: bytes) -> tuple[JsonFields, OpenedPoint]:
    fields = load_as(data, at, "a point", (UNSEALED_FORMAT, SEALED_FORMAT, LISTED_FORMAT))
    if fields.value["format"] == LISTED_FORMAT:
        opened = OpenedPoint(head_of(fields, data), None)
    else:
        point = parse_point(data, at)
        opened = OpenedPoint(point.head, point)
    if opened.head.name != name:
        text = f"id is {opened.head.id!r}, of the time {opened.head.time_ms}: it is another point's"
        raise CorruptionError(at, 0, text)
    return fields, opened


def write_point(store: ObjectStore, point: Point, known: Collection[str] = ()) -> None:
    """Write the lists of a point, without the lists in `known`, then the point.

    StorageError if something else has its name.
    """
    text, has_lists = write_lists(store, point, known)
    if has_lists and isinstance(store, FolderStore):
        flush(store.root)  # the lists are on the disk before the point that needs them
    store.create(point.name.key, text.encode())


def mark_text(cluster_id: str) -> str:
    return json.dumps({"format": _MARK_FORMAT, "clusterId": cluster_id})


def read_mark(store: ObjectStore) -> str | None:
    """Return the cluster id of an archive, empty if its first disks had none; None without a mark.

    CorruptionError if it is not what `mark_text` makes.
    """
    at, stored = store.name(MARK), store.list(MARK).get(MARK)
    if stored is None:
        return None
    if stored.size > _MOST_MARK_BYTES:
        raise CorruptionError(at, _MOST_MARK_BYTES, f"{stored.size:,} bytes: too many for the mark of an archive")
    return load_as(store.read(MARK) or b"", at, "what says that this is an archive", (_MARK_FORMAT,)).text("clusterId")
