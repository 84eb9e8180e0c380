"""Filters a window of a segment for compaction: batches are dropped, kept, emptied or rewritten."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.errors import CorruptionError, InvalidRecordError, UncleanableError
from pylogseg.format.batches import BatchTable, Mask
from pylogseg.format.builder import CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND, TRANSACTIONAL
from pylogseg.format.control import ControlKind, decode_control_key
from pylogseg.format.records import REWRITE_LIMIT_BYTES, BatchDamage, RecordColumns, decode, decode_parts
from pylogseg.format.scratch import Scratch
from pylogseg.log.cleaner_transactions import CleanedTxns
from pylogseg.log.offset_map import BEYOND, LAST, NO_KEY, OffsetMap
from pylogseg.log.plain_batches import PlainBatches, PlainReader, last_batches
from pylogseg.log.record_limit import NO_LIMIT_BYTES, describe_oversized
from pylogseg.log.segment import LogSegment
from pylogseg.log.segment_rewrite import GOES, REWRITTEN, STAYS, Filtered, assemble_batches, join_parts
from pylogseg.walker.windows import Window


class LastRecord(NamedTuple):
    """The record to keep of an active producer: its last batch of data or, without one, the marker of its epoch."""

    data_offset: int
    epoch: int


@dataclass
class CleanerStats:
    """Counts of the bytes and messages that a cleaning read and wrote."""

    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    invalid_messages_read: int = 0


_LATEST_MS = 2**63 - 1


class Retention(NamedTuple):
    """The rules for keeping records, the same for all windows of a segment."""

    offsets: OffsetMap
    now_ms: int
    delete_retention_ms: int  #: How long tombstones and markers are kept after the first cleaning that meets them.
    keep_legacy_tombstones: bool  #: Those of magic 0 and 1 are deleted by the age of their segment.
    last_records: Mapping[int, LastRecord]  #: By producer id.
    #: The batch that ends here is kept, empty if need be: the next cleaning begins where this one ended.
    round_end: int
    limit_bytes: int | None = None  #: Of a decompressed batch; `REWRITE_LIMIT_BYTES` if None.
    record_limit: int = NO_LIMIT_BYTES  #: Of a record in a compressed batch.
    scratch: Scratch | None = None  #: Memory to decode in.

    @property
    def new_horizon_ms(self) -> int:
        """When tombstones and markers met for the first time may go; never, if that is too far for a timestamp."""
        return min(self.now_ms + self.delete_retention_ms, _LATEST_MS)


def decode_all(batches: BatchTable, view: Any, start: int, path: str, limit_bytes: int | None = None) -> RecordColumns:
    """Decode batches that have to be readable, all at once; see `decode_each`."""
    columns, damage = decode(batches, view, start, limit_bytes=limit_bytes or REWRITE_LIMIT_BYTES)
    _refuse(damage, columns.batches, path)
    return columns


def decode_each(
    batches: BatchTable,
    which: Mask,
    view: Any,
    start: int,
    path: str,
    limit_bytes: int | None = None,
    record_limit: int = NO_LIMIT_BYTES,
    scratch: Scratch | None = None,
) -> Iterator[tuple[slice, RecordColumns]]:
    """Decode the batches of a mask, which have to be readable, in parts that bound the memory in use.

    Yields slices that cover all batches, with the records of the decoded ones: batch 0 is the first of these. They are
    valid until the next part, or the next use of the scratch. A record above `record_limit` in a compressed batch is an
    InvalidRecordError. `view` has the window's bytes, which lie at `start` in the file.
    """
    rows = np.flatnonzero(which)
    begin = done = 0
    limit = limit_bytes or REWRITE_LIMIT_BYTES
    scratch = Scratch() if scratch is None else scratch
    too_large = describe_oversized(batches[rows[batches.codec[rows] != 0]], view, start, record_limit, limit)
    if too_large is not None:
        raise InvalidRecordError(f"{path}: {too_large}")
    parts = decode_parts(batches[rows], view, start, limit_bytes=limit, scratch=scratch)
    for columns, damage in parts:
        _refuse(damage, columns.batches, path)
        done += len(columns.batches)
        end = int(rows[done]) if done < len(rows) else len(batches)
        yield slice(begin, end), columns
        begin = end


def _refuse(damage: list[BatchDamage], batches: BatchTable, path: str) -> None:
    if damage:
        raise CorruptionError(path, int(batches.position[damage[0].row]), damage[0].reason)


def kinds_by_row(batches: BatchTable, view: Any, start: int, path: str) -> dict[int, ControlKind]:
    """Return the kinds of control batches by row; batches without records are left out."""
    rows = np.flatnonzero(batches.is_control & (batches.magic == 2) & (batches.count != 0))
    if not len(rows):
        return {}
    columns = decode_all(batches[rows], view, start, path)
    first = np.unique(columns.batch, return_index=True)
    return {
        int(rows[batch]): decode_control_key(columns.key(record) or b"", path, int(batches.position[rows[batch]])).kind
        for batch, record in zip(first[0].tolist(), first[1].tolist(), strict=True)
    }


def meet_transactions(batches: BatchTable, view: Any, start: int, path: str, txns: CleanedTxns) -> Mask:
    """Return a mask of batches to drop for their transaction: aborted data, and markers without data."""
    gone = np.zeros(len(batches), np.bool_)
    modern = batches.magic == 2
    control = batches.is_control & modern
    rows = np.flatnonzero(control | (batches.is_transactional & modern))
    if not len(rows):
        return gone
    kinds = kinds_by_row(batches, view, start, path)
    facts = (control[rows], batches.producer_id[rows], batches.last_offset[rows])
    for row, is_control, producer_id, last in zip(rows.tolist(), *(fact.tolist() for fact in facts), strict=True):
        if is_control:
            gone[row] = txns.read_control(producer_id, last, kinds.get(row))
        else:
            gone[row] = txns.read_data(producer_id, last)
    return gone


def filter_window(window: Window, path: str, txns: CleanedTxns, rule: Retention, stats: CleanerStats) -> Filtered:
    """Decide about every batch of a window, and every record of batches that do not go whole.

    Raises CorruptionError if a batch cannot be decoded, UncleanableError if an empty batch would be needed in magic 0
    or 1, which have none.
    """
    batches, view, start = window.batches, window.buffer, window.file_position
    ended = meet_transactions(batches, view, start, path, txns)
    modern = batches.magic == 2
    # A marker is kept for a time after its data were deleted; its delete horizon says how long.
    due = batches.has_delete_horizon & modern & (batches.base_timestamp <= rule.now_ms)
    control = batches.is_control & modern
    discard = ended & (~control | due)
    kept_empty = _kept_empty(batches, control, rule)
    parts = []
    which, how = ~discard | kept_empty, (rule.limit_bytes, rule.record_limit, rule.scratch)
    for rows, columns in decode_each(batches, which, view, start, path, *how):
        part = _Part(window._replace(batches=batches[rows]), ended[rows], discard[rows], kept_empty[rows])
        parts.append(_filter_part(part, columns, path, rule, stats))
    return join_parts(parts)


def filter_plain(
    reader: PlainReader, segment: LogSegment, rule: Retention, stats: CleanerStats
) -> Callable[[int], tuple[int, PlainBatches]]:
    """Return a function that filters the plain batches from a position of a segment on, as `filter_window` does."""
    producers, last_offsets = last_batches({number: last.data_offset for number, last in rule.last_records.items()})
    how = (*rule.offsets.for_lookups, rule.now_ms, rule.new_horizon_ms, rule.round_end, producers, last_offsets)

    def filter_at(position: int) -> tuple[int, PlainBatches]:
        batches = reader.filter(segment, position, *how)
        stats.bytes_read += batches.size
        stats.messages_read += batches.records
        stats.messages_written += batches.kept
        stats.invalid_messages_read += batches.without_key
        stats.bytes_written += len(batches.filtered.data)
        return batches.size, batches

    return filter_at


class _Part(NamedTuple):
    """Consecutive batches of a window, with the decisions that need only their headers."""

    window: Window
    ended: Mask  #: Aborted data, and markers without data.
    discard: Mask  #: Batches of which no record is kept.
    kept_empty: Mask


def _filter_part(part: _Part, columns: RecordColumns, path: str, rule: Retention, stats: CleanerStats) -> Filtered:
    """Filter batches; `columns` has the records of batches that do not go whole."""
    batches = part.window.batches
    read = np.flatnonzero(~part.discard | part.kept_empty)
    keep = _kept_records(columns, read, part, rule, stats)
    modern, has_horizon = batches.magic[read] == 2, batches.has_delete_horizon[read]
    total = np.bincount(columns.batch, minlength=len(read))
    count = np.bincount(columns.batch[keep], minlength=len(read))
    tombstones = np.bincount(columns.batch[keep & (columns.value_size < 0)], minlength=len(read)) > 0

    fate = np.full(len(batches), GOES, np.int8)
    ended_marker = part.ended[read] & batches.is_control[read] & modern
    new_horizon = ~(has_horizon & modern) & (tombstones | ended_marker) & (count > 0)
    whole = modern & (count == total) & (count > 0) & ~new_horizon
    emptied = (count == 0) & part.kept_empty[read]
    changed = ((count > 0) & ~whole) | emptied
    fate[read[whole]] = STAYS
    fate[read[changed]] = REWRITTEN
    if (emptied & ~modern).any():
        position = int(batches.position[read[np.flatnonzero(emptied & ~modern)[0]]])
        raise UncleanableError(
            f"{path}: the batch at position {position}, of magic 0 or 1, cannot be kept without records"
        )
    stats.bytes_read += int(batches.size.sum(dtype=np.int64))
    stats.messages_read += len(columns)
    stats.messages_written += int(count.sum())
    rows = _new_rows(batches[read[changed]], count[changed], new_horizon[changed], rule)
    filtered = assemble_batches(part.window, fate, columns.take(keep & changed[columns.batch]), rows, path)
    stats.bytes_written += len(filtered.data)
    return filtered


def _kept_empty(batches: BatchTable, control: Mask, rule: Retention) -> Mask:
    """Return a mask of batches kept even without records: the last ones of producers, and the last one cleaned."""
    stays: Mask = batches.next_offset == rule.round_end
    for row in np.flatnonzero(batches.producer_id >= 0).tolist() if rule.last_records else ():
        last = rule.last_records.get(int(batches.producer_id[row]))
        if last is None:
            continue
        if last.data_offset >= 0:
            stays[row] |= batches.last_offset[row] == last.data_offset
        else:
            stays[row] |= bool(control[row]) and batches.producer_epoch[row] == last.epoch
    return stays


def _kept_records(
    columns: RecordColumns, read: npt.NDArray[np.intp], part: _Part, rule: Retention, stats: CleanerStats
) -> Mask:
    batches = part.window.batches
    modern = batches.magic == 2
    control = batches.is_control & modern
    held = np.where(
        modern, ~batches.has_delete_horizon | (rule.now_ms < batches.base_timestamp), rule.keep_legacy_tombstones
    )
    batch = read[columns.batch]
    verdict = rule.offsets.classify(columns)
    checked = ~part.discard[batch] & ~control[batch]
    stats.invalid_messages_read += int((checked & (verdict == NO_KEY)).sum())
    data = (verdict == BEYOND) | ((verdict == LAST) & ((columns.value_size >= 0) | held[batch]))
    keep: Mask = (checked & data) | (control & ~part.discard)[batch]
    return keep


def _new_rows(batches: BatchTable, count: npt.NDArray[np.intp], new_horizon: Mask, rule: Retention) -> npt.NDArray[Any]:
    """Return the headers of rewritten batches; magic 0 and 1 become magic 2."""
    rows = np.array(batches.rows)
    legacy = rows["magic"] < 2
    old_horizon = (rows["attributes"] & DELETE_HORIZON != 0) & ~legacy & (count > 0)
    kept = np.where(rows["magic"] == 0, CODEC_MASK, np.where(legacy, CODEC_MASK | LOG_APPEND, _KEPT))
    rows["attributes"] &= kept
    # An empty batch has no payload to compress and no horizon.
    rows["attributes"][count == 0] &= ~CODEC_MASK
    rows["attributes"][new_horizon | old_horizon] |= DELETE_HORIZON
    rows["base_timestamp"][new_horizon] = rule.new_horizon_ms
    rows["count"] = count
    rows["magic"] = 2
    for name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
        rows[name][legacy] = -1
    return rows


_KEPT = CODEC_MASK | LOG_APPEND | TRANSACTIONAL | CONTROL
