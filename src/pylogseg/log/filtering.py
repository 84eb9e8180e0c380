"""One stretch of a segment as compaction leaves it: which batches go, stay as they are, are emptied or written anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.errors import CorruptionError, Uncleanable
from pylogseg.format.batches import BatchTable
from pylogseg.format.builder import CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND, TRANSACTIONAL
from pylogseg.format.control import ControlKind, decode_control_key
from pylogseg.format.records import RecordColumns, decode
from pylogseg.log.cleaned_txns import CleanedTxns
from pylogseg.log.offset_map import BEYOND, LAST, NO_KEY, OffsetMap
from pylogseg.log.rewrite import ANEW, GOES, STAYS, Filtered, assemble
from pylogseg.log.stretches import Stretch

_Mask = npt.NDArray[np.bool_]


class LastRecord(NamedTuple):
    """What must stay of an active producer: its last batch of data, or, without one, the marker of its epoch."""

    data_offset: int
    epoch: int


@dataclass
class CleanerStats:
    """What a cleaning read and wrote."""

    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    invalid_messages_read: int = 0


class Retention(NamedTuple):
    """What decides about records, the same for all stretches of a segment.

    Attributes
    ----------
    offsets : OffsetMap
    now_ms : int
    delete_retention_ms : int
        How long tombstones and markers stay, counted from the first cleaning that meets them.
    keep_legacy_tombstones : bool
        Those of magic 0 and 1 go by the age of their segment.
    last_records : mapping of int to LastRecord
        By producer id.
    round_end : int
        The batch that ends here stays, empty if need be, so that the next cleaning begins where this one ended.
    """

    offsets: OffsetMap
    now_ms: int
    delete_retention_ms: int
    keep_legacy_tombstones: bool
    last_records: Mapping[int, LastRecord]
    round_end: int


def decoded(batches: BatchTable, view: Any, start: int, path: str) -> RecordColumns:
    """Records of batches that have to be readable."""
    columns, damage = decode(batches, view, start)
    if damage:
        raise CorruptionError(path, int(batches.position[damage[0].row]), damage[0].reason)
    return columns


def control_kinds(batches: BatchTable, view: Any, start: int, path: str) -> dict[int, ControlKind]:
    """Kinds of control batches by row; those without records are left out."""
    rows = np.flatnonzero(batches.is_control & (batches.magic == 2) & (batches.count != 0))
    if not len(rows):
        return {}
    columns = decoded(batches[rows], view, start, path)
    first = np.unique(columns.batch, return_index=True)
    return {
        int(rows[batch]): decode_control_key(columns.key(record) or b"", path, int(batches.position[rows[batch]])).kind
        for batch, record in zip(first[0].tolist(), first[1].tolist(), strict=True)
    }


def meet_transactions(batches: BatchTable, view: Any, start: int, path: str, txns: CleanedTxns) -> _Mask:
    """Which batches may go for the sake of their transaction: aborted data, and markers that end nothing any more."""
    gone = np.zeros(len(batches), np.bool_)
    modern = batches.magic == 2
    control = batches.is_control & modern
    rows = np.flatnonzero(control | (batches.is_transactional & modern))
    if not len(rows):
        return gone
    kinds = control_kinds(batches, view, start, path)
    facts = (control[rows], batches.producer_id[rows], batches.last_offset[rows])
    for row, is_control, producer_id, last in zip(rows.tolist(), *(fact.tolist() for fact in facts), strict=True):
        if is_control:
            gone[row] = txns.read_control(producer_id, last, kinds.get(row))
        else:
            gone[row] = txns.read_data(producer_id, last)
    return gone


def filter_stretch(stretch: Stretch, path: str, txns: CleanedTxns, rule: Retention, stats: CleanerStats) -> Filtered:
    """Decide about every batch of a stretch and every record of those that are not dropped whole.

    Parameters
    ----------
    stretch : Stretch
        Of a segment.
    path : str
        The file, for errors.
    txns : CleanedTxns
        Carried on.
    rule : Retention
        What decides.
    stats : CleanerStats
        Counted up.

    Raises
    ------
    CorruptionError
        If a batch cannot be decoded.
    Uncleanable
        If an empty batch would be needed in a format that knows none.
    """
    batches, view, start = stretch.batches, stretch.view, stretch.start
    ended = meet_transactions(batches, view, start, path, txns)
    modern = batches.magic == 2
    control = batches.is_control & modern
    has_horizon = batches.has_delete_horizon & modern
    # A marker stays for a time after its data are gone; what it is of shows in the horizon.
    discard = ended & (~control | (has_horizon & (batches.base_timestamp <= rule.now_ms)))
    kept_empty = _kept_empty(batches, control, rule)
    read = np.flatnonzero(~discard | kept_empty)
    columns = decoded(batches[read], view, start, path)
    keep = _kept_records(columns, read, batches, discard, control, has_horizon, rule, stats)
    total = np.bincount(columns.batch, minlength=len(read))
    count = np.bincount(columns.batch[keep], minlength=len(read))
    tombstones = np.bincount(columns.batch[keep & (columns.value_size < 0)], minlength=len(read)) > 0

    fate = np.full(len(batches), GOES, np.int8)
    new_horizon = ~has_horizon[read] & (tombstones | (ended & control)[read]) & (count > 0)
    whole = modern[read] & (count == total) & (count > 0) & ~new_horizon
    emptied = (count == 0) & kept_empty[read]
    changed = ((count > 0) & ~whole) | emptied
    fate[read[whole]] = STAYS
    fate[read[changed]] = ANEW
    if (emptied & ~modern[read]).any():
        row = int(read[np.flatnonzero(emptied & ~modern[read])[0]])
        position = int(batches.position[row])
        raise Uncleanable(f"{path}: the batch at position {position}, of magic 0 or 1, cannot be kept without records")
    stats.bytes_read += int(batches.size.sum(dtype=np.int64))
    stats.messages_read += len(columns)
    stats.messages_written += int(count.sum())
    rows = _new_rows(batches[read[changed]], count[changed], new_horizon[changed], rule)
    filtered = assemble(stretch, fate, columns.take(keep & changed[columns.batch]), rows)
    stats.bytes_written += len(filtered.data)
    return filtered


def _kept_empty(batches: BatchTable, control: _Mask, rule: Retention) -> _Mask:
    """The batches that stay even without records: the last ones of producers, and the one that ends the round."""
    stays: _Mask = batches.next_offset == rule.round_end
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
    columns: RecordColumns,
    read: npt.NDArray[np.intp],
    batches: BatchTable,
    discard: _Mask,
    control: _Mask,
    has_horizon: _Mask,
    rule: Retention,
    stats: CleanerStats,
) -> _Mask:
    batch = read[columns.batch]
    verdict = rule.offsets.judge(columns)
    held = np.where(
        batches.magic == 2, ~has_horizon | (rule.now_ms < batches.base_timestamp), rule.keep_legacy_tombstones
    )
    judged = ~discard[batch] & ~control[batch]
    stats.invalid_messages_read += int((judged & (verdict == NO_KEY)).sum())
    data = (verdict == BEYOND) | ((verdict == LAST) & ((columns.value_size >= 0) | held[batch]))
    keep: _Mask = (judged & data) | (control & ~discard)[batch]
    return keep


def _new_rows(
    batches: BatchTable, count: npt.NDArray[np.intp], new_horizon: _Mask, rule: Retention
) -> npt.NDArray[Any]:
    """Headers of the batches that are written anew; those of magic 0 and 1 become magic 2."""
    rows = np.array(batches.rows)
    legacy = rows["magic"] < 2
    old_horizon = (rows["attributes"] & DELETE_HORIZON != 0) & ~legacy & (count > 0)
    kept = np.where(rows["magic"] == 0, CODEC_MASK, np.where(legacy, CODEC_MASK | LOG_APPEND, _KEPT))
    rows["attributes"] &= kept
    # An empty batch has no payload to compress and no horizon.
    rows["attributes"][count == 0] &= ~CODEC_MASK
    rows["attributes"][new_horizon | old_horizon] |= DELETE_HORIZON
    rows["base_timestamp"][new_horizon] = rule.now_ms + rule.delete_retention_ms
    rows["count"] = count
    rows["magic"] = 2
    for name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
        rows[name][legacy] = -1
    return rows


_KEPT = CODEC_MASK | LOG_APPEND | TRANSACTIONAL | CONTROL
