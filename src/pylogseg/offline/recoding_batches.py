"""Batches compressed in another way, or written in the format of today, with the same records in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg.errors import InvalidRecordError, RequestError
from pylogseg.format.batches import BatchTable, Mask
from pylogseg.format.builder import CODEC_MASK, LOG_APPEND, Levels
from pylogseg.format.codecs import CODECS
from pylogseg.format.records import RecordColumns
from pylogseg.log.cleaner_filter import decode_all
from pylogseg.log.record_limit import NO_LIMIT_BYTES, describe_oversized
from pylogseg.log.segment_rewrite import GOES, STAYS, Filtered, assemble_batches
from pylogseg.walker.windows import Window

_MOST_DELTA = 2**31 - 1
#: Bytes of a record besides its key, value and headers, about.
_RECORD_BYTES = 8


@dataclass(frozen=True)
class Merging:
    """Options for merging adjacent batches; only batches without a producer, so without a transaction, merge."""

    most_bytes: int  #: Of records, uncompressed, that a merged batch holds at most.
    below: int  #: Only batches that end below this offset: the high watermark.


@dataclass(frozen=True)
class Recoding:
    """Rewrites batches, and counts batches. Control batches and batches without records stay as they are."""

    codec: int | None = None  #: Of all batches; each keeps its own if None.
    to_magic_2: bool = False  #: True if batches of magic 0 and 1 become magic 2.
    all_again: bool = False  #: True if batches that have the codec are compressed again: for another level.
    levels: Levels = None
    merging: Merging | None = field(default=None)  #: Without it each batch stays one.
    limit_bytes: int | None = None  #: A batch that decompresses to more is an error.
    record_limit: int = NO_LIMIT_BYTES  #: A larger record, in a compressed batch or to be in one, is an error.

    def count(self, window: Window, path: str) -> int:
        """Return the number of batches that would be rewritten or merged."""
        rows = window.batches
        if self.merging is None:
            return int(self._to_rewrite(rows, path).sum())
        fate, _, _ = self._plan(window, path)
        return int((fate != STAYS).sum())

    def apply(self, window: Window, path: str) -> Filtered:
        fate, records, new = self._plan(window, path)
        return assemble_batches(window, fate, records, new, path, self.levels)

    def _plan(self, window: Window, path: str) -> tuple[npt.NDArray[np.int32], RecordColumns, npt.NDArray[Any]]:
        rows = window.batches
        to_rewrite = self._to_rewrite(rows, path)
        mergeable = self._mergeable(rows)
        read = np.flatnonzero(to_rewrite | mergeable)
        columns = decode_all(rows[read], window.buffer, window.file_position, path, self.limit_bytes)
        new = self._new_rows(rows[read])
        new["count"] = np.bincount(columns.batch, minlength=len(read))
        joins = mergeable[read[1:]] & mergeable[read[:-1]] & (np.diff(read) == 1)
        begins = self._begins(new, joins, columns)
        alone = begins & np.append(begins[1:], True)
        stays = alone & ~to_rewrite[read]
        fate = np.full(len(rows), STAYS, np.int32)
        fate[read[~stays]] = GOES
        limited = ~stays & ((rows.codec[read] != 0) | (new["attributes"] & CODEC_MASK != 0))
        where = window.buffer, window.file_position
        too_large = describe_oversized(rows[read[limited]], *where, self.record_limit, self.limit_bytes)
        if too_large is not None:
            raise InvalidRecordError(f"{path}: {too_large}")
        records = columns.take(~stays[columns.batch])
        new, begins = new[~stays], begins[~stays]
        firsts = np.flatnonzero(begins)
        merged = new[firsts]
        if len(firsts):
            merged["count"] = np.add.reduceat(new["count"], firsts)
            merged["last_offset"] = new["last_offset"][np.append(firsts[1:], len(new)) - 1]
        # Without compression a message of magic 0 or 1 is always alone.
        apart = np.where((merged["magic"] < 2) & (merged["attributes"] & CODEC_MASK == 0), merged["count"], 1)
        fate[read[~stays][firsts]] = apart
        merged = np.repeat(merged, apart)
        merged["count"][np.repeat(apart > 1, apart)] = 1
        return fate, records, merged

    def _to_rewrite(self, rows: BatchTable, path: str) -> Mask:
        """The batches to rewrite, independent of their neighbours."""
        data = ~rows.is_control & (rows.count != 0)
        to_rewrite: Mask = data & (rows.magic < 2) & self.to_magic_2
        if self.codec is not None:
            to_rewrite = to_rewrite | (data & ((rows.codec != self.codec) | self.all_again))
        codec = CODECS[self.codec or 0]
        too_old = np.flatnonzero(to_rewrite & (rows.magic < codec.lowest_magic))
        if not self.to_magic_2 and len(too_old):
            row = int(too_old[0])
            raise RequestError(
                f"{path}: the batch at position {int(rows.position[row])} has magic {int(rows.magic[row])}, "
                f"which does not support {codec.name}: write it as magic 2 too, or use another codec"
            )
        return to_rewrite

    def _mergeable(self, rows: BatchTable) -> Mask:
        if self.merging is None:
            return np.zeros(len(rows), np.bool_)
        modern = (rows.magic == 2) | self.to_magic_2
        mergeable = modern & ~rows.is_control & (rows.count != 0) & ~rows.has_delete_horizon
        return np.asarray(mergeable & (rows.producer_id < 0) & (rows.last_offset < self.merging.below))

    def _new_rows(self, rows: BatchTable) -> npt.NDArray[Any]:
        new = np.array(rows.rows)
        if self.to_magic_2:
            legacy = new["magic"] < 2
            kept = np.where(new["magic"] == 0, CODEC_MASK, CODEC_MASK | LOG_APPEND).astype(np.int16)
            new["attributes"][legacy] &= kept[legacy]
            for name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
                new[name][legacy] = -1
            new["magic"] = 2
        if self.codec is not None:
            new["attributes"] = (new["attributes"] & ~CODEC_MASK) | self.codec
        return new

    def _begins(self, new: npt.NDArray[Any], joins: Mask, columns: RecordColumns) -> Mask:
        """Return a mask of the batches that begin a merged batch; the others are merged into the one before them."""
        begins = np.ones(len(new), np.bool_)
        if self.merging is None or not joins.any():
            return begins
        for name in ("magic", "attributes", "leader_epoch"):
            joins &= new[name][1:] == new[name][:-1]
        append_time = new["attributes"][1:] & LOG_APPEND != 0
        joins &= ~append_time | (new["max_timestamp"][1:] == new["max_timestamp"][:-1])
        payload = np.maximum(columns.key_size, 0).astype(np.int64) + np.maximum(columns.value_size, 0) + _RECORD_BYTES
        sizes = np.bincount(columns.batch, payload, len(new)).astype(np.int64).tolist()
        first, last = (new[name].tolist() for name in ("base_offset", "last_offset"))
        held, base = sizes[0], first[0]
        for row, goes_on in enumerate(joins.tolist(), 1):
            if goes_on and held + sizes[row] <= self.merging.most_bytes and last[row] - base <= _MOST_DELTA:
                begins[row] = False
                held += sizes[row]
            else:
                held, base = sizes[row], first[row]
        return begins
