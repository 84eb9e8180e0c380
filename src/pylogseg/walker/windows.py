"""A file of batches as a sequence of windows: scanned stretches, with what is damaged between them.

Everything that reads batches (records, verify, stats, dump) goes through here, so a damaged length is treated the same
everywhere: the walk says what it found, goes on behind it where it can, and the caller decides whether to follow.
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
from pylogseg.walker.batch_search import BUDGET_FACTOR, BatchSearch, is_zero
from pylogseg.walker.findings import Finding, Gap
from pylogseg.walker.unreadable import Patched

SMALL_WINDOW_BYTES = 64 << 10
#: The most that is read at a time: a window costs 0.1 ms besides its records.
WINDOW_BYTES = 8 << 20
#: The same of compressed batches, which become several times as large: less takes more calls, and what more becomes
#: leaves the near caches.
COMPRESSED_WINDOW_BYTES = 3 << 19
#: The same where it is copied out of the system's memory: more leaves the caches before it is decoded.
COPIED_WINDOW_BYTES = 4 << 20
#: A first window: little may be wanted.
MEDIUM_WINDOW_BYTES = 2 << 20
_V2_HEADER_BYTES = 61
#: Bytes that would begin a batch of a higher offset are something else, if those before them do not come near it.
_USUAL_OFFSET = 2**48
_CRC_BAD = np.uint8(Verdict.CRC_BAD)
#: Bytes of the smallest batch of each magic.
_SMALLEST = (26, 34, _V2_HEADER_BYTES)


class Window(NamedTuple):
    """Whole batches of one stretch of a file.

    Attributes
    ----------
    batches : BatchTable
        Good and unchecked ones; those with a bad CRC are in gaps.
    buffer : buffer
        The bytes of the stretch.
    file_position : int
        Where the buffer begins in the file.
    """

    batches: BatchTable
    buffer: Any
    file_position: int


class _Reached(NamedTuple):
    """How far the offsets of the good batches go.

    Attributes
    ----------
    offset : int
        What can follow the last one.
    sure : int
        The same without the last one, if its offset leaps: no checksum covers it, so lower ones may follow.
    """

    offset: int
    sure: int

    def after(self, rows: BatchTable) -> _Reached:
        """The same after some batches more."""
        first, base = int(rows.base_offset[0]), int(rows.base_offset[-1])
        offset = first if self.sure <= first < self.offset else self.offset
        before = _behind(int(rows.last_offset[-2])) if len(rows) > 1 else offset
        offset = max(offset, _behind(rows.summary().last_offset))
        return _Reached(offset, offset if base <= before else min(before, offset))

    def up_to(self, next_offset: int | None) -> int:
        """First offset that may be missing where a batch with that one follows."""
        return self.sure if next_offset is not None and self.sure <= next_offset < self.offset else self.offset


def _no_memory(_size: int) -> memoryview | None:
    return None


def walk(
    view: Readable,
    *,
    start: int = 0,
    end: int | None = None,
    lowest_offset: int = 0,
    is_last: bool = True,
    crc: bool = True,
    window_bytes: int = WINDOW_BYTES,
    first_window_bytes: int = MEDIUM_WINDOW_BYTES,
    scanner: Callable[..., Scan] = scan,
    memory: Callable[[int], memoryview | None] = _no_memory,
) -> Iterator[Window | Gap]:
    """Windows and gaps of a file, in order.

    Parameters
    ----------
    view : FileView
        An open file of batches.
    start, end : int
        Positions; the end is the file's by default. The start must be that of a batch.
    lowest_offset : int
        The segment's base offset, or what is known of the offset at `start`.
    is_last : bool
        Whether no segment follows: then a torn or zero-filled tail is news, not damage.
    crc : bool
        Whether to check CRCs.
    window_bytes, first_window_bytes : int
        Bytes read at a time; windows grow from the first size to the other, of compressed batches not as far.
    scanner : callable
        Reads the headers of a window as `format.batches.scan` does, whose ``file_position`` and ``crc`` it is given.
    memory : callable
        Memory for a window of so many bytes, or None. All windows of a view that copies are read to where it says, and
        those of compressed batches of any other from the second one on: for a consumer that is done with a window when
        it asks for the next.

    Yields
    ------
    Window or Gap
        A consumer that wants no more behind a gap stops to iterate.
    """
    end = view.size if end is None else min(end, view.size)
    position, size, reached = start, first_window_bytes, _Reached(lowest_offset, lowest_offset)
    is_copied = getattr(view, "is_copied", False)
    view = patched = Patched(view)
    search = BatchSearch(view, start, end)
    is_compressed = False
    while position < end:
        room = memory(min(size, end - position)) if is_compressed or is_copied else None
        try:
            (batches, stop, ending), buffer = _scan_window(view, position, end, size, room, crc, scanner)
        except StorageError as error:  # not some bytes of it: the file cannot be read any more
            reason = f"cannot {error.operation}: {error.reason}"
            yield Gap(view.path, Finding.UNREADABLE, position, end, reached.offset, None, reason, True)
            return
        if not len(buffer):  # cut off while we read it
            return
        if patched.lost:
            batches.rows["verdict"][patched.touched(batches)] = _CRC_BAD
        is_compressed = len(batches) > 0 and batches.summary().is_compressed
        most = min(window_bytes, COMPRESSED_WINDOW_BYTES if is_compressed else COPIED_WINDOW_BYTES)
        read_to, size = position + len(buffer), min(size * 2, most)
        # The window's edge cuts a batch, or zeros of its header: the next window begins with it.
        whole = stop == end or (
            ending in (Ending.COMPLETE, Ending.TORN, Ending.ZEROS) and stop > position and read_to < end
        )
        bad = _crc_bad(batches)
        if is_last and len(bad):
            # A broker may be writing that batch: the window ends before it, the next one has it as it is then.
            batches, whole = batches[: max(bad[0], 1)], True
            bad = bad[bad < len(batches)]
            stop = int(batches.position[-1] + batches.size[-1])
            size = min(size, SMALL_WINDOW_BYTES)
        if len(bad) and bad[-1] == len(batches) - 1 and stop < end and _leads_nowhere(view, batches, stop, end):
            # A bad CRC and no batch behind it: the length is as doubtful as the rest, so look for batches in it too.
            search.spend(int(batches.size[-1]))
            batches, bad, stop, whole = batches[:-1], bad[:-1], int(batches.position[-1]), False
        found = list(_good_stretches(view, batches, bad, buffer, position, end, reached))
        if is_last and isinstance(found[0] if found else None, Gap) and _has_changed(view, position, buffer, position):
            continue
        yield from (patched.told(item) if isinstance(item, Gap) else item for item in found)
        for item in found:
            if isinstance(item, Window):  # what a damaged batch says of its offsets is not believed
                reached = reached.after(item.batches)
        file_position, position = position, stop
        if whole:
            continue
        gap = patched.told(_gap(view, search, ending, position, end, reached, is_last))
        if is_last and gap.is_damage and _has_changed(view, position, buffer, file_position):
            continue
        yield gap
        if gap.kind is Finding.FOREIGN:
            return
        position, size = gap.end_position, min(first_window_bytes, SMALL_WINDOW_BYTES)


def _behind(last_offset: int) -> int:
    """Offset that can follow a batch; the greatest there is where that is the batch's last already."""
    return min(last_offset + 1, 2**63 - 1)


def _has_changed(view: Readable, position: int, buffer: Any, file_position: int) -> bool:
    """Whether what lies at a place is no longer what a buffer has: a broker was writing just there.

    Asked when all has been looked at that makes the place look damaged, so that damage is what stayed the same.
    """
    seen = memoryview(buffer)[position - file_position :]
    length = int.from_bytes(seen[8:12], "big", signed=True)
    seen = seen[: max(12 + length, _V2_HEADER_BYTES)]
    return bytes(view.read(position, len(seen))) != bytes(seen)


def _scan_window(
    view: Readable,
    position: int,
    end: int,
    size: int,
    room: memoryview | None,
    crc: bool,
    scanner: Callable[..., Scan],
) -> tuple[Scan, Any]:
    """One window from a position on, in the room that there is; grown where its first batch is larger than it."""
    buffer = view.read(position, min(size, end - position)) if room is None else read_into(view, position, room)
    found = scanner(buffer, file_position=position, crc=crc)
    if found.ending is Ending.TORN and not len(found.batches) and position + len(buffer) < end:
        needed = (
            12 + int.from_bytes(memoryview(buffer)[8:12], "big", signed=True) if len(buffer) >= 12 else _V2_HEADER_BYTES
        )
        if position + needed <= end:
            buffer = view.read(position, max(needed, size))
            found = scanner(buffer, file_position=position, crc=crc)
    return found, buffer


def _crc_bad(batches: BatchTable) -> npt.NDArray[np.intp]:
    return np.asarray((batches.rows["verdict"] == _CRC_BAD).nonzero()[0])


def _good_stretches(
    view: Readable,
    batches: BatchTable,
    bad: npt.NDArray[np.intp],
    buffer: Any,
    file_position: int,
    end: int,
    reached: _Reached,
) -> Iterator[Window | Gap]:
    """The window around its batches with a bad CRC, each of which is a gap."""
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
    """A batch with a bad CRC; where its length looks damaged too, the good batches that it covers come out."""
    position, size, stored = int(batches.position[row]), int(batches.size[row]), int(batches.crc[row])
    next_offset = _offset_at(view, position + size, end)
    data = memoryview(buffer)[position - file_position : position - file_position + size]
    computed = _codec.crc32c(data[21:]) if batches.magic[row] == 2 else _codec.crc32(data[16:])
    reason = f"CRC mismatch in a batch of {size} bytes: stored {stored:#010x}, computed {computed:#010x}"
    inner = [] if next_offset == int(batches.last_offset[row]) + 1 else _inner_batches(data, position, reached.sure)
    begin = int(inner[0].batches.position[0]) if inner else position + size
    next_offset = int(inner[0].batches.base_offset[0]) if inner else next_offset
    yield Gap(view.path, Finding.CRC_BAD, position, begin, reached.up_to(next_offset), next_offset, reason, True)
    yield from inner


def _inner_batches(data: memoryview, position: int, expected: int) -> list[Window]:
    """Good batches inside the bytes that a damaged length claims.

    They must run to the end of them: payloads that look like batches do not.
    """
    at, _, _ = _codec.find_batch(data, 1, len(data), expected, BUDGET_FACTOR * len(data), 0)
    if at < 0:
        return []
    found = scan(data, start=at, file_position=position)
    runs_to_end = found.ending is Ending.COMPLETE and bool((found.batches.verdict == Verdict.GOOD).all())
    return [Window(found.batches, data, position)] if runs_to_end else []


def _gap(
    view: Readable, search: BatchSearch, ending: Ending, position: int, end: int, reached: _Reached, is_last: bool
) -> Gap:
    """What lies at `position`, where no batch can be read, up to the next good batch or the end."""
    if ending is Ending.FOREIGN:
        reason = "another program's format: this is a segment of Redpanda, not of Kafka"
        return Gap(view.path, Finding.FOREIGN, position, end, reached.offset, None, reason, True)
    packed = packed_as(bytes(view.read(0, min(LOOK_BYTES, end)))) if position == 0 else None
    if packed is not None:
        reason = f"this is a {packed} file, not a log: unpack it first"
        return Gap(view.path, Finding.FOREIGN, position, end, reached.offset, None, reason, True)
    if ending is Ending.ZEROS and is_zero(view, position, end):
        return Gap(
            view.path,
            Finding.ZEROS,
            position,
            end,
            reached.offset,
            None,
            f"only zero bytes follow, {end - position} of them",
            not is_last,
        )
    found = search.next(position + 1, reached.sure)
    if is_last and found is None and _is_half_written(view, position, end):
        reason = "a batch that is not written whole, and only zero bytes behind what is there of it"
        return Gap(view.path, Finding.TORN, position, end, reached.offset, None, reason, False)
    kind, reason = _explain(view, ending, position, end, reached.offset, found is not None)
    if found is None and search.is_exhausted:
        reason += "; the search for the next batch was given up, because too much looks like one"
    following = None if found is None else _offset_at(view, found, end)
    return Gap(
        view.path,
        kind,
        position,
        end if found is None else found,
        reached.up_to(following),
        following,
        reason,
        kind.is_damage or not is_last,
    )


def _is_half_written(view: Readable, position: int, end: int) -> bool:
    """Whether a batch begins at a position and breaks off in preallocated space: a torn tail with zeros behind it."""
    if end - position <= 12:
        return False
    length = int.from_bytes(bytes(view.read(position + 8, 4)), "big", signed=True)
    # As far as a batch was written its last byte was not; of a header that breaks off not even the length is known.
    return is_zero(view, position + 12, end) or (
        0 < length < end - position - 12 and is_zero(view, position + 12 + length - 1, end)
    )


def _explain(
    view: Readable, ending: Ending, position: int, end: int, expected: int, goes_on: bool
) -> tuple[Finding, str]:
    head = bytes(view.read(position, min(17, end - position)))
    length = int.from_bytes(head[8:12], "big", signed=True)
    if len(head) == 17 and head[16] <= 2 and _SMALLEST[head[16]] <= 12 + length <= end - position:
        return Finding.CRC_BAD, f"CRC mismatch, and the length {length} leads to a place where no batch is"
    if ending is Ending.UNKNOWN_MAGIC:
        return Finding.UNKNOWN_MAGIC, f"magic {head[16]} is none of 0, 1 and 2"
    if ending is Ending.TORN and not goes_on:
        left = end - position
        least = int.from_bytes(head[:8].ljust(8, b"\0"), "big", signed=True)
        if not 0 <= least <= max(expected, _USUAL_OFFSET) + 0x7FFFFFFF:
            reason = f"{left} bytes that are not the beginning of a batch: its offset would be {least}"
            return Finding.BAD_LENGTH, reason + (" or more" if left < 8 else "")
        wanted = f"a batch of {12 + length} bytes is cut off" if left >= 12 else "the header of a batch is cut off"
        return Finding.TORN, f"{wanted} after {left} bytes by the end of the file"
    if ending is Ending.TORN:
        return Finding.BAD_LENGTH, f"length {length} runs past the end of the file, though good batches follow"
    return Finding.BAD_LENGTH, f"length {length} is impossible for a batch"


def _leads_nowhere(view: Readable, batches: BatchTable, stop: int, end: int) -> bool:
    """Whether no batch can begin where the last one of a window stops.

    One that runs past the end, as where a file is cut off, has to have the offset that follows.
    """
    offset = _offset_at(view, stop, end)
    if offset is None:
        return True
    length = int.from_bytes(bytes(view.read(stop + 8, 4)), "big", signed=True)
    return stop + 12 + length > end and offset != _behind(int(batches.last_offset[-1]))


def _offset_at(view: Readable, position: int, end: int) -> int | None:
    """Offset of the batch that seems to begin at a position; None if none can."""
    head = bytes(view.read(position, min(17, end - position)))
    if len(head) < 17 or head[16] > 2 or int.from_bytes(head[8:12], "big", signed=True) + 12 < _SMALLEST[head[16]]:
        return None
    return int.from_bytes(head[:8], "big", signed=True)
