"""An archive as it was at a point: the URL that every reader takes, and `open_archive`."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.disk.tier.at_point import PointFiles, split_point
from pylogseg.disk.tier.keys import KEYS_OPTION
from pylogseg.disk.tier.opening import is_tier
from pylogseg.disk.tier.points import LATEST, POINT_MARK, check_point_text
from pylogseg.errors import RequestError
from pylogseg.format.moments import ms_of

if TYPE_CHECKING:
    from pylogseg.disk.tier.keys import Keys
    from pylogseg.reading.selection import Moment


def archive_url(archive: str | os.PathLike[str]) -> str:
    """Return the URL that reads an archive as a tier; `archive` is a folder, or a URL with or without its layout."""
    text = os.fspath(archive).rstrip("/")
    if is_tier(text):
        return text
    return f"aiven+{text}" if "://" in text else f"aiven+file://{os.path.abspath(text)}"


def point_url(archive: str | os.PathLike[str], *, at: Moment | None = None, point: str | None = None) -> str:
    """Return the URL of an archive at a point.

    Parameters
    ----------
    archive : path or URL
        A folder, or a URL: ``s3://bucket/prefix``, ``aiven+s3://bucket/prefix``. It may name the point itself, as
        ``aiven+s3://bucket/prefix#20260131T120000000Z-0f3a9c21``.
    at : int (ms) or datetime, optional
        The last point up to this time.
    point : str, optional
        Which one, as in `find_point`: its id, or a beginning of it. Without this and a time, the newest.

    Returns
    -------
    str
        ``aiven+...#...``, for `open_dir`, `serve` and all that takes a path or URL.

    Raises
    ------
    RequestError
        If more than one of these says which point.
    """
    url, named = split_point(archive_url(archive))
    wanted = [each for each in (named, point, None if at is None else str(_ms_of(at))) if each is not None]
    if len(wanted) > 1:
        raise RequestError(f"{archive}: which point is meant, {' or '.join(wanted)}? Name one of them")
    if wanted:
        check_point_text(wanted[0])
    return f"{url}{POINT_MARK}{wanted[0] if wanted else LATEST}"


def _ms_of(at: Moment) -> int:
    return ms_of(at) if isinstance(at, datetime.datetime) else at


def opened_point(url: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Disk, PointFiles]:
    """Open a URL of `point_url`: the disk, and its file system, which has the point."""
    disk = open_dir(url, storage_options=storage_options)
    files = disk.log_dirs[0].files if disk.log_dirs else None
    if not isinstance(files, PointFiles):
        raise RequestError(f"{url}: there is nothing at this point")
    return disk, files


def open_archive(
    archive: str | os.PathLike[str],
    *,
    at: Moment | None = None,
    point: str | None = None,
    keys: Keys = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Disk:
    """List an archive as it was at a point, as a log directory that all readers read.

    Logs begin and end where they did then; topics that were deleted and made again since, or before, are not mixed.
    Each partition is there, Kafka's own topics and the metadata too, of whichever broker it was.

    Parameters
    ----------
    archive, at, point
        See `point_url`. Without a time and an id, the newest point.
    keys : path or mapping, optional
        Private keys of an encrypted archive, as `open_tier` takes them.
    storage_options : mapping, optional
        Options of fsspec: credentials, an endpoint.

    Returns
    -------
    Disk

    Raises
    ------
    RequestError
        If there is no such point.
    CorruptionError
        If the point is damaged.
    StorageError
        If the store fails.
    """
    options = dict(storage_options or {})
    if keys is not None:
        options[KEYS_OPTION] = keys
    return open_dir(point_url(archive, at=at, point=point), storage_options=options)
