"""The map of compaction: the last offset of each key in a range of the log, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _cleaning, _keymap
from pylogseg.format.records import RecordColumns

#: Bytes of a slot: a hash of 128 bits and an offset, as in Kafka's map.
SLOT_BYTES = 24
#: Results of `OffsetMap.classify`.
OLDER, LAST, BEYOND, NO_KEY = 0, 1, 2, 3

_SMALLEST_SLOTS = 1 << 12
#: A table with more slots for each key than this is given up when it is cleared; one that has grown has four at most.
_EMPTIER = 4
#: The bits of offsets whose key has a later one take at most this part of the memory of the map.
_OLDER_PART = 32
_NO_BITS = np.zeros(0, np.uint8)
#: What `_cleaning.put_plain` says where offsets do not ascend: then the bits do not say everything.
_UNORDERED = 2**63 - 1


class PlainKeys(NamedTuple):
    """Batches whose keys were put into the map by `OffsetMap.put_plain`."""

    size: int  #: In bytes.
    records: int


class OffsetMap:
    """A table of key hashes and offsets.

    Keys are hashed with SipHash under a random secret, so that nobody can construct two keys with the same hash. As
    many keys fit as in Kafka's map of the same size, so compaction stops at the same record when the map is full. The
    table begins small and grows with its keys; while it grows to its full size it takes a quarter more than that, and
    what `expect` needs a 32nd.
    `memory_bytes` is `log.cleaner.dedupe.buffer.size` of one thread.
    """

    def __init__(self, memory_bytes: int = 128 << 20, load_factor: float = 0.9) -> None:
        self._most = memory_bytes // SLOT_BYTES
        self.limit = int(self._most * load_factor)
        self._secret = (int.from_bytes(os.urandom(8), "little"), int.from_bytes(os.urandom(8), "little"))
        self._table, self.size = self._new_table(_SMALLEST_SLOTS), 0
        self.clear()

    def clear(self) -> None:
        """Remove all keys; the table stays as large as it is if they filled it: the next log may be like the last."""
        if _EMPTIER * self.size * SLOT_BYTES < len(self._table):
            self._table = self._new_table(_SMALLEST_SLOTS)
        else:
            self._table.fill(0)
        self.size, self.latest_offset = 0, -1
        self._part_mask = self._part = 0
        self._older, self._older_first, self._previous = _NO_BITS, 0, -1

    def expect(self, first: int, end: int) -> None:
        """Expect the keys of offsets in a range: the map remembers keys that come again later, as many as fit.

        So they need not be looked up again. This works for plain batches only.
        """
        self._older_first = first
        self._older = np.zeros(min((end - first + 7) // 8, self._most * SLOT_BYTES // _OLDER_PART), np.uint8)

    def _new_table(self, slots: int) -> npt.NDArray[np.uint8]:
        return np.zeros(max(1, min(slots, self._most)) * SLOT_BYTES, np.uint8)

    def narrow(self, part_mask: int, part: int) -> None:
        """Remove and ignore the keys without these bits of their hash; needs half a table more meanwhile."""
        self._part_mask, self._part = part_mask, part
        slots = self._slots()
        kept = slots[(slots[:, 2] != 0) & (slots[:, 1] & np.uint64(part_mask) == np.uint64(part))]
        self._table[:] = 0
        if len(kept):
            _keymap.rehash(kept.view(np.uint8).reshape(-1), self._table)
        self.size = len(kept)

    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the last offset of each key, sorted."""
        stored = self._slots()[:, 2]
        last_offsets: npt.NDArray[np.int64] = stored[stored != 0].view(np.int64)
        last_offsets -= 1
        last_offsets.sort()
        return last_offsets

    def _slots(self) -> npt.NDArray[np.uint64]:
        return self._table.view(np.uint64).reshape(-1, SLOT_BYTES // 8)

    def put(self, records: RecordColumns, start_offset: int) -> int:
        """Note the keys of records, in order; skip records below an offset, and records without a key.

        Returns the index of the first record that did not fit, or the number of records.
        """
        places = np.ascontiguousarray(records.key_place)
        sizes = np.ascontiguousarray(records.key_size)
        offsets = np.ascontiguousarray(records.offset)
        at = 0
        if len(records):
            self._older = _NO_BITS  # from here on they would not say everything
        while True:
            at, self.size = _keymap.put(
                self._table,
                self._secret,
                self.size,
                self._room(),
                start_offset,
                places,
                sizes,
                offsets,
                records.sources,
                at,
                self._part_mask,
                self._part,
            )
            if at == len(records) or self.size >= self.limit:
                return at
            self._grow()

    def put_plain(self, call: Callable[..., Any], position: int, start_offset: int) -> PlainKeys:
        """Note the keys of plain batches of a segment from a position on, as `put` does.

        ``call(kernel, position, *arguments)`` calls the kernel. It ends before the first batch that is not plain, or of
        which some keys may not fit.
        """
        size = records = 0
        while not self._part_mask:
            done, count, latest, self.size, self._previous, is_full = call(
                _cleaning.put_plain,
                position + size,
                self._table,
                self._secret,
                self.size,
                self._room(),
                start_offset,
                self._older,
                self._older_first,
                self._previous,
            )
            size, records = size + done, records + count
            if latest >= 0:
                self.latest_offset = latest
            if not is_full or self._room() == self.limit:
                break
            self._grow()
        return PlainKeys(size, records)

    def _room(self) -> int:
        """Return how many keys the table takes as it is: one that will grow is left half empty, for speed."""
        slots = len(self._table) // SLOT_BYTES
        return self.limit if slots >= self._most else min(self.limit, slots // 2)

    def _grow(self) -> None:
        slots = len(self._table) // SLOT_BYTES
        larger = self._new_table(2 * slots if 4 * slots <= self._most else self._most)
        _keymap.rehash(self._table, larger)
        self._table = larger

    @property
    def for_lookups(self) -> tuple[Any, ...]:
        """The arguments with which a kernel looks keys up, for `_cleaning.filter_plain` from the table on."""
        in_order = self._previous < _UNORDERED
        return self._table, self._secret, self.latest_offset, self._older if in_order else _NO_BITS, self._older_first

    def classify(self, records: RecordColumns) -> npt.NDArray[np.uint8]:
        """Return for each record `OLDER`, `LAST`, `BEYOND` or `NO_KEY`."""
        verdict = np.empty(len(records), np.uint8)
        _keymap.classify(
            self._table,
            self._secret,
            self.latest_offset,
            np.ascontiguousarray(records.key_place),
            np.ascontiguousarray(records.key_size),
            np.ascontiguousarray(records.offset),
            records.sources,
            verdict,
        )
        return verdict
