"""Offset index and time index: from an offset or a timestamp to a place in the log.

Both are arrays of big-endian entries in ascending order, without a checksum. A broker makes the file as large as it may
become, filled with zeros, and cuts it when the segment is closed; so the entries of an active segment, or of one that a
crash left, end where only zeros follow. Rules: `docs/format.md`, "Indexes".

An index is a hint. After a crash it may hold old entries, and compaction leaves entries whose offset is gone: its
answer is a position to begin a scan from; at worst a wrong one, and the scan notices that.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.buffers import byte_view
from pylogseg.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, Structure

_MAX_INT32 = 2**31 - 1
#: An entry of KIP-1333, which is under discussion.
_WIDE = np.dtype([("offset", ">i4"), ("position", ">i8")])
_LOOK_ENTRIES = 64
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
_search = _codec.search
_offset_entry, _time_entry = OFFSET_INDEX_ENTRY.struct.unpack_from, TIME_INDEX_ENTRY.struct.unpack_from


class OffsetPosition(NamedTuple):
    """An entry of an offset index: the last offset of a batch, and the byte where that batch begins."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """An entry of a time index: the greatest timestamp (ms) so far, and the last offset of the batch that has it."""

    timestamp: int
    offset: int


class IndexFile:
    """Base of both kinds: slots, the zero tail, searches, the checks of the entries' order.

    The buffer is viewed, not copied, and kept alive by the index and by every array it gives out. `slot_count` includes
    the zero tail, `count` does not; `odd_bytes` follow the last whole slot, where a whole file has none. The engine's
    indexes, which grow, have another buffer: `pylogseg.log.indexes`.
    """

    _entry: ClassVar[Structure]
    #: Fields in ascending order, and whether strictly.
    _keys: ClassVar[dict[str, bool]]

    def __init__(self, buffer: Any, base_offset: int, path: str = "<index>") -> None:
        self._view = byte_view(buffer)
        self.base_offset = base_offset
        self.path = str(path)
        self._slots, self.odd_bytes = divmod(len(self._view), self._entry.size)
        self._count = _count_entries(self._view, self._entry.size, self._slots)

    @property
    def buffer(self) -> memoryview:
        return self._view

    @property
    def count(self) -> int:
        return self._count

    @property
    def slot_count(self) -> int:
        """Number of entries and of slots in the zero tail."""
        return self._slots

    def raw(self) -> tuple[memoryview, int]:
        """Return the bytes of the file, and the number of entries in them, of one moment."""
        return self._view, self._count

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, {self.count} entries)"

    @property
    def entries(self) -> npt.NDArray[Any]:
        """The entries as a structured big-endian array: a view into the buffer."""
        return np.frombuffer(self.buffer, self._entry.dtype, self.count)

    @property
    def slots(self) -> npt.NDArray[Any]:
        """As `entries`, with the zero tail."""
        return np.frombuffer(self.buffer, self._entry.dtype, self.slot_count)

    @property
    def zero_count(self) -> int:
        """Slots of the zero tail."""
        return self.slot_count - self.count

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Offset of each entry (int64, a copy)."""
        return self.entries["relative_offset"].astype(np.int64) + self.base_offset

    def check(self) -> None:
        """Look at the size, the first and the last entry, as Kafka's tools do.

        Raises CorruptionError if bytes are left after the last whole slot, or the last entry lies before the first, or
        below the segment.
        """
        if self.odd_bytes:
            reason = f"{self.odd_bytes} bytes after the last entry: the size is not a multiple of {self._entry.size}"
            self._refuse(self.slot_count, reason)
        if not self.count:
            return
        first, last = self.entries[0], self.entries[-1]
        if last["relative_offset"] < 0:
            reason = f"the last entry has relative offset {last['relative_offset']}, below the segment's first"
            self._refuse(self.count - 1, reason)
        for name in self._keys:
            if last[name] < first[name]:
                self._refuse(self.count - 1, f"the last entry has {name} {last[name]}, the first one {first[name]}")

    def check_entries(self) -> None:
        """Look at every entry and at the zero tail, as a broker never does.

        Raises CorruptionError as `check`, and if the order is broken anywhere (old entries that a truncation left do
        that) or something follows in the zero tail.
        """
        self.check()
        negative = np.flatnonzero(self.entries["relative_offset"] < 0)
        if len(negative):
            self._refuse(int(negative[0]), f"entry {negative[0]} has an offset below the segment's first")
        beyond = np.flatnonzero(self.entries["relative_offset"] > _MAX_INT64 - self.base_offset)
        if len(beyond):
            self._refuse(int(beyond[0]), f"entry {beyond[0]} has an offset that no 64 bits hold")
        for name, strictly in self._keys.items():
            self._check_ascending(name, strictly)
        tail = np.frombuffer(self.buffer, np.uint8)[self.count * self._entry.size :]
        if tail.any():
            slot = self.count + int(tail.argmax()) // self._entry.size
            self._refuse(slot, f"slot {slot} is not zero, though slot {self.count} is")

    def _check_ascending(self, name: str, strictly: bool) -> None:
        column = self.entries[name]
        broken = column[1:] <= column[:-1] if strictly else column[1:] < column[:-1]
        if broken.any():
            slot = int(broken.argmax()) + 1
            rule = "greater than" if strictly else "at least"
            self._refuse(
                slot, f"entry {slot} has {name} {column[slot]}, which is not {rule} {column[slot - 1]} before it"
            )

    def _refuse(self, slot: int, reason: str) -> None:
        raise CorruptionError(self.path, slot * self._entry.size, reason)

    def _place(self, slot: int) -> int:
        if not -self.count <= slot < self.count:
            raise IndexError(f"slot {slot} of {self.count}")
        return (slot if slot >= 0 else slot + self.count) * self._entry.size

    def _search_many(self, name: str, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        field = self._entry[name]
        return _codec.search_many(
            self.buffer, self._entry.size, field.offset, field.width, self.count, np.ascontiguousarray(keys), False
        )


class OffsetIndex(IndexFile):
    """An offset index (``.index``); see `IndexFile` for parameters and attributes."""

    _entry = OFFSET_INDEX_ENTRY
    _keys: ClassVar = {"relative_offset": True, "position": True}

    def check(self) -> None:
        """Look at the size, the first and the last entry, as Kafka's tools do, and for entries of another width.

        Raises CorruptionError also for an index that ascends only by the rules of KIP-1333 (segments above 2 GiB): no
        release of Kafka writes one yet.
        """
        self.refuse_wide()
        super().check()

    def refuse_wide(self) -> None:
        """Raise CorruptionError for an index that ascends only by the rules of KIP-1333."""
        if self.is_wide:
            self._refuse(
                0, f"its entries ascend only as entries of {_WIDE.itemsize} bytes (KIP-1333), which are not read"
            )

    @property
    def is_wide(self) -> bool:
        """True if the entries have an offset of 4 bytes and a position of 8, by their order; Kafka has 4 and 4."""
        size = len(self.buffer)
        if not size or size % _WIDE.itemsize:
            return False
        wide = np.frombuffer(self.buffer, _WIDE, min(size // _WIDE.itemsize, _LOOK_ENTRIES))
        wide = wide[: int(np.append(np.flatnonzero((wide["offset"] == 0) & (wide["position"] == 0)), len(wide))[0])]
        if not len(wide) or wide["offset"][0] < 0 or not 0 <= wide["position"][0] <= _MAX_INT32:
            return False
        if (wide["offset"][1:] <= wide["offset"][:-1]).any() or (wide["position"][1:] <= wide["position"][:-1]).any():
            return False
        plain = self.entries[:_LOOK_ENTRIES]
        ascends = all((plain[name][1:] > plain[name][:-1]).all() for name in self._keys)
        return bool(self.odd_bytes) if len(wide) == 1 else not ascends

    @property
    def positions(self) -> npt.NDArray[np.int32]:
        """Byte position in the log of each entry's batch (big-endian int32, a view)."""
        column: npt.NDArray[np.int32] = self.entries["position"]
        return column

    def __getitem__(self, slot: int) -> OffsetPosition:
        relative, position = OFFSET_INDEX_ENTRY.struct.unpack_from(self.buffer, self._place(slot))
        return OffsetPosition(self.base_offset + relative, position)

    def floor(self, offset: int) -> OffsetPosition:
        """Find the last entry at or below an offset; base offset and position 0 if there is none."""
        return OffsetPosition(*self.floor_pair(self.base_offset + _in_64_bits(offset - self.base_offset)))

    def floor_pair(self, offset: int) -> tuple[int, int]:
        """Return the fields of `floor`, in less time."""
        base, (buffer, count) = self.base_offset, self.raw()
        slot = _search(buffer, 8, 0, 4, count, offset - base)
        if slot < 0:
            return base, 0
        relative, position = _offset_entry(buffer, slot * 8)
        return base + relative, position

    def floor_positions(self, offsets: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return for each offset, in any order, the position that `floor` has."""
        keys = np.asarray(offsets, np.int64) - self.base_offset
        slots = self._search_many("relative_offset", keys)
        positions = np.zeros(len(slots), np.int64)
        hits = slots >= 0
        positions[hits] = self.positions[slots[hits]]
        return positions

    def upper_bound(self, position: int, size_bytes: int) -> OffsetPosition | None:
        """Find the first entry at or after the end of a fetch; None if the index ends before."""
        slot = _search(self.buffer, 8, 4, 4, self.count, _in_64_bits(position + size_bytes), True)
        return self[slot] if slot < self.count else None


class TimeIndex(IndexFile):
    """A time index (``.timeindex``); see `IndexFile` for parameters and attributes."""

    _entry = TIME_INDEX_ENTRY
    _keys: ClassVar = {"timestamp": True, "relative_offset": False}

    @property
    def timestamps(self) -> npt.NDArray[np.int64]:
        """Timestamp of each entry, ms (big-endian int64, a view)."""
        column: npt.NDArray[np.int64] = self.entries["timestamp"]
        return column

    def __getitem__(self, slot: int) -> TimestampOffset:
        timestamp, relative = TIME_INDEX_ENTRY.struct.unpack_from(self.buffer, self._place(slot))
        return TimestampOffset(timestamp, self.base_offset + relative)

    def floor(self, timestamp_ms: int) -> TimestampOffset:
        """Find the last entry at or below a timestamp; timestamp -1 and the base offset if there is none.

        Records with a later timestamp come at or after its offset, but for those that are out of order.
        """
        return TimestampOffset(*self.floor_pair(_in_64_bits(timestamp_ms)))

    def floor_pair(self, timestamp_ms: int) -> tuple[int, int]:
        """Return the fields of `floor`, in less time."""
        buffer, count = self.raw()
        slot = _search(buffer, 12, 0, 8, count, timestamp_ms)
        if slot < 0:
            return -1, self.base_offset
        timestamp, relative = _time_entry(buffer, slot * 12)
        return timestamp, self.base_offset + relative

    def floor_offsets(self, timestamps_ms: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return for each timestamp, in any order, the offset that `floor` has."""
        slots = self._search_many("timestamp", np.asarray(timestamps_ms, np.int64))
        offsets_at = np.full(len(slots), self.base_offset, np.int64)
        hits = slots >= 0
        offsets_at[hits] += self.entries["relative_offset"][slots[hits]]
        return offsets_at


def wide_head_bytes(size: int) -> int:
    """Return how many bytes at the head of an offset index of `size` bytes show `OffsetIndex.is_wide`; 0 if it is not.

    The same number of bytes is left over after the last whole slot of the file.
    """
    return 0 if size % _WIDE.itemsize else min(size, _LOOK_ENTRIES * _WIDE.itemsize + size % (2 * _WIDE.itemsize))


def encode_offset_index(base_offset: int, offsets: npt.ArrayLike, positions: npt.ArrayLike) -> bytes:
    """Make the bytes of an offset index from the last offset and position of each batch that gets an entry.

    Raises RequestError if they do not strictly ascend, differ in number, or do not fit 32 bits.
    """
    return _encode(OFFSET_INDEX_ENTRY, base_offset, offsets, "position", positions, (True, True))


def encode_time_index(base_offset: int, timestamps_ms: npt.ArrayLike, offsets: npt.ArrayLike) -> bytes:
    """Make the bytes of a time index from greatest timestamps so far, and the last offset of the batch that has each.

    Raises RequestError if timestamps do not strictly ascend, offsets descend, or numbers differ or do not fit.
    """
    return _encode(TIME_INDEX_ENTRY, base_offset, offsets, "timestamp", timestamps_ms, (False, True))


def _encode(
    entry: Structure,
    base_offset: int,
    offsets: npt.ArrayLike,
    name: str,
    values: npt.ArrayLike,
    strictly: tuple[bool, bool],
) -> bytes:
    relative = np.asarray(offsets, np.int64) - base_offset
    other = np.asarray(values, np.int64)
    if relative.shape != other.shape or relative.ndim != 1:
        raise RequestError(f"{relative.size} offsets and {other.size} of {name}")
    limit = _MAX_INT64 if entry[name].width == 8 else _MAX_INT32
    for label, column, top, strict in (
        ("offset", relative, _MAX_INT32, strictly[0]),
        (name, other, limit, strictly[1]),
    ):
        if len(column) and not (column.min() >= 0 and column.max() <= top):
            raise RequestError(f"{label} out of range: {column.min()} to {column.max()} do not fit into an entry")
        if (np.diff(column) < int(strict)).any():
            raise RequestError(f"{label} does not ascend")
    entries = np.empty(len(other), entry.dtype)
    entries["relative_offset"], entries[name] = relative, other
    return entries.tobytes()


def _in_64_bits(key: int) -> int:
    return key if _MIN_INT64 <= key <= _MAX_INT64 else _MIN_INT64 if key < 0 else _MAX_INT64


def _count_entries(buffer: memoryview, entry_size: int, slot_count: int) -> int:
    """Return slots before the zero tail, found by bisection: a file of 10 MiB costs 20 looks, not a read of it all."""
    zero = bytes(entry_size)
    # The first slot alone does not tell: an entry (timestamp 0, base offset) is all zeros as well.
    low, high = 1, slot_count
    while low < high:
        middle = (low + high) // 2
        if buffer[middle * entry_size : (middle + 1) * entry_size] == zero:
            high = middle
        else:
            low = middle + 1
    if low == 1 and slot_count > 1 and buffer[:entry_size] == zero:
        return 0
    return min(low, slot_count)
