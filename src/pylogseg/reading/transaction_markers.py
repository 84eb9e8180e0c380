"""Transactional batches and markers of a segment, and the open transactions in a producer snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from pylogseg.catalog.disk import Segment
from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.files.snapshot import parse_snapshot
from pylogseg.format.batches import BatchTable
from pylogseg.format.records import decode
from pylogseg.reading.offset_order import Order
from pylogseg.reading.seek import position_of_offset
from pylogseg.reading.vanished import open_unless_removed
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window, walk

_ABORT = 0


def windows(segment: Segment, first_offset: int, *, crc: bool) -> Iterator[Window]:
    """Yield the headers of a segment from about an offset on, without batches with an impossible base offset."""
    opened = open_unless_removed(segment)
    if opened is None:
        return
    with opened as view:
        start = position_of_offset(segment, view, first_offset) if first_offset > segment.base_offset else 0
        order = Order(segment, view, starts_inside=start > 0)
        # A batch that is still being written must not count: its length may be in the file before its records.
        found = walk(
            view, start=start, lowest_offset=segment.base_offset, is_last=segment.is_last, crc=crc or segment.is_last
        )
        for item in found:
            if isinstance(item, Gap):
                order.finish(item.next_offset)
                continue
            rows = order.check(item.batches).rows
            if len(rows):
                yield item._replace(batches=rows)


def markers_of(segment: Segment, first_offset: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the markers of a segment from about an offset on: producer id, offset, whether it aborts."""
    for window in windows(segment, first_offset, crc=False):
        rows = window.batches
        yield from marker_rows(rows[rows.is_transactional & rows.is_control], window)


def marker_rows(rows: BatchTable, window: Window) -> Iterator[tuple[int, int, bool]]:
    """Yield the markers among control batches of a window, as `markers_of`."""
    if not len(rows):
        return
    columns, _ = decode(rows, window.buffer, window.file_position)
    producers = columns.batches.producer_id[columns.batch].tolist()
    for i, (producer_id, offset) in enumerate(zip(producers, columns.offset.tolist(), strict=True)):
        key = columns.key(i)
        if key is not None and len(key) >= 4:
            yield producer_id, offset, int.from_bytes(key[2:4], "big", signed=True) == _ABORT


def open_at(files: FileSystem, path: str | None) -> dict[int, int] | None:
    """Return producers with an open transaction and its first offset from a snapshot; None if it is not readable."""
    if path is None:
        return None
    try:
        return {p.producer_id: p.first_txn_offset for p in parse_snapshot(files.read_all(path), path) if p.has_open_txn}
    except (CorruptionError, StorageError):
        return None
