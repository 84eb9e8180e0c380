"""Transactional batches and markers of a segment, and the open transactions in a producer snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.control import ControlKind
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.layout import END_TXN_MARKER
from pylogseg.format.names import parse_file_name
from pylogseg.format.records import decode
from pylogseg.reading.offset_order import Order
from pylogseg.reading.positions import position_of_offset
from pylogseg.reading.removed_segments import open_unless_removed
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window, walk

#: Segments that could not be opened, by base offset, and why.
Unopened = dict[int, StorageError]


def windows(
    segment: Segment,
    first_offset: int,
    *,
    crc: bool,
    unopened: Unopened | None = None,
    damage: list[Gap] | None = None,
) -> Iterator[Window]:
    """Yield the headers of a segment from about an offset on, without batches with an impossible base offset.

    A segment that cannot be opened is a StorageError, or noted in `unopened` and like one without batches. Damage is
    noted in `damage`.
    """
    noted = [] if damage is None else damage
    try:
        opened = open_unless_removed(segment)
    except StorageError as error:
        if unopened is None:
            raise
        unopened[segment.base_offset] = error
        return
    if opened is None:
        return
    with opened as view:
        start = position_of_offset(segment, view, first_offset) if first_offset > segment.base_offset else 0
        order = Order(segment, view, starts_inside=start > 0)
        # A batch that is still being written must not count: its length may be in the file before its records.
        items = walk(
            view, start=start, lowest_offset=segment.base_offset, is_last=segment.is_last, crc=crc or segment.is_last
        )
        for item in items:
            if isinstance(item, Gap):
                noted += [gap for gap in (*order.finish(item.next_offset), item) if gap.is_damage]
                continue
            rows, gaps, _ = order.check(item.batches)
            noted += [gap for gap in gaps if gap.is_damage]
            if len(rows):
                yield item._replace(batches=rows)


def windows_between(segments: Sequence[Segment], first_offset: int, end_offset: int, *, crc: bool) -> Iterator[Window]:
    """Yield the headers of the segments of a log that may have batches of a range of offsets, half-open."""
    for i, segment in enumerate(segments):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else end_offset + 1
        if following > first_offset and segment.base_offset < end_offset:
            yield from windows(segment, first_offset, crc=crc)


def markers_of(
    segment: Segment, first_offset: int, *, unopened: Unopened | None = None
) -> Iterator[tuple[int, int, bool]]:
    """Yield the markers of a segment from about an offset on: producer id, offset, whether it aborts."""
    for window in windows(segment, first_offset, crc=False, unopened=unopened):
        rows = window.batches
        for marker in marker_rows(rows[rows.is_transactional & rows.is_control], window):
            yield marker.producer_id, marker.offset, marker.kind is ControlKind.ABORT


class MarkerRow(NamedTuple):
    """The end of a transaction; the epoch of its coordinator is -1 if the value is no marker's."""

    producer_id: int
    offset: int
    kind: ControlKind
    coordinator_epoch: int


def marker_rows(rows: BatchTable, window: Window) -> Iterator[MarkerRow]:
    """Yield the markers among control batches of a window."""
    if not len(rows):
        return
    # Messages take long to import, and few logs have a marker.
    from pylogseg.format.messages.control import control_kinds

    columns, _ = decode(rows, window.buffer, window.file_position)
    producers = columns.batches.producer_id[columns.batch].tolist()
    kinds = map(ControlKind, control_kinds(columns).tolist())
    for i, (producer_id, offset, kind) in enumerate(zip(producers, columns.offset.tolist(), kinds, strict=True)):
        if kind.ends_transaction:
            value = columns.value(i) or b""
            epoch = END_TXN_MARKER.struct.unpack_from(value)[1] if len(value) >= END_TXN_MARKER.size else -1
            yield MarkerRow(producer_id, offset, kind, epoch)


def open_at(files: FileSystem, path: str | None) -> dict[int, int] | None:
    """Return producers with an open transaction and its first offset from a snapshot; None if it is not readable.

    It does not fit either if its offset is later than the one in its name.
    """
    if path is None:
        return None
    try:
        entries = parse_snapshot(files.read_all(path), path)
    except (CorruptionError, StorageError):
        return None
    offset = parse_file_name(files.split(path)[1]).offset
    if offset is not None and any(max(p.last_offset, p.first_txn_offset) >= offset for p in entries):
        return None
    return {p.producer_id: p.first_txn_offset for p in entries if p.has_open_txn}
