"""Walk a file of batches, window by window. There are two policies for places where no batch begins.

Everything that reads records (verify, stats, dump too) keeps what is good: `walk` yields windows of scanned batches,
and gaps for the damage between them, so damage is treated the same everywhere; the caller decides whether to go on.
A walk that works as a broker does stops where a broker stops: `broker_windows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg.env.filesystem import Readable, read_into
from pylogseg.errors import Ending, StorageError, Verdict
from pylogseg.format.batches import BatchTable, Scan, scan
from pylogseg.format.foreign_formats import LOOK_BYTES, packed_as
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.walker.batch_search import BUDGET_FACTOR, BatchSearch, is_zero
from pylogseg.walker.gaps import Gap, GapKind, kind_of
from pylogseg.walker.unreadable import Patched

SMALL_WINDOW_BYTES = 64 << 10
#: Most bytes to read at a time: a window costs 0.1 ms besides its records.
WINDOW_BYTES = 8 << 20
#: The same for compressed batches, which become several times larger: smaller windows need more calls, larger ones
#: leave the processor's caches when decompressed.
COMPRESSED_WINDOW_BYTES = 3 << 19
#: The same if the bytes are copied, or plain and decoded while they are read: of larger windows the bytes, or the
#: columns that are made of them, leave the caches.
COPIED_WINDOW_BYTES = 4 << 20
#: First window: the caller may need only a few records.
MEDIUM_WINDOW_BYTES = 2 << 20
#: A batch header with a higher offset than this is implausible, unless the offsets before it are close.
_PLAUSIBLE_OFFSET = 2**48
_CRC_BAD = np.uint8(Verdict.CRC_BAD)
_NO_ROWS = np.empty(0, np.intp)
#: Bytes of the smallest batch of each magic.
_SMALLEST = (26, 34, BATCH_HEADER_BYTES)


class Window(NamedTuple):
    """Whole batches of one range of a file."""

    batches: BatchTable  #: Of `walk`: good and unchecked ones, those with a bad CRC are in gaps.
    buffer: Any  #: The bytes of the range.
    file_position: int  #: Where the buffer begins in the file.


class _Reached(NamedTuple):
    """The end of the offsets of the good batches so far."""

    offset: int  #: The offset that can follow the last batch.
    #: Without the last batch if its offset leaps: no checksum covers it, so lower offsets may follow. And of that only
    #: the offsets for which it has records.
    sure: int

    def after(self, rows: BatchTable) -> _Reached:
        summary = rows.summary()
        first, base = summary.first_base_offset, summary.last_base_offset
        offset = first if self.sure <= first < self.offset else self.offset
        before = offset if summary.offset_before_last is None else _next_offset(summary.offset_before_last)
        offset = max(offset, _next_offset(summary.last_offset))
        recorded = max(before, base + max(1, int(rows.rows["count"][-1])))
        return _Reached(offset, min(offset, recorded if base <= before else before))

    def up_to(self, next_offset: int | None) -> int:
        """Return the first offset that may be missing before a batch that begins with `next_offset`."""
        return self.sure if next_offset is not None and self.sure <= next_offset < self.offset else self.offset


#: Returns memory for a window of so many bytes; None for fresh memory.
Memory = Callable[[int], memoryview | None]


def no_memory(_size: int) -> memoryview | None:
    """Ask for fresh memory for each window."""
    return None


def nothing_through(_view: Readable, _position: int, _size: int) -> tuple[Scan, Any] | None:
    """Return None for each window, so that `walk` reads and scans it itself."""
    return None


def walk(
    view: Readable,
    *,
    start: int = 0,
    lowest_offset: int = 0,
    is_last: bool = True,
    crc: bool = True,
    window_bytes: int = WINDOW_BYTES,
    first_window_bytes: int = MEDIUM_WINDOW_BYTES,
    scanner: Callable[..., Scan] = scan,
    memory: Memory = no_memory,
    through: Callable[[Readable, int, int], tuple[Scan, Any] | None] = nothing_through,
) -> Iterator[Window | Gap]:
    """Yield the windows and gaps of a file, in order, from a batch at `start` on; stop iterating to end at a gap.

    `lowest_offset` is the segment's base offset, or a lower bound of the offset at `start`. `is_last`: no segment
    follows, so a torn or zero-filled tail is a notice, not damage. Windows grow from the first size to the other, less
    for compressed batches. `scanner` reads the headers of a window like `format.batches.scan`, with ``file_position``
    and ``crc``; with ``Ending.MORE`` it leaves out the rest of the window.

    `memory` returns memory for a window of a given size, or None: for consumers that are done with a window when they
    ask for the next. Windows of a view that copies are read into it, and those of compressed batches of other views
    from the second window on.

    `through` reads and scans a window of good batches alone, of at most so many bytes from a position on; None where it
    cannot. The bytes that it leaves out at the end come with ``Ending.MORE``.
    """
    end, file = view.size, view
    position, size, reached = start, first_window_bytes, _Reached(lowest_offset, lowest_offset)
    is_copied = getattr(view, "is_copied", False)
    view = patched = Patched(view)
    search = BatchSearch(view, start, end)
    is_compressed = False
    while position < end:
        try:
            read = None if patched.lost else through(file, position, min(size, end - position))
            is_through = read is not None
            if read is None:
                room = memory(min(size, end - position)) if is_compressed or is_copied else None
                read = read_window(view, position, end, size, crc, scanner, room)
            (batches, stop, ending), buffer = read
        except StorageError as error:  # not some bytes of it: the file cannot be read any more
            reason = f"cannot {error.operation}: {error.reason}"
            yield Gap(view.path, kind_of(error), position, end, reached.offset, None, reason, True)
            return
        if not len(buffer):  # cut off while we read it
            return
        if patched.lost:
            batches.rows["verdict"][patched.mask_touched(batches)] = _CRC_BAD
        is_compressed = len(batches) > 0 and batches.summary().is_compressed
        most = COPIED_WINDOW_BYTES
        if is_compressed:
            most = WINDOW_BYTES if is_through else COMPRESSED_WINDOW_BYTES
        most = min(window_bytes, most)
        read_to, size = position + len(buffer), min(size * 2, most)
        # The window ends inside a batch, or its scanner leaves others out: the next window begins with that batch.
        is_cut = ending is Ending.MORE or (ending in (Ending.COMPLETE, Ending.TORN, Ending.ZEROS) and read_to < end)
        whole = stop == end or (is_cut and stop > position)
        bad = _NO_ROWS if is_through else _crc_bad(batches)
        if is_last and len(bad):
            # A broker may be writing that batch: end the window before it, and read it again with the next one.
            batches, whole = batches[: max(bad[0], 1)], True
            bad = bad[bad < len(batches)]
            stop = int(batches.position[-1] + batches.size[-1])
            size = min(size, SMALL_WINDOW_BYTES)
        if len(bad) and bad[-1] == len(batches) - 1 and stop < end and _leads_nowhere(view, batches, stop, end):
            # A bad CRC and no batch after it: the length may be damaged too, so search inside the batch as well.
            search.spend(int(batches.size[-1]))
            batches, bad, stop, whole = batches[:-1], bad[:-1], int(batches.position[-1]), False
        items = list(_good_ranges(view, batches, bad, buffer, position, end, reached))
        if is_last and isinstance(items[0] if items else None, Gap) and _has_changed(view, position, buffer, position):
            continue
        yield from (patched.explain(item) if isinstance(item, Gap) else item for item in items)
        for item in items:
            if isinstance(item, Window):  # offsets in a damaged batch are not trusted
                reached = reached.after(item.batches)
        file_position, position = position, stop
        if whole:
            continue
        gap = patched.explain(_gap(view, search, ending, position, end, reached, is_last))
        if is_last and gap.is_damage and _has_changed(view, position, buffer, file_position):
            continue
        yield gap
        if gap.kind is GapKind.FOREIGN:
            return
        position, size = gap.end_position, min(first_window_bytes, SMALL_WINDOW_BYTES)


def _next_offset(last_offset: int) -> int:
    """Return the offset after a batch's last one, at most the greatest offset."""
    return min(last_offset + 1, 2**63 - 1)


def _has_changed(view: Readable, position: int, buffer: Any, file_position: int) -> bool:
    """Check whether a batch in the file differs from the buffer by now: a broker was writing it.

    Called last, after all checks that found the batch damaged: damage is what has not changed meanwhile.
    """
    seen = memoryview(buffer)[position - file_position :]
    length = int.from_bytes(seen[8:12], "big", signed=True)
    seen = seen[: max(12 + length, BATCH_HEADER_BYTES)]
    return bytes(view.read(position, len(seen))) != bytes(seen)


def read_window(
    view: Readable,
    position: int,
    end: int,
    size: int,
    crc: bool,
    scanner: Callable[..., Scan],
    room: memoryview | None = None,
) -> tuple[Scan, Any]:
    """Read and scan one window, into `room` if given; a larger one if its first batch does not fit.

    The step that both policies share.
    """
    buffer = view.read(position, min(size, end - position)) if room is None else read_into(view, position, room)
    window = scanner(buffer, file_position=position, crc=crc)
    if window.ending is Ending.TORN and not len(window.batches) and position + len(buffer) < end:
        head = memoryview(buffer)[:12]
        needed = 12 + int.from_bytes(head[8:], "big", signed=True) if len(head) == 12 else BATCH_HEADER_BYTES
        if position + needed <= end:
            buffer = view.read(position, max(needed, size))
            window = scanner(buffer, file_position=position, crc=crc)
    return window, buffer


def _crc_bad(batches: BatchTable) -> npt.NDArray[np.intp]:
    return np.asarray((batches.rows["verdict"] == _CRC_BAD).nonzero()[0])


def _good_ranges(
    view: Readable,
    batches: BatchTable,
    bad: npt.NDArray[np.intp],
    buffer: Any,
    file_position: int,
    end: int,
    reached: _Reached,
) -> Iterator[Window | Gap]:
    """Split a window at its batches with a bad CRC, each of which becomes a gap."""
    first = 0
    for row in bad.tolist():
        if row > first:
            yield Window(batches[first:row], buffer, file_position)
            reached = reached.after(batches[first:row])
        yield from _crc_gap(view, batches, row, buffer, file_position, end, reached)
        first = row + 1
    if first < len(batches):
        yield Window(batches[first:] if first else batches, buffer, file_position)


def _crc_gap(
    view: Readable, batches: BatchTable, row: int, buffer: Any, file_position: int, end: int, reached: _Reached
) -> Iterator[Window | Gap]:
    """Yield the gap for a batch with a bad CRC, and the good batches inside it if its length is damaged too."""
    position, size, stored = int(batches.position[row]), int(batches.size[row]), int(batches.crc[row])
    next_offset = _offset_at(view, position + size, end)
    data = memoryview(buffer)[position - file_position : position - file_position + size]
    computed = _codec.crc32c(data[21:]) if batches.magic[row] == 2 else _codec.crc32(data[16:])
    reason = f"CRC mismatch in a batch of {size} bytes: stored {stored:#010x}, computed {computed:#010x}"
    inner = [] if next_offset == int(batches.last_offset[row]) + 1 else _inner_batches(data, position, reached.sure)
    begin = int(inner[0].batches.position[0]) if inner else position + size
    next_offset = int(inner[0].batches.base_offset[0]) if inner else next_offset
    yield Gap(view.path, GapKind.CRC_BAD, position, begin, reached.up_to(next_offset), next_offset, reason, True)
    yield from inner


def _inner_batches(data: memoryview, position: int, expected: int) -> list[Window]:
    """Return the good batches inside the bytes of a batch with a damaged length.

    They must extend to the end of these bytes: payloads that look like batches do not.
    """
    at, _, _ = _codec.find_batch(data, 1, len(data), expected, BUDGET_FACTOR * len(data), 0)
    if at < 0:
        return []
    inner = scan(data, start=at, file_position=position)
    runs_to_end = inner.ending is Ending.COMPLETE and bool((inner.batches.verdict == Verdict.GOOD).all())
    return [Window(inner.batches, data, position)] if runs_to_end else []


def _gap(
    view: Readable, search: BatchSearch, ending: Ending, position: int, end: int, reached: _Reached, is_last: bool
) -> Gap:
    """Return the gap from `position`, where no batch can be read, to the next good batch or the end."""
    if ending is Ending.FOREIGN:
        reason = "another program's format: this is a segment of Redpanda, not of Kafka"
        return Gap(view.path, GapKind.FOREIGN, position, end, reached.offset, None, reason, True)
    packed = packed_as(bytes(view.read(0, min(LOOK_BYTES, end)))) if position == 0 else None
    if packed is not None:
        reason = f"this is a {packed} file, not a log: unpack it first"
        return Gap(view.path, GapKind.FOREIGN, position, end, reached.offset, None, reason, True)
    if ending is Ending.ZEROS and is_zero(view, position, end):
        return Gap(
            view.path,
            GapKind.ZEROS,
            position,
            end,
            reached.offset,
            None,
            f"only zero bytes follow, {end - position} of them",
            not is_last,
        )
    next_good = search.next(position + 1, reached.sure)
    if is_last and next_good is None and _is_half_written(view, position, end):
        reason = "an incomplete batch, followed only by zero bytes"
        return Gap(view.path, GapKind.TORN, position, end, reached.offset, None, reason, False)
    kind, reason = _explain(view, ending, position, end, reached.offset, next_good is not None)
    if next_good is None and search.is_exhausted:
        reason += "; the search for the next batch was given up, because too much looks like one"
    following = None if next_good is None else _offset_at(view, next_good, end)
    return Gap(
        view.path,
        kind,
        position,
        end if next_good is None else next_good,
        reached.up_to(following),
        following,
        reason,
        kind.is_damage or not is_last,
    )


def _is_half_written(view: Readable, position: int, end: int) -> bool:
    """Check whether a batch at a position breaks off in preallocated space: a torn tail followed by zeros."""
    if end - position <= 12:
        return False
    length = int.from_bytes(bytes(view.read(position + 8, 4)), "big", signed=True)
    # The last byte of an incomplete batch was not written; if the header breaks off, not even the length is known.
    return is_zero(view, position + 12, end) or (
        0 < length < end - position - 12 and is_zero(view, position + 12 + length - 1, end)
    )


def _explain(
    view: Readable, ending: Ending, position: int, end: int, expected: int, goes_on: bool
) -> tuple[GapKind, str]:
    head = bytes(view.read(position, min(17, end - position)))
    length = int.from_bytes(head[8:12], "big", signed=True)
    if len(head) == 17 and head[16] <= 2 and _SMALLEST[head[16]] <= 12 + length <= end - position:
        return GapKind.CRC_BAD, f"CRC mismatch, and no batch begins after its length of {length} bytes"
    if ending is Ending.UNKNOWN_MAGIC:
        return GapKind.UNKNOWN_MAGIC, f"magic {head[16]} is unknown; expected 0, 1 or 2"
    if ending is Ending.TORN and not goes_on:
        left = end - position
        least = int.from_bytes(head[:8].ljust(8, b"\0"), "big", signed=True)
        if not 0 <= least <= max(expected, _PLAUSIBLE_OFFSET) + 0x7FFFFFFF:
            reason = f"{left} bytes that do not begin a batch: its offset would be {least}"
            return GapKind.BAD_LENGTH, reason + (" or more" if left < 8 else "")
        what = f"a batch of {12 + length} bytes is cut off" if left >= 12 else "the header of a batch is cut off"
        return GapKind.TORN, f"{what} after {left} bytes by the end of the file"
    if ending is Ending.TORN:
        return GapKind.BAD_LENGTH, f"length {length} runs past the end of the file, but good batches follow"
    return GapKind.BAD_LENGTH, f"length {length} is impossible for a batch"


def _leads_nowhere(view: Readable, batches: BatchTable, stop: int, end: int) -> bool:
    """Check whether no batch can begin where the last batch of a window ends.

    A batch that extends beyond the end of the file, as in a torn tail, must have the next offset.
    """
    offset = _offset_at(view, stop, end)
    if offset is None:
        return True
    length = int.from_bytes(bytes(view.read(stop + 8, 4)), "big", signed=True)
    return stop + 12 + length > end and offset != _next_offset(int(batches.last_offset[-1]))


def _offset_at(view: Readable, position: int, end: int) -> int | None:
    """Return the offset of the batch that seems to begin at a position; None if none can."""
    head = bytes(view.read(position, min(17, end - position)))
    if len(head) < 17 or head[16] > 2 or int.from_bytes(head[8:12], "big", signed=True) + 12 < _SMALLEST[head[16]]:
        return None
    return int.from_bytes(head[:8], "big", signed=True)


def next_offset_of(file: Readable, base_offset: int) -> int:
    """Return the offset after the last good batch of a segment, read without its indexes and without checksums."""
    next_offset = base_offset
    for item in walk(file, lowest_offset=base_offset, crc=False):
        if not isinstance(item, Gap):
            next_offset = max(next_offset, int(item.batches.last_offset[-1]) + 1)
    return next_offset
