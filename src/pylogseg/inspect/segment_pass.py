"""One pass over a segment for several visitors: its bytes are read, and its records decoded, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import FileView
from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES, Slice, decode_slices
from pylogseg.format.scratch import Scratch
from pylogseg.reading.removed_segments import open_unless_removed
from pylogseg.reading.state import Throttle
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import MEDIUM_WINDOW_BYTES, Window, walk


class Visitor:
    """Looks at windows of a segment: it keeps its findings, but no part of a window, which the next one overwrites.

    For each window `window` is called, then `records` for the batches that it chose, then `after`.
    """

    def miss_segment(self, error: StorageError | None) -> None:
        """Note a segment that cannot be opened, or was removed (None); nothing else is called."""

    def start(self, view: FileView) -> int:
        """Return the position of the first batch that matters; earlier batches are skipped, or not read."""
        return 0

    def gap(self, gap: Gap) -> None:
        """Note a gap."""

    def window(self, window: Window) -> BatchTable | None:
        """Look at headers; return the batches whose records are wanted."""
        return None

    def records(self, part: Slice) -> None:
        """Look at records of batches of one codec."""

    def after(self, window: Window) -> None:
        """Conclude a window."""

    def finish(self, end_position: int) -> None:
        """Conclude the segment, or as much of it as was to be read."""


def visit(
    segment: Segment,
    visitors: Sequence[Visitor],
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    crc: bool = True,
    advance: Callable[[int], None] | None = None,
    throttle: Throttle | None = None,
    drop_behind: bool = False,
    most_bytes: int | None = None,
) -> None:
    """Lead visitors through a segment; batches that decompress to more than `limit_bytes` are not decoded.

    `advance` gets the bytes done since its last call, and may raise to end the work. `most_bytes` ends it after a
    window that passes so many.
    """
    try:
        view = open_unless_removed(segment)
    except StorageError as error:
        for visitor in visitors:
            visitor.miss_segment(error)
        return
    if view is None:
        for visitor in visitors:
            visitor.miss_segment(None)
        return
    scratch = Scratch()
    with view:
        done = start = min(visitor.start(view) for visitor in visitors)
        first_window = MEDIUM_WINDOW_BYTES if most_bytes is None else min(most_bytes, MEDIUM_WINDOW_BYTES)
        for item in walk(
            view,
            start=start,
            lowest_offset=segment.base_offset,
            is_last=segment.is_last,
            crc=crc,
            first_window_bytes=first_window,
            memory=scratch.window,
        ):
            if isinstance(item, Gap):
                end = item.end_position
                for visitor in visitors:
                    visitor.gap(item)
            else:
                end = item.batches.summary().end_position
                _show(item, visitors, limit_bytes, scratch)
                if drop_behind:
                    view.drop(done, item.file_position)
            if throttle is not None:
                throttle.spend(end - done)
            if advance is not None:
                advance(end - done)
            done = end
            if most_bytes is not None and done - start >= most_bytes and not isinstance(item, Gap):
                break
        for visitor in visitors:
            visitor.finish(done)


def _show(window: Window, visitors: Sequence[Visitor], limit_bytes: int, scratch: Scratch) -> None:
    wanted = [(visitor, visitor.window(window)) for visitor in visitors]
    left = [(visitor, rows) for visitor, rows in wanted if rows is not None and len(rows)]
    while left:  # once, unless some want other batches than others
        rows = left[0][1]
        sharing = [visitor for visitor, others in left if _are_same(rows, others)]
        for part in _by_codec(rows, window, limit_bytes, scratch):
            for visitor in sharing:
                visitor.records(part)
        left = [pair for pair in left if pair[0] not in sharing]
    for visitor in visitors:
        visitor.after(window)


def _are_same(rows: BatchTable, others: BatchTable) -> bool:
    return rows is others or (len(rows) == len(others) and np.array_equal(rows.position, others.position))


def _by_codec(rows: BatchTable, window: Window, limit_bytes: int, scratch: Scratch) -> Iterator[Slice]:
    """Decode one codec at a time: then the arena is as large as the batches of one codec."""
    only = rows.summary().codec
    for codec in np.unique(rows.codec).tolist() if only is None else (only,):
        some = rows if only is not None else rows[rows.codec == codec]
        yield from decode_slices(some, window.buffer, window.file_position, limit_bytes=limit_bytes, scratch=scratch)
