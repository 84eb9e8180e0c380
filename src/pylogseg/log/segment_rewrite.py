"""Rewriting segments: filter or change their batches and swap the result in, by `.cleaned` and `.swap` files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.errors import CleaningAbortedError, CorruptionError, RequestError, Verdict
from pylogseg.format.batches import BatchTable, joined_rows
from pylogseg.format.builder import Levels, columns_to_encode, rebuild
from pylogseg.format.files.txnindex import AbortedTxn
from pylogseg.format.records import RecordColumns
from pylogseg.format.scratch import Scratch
from pylogseg.log.batch_headers import batch_facts
from pylogseg.log.log import Log
from pylogseg.log.segment import LogSegment, OffsetOverflowError, SegmentOwner
from pylogseg.log.segment_replace import new_cleaned_segment
from pylogseg.walker.windows import Memory, Window

#: What `assemble_batches` does with a batch; a number above `REWRITTEN` is how many new ones replace it.
STAYS, GOES, REWRITTEN = -1, 0, 1
#: A broker counts positions in a segment by 32 bits.
_MOST_BYTES = 2**31 - 1
#: How far the last offset of a segment may be from its base offset.
_REACH = 2**31 - 1


class Filtered(NamedTuple):
    """The batches to keep, back to back, and a row for each, with positions from 0."""

    data: bytes | memoryview
    batches: BatchTable


def assemble_batches(
    window: Window,
    fate: npt.NDArray[np.integer[Any]],
    records: RecordColumns,
    new: npt.NDArray[Any],
    path: str,
    levels: Levels = None,
) -> Filtered:
    """Assemble kept and rewritten batches in their order.

    `fate` is `STAYS`, `GOES`, `REWRITTEN` or a higher number for each batch; `records` and the headers in `new` are
    those of the rewritten ones, in order (see `rebuild`). Raises CorruptionError for a record outside of its batch.
    """
    batches, view, start = window.batches, window.buffer, window.file_position
    if (fate == STAYS).all():
        rows = np.array(batches.rows)
        first = int(rows["position"][0]) if len(rows) else start
        rows["position"] -= first
        whole = memoryview(view)[first - start :]
        return Filtered(whole[: int(rows["size"].sum(dtype=np.int64))], BatchTable(rows))
    places = np.where(fate == STAYS, 1, fate)
    rows, fresh = np.repeat(batches.rows, places), np.repeat(fate >= REWRITTEN, places)
    if len(new):
        legacy = rows["magic"][fresh] < 2
        if legacy.any():
            # The first and last record of a wrapper are known only after decompression.
            ends = np.cumsum(new["count"])
            new["base_offset"][legacy] = records.offset[(ends - new["count"])[legacy]]
            new["last_offset"][legacy] = records.offset[(ends - 1)[legacy]]
        try:
            written, table = rebuild(columns_to_encode(records), BatchTable(new), level=levels)
        except RequestError:
            _check_offsets(records, new, path)
            raise
    else:
        written, table = bytearray(), BatchTable(new)
    rows[fresh] = table.rows
    source = memoryview(written)
    pieces: list[memoryview] = []
    whole = memoryview(view)
    # Runs of batches from one of the two buffers, so that a run is one piece.
    at = rows["position"] - np.where(fresh, 0, start)
    ends = at + rows["size"]
    breaks = np.flatnonzero((fresh[1:] != fresh[:-1]) | (at[1:] != ends[:-1])) + 1
    for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(rows)], strict=True):
        if last > first:
            pieces.append((source if fresh[first] else whole)[int(at[first]) : int(ends[last - 1])])
    rows["position"] = np.cumsum(rows["size"], dtype=np.int64) - rows["size"]
    return Filtered(pieces[0] if len(pieces) == 1 else b"".join(pieces), BatchTable(rows))


def _check_offsets(records: RecordColumns, new: npt.NDArray[Any], path: str) -> None:
    batch = np.repeat(np.arange(len(new)), new["count"])
    first, last = new["base_offset"][batch], new["last_offset"][batch]
    for at in np.flatnonzero((records.offset < first) | (records.offset > last))[:1].tolist():
        reason = f"a record has offset {records.offset[at]}, and its batch the offsets {first[at]} to {last[at]}"
        raise CorruptionError(path, int(new["position"][batch[at]]), reason, int(first[at]))


def join_parts(parts: list[Filtered]) -> Filtered:
    if len(parts) == 1:
        return parts[0]
    rows = joined_rows([part.batches.rows for part in parts])
    rows["position"] = np.cumsum(rows["size"], dtype=np.int64) - rows["size"]
    return Filtered(b"".join(part.data for part in parts), BatchTable(rows))


class SegmentWriter:
    """Writes batches to new segments with the suffix `.cleaned`.

    Batches that do not fit into `most_bytes`, or whose index entries do not, begin another segment; without it all must
    fit. With `leaps`, so does an offset too far from the base offset.
    """

    def __init__(
        self, owner: SegmentOwner, base_offset: int, most_bytes: int | None = None, *, leaps: bool = False
    ) -> None:
        self._owner, self._most_bytes, self._leaps = owner, most_bytes, leaps
        self.segments = [self._new(base_offset)]
        self._since_entry, self._next_offset = 0, base_offset

    def _new(self, base_offset: int) -> LogSegment:
        owner = self._owner
        return new_cleaned_segment(owner, base_offset)

    def append(self, kept: Filtered) -> None:
        rows, data = kept.batches, memoryview(kept.data)
        while len(rows):
            count = len(rows) if self._most_bytes is None else self._fitting(rows, self._most_bytes)
            if count == 0:
                self.segments.append(self._new(self._base_for(rows)))
                self._since_entry = 0
                continue
            part, rows = rows[:count], rows[count:]
            size = int(part.size.sum(dtype=np.int64))
            last = int(part.last_offset.max())
            self.segments[-1].append(last, data[:size], batch_facts(part))
            data, self._next_offset = data[size:], last + 1

    def _base_for(self, rows: BatchTable) -> int:
        """Return the base offset of the segment that the next batch begins."""
        if not self._leaps or int(rows.last_offset[0]) - self._next_offset < _REACH:
            return self._next_offset
        # The header of a wrapper lacks its first offset.
        is_wrapper = rows.magic[0] < 2 and rows.codec[0]
        return int(rows.last_offset[0]) - _REACH // 2 if is_wrapper else int(rows.base_offset[0])

    def _fitting(self, rows: BatchTable, most_bytes: int) -> int:
        """Return how many batches fit into the last segment; an empty one takes the first batch at any size."""
        target = self.segments[-1]
        index, times = target.offset_index, target.time_index
        entries = min(index.slot_count - index.count, times.slot_count - 1 - times.count)
        at, since, count = target.size, self._since_entry, 0
        for size, last_offset in zip(rows.size.tolist(), rows.last_offset.tolist(), strict=True):
            is_entry = since > target.index_interval_bytes
            reaches = index.can_hold(last_offset)
            if (at and (at + size > most_bytes or entries < is_entry or not reaches)) or (self._leaps and not reaches):
                break
            entries -= is_entry
            at, since, count = at + size, size + (0 if is_entry else since), count + 1
        self._since_entry = since
        return count

    def add_aborted(self, txn: AbortedTxn) -> None:
        """Note an aborted transaction in the segment that holds its marker."""
        holding = [segment for segment in self.segments if segment.base_offset <= txn.last_offset]
        holding[-1].add_aborted(txn)

    def finish(self, modified_ms: int) -> None:
        """Trim and flush the segments, and set their modification time."""
        for segment in self.segments:
            segment.become_inactive()
            segment.flush()
            segment.set_modified_ms(modified_ms)

    def delete(self) -> None:
        for segment in self.segments:
            segment.delete()

    def close_handles(self) -> None:
        """Close the files; the next load removes them."""
        for segment in self.segments:
            segment.close_handles()


def rewrite(
    log: Log,
    group: Sequence[LogSegment],
    parts: Callable[[LogSegment, SegmentWriter], Iterator[Filtered]],
    *,
    most_bytes: int | None = None,
    keeps_aborted: bool = False,
) -> list[LogSegment]:
    """Rewrite consecutive segments piece by piece, as `parts` yields the pieces; return the new segments.

    Nobody else changes the segments meanwhile; if the active one is among them, the log is to be closed next.
    `most_bytes` is for `SegmentWriter`, not above what a broker can read. With `keeps_aborted` the transaction indexes
    stay; else `parts` adds the entries to the writer. An error of it ends the work, and the segments stay as they were.
    Raises CleaningAbortedError if a segment had to be split first (try again).
    """
    writer = SegmentWriter(log, group[0].base_offset, None if most_bytes is None else min(most_bytes, _MOST_BYTES))
    try:
        for segment in group:
            try:
                for part in parts(segment, writer):
                    if len(part.data):
                        writer.append(part)
                for txn in segment.aborted_txns if keeps_aborted else ():
                    writer.add_aborted(txn)
            except OffsetOverflowError as overflow:
                log.split_segment(segment)
                raise CleaningAbortedError(f"{overflow}; the segment was split, try again") from overflow
        writer.finish(group[-1].modified_ms())
        log.replace_segments(writer.segments, group)
    except CleaningAbortedError:
        writer.delete()
        raise
    except BaseException:
        writer.close_handles()
        raise
    return writer.segments


def whole_windows(
    source: LogSegment, position: int = 0, *, crc: bool, memory: Memory | None = None
) -> Iterator[Window]:
    """Yield the batches of a segment from the start of one on; CorruptionError at the first that is not whole.

    A window is valid until the next one. A broker's cleaner does not look at CRCs.
    """
    memory = Scratch().window if memory is None else memory
    for window in source.windows(position, recovering=crc, memory=memory):
        rows = window.batches
        bad = np.flatnonzero(rows.verdict == Verdict.CRC_BAD)
        if len(bad):
            raise CorruptionError(source.path, int(rows.position[bad[0]]), "the CRC of the batch does not match")
        yield window
        position += int(rows.size.sum(dtype=np.int64))
    if position < source.size:
        raise CorruptionError(source.path, position, "no whole batch is readable here; the log was not changed")
