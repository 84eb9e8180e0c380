"""Compressed batches: the bodies of many of them decompressed into one arena, and the functions for one payload.

A kernel finds the blocks of all payloads that have the plain shape of Kafka's own writers; what is left for Python is a
call of the codec for each. Payloads of any other shape, and damaged ones, go through the careful readers in `codecs`,
where the libraries are listed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg._native import _framing, _records
from pylogseg.format.batches import BatchTable
from pylogseg.format.buffers import byte_view
from pylogseg.format.codec_error import DECOMPRESSED_LIMIT_BYTES, ArenaFullError, CodecError
from pylogseg.format.codecs import (
    BlockLibrary,
    WholeLibrary,
    compress,
    compressor,
    decompress,
    decompress_view,
    library_of,
)
from pylogseg.format.scratch import BODY_DTYPE, SOURCE_SHIFT, new_bytes

__all__ = [
    "ARENA_BYTES",
    "BLOCK_DTYPE",
    "Arena",
    "ArenaFullError",
    "CodecError",
    "compress",
    "compressor",
    "decompress",
    "fill_bodies",
]

#: A row of a block table, as in `_native/kernels/framing.pxd`.
BLOCK_DTYPE = np.dtype([("position", "i8"), ("size", "i4"), ("room", "i4")])

#: Bytes that several batches may become together.
ARENA_BYTES = 128 << 20

_ARENA = 1 << SOURCE_SHIFT
_KEY_AT = {0: 18, 1: 26}
# Rows of a block table at a time; a payload with more blocks than this goes the careful way.
_BLOCK_ROWS = 4096


def unpacker_of(codec: int, limit: int) -> _framing.Unpacker | None:
    """Return an unpacker for payloads of at most `limit` bytes, for this thread; None if there is no such codec."""
    library = library_of(codec)
    if library is None:
        return None
    first_room = library.first_room if isinstance(library, WholeLibrary) else 0
    careful = functools.partial(_or_none, codec, limit)
    return _framing.Unpacker(codec, library.into, library.failure, limit, first_room, careful)


def _or_none(codec: int, limit: int, payload: memoryview) -> bytes | None:
    try:
        return decompress_view(codec, payload, 2, limit)
    except CodecError:
        return None


class Arena:
    """Memory for decompressed bytes, which grows and is used again by the next `fill_bodies` with it.

    The result of `fill_bodies` keeps its memory alive, but the next call with the same arena overwrites it; a caller
    that keeps the bytes passes a fresh arena, or none. One thread at a time uses an arena. `allocate` returns new
    memory.
    """

    __slots__ = ("_allocate", "memory", "most")

    def __init__(self, capacity: int = 0, allocate: Callable[[int], npt.NDArray[np.uint8]] = new_bytes) -> None:
        self.memory = allocate(capacity)
        self._allocate = allocate
        self.most: int | None = None

    def reserve(self, size: int, used: int) -> memoryview:
        """Return memory of at least `size` bytes, the first `used` of which are kept."""
        if size > len(self.memory):
            if self.most is not None and size > self.most:
                raise ArenaFullError(f"{size} bytes decompressed at once are more than {self.most}")
            # Untouched memory costs nothing until it is written, so doubling is cheap.
            doubled = 2 * len(self.memory)
            larger = self._allocate(max(size, doubled if self.most is None else min(doubled, self.most)))
            larger[:used] = self.memory[:used]
            self.memory = larger
        return self.memory.data


def fill_bodies(
    table: BatchTable,
    buffer: Any,
    file_position: int,
    *,
    limit: int = DECOMPRESSED_LIMIT_BYTES,
    arena: Arena | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8], list[tuple[int, CodecError]]]:
    """Find the bodies of all batches of a table, and decompress the compressed ones.

    Returns for each row where its body lies (source 0 is the buffer, 1 the arena), a view of the arena's used part,
    and, ascending, the rows whose body could not be had (size -1). `limit` is for one batch; ArenaFullError is raised
    if several become more than `ARENA_BYTES` together. `file_position` is that of the buffer's byte 0.
    """
    bodies = np.empty(len(table), BODY_DTYPE)
    view = byte_view(buffer)
    is_simple = _records.plain_bodies(np.ascontiguousarray(table.rows), file_position, bodies, len(view))
    work = _Bodies(table, view, limit, Arena() if arena is None else arena, bodies)
    payload_rows = work.payloads(is_simple)
    # One batch keeps to the limit by itself; of several, each within it, the sum may still be too much.
    work.arena.most = ARENA_BYTES if sum(map(len, payload_rows.values())) > 1 else None
    work.arena.reserve(min(4 * int(bodies["size"].sum()), ARENA_BYTES), 0)
    for codec, rows in sorted(payload_rows.items()):
        work.run(codec, rows)
    work.errors.sort(key=lambda error: error[0])
    return bodies, work.arena.memory[: work.used], work.errors


class _Bodies:
    """One call of `fill_bodies`: the bodies that it fills, and the used size of the arena."""

    def __init__(
        self,
        table: BatchTable,
        view: memoryview,
        limit: int,
        arena: Arena,
        bodies: npt.NDArray[Any],
    ) -> None:
        self.table, self.view, self.limit, self.arena = table, view, limit, arena
        self.bodies, self.raw = bodies, np.frombuffer(bodies, np.uint8)
        self.used = 0
        self.errors: list[tuple[int, CodecError]] = []

    def fail(self, row: int, error: CodecError) -> None:
        self.bodies["size"][row] = -1
        self.errors.append((row, error))

    def payloads(self, is_simple: bool) -> dict[int, npt.NDArray[np.intp]]:
        """Turn the bodies of compressed rows into their payloads; return the rows that have one, by codec.

        `is_simple`: all rows are in the buffer and have records.
        """
        bodies, table = self.bodies, self.table
        summary = table.summary() if len(table) else None
        # Nearly every table is of batches of one codec.
        if is_simple and summary and summary.codec and summary.lowest_magic == 2:
            return {summary.codec: np.arange(len(table))}
        begins = bodies["place"]
        ends = begins + bodies["size"]
        is_outside = (begins < 0) | (ends < begins) | (ends > len(self.view))
        codec = table.codec
        compressed = codec != 0
        # Kafka does not touch the payload of a compressed batch without records; a wrapper has the count -1.
        bodies["size"][compressed & (table.count == 0)] = 0
        compressed &= table.count != 0
        for row in np.flatnonzero(compressed & is_outside).tolist():
            self.fail(row, CodecError("the batch lies outside of the buffer"))
        for row in np.flatnonzero(compressed & ~is_outside & (table.magic != 2)).tolist():
            start, size = bodies[row].item()
            try:
                bodies[row] = _wrapper_value(self.view, start, start + size, int(table.magic[row]))
            except CodecError as error:
                self.fail(row, error)
        compressed &= bodies["size"] >= 0
        return {number: np.flatnonzero(compressed & (codec == number)) for number in set(codec[compressed].tolist())}

    def run(self, codec: int, rows: npt.NDArray[np.intp]) -> None:
        library = library_of(codec)
        if isinstance(library, BlockLibrary):
            self._by_blocks(rows, library)
        elif library is not None:
            self._at_once(rows, library)
        else:
            self.store(rows, self.careful(rows))

    def careful(self, rows: npt.NDArray[np.intp]) -> Iterator[bytes | CodecError]:
        """Each payload of rows of one codec decompressed by the function for one payload."""
        view, limit, begins = self.view, self.limit, self.bodies["place"][rows]
        ends = (begins + self.bodies["size"][rows]).tolist()
        columns = (self.table.codec[rows].tolist(), self.table.magic[rows].tolist(), begins.tolist(), ends)
        for codec, magic, start, end in zip(*columns, strict=True):
            try:
                yield decompress_view(codec, view[start:end], magic, limit)
            except CodecError as error:
                yield error

    def _at_once(self, rows: npt.NDArray[np.intp], library: WholeLibrary) -> None:
        """Decompress each payload by one call, with the room that a kernel computed; careful readers do the rest."""
        begins = self.bodies["place"][rows]
        ends = begins + self.bodies["size"][rows]
        rooms = np.empty(len(rows), np.int64)
        library.rooms(self.view, begins, ends, self.limit, rooms)
        if self.table.summary().lowest_magic < 2:
            rooms[self.table.magic[rows] != 2] = -1
        late, at, needed = list[int](), 0, 1
        while needed:
            memory = self.arena.memory
            at, self.used, needed = _framing.run_payloads(
                library.into,
                library.failure,
                self.view,
                memory,
                self.used,
                begins,
                ends,
                rooms,
                library.first_room,
                rows,
                at,
                self.raw,
                late,
            )
            self.arena.reserve(needed, self.used)
        self.store_carefully(late)

    def store_carefully(self, rows: list[int]) -> None:
        """Decompress the payloads that a kernel left; raise an error that names their fault."""
        if rows:
            late = np.array(rows, np.intp)
            self.store(late, self.careful(late))

    def store(self, rows: npt.NDArray[np.intp], produced: Iterator[bytes | CodecError]) -> None:
        """Put decompressed payloads into the arena."""
        used = self.used
        memory = self.arena.reserve(0, 0)
        places: list[int] = []
        sizes: list[int] = []
        for data in produced:
            places.append(used)
            if isinstance(data, CodecError):
                sizes.append(-1)
                self.errors.append((int(rows[len(places) - 1]), data))
                continue
            end = used + len(data)
            if end > len(memory):
                memory = self.arena.reserve(end, used)
            memory[used:end] = data
            sizes.append(len(data))
            used = end
        self.bodies["place"][rows] = np.array(places, np.int64) | _ARENA
        self.bodies["size"][rows] = sizes
        self.used = used

    def _by_blocks(self, rows: npt.NDArray[np.intp], library: BlockLibrary) -> None:
        """Decompress plain payloads block by block, all others carefully."""
        start = self.bodies["place"][rows]
        end = start + self.bodies["size"][rows]
        counts = np.empty(len(rows), np.int32)
        blocks = np.empty(min(_BLOCK_ROWS, 64 + 2 * len(rows)), BLOCK_DTYPE).view(np.uint8)
        unchecked, late, row = (self.table.magic[rows] == 0).astype(np.uint8), list[int](), 0
        while row < len(rows):
            first = row
            row, _ = library.tables(self.view, start, end, unchecked, self.limit, row, counts, blocks)
            part, of, at, needed = counts[first:row], rows[first:row], 0, 1
            while needed:
                memory = self.arena.memory.data
                at, self.used, needed = _framing.run_blocks(
                    library.into, library.failure, self.view, memory, self.used, blocks, part, of, at, self.raw, late,
                    library.is_exact,
                )  # fmt: skip
                self.arena.reserve(needed, self.used)
        self.store_carefully(late)


def _wrapper_value(view: memoryview, start: int, end: int, magic: int) -> tuple[int, int]:
    """Return the place and size of the value of a compressed message of magic 0 or 1."""
    key_at = start + _KEY_AT[magic]
    # Writers leave the key null; Kafka's reader passes over one.
    value_at = key_at + 4 + max(_length(view, key_at, end), 0)
    size = _length(view, value_at, end)
    if size < 0:
        raise CodecError(f"a compressed message of magic {magic} with a null value")
    if size > end - value_at - 4:
        raise CodecError(f"the value of a compressed message, {size} bytes, runs past its end")
    return value_at + 4, size


def _length(view: memoryview, position: int, end: int) -> int:
    if position + 4 > end:
        raise CodecError("a compressed message ends before its value")
    return int.from_bytes(view[position : position + 4], "big", signed=True)
