"""Delete or blank records in batches, and keep everything else in the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.batches import BatchTable, Mask
from pylogseg.format.builder import Levels
from pylogseg.format.records import SOURCE_SHIFT, RecordColumns, columns_of
from pylogseg.format.scratch import COLUMN_NAMES
from pylogseg.log.cleaner_filter import decode_all
from pylogseg.log.offset_map import OLDER, SLOT_BYTES, OffsetMap
from pylogseg.log.segment_rewrite import GOES, REWRITTEN, STAYS, Filtered, assemble_batches
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import Window

#: Says of each record whether it is to be redacted.
Predicate = Callable[[RecordColumns], Mask]

#: What of a record can be blanked.
PARTS = ("key", "value", "headers")
_ABOVE_ALL = 2**62


class KeySet:
    """A set of keys, asked about whole columns: tens of millions of keys fit into a gigabyte."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        data = list(keys)
        self._map = OffsetMap(SLOT_BYTES * (2 * len(data) + 1), 0.9)
        sizes = np.array([len(key) for key in data], np.int32)
        ends = np.cumsum(sizes, dtype=np.int64)
        # Every record lies below the offset that is noted, so a record with one of the keys counts as an older one.
        arrays: dict[str, npt.NDArray[Any]] = {
            "offset": np.full(len(data), _ABOVE_ALL),
            "key_place": ends - sizes,
            "key_size": sizes,
        }
        nothing = np.zeros(len(data), np.int64)
        columns = [arrays.get(name, nothing) for name in COLUMN_NAMES]
        self._map.put(columns_of(columns, BatchTable(np.empty(0)), (b"".join(data),)), 0)
        self._map.latest_offset = 2**63 - 1

    def __call__(self, columns: RecordColumns) -> Mask:
        """Return a mask of the records with one of the keys."""
        return np.asarray(self._map.classify(columns) == OLDER)


@dataclass(frozen=True)
class HasHeader:
    """A predicate for records with a header."""

    name: bytes
    value: bytes | None = None  #: Any value if None.

    def __call__(self, columns: RecordColumns) -> Mask:
        """Ask about records."""
        mask = np.zeros(len(columns), np.bool_)
        if columns.tally().headers:
            name_place, name_size, value_place, value_size = columns.header_spans()
            found = equal(name_place, name_size, columns.sources, self.name)
            if self.value is not None:
                found &= equal(value_place, value_size, columns.sources, self.value)
            mask[np.repeat(np.arange(len(columns)), columns.header_count)[found]] = True
        return mask


def equal(place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[Any, ...], data: bytes) -> Mask:
    """Return a mask of the spans that are equal to some bytes."""
    mask: Mask = size == len(data)
    rows = np.flatnonzero(mask)
    if data and len(rows):
        mask[rows] = text.find(np.ascontiguousarray(place[rows]), np.ascontiguousarray(size[rows]), sources, data)
    return mask


class Blank(NamedTuple):
    """The parts of a record to blank; its offset stays.

    Attributes
    ----------
    parts : tuple of str
        Out of `PARTS`. Keys become null, headers go.
    value : bytes or None
        What values become; None is null, which in a compacted topic is a tombstone.
    """

    parts: tuple[str, ...] = ("value", "headers")
    value: bytes | None = None

    def check(self) -> None:
        """Refuse parts that there are not."""
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown or not self.parts:
            raise RequestError(f"cannot blank {', '.join(unknown) or 'nothing'}: there are {', '.join(PARTS)}")

    def is_done(self, columns: RecordColumns) -> Mask:
        """Return a mask of the records that are blank already."""
        done = np.ones(len(columns), np.bool_)
        if "key" in self.parts:
            done &= columns.key_size < 0
        if "value" in self.parts and self.value is None:
            done &= columns.value_size < 0
        elif "value" in self.parts:
            done &= equal(columns.value_place, columns.value_size, columns.sources, self.value or b"")
        if "headers" in self.parts:
            done &= columns.header_count == 0
        return done

    def apply(self, columns: RecordColumns, mask: Mask) -> RecordColumns:
        """The records, some of them blanked."""
        changed: dict[str, Any] = {}
        if "key" in self.parts:
            changed["key_size"] = np.where(mask, np.int32(-1), columns.key_size)
        if "value" in self.parts:
            size = np.int32(-1 if self.value is None else len(self.value))
            changed["value_size"] = np.where(mask, size, columns.value_size)
            changed["value_place"] = np.where(mask, len(columns.sources) << SOURCE_SHIFT, columns.value_place)
            changed["sources"] = (*columns.sources, self.value or b"")
        if "headers" in self.parts:
            changed["header_count"] = np.where(mask, np.int32(0), columns.header_count)
        return replace(columns, **changed)


_NOTHING_LEFT = Blank(PARTS)


@dataclass(frozen=True)
class Redaction:
    """Removes records, or blanks them; counts records.

    A batch that loses all of its records goes too, unless it has a producer, begins a leader epoch or ends the log:
    then it stays as an empty batch of 61 bytes, so that sequences, transactions, epochs and the end of the log are what
    they were. Batches of magic 0 and 1 end with their last record: where that is the last one of the log, it stays
    without key and value.
    """

    predicate: Predicate
    log_end: int
    epoch_starts: Sequence[int] = ()  #: Offsets that leader epochs begin with.
    blank: Blank | None = None  #: Without it the records go.
    levels: Levels = None
    limit_bytes: int | None = None  #: A batch that decompresses to more is an error.
    #: Where no batch will have an offset any more, by what was counted.
    cuts: list[Gap] = field(default_factory=list)

    def count(self, window: Window, path: str) -> int:
        """Return the number of records that would change, and note the offsets that no batch will have."""
        rows = _data(window.batches)
        columns = decode_all(rows, window.buffer, window.file_position, path, self.limit_bytes)
        gone, blanked = self._split(columns, rows)
        if gone.any():
            _, drops = self._fates(rows, columns, gone, blanked)
            is_open = gone & (drops | (rows.magic < 2))[columns.batch]
            for row, offset in zip(columns.batch[is_open].tolist(), columns.offset[is_open].tolist(), strict=True):
                self._note(path, rows, row, offset, bool(drops[row]))
        return int((gone | blanked).sum())

    def _note(self, path: str, rows: BatchTable, row: int, offset: int, is_dropped: bool) -> None:
        first, end = offset, offset + 1
        if is_dropped and rows.magic[row] == 2:  # with offsets that compaction had left out
            first, end = int(rows.base_offset[row]), int(rows.last_offset[row]) + 1
        position, size = int(rows.position[row]), int(rows.size[row])
        before = self.cuts[-1] if self.cuts else None
        reached = -1 if before is None or before.path != path else before.next_offset or 0
        if before is not None and first <= reached:
            self.cuts[-1] = before._replace(next_offset=max(end, reached), end_position=position + size)
            return
        reason = "records were redacted"
        self.cuts.append(Gap(path, GapKind.REMOVED, position, position + size, first, end, reason, False))

    def apply(self, window: Window, path: str) -> Filtered:
        data = np.flatnonzero(~window.batches.is_control)
        rows = window.batches[data]
        columns = decode_all(rows, window.buffer, window.file_position, path, self.limit_bytes)
        gone, blanked = self._split(columns, rows)
        hit, drops = self._fates(rows, columns, gone, blanked)
        left = np.bincount(columns.batch[~gone], minlength=len(rows))
        anew = hit & ~drops
        fate = np.full(len(window.batches), STAYS, np.int8)
        fate[data[anew]], fate[data[drops]] = REWRITTEN, GOES
        new = np.array(rows.rows[anew])
        new["count"] = left[anew]
        if blanked.any():
            columns = (self.blank or _NOTHING_LEFT).apply(columns, blanked)
        return assemble_batches(window, fate, columns.take(~gone & anew[columns.batch]), new, path, self.levels)

    def _fates(self, rows: BatchTable, columns: RecordColumns, gone: Mask, blanked: Mask) -> tuple[Mask, Mask]:
        """Return masks of the changed batches, and of the removed ones."""
        hit = np.bincount(columns.batch[gone | blanked], minlength=len(rows)) > 0
        left = np.bincount(columns.batch[~gone], minlength=len(rows))
        needed = (rows.producer_id >= 0) | (rows.next_offset == self.log_end)
        needed |= np.isin(rows.base_offset, self.epoch_starts)
        return hit, hit & (left == 0) & ((rows.magic < 2) | ~needed)

    def _split(self, columns: RecordColumns, rows: BatchTable) -> tuple[Mask, Mask]:
        """Return two masks: records to delete, and records to blank."""
        mask = _answers(self.predicate, columns)
        none = np.zeros(len(columns), np.bool_)
        if self.blank is not None:
            return none, mask & ~self.blank.is_done(columns)
        gone, blanked = mask, none
        if len(gone) and gone[-1] and rows.magic[-1] < 2 and rows.next_offset[-1] == self.log_end:
            gone = gone.copy()
            gone[-1] = False
            blanked[-1] = not _NOTHING_LEFT.is_done(columns)[-1]
        return gone, blanked


def _data(batches: BatchTable) -> BatchTable:
    return batches[~batches.is_control]


def any_of(predicate: Iterable[Predicate]) -> Predicate:
    """Combine conditions: a record must meet one of them."""
    conditions = list(predicate)

    def ask(columns: RecordColumns) -> Mask:
        mask = np.zeros(len(columns), np.bool_)
        for condition in conditions:
            mask |= _answers(condition, columns)
        return mask

    return ask


def _answers(predicate: Predicate, columns: RecordColumns) -> Mask:
    """Return the mask of a condition, checked for its length."""
    mask = np.asarray(predicate(columns), np.bool_)
    if mask.shape != (len(columns),):
        raise RequestError(f"the predicate returned {mask.size} values for {len(columns)} records")
    return mask
