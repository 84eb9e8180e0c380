"""The last offset of each key of a stretch of a log, in bounded memory: what compaction decides by."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from pylogseg._native import _keymap
from pylogseg.format.records import RecordColumns

#: Bytes of a slot: a hash of 128 bits and an offset, as in Kafka's map.
SLOT_BYTES = 24
#: What `OffsetMap.judge` says of a record.
OLDER, LAST, BEYOND, NO_KEY = 0, 1, 2, 3

_SMALLEST_SLOTS = 1 << 12


class OffsetMap:
    """A table of key hashes and offsets.

    Keys are hashed with SipHash under a secret of the map's own, so that nobody can make two keys that are taken for
    one. As many keys fit as in Kafka's map of the same size; where compaction stops for a full map it does not
    differ. The table begins small and grows with its keys; while it grows to its full size for the last time it takes
    a quarter more than that.

    Parameters
    ----------
    memory_bytes : int
        ``log.cleaner.dedupe.buffer.size`` of one thread.
    load_factor : float
        ``log.cleaner.io.buffer.load.factor``: the share of slots that may be taken.

    Attributes
    ----------
    latest_offset : int
        The map covers the log up to here; -1 nothing.
    size : int
        Keys in it.
    limit : int
        Keys that may be in it.
    """

    def __init__(self, memory_bytes: int = 128 << 20, load_factor: float = 0.9) -> None:
        self._most = memory_bytes // SLOT_BYTES
        self.limit = int(self._most * load_factor)
        self._secret = (int.from_bytes(os.urandom(8), "little"), int.from_bytes(os.urandom(8), "little"))
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._table = self._new_table(_SMALLEST_SLOTS)
        self.size, self.latest_offset = 0, -1
        self._part_mask = self._part = 0

    def _new_table(self, slots: int) -> npt.NDArray[np.uint8]:
        return np.zeros(max(1, min(slots, self._most)) * SLOT_BYTES, np.uint8)

    def narrow(self, part_mask: int, part: int) -> None:
        """Forget the keys that are not of a part, and pass them over from now on; half a table more for a moment.

        Parameters
        ----------
        part_mask, part : int
            The part has the keys with these bits of their hash; the same bits are the same keys until the map goes.
        """
        self._part_mask, self._part = part_mask, part
        slots = self._slots()
        kept = slots[(slots[:, 2] != 0) & (slots[:, 1] & np.uint64(part_mask) == np.uint64(part))]
        self._table[:] = 0
        if len(kept):
            _keymap.rehash(kept.view(np.uint8).reshape(-1), self._table)
        self.size = len(kept)

    def offsets(self) -> npt.NDArray[np.int64]:
        """The last offset of each key, sorted."""
        stored = self._slots()[:, 2]
        found: npt.NDArray[np.int64] = stored[stored != 0].view(np.int64)
        found -= 1
        found.sort()
        return found

    def _slots(self) -> npt.NDArray[np.uint64]:
        return self._table.view(np.uint64).reshape(-1, SLOT_BYTES // 8)

    @property
    def utilization(self) -> float:
        """Share of the slots that are taken, 0 to 1."""
        return self.size / self._most if self._most else 0.0

    def put(self, records: RecordColumns, start_offset: int) -> int:
        """Note the keys of records, in order, but for those below an offset and those without a key.

        Returns
        -------
        int
            The record that found the map full, or the number of records.
        """
        places = np.ascontiguousarray(records.key_place)
        sizes = np.ascontiguousarray(records.key_size)
        offsets = np.ascontiguousarray(records.offset)
        at = 0
        while True:
            slots = len(self._table) // SLOT_BYTES
            final = slots >= self._most
            # A table that will grow is left half empty, which makes it quick.
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

    def judge(self, records: RecordColumns) -> npt.NDArray[np.uint8]:
        """Say of each record what the map knows: `OLDER`, `LAST`, `BEYOND` or `NO_KEY`."""
        verdict = np.empty(len(records), np.uint8)
        _keymap.judge(
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
