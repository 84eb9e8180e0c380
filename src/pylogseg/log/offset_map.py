"""The map of compaction: the last offset of each key in a range of the log, in bounded memory."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from pylogseg._native import _keymap
from pylogseg.format.records import RecordColumns

#: Bytes of a slot: a hash of 128 bits and an offset, as in Kafka's map.
SLOT_BYTES = 24
#: Results of `OffsetMap.classify`.
OLDER, LAST, BEYOND, NO_KEY = 0, 1, 2, 3

_SMALLEST_SLOTS = 1 << 12
#: A table with more slots for each key than this is given up when it is cleared; one that has grown has four at most.
_EMPTIER = 4


class OffsetMap:
    """A table of key hashes and offsets.

    Keys are hashed with SipHash under a random secret, so that nobody can construct two keys with the same hash. As
    many keys fit as in Kafka's map of the same size, so compaction stops at the same record when the map is full. The
    table begins small and grows with its keys; while it grows to its full size it takes a quarter more than that.
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
        found: npt.NDArray[np.int64] = stored[stored != 0].view(np.int64)
        found -= 1
        found.sort()
        return found

    def _slots(self) -> npt.NDArray[np.uint64]:
        return self._table.view(np.uint64).reshape(-1, SLOT_BYTES // 8)

    def put(self, records: RecordColumns, start_offset: int) -> int:
        """Note the keys of records, in order, but for those below an offset and those without a key.

        Returns the index of the first record that did not fit, or the number of records.
        """
        places = np.ascontiguousarray(records.key_place)
        sizes = np.ascontiguousarray(records.key_size)
        offsets = np.ascontiguousarray(records.offset)
        at = 0
        while True:
            slots = len(self._table) // SLOT_BYTES
            final = slots >= self._most
            # A table that will grow is left half empty, for speed.
            limit = self.limit if final else min(self.limit, slots // 2)
            at, self.size = _keymap.put(
                self._table,
                self._secret,
                self.size,
                limit,
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
            larger = self._new_table(2 * slots if 4 * slots <= self._most else self._most)
            _keymap.rehash(self._table, larger)
            self._table = larger

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
