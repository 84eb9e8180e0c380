"""The row of a partition in a list, by the headers of a few batches and without numpy, whose import takes longer.

Where anything is odd, windows are read as by all else: damage, offsets that do not ascend, an index that its batches do
not bear out, a first record that is compressed.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

from pylogseg.disk.disk import Partition, Segment
from pylogseg.env.executor import Advance
from pylogseg.env.filesystem import FileView, LocalFiles
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.batch_head import BatchHead, parse_head
from pylogseg.format.codecs import CODECS
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.format.names import FileKind
from pylogseg.inspect.stats.listing import PartitionRow, missing_segments

#: Most headers that are looked at from one position on, and bytes that are read at once.
_MOST, _READ_BYTES = 512, 16 << 10
_CODEC, _APPEND_TIME, _DELETE_HORIZON = 0x07, 0x08, 0x40


class _OddError(Exception):
    """Something is not as usual."""


def partition_row(partition: Partition, advance: Advance | None = None) -> PartitionRow:
    """List one partition, by its first and its last segment. Damage is ignored: `pylogseg verify` looks for it."""
    try:
        if not isinstance(partition.files, LocalFiles):
            raise _OddError
        end, first, newest = _ends(partition.segments)
    except (_OddError, StorageError, CorruptionError):
        from pylogseg.inspect.stats.listing_windows import windows_row  # with numpy

        return windows_row(partition)
    start = partition.log_start_offset
    return PartitionRow(start, max(start, end), first, newest, None, missing_segments(partition))


def _ends(segments: Sequence[Segment]) -> tuple[int, int | None, int | None]:
    """Return the offset after the last record, the first timestamp and the newest one."""
    first = None
    for segment in segments:
        with segment.open() as view:
            first = _first_timestamp(segment, view)
        if first is not None:
            break
    if not segments:
        return (0, None, None)
    last = segments[-1]
    if not last.is_last:
        raise _OddError
    with last.open() as view:
        if view.size == 0:
            if first is not None:  # the newest is in a segment before
                raise _OddError
            return (last.base_offset, None, None)
        end = _from_entry(last, view, None)[-1].last_offset + 1
        newest = _newest(last, view)
    if newest < 0 and len(segments) > 1:
        raise _OddError
    return (end, first, newest if newest >= 0 else None)


def _first_timestamp(segment: Segment, view: FileView) -> int | None:
    for head in _headers(segment, view, 0):
        if head.max_timestamp < 0 or head.records == 0:
            continue
        is_whole = head.records == head.last_offset - head.base_offset + 1
        if head.magic == 2 and is_whole and head.base_timestamp >= 0 and not head.attributes & _DELETE_HORIZON:
            return head.max_timestamp if head.attributes & _APPEND_TIME else head.base_timestamp
        if head.attributes & _CODEC:
            raise _OddError
        if head.magic < 2 or head.attributes & _APPEND_TIME:
            return head.max_timestamp
        body = bytes(view.read(head.position + BATCH_HEADER_BYTES, 24))
        delta = _varint(body, _varint(body, 0)[1] + 1)[0]  # length, attributes, and then this
        if head.base_timestamp + delta < 0:
            raise _OddError
        return head.base_timestamp + delta
    return None


def _newest(segment: Segment, view: FileView) -> int:
    """Return the greatest timestamp of an active segment, -1 if there is none."""
    index = _entries(segment, FileKind.TIME_INDEX, ">qi")
    if not index:
        return max(head.max_timestamp for head in _headers(segment, view, 0))
    timestamp, relative = index[-1]
    offset = segment.base_offset + relative
    heads = _from_entry(segment, view, offset)
    if next((head.max_timestamp for head in heads if head.last_offset >= offset), None) != timestamp:
        raise _OddError
    return max(timestamp, *(head.max_timestamp for head in heads))


def _from_entry(segment: Segment, view: FileView, offset: int | None) -> list[BatchHead]:
    """Return the headers from the entry of the offset index on that is at or below an offset; None: from the last."""
    index = _entries(segment, FileKind.OFFSET_INDEX, ">ii")
    below = [entry for entry in index if offset is None or segment.base_offset + entry[0] <= offset]
    if not below or (offset is not None and offset <= segment.base_offset):
        return list(_headers(segment, view, 0))
    relative, position = below[-1]
    heads = list(_headers(segment, view, position))
    entry_offset = segment.base_offset + relative
    if heads[0].base_offset != entry_offset and entry_offset not in [head.last_offset for head in heads]:
        raise _OddError
    return heads


def _entries(segment: Segment, kind: FileKind, layout: str) -> list[tuple[int, int]]:
    """Return the ascending entries of an index; of a large one only the entries that `_from_entry` needs."""
    data, entry = segment.companion(kind) or b"", struct.Struct(layout)
    if len(data) % entry.size or len(data) > _MOST * entry.size:
        raise _OddError
    entries = list(entry.iter_unpack(data))
    while len(entries) > 1 and entries[-1] == (0, 0):  # room for more
        entries.pop()
    if len(entries) == 1 and entries[0] == (0, 0) and len(data) > entry.size:
        return []
    if any(before[0] >= after[0] or before[1] > after[1] for before, after in itertools.pairwise(entries)):
        raise _OddError
    return entries


def _headers(segment: Segment, view: FileView, position: int) -> Iterator[BatchHead]:
    """Yield the headers from a position to the end of a file; there is at least one unless the file is empty."""
    size, held, start, reached = view.size, b"", position, segment.base_offset - 1
    if position < 0 or (size and position >= size):
        raise _OddError
    for _ in range(_MOST):
        if position == size:
            return
        if position + BATCH_HEADER_BYTES > start + len(held):
            start, held = position, bytes(view.read(position, _READ_BYTES))
        head = _parse_head(held[position - start : position - start + BATCH_HEADER_BYTES], position)
        if head.base_offset <= reached or head.last_offset < head.base_offset or head.position + head.size > size:
            raise _OddError
        yield head
        position, reached = position + head.size, head.last_offset
    raise _OddError


def _parse_head(data: bytes, position: int) -> BatchHead:
    head = parse_head(data, position)
    if head is None:
        raise _OddError
    is_fitting = 0 <= head.records <= head.last_offset - head.base_offset + 1
    if head.magic == 2 and not (is_fitting and head.attributes & _CODEC < len(CODECS)):
        raise _OddError
    return head


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a signed number, and where the next one begins."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise _OddError
