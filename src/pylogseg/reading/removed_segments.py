"""Segments that a running broker deleted or truncated away between listing their folder and opening them."""

from __future__ import annotations

import time

from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import FileView
from pylogseg.errors import StorageError
from pylogseg.format.names import FileKind, parse_file_name
from pylogseg.walker.gaps import Gap, GapKind, kind_of

#: Number of retries, and seconds between them, while the cleaner is replacing a file.
_LOOKS, _PAUSE_SECONDS = 50, 0.02


def open_unless_removed(segment: Segment) -> FileView | None:
    """Open a segment's file of batches, as `Segment.open` does; None if it was deleted.

    By retention: none before it is left, but one after it is. By a truncation: none after it is left, but one before it
    is. A file missing between others is a StorageError: the cleaner may have merged it into another segment, and
    continuing would lose its records.
    """
    for _ in range(_LOOKS):
        try:
            return segment.open()
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            bases, is_replaced = _left(segment)
            if segment.base_offset not in bases and not is_replaced:
                if bases and not min(bases) < segment.base_offset < max(bases):
                    return None
                raise
        time.sleep(_PAUSE_SECONDS)
    return segment.open()


def open_or_gap(segment: Segment, first_offset: int, next_offset: int | None) -> FileView | Gap:
    """Open a segment's file of batches as `open_unless_removed`, or return the gap in its place."""
    try:
        return open_unless_removed(segment) or removed_gap(segment, first_offset, next_offset)
    except StorageError as error:
        return unreadable_gap(segment, error, first_offset, next_offset)


def _left(segment: Segment) -> tuple[set[int], bool]:
    """Return the base offsets of the segments in the folder now, and whether the cleaner is replacing one."""
    folder = segment.files.split(segment.path)[0]
    names = [parse_file_name(entry.name) for entry in segment.files.list_folder(folder) if not entry.is_dir]
    logs = [name for name in names if name.kind is FileKind.LOG and name.offset is not None]
    return {name.offset for name in logs if not name.suffix and name.offset is not None}, any(
        name.suffix == ".swap" for name in logs
    )


def removed_gap(segment: Segment, first_offset: int, next_offset: int | None) -> Gap:
    """Return the gap for a segment that retention or a truncation deleted."""
    return Gap(
        segment.path,
        GapKind.REMOVED,
        0,
        segment.size,
        max(first_offset, segment.base_offset),
        next_offset,
        "deleted or truncated away by the broker since its folder was listed",
        False,
    )


def unreadable_gap(segment: Segment, error: StorageError, first_offset: int, next_offset: int | None) -> Gap:
    reason = f"cannot {error.operation}: {error.reason}"
    first = max(first_offset, segment.base_offset)
    return Gap(error.path, kind_of(error), 0, segment.size, first, next_offset, reason, True)
