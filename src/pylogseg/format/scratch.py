"""Memory that a decoder fills: columns, views and copies of payloads, and which of it is used again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

#: A place is ``(source << SOURCE_SHIFT) | position``: byte ``position`` of ``sources[source]``.
SOURCE_SHIFT = 40
SOURCE_MASK = (1 << SOURCE_SHIFT) - 1

#: Where the records of a batch lie: in the buffer of the file (source 0) or decompressed in an arena (source 1).
#: The body of a magic 2 batch is its records; of an uncompressed legacy batch, the whole entry; of a compressed
#: wrapper, the inner entries. A size of -1 says that the body could not be had.
BODY_DTYPE = np.dtype([("place", "i8"), ("size", "i8")])

#: An Arrow binary view: the size, then the payload if it has at most 12 bytes, else its first 4, source and position.
VIEW_DTYPE = np.dtype([("size", "<i4"), ("first", "V4"), ("source", "<i4"), ("position", "<i4")])
_ARROW_END = (1 << 31) - 1
#: Bytes after the last value that let it be copied in whole steps.
COPY_SLACK_BYTES = 32

#: What a decoder may be asked for besides columns: keys and values as views, or a copy of keys, of values, or of both.
Besides = Literal["views", "keys", "values", "payloads"] | None

#: True if values are copied, and keys.
_COPIED = {"keys": (False, True), "values": (True, False), "payloads": (True, True)}
_COLUMN_TYPES = {
    "offset": np.int64,
    "timestamp": np.int64,
    "key_place": np.int64,
    "key_size": np.int32,
    "value_place": np.int64,
    "value_size": np.int32,
    "headers_place": np.int64,
    "header_count": np.int32,
    "batch": np.int32,
}
COLUMN_NAMES = tuple(_COLUMN_TYPES)


class Copies(NamedTuple):
    """Payloads as an Arrow binary array has them: item ``i`` lies in ``data[ends[i]:ends[i + 1]]``.

    Attributes
    ----------
    ends : numpy.ndarray of int32
        One more than payloads.
    data : numpy.ndarray of uint8
    """

    ends: npt.NDArray[np.int32]
    data: npt.NDArray[np.uint8]


def new_bytes(size: int) -> npt.NDArray[np.uint8]:
    """Return memory of numpy's."""
    return np.empty(size, np.uint8)


def _bytes_from(allocate: Callable[[int], Any], size: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(allocate(size), np.uint8)


_NOTHING = np.empty(0, np.uint8)


class Density(NamedTuple):
    """Counts of a file's content: batches, records, and bytes that compressed batches become."""

    batches: float
    records: float
    unpacked: float

    @classmethod
    def of(cls, batches: int, records: int, unpacked: int, size: int) -> Density:
        """Return the density of a window with these counts in `size` bytes."""
        return cls(batches / size, records / size, unpacked / size)

    def at_least(self, other: Density, part: float) -> Density:
        """Return the greater of this one and a part of another."""
        return Density(
            max(self.batches, part * other.batches),
            max(self.records, part * other.records),
            max(self.unpacked, part * other.unpacked),
        )


class Scratch:
    """Memory for the columns of one decoding at a time, so that a stream does not ask the system for it at each step.

    Columns that were decoded with a scratch are overwritten by the next decoding with it, and so are the bytes that
    they point at, those of the file included where they were read into its `window`. Only offsets and what there is
    besides columns are new each time, from `allocate`: Arrow takes them as they are. `besides` makes ``"views"`` of
    keys and values, or copies ``"keys"``, ``"values"``, or ``"payloads"`` for both. Without an arena, only the columns
    are overwritten: what they point at lives as long as somebody holds it.
    """

    __slots__ = (
        "_allocate",
        "_besides",
        "_columns",
        "_spare",
        "_window",
        "arena",
        "density",
        "memory",
        "with_arena",
    )

    def __init__(
        self,
        with_arena: bool = True,
        besides: Besides = None,
        allocate: Callable[[int], Any] = new_bytes,
    ) -> None:
        self._columns: list[npt.NDArray[Any]] = []
        self._window = _NOTHING
        self._spare = [_NOTHING, _NOTHING]
        self.arena: Any = None
        #: Of what was read last, as far as it is known.
        self.density: Density | None = None
        self.with_arena, self._besides, self._allocate = with_arena, besides, allocate
        #: Returns new memory from `allocate`, which may have it from what was let go of: then no page of it is new.
        #: No method: an arena that had this object would keep itself, with all its memory, until the next collection.
        self.memory = functools.partial(_bytes_from, allocate)

    def window(self, size: int, *, is_kept: bool = True) -> memoryview:
        """Return memory for so many bytes of a file that are decoded next; new memory where they are kept then."""
        if is_kept and not self.with_arena:
            return self.memory(size).data
        if len(self._window) < size:
            self._window = self.memory(size)
        return self._window.data[:size]

    def reserve_unpacked(self, size: int) -> npt.NDArray[np.uint8]:
        """Return memory for the decompressed bytes of batches; their number is exact."""
        if not self.with_arena or self.arena is None:
            return self.memory(size)
        self.arena.reserve(size, 0)
        memory: npt.NDArray[np.uint8] = self.arena.memory
        return memory

    def columns(self, room: int) -> list[npt.NDArray[Any]]:
        """Arrays of at least `room` items, one for each of `COLUMN_NAMES`."""
        if not self._columns or len(self._columns[1]) < room:
            self._columns = allocate(room + room // 4, self._allocate)
        self._columns[0] = np.frombuffer(self._allocate(8 * room), np.int64)
        return self._columns

    def besides(self, room: int, bytes_room: int, sources: tuple[Any, ...]) -> list[npt.NDArray[Any] | None]:
        """Return memory for views, or for payloads of so many bytes; nothing where a place or they may be too large."""
        if self._besides == "views" and max(map(len, sources)) <= _ARROW_END:
            return [np.frombuffer(self._allocate(VIEW_DTYPE.itemsize * room), VIEW_DTYPE) for _ in range(2)]
        if self._besides in _COPIED and bytes_room + COPY_SLACK_BYTES <= _ARROW_END:
            wanted = _COPIED[self._besides]
            values, keys = (self._copies(i, room, bytes_room) if wanted[i] else (None, None) for i in range(2))
            return [None, None, *values, *keys]
        return []

    def _copies(self, which: int, room: int, bytes_room: int) -> Copies:
        ends = np.frombuffer(self._allocate(4 * (room + 1)), np.int32)
        ends[0] = 0
        needed = bytes_room + COPY_SLACK_BYTES
        data, self._spare[which] = self._spare[which], _NOTHING
        if not needed <= len(data) <= 2 * needed:
            data = np.frombuffer(self._allocate(needed), np.uint8)
        return Copies(ends, data)

    def trim_copies(self, copies: list[Copies | None], count: int) -> list[Copies | None]:
        """Return the first payloads alone, of the copies of values and of keys, as far as there are any.

        Memory is given away with payloads that fill most of it. Else they are copied out of it, and it is kept for the
        next time: to ask for room for all bytes, and to give it back, costs more than most keys.
        """
        copied: list[Copies | None] = []
        for which, copy in enumerate(copies):
            if copy is None:
                copied.append(None)
                continue
            ends, data = copy
            used = data[: ends[count]]
            if 4 * len(used) < 3 * len(data):
                self._spare[which] = data
                used = used.copy()
            copied.append(Copies(ends[: count + 1], used))
        return copied


def allocate(room: int, memory: Callable[[int], Any] = new_bytes) -> list[npt.NDArray[Any]]:
    """Arrays of so many items, one for each of `COLUMN_NAMES`."""
    return [np.frombuffer(memory(room * np.dtype(kind).itemsize), kind) for kind in _COLUMN_TYPES.values()]
