"""The batches of files that are copied, merged, restored, repaired or archived, each with its checksum.

The bytes between them are gaps. No caller gets batches without saying what it does with gaps: `on_gap` gets each of
them in its place, notes it or raises, and returns True to end there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np

from pylogseg.env.filesystem import Readable
from pylogseg.errors import StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.log.segment_rewrite import Filtered
from pylogseg.walker.batch_search import BatchSearch
from pylogseg.walker.broker_windows import recovery_windows
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import Memory, Window, no_memory, walk

OnGap = Callable[[Gap], "bool | None"]
#: The offsets of a segment.
_MAX_RELATIVE = 2**31 - 1


def refuse_gap(gap: Gap) -> NoReturn:
    raise gap.as_error()


def checked_windows(
    file: Readable,
    base_offset: int,
    on_gap: OnGap,
    *,
    start: int = 0,
    is_last: bool = True,
    crc: bool = True,
    memory: Memory = no_memory,
) -> Iterator[Window]:
    """Yield the good batches of a file from a position on; see `walk`."""
    for item in walk(file, start=start, lowest_offset=base_offset, is_last=is_last, crc=crc, memory=memory):
        if isinstance(item, Window):
            yield item
        elif on_gap(item):
            return


def windows_past_leaps(file: Readable, base_offset: int, end_offset: int | None, on_gap: OnGap) -> Iterator[Window]:
    """Yield the good batches of a segment; a batch with a too high offset does not hide batches behind damage.

    After damage, a walk accepts only offsets above the ones that it has read. No checksum covers an offset.
    """
    limit = base_offset + _MAX_RELATIVE if end_offset is None else end_offset
    search = BatchSearch(file, 0, file.size)
    start: int | None = 0
    highest = -1

    def look_again(gap: Gap) -> bool:
        nonlocal start
        if highest < limit or gap.kind in (GapKind.FOREIGN, GapKind.REMOVED):
            return bool(on_gap(gap))
        position = search.next(gap.position + 1, base_offset)
        behind = gap.end_position if position is None else min(position, gap.end_position)
        start = behind if behind < file.size else None
        on_gap(gap._replace(end_position=behind))
        return True

    while start is not None:
        begin, highest, start = start, -1, None
        for window in checked_windows(file, base_offset, look_again, start=begin, is_last=end_offset is None):
            highest = max(highest, int(window.batches.last_offset.max(initial=-1)))
            yield window


def good_end(
    file: Readable, base_offset: int, on_damage: Callable[[Gap], object], *, is_last: bool = True
) -> tuple[int, int]:
    """Return the position behind the last whole batch or damage of a segment, and the offset behind its last batch."""
    position, offset = 0, base_offset

    def note(gap: Gap) -> None:
        nonlocal position
        if gap.is_damage:
            on_damage(gap)
            position = gap.end_position

    for window in checked_windows(file, base_offset, note, is_last=is_last):
        position = int(window.batches.position[-1] + window.batches.size[-1])
        offset = max(offset, int(window.batches.last_offset[-1]) + 1)
    return position, offset


def batches_of_runs(file: Readable, runs: Iterable[tuple[int, int]]) -> Iterator[Filtered]:
    """Yield the batches of some runs of a file that were found good, in pieces of a few megabytes.

    StorageError if a run has lost some of them since.
    """
    for position, end in runs:
        for window in recovery_windows(file, position):
            rows = window.batches[window.batches.position < end]
            if len(rows):
                size = int(rows.size.sum(dtype=np.int64))
                at = int(rows.position[0]) - window.file_position
                yield Filtered(window.buffer[at : at + size], rows)
                position = int(rows.position[-1] + rows.size[-1])
            if len(rows) < len(window.batches) or position >= end:
                break
        if position < end:
            reason = f"the batch at position {position} was good and is not any more: it changed, or the disk fails"
            raise StorageError(file.path, "read", reason)


def cut_pieces(rows: BatchTable, most_bytes: int) -> Iterator[BatchTable]:
    """Yield batches that lie back to back, of so many bytes at most, and that fit into one segment by their offsets.

    A piece ends with a marker, so that the log knows which transactions were open then. A larger batch is a piece.
    """
    ends, lasts = rows.position + rows.size, rows.last_offset
    leaps = (rows.position[1:] != ends[:-1]) | rows.is_control[:-1]
    breaks, first = np.append(np.flatnonzero(leaps) + 1, len(rows)), 0
    while first < len(rows):
        by_size = int(np.searchsorted(ends, int(rows.position[first]) + most_bytes, "right"))
        by_offset = int(np.searchsorted(lasts, int(rows.base_offset[first]) + _MAX_RELATIVE, "right"))
        by_break = int(breaks[np.searchsorted(breaks, first, "right")])
        stop = max(first + 1, min(by_size, by_offset, by_break))
        yield rows[first:stop]
        first = stop


def piece_bytes(piece: BatchTable, buffer: Any, position: int) -> memoryview:
    """Return the bytes of a piece; its buffer begins at a position of the file."""
    first, last = int(piece.position[0]), int(piece.position[-1] + piece.size[-1])
    return memoryview(buffer)[first - position : last - position]
