"""Segments that a running broker removed or replaced between listing their folder and opening them.

A file that was renamed to `.deleted` is read. Records that the cleaner merged into another segment are read there, each
offset once: a file has no more than the offsets that it had by the listing, and the files that are there now have the
rest of one that is gone. Offsets that none of them has are a gap, and no damage.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import numpy as np

from pylogseg.disk.disk import Segment, beside
from pylogseg.env.filesystem import FileView, LocalFiles, PartsOfFiles
from pylogseg.errors import StorageError, is_missing
from pylogseg.format.names import FileKind, parse_file_name
from pylogseg.reading.offset_order import has_next
from pylogseg.reading.positions import position_of_offset
from pylogseg.walker.gaps import Gap, GapKind, kind_of
from pylogseg.walker.windows import SMALL_WINDOW_BYTES, Window, walk

#: Number of retries, and seconds between them, while the cleaner is replacing a file.
_LOOKS, _PAUSE_SECONDS = 50, 0.02
_INDEX = FileKind.OFFSET_INDEX


class Replaced(PartsOfFiles):
    """The bytes of a segment that lie in other files now, or in its own beside others: no index is about them alone."""


def open_unless_removed(segment: Segment, *, or_log: bool = False) -> FileView | None:
    """Open a listed segment, or its replacement; None if a broker removed it with all its offsets.

    If no segment is left in its folder, that is a StorageError, or None with `or_log`.
    """
    for _ in range(_LOOKS):
        try:
            return _of_listing(segment, segment.open())
        except StorageError as error:
            if not is_missing(error):
                raise
            bases, is_replaced = _list_bases(segment, or_log)
            if not bases and not is_replaced:
                if or_log:
                    return None
                raise
        if not is_replaced and segment.base_offset not in bases:
            try:
                return _elsewhere(segment, bases)
            except StorageError as error:  # removed as well, meanwhile
                if not is_missing(error):
                    raise
        time.sleep(_PAUSE_SECONDS)
    return segment.open()


def open_or_gap(
    segment: Segment, first_offset: int, next_offset: int | None, *, or_log: bool = False
) -> FileView | Gap:
    """Open a segment's file of batches as `open_unless_removed`, or return the gap in its place."""
    try:
        return open_unless_removed(segment, or_log=or_log) or removed_gap(segment, first_offset, next_offset)
    except StorageError as error:
        return unreadable_gap(segment, error, first_offset, next_offset)


def _list_bases(segment: Segment, or_log: bool) -> tuple[list[int], bool]:
    """Return the base offsets of the segments in the folder now, and whether the cleaner is replacing one."""
    try:
        entries = segment.files.list_folder(segment.files.split(segment.path)[0])
    except StorageError as error:
        if or_log and is_missing(error):
            return [], False
        raise
    names = [parse_file_name(entry.name) for entry in entries if not entry.is_dir]
    logs = [name for name in names if name.kind is FileKind.LOG and name.offset is not None]
    bases = sorted(name.offset for name in logs if not name.suffix and name.offset is not None)
    return bases, any(name.suffix == ".swap" for name in logs)


def _of_listing(segment: Segment, view: FileView) -> FileView:
    """Drop records that the cleaner merged into a file after the listing (then the next segment is gone)."""
    if segment.next_base is None or not isinstance(segment.files, LocalFiles) or has_next(segment):
        return view
    end, is_found = _find_batch(segment, view, segment.next_base)
    return Replaced([(view, 0, end)]) if is_found else view


def _elsewhere(segment: Segment, bases: list[int]) -> FileView | None:
    """Return the offsets of a removed segment that present segments have; None if they have none."""
    first = max((base for base in bases if base <= segment.base_offset), default=bases[-1] + 1)
    end = bases[-1] + 1 if segment.next_base is None else segment.next_base
    with contextlib.ExitStack() as opened:
        there = [base for base in bases if first <= base < end]
        parts = [_part(segment, base, opened, is_last=base == bases[-1]) for base in there]
        if all(start == stop for _, start, stop in parts):
            return None
        opened.pop_all()
        return Replaced(parts)


def _part(segment: Segment, base: int, opened: contextlib.ExitStack, *, is_last: bool) -> tuple[FileView, int, int]:
    """Open one of the segments that are there now, and return where in it the offsets of a segment begin and end."""
    files = segment.files
    path = files.join(files.split(segment.path)[0], f"{base:020d}{FileKind.LOG.value}")
    there = replace(segment, path=path, base_offset=base, companions={_INDEX: beside(path, _INDEX)})
    view = opened.enter_context(files.open(path, sealed=True))
    start = _find_batch(there, view, segment.base_offset)[0] if base < segment.base_offset else 0
    if segment.next_base is None:
        return view, start, view.size
    end, is_found = _find_batch(there, view, segment.next_base)
    # Behind the last batch of an active segment there may be one that is being written.
    return view, start, end if is_found or is_last else view.size


def _find_batch(segment: Segment, view: FileView, offset: int) -> tuple[int, bool]:
    """Return where the first batch lies that ends at or behind an offset; without one, where the last one ends.

    A batch whose header alone says so, since lower offsets follow, is damaged: it is not the first one.
    """
    end = position_of_offset(segment, view, offset)
    last_behind: int | None = None
    for item in walk(
        view, start=end, lowest_offset=segment.base_offset, crc=False, first_window_bytes=SMALL_WINDOW_BYTES
    ):
        if not isinstance(item, Window):
            continue
        rows = item.batches
        is_behind = rows.last_offset >= offset
        if last_behind is not None and is_behind[0]:
            return last_behind, True
        both = np.flatnonzero(is_behind[:-1] & is_behind[1:])
        if len(both):
            return int(rows.position[both[0]]), True
        last_behind = int(rows.position[-1]) if is_behind[-1] else None
        end = rows.summary().end_position
    return (end, False) if last_behind is None else (last_behind, True)


def removed_gap(segment: Segment, first_offset: int, next_offset: int | None) -> Gap:
    return Gap(
        segment.path,
        GapKind.REMOVED,
        0,
        segment.size,
        max(first_offset, segment.base_offset),
        next_offset,
        "removed by the broker since its folder was listed, by retention, a truncation or the cleaner",
        False,
    )


def unreadable_gap(segment: Segment, error: StorageError, first_offset: int, next_offset: int | None) -> Gap:
    reason = f"cannot {error.operation}: {error.reason}"
    first = max(first_offset, segment.base_offset)
    return Gap(error.path, kind_of(error), 0, segment.size, first, next_offset, reason, True)
